"""How far an unfinished output of `recur predict` has come: a small file beside it, replaced as a whole and checked."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recurcli.errors import ModelError, UsageError
from recurcli.files import read_limited, to_json, write_atomically
from recurcli.validation import STRICT, parse_config

LARGEST = 16 << 20
_NOTHING = hashlib.sha256().hexdigest()


@dataclass(frozen=True)
class PredictionProgress:
    """The end of a window of rows: what is true of all rows and all bytes before it."""

    __pydantic_config__ = STRICT
    rows: int = 0
    """Rows read, without a header."""
    input_sha256: str = _NOTHING
    size: int = 0
    """Bytes written."""
    output_sha256: str = _NOTHING
    faults: int = 0
    first_fault: str | None = None
    truncated: int = 0


@dataclass(frozen=True)
class Journal:
    """An unfinished output: what it is made of, and how far it has come."""

    __pydantic_config__ = STRICT
    replaces: bool = False
    """Whether a finished output was there at the start, which is to be replaced."""
    reached: PredictionProgress = field(default_factory=PredictionProgress)
    options: Mapping[str, Any] = field(default_factory=dict)
    """What the command line and the model say: another value is wrong usage."""
    input: Mapping[str, Any] = field(default_factory=dict)
    """What the input says of the whole output, such as its columns: another value means another input."""
    machine: Mapping[str, Any] = field(default_factory=dict)
    """What the last bits depend on: another value is worth a warning."""

    def write(self, path: Path) -> None:
        """Put this journal in the place of the one at `path`, if there is one."""
        content = dataclasses.asdict(self)
        write_atomically(path, _bytes({"sha256": _sha256(content), "journal": content}))


def read_journal(path: Path) -> Journal | None:
    """The journal at `path`, or None if there is none, or one that is damaged or of another version of recur."""
    try:
        stored = json.loads(read_limited(path, LARGEST))
        content = stored["journal"]
        return parse_config(Journal, content) if stored["sha256"] == _sha256(content) else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError, ModelError, UsageError):
        return None


def as_stored(facts: Mapping[str, Any]) -> dict[str, Any]:
    """`facts` as they come back from a file, to be compared."""
    return json.loads(_bytes(facts))


def _bytes(value: Any) -> bytes:
    return to_json(value).encode(errors="surrogatepass")  # the name of a column may be half of a character


def _sha256(content: Any) -> str:
    return hashlib.sha256(_bytes(content)).hexdigest()
