"""Records of a Parquet file, read a batch at a time by Arrow, the library under `datasets`."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from recurcli.data.formats.records import Record, Records
from recurcli.errors import DataError, escaped

ROWS_AT_ONCE = 1024


class ParquetRecords(Records):
    """The rows of a Parquet file, `line` their number from 1; DataError if it is none, or is damaged.

    Class numbers of a file that `datasets` wrote are given back as the names that its metadata holds for them.
    """

    format = "parquet"

    def __init__(self, path: Path) -> None:
        import pyarrow
        from pyarrow import parquet

        super().__init__(str(path))
        self._damage = (pyarrow.ArrowException, OSError, UnicodeDecodeError)
        try:
            self._file = parquet.ParquetFile(path)
            self.rows: int = self._file.metadata.num_rows
            self.columns = tuple(self._file.schema_arrow.names)
            self._names = _class_names(self._file.schema_arrow.metadata)
        except self._damage as error:
            raise self._damaged(error) from None
        if twice := next((name for name in self.columns if self.columns.count(name) > 1), None):
            self.close()
            raise DataError(f"{self.name}: has the column '{escaped(twice)}' twice")
        self._records = self._read()

    def __next__(self) -> Record:
        return next(self._records)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _read(self) -> Iterator[Record]:
        line = 0
        try:
            for batch in self._file.iter_batches(ROWS_AT_ONCE):
                for fields in batch.to_pylist():
                    line += 1
                    for column in self._names.keys() & fields.keys():
                        fields[column] = class_name(fields[column], self._names[column])
                    yield Record(line, fields)
        except self._damage as error:
            raise self._damaged(error) from None

    def _damaged(self, error: Exception) -> DataError:
        return DataError(f"{self.name}: is no Parquet file, or is damaged: {escaped(error, limit=200)}")


def class_name(value: Any, names: list[str]) -> Any:
    """The name of class number `value`; None for -1, which stands for a label that is kept back."""
    if type(value) is not int or value >= len(names):
        return value
    return names[value] if value >= 0 else None


def _class_names(metadata: dict[bytes, bytes] | None) -> dict[str, list[str]]:
    """Column to the names of its classes, as `datasets` writes them into a schema."""
    try:
        features = json.loads((metadata or {})[b"huggingface"])["info"]["features"]
        return {name: feature["names"] for name, feature in features.items() if feature.get("_type") == "ClassLabel"}
    except (KeyError, ValueError, TypeError, AttributeError):
        return {}
