"""Disks that are full, small, read-only or broken: exit 5 with one line, and a resume when that is put right."""

import contextlib
import functools
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from forked import Ended, ForkServer
from small_runs import fingerprint
from small_runs import options as small_options

from recurcli.training.session import newest_checkpoint

Whole = Callable[[str], dict[str, object]]
WAY_OUT = "; then continue with the same command and --resume"


def options(data: Path, output: Path) -> list[str]:
    """Arguments of a training whose checkpoint takes about 0.8 MB."""
    return small_options(data, output, "encoder.hidden_size=64")


@contextlib.contextmanager
def mounted(folder: Path, *arguments: str) -> Iterator[None]:
    """Something mounted at `folder` for the length of the block; where nobody may mount, the test is skipped."""
    done = subprocess.run(["mount", *arguments, str(folder)], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"nothing can be mounted here: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 6 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    with mounted(folder, "-t", "tmpfs", "-o", "size=6m", "none"):
        yield folder


def fill(disk: Path, leave: int) -> None:
    """Leave about so many bytes free."""
    free = shutil.disk_usage(disk).free
    with (disk / "ballast").open("wb") as file:
        file.write(b"\1" * max(0, free - leave))


def refused(ended: Ended, reason: str, under: Path, resumable: bool = True) -> None:
    """It ended with 5 and one line that names a file below a folder, the reason, and the way out."""
    assert ended.code == 5, ended.err
    (error,) = (line for line in ended.err.splitlines() if not line.startswith("recur: warning: "))
    assert re.fullmatch(rf"recur: error: {re.escape(str(under))}[^:]*: cannot be written: {reason}.*", error), ended.err
    assert ended.err.endswith(f"{WAY_OUT}\n") == resumable


def whole_checkpoint(run: Path) -> None:
    """The newest checkpoint, if there is one, verifies; no half of another lies beside it."""
    assert newest_checkpoint(run / "checkpoints")[1] == []
    assert [*run.rglob(".*")] == []


@pytest.fixture(scope="module")
def whole(forks: ForkServer, tiny_tnews: Path, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """The fingerprint of a command's training that nothing disturbed; it is trained when it is first asked for."""
    folder = tmp_path_factory.mktemp("whole")

    @functools.cache
    def trained(command: str) -> dict[str, object]:
        assert forks.run(command, *options(tiny_tnews, folder / command)).code == 0
        return fingerprint(folder / command)

    return trained


@pytest.mark.parametrize("command", ["finetune", pytest.param("pretrain", marks=pytest.mark.slow)])
def test_a_disk_that_fills_up_ends_with_5_and_a_resume_with_room_is_exact(
    command: str, forks: ForkServer, tiny_tnews: Path, small_disk: Path, whole: Whole
) -> None:
    arguments = [command, *options(tiny_tnews, small_disk / "x")]
    seen = []
    for leave in (0, 100_000, 400_000, 700_000, 6_000_000):
        fill(small_disk, leave)
        ended = forks.run(*arguments, "--resume")
        if ended.code == 0:
            break
        refused(ended, "No space left on device; make room there", small_disk)
        seen.append(ended.err.split(": ")[2].removeprefix(str(small_disk)))
        whole_checkpoint(small_disk / "x")
        (small_disk / "ballast").unlink()
    assert len(seen) >= 3
    assert len(set(seen)) >= 2, "it was full at several places"
    assert fingerprint(small_disk / "x") == whole(command)


@pytest.mark.parametrize("command", ["finetune", pytest.param("pretrain", marks=pytest.mark.slow)])
def test_a_limit_on_the_size_of_files_is_a_full_disk(
    command: str, forks: ForkServer, tiny_tnews: Path, tmp_path: Path, whole: Whole
) -> None:
    arguments = [command, *options(tiny_tnews, tmp_path / "x")]
    for size in (5_000, 100_000):
        ended = forks.run(*arguments, "--resume", shims=(("limit_file_size", {"size": size}),))
        refused(ended, r"File too large; raise the limit on the size of files \(ulimit -f\)", tmp_path / "x")
        whole_checkpoint(tmp_path / "x")
    assert forks.run(*arguments, "--resume").code == 0
    assert fingerprint(tmp_path / "x") == whole(command)


@pytest.mark.parametrize(
    ("calls", "least"), [((9,), 1), pytest.param((1, 2, 5, 9, 12, 14, 16), 5, marks=pytest.mark.slow)]
)
def test_a_failing_fsync_anywhere_is_never_taken_for_a_save(
    calls: tuple[int, ...], least: int, forks: ForkServer, tiny_tnews: Path, tmp_path: Path, whole: Whole
) -> None:
    arguments = ["finetune", *options(tiny_tnews, tmp_path / "x")]
    failures = 0
    for call in calls:
        ended = forks.run(*arguments, "--resume", shims=(("fail_fsync", {"call": call}),))
        if ended.code == 0:
            break
        failures += 1
        refused(ended, "Input/output error; its disk may be failing", tmp_path / "x")
        whole_checkpoint(tmp_path / "x")
    assert failures >= least
    assert forks.run(*arguments, "--resume").code == 0
    assert fingerprint(tmp_path / "x") == whole("finetune")


def test_a_read_only_disk_is_named_at_once_and_a_run_on_it_is_left_whole(
    forks: ForkServer, tiny_tnews: Path, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()

    def three_steps(output: Path) -> list[str]:
        return small_options(tiny_tnews, output, "finetuning.max_steps=3")

    assert forks.run("finetune", *three_steps(disk / "x")).code == 0
    before = fingerprint(disk / "x")
    shutil.copytree(disk / "x", disk / "unfinished")
    (disk / "unfinished" / "result.json").unlink()
    with mounted(disk, "--bind", str(disk)):
        subprocess.run(["mount", "-o", "remount,ro,bind", str(disk)], check=True)
        for name, more in (("x", ["--overwrite"]), ("unfinished", ["--resume"]), ("new", [])):
            ended = forks.run("finetune", *three_steps(disk / name), *more)
            refused(ended, "Read-only file system; choose another place", disk, resumable=False)
        rows = tmp_path / "x.tsv"
        rows.write_text("a\n")
        assert forks.run("predict", disk / "x", rows, "--quiet").code == 0, "reading needs no writing"
        ended = forks.run("predict", disk / "x", rows, "--output", disk / "out", "--quiet")
        refused(ended, "Read-only file system; choose another place", disk, resumable=False)
    assert fingerprint(disk / "x") == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes where it has no permission")
def test_a_folder_without_permission_is_named(forks: ForkServer, tiny_tnews: Path, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir(mode=0o500)
    ended = forks.run("finetune", *options(tiny_tnews, tmp_path / "disk" / "x"))
    refused(ended, "Permission denied; change its permissions", tmp_path / "disk", resumable=False)


def test_results_and_progress_for_a_full_disk_do_not_damage_the_run(
    forks: ForkServer, tiny_tnews: Path, tmp_path: Path, whole: Whole
) -> None:
    arguments = ["finetune", *options(tiny_tnews, tmp_path / "x")]
    ended = forks.run(*arguments, shims=(("print_to", {"path": "/dev/full"}),))
    assert (ended.code, ended.err.startswith("recur: error: standard output: cannot be written: ")) == (5, True)
    assert forks.run(*arguments, "--resume").code == 0
    assert fingerprint(tmp_path / "x") == whole("finetune")


def test_a_disk_that_will_not_hold_the_checkpoints_is_told_at_the_start(
    forks: ForkServer, tiny_tnews: Path, small_disk: Path
) -> None:
    run = small_disk / "x"
    arguments = ["finetune", *options(tiny_tnews, run)]
    arguments.remove("--quiet")
    ended = forks.run(*arguments)
    assert (ended.code, "warning" in ended.err) == (0, False), "6 MB are enough for this one"
    (run / "result.json").unlink()
    fill(small_disk, sum(path.stat().st_size for path in (run / "checkpoints").rglob("*") if path.is_file()))
    ended = forks.run(*arguments, "--resume")
    assert (ended.code, "warning" in ended.err) == (0, False), "a run that has its checkpoints needs less room"
    shutil.rmtree(run)
    (small_disk / "ballast").unlink()
    fill(small_disk, 1_000_000)
    found = re.search(
        r"recur: warning: (.*): (\d+\.\d) MB are free on its disk, but 3 checkpoints need (\d+\.\d) MB; free some space",
        forks.run(*arguments).err,
    )
    assert found is not None
    assert found[1] == str(run)
    assert 0.5 < float(found[2]) <= 1 < float(found[3]) < 4
