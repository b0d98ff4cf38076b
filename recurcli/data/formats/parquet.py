"""Reads a Parquet file in batches with Arrow, which `datasets` requires."""

import contextlib
import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from recurcli.data.formats.rows import Record, Records
from recurcli.errors import DataError, escaped

ROWS_AT_ONCE = 1024


def parquet_records(path: Path) -> Records:
    """Return the rows of a Parquet file, their `line` counted from 1.

    Class numbers of a file that `datasets` wrote become the names in its metadata. Raises DataError if the file is not
    Parquet or is damaged.
    """
    import pyarrow
    from pyarrow import parquet

    @contextlib.contextmanager
    def naming_damage() -> Iterator[None]:
        try:
            yield
        except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
            raise DataError(f"{path}: is no Parquet file, or is damaged: {escaped(error, limit=200)}") from None

    with naming_damage():
        file = parquet.ParquetFile(path)
        columns = tuple(file.schema_arrow.names)
        class_names = _class_names(file.schema_arrow.metadata)
    if twice := next((name for name in columns if columns.count(name) > 1), None):
        file.close()
        raise DataError(f"{path}: has the column '{escaped(twice)}' twice")

    def read() -> Iterator[Record]:
        with naming_damage():
            rows = chain.from_iterable(batch.to_pylist() for batch in file.iter_batches(ROWS_AT_ONCE))
            for line, fields in enumerate(rows, 1):
                yield Record(line, with_class_names(fields, class_names))

    return Records(str(path), "parquet", columns, read(), file.close)


def with_class_names(fields: dict[str, Any], class_names: dict[str, list[str]]) -> dict[str, Any]:
    """Replace class numbers by their names (column to names); by None for -1, a hidden label."""
    for column in class_names.keys() & fields.keys():
        value, names = fields[column], class_names[column]
        if type(value) is int and value < len(names):
            fields[column] = names[value] if value >= 0 else None
    return fields


def _class_names(metadata: dict[bytes, bytes] | None) -> dict[str, list[str]]:
    """Return column to class names from the metadata that `datasets` writes into a schema."""
    try:
        features = json.loads((metadata or {})[b"huggingface"])["info"]["features"]
        return {name: feature["names"] for name, feature in features.items() if feature.get("_type") == "ClassLabel"}
    except (KeyError, ValueError, TypeError, AttributeError):
        return {}
