"""One pass over a split's rows: what is counted, and that nothing is kept of the texts."""

import re
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from recurcli.commands.check import find_datasets
from recurcli.data.config import DataConfig, TokenizerConfig
from recurcli.data.splits import load_split, row_hash
from recurcli.data.tasks import CUSTOM, TASKS, task_with_columns
from recurcli.errors import DataError
from recurcli.export.clue import is_submission
from recurcli.inspection.rows import (
    BAD_ROWS_KEPT,
    SplitRows,
    find_files,
    has_invisible,
    needs_texts,
    note_repeated_ids,
    read_rows,
    repeated_texts,
    shared_texts,
    text_numbers,
    token_counter,
    training_texts,
)
from recurcli.tokens.tokenizer import Tokenizer


def rows_of(path: Path, numbers: dict[str, int] | None = None, **config: object) -> SplitRows:
    """The rows of a file of the task `custom`, read as the command reads them."""
    asked = DataConfig(path=str(path), **config)  # type: ignore[arg-type]
    task = task_with_columns(TASKS[CUSTOM], asked)
    (file,) = find_files(task, asked)
    rows = SplitRows(file.splits[0], file, {} if numbers is None else numbers)
    for _ in read_rows(file, task, asked, {rows.split: rows}, None):
        pass
    return rows


def tsv(path: Path, *rows: str, header: str = "text\tlabel") -> Path:
    path.write_text("".join(f"{row}\n" for row in (header, *rows)), encoding="utf-8")
    return path


def test_rows_that_cannot_be_used_are_counted_and_the_first_kept(tmp_path: Path) -> None:
    rows = rows_of(tsv(tmp_path / "x.tsv", "a\tx", *["b"] * 150, "c\t", "d\ty"))
    assert (rows.read, len(rows), rows.bad) == (153, 2, 151)
    assert len(rows.first_bad) == BAD_ROWS_KEPT
    assert rows.first_bad[0] == f"{tmp_path / 'x.tsv'}:3: has 1 field, not 2"
    assert list(rows.lines) == [2, 154]
    assert rows.label_lines == {"x": 2, "y": 154}


def test_issues_of_rows_are_noted_with_their_lines(tmp_path: Path) -> None:
    lines = ['"a\tx', '"b"\ty', " \tx", "NA\ty", "c\u202ed\tx", "e\ufffd\ty", "plain 全角　text\tx"]
    rows = rows_of(tsv(tmp_path / "x.tsv", *lines))
    issues = {issue: list(lines) for issue, lines in rows.issues.items()}
    assert issues == {"quoted": [3], "blank": [4], "invisible": [6, 7]}


def test_a_quote_that_is_left_open_in_csv_is_a_bad_row(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text('text,label\n"a\nb",x\n"c"d,y\nf,y\n', encoding="utf-8")
    rows = rows_of(path)
    assert (len(rows), rows.bad, rows.issues) == (2, 1, {})
    assert rows.first_bad == [f"{path}:4: has text after a closing quote: '\"d,y'"]


@pytest.mark.parametrize("character", ["\0", "\x1b", "\x85", "\u202e", "\ufffd", "\ufeff", "\u200b"])
def test_invisible_characters_are_found(character: str) -> None:
    assert has_invisible(f"a{character}b")


@pytest.mark.parametrize(
    "text",
    ["", "tab\tand\nline", "ideographic　space", "no\u00a0break", "é中🙂", "👩\u200d💻", "می\u200cخواهم", "a\r\nb"],
)
def test_ordinary_text_has_no_invisible_characters(text: str) -> None:
    assert not has_invisible(text)


def test_repeats_and_conflicts_are_told_with_lines(tmp_path: Path) -> None:
    rows = rows_of(tsv(tmp_path / "x.tsv", "a\tx", "b\tx", "a\ty", "b\tx", "c\ty", "a\tx"))
    assert repeated_texts(rows, text_numbers([rows])[0]) == {
        "texts": 2,
        "rows": 3,
        "equal_rows": 3,
        "first_lines": [[2, 4, 7], [3, 5]],
        "conflicting_texts": 1,
        "conflicting_rows": 3,
        "first_conflicts": [{"lines": [2, 4, 7], "labels": ["x", "y"]}],
    }


def test_pairs_are_the_same_only_when_both_texts_are(tmp_path: Path) -> None:
    header = "text\tpair\tlabel"
    rows = rows_of(tsv(tmp_path / "x.tsv", "a\tb\tx", "ab\t\tx", "a\tc\tx", "a\tb\tx", header=header))
    assert repeated_texts(rows, text_numbers([rows])[0])["first_lines"] == [[2, 5]]


def test_overlap_counts_texts_rows_and_other_labels(tmp_path: Path) -> None:
    labels: dict[str, int] = {}
    train = rows_of(tsv(tmp_path / "train.tsv", "a\tx", "b\tx", "a\tx", "c\ty"), labels)
    dev = rows_of(tsv(tmp_path / "dev.tsv", "d\tx", "c\ty", "a\ty", "A\ty", "a\tz"), labels)
    assert shared_texts([train, dev], text_numbers([train, dev])) == [
        {
            "first": "train",
            "second": "dev",
            "texts": 2,
            "first_rows": 3,
            "second_rows": 4,
            "equal_rows": 3,
            "other_labels": 1,
            "first_lines": [[5, 3], [2, 4]],
        }
    ]


def test_splits_without_rows_have_nothing_in_common(tmp_path: Path) -> None:
    empty, some = rows_of(tsv(tmp_path / "train.tsv")), rows_of(tsv(tmp_path / "dev.tsv", "a\tx"))
    (overlap,) = shared_texts([empty, some], text_numbers([empty, some]))
    assert overlap["texts"] == 0
    assert repeated_texts(empty, text_numbers([empty])[0])["rows"] == 0


def test_repeated_ids_are_found_and_missing_ones_are_not_repeated(tmp_path: Path) -> None:
    header = "id\ttext\tlabel"
    rows = rows_of(tsv(tmp_path / "x.tsv", "1\ta\tx", "\tb\ty", "1\tc\tx", "\td\tx", header=header))
    note_repeated_ids(rows)
    assert list(rows.issues["repeated id"]) == [4]
    assert list(rows.issues["no id"]) == [3, 5]


TEXTS: Sequence[tuple[str, str | None]] = [
    ("  Ａｂ\t c ", None),
    ("", None),
    ("[SEP] x", "全角　y"),
    ("é\u200b😀 b", ""),
    ("\u2028\ud800 a", None),
]


@pytest.mark.parametrize("kind", ["char", "byte", "whitespace", "wordpiece", "bpe"])
def test_lengths_are_those_of_the_tokens_a_training_would_have(kind: str) -> None:
    config = TokenizerConfig(kind=kind, min_frequency=1, vocab_size=60)  # type: ignore[arg-type]
    words = [part for row in TEXTS for part in row if part]
    count_tokens = token_counter(config, iter(words) if needs_texts(config) else iter(()))
    tokens = Tokenizer.train(words, config).encode(TEXTS, max_length=4000)
    np.testing.assert_array_equal(count_tokens(TEXTS), tokens.lengths)


def test_rows_and_vocabulary_are_those_of_a_training(tmp_path: Path) -> None:
    tsv(tmp_path / "train.tsv", *(f"t{row % 90}\t{'xyz'[row % 3]}" for row in range(100)))
    config = DataConfig(path=str(tmp_path))
    task = task_with_columns(TASKS[CUSTOM], config)
    (file,) = find_files(task, config)
    splits = {split: SplitRows(split, file, {}) for split in file.splits}
    for _ in read_rows(file, task, config, splits, None):
        pass
    for name, rows in splits.items():
        trained = load_split(TASKS[CUSTOM], name, config, use_dev_split=True)
        hashes = [row_hash(example.text, None) for example in trained.examples]
        assert np.frombuffer(rows.texts, np.uint64).tolist() == hashes
    hashes = [row_hash(text, None) for text in training_texts(file, task, config)]
    assert hashes == np.frombuffer(splits["train"].texts, np.uint64).tolist()
    assert 0 < len(splits["dev"]) < 20


def test_a_path_names_its_task(tmp_path: Path) -> None:
    (tmp_path / "tnews").mkdir()
    (tmp_path / "tnews" / "train.json").touch()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "train.50k.json").touch()
    (tmp_path / "shared").mkdir()
    for name in ("train.json", "test1.0.json"):  # of tnews and of cluewsc
        (tmp_path / "shared" / name).touch()
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "valid.tsv").touch()
    (tmp_path / "own" / "listops-mini_x.tsv").touch()
    named = {path: [place.task for place in find_datasets(path, None, "")] for path in [tmp_path, *tmp_path.glob("*")]}
    assert named == {
        tmp_path: ["tnews"],
        tmp_path / "tnews": ["tnews"],
        tmp_path / "mine": ["ocnli"],
        tmp_path / "shared": ["custom"],
        tmp_path / "own": ["custom"],
    }
    assert find_datasets(tmp_path / "tnews" / "train.json", None, "")[0].task == "tnews"
    assert find_datasets(tmp_path / "own" / "listops-mini_x.tsv", None, "")[0].task == "listops-mini"
    assert find_datasets(tmp_path / "tnews" / "train.json", "afqmc", "")[0].task == "afqmc"


def test_a_folder_of_files_without_a_splits_name_lists_them(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv.gz", "notes.txt"):
        (tmp_path / name).write_text("text,label\n")
    files = "it holds a.csv, b.csv.gz; give the path of one file, or name files with --train, --dev and --test"
    with pytest.raises(DataError, match=re.escape(f"{tmp_path}: has no train, dev or test file by its name; {files}")):
        find_datasets(tmp_path, None, "")
    with pytest.raises(DataError, match=re.escape(f"; {files}")):
        load_split(TASKS["custom"], "train", DataConfig(path=str(tmp_path)))


def test_plain_text_is_refused_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "tnews").mkdir()
    (tmp_path / "tnews" / "dev.json").touch()
    (tmp_path / "ptb").mkdir()
    (tmp_path / "texts").mkdir()
    for folder in ("ptb", "texts"):
        (tmp_path / folder / "ptb.train.txt").write_text("no it was n't black monday\n")
    for path, task in [("ptb", None), ("texts", None), ("texts/ptb.train.txt", None), ("texts", "ptb")]:
        with pytest.raises(DataError, match=r"task ptb .* is plain text without labels"):
            find_datasets(tmp_path / path, task, "from --task")
    assert find_datasets(tmp_path / "texts", "custom", "")[0].task == "custom"
    (tmp_path / "books").mkdir()
    (tmp_path / "books" / "a.txt").write_text("no it was n't black monday\n")
    with pytest.raises(DataError, match="books: holds plain text without labels"):
        find_datasets(tmp_path / "books", None, "")
    assert [place.task for place in find_datasets(tmp_path, None, "")] == ["tnews"]


def test_predictions_are_told_from_data(tmp_path: Path) -> None:
    for name, content, expected in [
        ("x.zip", "", True),
        ("afqmc_predict.json", "", True),
        ("a.json", '{"id": 0, "label": "1"}\n', True),
        ("b.json", '[{"label": "1"}, {"label": "0"}]', True),
        ("c.json", '{"id": 0, "label": "1", "sentence": "x"}\n', False),
        ("d.json", "{broken", False),
        ("e.tsv", "id\tlabel\n", False),
    ]:
        (tmp_path / name).write_text(content)
        assert is_submission(tmp_path / name) is expected, name


def test_memory_does_not_grow_with_the_texts(tmp_path: Path) -> None:
    path = tsv(tmp_path / "x.tsv", *(f"{'long text ' * 200}{row}\tx{row % 2}" for row in range(5000)))
    rows_of(tsv(tmp_path / "warm.tsv", "a\tx"))
    tracemalloc.start()
    rows = rows_of(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(rows) == 5000
    assert peak < 4 << 20, "the file has 10 MB"
