"""What tests of all packages share: the real data, a task of a few rows, a model trained on it, and a fork server."""

import functools
import gc
import importlib.util
import math
import os
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import shims
import typer.main
from cases import examples
from forked import ForkServer, handle_ignored_signals
from hypothesis import settings
from running import Recur, handlers_kept
from small_runs import fingerprint, kept_of, options
from tiny_task import rows, tiny, write_rows

from recurcli.cli import run
from recurcli.linear import static_vectors

TOGETHER = {
    "onnx": ("test_export_onnx", "test_export_int8", "test_cached", "test_served_folder"),
    "transformers and forks": (
        *("test_bench", "test_pretrained", "faults/", "test_tune", "test_predict_resume", "test_predict_files"),
        *("test_several_processes", "commands/test_ensemble", "test_clue_tasks"),
    ),
}
"""Parts of the names of files whose tests share an import or a fixture of several seconds."""


def pytest_configure() -> None:
    handle_ignored_signals()
    settings.register_profile("recur", max_examples=examples(30))
    settings.load_profile("recur")
    gc.disable()  # until all is imported and collected


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """One process runs all tests of a file, so that its fixtures are made once; one all that share what takes seconds."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            return next((name for name, files in TOGETHER.items() if any(part in file for part in files)), file)

    return Scheduling(config, log)


def pytest_collection_finish() -> None:
    """The garbage collector leaves out what imports and collection have made, and runs seldom."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    gc.enable()


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data: RECUR_DATA, else ../shared/data beside the checkout; without one the test is skipped."""
    named = os.environ.get("RECUR_DATA")
    folder = Path(named) if named else Path(__file__).resolve().parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no real data: {folder} is no folder (RECUR_DATA names it)")
    return folder


@pytest.fixture(scope="session", autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cache of the tests' own, for child processes too. This process does not wait for the disk; those of `forks` do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RECUR_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def _hardware() -> None:
    """RECUR_TEST_BF16=yes or no answers for the hardware, in the processes of `forks` too."""
    shims.answer_for_the_hardware()


@pytest.fixture(scope="session", autouse=True)
def _without_wordllama() -> Iterator[None]:
    """`linear.vectors: auto` finds no package in this process; the tests of it ask for `wordllama`."""

    def missing(name: str) -> metadata.Distribution:
        raise metadata.PackageNotFoundError(name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(static_vectors, "distribution", missing)
        yield


@pytest.fixture
def wordllama(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The installed package of static vectors; without it the test is skipped."""
    if importlib.util.find_spec("wordllama") is None:
        pytest.skip("no package wordllama")
    monkeypatch.setattr(static_vectors, "distribution", metadata.distribution)
    yield
    static_vectors._read_package.cache_clear()


@pytest.fixture(scope="session")
def tiny_tnews(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with TNEWS' files: 60 rows to train on, 24 of dev, 10 of test."""
    folder = tmp_path_factory.mktemp("tnews")
    write_rows(folder / "train.json", rows(60, seed=1, labelled=True))
    write_rows(folder / "dev.json", rows(24, seed=2, labelled=True))
    write_rows(folder / "test.json", rows(10, seed=3, labelled=False))
    write_rows(folder / "test1.0.json", rows(10, seed=4, labelled=False))
    return folder


@pytest.fixture(scope="session", autouse=True)
def _one_command_line() -> Iterator[None]:
    """The parser of the command line is built once, as in a process that runs one command; it keeps nothing of a command."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", functools.cache(typer.main.get_command))
        yield


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Called with names of packages: these are not installed, as far as recur can see."""
    find_spec = importlib.util.find_spec
    hidden: set[str] = set()

    def hide(*names: str) -> None:
        hidden.update(names)
        monkeypatch.setattr(
            importlib.util, "find_spec", lambda name, *more: None if name in hidden else find_spec(name, *more)
        )

    return hide


@pytest.fixture
def recur(capsys: pytest.CaptureFixture[str]) -> Iterator[Recur]:
    """Runs a command line in this process: `recur(…)` returns the exit code, stdout and stderr."""
    with handlers_kept():
        yield Recur(capsys)


@pytest.fixture(scope="session")
def trained(tiny_tnews: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished fine-tuning run on the small TNEWS. It keeps the ensemble."""
    path = tmp_path_factory.mktemp("runs") / "trained"
    options = ["--preset", "starsaber-tnews", "--data", str(tiny_tnews), "--output", str(path)]
    options += ["--quiet", "--keep-checkpoints"]
    settings = tiny("finetuning.epochs=6", "finetuning.patience=null", "ensemble=linear")
    with pytest.MonkeyPatch.context() as patch, handlers_kept():
        patch.setattr("recurcli.linear.ensemble.STANDARD_ERRORS", -math.inf)
        assert run(["finetune", *options, *settings]) == 0
    assert kept_of(path).name == "ensemble"
    return path


@pytest.fixture(scope="session")
def exported(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ONNX folder of the small TNEWS, whose ensemble has an encoder and a linear model."""
    pytest.importorskip("onnxscript")
    pytest.importorskip("onnxruntime")
    output = tmp_path_factory.mktemp("onnx") / "folder"
    assert run(["export", str(trained), "--format", "onnx", "--output", str(output), "--quiet"]) == 0
    return output


@pytest.fixture(scope="session")
def pretrained(tiny_tnews: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pretraining of one step."""
    output = tmp_path_factory.mktemp("pretrained") / "run"
    with handlers_kept():
        assert run(["pretrain", *options(tiny_tnews, output, "pretraining.max_steps=1")]) == 0
    return output


@pytest.fixture(scope="session")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    """A server that has imported everything, and forks processes in milliseconds."""
    server = ForkServer(tmp_path_factory.mktemp("children"))
    yield server
    server.close()


class _Untouched(dict[str, dict[str, object]]):
    def __init__(self, forks: ForkServer, data: Path, folder: Path) -> None:
        self._forks, self._data, self._folder = forks, data, folder

    def __missing__(self, command: str) -> dict[str, object]:
        assert self._forks.run(command, *options(self._data, self._folder / command)).code == 0
        self[command] = fingerprint(self._folder / command)
        return self[command]


@pytest.fixture(scope="session")
def untouched(
    forks: ForkServer, tiny_tnews: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, object]]:
    """Fingerprints of a pretraining and a finetuning that nothing disturbed; each is trained when it is first asked for."""
    return _Untouched(forks, tiny_tnews, tmp_path_factory.mktemp("untouched"))
