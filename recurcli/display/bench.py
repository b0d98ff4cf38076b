"""The result of `recur bench`: a table for each setting."""

from collections.abc import Mapping
from typing import Any

from rich.console import RenderableType

from recurcli.commands.bench import in_words
from recurcli.display.screen import Screen, Table, by_columns, cell, heading, show, styled
from recurcli.log import Measured, State


class BenchmarkScreen(Screen):
    """Prints each setting of `recur bench` as soon as it is measured; none with `json`."""

    def __init__(self, *, quiet: bool, json: bool) -> None:
        super().__init__(quiet=quiet)
        self.json = json

    def progress(self, state: State) -> None:
        """Print the setting that was measured last."""
        if isinstance(state, Measured) and not self.json:
            print_setting(state.setting)


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


def print_protocol(result: Mapping[str, Any]) -> None:
    """Print sentences on what was measured and how."""
    machine = result["machine"]
    peers = "× best: tokens/s over those of the best peer, in bold. " if result["settings"][0]["best_peer"] else ""
    where = f"{machine['device']}, one thread, torch {machine['torch']}, load {machine['load_average']} at the end"
    text = (
        f"Dropout {result['dropout']:g}, on attention weights {result['attention_dropout']:g}, encoders and "
        f"peers alike. {peers}{result['clock']}, medians of {result['rounds']} interleaved rounds; the spread is their "
        f"interquartile range over the median. Peak memory: weights, optimizer, input and all tensors of a step. {where}."
    )
    show(cell(text, style="dim"))
