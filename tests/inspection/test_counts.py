"""What `recur check` counts in the rows that `load_split` reads, and how it finds the task of a path."""

import re
from pathlib import Path

import pytest
from logs import Kept

from recurcli.commands.check import find_datasets
from recurcli.data.config import DataConfig, TokenizerConfig
from recurcli.data.splits import load_split
from recurcli.data.tasks import CUSTOM, TASKS, task_with_columns
from recurcli.errors import DataError
from recurcli.export.clue import is_submission
from recurcli.inspection.counts import (
    CheckedSplit,
    count_tokens,
    find_files,
    has_invisible,
    read_splits,
    repeated_texts,
    shared_texts,
)
from recurcli.log import RowsDone
from recurcli.tokens.tokenizer import Tokenizer


def splits_of(path: Path, log: Kept | None = None) -> list[CheckedSplit]:
    """The splits of a file or folder of the task `custom`, read as the command reads them."""
    asked = DataConfig(path=str(path))
    task = task_with_columns(TASKS[CUSTOM], asked)
    return read_splits(find_files(task, asked), task, asked, log or Kept())


def split_of(path: Path) -> CheckedSplit:
    """The only split of a file."""
    (split,) = splits_of(path)
    return split


def tsv(path: Path, *rows: str, header: str = "text\tlabel") -> Path:
    path.write_text("".join(f"{row}\n" for row in (header, *rows)), encoding="utf-8")
    return path


def test_bad_rows_are_kept_beside_the_sound_ones_and_each_row_has_its_line(tmp_path: Path) -> None:
    log, path = Kept(), tsv(tmp_path / "x.tsv", "a\tx", *["b"] * 150, "c\t", "d\ty")
    (split,) = splits_of(path, log)
    assert (split.rows.read, len(split.rows.bad)) == (153, 151)
    assert split.rows.bad[0] == f"{path}:3: has 1 field, not 2"
    assert [row.line for row in split.rows.examples] == [2, 154]
    assert split.label_lines == {"x": 2, "y": 154}
    assert log.states == [RowsDone(153)]


def test_issues_of_rows_are_noted_with_their_lines(tmp_path: Path) -> None:
    lines = ['"a\tx', '"b"\ty', " \tx", "NA\ty", "c\u202ed\tx", "e\ufffd\ty", "plain 全角　text\tx"]
    split = split_of(tsv(tmp_path / "x.tsv", *lines))
    assert split.issues == {"quoted": [3], "blank": [4], "invisible": [6, 7]}


def test_a_quote_that_is_left_open_in_csv_is_a_bad_row(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text('text,label\n"a\nb",x\n"c"d,y\nf,y\n', encoding="utf-8")
    split = split_of(path)
    assert (len(split.rows.examples), split.issues) == (2, {})
    assert split.rows.bad == [f"{path}:4: has text after a closing quote: '\"d,y'"]


@pytest.mark.parametrize("character", ["\0", "\x1b", "\x85", "\u202e", "\ufffd", "\ufeff", "\u200b"])
def test_invisible_characters_are_found(character: str) -> None:
    assert has_invisible(f"a{character}b")


@pytest.mark.parametrize(
    "text",
    ["", "tab\tand\nline", "ideographic　space", "no\u00a0break", "é中🙂", "👩\u200d💻", "می\u200cخواهم", "a\r\nb"],
)
def test_ordinary_text_has_no_invisible_characters(text: str) -> None:
    assert not has_invisible(text)


def test_repeats_and_conflicts_are_counted_with_lines(tmp_path: Path) -> None:
    assert repeated_texts(split_of(tsv(tmp_path / "x.tsv", "a\tx", "b\tx", "a\ty", "b\tx", "c\ty", "a\tx"))) == {
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
    split = split_of(tsv(tmp_path / "x.tsv", "a\tb\tx", "ab\t\tx", "a\tc\tx", "a\tb\tx", header=header))
    assert repeated_texts(split)["first_lines"] == [[2, 5]]


def test_overlap_counts_texts_rows_and_other_labels(tmp_path: Path) -> None:
    train = split_of(tsv(tmp_path / "train.tsv", "a\tx", "b\tx", "a\tx", "c\ty"))
    dev = split_of(tsv(tmp_path / "dev.tsv", "d\tx", "c\ty", "a\ty", "A\ty", "a\tz"))
    assert shared_texts([train, dev]) == [
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
    empty, some = split_of(tsv(tmp_path / "train.tsv")), split_of(tsv(tmp_path / "dev.tsv", "a\tx"))
    assert empty.rows.faults == [f"{tmp_path / 'train.tsv'}: has no rows"]
    assert shared_texts([empty, some])[0]["texts"] == 0
    assert repeated_texts(empty)["rows"] == 0


def test_repeated_ids_are_found_and_missing_ones_are_not_repeated(tmp_path: Path) -> None:
    header = "id\ttext\tlabel"
    split = split_of(tsv(tmp_path / "x.tsv", "1\ta\tx", "\tb\ty", "1\tc\tx", "\td\tx", header=header))
    assert (split.issues["repeated id"], split.issues["no id"]) == ([4], [3, 5])


@pytest.mark.parametrize("kind", ["char", "byte", "whitespace", "wordpiece", "bpe"])
def test_lengths_are_those_of_the_tokens_a_training_would_have(kind: str, tmp_path: Path) -> None:
    config = TokenizerConfig(kind=kind, min_frequency=1, vocab_size=60)  # type: ignore[arg-type]
    rows = ["  Ａｂ   c \t\tx", "[SEP] x\t全角　y\tx", "é\u200b😀 b\t\ty", "\u2028 a\tb\ty"]
    split = split_of(tsv(tmp_path / "train.tsv", *rows, header="text\tpair\tlabel"))
    _, (lengths,) = count_tokens([split], DataConfig(), config, Kept())
    assert split.alone is not None
    words = [text for row in split.alone.texts for text in row if text is not None]
    tokens = Tokenizer.train(words, config).encode(split.rows.texts, max_length=4000)
    assert lengths.tolist() == tokens.lengths.tolist()


def test_rows_are_those_of_a_training(tmp_path: Path) -> None:
    tsv(tmp_path / "train.tsv", *(f"t{row % 90}\t{'xyz'[row % 3]}" for row in range(100)))
    splits = splits_of(tmp_path)
    assert [split.name for split in splits] == ["train", "dev"]
    for split in splits:
        trained = load_split(TASKS[CUSTOM], split.name, DataConfig(path=str(tmp_path)), use_dev_split=True)
        assert split.rows.examples == trained.examples
    assert 0 < len(splits[1].rows.examples) < 20


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
