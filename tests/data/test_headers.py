"""Row 1 of a TSV or CSV is taken as column names by one rule, so that no row is lost in silence."""

import io
import re
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from logs import Kept
from sources import found, like

from recurcli.commands.check import inspect, read_splits
from recurcli.config import DataConfig
from recurcli.data.source import LABEL_NAMES, ROWS_FOR_HEADER, TEXT_NAMES, UNKNOWN, Source, find_source
from recurcli.data.splits import load_split
from recurcli.data.tasks import TASKS, task_with_columns
from recurcli.errors import DataError
from recurcli.export.clue import Finding

CUSTOM = TASKS["custom"]
AS_NAMES = "line 1 is taken as column names; --no-header reads it as a row"
AS_ROW = "line 1 is taken as a row; --header reads it as column names"
ON_TEXT, ON_QUESTION, ON_PAIRS, ON_NUMBER, ON_TWO = (
    like(),
    like("question"),
    like("sentence1", "sentence2"),
    like("1"),
    like(("utterance", "context")),
)
Found = tuple[list[list[str]], str]
"""The rows that are left, and the note on line 1."""


def as_input(content: str, trained: Source = ON_TEXT, **told: object) -> Found:
    """Read an input of `recur predict`."""
    return left_of(content, like=trained, is_input=True, **told)


def as_training_rows(content: str, labelled: bool = True, trained: Source = UNKNOWN, **told: object) -> Found:
    """Read labelled rows as training, `check` and `eval` do."""
    return left_of(content, like=trained, labelled=labelled, **told)


def left_of(content: str, **told: Any) -> Found:
    _, records, rows = found(content, **told)
    notes = [note.text.removeprefix("x.tsv: ") for note in records.notes if "line 1" in note.text]
    return [[*row.fields.values()] for row in rows], "".join(notes)


@pytest.mark.parametrize(
    ("content", "trained", "told"),
    [
        ("y\tI like it\nn\tbad food\n", ON_TEXT, {"text": "2"}),
        ("topic\tclass\nid\tlabel\n", ON_TEXT, {}),
        ("question\nWho is he ?\n", ON_TEXT, {}),
        ("label\nid\n", ON_TEXT, {}),
        ("sentence1\nb\n", like(), {}),
        ("1\tgood\n2\tbad\n", ON_NUMBER, {}),
        ("utterance\n", ON_TWO, {}),
        ("foo\tbar\na\tb\n", ON_TEXT, {}),
    ],
)
def test_a_row_is_not_swallowed_as_a_header(content: str, trained: Source, told: dict[str, str]) -> None:
    assert as_input(content, trained, **told) == ([line.split("\t") for line in content.splitlines()], AS_ROW)


@pytest.mark.parametrize(
    ("header", "trained"),
    [
        *[(name, ON_TEXT) for name in ("text", "sentence", " Text")],
        *[("question", ON_QUESTION), ("question\tid", ON_TEXT), ("x\tQuestion", ON_QUESTION)],
        *[("utterance\tx\tcontext", ON_TWO), ("sentence1\tsentence2", ON_PAIRS), ("premise\thypothesis", ON_PAIRS)],
    ],
)
def test_an_input_has_a_header_by_the_names_of_the_training_or_by_usual_ones(header: str, trained: Source) -> None:
    row = ["a"] * len(header.split("\t"))
    assert as_input("\t".join(row).join([f"{header}\n", "\n"]), trained) == ([row], AS_NAMES)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("text\tb\n", "'text' seems to name a column, but no cell names the label"),
        ("y\tI like it\nn\tbad food\n", "'y' seems to name a column, but no cell names the text"),
        ("text\tlabel\na\tb\nc\tlabel\n", "'label' seems to name a column, but line 3 has it, too"),
        ("text\tlabel\0\n", "holds a NUL at character 11"),
    ],
)
def test_training_rows_whose_first_may_be_a_header_are_refused_with_the_ways_out(content: str, message: str) -> None:
    with pytest.raises(DataError, match=rf"^x.tsv:1: {message}; add --header or --no-header$"):
        as_training_rows(content)
    with pytest.raises(DataError, match=r"add --header or --no-header$"):
        as_training_rows("text\tlabel\na\tb\nc\tlabel\n", text="1", label=2)
    assert len(as_training_rows(content, text="1", label=2, header=False)[0]) == content.count("\n")


def test_an_input_whose_first_row_may_be_a_header_is_refused() -> None:
    for content, trained, why in (
        ("a\ttext\nb\ttext\n", ON_TEXT, "'text' seems to name a column, but line 2 has it, too"),
        ("utterance\tb\n", ON_TWO, "'utterance' seems to name a column, but no cell names 'context'"),
    ):
        with pytest.raises(DataError, match=rf"^x.tsv:1: {why}; add --header or --no-header$"):
            as_input(content, trained)
        assert [len(as_input(content, trained, header=option, text="1")[0]) for option in (True, False)] == [
            content.count("\n") - 1,
            content.count("\n"),
        ]


def test_a_name_that_stands_again_after_a_thousand_rows_is_a_name() -> None:
    for rows, repeats in ((ROWS_FOR_HEADER - 2, True), (ROWS_FOR_HEADER - 1, False)):
        content = "text\tlabel\n" + "a\tb\n" * rows + "a\tlabel\n"
        if repeats:
            with pytest.raises(DataError, match=f"line {rows + 2} has it, too"):
                as_training_rows(content)
        else:
            found, note = as_training_rows(content)
            assert (len(found), note) == (rows + 1, AS_NAMES)


def test_columns_told_by_name_must_be_in_line_1_and_numbers_change_nothing() -> None:
    assert as_training_rows("a\tb\nc\td\n", text="a", label="2") == ([["c", "d"]], "")
    assert as_training_rows("a\tb\nc\td\n", text="1", label=2) == ([["a", "b"], ["c", "d"]], AS_ROW)
    assert as_training_rows("text\tlabel\nc\td\n", text="1", label=2) == ([["c", "d"]], AS_NAMES)
    with pytest.raises(DataError, match=r"^x.tsv: has no column 'test'; did you mean 'text'\?; --label COLUMN"):
        as_training_rows("text\tb\nc\td\n", label="test")
    with pytest.raises(DataError, match=r"has no column 'c'; known: b, text; --text COLUMN names another$"):
        as_input("text\tb\nc\td\n", text="c")
    with pytest.raises(DataError, match=r"has no column 'c'; known: 1, 2; --text COLUMN names another$"):
        as_input("text\tb\nc\td\n", text="c", header=False)


def test_the_only_column_of_rows_without_labels_is_their_text(tmp_path: Path) -> None:
    assert as_training_rows("question\nWho is he ?\n", False) == ([["question"], ["Who is he ?"]], AS_ROW)
    with pytest.raises(DataError, match="which column is the text"):
        as_training_rows("question\nWho is he ?\n")


def test_a_file_without_a_header_may_hold_a_cell_twice(tmp_path: Path) -> None:
    path = tmp_path / "x.tsv"
    path.write_text("OTHER\tit is\tOTHER\ngood\tso so\tb\n")
    split = load_split(CUSTOM, "train", DataConfig(path=str(path), text="2", label="1"))
    assert [(row.text, row.label) for row in split.examples] == [("it is", "OTHER"), ("so so", "good")]
    assert [note.text for note in split.notes if note.level != "warning"] == [f"{path}: {AS_ROW}"]
    for told in ({"header": True}, {"text": "it is"}):
        with pytest.raises(
            DataError, match=r"has the column 'OTHER' twice; rename one, or add --no-header if line 1 is"
        ):
            load_split(CUSTOM, "train", DataConfig(path=str(path), label="1", **told))


def test_dev_rows_have_a_header_by_the_names_of_the_training_rows() -> None:
    trained = like("utterance")
    assert as_training_rows("label\tutterance\na\tb\n", trained=trained) == ([["a", "b"]], AS_NAMES)
    with pytest.raises(DataError, match="'label' seems to name a column, but no cell names the text"):
        as_training_rows("label\tutterance\na\tb\n")


CELLS = ("y", "topic", "class", "question", "text", "label", "Sentence", "sentence1", "sentence2", "review", "id", "1")
TABLES = st.integers(1, 3).flatmap(
    lambda width: st.lists(st.lists(st.sampled_from(CELLS), min_size=width, max_size=width), min_size=1, max_size=4)
)


def is_header_in_full(table: list[list[str]], trained: Source, *, labelled: bool) -> bool:
    """Whether row 1 has every name that makes it a header, in other words than those of the code."""
    first = [cell.casefold() for cell in table[0]]
    own = [name for name in trained.columns.names if name != "1"]
    if len(first) == 1:
        return first[0] in ("text", "sentence") or first == own
    label = [LABEL_NAMES] if labelled else []
    pair = [("sentence2", "pair", "hypothesis")] if trained.columns.pair else []
    once = [all(row[place] != table[0][place] for row in table[1:]) for place in range(len(first))]
    return any(
        all(first[place] in names and once[place] for place, names in zip(places, wanted, strict=False))
        for wanted in ([[(name,) for name in own] + label] if own else []) + [[TEXT_NAMES, *pair, *label]]
        if len(wanted) <= len(first)
        for places in permutations(range(len(first)), len(wanted))
    )


@given(
    table=TABLES, trained=st.sampled_from([UNKNOWN, ON_TEXT, ON_QUESTION, ON_PAIRS, ON_NUMBER]), labelled=st.booleans()
)
def test_no_row_is_lost_but_a_header_in_full_which_a_note_names(
    table: list[list[str]], trained: Source, labelled: bool
) -> None:
    content = "".join("\t".join(row) + "\n" for row in table)
    pairs = {"pair": "2"} if trained is ON_PAIRS else {}
    if len(table[0]) < 1 + len(pairs) + labelled:
        return  # a column is read for one thing
    try:
        if trained is not UNKNOWN and not labelled:
            rows, note = as_input(content, trained, text="1", **pairs)
        else:
            label = {"label": str(len(table[0]))} if labelled else {}
            rows, note = as_training_rows(content, labelled, trained, text="1", **label, **pairs)
    except DataError as error:
        assert len(table[0]) > 1
        assert re.search("add --header or --no-header", str(error)) or "column '" in str(error), "a name twice"
        return
    if rows == table:
        assert note == AS_ROW
    else:
        assert (rows, note) == (table[1:], AS_NAMES)
        assert is_header_in_full(table, trained, labelled=labelled)


def test_a_part_of_the_columns_that_the_training_joins_is_not_its_text() -> None:
    joined = like(("title", "body"))
    assert as_input("title\tbody\na\tb\n", joined)[0] == [["a", "b"]]
    message = "^x.tsv: has no column 'body', and the text in training is title [+] body; --text COLUMN names another$"
    with pytest.raises(DataError, match=message):
        as_input("title\tbodytext\na\tb\n", joined)
    for content in ("title\tbodytext\na\tb\n", "text\tid\na\tb\n"):
        with pytest.raises(DataError, match=message.replace("body'", "(body|title)'")):
            as_input(content, joined, header=True)
        with pytest.raises(DataError, match=r"has no column '(body|title)'"):
            as_training_rows(content, False, joined, header=True)
    row = io.BytesIO(b'{"title": "a", "b": "c"}\n')
    with pytest.raises(DataError, match=message):
        find_source(row, CUSTOM, DataConfig(), like=joined, is_input=True, name="x.tsv", format="jsonl")


def test_rows_without_a_header_are_joined_as_in_training_or_their_columns_are_asked_for() -> None:
    joined = like(("title", "body"))
    source, records, _ = found("a\tb\n", like=joined, is_input=True)
    assert source.columns.text == ("1", "2")
    warnings = [note.text for note in records.notes if note.level == "warning"]
    assert warnings == ["x.tsv: taking column 1 and 2 of 2 as the text; --text and --pair name others"]
    with pytest.raises(DataError, match=r"^x.tsv: which column is the text"):
        as_input("a\tb\tc\n", joined)
    assert as_input("a\n", joined)[0] == [["a"]]


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"text": ("text", "text")}, "'text' is taken as the text twice"),
        ({"text": ("text", 1)}, "'text' is taken as the text twice"),
        ({"text": ("text", "label")}, "'label' is taken as the text and the label"),
        ({"text": ("1", "2"), "label": 2}, "'label' is taken as the text and the label"),
    ],
)
def test_a_column_is_read_for_one_thing(told: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=f"^x.tsv: the column {message}; --text COLUMN"):
        as_training_rows("text\tlabel\na\tb\n", **told)  # type: ignore[arg-type]
    with pytest.raises(DataError, match=r"^x.tsv: the column 'text' is taken as the text twice; --text COLUMN"):
        as_input("text\tlabel\na\tb\n", text=("text", "1"))


def test_a_label_of_line_1_that_stands_in_no_other_row_is_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("समीक्षा,लेबल\n" + "".join(f"अच्छा {n},{n % 2}\n" for n in range(9)))
    with pytest.raises(DataError, match=r"add --text COLUMN, a name in line 1 .*: समीक्षा, लेबल$"):
        load_split(CUSTOM, "train", DataConfig(path=str(path)))
    doubt = "line 1 may be a header: its label 'लेबल' stands in no other row; --header"
    told = DataConfig(path=str(path), text="1", label=2)
    warnings = [note.text for note in load_split(CUSTOM, "train", told).notes if note.level == "warning"]
    assert warnings == [f"{path}: {doubt}"]
    findings = [found.message for found in inspected(told)[1] if found.level == "warning"]
    assert findings == [f"{path}: {doubt}"]
    for header in (True, False):
        assert not any(
            "may be" in note.text for note in load_split(CUSTOM, "train", replace(told, header=header)).notes
        )


def inspected(config: DataConfig) -> tuple[dict[str, Any], list[Finding]]:
    """The report and the findings of `recur check`."""
    task = task_with_columns(CUSTOM, config)
    splits, findings = read_splits(task, config, Kept())
    facts, more = inspect(task, config, splits, None)
    return facts, [*findings, *more]
