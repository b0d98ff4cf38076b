"""The same rows, written in every form that is read, are the same rows again."""

import io
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sources import like

from recurcli.config import DataConfig
from recurcli.data.source import find_source
from recurcli.data.splits import load_split
from recurcli.data.tasks import TASKS

Rows = list[tuple[str, str]]
CUSTOM = TASKS["custom"]
LABELS = ("good", "bad")


class Form(NamedTuple):
    """A form of files: what writes rows to a path, the ending of that, and the columns that must be named."""

    write: Callable[[Path, Rows], object]
    ending: str = ".json"
    text: str = "text"
    label: str | None = None


def objects(rows: Rows) -> list[dict[str, str]]:
    """The rows as objects."""
    return [{"text": text, "label": label} for text, label in rows]


def columns(rows: Rows) -> dict[str, list[str]]:
    """The rows as columns."""
    return {"text": [text for text, _ in rows], "label": [label for _, label in rows]}


def one(value: Callable[[Rows], object], indent: int | None = None) -> Callable[[Path, Rows], object]:
    """What writes one JSON value."""
    return lambda path, rows: path.write_text(json.dumps(value(rows), ensure_ascii=False, indent=indent), "utf-8")


def lines(value: Callable[[str, str], object], indent: int | None = None) -> Callable[[Path, Rows], object]:
    """What writes a JSON value for each row."""

    def write(path: Path, rows: Rows) -> None:
        content = (json.dumps(value(*row), ensure_ascii=False, indent=indent) + "\n" for row in rows)
        path.write_bytes("".join(content).encode())

    return write


def pandas(orient: str) -> Callable[[Path, Rows], object]:
    """What writes JSON as pandas does."""
    return lambda path, rows: pd.DataFrame(objects(rows)).to_json(path, orient=orient)  # type: ignore[call-overload]


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


NUMBERED = {"text": "1", "label": "2"}
FORMS = {
    "JSON lines": Form(lines(lambda text, label: {"text": text, "label": label}), ".jsonl"),
    "objects over lines": Form(lines(lambda text, label: {"text": text, "label": label}, indent=1)),
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
}  # fmt: skip

characters = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
texts = st.text(characters, min_size=1, max_size=20).filter(str.strip)
rows = st.lists(st.tuples(texts, st.sampled_from(LABELS)), min_size=2, max_size=8)


def read(path: Path, form: Form, **told: str) -> Rows:
    """The texts and labels of training rows."""
    named = {} if form.label is None else {"text": form.text, "label": form.label}
    found = load_split(CUSTOM, "train", DataConfig(path=str(path), target="one", **named, **told))
    return [(row.text, str(row.label)) for row in found.examples]


@pytest.mark.parametrize("name", FORMS)
@settings(max_examples=20, deadline=None)
@given(rows=rows)
def test_the_same_rows_are_read_from_every_form(name: str, rows: Rows) -> None:
    form = FORMS[name]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"x{form.ending}")
        form.write(path, rows)
        assert read(path, form) == rows


class Slow(io.BytesIO):
    """A pipe that gives a few bytes at a time."""

    def read1(self, size: int | None = -1) -> bytes:
        return self.read(5)


@pytest.mark.parametrize("name", [name for name in FORMS if not name.startswith("splits")])
def test_the_same_texts_are_read_from_a_pipe(name: str, tmp_path: Path) -> None:
    """They are read without the name of a file."""
    form, expected = (
        FORMS[name],
        [(f"text {number} \u4f60\U0001f600\u00e9 [{{", LABELS[number % 2]) for number in range(50)],
    )
    form.write(tmp_path / "x", expected)
    data = (tmp_path / "x").read_bytes()
    for stream in (io.BytesIO(data), Slow(data)):
        source, records = find_source(stream, CUSTOM, DataConfig(), like=like(form.text), is_input=True)
        assert [source.columns.read(record).text for record in records] == [text for text, _ in expected]
