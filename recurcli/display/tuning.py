"""The result of `recur tune` on the screen: a row for each trial, and the preset of the best one."""

from collections.abc import Mapping
from typing import Any

from rich.text import Text

from recurcli.commands.comparison.groups import short_names, text_of
from recurcli.display.screen import Table, cell, heading, show, styled
from recurcli.metrics import format_score, words_of


def print_study(result: Mapping[str, Any]) -> None:
    """Print the trials, with the best one in bold, and sentences on its preset and its score."""
    best, metric = result["best"], result["metric"]
    names, rows = short_names(result["ranges"]), []
    for trial in result["trials"]:
        score = "–" if trial["dev_metric"] is None else format_score(metric, trial["dev_metric"])
        values = [text_of(trial["settings"][key]) for key in names]
        state = "best" if trial["trial"] == best["trial"] else trial["state"]
        words = [*(["preset"] if trial["trial"] == 1 else []), *([] if state == "complete" else [state])]
        style = {"best": "bold", "complete": ""}.get(state, "dim")
        rows.append(styled([str(trial["trial"]), *values, score, ", ".join(words)], style))
    named = {"preset": result["preset_dev_metric"], f"best trial ({best['trial']})": best["dev_metric"]}
    named["linear model"] = result["linear_dev_metric"]
    scores = ", ".join(f"{name} {format_score(metric, value)}" for name, value in named.items() if value is not None)
    show(
        heading(result["preset"], f"seed {result['seed']}"),
        Table(["trial", *names.values(), f"dev {words_of(metric)}", "state"], rows),
        Text(f"dev {words_of(metric)}: {scores}."),
        Text(f"It is the {result['score']}.", style="dim"),
        Text("The score of the best trial selected it, so it is optimistic and no test score.", style="dim"),
        Text("The preset is used by  ") + cell(result["command"], style="bold"),
    )
