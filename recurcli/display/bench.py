"""The result of `recur bench`: a table for each setting."""

from collections.abc import Mapping
from typing import Any

from recurcli.commands.bench import in_words
from recurcli.display.screen import Screen, Table, cell, heading, show, styled
from recurcli.errors import pluralize
from recurcli.log import Measured, State


class BenchmarkScreen(Screen):
    """Prints each setting of `recur bench` as soon as it is measured; none with `json`."""

    def __init__(self, *, quiet: bool, json: bool) -> None:
        super().__init__(quiet=quiet)
        self.json = json

    def progress(self, state: State) -> None:
        """Print the setting that was measured last."""
        if isinstance(state, Measured) and state.setting["candidates"] and not self.json:
            print_setting(state.setting)


def print_setting(setting: Mapping[str, Any]) -> None:
    """Print the table of a setting, with the best peer in bold, and an empty line."""
    kind, sizes = in_words(setting).split(", ", 1)
    results, best_peer = setting["candidates"], setting["best_peer"]
    headers = [
        "encoder",
        "width",
        "parameters",
        "tokens/s",
        "spread",
        "peak memory",
        *(["× best"] if best_peer else []),
    ]
    rows = []
    for each in results:
        row = [
            each["name"],
            f"{each['hidden_size']:,}",
            f"{each['parameters']:,}",
            f"{each['tokens_per_second']:,.0f}",
            f"{each['interquartile_range'] / each['seconds_per_step']:.1%}",
            f"{each['peak_memory_bytes'] / 1e6:,.1f} MB",
            *([f"{each['ratio']:.2f}"] if best_peer else []),
        ]
        rows.append(styled(row, "bold" if each["name"] == best_peer else ""))
    show(heading(kind, sizes), Table(headers, rows))


def print_protocol(result: Mapping[str, Any]) -> None:
    """Print sentences on what was measured and how."""
    machine = result["machine"]
    peers = "× best: tokens/s over those of the best peer, in bold. " if result["settings"][0]["best_peer"] else ""
    where = f"{machine['device']}, one thread, torch {machine['torch']}, load {machine['load_average']} at the end"
    dropout, optimizer = "", ""
    if any(setting["mode"] == "training" for setting in result["settings"]):
        on_weights = f"on attention weights {result['attention_dropout']:g}, encoders and peers alike"
        dropout, optimizer = f"Dropout {result['dropout']:g}, {on_weights}. ", "optimizer, "
    text = (
        f"{dropout}{peers}{result['clock']}, medians of {pluralize(result['rounds'], 'interleaved round')}; the spread "
        "is their interquartile range over the median. "
        f"Peak memory: weights, {optimizer}input and all tensors of a step. {where}."
    )
    show(cell(text, style="dim"))
