"""A training that was killed, stopped or damaged goes on to the same bytes."""

import time
from collections.abc import Callable, Generator
from pathlib import Path

import pytest
from small_runs import AWKWARD, fingerprint
from tiny_task import tiny

from recurcli.commands.finetune import finetune
from recurcli.commands.pretrain import pretrain
from recurcli.commands.training.setup import TrainingRequest
from recurcli.events import Progress
from recurcli.preset import compose

COMMANDS = {"finetune": finetune, "pretrain": pretrain}


def request(data: Path, output: Path, resume: bool = False) -> TrainingRequest:
    settings = [setting for setting in tiny(*AWKWARD) if setting != "--set"]
    return TrainingRequest(compose("starsaber-tnews", data=str(data), settings=settings), output, resume=resume)


def drop_after(step: int, name: str, data: Path, output: Path) -> None:
    """Start a run and drop it where it stands after a step, as a kill would."""
    events = COMMANDS[name](request(data, output))
    next(event for event in events if isinstance(event, Progress) and event.step == step)
    assert isinstance(events, Generator)
    events.close()


@pytest.fixture(scope="module")
def whole(tiny_tnews: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, object]]:
    """Fingerprints of uninterrupted runs."""
    prints = {}
    for name, command in COMMANDS.items():
        output = tmp_path_factory.mktemp("whole") / name
        list(command(request(tiny_tnews, output)))
        prints[name] = fingerprint(output)
    return prints


@pytest.mark.parametrize("name", COMMANDS)
def test_a_run_that_dies_after_any_step_resumes_bit_for_bit(
    name: str, tiny_tnews: Path, tmp_path: Path, whole: dict[str, dict[str, object]]
) -> None:
    for last_step in (1, 2, 3, 5, 7, 8, 9, 10, 13):
        output = tmp_path / f"{name}-{last_step}"
        drop_after(last_step, name, tiny_tnews, output)
        list(COMMANDS[name](request(tiny_tnews, output, resume=True)))
        assert fingerprint(output) == whole[name], f"killed after step {last_step}"


def test_resume_starts_a_run_that_is_not_there_and_repeats_the_result_of_a_finished_one(
    tiny_tnews: Path, tmp_path: Path, whole: dict[str, dict[str, object]]
) -> None:
    first = list(finetune(request(tiny_tnews, tmp_path / "x", resume=True)))[-1]
    assert fingerprint(tmp_path / "x") == whole["finetune"]
    started = time.monotonic()
    again = list(finetune(request(tiny_tnews, tmp_path / "x", resume=True)))[-1]
    assert again == first
    assert time.monotonic() - started < 1


def test_a_damaged_newest_checkpoint_is_set_aside_for_the_one_before(
    tiny_tnews: Path, tmp_path: Path, whole: dict[str, dict[str, object]]
) -> None:
    output = tmp_path / "x"
    drop_after(11, "finetune", tiny_tnews, output)
    newest = max((output / "checkpoints").glob("step-*"))
    content = bytearray((newest / "optimizer.safetensors").read_bytes())
    content[-1] ^= 1
    (newest / "optimizer.safetensors").write_bytes(content)
    notes = [event for event in finetune(request(tiny_tnews, output, resume=True)) if not isinstance(event, Progress)]
    assert any("optimizer.safetensors: is damaged" in str(note) for note in notes)
    assert fingerprint(output) == whole["finetune"]


def test_all_checkpoints_damaged_is_exit_4(
    recur: Callable[..., tuple[int, str, str]], tiny_tnews: Path, tmp_path: Path
) -> None:
    output = tmp_path / "x"
    drop_after(8, "finetune", tiny_tnews, output)
    for checkpoint in (output / "checkpoints").glob("step-*"):
        (checkpoint / "state.json").write_text("{}")
    options = ["--preset", "starsaber-tnews", "--data", tiny_tnews, "--output", output, *tiny(*AWKWARD)]
    code, _, err = recur("finetune", *options, "--resume", "--quiet")
    assert code == 4
    assert "state.json: is damaged" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ("runtime.seed=11", "runtime.seed was 10 and is now 11"),
        ("finetuning.batch_size=4", "finetuning.batch_size was 8 and is now 4"),
        ("finetuning.gradient_accumulation_steps=2", "finetuning.gradient_accumulation_steps was 3 and is now 2"),
        ("finetuning.epochs=3", "finetuning.epochs was 2 and is now 3"),
        ("encoder.num_layers=3", "encoder.num_layers was 2 and is now 3"),
    ],
)
def test_a_resume_that_would_be_another_run_is_refused(
    setting: str, named: str, recur: Callable[..., tuple[int, str, str]], tiny_tnews: Path, tmp_path: Path
) -> None:
    output = tmp_path / "x"
    drop_after(4, "finetune", tiny_tnews, output)
    options = ["--preset", "starsaber-tnews", "--data", tiny_tnews, "--output", output, *tiny(*AWKWARD)]
    code, _, err = recur("finetune", *options, "--set", setting, "--resume", "--quiet")
    assert code == 2
    assert named in err


def test_a_resume_on_changed_data_is_refused(
    recur: Callable[..., tuple[int, str, str]], tiny_tnews: Path, tmp_path: Path
) -> None:
    output = tmp_path / "x"
    drop_after(4, "finetune", tiny_tnews, output)
    data = tmp_path / "data"
    data.mkdir()
    for name in ("train.json", "dev.json"):
        (data / name).write_bytes((tiny_tnews / name).read_bytes())
    with (data / "train.json").open("a") as file:
        file.write('{"sentence": "x", "label": "100"}\n')
    options = ["--preset", "starsaber-tnews", "--data", data, "--output", output, *tiny(*AWKWARD)]
    code, _, err = recur("finetune", *options, "--resume", "--quiet")
    assert code == 2
    assert "train" in err
