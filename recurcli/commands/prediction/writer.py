"""Formats the output rows of `recur predict`: TSV, CSV, JSON lines, or CLUE's `id` and `label`."""

import csv
import io
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from heapq import nlargest
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal

from recurcli.commands.prediction.output import GZIPPED
from recurcli.data.formats.rows import Record
from recurcli.data.formats.separated import escapes_of
from recurcli.data.input_columns import InputColumns
from recurcli.errors import DataError, UsageError, escaped
from recurcli.evaluation.predictor import Prediction
from recurcli.files import OutputKind

OutputFormat = Literal["tsv", "csv", "jsonl", "clue"]
ADDED = ("prediction", "score", "reason")
JSON_ADDED = (*ADDED, "top", "probabilities")
ENDINGS: dict[OutputFormat, tuple[str, ...]] = {
    "tsv": (".tsv",),
    "csv": (".csv",),
    "jsonl": (".jsonl",),
    "clue": (".json", ".jsonl"),
}
"""The endings of an output file by its format; each may be followed by .gz."""
_AS_CSV = "write a CSV (--output x.csv) or JSON lines"
_ROW_NUMBER = re.compile(r"0|[1-9][0-9]{0,17}")


def output_kind(format: OutputFormat | None) -> OutputKind:
    """Return the endings of an output in `format`; None: in any format that an ending names."""
    if format is None:
        title, endings = "an output", [*ENDINGS["tsv"], *ENDINGS["csv"], *ENDINGS["jsonl"]]
    else:
        title, endings = f"an output of --format {format}", [*ENDINGS[format]]
    return OutputKind(title, (*endings, *(ending + GZIPPED for ending in endings)), bare=True)


def named_format(output: Path) -> OutputFormat | None:
    """Return the format that the ending of `output` names; None if it names none."""
    ending = Path(output.name.removesuffix(GZIPPED)).suffix
    return next((format for format, endings in ENDINGS.items() if ending in endings), None)


def check_holdable(
    record: Record, columns: InputColumns, format: OutputFormat, *, name: str, delimiter: str | None = None
) -> None:
    """Raise DataError for a record that `format` cannot hold: a TSV no TAB and no line end, CLUE no row without an id.

    `name` is the name of the input, `delimiter` what separates the fields of the TSV in place of a TAB.
    """
    place = f"{escaped(name, limit=4000)}:{record.line}"
    if format == "tsv" and columns.breaks:
        fields = record.fields.items() if columns.typed else zip(columns.names, record.fields.values(), strict=False)
        for column, value in fields:
            if isinstance(value, str) and (found := _breaking(value, delimiter or "\t")):
                raise DataError(f"{place}: '{escaped(column)}' holds {found}, which no TSV can hold; {_AS_CSV}")
    if format == "clue" and columns.id is not None:
        value = record.fields.get(columns.id)
        if not (value.strip() if isinstance(value, str) else type(value) is int):
            shown = "empty" if value is None or isinstance(value, str) else escaped(json.dumps(value, default=str))
            raise DataError(f"{place}: the id is {shown}; CLUE's ids are whole numbers or texts")


def _breaking(value: str, delimiter: str) -> str | None:
    """Return what in `value` would end a field or a row of a TSV, in words; None if nothing would."""
    if delimiter in value:
        return "a TAB" if delimiter == "\t" else f"a '{escaped(delimiter)}'"
    return "a line end" if "\n" in value or "\r" in value else None


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
        self.check_no_added(names)
        if self.format == "jsonl" and len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise DataError(f"{self.name}: has the column '{escaped(twice)}' twice, which JSON cannot hold; rename one")

    def check_no_added(self, names: Iterable[str]) -> None:
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
        names = [*self.columns.names]
        given, checked = ([], [*names, *added]) if self.columns.breaks else (names, added)
        return self._line(given, checked, f"{self.name}: the header")

    def row(self, number: int, record: Record, prediction: Prediction, fault: str | None) -> bytes:
        """Return the output row of a record with row number `number` (from 0); `fault` says why it could not be read."""
        check_holdable(record, self.columns, self.format, name=self.name, delimiter=self.delimiter)
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
            added.append((fault or "").translate(self._escapes) if self.format == "tsv" else fault or "")
        elif fault:
            raise DataError(f"{self.name}:{record.line}: {fault}; the file was changed while it was read")
        return self._line(values, added, f"{self.name}:{record.line}")

    def is_unsure(self, prediction: Prediction) -> bool:
        """Return whether the score is below the threshold."""
        return self.threshold is not None and prediction.score < self.threshold

    @property
    def _separated(self) -> bool:
        """Whether the format is TSV or CSV."""
        return self.format in ("tsv", "csv")

    def _line(self, values: list[str], added: list[str], place: str) -> bytes:
        """One row: the values of the input and the added ones. A CSV quotes delimiters and line ends in them.

        Raises DataError, which names the `place`, for an added value that a TSV cannot hold, such as a label with a TAB.
        """
        if self.format == "csv":
            buffer = io.StringIO()
            csv.writer(buffer, delimiter=self._mark, lineterminator="\n").writerow(values + added)
            return buffer.getvalue().encode()
        for value in added:
            if found := _breaking(value, self._mark):
                raise DataError(f"{place}: '{escaped(value)}' holds {found}, which no TSV can hold; {_AS_CSV}")
        return (self._mark.join(values + added) + "\n").encode()

    def _id(self, record: Record, number: int) -> object:
        """Return the id of the column of --id, else the row number. An id of digits becomes an integer, as in CLUE."""
        if self.columns.id is None:
            return number
        value = record.fields[self.columns.id]
        return int(value) if isinstance(value, str) and _ROW_NUMBER.fullmatch(value) else value

    def _json_row(
        self, record: Record, prediction: Prediction, best: Sequence[tuple[str, float]], fault: str | None
    ) -> bytes:
        fields = dict(zip(self.columns.names, record.fields.values(), strict=False))
        if self.columns.typed:
            self.check_no_added(record.fields)
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
