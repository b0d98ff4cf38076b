"""NaN and Inf: the step is not taken, the command ends with 6 and names it, and what was saved before stays as it was."""

import re
from pathlib import Path

import pytest
from forked import ForkServer
from small_runs import COMMANDS, Prints, fingerprint, options

OBJECTIVES = {"finetune": "ClassificationObjective", "pretrain": "MaskedTokenObjective"}


def bytes_below(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("command", "value", "where"),
    [
        ("pretrain", "inf", "gradient"),
        pytest.param("finetune", "nan", "loss", marks=pytest.mark.slow),
        *(
            pytest.param(command, value, where, marks=pytest.mark.slow)
            for command in COMMANDS
            for value, where in (("inf", "loss"), ("-inf", "loss"), ("nan", "gradient"), ("-inf", "gradient"))
        ),
    ],
)
def test_a_number_that_is_not_finite_ends_the_training_before_its_step(
    command: str, value: str, where: str, forks: ForkServer, tiny_tnews: Path, tmp_path: Path, untouched: Prints
) -> None:
    arguments = [command, *options(tiny_tnews, tmp_path / "x")]
    stop = ("die_at", {"moment": "a step", "call": 11, "delay": 0})
    forks.run(*arguments, shims=(stop,))
    before = bytes_below(tmp_path / "x" / "checkpoints")
    assert before
    steps_to_take_again = 10 - max(int(name[5:13]) for name in before)
    second_part = 3 * steps_to_take_again + 2
    shim = {"objective": OBJECTIVES[command], "call": second_part, "value": value, "where": where}
    ended = forks.run(*arguments, "--resume", shims=(("poison", shim),))
    assert ended.code == 6, ended.err
    number = r"-?(nan|inf|[\d.e+-]+)"
    assert re.fullmatch(
        rf"recur: error: step 11: loss {number}, gradient norm {number}: not finite, so training stops; "
        r"try a smaller learning rate, or --precision fp32\n",
        ended.err,
    ), ended.err
    after = bytes_below(tmp_path / "x" / "checkpoints")
    assert {name: after[name] for name in before} == before, "the last checkpoint is untouched, byte for byte"
    assert forks.run(*arguments, "--resume").code == 0
    assert fingerprint(tmp_path / "x") == untouched[command]


def test_scores_that_are_not_finite_name_the_step(forks: ForkServer, tiny_tnews: Path, tmp_path: Path) -> None:
    settings = ("finetuning.learning_rate=3e38", "finetuning.max_grad_norm=null", "finetuning.evaluate_every=1")
    ended = forks.run("finetune", *options(tiny_tnews, tmp_path / "x", *settings))
    assert (ended.code, ended.out, ended.err.count("\n")) == (6, "", 1), ended.err
    assert re.match(r"recur: error: step \d+: ", ended.err)
    assert "try a smaller learning rate" in ended.err


def test_weights_that_are_not_finite_are_not_saved(forks: ForkServer, tiny_tnews: Path, tmp_path: Path) -> None:
    settings = ("pretraining.learning_rate=3e38", "pretraining.warmup_ratio=0", "pretraining.checkpoint_every=1")
    arguments = ["pretrain", *options(tiny_tnews, tmp_path / "x", *settings)]
    for more in ([], ["--resume"]):
        ended = forks.run(*arguments, *more)
        assert (ended.code, ended.err.count("\n")) == (6, 1), ended.err
        assert re.match(r"recur: error: step \d+: ", ended.err)


def test_batches_in_which_nothing_is_masked_go_on(forks: ForkServer, tiny_tnews: Path, tmp_path: Path) -> None:
    settings = ("pretraining.mlm_probability=1e-9", "pretraining.loss_on=masked", "pretraining.log_every=1")
    ended = forks.run("pretrain", *options(tiny_tnews, tmp_path / "x", *settings, "pretraining.max_steps=3"))
    assert ended.code == 0, ended.err
    assert fingerprint(tmp_path / "x")["losses"] == [0.0] * 3
    settings = ("pretraining.mlm_probability=0.01", *settings[1:])
    ended = forks.run("pretrain", *options(tiny_tnews, tmp_path / "y", *settings))
    assert ended.code == 0, ended.err
    losses = fingerprint(tmp_path / "y")["losses"]
    assert isinstance(losses, list)
    assert {loss > 0 for loss in losses} == {True, False}, "some with, some without a masked token"
