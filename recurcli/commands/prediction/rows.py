"""The rows of `recur predict`: read in windows that are predicted together, written as TSV, CSV, JSON lines or CLUE's."""

import contextlib
import csv
import io
import json
import os
import re
import select
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from heapq import nlargest
from operator import itemgetter
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple, cast

from recurcli.commands.prediction.output import GZIPPED, PredictionProgress, make_blocking
from recurcli.data.columns import InputColumns
from recurcli.data.config import DataConfig
from recurcli.data.readers import Separation, escapes_of, read_records
from recurcli.data.rows import QUOTE, UTF8, Record, Records, first_repeated
from recurcli.errors import DataError, UsageError, escaped, pluralize
from recurcli.evaluation.inference import WINDOW, Prediction
from recurcli.files import OutputKind

InputFormat = Literal["tsv", "csv", "jsonl", "fasttext", "parquet"]
OutputFormat = Literal["tsv", "csv", "jsonl", "clue"]
MAX_COLUMNS = 10_000
WINDOW_CHARACTERS = 8 << 20
"""A window ends early at this many characters, so that very long rows do not fill the memory."""

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


class PollableStream(io.RawIOBase):
    """A pipe or terminal that knows whether its next row can be read without waiting."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._rows = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Read the available bytes into `buffer`; waits until there are some."""
        count = os.readv(self._descriptor, [buffer])
        self._rows += bytes(buffer[:count]).count(b"\n")
        return count

    def keeps_waiting(self, line: int) -> bool:
        """Return whether the stream has no data yet for the row after row `line` (counted from 1), so that a read blocks."""
        return line >= self._rows and not select.select([self._descriptor], [], [], 0)[0]


class Input(NamedTuple):
    """The input path and its format options."""

    source: Path
    format: InputFormat | None = None
    """None: detected from the file name or the first byte."""
    delimiter: str | Callable[[str], Separation] | None = None
    """Field delimiter, or a function of the first row that returns its `Separation`; None: TAB for TSV, a comma for CSV."""
    encoding: str = UTF8
    quote: str = QUOTE

    def check(self) -> None:
        """Raise UsageError if the delimiter, the quote or the encoding is invalid."""
        try:
            mark = self.delimiter if isinstance(self.delimiter, str) else None
            DataConfig(delimiter=mark, quote=self.quote, encoding=self.encoding)
        except ValueError as error:
            raise UsageError(f"--{error}") from None


def open_input(
    input: Input, stack: contextlib.ExitStack, *, at_once: bool = False
) -> tuple[Records, Callable[[int], bool] | None]:
    """Open the input and return its records, including a header.

    With `at_once`, the second value for a stream is a function of n: whether reading the record after line n would wait.
    Otherwise it is None.
    """
    source, format, mark, encoding, quote = input
    opened: Path | BinaryIO = source
    waits = None
    if str(source) == "-":
        if sys.stdin is None:
            raise DataError("standard input is closed; name a file")
        make_blocking(sys.stdin)
        opened = sys.stdin.buffer
    elif is_fifo(source):
        opened = stack.enter_context(source.open("rb"))
    if at_once and not isinstance(opened, Path):
        pollable = PollableStream(opened.fileno())
        opened, waits = cast(BinaryIO, pollable), pollable.keeps_waiting
    name = "standard input" if str(source) == "-" else str(source)
    records = read_records(opened, format, header=False, name=name, delimiter=mark, encoding=encoding, quote=quote)
    return stack.enter_context(records), waits


def is_fifo(source: Path) -> bool:
    """Whether `source` is a FIFO, which can be read only once."""
    try:
        return stat.S_ISFIFO(source.stat().st_mode)
    except (OSError, ValueError):
        return False  # read_records raises the error


def windows(
    records: Iterator[Record], waits: Callable[[int], bool] | None = None, digest: Any = None
) -> Iterator[list[Record]]:
    """Yield the records in lists of at most WINDOW rows and about WINDOW_CHARACTERS characters.

    A list ends early after line n if `waits(n)` is true. `digest`, a hashlib object, is updated with the content of each row.
    """
    window: list[Record] = []
    characters = 0
    for record in records:
        content = _content(record)
        window.append(record)
        characters += len(content)
        if digest is not None:
            digest.update(f"{content}\n".encode())
        if len(window) == WINDOW or characters >= WINDOW_CHARACTERS or (waits is not None and waits(record.line)):
            yield window
            window, characters = [], 0
    if window:
        yield window


def skip(rows: Iterator[list[Record]], digest: Any, earlier: PredictionProgress, name: str) -> None:
    """Skip the `rows` of an earlier run, which update `digest`.

    Raises DataError if the input `name` now starts with different rows.
    """
    left = earlier.rows
    while left > 0 and (window := next(rows, None)):
        left -= len(window)
    if left or digest.hexdigest() != earlier.input_sha256:
        raise DataError(
            f"{escaped(name)}: differs from the input of the earlier run in its first {pluralize(earlier.rows, 'row')}; "
            "give the same input, or start again with --overwrite"
        )


def _content(record: Record) -> str:
    """Return the content of a record as a unique string."""
    try:
        return repr((record.fields, record.fault))
    except RecursionError:
        return f"line {record.line}, nested deeply"


def scan(
    input: Input, columns: InputColumns, *, separated: bool, require: Callable[[Record], None]
) -> tuple[PredictionProgress | None, InputColumns]:
    """Count the rows and faults of a file before any output is written. The count is None for a pipe.

    `require` raises DataError for a record that the output cannot hold.

    For JSON input, the returned `columns` have the keys of all rows as names if the output is TSV or CSV (`separated`);
    otherwise only the keys that the output adds, too. Raises DataError for more than MAX_COLUMNS keys.
    """
    source = input.source
    if str(source) == "-" or is_fifo(source):
        return None, columns
    progress = PredictionProgress()
    names: dict[str, None] = {}
    with contextlib.ExitStack() as stack:
        records, _ = open_input(input, stack)
        if columns.header:
            next(records, None)
        for record in records:
            require(record)
            progress.count(records.name, record, columns.texts.read_for_label(record).fault)
            if columns.typed:
                names.update(dict.fromkeys(key for key in record.fields if separated or key in JSON_ADDED))
                if len(names) > MAX_COLUMNS:
                    raise DataError(f"{source}: has more than {MAX_COLUMNS:,} different keys; use --format jsonl")
        progress.hint = records.hint
    return progress, replace(columns, names=tuple(names), keys=tuple(names)) if columns.typed else columns


def output_kind(format: OutputFormat | None) -> OutputKind:
    """Return the endings of an output in `format`; None: in any format that an ending names."""
    if format is None:
        title, endings = "an output", [*ENDINGS["tsv"], *ENDINGS["csv"], *ENDINGS["jsonl"]]
    else:
        title, endings = f"an output of --format {format}", [*ENDINGS[format]]
    return OutputKind(title, (*endings, *(ending + GZIPPED for ending in endings)), bare=True)


def named_format(output: Path) -> OutputFormat | None:
    """Return the format that the ending of `output` names, or None if it names none."""
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
            if isinstance(value, str) and (found := breaking(value, delimiter or "\t")):
                raise DataError(f"{place}: '{escaped(column)}' holds {found}, which no TSV can hold; {_AS_CSV}")
    if format == "clue" and columns.id is not None:
        value = record.fields.get(columns.id)
        if not (value.strip() if isinstance(value, str) else type(value) is int):
            shown = "empty" if value is None or isinstance(value, str) else escaped(json.dumps(value, default=str))
            raise DataError(f"{place}: the id is {shown}; CLUE's ids are whole numbers or texts")


def breaking(value: str, delimiter: str) -> str | None:
    """Return what in `value` would end a field or a row of a TSV, in words, or None if nothing would."""
    if delimiter in value:
        return "a TAB" if delimiter == "\t" else f"a '{escaped(delimiter)}'"
    return "a line end" if "\n" in value or "\r" in value else None


@dataclass
class RowWriter:
    """Formats output rows: the input's columns, `prediction`, `score`, those of --probabilities, --top-k and --explain.

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
    quote: str = QUOTE
    probabilities: bool
    top_k: int | None
    threshold: float | None
    """The score below which a row has no prediction. None if every row has one."""
    explains: bool = False
    """Whether the output has the column `explanation`."""
    with_reason: bool
    """Whether a TSV or CSV has a last column `reason`. In JSON lines only the rows with a reason have this key."""

    def __post_init__(self) -> None:
        if self.format == "clue" and (self.probabilities or self.top_k or self.explains or self.threshold is not None):
            raise UsageError(
                "--format clue has a label for each row; leave out --probabilities, --top-k, --explain and --threshold"
            )
        if self.format != "clue" and self.columns.id is not None:
            raise UsageError("--id belongs to --format clue; the other formats keep all columns of the input")
        self._mark = self.delimiter or ("\t" if self.format == "tsv" else ",")
        self._escapes = escapes_of(self._mark)
        self._best = min(self.top_k or 0, len(self.labels))
        self._added = set() if self.format == "clue" else {*ADDED, *self._more_names()}
        names = self.columns.names
        self.check_no_added(names)
        if self.format == "jsonl" and (twice := first_repeated(names)) is not None:
            raise DataError(f"{self.name}: has the column '{escaped(twice)}' twice, which JSON cannot hold; rename one")

    def check_no_added(self, names: Iterable[str]) -> None:
        """Raise DataError if the input has one of the columns that the output adds."""
        for name in names:
            if name in self._added:
                raise DataError(f"{self.name}: has a column '{name}', which the output adds; rename it first")

    def _more_names(self) -> list[str]:
        why = ["explanation"] if self.explains else []
        if self.format == "jsonl":
            return [*(["top"] if self._best else []), *(["probabilities"] if self.probabilities else []), *why]
        names = [f"{word}_{n}" for n in range(1, self._best + 1) for word in ("label", "score")]
        return [*names, *(f"probability_{label}" for label in self.labels if self.probabilities), *why]

    def head(self) -> bytes:
        """Return the header row. It is empty if the format has none, and if the input has none and no class is to be named."""
        if not self._separated or not (self.columns.header or self.columns.typed or self.probabilities):
            return b""
        added = ["prediction", "score", *self._more_names(), *(["reason"] if self.with_reason else [])]
        names = [*self.columns.names]
        given, checked = ([], [*names, *added]) if self.columns.breaks else (names, added)
        return self._line(given, checked, f"{self.name}: the header")

    def row(
        self, number: int, record: Record, prediction: Prediction, fault: str | None, why: Sequence[str] | None = None
    ) -> bytes:
        """Return the output row of a record with row number `number` (from 0); `fault` says why it could not be read.

        `why` has the parts of the text that spoke for the label.
        """
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
            return self._json_row(record, prediction, best, fault, why)
        values = [record.fields.get(key, "") for key in self.columns.keys]
        if self.columns.typed:
            values = [as_text(value) for value in values]
        label = "" if self.is_unsure(prediction) else prediction.label
        added = [label, f"{prediction.score:.6f}"]
        added += [text for label, share in best for text in (label, f"{share:.6f}")]
        if self.probabilities:
            added += [f"{share:.6f}" for share in prediction.probabilities.values()]
        if why is not None:
            shown = " | ".join(why)
            added.append(shown.translate(self._escapes) if self.format == "tsv" else shown)
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
            csv.writer(buffer, delimiter=self._mark, quotechar=self.quote, lineterminator="\n").writerow(values + added)
            return buffer.getvalue().encode()
        for value in added:
            if found := breaking(value, self._mark):
                raise DataError(f"{place}: '{escaped(value)}' holds {found}, which no TSV can hold; {_AS_CSV}")
        return (self._mark.join(values + added) + "\n").encode()

    def _id(self, record: Record, number: int) -> object:
        """Return the id of the column of --id, else the row number. An id of digits becomes an integer, as in CLUE."""
        if self.columns.id is None:
            return number
        value = record.fields[self.columns.id]
        return int(value) if isinstance(value, str) and _ROW_NUMBER.fullmatch(value) else value

    def _json_row(
        self,
        record: Record,
        prediction: Prediction,
        best: Sequence[tuple[str, float]],
        fault: str | None,
        why: Sequence[str] | None,
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
        if why is not None:
            line["explanation"] = list(why)
        reason = {"reason": fault} if fault else {}
        try:
            return _json_line({**fields, **line, **reason})
        except (ValueError, RecursionError):  # 1e999 is read as Infinity, which is no JSON
            kept = {key: value for key, value in fields.items() if isinstance(value, str | int | None)}
            return _json_line({**kept, **line, "reason": fault or "holds a value that cannot be written as JSON"})


def as_text(value: Any) -> str:
    """Return a JSON or Parquet value as a field: a string unchanged, any other value as JSON."""
    try:
        if isinstance(value, int | float | list | dict | None):
            return json.dumps(value, ensure_ascii=False, default=str)
        return str(value)
    except RecursionError:
        return "(nested too deeply)"


def _json_line(value: Any) -> bytes:
    return (json.dumps(value, ensure_ascii=False, allow_nan=False, default=str) + "\n").encode()
