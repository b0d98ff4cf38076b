"""What the label of a row is: one class of several, any number of labels, or a number.

Another kind is a further subclass of `Target` and a row of `TARGETS`.
"""

from collections.abc import Mapping
from typing import Any

from recurcli.errors import UsageError, escaped
from recurcli.targets.number import Number
from recurcli.targets.one_label import OneLabel
from recurcli.targets.several_labels import SeveralLabels
from recurcli.targets.target import Cell, Target
from recurcli.validation import parse_config

__all__ = ["TARGETS", "Cell", "Number", "OneLabel", "SeveralLabels", "Target", "target_from_json"]

TARGETS: dict[str, type[Target]] = {each.kind: each for each in (OneLabel, SeveralLabels, Number)}
"""The kinds of targets by their name in config.json."""


def target_from_json(stored: Mapping[str, Any], labels: tuple[str, ...]) -> Target:
    """Return the target with these `labels` that `Target.to_json` stored. Raises ValueError if it is damaged."""
    kind, others = stored.get("kind"), {key: value for key, value in stored.items() if key != "kind"}
    if kind not in TARGETS:
        raise ValueError(f"target '{escaped(kind)}' is unknown to this recur")
    try:
        return parse_config(TARGETS[kind], {**others, "labels": labels})
    except UsageError as error:
        raise ValueError(f"target: {error}") from None
