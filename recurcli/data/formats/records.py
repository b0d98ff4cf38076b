"""The common form of all data files: records, one for each row, in the order of the file."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Self

Format = Literal["tsv", "csv", "jsonl", "parquet", "folders"]
"""`folders`: a folder of folders that are named by label and hold a text file for each row."""
DELIMITERS = "\t,;|"


class Record(NamedTuple):
    """One row: its number in the file from 1 (a header counts), its fields, and the reason why it cannot be used."""

    line: int
    fields: dict[str, Any]
    """TSV and CSV: column to string, as far as the row could be read. Other formats: key to value."""
    fault: str | None = None


@dataclass
class Records(Iterator[Record]):
    """The records of an open file, which can be read once; a context manager that closes the file."""

    name: str
    """Name of the file in messages."""
    format: Format
    columns: tuple[str, ...]
    """The header's names ("1", "2", … without a header), Parquet's columns, or the keys of the first JSON row."""
    rows: Iterator[Record]
    close: Callable[[], object] | None = None
    """Closes the file; None if the caller closes it."""

    @property
    def named(self) -> bool:
        """Whether each row has keys and typed values, as in JSON."""
        return self.format in ("jsonl", "parquet")

    def __next__(self) -> Record:
        return next(self.rows)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self.close is not None:
            self.close()


def delimiter_seen(columns: Sequence[str], format: str) -> str | None:
    """Return the delimiter in the name of the only column of a TSV or CSV; None without one, or with several columns."""
    if len(columns) != 1 or format not in ("tsv", "csv"):
        return None
    return next((mark for mark in DELIMITERS if mark in columns[0]), None)


def kind_of(value: Any) -> str:
    """Return the type of a JSON or Parquet value in words."""
    if value is None:
        return "null"
    words = {bool: "true or false", int: "a number", float: "a number", str: "a string", list: "a list"}
    return words.get(type(value), "an object" if isinstance(value, dict) else f"a {type(value).__name__}")
