"""The rows of `recur predict`: which columns hold the text, and how a row looks with its prediction."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from recurcli.data.readers import Record, Records, kind_of
from recurcli.errors import DataError, UsageError, did_you_mean, visible
from recurcli.evaluation.predictor import Prediction

ADDED = ("prediction", "score", "reason")
_COMMON = ("text", "sentence", "sentence1", "sentence2", "label", "id")
"""Names that make the first row of a TSV a header, besides those of the model's task."""


class Text(NamedTuple):
    """What is to be classified; `fault` says why the row could not be read as it should be."""

    text: str
    pair: str | None
    fault: str | None


@dataclass(frozen=True)
class TextColumns:
    """The columns of an input: their names as written, and the keys under which records hold text and pair."""

    names: tuple[str, ...]
    """The input's columns, for the output's header; without a header their numbers."""
    header: bool
    """Whether the first row is a header."""
    text: str
    pair: str | None
    typed: bool
    """Whether rows have values of their own types (JSON) rather than strings in columns."""

    def text_of(self, record: Record) -> Text:
        """The text, or the pair, in a record; what cannot be read is empty, with the reason."""
        found: list[str] = []
        fault = record.fault
        for key in (self.text, self.pair):
            value = "" if key is None else record.fields.get(key)
            if not isinstance(value, str):
                lack = (
                    f"has no '{visible(key)}'" if value is None else f"'{visible(key)}' is {kind_of(value)}, no string"
                )
                fault, value = fault or lack, ""
            found.append(value)
        return Text(found[0], None if self.pair is None else found[1], fault)


def find_columns(
    records: Records,
    first: Record | None,
    trained: Mapping[str, str],
    text: str | None,
    pair: str | None,
    header: bool | None,
) -> TextColumns:
    """Settle where text and pair stand: as told, else where the training data had them, else the first columns.

    `records` were opened without a header, so a TSV's header is their `first` row. Raises DataError if a column is
    missing, or if the input has one that the output adds.
    """
    wants_pair = pair is not None or "pair" in trained
    if records.format == "jsonl":
        _refuse_added(records.columns)
        chosen = text or trained.get("text", "text")
        return TextColumns(
            records.columns, False, chosen, (pair or trained.get("pair", "pair")) if wants_pair else None, typed=True
        )
    values = () if first is None else tuple(first.fields.values())
    if header is None:
        known = {*_COMMON, *trained.values(), *(name for name in (text, pair) if name and not name.isdigit())}
        header = first is not None and first.fault is None and bool(known.intersection(values))
    names = values if header else records.columns
    _refuse_added(names)
    keys = dict(zip(reversed(names), reversed(records.columns), strict=True))
    find = _Finder(records, keys, names, header=header)
    text_key = find.column(text, trained.get("text"), place=0)
    pair_key = find.column(pair, trained.get("pair"), place=1) if wants_pair else None
    return TextColumns(names, header, text_key, pair_key, typed=False)


class _Finder:
    """Columns of one TSV by name, by number, or by place."""

    def __init__(self, records: Records, keys: Mapping[str, str], names: Sequence[str], *, header: bool) -> None:
        self.records, self.keys, self.names, self.header = records, keys, names, header

    def column(self, told: str | None, trained: str | None, place: int) -> str:
        """The record's key of the column that was told, else of the trained name, else at `place`."""
        columns = self.records.columns
        if told is not None:
            if told in self.keys and list(self.names).count(told) > 1:
                raise DataError(f"{self.records.name}:1: has the column '{visible(told)}' twice; give its number")
            if told in self.keys:
                return self.keys[told]
            if told.isascii() and told.isdigit() and 0 < int(told) <= len(columns):
                return columns[int(told) - 1]
            raise DataError(f"{self.records.name}:1: has no column '{visible(told)}'{did_you_mean(told, self.names)}")
        if self.header and trained in self.keys:
            return self.keys[str(trained)]
        if not columns:
            return str(place + 1)  # an empty input: no row will ask for it
        if self.header and len(columns) > place + 1 + (0 if place else 1):
            names = ", ".join(visible(name, 40) for name in self.names[:20])
            option = "--pair" if place else "--text"
            raise DataError(
                f"{self.records.name}:1: which column is the text? name it with {option}; there are: {names}"
            )
        if place >= len(columns):
            raise DataError(f"{self.records.name}:1: has {len(columns)} columns, and the model wants a pair of texts")
        return columns[place]


def _refuse_added(names: Sequence[str]) -> None:
    for name in ADDED:
        if name in names:
            raise DataError(f"the input has a column '{name}', which the output adds; rename it first")


class RowWriter:
    """Bytes of the output: the input's columns, `prediction`, `score`, and what else was asked for."""

    def __init__(
        self,
        format: Literal["tsv", "jsonl", "clue"],
        columns: TextColumns,
        labels: Sequence[str],
        *,
        probabilities: bool,
        top_k: int | None,
        with_reason: bool,
        id_column: str | None,
    ) -> None:
        if format == "clue" and (probabilities or top_k):
            raise UsageError("--format clue holds labels only; leave out --probabilities and --top-k")
        self.format = format
        self.columns = columns
        self.labels = labels
        self.probabilities = probabilities
        self.top_k = None if top_k is None else min(top_k, len(labels))
        self.with_reason = with_reason
        self.id_column = id_column
        self.count = 0

    def head(self) -> bytes:
        """The header row, where there is one."""
        if self.format != "tsv" or not (self.columns.header or self.columns.typed):
            return b""
        names = [*self.columns.names, "prediction", "score"]
        names += [f"{word}_{n}" for n in range(1, (self.top_k or 0) + 1) for word in ("label", "score")]
        names += [f"probability_{label}" for label in self.labels] if self.probabilities else []
        return self._line([*names, *(["reason"] if self.with_reason else [])])

    def row(self, record: Record, prediction: Prediction, fault: str | None) -> bytes:
        """One row of the output."""
        number, self.count = self.count, self.count + 1
        if self.format == "clue":
            row_id = record.fields.get(self.id_column, number) if self.id_column else number
            return (json.dumps({"id": row_id, "label": prediction.label}, ensure_ascii=False) + "\n").encode()
        best = sorted(prediction.probabilities.items(), key=lambda item: -item[1])[: self.top_k or 0]
        if self.format == "jsonl":
            return self._json_row(record, prediction, best, fault)
        values = [record.fields.get(key, "") for key in self._keys(record)]
        values += [prediction.label, f"{prediction.score:.6f}"]
        values += [text for label, share in best for text in (label, f"{share:.6f}")]
        if self.probabilities:
            values += [f"{share:.6f}" for share in prediction.probabilities.values()]
        return self._line([*values, *([fault or ""] if self.with_reason else [])])

    def _keys(self, record: Record) -> Sequence[str]:
        """The record's keys in the order of the output's columns."""
        return self.columns.names if self.columns.typed else [str(n + 1) for n in range(len(self.columns.names))]

    def _json_row(
        self, record: Record, prediction: Prediction, best: Sequence[tuple[str, float]], fault: str | None
    ) -> bytes:
        fields = record.fields if self.columns.typed else self._named(record)
        line: dict[str, Any] = {**fields, "prediction": prediction.label, "score": round(prediction.score, 6)}
        if best:
            line["top"] = [{"label": label, "score": round(share, 6)} for label, share in best]
        if self.probabilities:
            line["probabilities"] = {label: round(share, 6) for label, share in prediction.probabilities.items()}
        if fault:
            line["reason"] = fault
        return (json.dumps(line, ensure_ascii=False) + "\n").encode()

    def _named(self, record: Record) -> dict[str, Any]:
        return dict(zip(self.columns.names, record.fields.values(), strict=False))

    def _line(self, values: Sequence[Any]) -> bytes:
        return ("\t".join(self._cell(value) for value in values) + "\n").encode()

    def _cell(self, value: Any) -> str:
        """A TSV cell. Only JSON can bring a TAB or a line end into one: those are written as \\t, \\n and \\r."""
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        if not self.columns.typed:
            return text
        return text.replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")
