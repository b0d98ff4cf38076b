"""The page of `recur eval --report`: the answer first, then mistakes, classes, calibration, data, training and layers."""

from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from recurcli.commands.training.report import model_facts
from recurcli.display.evaluation import (
    class_table,
    group_table,
    label_table,
    layer_table,
    metric_table,
    number_table,
    weakest,
)
from recurcli.display.report.page import (
    Chart,
    Curve,
    Scores,
    coverage_chart,
    curve_chart,
    label_chart,
    number_chart,
    precision_recall_chart,
    reliability_chart,
    score_chart,
    write_page,
)
from recurcli.display.screen import Table, listing
from recurcli.errors import pluralize, quoted
from recurcli.evaluation.groups import group_scores
from recurcli.evaluation.report import EvaluatedRows
from recurcli.evaluation.result_block import ResultBlock
from recurcli.metrics import metric_named, percent, percent_interval, words_of
from recurcli.runs.run_directory import Run
from recurcli.significance import FEWEST_ROWS_OF_CLASS, share_interval
from recurcli.targets import OneLabel, Target
from recurcli.targets.one_label import BINS
from recurcli.targets.target import labels_in

MAX_MISTAKES = 30
MAX_CLASSES = 25
"""The number of classes in the map of confusions. Of more it has those with most confusions."""
MAX_GROUPS = 40
"""The most groups in the picture of --by."""
MAX_PAIRS, SHOWN_PAIRS, ROWS_OF_PAIR = 250, 10, 20
"""The numbers of pairs of label and prediction that the page has, of those that it shows unfolded, and of rows of each."""
WEAKEST, WORST = 3, 10
"""The numbers of classes that the first lines name, and of those that the table shows unfolded."""
NOTHING, UNKNOWN = "(nothing)", "(not seen in training)"
"""The names of what is missed or given beside labels."""
THRESHOLDS = (0.5, 0.7, 0.9, 0.99)
"""Values of `recur predict --threshold` whose effect the page shows."""


class Confusions(NamedTuple):
    """Which labels are predicted in place of which."""

    labels: Sequence[str]
    """The names of the labels of rows (L)."""
    support: Sequence[int]
    """The number of rows of each."""
    predictions: Sequence[str]
    """The names of the predicted labels (P)."""
    right: Sequence[int]
    """The number of rows of each label of the run that is predicted rightly."""
    wrong: Mapping[tuple[int, int], Sequence[int]]
    """The wrongly predicted rows by the places of a label and of what is predicted in its place."""


def write_report(path: Path, block: ResultBlock, result: Mapping[str, Any], rows: EvaluatedRows, run: Run) -> None:
    """Write the page on the `result` of `recur eval` for the `run`, and its `rows`, which begins with the `block`."""
    trained = run.read_result() if run.is_finished else {}
    diagnosis, kind, metric = result.get("diagnosis"), rows.target.kind, rows.target.headline
    lengths = [len(text) + len(pair or "") for text, pair in rows.texts]
    write_page(
        path,
        "evaluation.html",
        title=f"{Path(result['run']).resolve().name}: {result['split']} rows",
        task=result["task"],
        path=result["path"],
        block=block,
        kind=kind,
        answer=_answer(block, rows.target),
        notes=[*block.notes, *_notes(result, rows)],
        shown_pairs=SHOWN_PAIRS,
        mistake_columns=rows.target.mistake_columns,
        mistakes=[_row(rows, row) for row in rows.mistakes[:MAX_MISTAKES].tolist()],
        metrics=metric_table(result),
        lengths=group_table(group_scores(rows, lengths), "characters", metric),
        groups=result.get("groups") and _groups(result["groups"], result["metrics"][metric], metric),
        group_table=group_table(result.get("groups", []), result.get("by", ""), metric),
        facts=listing(model_facts(trained) if trained else []),
        curves=_curves(run.read_metrics(), trained),
        is_run="encoder" in result["kept"]["weights"],
        diagnosis=diagnosis and _diagnosis(diagnosis),
        **(_of_labels(result, rows) if rows.target.has_labels else _of_numbers(result, rows)),
    )


def _groups(groups: Sequence[Mapping[str, Any]], score: float, metric: str) -> Chart:
    """Draw the scores of the groups of --by beside the `score` of all rows."""
    shown = groups[:MAX_GROUPS]
    scores = [Scores(f"{own['group']} ({own['rows']:,})", own["score"], *own["interval"]) for own in shown]
    return score_chart(scores, {"all rows": score}, metric, "the group's")


def _of_labels(result: Mapping[str, Any], rows: EvaluatedRows) -> dict[str, Any]:
    """Return what only the pages of labels have: which are taken for which, their scores, and the calibration."""
    metrics, is_one = result["metrics"], "per_class" in result["metrics"]
    confusions = _of_classes(rows, metrics) if is_one else _of_several(rows, metrics)
    pairs, by_label = _pairs(rows, confusions), metrics["per_class" if is_one else "per_label"]
    anchors = {pair["anchor"] for pair in pairs}
    order = weakest(by_label)
    table = class_table(metrics, result["intervals"]) if is_one else label_table(metrics)
    worst, others = ([table.rows[place] for place in part] for part in (order[:WORST], order[WORST:]))
    axes = () if is_one else ("probability of a label", "share of rows that have it")
    return {
        "charts": _charts(rows) if is_one else [label_chart(by_label)],
        "coverage": _coverage(rows, rows.target.hits(rows.y, rows.predictions)) if is_one else None,
        "findings": [*_findings(rows, by_label, pairs)],
        "fewest": FEWEST_ROWS_OF_CLASS,
        "confusion": _map(rows.target, confusions, anchors),
        "most": MAX_CLASSES,
        "classes": len(rows.target.labels),
        "pairs": pairs,
        "anchors": anchors,
        "worst": Table(table.columns, worst),
        "others": Table(table.columns, others),
        "ece": percent(result["calibration"]["ece"]),
        "bins": BINS,
        "temperature": result["kept"]["temperature"] if result["kept"]["alone"].keys() == {"encoder"} else None,
        "reliability_plot": reliability_chart(result["calibration"]["bins"], *axes),
    }


def _of_numbers(result: Mapping[str, Any], rows: EvaluatedRows) -> dict[str, Any]:
    """Return what only the pages of numbers have: predictions against numbers, errors, and the deciles of the predictions."""
    y, predictions, bins = rows.y, rows.predictions, result["calibration"]["bins"]
    means = [f"{own['prediction']:.4g} for rows of {own['number']:.4g} on average" for own in bins]
    errors = f"{percent(float((predictions > y).mean()))} per cent of the predictions are too high"
    ends = [float(y.min()), float(y.max())]
    charts = [
        number_chart(y, predictions, "number", "prediction", ends, f"predictions of {'; '.join(means)}"),
        number_chart(predictions, predictions - y, "prediction", "error (prediction - number)", [0, 0], errors),
    ]
    return {"charts": charts, "findings": [], "pairs": [], "confusion": None, "deciles": number_table(bins)}


def _charts(rows: EvaluatedRows) -> list[Chart]:
    """Draw the accuracy by coverage, and of two classes precision over recall of the rarer one."""
    charts = [coverage_chart(rows.scores, rows.target.hits(rows.y, rows.predictions), THRESHOLDS)]
    if len(rows.target.labels) == 2:
        rare = int(np.bincount(rows.y[rows.y >= 0], minlength=2).argmin())
        are_of, found = rows.y == rare, rows.predictions == rare
        if are_of.any():
            charts.append(precision_recall_chart(rows.probabilities[:, rare], are_of, found, rows.target.labels[rare]))
    return charts


def _of_classes(rows: EvaluatedRows, metrics: Mapping[str, Any]) -> Confusions:
    """Return the confusion table of the report `metrics` of rows with one label."""
    support = {
        **{name: own["support"] for name, own in metrics["per_class"].items()},
        **metrics.get("unknown_labels", {}),
    }
    names, places = rows.target.labels, {name: place for place, name in enumerate(support)}
    right = np.bincount(rows.predictions[rows.predictions == rows.y], minlength=len(names)).tolist()
    wrong = _by_pair(rows, lambda row: ([places[str(rows.labels[row])]], [int(rows.predictions[row])]))
    return Confusions([*support], [*support.values()], names, right, wrong)


def _of_several(rows: EvaluatedRows, metrics: Mapping[str, Any]) -> Confusions:
    """Return which labels are missed in the rows that get which others wrongly, of rows with several labels.

    NOTHING is missed or wrongly given in the other rows.
    """
    has, gets, unknown = rows.y[:, :-1] > 0, rows.predictions[:, :-1] > 0, rows.y[:, -1:] > 0
    missed, wrong = np.hstack([has & ~gets, *([unknown] if unknown.any() else [])]), gets & ~has
    missed, wrong = (np.column_stack([each, ~each.any(axis=1)]) for each in (missed, wrong))
    support, names = [own["support"] for own in metrics["per_label"].values()], rows.target.labels
    return Confusions(
        [*names, *([UNKNOWN] if unknown.any() else []), NOTHING],
        [*support, *missed[:, len(names) :].sum(axis=0).tolist()],
        [*names, NOTHING],
        (has & gets).sum(axis=0).tolist(),
        _by_pair(rows, lambda row: (np.flatnonzero(missed[row]).tolist(), np.flatnonzero(wrong[row]).tolist())),
    )


def _by_pair(
    rows: EvaluatedRows, places_of: Callable[[int], tuple[Sequence[int], Sequence[int]]]
) -> dict[tuple[int, int], list[int]]:
    """Return the wrongly predicted rows by the pairs of `places_of` a row: of its labels, and of those in their place."""
    members: dict[tuple[int, int], list[int]] = {}
    for row in rows.mistakes.tolist():
        for pair in product(*places_of(row)):
            members.setdefault(pair, []).append(row)
    return members


def _map(target: Target, confusions: Confusions, anchors: Container[str]) -> dict[str, Any]:
    """Return the names of the columns and the rows of the map of confusions, whose numbers lead to `anchors` of the page."""
    classes, involved = len(target.labels), Counter[int]()
    for pair, members in confusions.wrong.items():
        involved.update(dict.fromkeys(pair, len(members)))
    chosen = sorted(sorted(range(classes), key=lambda place: -involved[place])[:MAX_CLASSES])
    down, across = (
        [*chosen, *range(classes, len(names))][: 2 * MAX_CLASSES]
        for names in (confusions.labels, confusions.predictions)
    )
    lines = []
    for label in down:
        cells, support = [], confusions.support[label]
        for prediction in across:
            is_right, anchor = label == prediction < classes, f"rows-{label}-{prediction}"
            count = confusions.right[label] if is_right else len(confusions.wrong.get((label, prediction), ()))
            share, link = 0.7 * count / max(1, support), anchor if anchor in anchors else None
            cells.append({"count": count, "is_right": is_right, "share": f"{share:.3f}", "link": link})
        lines.append({"name": confusions.labels[label], "is_few": support < FEWEST_ROWS_OF_CLASS, "cells": cells})
    return {"names": [confusions.predictions[place] for place in across], "lines": lines}


def _answer(block: ResultBlock, target: Target) -> str:
    """Return the block as a sentence: the score of the kept model, what is kept, and what the others have."""
    kept, rows = block.columns[0].partition(";")[0], block.columns[1]
    [_, share, interval], *others = block.rows
    beside = ", ".join(f"{name} {share}" for name, share, *_ in others)
    score = f"{share} % right" if isinstance(target, OneLabel) else f"{words_of(target.headline)} {share}"
    return f"{score} on {rows} ({interval}). {kept.capitalize()}; {beside}."


def _notes(result: Mapping[str, Any], rows: EvaluatedRows) -> Iterator[str]:
    """Yield sentences on the rows of unknown labels, and on the dev rows, among those that are scored."""
    is_known = rows.target.is_known(rows.y)
    if not is_known.all():
        cells = [rows.labels[row] for row in np.flatnonzero(~is_known).tolist()]
        unknown = sorted({label for cell in cells for label in labels_in(cell) if rows.target.unknown_in(label)})
        what = f"{pluralize(len(cells), 'row', 'have')} a label not seen in training ({quoted(unknown)})"
        yield f"{what}. Such a row is a mistake, but in no loss or calibration."
    known = result.get("dev_rows")
    selected = "encoder" in result["kept"]["alone"]  # dev rows select nothing of a linear model alone
    if known and known < result["rows"]:
        yield f"{pluralize(known, 'dev row', 'are')} among them{', which selected the model' if selected else ''}."


def _findings(
    rows: EvaluatedRows, by_label: Mapping[str, Mapping[str, Any]], pairs: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    """Yield the most frequent mistake and the weakest labels in words."""
    is_one = isinstance(rows.target, OneLabel)
    if pairs:
        first = pairs[0]
        if is_one:
            where = f"in {first['count']}, {percent(first['share'])} % of the rows of {first['label']}"
            yield f"The largest confusion: {first['label']} is taken for {first['prediction']} {where}."
        else:
            what = f"{first['label']} missed and {first['prediction']} wrongly given"
            yield f"The most frequent mistake: {what}, in {first['count']}."
    known = [
        (own["f1"], name) for name, own in by_label.items() if own["support"] >= FEWEST_ROWS_OF_CLASS and own["f1"] < 1
    ]
    if len(rows.target.labels) > 2 and known:
        named = ", ".join(f"{name} (F1 {percent(score)})" for score, name in sorted(known)[:WEAKEST])
        yield f"The weakest {'classes' if is_one else 'labels'}: {named}."


def _coverage(rows: EvaluatedRows, right: "np.ndarray") -> Table:
    """Return what each of THRESHOLDS leaves without a label, and how right the others are."""
    lines = []
    for threshold in THRESHOLDS:
        kept = rows.scores >= threshold
        count, hits = int(kept.sum()), int((kept & right).sum())
        of_these = [percent(hits / count), percent_interval(share_interval(hits, count))] if count else ["–", "–"]
        lines.append([f"{threshold:g}", percent(1 - count / len(right)), *of_these])
    return Table(["--threshold", "without a label (%)", "right, of the others (%)", "95 % interval"], lines)


def _curves(lines: Sequence[Mapping[str, Any]], trained: Mapping[str, Any]) -> list[Chart]:
    """Draw the loss, the dev metric, and the numbers of the encoder's layers (`Encoder.scalars`) over the steps."""
    if len(lines) < 2:
        return []

    def curve(key: str, name: str = "", colour: int = 0) -> Curve:
        own = [line for line in lines if line.get(key) is not None]
        return Curve(name, [line["step"] for line in own], [line[key] for line in own], colour)

    charts = [curve_chart([curve("loss")], "training loss")]
    dev = curve("dev_metric", "after an evaluation")
    if dev.steps:
        words = words_of(trained["metric"]) if trained else "metric"
        best, kept = trained.get("best_step", -1), "kept encoder" if "parts" in trained else "kept model"
        mark = (best, dev.values[dev.steps.index(best)], kept) if best in dev.steps else None
        whose = " of the encoder" if "parts" in trained else ""
        is_share = bool(trained) and metric_named(trained["metric"]).decimals is None
        charts.append(curve_chart([dev], f"dev {words}{whose}", mark, shares=is_share))
    names = [name for name in lines[0] if name.startswith("encoder.layers.")]
    for kind in dict.fromkeys(name.rpartition(".")[2] for name in names):
        own = [name for name in names if name.endswith(f".{kind}")]
        curves = [curve(name, f"layer {int(name.split('.')[2]) + 1}", place) for place, name in enumerate(own)]
        charts.append(curve_chart(curves, kind.replace("_", " ")))
    return charts


def _pairs(rows: EvaluatedRows, confusions: Confusions) -> list[dict[str, Any]]:
    """Return the most frequent pairs of a label and what is wrongly predicted in its place, with their first rows."""
    ordered = sorted(confusions.wrong.items(), key=lambda item: (-len(item[1]), item[0]))
    return [
        {
            "label": confusions.labels[label],
            "prediction": confusions.predictions[prediction],
            "count": pluralize(len(own), "row"),
            "share": None if confusions.labels[label] == NOTHING else len(own) / confusions.support[label],
            "anchor": f"rows-{label}-{prediction}",
            "rows": [_row(rows, row) for row in own[:ROWS_OF_PAIR]],
            "more": len(own[ROWS_OF_PAIR:]),
        }
        for (label, prediction), own in ordered[:MAX_PAIRS]
    ]


def _row(rows: EvaluatedRows, row: int) -> dict[str, Any]:
    """Return what the page shows of the row number `row`."""
    text, pair = rows.texts[row]
    label, prediction = (rows.target.text_of(cell) for cell in (rows.labels[row], rows.predicted[row]))
    mistake = rows.mistake(row)
    if "score" in mistake:
        mistake["score"] = f"{rows.scores[row]:.2f}"
    return {"text": text, "pair": pair, "label": label, "prediction": prediction, **mistake}


def _diagnosis(diagnosis: Mapping[str, Any]) -> dict[str, Any]:
    """Return the table of the layers and the plot of the gradient norms."""
    norms, plot = diagnosis["gradient_norm_by_distance"], None
    if norms[1:]:
        plot = curve_chart([Curve("", range(len(norms)), norms)], "gradient norm", xlabel="positions back", log=True)
    return {"rows": pluralize(diagnosis["rows"], "row"), "layers": layer_table(diagnosis), "gradient_plot": plot}
