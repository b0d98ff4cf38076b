"""Commands import what they need: no compiler, no symbolic algebra, no statistics where none are computed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from running import Recur
from small_runs import kept_of
from tiny_task import tiny

LIGHT = """
import sys
from recurcli.cli import app, run

def heavy(*names):
    return {"torch", "datasets", "sklearn", "pandas", "pyarrow", "transformers", *names} & set(sys.modules)

for command in app.registered_commands:
    assert run([command.name or command.callback.__name__, "--help"]) == 0
assert run([]) == 0 and run(["--version"]) == 0 and run(["prdict"]) == 2 and run(["predict"]) == 2
assert not heavy("scipy", "numpy", "tokenizers"), heavy("scipy", "numpy", "tokenizers")
for line in sys.stdin.read().splitlines():
    assert run(line.split("\\t")) == 0
    found = heavy("scipy.stats", *["tokenizers"] * (not line.startswith("check")))  # it counts tokens
    assert not found, f"{line} imported {found}"
"""
HEAVY = """
import gc, sys
from recurcli.process import disable_gc
from recurcli.cli import run

HEAVY = {"torch._dynamo", "torch._inductor", "sympy", "sklearn", "scipy", "scipy.stats"}
HEAVY |= {"pandas", "matplotlib", "transformers", "datasets"}
disable_gc()  # as main does
for line in sys.stdin.read().splitlines():
    arguments = line.split("\\t")
    assert run(arguments) == 0
    light = {"scipy"} if arguments[0] != "predict" else set()  # for the temperature, and intervals of few rows
    found = HEAVY & set(sys.modules) - light
    assert not found, f"{arguments[0]} imported {found}"
    assert gc.isenabled()
"""


def completed(script: str, *commands: list[object]) -> None:
    """Runs commands in one process, in which the script checks what each has imported."""
    lines = "\n".join("\t".join(map(str, [*command, "--quiet"])) for command in commands)
    done = subprocess.run([sys.executable, "-c", script], input=lines, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_help_errors_and_commands_without_model_need_no_torch(trained: Path, tiny_tnews: Path, tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_text("text\tlabel\n" + "".join(f"film {n}\t{'pn'[n % 2]}\n" for n in range(40)))
    finished = ["finetune", "--preset", "starsaber-tnews", "--data", tiny_tnews, "--output", trained, "--resume"]
    finished += tiny("finetuning.epochs=6", "finetuning.patience=null", "ensemble=linear")
    presets: list[list[object]] = [["presets"], ["presets", "starsaber-tnews"]]
    completed(LIGHT, *presets, ["compare", trained], finished, ["check", tmp_path / "x.tsv"])


def test_commands_of_models_import_nothing_heavy(recur: Recur, trained: Path, tiny_tnews: Path, tmp_path: Path) -> None:
    run, rows = tmp_path / "run", tiny_tnews / "test.json"
    settings = tiny("ensemble=null", "finetuning.linear_baseline=false", "finetuning.max_steps=1")
    training = ["finetune", "--preset", "starsaber-tnews", "--data", tiny_tnews, *settings]
    recur.ok(*training, "--output", run)
    assert [kept_of(each).name for each in (run, trained)] == ["encoder", "ensemble"]
    completed(
        HEAVY,
        ["predict", trained, rows, "--output", tmp_path / "with an ensemble.jsonl"],
        ["predict", run, rows, "--output", tmp_path / "with a temperature.jsonl"],
        ["eval", run, "--data", tiny_tnews],
        [*training, "--output", tmp_path / "another"],
    )


@pytest.mark.parametrize("own", [None, "active"])
def test_threads_that_wait_sleep_unless_the_user_says_otherwise(own: str | None) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "OMP_WAIT_POLICY"}
    environment |= {} if own is None else {"OMP_WAIT_POLICY": own}
    code = "import os, recurcli.cli, sys; assert 'torch' not in sys.modules; print(os.environ['OMP_WAIT_POLICY'])"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == (own or "passive")
