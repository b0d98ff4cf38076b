"""The progress of a prediction: counts and hashes of the rows read and bytes written, from which a resume continues."""

import dataclasses
import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recurcli.data.formats.records import Record
from recurcli.errors import ModelError, escaped
from recurcli.files import read_limited, write_atomically

MAX_BYTES = 16 << 20
_EMPTY = hashlib.sha256().hexdigest()


@dataclass
class PredictionProgress:
    """Counts and digests up to the end of a window of rows."""

    rows: int = 0
    """Rows read, without a header."""
    faults: int = 0
    """Number of rows that could not be read completely."""
    first_fault: str | None = None
    truncated: int = 0
    """Number of rows that were truncated to the model's max_length tokens."""
    input_sha256: str = _EMPTY
    """Hash of the rows read; used only if the output can be resumed."""
    size: int = 0
    """Bytes written."""
    output_sha256: str = _EMPTY
    replaces: bool = False
    """Whether the output replaces a finished file."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Facts that a resume compares; see `recurcli.facts`."""

    def count(self, name: str, record: Record, fault: str | None) -> None:
        """Count a row of the input `name`."""
        self.rows += 1
        if fault:
            self.faults += 1
            self.first_fault = self.first_fault or f"{escaped(name, limit=4000)}:{record.line}: {fault}"

    def write(self, path: Path) -> None:
        """Write this progress as JSON to `path`, atomically."""
        write_atomically(path, json.dumps({"sha256": self._sha256(), "progress": dataclasses.asdict(self)}, indent=2))

    @classmethod
    def read(cls, path: Path) -> "PredictionProgress | None":
        """Return the progress stored at `path`; None if it is missing, damaged or from another version of recur."""
        try:
            stored = json.loads(read_limited(path, MAX_BYTES))
            progress = cls(**stored["progress"])
            return progress if stored["sha256"] == progress._sha256() else None
        except (OSError, ValueError, KeyError, TypeError, RecursionError, ModelError):
            return None

    def _sha256(self) -> str:
        return hashlib.sha256(json.dumps(dataclasses.asdict(self)).encode()).hexdigest()
