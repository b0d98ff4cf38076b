"""The same rows, written in every form that is read, are the same rows again."""

import csv
import io
import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pandas as pd
import pyarrow
import pytest
from cases import examples
from datasets import Dataset, DatasetDict
from hypothesis import given, settings
from hypothesis import strategies as st
from packing import PACK, zipped
from pyarrow import parquet
from sources import like
from workbooks import write_workbook

from recurcli.config import DataConfig
from recurcli.data.source import find_source
from recurcli.data.splits import load_split
from recurcli.data.tasks import TASKS

Rows = list[tuple[str, str]]
Write = Callable[[Path, Rows], object]
"""Writes rows to a path. It returns settings that name other files in place of the path, or anything else."""
CUSTOM = TASKS["custom"]
LABELS = ("good", "bad")


class Form(NamedTuple):
    """A form of files: what writes rows, the ending of the path, settings, and the characters that it cannot hold."""

    write: Write
    ending: str = ".json"
    told: Mapping[str, str] = MappingProxyType({})
    lacks: str = ""
    encoding: str | None = None
    """The encoding of all characters that it can hold; None: any."""
    keeps_order: bool = True


def objects(rows: Rows) -> list[dict[str, str]]:
    """The rows as objects."""
    return [{"text": text, "label": label} for text, label in rows]


def columns(rows: Rows) -> dict[str, list[str]]:
    """The rows as columns."""
    return {"text": [text for text, _ in rows], "label": [label for _, label in rows]}


def one(value: Callable[[Rows], object], indent: int | None = None) -> Write:
    """What writes one JSON value."""
    return lambda path, rows: path.write_text(json.dumps(value(rows), ensure_ascii=False, indent=indent), "utf-8")


def lines(value: Callable[[str, str], object]) -> Write:
    """What writes a JSON value for each row."""

    def write(path: Path, rows: Rows) -> None:
        content = (json.dumps(value(*row), ensure_ascii=False) + "\n" for row in rows)
        path.write_bytes("".join(content).encode())

    return write


def pandas(orient: str) -> Write:
    """What writes JSON as pandas does."""
    return lambda path, rows: pd.DataFrame(objects(rows)).to_json(path, orient=orient)


def cats(label: str) -> dict[str, int]:
    """A label as spaCy has it."""
    return {each: int(each == label) for each in LABELS}


def task(text: str, label: str) -> dict[str, object]:
    """A task of Label Studio."""
    choices = {"from_name": "mood", "to_name": "text", "type": "choices", "value": {"choices": [label]}}
    return {
        "id": 7,
        "data": {"review": text},
        "annotations": [{"was_cancelled": True, "result": []}, {"result": [choices]}],
    }


def splits(rows: Rows) -> dict[str, object]:
    """A document of splits."""
    return {"version": 1, "test": objects(rows[:1]), "train": objects(rows), "val": objects(rows[:1])}


def table(**form: Any) -> Write:
    """What writes a table with a header."""

    def write(path: Path, rows: Rows) -> None:
        with path.open("w", encoding=form.get("encoding", "utf-8"), newline="") as file:
            csv.writer(file, **{"lineterminator": "\n", **form.get("dialect", {})}).writerows(
                [("text", "label"), *rows]
            )

    return write


def packed(path: Path, rows: Rows) -> None:
    """Write a compressed CSV."""
    table()(path, rows)
    data = path.read_bytes()
    path.write_bytes(zipped(data, "x.csv") if path.suffix == ".zip" else PACK[path.suffix](data))


def halves(path: Path, rows: Rows) -> object:
    """Write two files."""
    files = path.with_name("one.csv"), path.with_name("two.csv")
    table()(files[0], rows[:1])
    table()(files[1], rows[1:])
    return {"files": {"train": (*map(str, files),)}}


def file_of_labels(path: Path, rows: Rows) -> object:
    """Write the texts and the labels to a file each."""
    texts, names = path.with_name("texts.txt"), path.with_name("labels.txt")
    for file, values in zip((texts, names), zip(*rows, strict=True), strict=True):
        file.write_bytes("".join(f"{value}\n" for value in values).encode())
    return {"files": {"train": str(texts)}, "label_files": (str(names),)}


def file_of_a_class(path: Path, rows: Rows) -> object:
    """Write a file for each label."""
    files = {label: path.with_name(f"{label}.txt") for label in LABELS}
    for label, file in files.items():
        file.write_bytes("".join(f"{text}\n" for text, its in rows if its == label).encode())
    return {"files": {"train": (*map(str, files.values()),)}, "label_by": "file"}


def folders(path: Path, rows: Rows) -> None:
    """Write a file for each row, in a folder for each label."""
    for number, (text, label) in enumerate(rows):
        (path / label).mkdir(parents=True, exist_ok=True)
        (path / label / f"{number}.txt").write_bytes(text.encode())


def fasttext(path: Path, rows: Rows) -> None:
    """Write lines of fastText."""
    path.write_bytes("".join(f"__label__{label} {text}\n" for text, label in rows).encode())


def as_parquet(path: Path, rows: Rows) -> None:
    """Write a Parquet file."""
    parquet.write_table(pyarrow.table(columns(rows)), path)


def shards(path: Path, rows: Rows) -> None:
    """Write the layout of the Hub."""
    (path / "data").mkdir(parents=True)
    for number, part in enumerate((rows[:1], rows[1:])):
        as_parquet(path / "data" / f"train-0000{number}-of-00002.parquet", part)
    as_parquet(path / "data" / "validation-00000-of-00001.parquet", rows[:1])


def saved(path: Path, rows: Rows) -> None:
    """Write a folder of `datasets`."""
    Dataset.from_dict(columns(rows)).save_to_disk(path)


def saved_splits(path: Path, rows: Rows) -> None:
    """Write a folder of `datasets` with splits."""
    DatasetDict(train=Dataset.from_dict(columns(rows)), validation=Dataset.from_dict(columns(rows[:1]))).save_to_disk(
        path
    )


def workbook(path: Path, rows: Rows) -> None:
    """Write a workbook of Excel."""
    write_workbook(path, {"Rows": [("text", "label"), *rows]})


CONTROLS = "".join(map(chr, range(1, 32)))
LINE = "\n\r\t"
TAB: dict[str, Any] = {"delimiter": "\t", "quoting": csv.QUOTE_NONE, "quotechar": None}
ALL = {"quoting": csv.QUOTE_ALL}
NUMBERED: dict[str, Any] = {"told": {"text": "1", "label": "2"}}
FORMS = {
    "JSON lines": Form(lines(lambda text, label: {"text": text, "label": label}), ".jsonl"),
    "lists a line": Form(lines(lambda text, label: [text, label]), **NUMBERED),
    "an array": Form(one(objects)),
    "an array over lines": Form(one(objects, indent=2)),
    "an array of lists": Form(one(lambda rows: rows), **NUMBERED),
    "an array of lists over lines": Form(one(lambda rows: rows, indent=2), **NUMBERED),
    "rows under a key": Form(one(lambda rows: {"version": "1", "data": objects(rows)})),
    "rows under the only key": Form(one(lambda rows: {"examples": objects(rows)}, indent=1)),
    "columns": Form(one(columns)),
    **{f"pandas {orient}": Form(pandas(orient)) for orient in ("columns", "index", "split", "records", "table")},
    "pandas values": Form(pandas("values"), **NUMBERED),
    "splits": Form(one(splits)),
    "splits of columns": Form(one(lambda rows: {"train": columns(rows), "dev": columns(rows), "test": columns(rows[:1])})),
    "splits of lists": Form(one(lambda rows: {"train": rows, "validation": rows[:1], "test": rows[:1]}), **NUMBERED),
    "doccano": Form(lines(lambda text, label: {"id": 7, "text": text, "label": [label], "Comments": []}), ".jsonl"),
    "spaCy": Form(lines(lambda text, label: {"text": text, "cats": cats(label)}), ".jsonl"),
    "spaCy's training data": Form(one(lambda rows: [(text, {"cats": cats(label)}) for text, label in rows])),
    "Prodigy's choices": Form(
        lines(lambda text, label: {"text": text, "options": [{"id": "good"}], "accept": [label], "answer": "accept"}),
        ".jsonl",
    ),
    "Label Studio": Form(one(lambda rows: [task(*row) for row in rows])),
    "CSV": Form(table(), ".csv"),
    "CSV of semicolons": Form(table(dialect={"delimiter": ";", **ALL}), ".csv", {"delimiter": ";"}),
    "Excel's CSV": Form(table(dialect={"lineterminator": "\r\n", **ALL}), ".csv"),
    "TSV": Form(table(dialect=TAB), ".tsv", lacks=LINE),
    "quoted TSV": Form(table(dialect={"delimiter": "\t", **ALL}), ".tsv", {"quote": '"'}),
    "latin-1": Form(table(encoding="latin-1"), ".csv", {"encoding": "latin-1"}, encoding="latin-1"),
    "GB 18030": Form(table(dialect=TAB, encoding="gb18030"), ".tsv", {"encoding": "gb18030"}, LINE),
    "UTF-16": Form(table(encoding="utf-16"), ".csv", {"encoding": "utf-16"}),
    **{f"CSV{ending}": Form(packed, f".csv{ending}") for ending in (*PACK, ".zip")},
    "a workbook": Form(workbook, ".xlsx", lacks=f"{CONTROLS}\x7f\ufffe\uffff_"),
    "two files": Form(halves, keeps_order=False),
    "a file of labels": Form(file_of_labels, lacks=f"{LINE} ", keeps_order=False),
    "a file a class": Form(file_of_a_class, lacks=f"{LINE} ", keeps_order=False),
    "folders": Form(folders, "", lacks="\ufeff", keeps_order=False),
    "fastText": Form(fasttext, ".ft", lacks=f"{LINE} "),
    "Parquet": Form(as_parquet, ".parquet"),
    "shards of the Hub": Form(shards, ""),
    "datasets": Form(saved, ""),
    "splits of datasets": Form(saved_splits, ""),
}  # fmt: skip


def in_bytes(write: Write, encoding: str) -> Write:
    """What writes in another encoding than UTF-8."""

    def written(path: Path, rows: Rows) -> None:
        write(path, rows)
        path.write_bytes(path.read_bytes().decode().encode(encoding))

    return written


GERMAN = [
    "Die Brötchen waren schön knusprig; wir kommen für das Frühstück wieder",
    "Zu süß, größtenteils; nie wieder, schade",
]
FRENCH = [
    "Une très belle soirée, où tout était préparé avec goût",
    "Le dîner était froid, le café brûlé; quelle déception",
]
CHINESE = [
    "\u8fd9\u5bb6\u9910\u5385\u7684\u670d\u52a1\u975e\u5e38\u597d",
    "\u83dc\u4e0d\u597d\u5403\uff0c\u4e0b\u6b21\u4e0d\u6765\u4e86",
]
QUOTED = ['He said "no"', "a\tb", "two\nlines"]
UNTOLD: dict[str, tuple[Write, str, list[str]]] = {
    "latin-1": (table(encoding="latin-1"), ".csv", GERMAN),
    "cp1252": (table(encoding="cp1252"), ".csv", [*FRENCH, "Le menu à 12 € était “correct”"]),
    "TSV in latin-1": (table(dialect=TAB, encoding="latin-1"), ".tsv", FRENCH),
    "GB 18030": (table(dialect=TAB, encoding="gb18030"), ".tsv", CHINESE),
    "lines in latin-1": (in_bytes(FORMS["JSON lines"].write, "latin-1"), ".jsonl", GERMAN),
    "an array in cp1252": (in_bytes(FORMS["an array"].write, "cp1252"), ".json", FRENCH),
    "an array over lines in latin-1": (in_bytes(FORMS["an array over lines"].write, "latin-1"), ".json", FRENCH),
    "columns in latin-1": (in_bytes(FORMS["columns"].write, "latin-1"), ".json", GERMAN),
    "splits in latin-1": (in_bytes(FORMS["splits"].write, "latin-1"), ".json", GERMAN),
    "splits in GB 18030": (in_bytes(FORMS["splits"].write, "gb18030"), ".json", CHINESE),
    "semicolons": (table(dialect={"delimiter": ";"}), ".csv", [*GERMAN, *QUOTED]),
    "semicolons in quotes": (table(dialect={"delimiter": ";", **ALL}), ".csv", [*FRENCH, *QUOTED]),
    "semicolons in cp1252": (table(dialect={"delimiter": ";"}, encoding="cp1252"), ".csv", GERMAN),
    "a CSV of TABs": (table(dialect={"delimiter": "\t", **ALL}), ".csv", [*GERMAN, *QUOTED]),
    "quoted TSV": (table(dialect={"delimiter": "\t", **ALL}), ".tsv", [*FRENCH, *QUOTED]),
    "TSV with a quoted field": (table(dialect={"delimiter": "\t"}), ".tsv", QUOTED),
    "bars": (table(dialect={"delimiter": "|"}), ".txt", [*FRENCH, *GERMAN]),
}  # fmt: skip


def texts(form: Form) -> st.SearchStrategy[str]:
    """Texts with characters that the form can hold, but for names of columns, after which a header is asked for."""
    held = st.characters(codec=form.encoding, exclude_categories=["Cs"], exclude_characters=f"\0{form.lacks}")
    return st.text(held, min_size=1, max_size=20).filter(lambda text: text.strip() not in ("", "text", "label"))


def read(path: Path, told: Mapping[str, Any]) -> Rows:
    """The texts and labels of training rows, and of the dev rows that were drawn from them."""
    found = load_split(CUSTOM, "train", DataConfig(**{"path": str(path), "target": "one", **told}))
    return [(row.text, str(row.label)) for row in [*found.examples, *(found.dev.examples if found.dev else ())]]


@pytest.mark.parametrize("name", FORMS)
@settings(max_examples=examples(4), deadline=None)
@given(data=st.data())
def test_the_same_rows_are_read_from_every_form(name: str, data: st.DataObject) -> None:
    form = FORMS[name]
    both = st.tuples(*(st.tuples(texts(form), st.just(label)) for label in LABELS)).map(list)
    more = st.lists(st.tuples(texts(form), st.sampled_from(LABELS)), max_size=6)
    rows = data.draw(both) + data.draw(more)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"x{form.ending}")
        named = form.write(path, rows)
        told = {"path": None, **named} if isinstance(named, dict) else form.told
        found = read(path, told)
        assert found == rows if form.keeps_order else sorted(found) == sorted(rows)


@pytest.mark.parametrize("name", UNTOLD)
def test_what_is_not_told_is_recognised(name: str, tmp_path: Path) -> None:
    write, ending, sentences = UNTOLD[name]
    rows = [(f"{sentence} {number}", LABELS[number % 2]) for number, sentence in enumerate(sentences * 10)]
    write(tmp_path / f"x{ending}", rows)
    assert sorted(read(tmp_path / f"x{ending}", {})) == sorted(rows)


class Slow(io.BytesIO):
    """A pipe that gives a few bytes at a time."""

    def read1(self, size: int | None = -1) -> bytes:
        return self.read(5)


@pytest.mark.parametrize(
    "name",
    [name for name, form in FORMS.items() if ".json" in form.ending and "splits" not in name and "file" not in name],
)
def test_the_same_texts_are_read_from_a_pipe(name: str, tmp_path: Path) -> None:
    """They are read without the name of a file."""
    form, expected = (
        FORMS[name],
        [(f"text {number} \u4f60\U0001f600\u00e9 [{{", LABELS[number % 2]) for number in range(50)],
    )
    form.write(tmp_path / "x", expected)
    data = (tmp_path / "x").read_bytes()
    for stream in (io.BytesIO(data), Slow(data)):
        source, records = find_source(
            stream, CUSTOM, DataConfig(), like=like(form.told.get("text", "text")), is_input=True
        )
        assert [source.columns.read(record).text for record in records] == [text for text, _ in expected]
