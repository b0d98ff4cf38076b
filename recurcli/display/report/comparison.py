"""The page of `recur compare --report`: scores of the groups, their curves, the tests, and the rows on which they differ."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from recurcli.display.comparison import group_table, test_table, unfinished_table
from recurcli.display.report.charts import Chart, Curve, Scores, curve_chart, over_chart, score_chart
from recurcli.display.report.page import write_page
from recurcli.display.tables import Table, by_columns, percent
from recurcli.errors import UsageError, pluralize
from recurcli.evaluation.metrics import METRICS, classification_report
from recurcli.runs.predictions import Predictions, read_predictions, read_texts
from recurcli.runs.run_directory import Run, reopen_run

MAX_GROUPS = 7
"""The number of groups that have curves, the best ones first. Each has a colour of its own."""
MAX_DIFFERENCES, ROWS_OF_DIFFERENCE = 4, 20
"""The number of groups that are compared with the best one row by row, and the number of rows that are shown of each."""


def write_report(path: Path, result: Mapping[str, Any]) -> None:
    """Write the page on the `result` of `recur compare`. Raises UsageError if no run is finished."""
    if not result["groups"]:
        raise UsageError(f"{path}: not written: no run is finished")
    if result["metric"] not in METRICS:
        raise UsageError(f"{path}: not written: --report is for classifiers; --output and --plot take language models")
    rows, stored, metrics = {}, {}, {}
    for group in result["groups"]:
        for name in group["runs"]:  # one at a time: each keeps files open
            run = _open(group, name)
            rows[name] = read_predictions(run, result["part"], result["split"])
            own, metrics[name] = run.read_result(), run.read_metrics()
            stored[name] = own if result["split"] == "dev" else own["test"]
    words = METRICS[result["metric"]].words
    shown = f"{result['split']} {words}"
    scores = [
        Scores(group["name"], group["mean"], low, high, group["scores"])
        for group in result["groups"]
        for low, high in [group["interval"] or (group["mean"], group["mean"])]
    ]
    baselines = next(iter(stored.values()))["baselines"] if result["metric"] == "accuracy" else {}
    write_page(
        path,
        "comparison.html",
        title=f"{result['task']}: {len(result['groups'])} groups of runs compared",
        rows=pluralize(result["rows"], f"{result['split']} row"),
        whose="encoders alone, without their ensembles" if result["part"] == "encoder" else "models",
        score_plot=score_chart(scores, baselines, shown),
        groups=group_table(result),
        tests=test_table(result),
        over=result["over"] and over_chart(result["over"], shown),
        key=result["over"] and result["over"]["key"],
        curves=_curves(result, metrics, words),
        classes=_classes(result, rows),
        differences=_differences(result, rows) if result["split"] == "dev" else [],
        best=result["groups"][0]["name"],
        unfinished=unfinished_table(result["unfinished"]),
    )


def _open(group: Mapping[str, Any], name: str) -> Run:
    """Open the run `name` of a group again. Raises StorageError if a new training has replaced it."""
    return reopen_run(Path(name), group["manifests"][group["runs"].index(name)])


def _curves(result: Mapping[str, Any], metrics: Mapping[str, list[dict[str, Any]]], words: str) -> Chart | None:
    """Draw the dev metric of each run over the steps. The runs of a group have one colour."""
    curves = []
    for colour, group in enumerate(result["groups"][:MAX_GROUPS]):
        for name in group["runs"]:
            lines = [line for line in metrics[name] if "dev_metric" in line]
            steps, values = [line["step"] for line in lines], [line["dev_metric"] for line in lines]
            curves.append(Curve(group["name"], steps, values, colour))
    return curve_chart(curves, f"dev {words} (encoder)") if any(len(curve.steps) > 1 for curve in curves) else None


def _classes(result: Mapping[str, Any], rows: Mapping[str, Predictions]) -> Table:
    """Return the F1 of each class, as the mean over the runs of each group."""
    columns = {}
    for group in result["groups"]:
        runs = [rows[name] for name in group["runs"]]
        reports = [classification_report(run.labels, run.predictions, run.names).per_class for run in runs]
        columns[group["name"]] = [percent(fmean(own[name]["f1"] for own in reports)) for name in reports[0]]
    columns["rows"] = [f"{scores['support']:,}" for scores in reports[0].values()]
    return by_columns({"label": list(reports[0]), **columns})


def _differences(result: Mapping[str, Any], rows: Mapping[str, Predictions]) -> list[dict[str, Any]]:
    """Return the rows on which the best group and another group differ, for the first MAX_DIFFERENCES other groups.

    A group predicts a row correctly if most of its runs do.
    """
    best, *others = result["groups"]
    texts, found = read_texts(_open(best, best["runs"][0])), []
    if not texts:  # `finetuning.keep_texts=false`
        return []
    shares = {
        group["name"]: _shares([rows[name] for name in group["runs"]]) for group in (best, *others[:MAX_DIFFERENCES])
    }
    for other in others[:MAX_DIFFERENCES]:
        for right, wrong in ((best, other), (other, best)):
            pairs = zip(shares[right["name"]], shares[wrong["name"]], strict=True)
            numbers = [number for number, (ours, theirs) in enumerate(pairs) if ours > 0.5 > theirs]
            predictions = rows[wrong["runs"][0]].predictions
            listed = [{**texts[n]._asdict(), "prediction": predictions[n]} for n in numbers[:ROWS_OF_DIFFERENCE]]
            count = {"count": len(numbers), "counted": pluralize(len(numbers), "row")}
            found.append({"right": right["name"], "wrong": wrong["name"], **count, "rows": listed})
    return found


def _shares(runs: Sequence[Predictions]) -> list[float]:
    """Return the share of the runs that predict the row correctly, for each row."""
    return [fmean(hits) for hits in zip(*(map(str.__eq__, run.labels, run.predictions) for run in runs), strict=True)]
