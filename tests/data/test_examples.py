"""A split is found, read and its labels checked, or the error says which row and what to do."""

import gzip
import hashlib
import json
import os
import tracemalloc
from array import array
from itertools import compress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recurcli.config import DataConfig
from recurcli.data.packed_texts import PackedTexts
from recurcli.data.splits import Example, Examples, Split, load_split
from recurcli.data.tasks import TASKS
from recurcli.errors import DataError

TNEWS, AFQMC, OCNLI, LISTOPS = (TASKS[name] for name in ("tnews", "afqmc", "ocnli", "listops-mini"))


def write_json(path: Path, *rows: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return path


def tnews_row(label: object = "102", sentence: object = "一句话", **more: object) -> dict[str, object]:
    return {"sentence": sentence, "label": label, **more}


def config(path: Path, **more: object) -> DataConfig:
    return DataConfig(path=str(path), **more)  # type: ignore[arg-type]


def test_a_json_split_is_read_in_order(tmp_path: Path) -> None:
    path = write_json(tmp_path / "train.json", tnews_row(102, "甲", keywords="x"), tnews_row("116", "乙"))
    split = load_split(TNEWS, "train", config(tmp_path))
    assert split.examples == [Example("0", "甲", None, "102", line=1), Example("1", "乙", None, "116", line=2)]
    assert split.path == path
    assert split.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (split.dropped, split.bad) == (0, [])


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("x.csv", "text,label\na,p\nb,\nc, \nd,q\n"),
        ("x.jsonl", '{"text":"a","label":"p"}\n{"text":"b","label":null}\n{"text":"c"}\n{"text":"d","label":"q"}\n'),
    ],
)
def test_rows_without_a_label_are_refused_with_the_way_out_or_left_out(name: str, rows: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(rows)
    custom = TASKS["custom"]
    way_out = r"2 of 4 rows cannot be used: .*; a training with --set data\.unlabelled=drop leaves out the 2 rows"
    with pytest.raises(DataError, match=way_out):
        load_split(custom, "train", config(path))
    split = load_split(custom, "train", config(path, unlabelled="drop"))
    assert ([row.text for row in split.examples], split.unlabelled, split.bad) == (["a", "d"], 2, [])
    assert split.notes[-1].text == f"{path}: 2 of 4 rows without a label left out (data.unlabelled)"
    path.write_text(rows + ("e,p,q\n" if name == "x.csv" else '{"text":"e","label":[0.5]}\n'))
    with pytest.raises(DataError, match=r"1 of 5 rows cannot be used: .*(has 3 fields[^;]*|strings)$"):
        load_split(custom, "train", config(path, unlabelled="drop"))


def test_a_tsv_split_is_read_by_its_header(tmp_path: Path) -> None:
    path = tmp_path / "x.tsv"
    path.write_text("label\tsentence2\tid\tsentence1\n1\t乙\ta\t甲\n0\tNA\tb\t001\n")
    assert load_split(AFQMC, "dev", config(path)).examples == [
        Example("a", "甲", "乙", "1", line=2),
        Example("b", "001", "NA", "0", line=3),
    ]


def test_extra_rows_have_the_label_of_their_row_and_never_that_of_a_dev_row(tmp_path: Path) -> None:
    rows = [
        tnews_row(("102", "116")[n % 2], f"句{n}", keywords=("", None, f"词{n}")[n % 3], tags=[f"a{n}", "b"])
        for n in range(40)
    ]
    del rows[5]["keywords"]
    path = write_json(tmp_path / "x.json", *rows)
    train = load_split(TNEWS, "train", config(path, extra_rows=("keywords", "tags")), use_dev_split=True)
    assert train.dev is not None
    assert {row.id for row in train.dev.examples}.isdisjoint({row.id for row in train.examples})
    longer = train.with_extra_rows()
    assert longer.examples[: len(train.examples)] == train.examples
    expected = [
        (row.id, text, row.label)
        for row in train.examples
        for text in ([f"词{row.id}"] if int(row.id) % 3 == 2 and row.id != "5" else []) + [f"a{row.id} b"]
    ]
    assert [(row.id, row.text, row.label) for row in longer.examples[len(train.examples) :]] == expected
    assert load_split(TNEWS, "dev", config(path, extra_rows=("keywords",))).examples[2].extra == ()
    others = Example("d", "词2", None, "102"), Example("e", "other", None, "102")
    held_back = Split(Examples.of(others), train.source)
    assert {row.text for row in longer.examples} - {row.text for row in train.with_extra_rows(held_back).examples} == {
        "词2"
    }
    missing = load_split(TNEWS, "train", config(path, extra_rows=("keyword",)))
    assert missing.with_extra_rows() == missing
    (tmp_path / "x.tsv").write_text("sentence\tlabel\tkey words\na\t102\tk\nb\t102\t\n")
    for columns, found in (
        (("key words",), [Example("0", "k", None, "102")]),
        (("nothing", 3), [Example("0", "k", None, "102")]),
        (("keywords",), []),
    ):
        assert (
            load_split(TNEWS, "train", config(tmp_path / "x.tsv", extra_rows=columns)).with_extra_rows().examples[2:]
            == found
        )


def test_a_named_second_text_makes_a_pair_of_a_single_text_task(tmp_path: Path) -> None:
    path = write_json(tmp_path / "x.json", tnews_row(keywords="k"))
    assert load_split(TNEWS, "dev", config(path, pair="keywords")).examples[0].pair == "k"


@pytest.mark.parametrize("place", ["dev.json", "dev.json.gz", "tnews/dev.json", "tnews/dev.json.gz"])
def test_a_folder_or_a_parent_of_task_folders_holds_the_file(tmp_path: Path, place: str) -> None:
    path = write_json(tmp_path / place, tnews_row())
    if place.endswith(".gz"):
        path.write_bytes(gzip.compress(path.read_bytes(), mtime=0))
    assert load_split(TNEWS, "dev", config(tmp_path)).path == path


@pytest.mark.parametrize(
    ("folder", "split", "reason"),
    [
        ("", "test", r"has no test rows \(looked for test.json, tnews/test.json"),
        ("nothing-here", "train", "nothing-here: does not exist.*--data"),
        ("", "dev", r"dev\.json: is a FIFO"),
        ("", "train", r"train\.json: has no folders named by label"),
        ("x" * 300, "train", "cannot be read"),
    ],
)
def test_a_path_without_the_file_is_refused(folder: str, split: str, reason: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "dev.json")
    (tmp_path / "train.json").mkdir()
    with pytest.raises(DataError, match=reason):
        load_split(TNEWS, split, config(tmp_path / folder))


@pytest.mark.parametrize(
    ("label", "reason"),
    [
        ("117", "label '117' is not one of tnews' 15 labels; did you mean '11"),
        (" 102", "label ' 102' is not one of tnews' 15 labels; did you mean '102'"),
        (7, "label '7' is not one of tnews' 15 labels"),
        ("", r"its label is empty"),
        (None, "its label is null, not a string"),
        (1.5, "label '1.5' is not one of tnews' 15 labels"),
        (True, "label 'true' is not one of tnews' 15 labels"),
        (["102", "103"], "has 2 labels ('102', '103'); a row has one"),
        ([["102"]], "its label is a list, not a string"),
        ("-", "label '-' is not one of tnews' 15 labels"),
    ],
)
def test_a_label_that_the_task_lacks_is_named_with_its_line(tmp_path: Path, label: object, reason: str) -> None:
    path = write_json(tmp_path / "dev.json", tnews_row(), tnews_row(label))
    with pytest.raises(DataError) as caught:
        load_split(TNEWS, "dev", config(tmp_path))
    assert f"{path.name}:2: {reason}" in str(caught.value)


def test_a_label_of_another_case_gets_the_right_one(tmp_path: Path) -> None:
    write_json(tmp_path / "dev.json", {"sentence1": "a", "sentence2": "b", "label": "Entailment"})
    with pytest.raises(DataError, match="'Entailment' is not one of ocnli's 3 labels; did you mean 'entailment'"):
        load_split(OCNLI, "dev", config(tmp_path))


def test_rows_without_a_majority_label_are_dropped_and_keep_their_numbers(tmp_path: Path) -> None:
    pair = {"sentence1": "a", "sentence2": "b"}
    write_json(tmp_path / "dev.json", {**pair, "label": "-"}, {**pair, "label": "neutral"})
    split = load_split(OCNLI, "dev", config(tmp_path))
    assert split.dropped == 1
    assert split.examples == [Example("1", "a", "b", "neutral", line=2)]
    write_json(tmp_path / "dev.json", {**pair, "label": "-"})
    with pytest.raises(DataError, match="no row is left of 1"):
        load_split(OCNLI, "dev", config(tmp_path))


def test_no_row_of_a_leaderboards_test_file_is_dropped_or_labelled(tmp_path: Path) -> None:
    pair = {"sentence1": "a", "sentence2": "b"}
    write_json(tmp_path / "test.json", {**pair, "label": "-"}, {**pair, "label": "neutral"}, pair)
    split = load_split(OCNLI, "test", config(tmp_path))
    assert [example.label for example in split.examples] == [None, None, None]
    assert split.dropped == 0


def test_a_leaderboard_may_have_two_test_files(tmp_path: Path) -> None:
    write_json(tmp_path / "test.json", {"id": 0, "sentence": "new"})
    write_json(tmp_path / "test1.0.json", {"id": 0, "sentence": "old"})
    texts = [load_split(TNEWS, split, config(tmp_path)).examples[0].text for split in ("test", "test1.0")]
    assert texts == ["new", "old"]


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([7, 3], ["7", "3"]),
        (["a", "b"], ["a", "b"]),
        (["a", "a"], ["0", "1"]),
        ([1, "1"], ["0", "1"]),
        ([5, None], ["0", "1"]),
        (["", "b"], ["0", "1"]),
    ],
)
def test_ids_are_the_rows_own_or_else_all_are_numbers(tmp_path: Path, ids: list[object], expected: list[str]) -> None:
    write_json(tmp_path / "dev.json", *(tnews_row(id=value) for value in ids))
    assert [example.id for example in load_split(TNEWS, "dev", config(tmp_path)).examples] == expected
    if expected == ["0", "1"]:
        with pytest.raises(DataError, match="the ids in 'id' must differ"):
            load_split(TNEWS, "dev", config(tmp_path, id="id"))


def test_bad_rows_are_counted_and_the_first_five_are_listed(tmp_path: Path) -> None:
    path = tmp_path / "dev.json"
    path.write_text((json.dumps(tnews_row()) + "\nnonsense\n") * 7)
    with pytest.raises(DataError) as caught:
        load_split(TNEWS, "dev", config(tmp_path))
    message = str(caught.value)
    assert f"{path}: 7 of 14 rows cannot be used: dev.json:2: is not JSON" in message
    assert [f"line {line}: is not JSON" in message for line in (4, 6, 8, 10, 12)] == [True] * 4 + [False]
    assert message.count(str(path)) == 1
    assert "skip_bad_rows" not in message, "more than 1 % are bad"
    assert "\n" not in message
    path.write_text(f"{json.dumps(tnews_row())}\n" * 199 + "nonsense\n")
    with pytest.raises(DataError, match=r"a training with data\.skip_bad_rows=true skips up to 1% of the rows"):
        load_split(TNEWS, "dev", config(tmp_path))


@pytest.mark.parametrize(("good", "fits"), [(199, True), (198, False)])
def test_skipping_bad_rows_forgives_one_in_a_hundred(tmp_path: Path, good: int, fits: bool) -> None:
    path = tmp_path / "dev.json"
    path.write_text(f"{json.dumps(tnews_row())}\n" * (good - 1) + "nonsense\n\n")
    if not fits:
        with pytest.raises(DataError, match="2 of 199 rows cannot be used"):
            load_split(TNEWS, "dev", config(tmp_path, skip_bad_rows=True))
        return
    split = load_split(TNEWS, "dev", config(tmp_path, skip_bad_rows=True))
    assert len(split.examples) == good - 1
    assert [line.split(": ")[0] for line in split.bad] == [f"{path}:{good}", f"{path}:{good + 1}"]


def test_generated_rows_need_no_file_and_are_always_the_same() -> None:
    splits = {split: load_split(LISTOPS, split, DataConfig()) for split in ("train", "dev", "test")}
    assert {name: len(split.examples) for name, split in splits.items()} == dict(LISTOPS.rows)
    assert splits["dev"].path is None
    assert splits["dev"].sha256 == load_split(LISTOPS, "dev", DataConfig()).sha256
    assert splits["dev"].sha256.startswith("d088ff94")
    assert splits["test"].examples[0].label is not None


def test_generated_rows_may_be_replaced_by_files(tmp_path: Path) -> None:
    (tmp_path / "dev.tsv").write_text("text\tlabel\n[MAX 1 2 ]\t2\n")
    assert load_split(LISTOPS, "dev", config(tmp_path)).examples == [Example("0", "[MAX 1 2 ]", None, "2", line=2)]


@pytest.mark.parametrize(
    "name", ["cmnli", *(pytest.param(larger, marks=pytest.mark.slow) for larger in ("ocnli", "tnews", "afqmc"))]
)
def test_real_splits_have_their_official_numbers_of_rows(real_data: Path, name: str) -> None:
    task = TASKS[name]
    for split, file in task.files.items():
        if not (real_data / name / file).exists():
            assert (name, split) == ("cmnli", "train"), "the only file that could not be had"
            continue
        found = load_split(task, split, config(real_data))
        assert len(found.examples) == task.rows[split]
        assert found.dropped == {("ocnli", "train"): 49, ("ocnli", "dev"): 50}.get((name, split), 0)
        if split.startswith("test"):
            assert [example.id for example in found.examples] == [str(number) for number in range(len(found.examples))]
        else:
            assert {example.label for example in found.examples} == set(task.labels)


def test_rows_in_columns_are_the_rows_that_were_put_in() -> None:
    rows = [Example("a", "x", None, "1", ("k",), 2, 0.5), Example("b", "y", "z", None, line=3)]
    columns = Examples.of(rows)
    assert columns == rows == [*columns]
    assert (columns[-1], columns[:1], len(columns)) == (rows[1], rows[:1], 2)
    assert columns.take(np.array([False, True])) == rows[1:]
    columns.ids = array("q", [7, 8])
    assert [row.id for row in columns] == ["7", "8"]
    assert columns.take(np.array([False, True])).ids == array("q", [8])
    assert columns.factors.tolist() == [0.5, 1.0] and Examples.of(rows[1:]).factors.tolist() == [1.0]


@given(st.lists(st.tuples(st.text(), st.none() | st.text(st.characters(exclude_categories=())))), st.data())
def test_packed_texts_are_those_that_were_put_in(rows: list[tuple[str, str | None]], data: st.DataObject) -> None:
    packed = PackedTexts(rows)
    assert packed == rows == [*packed] == packed[:]
    assert len(packed) == len(rows) and [packed[number] for number in range(-len(rows), 0)] == rows
    chosen = np.array(data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows))), bool)
    some, others = packed.take(chosen), packed.take(~chosen)
    assert some == [*compress(rows, chosen)]
    assert some + others == [*some, *others] and packed + rows == rows * 2
    assert packed == rows and packed[::-2] == rows[::-2]
    with pytest.raises(IndexError):
        packed[len(rows)]


def test_rows_are_read_and_dev_rows_drawn_in_few_bytes_beside_the_texts(tmp_path: Path) -> None:
    count = 20_000
    texts = [f"{'a text of sixty characters ' * 2}{number:06}" for number in range(count)]
    (tmp_path / "rows.tsv").write_text(
        "text\tlabel\n" + "".join(f"{text}\tclass {place % 20}\n" for place, text in enumerate(texts))
    )
    config = DataConfig(path=str(tmp_path / "rows.tsv"))
    load_split(TASKS["custom"], "train", config, use_dev_split=True)  # what is imported does not count
    tracemalloc.start()
    try:
        train = load_split(TASKS["custom"], "train", config, use_dev_split=True)
        held, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert train.count_with_dev == count
    assert held / count < 60 + 60 and most / count < 60 + 140
