"""Runs in another format version are refused in one line that names the version and says to train again."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from recurcli.files import write_manifest
from recurcli.runs.run_directory import MODEL_FILES, RunDirectory

ANEW = "train the run again, or use the recur that wrote it"
Recur = Callable[..., tuple[int, str, str]]


def set_version(path: Path, version: int, names: tuple[str, ...]) -> None:
    """Make the JSON file at `path` one of a format version, with a manifest of `names` that fits."""
    path.write_text(json.dumps({**json.loads(path.read_text()), "format_version": version}))
    write_manifest(path.parent, names)


@pytest.fixture(params=[3, 5])
def other(trained: Path, tmp_path: Path, request: pytest.FixtureRequest) -> tuple[Path, int]:
    """A copy of a run whose files are of another format version, and that version."""
    target, version = shutil.copytree(trained, tmp_path / "other"), request.param
    preset = target / "preset.yaml"
    text = preset.read_text()
    assert text.startswith("# format_version: 4\n# command: finetune\n")
    preset.write_text(text.replace("4", str(version), 1))
    set_version(target / "config.json", version, MODEL_FILES)
    return target, version


@pytest.mark.parametrize("command", ["eval", "predict", "export", "finetune --init"])
def test_a_model_of_another_format_is_refused_by_name(
    command: str, recur: Recur, other: tuple[Path, int], tiny_tnews: Path, tmp_path: Path
) -> None:
    run, version = other
    arguments = {
        "eval": ["eval", run],
        "predict": ["predict", run, tiny_tnews / "test.json"],
        "export": ["export", run, "--output", tmp_path / "out.zip"],
        "finetune --init": [
            *("finetune", "--preset", "starsaber-tnews", "--data", tiny_tnews),
            *("--init", run, "--output", tmp_path / "new"),
        ],
    }
    code, out, err = recur(*arguments[command])
    assert (code, out, err.count("\n")) == (4, "", 1), err
    assert f"{run / 'config.json'}: has format version {version}; this recur reads 4: {ANEW}" in err


@pytest.mark.parametrize("finished", [True, False])
def test_a_run_of_another_format_is_not_resumed(
    finished: bool, recur: Recur, trained: Path, other: tuple[Path, int]
) -> None:
    run, version = other
    if not finished:
        (run / "result.json").unlink()
    again = ["finetune", "--preset", trained / "preset.yaml", "--output", run]
    code, out, err = recur(*again, "--resume")
    assert (code, out, err.count("\n")) == (4, "", 1), err
    assert f"{run / 'preset.yaml'}: has format version {version}; this recur reads 4: {ANEW}" in err
    code, _, err = recur(*again)
    assert (code, "choose another --output, or replace it with --overwrite" in err, "--resume" in err) == (
        2,
        True,
        False,
    )


def test_checkpoints_of_another_format_are_refused_by_name(recur: Recur, trained: Path, tmp_path: Path) -> None:
    run = shutil.copytree(trained, tmp_path / "run")
    (run / "result.json").unlink()
    for state in (run / "checkpoints").glob("step-*/state.json"):
        names = tuple(path.name for path in state.parent.iterdir() if path.name != "manifest.json")
        set_version(state, 3, names)
    code, _, err = recur("finetune", "--preset", trained / "preset.yaml", "--output", run, "--resume")
    assert (code, err.splitlines()[-1].count(f"format version 3; this recur reads 4: {ANEW}")) == (4, 1), err


def test_a_run_says_whether_it_is_finished(trained: Path, tmp_path: Path) -> None:
    assert RunDirectory(trained).is_finished
    assert not RunDirectory(tmp_path).is_finished
