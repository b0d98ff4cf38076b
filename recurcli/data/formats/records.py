"""What every kind of data file becomes: records, one for each of its rows and in their order, whatever the row holds."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self

from recurcli.errors import escaped

Format = Literal["tsv", "csv", "jsonl", "parquet", "folders"]
"""`folders`: a folder of folders that are named by label and hold a text file for each row."""
DELIMITERS = "\t,;|"


class Record(NamedTuple):
    """One row: its number in the file from 1 (a header counts), what it holds, and why it cannot be used."""

    line: int
    fields: dict[str, Any]
    """TSV and CSV: column to string, as far as the row could be read. Else: key to value."""
    fault: str | None = None


class Records(ABC, Iterator[Record]):
    """The records of an open file, once; a context manager that closes what was opened for it.

    `columns` are the header's names ("1", "2", … without a header), Parquet's, or the keys of the first JSON row.
    """

    format: Format
    columns: tuple[str, ...]

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def named(self) -> bool:
        """Whether each row brings its own keys, with values of their own types, as JSON does."""
        return self.format in ("jsonl", "parquet")

    @abstractmethod
    def close(self) -> None:
        """Close the file, if it was opened here."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def other_delimiter(columns: Sequence[str], format: str) -> str:
    """A hint for the end of a message where one single column looks like several that something else separates."""
    if len(columns) != 1 or format not in ("tsv", "csv"):
        return ""
    own = "TAB" if format == "tsv" else "a comma"
    mark = next((mark for mark in DELIMITERS if mark in columns[0]), None)
    return "" if mark is None else f"; its fields seem to be separated by '{escaped(mark)}', not by {own}"


def kind_of(value: Any) -> str:
    """What a value of JSON or Parquet is, in words."""
    if value is None:
        return "null"
    words = {bool: "true or false", int: "a number", float: "a number", str: "a string", list: "a list"}
    return words.get(type(value), "an object" if isinstance(value, dict) else f"a {type(value).__name__}")
