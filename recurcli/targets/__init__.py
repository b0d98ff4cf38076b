"""What the label of a row is: one class of several. Another kind is a further subclass of `Target` and a row of `TARGETS`."""

from recurcli.targets.one_label import OneLabel
from recurcli.targets.target import Target

__all__ = ["TARGETS", "OneLabel", "Target"]

TARGETS: dict[str, type[Target]] = {each.kind: each for each in (OneLabel,)}
"""The kinds of targets by their name in config.json."""
