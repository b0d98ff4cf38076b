"""Draws the plots of a report as SVG for an HTML page. Lines and text have the colour of the page's text."""

import io
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from recurcli.errors import escaped

INK = "#010203"
"""The colour of lines and text while matplotlib draws. The page replaces it by its own colour."""
COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#999999")
"""Paul Tol's bright scheme, whose colours people with any kind of colour blindness can distinguish."""
WIDTH = 5.6
"""The width of a plot in inches. A narrow screen shrinks it."""
_SETTINGS = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    **dict.fromkeys(("figure.facecolor", "axes.facecolor"), "none"),
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK),
}


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
def drawing(height: float, title: str) -> Iterator[tuple[Any, list[str]]]:
    """Yield the axes of a matplotlib figure of `height` inches, and a list to which the end of the block appends its SVG.

    Screen readers read `title` in place of the plot.
    """
    import matplotlib
    from markupsafe import escape
    from matplotlib.figure import Figure

    made: list[str] = []
    with matplotlib.rc_context({**_SETTINGS, "svg.hashsalt": title}):  # so that no id is in two plots
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        yield figure.subplots(), made
        paper = io.StringIO()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph")  # the browser has fonts of its own
            figure.savefig(paper, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    _, _, svg = paper.getvalue().partition("<svg")  # the prologue is for a file of its own
    svg = re.sub(r' id="[A-Za-z0-9.]+_\d+"', "", svg)  # figure_1, text_2, …: the same in each plot
    made.append(f'<svg role="img" aria-label="{escape(title)}"' + svg.replace(INK, "currentColor"))


def score_chart(scores: Sequence[Scores], baselines: Mapping[str, float], metric: str) -> str:
    """Draw each score with its interval on a line of its own, and each baseline as a vertical line."""
    title = f"{metric} with 95 % intervals{' and baselines' if baselines else ''}"
    with drawing(0.9 + 0.36 * len(scores) + 0.2 * len(baselines), title) as (axis, made):
        for place, line in enumerate(reversed(scores)):
            axis.plot([line.low, line.high], [place, place], color=COLOURS[0], linewidth=2)
            axis.plot(line.dots, [place] * len(line.dots), "|", color=COLOURS[0], markersize=9)
            axis.plot(line.value, place, "o", color=COLOURS[0])
        for number, (name, value) in enumerate(sorted(baselines.items(), key=lambda item: item[1])):
            colour = COLOURS[1 + number % (len(COLOURS) - 1)]
            axis.axvline(
                value, color=colour, linewidth=1.5, linestyle="--", label=f"baseline: {name.replace('_', ' ')}"
            )
        axis.set(yticks=range(len(scores)), yticklabels=[_plain(line.name) for line in reversed(scores)], xlabel=metric)
        axis.set_ylim(-0.6, len(scores) - 0.4)
        if baselines:
            axis.figure.legend(loc="outside upper left", frameon=False, ncols=2)
    return made[0]


def curve_chart(
    curves: Sequence[Curve],
    ylabel: str,
    best: tuple[int, float, str] | None = None,
    *,
    xlabel: str = "optimizer step",
    log: bool = False,
) -> str:
    """Draw values over optimizer steps. `best` is a point to mark, with its name; `log` makes the vertical axis logarithmic."""
    with drawing(2.6, f"{ylabel} over the {xlabel}") as (axis, made):
        for place, curve in enumerate(curves):
            first = all(other.name != curve.name for other in curves[:place])
            colour = COLOURS[curve.colour % len(COLOURS)]
            marker = "o" if len(curve.steps) <= 30 else None
            label = _plain(curve.name) if first else None
            axis.plot(curve.steps, curve.values, color=colour, marker=marker, markersize=3, linewidth=1.5, label=label)
        if best:
            step, value, name = best
            axis.plot(step, value, "*", color=COLOURS[1], markersize=12, label=name)
        axis.set(xlabel=xlabel, ylabel=ylabel, yscale="log" if log else "linear")
        if len({curve.name for curve in curves}) > 1 or best:
            axis.figure.legend(loc="outside upper left", frameon=False, ncols=2)
    return made[0]


def draw_lines(axis: Any, over: Mapping[str, Any]) -> None:
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
    if len(axis.get_legend_handles_labels()[0]) > 1:
        axis.figure.legend(loc="outside upper left", frameon=False, ncols=2)


def over_chart(over: Mapping[str, Any], metric: str) -> str:
    """Draw the scores of `recur compare --over`."""
    with drawing(3.2, f"{metric} over {over['key']}") as (axis, made):
        draw_lines(axis, over)
        axis.set(xlabel=over["key"], ylabel=metric)
    return made[0]


def histogram_chart(rows: Sequence[tuple[str, Sequence[float]]], xlabel: str) -> str:
    """Draw a small histogram of each row's values, one above the other, the first on top; all have the same bins."""
    values = np.concatenate([own for _, own in rows])
    low, high = float(values.min()), float(values.max())
    edges = np.linspace(low, high if high > low else low + 1, 25)
    with drawing(0.7 + 0.34 * len(rows), f"distribution of the {xlabel}") as (axis, made):
        for place, (_, own) in enumerate(reversed(rows)):
            counts, _ = np.histogram(own, edges)
            axis.bar(edges[:-1], 0.85 * counts / counts.max(), np.diff(edges), place, align="edge", color=COLOURS[0])
        axis.set(yticks=range(len(rows)), yticklabels=[_plain(name) for name, _ in reversed(rows)], xlabel=xlabel)
    return made[0]


def reliability_chart(bins: Sequence[Mapping[str, Any]]) -> str:
    """Draw the accuracy over the confidence of each bin. The area of a dot is the bin's share of the rows."""
    with drawing(3.2, "accuracy over confidence") as (axis, made):
        rows = sum(own["rows"] for own in bins)
        axis.plot([0, 1], [0, 1], color=INK, linewidth=0.8, linestyle=":")
        confidence, accuracy = ([own[key] for own in bins] for key in ("confidence", "accuracy"))
        axis.plot(confidence, accuracy, color=COLOURS[0], linewidth=1)
        areas = [10 + 400 * own["rows"] / rows for own in bins]
        axis.scatter(confidence, accuracy, s=areas, color=COLOURS[0], alpha=0.7)
        axis.set(xlim=(0, 1), ylim=(0, 1), xlabel="confidence (the score of the prediction)", ylabel="accuracy")
    return made[0]


def _plain(text: str) -> str:
    """Return `text` so that matplotlib shows it unchanged. It reads dollars as formulas and hides a leading underscore."""
    return "\u200b" + escaped(text).replace("$", r"\$")
