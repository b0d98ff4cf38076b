"""The result of `recur bench`: a table for each setting."""

from collections.abc import Mapping
from typing import Any

from recurcli.commands.bench import Setting
from recurcli.display.screen import Table, heading, show, styled


def print_setting(setting: Setting, result: Mapping[str, Any]) -> None:
    """Print the table of a setting, with the best peer in bold, and an empty line."""
    headers = ["encoder", "width", "parameters", "tokens/s", "spread", "peak memory", "× best"]
    rows = []
    for each in result["candidates"]:
        row = [
            each["name"],
            f"{each['hidden_size']:,}",
            f"{each['parameters']:,}",
            f"{each['tokens_per_second']:,.0f}",
            f"{each['interquartile_range'] / each['seconds_per_step']:.1%}",
            f"{each['peak_memory_bytes'] / 1e6:,.1f} MB",
            "–" if each["ratio"] is None else f"{each['ratio']:.2f}",
        ]
        rows.append(styled(row, "bold" if each["name"] == result["best_peer"] else ""))
    show(heading(*str(setting).split(", ", 1)), Table(headers, rows))
