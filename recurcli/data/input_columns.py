"""Finds the columns of text, second text and id in an input of `recur predict`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from recurcli.data.columns import (
    ID_NAMES,
    LABEL_NAMES,
    SECOND_NAMES,
    TEXT_NAMES,
    ColumnNames,
    TrainingRows,
    find_texts,
    is_number,
    option,
    unread_in_words,
    unread_texts,
)
from recurcli.data.formats.readers import DELIMITERS
from recurcli.data.formats.rows import Record, Records
from recurcli.data.values import TextColumns, folded
from recurcli.errors import escaped
from recurcli.events import Note

SURE_NAMES = ("text", "sentence", "sentence1", "pair", "sentence2", "label", "id")
"""If the only field of a TSV's first row is one of these names, the row is a header. Other usual names may also be texts."""


class ColumnOptions(NamedTuple):
    """The options of `recur predict` about columns: names, or numbers from 1."""

    text: str | None = None
    pair: str | None = None
    id: str | None = None
    header: bool | None = None
    """Whether a TSV or CSV has a header; None: see `find_input_columns`."""


@dataclass(frozen=True)
class InputColumns:
    """The columns of an input of `recur predict`."""

    names: tuple[str, ...]
    """Names in the output's header: the input's names, column numbers without a header, or the keys of JSON rows."""
    keys: tuple[str, ...]
    """Keys of `names` in the records."""
    header: bool
    """Whether the first row is a header."""
    typed: bool
    """Whether rows have values of several types (JSON, Parquet) rather than strings in columns."""
    texts: TextColumns
    id: str | None = None
    breaks: bool = False
    """Whether a value may hold TABs and line ends, which a TSV cannot."""
    notes: tuple[Note, ...] = ()
    """A warning about guesses, and a note on text columns that are not read."""


def find_input_columns(
    records: Records, sample: Sequence[Record], trained: TrainingRows, options: ColumnOptions
) -> InputColumns:
    """Find the columns of an input of `recur predict` as `find_columns` does, else the first ones if they have no names.

    Unless `options` say so, the first row is a header if it holds the name of such a column, and in any other CSV of several
    columns, as in training, if the training data had a header.
    `sample`: the first rows of `records`, which are opened without a header, so that a TSV's header is the first of them.
    Raises DataError if a column is missing, if several named columns may be the text, and for pairs if the model was
    trained on single texts, or the other way round.
    """
    names_before = trained.columns.to_json()
    if records.named:
        names = tuple(dict.fromkeys(key for record in sample for key in record.fields))
        keys, header, unclear, assumed = names, False, False, False
    else:
        keys, header = records.columns, _has_header(sample, names_before, options)
        # The first row of any other CSV may be a header, unless the training data had none.
        may_be_header = bool(sample) and sample[0].fault is None and not any(map(is_number, trained.columns.text))
        unclear = records.format == "csv" and not header and options.header is None and may_be_header
        assumed = unclear and len(keys) > 1
        header = header or assumed
        names = tuple(sample[0].fields.values()) if header and sample else keys
    columns = ColumnNames(records.name, names, keys)
    has_names = records.named or (header and not assumed)
    guesses: dict[str, int] = {}  # the number of the column that was guessed as the text or the second text

    def named(word: str, what: str) -> str:
        return columns.find(word) if names else word  # an empty input has no columns

    def guess(what: str, text: tuple[str, ...]) -> tuple[str, ...]:
        if not names:
            return tuple(names_before.get(what, [what]))
        left = [key for key in keys if key not in text]
        no_texts = {folded(name) for name in (*LABEL_NAMES, *ID_NAMES)}
        if has_names and not text and (len(left) > 1 or not no_texts.isdisjoint(map(folded, names))):
            raise columns.ask(what, f"add {option(what)}")
        if not left or (has_names and text):
            return ()
        if len(left) > 1 or guesses:
            guesses[what] = keys.index(left[0]) + 1
        return (left[0],)

    text, pair = options.text, options.pair
    told = TextColumns(() if text is None else (text,), () if pair is None else (pair,))
    texts = find_texts(columns, told, trained, named, guess, by_name=has_names)
    first_row = None
    if assumed:
        first_row = "line 1 is taken as column names; --no-header reads it as a row"
    elif unclear or (guesses and options.header is None and not header):
        first_row = "line 1 is taken as a row; --header reads it as column names"
    doubts = (_guessed(guesses, len(keys)), first_row)
    doubt = _other_delimiter(records, sample, trained) or "; ".join(filter(None, doubts))
    notes = [Note(f"{records.name}: {doubt}", "warning")] if doubt else []
    if has_names and not told.text:
        read = {columns.name_of(key) for key in texts.names}
        unread = unread_texts(dict.fromkeys(names), read)
        if words := unread_in_words([*map(columns.name_of, texts.text)], unread):
            notes.append(Note(f"{records.name}: {words}"))
    return InputColumns(
        names=names,
        keys=keys,
        header=header,
        typed=records.named,
        texts=texts._replace(spans=trained.columns.spans if records.named else None),
        id=None if options.id is None else named(options.id, "id"),
        breaks=records.format != "tsv",
        notes=tuple(notes),
    )


def _has_header(sample: Sequence[Record], trained: Mapping[str, Sequence[str]], options: ColumnOptions) -> bool:
    if options.header is not None or not sample:
        return bool(options.header)
    words = [word for word in (options.text, options.pair, options.id) if word is not None and not is_number(word)]
    known = _header_names(trained, several=len(sample[0].fields) > 1) | set(map(folded, words))
    return sample[0].fault is None and not known.isdisjoint(map(folded, sample[0].fields.values()))


def _header_names(trained: Mapping[str, Sequence[str]], *, several: bool = True) -> set[str]:
    """Return the usual names of columns and those in the training data, case-folded, without numbers."""
    usual = (*TEXT_NAMES, *SECOND_NAMES, *LABEL_NAMES, *ID_NAMES) if several else SURE_NAMES
    return {folded(name) for names in (usual, *trained.values()) for name in names if not is_number(name)}


def _guessed(guesses: Mapping[str, int], count: int) -> str | None:
    """Return a warning about columns that were guessed by their position."""
    if not guesses:
        return None
    numbers = " and ".join(map(str, guesses.values()))
    texts = " and ".join({"text": "the text", "pair": "the second text"}[what] for what in guesses)
    columns, names = ("columns", "name others") if len(guesses) > 1 else ("column", "names another")
    return f"taking {columns} {numbers} of {count} as {texts}; {' and '.join(f'--{what}' for what in guesses)} {names}"


def trained_delimiter(trained: TrainingRows, *, is_table: bool) -> Callable[[str], str | None]:
    """Return a function of an input's first row that returns the delimiter of the training rows if it is the input's as well.

    It is, if it separates the names of columns, or if it is the only mark in the first row of a TSV or CSV (`is_table`). Other
    rows, such as texts in a pipe, may hold the mark by chance.
    """
    mark, known = trained.delimiter, _header_names(trained.columns.to_json())

    def choose(first: str) -> str | None:
        if mark is None or mark not in first:
            return None
        has_names = not known.isdisjoint(folded(part.strip('"')) for part in first.split(mark))
        return (
            mark
            if has_names or (is_table and not any(other in first for other in DELIMITERS if other != mark))
            else None
        )

    return choose


def _other_delimiter(records: Records, sample: Sequence[Record], trained: TrainingRows) -> str | None:
    """Return a warning if the first row of a TSV or CSV with one column seems to have another delimiter.

    It has, if it is a header with that delimiter, or holds the delimiter of the training rows.
    """
    if records.columns != ("1",) or not sample:
        return None
    first, known = str(sample[0].fields["1"]), _header_names(trained.columns.to_json())
    for mark in dict.fromkeys((*(trained.delimiter or ""), *DELIMITERS)):
        names = {folded(part.strip('"')) for part in first.split(mark)}
        if mark in first and (mark == trained.delimiter or not known.isdisjoint(names)):
            format = "tsv" if mark == "\t" else "csv"
            ways = [f"--input-format {format}"] if records.format != format else []
            ways += [option("delimiter", mark)] if mark not in "\t," else []
            return f"every row is taken as one text, but '{escaped(mark)}' seems to separate fields: {' '.join(ways)}"
    return None
