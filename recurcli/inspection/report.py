"""What a check has to say, for people and as JSON."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from recurcli.findings import Finding, by_gravity
from recurcli.inspection.lengths import Lengths
from recurcli.inspection.line_ends import FileBytes
from recurcli.inspection.overlap import Overlap, Repeats
from recurcli.inspection.rows import SplitRows

Kind = Literal["data", "submission", "unreadable"]


@dataclass(frozen=True, kw_only=True)
class SplitReport:
    """One split in numbers."""

    rows: SplitRows
    official: int | None
    repeats: Repeats
    lengths: Lengths | None
    bytes: FileBytes | None
    repeated_ids: int

    def to_json(self) -> dict[str, Any]:
        """As --json has it; labels with the most rows first."""
        rows, columns = self.rows, self.rows.columns
        labels = dict(sorted(rows.label_counts.items(), key=lambda item: (-item[1], item[0])))
        labelled = sum(labels.values())
        return {
            "split": rows.split,
            "path": str(rows.path),
            "format": rows.format or None,
            "columns": None
            if columns is None
            else {**columns.texts.to_json(), "label": columns.label, "id": columns.id},
            "fault": rows.fault,
            "read": rows.read,
            "rows": len(rows),
            "official": self.official,
            "dropped": rows.dropped,
            "bad": rows.bad,
            "bad_rows": rows.first_bad,
            "labels": labels,
            "majority": max(labels.values()) / labelled if labelled else None,
            "repeated": self.repeats.to_json(),
            "repeated_ids": self.repeated_ids,
            "lengths": None if self.lengths is None else self.lengths.to_json(),
            "odd": {what: places.to_json() for what, places in sorted(rows.places.items())},
            "bytes": None if self.bytes is None else self.bytes.to_json(),
        }


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """What lengths are counted in."""

    kind: str
    max_length: int
    vocabulary: str | None
    """What the vocabulary is from: a file, or a split; None where lengths do not depend on one."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """Everything that was found about one path."""

    kind: Kind
    path: Path
    findings: Sequence[Finding]
    task: str | None = None
    reason: str | None = None
    """Why it was taken for that task."""
    tokens: Tokens | None = None
    splits: Sequence[SplitReport] = ()
    overlaps: Sequence[Overlap] = ()

    def count(self, level: str) -> int:
        """How many findings are so grave."""
        return sum(finding.level == level for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        """As --json has it."""
        facts: dict[str, Any] = {"kind": self.kind, "path": str(self.path)}
        if self.kind == "data":
            facts |= {
                "task": self.task,
                "taken_for_it": self.reason,
                "tokens": None if self.tokens is None else asdict(self.tokens),
                "splits": [split.to_json() for split in self.splits],
                "overlaps": [overlap.to_json() for overlap in self.overlaps],
            }
        found = [finding._asdict() for finding in by_gravity(list(self.findings))]
        counts = {f"{level}s": self.count(level) for level in ("error", "warning")}
        return {**facts, "findings": found, **counts}


def errors_in(reports: Iterable[Report]) -> int:
    """How many errors were found in all."""
    return sum(report.count("error") for report in reports)
