"""The columns of an input of `recur predict`: which of them hold the text, the second text and the id."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from recurcli.data.columns.texts import ID_NAMES, LABEL_NAMES, PAIR_NAMES, TEXT_NAMES, BadRow, joined, marked, value_of
from recurcli.data.formats.readers import Record, Records
from recurcli.errors import DataError, did_you_mean, escaped

SURE_NAMES = ("text", "sentence", "sentence1", "pair", "sentence2", "label", "id")
"""What makes the only field of a TSV's first row a header: other usual names may as well be a text."""
SECOND_NAMES = tuple(dict.fromkeys(PAIR_NAMES.values()))
OTHER_NAMES = (*LABEL_NAMES, *ID_NAMES)
DELIMITERS = ",;|"


class ColumnOptions(NamedTuple):
    """What the command line says of the columns: names, or numbers from 1."""

    text: str | None = None
    pair: str | None = None
    id: str | None = None
    header: bool | None = None
    """Whether a TSV has a header; None: find out."""


class Text(NamedTuple):
    """What is to be classified; `fault` says why the row could not be read as it should be."""

    text: str
    pair: str | None
    fault: str | None


@dataclass(frozen=True)
class Columns:
    """The columns of an input: their names as written, and the keys under which records hold text, pair and id."""

    names: tuple[str, ...]
    """For the output's header: those of the input's, its numbers where it has none, or the keys of JSON rows."""
    keys: tuple[str, ...]
    """Where records hold the values of `names`."""
    header: bool
    """Whether the first row is a header."""
    typed: bool
    """Whether rows have values of their own types (JSON, Parquet) rather than strings in columns."""
    text: tuple[str, ...]
    """The keys whose values make the text, a space between them."""
    pair: tuple[str, ...] = ()
    spans: str | None = None
    """The key of an object that names two spans of the text to be marked."""
    id: str | None = None
    breaks: bool = False
    """Whether a value may hold TABs and line ends, which a TSV cannot."""
    doubt: str | None = None
    """A sentence on what was taken for granted, if something was."""

    def text_of(self, record: Record) -> Text:
        """The text, or the pair, in a record; what cannot be read is empty, with the reason."""
        found: list[str] = []
        fault = record.fault
        for keys in (self.text, self.pair):
            try:
                found.append(joined(record.fields, keys))
            except BadRow as reason:
                fault = fault or str(reason)
                found.append("")
        if self.spans is not None:
            try:
                found[0] = marked(found[0], value_of(record.fields, self.spans))
            except BadRow as reason:
                fault = fault or str(reason)
        return Text(found[0], found[1] if self.pair else None, fault)


def find_columns(
    records: Records, sample: Sequence[Record], trained: Mapping[str, Sequence[str]], wishes: ColumnOptions
) -> Columns:
    """Settle where text and pair stand: as told, else as the training data had it, else by a usual name, else by place.

    `sample` are the first rows of `records`, which were opened without a header: a TSV's header is their first.
    Raises DataError if a column is missing, or if nobody can say which one holds the text.
    """
    if records.named:
        names = tuple(dict.fromkeys(key for record in sample for key in record.fields))
        keys, header = names, False
    else:
        header = _has_header(sample, trained, wishes)
        keys = records.columns
        names = tuple(sample[0].fields.values()) if header and sample else keys
    known = _Known(records.name, names, keys, named=header or records.named)
    wants_pair = wishes.pair is not None or "pair" in trained
    text = known.find(wishes.text, trained.get("text", ()), TEXT_NAMES, place=0, option="--text")
    pair = known.find(wishes.pair, trained.get("pair", ()), SECOND_NAMES, 1, "--pair", text) if wants_pair else ()
    spans = trained.get("spans", ())
    return Columns(
        names=names,
        keys=keys,
        header=header,
        typed=records.named,
        breaks=records.format != "tsv",
        text=text,
        pair=pair,
        spans=spans[0] if spans and records.named else None,
        id=None if wishes.id is None else known.told(wishes.id),
        doubt=known.doubt() or _delimiter_doubt(names, sample, header=header, trained=trained),
    )


def _has_header(sample: Sequence[Record], trained: Mapping[str, Sequence[str]], wishes: ColumnOptions) -> bool:
    if wishes.header is not None or not sample:
        return bool(wishes.header)
    told = [name for name in (wishes.text, wishes.pair, wishes.id) if name is not None and not _is_number(name)]
    several = len(sample[0].fields) > 1
    known = _folded([*_known_names(trained, several=several), *told])
    return sample[0].fault is None and not known.isdisjoint(_folded(sample[0].fields.values()))


def _known_names(trained: Mapping[str, Sequence[str]], *, several: bool = True) -> list[str]:
    """What columns are usually called, or were called in the training data; numbers are no names."""
    names = [name for columns in trained.values() for name in columns if not _is_number(name)]
    return [*([*TEXT_NAMES, *SECOND_NAMES, *OTHER_NAMES] if several else SURE_NAMES), *names]


def _folded(names: Iterable[str]) -> set[str]:
    return {name.strip().casefold() for name in names}


def _is_number(word: str) -> bool:
    return word.isascii() and word.isdigit()


class _Known:
    """The columns that an input has; `named` says that their names come from the input."""

    def __init__(self, source: str, names: Sequence[str], keys: Sequence[str], *, named: bool) -> None:
        self.source, self.names, self.keys, self.named = source, names, keys, named
        self.guesses: dict[str, tuple[int, str]] = {}
        """By option, the number of the column that was taken by its place, and what for."""

    def told(self, word: str) -> str:
        """The key of the column that the user names."""
        if not self.names:
            return word  # an empty input: no row will ask for it
        if word in self.names:
            return self._only(word)
        if _is_number(word) and 0 < int(word[:9]) <= len(self.keys):
            return self.keys[int(word[:9]) - 1]
        raise DataError(f"{self.source}: has no column '{escaped(word)}'{escaped(did_you_mean(word, self.names), 400)}")

    def find(
        self,
        told: str | None,
        trained: Sequence[str],
        usual: Sequence[str],
        place: int,
        option: str,
        taken: Sequence[str] = (),
    ) -> tuple[str, ...]:
        """The keys of the columns for a text – several only where it was trained so – and none that is `taken`.

        Where the input has no names, columns are numbers, and those of training data without names are theirs too.
        """
        if told is not None:
            return (self.told(told),)
        if trained and set(trained) <= set(self.names) and (len(trained) > 1 or not self.named):
            return tuple(map(self._only, trained))
        if self.named:
            wanted = [*(trained if len(trained) == 1 else ()), *usual]
            for name in [*wanted, *self._spelled_otherwise(wanted)]:
                if name in self.names and (key := self._only(name)) not in taken:
                    return (key,)
        if not self.names:
            return tuple(trained) or (usual[0],)
        role = "second text" if place else "text"
        left = [key for key in self.keys if key not in taken]
        if not left:
            raise DataError(f"{self.source}: has one column, and the model wants a pair of texts")
        if self.named and (place or len(left) > 1 or not _folded(self.names).isdisjoint(_folded(OTHER_NAMES))):
            shown = ", ".join(escaped(name, 40) for name in self.names[:20])
            raise DataError(f"{self.source}: which column is the {role}? name it with {option}; there are: {shown}")
        key = left[0]
        if len(left) > 1 or self.guesses:
            self.guesses[option] = (self.keys.index(key) + 1, role)
        return (key,)

    def doubt(self) -> str | None:
        """A sentence on the columns that were taken by their place, if there is a choice."""
        if not self.guesses:
            return None
        numbers = " and ".join(str(number) for number, _ in self.guesses.values())
        roles = " and ".join(f"the {role}" for _, role in self.guesses.values())
        columns, names = ("columns", "name others") if len(self.guesses) > 1 else ("column", "names another")
        return f"taking {columns} {numbers} of {len(self.keys)} as {roles}; {' and '.join(self.guesses)} {names}"

    def _only(self, name: str) -> str:
        if list(self.names).count(name) > 1:
            raise DataError(f"{self.source}: has the column '{escaped(name)}' twice; give its number")
        return self.keys[list(self.names).index(name)]

    def _spelled_otherwise(self, wanted: Sequence[str]) -> list[str]:
        """Names that are one of `wanted` but for case and the spaces around them."""
        folded = [name.casefold() for name in wanted]
        found = [name for name in self.names if name.strip().casefold() in folded]
        return sorted(found, key=lambda name: folded.index(name.strip().casefold()))


def _delimiter_doubt(
    names: Sequence[str], sample: Sequence[Record], *, header: bool, trained: Mapping[str, Sequence[str]]
) -> str | None:
    """A warning where a TSV of one column has a first row that is a header if split at another mark than TAB."""
    if header or len(names) != 1 or not sample or "1" not in sample[0].fields:
        return None
    first = str(sample[0].fields["1"])
    known = _folded(_known_names(trained))
    for mark in DELIMITERS:
        if mark in first and not known.isdisjoint(_folded([part.strip('"') for part in first.split(mark)])):
            return (
                f"every row is taken as one text, but '{mark}' seems to separate fields: --input-format csv reads those"
            )
    return None
