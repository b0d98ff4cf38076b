"""Plots the result of `recur bench`: tokens/s and peak memory over length, with a column for each kind of setting."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from recurcli.errors import pluralize
from recurcli.files import write_atomically

ROWS = (("tokens_per_second", 1.0, "tokens/s"), ("peak_memory_bytes", 1e6, "peak memory (MB)"))


def draw_benchmark(result: Mapping[str, Any], path: Path) -> None:
    """Write the plot to `path` in the format of its ending. The lines of peers are dashed."""
    from matplotlib.figure import Figure

    kinds: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for setting in result["settings"]:
        kind = tuple(setting[name] for name in ("mode", "precision", "hidden_size", "num_layers", "batch_size"))
        kinds.setdefault(kind, []).append(setting)
    names = list(dict.fromkeys(each["name"] for setting in result["settings"] for each in setting["candidates"]))
    figure = Figure(figsize=(1 + 4.2 * len(kinds), 7.5), layout="constrained")
    axes = figure.subplots(len(ROWS), len(kinds), squeeze=False)
    for column, ((mode, precision, width, depth, batch), settings) in enumerate(kinds.items()):
        for row, (key, unit, label) in enumerate(ROWS):
            axis = axes[row, column]
            _lines(axis, settings, names, key, unit)
            axis.set(xlabel="length", ylabel=label, yscale="log")
        layers = "an iterated layer" if depth is None else pluralize(depth, "layer")
        size = "" if width is None else f" of {width}"
        axes[0, column].set_title(f"{mode}, {precision}\n{layers}{size}, batch {batch}", fontsize="medium")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(4, max(1, len(names))), fontsize="small")
    write_atomically(path, partial(figure.savefig, format=path.suffix.removeprefix("."), dpi=120))


def _lines(axis: Any, settings: list[Mapping[str, Any]], names: list[str], key: str, unit: float) -> None:
    """Draw the line of each candidate over the lengths at which it was measured."""
    lengths = sorted({setting["length"] for setting in settings})
    for number, name in enumerate(names):
        points = [
            (setting["length"], each[key] / unit, each["family"])
            for setting in settings
            for each in setting["candidates"]
            if each["name"] == name
        ]
        peer = bool(points) and points[0][2] is not None
        marker = "os^Dv"[number // 10 % 5]  # there are ten colours
        style = {"linestyle": "--" if peer else "-", "marker": marker, "markersize": 4, "color": f"C{number % 10}"}
        axis.plot([point[0] for point in points], [point[1] for point in points], label=name, **style)
    axis.set_xscale("log", base=2)
    axis.set_xticks(lengths, [f"{length:,}" for length in lengths])
    axis.minorticks_off()
    axis.spines[["top", "right"]].set_visible(False)
