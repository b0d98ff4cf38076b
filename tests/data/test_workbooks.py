"""A sheet of a workbook is a table of the texts that Excel shows."""

import importlib.util
from pathlib import Path

import pytest
from packing import PACK, zipped
from workbooks import DATE, TIME_OF_DAY, Sheets, Value, write_workbook

from recurcli.config import DataConfig
from recurcli.data import readers
from recurcli.data.readers import read_records
from recurcli.data.splits import load_split
from recurcli.data.tasks import TASKS
from recurcli.errors import DataError, UsageError

ROWS: list[tuple[Value, Value]] = [
    ("text", "stars"),
    ('very good; "fine",\n2 lines', 5.0),
    ("größer, 好", 1.0),
    ("bad", 1.0),
]


def test_cells_are_texts_as_they_are_shown(tmp_path: Path) -> None:
    cells = ("a\tb", 5.0, 4.5, 0.1 + 0.2, True, (DATE, 45000.0), (TIME_OF_DAY, 45000.5), None, "", "007")
    path = write_workbook(tmp_path / "x.xlsx", {"a": [cells]})
    with read_records(path) as records:
        shown = ["a\tb", "5", "4.5", "0.3", "true", "2023-03-15", "2023-03-15 12:00:00", "", "", "007"]
        assert [list(record.fields.values()) for record in records] == [shown]


def test_a_row_has_the_number_that_excel_shows_and_a_blank_one_is_a_fault(tmp_path: Path) -> None:
    rows: list[list[Value]] = [[], ["text", "label"], ["a", "x"], [], ["b", "y"], [None, ""], [""]]
    with read_records(write_workbook(tmp_path / "x.xlsx", {"a": rows})) as records:
        found = [(record.line, record.fault) for record in records]
    assert found == [(2, None), (3, None), (4, "is blank"), (5, None)], "cleared cells at the end are no rows"


@pytest.mark.parametrize("name", ["x.xlsx", "x.xlsm", "x.XLSX", "x.xlsx.gz", "x.zip", "x.xlsx#Rows", "x.xlsx.zst#Rows"])
def test_the_first_sheet_or_the_named_one_has_the_rows_of_a_csv(name: str, tmp_path: Path) -> None:
    file, mark, _ = name.partition("#")
    notes: list[list[Value]] = [["of another file"]]
    sheets: Sheets = {"Notes": notes, "Rows": ROWS} if mark else {"Rows": ROWS, "Notes": notes}
    content = write_workbook(tmp_path / "x", sheets).read_bytes()
    ending = Path(file).suffix
    content = zipped(content, "x.xlsx") if ending == ".zip" else PACK.get(ending, bytes)(content)
    (tmp_path / file).write_bytes(content)
    split = load_split(TASKS["custom"], "train", DataConfig(path=str(tmp_path / name)))
    assert [(example.text, example.label) for example in split.examples] == [(text, str(n)[0]) for text, n in ROWS[1:]]
    assert any("the sheet 'Rows' of 2 is read" in note.text for note in split.notes) == (not mark)
    assert [*split.examples.lines] == [2, 3, 4]


def test_a_sheet_that_is_missing_and_what_is_no_workbook_are_named(tmp_path: Path) -> None:
    path = write_workbook(tmp_path / "x.xlsx", {"One": [], "Two": []})
    with pytest.raises(DataError, match=r"x.xlsx: has no sheet 'two'; its sheets are: One, Two$"):
        read_records(Path(f"{path}#two"))
    for content in (
        b"",
        b"text,label\n",
        b"PK\x03\x04",
        path.read_bytes()[:-30],
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" * 99,
    ):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"x.xlsx: is not a workbook that can be read: "):
            read_records(path)


def test_a_workbook_has_a_bounded_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_workbook(tmp_path / "x.xlsx", {"a": [["x" * 1_000_000]]})
    monkeypatch.setattr(readers, "MAX_WORKBOOK", 500_000)
    assert path.stat().st_size < 10_000, "it is what it unpacks to that is large"
    with pytest.raises(DataError, match=r"x.xlsx: is larger than .* save it as CSV in UTF-8"):
        read_records(path)


def test_without_the_extra_its_name_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_workbook(tmp_path / "x.xlsx", {"a": ROWS})
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"x.xlsx needs python_calamine: pip install 'recurcli\[files\]'"):
        read_records(path)
