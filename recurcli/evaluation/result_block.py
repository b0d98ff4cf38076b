"""What a training or an evaluation found, in the few lines with which the screen, the model card and the page begin.

This file does not import torch.
"""

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from recurcli.data.tasks import TASKS
from recurcli.errors import pluralize
from recurcli.metrics import TEST_SPLITS, format_score, percent, percent_interval, score_in, words_of
from recurcli.significance import share_interval

Scores = Mapping[str, Any]
"""A `classification_report` with the facts of `report_with_parts`, the number of `rows`, and the `metric` of the run."""
_PARTS = {"linear": "linear model", "encoder": "encoder"}
_KINDS = {"file": "", "train": "training "}
_MAJORITY = "majority class"
_IN_FULL = {"ensemble": "encoder + linear model (ensemble)"}


class ResultBlock(NamedTuple):
    """The first lines of a result: what is kept, how often it is right, and the next step."""

    title: tuple[str, str]
    """The run folder; the preset and the seed."""
    columns: list[str]
    """What is kept; then the number of rows of each split, and the interval on them."""
    rows: list[list[str]]
    """A name, then the accuracy in per cent and its 95 % interval on each split. The kept model comes first."""
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
            facts = trained if split == "dev" else {key: trained.get(key) for key in ("metric", "kept")}
            scored[split] = {**facts, **trained[split], "rows": trained["data"][split]["rows"]}
    kept = next(iter(scored.values()))["kept"]["name"]
    columns, notes = [f"kept: {_IN_FULL.get(kept, kept)}"], list[str]()
    lines: dict[str, list[str]] = {}
    compared = [split for split, scores in scored.items() if "paired" in scores] or [*scored]
    told = [split for split in compared if split != "dev"] or compared
    for split, scores in scored.items():
        rows, kind = scores["rows"], "file" if "cross_validation" in scores else split
        columns += [pluralize(rows, f"{_KINDS.get(kind, f'{kind} ')}row"), "95 % interval"]
        for name, share in {**_by_model(scores, kept), _MAJORITY: scores["baselines"]["majority"]}.items():
            limits = () if name == _MAJORITY else share_interval(round(share * rows), rows)
            line = lines.setdefault(name, [f"{name}{' (kept)' if name == kept else ''}"])
            line += [percent(share), percent_interval(limits)]
        notes += _notes(scores, split, columns[-2], kept, is_told=split in told)
    named = f"{trained['preset']}, seed {trained['seed']}" if trained else "not finished"
    commands = _commands(run, trained, evaluated, has_page, kept)[:2]
    return ResultBlock((str(run), named), columns, [*lines.values()], notes, commands)


def _by_model(scores: Scores, kept: str, metric: str = "accuracy") -> dict[str, float]:
    """Return the scores by `metric` by the name of the model: that of the `kept` one, and of those beside it."""
    parts = {"linear": {"accuracy": scores["baselines"].get("linear")}, **scores.get("parts", {})}
    others = {name: parts.get(part, {}).get(metric) for part, name in _PARTS.items() if name != kept}
    return {name: share for name, share in {kept: score_in(scores, metric), **others}.items() if share is not None}


def _notes(scores: Scores, split: str, rows: str, kept: str, *, is_told: bool) -> Iterator[str]:
    """Yield sentences on what the scores of a split cannot show. `rows` is its number of rows in words.

    If it `is_told`, one says where the kept model is not shown to differ from the best other one: the paired 95 % interval of
    the difference of their accuracies contains 0. It is told of test rows, which chose nothing, and else of the dev rows.
    """
    trained, unseen = scores.get("training_rows", 0), scores.get("unseen")
    if of := scores.get("cross_validation"):
        yield f"{of['folds']}-fold cross-validation: each row is scored by a model that was not trained on it."
    elif unseen:
        seen = scores["rows"] - unseen["rows"]
        others = f"the {kept} has {percent(unseen['accuracy'])} on the {unseen['rows']:,} others"
        yield f"{seen:,} of the {rows} {'was' if seen == 1 else 'were'} trained on; {others}."
    elif split == "train" or trained == scores["rows"]:
        yield "All of these rows were trained on, so the scores say little about new rows."
    elif trained is None:
        yield "How many of these rows were trained on is unknown: the run keeps no hashes of its rows."
    chosen_on = scores.get("dev_rows", scores["rows"] if split == "dev" else None)
    if chosen_on == scores["rows"] and "encoder" in {kept, *_by_model(scores, kept)}:
        by = "; the kept model was chosen by log loss" if len(scores["kept"]["alone"]) > 1 else ""
        yield f"The dev rows chose the step of the encoder, which raises its score on them{by}."
    paired = {_PARTS[part]: limits for part, limits in scores.get("paired", {}).items() if _PARTS[part] != kept}
    best = max(paired, key=lambda name: _by_model(scores, kept).get(name, 0.0), default="")
    if best and is_told and paired[best][0] <= 0:
        low, high = (percent(limit, "+") for limit in paired[best])
        limits = f"(paired difference {low} to {high})"
        if paired[best][1] >= 0:
            yield f"{rows} are too few to tell the {kept} from the {best} {limits}."
        else:
            was_chosen = len(scores["kept"]["alone"]) > 1
            why = f"; the {kept} was chosen by its log loss on the dev rows" if was_chosen else ""
            yield f"The {best} has more of the {rows} right {limits}{why}."
    if (metric := scores["metric"]) != "accuracy":
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
