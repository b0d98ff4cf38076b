"""Signals in every phase of a command: a checkpoint where there is something to save, and an exit code that says which."""

import contextlib
import hashlib
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from cases import slow_but
from class_numbers import numbered
from forked import Child, ForkServer
from interrupts import interrupted_soon
from scipy.sparse import csr_matrix
from small_runs import COMMANDS, Prints, fingerprint, options

Recur = Callable[..., tuple[int, str, str]]

ENDINGS = {signal.SIGTERM: 143, signal.SIGINT: 130, signal.SIGHUP: 129}
PHASES = ("a step", "a checkpoint", "the logits of an evaluation", "the last evaluation")
"""Moments of `shims`."""
FIRST = (("a checkpoint", signal.SIGINT), ("the last evaluation", signal.SIGTERM))
"""Of the twelve pairs those that are tried by default."""


def signalled(
    forks: ForkServer, moment: str, numbers: list[signal.Signals], arguments: list[str], call: int = 2
) -> Child:
    """A process that sends itself the signals when the moment comes for the `call`-th time."""
    shim = {"moment": moment, "call": call, "numbers": [int(number) for number in numbers]}
    return forks.start(*arguments, shims=(("signal_at", shim),))


@pytest.mark.parametrize(
    ("phase", "number"),
    slow_but(FIRST, itertools.product(PHASES, ENDINGS), unpack=True),
)
def test_a_signal_in_any_phase_leaves_a_checkpoint_and_its_exit_code(
    phase: str, number: signal.Signals, forks: ForkServer, tiny_tnews: Path, tmp_path: Path, untouched: Prints
) -> None:
    arguments = ["finetune", *options(tiny_tnews, tmp_path / "x")]
    call = 1 if phase == "the last evaluation" else 2
    ended = signalled(forks, phase, [number], arguments, call).end()
    assert ended.code == ENDINGS[number], ended.err
    steps = sorted(int(path.name[5:]) for path in tmp_path.glob("x/checkpoints/step-????????"))
    assert ended.err == (
        f"recur: stopped by {number.name} at step {steps[-1]:,}; continue with the same command and --resume; "
        f"until then `recur predict {tmp_path / 'x'}` labels by the linear model\n"
    )
    predicted = ("--text", "sentence", "--probabilities", "--quiet")
    labelled = [
        forks.run("predict", tmp_path / "x", tiny_tnews / "dev.json", *predicted, *fast) for fast in ((), ["--fast"])
    ]
    assert (labelled[0].code, labelled[0].out) == (0, labelled[1].out), "it is true"
    assert not (tmp_path / "x" / "result.json").exists()
    assert forks.run(*arguments, "--resume").code == 0
    assert fingerprint(tmp_path / "x") == untouched["finetune"]


@pytest.mark.parametrize("phase", slow_but(["the last evaluation"], PHASES))
def test_a_second_interrupt_leaves_at_once_and_a_resume_goes_on(
    phase: str, forks: ForkServer, tiny_tnews: Path, tmp_path: Path, untouched: Prints
) -> None:
    arguments = ["finetune", *options(tiny_tnews, tmp_path / "x")]
    call = 1 if phase == "the last evaluation" else 2
    ended = signalled(forks, phase, [signal.SIGINT] * 2, arguments, call).end()
    assert (ended.code, ended.err) == (130, "recur: interrupted\n")
    assert forks.run(*arguments, "--resume").code == 0
    assert fingerprint(tmp_path / "x") == untouched["finetune"]


@pytest.mark.parametrize(("number", "code"), ENDINGS.items())
def test_a_signal_before_training_leaves_nothing_behind(
    number: signal.Signals, code: int, forks: ForkServer, tiny_tnews: Path, tmp_path: Path
) -> None:
    for command in COMMANDS:
        arguments = [command, *options(tiny_tnews, tmp_path / "x")]
        ended = signalled(forks, "the reading of the data", [number], arguments, call=1).end()
        hint = "run the same command again"
        assert (ended.code, ended.err) == (code, f"recur: stopped by {number.name}; {hint}\n")
        assert not (tmp_path / "x").exists()


def test_what_is_ignored_stays_ignored(forks: ForkServer, tiny_tnews: Path, tmp_path: Path) -> None:
    shim = {"numbers": [int(signal.SIGHUP)]}
    moment = {"moment": "a step", "call": 2, **shim}
    arguments = ["finetune", *options(tiny_tnews, tmp_path / "x", "finetuning.max_steps=4")]
    ended = forks.run(*arguments, shims=(("ignore", shim), ("signal_at", moment)))
    assert ended.code == 0, ended.err


@pytest.mark.parametrize(("number", "code"), ENDINGS.items())
def test_a_signal_from_outside_ends_a_prediction_that_waits_for_rows(
    number: signal.Signals, code: int, forks: ForkServer, trained: Path, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "rows")
    child = forks.start("predict", trained, tmp_path / "rows", "--output", tmp_path / "out")
    with (tmp_path / "rows").open("w") as rows:  # opens when the prediction does
        rows.write("a\n")
        rows.flush()
        assert child.wait(0.3) is None
        child.send(number)
        ended = child.end()
    assert (ended.code, ended.err) == (code, f"recur: stopped by {number.name}\n")
    assert [path.name for path in tmp_path.iterdir()] == ["rows"]


def test_programs_that_a_test_starts_have_default_signals_where_the_tests_ignore_some() -> None:
    child = "import signal; print(*(signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGINT)))"
    suite = (
        "import os, signal, subprocess, sys, forked; forked.handle_ignored_signals(); os.kill(os.getpid(), signal.SIGINT); "
        f"sys.exit(subprocess.run([sys.executable, '-c', {child!r}]).returncode)"
    )
    line = ["sh", "-c", 'trap "" HUP INT; exec "$@"', "sh", sys.executable, "-c", suite]
    ended = subprocess.run(line, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=True)
    assert ended.stdout == f"{signal.SIG_DFL:d} {signal.default_int_handler}\n"


def test_a_signal_ends_the_fit_of_the_linear_model_in_the_midst_of_c_code(monkeypatch: pytest.MonkeyPatch) -> None:
    with interrupted_soon() as ask:

        def fit(*arguments: object) -> None:
            ask()
            hashlib.pbkdf2_hmac("sha256", b"", b"", 4_000_000)  # as liblinear: seconds outside the interpreter

        monkeypatch.setattr("sklearn.svm.LinearSVC.fit", fit)
        numbered(2).fit_linear(csr_matrix(np.eye(2)), np.array([0, 1]), 0.5)


def test_a_signal_that_a_library_swallows_still_gives_its_exit_code(
    recur: Recur, monkeypatch: pytest.MonkeyPatch
) -> None:
    def swallow(*arguments: object, **options: object) -> None:
        with contextlib.suppress(Exception):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(1)

    monkeypatch.setattr("recurcli.display.presets.print_preset_names", swallow)
    code, _, err = recur("presets")
    assert (code, err) == (143, "recur: stopped by SIGTERM\n")
