"""The rows of `recur predict`: read in windows that are predicted together, written as TSV, CSV, JSON lines or CLUE's."""

import contextlib
import json
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import nlargest
from operator import itemgetter
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, NamedTuple

from recurcli.commands.prediction.output import COMPRESS, PARQUET, PredictionProgress, make_blocking
from recurcli.config import QUOTE
from recurcli.data.counting import sound_rows
from recurcli.data.readers import Place, escapes_of, is_table
from recurcli.data.rows import Record, Records, file_and_part, first_repeated
from recurcli.data.source import Source
from recurcli.errors import DataError, UsageError, did_you_mean, escaped, pluralize
from recurcli.evaluation.predictor import WINDOW, Prediction
from recurcli.files import OutputKind
from recurcli.requests.predict import STDIN, OutputFormat, PredictRequest
from recurcli.targets import Cell, Target

MAX_COLUMNS = 10_000
WINDOW_CHARACTERS = 8 << 20
"""A window ends early at this many characters, so that very long rows do not fill the memory."""
ENDINGS: dict[OutputFormat, tuple[str, ...]] = {
    "tsv": (".tsv",),
    "csv": (".csv",),
    "jsonl": (".jsonl",),
    "parquet": (PARQUET,),
    "clue": (".json", ".jsonl"),
}
"""The endings of an output file by its format; each but that of Parquet may be followed by that of a compression."""
_NO_TSV = "which no TSV can hold; write a CSV (--output x.csv) or JSON lines"


def opened(source: Path, stack: contextlib.ExitStack) -> tuple[Path | BinaryIO, str]:
    """Return a file that can be read twice, else the stream of standard input or of a FIFO, and the name of the input."""
    if source == STDIN:
        if sys.stdin is None:
            raise DataError("standard input is closed; name a file")
        make_blocking(sys.stdin)
        return sys.stdin.buffer, "standard input"
    return source if is_file(source) else stack.enter_context(source.open("rb")), str(source)


def is_file(source: Path) -> bool:
    """Whether `source` can be read twice: it is neither standard input nor a FIFO. Reading tells what is wrong with it."""
    try:
        return source != STDIN and not stat.S_ISFIFO(file_and_part(source)[0].stat().st_mode)
    except (OSError, ValueError):
        return True


def windows(records: Iterator[Record], digest: Any = None, *, at_once: bool = False) -> Iterator[list[Record]]:
    """Yield the records in lists of at most WINDOW rows and about WINDOW_CHARACTERS characters; with `at_once` one by one.

    A list begins at each multiple of WINDOW rows, however long the rows before it are. `digest`, a hashlib object, is updated
    with the content of each row.
    """
    window: list[Record] = []
    characters = 0
    for number, record in enumerate(records, 1):
        try:
            content = repr((record.fields, record.fault))
        except RecursionError:
            content = f"line {record.line}, nested deeply"
        window.append(record)
        characters += len(content)
        if digest is not None:
            digest.update(f"{content}\n".encode())
        if at_once or number % WINDOW == 0 or characters >= WINDOW_CHARACTERS:
            yield window
            window, characters = [], 0
    if window:
        yield window


def part_of(number: int, part: tuple[int, int]) -> range:
    """Return the numbers, from 0, of those of this `number` of things that are in part I of N."""
    first, last = (number * place // part[1] for place in (part[0] - 1, part[0]))
    return range(first, last)


def state_of(source: Path) -> tuple[int, ...] | None:
    """Return what tells whether a file has changed: its size, time and number; None for a pipe."""
    if not is_file(source):
        return None
    found = file_and_part(source)[0].stat()
    return found.st_size, found.st_mtime_ns, found.st_ino


def rows_of_part(rows: int, part: tuple[int, int]) -> range:
    """Return the range of row numbers, from 0, of part I of N of a file with this number of `rows`.

    Each part begins at a multiple of WINDOW, so its rows are predicted with the same others as those of the whole file.
    """
    lists = part_of(-(-rows // WINDOW), part)
    return range(lists.start * WINDOW, min(lists.stop * WINDOW, rows))


def skip(rows: "Iterator[tuple[RowWriter, list[Record]]]", digest: Any, earlier: PredictionProgress, name: str) -> None:
    """Skip the `rows` of an earlier run, which update `digest`.

    Raises DataError if the input `name` now starts with different rows.
    """
    left = earlier.rows
    while left > 0 and (window := next(rows, None)):
        left -= len(window[1])
    if left or digest.hexdigest() != earlier.input_sha256:
        raise DataError(
            f"{escaped(name)}: differs from the input of the earlier run in its first {pluralize(earlier.rows, 'row')}; "
            "give the same input, or start again with --overwrite"
        )


class Input(NamedTuple):
    """An input file or pipe: its records, their columns, and for a file the counts of a first pass."""

    records: Records
    """The records of a pipe, or of the first pass over a file, which has ended."""
    unread: Callable[[int], Iterator[Record]]
    """Returns the records from a number on, without the header. A file is opened again when the first one is read."""
    source: Source
    names: tuple[str, ...]
    """The names of the columns in the output. JSON rows and those of Parquet have them as keys."""
    keys: tuple[str, ...]
    """The keys of the columns in the records."""
    format: OutputFormat
    at_once: bool = False
    """Whether each row is predicted before the next one is read."""
    counted: PredictionProgress | None = None
    """The number of rows and faults of all input files. None for a pipe."""
    rows: int = 0
    """The number of rows of this file."""
    types: Mapping[str, Any] = MappingProxyType({})
    """The Arrow type that each column has in a Parquet output. It is empty if the inputs are not Parquet."""
    state: tuple[int, ...] | None = None
    """`state_of` the file before it was read."""

    @property
    def typed(self) -> bool:
        """Whether rows have values of several types (JSON, Parquet) rather than strings in columns."""
        return not is_table(self.source.format)

    @property
    def same_form(self) -> bool:
        """Whether the output separates fields as the input does. A space before the rest of the line becomes a TAB."""
        return self.format == self.source.format and self.source.delimiter != " "


def scan(
    input: Input, progress: PredictionProgress, *, strict: bool, all_keys: bool = False
) -> tuple[tuple[str, ...], Mapping[int, Place]]:
    """Count the rows and faults of a file in `progress`, before any output is written. Return the names of its columns, and
    where some rows begin, by their number, if that is known without reading them.

    For JSON and Parquet they are the keys of all rows with `all_keys` or if the output is a table; for JSON lines only the
    keys that the output adds. Raises DataError for more than MAX_COLUMNS keys, with `strict` for the first bad row, and as
    `check_holdable` does.
    """
    records, all_keys = input.records, all_keys or input.format in TABLES
    delimiter = records.delimiter if input.same_form else None
    names = dict.fromkeys(key for key in records.types if all_keys or key in JSON_ADDED)
    holds_all = not (all_keys or strict) if input.typed else input.format != "tsv" or input.same_form
    if holds_all and (counted := sound_rows(input.source, len(input.keys), WINDOW, JSON_ADDED)):
        progress.rows += counted[0]
        return () if input.typed else input.names, counted[1]
    for record in records:
        check_holdable(record, input, name=records.name, delimiter=delimiter)
        progress.count(records.name, record, input.source.columns.read_for_label(record).fault)
        if input.typed:
            names.update(dict.fromkeys(key for key in record.fields if all_keys or key in JSON_ADDED))
            if len(names) > MAX_COLUMNS:
                raise DataError(f"{records.name}: has more than {MAX_COLUMNS:,} different keys; use --format jsonl")
    if strict and progress.first_fault:
        raise DataError(f"{progress.first_fault}{records.hint}")
    return tuple(names) if input.typed else input.names, {}


def output_names(source: Source, names: tuple[str, ...], like: Source) -> tuple[str, ...]:
    """Return the names of an input's columns in the output: its own, else those of the training rows for the texts."""
    texts, before = source.columns, like.columns
    alike = len(texts.text) == len(before.text) and len(texts.pair) == len(before.pair)
    if not is_table(source.format) or source.header or not alike:
        return names
    known = dict(zip(texts.names, before.names, strict=True))
    as_before = tuple(known.get(name, name) for name in names)
    return as_before if first_repeated(as_before) is None else names


def output_kind(format: OutputFormat | None) -> OutputKind:
    """Return the endings of an output in `format`; None: in any format that an ending names."""
    title = "an output" if format is None else f"an output of --format {format}"
    named = [format] if format else [each for each in ENDINGS if each != "clue"]
    endings = [ending for each in named for ending in ENDINGS[each]]
    packed = [ending + each for each in COMPRESS for ending in endings if ending != PARQUET]
    return OutputKind(title, (*endings, *packed), bare=format != "parquet")


def named_format(output: Path) -> OutputFormat | None:
    """Return the format that the ending of `output` names, or None if it names none."""
    ending = (output.with_suffix("") if output.suffix in COMPRESS else output).suffix
    return next((format for format, endings in ENDINGS.items() if ending in endings), None)


def check_holdable(record: Record, input: Input, *, name: str, delimiter: str | None = None) -> None:
    """Raise DataError for a record of `input` that its output cannot hold: a TSV no TAB and no line end.

    `name` is the name of the input, `delimiter` what separates the fields of the TSV in place of a TAB.
    """
    if input.format == "tsv" and not input.same_form:
        fields = record.fields.items() if input.typed else zip(input.names, record.fields.values(), strict=False)
        for column, value in fields:
            if isinstance(value, str) and (found := tsv_obstacle(value, delimiter or "\t")):
                place = f"{escaped(name, limit=4000)}:{record.line}"
                raise DataError(f"{place}: '{escaped(column)}' holds {found}, {_NO_TSV}")


def tsv_obstacle(value: str, delimiter: str) -> str | None:
    """Return what in `value` would end a field or a row of a TSV, in words, or None if nothing would."""
    if delimiter in value:
        return "a TAB" if delimiter == "\t" else f"a '{escaped(delimiter)}'"
    return "a line end" if "\n" in value or "\r" in value else None


JSON_ADDED = ("prediction", "score", "reason", "top", "probabilities", "explanation")
Explanation = Sequence[str] | dict[str, list[str]]
"""The parts of a text that speak for its label or number, or for each of its labels."""
TABLES: tuple[OutputFormat, ...] = "tsv", "csv", "parquet"
"""Formats whose rows all have the same columns."""


class RowWriter:
    """Formats output rows: the input's columns, `prediction`, those of --probabilities, --top-k and --explain.

    One label has a `score`, too. Several are joined in a TSV or CSV by the target's separator, and a list elsewhere.

    Raises DataError if the input has a column that the output adds, or two columns of the same name for JSON; UsageError
    if the options do not fit the format.
    """

    def __init__(self, request: PredictRequest, input: Input, target: Target) -> None:
        self.request, self.input, self.target, self.labels = request, input, target, target.labels
        self.name, self.format = input.source.name, input.format
        self.quote = (input.source.quote if input.same_form else None) or (QUOTE if self.format == "csv" else None)
        self.least_score = request.threshold if target.has_score else None
        """The score below which a row has no prediction."""
        self.with_reason = input.counted is None or input.counted.faults > 0 or self.least_score is not None
        self.with_reason = self.with_reason or "reason" in dict(request.picked)
        """Whether a TSV or CSV has a last column `reason`. In JSON lines only the rows with a reason have this key."""
        more = request.picked or request.probabilities or request.top_k or request.explain
        if self.format == "clue" and (more or request.threshold is not None):
            raise UsageError(
                "--format clue has a label for each row; leave out --columns, --probabilities, --top-k, --explain "
                "and --threshold"
            )
        delimiter = input.source.delimiter if input.same_form else None
        self._mark = delimiter or ("\t" if self.format == "tsv" else ",")
        self._escapes = escapes_of(self._mark) if self.format == "tsv" and self.quote is None else {}
        self._best = min(request.top_k or 0, len(self.labels))
        self._added = self._names_added()
        self._check_no_added(self.input.names)
        written = [name for name in self.input.names if not request.picked or name in dict(request.picked)]
        if self.format in ("jsonl", "parquet") and (twice := first_repeated(written)) is not None:
            title = "JSON" if self.format == "jsonl" else "Parquet"
            raise DataError(
                f"{self.name}: has the column '{escaped(twice)}' twice, which {title} cannot hold; rename one"
            )
        self._all = [*self.input.names, *(self._added if self.with_reason else self._added[:-1])]
        """The names of all columns that the output may have."""
        for name in dict(request.picked).keys() - {*self._all}:
            raise DataError(f"{self.name}: --columns: has no column '{escaped(name)}'{did_you_mean(name, self._all)}")
        self._output_columns = [(self._all.index(name), new) for name, new in request.picked] or [*enumerate(self._all)]
        """The place of each column of the output among all, and its name."""

    def _names_added(self) -> list[str]:
        """Return the columns that a table adds, or the keys that JSON lines add. The last one is `reason`."""
        if self.format == "clue":
            return []
        names = ["prediction", *(["score"] if self.target.has_score else [])]
        if self._best:
            columns = [f"{word}_{n}" for n in range(1, self._best + 1) for word in ("label", "score")]
            names += ["top"] if self.format == "jsonl" else columns
        if self.request.probabilities:
            columns = [f"probability_{label}" for label in self.labels]
            names += ["probabilities"] if self.format == "jsonl" else columns
        return [*names, *(["explanation"] if self.request.explain else []), "reason"]

    def _check_no_added(self, names: Iterable[str]) -> None:
        if clash := next((name for name in names if name in self._added), None):
            raise DataError(f"{self.name}: has a column '{clash}', which the output adds; rename it first")

    def head(self) -> bytes:
        """Return the header row. It is empty if the format has none, and if the input has none and no class is to be named."""
        has_names = self.input.source.header or self.input.typed or self.request.probabilities or self.request.picked
        if self.format not in ("tsv", "csv") or not has_names:
            return b""
        names = [name for _, name in self._output_columns]
        return self._line(names, names, f"{self.name}: the header")

    def row(
        self, number: int, record: Record, prediction: Prediction, fault: str | None, why: Explanation | None = None
    ) -> bytes:
        """Return the output row of a record with row number `number` (from 0); `fault` says why it could not be read.

        `why` has the parts of the text that spoke for the label, or for each of several labels.
        """
        check_holdable(record, self.input, name=self.name, delimiter=self._mark)
        if self.format == "clue":
            return _json_line({"id": number, "label": prediction.label})
        if self.format != "jsonl" and self.input.typed and (late := record.fields.keys() - set(self.input.names)):
            fault = fault or f"has the key '{escaped(min(late))}', which the first rows lack, so it has no column"
        answer: dict[str, Any] = {"prediction": self._shown(prediction.label)}
        if prediction.score is not None:
            answer["score"] = round(prediction.score, 6)
        if self.is_unsure(prediction):
            answer["prediction"], unsure = None, f"the score is below {self.least_score:g}"
            fault = f"{fault}; {unsure}" if fault else unsure
        if self._best:
            best = nlargest(self._best, prediction.probabilities.items(), key=itemgetter(1))
            answer["top"] = [{"label": label, "score": round(share, 6)} for label, share in best]
        if self.request.probabilities:
            answer["probabilities"] = {label: round(share, 6) for label, share in prediction.probabilities.items()}
        if why is not None:
            answer["explanation"] = why
        if self.format == "jsonl":
            return self._json_row(record, answer, fault)
        place = f"{self.name}:{record.line}"
        if fault and not self.with_reason:
            raise DataError(f"{place}: {fault}; the file was changed while it was read")
        if why is not None:
            named = {f"{label}: ": parts for label, parts in why.items()} if isinstance(why, dict) else {"": why}
            shown = "; ".join(f"{label}{' | '.join(parts)}" for label, parts in named.items())
            answer["explanation"] = shown.translate(self._escapes)
        if self.with_reason:
            answer["reason"] = fault and fault.translate(self._escapes)
        return self._table_row(record, [*_cells(answer)], place)

    def _shown(self, cell: Cell) -> Cell:
        """Return a prediction as the output holds it: text in a TSV or CSV, else the label or labels, or the rounded number."""
        text = self.target.text_of(cell)
        return text if self.format in ("tsv", "csv") else float(text) if isinstance(cell, float) else cell

    def rest(self) -> bytes:
        """Return what ends the rows of a window."""
        return b""

    def _table_row(self, record: Record, cells: list[str | float | None], place: str) -> bytes:
        """Return a row of a TSV or CSV: the values of the input and the added `cells`."""
        values = [record.fields.get(key, "") for key in self.input.keys]
        added = [f"{cell:.6f}" if isinstance(cell, float) else cell or "" for cell in cells]
        every = [*(map(as_text, values) if self.input.typed else values), *added]
        return self._line([every[each] for each, _ in self._output_columns], added, place)

    def is_unsure(self, prediction: Prediction) -> bool:
        """Return whether the score is below the threshold."""
        return self.least_score is not None and prediction.score is not None and prediction.score < self.least_score

    def _line(self, cells: list[str], added: list[str], place: str) -> bytes:
        """Return a row of these cells. A CSV quotes delimiters and line ends in them.

        Raises DataError, which names the `place`, for an `added` value that a TSV cannot hold, such as a label with a TAB.
        """
        if self.quote is not None:
            line = self._mark.join(self._quoted(cell) for cell in cells)
            return f"{line or self.quote * 2}\n".encode()
        for value in added:
            if found := tsv_obstacle(value, self._mark):
                raise DataError(f"{place}: '{escaped(value)}' holds {found}, {_NO_TSV}")
        return (self._mark.join(cells) + "\n").encode()

    def _quoted(self, cell: str) -> str:
        """Return a cell as a CSV holds it. The `csv` module looks at each character, which takes ten times as long."""
        quote = str(self.quote)
        is_plain = not any(mark in cell for mark in (self._mark, quote, "\n", "\r"))
        return cell if is_plain else f"{quote}{cell.replace(quote, quote * 2)}{quote}"

    def _json_row(self, record: Record, answer: dict[str, Any], fault: str | None) -> bytes:
        fields = record.fields
        if self.input.typed:
            self._check_no_added(fields)
        else:
            fields = dict(zip(self.input.names, fields.values(), strict=False))
        try:
            return self._json_line({**fields, **answer, **({"reason": fault} if fault else {})})
        except (ValueError, RecursionError):  # 1e999 is read as Infinity, which is not JSON
            kept = {key: _or_null(value) for key, value in fields.items()}
            return self._json_line(
                {**kept, **answer, "reason": fault or "holds a value that cannot be written as JSON"}
            )

    def _json_line(self, fields: dict[str, Any]) -> bytes:
        if self.request.picked:
            fields = {new: fields.get(name) for name, new in self.request.picked}
        return _json_line(fields)


class ParquetWriter(RowWriter):
    """Collects the rows of a window as a record batch of Arrow. The output is a stream of them until all rows are predicted.

    The columns of Parquet inputs have the types that hold those of all; those of other inputs are strings. A score and a
    predicted number are doubles, several labels a list of strings.
    """

    def __init__(self, request: PredictRequest, input: Input, target: Target) -> None:
        import pyarrow as pa

        super().__init__(request, input, target)
        added = self._all[len(self.input.names) :]
        types = {name: pa.float64() if name.startswith(("score", "probability_")) else pa.string() for name in added}
        if not target.has_score:
            types["prediction"] = pa.list_(pa.string()) if target.has_labels else pa.float64()
        own = [(name, input.types.get(name, pa.string())) for name in self.input.names]
        fields = [*own, *types.items()]
        self._is_text = [type == pa.string() for _, type in fields]
        self._schema = pa.schema([(name, fields[place][1]) for place, name in self._output_columns])
        self._rows: list[list[Any]] = []

    def head(self) -> bytes:
        """Return the message with the schema."""
        return bytes(self._schema.serialize())

    def rest(self) -> bytes:
        """Return the message with the rows since the last call."""
        import pyarrow as pa

        columns = zip(*self._rows, strict=True)
        arrays = [pa.array(values, field.type) for values, field in zip(columns, self._schema, strict=True)]
        self._rows = []
        return bytes(pa.record_batch(arrays, schema=self._schema).serialize())

    def _table_row(self, record: Record, cells: list[str | float | None], place: str) -> bytes:
        values = [record.fields.get(key) for key in self.input.keys]
        values = [
            as_text(value) if value is not None and is_text else value
            for value, is_text in zip(values, self._is_text, strict=False)
        ]
        self._rows.append([[*values, *cells][each] for each, _ in self._output_columns])
        return b""


def types_of_all(inputs: Sequence[Input]) -> dict[str, Any]:
    """Return for each column of Parquet inputs the Arrow type that holds its values in all of them.

    Raises DataError for a column without such a type.
    """
    types: dict[str, Any] = {}
    for each in inputs:
        for name, type in each.records.types.items():
            before = types.get(name, type)
            if (wider := _wider(before, type)) is None:
                what = f"the column '{escaped(name)}' is {escaped(type)}, but {escaped(before)} in the files before it"
                raise DataError(f"{each.source.name}: {what}; give it one type, or write JSON lines (--output x.jsonl)")
            types[name] = wider
    return types


def _wider(first: Any, second: Any) -> Any:
    """Return the Arrow type that holds every value of both types unchanged, or None."""
    import pyarrow as pa
    from pyarrow.types import is_large_list, is_list, is_null

    if first == second or is_null(second):
        return first
    if is_null(first):
        return second
    if all(is_list(each) or is_large_list(each) for each in (first, second)):
        value = _wider(first.value_type, second.value_type)
        list_of = pa.list_ if is_list(first) and is_list(second) else pa.large_list
        return None if value is None else list_of(value)
    widening = (
        (pa.int8(), pa.int16(), pa.int32(), pa.int64()),
        (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
        (pa.float32(), pa.float64()),
        (pa.string(), pa.large_string()),
        (pa.binary(), pa.large_binary()),
    )
    return next((max(first, second, key=each.index) for each in widening if first in each and second in each), None)


def _cells(answer: Any) -> Iterator[Any]:
    """Yield a part of the answer for a row, as JSON has it, as cells of a table."""
    if isinstance(answer, dict | list):
        for part in answer.values() if isinstance(answer, dict) else answer:
            yield from _cells(part)
    else:
        yield answer


def as_text(value: Any) -> str:
    """Return a JSON or Parquet value as a field: a string unchanged, nothing for null, any other value as JSON."""
    try:
        if value is None:
            return ""
        if isinstance(value, int | float | list | dict):
            return json.dumps(value, ensure_ascii=False, default=str)
        return str(value)
    except RecursionError:
        return "(nested too deeply)"


def _or_null(value: Any) -> Any:
    """Return a value with null for each NaN and infinity in it, and null for one that is nested too deeply."""
    try:
        return json.loads(json.dumps(value, default=str), parse_constant=lambda _: None)
    except RecursionError:
        return None


def _json_line(value: Any) -> bytes:
    return (json.dumps(value, ensure_ascii=False, allow_nan=False, default=str) + "\n").encode()
