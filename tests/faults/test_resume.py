"""A training that was killed, stopped or damaged goes on to the same bytes."""

import os
import random
import shutil
import signal
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from logs import Kept, drop_at_step
from running import Recur, result_of
from sized_encoders import SIZED
from small_runs import AWKWARD, Prints, fingerprint
from tiny_task import tiny

from recurcli.cli.app import explained
from recurcli.commands.finetune import finetune
from recurcli.commands.pretrain import pretrain
from recurcli.errors import Interrupted, UsageError
from recurcli.files import remove
from recurcli.log import Log
from recurcli.models.choice import Choice
from recurcli.requests.training import FinetuneRequest, PretrainRequest
from recurcli.runs.run_directory import first_difference

REVIEWS = (
    "data.text=[title, review]",
    "data.label=topic",
    "data.labels=[war, peace]",
    "finetuning.class_weights={war: 2.0, peace: 1}",
    "tokenizer.vocab_size=64",
    "encoder.hidden_size=8",
    *("finetuning.max_steps=5", "finetuning.checkpoint_every=2", "finetuning.evaluate_every=2"),
    *("pretraining.max_steps=5", "pretraining.checkpoint_every=2"),
)
"""Rows of one's own in several columns, with labels and weights in lists and mappings."""


def pretrained(asked: FinetuneRequest, log: Log) -> dict[str, Any]:
    """Run `recur pretrain` with the options of `asked`."""
    own = {each.name for each in fields(PretrainRequest)} - {"columns"}
    return pretrain(PretrainRequest(**{key: value for key, value in vars(asked).items() if key in own}), log)


COMMANDS: dict[str, Callable[[Any, Log], object]] = {"finetune": finetune, "pretrain": pretrained}
QUICK = ("starsaber", "transject")
"""The encoders whose resume runs in the default suite: the usual case, and matrices that each step projects."""


def request(
    data: Path,
    output: Path,
    *more: str,
    resume: bool = False,
    overwrite: bool = False,
    preset: str = "starsaber-tnews",
) -> FinetuneRequest:
    settings = [setting for setting in tiny(*(more or AWKWARD)) if setting != "--set"]
    more_options: dict[str, Any] = {"resume": resume, "overwrite": overwrite, "keep_checkpoints": True}
    return FinetuneRequest(preset=preset, data=data, settings=settings, output=output, **more_options)


def drop(step: int, name: str, asked: FinetuneRequest) -> None:
    """Start a run and drop it where it stands after a step, as a kill would."""
    drop_at_step(step, COMMANDS[name], asked)


def write_reviews(path: Path) -> Path:
    """A CSV file of 40 rows with two columns of text."""
    draw = random.Random(3)
    lines = ["title,review,topic"]
    for number in range(40):
        topic = ("war", "peace")[number % 2]
        words = " ".join(draw.choice(topic + "xyz") for _ in range(6))
        lines.append(f"{topic} {number},{words},{topic}")
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("finetune", (1, 9)),
        pytest.param("pretrain", (8,), marks=pytest.mark.slow),
        *(pytest.param(name, (1, 2, 3, 5, 7, 8, 9, 10, 13), marks=pytest.mark.slow) for name in COMMANDS),
    ],
)
def test_a_run_that_dies_after_any_step_resumes_bit_for_bit(
    name: str, steps: tuple[int, ...], tiny_tnews: Path, tmp_path: Path, untouched: Prints
) -> None:
    for last_step in steps:
        output = tmp_path / f"{name}-{last_step}"
        drop(last_step, name, request(tiny_tnews, output))
        COMMANDS[name](request(tiny_tnews, output, resume=True), Kept())
        assert fingerprint(output) == untouched[name], f"killed after step {last_step}"


@pytest.mark.parametrize(
    ("encoder", "name", "more"),
    [
        pytest.param(encoder, name, (), marks=[] if encoder in QUICK and name == "finetune" else pytest.mark.slow)
        for encoder in SIZED
        for name in COMMANDS
    ]
    + [("truncated-rnn", "finetune", ("encoder.window=1",))],  # its recurrent matrix never has a gradient
)
def test_every_encoder_resumes_bit_for_bit_on_named_columns_and_labels(
    encoder: str, name: str, more: tuple[str, ...], tmp_path: Path
) -> None:
    asked = partial(request, write_reviews(tmp_path / "reviews.csv"), preset=f"{encoder}-custom")
    COMMANDS[name](asked(tmp_path / "whole", *REVIEWS, *more), Kept())
    drop(3, name, asked(tmp_path / "x", *REVIEWS, *more))
    COMMANDS[name](asked(tmp_path / "x", *REVIEWS, *more, resume=True), Kept())
    assert fingerprint(tmp_path / "x") == fingerprint(tmp_path / "whole")


@pytest.mark.slow
def test_a_resume_refuses_another_meaning_of_auto(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = partial(request, write_reviews(tmp_path / "reviews.csv"), tmp_path / "x", preset="starsaber-custom")
    settings = (*REVIEWS, "finetuning.max_steps=null", "finetuning.epochs=auto")
    drop(3, "finetune", asked(*settings))
    monkeypatch.setattr("recurcli.models.build.ROWS_SEEN", 200)
    monkeypatch.setattr("recurcli.models.build.ROWS_SEEN_WITH_WORD_DROPOUT", 200)
    with pytest.raises(UsageError, match="cannot be resumed: steps was "):
        finetune(asked(*settings, resume=True), Kept())
    monkeypatch.undo()
    finetune(asked(*settings, resume=True), Kept())


def test_a_stop_in_the_last_evaluation_saves_no_weights_under_another_step(
    tiny_tnews: Path, tmp_path: Path, untouched: Prints, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "x"
    last, score = output / "checkpoints" / str(untouched["finetune"]["last"]), Choice.decide_and_score

    def stopped(choice: Choice, folder: Path) -> dict[str, Any]:
        remove(last)  # the best weights are published, and in memory
        os.kill(os.getpid(), signal.SIGTERM)
        return score(choice, folder)

    monkeypatch.setattr(Choice, "decide_and_score", stopped)
    with pytest.raises(Interrupted):
        finetune(request(tiny_tnews, output), Kept())
    monkeypatch.undo()
    assert not last.exists()
    finetune(request(tiny_tnews, output, resume=True), Kept())
    assert fingerprint(output) == untouched["finetune"]


def test_resume_starts_a_run_that_is_not_there_and_repeats_the_result_of_a_finished_one(
    tiny_tnews: Path, tmp_path: Path, untouched: Prints
) -> None:
    first = finetune(request(tiny_tnews, tmp_path / "x", resume=True), Kept())
    assert fingerprint(tmp_path / "x") == untouched["finetune"]
    log = Kept()
    assert finetune(request(tiny_tnews, tmp_path / "x", resume=True), log) == first
    assert not log.states, "nothing is trained"


def test_a_damaged_newest_checkpoint_is_set_aside_for_the_one_before(
    tiny_tnews: Path, tmp_path: Path, untouched: Prints
) -> None:
    output = tmp_path / "x"
    drop(11, "finetune", request(tiny_tnews, output))
    newest = max((output / "checkpoints").glob("step-*"))
    with (newest / "optimizer.safetensors").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\x7f")
    log = Kept()
    finetune(request(tiny_tnews, output, resume=True), log)
    assert any("optimizer.safetensors: is damaged" in warning for warning in log.warnings)
    assert (newest.with_name(f"{newest.name}.damaged") / "model.safetensors").is_file()
    assert fingerprint(output) == untouched["finetune"]


@pytest.fixture(scope="module")
def dropped(tiny_tnews: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finetuning that was dropped after four steps."""
    output = tmp_path_factory.mktemp("dropped") / "x"
    drop(4, "finetune", request(tiny_tnews, output))
    return output


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ("runtime.seed=11", "runtime.seed was 10 and is now 11"),
        ("finetuning.batch_size=4", "finetuning.batch_size was 8 and is now 4"),
        ("finetuning.gradient_accumulation_steps=2", "finetuning.gradient_accumulation_steps was 3 and is now 2"),
        ("finetuning.epochs=3", "finetuning.epochs was 2 and is now 3"),
        ("encoder.num_layers=3", "encoder.num_layers was 2 and is now 3"),
        ("encoder.name=rezero", "encoder.name was 'starsaber' and is now 'rezero'"),
    ],
)
def test_a_resume_that_would_be_another_run_is_refused(
    setting: str, named: str, recur: Recur, tiny_tnews: Path, dropped: Path
) -> None:
    options = ["--preset", "starsaber-tnews", "--data", tiny_tnews, "--output", dropped, *tiny(*AWKWARD)]
    recur.refused(2, named, "finetune", *options, "--set", setting, "--resume", "--quiet")


def test_a_finished_run_is_not_trained_for_more_steps(recur: Recur, trained: Path, tmp_path: Path) -> None:
    run = shutil.copytree(trained, tmp_path / "run")
    line = ["finetune", "--preset", trained / "preset.yaml", "--output", run, "--resume", "--epochs"]
    recur.ok(*line, "6")
    err = recur.refused(2, "finetuning.epochs was 6 and is now 7", *line, "7")
    assert f"recur finetune --init {run} " in err
    assert result_of(run)["epochs"] == 6


@pytest.mark.parametrize(
    ("run", "name", "other"),
    [("trained", *COMMANDS), ("dropped", *COMMANDS), ("pretrained", *reversed(COMMANDS))],
)
def test_a_run_of_another_command_is_refused(
    run: str, name: str, other: str, recur: Recur, tiny_tnews: Path, request: pytest.FixtureRequest
) -> None:
    output = request.getfixturevalue(run)
    line = [other, "--preset", "starsaber-tnews", "--data", tiny_tnews, "--output", output, *tiny(*AWKWARD)]
    recur.refused(2, f"{output}: is a run of recur {name}, not of {other}", *line, "--resume")
    recur.refused(2, "--overwrite", *line)


def test_a_finished_run_is_not_taken_for_one_on_other_data(
    recur: Recur, tiny_tnews: Path, trained: Path, tmp_path: Path
) -> None:
    output, data = shutil.copytree(trained, tmp_path / "x"), shutil.copytree(tiny_tnews, tmp_path / "data")
    line = ["finetune", "--preset", trained / "preset.yaml", "--output", output, "--resume", "--data"]
    assert "is already finished; nothing to do" in recur.ok(*line, data)[1], "moved data are the same data"
    with (data / "dev.json").open("a") as file:
        file.write('{"sentence": "x", "label": "100"}\n')
    recur.refused(2, "cannot be resumed: dev sha256 was", *line, data)
    shutil.rmtree(data)
    assert f"its result comes from {tiny_tnews}" in recur.ok(*line, data)[1], "a finished run needs no data"
    (tmp_path / "elsewhere").mkdir()  # without the files
    assert f"its result comes from {tiny_tnews}" in recur.ok(*line, tmp_path / "elsewhere")[1]


@pytest.mark.parametrize("resumed", [False, True])
def test_a_stop_before_the_first_step_says_what_to_do(resumed: bool, tmp_path: Path) -> None:
    data, output = write_reviews(tmp_path / "reviews.csv"), tmp_path / "x"
    asked = request(data, output, *REVIEWS, preset="starsaber-custom", resume=True)
    if resumed:
        drop(3, "finetune", asked)

    class Stop(Log):
        """Is interrupted at the first note, which is on the rows and before any step."""

        def note(self, text: str) -> None:
            raise Interrupted(signal.SIGINT, "stopped by SIGINT")

    with pytest.raises(Interrupted) as caught:
        finetune(asked, Stop())
    assert explained(caught.value) == (130, "stopped by SIGINT; run the same command again")
    assert output.exists() is resumed


def test_a_missing_fact_is_absent_and_the_encoder_is_compared_first() -> None:
    assert first_difference({"activation": None}, {}) == "activation was null and is now absent"
    pair = {"encoder.a": 1, "encoder.name": "b"}, {"encoder.name": "c", "runtime.seed": 1}
    assert first_difference(*pair) == "encoder.name was 'b' and is now 'c'"


def test_a_resume_with_a_changed_vocabulary_file_is_refused(tiny_tnews: Path, tmp_path: Path) -> None:
    vocabulary = tmp_path / "vocab.txt"
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"鼠牛虎兔龙蛇马羊猴鸡狗猪"]
    vocabulary.write_text("\n".join(tokens) + "\n")
    settings = (*AWKWARD, "tokenizer.kind=char", f"tokenizer.vocabulary={vocabulary}")
    drop(4, "finetune", request(tiny_tnews, tmp_path / "x", *settings))
    tokens[-2:] = reversed(tokens[-2:])
    vocabulary.write_text("\n".join(tokens) + "\n")
    with pytest.raises(UsageError, match=r"cannot be resumed: vocabulary sha256 was "):
        finetune(request(tiny_tnews, tmp_path / "x", *settings, resume=True), Kept())
