"""Commands import what they need: no compiler, no symbolic algebra, no statistics where none are computed."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tiny_task import tiny

SCRIPT = """
import gc, sys
from recurcli.allocator import put_off_collection
from recurcli.cli import run

HEAVY = {"torch._dynamo", "torch._inductor", "sympy", "sklearn", "scipy", "pandas", "matplotlib", "transformers", "datasets"}
put_off_collection()  # as main does
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
    settings = tiny("prior=null", "finetuning.linear_floor=false", "finetuning.max_steps=1")
    training = ["finetune", "--preset", "starsaber-tnews", "--data", tiny_tnews, *settings]
    assert recur(*training, "--output", run)[0] == 0
    assert (run / "calibration.json").exists() and (trained / "prior.json").exists()
    commands = [
        ["predict", trained, rows, "--output", tmp_path / "with a prior.jsonl"],
        ["predict", run, rows, "--output", tmp_path / "with a temperature.jsonl"],
        ["eval", run, "--data", tiny_tnews],
        [*training, "--output", tmp_path / "another"],
    ]
    lines = "\n".join("\t".join(map(str, [*command, "--quiet"])) for command in commands)
    done = subprocess.run([sys.executable, "-c", SCRIPT], input=lines, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
