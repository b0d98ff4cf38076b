"""Commands import what they need: no compiler, no symbolic algebra, no statistics where none are computed."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_task import tiny

SCRIPT = """
import gc, sys
from recurcli.process import disable_gc
from recurcli.cli import run

HEAVY = {"torch._dynamo", "torch._inductor", "sympy", "sklearn", "scipy", "pandas", "matplotlib", "transformers", "datasets"}
disable_gc()  # as main does
for line in sys.stdin.read().splitlines():
    arguments = line.split("\\t")
    assert run(arguments) == 0
    found = HEAVY & set(sys.modules) - ({"scipy"} if arguments[0] == "finetune" else set())  # it fits the temperature
    assert not found, f"{arguments[0]} imported {found}"
    assert gc.isenabled()
"""


def test_a_prediction_an_evaluation_and_a_training_import_nothing_heavy(
    recur: Callable[..., tuple[int, str, str]], trained: Path, tiny_tnews: Path, tmp_path: Path
) -> None:
    run, rows = tmp_path / "run", tiny_tnews / "test.json"
    settings = tiny("ensemble=null", "finetuning.linear_baseline=false", "finetuning.max_steps=1")
    training = ["finetune", "--preset", "starsaber-tnews", "--data", tiny_tnews, *settings]
    assert recur(*training, "--output", run)[0] == 0
    assert (run / "calibration.json").exists() and (trained / "ensemble.json").exists()
    commands = [
        ["predict", trained, rows, "--output", tmp_path / "with an ensemble.jsonl"],
        ["predict", run, rows, "--output", tmp_path / "with a temperature.jsonl"],
        ["eval", run, "--data", tiny_tnews],
        [*training, "--output", tmp_path / "another"],
    ]
    lines = "\n".join("\t".join(map(str, [*command, "--quiet"])) for command in commands)
    done = subprocess.run([sys.executable, "-c", SCRIPT], input=lines, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("own", [None, "active"])
def test_threads_that_wait_sleep_unless_the_user_says_otherwise(own: str | None) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "OMP_WAIT_POLICY"}
    environment |= {} if own is None else {"OMP_WAIT_POLICY": own}
    code = "import os, recurcli.cli, sys; assert 'torch' not in sys.modules; print(os.environ['OMP_WAIT_POLICY'])"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == (own or "passive")
