"""The columns of text, second text, label and id: how their values are read, and how they are found.

First come the values of a record, texts (`TextColumns`) and labels (`label_of`). Then come the columns, which are found by
name, by number or by usual names: those of labelled rows (`find_columns`) and of the inputs of `recur predict`.
"""

import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, product
from typing import Any, Literal, NamedTuple

from recurcli.config import UTF8, DataConfig
from recurcli.data.readers import DELIMITERS, Separation, in_words
from recurcli.data.rows import Record, Records, first_repeated, kind_of
from recurcli.data.tasks import PLAIN, Layout, Task
from recurcli.errors import DataError, did_you_mean, escaped, quoted
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
AS_NAMES = "line 1 is taken as column names; --no-header reads it as a row"
AS_ROW = "line 1 is taken as a row; --header reads it as column names"

JOINTS = ";|,"  # marks that may join several labels in one cell
JOINT_LABELS = 3
"""Joint labels that have a part in common if they are several labels a row (see `label_doubts`)."""
UNLABELLED = "unsup"
"""The folder of texts without a label beside those of the labels, as Maas et al. (2011) named it."""
MAX_LABELS = 10_000
"""The largest number of classes, which a test trains."""

_LOOK_LATIN = str.maketrans("авекмнорстухіјѕαβεηικμνορτυχ", "abekmhopctyxijsabehikmnoptyx")
"""Cyrillic and Greek letters, case-folded, that look like Latin ones as small or as capital letters."""


class BadRow(Exception):
    """The reason why a row cannot be used."""


class Unlabelled(BadRow):
    """A row is sound, but has no label."""


class Text(NamedTuple):
    """The text of a row, its second text (None: not a pair), and the reason why one of them cannot be read."""

    text: str
    pair: str | None
    fault: str | None


class TextColumns(NamedTuple):
    """The columns of the text and of the second text of a pair; several columns are joined by a space."""

    text: tuple[str, ...]
    pair: tuple[str, ...] = ()
    spans: str | None = None
    """Key of an object that names two spans of the text to mark (see `marked`)."""

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of both texts."""
        return (*self.text, *self.pair)

    def read(self, record: Record) -> Text:
        """Return the texts of a record; a text that cannot be read is empty, and the first fault is returned."""
        text, pair, fault = "", None, record.fault
        try:
            text = joined(record.fields, self.text)
            if self.spans is not None:
                text = marked(text, value_of(record.fields, self.spans))
        except BadRow as reason:
            fault = fault or str(reason)
        try:
            pair = joined(record.fields, self.pair) if self.pair else None
        except BadRow as reason:
            pair, fault = "", fault or str(reason)
        return Text(text, pair, fault)

    def read_for_label(self, record: Record) -> Text:
        """Return the texts of a record that is to be labelled. A row without a character to read has a fault."""
        found = self.read(record)
        if found.fault or found.text.strip() or (found.pair or "").strip():
            return found
        return found._replace(fault="its text is empty" if found.pair is None else "both of its texts are empty")

    @classmethod
    def from_json(cls, stored: Mapping[str, Sequence[str]]) -> "TextColumns":
        """Return the columns that `to_json` stored."""
        spans = stored.get("spans")
        return cls(tuple(stored.get("text", ())), tuple(stored.get("pair", ())), spans[0] if spans else None)

    def to_json(self) -> dict[str, list[str]]:
        """Return the columns as a model's config.json stores them for predictions."""
        named = {"text": [*self.text], "pair": [*self.pair], "spans": [self.spans] if self.spans else []}
        return {key: names for key, names in named.items() if names}


def value_of(fields: Mapping[str, Any], column: str) -> Any:
    """Return the value of `column`. Raises BadRow, with the nearest name, if it is missing."""
    if column not in fields:
        raise BadRow(f"has no '{escaped(column)}'{escaped(did_you_mean(column, fields), limit=400)}")
    return fields[column]


def joined(fields: Mapping[str, Any], columns: Iterable[str]) -> str:
    """Join the texts of `columns`, strings or lists of strings (CSL's keywords), by spaces. Raises BadRow for other values."""
    parts: list[str] = []
    for column in columns:
        value = value_of(fields, column)
        if isinstance(value, str):
            parts.append(value)
        elif isinstance(value, list) and all(isinstance(item, str) for item in value):
            parts += value
        else:
            raise BadRow(f"'{escaped(column)}' is {kind_of(value)}, not a string")
    return " ".join(parts)


def marked(text: str, target: Any) -> str:
    """Mark `_first span_` and `[second span]` in `text`, as CLUE's baselines do for WSC.

    `target` holds span1_text, span1_index, span2_text, span2_index; indexes count characters from 0. Raises BadRow if a
    span is neither at its index nor exactly once elsewhere in the text, and if the two overlap.
    """
    spans: list[tuple[int, str, str]] = []
    target = target if isinstance(target, Mapping) else {}
    for number, marks in ((1, "__"), (2, "[]")):
        span, index = target.get(f"span{number}_text"), target.get(f"span{number}_index")
        if not isinstance(span, str) or type(index) is not int:
            raise BadRow(f"names no span{number}_text and span{number}_index")
        if index < 0 or not text.startswith(span, index):
            if text.count(span) != 1:  # a span that occurs once needs no index
                raise BadRow(f"'{escaped(span)}' is not at character {index}, as span{number}_index says")
            index = text.index(span)
        spans.append((index, span, marks))
    (first, word, _), (second, _, _) = sorted(spans)
    if first + len(word) > second:
        raise BadRow("its two spans overlap")
    for index, span, marks in sorted(spans, reverse=True):  # from the end, so that earlier indexes stay valid
        text = f"{text[:index]}{marks[0]}{span}{marks[1]}{text[index + len(span) :]}"
    return text


def label_of(fields: dict[str, Any], column: str, task: Task, renamed: Mapping[str, str]) -> str:
    """Return the task's label of a row, or its `dropped_label`; `renamed`: label in this file to the task's label.

    Raises Unlabelled for a label that is missing, null or blank; BadRow for one that is not one of the task's, or, if the
    task has no labels, for a value that is neither a string nor a whole number.
    """
    try:
        value = value_of(fields, column)
    except BadRow as reason:
        raise Unlabelled(str(reason)) from None
    if value is None:
        raise Unlabelled("its label is null, not a string")
    label = str(value).lower() if type(value) in (int, bool) else value
    if not isinstance(label, str):
        raise BadRow(f"its label is {kind_of(value)}, not a string")
    label = label if label in task.labels else renamed.get(label, label)
    if label in task.labels or (label and label == task.dropped_label):
        return label
    if not label.strip():
        raise Unlabelled("its label is empty")
    if not task.labels:
        return label
    owner = f"{task.name}'" if task.name.endswith("s") else f"{task.name}'s"
    known = f"{owner} {len(task.labels)} labels{did_you_mean(label, task.labels)}"
    raise BadRow(f"label '{escaped(label)}' is not one of {known}")


def ordered_labels(labels: Iterable[str]) -> tuple[str, ...]:
    """Return the different labels in the order of their classes: by value if all are whole numbers, else as text."""
    known = sorted(set(labels))
    are_numbers = all(is_number(label) and len(label) < 10 for label in known)
    return tuple(sorted(known, key=int) if are_numbers else known)


def check_labels(labels: Sequence[str], rows: int, where: str) -> None:
    """Raise DataError if the values of a label column are too few or too many to be classes."""
    if len(labels) < 2:
        only = f"only '{escaped(labels[0])}'" if labels else "nothing"
        every = "its only row" if rows == 1 else f"all {rows:,} rows"
        raise DataError(f"{where} holds {only} in {every}; a classifier needs two labels or more")
    too_many = len(labels) > MAX_LABELS
    if too_many or (rows > 100 and len(labels) > rows / 2):
        most = f"; at most {MAX_LABELS:,} classes are supported" if too_many else ""
        raise DataError(
            f"{where} holds {len(labels):,} different values in {rows:,} rows, which cannot be classes{most}"
            "; name the right column: --label COLUMN"
        )


def folded(name: str) -> str:
    """Return `name` in one case and without surrounding spaces."""
    return name.strip().casefold()


def label_doubts(labels: Sequence[str]) -> Iterator[str]:
    """Yield warnings about labels that look alike, like several labels in one, or like numbers to predict (regression).

    Labels look alike if they differ in case, surrounding spaces, Unicode's forms (NFC, NFD, full and half width), or letters of
    other scripts that look like Latin ones (the commonest of Unicode's confusables.txt; ours). A label looks like several
    ones joined by a mark if each part is a label alone, or if each is part of another label too and one of JOINT_LABELS joint
    ones (ours): "bad,desk" beside "bad,lamp", "bad,tap" and "good,desk", but not "Paris, France" beside other towns of France.
    """
    groups: dict[str, list[str]] = {}
    for label in labels:
        letters = folded(unicodedata.normalize("NFKC", label)).translate(_LOOK_LATIN)
        groups.setdefault(unicodedata.normalize("NFKC", letters), []).append(label)
    for group in groups.values():
        if len(group) > 1:
            names = " and ".join(f"'{escaped(label)}'" for label in group)
            what = "differ only by case, spaces, or letters that look alike"
            yield f"the labels {names} {what}; they are taken as {len(group)} classes"
    for mark in JOINTS:
        parts = {label: {*map(str.strip, label.split(mark))} - {""} for label in labels}
        counts = Counter(chain.from_iterable(parts.values()))
        joint = Counter(chain.from_iterable(own for own in parts.values() if len(own) > 1))
        for label, own in parts.items():
            if len(own) < 2:
                continue
            recurs = all(counts[part] > 1 for part in own) and max(joint[part] for part in own) >= JOINT_LABELS
            if not (recurs or own <= parts.keys()):
                continue
            yield f"the label '{escaped(label)}' looks like several labels a row, joined by '{mark}'; it is taken as one class"
            return
    with suppress(ValueError):
        fractions = [label for label in labels if float(label.replace(",", ".")) % 1 > 0]
        if fractions:
            what = f"each of the {len(labels):,} values is taken as a class"
            yield f"the label '{escaped(fractions[0])}' looks like regression; {what}"


def absent_labels(split: str, trained: Mapping[str, int], labels: Iterable[str], *, are_folders: bool = False) -> str:
    """Return a warning about the labels of the training rows that no row of `split` has, or "" if it has all.

    `trained`: the number of training rows of each label. If the labels `are_folders`, the warning says how to leave out the
    folder UNLABELLED.
    """
    if not (absent := ordered_labels(trained.keys() - {*labels})):
        return ""
    share = sum(map(trained.__getitem__, absent)) / sum(trained.values())
    what = f"{split} has no row of {len(absent):,} of {len(trained):,} labels of the train rows: {quoted(absent)}"
    others = ",".join(escaped(label) for label in ordered_labels(trained) if label != UNLABELLED)
    way_out = f"; if its texts have no label, move the folder away or train with --set 'data.labels=[{others}]'"
    return f"{what} ({share:.1%} of the train rows){way_out if are_folders and UNLABELLED in absent else ''}"


class Columns(NamedTuple):
    """Names of the columns in one file of labelled rows; None: absent or not requested."""

    texts: TextColumns
    label: str | None
    id: str | None
    extra: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """How line 1 was taken (see `is_header`), and which columns of texts are not read."""


class ColumnSchema(NamedTuple):
    """The columns of training rows. Other rows must be of the same kind, single texts or pairs, in columns of these names."""

    source: str
    """The name of the run or file that holds these rows."""
    columns: TextColumns
    explicit: bool = False
    """Whether a setting names their columns. If not, they were found by their usual names."""
    delimiter: str | None = None
    """The separator of their fields; None: TAB or a comma."""
    quote: str | None = None
    """The quote around their fields; None: " in a CSV, none in a TSV."""
    format: Literal["tsv", "csv"] = "tsv"
    """The format of an input with this delimiter whose name does not tell it."""
    encoding: str = UTF8


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

    def name_of(self, key: str) -> str:
        """Return the name of the column with this key; the key itself if there is none."""
        return self.names[self.keys.index(key)] if key in self.keys else key

    def ask(self, what: str, cells: Sequence[str] = ()) -> DataError:
        """Return the error for a column that was not found. It names the option to add, and lists the columns.

        `what` is "text" or "label", for example. `cells` are the cells of line 1 if that line is taken as a row.
        """
        if not self.names:
            return DataError(f"{self.source}: has no rows, or its first rows cannot be read")
        answer = f"add {option(what)}" + (", a name in line 1 or a number" if cells else "")
        answer += f", or {option('delimiter', 'MARK')} if it has several columns" if len(self.names) == 1 else ""
        shown = ", ".join(escaped(name, 40) for name in (cells or self.names)[:20])
        columns = f"{'line 1 is' if cells else 'the columns are'}: {shown}"
        return DataError(f"{self.source}: which column is the {what}? {answer}; {columns}")

    def read_twice(self, name: str | None, what: str) -> DataError:
        """Return the error for the column `name`, which would be read as `what`."""
        return DataError(
            f"{self.source}: the column '{escaped(name)}' is taken as {what}; {option('text')} names another"
        )

    def _only(self, name: str) -> str:
        if self.names.count(name) > 1:
            raise DataError(f"{self.source}: has the column '{escaped(name)}' twice; give its number")
        return self.keys[self.names.index(name)]


def is_number(word: str) -> bool:
    """Return whether `word` consists of ASCII digits."""
    return word.isascii() and word.isdigit()


def option(key: str, value: str = "COLUMN") -> str:
    """Return the option of the commands that sets `data.<key>`, as messages show it."""
    return f"--{key} {value}"


def is_header(
    name: str,
    rows: Sequence[Record],
    option: bool | None,
    explicit: TextColumns,
    others: Iterable[str | None],
    trained: ColumnSchema | None,
    *,
    labelled: bool = False,
) -> tuple[bool, str]:
    """Return whether row 1 of a TSV or CSV is a header, and a note that says so, which is "" if an option or a name decides.

    `rows`: the first rows, with numbers as keys. `explicit` and `others`: the columns that settings name. `trained`: the
    training rows that these are to be like. A text is looked for, a second text if it is explicit or `trained` has one,
    and a label if the rows are `labelled`. The first that applies decides:

    1. The `option`.
    2. Explicit columns with names are in a header. The caller refuses a name that is missing. Numbers change nothing.
    3. A single cell is a header if it is in SOLE_NAMES or the name of the text in the training rows, else a row.
    4. Of several cells, some are the names of the texts in the training rows, or usual names of all texts that are looked
       for, and one is the usual name of a label that is looked for. Each is a cell of its own, which no later row repeats.
    5. Where only a part of 4 holds, row 1 is in doubt. Where nothing holds, it is a row.

    Raises DataError for a row in doubt.
    """
    if option is not None or not rows:
        return bool(option), ""
    if not all(map(is_number, filter(None, (*explicit.names, *others)))):
        return True, ""
    cells, fault = rows[0].fields, rows[0].fault
    places = {folded(cell): key for key, cell in reversed(cells.items())}
    before = TextColumns(()) if trained is None else trained.columns
    known = [] if any(map(is_number, before.names)) else [(f"'{escaped(name)}'", (name,)) for name in before.names]
    if len(cells) == 1:
        names = (*SOLE_NAMES, *(before.names if len(known) == 1 else ()))
        return (
            (True, AS_NAMES) if fault is None and not places.keys().isdisjoint(map(folded, names)) else (False, AS_ROW)
        )
    labels = [("the label", LABEL_NAMES)] * labelled
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


def find_columns(
    records: Records,
    task: Task,
    config: DataConfig,
    layout: Layout = PLAIN,
    *,
    labelled: bool,
    training: bool = False,
    trained: ColumnSchema | None = None,
) -> Columns:
    """Find the columns of labelled rows: those that `config` and `task` name, else those with a usual name.

    JSON rows may have different keys, so that named columns are not looked up; an id is required only if `config` names
    it. `training`: whether these are the rows of a training, of which the columns of `config.extra_rows` are read; they may be
    missing. `trained`: the rows that these are to be like. The header of a TSV or CSV is taken if `is_header` finds one. Raises
    DataError for another column that is missing or has no usual name, and for pairs beside single texts.
    """
    explicit = TextColumns(layout.text or task.text, task.pair)
    label = (layout.label or task.label) if labelled else None
    row_id = None if config.id is None else str(config.id)
    note, cells = "", ()
    if records.format in ("tsv", "csv") and not records.header:
        rows = records.peek(ROWS_FOR_HEADER)
        header, note = is_header(
            records.name, rows, layout.header, explicit, (label, row_id), trained, labelled=labelled
        )
        if header or not rows:
            records.take_header()
        elif note:
            cells = tuple(rows[0].fields.values())
    names = records.columns
    columns = ColumnNames(records.name, names, names, is_complete=records.format != "jsonl")
    texts = find_texts(columns, explicit, trained, cells, labelled=labelled)
    if label is not None:
        label = columns.find(label, "label")
    elif labelled and (label := columns.find_usual(LABEL_NAMES)) is None:
        raise columns.ask("label", cells)
    if label in texts.names:
        raise columns.read_twice(label, "the text and the label")
    if row_id is not None:
        row_id = columns.find(row_id, "id")
    else:
        row_id = next((name for name in (task.id, *ID_NAMES) if name in names), None)
    extra = [str(name) for name in config.extra_rows] if training else []
    if columns.is_complete:
        extra = [key for key in map(columns.look_up, extra) if key is not None]
    unread = "" if explicit.text else unread_in_words(names, texts.text, {*texts.names, label, row_id, *extra})
    return Columns(texts._replace(spans=task.spans), label, row_id, (*extra,), (*filter(None, (note, unread)),))


def find_texts(
    columns: ColumnNames,
    explicit: TextColumns,
    trained: ColumnSchema | None,
    cells: Sequence[str] = (),
    *,
    labelled: bool = False,
    by_place: bool = False,
) -> TextColumns:
    """Find the columns of the text and of the second text: those that are `explicit`, else those of the training rows, else
    those with a usual name, else a single column of rows that are not `labelled`.

    `by_place`: the columns have no names, so that the first are the texts. A second text belongs to a pair only: if the
    column of the text is not explicit, it has the usual name beside that of the text. Raises DataError for pairs if
    `trained` are single texts, for single texts if these are pairs, and if a text is not found. `cells`: see `ask`.
    """
    before = TextColumns(()) if trained is None else trained.columns

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
            if len(before) > 1 and 1 < len(columns.keys) != len(trained.columns.names if trained else ()):
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
    explicit_in_run = trained is not None and trained.explicit and names == before.text
    pair: tuple[str, ...] = ()
    if explicit.pair or before.pair:
        pair = find("pair", explicit.pair, before.pair, [*seconds, *SECOND_NAMES], text)
    elif not explicit.text and not explicit_in_run and (second := columns.find_usual(seconds, text)) is not None:
        pair = (second,)
    shown = TextColumns(names, tuple(map(columns.name_of, pair)))
    for names in (shown.text, shown.pair):
        if (twice := first_repeated(names)) is not None:
            raise columns.read_twice(twice, "the text twice")
    check_same_kind(columns.source, shown, trained)
    return TextColumns(text, pair)


def check_same_kind(source: str, texts: TextColumns, trained: ColumnSchema | None) -> None:
    """Raise DataError if `source` holds pairs of texts and the training rows are single texts, or the other way round."""
    if trained is None or not trained.columns.text or bool(texts.pair) == bool(trained.columns.pair):
        return
    kinds = "single texts", "pairs of texts"
    shown = " and ".join(f"'{escaped(' + '.join(names))}'" for names in (texts.text, texts.pair) if names)
    others = f"{trained.source} has {kinds[bool(trained.columns.pair)]}"
    way_out = "give rows of one kind, or name their columns with --text and --pair"
    raise DataError(f"{source}: holds {kinds[bool(texts.pair)]} ({shown}), but {others}; {way_out}")


def unread_in_words(names: Iterable[str], text: Sequence[str], read: Collection[str | None]) -> str:
    """Return which `names`, usual ones of a text, are not `read` beside those of the `text`, or "" if there are none."""
    unread = [name for name in names if folded(name) in {*TEXT_NAMES, *SECOND_NAMES} and name not in read]
    shown = " and ".join(f"'{escaped(name)}'" for name in unread)
    is_not = f"{'is' if len(unread) == 1 else 'are'} not read (--text may be repeated)"
    return f"the text is '{escaped(' + '.join(text))}'; {shown} {is_not}" if unread else ""


@dataclass(frozen=True)
class InputColumns:
    """The columns of an input of `recur predict`."""

    names: tuple[str, ...]
    """Names in the output: the input's names, or the keys of JSON rows. Without a header those of the training rows for the
    texts, and numbers for other columns."""
    keys: tuple[str, ...]
    header: bool
    typed: bool
    """Whether rows have values of several types (JSON, Parquet) rather than strings in columns."""
    texts: TextColumns
    breaks: bool = False
    """Whether a value may hold TABs and line ends, which a TSV cannot."""


def find_input_columns(
    records: Records,
    sample: Sequence[Record],
    trained: ColumnSchema,
    log: Log,
    explicit: TextColumns,
    header: bool | None = None,
) -> InputColumns:
    """Find the columns of an input of `recur predict` as `find_columns` does, else the first ones if they have no names.

    `explicit` and `header` are those of the options. `is_header` decides whether the first row of `sample`, the first rows of
    `records`, is a header. Warns of columns that are taken by their place, and notes how line 1 is taken and which
    columns of texts are not read.

    Raises DataError if a column is missing, or if several named columns may be the text. Raises DataError if the rows are pairs
    and the model was trained on single texts, or the other way round.
    """
    keys, note, has_header = records.columns, "", False
    if records.named:
        keys = tuple(dict.fromkeys(key for record in sample for key in record.fields))
    else:
        has_header, note = is_header(records.name, sample[:ROWS_FOR_HEADER], header, explicit, (), trained)
    names = tuple(sample[0].fields.values()) if has_header and sample else keys
    has_names = records.named or has_header
    columns = ColumnNames(records.name, names, keys, is_complete=bool(names))
    texts = find_texts(columns, explicit, trained, by_place=not has_names) if names else trained.columns
    given = explicit.text and (explicit.pair or not texts.pair)
    if not has_names and not given and len(keys) > 1 and texts.names != trained.columns.names:
        what = f"column {' and '.join(texts.names)} of {len(keys)} as the {'texts' if texts.pair else 'text'}"
        log.warn(f"{records.name}: taking {what}; --text and --pair name others")
    first = str(sample[0].fields["1"]) if sample and keys == ("1",) else ""
    if mark := next((mark for mark in DELIMITERS if mark in first and _names_columns(first, mark, trained)), None):
        what = f"every row is taken as one text, but {in_words(mark)} seems to separate fields"
        log.warn(f"{records.name}: {what}; --delimiter MARK reads them")
    if note:
        log.note(f"{records.name}: {note}")
    if has_names and not explicit.text:
        read = [*map(columns.name_of, texts.names)]
        if unread := unread_in_words(dict.fromkeys(names), read[: len(texts.text)], read):
            log.note(f"{records.name}: {unread}")
    if not has_names and len(texts.text) == len(trained.columns.text) and len(texts.pair) == len(trained.columns.pair):
        known = dict(zip(texts.names, trained.columns.names, strict=True))
        as_trained = tuple(known.get(key, key) for key in keys)
        names = as_trained if first_repeated(as_trained) is None else names
    return InputColumns(
        names=names,
        keys=keys,
        header=has_header,
        typed=records.named,
        texts=texts._replace(spans=trained.columns.spans if records.named else None),
        breaks=records.format != "tsv",
    )


def _names_columns(first: str, mark: str, trained: ColumnSchema) -> bool:
    """Return whether `mark` separates the name of a column, a usual one or one of the training rows, from others in `first`."""
    usual = (*TEXT_NAMES, *SECOND_NAMES, *LABEL_NAMES, *ID_NAMES)
    known = {folded(name) for name in (*usual, *trained.columns.names) if not is_number(name)}
    return not known.isdisjoint(folded(part.strip("\"'")) for part in first.split(mark))


def delimiter_of_input(trained: ColumnSchema, mark: str, *, is_table: bool) -> Callable[[str], Separation]:
    """Return a function of an input's first row that returns the `mark`, and the format and quote of the training rows, if the
    row has it.

    The mark is the delimiter if it separates the names of columns, or if it is the only one in the first row of a TSV or
    CSV (`is_table`). Other rows, such as texts in a pipe, may hold the mark by chance.
    """

    def choose(first: str) -> Separation:
        is_sole = is_table and not any(other in first for other in DELIMITERS if other != mark)
        is_its = mark in first and (is_sole or _names_columns(first, mark, trained))
        return (mark, trained.format, trained.quote) if is_its else (None, None, None)

    return choose
