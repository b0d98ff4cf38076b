"""Print the tables of the study of state, and draw its figures: python table.py [RESULTS [FIGURES]].

RESULTS, by default ../results/state, has one file a cell, TASK/ENCODER.json, as cell.py prints it. With FIGURES, a folder,
lengths.png has the accuracy over the length of the rows by encoder, and recall.png that over the number of pairs.

A seed solves a task at the length of training with 99 % of the test rows, of 10 to 40 symbols, and at all lengths if 95 % of
the rows of 4 times the length, 160 to 200 symbols, are right too. A verdict is that of the best seed; the numbers of seeds
stand beside it.
"""

import itertools
import json
import runpy
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from recurcli.data.recurrence_tasks import recurrence_rows
from recurcli.data.tasks import task_named
from recurcli.metrics import ScoredSplit
from recurcli.significance import bootstrap_difference, holm

HERE = Path(__file__).parent
KEPT = runpy.run_path(str(HERE.parent / "kept.py"))
THEORY = json.loads((HERE / "theory.json").read_text())
CONTRASTS = [line.split() for line in (HERE / "contrasts.txt").read_text().splitlines()]
Sizes = Mapping[str, tuple[ScoredSplit, int, int]]

TESTED = {"parity": "parity", "modulo-5": "addition modulo 5", "s3": "words of S3", "a5": "words of A5"}
"""The tasks of the tests, in words."""
SHOWN = {"dyck": "Dyck", "flip-flop": "flip-flop", "s5": "words of S5", "recall-size": "recall"}
LENGTHS: Sizes = {"1": ("test", 10, 40), "2": ("test-long", 80, 119), "4": ("test-long", 160, 200)}
"""The split, and the least and the greatest number of symbols, of the rows of 1, 2 and 4 times the length of training."""
PAIRS: Sizes = {"1": ("test", 4, 64), "2": ("test-long", 128, 159), "4": ("test-long", 224, 255)}
"""The same for the number of pairs of recall-size."""
SPLITS: tuple[ScoredSplit, ...] = ("test", "test-long")
SOLVED, SOLVED_LONGER = 0.99, 0.95
WIDTH = 10
"""The symbols, or pairs, of a range of the figures."""


class Cell(NamedTuple):
    """An encoder on a task."""

    task: str
    encoder: str
    facts: dict[str, Any]
    """The object of cell.py."""

    def right(self, split: ScoredSplit) -> np.ndarray:
        """Return whether each row of a split is right, for each seed: (R, N). R is 0 if it was not scored."""
        count = len(_sizes(self.task, split))
        runs = [run["right"][split] for run in self.facts["runs"].values() if split in run["right"]]
        return KEPT["unpacked"](runs, count)

    def accuracies(self, times: str) -> np.ndarray:
        """Return the accuracy of each seed on rows of `times` the length of training."""
        split, least, most = (PAIRS if self.task == "recall-size" else LENGTHS)[times]
        sizes = _sizes(self.task, split)
        return self.right(split)[:, (sizes >= least) & (sizes <= most)].mean(axis=1)

    @property
    def solved(self) -> tuple[int, int]:
        """How many seeds solve the task at the length of training, and at all lengths."""
        trained, longer = self.accuracies("1") >= SOLVED, self.accuracies("4") >= SOLVED_LONGER
        return int(trained.sum()), int((trained & longer).sum())

    @property
    def verdict(self) -> str:
        trained, longer = self.solved
        if longer:
            return "solves all lengths"
        return "the length of training alone" if trained else "not in this budget"

    @property
    def theory(self) -> tuple[bool | None, str]:
        """Whether two such layers can do it at any length in finite precision, and the theorem. None: no theorem is used."""
        can, theorem = THEORY["encoders"].get(self.encoder, {}).get(self.task, (None, ""))
        return can, theorem

    @property
    def is_control(self) -> bool:
        """Whether the rows or the weights are not those of a training."""
        return self.encoder == "linear" or self.encoder.endswith(("-frozen", "-shuffled"))

    @property
    def contradicts(self) -> bool:
        """Whether a seed does what a theorem excludes."""
        return self.theory[0] is False and self.solved[1] > 0


@cache
def _sizes(task: str, split: str) -> np.ndarray:
    """Return the number of symbols of each row of a split, or of pairs in recall-size."""
    tokens = np.array([text.count(" ") + 1 for text, _ in recurrence_rows(task_named(task), split)])
    return (tokens - 1) // 2 if task == "recall-size" else tokens


def read(results: Path) -> dict[tuple[str, str], Cell]:
    """Return the kept cells by task and encoder."""
    paths = [path for task in (*TESTED, *SHOWN) for path in sorted((results / task).glob("*.json"))]
    named = [(path.parent.name, path.stem) for path in paths]
    return {name: Cell(*name, json.loads(path.read_text())) for name, path in zip(named, paths, strict=True)}


def of_task(cells: Mapping[tuple[str, str], Cell], task: str) -> str:
    """Return the table of the encoders on one of the tested tasks."""
    lines = []
    for cell in _tested(cells, task):
        runs, (trained, longer) = cell.facts["runs"], cell.solved
        can, theorem = cell.theory
        words = {True: "can", False: "cannot", None: "no theorem used"}[can] + (f" ({theorem})" if theorem else "")
        published = THEORY["published"].get(cell.encoder, {}).get(task)
        lines.append(
            (
                f"`{cell.encoder}`",
                "–" if cell.facts["state"] is None else f"{cell.facts['state']:,}",
                f"{cell.facts['keys'].get('finetuning.learning_rate', '–')}",
                *(_mean(cell.accuracies(times)) for times in LENGTHS),
                f"{trained} and {longer} of {len(runs)}",
                cell.verdict + (" (contradicts the theorem)" if cell.contradicts else ""),
                words,
                "" if published is None else f"{published:g}",
                _minutes(cell),
            )
        )
    head = ("encoder", "state", "rate", "1 ×", "2 ×", "4 ×", "seeds", "verdict", "theory", "published", "minutes")
    return _table(head, lines)


def curves(cells: Mapping[tuple[str, str], Cell]) -> str:
    """Return the dev accuracy after each pass of all seeds of the cells in which one does what a theorem excludes."""
    lines = []
    for cell in (cell for cell in cells.values() if cell.contradicts):
        for seed, run in cell.facts["runs"].items():
            passes = ", ".join(f"{100 * score:.1f}" for score in run["dev"])
            lines.append((cell.task, f"`{cell.encoder}`", seed, passes))
    return _table(("task", "encoder", "seed", "dev accuracy after each pass"), lines) if lines else "No kept run does."


def contrasts(cells: Mapping[tuple[str, str], Cell]) -> str:
    """Return the tests of CONTRASTS on the test rows, with Holm's correction over all of them, those without runs too."""
    tests = []
    for task, *names in CONTRASTS:
        if all((task, name) in cells for name in names):
            first, second = (KEPT["resampled"](cells[task, name].right("test")) for name in names)
            others = [
                KEPT["resampled"](cell.right("test")) for cell in _tested(cells, task) if cell.encoder not in names
            ]
            rows = cells[task, names[0]].right("test").shape[1]
            tests.append((task, names, (first, second), bootstrap_difference(first, second, rows, others=others)))
    lines = []
    adjusted = holm([*(found.p_value for *_, found in tests), *[1.0] * (len(CONTRASTS) - len(tests))])
    for (task, names, (first, second), found), p_holm in zip(tests, adjusted, strict=False):
        ends = "–" if found.interval is None else " to ".join(f"{100 * end:+.1f}" for end in found.interval)
        difference = f"{100 * (first.scores.mean() - second.scores.mean()):+.1f}"
        scores = (f"`{name}` {_mean(runs.scores)}" for name, runs in zip(names, (first, second), strict=True))
        lines.append((task, *scores, difference, ends, KEPT["p_value"](found.p_value), KEPT["p_value"](p_holm)))
    return _table(("task", "A", "B", "A − B", "95 % interval", "p", "p (Holm)"), lines)


def controls(cells: Mapping[tuple[str, str], Cell]) -> str:
    """Return the accuracies of the controls on the test rows, one seed each."""
    kinds = {"linear": "the linear model on n-grams", "-frozen": "its first weights", "-shuffled": "shuffled labels"}
    lines = []
    for ending, words in kinds.items():
        names = sorted({cell.encoder for cell in cells.values() if cell.is_control and cell.encoder.endswith(ending)})
        for name in names:
            own = [cells.get((task, name)) for task in TESTED]
            scores = ("–" if cell is None else _mean(cell.accuracies("1")) for cell in own)
            encoder = "" if name == "linear" else f"`{name.removesuffix(ending)}`, "
            lines.append((encoder + words, *scores))
    if not lines:
        return _table((), lines, "2")
    shares = ("the most frequent label", *(f"{100 * task_named(task).baselines['majority']:.1f}" for task in TESTED))
    return _table(("control", *TESTED), [*lines, shares])


def shown(cells: Mapping[tuple[str, str], Cell]) -> str:
    """Return the accuracies, at 1 and 4 times the length of training, of what has one seed and no test."""
    single = {
        (cell.encoder, task): f"{_mean(cell.accuracies('1'))}, {_mean(cell.accuracies('4'))}"
        for task in (*TESTED, *SHOWN)
        for cell in _trained(cells, task)
        if len(cell.facts["runs"]) == 1
    }
    encoders = dict.fromkeys(encoder for encoder, _ in single)
    lines = [(f"`{each}`", *(single.get((each, task), "") for task in (*TESTED, *SHOWN))) for each in encoders]
    return _table(("encoder", *TESTED, *SHOWN), lines, "3")


def theorems() -> str:
    """Return the theorems that the tables name, as a list."""
    return "\n".join(f"- **{name}**: {text}" for name, text in THEORY["theorems"].items())


def draw(cells: Mapping[tuple[str, str], Cell], folder: Path) -> None:
    """Draw the accuracy over the length of the rows, lengths.png, and over the number of pairs, recall.png."""
    for name, tasks in {"lengths": [*TESTED], "recall": ["recall-size"]}.items():
        if any(task in tasks for task, _ in cells):
            _plot([task for task in tasks if any(task == each for each, _ in cells)], cells, folder / f"{name}.png")


def _plot(tasks: Sequence[str], cells: Mapping[tuple[str, str], Cell], path: Path) -> None:
    """Draw a plot for each task, with the mean of each encoder. A dotted line is at the longest training row."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 3.6 * -(-len(tasks) // 2)), layout="constrained")
    lines = {}
    for plot, task in itertools.zip_longest(figure.subplots(-(-len(tasks) // 2), 2, squeeze=False).flat, tasks):
        if task is None:
            plot.set_axis_off()
            continue
        for number, cell in enumerate(_trained(cells, task)):
            style = {"color": f"C{number % 10}", "linestyle": "-" if number < 10 else "--", "marker": "."}
            for split in SPLITS:
                ranges = _sizes(task, split) // WIDTH
                right = cell.right(split).mean(axis=0)
                starts = np.unique(ranges)
                shares = [100 * right[ranges == start].mean() for start in starts]
                (lines[cell.encoder],) = plot.plot((starts + 0.5) * WIDTH, shares, **style)
        pairs = task == "recall-size"
        plot.axvline((PAIRS if pairs else LENGTHS)["1"][2], color="grey", linestyle=":")
        plot.set(title=task, xlabel="pairs" if pairs else "symbols", ylabel="accuracy, %", ylim=(0, 103))
    figure.legend(lines.values(), lines, loc="outside right", frameon=False)
    figure.savefig(path, dpi=130)


def _tested(cells: Mapping[tuple[str, str], Cell], task: str) -> list[Cell]:
    """Return the cells of a task that have several seeds, in the order of `_trained`."""
    return [cell for cell in _trained(cells, task) if len(cell.facts["runs"]) > 1]


def _trained(cells: Mapping[tuple[str, str], Cell], task: str) -> list[Cell]:
    """Return the cells of a task that are no controls: the encoders of theory.json in their order, then all others."""
    own = [cell for (name, _), cell in cells.items() if name == task and not cell.is_control]
    order = {encoder: place for place, encoder in enumerate(THEORY["encoders"])}
    return sorted(own, key=lambda cell: order.get(cell.encoder, len(order)))


def _mean(accuracies: np.ndarray) -> str:
    return "–" if not len(accuracies) else f"{100 * fmean(accuracies):.1f}"


def _minutes(cell: Cell) -> str:
    return f"{sum(run['cpu_seconds'] for run in cell.facts['runs'].values()) / 60:.0f}"


def _table(head: Sequence[str], lines: Sequence[Sequence[str]], claims: str = "1") -> str:
    """Return a table in Markdown, or the command whose runs would fill it."""
    if not lines:
        return f"No run is kept. `CLAIMS={claims} presets/papers/state/study.sh` trains them."
    return KEPT["markdown"](head, lines)


def main(results: Path, figures: Path | None = None) -> None:
    """Print all tables, and draw the figures."""
    cells = read(results)
    if not cells:
        sys.exit(f"{results}: has no cell; run study.sh first")
    for task, words in TESTED.items():
        print(f"\n{words}\n\n{of_task(cells, task)}")
    for table in (contrasts(cells), curves(cells), controls(cells), shown(cells), theorems()):
        print(f"\n{table}")
    if figures is not None:
        draw(cells, figures)


if __name__ == "__main__":
    if len(sys.argv) > 3:
        sys.exit(str(__doc__).partition("\n")[0])
    main(*(map(Path, sys.argv[1:]) if sys.argv[1:] else [HERE.parent / "results/state"]))
