"""A run directory that is a trap: links that lead elsewhere, pipes, names and values that are orders to a terminal."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from forked import ForkServer
from hostile_contents import EVIL, SHOWN
from small_runs import COMMANDS, options
from tiny_task import write_rows

from recurcli.errors import UsageError
from recurcli.preset import compose
from recurcli.runs.run_directory import CHECKPOINTS, CONTENTS, TRACKS
from recurcli.validation import MAX_BYTES

Recur = Callable[..., tuple[int, str, str]]
FILES = [name for name in CONTENTS if name not in (CHECKPOINTS, TRACKS)]


@pytest.fixture(scope="module")
def killed(forks: ForkServer, tiny_tnews: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training that died in step 12."""
    output = tmp_path_factory.mktemp("killed") / "x"
    shim = ("die_at", {"moment": "a step", "call": 12, "delay": 0})
    forks.run("finetune", *options(tiny_tnews, output), shims=(shim,))
    return output


def copied(killed: Path, data: Path, output: Path) -> list[str]:
    """Copy the run that was killed; returns the command that goes on with it."""
    shutil.copytree(killed, output)
    return ["finetune", *options(data, output), "--resume"]


def test_nothing_is_written_through_a_link(forks: ForkServer, killed: Path, tiny_tnews: Path, tmp_path: Path) -> None:
    run, elsewhere = tmp_path / "x", tmp_path / "elsewhere"
    resume = copied(killed, tiny_tnews, run)
    links = [run / name for name in FILES if (run / name).exists()]
    assert len(links) >= 6
    shutil.copytree(run, elsewhere)
    before = {path.name: path.read_bytes() for path in elsewhere.iterdir() if path.is_file()}
    for command in (resume, [*resume[:-1], "--overwrite", "--set", "finetuning.max_steps=3"]):
        for link in links:
            link.unlink()
            link.symlink_to(elsewhere / link.name)
        ended = forks.run(*command)
        assert ended.code == 0, ended.err
        assert not [link for link in links if link.is_symlink()], "each is a file of the run's own now"
        assert {path.name: path.read_bytes() for path in elsewhere.iterdir() if path.is_file()} == before


def test_nothing_is_made_where_a_link_leads_nowhere(
    forks: ForkServer, killed: Path, tiny_tnews: Path, tmp_path: Path
) -> None:
    run = tmp_path / "x"
    resume = copied(killed, tiny_tnews, run)
    for name in FILES:
        if name != "preset.yaml":
            (run / name).unlink(missing_ok=True)
            (run / name).symlink_to(tmp_path / "nowhere")
    ended = forks.run(*resume)
    assert ended.code == 0, ended.err
    assert not (tmp_path / "nowhere").exists()
    assert not [name for name in FILES if (run / name).is_symlink()]
    lock = run.with_name(".x.lock")
    lock.symlink_to(tmp_path / "nowhere")
    ended = forks.run(*resume)
    assert ended.code == 5
    assert ended.err == (
        f"recur: error: {lock}: cannot be written: Too many levels of symbolic links; "
        "it is a symbolic link, which is not followed\n"
    )
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.slow
def test_checkpoints_are_not_written_or_deleted_through_a_link(
    forks: ForkServer, killed: Path, tiny_tnews: Path, tmp_path: Path
) -> None:
    resume = copied(killed, tiny_tnews, tmp_path / "x")
    folder, elsewhere = tmp_path / "x" / "checkpoints", tmp_path / "elsewhere"
    folder.rename(elsewhere)
    before = sorted(elsewhere.rglob("*"))
    for target in (elsewhere, tmp_path / "nowhere"):
        folder.symlink_to(target)
        ended = forks.run(*resume)
        assert (ended.code, ended.err.count("\n")) == (4, 1), ended.err
        assert f"{folder}: is a file or a symbolic link, not a folder; links are not followed" in ended.err
        folder.unlink()
    folder.symlink_to(elsewhere)
    assert forks.run(*resume[:-1], "--overwrite").code == 0
    assert not folder.is_symlink()
    assert sorted(elsewhere.rglob("*")) == before


def test_a_checkpoint_that_is_a_link_is_set_aside(
    forks: ForkServer, killed: Path, tiny_tnews: Path, tmp_path: Path
) -> None:
    resume = copied(killed, tiny_tnews, tmp_path / "x")
    older, newest = sorted((tmp_path / "x" / "checkpoints").iterdir())
    for path in (older, newest):
        path.rename(tmp_path / path.name)
        path.symlink_to(tmp_path / path.name)
    assert forks.run(*resume).code == 4
    older.unlink()
    (tmp_path / older.name).rename(older)
    ended = forks.run(*(part for part in resume if part != "--quiet"))
    assert ended.code == 0, ended.err
    assert f"recur: warning: {newest}: is a file or a symbolic link, not a folder" in ended.err
    assert len(list((tmp_path / newest.name).iterdir())) >= 4, "what the link led to is whole"


def test_pipes_in_place_of_files_are_not_waited_for(
    forks: ForkServer, killed: Path, tiny_tnews: Path, tmp_path: Path
) -> None:
    resume = copied(killed, tiny_tnews, tmp_path / "x")
    newest = max((tmp_path / "x" / "checkpoints").iterdir())
    lock = tmp_path / ".x.lock"
    for path in (newest / "manifest.json", newest / "state.json", lock):
        path.unlink(missing_ok=True)
        os.mkfifo(path)
    ended = forks.start(*resume).wait(seconds=20)
    assert ended is not None, "it waits"
    assert ended.code == 5
    lock.unlink()
    ended = forks.start(*resume).wait(seconds=20)
    assert ended is not None, "it waits"
    assert ended.code == 0, ended.err


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["\n", "k{}: {{a: [1, 2]}}\n", "k{}: 1\n", "- {}\n"])
def test_the_largest_yaml_is_read_within_a_minute(shape: str, forks: ForkServer, tmp_path: Path) -> None:
    text = "".join(shape.format(number) for number in range(MAX_BYTES))[: MAX_BYTES - 100]
    (tmp_path / "x.yaml").write_text(text[: text.rfind("\n") + 1])
    assert forks.run("presets", tmp_path / "x.yaml").code == 2


@pytest.mark.parametrize("value", ['"\\0"', '"\\ud800"', '"\\e[31m[red]"', '"a\\nb"', "''", '"' + "x" * 5000 + '"'])
@pytest.mark.parametrize(
    "key", ["data.path", "embedding.vectors", "tokenizer.vocabulary", "data.text", "runtime.device", "encoder.name"]
)
def test_a_hostile_value_is_one_line_whatever_the_key(key: str, value: str, recur: Recur, tmp_path: Path) -> None:
    settings = ["--set", "data.path=nowhere"] if key != "data.path" else []
    command = ["finetune", "--preset", "starsaber-tnews", *settings, "--set", f"{key}={value}"]
    code, out, err = recur(*command, "--output", tmp_path / "x")
    assert code in (2, 3, 5), err
    assert (out, err.count("\n")) == ("", 1)
    assert "\x1b" not in err
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("command", COMMANDS)
def test_labels_texts_and_paths_of_a_training_are_shown_and_not_obeyed(
    command: str, forks: ForkServer, tiny_tnews: Path, tmp_path: Path
) -> None:
    data = shutil.copytree(tiny_tnews, tmp_path / EVIL)
    steps = ("finetuning.max_steps=2", "pretraining.max_steps=2")
    arguments = [command, *options(data, tmp_path / f"run {EVIL}", *steps)]
    arguments.remove("--quiet")
    ended = forks.run(*arguments)
    assert ended.code == 0, ended.err
    assert f"run {SHOWN}" in ended.out
    assert not set("\x1b\x07\u202e") & set(ended.out + ended.err)
    write_rows(data / "train.json", [{"sentence": EVIL, "label": EVIL}])
    ended = forks.run("finetune", *arguments[1:], "--overwrite")
    assert ended.code == 3
    assert f"train.json:1: label '{SHOWN}' is not one of tnews' 15 labels" in ended.err
    assert f"{SHOWN}/train.json" in ended.err
    assert not set("\x1b\x07\u202e") & set(ended.out + ended.err)


def test_compose_refuses_what_is_no_file(tmp_path: Path) -> None:
    for path in (tmp_path, Path("/dev/zero")):
        with pytest.raises(UsageError):
            compose(f"{path}/" if path == tmp_path else str(path))
