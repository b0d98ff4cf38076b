"""The page of `recur eval --report`: a classifier's scores, confusions, calibration and mistakes, and its encoder."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from recurcli.commands.training.report import model_facts
from recurcli.display.evaluation import class_table, layer_table, metric_table
from recurcli.display.report.page import Chart, Curve, Scores, curve_chart, reliability_chart, score_chart, write_page
from recurcli.display.screen import Table, listing
from recurcli.errors import pluralize
from recurcli.evaluation.report import BINS, EvaluatedRows
from recurcli.evaluation.result_block import ResultBlock
from recurcli.evaluation.significance import share_interval
from recurcli.metrics import percent, words_of
from recurcli.runs.run_directory import Run

MAX_MISTAKES = 30
MAX_CLASSES = 40
"""The largest number of classes for which the page has the whole confusion table."""
MAX_PAIRS, ROWS_OF_PAIR = 250, 20
"""The numbers of pairs of label and prediction that are listed, and of rows of each pair."""


def write_report(path: Path, block: ResultBlock, result: Mapping[str, Any], rows: EvaluatedRows, run: Run) -> None:
    """Write the page on the `result` of `recur eval` for the `run`, and its `rows`, which begins with the `block`."""
    trained = run.read_result() if run.is_finished else {}
    scores = [Scores("model", result["metrics"]["accuracy"], *result["intervals"]["accuracy"])]
    for part, own in result.get("parts", {}).items():
        interval = share_interval(round(own["accuracy"] * result["rows"]), result["rows"])
        scores.append(Scores(f"{part} alone", own["accuracy"], *interval))
    pairs = _pairs(rows)
    diagnosis = result.get("diagnosis")
    write_page(
        path,
        "evaluation.html",
        title=f"{Path(result['run']).resolve().name}: {result['split']} rows",
        task=result["task"],
        path=result["path"],
        block=block,
        summary=Table(block.columns, block.rows, [*block.notes, *_notes(result)]),
        score_plot=score_chart(scores, result["baselines"], "accuracy"),
        metrics=metric_table(result),
        facts=listing(model_facts(trained) if trained else []),
        curves=_curves(run.read_metrics(), trained),
        classes=class_table(result["metrics"], result["intervals"]),
        names=rows.names,
        confusion=result["metrics"]["confusion"] if len(rows.names) <= MAX_CLASSES else None,
        pairs=pairs,
        anchors={pair["anchor"] for pair in pairs},
        ece=percent(result["calibration"]["ece"]),
        bins=BINS,
        temperature=None if result.get("ensemble") else result["calibration"]["temperature"],
        reliability_plot=reliability_chart(result["calibration"]["bins"]),
        mistakes=[_row(rows, row) for row in rows.mistakes[:MAX_MISTAKES].tolist()],
        diagnosis=diagnosis and _diagnosis(diagnosis),
    )


def _notes(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield sentences on the dev rows among those that are scored."""
    known = result.get("dev_rows")
    selected = "ensemble" not in result or "parts" in result  # dev rows select nothing of a linear model alone
    if selected and result["split"] == "dev" and known == result["rows"]:
        yield "The model was selected on these rows, so its scores here are slightly too high."
    elif known:
        yield f"{pluralize(known, 'dev row', 'are')} among them{', which selected the model' if selected else ''}."


def _curves(lines: Sequence[Mapping[str, Any]], trained: Mapping[str, Any]) -> list[Chart]:
    """Draw the loss, the dev metric, and the numbers of the encoder's layers (`Encoder.scalars`) over the steps."""
    if len(lines) < 2:
        return []

    def curve(key: str, name: str = "", colour: int = 0) -> Curve:
        own = [line for line in lines if key in line]
        return Curve(name, [line["step"] for line in own], [line[key] for line in own], colour)

    charts = [curve_chart([curve("loss")], "training loss")]
    dev = curve("dev_metric", "after an evaluation")
    if dev.steps:
        words = words_of(trained["metric"]) if trained else "metric"
        best, kept = trained.get("best_step", -1), "kept encoder" if "parts" in trained else "kept model"
        mark = (best, dev.values[dev.steps.index(best)], kept) if best in dev.steps else None
        charts.append(curve_chart([dev], f"dev {words}{' (encoder)' if 'parts' in trained else ''}", mark))
    names = [name for name in lines[0] if name.startswith("encoder.layers.")]
    for kind in dict.fromkeys(name.rpartition(".")[2] for name in names):
        own = [name for name in names if name.endswith(f".{kind}")]
        curves = [curve(name, f"layer {int(name.split('.')[2]) + 1}", place) for place, name in enumerate(own)]
        charts.append(curve_chart(curves, kind.replace("_", " ")))
    return charts


def _pairs(rows: EvaluatedRows) -> list[dict[str, Any]]:
    """Return the most frequent pairs of label and wrong prediction with their first rows."""
    members: dict[tuple[int, int], list[int]] = {}
    for row in rows.mistakes.tolist():
        members.setdefault((int(rows.labels[row]), int(rows.predictions[row])), []).append(row)
    support = np.bincount(rows.labels, minlength=len(rows.names))
    ordered = sorted(members.items(), key=lambda item: (-len(item[1]), item[0]))
    return [
        {
            "label": rows.names[label],
            "prediction": rows.names[prediction],
            "count": pluralize(len(own), "row"),
            "share": len(own) / int(support[label]),
            "anchor": f"rows-{label}-{prediction}",
            "rows": [_row(rows, row) for row in own[:ROWS_OF_PAIR]],
            "more": len(own[ROWS_OF_PAIR:]),
        }
        for (label, prediction), own in ordered[:MAX_PAIRS]
    ]


def _row(rows: EvaluatedRows, row: int) -> dict[str, Any]:
    """Return what the page shows of the row number `row`."""
    text, pair = rows.texts[row]
    label, prediction = rows.names[rows.labels[row]], rows.names[rows.predictions[row]]
    return {"text": text, "pair": pair, "label": label, "prediction": prediction, "score": f"{rows.scores[row]:.2f}"}


def _diagnosis(diagnosis: Mapping[str, Any]) -> dict[str, Any]:
    """Return the table of the layers and the plot of the gradient norms."""
    norms, plot = diagnosis["gradient_norm_by_distance"], None
    if norms[1:]:
        plot = curve_chart([Curve("", range(len(norms)), norms)], "gradient norm", xlabel="positions back", log=True)
    return {"rows": pluralize(diagnosis["rows"], "row"), "layers": layer_table(diagnosis), "gradient_plot": plot}
