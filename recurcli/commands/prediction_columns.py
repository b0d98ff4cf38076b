"""The columns of an input of `recur predict`: which of them hold the text, the second text and the id."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from recurcli.data.readers import Record, Records, kind_of
from recurcli.errors import DataError, did_you_mean, visible

TEXT_NAMES = ("text", "sentence", "sentence1")
"""What a text's column is called where it has not the name of the training data."""
PAIR_NAMES = ("pair", "sentence2")
OTHER_NAMES = ("label", "id")
"""With the names above: what makes the first row of a TSV a header."""
DELIMITERS = ",;|"


class Wishes(NamedTuple):
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
    """Whether rows have values of their own types (JSON) rather than strings in columns."""
    text: str
    pair: str | None = None
    id: str | None = None
    doubt: str | None = None
    """A sentence on what was taken for granted, if something was."""

    def text_of(self, record: Record) -> Text:
        """The text, or the pair, in a record; what cannot be read is empty, with the reason."""
        text, fault = _string(record, self.text)
        if self.pair is None:
            return Text(text, None, record.fault or fault)
        pair, other = _string(record, self.pair)
        return Text(text, pair, record.fault or fault or other)


def _string(record: Record, key: str) -> tuple[str, str | None]:
    """The string under `key` in a record, or nothing and what it has instead."""
    value = record.fields.get(key)
    if isinstance(value, str):
        return value, None
    missing = key not in record.fields
    return "", f"has no '{visible(key)}'" if missing else f"'{visible(key)}' is {kind_of(value)}, not a string"


def find_columns(records: Records, sample: Sequence[Record], trained: Mapping[str, str], wishes: Wishes) -> Columns:
    """Settle where text and pair stand: as told, else as the training data had it, else by a usual name, else by place.

    `sample` are the first rows of `records`, which were opened without a header: a TSV's header is their first.
    Raises DataError if a column is missing, or if nobody can say which one holds the text.
    """
    if records.format == "jsonl":
        names = tuple(dict.fromkeys(key for record in sample for key in record.fields))
        keys, header = names, False
    else:
        header = _has_header(sample, trained, wishes)
        keys = records.columns
        names = tuple(sample[0].fields.values()) if header and sample else keys
    known = _Known(records.name, names, keys, named=header or records.format == "jsonl")
    wants_pair = wishes.pair is not None or "pair" in trained
    text = known.find(wishes.text, trained.get("text"), TEXT_NAMES, place=0, option="--text")
    pair = known.find(wishes.pair, trained.get("pair"), PAIR_NAMES, 1, "--pair", text) if wants_pair else None
    return Columns(
        names=names,
        keys=keys,
        header=header,
        typed=records.format == "jsonl",
        text=text,
        pair=pair,
        id=None if wishes.id is None else known.told(wishes.id),
        doubt=known.doubt() or _delimiter_doubt(names, sample, header=header, trained=trained),
    )


def _has_header(sample: Sequence[Record], trained: Mapping[str, str], wishes: Wishes) -> bool:
    if wishes.header is not None or not sample:
        return bool(wishes.header)
    told = [name for name in (wishes.text, wishes.pair, wishes.id) if name is not None and not _is_number(name)]
    known = _folded([*TEXT_NAMES, *PAIR_NAMES, *OTHER_NAMES, *trained.values(), *told])
    return sample[0].fault is None and not known.isdisjoint(_folded(sample[0].fields.values()))


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
        if _is_number(word) and 0 < int(word) <= len(self.keys):
            return self.keys[int(word) - 1]
        raise DataError(f"{self.source}: has no column '{visible(word)}'{visible(did_you_mean(word, self.names), 400)}")

    def find(
        self, told: str | None, trained: str | None, usual: Sequence[str], place: int, option: str, taken: str = ""
    ) -> str:
        """The key of the column for a text; never the one that is `taken`."""
        if told is not None:
            return self.told(told)
        if self.named:
            wanted = [name for name in (trained, *usual) if name is not None]
            for name in [*wanted, *self._spelled_otherwise(wanted)]:
                if name in self.names and (key := self._only(name)) != taken:
                    return key
        if not self.names:
            return trained or usual[0]
        role = "second text" if place else "text"
        left = [key for key in self.keys if key != taken]
        if self.named and len(left) > 1:
            shown = ", ".join(visible(name, 40) for name in self.names[:20])
            raise DataError(f"{self.source}: which column is the {role}? name it with {option}; there are: {shown}")
        if not left:
            raise DataError(f"{self.source}: has one column, and the model wants a pair of texts")
        key = left[0]
        if len(left) > 1 or self.guesses:
            self.guesses[option] = (self.keys.index(key) + 1, role)
        return key

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
            raise DataError(f"{self.source}: has the column '{visible(name)}' twice; give its number")
        return self.keys[list(self.names).index(name)]

    def _spelled_otherwise(self, wanted: Sequence[str]) -> list[str]:
        """Names that are one of `wanted` but for case and the spaces around them."""
        folded = [name.casefold() for name in wanted]
        found = [name for name in self.names if name.strip().casefold() in folded]
        return sorted(found, key=lambda name: folded.index(name.strip().casefold()))


def _delimiter_doubt(
    names: Sequence[str], sample: Sequence[Record], *, header: bool, trained: Mapping[str, str]
) -> str | None:
    """A warning where a TSV of one column has a first row that is a header if split at another mark than TAB."""
    if header or len(names) != 1 or not sample or "1" not in sample[0].fields:
        return None
    first = str(sample[0].fields["1"])
    known = _folded([*TEXT_NAMES, *PAIR_NAMES, *OTHER_NAMES, *trained.values()])
    for mark in DELIMITERS:
        if mark in first and not known.isdisjoint(_folded([part.strip('"') for part in first.split(mark)])):
            return f"the fields seem to be separated by '{mark}', not by TAB: every row is taken as one text"
    return None
