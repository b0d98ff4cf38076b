"""The result of `recur bench`: on the screen a table for each setting, and in a file plots over the length."""

from collections.abc import Mapping
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
)
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
    show(*shown)


def _candidates(setting: Mapping[str, Any]) -> Table:
    """Return the table of a setting."""
    results, best_peer = setting["candidates"], setting["best_peer"]
    columns = {
        "encoder": [each["name"] for each in results],
        "width": [f"{each['hidden_size']:,}" for each in results],
        "parameters": [f"{each['parameters']:,}" for each in results],
        "tokens/s": [f"{each['tokens_per_second']:,.0f}" for each in results],
        "spread": [f"{each['interquartile_range'] / each['seconds_per_step']:.1%}" for each in results],
        "peak memory": [f"{each['peak_memory_bytes'] / 1e6:,.1f} MB" for each in results],
    }
    if best_peer is not None:
        columns["× best"] = [f"{each['ratio']:.2f}" for each in results]
    made = by_columns(columns)
    return Table(made.columns, [styled(row, "bold" if row[0] == best_peer else "") for row in made.texts])


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

    from recurcli.display.report.charts import write_figure

    kinds: dict[str, list[Mapping[str, Any]]] = {}
    for setting in result["settings"]:
        kinds.setdefault(in_words(setting).rpartition(", T ")[0], []).append(setting)
    candidates = [candidate for setting in result["settings"] for candidate in setting["candidates"]]
    is_peer = {candidate["name"]: candidate["is_peer"] for candidate in candidates}
    figure = Figure(figsize=(1 + 4.2 * len(kinds), 7.5), layout="constrained")
    axes = figure.subplots(len(PLOTTED), len(kinds), squeeze=False)
    for column, (kind, settings) in enumerate(kinds.items()):
        axes[0, column].set_title(kind.replace(", ", "\n"), fontsize="medium")
        for axis, (key, unit, label) in zip(axes[:, column], PLOTTED, strict=True):
            for number, (name, dashed) in enumerate(is_peer.items()):
                points = [
                    (setting["length"], own[key] / unit)
                    for setting in settings
                    for own in setting["candidates"]
                    if own["name"] == name
                ]
                marker = "os^Dv"[number // 10 % 5]  # there are ten colours
                lengths, values = ([point[place] for point in points] for place in (0, 1))
                axis.plot(lengths, values, marker, linestyle="--" if dashed else "-", label=name)
            lengths = sorted({setting["length"] for setting in settings})
            axis.set_xscale("log", base=2)
            axis.set_xticks(lengths, [f"{length:,}" for length in lengths])
            axis.set(xlabel="length", ylabel=label, yscale="log")
            axis.minorticks_off()
            axis.spines[["top", "right"]].set_visible(False)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(4, max(1, len(labels))), fontsize="small")
    write_figure(path, figure)
