"""Parquet files, and tasks whose dev rows come from their training file."""

from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from recurcli.data.config import DataConfig
from recurcli.data.examples import load_split
from recurcli.data.parquet import ParquetRecords
from recurcli.data.tasks import task_named
from recurcli.errors import DataError


def write(path: Path, rows: int) -> None:
    texts = [f"text {number}\twith a tab" for number in range(rows)]
    parquet.write_table(pyarrow.table({"text": texts, "label": ["neg", "pos"] * (rows // 2)}), path)


def test_every_row_is_a_record(tmp_path: Path) -> None:
    write(tmp_path / "x.parquet", 3000)
    records = list(ParquetRecords(tmp_path / "x.parquet"))
    assert [record.line for record in records] == list(range(1, 3001))
    assert records[2999].fields == {"text": "text 2999\twith a tab", "label": "pos"}


@pytest.mark.parametrize("content", [b"", b"PAR1", b"text\tlabel\n", b"PAR1" + b"\0" * 99 + b"PAR1"])
def test_what_is_no_parquet_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.parquet").write_bytes(content)
    with pytest.raises(DataError, match="is no Parquet file, or is damaged"):
        list(ParquetRecords(tmp_path / "x.parquet"))


def test_dev_rows_are_every_tenth_training_row_and_are_not_trained_on(tmp_path: Path) -> None:
    write(tmp_path / "train.parquet", 40)
    train, dev = (load_split(task_named("imdb"), split, DataConfig(path=str(tmp_path))) for split in ("train", "dev"))
    assert [example.id for example in dev.examples] == ["9", "19", "29", "39"]
    assert len(train.examples) == 36
    assert not {example.id for example in train.examples} & {example.id for example in dev.examples}
    assert train.sha256 == dev.sha256


def test_imdb_has_its_golden_counts(real_data: Path) -> None:
    task = task_named("imdb")
    for split in ("train", "dev", "test"):
        found = load_split(task, split, DataConfig(path=str(real_data)))
        assert len(found.examples) == task.rows[split]
        assert {example.label for example in found.examples} == {"neg", "pos"}
