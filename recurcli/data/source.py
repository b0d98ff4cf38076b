"""What one file of rows is like: its format, encoding, fields, header and columns, decided once (`find_source`).

A setting decides first, then the file, then what the training rows were like, whose `Source` a run stores, then usual names.
Training, `check`, `eval` and `predict` read every file by these functions.
"""

import contextlib
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, BinaryIO, Self

from recurcli.config import QUOTE, UTF8, DataConfig
from recurcli.data.columns import TextColumns, folded
from recurcli.data.proposal import CLEARLY_LONGER, are_twins, is_like_others, likely_labels, mean_lengths
from recurcli.data.readers import (
    DELIMITERS,
    FORMATS,
    Place,
    Separation,
    format_of,
    in_words,
    is_table,
    needs_quotes,
    read_records,
    recognised_delimiter,
    recognised_in_words,
)
from recurcli.data.rows import Format, Record, Records, encoding_of, first_repeated, labels_beside
from recurcli.data.tasks import CUSTOM, PLAIN, Layout, Task
from recurcli.errors import DataError, ModelError, UsageError, did_you_mean, escaped
from recurcli.log import Note
from recurcli.targets.one_label import is_number
from recurcli.validation import STRICT, parse_config

TEXT_NAMES = (
    *("text", "sentence", "sentence1", "premise", "question1", "text1", "text_a", "review", "content", "query"),
    *("review_text", "review text", "reviewtext", "review_body", "comment_text", "utterance"),
    *("title", "question", "comment", "message", "tweet", "headline", "body"),
)
"""Usual names of the column of a text, the likelier first."""
PAIR_NAMES = {
    "text": "pair",
    "sentence": "pair",
    "sentence1": "sentence2",
    "premise": "hypothesis",
    "question1": "question2",
    "text1": "text2",
    "text_a": "text_b",
}
"""Usual name of the first text's column to that of the second text's."""
SECOND_NAMES = tuple(dict.fromkeys(PAIR_NAMES.values()))
LABEL_NAMES = (
    *("label", "labels", "class", "category", "target", "sentiment", "intent", "topic", "stars", "rating", "y"),
    *("gold_label", "is_duplicate", "star_rating", "score", "int_score", "toxicity", "cats", "accept"),
)
ID_NAMES = ("id", "idx", "index", "guid", "uid")

SOLE_NAMES = ("text", "sentence")
"""If the only cell of the first row is one of these names, the row is a header. Other usual names may also be texts."""
ROWS_FOR_HEADER = 1000
"""Rows in which a cell of a header must not stand again in its column."""
FEWEST_ROWS = 4
"""Rows below line 1 that show whether it is a header. Ours."""
ROWS_OF_FIRST_WORD = 10
"""Rows for each first word from which the first words of lines without columns seem to be labels. Ours."""
LIKE_LENGTH = 1.5
"""How many times as long as those of the other column the texts of a pair are at most. Ours."""
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
    """Whether line 1 of a table names the columns."""
    columns: TextColumns
    label: tuple[str, ...] = ()
    """Column of the label, or columns of 0 and 1, one for each label. () if labels were not read."""
    id: str | None = None
    extra: tuple[str, ...] = ()
    """Columns whose texts are training rows of their own."""
    label_names: dict[str, str] = field(default_factory=dict)
    """What labels of training rows, such as numbers, are called in the model. Later rows may have either."""
    explicit: tuple[str, ...] = ()
    """Which columns ("text", "label") a setting names. Labelled rows like these must have them; others have usual names."""
    sha256: str = ""
    """SHA-256 of the file's bytes, or of the rows if it is not a file. It is empty before all rows are read."""

    def __post_init__(self) -> None:
        if (FORMATS[self.format].delimiter is None) != (self.delimiter is None):
            raise ValueError(f"delimiter does not fit the format {self.format}")
        DataConfig(delimiter=self.delimiter, quote=self.quote, encoding=self.encoding)  # checks them

    @property
    def own_delimiter(self) -> str | None:
        """The delimiter if it is not the usual one of the format."""
        return None if self.delimiter == FORMATS[self.format].delimiter else self.delimiter

    @classmethod
    def from_json(cls, stored: Mapping[str, Any], path: Path) -> "Source":
        """Return the source that the file `path` stores as `asdict` of it. Raises ModelError if it is missing or damaged."""
        try:
            source = parse_config(cls, stored)
            if not source.columns.text:
                raise UsageError("columns: must name a text")
            return source
        except UsageError as error:
            raise ModelError(f"{path}: is damaged: source: {error}") from None


UNKNOWN = Source(name="", format="jsonl", columns=TextColumns())
"""The source of no rows: a file that is to be like it is like any."""


def find_source(
    file: Path | BinaryIO | Records,
    task: Task,
    config: DataConfig,
    layout: Layout = PLAIN,
    *,
    like: Source = UNKNOWN,
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

    The header of a table is taken if `is_header` finds one in the `peeked` rows. `Records.notes` tells what was decided
    without a setting. Raises DataError for a file that cannot be read, for a column that is missing or has no usual name, and
    for pairs beside single texts.
    """
    texts, label = TextColumns(layout.text or task.text, task.pair), layout.label or task.label
    if not is_input:
        if not texts.text and "text" in like.explicit:
            texts = replace(like.columns, pair=texts.pair or like.columns.pair)
        label = label or (like.label if "label" in like.explicit else ())
    header = layout.header if config.header is None else config.header
    finder = _Finder(task, config, like, texts, label if labelled else (), header, labelled, is_input)
    records = file if isinstance(file, Records) else finder.open(file, name, format)
    with contextlib.ExitStack() as on_error:
        on_error.enter_context(records)
        source = finder.decide(records, peeked, config.extra_rows if training else ())
        on_error.pop_all()
    return replace(source, path=str(file)) if isinstance(file, Path) else source, records


def read_source(source: Source, start: Place | None = None) -> Records:
    """Open the file of an input again. Its records have numbers as keys, and begin after the header, or at `start`."""
    read = partial(read_records, encoding=source.encoding, delimiter=source.delimiter, quote=source.quote)
    records = read(str(source.path), source.format, start=start)
    if source.header and start is None:
        next(records, None)
    return records


@dataclass(frozen=True)
class _Finder:
    """What decides before a file does: the settings, and the rows that the file is to be `like`."""

    task: Task
    config: DataConfig
    like: Source
    texts: TextColumns
    """The columns of the texts that settings name."""
    label: tuple[str, ...]
    """The columns of the label that a setting names."""
    header: bool | None
    labelled: bool
    is_input: bool

    def open(self, file: Path | BinaryIO, name: str, format: Format | None) -> Records:
        """Open a file or stream with the encoding, quote and delimiter of the settings, else those of the rows `like` it if
        they are its own too, else a delimiter that its rows show. A stream is UTF-8, since it cannot be read twice.

        The delimiter of the other rows is its own if it is the only mark in the first row of a TSV or CSV. Any delimiter is if
        it separates the names of columns. Labelled rows need no names, since texts alone may hold a mark by chance.
        """
        task, config, like, path = self.task, self.config, self.like, file if isinstance(file, Path) else None
        if format is None:
            format = "folders" if path and path.is_dir() and not self.is_input else format_of(str(path or name))
        encoding, remark = config.encoding or UTF8, ""
        if config.encoding is None and path is not None and format not in ("parquet", "excel"):
            encoding, remark = encoding_of(path, like.encoding)
            if encoding != UTF8 and not remark:
                remark = read_as_in_words(encoding)
        quote = config.quote or (like.quote if like.format == format else None)
        its: Separation = like.delimiter, like.format, like.quote
        if like.delimiter is None:
            its = (",", "csv", None) if self.is_input else (None, None, None)

        def choose(first: str) -> Separation:
            names, mark = partial(self.names_columns, first), like.own_delimiter
            others = "\t" if mark == " " else DELIMITERS  # the texts after a space may have any other mark
            is_sole = not any(other in first for other in others if other != mark)
            is_sole = is_sole and (is_table(format) or not self.is_input)
            if mark is None or mark not in first or not (is_sole or names(mark)):
                mark = None
                if self.header is not False:
                    mark = None if path is None else recognised_delimiter(path, encoding, format, quote)
                    if mark is None or (self.is_input and not names(mark)):
                        mark = its[0] if format is None and its[0] and names(its[0]) else None
            return (None, None, None) if mark is None else (mark, its[1], its[2] if format is None else None)

        labels = task.labels if task.name != CUSTOM or config.labels else ()  # task `custom`: every folder is a label
        read = partial(read_records, file, name=name, labels=labels, encoding=encoding)
        records = read(format, delimiter=config.mark or choose, quote=quote)
        if (
            path
            and (records.format, records.quote) == ("tsv", None)
            and needs_quotes(path, encoding, records.delimiter)
        ):
            records.__exit__()
            records = read(records.format, delimiter=records.delimiter, quote=QUOTE)
            records.remarks.append("its fields in quotes are read without them, as in a CSV")
        records.remarks += [remark] if remark else []
        usual = FORMATS[records.format].delimiter
        if records.delimiter not in (None, usual, config.mark, like.own_delimiter):
            records.remarks.append(recognised_in_words(str(records.delimiter)))
        return records

    def names_columns(self, first: str, mark: str) -> bool:
        """Return whether `mark` separates the name of a column from others in the row `first`: a usual one, one that a
        setting names, or one of the rows `like` these."""
        usual = (*TEXT_NAMES, *SECOND_NAMES, *LABEL_NAMES, *ID_NAMES)
        known = {folded(name) for name in (*usual, *self.texts.names, *self.like.columns.names) if not is_number(name)}
        return mark in first and not known.isdisjoint(folded(part.strip("\"'")) for part in first.split(mark))

    def decide(self, records: Records, peeked: int, extra: Iterable[str | int]) -> Source:
        """Decide on the header, which is taken, and on the columns of `records`."""
        config, like, label, is_input = self.config, self.like, self.label, self.is_input
        row_id, in_table = None if config.id is None else str(config.id), is_table(records.format)
        rows = records.peek(peeked)
        note, cells, header = "", (), False
        names = keys = records.columns
        if in_table:
            header, note = self.is_header(records.name, rows)
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
        propose = partial(self.propose, rows, in_table=in_table, header=header or self.header)
        is_complete = is_input or records.format != "jsonl"
        columns = ColumnNames(
            records.name, names, keys, is_complete=is_complete, propose=propose, remarks=records.remarks
        )
        by_place = is_input and in_table and not header
        if records.format == "jsonl" and names and all(map(is_number, names)) and not (is_input or like.columns.text):
            self = self.with_likely_columns(records, rows)
            label = self.label
        texts = self.find_texts(columns, cells, by_place=by_place) if names or not is_input else like.columns
        if not label and self.labelled:
            usual = columns.find_usual_label(self.like.label)
            if not usual:
                raise columns.ask("label", cells)
            label = usual
        else:
            label = tuple(columns.find(name, "label") for name in label)
        for name in {*label} & {*texts.names}:
            raise columns.read_twice(name, "the text and the label")
        if row_id is not None:
            row_id = columns.find(row_id, "id")
        elif not is_input:
            row_id = next((key for key in (like.id, self.task.id, *ID_NAMES) if key in names), None)
        more = (columns.look_up(str(word)) if columns.is_complete else str(word) for word in extra)
        found, read = tuple(filter(None, more)), tuple(map(columns.name_of, texts.names))
        if by_place:
            records.notes += self.notes_on_places(records, rows, texts)
        spelled = dict(zip(rows[0].fields if rows else (), names, strict=False))
        lengths = {spelled[key]: length for key, length in mean_lengths(rows, spelled).items()}
        unread = unread_in_words(names, lengths, read[: len(texts.text)], {*read, *label, row_id, *found})
        decided = "; ".join(filter(None, [*records.remarks, note]))
        is_shown = is_input or records.remarks
        records.notes += [Note(f"{records.name}: {decided}", "info" if is_shown else "detail")] * bool(decided)
        if unread and not self.texts.text:
            records.notes.append(Note(f"{records.name}: {unread}"))
        spans = self.task.spans
        if is_input:
            spans = None if in_table else like.columns.spans
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
            extra=found,
            explicit=(*["text"] * bool(self.texts.text), *["label"] * bool(self.label)),
        )

    def is_header(self, name: str, rows: Sequence[Record]) -> tuple[bool, str]:
        """Return whether row 1 of a table is a header, and a note that says so, which is "" if a setting decides.

        `rows`: the first rows, with numbers as keys. A text is looked for, a second text if it is explicit or the rows `like`
        these have one, and a label if the rows are `labelled`. The first that applies decides:

        1. The setting `header`.
        2. Explicit columns with names are in a header. The caller refuses a name that is missing. Numbers change nothing.
        3. A single cell is a header if it is in SOLE_NAMES or the name of the text in the rows `like` these, else a row.
        4. Of several cells, some are the names of the texts in the rows `like` these, or usual names of all texts that are
           looked for, and one is the name of a label that is looked for, there or usually. Each is a cell of its own, which no
           later row repeats.
        5. Where only a part of 4 holds, row 1 is in doubt. Where nothing holds, it is a row.

        Raises DataError for a row in doubt.
        """
        if self.header is not None or not rows:
            return bool(self.header), ""
        explicit = (*self.texts.names, *self.label, str(self.config.id or ""))
        if not all(map(is_number, filter(None, explicit))):
            return True, ""
        cells, fault = rows[0].fields, rows[0].fault
        places = {folded(cell): key for key, cell in reversed(cells.items())}
        before = self.like.columns
        known = [] if any(map(is_number, before.names)) else [(f"'{escaped(name)}'", (name,)) for name in before.names]
        if len(cells) == 1:
            names = (*SOLE_NAMES, *(before.names if len(known) == 1 else ()))
            return (
                (True, AS_NAMES)
                if fault is None and not places.keys().isdisjoint(map(folded, names))
                else (False, AS_ROW)
            )
        labels = [("the label", self.label_names)] * self.labelled
        seconds = [("the second text", SECOND_NAMES)] * bool(self.texts.pair or before.pair)
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
        options = self.propose(rows)
        raise DataError(
            f"{name}:1: {fault or doubt}; add {shlex.join(options) or '--header or --no-header'}", options=options
        )

    def propose(self, rows: Sequence[Record], *, in_table: bool = True, header: bool | None = None) -> tuple[str, ...]:
        """Return the options that name the texts and the label which the first `rows` show, () if they do not show them.

        `header`: whether row 1 of a table names the columns; None: it does if it is unlike the rows below it. Options hold for
        all files of a command, so that there are none for rows that are to be like the training rows beside them.
        """
        like, is_open = self.like.columns, in_table and header is None
        if len(rows) <= is_open * FEWEST_ROWS or (like.text and not (self.is_input and len(like.names) == 1)):
            return ()
        keys = dict.fromkeys(key for row in rows for key in row.fields)
        if is_open and self.labelled and len(keys) == 1 and not (self.texts.text or self.label):
            firsts = {str(row.fields["1"]).partition(" ")[0] for row in rows}
            seems = len(firsts) > 1 and len(firsts) * ROWS_OF_FIRST_WORD <= len(rows)
            return ("--delimiter", "SPACE", "--text", "2", "--label", "1", "--no-header") if seems else ()
        for is_header in (True, False) if is_open else (in_table and header,):
            names = {key: str(rows[0].fields.get(key, "")) if is_header else key for key in keys}
            below = rows[1:] if is_header else rows
            texts, labels = self.likely_columns(below, names, has_names=is_header or not in_table)
            has_all = (texts or self.texts.text) and (labels or self.label or not self.labelled)
            if has_all and not (is_open and is_header and is_like_others(rows[0], below, texts, labels)):
                words = {key: name if name.strip() and not is_number(name) else key for key, name in names.items()}
                found = [*zip(("--text", "--pair"), texts, strict=False), *(("--label", key) for key in labels)]
                options = [word for option, key in found for word in (option, words[key])]
                decided = ["--header" if is_header else "--no-header"]
                return (*options, *(decided if is_open and all(is_number(words[key]) for _, key in found) else ()))
        return ()

    def likely_columns(
        self, rows: Sequence[Record], names: Mapping[str, str], *, has_names: bool
    ) -> tuple[list[str], list[str]]:
        """Return the keys of the columns that seem to be the texts (two for a pair) and the label, [] for explicit ones.

        `names`: the name of each key, which `has_names` says are not numbers. The text is that with a usual name if no texts
        are clearly longer. A second text has the usual name beside it, else is of like length and named as its twin.
        """
        explicit = {*self.texts.names, *self.label}
        left = {key: name for key, name in names.items() if explicit.isdisjoint((key, name))}
        spelled = {folded(name): key for key, name in reversed(left.items())}
        lengths = {key: length for key, length in mean_lengths(rows, left).items() if length > 1}
        texts: list[str] = []
        labels: list[str] = []
        if lengths and not self.texts.text:
            longest = next(iter(lengths))
            text = next((spelled[name] for name in TEXT_NAMES if spelled.get(name) in lengths), longest)
            text = longest if lengths[longest] >= CLEARLY_LONGER * lengths[text] else text
            alike = [key for key in lengths if key != text and lengths[key] * LIKE_LENGTH >= lengths[text]]
            pairs = [sorted((text, key), key=[*left].index) for key in alike]
            twins = [pair for pair in pairs if not has_names or are_twins(*(names[key] for key in pair))]
            second = spelled.get(PAIR_NAMES.get(folded(names[text]), "pair"))
            texts = [text, second] if second else [*twins, [text]][0]
            texts = [text] if self.is_input else texts
        if self.labelled and not self.label:
            labels = [spelled[name] for name in LABEL_NAMES if name in spelled][:1]
            others = {key: name for key, name in left.items() if key not in texts}
            labels = labels or likely_labels(rows, others, LABEL_NAMES)
        return texts, labels

    def with_likely_columns(self, records: Records, rows: Sequence[Record]) -> Self:
        """Return what decides about `records` that are lists and have no names: the settings, else what the rows show."""
        texts, labels = self.likely_columns(rows, {key: key for key in records.columns}, has_names=False)
        if texts:
            numbers = f"number {' and '.join(texts)}" + (f", the label number {' and '.join(labels)}" if labels else "")
            records.notes.append(
                Note(f"{records.name}: of each list the text is {numbers}; --text and --label name others")
            )
        found = TextColumns(tuple(texts[:1]), tuple(texts[1:])) if texts else self.texts
        return replace(self, texts=found, label=tuple(labels) or self.label)

    def find_texts(self, columns: "ColumnNames", cells: Sequence[str], *, by_place: bool) -> TextColumns:
        """Find the columns of the text and of the second text: those that settings name, else those of the rows `like` these,
        else those with a usual name, else a single column of rows that are not `labelled`.

        `by_place`: the columns have no names, so that the first are the texts. A second text belongs to a pair only: if the
        column of the text is not explicit, it has the usual name beside that of the text. Raises DataError for pairs if
        the others are single texts, for single texts if these are pairs, and if a text is not found. `cells`: see `ask`.
        """
        explicit, before = self.texts, self.like.columns

        def find(
            what: str,
            explicit: tuple[str, ...],
            before: tuple[str, ...],
            usual: Sequence[str],
            text: tuple[str, ...] = (),
        ) -> tuple[str, ...]:
            if explicit:
                return tuple(columns.find(name, what) for name in explicit)
            found = [columns.find_usual([name], text) for name in before]
            if before and None not in found:
                return tuple(filter(None, found))
            left = [key for key in columns.keys if key not in text]
            if by_place:
                if len(before) > 1 and 1 < len(columns.keys) != len(self.like.columns.names):
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
            if len(left) != 1 or self.labelled:
                raise columns.ask(what, cells)
            return tuple(left)

        text = find("text", explicit.text, before.text, TEXT_NAMES)
        names = tuple(map(columns.name_of, text))
        seconds = [PAIR_NAMES[folded(names[0])]] if names and folded(names[0]) in PAIR_NAMES else []
        explicit_in_run = "text" in self.like.explicit and names == before.text
        pair: tuple[str, ...] = ()
        if explicit.pair or before.pair:
            pair = find("pair", explicit.pair, before.pair, [*seconds, *SECOND_NAMES], text)
        elif not explicit.text and not explicit_in_run and (second := columns.find_usual(seconds, text)) is not None:
            pair = (second,)
        shown = TextColumns(names, tuple(map(columns.name_of, pair)))
        for names in (shown.text, shown.pair):
            if (twice := first_repeated(names)) is not None:
                raise columns.read_twice(twice, "the text twice")
        check_same_kind(columns.source, shown, self.like)
        return TextColumns(text, pair)

    def notes_on_places(self, records: Records, rows: Sequence[Record], texts: TextColumns) -> Iterator[Note]:
        """Yield warnings about an input without names of columns: texts by their place, and a delimiter that was not taken."""
        named, name, keys = self.texts.text and (self.texts.pair or not texts.pair), records.name, records.columns
        if not named and len(keys) > 1 and texts.names != self.like.columns.names:
            what = f"column {' and '.join(texts.names)} of {len(keys)} as the {'texts' if texts.pair else 'text'}"
            yield Note(f"{name}: taking {what}; --text and --pair name others", "warning")
        first = str(rows[0].fields["1"]) if rows and len(keys) == 1 else ""
        if mark := next((mark for mark in DELIMITERS if self.names_columns(first, mark)), None):
            what = f"every row is taken as one text, but {in_words(mark)} seems to separate fields"
            yield Note(f"{name}: {what}; --delimiter MARK reads them", "warning")

    @property
    def label_names(self) -> tuple[str, ...]:
        """The names that a label column may have: those in the rows `like` these first, then the usual ones."""
        return (*(name for name in self.like.label if not is_number(name)), *LABEL_NAMES)


@dataclass(frozen=True)
class ColumnNames:
    """The columns of a file, looked up by name, number or usual name."""

    source: str
    """Prefix of messages."""
    names: tuple[str, ...]
    keys: tuple[str, ...]
    """The keys of `names` in the records."""
    is_complete: bool = True
    """Whether there are no others. JSON rows may have keys that the first one lacks."""
    propose: Callable[[], tuple[str, ...]] = tuple
    """Returns the options that would name the columns which are asked for."""
    remarks: Sequence[str] = ()
    """How the file was read, if that was not obvious."""

    def find(self, word: str, what: str) -> str:
        """Return the key of the column with the name `word`, else with that number from 1, which is to be the `what`.

        Raises DataError with the way out if there is none.
        """
        if not self.is_complete:
            return word
        if (key := self.look_up(word)) is not None:
            return key
        way_out = escaped(did_you_mean(word, self.names), 400)
        raise DataError(f"{self.source}: has no column '{escaped(word)}'{way_out}; {option(what)} names another")

    def look_up(self, word: str) -> str | None:
        """Return the key of the column with the name `word`, else with that number from 1, or None if there is none."""
        if word in self.names:
            return self._only(word)
        return self.keys[int(word[:9]) - 1] if is_number(word) and 0 < int(word[:9]) <= len(self.keys) else None

    def find_usual(self, usual: Iterable[str], taken: Collection[str] = ()) -> str | None:
        """Return the key of the first of the `usual` names that is a column, in any case, or None if none is."""
        spellings = {folded(name): name for name in reversed(self.names)}
        for name in usual:
            spelled = name if name in self.names else spellings.get(folded(name))
            if spelled is not None and (key := self._only(spelled)) not in taken:
                return key
        return None

    def find_usual_label(self, before: tuple[str, ...]) -> tuple[str, ...]:
        """Return the keys of the label columns `before` if all are there, else the key of a usual one, else ()."""
        found = [self.find_usual([name]) for name in before]
        if before and None not in found:
            return tuple(filter(None, found))
        usual = self.find_usual(LABEL_NAMES)
        return () if usual is None else (usual,)

    def name_of(self, key: str) -> str:
        """Return the name of the column with this key; the key itself if there is none."""
        return self.names[self.keys.index(key)] if key in self.keys else key

    def ask(self, what: str, cells: Sequence[str] = ()) -> DataError:
        """Return the error for a column that was not found. It names the option to add, and lists the columns.

        `what` is "text" or "label", for example. `cells` are the cells of line 1 if that line is taken as a row.
        """
        if not self.names:
            return DataError(f"{self.source}: has no rows, or its first rows cannot be read")
        path = Path(self.source)
        if format_of(self.source) is None and (other := labels_beside(path)) is not None:
            joined = shlex.join(["paste", str(path), str(other)])
            way_out = f"add --labels {shlex.quote(str(other))}, or join them: {joined} > train.tsv"
            fault = f"its labels seem to be in {other.name}, which has as many lines"
            return DataError(f"{self.source}: {fault}; {way_out}", options=("--labels", str(other)))
        options = self.propose()
        question = f"which column is the {what}?"
        if {"--text", "--label"} <= {*options}:
            question = "which columns are the text and the label?"
        answer = f"add {option(what)}" + (", a name in line 1 or a number" if cells else "")
        answer += f", or {option('delimiter', 'MARK')} if it has several columns" if len(self.names) == 1 else ""
        answer = f"add {shlex.join(options)}" if options else answer
        shown = ", ".join(escaped(name, 40) for name in (cells or self.names)[:20])
        columns = f"{'line 1 is' if cells else 'the columns are'}: {shown}"
        remarks = "".join(f"; {remark}" for remark in self.remarks)
        return DataError(f"{self.source}: {question} {answer}; {columns}{remarks}", options=options)

    def read_twice(self, name: str | None, what: str) -> DataError:
        """Return the error for the column `name`, which would be read as `what`."""
        return DataError(
            f"{self.source}: the column '{escaped(name)}' is taken as {what}; {option('text')} names another"
        )

    def _only(self, name: str) -> str:
        if self.names.count(name) > 1:
            raise DataError(f"{self.source}: has the column '{escaped(name)}' twice; give its number")
        return self.keys[self.names.index(name)]


def option(key: str, value: str = "COLUMN") -> str:
    """Return the option of the commands that sets `data.<key>`, as messages show it."""
    return f"--{key} {value}"


def check_same_kind(name: str, texts: TextColumns, like: Source) -> None:
    """Raise DataError if the file `name` holds pairs of texts and the rows `like` it are single texts, or vice versa."""
    if not like.columns.text or bool(texts.pair) == bool(like.columns.pair):
        return
    kinds = "single texts", "pairs of texts"
    shown = " and ".join(f"'{escaped(' + '.join(names))}'" for names in (texts.text, texts.pair) if names)
    others = f"{like.name} has {kinds[bool(like.columns.pair)]}"
    way_out = "give rows of one kind, or name their columns with --text and --pair"
    raise DataError(f"{name}: holds {kinds[bool(texts.pair)]} ({shown}), but {others}; {way_out}")


def unread_in_words(
    names: Iterable[str], lengths: Mapping[str, float], text: Sequence[str], read: Collection[str | None]
) -> str:
    """Return which `names` are not `read` beside those of the `text`, but may be texts, too, or "" if none is.

    They are usual names of a text, and those of columns whose mean length is clearly longer.
    """
    least = max(CLEARLY_LONGER * sum(lengths.get(name, 0) for name in text), 2)
    usual = {*TEXT_NAMES, *SECOND_NAMES}
    unread = [name for name in names if name not in read and (folded(name) in usual or lengths.get(name, 0) >= least)]
    shown = " and ".join(f"'{escaped(name)}'" for name in unread)
    is_not = f"{'is' if len(unread) == 1 else 'are'} not read (--text may be repeated)"
    return f"the text is '{escaped(' + '.join(text))}'; {shown} {is_not}" if unread else ""


def read_as_in_words(encoding: str) -> str:
    """Return the words that tell that a file was read in the encoding of the training rows."""
    what = f"read as {escaped(encoding)}, the encoding of the training rows, since UTF-8 has more faults"
    return f"{what}; --encoding names another"
