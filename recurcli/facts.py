"""Facts of a run, stored with it: what a resume must match, the parameters of what `predict` runs, and the keys of presets and
results that older versions of recur wrote, under their names of today."""

import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from recurcli.errors import UsageError, escaped

KeyPath = tuple[str, ...]
_RENAMED: dict[KeyPath, KeyPath] = {
    ("prior",): ("ensemble",),
    ("finetuning", "linear_floor"): ("finetuning", "linear_baseline"),
    ("data", "dev_every"): ("data", "dev_fraction"),
}
_RENAMED_RESULTS = {"floors": "baselines", "prior": "ensemble", "linear_floor": "linear_baseline"}


def rename_preset_keys(values: dict[str, Any]) -> dict[KeyPath, KeyPath]:
    """Rename the older keys of a preset in `values`, and return the new path of each one that was there.

    A key that stands beside its new name is left as it is, so that the check of the preset refuses it.
    """
    renamed: dict[KeyPath, KeyPath] = {}
    for old, new in _RENAMED.items():
        holder = values if len(old) == 1 else values.get(old[0])
        if not isinstance(holder, dict) or old[-1] not in holder or new[-1] in holder:
            continue
        value = holder[old[-1]]
        if old == ("prior",) and isinstance(value, dict):
            value = value.get("kind", "linear")
        elif old[-1] == "dev_every" and isinstance(value, int) and value > 0:
            value = 1 / value
        del holder[old[-1]]
        holder[new[-1]] = value
        renamed[old] = new
    return renamed


def rename_result_keys(result: Any) -> Any:
    """Return the content of result.json with the older keys renamed, those of its test scores too.

    What is no mapping is returned as it is.
    """
    if not isinstance(result, dict):
        return result
    renamed = {_RENAMED_RESULTS.get(key, key): value for key, value in result.items()}
    if isinstance(test := renamed.get("test"), dict):
        renamed["test"] = {_RENAMED_RESULTS.get(key, key): value for key, value in test.items()}
    return renamed


Facts = Mapping[str, Any]
MAX_IN_FULL = 100
"""The largest number of classes for which files hold the whole confusion table and the probabilities of all classes."""


def as_stored(facts: Facts) -> dict[str, Any]:
    """`facts` as they come back from a JSON file: tuples are lists, keys are strings."""
    return json.loads(json.dumps(facts))


def find_difference(stored: Facts, current: Facts) -> tuple[str, str, str] | None:
    """Return the name of the first fact whose values differ, and both values as text. Return None if all agree.

    The task comes first and the encoder's name second, because they explain other differences. A missing value is `absent`.
    """
    stored, current = as_stored(stored), as_stored(current)
    for key in sorted(stored.keys() | current.keys(), key=lambda key: (key != "task", key != "encoder.name", key)):
        before, now = (_shown(facts[key]) if key in facts else "absent" for facts in (stored, current))
        if key not in stored or key not in current or stored[key] != current[key]:
            return key, before, now
    return None


def _shown(value: Any) -> str:
    """Return a value as text. Twelve digits of a sha256 are shown."""
    return "null" if value is None else escaped(re.sub(r"([0-9a-f]{12})[0-9a-f]{52}", r"\1…", repr(value)), 60)


def first_difference(stored: Facts, current: Facts) -> str | None:
    """Return the difference that `find_difference` finds, as a sentence, or None if all facts are equal."""
    if difference := find_difference(stored, current):
        key, before, now = difference
        return f"{key} was {before} and is now {now}"
    return None


def check_same(stored: Facts, current: Facts, path: Path, but: Collection[str] = ()) -> None:
    """Raise UsageError if a fact differs from that of the run at `path`. The facts `but` may differ."""
    stored, current = ({key: facts[key] for key in facts.keys() - set(but)} for facts in (stored, current))
    if difference := first_difference(stored, current):
        raise UsageError(f"{path}: cannot be resumed: {difference}; undo that, or start again with --overwrite")


def parameters_in_words(result: Mapping[str, Any]) -> str:
    """Return the number of parameters that `recur predict` runs, from the content of result.json.

    The linear model of an ensemble has a weight for each n-gram and class, and a bias for each class.
    """
    encoder, ensemble = result["parameters"]["total"], result.get("ensemble")
    if not ensemble or not ensemble["linear_weight"]:
        return f"{encoder:,}"
    linear = (result["linear_baseline"]["ngrams"] + 1) * len(result["dev"]["names"])
    if "parts" not in result:  # there is no encoder
        return f"{linear:,}"
    if not ensemble["encoder_weight"]:
        return f"{linear:,}, of the linear model alone (the encoder, which is not run, has {encoder:,})"
    return f"{encoder + linear:,}: {encoder:,} of the encoder and {linear:,} of the linear model"
