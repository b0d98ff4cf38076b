"""What a training or an evaluation found, in the few lines with which the screen, the model card and the page begin.

This file does not import torch.
"""

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from recurcli.data.tasks import task_named
from recurcli.errors import pluralize
from recurcli.evaluation.significance import share_interval
from recurcli.metrics import (
    cross_validation_in_words,
    format_score,
    percent,
    percent_interval,
    score_in,
    words_of,
)
from recurcli.requirements import unmet

Scores = Mapping[str, Any]
"""A `classification_report` with the facts of `report_with_parts`, the number of `rows`, and the `metric` of the run."""
_PARTS = {"linear": "linear model", "encoder": "encoder"}
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
    if evaluated is None:
        rows = {split: facts["rows"] for split, facts in trained["data"].items() if split in trained}
        shared = {key: trained[key] for key in ("metric", "ensemble") if key in trained}
        facts = {"dev": trained, "test": shared}
        scored = {split: {**facts[split], **trained[split], "rows": rows[split]} for split in rows}
    else:
        scored = {evaluated["split"]: {**evaluated, **evaluated["metrics"]}}
    kept = _kept(next(iter(scored.values())))
    columns, notes = [f"kept: {_IN_FULL.get(kept, kept)}"], list[str]()
    lines: dict[str, list[str]] = {}
    for split, scores in scored.items():
        kind = {"file": "", "train": "training "}.get("file" if "cross_validation" in scores else split, f"{split} ")
        columns += [pluralize(scores["rows"], f"{kind}row"), "95 % interval"]
        for name, share in _accuracies(scores, kept).items():
            limits = share_interval(round(share * scores["rows"]), scores["rows"])
            interval = "" if name == "majority class" else percent_interval(limits)
            lines.setdefault(name, [f"{name}{' (kept)' if name == kept else ''}"]).extend([percent(share), interval])
        notes += [*_notes(scores, split, columns[-2], kept, is_last=split == [*scored][-1])]
    named = f"{trained['preset']}, seed {trained['seed']}" if trained else "not finished"
    commands = _commands(run, trained)[has_page:]
    return ResultBlock((str(run), named), columns, [*lines.values()], notes, commands[:2])


def _kept(scores: Scores) -> str:
    """Return the name of the kept model."""
    weights = scores.get("ensemble")
    if not weights or not weights["linear_weight"]:
        return "encoder"
    return "ensemble" if weights["encoder_weight"] and "parts" in scores else "linear model"


def _accuracies(scores: Scores, kept: str) -> dict[str, float]:
    """Return the accuracies by name: those of the kept model, of the other models beside it, and of the most frequent label."""
    encoder, baselines = scores.get("parts", {}).get("encoder", {}), scores["baselines"]
    others = {"linear model": baselines.get("linear"), "encoder": encoder.get("accuracy")}
    known = {kept: scores["accuracy"], **{name: share for name, share in others.items() if name != kept}}
    known["majority class"] = baselines.get("majority")
    return {name: share for name, share in known.items() if share is not None}


def _notes(scores: Scores, split: str, rows: str, kept: str, *, is_last: bool) -> Iterator[str]:
    """Yield sentences on what the scores of a split cannot show. `rows` is its number of rows in words.

    Of the last split, whose rows chose nothing if there are others, one says if the kept model is not shown to differ from the
    best other part: if the paired interval of the difference of their accuracies contains 0.
    """
    trained, unseen, parts = scores.get("training_rows", 0), scores.get("unseen"), scores.get("parts", {})
    if of := scores.get("cross_validation"):
        yield f"{cross_validation_in_words(of)}: each row is scored by a model that was not trained on it."
    elif unseen:
        seen = f"{scores['rows'] - unseen['rows']:,} of the {rows} {'were' if scores['rows'] - unseen['rows'] > 1 else 'was'}"
        yield f"{seen} trained on; the {kept} has {percent(unseen['accuracy'])} on the {unseen['rows']:,} others."
    elif split == "train" or trained == scores["rows"]:
        yield "All of these rows were trained on, so the scores say little about new rows."
    elif trained is None:
        yield "How many of these rows were trained on is unknown: the run keeps no hashes of its rows."
    paired = {part: limits for part, limits in scores.get("paired", {}).items() if _PARTS[part] != kept}
    if paired and is_last:
        best = max(paired, key=lambda part: _accuracies(scores, kept)[_PARTS[part]])
        if paired[best][0] <= 0 <= paired[best][1]:
            low, high = (percent(limit, "+") for limit in paired[best])
            yield f"{rows} are too few to tell the {kept} from the {_PARTS[best]} (paired difference {low} to {high})."
    if (metric := scores["metric"]) != "accuracy":
        own = {
            kept: score_in(scores, metric),
            **{name: parts.get(part, {}).get(metric) for part, name in _PARTS.items()},
        }
        shown = [f"{name} {format_score(metric, score)}" for name, score in own.items() if score is not None]
        yield f"{words_of(metric)} on {rows}: {', '.join(shown)}."
    if chosen := scores.get("thresholds"):
        before, after = (format_score(chosen["metric"], chosen[key]) for key in ("most_probable", "cross_validated"))
        of = f"dev {words_of(chosen['metric'])}"
        yield f"With thresholds the {of} is {after} by cross-validation, without them {before}."


def _commands(run: Path, trained: Mapping[str, Any]) -> list[str]:
    """Return commands that fit the run, the likeliest first."""
    path, name = shlex.quote(str(run)), run.resolve().name
    page, package = (shlex.quote(f"{name}{ending}") for ending in (".html", "-onnx"))
    commands = [f"recur eval {path}{'' if unmet('report') else f' --report {page}'}"]
    if trained and task_named(trained["task"]).submissions:
        return [
            *commands,
            f"recur export {path} --output {shlex.quote(f'{name}.zip')}",
            f"recur predict {path} NEW.tsv",
        ]
    is_pair = trained.get("columns", {}).get("pair")
    rows = "NEW.csv" if is_pair else "NEW.txt"
    return [*commands, f"recur predict {path} {rows} --output labelled.tsv", f"recur export {path} --output {package}"]
