"""The result of `recur finetune` and `recur pretrain` on the screen, and the plan of a dry run; the files of an export."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.text import Text

from recurcli.display.tables import Table, heading, listing, show
from recurcli.errors import pluralize
from recurcli.facts import parameters_in_words
from recurcli.metrics import PERPLEXITY, perplexity_rows, score_rows, words_of


def print_plan(plan: Mapping[str, Any]) -> None:
    """Print the plan of a dry run."""
    closing = Text("`recur presets NAME` shows every key; without --dry-run this runs.", style="dim")
    show(heading(f"recur {plan['command']} would run"), listing(_plan_rows(plan)), closing)


def _plan_rows(plan: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "preset", plan["preset"]
    yield "run directory", str(plan["output"])
    for split, facts in plan["data"].items():
        cut = f", {facts['truncated']:,} truncated" if facts["truncated"] else ""
        yield f"{split} rows", f"{facts['rows']:,}{cut}  {facts['path'] or ''}"
    causal = plan["command"] == "pretrain" and plan["values"]["pretraining"]["objective"] == "causal"
    if not plan["steps"]:
        yield "model", "a linear model on n-grams, without an encoder"
        return
    unit = "window" if causal else "row"
    yield "vocabulary", f"{plan['vocabulary']:,} tokens; a training {unit} has {plan['mean_length']} on average"
    for part, count in plan["parameters"].items():
        yield f"parameters, {part}", f"{count:,}"
    if plan["forward_flops_per_token"] is not None:
        yield "forward FLOPs per token", f"{plan['forward_flops_per_token']:,}"
    if plan["values"]["ensemble"] and plan["command"] == "finetune":
        yield "ensemble", "a linear model on n-grams, fitted beside the encoder"
    yield "steps", f"{plan['steps']:,} ({plan['steps_per_epoch']:,} an epoch)"
    yield "checkpoint", f"{plan['checkpoint_bytes'] / 1e6:,.1f} MB each"
    machine = plan["machine"]
    yield "machine", f"{machine['device']}, {machine['precision']}, {pluralize(machine['threads'], 'thread')}"


def print_training(result: Mapping[str, Any], output: Any) -> None:
    """Print the result of a training."""
    rows = [*_score_rows(result), *_cost_rows(result), ("run directory", str(output))]
    show(heading(result["preset"], f"seed {result['seed']}"), listing(rows))


def _score_rows(result: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the scores on dev and test rows, with those of the parts and the baselines."""
    if result.get("metric") == PERPLEXITY:
        yield from perplexity_rows(result["dev"], "dev ", carry=result.get("carry", False))
    elif "dev" in result:
        yield from score_rows({**result, **result["dev"]}, "dev ", result["metric"])
    if test := result.get("test"):
        yield from score_rows(test, "test ", result["metric"])


def _cost_rows(result: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield sizes, steps and time of a training."""
    yield "parameters", parameters_in_words(result)
    if not result["steps"]:  # there is no encoder
        return
    steps = f"{result['steps']:,}"
    if "metric" in result:
        of = " of the encoder" if result.get("ensemble") else ""
        steps += f" (best dev {words_of(result['metric'])}{of} at step {result['best_step']:,})"
    yield "steps", steps
    yield "time", f"{result['seconds']:,.1f} s of training steps, {result['tokens_per_second']:,} tokens/s"


def print_export(result: Mapping[str, Any]) -> None:
    """Print the files that an export wrote."""
    _, first, *facts = result["files"][0]
    rows = [
        [
            f"{value:,}" if isinstance(value, int) else str(value)
            for value in (member[key] for key in ("name", first, *facts))
        ]
        for member in result["files"]
    ]
    columns = ["file", first, *facts]
    show(heading(result["output"]), Table(columns, rows))
