"""Finds the columns of text, second text, label and id by name, by number, or by usual names.

Labelled rows (`find_columns`) and the inputs of `recur predict` (`find_input_columns`) share one finder of texts.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Literal, NamedTuple

from recurcli.data.config import DataConfig
from recurcli.data.readers import DELIMITERS, USUAL_DELIMITERS, Separation, in_words
from recurcli.data.rows import QUOTE, Record, Records, first_repeated
from recurcli.data.tasks import PLAIN, Layout, Task
from recurcli.data.values import TextColumns, folded
from recurcli.errors import DataError, did_you_mean, escaped
from recurcli.log import Log

TEXT_NAMES = (
    *("text", "sentence", "sentence1", "premise", "question1", "text1", "text_a", "review", "content", "query"),
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
LABEL_NAMES = ("label", "labels", "class", "category", "target", "sentiment", "intent", "topic", "stars", "rating", "y")
ID_NAMES = ("id", "idx", "index", "guid", "uid")

SOLE_NAMES = ("text", "sentence")
"""If the only cell of the first row is one of these names, the row is a header. Other usual names may also be texts."""
ROWS_FOR_HEADER = 1000
"""Rows in which a cell of a header must not stand again in its column."""
NO_HEADER = "; --no-header reads line 1 as a row, with columns by number"


class Columns(NamedTuple):
    """Names of the columns in one file of labelled rows; None: absent or not requested."""

    texts: TextColumns
    label: str | None
    id: str | None
    extra: tuple[str, ...] = ()
    """Columns of `data.extra_rows`."""
    unread: tuple[str, ...] = ()
    """Columns with the usual name of a text that are not read, if no setting names the column of the text."""
    header: bool = False
    """Whether row 1 of a TSV or CSV names the columns."""
    note: str = ""
    """How line 1 was taken (see `is_header`)."""


class ColumnSchema(NamedTuple):
    """The columns of training rows. Other rows must be of the same kind, single texts or pairs, in columns of these names."""

    source: str
    """The name of the run or file that holds these rows."""
    columns: TextColumns
    is_run: bool = True
    """Whether `source` is a run."""
    same_file: bool = True
    """Whether explicit columns are those of this file. If not, their numbers are those of the training's file."""
    explicit: bool = False
    """Whether a setting names their columns. If not, they were found by their usual names."""
    delimiter: str | None = None
    """The separator of their fields; None: TAB or a comma."""
    quote: str = QUOTE
    format: Literal["tsv", "csv"] | None = None
    """The format of an input with this delimiter whose name does not tell it; None: TSV."""


@dataclass
class ColumnNames:
    """The columns of a file, looked up by name, number or usual name."""

    source: str
    """Prefix of messages."""
    names: tuple[str, ...]
    keys: tuple[str, ...]
    """The keys of `names` in the records."""
    _: KW_ONLY
    header: str = ""
    """Prefix of messages about a missing column; empty: `source`."""
    numbered: bool = True
    """Whether a column may be named by its number."""
    hint: str = ""
    """What is wrong with the columns, and the way out. It replaces other advice."""
    no_header: str = ""
    """The end of a message about a column, if line 1 names the columns and may be a row."""

    def find(self, word: str, what: str) -> str:
        """Return the key of the column with the name `word`, else with that number from 1, which is to be the `what`.

        Raises DataError with the way out if there is none.
        """
        if (key := self.look_up(word)) is not None:
            return key
        way_out = f"{escaped(did_you_mean(word, self.names), 400)}; {option(what)} names another"
        hint = (self.hint or way_out) + self.no_header
        raise DataError(f"{self.header or self.source}: has no column '{escaped(word)}'{hint}")

    def look_up(self, word: str) -> str | None:
        """Return the key of the column with the name `word`, else with that number from 1, or None if there is none."""
        if word in self.names:
            return self._only(word)
        if self.numbered and is_number(word) and 0 < int(word[:9]) <= len(self.keys):
            return self.keys[int(word[:9]) - 1]
        return None

    def find_usual(self, usual: Iterable[str], taken: Collection[str] = ()) -> str | None:
        """Return the key of the first of the `usual` names that is a column, in any case, or None if none is."""
        spellings = {folded(name): name for name in reversed(self.names)}
        for name in usual:
            spelled = name if name in self.names else spellings.get(folded(name))
            if spelled is not None and (key := self._only(spelled)) not in taken:
                return key
        return None

    def find_all(self, wanted: Sequence[str], taken: Collection[str] = ()) -> tuple[str, ...]:
        """Return the keys of all `wanted` names, in any case, or () if one is not a column or is `taken`."""
        keys = tuple(key for name in wanted if (key := self.find_usual([name], taken)) is not None)
        return keys if len(keys) == len(wanted) else ()

    def name_of(self, key: str) -> str:
        """Return the name of the column with this key; the key itself if there is none."""
        return self.names[self.keys.index(key)] if key in self.keys else key

    def ask(self, what: str, cells: Sequence[str] = ()) -> DataError:
        """Return an error that asks which column is the `what`. `cells`: those of line 1 if it is taken as a row."""
        answer = f"add {option(what)}, a name in line 1 or a number" if cells else f"add {option(what)}"
        question = self.hint.removeprefix("; ") or f"which column is the {what}? {answer}"
        shown = ", ".join(escaped(name, 40) for name in (cells or self.names)[:20])
        return DataError(f"{self.source}: {question}; {'line 1 is' if cells else 'the columns are'}: {shown}")

    def _only(self, name: str) -> str:
        if self.names.count(name) > 1:
            raise DataError(f"{self.source}: has the column '{escaped(name)}' twice; give its number{self.no_header}")
        return self.keys[self.names.index(name)]


def is_usual(name: object) -> bool:
    """Return whether `name` is a usual name of a text column."""
    return isinstance(name, str) and folded(name) in {*TEXT_NAMES, *PAIR_NAMES.values()}


def seconds_of(first: str) -> list[str]:
    """Return the usual name of the second text for a first text named `first`, or [] if unknown."""
    return [PAIR_NAMES[folded(first)]] if folded(first) in PAIR_NAMES else []


def is_number(word: str) -> bool:
    """Return whether `word` consists of ASCII digits."""
    return word.isascii() and word.isdigit()


def option(key: str, value: str = "COLUMN") -> str:
    """Return the option of the commands that sets `data.<key>`, as messages show it."""
    if key == "delimiter":
        value = "$'\\t'" if value == "\t" else f"'{value}'"
    return f"--{key} {value}"


def is_header(
    name: str,
    rows: Sequence[Record],
    option: bool | None,
    explicit: TextColumns,
    trained: ColumnSchema | None,
    *,
    labelled: bool | None = False,
    label: str | None = None,
    row_id: str | None = None,
) -> tuple[bool, str]:
    """Return whether row 1 of a TSV or CSV is a header, and a note that says so, which is "" if an option or a name decides.

    `rows`: the first rows, with numbers as keys. `explicit`, `label` and `row_id`: the columns that settings name. `trained`:
    the training rows that these are to be like. A text is looked for, a second text if it is explicit or `trained` has one,
    and a label unless `labelled` is False; it may be missing if this is None. The first that applies decides:

    1. The `option`.
    2. Explicit columns with names are in a header. The caller refuses a name that is missing. Numbers change nothing.
    3. A single cell is a header if it is in SOLE_NAMES or the name of the text in the training rows, else a row.
    4. Of several cells, some are the names of the texts in the training rows, or usual names of all texts that are looked
       for, and one is the usual name of a label that is looked for. Each is a cell of its own, which no later row repeats.
    5. Where only a part of 4 holds, row 1 is in doubt. So it is without one of the names that the training joins, if it has
       others. Where nothing holds, it is a row.

    Raises DataError for a row in doubt.
    """
    if option is not None or not rows:
        return bool(option), ""
    words = [word for word in (*explicit.names, label, row_id) if word is not None]
    if not all(is_number(part) for word in words for part in word.split(",")):
        return True, ""
    header = True, "line 1 is taken as column names; --no-header reads it as a row"
    row = False, "line 1 is taken as a row; --header reads it as column names"
    cells, fault = rows[0].fields, rows[0].fault
    places = {folded(cell): key for key, cell in reversed(cells.items())}
    before = TextColumns(()) if trained is None else trained.columns
    known = [] if any(map(is_number, before.names)) else [(f"'{escaped(name)}'", (name,)) for name in before.names]
    if len(cells) == 1:
        names = {*SOLE_NAMES, *(folded(name) for _, (name,) in known if len(known) == 1)}
        return header if fault is None and not names.isdisjoint(places) else row
    pairs, labels = bool(explicit.pair or before.pair), [("the label", LABEL_NAMES)] * (labelled is not False)
    usual = [("the text", TEXT_NAMES), *([("the second text", SECOND_NAMES)] * pairs), *labels]

    joined = [name for names in (before.text, before.pair) if len(names) > 1 for name in names]

    def seems(key: str, why: str) -> str:
        return f"'{escaped(cells[key], 60)}' seems to name a column, but {why}"

    doubt = ""
    for looked_for in ([*known, *labels], usual) if known else (usual,):
        found: dict[str, str] = {}
        for what, candidates in looked_for:
            keys = [places[folded(name)] for name in candidates if folded(name) in places]
            found |= dict.fromkeys([what], next((key for key in keys if key not in found.values()), ""))
        present = [key for key in found.values() if key]
        lacking = [what for what, key in found.items() if not key and (labelled is not None or what != "the label")]
        if lacking and present:
            doubt = seems(present[0], f"no cell names {lacking[0]}")
            if looked_for is not usual and any(f"'{escaped(name)}'" in lacking for name in joined):
                break
        elif not lacking:
            again = ((later, key) for later in rows[1:] for key in present if later.fields[key] == cells[key])
            repeats = (seems(key, f"line {later.line} has it there, too") for later, key in again)
            if not (doubt := fault or next(repeats, "")):
                return header
            break
    if not doubt:
        return row
    asked = {
        "--text": not explicit.text,
        "--pair": pairs and not explicit.pair,
        "--label": bool(labels) and label is None,
    }
    options = " and ".join(name for name, is_asked in asked.items() if is_asked and (pairs or labels))
    raise DataError(f"{name}:1: {fault or doubt}; add --header or --no-header{options and f', and {options}'}")


def find_columns(
    records: Records,
    task: Task,
    config: DataConfig,
    layout: Layout = PLAIN,
    *,
    labelled: bool | None,
    training: bool = False,
    trained: ColumnSchema | None = None,
) -> Columns:
    """Find the columns of labelled rows: those that `config` and `task` name, else those with a usual name.

    JSON rows may have different keys, so that named columns are not looked up; an id is required only if `config` names
    it. `labelled` None: the label is optional unless `config` names it. `training`: whether these are, or may be, the rows of a
    training. Line 1 is then taken as there, also if the label is optional, and the columns of `config.extra_rows` are read;
    they may be missing. `trained`: the rows that these are to be like. Where a header has their names or
    usual ones, explicit numbers of another file yield to these. The header of a TSV or CSV is taken if
    `is_header` finds one. Raises DataError for another column that is missing or has no usual name, and for pairs beside
    single texts.
    """
    explicit, wanted = TextColumns(layout.text or task.text, task.pair), layout.label or task.label
    looks_up_label = labelled or (labelled is None and config.label is not None)
    numbered, cells, note, hint = records.format in ("tsv", "csv"), records.columns, "", ""
    decides = numbered and not records.header
    if decides:
        rows = records.peek(ROWS_FOR_HEADER)
        cells = tuple(rows[0].fields.values()) if rows else ()
        label, row_id = wanted if looks_up_label else None, None if config.id is None else str(config.id)
        sought = True if training and trained is None and labelled is None else labelled
        header, note = is_header(
            records.name, rows, layout.header, explicit, trained, labelled=sought, label=label, row_id=row_id
        )
        if header or not rows:
            records.take_header()
    if numbered and len(cells) == 1:
        used = records.delimiter or USUAL_DELIMITERS[records.format]
        mark = next((mark for mark in DELIMITERS if mark in cells[0] and mark != used), None)
        if mark is not None:
            what = f"its fields seem to be separated by {in_words(mark)}, not by {in_words(used)}"
            hint = f"; {what}: {option('delimiter', mark)}"
    names, line = records.columns, "" if records.named else f"{records.name}:1"
    decided = decides and layout.header is None
    no_header = NO_HEADER if decided and records.header else ""
    columns = ColumnNames(records.name, names, names, header=line, numbered=numbered, hint=hint, no_header=no_header)

    places = explicit.text
    by_number = records.header and trained is not None and not trained.same_file
    if by_number := by_number and all(map(is_number, filter(None, (*explicit.names, wanted)))):
        explicit = TextColumns(())

    def resolve(name: str, what: str) -> str:
        return name if records.format == "jsonl" else columns.find(name, what)

    def usual(candidates: Iterable[str], what: str) -> str:
        if not names:
            raise DataError(f"{records.name}: has no rows, or its first rows cannot be read")
        if (name := columns.find_usual(candidates)) is not None:
            return name
        if numbered and not any(map(str.strip, cells)):
            raise DataError(f"{records.name}:1: is blank; expected a header")
        if what == "text" and decides and not (records.header or labelled or hint) and len(names) == 1:
            return names[0]
        raise columns.ask(what, cells if decided and not records.header else ())

    def fallback(what: str, text: tuple[str, ...]) -> tuple[str, ...]:
        if text:
            return ()
        return tuple(resolve(name, what) for name in places) if by_number and places else (usual(TEXT_NAMES, what),)

    texts = find_texts(columns, explicit, trained, resolve, fallback)
    if by_number and texts.text != tuple(map(columns.look_up, places)):
        wanted = None  # the columns of this file stand at other places than those of the training
    texts = texts._replace(spans=task.spans)
    label = None
    if labelled is None and config.label is None:
        label = (wanted if wanted in names else None) if wanted else columns.find_usual(LABEL_NAMES, texts.names)
    elif labelled is not False:
        label = resolve(wanted, "label") if wanted is not None else usual(LABEL_NAMES, "label")
    check_read_once(records.name, texts, label)
    row_id = task.id
    if config.id is not None:
        row_id = resolve(str(config.id), "id")
    elif row_id not in names:
        row_id = next((name for name in ID_NAMES if name in names), row_id)
    wanted_extra = [str(name) for name in config.extra_rows if training]
    found_extra = wanted_extra if records.format == "jsonl" else map(columns.look_up, wanted_extra)
    extra_names = tuple(key for key in found_extra if key is not None)
    found_id = row_id if records.format == "jsonl" or row_id in names else None
    read = {*texts.names, label, row_id, *extra_names}
    unread = () if explicit.text else unread_texts(names, read)
    return Columns(texts, label, found_id, extra_names, unread, records.header, note)


def find_texts(
    columns: ColumnNames,
    explicit: TextColumns,
    trained: ColumnSchema | None,
    resolve: Callable[[str, str], str],
    fallback: Callable[[str, tuple[str, ...]], tuple[str, ...]],
    *,
    by_name: bool = True,
) -> TextColumns:
    """Find the columns of the text and of the second text: those that are `explicit`, else those of the training rows, else
    those with a usual name, else a fallback.

    `resolve` returns the key of an explicit column, `fallback` the keys for "text" or "pair" beside the columns of the text;
    () if there are none. `by_name`: whether the columns have names, of which some may be usual. A second text belongs to a pair
    only: if the column of the text is not explicit, it has the usual name beside that of the text. Raises DataError for
    pairs if `trained` are single texts, and for single texts if these are pairs.
    """
    before = TextColumns(()) if trained is None else trained.columns

    def find(
        what: str, explicit: tuple[str, ...], before: tuple[str, ...], usual: Sequence[str], text: tuple[str, ...] = ()
    ) -> tuple[str, ...]:
        if explicit:
            return tuple(resolve(name, what) for name in explicit)
        if before and (found := columns.find_all(before, text)):
            return found
        again = before if len(before) == 1 else ()
        if by_name and len(before) > 1 and len(columns.names) > 1:
            missing = next((name for name in before if columns.find_usual([name], text) is None), before[0])
            joins = " + ".join(map(escaped, before))
            fault = f"has no column '{escaped(missing)}', and the {what} in training is {joins}"
            raise DataError(f"{columns.source}: {fault}; {option(what)} names another")
        if by_name and (key := columns.find_usual([*again, *usual], text)) is not None:
            return (key,)
        return fallback(what, text)

    text = find("text", explicit.text, before.text, TEXT_NAMES)
    names = tuple(map(columns.name_of, text))
    explicit_in_run = trained is not None and trained.explicit and names == before.text
    pair: tuple[str, ...] = ()
    if explicit.pair or before.pair:
        pair = find("pair", explicit.pair, before.pair, [*seconds_of(names[0]), *SECOND_NAMES], text)
    elif by_name and not explicit.text and not explicit_in_run:
        second = columns.find_usual(seconds_of(names[0]), text)
        pair = () if second is None else (second,)
    shown = TextColumns(names, tuple(map(columns.name_of, pair)))
    check_read_once(columns.source, shown)
    check_same_kind(columns.source, shown, trained)
    return TextColumns(text, pair)


def check_read_once(source: str, texts: TextColumns, label: str | None = None) -> None:
    """Raise DataError if a column is joined to itself, or is a text and the `label`. Both texts of a pair may share one."""
    for names in (texts.text, texts.pair):
        if (twice := first_repeated([*names, *filter(None, [label])])) is not None:
            what = "the text and the label" if twice == label else "the text twice"
            raise DataError(
                f"{source}: the column '{escaped(twice)}' is taken as {what}; {option('text')} names another"
            )


def check_same_kind(source: str, texts: TextColumns, trained: ColumnSchema | None) -> None:
    """Raise DataError if `source` holds pairs of texts and the training rows are single texts, or the other way round."""
    if trained is None or not trained.columns.text or bool(texts.pair) == bool(trained.columns.pair):
        return
    kinds = "single texts", "pairs of texts"
    shown = " and ".join(f"'{escaped(' + '.join(names))}'" for names in (texts.text, texts.pair) if names)
    trained_on = (
        f"{trained.source} {'was trained on' if trained.is_run else 'holds'} {kinds[bool(trained.columns.pair)]}"
    )
    way_out = "give rows of one kind, or name their columns with --text and --pair"
    raise DataError(f"{source}: holds {kinds[bool(texts.pair)]} ({shown}), but {trained_on}; {way_out}")


def unread_texts(names: Iterable[str], read: Collection[str | None]) -> tuple[str, ...]:
    """Return the `names` that are usual ones of a text and are not among those that are `read`."""
    return tuple(name for name in names if is_usual(name) and name not in read)


def unread_in_words(text: Sequence[str], unread: Sequence[str]) -> str:
    """Return that the `unread` columns are not read beside those of the `text`, or "" if there are none."""
    if not unread:
        return ""
    shown = " and ".join(f"'{escaped(name)}'" for name in unread)
    return f"the text is '{escaped(' + '.join(text))}'; {shown} {'is' if len(unread) == 1 else 'are'} not read"


class ColumnOptions(NamedTuple):
    """The options of `recur predict` about columns: names, or numbers from 1."""

    text: tuple[str, ...] = ()
    pair: tuple[str, ...] = ()
    header: bool | None = None
    """Whether a TSV or CSV has a header; None: see `find_input_columns`."""


@dataclass(frozen=True)
class InputColumns:
    """The columns of an input of `recur predict`."""

    names: tuple[str, ...]
    """Names in the output: the input's names, or the keys of JSON rows. Without a header those of the training rows for the
    texts, and numbers for other columns."""
    keys: tuple[str, ...]
    """Keys of `names` in the records."""
    header: bool
    """Whether the first row is a header."""
    typed: bool
    """Whether rows have values of several types (JSON, Parquet) rather than strings in columns."""
    texts: TextColumns
    breaks: bool = False
    """Whether a value may hold TABs and line ends, which a TSV cannot."""


def find_input_columns(
    records: Records, sample: Sequence[Record], trained: ColumnSchema, options: ColumnOptions, log: Log
) -> InputColumns:
    """Find the columns of an input of `recur predict` as `find_columns` does, else the first ones if they have no names.

    `is_header` decides whether the first row of `sample`, the first rows of `records`, is a header. Warns of columns that are
    taken by their place, and notes how line 1 is taken and which columns of texts are not read.

    Raises DataError if a column is missing, or if several named columns may be the text. Raises DataError if the rows are pairs
    and the model was trained on single texts, or the other way round.
    """
    names_before = trained.columns.to_json()
    explicit = TextColumns(options.text, options.pair)
    if records.named:
        names = tuple(dict.fromkeys(key for record in sample for key in record.fields))
        keys, header, note = names, False, ""
    else:
        keys = records.columns
        rows = sample[:ROWS_FOR_HEADER]
        header, note = is_header(records.name, rows, options.header, explicit, trained)
        names = tuple(sample[0].fields.values()) if header and sample else keys
    no_header = NO_HEADER if header and options.header is None else ""
    columns = ColumnNames(records.name, names, keys, no_header=no_header)
    has_names = records.named or header
    fallbacks: dict[str, str] = {}  # the numbers of the columns that are taken as the text or the second text

    def resolve(word: str, what: str) -> str:
        return columns.find(word, what) if names else word  # an empty input has no columns

    def fallback(what: str, text: tuple[str, ...]) -> tuple[str, ...]:
        if not names:
            return tuple(names_before.get(what, [what]))
        left = [key for key in keys if key not in text]
        no_texts = {folded(name) for name in (*LABEL_NAMES, *ID_NAMES)}
        if has_names and not text and (len(left) > 1 or not no_texts.isdisjoint(map(folded, names))):
            raise columns.ask(what)
        if not left or (has_names and text):
            return ()
        joined = len(names_before.get(what, [what]))
        if joined > 1 and 1 < len(keys) != len(trained.columns.names):
            raise columns.ask(what)
        if len(left) > 1 or fallbacks:
            fallbacks[what] = " and ".join(str(keys.index(key) + 1) for key in left[:joined])
        return tuple(left[:joined])

    texts = find_texts(columns, explicit, trained, resolve, fallback, by_name=has_names)
    if doubt := _other_delimiter(records, sample, trained):
        log.warn(f"{records.name}: {doubt}")
    elif fallbacks:
        numbers = " and ".join(fallbacks.values())
        taken = f"taking column{'s' * (' and ' in numbers)} {numbers} of {len(keys)} as "
        taken += " and ".join("the second text" if what == "pair" else "the text" for what in fallbacks)
        log.warn(f"{records.name}: {taken}; {' and '.join(f'--{what}' for what in fallbacks)} names another")
    if note:
        log.note(f"{records.name}: {note}")
    if has_names and not explicit.text:
        read = {columns.name_of(key) for key in texts.names}
        unread = unread_texts(dict.fromkeys(names), read)
        if words := unread_in_words([*map(columns.name_of, texts.text)], unread):
            log.note(f"{records.name}: {words}")
    return InputColumns(
        names=names if header or records.named else _as_trained(keys, texts, trained.columns),
        keys=keys,
        header=header,
        typed=records.named,
        texts=texts._replace(spans=trained.columns.spans if records.named else None),
        breaks=records.format != "tsv",
    )


def _as_trained(keys: tuple[str, ...], texts: TextColumns, trained: TextColumns) -> tuple[str, ...]:
    """Return the names of columns without a header: those of the training rows for the texts, unless two would be the same."""
    alike = len(texts.text) == len(trained.text) and len(texts.pair) == len(trained.pair)
    known = dict(zip(texts.names, trained.names, strict=True)) if alike else {}
    names = tuple(known.get(key, key) for key in keys)
    return names if len(set(names)) == len(names) else keys


def _header_names(trained: Mapping[str, Sequence[str]]) -> set[str]:
    """Return the usual names of columns and those in the training data, case-folded, without numbers."""
    usual = (*TEXT_NAMES, *SECOND_NAMES, *LABEL_NAMES, *ID_NAMES)
    return {folded(name) for names in (usual, *trained.values()) for name in names if not is_number(name)}


def trained_delimiter(trained: ColumnSchema, *, is_table: bool) -> Callable[[str], Separation]:
    """Return a function of an input's first row that returns the delimiter and the format of the training rows if they are the
    input's as well.

    It is, if it separates the names of columns, or if it is the only mark in the first row of a TSV or CSV (`is_table`). Other
    rows, such as texts in a pipe, may hold the mark by chance.
    """
    mark, known = trained.delimiter, _header_names(trained.columns.to_json())

    def choose(first: str) -> Separation:
        if mark is None or mark not in first:
            return Separation()
        has_names = not known.isdisjoint(folded(part.strip("\"'")) for part in first.split(mark))
        is_sole = is_table and not any(other in first for other in DELIMITERS if other != mark)
        return Separation(mark, trained.format) if has_names or is_sole else Separation()

    return choose


def _other_delimiter(records: Records, sample: Sequence[Record], trained: ColumnSchema) -> str | None:
    """Return a warning if the first row of a TSV or CSV with one column seems to have another delimiter.

    It has, if it is a header with that delimiter, or holds the delimiter of the training rows.
    """
    if records.columns != ("1",) or not sample:
        return None
    first, known = str(sample[0].fields["1"]), _header_names(trained.columns.to_json())
    for mark in dict.fromkeys((*(trained.delimiter or ""), *DELIMITERS)):
        names = {folded(part.strip("\"'")) for part in first.split(mark)}
        if mark in first and (mark == trained.delimiter or not known.isdisjoint(names)):
            format = "tsv" if mark == "\t" else "csv"
            ways = [f"--input-format {format}"] if records.format != format else []
            ways += [option("delimiter", mark)] if mark not in "\t," else []
            return f"every row is taken as one text, but '{escaped(mark)}' seems to separate fields: {' '.join(ways)}"
    return None
