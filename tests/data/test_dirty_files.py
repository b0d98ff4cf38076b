"""Training takes or refuses each file of the table in dirty_files.py as it says there: nothing is lost in silence."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cases import slow_but
from dirty_files import CASES, HEAD, TWO, write
from tiny_task import tiny

from recurcli.data.config import DataConfig
from recurcli.data.splits import load_split, with_labels_of
from recurcli.data.tasks import TASKS
from recurcli.errors import DataError

Recur = Callable[..., tuple[int, str, str]]
MAX_SECONDS = 20
"""CPU time that no file may take; one word of a million characters once took minutes."""
TRAINED_ON = (
    *(("x.tsv", case) for case in ("CRLF", "a line of 1 MB", "a character a million times", "a bad byte", "UTF-16")),
    *(
        ("x.csv", "commas, quotes and lines in a text"),
        ("x.jsonl", "a list of strings"),
        ("x.jsonl", "a bad first row"),
    ),
    *(("x.parquet", "numbers as labels"), ("x.parquet", "strings")),
)
"""What `recur finetune` goes through as a whole: files of each format, and some that are refused."""
FEW = (
    ("x.tsv", "a character a million times"),
    ("x.csv", "commas, quotes and lines in a text"),
    ("x.jsonl", "a bad first row"),
)


def read(folder: Path) -> list[str]:
    """The texts of a folder's training rows, once their labels have been looked at."""
    config = DataConfig(path=str(folder))
    split = load_split(TASKS["custom"], "train", config)
    with_labels_of(TASKS["custom"], split, config)
    return [example.text for example in split.examples]


@pytest.mark.parametrize("key", CASES, ids=" with ".join)
def test_training_reads_every_row_or_names_the_first_bad_one(key: tuple[str, str], tmp_path: Path) -> None:
    name, case = key[0], CASES[key]
    write(case, tmp_path / name.replace("x", "train"))
    (tmp_path / "dev.tsv").write_bytes(HEAD + TWO)
    started = time.process_time()
    if isinstance(case.training, str):
        with pytest.raises(DataError) as refused:
            read(tmp_path)
        assert case.training.replace(name, name.replace("x", "train")) in str(refused.value)
        assert str(refused.value).startswith(str(tmp_path / "train"))
    else:
        assert read(tmp_path) == case.training
    assert time.process_time() - started < MAX_SECONDS


@pytest.mark.parametrize("key", slow_but(FEW, TRAINED_ON), ids=" with ".join)
def test_finetune_takes_or_refuses_the_file(key: tuple[str, str], recur: Recur, tmp_path: Path) -> None:
    name, case = key[0], CASES[key]
    write(case, tmp_path / name.replace("x", "train"))
    labels = ("0", "1") if key == ("x.parquet", "numbers as labels") else ("a", "b")
    (tmp_path / "dev.tsv").write_text(f"text\tlabel\ngood\t{labels[0]}\nfine\t{labels[1]}\n")
    started = time.process_time()
    options = ["--preset", "starsaber-custom", "--data", tmp_path, "--output", tmp_path / "run"]
    code, out, err = recur("finetune", *options, *tiny(), "--dry-run", "--json")
    assert time.process_time() - started < MAX_SECONDS
    if isinstance(case.training, str):
        assert (code, out) == (3, ""), err
        assert case.training.replace(name, name.replace("x", "train")) in err
        assert err.splitlines()[-1].startswith(f"recur: error: {tmp_path / 'train'}")
    else:
        assert code == 0, err
        assert json.loads(out)["data"]["train"]["rows"] == len(case.training)


@pytest.mark.parametrize(
    "key", [("x.tsv", "a BOM at the start"), ("x.csv", "CRLF"), ("x.jsonl", "a cut last line")], ids=" with ".join
)
def test_a_gzipped_file_is_read_as_what_is_in_it(key: tuple[str, str], tmp_path: Path) -> None:
    name, case = key[0], CASES[key]
    write(case, tmp_path / f"{name.replace('x', 'train')}.gz")
    (tmp_path / "dev.tsv").write_bytes(HEAD + TWO)
    if isinstance(case.training, str):
        with pytest.raises(DataError, match="is not JSON"):
            read(tmp_path)
    else:
        assert read(tmp_path) == case.training
