"""Rows of the Hub become the same examples as those of a file."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from recurcli.data.config import DataConfig
from recurcli.data.examples import load_split
from recurcli.data.sources.hub import load_hub_split, records_of
from recurcli.data.tasks import TASKS
from recurcli.errors import DataError

TNEWS = TASKS["tnews"]

MAKE_CACHE = """
import sys
from pathlib import Path
import datasets
from datasets.arrow_writer import ArrowWriter

folder = Path(sys.argv[1]) / "clue___clue" / "tnews" / "0.0.0" / "abc"
folder.mkdir(parents=True)
label = datasets.ClassLabel(names=["100", "101"])
features = datasets.Features(
    {"sentence": datasets.Value("string"), "label": label, "idx": datasets.Value("int32")}
)
splits = datasets.SplitDict(dataset_name="clue")
for split, rows in {"validation": [("NA", 0), ("丙", 1)], "test": [("丁", -1)]}.items():
    with ArrowWriter(path=str(folder / f"clue-{split}.arrow"), features=features) as writer:
        for index, (sentence, label) in enumerate(rows):
            writer.write({"sentence": sentence, "label": label, "idx": index})
        count, size = writer.finalize()
    splits.add(datasets.SplitInfo(split, num_bytes=size, num_examples=count, dataset_name="clue"))
info = datasets.DatasetInfo(
    features=features, splits=splits, config_name="tnews", dataset_name="clue", builder_name="parquet"
)
info.write_to_directory(str(folder))
"""

LOAD = """
import json
from recurcli.data.config import DataConfig
from recurcli.data.examples import load_split
from recurcli.data.tasks import TASKS
from recurcli.errors import DataError

found = {}
for split in ("dev", "test", "train"):
    try:
        found[split] = load_split(TASKS["tnews"], split, DataConfig()).examples
    except DataError as error:
        found[split] = str(error)
try:
    load_split(TASKS["afqmc"], "dev", DataConfig())
except DataError as error:
    found["afqmc"] = str(error)
print(json.dumps(found))
"""


def test_the_hubs_cache_is_enough_without_a_network(tmp_path: Path) -> None:
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path), "HF_DATASETS_CACHE": str(tmp_path)}
    subprocess.run([sys.executable, "-c", MAKE_CACHE, str(tmp_path)], check=True, env=environment)
    output = subprocess.run(
        [sys.executable, "-c", LOAD], check=True, env=environment, capture_output=True, text=True
    ).stdout
    found = json.loads(output)
    assert found["dev"] == [["0", "NA", None, "100"], ["1", "丙", None, "101"]]
    assert found["test"] == [["0", "丁", None, None]]
    assert found["train"] == "clue/clue has no split 'train'; there are: validation, test"
    assert "neither on the Hub within reach nor in its cache" in found["afqmc"]
    assert "--data" in found["afqmc"]


def test_class_indexes_become_names_and_hidden_labels_none() -> None:
    import datasets

    features = datasets.Features(
        {
            "sentence": datasets.Value("string"),
            "label": datasets.ClassLabel(names=["116", "100"]),
            "idx": datasets.Value("int32"),
        }
    )
    rows = datasets.Dataset.from_dict(
        {"sentence": ["a", "b", "c", "d"], "label": [0, 1, -1, None], "idx": [5, 6, 7, 8]}, features=features
    )
    assert [record.fields for record in records_of(rows, TNEWS)] == [
        {"sentence": "a", "label": "116", "id": 5},
        {"sentence": "b", "label": "100", "id": 6},
        {"sentence": "c", "label": None, "id": 7},
        {"sentence": "d", "label": None, "id": 8},
    ]


def test_a_split_that_the_hub_lacks_points_to_data() -> None:
    with pytest.raises(DataError, match=r"the Hub has no split test1\.0 of tnews; name a folder or file with --data"):
        load_hub_split(TNEWS, "test1.0")
    with pytest.raises(DataError, match="--data"):
        load_split(TNEWS, "test1.0", DataConfig())


MAKE_OWN = """
import sys
from pathlib import Path
import datasets
from datasets.arrow_writer import ArrowWriter

folder = Path(sys.argv[1]) / "me___mine" / "small" / "0.0.0" / "abc"
folder.mkdir(parents=True)
features = datasets.Features({"review": datasets.Value("string"), "label": datasets.ClassLabel(names=["no", "yes"])})
with ArrowWriter(path=str(folder / "mine-train.arrow"), features=features) as writer:
    for row in range(20):
        writer.write({"review": f"row {row}", "label": row % 2})
    count, size = writer.finalize()
splits = datasets.SplitDict(dataset_name="mine")
splits.add(datasets.SplitInfo("train", num_bytes=size, num_examples=count, dataset_name="mine"))
info = datasets.DatasetInfo(
    features=features, splits=splits, config_name="small", dataset_name="mine", builder_name="parquet"
)
info.write_to_directory(str(folder))
"""
LOAD_OWN = """
import json, os, socket
from recurcli.data.config import DataConfig
from recurcli.data.examples import load_split, with_labels_of
from recurcli.data.tasks import TASKS
from recurcli.errors import DataError

def refused(*arguments, **more):
    os._exit(97)
socket.socket.connect = socket.getaddrinfo = refused
found = {}
config = DataConfig(hub="me/mine:small")
train = load_split(TASKS["custom"], "train", config)
task = with_labels_of(TASKS["custom"], train, config)
found["labels"] = task.labels
found["train"] = [example.id for example in train.examples]
found["dev"] = load_split(task, "dev", config).examples
for split, hub in (("test", "me/mine:small"), ("train", "me/other")):
    try:
        load_split(task, split, DataConfig(hub=hub))
    except DataError as error:
        found[hub] = str(error)
print(json.dumps(found))
"""


def test_a_data_set_of_ones_own_is_read_from_the_cache_and_offline_means_offline(tmp_path: Path) -> None:
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path), "HF_DATASETS_CACHE": str(tmp_path)}
    subprocess.run([sys.executable, "-c", MAKE_OWN, str(tmp_path)], check=True, env=environment)
    done = subprocess.run([sys.executable, "-c", LOAD_OWN], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["labels"] == ["no", "yes"]
    assert found["train"] == [str(row) for row in range(20) if row % 10 != 9]
    assert found["dev"] == [["9", "row 9", None, "yes"], ["19", "row 19", None, "yes"]]
    assert found["me/mine:small"] == "me/mine has no split 'test'; there are: train"
    assert "custom is neither on the Hub within reach nor in its cache (me/other" in found["me/other"]
