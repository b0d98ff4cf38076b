"""The page of `recur compare --report`: scores of the groups, the tests, and the rows on which they differ."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from recurcli.display.comparison import group_table, test_table, unfinished_table
from recurcli.display.report.charts import Scores, over_chart, score_chart
from recurcli.display.report.page import write_page
from recurcli.errors import UsageError, pluralize
from recurcli.metrics import METRICS
from recurcli.runs.predictions import Predictions, read_predictions, read_texts
from recurcli.runs.run_directory import Run, reopen_run

MAX_DIFFERENCES, ROWS_OF_DIFFERENCE = 4, 20
"""The number of groups that are compared with the best one row by row, and the number of rows that are shown of each."""


def write_report(path: Path, result: Mapping[str, Any]) -> None:
    """Write the page on the `result` of `recur compare`. Raises UsageError if no run is finished."""
    if not result["groups"]:
        raise UsageError(f"{path}: not written: no run is finished")
    if result["metric"] not in METRICS:
        raise UsageError(f"{path}: not written: --report is for classifiers; --output and --plot take language models")
    rows = {}
    for group in result["groups"]:
        for name in group["runs"]:  # one at a time: each keeps files open
            rows[name] = read_predictions(_open(group, name), result["part"], result["split"])
    shown = f"{result['split']} {METRICS[result['metric']].words}"
    scores = [
        Scores(group["name"], group["mean"], low, high, group["scores"])
        for group in result["groups"]
        for low, high in [group["interval"] or (group["mean"], group["mean"])]
    ]
    baselines = {row["name"]: row["mean"] for row in result["baselines"]}
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
        differences=_differences(result, rows) if result["split"] == "dev" else [],
        best=result["groups"][0]["name"],
        unfinished=unfinished_table(result["unfinished"]),
    )


def _open(group: Mapping[str, Any], name: str) -> Run:
    """Open the run `name` of a group again. Raises StorageError if a new training has replaced it."""
    return reopen_run(Path(name), group["manifests"][group["runs"].index(name)])


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
