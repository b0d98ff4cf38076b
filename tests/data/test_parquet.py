"""Parquet files, and tasks whose dev rows come from their training file."""

import json
import time
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from recurcli.config import DataConfig
from recurcli.data.readers import read_records
from recurcli.data.splits import load_split
from recurcli.data.tasks import task_named
from recurcli.errors import DataError


def write(path: Path, rows: int) -> None:
    texts = [f"text {number}\twith a tab" for number in range(rows)]
    parquet.write_table(pyarrow.table({"text": texts, "label": ["neg", "pos"] * (rows // 2)}), path)


def test_every_row_is_a_record(tmp_path: Path) -> None:
    write(tmp_path / "x.parquet", 3000)
    records = list(read_records(tmp_path / "x.parquet"))
    assert [record.line for record in records] == list(range(1, 3001))
    assert records[2999].fields == {"text": "text 2999\twith a tab", "label": "pos"}


def test_a_repeated_column_is_found_among_20_000_at_once(tmp_path: Path) -> None:
    names = [*(f"column {number}" for number in range(20_000)), "column 19998"]
    parquet.write_table(
        pyarrow.Table.from_arrays([pyarrow.array(["x"])] * len(names), names=names), tmp_path / "x.parquet"
    )
    start = time.monotonic()
    with pytest.raises(DataError, match="has the column 'column 19998' twice"):
        read_records(tmp_path / "x.parquet")
    assert time.monotonic() - start < 3, "a comparison of all names with all takes longer"


@pytest.mark.parametrize("content", [b"", b"PAR1", b"text\tlabel\n", b"PAR1" + b"\0" * 99 + b"PAR1"])
def test_what_is_no_parquet_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.parquet").write_bytes(content)
    with pytest.raises(DataError, match="is not a Parquet file, or is damaged"):
        list(read_records(tmp_path / "x.parquet"))


def test_dev_rows_are_a_tenth_of_each_class_and_are_not_trained_on(tmp_path: Path) -> None:
    write(tmp_path / "train.parquet", 40)
    train, dev = (load_split(task_named("imdb"), split, DataConfig(path=str(tmp_path))) for split in ("train", "dev"))
    assert [example.label for example in dev.examples].count("pos") == 2
    assert (len(train.examples), len(dev.examples)) == (36, 4)
    assert train.dev == dev, "one reading gives both"
    assert not {example.id for example in train.examples} & {example.id for example in dev.examples}
    assert train.sha256 == dev.sha256


@pytest.mark.slow
def test_imdb_has_its_golden_counts(real_data: Path) -> None:
    task = task_named("imdb")
    train, test = (load_split(task, split, DataConfig(path=str(real_data))) for split in ("train", "test"))
    assert train.dev is not None
    assert len(train.examples) + len(train.dev.examples) == task.rows["train"]
    assert len(train.dev.examples) == 2_490, "2,500, less for reviews that stand there twice, in whatever case"
    assert len(test.examples) == task.rows["test"]
    assert {example.label for split in (train, train.dev, test) for example in split.examples} == {"neg", "pos"}


def features(**kinds: dict[str, object]) -> dict[bytes, bytes]:
    """What `datasets` writes into a schema's metadata."""
    return {b"huggingface": json.dumps({"info": {"features": kinds}}).encode()}


CLASSES: dict[str, object] = {"names": ["neg", "pos"], "_type": "ClassLabel"}


def test_class_numbers_get_the_names_in_the_files_metadata(tmp_path: Path) -> None:
    table = pyarrow.table({"text": ["a", "b", "c", "d", "e"], "label": [1, 0, -1, 7, None]})
    named = table.replace_schema_metadata(features(label=CLASSES, text={"dtype": "string", "_type": "Value"}))
    parquet.write_table(named, tmp_path / "x.parquet")
    labels = [record.fields["label"] for record in read_records(tmp_path / "x.parquet")]
    assert labels == ["pos", "neg", None, 7, None]


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {b"huggingface": b"no json"},
        {b"huggingface": b"[]"},
        {b"huggingface": b'{"info": {"features": []}}'},
        {b"huggingface": b'{"info": {"features": {"label": null}}}'},
        {b"huggingface": b'{"info": {"features": {"label": {"_type": "ClassLabel"}}}}'},
        features(other=CLASSES),
    ],
)
def test_metadata_that_say_nothing_leave_the_numbers(tmp_path: Path, metadata: dict[bytes, bytes]) -> None:
    table = pyarrow.table({"text": ["a"], "label": [1]}).replace_schema_metadata(metadata)
    parquet.write_table(table, tmp_path / "x.parquet")
    assert [record.fields for record in read_records(tmp_path / "x.parquet")] == [{"text": "a", "label": 1}]


def test_values_keep_their_kinds(tmp_path: Path) -> None:
    table = pyarrow.table({"text": [["a", "b"], None], "target": [{"n": 1}, None], "dict": ["x", "x"]})
    table = table.set_column(2, "dict", table["dict"].dictionary_encode())
    parquet.write_table(table, tmp_path / "x.parquet")
    assert [record.fields for record in read_records(tmp_path / "x.parquet")] == [
        {"text": ["a", "b"], "target": {"n": 1}, "dict": "x"},
        {"text": None, "target": None, "dict": "x"},
    ]


def test_a_file_that_ends_early_is_no_shorter_file(tmp_path: Path) -> None:
    write(tmp_path / "x.parquet", 3000)
    whole = (tmp_path / "x.parquet").read_bytes()
    for cut in (whole[:-20], whole[: len(whole) // 2], whole[:300] + bytes(60) + whole[360:]):
        (tmp_path / "x.parquet").write_bytes(cut)
        with pytest.raises(DataError, match="is not a Parquet file, or is damaged"):
            list(read_records(tmp_path / "x.parquet"))
