"""A process that dies at any one of its changes of the disk leaves the old or the new, never neither and never a mixture."""

import itertools
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import saves
from forked import ForkServer
from small_runs import COMMANDS, fingerprint, options

from recurcli.errors import ModelError
from recurcli.files import CommittedFolder
from recurcli.runs.network_files import read_model
from recurcli.runs.run_directory import NEXT, RunDirectory, beside
from recurcli.training.session import newest_checkpoint


def deaths(
    forks: ForkServer, call: str, source: Path, arguments: Callable[[Path], list[Any]]
) -> Iterator[tuple[int, Path]]:
    """Call the function in one copy of `source` after the other, each time dying one change later, until one call ends.

    What stands beside a copy counts too. Yields the number of the change and the copy.
    """
    for point in itertools.count(1):
        place = source.with_name(f"change-{point}")
        place.mkdir()
        for path in (source, beside(source, NEXT)):
            if path.exists():
                shutil.copytree(path, place / path.name)
        folder = place / source.name
        shim = {"point": point, "under": str(place), "tally": str(place / "tally")}
        ended = forks.run(*arguments(folder), call=call, shims=(("die_at_change", shim),))
        if ended.code == 0:
            return
        assert ended.code == -signal.SIGKILL, ended.err
        yield point, folder


def test_the_newest_checkpoint_is_the_old_or_the_new_one_wherever_a_save_dies(
    forks: ForkServer, tmp_path: Path
) -> None:
    for step in (1, 2):
        saves.checkpoint([str(tmp_path / "old"), str(step)])

    found = []
    for point, folder in deaths(forks, "saves:checkpoint", tmp_path / "old", lambda folder: [folder, 3]):
        checkpoint, warnings = newest_checkpoint(folder)
        assert checkpoint is not None
        assert warnings == [], f"died at change {point}"
        step = checkpoint.state.step
        assert set(checkpoint.model["weight"].tolist()) == {float(step)}, (
            "one checkpoint's weights with another's state"
        )
        found.append(step)
        saves.checkpoint([str(folder), "4"])
        assert sorted(path.name for path in folder.iterdir()) == [f"step-{step:08d}", "step-00000004"]
    assert sorted(found) == found, "once the new one is there it stays"
    assert set(found) == {2, 3}
    assert len(found) > 25, "every write, fsync, rename and unlink of a save and of its rotation"


@pytest.fixture
def one_model(tmp_path: Path) -> Path:
    """A run with a model of weights 1."""
    folder = tmp_path / "old"
    folder.mkdir()
    (folder / "preset.yaml").write_text("task: tnews\n")
    saves.model([str(folder), "1"])
    return folder


def test_a_model_is_the_old_the_new_or_known_to_be_unfinished_wherever_its_publishing_dies(
    forks: ForkServer, one_model: Path
) -> None:

    found = []
    for _, folder in deaths(forks, "saves:model", one_model, lambda folder: [folder, 2]):
        try:
            found.append(sorted(set(read_model(folder).of_encoder().tensors["weight"].tolist())))
        except ModelError as error:
            assert "has no complete model yet; continue its training with the same command and --resume" in str(error)
            found.append([])
    assert [key for key, _ in itertools.groupby(found)] == [[1.0], [], [2.0]], "in this order, each once"
    assert len(found) > 10


def test_a_later_model_keeps_the_hashes_of_the_files_that_it_does_not_bring(one_model: Path) -> None:
    file = one_model / "tokenizer.json"
    before = CommittedFolder(one_model).listed
    file.write_bytes(file.read_bytes() + b" ")

    saves.model([str(one_model), "2"])
    after = CommittedFolder(one_model).listed
    assert {name for name in after if after[name] != before[name]} == {"model.safetensors"}
    with pytest.raises(ModelError, match=r"tokenizer\.json: is damaged"):
        read_model(one_model)


def test_the_manifest_of_a_finished_run_lists_its_result_wherever_the_finish_dies(
    forks: ForkServer, one_model: Path
) -> None:

    finished = []
    for point, folder in deaths(forks, "saves:result", one_model, lambda folder: [folder]):
        assert read_model(folder).folder.path == folder, "the model is whole, finished or not"
        finished.append(RunDirectory(folder).is_finished)
        if finished[-1]:
            assert "result.json" in CommittedFolder(folder).verify(["result.json"]), f"died at change {point}"
    assert [key for key, _ in itertools.groupby(finished)] == [False, True]
    assert len(finished) > 10


@pytest.mark.slow
def test_a_run_that_dies_at_its_end_is_whole_and_its_checkpoints_go_with_the_next_command(
    forks: ForkServer, tiny_tnews: Path, tmp_path: Path
) -> None:
    def arguments(output: Path) -> list[object]:
        given = options(tiny_tnews, output, "finetuning.max_steps=8")
        return ["finetune", *(part for part in given if part != "--keep-checkpoints")]

    assert forks.run(*arguments(tmp_path / "whole"), "--keep-checkpoints").code == 0
    wanted = {path.name: path.read_bytes() for path in (tmp_path / "whole").glob("*.safetensors")}
    (tmp_path / "whole" / "result.json").unlink()

    states = []
    whole = tmp_path / "whole"
    for point, output in deaths(forks, "recurcli.cli:run", whole, lambda output: [*arguments(output), "--resume"]):
        states.append((output.joinpath("result.json").exists(), output.joinpath("checkpoints").exists()))
        if states[-1][0]:
            assert read_model(output).folder.path == output, "a finished run's model is whole"
        ended = forks.run(*arguments(output), "--resume")
        assert ended.code == 0, ended.err
        assert {path.name: path.read_bytes() for path in output.glob("*.safetensors")} == wanted, f"change {point}"
        left = {path.name for path in output.iterdir()}
        assert "checkpoints" not in left
        assert not [name for name in left if name.startswith(".")]
    assert [key for key, _ in itertools.groupby(states)] == [(False, True), (True, True), (True, False)]


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_a_training_that_dies_at_each_of_its_changes_of_the_disk_resumes_bit_for_bit(
    command: str, forks: ForkServer, tiny_tnews: Path, tmp_path: Path
) -> None:
    shorter = ("finetuning.max_steps=8", "pretraining.max_steps=8", "pretraining.log_every=3")
    assert forks.run(command, *options(tiny_tnews, tmp_path / "whole", *shorter)).code == 0
    wanted = fingerprint(tmp_path / "whole")
    kinds: dict[str, int] = {"a new start": 0, "a resume": 0}

    def arguments(output: Path) -> list[object]:
        return [command, *options(tiny_tnews, output, *shorter), "--resume"]

    for point, output in deaths(forks, "recurcli.cli:run", tmp_path / "nothing", arguments):
        had = sorted(output.glob("checkpoints/step-????????"))
        kinds["a resume" if had else "a new start"] += 1
        ended = forks.run(*arguments(output))
        assert ended.code == 0, ended.err
        assert "warning" not in ended.err
        assert fingerprint(output) == wanted, f"died at change {point}"
    assert min(kinds.values()) > 10
