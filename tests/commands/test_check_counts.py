"""What `recur check` counts in the rows that `load_split` reads."""

import hashlib
import zipfile
from pathlib import Path

import pytest
from logs import Kept

from recurcli.commands.check import (
    CheckedSplit,
    NearTexts,
    count_tokens,
    has_invisible,
    read_splits,
    repeated_texts,
)
from recurcli.config import DataConfig, Preset, TokenizerConfig
from recurcli.data.splits import load_split
from recurcli.data.tasks import CUSTOM, TASKS, task_with_columns
from recurcli.export.clue import is_submission
from recurcli.tokens.tokenizer import Tokenizer


def splits_of(path: Path, log: Kept | None = None) -> list[CheckedSplit]:
    """The splits of a file or folder of the task `custom`, read as the command reads them."""
    asked = DataConfig(path=str(path))
    task = task_with_columns(TASKS[CUSTOM], asked)
    return read_splits(task, asked, log or Kept())[0]


def split_of(path: Path) -> CheckedSplit:
    """The only split of a file."""
    (split,) = splits_of(path)
    return split


def tsv(path: Path, *rows: str, header: str = "text\tlabel") -> Path:
    path.write_text("".join(f"{row}\n" for row in (header, *rows)), encoding="utf-8")
    return path


@pytest.mark.parametrize("character", ["\0", "\x1b", "\x85", "\u202e", "\ufffd", "\ufeff", "\u200b"])
def test_invisible_characters_are_found(character: str) -> None:
    assert has_invisible(f"a{character}b")


@pytest.mark.parametrize(
    "text",
    ["", "tab\tand\nline", "ideographic　space", "no\u00a0break", "é中🙂", "👩\u200d💻", "می\u200cخواهم", "a\r\nb"],
)
def test_ordinary_text_has_no_invisible_characters(text: str) -> None:
    assert not has_invisible(text)


def test_pairs_are_the_same_only_when_both_texts_are(tmp_path: Path) -> None:
    header = "text\tpair\tlabel"
    split = split_of(tsv(tmp_path / "x.tsv", "a\tb\tx", "ab\t\tx", "a\tc\tx", "a\tb\tx", header=header))
    assert repeated_texts(split)["first_lines"] == [[2, 5]]


@pytest.mark.parametrize("kind", ["char", "byte", "whitespace", "wordpiece", "bpe"])
def test_lengths_are_those_of_the_tokens_a_training_would_have(kind: str, tmp_path: Path) -> None:
    config = TokenizerConfig(kind=kind, min_frequency=1, vocab_size=60)  # type: ignore[arg-type]
    rows = ["  Ａｂ   c \t\tx", "[SEP] x\t全角　y\tx", "é\u200b😀 b\t\ty", "\u2028 a\tb\ty"]
    split = split_of(tsv(tmp_path / "train.tsv", *rows, header="text\tpair\tlabel"))
    _, (lengths,) = count_tokens(
        [split], DataConfig(), Preset(task="custom", encoder={"name": "bilstm"}, tokenizer=config)
    )
    assert split.alone is not None
    words = [text for row in split.alone.texts for text in row if text is not None]
    tokens = Tokenizer.train(words, config).encode(split.rows.texts, max_length=4000)
    assert lengths.tolist() == tokens.lengths.tolist()


@pytest.mark.parametrize(("header", "second"), [("text\tlabel", ""), ("text\tpair\tlabel", "\tsecond {}")])
def test_rows_are_those_of_a_training(header: str, second: str, tmp_path: Path) -> None:
    rows = [f"t{row % 90 // 3}{second.format(row)}\t{'xyz'[row % 3]}" for row in range(100)]
    tsv(tmp_path / "train.tsv", *rows, header=header)
    splits = splits_of(tmp_path)
    assert [split.name for split in splits] == ["train", "dev"]
    for split in splits:
        trained = load_split(TASKS[CUSTOM], split.name, DataConfig(path=str(tmp_path)), use_dev_split=True)
        assert split.rows.examples == trained.examples
    assert 0 < len(splits[1].rows.examples) < 20


def test_predictions_are_told_from_data(tmp_path: Path) -> None:
    for name, content, expected in [
        ("x.zip", "", True),
        ("clue-1.0.zip", "", True),
        ("x.csv.zip", "", False),
        ("x.json.zip", "", False),
        ("afqmc_predict.json.zip", "", True),
        ("afqmc_predict.json", "", True),
        ("a.json", '{"id": 0, "label": "1"}\n', True),
        ("b.json", '[{"label": "1"}, {"label": "0"}]', True),
        ("c.json", '{"id": 0, "label": "1", "sentence": "x"}\n', False),
        ("d.json", "{broken", False),
        ("e.tsv", "id\tlabel\n", False),
    ]:
        (tmp_path / name).write_text(content)
        assert is_submission(tmp_path / name) is expected, name
    for members, expected in [(["x.csv"], False), (["afqmc_predict.json"], True), (["a.csv", "b.csv"], True)]:
        with zipfile.ZipFile(tmp_path / "y.zip", "w") as archive:
            for member in members:
                archive.writestr(member, "")
        assert is_submission(tmp_path / "y.zip") is expected, members


def near(path: Path) -> dict[str, object]:
    (texts,) = map(NearTexts, splits_of(path))
    return texts.near_duplicates()


def test_texts_that_differ_in_a_few_characters_are_near_duplicates_and_equal_ones_are_none(tmp_path: Path) -> None:
    long = "the quick brown fox jumps over the lazy dog by the river"
    rows = [
        "another text that shares nothing\tx",
        f"{long}\tx",
        f"{long.upper()}\ty",
        f"{long} bank\ty",
        f"the {long}\tx",
    ]
    found = near(tsv(tmp_path / "x.tsv", *rows, "short\ty", "a\ty", "b\tx"))
    assert found == {"texts": 2, "compared": 7, "share": 2 / 7, "first_lines": [[3, 5], [3, 6]]}
    assert near(tsv(tmp_path / "y.tsv", "a b\tx", "b c\ty")) == {
        "texts": 0,
        "compared": 2,
        "share": 0,
        "first_lines": [],
    }


def test_chinese_texts_and_pairs_have_near_duplicates(tmp_path: Path) -> None:
    texts = (
        "倒计时一个月，今年高考有这些新变化，考生注意",
        "倒计时一个月，今年高考有这些新变化，考生注意→",
        "王者荣耀",
    )
    assert near(tsv(tmp_path / "x.tsv", *(f"{text}\tx" for text in texts)))["first_lines"] == [[2, 3]]
    rows = ["the same first text\ta quite different end\tx", "the same first text\tnothing like that\ty"]
    rows.append("the same first text\ta quite different ends\tx")
    found = near(tsv(tmp_path / "pairs.tsv", *rows, header="sentence1\tsentence2\tlabel"))
    assert found["first_lines"] == [[2, 4]]


def test_a_sample_of_many_texts_is_compared_and_always_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recurcli.commands.check.MAX_COMPARED", 40)
    texts = [hashlib.sha256(bytes([n])).hexdigest() for n in range(26)]
    path = tsv(tmp_path / "x.tsv", *(f"{text}{end}\tx" for end in ("", "!") for text in texts))
    found = near(path)
    assert (found["compared"], found) == (40, near(path))
    assert found["texts"] in range(14, 27)
