"""What a resume must match: facts of a run, stored with it and compared when it goes on."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recurcli.errors import UsageError, escaped

Facts = Mapping[str, Any]


def as_stored(facts: Facts) -> dict[str, Any]:
    """`facts` as they come back from a JSON file: tuples are lists, keys are strings."""
    return json.loads(json.dumps(facts))


def first_difference(stored: Facts, current: Facts) -> str | None:
    """A sentence about the first fact, by name, whose values differ; None if all agree."""
    stored, current = as_stored(stored), as_stored(current)
    for key in sorted(stored.keys() | current.keys()):
        before, now = stored.get(key, "nothing"), current.get(key, "nothing")
        if before != now:
            return f"{key} was {escaped(repr(before), 60)} and is now {escaped(repr(now), 60)}"
    return None


def require_same(stored: Facts, current: Facts, path: Path) -> None:
    """Raise UsageError if a fact has changed since the run at `path` was started."""
    if difference := first_difference(stored, current):
        raise UsageError(f"{path}: cannot be resumed: {difference}; undo that, or start anew with --overwrite")
