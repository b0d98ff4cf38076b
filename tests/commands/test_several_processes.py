"""The same commands under torchrun: the same results, and one end for all processes."""

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from forked import ForkServer
from ranks import run_ranks
from running import Recur, lines_of
from safetensors.torch import load_file
from tiny_task import tiny
from torchrun import command, completed, finetuning, has_checkpoint, started, told, wait_until, workers

LONG = ("finetuning.epochs=2000", "finetuning.patience=null", "finetuning.checkpoint_every=20")
FORTY = ("finetuning.epochs=40", "finetuning.patience=null", "finetuning.checkpoint_every=20")


HINGE = ("finetuning.loss=hinge", "finetuning.label_smoothing=0")
UNEVEN = (
    *("finetuning.batch_size=7", "finetuning.gradient_accumulation_steps=2"),
    *("pretraining.batch_size=7", "pretraining.gradient_accumulation_steps=2"),
)


def last_checkpoint(run: Path) -> Path:
    return max((run / "checkpoints").glob("step-*"))


def assert_close(run: Path, other: Path) -> None:
    """The weights and the optimizer's state after all steps, but for the order of sums."""
    assert last_checkpoint(run).name == last_checkpoint(other).name
    for name in ("model.safetensors", "optimizer.safetensors"):
        tensors, others = load_file(last_checkpoint(run) / name), load_file(last_checkpoint(other) / name)
        assert tensors.keys() == others.keys()
        for key, tensor in tensors.items():
            torch.testing.assert_close(tensor, others[key], atol=1e-5, rtol=0)


def metrics(run: Path, *keys: str) -> list[list[float]]:
    return [[line[key] for key in keys] for line in lines_of(run / "metrics.jsonl")]


def same_files(one: Path, two: Path, *names: str) -> bool:
    return all((one / name).read_bytes() == (two / name).read_bytes() for name in names)


def printed(forks: ForkServer, *arguments: object, ranks: int = 2, **more: Any) -> tuple[str, str]:
    """Stdout and stderr of rank 0, which prints for all, in a command that succeeds."""
    first, *others = run_ranks(forks, *arguments, ranks=ranks, **more)
    assert [end.code for end in (first, *others)] == [0] * ranks, first.err
    assert all((end.out, end.err) == ("", "") for end in others)
    return first.out, first.err


def succeeded(*arguments: object, **more: Any) -> str:
    """Stderr of a training under torchrun that succeeds."""
    done = completed(command(*arguments, **more))
    assert done.returncode == 0, done.stderr.decode()
    return done.stderr.decode()


def test_two_processes_train_as_one_does(forks: ForkServer, tiny_tnews: Path, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    alone = forks.run(*finetuning(tiny_tnews, one, *UNEVEN), "--json")
    assert alone.code == 0, alone.err
    out, err = printed(forks, *finetuning(tiny_tnews, two, *UNEVEN), "--json")
    assert_close(one, two)
    for mine, theirs in zip(metrics(one, "step", "loss"), metrics(two, "step", "loss"), strict=True):
        assert mine == pytest.approx(theirs, abs=1e-5)
    result = json.loads(out)
    assert result["machine"]["world size"] == 2
    assert result["dev"]["accuracy"] == json.loads(alone.out)["dev"]["accuracy"]
    assert err.count("recur: took ") == 1


@pytest.mark.slow
def test_a_linear_model_is_fitted_again_to_the_same_bytes(forks: ForkServer, tmp_path: Path) -> None:
    rows = [f"{'good' if n % 3 else 'bad'} film {n},{'y' if n % 3 else 'n'}\n" for n in range(120)]
    (tmp_path / "x.csv").write_text("text,label\n" + "".join(rows))
    more = tiny("finetuning.epochs=1", "finetuning.learning_rate=1e-9")
    training = ("finetune", "--preset", "starsaber-custom", "--data", tmp_path / "x.csv", *more, "--quiet")
    assert forks.run(*training, "--output", tmp_path / "one").code == 0
    printed(forks, *training, "--output", tmp_path / "two")
    names = ("linear.safetensors", "linear.first-fit.safetensors")
    assert same_files(tmp_path / "one", tmp_path / "two", *names)


@pytest.mark.parametrize("command", ["eval", "predict"])
def test_a_command_of_one_process_is_refused(command: str, forks: ForkServer, trained: Path) -> None:
    first, second = run_ranks(forks, command, trained)
    assert (first.code, second.code) == (2, 2)
    assert (first.err + second.err).count(f"recur {command} runs in one process") == 1


@pytest.mark.slow
def test_rank_0_may_work_for_longer_than_a_step(forks: ForkServer) -> None:
    ended = run_ranks(forks, call="ranks:broadcast_late")
    assert [rank.code for rank in ended] == [0, 0], [rank.err for rank in ended]


@pytest.mark.slow
@pytest.mark.parametrize("call", ["train_until_rank_1_is_suspended", "start_without_rank_1"])
def test_a_suspended_rank_ends_the_others(call: str, forks: ForkServer, tiny_tnews: Path, tmp_path: Path) -> None:
    arguments = finetuning(tiny_tnews, tmp_path / "x", *LONG)
    first, second = run_ranks(forks, *arguments, call=f"ranks:{call}", linger=0.5)
    assert (first.code, second.code) == (5, -signal.SIGKILL), first.err
    (line,) = told(first.err.encode())
    assert "another rank of this run cannot be reached" in line


@pytest.mark.slow
def test_a_killed_process_ends_the_run_with_a_message(tiny_tnews: Path, tmp_path: Path) -> None:
    with started(command(*finetuning(tiny_tnews, tmp_path / "x", *LONG))) as process:
        has_checkpoint(tmp_path / "x", process)
        os.kill(workers(process)[1], signal.SIGKILL)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    (line,) = told(err)
    assert line.startswith("recur: error: another rank of this run cannot be reached: killed, suspended, ")
    assert "exitcode  : 5" in err.decode()


def test_an_error_of_all_processes_is_told_once(forks: ForkServer, tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir()
    first, second = run_ranks(forks, *finetuning(tmp_path / "nothing", tmp_path / "x"))
    assert (first.code, second.code) == (3, 3)
    # Without torchrun the store ends with rank 0, of which torch's own code may log to stderr.
    (line,) = (line for line in (first.err + second.err).splitlines() if line.startswith("recur:"))
    assert "nothing: " in line
    assert not (tmp_path / "x").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "ranks", "more"),
    [
        ("pretrain", 2, UNEVEN),
        ("pretrain", 2, ("pretraining.loss_on=masked", "pretraining.masking=bert")),
        ("finetune", 3, ("finetuning.batch_size=2", "finetuning.epochs=1")),
        ("finetune", 2, (*HINGE, "finetuning.class_weights=balanced", "finetuning.gradient_accumulation_steps=3")),
    ],
)
def test_any_number_of_processes_trains_as_one_does(
    name: str, ranks: int, more: tuple[str, ...], recur: Recur, tiny_tnews: Path, tmp_path: Path
) -> None:
    one, several = tmp_path / "one", tmp_path / "several"
    recur.ok(*finetuning(tiny_tnews, one, *more, name=name))
    succeeded(*finetuning(tiny_tnews, several, *more, name=name), ranks=ranks)
    assert_close(one, several)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["torchrun", "rank 1"])
def test_a_signal_ends_all_processes_after_a_checkpoint(target: str, tiny_tnews: Path, tmp_path: Path) -> None:
    with started(command(*finetuning(tiny_tnews, tmp_path / "x", *LONG))) as process:
        has_checkpoint(tmp_path / "x", process)
        os.kill(process.pid if target == "torchrun" else workers(process)[1], signal.SIGTERM)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    (line,) = told(err)
    assert line.startswith("recur: stopped by SIGTERM at step ")
    assert f"step {int(last_checkpoint(tmp_path / 'x').name[5:]):,};" in line
    if target == "rank 1":
        assert err.decode().count("exitcode  : 143") == 2


@pytest.mark.slow
def test_no_process_outlives_its_launcher(tiny_tnews: Path, tmp_path: Path) -> None:
    with started(command(*finetuning(tiny_tnews, tmp_path / "x", *LONG))) as process:
        has_checkpoint(tmp_path / "x", process)
        left = workers(process).values()
        process.kill()
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in left), seconds=30)
        _, err = process.communicate(timeout=10)
    (line,) = told(err)
    assert line.startswith("recur: stopped by SIGTERM at step ")


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_restarted_run_ends_with_the_same_weights(rank: int, tiny_tnews: Path, tmp_path: Path) -> None:
    more = ("encoder.dropout=0.2", *FORTY)
    whole, output = tmp_path / "whole", tmp_path / "x"
    succeeded(*finetuning(tiny_tnews, whole, *more))
    restarting = ("--standalone", "--max-restarts", "2")
    with started(command(*finetuning(tiny_tnews, output, *more), "--resume", launcher=restarting)) as process:
        wait_until(lambda: (output / "checkpoints" / "step-00000020").exists())
        os.kill(workers(process)[rank], signal.SIGKILL)
        _, err = process.communicate(timeout=100)
    assert process.returncode == 0, err.decode()
    assert "recur: resumed at step " in err.decode()
    assert same_files(last_checkpoint(output), last_checkpoint(whole), "model.safetensors", "optimizer.safetensors")
    assert metrics(output, "step", "loss") == metrics(whole, "step", "loss")


@pytest.mark.slow
def test_another_number_of_processes_goes_on_with_a_warning(recur: Recur, tiny_tnews: Path, tmp_path: Path) -> None:
    whole, output = tmp_path / "whole", tmp_path / "x"
    recur.ok(*finetuning(tiny_tnews, whole, *FORTY))
    with started(command(*finetuning(tiny_tnews, output, *FORTY))) as process:
        has_checkpoint(output, process)
        process.terminate()
        process.communicate(timeout=60)
    err = succeeded(*finetuning(tiny_tnews, output, *FORTY), "--resume", ranks=3)
    assert "warning: world size was 2 and is now 3: the run continues, but its result is not bit-identical" in err
    assert metrics(output, "step") == metrics(whole, "step")


@pytest.mark.slow
def test_a_full_disk_of_one_process_ends_all(tiny_tnews: Path, tmp_path: Path) -> None:
    limited = ["bash", "-c", 'ulimit -f 15; exec "$@"', "bash"]
    line = (*finetuning(tiny_tnews, tmp_path / "x"), "--quiet")
    done = completed([*limited, *command(*line)])
    assert done.returncode == 1
    (message,) = told(done.stderr)
    assert "cannot be written" in message or "File too large" in message
    assert done.stderr.decode().count("exitcode  : 5") == 2
    succeeded(*line, "--resume")


POISONED = """
import os, sys
import torch
from recurcli.cli import main
from recurcli.training.objectives import ClassificationObjective

honest, steps = ClassificationObjective.loss, 0

def poisoned(*arguments):
    global steps
    steps += 1
    total, auxiliary = honest(*arguments)
    if steps == 5 and os.environ["RANK"] == "1":
        if sys.argv[-1] == "--quiet":
            return total * torch.nan, auxiliary
        raise MemoryError
    return total, auxiliary

ClassificationObjective.loss = poisoned
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("word", "code", "message"), [("--quiet", 6, "step 5: loss nan"), ("--debug", 5, "the memory is full")]
)
def test_a_failure_of_a_process_ends_all(word: str, code: int, message: str, tiny_tnews: Path, tmp_path: Path) -> None:
    (tmp_path / "poisoned.py").write_text(POISONED)
    line = command(*finetuning(tiny_tnews, tmp_path / "x"), word)
    place = line.index("recurcli")
    done = completed([*line[: place - 1], str(tmp_path / "poisoned.py"), *line[place + 1 :]])
    (told_line,) = told(done.stderr)
    assert message in told_line
    assert done.stderr.decode().count(f"exitcode  : {code}") == 2, done.stderr.decode()


def two_machines(
    port: int, outputs: tuple[Path, Path], data: tuple[Path, Path], *more: str, restarts: int = 0
) -> list[list[str]]:
    rendezvous = ("--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", f"recur-{port}")
    launcher = ("--nnodes", "2", *rendezvous, "--max-restarts", str(restarts))
    return [
        command(*finetuning(folder, output, *more), "--resume", ranks=1, launcher=launcher)
        for output, folder in zip(outputs, data, strict=True)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("kill", [False, True])
def test_two_machines_train_as_one_does(kill: bool, tiny_tnews: Path, tmp_path: Path) -> None:
    port = 29_700 + os.getpid() % 200 + kill
    outputs = tmp_path / "here" / "x", tmp_path / "there" / "x"
    more = (*UNEVEN, *(("finetuning.epochs=60", *FORTY[1:]) * kill))
    succeeded(*finetuning(tiny_tnews, tmp_path / "one", *more))
    lines = two_machines(port, outputs, (tiny_tnews, tiny_tnews), *more, restarts=1)
    with started(lines[0]) as first, started(lines[1]) as second:
        if kill:
            wait_until(lambda: [*outputs[0].glob("checkpoints/step-*"), *outputs[1].glob("checkpoints/step-*")])
            os.kill(next(iter(workers(second).values())), signal.SIGKILL)
        ends = [process.communicate(timeout=100) for process in (first, second)]
    assert [first.returncode, second.returncode] == [0, 0], ends
    (written,) = (output for output in outputs if output.exists())  # the folder is only where rank 0 is
    assert same_files(written, tmp_path / "one", "model.safetensors")
    assert [bool(out) for out, _ in ends].count(True) == 1, "one of them prints the result"
    assert any(b"resumed at step" in err for _, err in ends) == kill


@pytest.mark.slow
def test_machines_with_other_data_are_refused(tiny_tnews: Path, tmp_path: Path) -> None:
    other = shutil.copytree(tiny_tnews, tmp_path / "other")
    with (other / "train.json").open("a") as file:
        file.write('{"sentence": "鼠", "label": "100"}\n')
    outputs = tmp_path / "here", tmp_path / "there"
    lines = two_machines(29_950 + os.getpid() % 40, outputs, (tiny_tnews, other))
    with started(lines[0]) as first, started(lines[1]) as second:
        ends = [process.communicate(timeout=60) for process in (first, second)]
    assert [first.returncode, second.returncode] == [1, 1]
    (line,) = told(b"".join(err for _, err in ends))  # one machine prints it
    assert "rank 1 differs from rank 0: train " in line
    assert not any(output.exists() for output in outputs)
