"""Folders named by label that hold a text file a row, as the IMDb archive does."""

import gzip
import os
from pathlib import Path

import pytest

from recurcli.config import DataConfig
from recurcli.data.splits import load_split
from recurcli.data.tasks import TASKS, is_one_file
from recurcli.errors import DataError
from recurcli.targets import Cell


def put(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """The layout of aclImdb: 30 reviews to train on, 2 to test, 3 without a label."""
    for row in range(15):
        put(tmp_path / "train" / "neg" / f"{row:02}_1.txt", f"bad {row}".encode())
        put(tmp_path / "train" / "pos" / f"{row:02}_9.txt", f"good {row}\n\nso".encode())
    for row in range(3):
        put(tmp_path / "train" / "unsup" / f"{row}_0.txt", b"who knows")
    put(tmp_path / "train" / "labeledBow.feat", b"1 2:3")
    put(tmp_path / "test" / "neg" / "0_2.txt", b"worse")
    put(tmp_path / "test" / "pos" / "0_8.txt", b"better")
    return tmp_path


def load(path: Path, split: str, task: str = "imdb") -> list[tuple[str, str, Cell | None]]:
    found = load_split(TASKS[task], split, DataConfig(path=str(path)))
    return [(example.id, example.text, example.label) for example in found.examples]


def test_labels_are_the_folders_names_and_others_are_left_alone(archive: Path) -> None:
    train, dev, test = (load(archive, split) for split in ("train", "dev", "test"))
    assert len(train) + len(dev) == 30
    assert len(dev) in (2, 3, 4), "of 15 rows of a class one or two"
    assert [row[1:] for row in test] == [("worse", "neg"), ("better", "pos")]
    assert {label for _, _, label in [*train, *dev]} == {"neg", "pos"}
    assert train[0][1:] == ("bad 0", "neg")
    assert max(train + dev, key=lambda row: row[0])[1:] == ("good 14\n\nso", "pos")
    assert not {text for _, text, _ in train} & {text for _, text, _ in dev}


def test_bad_bytes_name_their_file(archive: Path) -> None:
    (archive / "train" / "pos" / "03_9.txt").write_bytes(b"caf\xe9")
    with pytest.raises(DataError, match=r"1 of 30 rows cannot be used: .*pos/03_9.txt is not UTF-8 at byte 4 \(0xe9\)"):
        load(archive, "train")


def test_a_bom_is_no_text_and_a_file_may_be_empty(archive: Path) -> None:
    (archive / "test" / "neg" / "0_2.txt").write_bytes(b"\xef\xbb\xbfworse\r\n")
    (archive / "test" / "pos" / "0_8.txt").write_bytes(b"")
    assert [text for _, text, _ in load(archive, "test")] == ["worse\r\n", ""]


def test_names_that_are_no_utf8_are_lived_with(archive: Path) -> None:
    for name in (b"caf\xe9_1.txt", b"\xff.txt"):
        with open(os.fsencode(archive / "test" / "neg") + b"/" + name, "wb") as file:  # noqa: PTH123
            file.write(b"odd")
    found = load_split(TASKS["imdb"], "test", DataConfig(path=str(archive)))
    assert len(found.examples) == 4
    assert found.sha256


def test_a_label_that_training_has_not_is_not_lost_in_silence(archive: Path) -> None:
    from recurcli.data.splits import with_labels_of

    put(archive / "dev" / "neg" / "1.txt", b"bad")
    put(archive / "dev" / "soso" / "1.txt", b"soso")
    config = DataConfig(path=str(archive))
    train = load_split(TASKS["custom"], "train", config)
    assert train.labels == ("neg", "pos", "unsup"), "of one's own folders all are labels"
    chosen = load_split(TASKS["custom"], "train", DataConfig(path=str(archive), labels=("pos", "neg")))
    assert {example.label for example in chosen.examples} == {"pos", "neg"}
    task = with_labels_of(TASKS["custom"], train, config)
    with pytest.raises(DataError, match="label 'soso' is not one of custom's 3 labels"):
        load_split(task, "dev", config)


@pytest.mark.parametrize("label", ["../secret", "/etc", "..", ".", "neg/..", "a\0b"])
def test_a_label_that_is_no_name_of_a_folder_reads_nothing_outside(label: str, archive: Path) -> None:
    put(archive / "secret" / "key.txt", b"private")
    labels = ("neg", str(archive / "secret") if label == "/etc" else label)
    with pytest.raises(DataError, match=r"test: the label '.*' is not the name of a folder in it; change data.labels"):
        load_split(TASKS["custom"], "test", DataConfig(path=str(archive), labels=labels))


def test_files_have_any_ending_or_none_and_hidden_ones_are_no_rows(tmp_path: Path) -> None:
    """As in 20 Newsgroups, whose files have names without an ending, on a disk that a Mac has looked at."""
    for label in ("alt.atheism", "sci.med"):
        for name in ("49960", "51060.html", "9.txt", ".DS_Store", "._9"):
            put(tmp_path / "train" / label / name, b"\xff\0" if name.startswith(".") else f"{label} {name}".encode())
    put(tmp_path / "train" / ".git" / "config", b"x")
    (tmp_path / "train" / "notes").write_bytes(b"no folder")
    rows = load(tmp_path, "train", "custom")
    assert [text for _, text, _ in rows[:3]] == [f"alt.atheism {name}" for name in ("49960", "51060.html", "9.txt")]
    assert [label for *_, label in rows] == ["alt.atheism"] * 3 + ["sci.med"] * 3


def test_a_folder_is_in_one_encoding(archive: Path) -> None:
    for encoding in ("latin-1", "utf-16"):
        for path in archive.glob("test/*/*.txt"):
            path.write_bytes("café".encode(encoding))
        found = load_split(TASKS["imdb"], "test", DataConfig(path=str(archive), encoding=encoding))
        assert [example.text for example in found.examples] == ["café", "café"]


def test_what_stands_for_a_text_and_is_none_is_named(archive: Path) -> None:
    (archive / "test" / "neg" / "1.txt").mkdir()
    with pytest.raises(DataError, match=r"neg/1\.txt: is a folder, not a file with a text; move its files up"):
        load(archive, "test")


@pytest.mark.parametrize("damaged", [b"no gzip", gzip.compress(b"a film " * 100, mtime=0)[:-9]])
def test_a_damaged_compressed_text_is_named(archive: Path, damaged: bytes) -> None:
    path = archive / "test" / "neg" / "1.gz"
    path.write_bytes(gzip.compress(b"a film " * 100))
    assert ("1.gz", "a film " * 100, "neg") in load(archive, "test")
    path.write_bytes(damaged)
    with pytest.raises(DataError, match=r"neg/1\.gz: is not a complete compressed file"):
        load(archive, "test")


def test_label_folders_without_a_split_are_divided_and_scored_as_one_file(tmp_path: Path) -> None:
    for row in range(20):
        put(tmp_path / "pos" / f"{row}.txt", f"good {row}".encode())
        put(tmp_path / "neg" / f"{row}", f"bad {row}".encode())
    put(tmp_path / "README.md", b"two labels")
    assert len(load(tmp_path, "dev", "custom")) == len(load(tmp_path, "test")) == 40
    train = load_split(TASKS["custom"], "train", DataConfig(path=str(tmp_path)), use_dev_split=True)
    assert train.dev is not None
    assert (len(train.examples) + len(train.dev.examples), train.labels) == (40, ("neg", "pos"))


@pytest.mark.parametrize(
    "file", ["more.csv", "train/1.txt", "neg/train.json", "neg/dev.50k.tsv", "neg/deeper/1.txt"], ids=str
)
def test_what_may_be_other_data_is_not_taken_for_label_folders(file: str, tmp_path: Path) -> None:
    for name in ("pos/1.txt", "neg/1.txt"):
        put(tmp_path / name, b"a film")
    assert is_one_file(tmp_path)
    put(tmp_path / file, b"a")
    assert not is_one_file(tmp_path)


def test_a_folder_without_rows_gets_the_layouts_that_are_read(tmp_path: Path) -> None:
    put(tmp_path / "pos" / "1.txt", b"a film")
    with pytest.raises(DataError, match=r"has no train rows \(looked for .*, train/LABEL/\*\)"):
        load_split(TASKS["custom"], "train", DataConfig(path=str(tmp_path)), use_dev_split=True)
