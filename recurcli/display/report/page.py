"""A report: one HTML page with charts, without scripts and network access. Texts of the data are escaped."""

import io
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recurcli.errors import escaped, pluralize
from recurcli.files import write_atomically
from recurcli.metrics import format_interval, format_score, metric_named, percent, percent_interval, words_of
from recurcli.significance import share_interval
from recurcli.version import __version__

if TYPE_CHECKING:
    import jinja2

LONGEST = 600
"""The number of characters of a text that are shown."""
COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#999999")
"""Paul Tol's bright scheme, whose colours people with any kind of colour blindness can distinguish."""
MAX_BARS = 40
"""The most labels of a chart of labels."""
LONGEST_NAME = 24
"""The number of characters of a label's name beside its bar."""
LONGEST_LINE, LINE_HEIGHT = 44, 0.2
"""The number of characters of a line of a legend, and its height in inches."""
WIDTH = 4.4
"""The width of a chart in inches. On a screen of 390 pixels its text has 12 pixels."""
SETTINGS = {
    "svg.fonttype": "none",
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.formatter.useoffset": False,
    "axes.formatter.limits": (-6, 9),
}


def environment() -> "jinja2.Environment":
    """Return the templates with their filters: `shown` for texts of the data, `percent` for shares."""
    import jinja2

    loader = jinja2.FileSystemLoader(Path(__file__).parent / "templates")
    found = jinja2.Environment(
        loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    found.filters["shown"] = lambda text: escaped(text, limit=LONGEST)
    found.filters["percent"] = lambda share: f"{percent(share)} %"
    return found


def write_page(output: Path, template: str, **values: Any) -> None:
    """Fill `template`, a file in templates/, with `values` and write the page to `output`."""
    write_atomically(output, environment().get_template(template).render(version=__version__, **values))


class Chart:
    """A chart of a page: its numbers in words, which screen readers read, and its SVG, whose black is the colour of texts."""

    def __init__(self, words: str) -> None:
        self.words, self.svg = escaped(words, limit=10_000), ""


class Scores(NamedTuple):
    """A line of `score_chart`."""

    name: str
    value: float
    low: float
    high: float
    dots: Sequence[float] = ()
    """The scores of single runs."""


class Curve(NamedTuple):
    """A line of `curve_chart`."""

    name: str
    steps: Sequence[int]
    values: Sequence[float]
    colour: int = 0
    """Its index in COLOURS. Curves of one colour share one entry of the legend."""


@contextmanager
def styled_figure(width: float, height: float) -> Iterator[Any]:
    """Yield an empty figure, in inches, in the style of all charts; it is saved within the block."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(SETTINGS), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # a browser has fonts of its own
        yield Figure(figsize=(width, height), layout="constrained")


@contextmanager
def drawing(height: float, words: str) -> Iterator[tuple[Any, Chart]]:
    """Yield the axes of a figure of `height` inches, and the chart that it is at the end of the block."""
    chart, paper = Chart(words), io.BytesIO()
    with styled_figure(WIDTH, height) as figure:
        yield figure.subplots(), chart
        figure.savefig(
            paper, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")), transparent=True
        )
    svg = paper.getvalue().decode()
    chart.svg = re.sub('<g id="[^"]*">', "<g>", svg[svg.index("<svg") :])  # which would stand in every chart of a page


def in_percent(*axes: Any) -> None:
    """Write the shares on these axes of matplotlib in per cent, as the screen does."""
    for axis in axes:
        axis.set_major_formatter(lambda share, place: f"{100 * share:g}")


def add_legend(axis: Any) -> None:
    """Draw the legend above the axes, in a figure that grows by its lines. Long names are broken."""
    handles, names = axis.get_legend_handles_labels()
    broken = [fill(name, LONGEST_LINE) for name in names]
    columns = 2 if all(len(name) <= LONGEST_LINE // 2 for name in names) else 1
    lines = sum(name.count("\n") + 1 for name in broken) / columns
    axis.figure.set_figheight(axis.figure.get_figheight() + LINE_HEIGHT * max(0, lines - 1))
    axis.figure.legend(handles, broken, loc="outside upper left", frameon=False, ncols=columns)


def is_share(metric: str) -> bool:
    """Return whether scores of the metric are shown in per cent."""
    return metric_named(metric).decimals is None


def score_chart(scores: Sequence[Scores], baselines: Mapping[str, float], metric: str, split: str) -> Chart:
    """Draw each score with its interval on a line of its own, and each of `baselines` as a vertical line."""
    intervals = [format_interval(metric, (line.low, line.high)) for line in scores]
    said = [
        f"{line.name} {format_score(metric, line.value)} ({own})" for line, own in zip(scores, intervals, strict=True)
    ]
    said += [f"{name.replace('_', ' ')} {format_score(metric, value)}" for name, value in baselines.items()]
    shown = f"{split} {words_of(metric)}"
    words = f"{shown}{' in per cent' * is_share(metric)} with 95 % intervals: {'; '.join(said)}"
    with drawing(0.9 + 0.36 * len(scores) + 0.2 * len(baselines), words) as (axis, chart):
        for place, line in enumerate(reversed(scores)):
            axis.plot([line.low, line.high], [place, place], color=COLOURS[0], linewidth=2)
            axis.plot(line.dots, [place] * len(line.dots), "|", color=COLOURS[0], markersize=9)
            axis.plot(line.value, place, "o", color=COLOURS[0])
        for number, (name, value) in enumerate(sorted(baselines.items(), key=lambda item: item[1])):
            label, colour = name.replace("_", " "), COLOURS[1 + number % (len(COLOURS) - 1)]
            axis.axvline(value, color=colour, linewidth=1.5, linestyle="--", label=label)
        names = [_plain(line.name) for line in reversed(scores)]
        axis.set(yticks=range(len(scores)), yticklabels=names, xlabel=f"{shown}{' (%)' * is_share(metric)}")
        if is_share(metric):
            in_percent(axis.xaxis)
        axis.set_ylim(-0.6, len(scores) - 0.4)
        if baselines:
            add_legend(axis)
    return chart


def curve_chart(
    curves: Sequence[Curve],
    ylabel: str,
    best: tuple[int, float, str] | None = None,
    *,
    xlabel: str = "optimizer step",
    log: bool = False,
    shares: bool = False,
) -> Chart:
    """Draw values over optimizer steps. `best` is a point to mark, with its name; `log` makes the vertical axis logarithmic.

    `shares` are written in per cent.
    """
    factor = 100 if shares else 1
    said = [
        f"{f'{curve.name} ' * (len(curves) > 1)}{factor * curve.values[0]:.3g} at {curve.steps[0]:,}, "
        f"{factor * curve.values[-1]:.3g} at {curve.steps[-1]:,}"
        for curve in curves
        if len(curve.steps)
    ]
    with drawing(2.6, f"{ylabel} over the {xlabel}: {'; '.join(said)}") as (axis, chart):
        labelled = set()
        for curve in curves:
            label = None if curve.name in labelled else _plain(curve.name)
            labelled.add(curve.name)
            style = {"color": COLOURS[curve.colour % len(COLOURS)], "marker": "o" if len(curve.steps) <= 30 else None}
            axis.plot(curve.steps, curve.values, markersize=3, linewidth=1.5, label=label, **style)
        if best:
            step, value, name = best
            axis.plot(step, value, "*", color=COLOURS[1], markersize=12, label=name)
        axis.set(xlabel=xlabel, ylabel=f"{ylabel} (%)" if shares else ylabel, yscale="log" if log else "linear")
        if shares:
            in_percent(axis.yaxis)
        if log:
            axis.yaxis.set_major_formatter(lambda value, place: f"{value:g}")
            axis.yaxis.set_minor_formatter("")
        if len(labelled) > 1 or best:
            add_legend(axis)
    return chart


def draw_lines(axis: Any, over: Mapping[str, Any], metric: str, split: str) -> None:
    """Draw the scores of `recur compare --over` on a matplotlib `axis`: lines with 95 % intervals, a stroke for each run.

    The score of a group without a number for the key is a dashed line.
    """
    for number, line in enumerate(over["lines"]):
        colour, name = COLOURS[number % len(COLOURS)], _plain(line["name"])
        points = [point for point in line["points"] if point["value"] is not None]
        if points:
            values, means = ([point[key] for point in points] for key in ("value", "mean"))
            axis.plot(values, means, "o-", color=colour, markersize=4, label=name)
        for point in points:
            axis.plot([point["value"]] * point["n"], point["scores"], "_", color=colour, markersize=8)
            if point["interval"] is not None:
                axis.plot([point["value"]] * 2, point["interval"], color=colour, linewidth=1, alpha=0.6)
        for point in line["points"][len(points) :]:
            key = over["key"].rpartition(".")[2]
            axis.axhline(point["mean"], color=colour, linewidth=1, linestyle="--", label=f"{name}, {key} null")
    axis.set(xlabel=over["key"], ylabel=f"{split} {words_of(metric)}{' (%)' * is_share(metric)}")
    if is_share(metric):
        in_percent(axis.yaxis)
    if len(axis.get_legend_handles_labels()[0]) > 1:
        add_legend(axis)


def over_chart(over: Mapping[str, Any], metric: str, split: str) -> Chart:
    """Draw the scores of `recur compare --over`."""
    means = {
        line["name"]: [f"{point['mean']:.3g} at {point['value']}" for point in line["points"]] for line in over["lines"]
    }
    said = [f"{name}: {', '.join(points)}" for name, points in means.items()]
    with drawing(3.2, f"{split} {words_of(metric)} over {over['key']}; {'; '.join(said)}") as (axis, chart):
        draw_lines(axis, over, metric, split)
    return chart


def reliability_chart(
    bins: Sequence[Mapping[str, Any]], of: str = "score of the prediction", share_of: str = "accuracy"
) -> Chart:
    """Draw the accuracy over the confidence of each bin, with its 95 % interval.

    `of` and `share_of` name the axes: what is as sure as that, and how often it is so.
    """
    rows = [own["rows"] for own in bins]
    confidence, accuracy = ([own[key] for own in bins] for key in ("confidence", "accuracy"))
    limits = [share_interval(round(share * count), count) for share, count in zip(accuracy, rows, strict=True)]
    said = [
        f"score {sure:.2f}: {percent(share)} ({percent_interval(own)}) of {pluralize(count, 'row')}"
        for sure, share, own, count in zip(confidence, accuracy, limits, rows, strict=True)
    ]
    with drawing(3.0, f"{share_of} by the {of}; {'; '.join(said)}") as (axis, chart):
        axis.plot([0, 1], [0, 1], color="black", linewidth=0.8, linestyle=":")
        axis.plot(confidence, accuracy, "o-", color=COLOURS[0], linewidth=1, markersize=5)
        axis.vlines(confidence, *zip(*limits, strict=True), color=COLOURS[0], linewidth=1.5)
        axis.set(xlim=(0, 1.02), ylim=(0, 1.02), xlabel=of, ylabel=f"{share_of} (%)")
        in_percent(axis.yaxis)
    return chart


def coverage_chart(scores: NDArray[np.float64], right: NDArray[np.bool_], thresholds: Sequence[float]) -> Chart:
    """Draw the accuracy of the rows with the largest scores over their share of all rows (N,); `thresholds` are marked.

    `scores` (N,) are those of the predictions, `right` (N,) whether they are right.
    """
    hits = right[np.argsort(-scores, kind="stable")].cumsum()
    counts = np.arange(1, len(hits) + 1)
    coverage, accuracy = counts / len(hits), hits / counts
    kept = {threshold: int((scores >= threshold).sum()) - 1 for threshold in thresholds}
    marks = {threshold: (coverage[last], accuracy[last]) for threshold, last in kept.items() if last >= 0}
    said = [
        f"--threshold {name:g}: {percent(x)} labelled, {percent(y)} of them right" for name, (x, y) in marks.items()
    ]
    with drawing(3.0, f"accuracy by coverage, in per cent; {'; '.join(said)}") as (axis, chart):
        start = min(len(hits) - 1, max(10, len(hits) // 50))  # the first rows alone say little
        axis.plot(coverage[start:], accuracy[start:], color=COLOURS[0], linewidth=1.5)
        free = 1.1  # from here to the left there is no name yet
        for name, place in marks.items():
            axis.plot(*place, "o", color=COLOURS[1], markersize=5)
            if place[0] < free:
                offset, side = ((-5, -11), "right") if place[0] > 0.85 else ((5, 3), "left")
                axis.annotate(f"{name:g}", place, offset, textcoords="offset points", ha=side)
                free = place[0] - 0.1
        axis.margins(y=0.15)
        axis.set(xlim=(0, 1.02), xlabel="labelled (% of the rows)", ylabel="right, of these (%)")
        axis.set_ylim(max(0.0, axis.get_ylim()[0]), min(1.02, axis.get_ylim()[1]))
        in_percent(axis.xaxis, axis.yaxis)
    return chart


def precision_recall_chart(
    shares: NDArray[np.float64], are_of: NDArray[np.bool_], found: NDArray[np.bool_], name: str
) -> Chart:
    """Draw precision over recall of the class `name` by its probabilities (N,), and the point of the run's labels `found` (N,).

    `are_of` (N,): whether the rows are of the class.
    """
    hits = are_of[np.argsort(-shares, kind="stable")].cumsum()
    recall, precision = hits / are_of.sum(), hits / np.arange(1, len(hits) + 1)
    own = (found & are_of).sum()
    at = float(own / are_of.sum()), float(own / max(1, found.sum()))
    words = f"precision over recall of {name}: the run has precision {percent(at[1])} and recall {percent(at[0])}"
    with drawing(3.0, words) as (axis, chart):
        axis.plot(recall, precision, color=COLOURS[0], linewidth=1.5)
        axis.plot(*at, "o", color=COLOURS[1], markersize=7, label="the run's threshold")
        axis.set(xlim=(0, 1.02), ylim=(0, 1.02), xlabel=f"recall of {_plain(name)} (%)", ylabel="precision (%)")
        in_percent(axis.xaxis, axis.yaxis)
        add_legend(axis)
    return chart


def label_chart(per_label: Mapping[str, Mapping[str, Any]]) -> Chart:
    """Draw the F1 of the labels that have rows as bars, with the numbers of rows; of more than MAX_BARS the lowest ones."""
    with_rows = [(own["f1"], name, own["support"]) for name, own in per_label.items() if own["support"]]
    bars = sorted(with_rows)[:MAX_BARS]
    said = [f"{name} {percent(value)} of {pluralize(rows, 'row')}" for value, name, rows in bars]
    which = "F1 by label" if len(bars) == len(with_rows) else f"the {MAX_BARS} lowest F1 of {len(with_rows):,} labels"
    with drawing(0.9 + 0.24 * len(bars), f"{which}, in per cent: {'; '.join(said)}") as (axis, chart):
        axis.barh(range(len(bars)), [value for value, _, _ in bars], height=0.7, color=COLOURS[0])
        names = [f"{_plain(escaped(name, limit=LONGEST_NAME))} ({rows:,})" for _, name, rows in bars]
        axis.set(yticks=range(len(bars)), yticklabels=names, xlim=(0, 1.02), xlabel=f"{which} (%)")
        axis.set_ylim(len(bars) - 0.4, -0.6)
        in_percent(axis.xaxis)
    return chart


def number_chart(
    across: NDArray[np.float64], up: NDArray[np.float64], xlabel: str, ylabel: str, line: Sequence[float], words: str
) -> Chart:
    """Draw a point for each row (N,), and a dotted `line` from the smallest `across` to the largest, at these two heights."""
    with drawing(3.0, f"{ylabel} over {xlabel}: {words}") as (axis, chart):
        style = {"markersize": 3, "color": COLOURS[0], "alpha": 0.4, "markeredgewidth": 0}
        axis.plot(across, up, "o", rasterized=True, **style)
        axis.plot([across.min(), across.max()], line, color="black", linewidth=0.8, linestyle=":")
        axis.set(xlabel=xlabel, ylabel=ylabel)
    return chart


def _plain(text: str) -> str:
    """Return `text` so that matplotlib shows it unchanged. It reads dollars as formulas and hides a leading underscore."""
    return "\u200b" + escaped(text).replace("$", r"\$")
