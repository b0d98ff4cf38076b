"""Formats the output rows of `recur predict`: TSV, CSV, JSON lines, or CLUE's `id` and `label`."""

import csv
import io
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from heapq import nlargest
from operator import itemgetter
from typing import Any, Literal

from recurcli.data.formats.rows import Record
from recurcli.data.formats.separated import escapes_of
from recurcli.data.input_columns import InputColumns
from recurcli.errors import DataError, UsageError, escaped
from recurcli.evaluation.predictor import Prediction

OutputFormat = Literal["tsv", "csv", "jsonl", "clue"]
ADDED = ("prediction", "score", "reason")
JSON_ADDED = (*ADDED, "top", "probabilities")
_ROW_NUMBER = re.compile(r"0|[1-9][0-9]{0,17}")


@dataclass
class RowWriter:
    """Formats output rows: the columns of the input, `prediction`, `score`, and the columns of --probabilities and --top-k.

    Raises DataError if the input has a column that the output adds, or two columns of the same name for JSON; UsageError
    if the options do not fit the format.
    """

    format: OutputFormat
    columns: InputColumns
    labels: Sequence[str]
    _: KW_ONLY
    name: str
    """Name of the input in messages."""
    delimiter: str | None = None
    """Separator of the fields of a TSV or CSV; None: TAB or a comma."""
    probabilities: bool
    top_k: int | None
    threshold: float | None
    """The score below which a row has no prediction; None if every row has one."""
    with_reason: bool
    """Whether a TSV or CSV has a last column `reason`. In JSON lines only the rows with a reason have this key."""

    def __post_init__(self) -> None:
        if self.format == "clue" and (self.probabilities or self.top_k or self.threshold is not None):
            raise UsageError(
                "--format clue has a label for each row; leave out --probabilities, --top-k and --threshold"
            )
        if self.format != "clue" and self.columns.id is not None:
            raise UsageError("--id belongs to --format clue; the other formats keep all columns of the input")
        self._mark = self.delimiter or ("\t" if self.format == "tsv" else ",")
        self._escapes = escapes_of(self._mark)
        self._best = min(self.top_k or 0, len(self.labels))
        self._added = set() if self.format == "clue" else {*ADDED, *self._more_names()}
        names = self.columns.names
        self.refuse_added(names)
        if self.format == "jsonl" and len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise DataError(f"{self.name}: has the column '{escaped(twice)}' twice, which JSON cannot hold; rename one")

    def refuse_added(self, names: Iterable[str]) -> None:
        """Raise DataError if the input has one of the columns that the output adds."""
        for name in names:
            if name in self._added:
                raise DataError(f"{self.name}: has a column '{name}', which the output adds; rename it first")

    def _more_names(self) -> list[str]:
        if self.format == "jsonl":
            return [*(["top"] if self._best else []), *(["probabilities"] if self.probabilities else [])]
        names = [f"{word}_{n}" for n in range(1, self._best + 1) for word in ("label", "score")]
        return names + [f"probability_{label}" for label in self.labels if self.probabilities]

    def head(self) -> bytes:
        """Return the header row; empty if the format or the input has none."""
        if not self._separated or not (self.columns.header or self.columns.typed):
            return b""
        added = ["prediction", "score", *self._more_names(), *(["reason"] if self.with_reason else [])]
        return self._line([*self.columns.names], added)

    def row(self, number: int, record: Record, prediction: Prediction, fault: str | None) -> bytes:
        """Return the output row of a record with row number `number` (from 0); `fault` says why it could not be read."""
        if self.format == "clue":
            return _json_line({"id": self._id(record, number), "label": prediction.label})
        if self.columns.typed and self._separated and (late := record.fields.keys() - set(self.columns.names)):
            fault = fault or f"has the key '{escaped(min(late))}', which the first rows lack, so it has no column"
        if self.is_unsure(prediction):
            unsure = f"the score is below {self.threshold:g}"
            fault = f"{fault}; {unsure}" if fault else unsure
        best = nlargest(self._best, prediction.probabilities.items(), key=itemgetter(1)) if self._best else []
        if self.format == "jsonl":
            return self._json_row(record, prediction, best, fault)
        values = [record.fields.get(key, "") for key in self.columns.keys]
        if self.columns.typed:
            values = [_as_text(value) for value in values]
        label = "" if self.is_unsure(prediction) else prediction.label
        added = [label, f"{prediction.score:.6f}"]
        added += [text for label, share in best for text in (label, f"{share:.6f}")]
        if self.probabilities:
            added += [f"{share:.6f}" for share in prediction.probabilities.values()]
        if self.with_reason:
            added.append(fault or "")
        elif fault:
            raise DataError(f"{self.name}:{record.line}: {fault}; the file was changed while it was read")
        return self._line(values, added)

    def is_unsure(self, prediction: Prediction) -> bool:
        """Return whether the score is below the threshold."""
        return self.threshold is not None and prediction.score < self.threshold

    @property
    def _separated(self) -> bool:
        """Whether the format is TSV or CSV."""
        return self.format in ("tsv", "csv")

    def _line(self, values: list[str], added: list[str]) -> bytes:
        """One row: the input's values and the added ones. A CSV quotes delimiters and line ends in them, a TSV escapes
        them: \\t, \\n, \\r, or \\x3b for a semicolon."""
        if self.format == "csv":
            buffer = io.StringIO()
            csv.writer(buffer, delimiter=self._mark, lineterminator="\n").writerow(values + added)
            return buffer.getvalue().encode()
        if self.columns.breaks:
            values = [value.translate(self._escapes) for value in values]
        added = [value.translate(self._escapes) for value in added]
        return (self._mark.join(values + added) + "\n").encode()

    def _id(self, record: Record, number: int) -> object:
        """Return the id of the column of --id, else the row number. An id of digits becomes an integer, as in CLUE."""
        value = record.fields.get(self.columns.id) if self.columns.id is not None else None
        if isinstance(value, str) and _ROW_NUMBER.fullmatch(value):
            return int(value)
        return value if type(value) is int or (isinstance(value, str) and value) else number

    def _json_row(
        self, record: Record, prediction: Prediction, best: Sequence[tuple[str, float]], fault: str | None
    ) -> bytes:
        fields = dict(zip(self.columns.names, record.fields.values(), strict=False))
        if self.columns.typed:
            self.refuse_added(record.fields)
            fields = record.fields
        label = None if self.is_unsure(prediction) else prediction.label
        line: dict[str, Any] = {"prediction": label, "score": round(prediction.score, 6)}
        if best:
            line["top"] = [{"label": label, "score": round(share, 6)} for label, share in best]
        if self.probabilities:
            line["probabilities"] = {label: round(share, 6) for label, share in prediction.probabilities.items()}
        reason = {"reason": fault} if fault else {}
        try:
            return _json_line({**fields, **line, **reason})
        except (ValueError, RecursionError):  # 1e999 is read as Infinity, which is no JSON
            kept = {key: value for key, value in fields.items() if isinstance(value, str | int | None)}
            return _json_line({**kept, **line, "reason": fault or "holds a value that cannot be written as JSON"})


def _as_text(value: Any) -> str:
    """Return a JSON or Parquet value as a field: a string unchanged, any other value as JSON."""
    try:
        if isinstance(value, int | float | list | dict | None):
            return json.dumps(value, ensure_ascii=False, default=str)
        return str(value)
    except RecursionError:
        return "(nested too deeply)"


def _json_line(value: Any) -> bytes:
    return (json.dumps(value, ensure_ascii=False, allow_nan=False, default=str) + "\n").encode()
