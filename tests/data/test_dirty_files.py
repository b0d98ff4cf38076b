"""Training takes or refuses each file of the table in dirty_files.py as it says there: nothing is lost in silence."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from dirty_files import CASES, HEAD, TWO, write
from tiny_task import tiny

from recurcli.data.config import DataConfig
from recurcli.data.examples import load_split
from recurcli.data.tasks import TASKS

Recur = Callable[..., tuple[int, str, str]]
SLOWEST = 20
"""Seconds that no file may take; one word of a million characters once took minutes."""


@pytest.mark.parametrize("key", CASES, ids=" with ".join)
def test_training_reads_every_row_or_names_the_first_bad_one(
    key: tuple[str, str], recur: Recur, tmp_path: Path
) -> None:
    name, case = key[0], CASES[key]
    write(case, tmp_path / name.replace("x", "train"))
    (tmp_path / "dev.tsv").write_bytes(HEAD + TWO)
    started = time.perf_counter()
    options = ["--preset", "starsaber-custom", "--data", tmp_path, "--output", tmp_path / "run"]
    code, out, err = recur("finetune", *options, *tiny(), "--dry-run", "--json")
    if isinstance(case.training, str):
        assert (code, out) == (3, ""), err
        assert case.training.replace(name, name.replace("x", "train")) in err
        assert err.splitlines()[-1].startswith(f"recur: error: {tmp_path / 'train'}")
        return
    train = load_split(TASKS["custom"], "train", DataConfig(path=str(tmp_path)))
    assert [example.text for example in train.examples] == case.training
    if set(train.labels) == {"a", "b"}:
        assert code == 0, err
        assert json.loads(out)["data"]["train"]["rows"] == len(case.training)
    assert time.perf_counter() - started < SLOWEST


@pytest.mark.parametrize("key", [key for key in CASES if key[0] != "x.parquet"], ids=" with ".join)
def test_a_gzipped_file_is_read_as_what_is_in_it(key: tuple[str, str], tmp_path: Path) -> None:
    name, case = key[0], CASES[key]
    if isinstance(case.training, str):
        return
    path = write(case, tmp_path / f"{name}.gz")
    split = load_split(TASKS["custom"], "train", DataConfig(path=str(path)))
    assert [example.text for example in split.examples] == case.training
