"""The encoder `pretrained` by the commands: a run that needs neither the folder nor the network, and what is refused."""

import json
import random
import shutil
from pathlib import Path

import pytest
from hf_folders import WORDS, save_folder

import recurcli
from recurcli.cli import run

SETTINGS = (
    "finetuning.learning_rate=1e-2",
    "finetuning.log_every=2",
    "runtime.precision=fp32",
    "pretraining.log_every=2",
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny BERT and 120 rows, whose label a word of theirs gives."""
    made = tmp_path_factory.mktemp("place")
    save_folder(made / "bert")
    draw = random.Random(0)
    rows = []
    for number in range(120):
        word = ("good", "bad")[number % 2]
        rows.append(f"{' '.join(draw.choice(WORDS[4:]) for _ in range(4))} {word}\t{word}")
    (made / "rows.tsv").write_text("text\tlabel\n" + "\n".join(rows) + "\n")
    return made


def options(place: Path, output: Path, *settings: str, folder: Path | None = None) -> list[str]:
    path = f"encoder.path={folder or place / 'bert'}"
    given = [part for setting in (path, *SETTINGS, *settings) for part in ("--set", setting)]
    return [
        "--preset",
        "pretrained-custom",
        "--data",
        str(place / "rows.tsv"),
        "--output",
        str(output),
        "--quiet",
        *given,
    ]


@pytest.fixture(scope="module")
def trained(place: Path) -> Path:
    """A finished run of it without a linear model, whose folder is gone."""
    output = place / "run"
    folder = shutil.copytree(place / "bert", place / "gone")
    assert (
        run(
            ["finetune", *options(place, output, "ensemble=null", "pooling=mean", "finetuning.epochs=8", folder=folder)]
        )
        == 0
    )
    shutil.rmtree(folder)
    return output


def test_fine_tuning_learns_and_the_run_needs_no_folder(trained: Path) -> None:
    result = json.loads((trained / "result.json").read_text())
    losses = [json.loads(line)["loss"] for line in (trained / "metrics.jsonl").read_text().splitlines()]
    assert losses[-1] < losses[0]
    assert result["dev"]["accuracy"] == 1
    found = recurcli.load(trained).predict(["a b good", "a b bad"])
    assert [prediction.label for prediction in found] == ["good", "bad"]
    assert run(["eval", str(trained), "--quiet"]) == 0
