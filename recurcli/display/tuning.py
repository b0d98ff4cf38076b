"""The result of `recur tune` on the screen: a row for each trial, and the preset of the best one."""

from collections.abc import Mapping
from typing import Any

from rich.text import Text

from recurcli.commands.tuning.ranges import short_names
from recurcli.display.tables import cell, heading, show, table
from recurcli.evaluation.metrics import METRICS


def print_study(result: Mapping[str, Any]) -> None:
    """Print the trials, the best of them in bold, and say what the best score is worth."""
    names, best = short_names(result["ranges"]), result["best"]
    metric = f"dev {METRICS[result['metric']].words}"
    listed = table("trial", *names.values(), metric, "", numbers=True)
    listed.columns[-1].justify = "left"
    for trial in result["trials"]:
        score = "–" if trial["dev_metric"] is None else f"{trial['dev_metric']:.4f}"
        values = [cell(trial["settings"][key]) for key in names]
        state = "best" if trial["trial"] == best["trial"] else trial["state"]
        style = {"best": "bold", "complete": ""}.get(state, "dim")
        listed.add_row(str(trial["trial"]), *values, score, "" if state == "complete" else state, style=style)
    closing = (
        f"{metric} {best['dev_metric']:.4f} chose trial {best['trial']} among {len(result['trials'])}, so it is too high; "
        "it is no test score, and is that of the encoder alone."
    )
    command = f"recur finetune --preset {best['preset']}"
    parts = (Text(closing, style="dim"), Text("The preset is used by  ") + cell(command, style="bold"))
    show(heading(result["preset"], f"seed {result['seed']}"), listed, *parts)
