"""A report: one HTML page with charts, without scripts and network access. Texts of the data are escaped."""

import base64
import io
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from recurcli.errors import escaped
from recurcli.files import write_atomically
from recurcli.version import __version__

if TYPE_CHECKING:
    import jinja2

LONGEST = 600
"""The number of characters of a text that are shown."""
COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#999999")
"""Paul Tol's bright scheme, whose colours people with any kind of colour blindness can distinguish."""
WIDTH = 5.6
"""The width of a chart in inches. A narrow screen shrinks it."""
SETTINGS = {"svg.fonttype": "none", "font.size": 10, "axes.spines.top": False, "axes.spines.right": False}


def environment() -> "jinja2.Environment":
    """Return the templates with their filters: `shown` for texts of the data, `percent` for shares."""
    import jinja2

    loader = jinja2.FileSystemLoader(Path(__file__).parent / "templates")
    found = jinja2.Environment(
        loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    found.filters["shown"] = lambda text: escaped(text, limit=LONGEST)
    found.filters["percent"] = lambda share: f"{share:.1%}"
    return found


def write_page(output: Path, template: str, **values: Any) -> None:
    """Fill `template`, a file in templates/, with `values` and write the page to `output`."""
    write_atomically(output, environment().get_template(template).render(version=__version__, **values))


class Chart:
    """A chart of a page: the title, which screen readers read in its place, and its SVG as the address of an image."""

    def __init__(self, title: str) -> None:
        self.title, self.address = title, ""


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
def drawing(height: float, title: str) -> Iterator[tuple[Any, Chart]]:
    """Yield the axes of a figure of `height` inches, and the chart that it is at the end of the block."""
    import matplotlib
    from matplotlib.figure import Figure

    chart, paper = Chart(title), io.BytesIO()
    with matplotlib.rc_context(SETTINGS), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # the browser has fonts of its own
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        yield figure.subplots(), chart
        figure.savefig(paper, format="svg", metadata={"Date": None})
    chart.address = f"data:image/svg+xml;base64,{base64.b64encode(paper.getvalue()).decode()}"


def add_legend(axis: Any) -> None:
    """Draw the legend above the axes."""
    axis.figure.legend(loc="outside upper left", frameon=False, ncols=2)


def score_chart(scores: Sequence[Scores], baselines: Mapping[str, float], metric: str) -> Chart:
    """Draw each score with its interval on a line of its own, and each baseline as a vertical line."""
    title = f"{metric} with 95 % intervals{' and baselines' if baselines else ''}"
    with drawing(0.9 + 0.36 * len(scores) + 0.2 * len(baselines), title) as (axis, chart):
        for place, line in enumerate(reversed(scores)):
            axis.plot([line.low, line.high], [place, place], color=COLOURS[0], linewidth=2)
            axis.plot(line.dots, [place] * len(line.dots), "|", color=COLOURS[0], markersize=9)
            axis.plot(line.value, place, "o", color=COLOURS[0])
        for number, (name, value) in enumerate(sorted(baselines.items(), key=lambda item: item[1])):
            label, colour = f"baseline: {name.replace('_', ' ')}", COLOURS[1 + number % (len(COLOURS) - 1)]
            axis.axvline(value, color=colour, linewidth=1.5, linestyle="--", label=label)
        axis.set(yticks=range(len(scores)), yticklabels=[_plain(line.name) for line in reversed(scores)], xlabel=metric)
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
) -> Chart:
    """Draw values over optimizer steps. `best` is a point to mark, with its name; `log` makes the vertical axis logarithmic."""
    with drawing(2.6, f"{ylabel} over the {xlabel}") as (axis, chart):
        labelled = set()
        for curve in curves:
            label = None if curve.name in labelled else _plain(curve.name)
            labelled.add(curve.name)
            style = {"color": COLOURS[curve.colour % len(COLOURS)], "marker": "o" if len(curve.steps) <= 30 else None}
            axis.plot(curve.steps, curve.values, markersize=3, linewidth=1.5, label=label, **style)
        if best:
            step, value, name = best
            axis.plot(step, value, "*", color=COLOURS[1], markersize=12, label=name)
        axis.set(xlabel=xlabel, ylabel=ylabel, yscale="log" if log else "linear")
        if len(labelled) > 1 or best:
            add_legend(axis)
    return chart


def draw_lines(axis: Any, over: Mapping[str, Any], metric: str) -> None:
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
    axis.set(xlabel=over["key"], ylabel=metric)
    if len(axis.get_legend_handles_labels()[0]) > 1:
        add_legend(axis)


def over_chart(over: Mapping[str, Any], metric: str) -> Chart:
    """Draw the scores of `recur compare --over`."""
    with drawing(3.2, f"{metric} over {over['key']}") as (axis, chart):
        draw_lines(axis, over, metric)
    return chart


def reliability_chart(bins: Sequence[Mapping[str, Any]]) -> Chart:
    """Draw the accuracy over the confidence of each bin. The area of a dot is the bin's share of the rows."""
    with drawing(3.2, "accuracy over confidence") as (axis, chart):
        rows = sum(own["rows"] for own in bins)
        axis.plot([0, 1], [0, 1], color="black", linewidth=0.8, linestyle=":")
        confidence, accuracy = ([own[key] for own in bins] for key in ("confidence", "accuracy"))
        axis.plot(confidence, accuracy, color=COLOURS[0], linewidth=1)
        areas = [10 + 400 * own["rows"] / rows for own in bins]
        axis.scatter(confidence, accuracy, s=areas, color=COLOURS[0], alpha=0.7)
        axis.set(xlim=(0, 1), ylim=(0, 1), xlabel="confidence (the score of the prediction)", ylabel="accuracy")
    return chart


def _plain(text: str) -> str:
    """Return `text` so that matplotlib shows it unchanged. It reads dollars as formulas and hides a leading underscore."""
    return "\u200b" + escaped(text).replace("$", r"\$")
