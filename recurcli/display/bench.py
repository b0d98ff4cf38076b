"""The result of `recur bench`: on the screen a table for each setting, and in a file plots over the length."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import RenderableType

from recurcli.commands.bench import in_words
from recurcli.display.progress import Screen
from recurcli.display.tables import (
    Table,
    by_columns,
    cell,
    heading,
    print_json,
    show,
    styled,
    write,
)
from recurcli.errors import pluralize
from recurcli.files import write_atomically
from recurcli.log import Measured, State

PLOTTED = (("tokens_per_second", 1.0, "tokens/s"), ("peak_memory_bytes", 1e6, "peak memory (MB)"))
"""Key, unit and label of what each row of plots shows."""


class BenchmarkScreen(Screen):
    """Prints each setting of `recur bench` as soon as it is measured; with `json` the result alone, at the end."""

    def __init__(self, *, quiet: bool, json: bool) -> None:
        super().__init__(quiet=quiet)
        self.json = json
        self.measured: Mapping[str, Any] = {}

    def progress(self, state: State) -> None:
        """Print the setting that was measured last."""
        if not isinstance(state, Measured):
            return
        self.measured = state.result
        if not self.json:
            print_setting(self.measured["settings"][-1])

    def __exit__(self, *error: object) -> None:
        """Print how it was measured. A benchmark that is stopped ends with what it has measured by then."""
        super().__exit__(*error)
        if self.measured and self.json:
            print_json(self.measured)
        elif self.measured:
            show(cell(_closing(self.measured), style="dim"))


def print_setting(setting: Mapping[str, Any]) -> None:
    """Print the table of a setting, with the best peer in bold, and an empty line."""
    kind, *sizes = in_words(setting).split(", ")
    shown: list[RenderableType | Table] = [heading(kind, ", ".join(sizes))]
    if setting["candidates"]:
        shown.append(_candidates(setting))
    show(*shown, *(cell(f"  {out['name']}: left out: {out['reason']}", style="dim") for out in setting["left_out"]))
    if setting["left_out"]:
        write("")  # as after a table


def _candidates(setting: Mapping[str, Any]) -> Table:
    """Return the table of a setting. With one family only, its ratio is the ratio to the best peer."""
    results, best_peer = setting["candidates"], setting["best_peer"]
    families = list(results[0]["ratios"])
    columns = {
        "width": [f"{each['hidden_size']:,}" for each in results],
        "parameters": [f"{each['parameters']:,}" for each in results],
        "tokens/s": [f"{each['tokens_per_second']:,.0f}" for each in results],
        "spread": [f"{each['interquartile_range'] / each['seconds_per_step']:.1%}" for each in results],
    }
    if len(set(columns["width"])) == 1:
        del columns["width"]
    if best_peer is not None:
        columns["× best"] = [f"{each['ratio']:.2f}" for each in results]
    for family in families if len(families) > 1 else ():
        columns[f"× {family}"] = [f"{each['ratios'][family]:.2f}" for each in results]
    columns["peak memory"] = [f"{each['peak_memory_bytes'] / 1e6:,.1f} MB" for each in results]
    made = by_columns({"encoder": [each["name"] for each in results]}, columns)
    rows = [styled(row, "bold" if row[0] == best_peer else "") for row in made.texts]
    return Table(made.columns, rows)


def _closing(result: Mapping[str, Any]) -> str:
    """Return sentences on what was measured and how."""
    machine = result["machine"]
    included = " ".join(f"{mode.capitalize()}: {what}." for mode, what in result["included"].items())
    peers = "× best: tokens/s over those of the best peer, in bold. " if result["settings"][0]["best_peer"] else ""
    where = f"{machine['device']}, one thread, torch {machine['torch']}, load {machine['load_average']} at the end"
    return (
        f"{included} Dropout {result['dropout']:g}, on attention weights {result['attention_dropout']:g}, encoders and "
        f"peers alike. {peers}{result['clock']}, medians of {result['rounds']} interleaved rounds; the spread is their "
        f"interquartile range over the median. Peak memory: weights, optimizer, input and all tensors of a step. {where}."
    )


def draw_benchmark(result: Mapping[str, Any], path: Path) -> None:
    """Plot tokens/s and peak memory over length to `path`, a column for each kind of setting. The lines of peers are dashed."""
    from matplotlib.figure import Figure

    kinds: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for setting in result["settings"]:
        kind = tuple(setting[name] for name in ("mode", "precision", "hidden_size", "num_layers", "batch_size"))
        kinds.setdefault(kind, []).append(setting)
    names = list(dict.fromkeys(each["name"] for setting in result["settings"] for each in setting["candidates"]))
    figure = Figure(figsize=(1 + 4.2 * len(kinds), 7.5), layout="constrained")
    axes = figure.subplots(len(PLOTTED), len(kinds), squeeze=False)
    for column, ((mode, precision, width, depth, batch), settings) in enumerate(kinds.items()):
        for row, (key, unit, label) in enumerate(PLOTTED):
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
