"""Print the accuracy of the runs of study.sh at the length of training and beyond, and draw it: python lengths.py FOLDER.

FOLDER has the runs TASK/ENCODER/SEED. Accuracies are in per cent, mean and standard deviation over the seeds.
FOLDER/lengths.png has the mean accuracy of the rows whose lengths are in one range of ten tokens, if there are at least 40
of them. FOLDER/lengths.json keeps the numbers of wrong rows, [task][encoder][split][seed][range]: those of the runs, and of
encoders that have fewer runs there than the file has seeds what it has kept. So a folder without runs, such as
../results/recurrence, gives the same table and figure.
"""

import json
import runpy
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from statistics import mean, stdev

import numpy as np

from recurcli.data.recurrence_tasks import recurrence_rows
from recurcli.data.tasks import task_named
from recurcli.errors import RecurError
from recurcli.metrics import ScoredSplit
from recurcli.runs.predictions import read_predictions
from recurcli.runs.run_directory import open_run

markdown = runpy.run_path(str(Path(__file__).parent.parent / "kept.py"))["markdown"]

TASKS = ("parity", "tomita-5", "associative-recall", "recall-distance")
SPLITS: dict[ScoredSplit, str] = {"test": "training length", "test-long": "longer"}
RANGE, FEWEST_ROWS = 10, 40

Wrong = dict[str, dict[str, dict[str, list[list[int]]]]]
"""The numbers of misclassified rows: [task][encoder][split][seed][range]."""
Ranges = dict[str, dict[str, list[int]]]
"""The range of the length of each row: [task][split][row]; range 0 has 1 to 10 tokens."""


def main(folder: Path) -> None:
    """Print the table and draw the figure."""
    path = folder / "lengths.json"
    kept: Wrong = json.loads(path.read_text()) if path.exists() else {}
    folders = {task: sorted((folder / task).glob("*/")) for task in TASKS}
    ranges = ranges_of(task for task in TASKS if task in kept or folders[task])
    counted = {task: {each.name: _wrong_rows(each, ranges[task]) for each in folders[task]} for task in ranges}
    wrong = merged(kept, counted)
    print(table_of(wrong, ranges))
    if wrong:
        draw(wrong, ranges, folder / "lengths.png")
    if wrong != kept:
        path.write_text(json.dumps(wrong, separators=(",", ":")) + "\n")


def ranges_of(tasks: Iterable[str]) -> Ranges:
    """Return the range of the length of each test row of the `tasks`, which generates the rows."""
    return {
        task: {split: [_range_of(text) for text, _ in recurrence_rows(task_named(task), split)] for split in SPLITS}
        for task in tasks
    }


def table_of(wrong: Wrong, ranges: Ranges) -> str:
    """Return the table of accuracies, in Markdown."""
    rows = []
    for encoder in sorted({encoder for encoders in wrong.values() for encoder in encoders}):
        cells = [_cell(accuracies_of(wrong, ranges, task, encoder, split)) for task in wrong for split in ranges[task]]
        rows.append([f"`{encoder}`", *cells])
    return markdown(["", *(f"{task}, {length}" for task in wrong for length in SPLITS.values())], rows)


def accuracies_of(wrong: Wrong, ranges: Ranges, task: str, encoder: str, split: str) -> list[float]:
    """Return the accuracies in per cent of the runs of an encoder, which are none if it was not trained."""
    rows = len(ranges[task][split])
    return [100 * ((rows - sum(seed)) / rows) for seed in wrong[task].get(encoder, {}).get(split, [])]


def merged(kept: Wrong, counted: Wrong) -> Wrong:
    """Return for each task and encoder the numbers of what has more seeds, those `counted` where both have as many."""
    wrong: Wrong = {}
    for task in (task for task in TASKS if task in kept or task in counted):
        old, new = kept.get(task, {}), counted.get(task, {})
        for encoder in sorted({*old, *new}):
            found = max(new.get(encoder, {}), old.get(encoder, {}), key=lambda splits: len(splits.get("test", [])))
            if found.get("test"):
                wrong.setdefault(task, {})[encoder] = found
    return wrong


def _wrong_rows(runs: Path, ranges: dict[str, list[int]]) -> dict[str, list[list[int]]]:
    """Return the numbers of misclassified rows of the runs in a folder, [split][seed][range]. Unfinished runs are skipped."""
    counts: dict[str, list[list[int]]] = {split: [] for split in SPLITS}
    for path in sorted(path for path in runs.iterdir() if (path / "result.json").exists()):
        run = open_run(path)
        for split in SPLITS:
            scored = read_predictions(run, "model", split)
            counts[split].append(np.bincount(ranges[split], weights=~scored.hits).astype(int).tolist())
    return counts


def draw(wrong: Wrong, ranges: Ranges, path: Path) -> None:
    """Plot the accuracy over the length: one plot for each task, one line for each encoder.

    A dotted line marks the end of the range of the longest training text.
    """
    from matplotlib.figure import Figure

    encoders = sorted(set().union(*wrong.values()) - {"linear"})
    styles = {encoder: {"color": f"C{number}"} for number, encoder in enumerate(encoders)}
    styles["linear"] = {"color": "black", "linestyle": "--"}
    lines = {}
    figure = Figure(figsize=(11, 3.2 * -(-len(wrong) // 2)), layout="constrained")
    plots = figure.subplots(-(-len(wrong) // 2), 2, squeeze=False).flat
    for plot, (task, own) in zip(plots, wrong.items(), strict=False):
        for encoder, splits in own.items():
            for split, seeds in splits.items():
                if not seeds:
                    continue
                counts = {
                    each: rows for each, rows in sorted(Counter(ranges[task][split]).items()) if rows >= FEWEST_ROWS
                }
                shares = [100 * (1 - mean(seed[each] for seed in seeds) / rows) for each, rows in counts.items()]
                centres = [RANGE * (each + 0.5) for each in counts]
                (lines[encoder],) = plot.plot(centres, shares, marker=".", **styles[encoder])
        plot.axvline(RANGE * (max(ranges[task]["test"]) + 1), color="grey", linestyle=":")
        plot.set(title=task, xlabel="tokens", ylabel="accuracy, %", ylim=(0, 103))
    for plot in plots[len(wrong) :]:
        plot.set_axis_off()
    figure.legend(lines.values(), lines, loc="outside right", frameon=False)
    figure.savefig(path, dpi=130)


def _range_of(text: str) -> int:
    return (len(text.split(" ")) - 1) // RANGE


def _cell(accuracies: list[float]) -> str:
    if not accuracies:
        return "–"
    spread = f" ± {stdev(accuracies):.1f}" if len(accuracies) > 1 else ""
    return f"{mean(accuracies):.1f}{spread}"


if __name__ == "__main__":
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_dir():
        sys.exit(str(__doc__).partition("\n")[0])
    try:
        main(Path(sys.argv[1]))
    except RecurError as error:
        sys.exit(str(error))
