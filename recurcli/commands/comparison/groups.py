"""Groups runs that differ in their seed alone, and finds the preset keys in which the groups differ."""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Any, TypeVar

from recurcli.commands.comparison.collect import ComparedRun
from recurcli.config import SOURCE_DIGEST
from recurcli.errors import UsageError, did_you_mean, escaped, pluralize
from recurcli.log import Log
from recurcli.metrics import PERPLEXITY, metric_named
from recurcli.preset.compose import is_for_encoder
from recurcli.runs.predictions import read_predictions
from recurcli.runs.run_directory import reopen_run
from recurcli.targets import Cell

T = TypeVar("T")


@dataclass(frozen=True)
class Group:
    """Runs that differ in their seed alone, sorted by seed."""

    name: str
    """The values of the preset keys in which this group differs from the others, as text."""
    values: Mapping[str, Any]
    """The keys that differ between the groups, with their values in this one; a key of another encoder is missing."""
    runs: Sequence[ComparedRun]

    def scores(self, metric: str) -> list[float]:
        """Return the metric of each run on the compared rows."""
        return [run.score(metric) for run in self.runs]

    def to_json(self, metric: str) -> dict[str, Any]:
        """Return what the table shows. Costs are means over the runs; FLOPs are None where a run has none."""
        results = [run.result for run in self.runs]
        parameters = results[0]["parameters"]
        scores = self.scores(metric)
        costs = ("seconds", "cpu_seconds", "tokens_per_second")
        return {
            "name": self.name,
            "preset": results[0]["preset"],
            "values": dict(self.values),
            "train_rows": results[0]["data"]["train"]["rows"],
            "n": len(scores),
            "mean": fmean(scores),
            "std": stdev(scores) if len(scores) > 1 else None,
            "best": min(scores) if metric_named(metric).minimize else max(scores),
            "seeds": [run.seed for run in self.runs],
            "scores": scores,
            "parameters": parameters["total"],
            "parameters_without_embeddings": parameters["total"] - parameters["embedding"],
            "forward_flops_per_token": results[0].get("forward_flops_per_token"),
            **{cost: fmean(result[cost] for result in results) for cost in costs},
            "runs": [str(run.path) for run in self.runs],
            "manifests": [run.manifest for run in self.runs],
        }


@dataclass(frozen=True)
class Baseline:
    """A model without an encoder: the linear model on n-grams of the training rows, or the best constant prediction."""

    name: str
    score: float
    predictions: Sequence[Cell] | None
    """The predictions; None: the runs store their score alone."""
    groups: list[Group]
    """The groups whose linear model it is."""


def baselines(groups: Sequence[Group], metric: str) -> list[Baseline]:
    """Return the linear models of the groups, one for all groups with equal predictions, and the best constant.

    The linear model is the one that was fitted on the rows that the encoders were trained on. It does not depend on the seed,
    so that of a group is that of its first run. A language model has none.
    """
    if metric == PERPLEXITY or not groups:
        return []
    rows = groups[0].runs[0].rows
    target, labels = rows.target, rows.target.encode(rows.labels)
    made: list[Baseline] = []
    for group in groups:
        run = group.runs[0]
        score = run.stored.get("baselines", {}).get("linear") if metric == target.headline else None
        predictions = None
        if "parts" in run.stored:
            linear = read_predictions(reopen_run(run.path, run.manifest), "linear", run.split)
            predictions, score = linear.predictions, target.score(metric, *linear.encoded())
        if score is None:
            continue
        same = next((one for one in made if (one.score, one.predictions) == (score, predictions)), None)
        if same is not None:
            same.groups.append(group)
        else:
            made.append(Baseline("linear model", score, predictions, [group]))
    if len(made) > 1:
        made = [replace(each, name=f"{each.name} ({each.groups[0].name})") for each in made]
    constant = target.constant(labels)
    return [*made, Baseline(target.constant_words, target.score(metric, labels, constant), target.decode(constant), [])]


def group_runs(runs: Iterable[ComparedRun], metric: str) -> tuple[list[Group], list[str], list[str]]:
    """Return the groups, those with the best mean `metric` first, and the two lists of `differing_keys`."""
    named, apart, others = _apart(runs, lambda run: run.facts)
    groups = []
    for name, members in named:
        facts = members[0].facts
        values = {key: facts.get(key) for key in (*apart, *others) if key in facts or not _goes_with_another(key)}
        groups.append(Group(name or members[0].result["preset"], values, sorted(members, key=lambda run: run.seed)))
    return (
        sorted(groups, key=lambda g: fmean(g.scores(metric)), reverse=not metric_named(metric).minimize),
        apart,
        others,
    )


def check_over(runs: Sequence[ComparedRun], key: str) -> None:
    """Raise UsageError if the `key` has not two numbers in the runs."""
    values = {run.facts[key] for run in runs if is_number(run.facts.get(key))}
    if len(values) > 1:
        return
    if any(key in run.facts for run in runs):
        found = sorted({text_of(run.facts.get(key)) for run in runs})
        raise UsageError(f"--over: {key} has not two numbers: it is {escaped(' and '.join(found))}")
    numeric = {name for run in runs for name, value in run.facts.items() if is_number(value)}
    raise UsageError(f"--over: no run has the key '{escaped(key)}'{did_you_mean(key, numeric)}")


def is_number(value: object) -> bool:
    """Return whether a value of a preset is a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def lines_over(groups: Sequence[Group], key: str, rows: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the groups that differ in the numeric `key` alone as lines of scores, the line with the best group first.

    The name of a line has the values of the other keys in which the lines differ. Its points have the value of the key, in
    ascending order; None, of a group without a number, stands last. `rows` are those of the table by the name of the group.
    The number of training rows follows `data.train_share`, so it does not distinguish the lines of that key.
    """
    but = {key, *(["train rows"] if key == "data.train_share" else [])}

    def others(group: Group) -> dict[str, Any]:
        return {name: value for name, value in group.runs[0].facts.items() if name not in but}

    lines = []
    for name, members in _apart(groups, others)[0]:
        points = []
        for group in members:
            value, row = group.runs[0].facts.get(key), rows[group.name]
            scores = {part: row[part] for part in ("name", "train_rows", "mean", "std", "n", "interval", "scores")}
            points.append({"value": value if is_number(value) else None, **scores})
        points.sort(key=lambda point: math.inf if point["value"] is None else point["value"])
        lines.append({"name": name or members[0].runs[0].result["preset"], "points": points})
    return lines


def _apart(
    items: Iterable[T], facts_of: Callable[[T], Mapping[str, Any]]
) -> tuple[list[tuple[str, list[T]]], list[str], list[str]]:
    """Return the items with equal facts together, named by the keys that distinguish them, and `differing_keys`."""
    members: dict[str, list[T]] = {}
    for item in items:
        members.setdefault(json.dumps(facts_of(item), sort_keys=True), []).append(item)
    facts = [facts_of(alike[0]) for alike in members.values()]
    apart, others = differing_keys(facts)
    words = short_names(apart)
    names = []
    for own in facts:
        shown = [key for key in apart if key in own or not _goes_with_another(key)]
        parts = (("" if key == "encoder.name" else f"{words[key]}=") + text_of(own.get(key)) for key in shown)
        names.append(", ".join(parts))
    return list(zip(names, members.values(), strict=True)), apart, others


def short_names(keys: Iterable[str]) -> dict[str, str]:
    """Return the last part of each key, or the whole key if another key ends in the same part."""
    keys = list(keys)
    last = [key.rpartition(".")[2] for key in keys]
    return {key: short if last.count(short) == 1 else key for key, short in zip(keys, last, strict=True)}


def differing_keys(facts: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[str]]:
    """Return a minimal list of keys whose values distinguish all `facts`, and the list of the other keys that differ.

    The encoder's name comes first, then the path of a pre-trained one. A key that only some of the encoders have is listed only
    if it differs between groups of one encoder.
    """
    keys = sorted(
        {key for each in facts for key in each}, key=lambda key: (key != "encoder.name", key != "encoder.path", key)
    )
    shown = {key: [json.dumps(each[key]) if key in each else "" for each in facts] for key in keys}
    differing = [key for key in keys if len(set(shown[key])) > 1]

    def kinds(chosen: Sequence[str]) -> int:
        return len(set(zip(*(shown[key] for key in chosen), strict=True))) if chosen else 1

    apart: list[str] = []
    for key in differing:
        if kinds([*apart, key]) > kinds(apart):
            apart.append(key)
    for key in list(apart):  # a later key may make it needless
        rest = [other for other in apart if other != key]
        apart = rest if key != "encoder.name" and kinds(rest) == len(facts) else apart
    owners = [key for key in ("encoder.name", "init") if key in shown]
    absent = (key for key in differing if _goes_with_another(key) and "" in shown[key])
    implied = {key for key in absent if kinds([*owners, key]) == kinds(owners)}
    return apart, [key for key in differing if key not in apart and key not in implied]


def _goes_with_another(key: str) -> bool:
    """Whether only some groups may have the key: those of its encoder, of any, or those that start from a pretrained run."""
    return key.startswith(("init.", "init ")) or is_for_encoder(tuple(key.split(".")))


def text_of(value: Any) -> str:
    """Return a value of a preset as text. None is written as null; of the sha256 of static vectors eight digits stay."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return SOURCE_DIGEST.sub(lambda found: found[0][:9], text)


FEW_SEEDS = 5
"""Seeds below which a test paired by seed finds large differences alone; ours."""
ORDER = ("task", "data.", "tokenizer.", "embedding.vectors", "batch_size", "gradient_accumulation_steps")
"""Keys that decide which rows are trained on, and in which order; parts of their names."""


def check_pairs(groups: Sequence[Group], log: Log) -> None:
    """Raise UsageError unless the runs of one seed of all `groups` have been trained on the same rows in the same order."""
    if len(groups) < 2:
        return log.warn("--pair-seeds has no effect: it pairs the runs of two groups or more")
    first = groups[0]
    for group in groups[1:]:
        seeds = [[run.seed for run in each.runs] for each in (first, group)]
        if seeds[0] != seeds[1]:
            have = " and ".join(", ".join(map(str, own)) for own in seeds)
            raise UsageError(
                f"--pair-seeds: {first.name} and {group.name} have different seeds, {have}; train the same ones"
            )
        trained = [each.runs[0].result["data"].get("train", {}).get("sha256") for each in (first, group)]
        if trained[0] != trained[1]:
            raise UsageError(
                f"--pair-seeds: {first.name} and {group.name} have different training rows, so no order is shared"
            )
    keys = {key for group in groups for key in group.values if any(part in key for part in ORDER)}
    if keys:
        raise UsageError(
            f"--pair-seeds: the runs differ in {', '.join(sorted(keys))}, and so in the order of their rows"
        )
    if len(first.runs) < FEW_SEEDS:
        log.note(
            f"--pair-seeds: use at least {FEW_SEEDS} seeds; {pluralize(len(first.runs), 'difference')} can tell little"
        )
