"""The reports of `recur tune`: a line for each trial, the best preset, and the result of the study."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from recurcli.commands.tuning.request import TuningRequest, short_names
from recurcli.errors import NumericError, pluralize
from recurcli.evaluation.metrics import METRICS
from recurcli.preset.compose import is_file_name
from recurcli.validation import dump

BEST = "best.yaml"


def best_of(results: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the complete trial with the largest dev metric, the first one of equal trials; None if no trial is complete."""
    complete = [result for result in results if result["state"] == "complete"]
    return max(complete, key=lambda result: result["dev_metric"], default=None)


def trials_by_state(results: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return the number of trials in each state."""
    states = [result["state"] for result in results]
    return {state: states.count(state) for state in ("complete", "pruned", "diverged")}


def line_of(request: TuningRequest, result: Mapping[str, Any], best: Mapping[str, Any] | None) -> str:
    """Return the line of a trial: its number, settings and dev metric, how it ended early, and the best dev metric so far."""
    names = short_names(result["settings"])
    shown = " ".join(f"{names[key]}={shown_value(value)}" for key, value in result["settings"].items())
    metric = METRICS[request.resolved.preset.finetuning.metric].words
    score = "" if result["dev_metric"] is None else f"; dev {metric} {result['dev_metric']:.4f}"
    after = {"complete": "", "pruned": f", pruned after {pluralize(result['evaluations'], 'evaluation')}"}
    end = after.get(result["state"], f"; diverged: {result.get('reason')}")
    so_far = "" if best is None else f"; best dev {metric} {best['dev_metric']:.4f} (trial {best['trial']})"
    return f"trial {result['trial']} of {request.trials}: {shown}{score}{end}{so_far}"


def shown_value(value: Any) -> str:
    """Return a setting as it is written in a preset."""
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def command_of(request: TuningRequest) -> str:
    """Return the shell line that trains with the best preset on the data of the study."""
    files = {name: request.overrides.get(f"data.files.{name}", ("", None))[1] for name in ("train", "dev")}
    named = {"preset": request.folder / BEST, "data": request.data, **files}
    options = [(f"--{name}", str(value)) for name, value in named.items() if value is not None]
    return shlex.join(["recur", "finetune", *(part for option in options for part in option)])


def best_preset(request: TuningRequest, results: Sequence[Mapping[str, Any]], best: Mapping[str, Any]) -> str:
    """Return the text of best.yaml. It extends the preset and has the values of the options and of the best trial.

    Comments at its top give the dev metric and say that it is no test score.
    """
    preset = request.resolved.preset
    named = is_file_name(request.preset)
    values: dict[str, Any] = {"extends": str(Path(request.preset).expanduser().absolute()) if named else request.preset}
    changed: dict[str, Any] = {}
    for key in (*(setting.partition("=")[0].strip() for setting in request.settings), *request.overrides):
        changed[key] = preset.to_dict()
        for part in key.split("."):
            changed[key] = changed[key][part]
    for key, value in {**changed, **best["settings"]}.items():
        *sections, last = key.split(".")
        holder = values
        for section in sections:
            holder = holder.setdefault(section, {})
        holder[last] = value
    counts = ", ".join(f"{count} {state}" for state, count in trials_by_state(results).items() if count)
    comment = [
        f"dev {METRICS[preset.finetuning.metric].words} {best['dev_metric']:.4f}: the best of "
        f"{pluralize(len(results), 'trial')} of `recur tune` ({counts}), trial {best['trial']}"
        f"{', the preset itself' if best['trial'] == 1 else ''}.",
        "This score is optimistic, because it selected the trial; it is no test score.",
        "It is that of the encoder alone, without ensemble.",
    ]
    return "".join(f"# {line}\n" for line in comment) + dump(values)


def result_of(
    request: TuningRequest, results: Sequence[Mapping[str, Any]], ranges: Mapping[str, str]
) -> dict[str, Any]:
    """Return the result of the study. Raises NumericError if no trial is complete."""
    best = best_of(results)
    if best is None:
        reason = results[-1].get("reason", "")
        count = len(results)
        fault = f"none of the {pluralize(count, 'trial')} ended with a finite dev metric; trial {count}: {reason}"
        raise NumericError(f"{request.folder}: {fault}")
    preset = request.resolved.preset
    return {
        "preset": request.resolved.name,
        "task": preset.task,
        "metric": preset.finetuning.metric,
        "seed": preset.runtime.seed,
        "output": str(request.folder),
        "ranges": dict(ranges),
        "trials": [dict(result) for result in results],
        **trials_by_state(results),
        "preset_dev_metric": results[0]["dev_metric"],
        "linear_dev_metric": results[0].get("linear_dev_metric"),
        "command": command_of(request),
        "best": {**best, "preset": str(request.folder / BEST), "chosen_by_this_score": True},
    }
