"""The page of `recur eval --report`: the answer first, then mistakes, classes, calibration, data, training and layers."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from recurcli.commands.training.report import model_facts
from recurcli.display.evaluation import class_table, layer_table, metric_table
from recurcli.display.report.page import (
    Chart,
    Curve,
    coverage_chart,
    curve_chart,
    precision_recall_chart,
    reliability_chart,
    write_page,
)
from recurcli.display.screen import Table, listing
from recurcli.errors import pluralize, quoted
from recurcli.evaluation.report import EvaluatedRows
from recurcli.evaluation.result_block import ResultBlock
from recurcli.metrics import LOG_LOSS, PERPLEXITY, percent, percent_interval, words_of
from recurcli.runs.run_directory import Run
from recurcli.significance import FEWEST_ROWS_OF_CLASS, share_interval
from recurcli.targets.one_label import BINS

MAX_MISTAKES = 30
MAX_CLASSES, MAX_NUMBERS = 100, 25
"""The largest numbers of classes for which the page has the map of confusions, and the numbers in it."""
MAX_PAIRS, SHOWN_PAIRS, ROWS_OF_PAIR = 250, 10, 20
"""The numbers of pairs of label and prediction that the page has, of those that it shows unfolded, and of rows of each."""
WEAKEST, WORST = 3, 10
"""The numbers of classes that the first lines name, and of those that the table shows unfolded."""
THRESHOLDS = (0.5, 0.7, 0.9, 0.99)
"""Values of `recur predict --threshold` whose effect the page shows."""


def write_report(path: Path, block: ResultBlock, result: Mapping[str, Any], rows: EvaluatedRows, run: Run) -> None:
    """Write the page on the `result` of `recur eval` for the `run`, and its `rows`, which begins with the `block`."""
    trained = run.read_result() if run.is_finished else {}
    metrics, diagnosis = result["metrics"], result.get("diagnosis")
    support = {
        **{name: own["support"] for name, own in metrics["per_class"].items()},
        **metrics.get("unknown_labels", {}),
    }
    pairs = _pairs(rows, support)
    right = rows.target.hits(rows.y, rows.predictions)
    charts = [coverage_chart(rows.scores, right, THRESHOLDS)]
    if len(rows.target.labels) == 2:
        rare = int(np.bincount(rows.y[rows.y >= 0], minlength=2).argmin())
        are_of, found = rows.y == rare, rows.predictions == rare
        if are_of.any():
            charts.append(precision_recall_chart(rows.probabilities[:, rare], are_of, found, rows.target.labels[rare]))
    classes = class_table(metrics, result["intervals"])
    per_class = [*metrics["per_class"].values()]
    order = sorted(range(len(per_class)), key=lambda place: (not per_class[place]["support"], per_class[place]["f1"]))
    worst, others = ([classes.rows[place] for place in part] for part in (order[:WORST], order[WORST:]))
    write_page(
        path,
        "evaluation.html",
        title=f"{Path(result['run']).resolve().name}: {result['split']} rows",
        task=result["task"],
        path=result["path"],
        block=block,
        answer=_answer(block),
        notes=[*block.notes, *_notes(result)],
        findings=[*_findings(rows, metrics, pairs)],
        support=[*support.values()],
        fewest=FEWEST_ROWS_OF_CLASS,
        names=rows.target.labels,
        label_names=[*support],
        confusion=metrics["confusion"] if len(rows.target.labels) <= MAX_CLASSES else None,
        has_numbers=len(rows.target.labels) <= MAX_NUMBERS,
        charts=charts,
        coverage=_coverage(rows, right),
        pairs=pairs,
        shown_pairs=SHOWN_PAIRS,
        anchors={pair["anchor"] for pair in pairs},
        mistakes=[_row(rows, row) for row in rows.mistakes[:MAX_MISTAKES].tolist()],
        worst=Table(classes.columns, worst),
        others=Table(classes.columns, others),
        metrics=metric_table(result),
        ece=percent(result["calibration"]["ece"]),
        bins=BINS,
        temperature=result["kept"]["temperature"] if result["kept"]["alone"].keys() == {"encoder"} else None,
        reliability_plot=reliability_chart(result["calibration"]["bins"]),
        lengths=_lengths(rows, right),
        facts=listing(model_facts(trained) if trained else []),
        curves=_curves(run.read_metrics(), trained),
        is_run="encoder" in result["kept"]["weights"],
        diagnosis=diagnosis and _diagnosis(diagnosis),
    )


def _answer(block: ResultBlock) -> str:
    """Return the block as a sentence: how often the kept model is right, what is kept, and what the others have."""
    kept, rows = block.columns[:2]
    [_, share, interval], *others = block.rows
    beside = ", ".join(f"{name} {share}" for name, share, *_ in others)
    return f"{share} % right on {rows} ({interval}). {kept.capitalize()}; {beside}."


def _notes(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield sentences on the rows of unknown labels, and on the dev rows, among those that are scored."""
    if unknown := result["metrics"].get("unknown_labels"):
        rows = pluralize(sum(unknown.values()), "row", "have")
        label = f"a label not seen in training ({quoted([*unknown])})"
        yield f"{rows} {label}. Such a row is a mistake, but in no loss or calibration."
    known = result.get("dev_rows")
    selected = "encoder" in result["kept"]["alone"]  # dev rows select nothing of a linear model alone
    if known and known < result["rows"]:
        yield f"{pluralize(known, 'dev row', 'are')} among them{', which selected the model' if selected else ''}."


def _findings(rows: EvaluatedRows, metrics: Mapping[str, Any], pairs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the largest confusion and the weakest classes in words."""
    if pairs:
        first = pairs[0]
        where = f"in {first['count']}, {percent(first['share'])} % of the rows of {first['label']}"
        yield f"The largest confusion: {first['label']} is taken for {first['prediction']} {where}."
    known = [
        (own["f1"], name)
        for name, own in metrics["per_class"].items()
        if own["support"] >= FEWEST_ROWS_OF_CLASS and own["f1"] < 1
    ]
    if len(rows.target.labels) > 2 and known:
        named = ", ".join(f"{name} (F1 {percent(score)})" for score, name in sorted(known)[:WEAKEST])
        yield f"The weakest classes: {named}."


def _coverage(rows: EvaluatedRows, right: "np.ndarray") -> Table:
    """Return what each of THRESHOLDS leaves without a label, and how right the others are."""
    lines = []
    for threshold in THRESHOLDS:
        kept = rows.scores >= threshold
        count, hits = int(kept.sum()), int((kept & right).sum())
        of_these = [percent(hits / count), percent_interval(share_interval(hits, count))] if count else ["–", "–"]
        lines.append([f"{threshold:g}", percent(1 - count / len(right)), *of_these])
    return Table(["--threshold", "without a label (%)", "right, of the others (%)", "95 % interval"], lines)


def _lengths(rows: EvaluatedRows, right: "np.ndarray") -> Table:
    """Return the rows by their length in characters, in four parts of about equal size."""
    lengths = np.array([len(text) + len(pair or "") for text, pair in rows.texts])
    limits = np.unique(np.quantile(lengths, (0.25, 0.5, 0.75), method="lower"))
    part = np.searchsorted(limits, lengths)
    lines = []
    for number in np.unique(part):
        own = part == number
        count, hits = int(own.sum()), int((own & right).sum())
        span = "–".join(f"{length:,}" for length in sorted({int(lengths[own].min()), int(lengths[own].max())}))
        lines.append([span, f"{count:,}", percent(hits / count), percent_interval(share_interval(hits, count))])
    return Table(["characters", "rows", "right (%)", "95 % interval"], lines)


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
        is_share = bool(trained) and trained["metric"] not in (LOG_LOSS, PERPLEXITY)
        charts.append(curve_chart([dev], f"dev {words}{whose}", mark, shares=is_share))
    names = [name for name in lines[0] if name.startswith("encoder.layers.")]
    for kind in dict.fromkeys(name.rpartition(".")[2] for name in names):
        own = [name for name in names if name.endswith(f".{kind}")]
        curves = [curve(name, f"layer {int(name.split('.')[2]) + 1}", place) for place, name in enumerate(own)]
        charts.append(curve_chart(curves, kind.replace("_", " ")))
    return charts


def _pairs(rows: EvaluatedRows, support: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return the most frequent pairs of label and wrong prediction with their first rows; labels have `support` rows each."""
    members: dict[tuple[int, int], list[int]] = {}
    names = [*support]
    places = {name: place for place, name in enumerate(names)}
    for row in rows.mistakes.tolist():
        members.setdefault((places[rows.labels[row]], int(rows.predictions[row])), []).append(row)
    ordered = sorted(members.items(), key=lambda item: (-len(item[1]), item[0]))
    return [
        {
            "label": names[label],
            "prediction": rows.target.labels[prediction],
            "count": pluralize(len(own), "row"),
            "share": len(own) / support[names[label]],
            "anchor": f"rows-{label}-{prediction}",
            "rows": [_row(rows, row) for row in own[:ROWS_OF_PAIR]],
            "more": len(own[ROWS_OF_PAIR:]),
        }
        for (label, prediction), own in ordered[:MAX_PAIRS]
    ]


def _row(rows: EvaluatedRows, row: int) -> dict[str, Any]:
    """Return what the page shows of the row number `row`."""
    text, pair = rows.texts[row]
    label, prediction = rows.labels[row], rows.target.labels[rows.predictions[row]]
    return {"text": text, "pair": pair, "label": label, "prediction": prediction, "score": f"{rows.scores[row]:.2f}"}


def _diagnosis(diagnosis: Mapping[str, Any]) -> dict[str, Any]:
    """Return the table of the layers and the plot of the gradient norms."""
    norms, plot = diagnosis["gradient_norm_by_distance"], None
    if norms[1:]:
        plot = curve_chart([Curve("", range(len(norms)), norms)], "gradient norm", xlabel="positions back", log=True)
    return {"rows": pluralize(diagnosis["rows"], "row"), "layers": layer_table(diagnosis), "gradient_plot": plot}
