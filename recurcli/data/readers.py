"""Reads a data file – TSV, CSV, Excel, JSON lines, fastText, Parquet, or a folder of texts – as one record for each row.

No types are guessed and no word means "missing": a text is a string. An unreadable row is a record with a `fault`, so that
`recur predict` can answer it. First come the readers of each format, then the choice among them (`read_records`).

TSV: TABs separate fields; quotes have no meaning, unless one is named. CSV: RFC 4180, also with another quote; a field that
begins with a quote ends at the next single one, and may hold delimiters and line ends. What a strict reader reads as one row of
the header's width is one row, with a doubt if its lines look like rows. What it cannot read, such as a quote that is never
closed, makes its line a fault; the lines after it are read as rows, where usual readers put them into one field (ours).
"""

import contextlib
import io
import json
import re
import zipfile
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from itertools import chain, islice, starmap
from pathlib import Path, PurePath
from typing import Any, BinaryIO, NamedTuple

from recurcli.config import QUOTE, UTF8
from recurcli.data.documents import BadJson, Json, json_object, plain_row, read_json
from recurcli.data.rows import (
    BOM,
    CHUNK,
    Format,
    Record,
    Records,
    Row,
    TextDecoder,
    chunks_of,
    decoded,
    file_and_part,
    first_repeated,
    name_inside,
    open_file,
    path_shown,
    rows_in,
    rows_of_file,
    text_chunks,
)
from recurcli.errors import DataError, escaped, pluralize, require_extra

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


class Place(NamedTuple):
    """Where a row begins: its byte in the file, and the number of its line from 1."""

    byte: int
    line: int


class Content(NamedTuple):
    """What the reader of a format is given: the rows of a file or stream, and what is known of them."""

    name: str
    format: Format
    rows: Iterator[Row]
    """Nothing is read before the first one is asked for. Readers of other files than text open the file `name` themselves."""
    chunks: Iterator[bytes]
    """The bytes that the `rows` are read from, for a reader that asks for no row."""
    decoder: TextDecoder
    is_stream: bool = False
    delimiter: str | None = None
    """The separator of the fields of a table. None: that of the format."""
    quote: str | None = None
    """The quote around the fields of a table. None: that of the format."""
    first_line: int = 1
    """The number of the first of the rows."""
    labels: Sequence[str] = ()
    """The labels whose folders are read. (): those of all folders."""


def table_records(content: Content) -> Records:
    """Return the records of a TSV or CSV."""
    doubts: list[int] = []
    usual = FORMATS[content.format]
    mark = content.delimiter or str(usual.delimiter)
    quote, most = (content.quote, 1) if mark == " " else (content.quote or usual.quote, -1)
    if quote is not None:
        fields = comma_separated(content.rows, mark, doubts, quote, content.first_line)
    else:  # quotes are ordinary characters
        lines = enumerate(map(decoded, content.rows), content.first_line)
        fields = ((line, text.split(mark, most), fault) for line, (text, fault) in lines)
    return _of_fields(content, fields, decoder=content.decoder, doubts=doubts, delimiter=mark, quote=quote)


def _of_fields(content: Content, fields: Iterator[Fields], **known: Any) -> Records:
    """Return the records of the rows of a table, whose columns are "1", "2", … as many as its first row has."""
    start = list(islice(fields, 1))
    columns = tuple(str(number + 1) for _, values, _ in start for number in range(len(values)))

    def records() -> Iterator[Record]:
        for line, values, fault in chain(start, fields):
            if fault is None and len(values) != len(columns):
                fault = "is blank" if values == [""] else f"has {pluralize(len(values), 'field')}, not {len(columns)}"
            values = values + [""] * (len(columns) - len(values))
            yield Record(line, dict(zip(columns, values, strict=False)), fault)

    return Records(content.name, content.format, columns, records(), **known)


MAX_WORKBOOK = 1 << 30
"""Most bytes of a workbook, which is read whole, and of what is packed in it."""


def workbook_records(content: Content) -> Records:
    """Return the rows of the first sheet of a workbook, or of the one that `FILE#SHEET` names, with cells as Excel shows them.

    Raises DataError for a file that is not a workbook or is damaged, for a sheet that it does not have, and for a stream.
    """
    if content.is_stream:
        raise DataError(f"{content.name}: a workbook cannot be read from a pipe; name the file")
    path, sheet = file_and_part(Path(content.name))
    require_extra("files", str(path), "python_calamine")
    from python_calamine import CalamineError, load_workbook

    with open_file(path) as file:
        packed = io.BytesIO(b"".join(islice(chunks_of(file, str(path)), MAX_WORKBOOK // CHUNK)))
    try:
        sizes = [each.file_size for each in zipfile.ZipFile(packed).infolist()] if zipfile.is_zipfile(packed) else []
        if max(sum(sizes), packed.getbuffer().nbytes) >= MAX_WORKBOOK:
            raise DataError(f"{path}: is larger than {MAX_WORKBOOK >> 30} GiB; save it as CSV in UTF-8")
        packed.seek(0)
        book = load_workbook(packed)
        if sheet is not None and sheet not in book.sheet_names:
            shown = ", ".join(escaped(name, 60) for name in book.sheet_names[:20])
            raise DataError(f"{path}: has no sheet '{escaped(sheet)}'; its sheets are: {shown}")
        found = book.get_sheet_by_name(book.sheet_names[0] if sheet is None else sheet)
        rows = [[_as_shown(value) for value in row] for row in found.to_python()]
    except (CalamineError, zipfile.BadZipFile) as error:
        raise DataError(f"{path}: is not a workbook that can be read: {escaped(error, 200)}") from None
    while rows and not any(rows[-1]):  # cells that were cleared
        rows.pop()
    first = (found.start or (0, 0))[0] + 1
    fields: Iterator[Fields] = ((line, row, None if any(row) else "is blank") for line, row in enumerate(rows, first))
    others = sheet is None and len(book.sheet_names) > 1
    remark = f"the sheet '{escaped(found.name, 60)}' of {len(book.sheet_names)} is read; {path}#NAME reads another"
    return _of_fields(content, fields, remarks=[remark] if others else [])


def _as_shown(value: Any) -> str:
    """Return the value of a cell as text: 5.0 as 5, dates as in ISO 8601."""
    if isinstance(value, float):
        return f"{value:.15g}"
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat(sep=" ") if isinstance(value, datetime) else str(value)


def comma_separated(
    rows: Iterable[Row], delimiter: str, doubts: list[int], quote: str = QUOTE, first_line: int = 1
) -> Iterator[Fields]:
    """Yield the fields of each row, quoted fields without their quotes; a row may span several lines.

    If a quote is never closed, or text follows the closing quote, the first line is a row with a fault and the lines after it
    are read as rows. So they are if a row of several lines has another number of fields than the first row, but each of its
    lines has that number: two stray quotes then enclose whole rows. `doubts` gets the first line of a row of lines like rows.
    """
    lines = (Line(number, *decoded(row), row.end) for number, row in enumerate(rows, first_line))
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
_JSON = re.compile(rb'\{|\[\s*\{|\[\s*\["|\[\]?$|\[".*\]$')
"""The first row of JSON."""


def json_records(content: Content) -> Records:
    """Return the rows of JSON: an object or list a line, an array of them, or a document that holds them.

    The first readable row among ROWS_FOR_KEYS gives the columns. `Record.line` counts the rows. Raises DataError for a document
    of several lists of rows, such as splits, of which none is named, and for one that is too long.
    """
    name = content.name
    path, part = (None, None) if content.is_stream else file_and_part(Path(name))
    rows, tables, fault = Json(map(decoded, content.rows), {}, None)
    if content.first_line == 1:
        rows, tables, fault = read_json(content.chunks, name, content.decoder, path)
    if fault is not None:
        raise DataError(f"{name}: {fault}")
    if (part or "") in tables:
        rows = ((text, None) for text in tables[part or ""])
    elif parts := [*map(escaped, filter(None, tables))]:
        raise DataError(f"{name}: holds lists of rows under {', '.join(parts)}; FILE#{parts[0]} names one")
    elif part is not None:
        raise DataError(f"{name}: holds no lists of rows under keys; leave out '#{escaped(part)}'")
    counts = Counter[str]()
    convert = partial(plain_row, counts=counts)
    records = (json_record(line, text, fault, convert) for line, (text, fault) in enumerate(rows, content.first_line))
    seen: list[Record] = []
    for record in islice(records, ROWS_FOR_KEYS):
        seen.append(record)
        if record.fault is None:
            break
    columns = next((tuple(record.fields) for record in reversed(seen) if record.fields), ())
    return Records(name, "jsonl", columns, chain(seen, records), decoder=content.decoder, counts=counts)


def json_record(line: int, text: str, fault: str | None, convert: Callable[[Any], Any]) -> Record:
    """Return the object that `convert` makes of the value in `text`, with a fault; without fields if that is no object."""
    try:
        return Record(line, json_object(text, convert), fault)
    except BadJson as reason:
        return Record(line, {}, fault or (str(reason) if text.strip() else "is blank"))


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
    if is_saved_dataset(path):
        return _saved_records(path)
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


def with_labels(records: Records, rows: Iterator[Record], labels: Path | str, encoding: str | None) -> Iterator[Record]:
    """Yield the `rows` of `records` with a `label` each: a line of the file `labels`, or that string.

    Raises DataError at the end if there are more rows than lines, or fewer.
    """
    lines = None if isinstance(labels, str) else [*map(decoded, rows_of_file(labels, TextDecoder(encoding or UTF8)))]
    count = 0
    for record in rows:
        label, fault = (str(labels), None) if lines is None else lines[count] if count < len(lines) else ("", None)
        count += 1
        yield record._replace(fields={**record.fields, "label": label.strip()}, fault=record.fault or fault)
    if lines is not None and count != len(lines):
        has = pluralize(len(lines), "line")
        raise DataError(
            f"{labels}: has {has}, but {records.name} has {pluralize(count, 'row')}; each row needs its label"
        )


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
            # all groups at once would keep the whole file in memory
            groups = (file.iter_batches(ROWS_AT_ONCE, row_groups=[group]) for group in range(file.num_row_groups))
            rows = chain.from_iterable(batch.to_pylist() for batch in chain.from_iterable(groups))
            for line, fields in enumerate(rows, 1):
                yield Record(line, with_class_names(fields, class_names))

    return Records(str(path), "parquet", columns, read(), file.close, types=types)


def is_saved_dataset(path: Path) -> bool:
    """Return whether `path` is a folder that `save_to_disk` of a `datasets.Dataset` wrote."""
    return (path / "state.json").is_file() and (path / "dataset_info.json").is_file()


def _saved_records(path: Path) -> Records:
    import datasets

    try:
        return dataset_records(str(path), datasets.load_from_disk(str(path)))
    except Exception as error:  # of several libraries, for a file that is missing or damaged
        raise DataError(f"{path}: is not a whole folder of `datasets`: {escaped(error, limit=300)}") from None


def dataset_records(name: str, rows: Any) -> Records:
    """Return the rows of a `datasets.Dataset`, which share their columns as those of Parquet do. Class numbers become names."""
    class_names = {column: feature.names for column, feature in rows.features.items() if hasattr(feature, "names")}
    records = (Record(line, with_class_names(row, class_names)) for line, row in enumerate(rows.with_format(None), 1))
    return Records(name, "parquet", tuple(rows.features), records)


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
    starts: re.Pattern[bytes] | None = None
    """What the first row of its files begins with, where the name does not tell the format."""
    delimiter: str | None = None
    """The usual separator of the fields of a table. None: it has no separator."""
    quote: str | None = None
    """The usual quote around fields of a table. None: quotes are ordinary characters."""
    is_table: bool = False
    """Whether its rows are fields, of which the first row may name the columns."""


FORMATS: dict[Format, FileFormat] = {
    "tsv": FileFormat(table_records, (".tsv",), delimiter="\t", is_table=True),
    "csv": FileFormat(table_records, (".csv",), delimiter=",", quote=QUOTE, is_table=True),
    "excel": FileFormat(workbook_records, (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods"), is_table=True),
    "jsonl": FileFormat(json_records, (".jsonl", ".ndjson", ".json"), _JSON),
    "fasttext": FileFormat(fasttext_records, (".ft",), re.compile(PREFIX.encode())),
    "parquet": FileFormat(parquet_records, (".parquet",)),
    "folders": FileFormat(label_folder_records),
}
"""The formats that are read. A row without any other sign is that of a TSV. Compression is `COMPRESSED` of rows.py."""
ENDINGS = {ending: name for name, each in FORMATS.items() for ending in each.endings}
DELIMITERS = "\t,;|"
"""Marks that may separate the fields of a TSV or CSV, if they stand in the name of its only column."""
_SEP_LINE = re.compile(rb"sep=([!-~])")
"""The first line of a CSV by which Excel tells the delimiter."""
_NOT_READ = {".arrow", ".feather"}


def is_table(format: Format | None) -> bool:
    """Return whether the rows of a format are fields, of which the first row may name the columns."""
    return format is not None and FORMATS[format].is_table


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
    start: Place | None = None,
) -> Records:
    """Open a file (see FORMATS), a folder of folders named by label (`format` "folders"), or a stream called `name`.

    `format` None means the format of the file's name, else that of its first row. `delimiter` (None: the usual one; or a
    function of the first row) and `quote` (None: that of the format) are for TSV and CSV, `labels` for folders, and
    `encoding` for all formats but Parquet. `start` is where to begin in a file of UTF-8 whose columns are known. A stream
    stays open. Raises DataError for a missing file and for another kind of content (compressed, UTF-16, …). The records raise
    DataError if a file cannot be read to its end.
    """
    decoder, is_stream = TextDecoder(encoding), not isinstance(source, str | Path)
    with contextlib.ExitStack() as on_error:
        chunks: Iterator[bytes] = iter(())
        if isinstance(source, str | Path):
            name = path_shown(Path(source))
            if format != "folders":
                file = on_error.enter_context(open_file(Path(source)))
                if start is not None:
                    file.seek(start.byte)
                chunks = text_chunks(file, name, decoder) if start is None else chunks_of(file, name)
        else:
            chunks = text_chunks(source, name, decoder)
        named = format or format_of(name)
        kind: Format = named or "tsv"
        first_line = 1 if start is None else start.line
        if named is None:
            head = [*islice(chunks, 1)]
            chunks, first = chain(head, chunks), b"".join(head).partition(b"\n")[0].strip()
            kind = next((key for key, each in FORMATS.items() if each.starts and each.starts.match(first)), "tsv")
        rows = rows_in(chunks, decoder)
        if FORMATS[kind].delimiter is not None and start is None:
            top = [*islice(rows, 1)]
            if sep := _SEP_LINE.fullmatch(top[0].content.strip() if top else b""):
                top, first_line, kind = [], 2, named or "csv"
                delimiter = delimiter if isinstance(delimiter, str) else sep[1].decode()
            rows = chain(top, rows)
            if callable(delimiter) and top:
                delimiter, its_format, its_quote = delimiter(decoded(top[0])[0])
                quote = quote or its_quote
                if named is None and its_format is not None:
                    kind = its_format
        mark = None if callable(delimiter) else delimiter
        records = FORMATS[kind].read(
            Content(name, kind, rows, chunks, decoder, is_stream, mark, quote, first_line, labels)
        )
        if records.close is None:
            records.close = on_error.pop_all().close
        return records


def parts_of_document(path: Path) -> tuple[str, ...]:
    """Return the keys of a JSON file that holds several lists of rows, such as splits; () for another file."""
    with contextlib.suppress(DataError, OSError):  # reading the file says what is wrong with it
        if path.is_file() and format_of(path.name) == "jsonl":
            decoder = TextDecoder()
            with open_file(path) as file:
                tables = read_json(text_chunks(file, str(path), decoder), str(path), decoder, path).tables
            return () if "" in tables else (*tables,)
    return ()


def recognised_delimiter(
    path: Path, encoding: str, format: Format | None = None, quote: str | None = None
) -> str | None:
    """Return the mark that separates the fields of a TSV or CSV file if it is not the usual one; None if it cannot be told.

    It is the only mark in the first row, which has one field by the usual delimiter, that splits every row into equally many
    fields, two or more. A TSV whose fields are in quotes has none, since it seems to be a CSV; neither has a file that cannot
    be read.
    """
    read = partial(read_records, path, format, encoding=encoding, quote=quote)
    try:
        with read() as records:
            usual = records.delimiter
            first = str(next(records).fields["1"]) if usual and len(records.columns) == 1 else ""
        marks = [mark for mark in DELIMITERS if mark in first and mark != usual and _fits(read(delimiter=mark))]
    except (DataError, ValueError):  # reading the file says what is wrong with it
        return None
    return marks[0] if len(marks) == 1 else None


def needs_quotes(path: Path, encoding: str, delimiter: str | None) -> bool:
    """Return whether the quotes around fields of a TSV are not text: all rows fit with them, and some row does not fit without
    them, has all its fields in quotes, or doubles the quotes in such a field.
    """
    read = partial(read_records, path, "tsv", encoding=encoding, delimiter=delimiter)

    def shows(row: Record) -> bool:
        quoted = [value for value in row.fields.values() if value[:1] == value[-1:] == QUOTE and len(value) > 1]
        doubles = any(QUOTE * 2 in value[1:-1] for value in quoted)
        return row.fault is not None or doubles or len(quoted) == len(row.fields)

    try:
        with open_file(path) as file:
            if not any(QUOTE.encode() in chunk for chunk in chunks_of(file, str(path))):
                return False
        with read() as bare:
            return any(map(shows, bare)) and _fits(read(quote=QUOTE))
    except DataError:  # reading the file says what is wrong with it
        return False


def _fits(records: Records) -> bool:
    """Return whether all rows of a table have as many fields as its first one, two or more, and none begins with a quote that
    has no meaning there. The table is closed.
    """
    is_bare = records.format == "tsv" and records.quote is None

    def fits(row: Record) -> bool:
        return row.fault is None and not (is_bare and any(value.startswith(QUOTE) for value in row.fields.values()))

    with records:
        return len(records.columns) > 1 and all(map(fits, records)) and not records.doubts


def recognised_in_words(mark: str) -> str:
    """Return the words that tell that `mark` was recognised as the delimiter."""
    return f"its fields are separated by {in_words(mark)}, which splits every row alike"


def in_words(mark: str) -> str:
    """Return a delimiter as messages name it."""
    return {"\t": "TAB", ",": "a comma", ";": "a semicolon", "|": "a vertical bar"}.get(mark, f"'{escaped(mark)}'")
