"""The result of `recur bench` on the screen: a table for each setting, and what was measured."""

from collections.abc import Mapping
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from recurcli.commands.bench import in_words
from recurcli.display.tables import cell, console, heading, show, table, width_of, width_to_fill


def print_benchmark(result: Mapping[str, Any]) -> None:
    """Print a table for each setting, with the best peer in bold, and how it was measured."""
    shown: list[RenderableType] = []
    for setting in result["settings"]:
        kind, *sizes = in_words(setting).split(", ")
        shown += [Text(""), heading(kind, ", ".join(sizes))]
        if setting["candidates"]:
            shown += [_fitting_table(setting), Text("")]
        for out in setting["left_out"]:
            shown.append(cell(f"  {out['name']}: left out: {out['reason']}", style="dim"))
    show(*shown, cell(_closing(result), style="dim"))


def _fitting_table(setting: Mapping[str, Any]) -> Table:
    """Return the widest form of the table that fits the terminal. Narrower forms have less space or fewer ratios."""
    screen = console()
    every = list(setting["candidates"][0]["ratios"])
    forms = [(every, False), (every, True), (every[:1], True)]
    tables = [_candidates(setting, families, narrow=narrow) for families, narrow in forms]
    return next((made for made in tables if width_of(made, screen) <= width_to_fill()), tables[-1])


def _candidates(setting: Mapping[str, Any], families: list[str], *, narrow: bool) -> Table:
    """Return the table of a setting. With one family only, its ratio is the ratio to the best peer."""
    results = setting["candidates"]
    widths = len({each["hidden_size"] for each in results}) > 1
    families = families if len(families) > 1 else []
    ratios = [] if setting["best_peer"] is None else ["× best", *(f"× {family}" for family in families)]
    columns = ["encoder", *(["width"] if widths else []), "parameters", "tokens/s", "spread", *ratios, "peak memory"]
    made = table(*columns, numbers=True, narrow=narrow)
    for each in results:
        made.add_row(
            cell(each["name"]),
            *([f"{each['hidden_size']:,}"] if widths else []),
            f"{each['parameters']:,}",
            f"{each['tokens_per_second']:,.0f}",
            f"{each['interquartile_range'] / each['seconds_per_step']:.1%}",
            *([f"{each['ratio']:.2f}"] if ratios else []),
            *(f"{each['ratios'][family]:.2f}" for family in families),
            f"{each['peak_memory_bytes'] / 1e6:,.1f} MB",
            style="bold" if each["name"] == setting["best_peer"] else "",
        )
    return made


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
