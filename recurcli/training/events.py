"""What a training command reports besides its Progress: notes on the way, and the result at the end."""

from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Note:
    """Something the user should know, in one sentence."""

    text: str
    level: Literal["info", "warning"] = "info"


@dataclass(frozen=True)
class Finished:
    """The end of a command: its result, as result.json and `--json` have it."""

    result: dict[str, Any]
