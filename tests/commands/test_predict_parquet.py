"""`recur predict` on Parquet: one schema for several files, dictionaries, empty files, and nulls in other formats."""

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from logs import drop
from predicting import Recur, jsonl
from pyarrow import parquet

from recurcli.commands.predict import predict
from recurcli.commands.prediction import output as prediction_output
from recurcli.data.readers import read_records
from recurcli.requests.predict import PredictRequest

TEXTS = ["鼠牛", "虎", "兔兔兔", "龙", "牛", "鼠"]


def write(path: Path, **columns: Any) -> Path:
    """Write a Parquet file with texts beside the columns, which have equally many values."""
    count = max((len(values) for values in columns.values()), default=3)
    parquet.write_table(pa.table({"sentence": pa.array(TEXTS[:count], pa.string()), **columns}), path)
    return path


INTEGERS, LONG_INTEGERS = pa.array([1, 2, 3], pa.int32()), pa.array([4, 2**40, 6], pa.int64())
PROMOTED = {
    "integers": (INTEGERS, LONG_INTEGERS, pa.int64()),
    "integers, the longer first": (LONG_INTEGERS, INTEGERS, pa.int64()),
    "strings": (pa.array(["a", "b", "c"]), pa.array(["d", "e", "f"], pa.large_string()), pa.large_string()),
    "nulls and strings": (pa.nulls(3), pa.array(["d", "e", "f"]), pa.string()),
    "times and nulls": (pa.array([1, 2, 3], pa.timestamp("us")), pa.nulls(3), pa.timestamp("us")),
    "lists": (pa.array([[], [], []], pa.list_(pa.null())), pa.array([["x"], [], None]), pa.list_(pa.string())),
    "dictionaries": (
        pa.array(["a", "b", "a"]).dictionary_encode(),
        pa.array(["c", "d", None]).dictionary_encode(),
        pa.string(),
    ),
}


@pytest.mark.parametrize("kinds", PROMOTED)
def test_several_files_have_one_schema_that_holds_their_values(
    kinds: str, recur: Recur, trained: Path, tmp_path: Path
) -> None:
    first, second, type = PROMOTED[kinds]
    files = [write(tmp_path / "a.parquet", x=first), write(tmp_path / "b.parquet", x=second)]
    recur.ok("predict", trained, *files, "--output", tmp_path / "y.parquet", "--quiet")
    recur.ok("predict", trained, *files, "--output", tmp_path / "2.parquet", "--shard", "2/2", "--quiet")
    table = parquet.read_table(tmp_path / "y.parquet")
    assert table.schema.field("x").type == type
    assert table["x"].to_pylist() == first.to_pylist() + second.to_pylist()
    assert parquet.read_table(tmp_path / "2.parquet") == table.slice(3)
    alone = [row["prediction"] for file in files for row in jsonl(recur.ok("predict", trained, file, "--quiet")[0])]
    assert table["prediction"].to_pylist() == alone


def test_a_column_that_one_file_lacks_is_null_there(recur: Recur, trained: Path, tmp_path: Path) -> None:
    files = [write(tmp_path / "a.parquet", x=["a", "b", "c"]), write(tmp_path / "b.parquet", n=INTEGERS)]
    recur.ok("predict", trained, *files, "--output", tmp_path / "y.parquet")
    table = parquet.read_table(tmp_path / "y.parquet")
    assert table.column_names == ["sentence", "x", "n", "prediction", "score"]
    assert (table["x"].to_pylist(), table["n"].to_pylist()) == (["a", "b", "c", *[None] * 3], [*[None] * 3, 1, 2, 3])


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (LONG_INTEGERS, pa.array([1.5, 2.5, 3.5])),
        (pa.array([1, 2, 3], pa.timestamp("us")), pa.array([1, 2, 3], pa.timestamp("ms"))),
        (INTEGERS, pa.array(["a", "b", "c"])),
        (pa.array([1, 2, 3], pa.uint64()), LONG_INTEGERS),
        (pa.array([[1]] * 3), pa.array([["a"]] * 3)),
    ],
    ids=lambda values: str(values.type),
)
def test_types_without_a_common_one_are_refused_before_labelling(
    first: pa.Array, second: pa.Array, recur: Recur, trained: Path, tmp_path: Path
) -> None:
    files = [write(tmp_path / "a.parquet", x=first), write(tmp_path / "b.parquet", x=second)]
    line = ["predict", trained, *files]
    for shard in ([], ["--shard", "2/2"]):
        said = recur.refused(3, "the column 'x' is", *line, "--output", tmp_path / "y.parquet", *shard)
        assert f"error: {files[1]}: " in said
    assert {path.name for path in tmp_path.iterdir()} == {"a.parquet", "b.parquet"}
    assert len(jsonl(recur.ok(*line)[0])) == 6, "each line of JSON has its own types"


def test_a_dictionary_column_is_written_as_its_values(
    recur: Recur, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prediction_output, "SECONDS_BETWEEN_JOURNALS", 0)
    monkeypatch.setattr("recurcli.commands.prediction.rows.WINDOW", 2)
    colors = pa.array(["red", None, "blue", "red", "blue", "red"]).dictionary_encode()
    source, output = write(tmp_path / "x.parquet", color=colors), tmp_path / "y.parquet"
    recur.ok("predict", trained, source, "--output", tmp_path / "whole.parquet")
    drop(predict, PredictRequest(run=trained, inputs=[source], output=output), lambda state: state.done > 3)
    _, err = recur.ok("predict", trained, source, "--output", output, "--resume")
    assert "going on after row " in err
    assert output.read_bytes() == (tmp_path / "whole.parquet").read_bytes()
    assert parquet.read_table(output)["color"].to_pylist() == colors.to_pylist()


def test_a_resume_with_another_type_is_refused(
    recur: Recur, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prediction_output, "SECONDS_BETWEEN_JOURNALS", 0)
    monkeypatch.setattr("recurcli.commands.prediction.rows.WINDOW", 2)
    files = [write(tmp_path / "a.parquet", x=INTEGERS), write(tmp_path / "b.parquet", x=INTEGERS)]
    output = tmp_path / "y.parquet"
    drop(predict, PredictRequest(run=trained, inputs=files, output=output), lambda state: state.done > 3)
    write(files[1], x=LONG_INTEGERS)
    recur.refused(3, "another input", "predict", trained, *files, "--output", output, "--resume")


def test_dictionaries_within_lists_and_structs_have_their_values_types(tmp_path: Path) -> None:
    word = pa.dictionary(pa.int8(), pa.string())
    path = write(
        tmp_path / "x.parquet",
        tags=pa.array([["a"], None, []], pa.list_(word)),
        author=pa.array([{"name": "b"}, None, {"name": "c"}], pa.struct([("name", word)])),
    )
    with read_records(path) as records:
        types = {name: records.types[name] for name in ("tags", "author")}
    assert types == {"tags": pa.list_(pa.string()), "author": pa.struct([("name", pa.string())])}


def test_a_nameless_class_number_is_written_as_a_string(recur: Recur, trained: Path, tmp_path: Path) -> None:
    features = {"info": {"features": {"class": {"names": ["neg", "pos"], "_type": "ClassLabel"}}}}
    table = pa.table({"sentence": TEXTS[:3], "class": [1, 7, None]})
    table = table.replace_schema_metadata({"huggingface": json.dumps(features)})
    parquet.write_table(table, tmp_path / "x.parquet")
    recur.ok("predict", trained, tmp_path / "x.parquet", "--output", tmp_path / "y.parquet")
    assert parquet.read_table(tmp_path / "y.parquet")["class"].to_pylist() == ["pos", "7", None]


def test_json_has_null_for_the_one_value_that_it_lacks(recur: Recur, trained: Path, tmp_path: Path) -> None:
    source = write(
        tmp_path / "x.parquet",
        x=[math.nan, 1.5, 2.5],
        y=[0.5, math.inf, 2.0],
        vector=[[0.5, -math.inf], [1.0, 2.0], []],
        point=[{"a": 1.0, "b": [math.nan, 3.0]}, {"a": math.nan, "b": None}, None],
    )
    rows = jsonl(recur.ok("predict", trained, source)[0])
    assert [[row[name] for name in ("x", "y", "vector", "point")] for row in rows] == [
        [None, 0.5, [0.5, None], {"a": 1.0, "b": [None, 3.0]}],
        [1.5, None, [1.0, 2.0], {"a": None, "b": None}],
        [2.5, 2.0, [], None],
    ]
    assert ["reason" in row for row in rows] == [True, True, False]


@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet", "jsonl"])
@pytest.mark.parametrize("files", [1, 2])
def test_an_empty_file_gives_an_output_with_its_columns(
    files: int, ending: str, recur: Recur, trained: Path, tmp_path: Path
) -> None:
    sources = [write(tmp_path / f"{n}.parquet", **{f"n{n}": pa.array([], pa.int64())}) for n in range(files)]
    output = tmp_path / f"y.{ending}"
    recur.ok("predict", trained, *sources, "--output", output)
    names = ["sentence", "n0", "prediction", "score"]
    if ending == "parquet":
        schema = parquet.read_schema(output)
        assert (schema.names, schema.types[:2]) == (names, [pa.string(), pa.int64()])
    else:
        mark = "," if ending == "csv" else "\t"
        assert output.read_text() == ("" if ending == "jsonl" else mark.join(names) + "\n")


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_null_is_an_empty_cell_of_a_table(form: str, recur: Recur, trained: Path, tmp_path: Path) -> None:
    source = tmp_path / f"x.{form}"
    columns: dict[str, list[Any]] = {"n": [1, None], "word": [None, "null"], "list": [[None], None]}
    if form == "parquet":
        write(source, **columns)
    else:
        rows = (
            {"sentence": "鼠", **dict(zip(columns, row, strict=True))} for row in zip(*columns.values(), strict=True)
        )
        source.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    for format, mark in (("csv", ","), ("tsv", "\t")):
        out, _ = recur.ok("predict", trained, source, "--format", format)
        cells = [[row[name] for name in columns] for row in csv.DictReader(io.StringIO(out), delimiter=mark)]
        assert cells == [["1", "", "[null]"], ["", "null", ""]]
