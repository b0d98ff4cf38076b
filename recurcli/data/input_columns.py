"""Finds the columns of text, second text and id in an input of `recur predict`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from recurcli.data.columns import (
    DELIMITERS,
    ID_NAMES,
    LABEL_NAMES,
    PAIR_NAMES,
    TEXT_NAMES,
    ColumnNames,
    is_number,
    option,
    seconds_of,
)
from recurcli.data.formats.rows import Record, Records
from recurcli.data.values import TextColumns, folded
from recurcli.errors import DataError, escaped
from recurcli.events import Note

SURE_NAMES = ("text", "sentence", "sentence1", "pair", "sentence2", "label", "id")
"""If the only field of a TSV's first row is one of these names, the row is a header. Other usual names may also be texts."""
SECOND_NAMES = tuple(dict.fromkeys(PAIR_NAMES.values()))


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
    """Warnings about guesses, and a note on a column that seems to be a second text, for a model of one text."""


def find_input_columns(
    records: Records, sample: Sequence[Record], trained: Mapping[str, Sequence[str]], options: ColumnOptions
) -> InputColumns:
    """Find the columns of an input of `recur predict`: those of `options`, else those of the training data, else those
    with a usual name, else the first ones.

    Unless `options` say so, the first row is a header if it holds the name of such a column, and in any other CSV of several
    columns, as in training, if the training data had a header.
    `trained`: the columns of the training data (see `TextColumns.to_json`). `sample`: the first rows of `records`, which
    are opened without a header, so that a TSV's header is the first of them. Raises DataError if a column is missing, or
    if several named columns may be the text.
    """
    if records.named:
        names = tuple(dict.fromkeys(key for record in sample for key in record.fields))
        keys, header, unclear, assumed = names, False, False, False
    else:
        keys, header = records.columns, _has_header(sample, trained, options)
        # The first row of any other CSV may be a header, unless the training data had none.
        may_be_header = bool(sample) and sample[0].fault is None and not any(map(is_number, trained.get("text", ())))
        unclear = records.format == "csv" and not header and options.header is None and may_be_header
        assumed = unclear and len(keys) > 1
        header = header or assumed
        names = tuple(sample[0].fields.values()) if header and sample else keys
    columns = ColumnNames(records.name, names, keys)
    has_names = records.named or (header and not assumed)
    guesses: dict[str, tuple[int, str]] = {}  # by option, the number of a guessed column and what it holds

    def find(word: str | None, before: Sequence[str], usual: Sequence[str], what: str, option: str) -> tuple[str, ...]:
        if word is not None:
            return (columns.find(word) if names else word,)  # an empty input has no columns
        if before and (found := columns.find_all(before, text)):
            return found
        if has_names and (key := columns.find_usual([*(before if len(before) == 1 else ()), *usual], text)) is not None:
            return (key,)
        if not names:
            return tuple(before) or (usual[0],)
        left = [key for key in keys if key not in text]
        if not left:
            raise DataError(f"{records.name}: has one column, but the model needs a pair of texts")
        no_texts = {folded(name) for name in (*LABEL_NAMES, *ID_NAMES)}
        if has_names and (text or len(left) > 1 or not no_texts.isdisjoint(map(folded, names))):
            raise columns.ask(what, f"name it with {option}")
        if len(left) > 1 or guesses:
            guesses[option] = (keys.index(left[0]) + 1, what)
        return (left[0],)

    text: tuple[str, ...] = ()
    text = find(options.text, trained.get("text", ()), TEXT_NAMES, "text", "--text")
    pair: tuple[str, ...] = ()
    if options.pair is not None or "pair" in trained:
        seconds = [*seconds_of(names[keys.index(text[0])] if text[0] in keys else text[0]), *SECOND_NAMES]
        pair = find(options.pair, trained.get("pair", ()), seconds, "second text", "--pair")
    first_row = None
    if assumed:
        first_row = "line 1 is taken as column names; --no-header reads it as a row"
    elif unclear or (guesses and options.header is None and not header):
        first_row = "line 1 is taken as a row; --header reads it as column names"
    doubts = (_guessed(guesses, len(keys)), first_row)
    doubt = _other_delimiter(records, sample, trained) or "; ".join(filter(None, doubts))
    notes = [Note(f"{records.name}: {doubt}", "warning")] if doubt else []
    seconds = [name for name, key in zip(names, keys, strict=True) if folded(name) in SECOND_NAMES and key not in text]
    if seconds and not pair:
        unread = f"column '{escaped(seconds[0])}' is not read: the model takes one text"
        notes.append(Note(f"{records.name}: {unread}"))
    spans = trained.get("spans", ())
    return InputColumns(
        names=names,
        keys=keys,
        header=header,
        typed=records.named,
        texts=TextColumns(text, pair, spans[0] if spans and records.named else None),
        id=None if options.id is None else columns.find(options.id) if names else options.id,
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


def _guessed(guesses: Mapping[str, tuple[int, str]], count: int) -> str | None:
    """Return a warning about columns that were guessed by their position."""
    if not guesses:
        return None
    numbers = " and ".join(str(number) for number, _ in guesses.values())
    texts = " and ".join(f"the {what}" for _, what in guesses.values())
    columns, names = ("columns", "name others") if len(guesses) > 1 else ("column", "names another")
    return f"taking {columns} {numbers} of {count} as {texts}; {' and '.join(guesses)} {names}"


def _other_delimiter(records: Records, sample: Sequence[Record], trained: Mapping[str, Sequence[str]]) -> str | None:
    """Return a warning if the first row of a TSV or CSV with one column is a header with another delimiter."""
    if records.columns != ("1",) or not sample:
        return None
    first, known = str(sample[0].fields["1"]), _header_names(trained)
    for mark in DELIMITERS:
        if mark in first and not known.isdisjoint(folded(part.strip('"')) for part in first.split(mark)):
            format = "tsv" if mark == "\t" else "csv"
            ways = [f"--input-format {format}"] if records.format != format else []
            ways += [option("delimiter", mark)] if mark not in "\t," else []
            return f"every row is taken as one text, but '{escaped(mark)}' seems to separate fields: {' '.join(ways)}"
    return None
