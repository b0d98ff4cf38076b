"""What a training or an evaluation found: the few lines with which the screen, the model card and the page begin, and the
rows of their tables of scores.

This file does not import torch.
"""

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from recurcli.data.tasks import TASKS
from recurcli.errors import pluralize
from recurcli.metrics import (
    PERPLEXITY,
    TEST_SPLITS,
    format_interval,
    format_score,
    metric_named,
    percent,
    score_in,
    words_of,
)
from recurcli.targets import TARGETS, OneLabel

Scores = Mapping[str, Any]
"""A report of a target with the facts of `report_with_parts`, the number of `rows`, the kind of the `target`, and the `metric`
of the run."""
_PARTS = {"linear": "linear model", "encoder": "encoder"}
_KINDS = {"file": "", "train": "training "}
_IN_FULL = {"ensemble": "encoder + linear model (ensemble)"}


class ResultBlock(NamedTuple):
    """The first lines of a result: what is kept, how good it is by the headline of its target, and the next step."""

    title: tuple[str, str]
    """The run folder; the preset and the seed."""
    columns: list[str]
    """What is kept; then the number of rows of each split, and the interval on them."""
    rows: list[list[str]]
    """A name, then the score and its 95 % interval on each split. The kept model comes first."""
    notes: list[str]
    next: list[str]
    """The commands that come next."""


def result_block(
    run: Path, trained: Mapping[str, Any], evaluated: Mapping[str, Any] | None = None, *, has_page: bool = False
) -> ResultBlock:
    """Return the block on the scores of a training, or on those that `recur eval` has `evaluated`.

    `trained` is the content of result.json; that of an unfinished run is {}. `has_page`: whether the page of eval is written.
    """
    scored: dict[str, Scores] = {}
    if evaluated is not None:
        scored[evaluated["split"]] = {**evaluated, **evaluated["metrics"]}
    else:
        found: list[str] = [each for each in ("dev", *TEST_SPLITS) if each in trained["data"].keys() & trained.keys()]
        for split in found:
            facts = trained if split == "dev" else {key: trained.get(key) for key in ("metric", "kept", "target")}
            scored[split] = {**facts, **trained[split], "rows": trained["data"][split]["rows"]}
    kept, target = (first := next(iter(scored.values())))["kept"]["name"], TARGETS[first["target"]]
    of = "" if target is OneLabel else f"; {words_of(target.headline)}"
    columns, notes = [f"kept: {_IN_FULL.get(kept, kept)}{of}"], list[str]()
    lines: dict[str, list[str]] = {}
    compared = [split for split, scores in scored.items() if "paired" in scores] or [*scored]
    told = [split for split in compared if split != "dev"] or compared
    for split, scores in scored.items():
        rows, kind = scores["rows"], "file" if "cross_validation" in scores else split
        columns += [pluralize(rows, f"{_KINDS.get(kind, f'{kind} ')}row"), "95 % interval"]
        constant, limits = scores["baselines"][target.constant_name], scores["model_intervals"]
        of_model = {name: limits.get(part) for part, name in _PARTS.items()} | {kept: limits["model"]}
        for name, score in {**_by_model(scores, kept), target.constant_words: constant}.items():
            line = lines.setdefault(name, [f"{name}{' (kept)' if name == kept else ''}"])
            line += [format_score(target.headline, score), format_interval(target.headline, of_model.get(name) or ())]
        notes += _notes(scores, split, columns[-2], kept, is_told=split in told)
    named = f"{trained['preset']}, seed {trained['seed']}" if trained else "not finished"
    commands = _commands(run, trained, evaluated, has_page, kept)[:2]
    return ResultBlock((str(run), named), columns, [*lines.values()], notes, commands)


def _by_model(scores: Scores, kept: str, metric: str = "") -> dict[str, float]:
    """Return the scores by `metric` by the name of the model: that of the `kept` one, and of those beside it.

    "": the headline of the target.
    """
    headline = TARGETS[scores["target"]].headline
    metric = metric or headline
    parts = {"linear": {headline: scores["baselines"].get("linear")}, **scores.get("parts", {})}
    others = {name: parts.get(part, {}).get(metric) for part, name in _PARTS.items() if name != kept}
    return {name: share for name, share in {kept: score_in(scores, metric), **others}.items() if share is not None}


def _notes(scores: Scores, split: str, rows: str, kept: str, *, is_told: bool) -> Iterator[str]:
    """Yield sentences on what the scores of a split cannot show. `rows` is its number of rows in words.

    If it `is_told`, one says where the kept model is not shown to differ from the best other one: the paired 95 % interval of
    the difference of their accuracies contains 0. It is told of test rows, which chose nothing, and else of the dev rows.
    """
    target = TARGETS[scores["target"]]
    headline, sign = target.headline, -1 if metric_named(target.headline).minimize else 1
    trained, unseen = scores.get("training_rows", 0), scores.get("unseen")
    if of := scores.get("cross_validation"):
        yield f"{of['folds']}-fold cross-validation: each row is scored by a model that was not trained on it."
    elif unseen:
        seen = scores["rows"] - unseen["rows"]
        others = f"the {kept} has {format_score(headline, unseen[headline])} on the {unseen['rows']:,} others"
        yield f"{seen:,} of the {rows} {'was' if seen == 1 else 'were'} trained on; {others}."
    elif split == "train" or trained == scores["rows"]:
        yield "All of these rows were trained on, so the scores say little about new rows."
    elif trained is None:
        yield "How many of these rows were trained on is unknown: the run keeps no hashes of its rows."
    chosen_on = scores.get("dev_rows", scores["rows"] if split == "dev" else None)
    if chosen_on == scores["rows"] and "encoder" in {kept, *_by_model(scores, kept)}:
        by = f"; the kept model was chosen by {words_of(target.loss_name)}" if len(scores["kept"]["alone"]) > 1 else ""
        yield f"The dev rows chose the step of the encoder, which raises its score on them{by}."
    paired = {_PARTS[part]: limits for part, limits in scores.get("paired", {}).items() if _PARTS[part] != kept}
    best = max(paired, key=lambda name: sign * _by_model(scores, kept).get(name, 0.0), default="")
    if best and is_told and min(sign * limit for limit in paired[best]) <= 0:
        low, high = (format_score(headline, limit, "+") for limit in paired[best])
        limits = f"(paired difference {low} to {high})"
        if max(sign * limit for limit in paired[best]) >= 0:
            yield f"{rows} are too few to tell the {kept} from the {best} {limits}."
        else:
            was_chosen = len(scores["kept"]["alone"]) > 1
            why = f"; the {kept} was chosen by its {words_of(target.loss_name)} on the dev rows" if was_chosen else ""
            better = f"has more of the {rows} right" if target is OneLabel else f"is better on the {rows}"
            yield f"The {best} {better} {limits}{why}."
    if (metric := scores["metric"]) != headline:
        shown = [f"{name} {format_score(metric, score)}" for name, score in _by_model(scores, kept, metric).items()]
        yield f"{words_of(metric)} on {rows}: {', '.join(shown)}."
    if chosen := scores.get("thresholds"):
        before, after = (format_score(chosen["metric"], chosen[key]) for key in ("most_probable", "cross_validated"))
        of = words_of(chosen["metric"])
        chosen_on = "The thresholds were chosen on the dev rows"
        yield f"{chosen_on}; by cross-validation the {of} is {after} with them, and {before} without."


def _commands(run: Path, trained: Mapping[str, Any], evaluated: Scores | None, has_page: bool, kept: str) -> list[str]:
    """Return commands that fit the run, the likeliest first. After an evaluation `eval` is one that adds the page."""
    path, name, task = shlex.quote(str(run)), run.resolve().name, TASKS.get(trained.get("task", ""))
    is_clue = task is not None and bool(task.submissions)
    page = f" --report {shlex.quote(f'{name}.html')}"
    rows = "NEW.csv" if trained.get("pairs") else "NEW.txt"
    predict = f"recur predict {path} {rows} --output labelled.tsv"
    export = f"recur export {path} --output {shlex.quote(name + ('.zip' if is_clue else '-onnx'))}"
    evaluate = f"recur eval {path}"
    if evaluated is not None:
        split, file = evaluated["split"], evaluated.get("path")
        if split == "file" and file:
            evaluate += f" {shlex.quote(file)}"
        elif split not in ("dev", "file"):
            evaluate += f" --split {split}"
    has_graph = kept == "linear model" or not trained.get("export_obstacle")
    return [
        *([] if has_page else [f"{evaluate}{page}"]),
        *((export, predict) if is_clue else (predict, export)[: 1 + has_graph]),
    ]


def result_rows(result: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield name and value of each dev and test metric in result.json, and of the scores of the task's baselines."""
    if result.get("metric") == PERPLEXITY:
        yield from perplexity_rows(result["dev"], "dev ", carry=result.get("carry", False))
        return
    for split in [split for split in ("dev", *TEST_SPLITS) if split in result]:
        facts = result if split == "dev" else {key: result[key] for key in ("metric", "target")}
        for words, value, _ in metric_rows({**facts, **result[split]}):
            yield f"{split} {words}", value


def metric_rows(scores: Scores) -> Iterator[list[str]]:
    """Yield the name, the value and the interval, if it is known, of each metric, and of the task's baselines."""
    limits, target = scores.get("intervals", {}), TARGETS[scores["target"]]
    for name in dict.fromkeys((*target.metrics, *target.of_probabilities, scores["metric"])):
        if (score := score_in(scores, name)) is not None:
            yield [words_of(name), format_score(name, score), format_interval(name, limits.get(name) or ())]
    if "ece" in scores["calibration"]:
        yield ["calibration error (ECE)", percent(scores["calibration"]["ece"]), ""]
    for name, share in scores["baselines"].items():
        if name not in (target.constant_name, "linear"):  # which stand in the block
            words = f"{name.replace('_', ' ')} baseline: {words_of(target.headline)}"
            yield [words, format_score(target.headline, share), ""]


def perplexity_rows(score: Mapping[str, Any], split: str = "", *, carry: bool = False) -> Iterator[tuple[str, str]]:
    """Yield the perplexity of a text and its loss for a table. `carry`: whether a state was carried over windows."""
    how = "; state carried over windows" if carry else ""
    shown = format_score(PERPLEXITY, score["perplexity"])
    yield f"{split}perplexity", f"{shown} (of {score['tokens']:,} tokens, `<eos>` included{how})"
    yield f"{split}loss", f"{score['loss']:.4f} nats a token"
