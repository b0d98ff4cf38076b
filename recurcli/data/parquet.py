"""Records of a Parquet file, read a batch at a time by Arrow, the library under `datasets`."""

from collections.abc import Iterator
from pathlib import Path

from recurcli.data.readers import Record
from recurcli.errors import DataError, visible

ROWS_AT_ONCE = 1024


def read_parquet(path: Path) -> Iterator[Record]:
    """The rows of a Parquet file as records, `line` their number from 1; DataError if it is none, or is damaged."""
    import pyarrow
    from pyarrow import parquet

    line = 0
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(ROWS_AT_ONCE):
                for fields in batch.to_pylist():
                    line += 1
                    yield Record(line, fields)
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: is no Parquet file, or is damaged: {visible(error, limit=200)}") from None
