"""Print what the tables need of the runs of one cell, as JSON, or rows with shuffled labels: python cell.py STUDY CELL.

    python cell.py runs/studies/state s3/rnn         one object, of all finished runs in s3/rnn and their search
    python cell.py --shuffled s3 train > train.tsv   the rows of the split, each with the label of another one
    python cell.py --size mlstm 31150                options that give an encoder nearly so many parameters
    python cell.py --rate FOLDER                     the rate of the runs below the folder that have the least dev loss

The object has the preset's name and the keys that differ from it, the mean dev loss at each rate that was searched, the
number of parameters, how many numbers the encoder keeps of a text (`state`; null if that grows with the text, or if no step
by step form tells), and for each seed the dev accuracy after each pass and one bit a row, in hex: whether it is right. The
rows are generated, always the same ones.
"""

import json
import random
import runpy
import sys
from collections import defaultdict
from dataclasses import fields
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from recurcli.data.recurrence_tasks import recurrence_rows
from recurcli.data.tasks import task_named
from recurcli.encoders import LINEAR, build_encoder
from recurcli.encoders.registry import encoder_config
from recurcli.errors import RecurError
from recurcli.metrics import ScoredSplit
from recurcli.preset.matching import encoder_parameters
from recurcli.runs.predictions import read_predictions
from recurcli.runs.run_directory import Run, open_run

KEPT = runpy.run_path(str(Path(__file__).parent.parent / "kept.py"))
SPLITS: tuple[ScoredSplit, ...] = ("test", "test-long")
SEED_OF_LABELS = 0
WIDTH = 32


def cell(study: Path, name: str) -> dict[str, Any]:
    """Return what is kept of the runs in the folder `name` of `study`."""
    runs = {path.parent.name: open_run(path.parent) for path in sorted((study / name).glob("*/result.json"))}
    if not runs:
        sys.exit(f"{study / name}: has no finished run")
    results = {seed: run.read_result() for seed, run in runs.items()}
    first = next(iter(results.values()))
    preset = next(iter(runs.values())).read_preset()
    named = f"{preset['encoder']['name']}-{preset['task']}"
    return {
        "preset": named,
        "keys": KEPT["own_keys"](preset, named),
        "parameters": first["parameters"].get("encoder"),
        "state": _state(preset["encoder"]),
        "steps": first["steps"],
        "searched": searched(study / "search" / name),
        "versions": first["versions"],
        "machine": first["machine"],
        "runs": {seed: _kept(run, results[seed]) for seed, run in runs.items()},
    }


def _state(config: dict[str, Any]) -> int | None:
    """Return how many numbers the encoder carries from one position to the next; None: it grows, or there is no `step`."""
    if config["name"] == LINEAR:
        return None
    encoder = build_encoder(config)
    if encoder.step_obstacle or encoder.step_state_grows:
        return None
    carried: list[Any] = [encoder.step(torch.zeros(1, config["hidden_size"]))[1]]
    numbers = 0
    for each in carried:  # it grows
        if isinstance(each, torch.Tensor):
            numbers += each.numel()
        elif isinstance(each, dict | list | tuple):
            carried += each.values() if isinstance(each, dict) else each
    return numbers


def searched(folder: Path) -> dict[float, float]:
    """Return the mean dev loss of the runs below `folder`, by their rate."""
    losses = defaultdict(list)
    for path in folder.glob("**/result.json"):
        run = open_run(path.parent)
        losses[run.read_preset()["finetuning"]["learning_rate"]].append(run.read_result()["dev"]["loss"])
    return {rate: fmean(own) for rate, own in sorted(losses.items())}


def _kept(run: Run, result: dict[str, Any]) -> dict[str, Any]:
    """Return the right rows of a run, its CPU seconds, and the dev accuracy after each pass."""
    scored = [split for split in SPLITS if split in result]
    right = {split: KEPT["packed"](read_predictions(run, "model", split).hits) for split in scored}
    dev = [line["dev_metric"] for line in run.read_metrics() if "dev_metric" in line]
    return {"right": right, "dev": dev, "cpu_seconds": result["cpu_seconds"]}


def size(encoder: str, parameters: int) -> str:
    """Return options that give an encoder nearly so many parameters: the inner size of its feed-forward network, if any.

    The encoder is then WIDTH wide and has two layers; else `--match-parameters` finds its width.
    """
    config = {"name": encoder, "hidden_size": WIDTH, "num_layers": 2}
    if "feed_forward_size" not in {field.name for field in fields(encoder_config(encoder))}:
        return f"--match-parameters {parameters}"
    one, two = (encoder_parameters({**config, "feed_forward_size": inner}) for inner in (1, 2))
    inner = max(1, 1 + round((parameters - one) / (two - one)))
    return f"--set encoder.hidden_size={WIDTH} --set encoder.feed_forward_size={inner}"


def shuffled(task: str, split: str) -> None:
    """Print the rows of a split as TSV, with their labels shuffled."""
    rows = recurrence_rows(task_named(task), split)
    labels = [label for _, label in rows]
    random.Random(SEED_OF_LABELS).shuffle(labels)
    print("text\tlabel")
    for (text, _), label in zip(rows, labels, strict=True):
        print(f"{text}\t{label}")


if __name__ == "__main__":
    try:
        match sys.argv[1:]:
            case ["--shuffled", task, split]:
                shuffled(task, split)
            case ["--rate", folder]:
                losses = searched(Path(folder))
                print(f"{min(losses, key=losses.__getitem__):g}")
            case ["--size", encoder, parameters]:
                print(size(encoder, int(parameters)))
            case [study, name]:
                print(json.dumps(cell(Path(study), name), separators=(",", ":")))
            case _:
                sys.exit(str(__doc__).partition("\n")[0])
    except RecurError as error:
        sys.exit(str(error))
