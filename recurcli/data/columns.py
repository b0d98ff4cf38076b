"""The texts in the columns of a record (`TextColumns`)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from recurcli.data.rows import Record, kind_of
from recurcli.errors import did_you_mean, escaped
from recurcli.validation import STRICT


class BadRow(Exception):
    """The reason why a row cannot be used."""


class Unlabelled(BadRow):
    """A row is sound, but has no label."""


class LeftOut(BadRow):
    """A row is sound, but is not meant for training or scores."""


class Text(NamedTuple):
    """The text of a row, its second text (None: not a pair), and the reason why one of them cannot be read."""

    text: str
    pair: str | None
    fault: str | None


@dataclass(frozen=True)
class TextColumns:
    """The columns of the text and of the second text of a pair; several columns are joined by a space."""

    __pydantic_config__ = STRICT

    text: tuple[str, ...] = ()
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


def folded(name: str) -> str:
    """Return `name` in one case and without surrounding spaces."""
    return name.strip().casefold()
