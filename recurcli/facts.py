"""Facts of a run, stored with it: what a resume must match, and the parameters of what `predict` runs."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recurcli.errors import UsageError, escaped

Facts = Mapping[str, Any]


def as_stored(facts: Facts) -> dict[str, Any]:
    """`facts` as they come back from a JSON file: tuples are lists, keys are strings."""
    return json.loads(json.dumps(facts))


def first_difference(stored: Facts, current: Facts) -> str | None:
    """Return the name of the first fact whose values differ, and both values, as a sentence; None if all are equal.

    The task comes first and the encoder's name second, because they explain other differences. A missing value is `absent`,
    and of a sha256 twelve digits are shown.
    """
    both = as_stored(stored), as_stored(current)
    for key in sorted({*both[0], *both[1]}, key=lambda key: (key != "task", key != "encoder.name", key)):
        before, now = (each.get(key, "absent") for each in both)
        if before != now:
            shown = (
                "null" if value is None else value if value == "absent" else repr(value) for value in (before, now)
            )
            before, now = (escaped(re.sub(r"([0-9a-f]{12})[0-9a-f]{52}", r"\1…", text), 60) for text in shown)
            return f"{key} was {before} and is now {now}"
    return None


def check_same(stored: Facts, current: Facts, path: Path) -> None:
    """Raise UsageError if a fact differs from that of the run at `path`."""
    if difference := first_difference(stored, current):
        way_out = "undo that, or start again with --overwrite"
        if difference.split(" ")[0] in ("finetuning.epochs", "finetuning.max_steps"):
            way_out += f"; recur finetune --init {path} starts a new run from it"
        raise UsageError(f"{path}: cannot be resumed: {difference}; {way_out}")


def parameters_in_words(result: Mapping[str, Any]) -> str:
    """Return the number of parameters that `recur predict` runs, from the content of result.json.

    The linear model of an ensemble has a weight for each n-gram and class, and a bias for each class.
    """
    encoder, ensemble = result["parameters"]["total"], result.get("ensemble")
    if not ensemble or not ensemble["linear_weight"]:
        return f"{encoder:,}"
    linear = (result["linear_baseline"]["ngrams"] + 1) * len(result["dev"]["names"])
    if "parts" not in result or not ensemble["encoder_weight"]:  # no encoder is run
        return f"{linear:,} of the linear model"
    return f"{encoder + linear:,}: {encoder:,} of the encoder and {linear:,} of the linear model"
