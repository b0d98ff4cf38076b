"""Reads a data file – TSV, CSV, JSON lines, fastText, Parquet, or a folder of texts – as one record for each row.

No types are guessed and no word means "missing": a text is a string. An unreadable row is a record with a `fault`, so that
`recur predict` can answer it. First come the readers of each format, then the choice among them (`read_records`).

TSV: TABs separate fields; quotes have no meaning, unless one is named. CSV: RFC 4180, also with another quote; a field that
begins with a quote ends at the next single one, and may hold delimiters and line ends. What a strict reader reads as one row of
the header's width is one row, with a doubt if its lines look like rows. What it cannot read, such as a quote that is never
closed, makes its line a fault; the lines after it are read as rows, where usual readers put them into one field (ours).
"""

import contextlib
import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, islice, starmap
from pathlib import Path, PurePath
from typing import Any, BinaryIO, NamedTuple

from recurcli.config import QUOTE, UTF8
from recurcli.data.rows import (
    BOM,
    Format,
    Record,
    Records,
    Row,
    TextDecoder,
    chunks_of,
    decoded,
    first_repeated,
    kind_of,
    name_inside,
    open_file,
    rows_of,
)
from recurcli.errors import DataError, escaped, pluralize

MAX_QUOTED = 16 << 20
"""Most characters of the lines of one row; a quoted field that is longer counts as never closed."""
COST_OF_LINE = 64
"""Characters that a line counts in addition to its own, since each line that waits takes memory."""
LINES_LIKE_ROWS = 4
"""Most lines after the first of a row that may look like rows without a doubt."""


def escapes_of(delimiter: str) -> dict[int, str]:
    """Return a table for `str.translate` that escapes line ends and the delimiter: \\n, \\r, \\t, or \\x3b for a semicolon."""
    return str.maketrans(
        {"\n": "\\n", "\r": "\\r", delimiter: "\\t" if delimiter == "\t" else f"\\x{ord(delimiter):02x}"}
    )


Fields = tuple[int, list[str], str | None]
"""One row: the number of its first line, the fields that could be read, and the reason why it cannot be used."""


class Line(NamedTuple):
    """A line of a CSV file: its number from 1, its text without its end, why it cannot be used, and its end."""

    number: int
    text: str
    fault: str | None
    end: str


class Content(NamedTuple):
    """What the reader of a format is given: the rows of a file or stream, and what is known of them."""

    name: str
    format: Format
    rows: Iterator[Row]
    """Nothing is read before the first one is asked for. Readers of other files than text open the file `name` themselves."""
    decoder: TextDecoder
    is_stream: bool = False
    delimiter: str | None = None
    """The separator of the fields of a table. None: that of the format."""
    quote: str | None = None
    """The quote around the fields of a table. None: that of the format."""
    labels: Sequence[str] = ()
    """The labels whose folders are read. (): those of all folders."""


def table_records(content: Content) -> Records:
    """Return the records of a TSV or CSV, whose columns are "1", "2", … as many as its first row has."""
    doubts: list[int] = []
    usual = FORMATS[content.format]
    mark, quote = content.delimiter or str(usual.delimiter), content.quote or usual.quote
    if quote is not None:
        fields = comma_separated(content.rows, mark, doubts, quote)
    else:  # quotes are ordinary characters
        lines = enumerate(map(decoded, content.rows), 1)
        fields = ((line, text.split(mark), fault) for line, (text, fault) in lines)
    start = list(islice(fields, 1))
    columns = tuple(str(number + 1) for _, values, _ in start for number in range(len(values)))

    def records() -> Iterator[Record]:
        for line, values, fault in chain(start, fields):
            if fault is None and len(values) != len(columns):
                fault = "is blank" if values == [""] else f"has {pluralize(len(values), 'field')}, not {len(columns)}"
            values = values + [""] * (len(columns) - len(values))
            yield Record(line, dict(zip(columns, values, strict=False)), fault)

    return Records(
        content.name,
        content.format,
        columns,
        records(),
        decoder=content.decoder,
        doubts=doubts,
        delimiter=mark,
        quote=quote,
    )


def comma_separated(rows: Iterable[Row], delimiter: str, doubts: list[int], quote: str = QUOTE) -> Iterator[Fields]:
    """Yield the fields of each row, quoted fields without their quotes; a row may span several lines.

    If a quote is never closed, or text follows the closing quote, the first line is a row with a fault and the lines after it
    are read as rows. So they are if a row of several lines has another number of fields than the first row, but each of its
    lines has that number: two stray quotes then enclose whole rows. `doubts` gets the first line of a row of lines like rows.
    """
    lines = (Line(number, *decoded(row), row.end) for number, row in enumerate(rows, 1))
    waiting: deque[Line] = deque()
    """Lines that were read to find a closing quote and belong to no row yet."""
    width = None
    while (line := waiting.popleft() if waiting else next(lines, None)) is not None:
        values, fault = line.text.split(delimiter), line.fault
        if quote in line.text:
            taken = [line]
            found, broken = _quoted(line, delimiter, quote, _following(taken, waiting, lines), width)
            later = len(taken) - 1
            widths = {each.text.count(delimiter) + 1 for each in taken} if later and broken is None else set()
            if later and broken is None and width != len(found) and widths == {width}:
                closed = f"has a quote that is closed {later} {'line' if later == 1 else 'lines'} later"
                broken = f"{closed}, and the number of its fields is then {len(found)}, not {width}"
            if broken is None:
                values = found
                for at, _, bad, _ in taken[1:]:
                    fault = fault or (f"continues in line {at}, which {bad}" if bad else None)
                if later > LINES_LIKE_ROWS and widths == {len(values)} != {1}:
                    doubts.append(line.number)
            else:
                fault = fault or broken
                waiting.extendleft(reversed(taken[1:]))
        width = width or len(values)
        yield line.number, values, fault


def _following(taken: list[Line], waiting: deque[Line], lines: Iterator[Line]) -> Iterator[Line]:
    """Yield each line after those in `taken` that may belong to the same row, and append it to `taken`."""
    size = 0
    while size <= MAX_QUOTED:
        line = waiting.popleft() if waiting else next(lines, None)
        if line is None:
            return
        taken.append(line)
        size += len(line.text) + COST_OF_LINE
        yield line


def _quoted(
    line: Line, delimiter: str, quote: str, following: Iterator[Line], width: int | None
) -> tuple[list[str], str | None]:
    """Return the fields of a row that begins with `line`, and its fault; takes more lines if a field needs them.

    A field beyond the first `width` takes no more lines, so that the work grows with the lines wherever they open quotes.
    """
    values: list[str] = []
    text, start = line.text, 0
    while True:
        if not text.startswith(quote, start):
            end = text.find(delimiter, start)
            values.append(text[start:] if end < 0 else text[start:end])
            if end < 0:
                return values, None
            start = end + 1
            continue
        pieces: list[str] = []
        opened, start = start, start + 1
        while True:
            end = text.find(quote, start)
            if end < 0:  # the field goes on in the next line
                pieces.append(text[start:] + line.end)
                if width is not None and len(values) >= width:
                    return values, f"has a quote that opens field {len(values) + 1}, but rows have {width}"
                more = next(following, None)
                if more is None:
                    return values, f"has a quote at character {opened + 1} that is never closed"
                line, text, start = more, more.text, 0
            elif text.startswith(quote, end + 1):
                pieces.append(text[start : end + 1])
                start = end + 2
            else:
                pieces.append(text[start:end])
                break
        values.append("".join(pieces))
        if end + 1 == len(text):
            return values, None
        if not text.startswith(delimiter, end + 1):
            return values, f"has text after a closing quote: {text[end : end + 12]!r}"
        start = end + 2


ROWS_FOR_KEYS = 100
"""JSON rows among which the first readable one gives the columns."""
_ESCAPED_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


class BadJson(Exception):
    """The reason why a line is not one JSON object."""


def json_records(content: Content) -> Records:
    """Return the rows of JSON lines; the first readable row among ROWS_FOR_KEYS gives the columns.

    Raises DataError if the first row shows that the file holds a single JSON value.
    """
    first = next(content.rows, None)
    start = b"" if first is None else first.content.strip()
    if start.startswith(b"["):
        raise DataError(f"{content.name}: holds one JSON array; expected one object a line: jq -c '.[]'")
    if start == b"{":
        raise DataError(f"{content.name}: holds JSON spread over lines; expected one object a line: jq -c .")
    rows = content.rows if first is None else chain([first], content.rows)
    records = Records(content.name, "jsonl", (), starmap(json_record, enumerate(rows, 1)), decoder=content.decoder)
    seen: list[Record] = []
    for record in islice(records.rows, ROWS_FOR_KEYS):
        seen.append(record)
        if record.fault is None:
            records.columns = tuple(record.fields)
            break
    records.rows = chain(seen, records.rows)
    return records


def json_record(line: int, row: Row) -> Record:
    """Return the object in `row`; without an object, a record with a fault and no fields."""
    text, fault = decoded(row)
    if fault is None and not text.strip():
        fault = "is blank"
    if fault is not None:
        return Record(line, {}, fault)
    try:
        return Record(line, json_object(text))
    except BadJson as reason:
        return Record(line, {}, str(reason))


def json_object(text: str) -> dict[str, Any]:
    """Return the JSON object in `text`. Raises BadJson if the text is anything else."""
    try:
        value = json.loads(text, object_pairs_hook=_without_duplicates, parse_constant=_no_number)
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise BadJson("holds a lone surrogate, half of a character") from None
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":
            raise BadJson("holds more than one JSON value") from None
        cut = " (it seems to be cut)" if error.pos >= len(text.rstrip()) or "Unterminated" in error.msg else ""
        way_out = "; write it with json.dumps, not str" if text.startswith("{'") else ""
        raise BadJson(f"is not JSON: {error.msg} at character {error.pos + 1}{cut}{way_out}") from None
    except RecursionError:
        raise BadJson("is nested too deeply") from None
    except ValueError:
        raise BadJson("holds a number with too many digits") from None
    if not isinstance(value, dict):
        raise BadJson(f"holds {kind_of(value)}, not an object")
    if _ESCAPED_NUL.search(text):
        raise BadJson("holds an escaped NUL")
    return value


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise BadJson(f"has the key '{escaped(first_repeated(key for key, _ in pairs))}' twice")
    return fields


def _no_number(word: str) -> float:
    raise BadJson(f"holds {word}, which is not a JSON number")


PREFIX = "__label__"
"""fastText's default prefix of a label."""
FASTTEXT_COLUMNS = ("text", "label")
_LABEL = re.compile(rf"(?:^|(?<=[ \t])){PREFIX}([^ \t]*)[ \t]*")


def fasttext_records(content: Content) -> Records:
    """Return the lines of a fastText file."""
    rows = starmap(fasttext_record, enumerate(content.rows, 1))
    return Records(content.name, "fasttext", FASTTEXT_COLUMNS, rows, decoder=content.decoder)


def fasttext_record(line: int, row: Row) -> Record:
    """Return the text of a fastText line as `text`, and its label as `label`, a list if there are several."""
    content, fault = decoded(row)
    labels = _LABEL.findall(content)
    fields: dict[str, Any] = {"text": _LABEL.sub("", content).strip(" \t")}
    if labels:
        fields["label"] = labels[0] if len(labels) == 1 else labels
    return Record(line, fields, fault or ("is blank" if not content.strip() else None))


def is_fasttext(path: Path) -> bool:
    """Return whether a file, or the content of a compressed one, begins with `__label__`. Return False if it cannot be read."""
    try:
        with open_file(path) as file:
            return file.read(len(PREFIX) + 3).removeprefix(b"\xef\xbb\xbf").startswith(PREFIX.encode())
    except (DataError, OSError, EOFError):
        return False


MAX_TEXT = 64 << 20


def label_folder_records(content: Content) -> Records:
    """Return the texts in `path`/<label>/ as records with `text`, `label` and `id` (the file's name, without .txt).

    Labels come in the order of `labels`; if it is empty, all folders come in the order of their names. The files of a label
    are sorted by name. Files and folders whose names begin with a dot are skipped. Raises DataError if there is no file.
    """
    path, labels = Path(content.name), content.labels
    if foreign := [label for label in labels if label.startswith(".") or Path(label).name != label or "\0" in label]:
        raise DataError(
            f"{path}: the label '{escaped(foreign[0])}' is not the name of a folder in it; change data.labels"
        )
    try:
        names = labels or sorted(folder.name for folder in path.iterdir() if folder.is_dir())
        folders = [(label, path / label) for label in names if not label.startswith(".") and (path / label).is_dir()]
        files = [(label, file) for label, folder in folders for file in sorted(folder.iterdir()) if file.name[0] != "."]
        for _, file in files:
            if file.is_dir():
                raise DataError(f"{file}: is a folder, not a file with a text; move its files up, or the folder away")
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    if not files:
        raise DataError(f"{path}: has no folders named by label that hold files of text")
    return Records(
        str(path), "folders", ("text", "label", "id"), _read(path, files, content.decoder), decoder=content.decoder
    )


def _read(folder: Path, files: Sequence[tuple[str, Path]], decoder: TextDecoder) -> Iterator[Record]:
    for line, (label, path) in enumerate(files, 1):
        content = b""
        with open_file(path) as file:
            for chunk in chunks_of(file, str(path)):
                content += chunk
                if len(content) > MAX_TEXT:
                    break
        whole = b"".join(decoder.to_utf8([content])).removeprefix(BOM)
        text, fault = decoded(Row(whole, len(content) <= MAX_TEXT, decoder))
        name = path.stem if path.suffix == ".txt" else path.name
        fields = {"text": text, "label": _printable(label), "id": _printable(name)}
        yield Record(line, fields, fault and f"{escaped(path.relative_to(folder))} {fault}")


def _printable(name: str) -> str:
    """Return a file's name with bytes that are not UTF-8 replaced."""
    return name.encode(errors="surrogateescape").decode(errors="replace")


ROWS_AT_ONCE = 1024


def parquet_records(content: Content) -> Records:
    """Return the rows of a Parquet file, their `line` counted from 1.

    Class numbers of a file that `datasets` wrote become the names in its metadata. Raises DataError if the file is not
    Parquet or is damaged, or is a stream.
    """
    import pyarrow
    from pyarrow import parquet

    if content.is_stream:
        raise DataError(f"{content.name}: parquet cannot be read from a pipe; name the file")
    path = Path(content.name)

    @contextlib.contextmanager
    def naming_damage() -> Iterator[None]:
        try:
            yield
        except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
            raise DataError(f"{path}: is not a Parquet file, or is damaged: {escaped(error, limit=200)}") from None

    with naming_damage():
        file = parquet.ParquetFile(path)
        types = {each.name: _type_of_values(each.type) for each in file.schema_arrow}
        columns = tuple(file.schema_arrow.names)
        class_names = _class_names(file.schema_arrow.metadata)
        types |= dict.fromkeys(class_names.keys() & types.keys(), pyarrow.string())
    if (twice := first_repeated(filter(None, columns))) is not None:
        file.close()
        raise DataError(f"{path}: has the column '{escaped(twice)}' twice")

    def read() -> Iterator[Record]:
        with naming_damage():
            rows = chain.from_iterable(batch.to_pylist() for batch in file.iter_batches(ROWS_AT_ONCE))
            for line, fields in enumerate(rows, 1):
                yield Record(line, with_class_names(fields, class_names))

    return Records(str(path), "parquet", columns, read(), file.close, types=types)


def _type_of_values(type: Any) -> Any:
    """Return an Arrow type with the type of its values for each dictionary (a pandas Categorical) in it."""
    import pyarrow as pa

    if pa.types.is_dictionary(type):
        return type.value_type
    if pa.types.is_struct(type):
        return pa.struct([field.with_type(_type_of_values(field.type)) for field in type])
    for is_list, list_of in ((pa.types.is_list, pa.list_), (pa.types.is_large_list, pa.large_list)):
        if is_list(type):
            return list_of(type.value_field.with_type(_type_of_values(type.value_type)))
    return type


def with_class_names(fields: dict[str, Any], class_names: dict[str, list[str]]) -> dict[str, Any]:
    """Replace class numbers by their names (column to names); by None for -1, a hidden label."""
    for column in class_names.keys() & fields.keys():
        value, names = fields[column], class_names[column]
        if type(value) is int and value < len(names):
            fields[column] = names[value] if value >= 0 else None
    return fields


def _class_names(metadata: dict[bytes, bytes] | None) -> dict[str, list[str]]:
    """Return column to class names from the metadata that `datasets` writes into a schema."""
    try:
        features = json.loads((metadata or {})[b"huggingface"])["info"]["features"]
        return {name: feature["names"] for name, feature in features.items() if feature.get("_type") == "ClassLabel"}
    except (KeyError, ValueError, TypeError, AttributeError):
        return {}


class FileFormat(NamedTuple):
    """A format of files: what reads it, and how it is known."""

    read: Callable[[Content], Records]
    endings: tuple[str, ...] = ()
    """Endings of the names of its files, which that of a compression may follow unless it is Parquet."""
    starts: tuple[bytes, ...] = ()
    """What the first row of its files begins with, where the name does not tell the format."""
    delimiter: str | None = None
    """The usual separator of the fields of a table. None: it has no separator."""
    quote: str | None = None
    """The usual quote around fields of a table. None: quotes are ordinary characters."""


FORMATS: dict[Format, FileFormat] = {
    "tsv": FileFormat(table_records, (".tsv",), delimiter="\t"),
    "csv": FileFormat(table_records, (".csv",), delimiter=",", quote=QUOTE),
    "jsonl": FileFormat(json_records, (".jsonl", ".ndjson", ".json"), (b"{", b"[{")),
    "fasttext": FileFormat(fasttext_records, (".ft",), (PREFIX.encode(),)),
    "parquet": FileFormat(parquet_records, (".parquet",)),
    "folders": FileFormat(label_folder_records),
}
"""The formats that are read. A row without any other sign is that of a TSV. Compression is `COMPRESSED` of rows.py."""
ENDINGS = {ending: name for name, each in FORMATS.items() for ending in each.endings}
DELIMITERS = "\t,;|"
"""Marks that may separate the fields of a TSV or CSV, if they stand in the name of its only column."""
_NOT_READ = {".arrow", ".feather"}


def is_table(format: Format | None) -> bool:
    """Return whether the rows of a format are fields with a separator."""
    return format is not None and FORMATS[format].delimiter is not None


Separation = tuple[str | None, Format | None, str | None]
"""The delimiter of a TSV or CSV (None: the usual one); for a file whose name does not tell them, the format (None: TSV) and
the quote (None: that of the format)."""


def format_of(name: str) -> Format | None:
    """Return the format by the ending of `name`, None if unknown. Raises DataError for formats that are not read."""
    ending = PurePath(name_inside(Path(name))).suffix.lower()
    if ending in _NOT_READ:
        raise DataError(f"{name}: {ending} files are not read; write TSV, CSV, JSON lines or Parquet")
    return ENDINGS.get(ending)


def read_records(
    source: str | Path | BinaryIO,
    format: Format | None = None,
    *,
    name: str = "standard input",
    delimiter: str | Callable[[str], Separation] | None = None,
    labels: Sequence[str] = (),
    encoding: str = UTF8,
    quote: str | None = None,
) -> Records:
    """Open a file (see FORMATS), a folder of folders named by label (`format` "folders"), or a stream called `name`.

    `format` None means the format of the file's name, else that of its first row. `delimiter` (None: the usual one; or a
    function of the first row) and `quote` (None: that of the format) are for TSV and CSV, `labels` for folders, and
    `encoding` for all formats but Parquet. A stream stays open. Raises DataError for a missing file and for another kind of
    content (compressed, UTF-16, a JSON array, …). The records raise DataError if a file cannot be read to its end.
    """
    decoder, is_stream = TextDecoder(encoding), not isinstance(source, str | Path)
    with contextlib.ExitStack() as on_error:
        rows: Iterator[Row] = iter(())
        if isinstance(source, str | Path):
            name = str(Path(source))
            if format != "folders":
                rows = rows_of(on_error.enter_context(open_file(Path(source))), name, decoder)
        else:
            rows = rows_of(source, name, decoder)
        named = format or format_of(name)
        kind: Format = named or "tsv"
        if named is None or is_table(named):
            start = [*islice(rows, 1)]
            rows, first = chain(start, rows), start[0].content.strip() if start else b""
            if named is None:
                kind = next((key for key, each in FORMATS.items() if first.startswith(each.starts)), "tsv")
            if callable(delimiter) and start and is_table(kind):
                delimiter, its_format, its_quote = delimiter(decoded(start[0])[0])
                quote = quote or its_quote
                if named is None and its_format is not None:
                    kind = its_format
        mark = None if callable(delimiter) else delimiter
        records = FORMATS[kind].read(Content(name, kind, rows, decoder, is_stream, mark, quote, labels))
        if records.close is None:
            records.close = on_error.pop_all().close
        return records


def recognised_delimiter(
    path: Path, encoding: str, format: Format | None = None, quote: str | None = None
) -> str | None:
    """Return the mark that separates the fields of a TSV or CSV file if it is not the usual one; None if it cannot be told.

    It is the only mark in the first row, which has one field by the usual delimiter, that splits every row into equally many
    fields, two or more. A TSV whose fields are in quotes has none, since it seems to be a CSV; neither has a file that cannot
    be read.
    """
    read = partial(read_records, path, format, encoding=encoding, quote=quote)
    marks = []
    try:
        with read() as records:
            usual = records.delimiter
            first = str(next(records).fields["1"]) if usual and len(records.columns) == 1 else ""
        for mark in DELIMITERS:
            if mark in first and mark != usual:
                with read(delimiter=mark) as records:
                    is_tsv, sound = records.format == "tsv", len(records.columns) > 1
                    for row in records if sound else ():
                        quoted = is_tsv and any(value.startswith('"') for value in row.fields.values())
                        if row.fault is not None or quoted:
                            sound = False
                            break
                    marks += [mark] if sound else []
    except (DataError, ValueError):  # reading the file says what is wrong with it
        return None
    return marks[0] if len(marks) == 1 else None


def recognised_in_words(mark: str) -> str:
    """Return the words that tell that `mark` was recognised as the delimiter."""
    return f"its fields are separated by {in_words(mark)}, which splits every row alike"


def in_words(mark: str) -> str:
    """Return a delimiter as messages name it."""
    return {"\t": "TAB", ",": "a comma", ";": "a semicolon", "|": "a vertical bar"}.get(mark, f"'{escaped(mark)}'")
