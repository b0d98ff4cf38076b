"""The result of `recur tune` on the screen: a row for each trial, and the preset of the best one."""

from collections.abc import Mapping
from typing import Any

from rich.text import Text

from recurcli.commands.tune import shown_value
from recurcli.commands.tuning import short_names
from recurcli.display.screen import Table, cell, heading, percent, show, styled
from recurcli.metrics import METRICS


def print_study(result: Mapping[str, Any]) -> None:
    """Print the trials, with the best one in bold, and sentences on its preset and its score."""
    best, metric = result["best"], f"dev {METRICS[result['metric']].words}"
    named = {"preset": result["preset_dev_metric"], f"best trial ({best['trial']})": best["dev_metric"]}
    named["linear model"] = result["linear_dev_metric"]
    scores = ", ".join(f"{name} {percent(value)}" for name, value in named.items() if value is not None)
    show(
        heading(result["preset"], f"seed {result['seed']}"),
        _trials(result, metric),
        Text(f"{metric}: {scores}."),
        Text("The score of the best trial selected it, so it is optimistic and no test score.", style="dim"),
        Text("The preset is used by  ") + cell(result["command"], style="bold"),
    )


def _trials(result: Mapping[str, Any], metric: str) -> Table:
    """Return the table of the trials, with the best one in bold."""
    names = short_names(result["ranges"])
    rows = []
    for trial in result["trials"]:
        score = "–" if trial["dev_metric"] is None else percent(trial["dev_metric"])
        values = [shown_value(trial["settings"][key]) for key in names]
        state = "best" if trial["trial"] == result["best"]["trial"] else trial["state"]
        style = {"best": "bold", "complete": ""}.get(state, "dim")
        words = [*(["preset"] if trial["trial"] == 1 else []), *([] if state == "complete" else [state])]
        rows.append(styled([str(trial["trial"]), *values, score, ", ".join(words)], style))
    columns = ["trial", *names.values(), metric, "state"]
    return Table(columns, rows)
