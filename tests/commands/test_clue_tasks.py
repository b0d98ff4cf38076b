"""CLUE's other tasks on invented rows of their formats: read, trained, scored and exported under the right names."""

import json
import zipfile
from pathlib import Path

import pytest
from cases import slow_but
from clue_rows import TASKS, write_task
from forked import ForkServer
from predicting import Recur, jsonl
from tiny_task import tiny

from recurcli.config import DataConfig
from recurcli.data.splits import load_split
from recurcli.data.tasks import task_named

ZIPPED = {
    "cluewsc": {"cluewsc10_predict.json": 290, "cluewsc11_predict.json": 2574},
    "csl": {"csl_predict.json": 3000},
    "iflytek": {"iflytek_predict.json": 2600},
}


@pytest.mark.parametrize("name", slow_but(["cluewsc"], TASKS))
def test_a_task_goes_from_its_rows_to_its_submission(name: str, recur: Recur, tmp_path: Path) -> None:
    data, run, output = write_task(name, tmp_path / name), tmp_path / "run", tmp_path / "x.zip"
    options = ["--preset", f"starsaber-{name}", "--data", tmp_path, "--output", run]
    recur.ok("finetune", *options, *tiny("finetuning.max_steps=2"), "--quiet")
    out, _ = recur.ok("eval", run, "--json")
    assert json.loads(out)["rows"] == 12
    recur.ok("export", run, "--format", "clue", "--output", output, "--json")
    with zipfile.ZipFile(output) as archive:
        found = {member: archive.read(member).decode().splitlines() for member in archive.namelist()}
    assert {member: len(lines) for member, lines in found.items()} == ZIPPED[name]
    for lines in found.values():
        answers = [json.loads(line) for line in lines]
        assert [answer["id"] for answer in answers] == list(range(len(lines)))
        assert {answer["label"] for answer in answers} <= set(task_named(name).labels)
    out, _ = recur.ok("predict", run, data / "test.json", "--format", "clue")
    [main] = [lines for lines in found.values() if len(lines) == max(map(len, found.values()))]
    assert [row["label"] for row in jsonl(out)] == [json.loads(line)["label"] for line in main]


def test_pronoun_and_noun_are_marked_in_prediction_too(recur: Recur, tmp_path: Path) -> None:
    data = write_task("cluewsc", tmp_path / "cluewsc")
    texts = [example.text for example in load_split(task_named("cluewsc"), "dev", DataConfig(path=str(data))).examples]
    assert all(text.startswith("_") and text.endswith("树，因为[他]很高") for text in texts)
    options = ["--preset", "starsaber-cluewsc", "--data", data, "--output", tmp_path / "run"]
    recur.ok("finetune", *options, *tiny("finetuning.max_steps=1"), "--quiet")
    spans = {"span1_text": "猫", "span1_index": 0, "span2_text": "它", "span2_index": 2}
    rows = [{"text": "猫说它饿", "target": spans}, {"text": "猫说它饿"}, {"text": "狗说她饿", "target": spans}]
    (tmp_path / "x.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    out, _ = recur.ok("predict", tmp_path / "run", tmp_path / "x.jsonl")
    reasons = [row.get("reason", "") for row in jsonl(out)]
    assert reasons == ["", "has no 'target'; did you mean 'text'?", "'猫' is not at character 0, as span1_index says"]


def test_keywords_and_abstract_are_a_pair_and_ids_the_files_own(tmp_path: Path) -> None:
    split = load_split(task_named("csl"), "train", DataConfig(path=str(write_task("csl", tmp_path / "csl"))))
    first = split.examples[0]
    assert first.id == "5000"
    assert len(first.text.split(" ")) == 3
    assert (first.pair or "").startswith("本文研究")


@pytest.mark.slow
def test_no_connection_is_made_where_the_data_are_local(forks: ForkServer, tmp_path: Path) -> None:
    data, run = write_task("cluewsc", tmp_path / "cluewsc"), tmp_path / "run"
    shims = (("block_connections", {"code": 97}),)
    assert forks.run("localhost", call="socket:create_connection", shims=shims).code == 97, "the guard is in place"
    settings = tiny("finetuning.max_steps=1", "pretraining.max_steps=1")
    training = ["--preset", "starsaber-cluewsc", "--data", data, *settings]
    for command in (
        ["finetune", *training, "--output", run],
        ["pretrain", *training, "--output", tmp_path / "pretrained"],
        ["eval", run],
        ["predict", run, data / "dev.json", "--output", tmp_path / "out.jsonl"],
        ["export", run, "--format", "clue", "--output", tmp_path / "x.zip"],
    ):
        ended = forks.run(*command, "--quiet", shims=shims)
        assert ended.code == 0, ended.err
