"""Runs in the format of an older recur are refused in one line that names the version."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from recurcli.files import read_manifest, write_manifest
from recurcli.runs.run_directory import MODEL_FILES, RunDirectory

ANEW = "train the run again, or use the recur that wrote it"
Recur = Callable[..., tuple[int, str, str]]


def set_version(path: Path, names: tuple[str, ...]) -> None:
    """Make the JSON file at `path` one of format version 1, with a manifest of `names` that fits."""
    path.write_text(json.dumps({**json.loads(path.read_text()), "format_version": 1}))
    write_manifest(path.parent, names)


def old(run: Path, target: Path) -> Path:
    """A copy of a run whose files are of format version 1: preset.yaml did not say its version then."""
    shutil.copytree(run, target)
    preset = target / "preset.yaml"
    text = preset.read_text()
    assert text.startswith("# format_version: 4\n")
    preset.write_text(text.partition("\n")[2].replace("gradient_accumulation_steps", "accumulation"))
    set_version(target / "config.json", MODEL_FILES)
    return target


@pytest.fixture
def old_run(trained: Path, tmp_path: Path) -> Path:
    return old(trained, tmp_path / "old")


@pytest.mark.parametrize("command", ["eval", "predict", "export", "finetune --init"])
def test_a_model_of_an_older_format_is_refused_by_name(
    command: str, recur: Recur, old_run: Path, tiny_tnews: Path, tmp_path: Path
) -> None:
    arguments = {
        "eval": ["eval", old_run],
        "predict": ["predict", old_run, tiny_tnews / "test.json"],
        "export": ["export", old_run, "--output", tmp_path / "out.zip"],
        "finetune --init": [
            *("finetune", "--preset", "starsaber-tnews", "--data", tiny_tnews),
            *("--init", old_run, "--output", tmp_path / "new"),
        ],
    }
    code, out, err = recur(*arguments[command])
    assert (code, out, err.count("\n")) == (4, "", 1), err
    assert f"{old_run / 'config.json'}: has format version 1; this recur reads 4: {ANEW}" in err


@pytest.mark.parametrize("finished", [True, False])
def test_an_older_run_is_not_resumed(finished: bool, recur: Recur, trained: Path, old_run: Path) -> None:
    if not finished:
        (old_run / "result.json").unlink()
    again = ["finetune", "--preset", trained / "preset.yaml", "--output", old_run]
    code, out, err = recur(*again, "--resume")
    assert (code, out, err.count("\n")) == (4, "", 1), err
    assert f"{old_run / 'preset.yaml'}: has format version 1; this recur reads 4: {ANEW}" in err
    code, _, err = recur(*again)
    assert (code, "choose another --output, or replace it with --overwrite" in err, "--resume" in err) == (
        2,
        True,
        False,
    )


def test_checkpoints_of_an_older_format_are_refused_by_name(recur: Recur, trained: Path, tmp_path: Path) -> None:
    run = shutil.copytree(trained, tmp_path / "run")
    (run / "result.json").unlink()
    for state in (run / "checkpoints").glob("step-*/state.json"):
        names = tuple(path.name for path in state.parent.iterdir() if path.name != "manifest.json")
        set_version(state, names)
    code, _, err = recur("finetune", "--preset", trained / "preset.yaml", "--output", run, "--resume")
    assert (code, err.splitlines()[-1].count(f"format version 1; this recur reads 4: {ANEW}")) == (4, 1), err


def test_a_run_says_whether_it_is_finished(trained: Path, tmp_path: Path) -> None:
    assert RunDirectory(trained).is_finished
    assert not RunDirectory(tmp_path).is_finished


def as_version_2(run: Path, target: Path) -> Path:
    """A copy of a run with the names and the format version of the keys before version 3."""
    shutil.copytree(run, target)
    preset = target / "preset.yaml"
    text = preset.read_text().replace("# format_version: 4\n", "# format_version: 2\n")
    for new, old in (
        ("ensemble: linear\n", "prior:\n  kind: linear\n"),
        ("  linear_baseline:", "  linear_floor:"),
        ("  dev_fraction: null", "  dev_every: null"),
    ):
        assert new in text, new
        text = text.replace(new, old)
    preset.write_text(text)
    config = target / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "format_version": 2}))
    (target / "ensemble.json").rename(target / "prior.json")
    names = ["prior.json" if name == "ensemble.json" else name for name in read_manifest(run)]
    result = json.loads((target / "result.json").read_text())
    for new, old in (("baselines", "floors"), ("ensemble", "prior"), ("linear_baseline", "linear_floor")):
        result[old] = result.pop(new)
    (target / "result.json").write_text(json.dumps(result))
    write_manifest(target, names)
    return target


def test_a_finished_run_of_version_2_is_used_as_if_it_were_new(
    recur: Recur, trained: Path, tiny_tnews: Path, tmp_path: Path
) -> None:
    run = as_version_2(trained, tmp_path / "older")
    assert RunDirectory(run).read_preset() == RunDirectory(trained).read_preset()
    assert RunDirectory(run).read_result() == RunDirectory(trained).read_result()
    answers = [recur("predict", each, tiny_tnews / "test.json", "--probabilities") for each in (run, trained)]
    assert answers[0] == answers[1] and answers[0][0] == 0
    code, out, err = recur("finetune", "--preset", run / "preset.yaml", "--output", run, "--resume", "--json")
    assert (code, json.loads(out)["dev"]) == (0, RunDirectory(trained).read_result()["dev"]), err


def test_an_unfinished_run_of_version_2_is_refused(recur: Recur, trained: Path, tmp_path: Path) -> None:
    run = as_version_2(trained, tmp_path / "older")
    (run / "result.json").unlink()
    code, _, err = recur("finetune", "--preset", trained / "preset.yaml", "--output", run, "--resume")
    assert (code, err.count("\n")) == (4, 1), err
    assert f"{run / 'preset.yaml'}: has format version 2; this recur reads 4: {ANEW}" in err
