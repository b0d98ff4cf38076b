"""fastText's lines `__label__x text` are rows, by the ending .ft or by the first line of a file without a known ending."""

from pathlib import Path

import pytest

from recurcli.commands.pretrain import _is_corpus
from recurcli.config import DataConfig
from recurcli.data.readers import read_records
from recurcli.data.splits import load_split
from recurcli.data.tasks import TASKS
from recurcli.errors import DataError
from recurcli.preset import compose
from recurcli.targets import Cell

LINES = "__label__pos good film\n__label__neg  bad\tfilm \nno more __label__neg\n"


def load(path: Path, split: str = "train") -> list[tuple[str, Cell | None]]:
    found = load_split(TASKS["custom"], split, DataConfig(path=str(path)))
    return [(example.text, example.label) for example in found.examples]


@pytest.mark.parametrize("name", ["x.txt", "x.ft", "cooking.train", "x"])
def test_labels_are_read_wherever_they_stand(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(LINES)
    assert load(tmp_path / name) == [("good film", "pos"), ("bad\tfilm", "neg"), ("no more", "neg")]


def test_a_name_that_tells_the_format_is_believed(tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_text("__label__a\tb\n")
    with read_records(tmp_path / "x.tsv") as records:
        assert next(records).fields == {"1": "__label__a", "2": "b"}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("no label", "x.ft:4: has no 'label'"),
        ("__label__ x", "x.ft:4: its label is empty"),
        ("", "x.ft:4: is blank"),
    ],
)
def test_a_row_needs_a_label(line: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "x.ft").write_text(f"{LINES}{line}\n")
    with pytest.raises(DataError, match=reason):
        load(tmp_path / "x.ft")


def test_a_line_may_have_several_labels(tmp_path: Path) -> None:
    (tmp_path / "x.ft").write_text(f"{LINES}__label__b __label__a x\n")
    assert load(tmp_path / "x.ft")[2:] == [("no more", ("neg",)), ("x", ("a", "b"))]


def test_a_folder_may_hold_fasttext_files_but_plain_text_is_for_pretraining(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("just text\n")
    preset = compose("transformer-custom", data=tmp_path).preset
    assert _is_corpus(preset)
    with pytest.raises(DataError, match="has no train rows"):
        load(tmp_path)
    for name in ("train.txt", "valid.txt"):
        (tmp_path / name).write_text(LINES)
    assert len(load(tmp_path)) == len(load(tmp_path, "dev")) == 3
    assert not _is_corpus(preset)
    assert not _is_corpus(compose("transformer-custom", data=tmp_path / "train.txt").preset)
