"""Rows of the Hub become the same examples as those of a file."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from recurcli.config import DataConfig
from recurcli.data.splits import load_hub_split, load_split
from recurcli.data.tasks import TASKS
from recurcli.errors import DataError

TNEWS = TASKS["tnews"]

LOAD = """
import json, os, socket
from recurcli.config import DataConfig
from recurcli.data.splits import load_split, with_labels_of
from recurcli.data.tasks import TASKS
from recurcli.errors import DataError

def refused(*arguments, **more):
    os._exit(97)
socket.socket.connect = socket.getaddrinfo = refused

def rows(task, split, config):
    try:
        return [example[:4] for example in load_split(task, split, config).examples]
    except DataError as error:
        return str(error)

clue = {split: rows(TASKS["tnews"], split, DataConfig()) for split in ("dev", "test", "train")}
clue["afqmc"] = rows(TASKS["afqmc"], "dev", DataConfig())
config = DataConfig(hub="me/mine:small")
task = with_labels_of(TASKS["custom"], load_split(TASKS["custom"], "train", config), config)
mine = {split: rows(task, split, config) for split in ("train", "dev", "test")}
mine["labels"] = task.labels
mine["other"] = rows(task, "train", DataConfig(hub="me/other"))
print(json.dumps({"clue": clue, "mine": mine}))
"""


def write_cache(folder: Path, builder: str, configuration: str, splits: dict[str, list[dict[str, object]]]) -> None:
    """A data set as `datasets` keeps it in its cache; its labels are 100 and 101, its other columns strings and integers."""
    import datasets
    from datasets.arrow_writer import ArrowWriter

    folder = folder / builder / configuration / "0.0.0" / "abc"
    folder.mkdir(parents=True)
    name = builder.split("___")[1]
    kinds = {"label": datasets.ClassLabel(names=["100", "101"]), "idx": datasets.Value("int32")}
    columns = next(iter(splits.values()))[0]
    features = datasets.Features({column: kinds.get(column, datasets.Value("string")) for column in columns})
    infos = datasets.SplitDict(dataset_name=name)
    for split, rows in splits.items():
        with ArrowWriter(path=str(folder / f"{name}-{split}.arrow"), features=features) as writer:
            for row in rows:
                writer.write(row)
            count, size = writer.finalize()
        infos.add(datasets.SplitInfo(split, num_bytes=size, num_examples=count, dataset_name=name))
    info = datasets.DatasetInfo(
        features=features, splits=infos, config_name=configuration, dataset_name=name, builder_name="parquet"
    )
    info.write_to_directory(str(folder))


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What a process without a network loads from a cache of two data sets, or why it does not."""
    folder = tmp_path_factory.mktemp("hub")
    clue: dict[str, list[tuple[str, int | None]]] = {
        "validation": [("NA", 0), ("丙", 1)],
        "test": [("丁", -1), ("戊", None)],
    }
    write_cache(
        folder,
        "clue___clue",
        "tnews",
        {
            split: [{"sentence": text, "label": label, "idx": row} for row, (text, label) in enumerate(rows)]
            for split, rows in clue.items()
        },
    )
    write_cache(
        folder, "me___mine", "small", {"train": [{"review": f"row {row}", "label": row % 2} for row in range(20)]}
    )
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(folder), "HF_DATASETS_CACHE": str(folder)}
    done = subprocess.run([sys.executable, "-c", LOAD], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_hubs_cache_is_enough_without_a_network(loaded: dict[str, dict[str, Any]]) -> None:
    found = loaded["clue"]
    assert found["dev"] == [["0", "NA", None, "100"], ["1", "丙", None, "101"]]
    assert found["test"] == [["0", "丁", None, None], ["1", "戊", None, None]], "hidden labels"
    assert found["train"] == "clue/clue has no split 'train'; known: validation, test"
    assert "neither from the Hub nor from its cache" in found["afqmc"]
    assert "--data" in found["afqmc"]


def test_a_split_that_the_hub_lacks_points_to_data() -> None:
    with pytest.raises(DataError, match=r"the Hub has no split test1\.0 of tnews; name a folder or file with --data"):
        load_hub_split(TNEWS, "test1.0")
    with pytest.raises(DataError, match="--data"):
        load_split(TNEWS, "test1.0", DataConfig())


def test_a_data_set_of_ones_own_is_read_from_the_cache_and_offline_means_offline(
    loaded: dict[str, dict[str, Any]],
) -> None:
    found = loaded["mine"]
    assert found["labels"] == ["100", "101"]
    dev = [int(row) for row, *_ in found["dev"]]
    assert found["dev"] == [[str(row), f"row {row}", None, ("100", "101")[row % 2]] for row in dev]
    assert len(dev) == 2, "one of ten rows"
    assert [int(row) for row, *_ in found["train"]] == [row for row in range(20) if row not in dev]
    assert found["test"] == "me/mine has no split 'test'; known: train"
    assert "custom can be loaded neither from the Hub nor from its cache (me/other" in found["other"]
