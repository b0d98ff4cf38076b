"""An encoder is added by another package and a metric by one row, and every command uses them."""

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tiny_task import tiny

from recurcli.metrics import METRICS, ClassCounts, Metric

Recur = Callable[..., tuple[int, str, str]]
ROOT = Path(__file__).resolve().parents[1]

ENCODER = """
from dataclasses import dataclass
from torch import nn
from recurcli.encoders import Encoder


class Mine(Encoder):
    @dataclass(frozen=True, kw_only=True)
    class Config:
        __pydantic_config__ = {"extra": "forbid"}
        hidden_size: int = 16
        num_layers: int
        negative_slope: float = 0.1

    def __init__(self, config):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(config.hidden_size, config.hidden_size)] * config.num_layers)
        self.activation = nn.LeakyReLU(config.negative_slope)

    def forward(self, x, mask=None):
        for layer in self.layers:
            x = x + self.activation(layer(x))
        return x
"""

IN_ONE_PROCESS = """
import json, sys
from recurcli.cli import run

for arguments in json.load(sys.stdin):
    if code := run(arguments):
        sys.exit(code)
    print(end=chr(0), flush=True)
"""


def installed(site: Path, entry_points: str) -> dict[str, str]:
    """The environment of a program that finds a distribution in `site` with these lines of entry_points.txt."""
    metadata = site / "mine-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[recurcli.encoders]\n{entry_points}\n")
    return {**os.environ, "PYTHONPATH": f"{site}{os.pathsep}{ROOT}"}


RECURRENCE = (ROOT / "docs" / "a-new-recurrence.md").read_text(encoding="utf-8")


def run_beside_the_recurrence(folder: Path, *arguments: str) -> str:
    """Run a module of Python in `folder`, where the package of the document is installed, and return what it prints."""
    module, checks = re.findall(r"```python\n(.*?)```", RECURRENCE, flags=re.DOTALL)
    [project] = re.findall(r"```toml\n(.*?)```", RECURRENCE, flags=re.DOTALL)
    [(name, target)] = tomllib.loads(project)["project"]["entry-points"]["recurcli.encoders"].items()
    assert f"ENCODERS={name} " in RECURRENCE
    site = folder / "site"  # not the current folder, from which `python -m recurcli` imports nothing
    environment = installed(site, f"{name} = {target}")
    (site / "my_recurrence.py").write_text(module, encoding="utf-8")
    (folder / "test_my_recurrence.py").write_text(checks)
    program = [sys.executable, "-m", *arguments]
    done = subprocess.run(program, capture_output=True, text=True, env=environment, check=False, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_recurrence_of_the_document_keeps_the_contract(tmp_path: Path) -> None:
    assert "14 passed" in run_beside_the_recurrence(tmp_path, "pytest", "-p", "no:cacheprovider")


def test_the_document_of_a_recurrence_has_600_words_at_most_and_says_which_check_may_be_empty() -> None:
    assert len(RECURRENCE.split()) <= 600
    assert "Where an encoder has no `step`, as with `causal=False`, `check_steps` checks nothing" in RECURRENCE


@pytest.mark.slow
def test_the_recurrence_of_the_document_trains_by_its_command(tmp_path: Path) -> None:
    [commands] = re.findall(r"tutorial: recurrence -->\n```sh\n(.*?)```", RECURRENCE, flags=re.DOTALL)
    train, score = map(shlex.split, commands.splitlines())
    short = ["--set", "finetuning.max_steps=1", "--set", "finetuning.epochs=1", "--set", "data.train_share=0.01"]
    run_beside_the_recurrence(tmp_path, "recurcli", *train[1:], *short)
    result = json.loads((tmp_path / "runs" / "mine" / "result.json").read_text())
    assert (result["encoder"], result["task"], result["steps"]) == ("my-recurrence", "parity", 1)
    assert score[:3] == ["recur", "eval", "runs/mine"] and "test-long" in score and "test-long" in result


@pytest.mark.slow
def test_an_encoder_of_another_package_trains_and_predicts(tiny_tnews: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    environment = installed(site, "mine = mine:Mine")
    (site / "mine.py").write_text(ENCODER)

    run = tmp_path / "run"
    settings = tiny("encoder.negative_slope=0.2", "finetuning.epochs=2")
    options = ["--data", tiny_tnews, "--set", "encoder.num_layers=1", "--dry-run", "--json"]
    (tmp_path / "x.txt").write_text("鼠牛虎\n")
    commands = [
        ["presets"],
        ["finetune", "--preset", "mine-tnews", "--data", tiny_tnews, "--output", run, *settings, "--json"],
        ["finetune", "--preset", "mine-tnews", *options],
        ["predict", run, tmp_path / "x.txt", "--quiet", "--no-header"],
    ]
    given, program = json.dumps(commands, default=str), [sys.executable, "-c", IN_ONE_PROCESS]
    done = subprocess.run(program, input=given, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    presets, trained, planned, predicted, _ = done.stdout.split("\0")
    assert "mine" in presets.split()
    result = json.loads(trained)
    assert result["encoder"] == "mine"
    assert result["parameters"]["encoder"] == 16 * 16 + 16, "its layers share their weights"
    assert json.loads((run / "config.json").read_text())["network"]["encoder"]["negative_slope"] == 0.2
    plan = json.loads(planned)
    assert plan["values"]["encoder"] == {"name": "mine", "hidden_size": 16, "negative_slope": 0.1, "num_layers": 1}
    assert predicted.split()[0] == "鼠牛虎"


def error_rate(counts: ClassCounts) -> np.ndarray:
    return 1 - counts.hits.sum(axis=-1) / counts.support.sum(axis=-1)


ERRORS = Metric("error rate", error_rate, minimize=True)


def test_a_run_from_before_a_metric_was_added_is_compared_and_repeated_without_it(
    recur: Recur, tiny_tnews: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, settings = tmp_path / "run", tiny("finetuning.max_steps=2")
    line = ("finetune", "--preset", "starsaber-tnews", "--data", tiny_tnews, "--output", run, *settings)
    assert recur(*line)[0] == 0
    monkeypatch.setitem(METRICS, "errors", ERRORS)
    for command in (
        (*line, "--resume"),
        ("compare", run),
        ("compare", run, "--metric", "errors"),
        ("eval", run, "--verbose"),
    ):
        code, out, err = recur(*command)
        assert (code, "error rate" in out) == (0, command[-1] == "errors" or command[0] == "eval"), err


def test_a_minimum_is_selected(recur: Recur, tiny_tnews: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for name in ("errors", "accuracy"):
        monkeypatch.setitem(METRICS, "errors", ERRORS)
        settings = tiny(f"finetuning.metric={name}")
        line = ("--preset", "starsaber-tnews", "--data", tiny_tnews, "--output", tmp_path / name, *settings)
        assert recur("finetune", *line)[0] == 0
        result = json.loads((tmp_path / name / "result.json").read_text())
        found.append((result["best_step"], result["kept"], result["dev"]))
    assert found[0] == found[1]


def test_a_metric_is_one_row(recur: Recur, tiny_tnews: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def share_of_errors_avoided(counts: ClassCounts) -> np.ndarray:
        return np.where(counts.hits.sum(axis=-1) < counts.support.sum(axis=-1), 0.123456, 0.765432)

    monkeypatch.setitem(METRICS, "avoided", Metric("errors avoided", share_of_errors_avoided))
    run = tmp_path / "run"
    settings = ["--verbose", *tiny("finetuning.metric=avoided", "finetuning.max_steps=2")]
    code, out, err = recur("finetune", "--preset", "starsaber-tnews", "--data", tiny_tnews, "--output", run, *settings)
    assert code == 0, err
    value = json.loads((run / "result.json").read_text())["dev"]["avoided"]
    assert value in (0.123456, 0.765432)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["best_dev_metric"] in (0.123456, 0.765432)
    assert ["dev", "errors", "avoided", f"{100 * value:.1f}"] in [line.split() for line in out.splitlines()]
    assert f"| dev errors avoided | {100 * value:.1f} |" in (run / "README.md").read_text()
    code, out, err = recur("eval", run, "--verbose")
    assert code == 0, err
    assert ["errors", "avoided", f"{100 * value:.1f}"] in [line.split()[:3] for line in out.splitlines()]
    assert "|avoided|" in recur("presets", "--schema")[1]
