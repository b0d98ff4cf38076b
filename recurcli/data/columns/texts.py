"""Which columns of a row hold its text, second text, label and id, and how they become strings."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from recurcli.data.formats.records import kind_of
from recurcli.errors import did_you_mean, escaped

TEXT_NAMES = (
    *("text", "sentence", "sentence1", "premise", "question1", "text1", "text_a", "review", "content", "query"),
    *("title", "question", "comment", "message", "tweet", "headline", "body"),
)
"""What the column of a text is usually called, the likelier names first."""
PAIR_NAMES = {
    "text": "pair",
    "sentence": "pair",
    "sentence1": "sentence2",
    "premise": "hypothesis",
    "question1": "question2",
    "text1": "text2",
    "text_a": "text_b",
}
"""What the column of the second text is usually called, by the name of the first one's."""
LABEL_NAMES = ("label", "labels", "class", "category", "target", "sentiment", "intent", "topic", "stars", "rating", "y")
ID_NAMES = ("id", "idx", "index", "guid", "uid")


def is_usual(name: object) -> bool:
    """Whether a column of texts may well be called so."""
    return isinstance(name, str) and name.strip().casefold() in {*TEXT_NAMES, *PAIR_NAMES.values()}


class BadRow(Exception):
    """Why a row makes no example."""


class TextColumns(NamedTuple):
    """Where the text of a row stands, and the second text of a pair; several columns are joined by a space."""

    text: tuple[str, ...]
    pair: tuple[str, ...] = ()
    spans: str | None = None
    """Key of an object that names two spans of the text, which are marked as CLUE's baselines do for WSC."""

    def read(self, fields: Mapping[str, Any]) -> tuple[str, str | None]:
        """The text and the second text (None where the task has none) of a row; BadRow says what is wrong with them."""
        text = joined(fields, self.text)
        if self.spans is not None:
            text = marked(text, value_of(fields, self.spans))
        return text, joined(fields, self.pair) if self.pair else None

    def to_json(self) -> dict[str, list[str]]:
        """As a model's config.json keeps it, so that predictions read a row as training did."""
        named = {"text": [*self.text], "pair": [*self.pair], "spans": [self.spans] if self.spans else []}
        return {key: names for key, names in named.items() if names}

    @classmethod
    def from_json(cls, columns: Mapping[str, Sequence[str]]) -> "TextColumns":
        """What `to_json` wrote."""
        spans = columns.get("spans")
        return cls(tuple(columns.get("text", ())), tuple(columns.get("pair", ())), spans[0] if spans else None)


def value_of(fields: Mapping[str, Any], column: str) -> Any:
    """The value under `column`; BadRow with the nearest name if there is none."""
    if column not in fields:
        raise BadRow(f"has no '{escaped(column)}'{escaped(did_you_mean(column, fields), limit=400)}")
    return fields[column]


def joined(fields: Mapping[str, Any], columns: Iterable[str]) -> str:
    """The texts of `columns` with a space between them; a list of strings, such as CSL's keywords, is joined alike."""
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
    """`text` with `_first span_` and `[second span]` marked, as CLUE's baselines do for WSC.

    `target` holds span1_text, span1_index, span2_text, span2_index; indexes count characters from 0. Spans that do not
    stand where their index says and are not found elsewhere once, or that overlap, are a BadRow.
    """
    spans: list[tuple[int, str, str]] = []
    for number, marks in ((1, "__"), (2, "[]")):
        span = target.get(f"span{number}_text") if isinstance(target, Mapping) else None
        index = target.get(f"span{number}_index") if isinstance(target, Mapping) else None
        if not isinstance(span, str) or type(index) is not int:
            raise BadRow(f"names no span{number}_text and span{number}_index")
        if index < 0 or not text.startswith(span, index):
            if text.count(span) != 1:  # else there is no doubt where it stands
                raise BadRow(f"'{escaped(span)}' does not stand at character {index}, where span{number}_index has it")
            index = text.index(span)
        spans.append((index, span, marks))
    (first, word, _), (second, _, _) = sorted(spans)
    if first + len(word) > second:
        raise BadRow("its two spans overlap")
    for index, span, marks in sorted(spans, reverse=True):  # from the back, so that the index before stays right
        text = f"{text[:index]}{marks[0]}{span}{marks[1]}{text[index + len(span) :]}"
    return text
