"""JSON documents: their splits are found, arrays are streams, rows of annotators get labels, and faults name the row."""

import io
import json
import shutil
import subprocess
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from recurcli.config import DataConfig
from recurcli.data import documents
from recurcli.data.readers import parts_of_document, read_records
from recurcli.data.rows import Record
from recurcli.data.splits import Split, load_split
from recurcli.data.tasks import TASKS, find_place, has_split, is_one_file, split_named
from recurcli.errors import DataError

CUSTOM = TASKS["custom"]
ROWS = [{"text": f"text {number}", "label": "ab"[number % 2]} for number in range(6)]


def load(path: Path, value: object, split: str = "train", **told: object) -> Split:
    """The rows of a split of a JSON value; of JSON lines for a list of objects in a .jsonl file."""
    lines = path.suffix == ".jsonl" and isinstance(value, list)
    path.write_text("".join(json.dumps(row) + "\n" for row in value) if lines else json.dumps(value))  # type: ignore[attr-defined]
    return load_split(CUSTOM, split, DataConfig(path=str(path), **told))  # type: ignore[arg-type]


def records_of(path: Path) -> list[Record]:
    """The records of a file."""
    with read_records(path) as found:
        return [*found]


def records(value: object) -> list[Record]:
    """The records of a stream of JSON; `value` is the text, or is written as one."""
    data = value if isinstance(value, str) else json.dumps(value)
    return [*read_records(io.BytesIO(data.encode()), "jsonl", name="x")]


def labels(split: Split) -> list[object]:
    return [example.label for example in split.examples]


def notes(split: Split) -> list[str]:
    return [note.text.partition(": ")[2] for note in split.notes]


@pytest.mark.parametrize(
    ("keys", "dev", "test"),
    [
        ("train val test", "val", "test"),
        ("train validation test", "validation", "test"),
        ("Train dev oos_test", "dev", None),
        ("train test", "train", "test"),
    ],
)
def test_the_splits_of_a_document_are_found(keys: str, dev: str, test: str | None, tmp_path: Path) -> None:
    path, train = tmp_path / "data.json", keys.split()[0]
    path.write_text(json.dumps(dict.fromkeys(keys.split(), ROWS)))
    config = DataConfig(path=str(path))
    assert parts_of_document(path) == tuple(keys.split())
    assert not is_one_file(path)
    assert find_place(CUSTOM, "train", config).paths == (tmp_path / f"data.json#{train}",)
    found = find_place(CUSTOM, "dev", config)
    assert (found.paths[0].name, found.use_dev_split) == (f"data.json#{dev}", dev == "train")
    assert has_split(CUSTOM, "test", config) == (test is not None)
    if test is None:
        with pytest.raises(
            DataError, match="has no test rows among Train, dev, oos_test; name them, for example with --test"
        ):
            find_place(CUSTOM, "test", config)


def test_a_part_of_a_document_is_a_file(tmp_path: Path) -> None:
    rows = load(tmp_path / "data.json", {"train": ROWS, "val": ROWS, "oos_test": ROWS[:2]})
    part = tmp_path / "data.json#oos_test"
    assert (len(rows.examples), rows.source.path) == (6, f"{tmp_path}/data.json#train")
    assert is_one_file(part)
    config = DataConfig(files={"test": str(part)})
    named = load_split(CUSTOM, "test", config)
    assert (len(named.examples), named.sha256) == (2, rows.sha256)
    assert split_named(CUSTOM, tmp_path / "data.json#val") == "dev"


def test_a_part_that_is_not_there_is_named(tmp_path: Path) -> None:
    load(tmp_path / "data.json", {"train": ROWS, "test": ROWS})
    load(tmp_path / "rows.json", ROWS)
    with pytest.raises(DataError, match=r"data.json#dev: holds lists of rows under train, test; FILE#train names one"):
        read_records(tmp_path / "data.json#dev")
    with pytest.raises(DataError, match=r"rows.json#dev: holds no lists of rows under keys; leave out '#dev'"):
        read_records(tmp_path / "rows.json#dev")


@pytest.mark.parametrize(
    "row",
    [
        {"text": "a text", "tokens": [{"text": "a", "id": 0}], "spans": [{"start": 0}], "label": "a"},
        {"premise": "a", "hypothesis": "b", "label": "a"},
        {"id": 1, "text": "a", "keywords": ["a", "b"], "label": ["a", "b"]},
        {"review": "a", "spans": [{"start": 0}, {"start": 1}]},
        {"review": "a", "tokens": [{"id": 0}], "spans": [{"start": 0}, {"start": 1}]},
        {"text": "a", "data": [{"b": 1}, {"b": 2}]},
        {"text": ["a"], "label": ["b"]},
    ],
)
def test_a_file_of_one_row_is_that_row(row: dict[str, object], tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    for text in (json.dumps(row), json.dumps(row, indent=1)):
        path.write_text(text)
        assert [record.fields for record in records(text)] == [row]
        assert [record.fields for record in records_of(path)] == [row]


@pytest.mark.parametrize("key", ["data", "rows", "train"])
def test_rows_beside_a_string_are_rows_under_a_usual_key(key: str) -> None:
    assert [record.fields for record in records({"version": "1.0", key: ROWS})] == ROWS


def test_rows_beside_a_string_can_be_named(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(json.dumps({"version": "1.0", "examples": ROWS}))
    assert [record.fields for record in records_of(tmp_path / "x.json#examples")] == ROWS


def test_blank_lines_after_a_row_are_answered(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text('{"review": "a", "spans": [{"start": 0}]}\n\n')
    assert [record.fault for record in records_of(path)] == [None, "is blank"]
    path.write_text('{"train": [{"text": "a"}]}\n\n')
    assert [record.fields for record in records_of(path)] == [{"text": "a"}]


def test_a_document_is_parsed_once_until_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parse, parsed = documents.tables_of, []

    def counted(text: str) -> dict[str, list[str]]:
        parsed.append(text)
        return parse(text)

    monkeypatch.setattr(documents, "tables_of", counted)
    for number in (6, 5):
        both = {"train": ROWS, "dev": ROWS[:number]}
        assert len(load(tmp_path / "x.json", both).examples) == 6
        assert len(load_split(CUSTOM, "dev", DataConfig(path=str(tmp_path / "x.json"))).examples) == number
    assert len(parsed) == 2


def test_lines_that_look_like_documents_are_rows() -> None:
    lines = '{"tokens": ["a", "b"], "tags": ["x", "y"]}\n'
    assert [record.fields for record in records(lines * 2)] == [{"tokens": ["a", "b"], "tags": ["x", "y"]}] * 2
    assert [record.fields for record in records(lines)] == [{"tokens": "a", "tags": "x"}, {"tokens": "b", "tags": "y"}]


def test_the_first_line_is_a_row_before_the_second_one_comes() -> None:
    class Pipe(io.BytesIO):
        def read1(self, size: int | None = -1) -> bytes:
            if self.tell():
                pytest.fail("more is read than the first line")
            return self.readline()

    assert next(read_records(Pipe(b'{"text": "a"}\n{"text": "b"}\n'))).fields == {"text": "a"}


class Endless(io.RawIOBase):
    """A pipe that gives an array of so many rows in one line."""

    def __init__(self, rows: int) -> None:
        self.pieces: Iterator[bytes] = iter(
            [b"[", *([b'{"text": "' + b"x" * 50_000 + b'"}, '] * rows), b'{"text": "y"}]']
        )

    def read1(self, size: int = -1) -> bytes:
        return next(self.pieces, b"")


def test_an_array_is_read_in_constant_memory() -> None:
    tracemalloc.start()
    count = sum(1 for _ in read_records(Endless(200)))  # type: ignore[arg-type,misc]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 201
    assert peak < 3_000_000


def test_each_row_of_a_document_has_its_own_fault() -> None:
    found = records('{"data": [{"text": "a"}, {"text": NaN}, {"text": "\\u0000"}, {"text": "\\ud800"}, ["b"]]}')
    assert [record.line for record in found] == [1, 2, 3, 4, 5]
    faults = [None, "holds NaN, which is not a JSON number", "holds an escaped NUL"]
    assert [record.fault for record in found] == [*faults, "holds a lone surrogate, half of a character", None]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"data": [{"text": "\xff"}]}', "x: is not UTF-8 at byte 21"),
        (b'{\n"train": [[1]], "train": [[2]]}', "x: has the key 'train' twice"),
        (b'[\n{"text": "a"},\n{"text": b}]', "x: row 2 is not JSON: Expecting value at character 10"),
        (b'{\n"text": ]}', "x: is not JSON: Expecting value at character 11"),
        (b'{\n"text": "a"}\n{\n"text": "b"}', "x: holds more than one JSON value; jq -c . writes each in a line"),
        (b"[" * 100_000, "x: row 1 is nested too deeply"),
    ],
)
def test_a_fault_of_the_whole_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        [*read_records(io.BytesIO(data), "jsonl", name="x")]


JAPANESE = "\u3053\u306e\u6620\u753b\u306f\u3068\u3066\u3082\u9762\u767d\u304b\u3063\u305f\u3067\u3059"


@pytest.mark.parametrize("form", ["{}", '{{"data": {}}}', '{{"train": {0}, "test": {0}}}'])
def test_rows_in_one_line_in_another_encoding_name_it(form: str, tmp_path: Path) -> None:
    rows = json.dumps([{"text": JAPANESE, "label": label} for label in "abab"], ensure_ascii=False)
    (tmp_path / "x.json").write_bytes(form.format(rows).encode("cp932"))
    with pytest.raises(DataError, match=r"is not UTF-8 at byte .* the file may be cp932 .*: --encoding cp932"):
        load_split(CUSTOM, "train", DataConfig(path=str(tmp_path / "x.json")))
    found = load_split(CUSTOM, "train", DataConfig(path=str(tmp_path / "x.json"), encoding="cp932"))
    assert found.examples[0].text == JAPANESE


def test_an_array_in_another_encoding_names_it(tmp_path: Path) -> None:
    rows = [{"text": "\u597d\u7684\u5f88\u597d", "label": label} for label in "abab"]
    text = json.dumps(rows, ensure_ascii=False, indent=1)
    (tmp_path / "x.json").write_bytes(text.encode("gb18030"))
    with pytest.raises(DataError, match="looks like GBK; name it with --encoding gb18030"):
        load_split(CUSTOM, "train", DataConfig(path=str(tmp_path / "x.json")))
    found = load_split(CUSTOM, "train", DataConfig(path=str(tmp_path / "x.json"), encoding="gb18030"))
    assert found.examples[0].text == "\u597d\u7684\u5f88\u597d"
    (tmp_path / "x.json").write_text(text, "utf-16")
    found = load_split(CUSTOM, "train", DataConfig(path=str(tmp_path / "x.json"), encoding="utf-16"))
    assert found.examples[3].text == "\u597d\u7684\u5f88\u597d"


LARGE = [{"text": f"text {number} " * 1000, "label": "ab"[number % 2]} for number in range(20)]
DOCUMENTS = {
    "splits": {"train": LARGE, "test": LARGE},
    "data": {"version": "1", "data": LARGE},
    "columns": {key: [row[key] for row in LARGE] for key in ("text", "label")},
    "pandas": {key: {str(number): row[key] for number, row in enumerate(LARGE)} for key in ("text", "label")},
    "split": {"columns": ["text", "label"], "index": [*range(20)], "data": [[*row.values()] for row in LARGE]},
}


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_that_is_too_large_gets_a_command_that_works(
    name: str, indent: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("jq") is None:
        pytest.skip("jq is not installed, and the commands need it")
    path = tmp_path / "x.json"
    path.write_text(json.dumps(DOCUMENTS[name], indent=indent))
    with monkeypatch.context() as patch, pytest.raises(DataError, match="turn it into lines: jq -c '") as refused:
        patch.setattr("recurcli.data.rows.MAX_ROW", 1000)
        read_records(path)
    program = str(refused.value).partition("jq -c '")[2].removesuffix("'")
    lines = subprocess.run(["jq", "-c", program, path], capture_output=True, check=True).stdout
    assert [record.fields for record in read_records(io.BytesIO(lines), "jsonl")] == LARGE


def test_a_row_of_an_array_that_is_too_large_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "MAX_ROW", 1000)
    with pytest.raises(DataError, match="x: row 2 is longer than"):
        records([{"text": "a"}, {"text": "a" * 100_000}])


def answered(*rows: tuple[object, str], key: str = "label") -> list[dict[str, object]]:
    """Rows of Prodigy."""
    return [{"text": f"text {n}", key: label, "answer": answer} for n, (label, answer) in enumerate(rows)]


def test_a_rejected_label_of_prodigy_is_its_negative(tmp_path: Path) -> None:
    found = load(tmp_path / "x.jsonl", answered(("SPAM", "accept"), ("SPAM", "reject"), ("SPAM", "ignore")))
    assert labels(found) == ["SPAM", "not SPAM"]
    assert notes(found) == ["1 of 3 rows are left out, since their 'answer' is ignore, as Prodigy has it"]


def test_a_rejected_label_of_several_is_left_out(tmp_path: Path) -> None:
    found = load(tmp_path / "x.jsonl", answered(("A", "accept"), ("B", "reject"), ("B", "accept"), ("A", "ignore")))
    assert labels(found) == ["A", "B"]
    assert [row.id for row in found.examples] == ["0", "2"]
    assert notes(found) == [
        "1 of 4 rows are left out, since their 'answer' is ignore, as Prodigy has it",
        "1 of 4 rows are left out, since their 'answer' is reject and there are several labels",
    ]


def test_rejected_choices_are_left_out(tmp_path: Path) -> None:
    rows = answered((["A"], "accept"), (["A"], "reject"), (["B"], "accept"), (["A", "B"], "accept"), key="accept")
    found = load(tmp_path / "x.jsonl", rows)
    assert labels(found) == [("A",), ("B",), ("A", "B")]
    assert "1 of 4 rows are left out, since their 'answer' is reject, as Prodigy has it" in notes(found)


def test_other_answers_are_columns_like_any(tmp_path: Path) -> None:
    found = load(tmp_path / "x.jsonl", [{"text": "x", "label": label, "answer": "yes"} for label in "ab"])
    assert labels(found) == ["a", "b"]


def annotated(*choices: list[str] | None, **data: str) -> dict[str, object]:
    """A task of Label Studio with these annotations; None is a cancelled one."""
    results = [
        {"was_cancelled": each is None, "result": [{"type": "choices", "value": {"choices": each or []}}]}
        for each in choices
    ]
    return {"data": data, "annotations": results, "predictions": []}


def test_the_first_of_several_annotations_of_label_studio_is_taken(tmp_path: Path) -> None:
    tasks = [annotated(["A"], ["B"], text="x", url="y"), annotated(None, ["B"], text="x", url="z")]
    found = load(tmp_path / "x.json", tasks)
    assert labels(found) == ["A", "B"]
    assert notes(found) == ["1 of 2 rows with several annotations have the label of the first"]


def test_a_task_without_annotation_has_no_label(tmp_path: Path) -> None:
    tasks = [annotated(["A", "B"], body="x"), annotated(body="y"), annotated(["B"], body="z")]
    found = load(tmp_path / "x.json", tasks, unlabelled="drop")
    assert labels(found) == [("A", "B"), ("B",)]
    assert found.unlabelled == 1


def test_an_annotation_that_is_none_of_label_studio_is_a_column() -> None:
    row = {"text": "x", "data": {"text": "y"}, "annotations": ["B"]}
    assert records([row])[0].fields == row


def test_spacys_categories_are_labels(tmp_path: Path) -> None:
    rows = [{"text": "x", "cats": {"A": 1.0, "B": 0}}, {"text": "y", "cats": {"A": True, "B": True}}]
    assert labels(load(tmp_path / "x.jsonl", rows)) == [("A",), ("A", "B")]
