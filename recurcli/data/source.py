"""What one file of rows is like: its format, encoding, fields, header and columns, decided once (`find_source`).

A setting decides first, then the file, then what the training rows were like, whose `Source` a run stores, then usual names.
Training, `check`, `eval` and `predict` read every file by these functions.
"""

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from recurcli.config import UTF8, DataConfig
from recurcli.data.columns import (
    ID_NAMES,
    LABEL_NAMES,
    PAIR_NAMES,
    SECOND_NAMES,
    TEXT_NAMES,
    ColumnNames,
    TextColumns,
    folded,
    is_number,
    option,
)
from recurcli.data.readers import (
    DELIMITERS,
    FORMATS,
    Separation,
    format_of,
    in_words,
    is_table,
    read_records,
    recognised_delimiter,
    recognised_in_words,
)
from recurcli.data.rows import Format, Record, Records, encoding_of, first_repeated
from recurcli.data.tasks import CUSTOM, PLAIN, Layout, Task
from recurcli.errors import DataError, ModelError, UsageError, escaped
from recurcli.log import Note
from recurcli.validation import STRICT, parse_config

SOLE_NAMES = ("text", "sentence")
"""If the only cell of the first row is one of these names, the row is a header. Other usual names may also be texts."""
ROWS_FOR_HEADER = 1000
"""Rows in which a cell of a header must not stand again in its column."""
AS_NAMES = "line 1 is taken as column names; --no-header reads it as a row"
AS_ROW = "line 1 is taken as a row; --header reads it as column names"


@dataclass(frozen=True, kw_only=True)
class Source:
    """What was decided about one file, or about rows of another place."""

    __pydantic_config__ = STRICT

    name: str
    """Its name in messages."""
    path: str | None = None
    """The file or folder. None: the Hub, the generator, a pipe or the memory."""
    format: Format
    encoding: str = UTF8
    delimiter: str | None = None
    """The separator of the fields of a TSV or CSV."""
    quote: str | None = None
    """The quote around the fields of a TSV or CSV. None: it has none."""
    header: bool = False
    """Whether line 1 of a TSV or CSV names the columns."""
    columns: TextColumns
    label: str | None = None
    """Column of the label. None if labels were not read."""
    id: str | None = None
    extra: tuple[str, ...] = ()
    """Columns whose texts are training rows of their own."""
    explicit: tuple[str, ...] = ()
    """Which columns ("text", "label") a setting names. Labelled rows like these must have them; others have usual names."""
    sha256: str = ""
    """SHA-256 of the file's bytes, or of the rows if it is not a file. It is empty before all rows are read."""

    def __post_init__(self) -> None:
        if not self.columns.text:
            raise ValueError("columns must name a text")
        if is_table(self.format) != (self.delimiter is not None):
            raise ValueError(f"delimiter does not fit the format {self.format}")
        DataConfig(delimiter=self.delimiter, quote=self.quote, encoding=self.encoding)  # checks them

    @property
    def own_delimiter(self) -> str | None:
        """The delimiter if it is not the usual one of the format."""
        return None if self.delimiter == FORMATS[self.format].delimiter else self.delimiter

    def to_json(self) -> dict[str, Any]:
        """Return what `from_json` takes."""
        return asdict(self)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any], path: Path) -> "Source":
        """Return what `to_json` stored in the file `path`. Raises ModelError if it is missing or damaged."""
        try:
            return parse_config(cls, stored)
        except UsageError as error:
            raise ModelError(f"{path}: is damaged: source: {error}") from None


def find_source(
    file: Path | BinaryIO | Records,
    task: Task,
    config: DataConfig,
    layout: Layout = PLAIN,
    *,
    like: Source | None = None,
    labelled: bool = False,
    training: bool = False,
    is_input: bool = False,
    peeked: int = ROWS_FOR_HEADER,
    name: str = "standard input",
    format: Format | None = None,
) -> tuple[Source, Records]:
    """Decide what a file, a stream called `name`, or records of another place are like. Return that, and all of their rows.

    `like`: the training rows, which these rows are to be like. `training`: whether these are training rows, of which the
    columns of `config.extra_rows` are read; they may be missing. JSON rows may have different keys, so that named columns are
    not looked up; an id is required only if `config` names it.

    `is_input`: whether it is an input of `recur predict`. Its columns keep their numbers as keys, and `Records.names` has
    their names. Without names the first ones are the texts.

    The header of a TSV or CSV is taken if `is_header` finds one in the `peeked` rows. `Records.notes` tells what was decided
    without a setting. Raises DataError for a file that cannot be read, for a column that is missing or has no usual name, and
    for pairs beside single texts.
    """
    header = layout.header if config.header is None else config.header
    layout = replace(layout, header=header, delimiter=config.delimiter or layout.delimiter)
    texts, label = TextColumns(layout.text or task.text, task.pair), layout.label or task.label
    if like is not None and not is_input:
        if not texts.text and "text" in like.explicit:
            texts = replace(like.columns, pair=texts.pair or like.columns.pair)
        label = label or (like.label if "label" in like.explicit else None)
    label = label if labelled else None
    asked = _Asked(config, layout, texts, label, like, labelled=labelled, is_input=is_input)
    if isinstance(file, Records):
        records = file
    else:
        labels = task.labels if task.name != CUSTOM or config.labels else ()  # task `custom`: every folder is a label
        records = _open(file, asked, name, format, labels)
    with contextlib.ExitStack() as on_error:
        on_error.enter_context(records)
        extra = [str(key) for key in config.extra_rows] if training else []
        source = _decide(records, task, asked, peeked, extra)
        on_error.pop_all()
    return replace(source, path=str(file)) if isinstance(file, Path) else source, records


class _Asked(NamedTuple):
    """What decides before the file does: the settings, and the rows that it is to be like."""

    config: DataConfig
    layout: Layout
    texts: TextColumns
    label: str | None
    like: Source | None
    labelled: bool
    is_input: bool

    def names_columns(self, first: str, mark: str) -> bool:
        """Return whether `mark` separates the name of a column from others in the row `first`: a usual one, one that a
        setting names, or one of the rows `like` these."""
        before = () if self.like is None else self.like.columns.names
        usual = (*TEXT_NAMES, *SECOND_NAMES, *LABEL_NAMES, *ID_NAMES)
        known = {folded(name) for name in (*usual, *self.texts.names, *before) if not is_number(name)}
        return mark in first and not known.isdisjoint(folded(part.strip("\"'")) for part in first.split(mark))


def _decide(records: Records, task: Task, asked: _Asked, peeked: int, extra: Sequence[str]) -> Source:
    """Decide on the header and the columns of `records`, of which the header is taken."""
    config, like, label, is_input = asked.config, asked.like, asked.label, asked.is_input
    row_id, in_table = None if config.id is None else str(config.id), records.delimiter is not None
    rows = records.peek(peeked) if in_table or is_input else []
    note, cells, header = "", (), False
    names = keys = records.columns
    if in_table:
        header, note = is_header(
            records.name, rows, asked.layout.header, asked.texts, (label, row_id), like, labelled=asked.labelled
        )
        if is_input and header and rows:
            names = tuple(next(records).fields.values())
        elif not is_input and (header or not rows):
            records.take_header()
            names = keys = records.columns
        elif note:
            cells = tuple(rows[0].fields.values())
    elif is_input:
        names = keys = tuple(dict.fromkeys(key for row in rows for key in row.fields))
    records.columns, records.names = keys, names
    columns = ColumnNames(records.name, names, keys, is_complete=is_input or records.format != "jsonl")
    by_place = is_input and in_table and not header
    if like is not None and is_input and not names:
        texts = like.columns
    else:
        texts = find_texts(columns, asked.texts, like, cells, labelled=asked.labelled, by_place=by_place)
    if label is not None:
        label = columns.find(label, "label")
    elif asked.labelled and (label := columns.find_usual(usual_labels(like))) is None:
        raise columns.ask("label", cells)
    if label in texts.names:
        raise columns.read_twice(label, "the text and the label")
    if row_id is not None:
        row_id = columns.find(row_id, "id")
    elif not is_input:
        row_id = next((key for key in (like and like.id, task.id, *ID_NAMES) if key in names), None)
    if columns.is_complete:
        extra = [key for key in map(columns.look_up, extra) if key is not None]
    read = tuple(map(columns.name_of, texts.names))
    if by_place and like is not None:
        records.notes += _notes_on_places(records, rows, texts, asked, like)
    unread = unread_in_words(names, read[: len(texts.text)], {*read, label, row_id, *extra})
    records.notes += [Note(f"{records.name}: {each}") for each in (note, "" if asked.texts.text else unread) if each]
    spans = (None if in_table or like is None else like.columns.spans) if is_input else task.spans
    return Source(
        name=records.name,
        format=records.format,
        encoding=UTF8 if records.decoder is None else records.decoder.encoding,
        delimiter=records.delimiter,
        quote=records.quote,
        header=header,
        columns=replace(texts, spans=spans),
        label=label,
        id=row_id,
        extra=(*extra,),
        explicit=(*["text"] * bool(asked.texts.text), *["label"] * (asked.label is not None)),
    )


def read_source(source: Source) -> Records:
    """Open the file of an input again. Its records have numbers as keys, and begin after the header."""
    read = partial(read_records, encoding=source.encoding, delimiter=source.delimiter, quote=source.quote)
    records = read(str(source.path), source.format)
    if source.header:
        next(records, None)
    return records


def _open(file: Path | BinaryIO, asked: _Asked, name: str, format: Format | None, labels: Sequence[str]) -> Records:
    """Open a file or stream with the encoding, quote and delimiter of the settings, else those of the rows `like` it if they
    are its own too, else a delimiter that its rows show. A stream is UTF-8, since it cannot be read twice.

    The delimiter of the other rows is its own if it is the only mark in the first row of a TSV or CSV. Any delimiter is if it
    separates the names of columns. Labelled rows need no names, since texts alone may hold a mark by chance.
    """
    config, like, is_input = asked.config, asked.like, asked.is_input
    path, encoding = file if isinstance(file, Path) else None, UTF8 if config.encoding is None else config.encoding
    if path is not None and like is not None and config.encoding is None:
        encoding = encoding_of(path, like.encoding)
    format = format or ("folders" if path and path.is_dir() and not is_input else format_of(str(path or name)))
    quote = config.quote or (like.quote if like is not None and like.format == format else None)
    own = None if like is None else like.own_delimiter
    its: Separation = (",", "csv", None) if is_input else (None, None, None)
    if like is not None and like.delimiter is not None:
        its = like.delimiter, like.format, like.quote

    def choose(first: str) -> Separation:
        mark = None
        is_sole = not any(other in first for other in DELIMITERS if other != own)
        if (
            own
            and own in first
            and ((is_sole and (is_table(format) or not is_input)) or asked.names_columns(first, own))
        ):
            mark = own
        elif asked.layout.header is not False:
            mark = None if path is None else recognised_delimiter(path, encoding, format, quote)
            if mark is None or (is_input and not asked.names_columns(first, mark)):
                mark = its[0] if format is None and its[0] and asked.names_columns(first, its[0]) else None
        return (None, None, None) if mark is None else (mark, its[1], its[2] if format is None else None)

    named = asked.layout.delimiter
    records = read_records(
        file, format, name=name, delimiter=named or choose, labels=labels, encoding=encoding, quote=quote
    )
    if records.delimiter not in (None, FORMATS[records.format].delimiter, named, own):
        records.notes.append(Note(f"{records.name}: {recognised_in_words(str(records.delimiter))}"))
    return records


def read_as_in_words(encoding: str) -> str:
    """Return the words that tell that a file was read in the encoding of the training rows."""
    what = f"read as {escaped(encoding)}, the encoding of the training rows, since UTF-8 has more faults"
    return f"{what}; --encoding names another"


def usual_labels(like: Source | None) -> tuple[str, ...]:
    """Return the usual names of the column of a label, after its name in the rows `like` these."""
    return LABEL_NAMES if like is None or like.label is None else (like.label, *LABEL_NAMES)


def is_header(
    name: str,
    rows: Sequence[Record],
    option: bool | None,
    explicit: TextColumns,
    others: Iterable[str | None],
    like: Source | None,
    *,
    labelled: bool = False,
) -> tuple[bool, str]:
    """Return whether row 1 of a TSV or CSV is a header, and a note that says so, which is "" if an option or a name decides.

    `rows`: the first rows, with numbers as keys. `explicit` and `others`: the columns that settings name. A text is looked
    for, a second text if it is explicit or the rows `like` these have one, and a label if the rows are `labelled`. The first
    that applies decides:

    1. The `option`.
    2. Explicit columns with names are in a header. The caller refuses a name that is missing. Numbers change nothing.
    3. A single cell is a header if it is in SOLE_NAMES or the name of the text in the rows `like` these, else a row.
    4. Of several cells, some are the names of the texts in the rows `like` these, or usual names of all texts that are looked
       for, and one is the name of a label that is looked for, there or usually. Each is a cell of its own, which no later row
       repeats.
    5. Where only a part of 4 holds, row 1 is in doubt. Where nothing holds, it is a row.

    Raises DataError for a row in doubt.
    """
    if option is not None or not rows:
        return bool(option), ""
    if not all(map(is_number, filter(None, (*explicit.names, *others)))):
        return True, ""
    cells, fault = rows[0].fields, rows[0].fault
    places = {folded(cell): key for key, cell in reversed(cells.items())}
    before = TextColumns() if like is None else like.columns
    known = [] if any(map(is_number, before.names)) else [(f"'{escaped(name)}'", (name,)) for name in before.names]
    if len(cells) == 1:
        names = (*SOLE_NAMES, *(before.names if len(known) == 1 else ()))
        return (
            (True, AS_NAMES) if fault is None and not places.keys().isdisjoint(map(folded, names)) else (False, AS_ROW)
        )
    labels = [("the label", usual_labels(like))] * labelled
    seconds = [("the second text", SECOND_NAMES)] * bool(explicit.pair or before.pair)
    doubt = ""
    for looked_for in ([*known, *labels] if known else [], [("the text", TEXT_NAMES), *seconds, *labels]):
        present: list[str] = []
        lacking: list[str] = []
        for what, candidates in looked_for:
            keys = [places[folded(name)] for name in candidates if folded(name) in places]
            left = [key for key in keys if key not in present]
            present += left[:1]
            lacking += [] if left else [what]
        if present and lacking:
            doubt = f"'{escaped(cells[present[0]], 60)}' seems to name a column, but no cell names {lacking[0]}"
        elif present:
            doubt = fault or ""
            for later, key in product(rows[1:], present):
                if not doubt and later.fields[key] == cells[key]:
                    doubt = f"'{escaped(cells[key], 60)}' seems to name a column, but line {later.line} has it, too"
            if not doubt:
                return True, AS_NAMES
            break
    if not doubt:
        return False, AS_ROW
    raise DataError(f"{name}:1: {fault or doubt}; add --header or --no-header")


def find_texts(
    columns: ColumnNames,
    explicit: TextColumns,
    like: Source | None,
    cells: Sequence[str] = (),
    *,
    labelled: bool = False,
    by_place: bool = False,
) -> TextColumns:
    """Find the columns of the text and of the second text: those that are `explicit`, else those of the rows `like` these,
    else those with a usual name, else a single column of rows that are not `labelled`.

    `by_place`: the columns have no names, so that the first are the texts. A second text belongs to a pair only: if the
    column of the text is not explicit, it has the usual name beside that of the text. Raises DataError for pairs if
    the others are single texts, for single texts if these are pairs, and if a text is not found. `cells`: see `ask`.
    """
    before = TextColumns() if like is None else like.columns

    def find(
        what: str, explicit: tuple[str, ...], before: tuple[str, ...], usual: Sequence[str], text: tuple[str, ...] = ()
    ) -> tuple[str, ...]:
        if explicit:
            return tuple(columns.find(name, what) for name in explicit)
        found = [columns.find_usual([name], text) for name in before]
        if before and None not in found:
            return tuple(filter(None, found))
        left = [key for key in columns.keys if key not in text]
        if by_place:
            if len(before) > 1 and 1 < len(columns.keys) != len(like.columns.names if like else ()):
                raise columns.ask(what, cells)
            return tuple(left[: max(len(before), 1)])
        if len(before) > 1 and len(columns.names) > 1:
            missing, joins = escaped(before[found.index(None)]), " + ".join(map(escaped, before))
            fault = f"has no column '{missing}', and the {what} in training is {joins}"
            raise DataError(f"{columns.source}: {fault}; {option(what)} names another")
        if (key := columns.find_usual(usual, text)) is not None:
            return (key,)
        if what == "pair":
            return ()
        if len(left) != 1 or labelled:
            raise columns.ask(what, cells)
        return tuple(left)

    text = find("text", explicit.text, before.text, TEXT_NAMES)
    names = tuple(map(columns.name_of, text))
    seconds = [PAIR_NAMES[folded(names[0])]] if names and folded(names[0]) in PAIR_NAMES else []
    explicit_in_run = like is not None and "text" in like.explicit and names == before.text
    pair: tuple[str, ...] = ()
    if explicit.pair or before.pair:
        pair = find("pair", explicit.pair, before.pair, [*seconds, *SECOND_NAMES], text)
    elif not explicit.text and not explicit_in_run and (second := columns.find_usual(seconds, text)) is not None:
        pair = (second,)
    shown = TextColumns(names, tuple(map(columns.name_of, pair)))
    for names in (shown.text, shown.pair):
        if (twice := first_repeated(names)) is not None:
            raise columns.read_twice(twice, "the text twice")
    check_same_kind(columns.source, shown, like)
    return TextColumns(text, pair)


def check_same_kind(name: str, texts: TextColumns, like: Source | None) -> None:
    """Raise DataError if the file `name` holds pairs of texts and the rows `like` it are single texts, or vice versa."""
    if like is None or not like.columns.text or bool(texts.pair) == bool(like.columns.pair):
        return
    kinds = "single texts", "pairs of texts"
    shown = " and ".join(f"'{escaped(' + '.join(names))}'" for names in (texts.text, texts.pair) if names)
    others = f"{like.name} has {kinds[bool(like.columns.pair)]}"
    way_out = "give rows of one kind, or name their columns with --text and --pair"
    raise DataError(f"{name}: holds {kinds[bool(texts.pair)]} ({shown}), but {others}; {way_out}")


def unread_in_words(names: Iterable[str], text: Sequence[str], read: Collection[str | None]) -> str:
    """Return which `names`, usual ones of a text, are not `read` beside those of the `text`, or "" if there are none."""
    unread = [name for name in names if folded(name) in {*TEXT_NAMES, *SECOND_NAMES} and name not in read]
    shown = " and ".join(f"'{escaped(name)}'" for name in unread)
    is_not = f"{'is' if len(unread) == 1 else 'are'} not read (--text may be repeated)"
    return f"the text is '{escaped(' + '.join(text))}'; {shown} {is_not}" if unread else ""


def _notes_on_places(
    records: Records, rows: Sequence[Record], texts: TextColumns, asked: _Asked, like: Source
) -> Iterator[Note]:
    """Yield warnings about an input without names of columns: texts by their place, and a delimiter that was not taken."""
    named, name, keys = asked.texts.text and (asked.texts.pair or not texts.pair), records.name, records.columns
    if not named and len(keys) > 1 and texts.names != like.columns.names:
        what = f"column {' and '.join(texts.names)} of {len(keys)} as the {'texts' if texts.pair else 'text'}"
        yield Note(f"{name}: taking {what}; --text and --pair name others", "warning")
    first = str(rows[0].fields["1"]) if rows and len(keys) == 1 else ""
    if mark := next((mark for mark in DELIMITERS if asked.names_columns(first, mark)), None):
        what = f"every row is taken as one text, but {in_words(mark)} seems to separate fields"
        yield Note(f"{name}: {what}; --delimiter MARK reads them", "warning")
