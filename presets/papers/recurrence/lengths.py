"""Print the accuracy of the runs of study.sh at the length of training and beyond, and draw it: python lengths.py FOLDER.

FOLDER has the rows that they label wrongly, TASK/ENCODER/SEED-SPLIT.tsv. Accuracies are in per cent, mean and standard
deviation over the seeds. FOLDER/lengths.png has the mean accuracy of the rows whose lengths are in one range of ten tokens,
if there are at least 40 of them.
"""

import csv
import sys
from collections import Counter
from pathlib import Path
from statistics import mean, stdev

from recurcli.data.recurrence_tasks import recurrence_rows
from recurcli.data.tasks import task_named

SPLITS = {"test": "training length", "test-long": "longer"}
RANGE, FEWEST_ROWS = 10, 40

Counts = Counter[int]
"""Numbers of rows by `range_of` their text."""


def main(folder: Path) -> None:
    """Print the table and draw the figure."""
    wrong: dict[str, dict[str, dict[str, list[Counts]]]] = {}  # [task][encoder][split], one a seed
    for path in sorted(folder.glob("*/*/*.tsv")):
        task, encoder, split = path.parts[-3], path.parts[-2], path.stem.partition("-")[2]
        with path.open(encoding="utf-8", newline="") as file:
            texts = [row["text"] for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)]
        wrong.setdefault(task, {}).setdefault(encoder, {}).setdefault(split, []).append(Counter(map(range_of, texts)))
    rows = {
        (task, split): Counter(range_of(text) for text, _ in recurrence_rows(task_named(task), split))
        for task in wrong
        for split in SPLITS
    }
    print("| | " + " | ".join(f"{task}, {length}" for task in wrong for length in SPLITS.values()) + " |")
    print("|---" * (1 + len(SPLITS) * len(wrong)) + "|")
    for encoder in sorted({encoder for encoders in wrong.values() for encoder in encoders}):
        cells = []
        for (task, split), counts in rows.items():
            seeds = wrong[task].get(encoder, {}).get(split, [])
            cells.append(_cell([100 * (1 - seed.total() / counts.total()) for seed in seeds]))
        print(f"| `{encoder}` | " + " | ".join(cells) + " |")
    if wrong:
        draw(wrong, rows, folder / "lengths.png")


def range_of(text: str) -> int:
    """Return the number of the range that has the length of `text`; the first range is 1 to 10."""
    return (len(text.split(" ")) - 1) // RANGE


def draw(wrong: dict[str, dict[str, dict[str, list[Counts]]]], rows: dict[tuple[str, str], Counts], path: Path) -> None:
    """Plot the accuracy over the length: one plot for each task, one line for each encoder.

    A dotted line marks the longest training text.
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
                counts = {each: count for each, count in sorted(rows[task, split].items()) if count >= FEWEST_ROWS}
                shares = [100 * (1 - mean(seed[each] for seed in seeds) / count) for each, count in counts.items()]
                centres = [RANGE * (each + 0.5) for each in counts]
                (lines[encoder],) = plot.plot(centres, shares, marker=".", **styles[encoder])
        plot.axvline(RANGE * (max(rows[task, "test"]) + 1), color="grey", linestyle=":")
        plot.set(title=task, xlabel="tokens", ylabel="accuracy, %", ylim=(0, 103))
    for plot in plots[len(wrong) :]:
        plot.set_axis_off()
    figure.legend(lines.values(), lines, loc="outside right", frameon=False)
    figure.savefig(path, dpi=130)


def _cell(accuracies: list[float]) -> str:
    if not accuracies:
        return "–"
    spread = f" ± {stdev(accuracies):.1f}" if len(accuracies) > 1 else ""
    return f"{mean(accuracies):.1f}{spread}"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
