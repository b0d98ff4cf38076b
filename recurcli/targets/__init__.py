"""What the label of a row is: one class of several. Another kind is a further subclass of `Target` and a row of `TARGETS`."""

from recurcli.errors import escaped
from recurcli.targets.one_label import OneLabel
from recurcli.targets.target import Target

__all__ = ["TARGETS", "OneLabel", "Target", "target_of_kind"]

TARGETS: dict[str, type[Target]] = {each.kind: each for each in (OneLabel,)}
"""The kinds of targets by their name in config.json."""


def target_of_kind(kind: str, labels: tuple[str, ...]) -> Target:
    """Return the target of this `kind` with the `labels`. Raises ValueError for a kind that is not among `TARGETS`."""
    if kind not in TARGETS:
        raise ValueError(f"target '{escaped(kind)}' is unknown to this recur")
    return TARGETS[kind](labels)
