"""Groups runs that differ in their seed alone, and finds the preset keys in which the groups differ."""

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Any, NamedTuple

from recurcli.commands.comparison.collect import ROUNDING, TRAIN_ROWS, ComparedRun
from recurcli.errors import UsageError, did_you_mean, escaped
from recurcli.evaluation.metrics import METRICS, MINIMIZED
from recurcli.preset.compose import is_for_encoder
from recurcli.runs.predictions import read_predictions
from recurcli.runs.run_directory import reopen_run


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
        return [run.scores[metric] for run in self.runs]

    def to_json(self, metric: str) -> dict[str, Any]:
        """Return what the table shows. Costs are means over the runs; FLOPs are None where a run has none."""
        results = [run.result for run in self.runs]
        parameters = results[0]["parameters"]
        scores = self.scores(metric)
        encoder = [run.encoder_scores[metric] for run in self.runs if run.encoder_scores is not None]
        test = [run.test_scores[metric] for run in self.runs if run.test_scores is not None]
        return {
            "name": self.name,
            "preset": results[0]["preset"],
            "values": dict(self.values),
            **_summary(scores, metric),
            "seeds": [run.seed for run in self.runs],
            "scores": scores,
            "encoder": _summary(encoder, metric) if encoder else None,
            "test": _summary(test, metric) if len(test) == len(self.runs) else None,
            "parameters": parameters["total"],
            "parameters_without_embeddings": parameters["total"] - parameters["embedding"],
            "forward_flops_per_token": results[0].get("forward_flops_per_token"),
            "seconds": fmean(result["seconds"] for result in results),
            "cpu_seconds": fmean(result["cpu_seconds"] for result in results),
            "tokens_per_second": fmean(result["tokens_per_second"] for result in results),
            "runs": [str(run.path) for run in self.runs],
            "manifests": [run.manifest for run in self.runs],
        }


def _summary(scores: Sequence[float], metric: str) -> dict[str, Any]:
    """Return number, mean, sample standard deviation (None for one run) and the best of the scores."""
    best = min(scores) if metric in MINIMIZED else max(scores)
    spread = stdev(scores) if len(scores) > 1 else None
    return {"n": len(scores), "mean": fmean(scores), "std": spread, "best": best}


MAJORITY = "majority class"


@dataclass(frozen=True)
class Baseline:
    """A classifier without an encoder: the linear model on n-grams of the training rows, or the majority class."""

    name: str
    score: float
    """The metric; the mean over the runs if their linear models differ, as those of two versions of recur may."""
    test: float | None
    """The test metric beside that of the dev rows. None if it is not known."""
    predictions: Sequence[str] | None
    """The predictions; None: the linear models of the runs differ, or all runs store their accuracy alone."""
    groups: Sequence[Group]
    """The groups with its training rows and settings."""

    def to_json(self) -> dict[str, Any]:
        """Return the row of the baseline in the table, as values for the JSON."""
        return {"name": self.name, "mean": self.score, "test": self.test}


def baselines(groups: Sequence[Group], metric: str) -> list[Baseline]:
    """Return the linear model, one for each set of training rows and settings, and the majority class of the compared rows.

    The linear model is the one that was fitted on the rows that the encoders were trained on, in all runs: a run whose model
    has another, fitted again on the dev rows too, stores the scores of the first. A language model has none.
    """
    if metric not in METRICS:
        return []
    alike: dict[str, list[Group]] = {}
    for group in groups:
        if _linear_score(group.runs[0].stored, metric) is not None:
            settings = {key: value for key, value in group.runs[0].facts.items() if _is_for_linear_model(key)}
            alike.setdefault(json.dumps(settings, sort_keys=True), []).append(group)
    made = [_linear_model(some, metric) for some in alike.values()]
    if len(made) > 1:
        made = [replace(each, name=f"{each.name} ({each.groups[0].name})") for each in made]
    first = groups[0].runs[0]
    majority = Counter(first.rows.labels).most_common(1)[0][0]
    constant = [majority] * len(first.rows.labels)
    beside = (first.result.get("test") or {}) if first.split == "dev" else {}
    test = beside.get("baselines", {}).get("majority") if metric == "accuracy" else None
    return [*made, Baseline(MAJORITY, _score(metric, first.rows.labels, constant), test, constant, groups)]


def _is_for_linear_model(key: str) -> bool:
    """Return whether a fact of a run decides what its linear model is."""
    of_data = key.startswith("data.") and not is_for_encoder(tuple(key.split(".")))
    return of_data or key.startswith("linear.") or key in (TRAIN_ROWS, "teacher", "finetuning.teacher_weight")


def _linear_model(groups: Sequence[Group], metric: str) -> Baseline:
    """Return the linear model of the runs: with predictions of an ensemble, else with its accuracy if that is the `metric`."""
    runs = [run for group in groups for run in group.runs]
    stored = [_linear_score(run.stored, metric) for run in runs]
    beside = [_linear_score(run.result.get("test") or {}, metric) for run in runs if run.split == "dev"]
    scores, tests = ([score for score in found if score is not None] for found in (stored, beside))
    score, predictions = fmean(scores), None
    whole = next((run for run in runs if "parts" in run.stored), None)
    if whole is not None and max(scores) - min(scores) < ROUNDING:
        linear = read_predictions(reopen_run(whole.path, whole.manifest), "linear", whole.split)
        if linear.part == "linear":
            score, predictions = _score(metric, linear.labels, linear.predictions), linear.predictions
    return Baseline("linear model", score, fmean(tests) if tests else None, predictions, groups)


def _linear_score(scored: Mapping[str, Any], metric: str) -> float | None:
    """Return the metric of the linear model in the dev or test scores of a result; None: it is not stored."""
    if "parts" in scored:
        return scored["parts"]["linear"].get(metric)
    return scored.get("baselines", {}).get("linear") if metric == "accuracy" else None


def _score(metric: str, labels: Sequence[str], predictions: Sequence[str]) -> float:
    index = {name: number for number, name in enumerate(sorted({*labels, *predictions}))}
    return METRICS[metric].compute([index[label] for label in labels], [index[label] for label in predictions])


def group_runs(runs: Iterable[ComparedRun], metric: str) -> tuple[list[Group], list[str], list[str]]:
    """Return the groups, those with the best mean `metric` first, and the two lists of `differing_keys`."""
    members: dict[str, list[ComparedRun]] = {}
    for run in runs:
        members.setdefault(run.group_key, []).append(run)
    facts = [group[0].facts for group in members.values()]
    apart, others = differing_keys(facts)
    short = len({key.rpartition(".")[2] for key in apart}) == len(apart)
    groups = []
    for group, own in zip(members.values(), facts, strict=True):
        values = {key: own.get(key) for key in (*apart, *others) if key in own or not _goes_with_another(key)}
        name = ", ".join(_named(key, values[key], short=short) for key in apart if key in values)
        groups.append(Group(name or group[0].result["preset"], values, sorted(group, key=lambda run: run.seed)))
    return sorted(groups, key=lambda g: fmean(g.scores(metric)), reverse=metric not in MINIMIZED), apart, others


class Line(NamedTuple):
    """Groups that differ in one numeric key alone."""

    name: str
    """The values of the other keys in which the lines differ, as text; the preset if there is one line."""
    points: list[tuple[float | None, Group]]
    """The value of the key and its group, in ascending order of the values; None, for a group without a number, stands last."""


def check_over(runs: Sequence[ComparedRun], key: str) -> None:
    """Raise UsageError if the `key` has not two numbers in the runs."""
    known = {name for run in runs for name in run.facts}
    values = {run.facts[key] for run in runs if is_number(run.facts.get(key))}
    if key not in known:
        numeric = {name for run in runs for name, value in run.facts.items() if is_number(value)}
        raise UsageError(f"--over: no run has the key '{escaped(key)}'{did_you_mean(key, numeric)}")
    if not values:
        raise UsageError(f"--over: {key} is {escaped(text_of(runs[0].facts.get(key)))}, which is no number")
    if len(values) == 1:
        raise UsageError(f"--over: {key} is {values.pop():g} in all runs; name runs with other values too")


def is_number(value: object) -> bool:
    """Return whether a value of a preset is a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def lines_over(groups: Sequence[Group], key: str) -> list[Line]:
    """Return the groups as lines over `key`, those with the best group first.

    The number of training rows follows `data.train_share`, so it does not tell the lines of that key apart.
    """
    but = {key, *([TRAIN_ROWS] if key == "data.train_share" else [])}
    members: dict[str, list[Group]] = {}
    for group in groups:
        others = {name: value for name, value in group.runs[0].facts.items() if name not in but}
        members.setdefault(json.dumps(others, sort_keys=True), []).append(group)
    known = [json.loads(own) for own in members]
    apart, _ = differing_keys(known)
    short = len({name.rpartition(".")[2] for name in apart}) == len(apart)
    lines = []
    for own, some in zip(known, members.values(), strict=True):
        name = ", ".join(_named(each, own[each], short=short) for each in apart if each in own)
        values = [group.runs[0].facts.get(key) for group in some]
        points = [(value if is_number(value) else None, group) for value, group in zip(values, some, strict=True)]
        points.sort(key=lambda point: math.inf if point[0] is None else point[0])
        lines.append(Line(name or str(some[0].runs[0].result["preset"]), points))
    return lines


def differing_keys(facts: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[str]]:
    """Return a minimal list of keys whose values distinguish all `facts`, and the list of the other keys that differ.

    The encoder's name comes first, then the path of a pre-trained one. A key that only some of the encoders have is listed only
    if it distinguishes groups.
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
    implied = {key for key in differing if _goes_with_another(key) and "" in shown[key]}
    return apart, [key for key in differing if key not in apart and key not in implied]


def _goes_with_another(key: str) -> bool:
    """Whether only some groups may have the key: those of its encoder, of any, or those that start from a pretrained run."""
    return key.startswith(("init.", "init ")) or is_for_encoder(tuple(key.split(".")))


def text_of(value: Any) -> str:
    """Return a value of a preset as text. None is written as null."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _named(key: str, value: Any, *, short: bool) -> str:
    """Return a key and its value as a part of a group's name; `short`: only the last part of the key."""
    text = text_of(value)
    return text if key == "encoder.name" else f"{key.rpartition('.')[2] if short else key}={text}"
