"""A new training of a run replaces it when it is finished, and not before: whatever ends it, one of the two is whole."""

import contextlib
import itertools
import json
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import saves
from forked import ForkServer
from logs import Kept
from small_runs import AWKWARD, AtOpen, Prints, fingerprint, options
from test_disks import mounted
from test_every_write import deaths
from test_resume import drop, request
from tiny_task import tiny

from recurcli.commands.finetune import finetune
from recurcli.commands.training.resume import check_inputs
from recurcli.config import FORMAT_VERSION
from recurcli.errors import Interrupted, ModelError, StorageError, UsageError
from recurcli.evaluation.predictor import Predictor
from recurcli.files import sha256_of, write_manifest
from recurcli.preset import compose
from recurcli.runs.network_files import read_model
from recurcli.runs.run_directory import NEXT, OLD, REQUIRED_FILES, RunDirectory, beside, open_run, reopen_run

Recur = Callable[..., tuple[int, str, str]]
OURS = '{"model_type": "recurcli"}'
HEADER = f"# format_version: {FORMAT_VERSION}\n# command: finetune\n"


def overwriting(data: Path, output: Path, *more: str) -> list[object]:
    arguments = ["finetune", "--preset", "starsaber-tnews", "--data", data, "--output", output, "--overwrite"]
    small = ("encoder.num_layers=1", "ensemble=null", "finetuning.linear_baseline=false", "finetuning.max_steps=3")
    return [*arguments, "--quiet", *tiny(*small, *more)]


def contents(run: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}


@pytest.fixture
def old(trained: Path, tmp_path: Path) -> Path:
    """A finished run with a file that is not its own."""
    run = shutil.copytree(trained, tmp_path / "run")
    (run / "notes.md").write_text("mine")
    return run


def two_runs(folder: Path) -> Path:
    """A finished run of seed and weights 1, with checkpoints and a foreign file, and a finished new training of number 2."""
    for run, number in ((folder, 1), (beside(folder, NEXT), 2)):
        run.mkdir(parents=True)
        (run / "preset.yaml").write_text(f"{HEADER}task: tnews\n")
        saves.model([str(run), str(number)])
        (run / "checkpoints").mkdir()
        (run / "checkpoints" / str(number)).touch()
        saves.result([str(run), str(number)])
    (folder / "linear.safetensors").write_text("of the old run alone")
    (folder / "notes.md").write_text("mine")
    return folder


def read_whole(folder: Path) -> int:
    """The number of the run in `folder`, of which all files must be."""
    seed = json.loads((folder / "result.json").read_text())["seed"]
    assert set(read_model(folder).of_encoder().tensors["weight"].tolist()) == {float(seed)}
    return seed


@pytest.mark.slow
def test_a_change_of_runs_leaves_one_whole_run_wherever_it_dies(forks: ForkServer, tmp_path: Path) -> None:
    run = two_runs(tmp_path / "two" / "run")
    wanted = {**contents(beside(run, NEXT)), "notes.md": b"mine"}
    found = []
    for point, run in deaths(forks, "saves:replacement", tmp_path / "two" / "run", lambda run: [run]):
        places = [path for path in (run, beside(run, OLD), beside(run, NEXT)) if (path / "result.json").exists()]
        found.append((read_whole(places[0]), places[0] == run))
        if places[0] != run:
            assert read_whole(places[1]) == 2, "between the two renames both are whole"
        with RunDirectory(run).lock():  # the next command that enters the run
            assert contents(run) == wanted, f"died at change {point}"
        assert [path.name for path in (run / "checkpoints").iterdir()] == ["2"]
        assert {path.name for path in run.parent.iterdir()} <= {"run", "tally"}
    assert [key for key, _ in itertools.groupby(found)] == [(1, True), (1, False), (2, True)], (
        "in this order, each once"
    )


def between_the_renames(folder: Path) -> Path:
    """A run whose change to a new one was killed between its two renames, so that it is missing."""
    run = two_runs(folder)
    run.rename(beside(run, OLD))
    return run


def test_a_run_that_is_missing_for_a_moment_is_waited_for(tmp_path: Path) -> None:
    run = between_the_renames(tmp_path / "run")
    change = threading.Timer(0.2, complete_change, [run])
    change.start()
    assert open_run(run).path == run
    change.join()
    assert read_whole(run) == 2


@pytest.mark.parametrize("command", ["eval", "compare"])
def test_a_reader_says_that_a_run_is_being_replaced(command: str, recur: Recur, tmp_path: Path) -> None:
    run = between_the_renames(tmp_path / "run")
    code, _, err = recur(command, run)
    assert (code, err.startswith(f"recur: error: {run}: is being replaced by a new training")) == (5, True), err


def complete_change(run: Path) -> None:
    """Put the new run in the place of the old one."""
    with RunDirectory(run).lock():
        pass


def test_a_reader_that_meets_the_change_reads_one_run(tmp_path: Path) -> None:
    change, seen = AtOpen(complete_change), []
    for number in itertools.count(1):
        run = two_runs(tmp_path / str(number))
        change.run, change.left = run, number
        files = read_model(run)
        seed = json.loads(files.folder["result.json"].read())["seed"]
        assert set(files.of_encoder().tensors["weight"].tolist()) == {float(seed)}, (
            f"a mixture, after {number} files were opened"
        )
        seen.append(seed)
        if change.left:
            break
    assert len(seen) > 5 and set(seen) == {1, 2}


@pytest.mark.parametrize("damage", ["model.safetensors", "result.json", "manifest.json"])
@pytest.mark.parametrize("made", [two_runs, between_the_renames])
def test_a_damaged_new_run_does_not_replace_the_one_before(
    made: Callable[[Path], Path], damage: str, tmp_path: Path
) -> None:
    run = made(tmp_path / "run")
    (beside(run, NEXT) / damage).write_text("{}")
    with pytest.raises(ModelError, match=damage), RunDirectory(run).lock():
        pass
    assert read_whole(run) == 1 and beside(run, NEXT).is_dir()


def test_a_new_training_of_a_deleted_run_becomes_the_run(tmp_path: Path) -> None:
    run = two_runs(tmp_path / "run")
    shutil.rmtree(run)
    (beside(run, NEXT) / "result.json").unlink()
    complete_change(run)
    assert set(read_model(run).of_encoder().tensors["weight"].tolist()) == {2.0} and not beside(run, NEXT).exists()


@contextlib.contextmanager
def placed(kind: str, run: Path) -> Iterator[Path]:
    """The name of the run, for the length of the block, where it is of this kind."""
    name = run
    with contextlib.ExitStack() as stack:
        if kind == "a symbolic link":
            name = run.with_name("link")
            name.symlink_to(run)
        elif kind == "the current directory":
            stack.enter_context(contextlib.chdir(run))
            name = Path()
        else:
            stack.enter_context(mounted(run, "--bind", str(run)))
        yield name


@pytest.mark.parametrize("kind", ["a symbolic link", "the current directory", "a mount point"])
def test_what_no_rename_can_replace_is_refused_at_the_start(
    kind: str, recur: Recur, old: Path, tiny_tnews: Path
) -> None:
    before = contents(old)
    with placed(kind, old) as name:
        code, _, err = recur(*overwriting(tiny_tnews, name))
        assert (code, err.endswith("--output OTHER\n")) == (2, True), err
        assert contents(old) == before and not beside(old, NEXT).exists()


def test_pipes_and_huge_files_in_a_run_end_with_an_error_at_once(tmp_path: Path) -> None:
    run = two_runs(tmp_path / "run")
    os.mkfifo(run / "metrics.jsonl")
    assert RunDirectory(run).read_metrics() == []
    (run / "metrics.jsonl").unlink()
    with (run / "metrics.jsonl").open("wb") as file:
        file.truncate(1 << 33)
    with pytest.raises(ModelError, match="is larger than"):
        RunDirectory(run).read_metrics()


def test_a_resume_without_a_checkpoint_does_not_replace_what_it_reads(
    recur: Recur, old: Path, tiny_tnews: Path, tmp_path: Path
) -> None:
    line = overwriting(tiny_tnews, old)
    drop(1, "finetune", request(tiny_tnews, old, *AWKWARD, overwrite=True))
    assert list((beside(old, NEXT) / "checkpoints").iterdir()) == []
    before = contents(old)
    code, _, err = recur(*[part for part in line if part != "--overwrite"], "--init", old, "--resume")
    assert (code, "which it would replace" in err) == (2, True), err
    assert contents(old) == before


def test_a_run_that_was_replaced_between_two_reads_is_told(tmp_path: Path) -> None:
    run = two_runs(tmp_path / "run")
    before = open_run(run)
    assert reopen_run(run, before.sha256).listed == before.listed
    saves.replacement([str(run)])
    with pytest.raises(
        StorageError, match=r"run: a new training has replaced it meanwhile; run the same command again$"
    ):
        reopen_run(run, before.sha256)


def test_a_training_that_fails_leaves_the_run_before(recur: Recur, old: Path, tiny_tnews: Path, tmp_path: Path) -> None:
    before = contents(old)
    code, _, err = recur(*overwriting(tiny_tnews, old, "finetuning.learning_rate=1e30"))
    assert (code, err.count("\n")) == (6, 1), err
    assert err.endswith(f"; {old} is still the run before; delete {beside(old, NEXT)} to give the new one up\n")
    assert contents(old) == before
    begun = f"{old}: a new training of it is not finished (newest checkpoint: "
    (tmp_path / "texts.tsv").write_text("鼠牛虎\n")
    for command in (
        ["eval", old],
        ["predict", old, tmp_path / "texts.tsv"],
        ["compare", old],
        ["export", old, "--format", "onnx", "--fast", "--output", tmp_path / "onnx"],
        [*overwriting(tiny_tnews, tmp_path / "other")[:-1], "encoder.num_layers=2", "--init", old],
    ):
        code, _, err = recur(*command)
        assert code == 0, err
        assert begun in err, command[0]
        assert "; this is the run before it; --resume continues it\n" in err
        assert str(beside(old, NEXT)) not in err
    assert begun in recur("export", old, "--data", tiny_tnews, "--output", tmp_path / "clue.zip")[2]
    assert Predictor.load(old, device="cpu").run == old
    assert recur(*overwriting(tiny_tnews, old))[0] == 0
    assert json.loads((old / "result.json").read_text())["steps"] == 3
    assert (old / "notes.md").read_text() == "mine"
    assert not {"linear.safetensors", "checkpoints"} & {path.name for path in old.iterdir()}
    code, out, err = recur("eval", old, "--json")
    assert (code, json.loads(out)["run"], begun in err) == (0, str(old), False)


def test_a_stopped_training_of_a_run_is_resumed_to_the_same_bits(
    old: Path, tiny_tnews: Path, untouched: Prints
) -> None:
    before = contents(old)
    drop(5, "finetune", request(tiny_tnews, old, overwrite=True))
    assert contents(old) == before
    with pytest.raises(Interrupted) as stopped:
        stop = lambda state: signal.raise_signal(signal.SIGINT) if state.step == 9 else None  # noqa: E731
        finetune(request(tiny_tnews, old, resume=True), Kept(stop))
    assert stopped.value.__notes__ == [
        "continue with the same command and --resume in place of --overwrite",
        f"{old} is still the run before; delete {beside(old, NEXT)} to give the new one up",
    ]
    assert contents(old) == before
    log = Kept()
    finetune(request(tiny_tnews, old, resume=True), log)
    assert any("resumed at step 10" in note for note in log.notes)
    assert fingerprint(old) == untouched["finetune"]
    assert (old / "notes.md").read_text() == "mine"
    result = json.loads((old / "result.json").read_text())
    assert NEXT not in json.dumps(result) + (old / "README.md").read_text()


def test_another_overwrite_starts_anew(old: Path, tiny_tnews: Path, tmp_path: Path) -> None:
    drop(5, "finetune", request(tiny_tnews, old, overwrite=True))
    with pytest.raises(UsageError, match=r"run: cannot be resumed: runtime.seed was 10 and is now 11"):
        finetune(request(tiny_tnews, old, *AWKWARD, "runtime.seed=11", resume=True), Kept())
    assert (beside(old, NEXT) / "checkpoints" / "step-00000003").is_dir()
    drop(1, "finetune", request(tiny_tnews, old, *AWKWARD, "runtime.seed=11", overwrite=True))
    assert list((beside(old, NEXT) / "checkpoints").iterdir()) == []
    assert "seed: 11" in (beside(old, NEXT) / "preset.yaml").read_text()


@pytest.mark.parametrize(
    ("files", "is_run"),
    [
        ({"preset.yaml": HEADER}, True),
        (
            {"preset.yaml": HEADER, "metrics.jsonl": "", "config.json": OURS, ".lock": "", ".config.json.abc.tmp": ""},
            True,
        ),
        ({"preset.yaml": HEADER, "config.json": OURS, "predictions.dev.jsonl": "", "linear.safetensors": ""}, True),
        ({"preset.yaml": HEADER, "config.json": OURS, "README.md": "", "manifest.json": "damaged"}, True),
        ({"preset.yaml": HEADER, "config.json": OURS, "notes.md": ""}, False),
        ({"preset.yaml": HEADER, **dict.fromkeys(REQUIRED_FILES, "{}")}, False),
        ({"checkpoints/step-00000001/state.json": "{}", "checkpoints/step-00000001/manifest.json": "{}"}, True),
        ({**dict.fromkeys(REQUIRED_FILES, ""), "notes.md": ""}, True),
        ({"preset.yaml": "encoder: {name: starsaber}\n"}, False),
        ({"preset.yaml": "encoder: {}\n", "README.md": "", "config.json": "{}", "metrics.jsonl": ""}, False),
        ({"preset.yaml": HEADER, "checkpoints/.step-00000003.e38d6e3e.tmp/model.safetensors": ""}, True),
        ({"preset.yaml": HEADER, "checkpoints/mine.txt": ""}, False),
        ({"preset.yaml": HEADER, "README.md": "mine"}, False),
        ({"preset.yaml": HEADER, "notes.md": "mine"}, False),
        ({"preset.yaml": "# format_version: 3\n"}, False),
        ({"checkpoints/mine.txt": "", "preset.yaml": ""}, False),
        ({"manifest.json": '{"files": []}', "preset.yaml": ""}, False),
    ],
)
def test_a_folder_is_a_run_by_what_recur_alone_writes(files: dict[str, str], is_run: bool, tmp_path: Path) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    if REQUIRED_FILES[0] in files and "preset.yaml" not in files:
        write_manifest(tmp_path, REQUIRED_FILES)
    for overwrite in (True, False):
        run = RunDirectory(tmp_path)
        if is_run and overwrite:
            assert run.check_output("finetune", resume=False, overwrite=True)[0].path == beside(tmp_path, NEXT)
            continue
        with pytest.raises(UsageError) as caught:
            run.check_output("finetune", resume=False, overwrite=overwrite)
        assert ("already has a run" in str(caught.value)) == is_run
        assert ("--overwrite" in str(caught.value)) == is_run


@pytest.mark.parametrize(
    ("mine", "output", "named"),
    [
        ("mine/preset.yaml", "mine", "mine: is not empty and is not a run directory"),
        ("mine/README.md", "mine", "mine: is not empty and is not a run directory"),
        (".run.next", "run", ".run.next: is a folder of recur, and holds other files"),
        (".run.next/mine.txt", "run", ".run.next: is a folder of recur, and holds other files"),
        (".run.old/mine.txt", "run", ".run.old: is a folder of recur, and holds other files"),
        ("file", "file", "file: is a file, not a folder"),
        ("file", "nowhere", "nowhere: is a file, not a folder"),
        ("file", ".run.next", ".run.next: is the folder of a new training of another run"),
    ],
)
def test_what_is_the_users_own_or_no_folder_is_not_written_to(
    mine: str, output: str, named: str, recur: Recur, old: Path, tiny_tnews: Path, tmp_path: Path
) -> None:
    (tmp_path / "nowhere").symlink_to(tmp_path / "missing")
    (tmp_path / mine).parent.mkdir(exist_ok=True)
    (tmp_path / mine).write_text("task: tnews\n")
    code, _, err = recur(*overwriting(tiny_tnews, tmp_path / output))
    assert (code, err.startswith(f"recur: error: {tmp_path / named}")) == (2, True), err
    assert (tmp_path / mine).read_text() == "task: tnews\n"


@pytest.mark.parametrize(
    ("init", "settings", "output", "refused"),
    [
        ("run", [], "run", "run"),
        ("run", [], "link", "run"),
        ("run", [], "run/checkpoints/x", "run"),
        ("run", [], "run/x", None),
        (None, ["finetuning.teacher=t.jsonl", "finetuning.teacher_run=run"], "run", "run"),
        (None, ["finetuning.teacher=run/predictions.dev.jsonl"], "run", "run/predictions.dev.jsonl"),
        (None, ["data.files={train: run/metrics.jsonl}"], "run", "run/metrics.jsonl"),
        (None, ["embedding.vectors=run/checkpoints/v.txt"], "run", "run/checkpoints/v.txt"),
        (None, ["tokenizer.vocabulary=run/tokenizer.json"], "run", "run/tokenizer.json"),
        (None, ["data.files={train: run/notes.md}"], "run", None),
        ("run/other", [], "run", None),
    ],
)
def test_no_output_replaces_what_its_training_reads(
    init: str | None,
    settings: list[str],
    output: str,
    refused: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    (tmp_path / "run" / "other").mkdir()
    (tmp_path / "link").symlink_to("run")
    for name in ("predictions.dev.jsonl", "metrics.jsonl", "checkpoints/v.txt", "tokenizer.json", "notes.md"):
        (tmp_path / "run" / name).touch()
    preset = compose("starsaber-tnews", settings=settings).preset
    given = None if init is None else Path(init)
    if refused is None:
        check_inputs(Path(output), preset, given)
        return
    with pytest.raises(UsageError) as caught:
        check_inputs(Path(output), preset, given)
    assert str(caught.value).startswith(f"{output}: the training reads ")
    assert f"{refused}, which it would replace; choose another --output" in str(caught.value)


def test_a_training_from_a_run_to_itself_is_refused_before_anything_is_written(
    recur: Recur, old: Path, tiny_tnews: Path, tmp_path: Path
) -> None:
    before = contents(old)
    for more in ([], ["--overwrite"], ["--overwrite", "--dry-run"]):
        line = [part for part in overwriting(tiny_tnews, old) if part != "--overwrite"]
        code, _, err = recur(*line, "--init", old, *more)
        assert (code, err) == (
            2,
            f"recur: error: {old}: the training reads {old}, which it would replace; choose another --output\n",
        )
    assert contents(old) == before
    assert not beside(old, NEXT).exists()
    line = ["finetune", "--preset", old / "preset.yaml", "--output", old, "--overwrite", "--set", "finetuning.epochs=1"]
    assert recur(*line, "--quiet")[0] == 0, "a preset is read whole before"


@pytest.mark.slow
def test_an_overwriting_training_that_dies_at_each_of_its_changes_leaves_one_whole_run(
    forks: ForkServer, tiny_tnews: Path, tmp_path: Path
) -> None:
    shorter = ("finetuning.max_steps=6", "finetuning.checkpoint_every=3", "finetuning.evaluate_every=3")
    for name, seed in (("old", 5), ("whole", 10)):
        assert forks.run("finetune", *options(tiny_tnews, tmp_path / name, *shorter, f"runtime.seed={seed}")).code == 0
    wanted, before = fingerprint(tmp_path / "whole"), fingerprint(tmp_path / "old")

    def arguments(output: Path) -> list[object]:
        return ["finetune", *options(tiny_tnews, output, *shorter), "--overwrite"]

    seeds = []
    for point, output in deaths(forks, "recurcli.cli:run", tmp_path / "old", arguments):
        folder = output if output.exists() else beside(output, OLD)
        seeds.append(RunDirectory(folder).read_result()["seed"])
        assert read_model(folder).folder.path == folder
        if seeds[-1] == 5:
            names = ("model.safetensors", "config.json", "tokenizer.json")
            assert {name: before[name] for name in names} == {name: sha256_of(folder / name) for name in names}
        has_begun = (beside(output, NEXT) / "preset.yaml").exists() or seeds[-1] == 10
        way = "--resume" if has_begun else "--overwrite"
        ended = forks.run("finetune", *options(tiny_tnews, output, *shorter), way)
        assert ended.code == 0, f"died at change {point}: {ended.err}"
        assert fingerprint(output) == wanted, f"died at change {point}"
    assert [key for key, _ in itertools.groupby(seeds)] == [5, 10]


def test_thresholds_are_the_old_or_the_new_ones_wherever_their_change_dies(forks: ForkServer, tmp_path: Path) -> None:
    run = two_runs(tmp_path / "run")
    saves.thresholds([str(run), "1"])
    found = []
    for _, folder in deaths(forks, "saves:thresholds", run, lambda folder: [folder, 2]):
        thresholds = open_run(folder).read_thresholds()
        assert thresholds is not None
        found.append(thresholds["cross_validated"])
    assert [key for key, _ in itertools.groupby(found)] == [1.0, 2.0]
