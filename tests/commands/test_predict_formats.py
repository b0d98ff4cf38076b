"""CSV and Parquet go into `recur predict`, and CSV comes out: a row for each row, their values as they were."""

import csv
import io
import json
from datetime import datetime
from pathlib import Path

import pyarrow
import pytest
from cases import slow_but
from predicting import Recur, as_stdin
from pyarrow import parquet
from workbooks import write_workbook

from recurcli.commands.prediction.output import PredictionProgress
from recurcli.commands.prediction.rows import Input, RowWriter
from recurcli.data.columns import TextColumns
from recurcli.data.rows import Record, Records, open_file
from recurcli.data.source import Source
from recurcli.errors import DataError
from recurcli.evaluation.predictor import Prediction
from recurcli.requests.predict import OutputFormat, PredictRequest
from recurcli.targets import OneLabel

ROWS = [["1", "鼠,\n牛"], ["2", 'a "虎"\t兔'], ["3", ""], ["4", "NA"]]


def write_csv(path: Path, *, header: bool = True, delimiter: str = ",") -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=delimiter, lineterminator="\n")
        writer.writerows([*([["key", "sentence"]] if header else []), *ROWS])
    return path


@pytest.mark.parametrize(
    ("header", "delimiter", "options"),
    [(True, ",", ()), (False, ",", ("--text", "2")), (True, ";", ("--delimiter", ";"))],
)
def test_a_csv_keeps_its_values_and_its_delimiter(
    header: bool, delimiter: str, options: tuple[str, ...], recur: Recur, trained: Path, tmp_path: Path
) -> None:
    line = ("predict", trained, write_csv(tmp_path / "x.csv", header=header, delimiter=delimiter), *options)
    out, _ = recur.ok(*line)
    rows = list(csv.reader(io.StringIO(out, newline=""), delimiter=delimiter))
    assert not header or rows.pop(0) == ["key", "sentence", "prediction", "score", "reason"]
    assert [row[:2] for row in rows] == ROWS
    assert [row[4:] for row in rows] == [["" if text.strip() else "its text is empty"] for _, text in ROWS]
    assert recur.ok(*line, "--format", "csv")[0] == out


@pytest.mark.parametrize(
    ("cell", "held"),
    [("a\tb", "a TAB"), ("a\nb", "a line end"), ("a\rb", "a line end"), ("a\\tb", None), ('"a", b', None)],
)
@pytest.mark.parametrize("piped", [False, True])
def test_what_a_tsv_cannot_hold_is_refused_with_its_row(
    cell: str,
    held: str | None,
    piped: bool,
    recur: Recur,
    trained: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text("".join(json.dumps({"key": 1, "sentence": text}) + "\n" for text in ("a", "b", cell)))
    source, name = ("-", "standard input") if piped else (path, path)
    if piped:
        as_stdin(monkeypatch, path.read_bytes())
    code, _, err = recur("predict", trained, source, "--output", tmp_path / "y.tsv", "--quiet")
    if held:
        way_out = "write a CSV (--output x.csv) or JSON lines"
        said = f"recur: error: {name}:3: 'sentence' holds {held}, which no TSV can hold; {way_out}\n"
        assert (code, err, (tmp_path / "y.tsv").exists()) == (3, said, False)
    else:
        assert code == 0, err
        assert (tmp_path / "y.tsv").read_text().splitlines()[-1].split("\t")[1] == cell


FORMATS = ("tsv", "csv", "jsonl")


@pytest.mark.parametrize(
    ("form", "ending"),
    slow_but(
        [("tsv", "csv.gz"), ("csv", "jsonl.zst"), ("csv", "tsv"), ("jsonl", "csv"), ("jsonl", "tsv.gz")],
        [(form, f"{name}{packed}") for form in FORMATS for name in FORMATS for packed in ("", ".gz", ".zst")],
        unpack=True,
    ),
)
def test_an_outputs_ending_is_its_format(ending: str, form: str, recur: Recur, trained: Path, tmp_path: Path) -> None:
    source, output = tmp_path / f"in.{form}", tmp_path / f"out.{ending}"
    mark = {"tsv": "\t", "csv": ","}.get(form)
    rows = ["鼠", 'a "b", c']
    lines = [
        ["key", "sentence"],
        *(["1", f'"{row.replace(chr(34), chr(34) * 2)}"' if mark == "," else row] for row in rows),
    ]
    objects = (json.dumps({"key": "1", "sentence": row}) for row in rows)
    source.write_text("".join(f"{line}\n" for line in (objects if mark is None else map(mark.join, lines))))
    recur.ok("predict", trained, source, "--output", output, "--quiet")
    with open_file(output) as file:
        content = file.read()
    text, kind = content.decode(), ending.partition(".")[0]
    assert recur("predict", trained, source, "--format", kind)[1] == text
    if kind == "jsonl":
        found = [list(json.loads(line).values()) for line in text.splitlines()]
    else:
        found = list(csv.reader(io.StringIO(text, newline="")))[1:] if kind == "csv" else []
        found += [line.split("\t") for line in text.splitlines()[1:]] if kind == "tsv" else []
    assert [row[:2] for row in found] == [["1", row] for row in rows]


def test_a_name_without_an_ending_keeps_the_format_of_the_input(recur: Recur, trained: Path, tmp_path: Path) -> None:
    source = write_csv(tmp_path / "x.csv")
    recur.ok("predict", trained, source, "--output", tmp_path / "out", "--quiet")
    assert (tmp_path / "out").read_text(encoding="utf-8") == recur("predict", trained, source)[1]


def test_a_workbook_gives_a_csv(recur: Recur, trained: Path, tmp_path: Path) -> None:
    source = write_csv(tmp_path / "x.csv")
    book = write_workbook(tmp_path / "x.xlsx", {"Notes": [], "Rows": [["key", "sentence"], *ROWS]})
    assert recur.ok("predict", trained, f"{book}#Rows")[0] == recur.ok("predict", trained, source)[0]
    recur.ok("predict", trained, f"{book}#Rows", "--output", tmp_path / "out.jsonl", "--quiet")
    assert (tmp_path / "out.jsonl").read_text() == recur.ok("predict", trained, source, "--format", "jsonl")[0]


def test_a_piped_csv_is_named(recur: Recur, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    as_stdin(monkeypatch, write_csv(tmp_path / "x.csv").read_bytes())
    out, _ = recur.ok("predict", trained, "--input-format", "csv", "--format", "jsonl")
    found = [json.loads(line) for line in out.splitlines()]
    assert [[line["key"], line["sentence"]] for line in found] == ROWS


def test_a_delimiter_of_two_characters_is_refused(recur: Recur, trained: Path) -> None:
    recur.refused(2, "--delimiter: must be one character", "predict", trained, "--delimiter", ";;")


def test_an_output_of_the_same_form_has_the_delimiter_of_the_input(recur: Recur, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_bytes("key;sentence\n1;鼠\t,\n2;牛;more\n".encode())
    out, _ = recur.ok("predict", trained, tmp_path / "x.tsv", "--delimiter", ";")
    head, first, second = (line.split(";") for line in out.splitlines())
    assert head == ["key", "sentence", "prediction", "score", "reason"]
    assert first[:2] == ["1", "鼠\t,"]
    assert (second[:2], second[4]) == (["2", "牛"], "has 3 fields, not 2")


def row_writer(format: OutputFormat, *, explain: bool = False, delimiter: str | None = None) -> RowWriter:
    """The writer of rows of one column."""
    mark = delimiter or {"tsv": "\t", "csv": ","}[format]
    source = Source(name="x", format="csv" if format == "csv" else "tsv", delimiter=mark, columns=TextColumns(("1",)))
    records = Records("x", source.format, ("1",), iter(()))
    input = Input(records, lambda first: records, source, ("1",), ("1",), format, counted=PredictionProgress())
    return RowWriter(PredictRequest(run=Path("run"), explain=explain), input, OneLabel(("x",)))


def test_a_label_that_holds_the_delimiter_of_a_tsv_is_refused() -> None:
    for delimiter, held in ((";", "a ';'"), (None, "a TAB")):
        writer = row_writer("tsv", delimiter=delimiter)
        with pytest.raises(DataError, match=f"^x:1: 'a;b.*' holds {held}, which no TSV can hold"):
            writer.row(0, Record(1, {"1": "text"}), Prediction("a;b\tc", 0.5, {"x": 1.0}), None)


@pytest.mark.parametrize(("format", "mark", "shown"), [("tsv", "\t", ", | a\\tb"), ("csv", ",", ", | a\tb")])
def test_an_explanation_is_escaped_in_a_tsv_and_quoted_in_a_csv(format: OutputFormat, mark: str, shown: str) -> None:
    writer = row_writer(format, explain=True)
    line = writer.row(0, Record(1, {"1": "text"}), Prediction("x", 0.5, {"x": 1.0}), None, [",", "a\tb"])
    assert next(csv.reader([line.decode()], delimiter=mark))[-1] == shown


def test_parquet_has_the_columns_of_a_tsv_as_strings_and_the_scores_as_numbers(
    recur: Recur, trained: Path, tmp_path: Path
) -> None:
    source, output = tmp_path / "x.tsv", tmp_path / "y.parquet"
    source.write_text("id\tsentence\n1\t鼠鼠\n2\t\n3\t虎\n")
    line = ["predict", trained, source, "--top-k", "1", "--threshold", "0.4", "--explain"]
    recur.ok(*line, "--output", output)
    table = parquet.read_table(output)
    types = {field.name: str(field.type) for field in table.schema}
    strings = ("id", "sentence", "prediction", "label_1", "explanation", "reason")
    assert types == {**dict.fromkeys(strings, "string"), "score": "double", "score_1": "double"}
    rows = [json.loads(row) for row in recur.ok(*line, "--format", "jsonl")[0].splitlines()]
    for found, row in zip(table.to_pylist(), rows, strict=True):
        assert (found["id"], found["prediction"], found["score"]) == (row["id"], row["prediction"], row["score"])
        assert (found["score_1"], found["reason"]) == (row["top"][0]["score"], row.get("reason"))
    assert table["reason"].to_pylist()[1] is not None


def test_the_columns_of_parquet_keep_their_types(recur: Recur, trained: Path, tmp_path: Path) -> None:
    columns = {
        "n": [1, None, 3],
        "sentence": ["鼠", "牛", "虎"],
        "tags": [["a"], [], None],
        "at": [datetime(2026, 1, 2)] * 3,
    }
    rows = pyarrow.table(columns)
    parquet.write_table(rows, tmp_path / "x.parquet")
    recur.ok("predict", trained, tmp_path / "x.parquet", "--output", tmp_path / "y.parquet")
    found = parquet.read_table(tmp_path / "y.parquet")
    assert found.select([*columns]).cast(rows.schema) == rows
    assert found.schema.field("tags").type == rows.schema.field("tags").type
    assert found.column_names == [*columns, "prediction", "score"]


def test_the_part_of_a_parquet_is_a_file_of_its_own(
    recur: Recur, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recurcli.commands.prediction.rows.WINDOW", 4)
    source = tmp_path / "x.jsonl"
    source.write_text("".join(f'{{"sentence": "鼠{number}", "n": {number}}}\n' for number in range(11)))
    recur.ok("predict", trained, source, "--output", tmp_path / "y.parquet")
    for number in (1, 2):
        recur.ok("predict", trained, source, "--shard", f"{number}/2", "--output", tmp_path / f"{number}.parquet")
    parts = [parquet.read_table(tmp_path / f"{number}.parquet") for number in (1, 2)]
    assert pyarrow.concat_tables(parts) == parquet.read_table(tmp_path / "y.parquet")
    assert [len(part) for part in parts] == [4, 7]


def test_parquet_is_a_file(recur: Recur, trained: Path, tmp_path: Path) -> None:
    source = write_csv(tmp_path / "x.csv")
    recur.refused(2, "Parquet cannot be written to a stream", "predict", trained, source, "--format", "parquet")
    recur.refused(
        2, "ends in .parquet", "predict", trained, source, "--format", "parquet", "--output", tmp_path / "y.tsv"
    )
    twice = tmp_path / "twice.csv"
    twice.write_text("sentence,a,a\n鼠,1,2\n")
    recur.refused(
        3,
        "has the column 'a' twice, which Parquet cannot hold",
        "predict",
        trained,
        twice,
        "--output",
        tmp_path / "y.parquet",
    )
    assert not (tmp_path / "y.parquet").exists()


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".jsonl", ".parquet"])
@pytest.mark.parametrize("written", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_columns_are_picked_and_renamed_in_every_format(
    ending: str, written: str, recur: Recur, trained: Path, tmp_path: Path
) -> None:
    rows = [{"key": f"{n}", "sentence": text, "other": "x"} for n, text in enumerate(["股市", "电影", "球赛"])]
    source, output = tmp_path / f"x{ending}", tmp_path / f"y{written}"
    if ending == ".parquet":
        parquet.write_table(pyarrow.Table.from_pylist(rows), source)
    elif ending == ".jsonl":
        source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        mark = "," if ending == ".csv" else "\t"
        source.write_text("".join(f"{mark.join(line)}\n" for line in [[*rows[0]], *(row.values() for row in rows)]))
    line = ("predict", trained, source, "--output", output, "--overwrite")
    recur.ok(*line, "--columns", "score,key,prediction=target")
    if written == ".parquet":
        found = parquet.read_table(output).to_pylist()
    elif written == ".jsonl":
        found = [json.loads(each) for each in output.read_text().splitlines()]
    else:
        found = [*csv.DictReader(output.read_text().splitlines(), delimiter="," if written == ".csv" else "\t")]
    assert [[*row] for row in found] == [["score", "key", "target"]] * 3
    assert [row["key"] for row in found] == ["0", "1", "2"] and all(row["target"] and row["score"] for row in found)
    recur.refused(3, "--columns: has no column 'keys'; did you mean 'key'?", *line, "--columns", "keys,prediction")


@pytest.mark.parametrize("picked", ["", "key,", "key=", "key,prediction=key", "=key"])
def test_columns_without_names_that_differ_are_wrong_usage(picked: str, recur: Recur, trained: Path) -> None:
    recur.refused(2, "needs names that differ, such as id,prediction=target", "predict", trained, "--columns", picked)


def test_picked_columns_have_a_header_and_the_reason_if_it_is_picked(
    recur: Recur, trained: Path, tmp_path: Path
) -> None:
    (tmp_path / "x.txt").write_text("股市\n电影\n")
    out, _ = recur.ok("predict", trained, tmp_path / "x.txt", "--columns", "prediction,reason=why")
    assert out.splitlines()[0] == "prediction\twhy" and all(line.endswith("\t") for line in out.splitlines()[1:])
