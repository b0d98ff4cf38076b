"""Faults that a child is given before it runs: it dies at its n-th change of the disk, or at a moment, or an fsync fails.

The code under test runs as it is. Changes of the disk are seen from below: by audit events of the interpreter, `os.fsync`
and the writes of an open file. All other faults go through `_replace`, which takes public functions only.
"""

import builtins
import errno
import importlib
import io
import os
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

MOMENTS = {
    "the reading of the data": ("recurcli.data.splits:load_split",),
    "the reading of a model": ("recurcli.runs.model_files:read_model",),
    "a step": ("recurcli.training.fit:take_step",),
    "a micro-batch": (
        "recurcli.training.objectives:ClassificationObjective.loss",
        "recurcli.training.objectives:MaskedTokenObjective.loss",
    ),
    "an epoch's end": ("recurcli.tokens.batching:epoch_batches",),
    "an evaluation": ("recurcli.models.encoder:Encoder.score",),
    "the logits of an evaluation": ("recurcli.evaluation.inference:compute_logits",),
    "the last evaluation": ("recurcli.models.choice:Choice.decide_and_score",),
    "a checkpoint": ("recurcli.training.session:save_checkpoint",),
    "a rotation of checkpoints": ("shutil:rmtree",),
    "a line of metrics": ("recurcli.runs.run_directory:RunDirectory.append_metrics",),
    "the publishing of a model": ("recurcli.runs.model_files:write_model",),
    "the end": ("recurcli.commands.training.report:model_card",),
    "the last file": ("recurcli.runs.run_directory:RunDirectory.write_result",),
}
"""Moments of a command at which a fault can be asked for: each is the start of a call of these public functions."""

_CHANGES = ("os.rename", "os.link", "os.remove", "os.rmdir", "os.mkdir", "os.chmod")


def _die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("SIGKILL leaves nothing to run")


class _Counter:
    """Dies at the change of the disk that has the wanted number; writes down how many there were where nothing dies."""

    def __init__(self, point: int, under: str, tally: str) -> None:
        self.point, self.under, self.tally = point, under, Path(tally)
        self.count = 0
        self.busy = False

    def is_ours(self, path: object) -> bool:
        return isinstance(path, str | os.PathLike) and os.fspath(path).startswith(self.under)

    def next(self) -> bool:
        """Count one change; whether it is the one to die at."""
        self.count += 1
        return self.count == self.point

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            changes = self.is_ours(path) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        elif event in _CHANGES:
            # Inside rmtree a name is relative to an open folder, which only a run's own can be.
            changes = self.is_ours(arguments[0]) or arguments[-1] not in (-1, None)
        else:
            return
        if changes and self.next():
            _die()


def die_at_change(point: int, under: str, tally: str) -> None:
    """Die at the `point`-th change of the disk below `under`: before an open for writing, a rename, a link, an unlink, a
    rmdir, a mkdir, a chmod or an fsync, or with half of the bytes of a write written.

    A child that comes through writes the number of its changes into the file `tally`.
    """
    counter = _Counter(point, under, tally)
    _watch_fsync(counter)
    _watch_writes(counter)
    sys.addaudithook(counter.hook)
    leave = os._exit

    def exit_with_tally(code: int) -> NoReturn:
        Path(tally).write_text(str(counter.count))
        leave(code)

    os._exit = exit_with_tally  # type: ignore[assignment]


def die_at_rename(to: str) -> None:
    """Die before the first rename to a path that ends so."""

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "os.rename" and str(arguments[1]).endswith(to):
            _die()

    sys.addaudithook(hook)


def _watch_fsync(counter: _Counter) -> None:
    honest = os.fsync

    def fsync(descriptor: int) -> None:
        if counter.next():
            _die()
        honest(descriptor)

    os.fsync = fsync  # type: ignore[assignment]


def _watch_writes(counter: _Counter) -> None:
    """Files that Python opens for writing below the folder tear when the point is reached."""
    honest = io.open

    class Tearing(io.FileIO):
        def write(self, data: Any, /) -> int:
            if counter.next():
                super().write(memoryview(data)[: len(data) // 2])
                _die()
            return super().write(data)

    def opened(file: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        if not counter.is_ours(file) or not set(mode) & set("wax+"):
            return honest(file, mode, *arguments, **options)
        raw = Tearing(file, mode.replace("b", "").replace("t", ""), opener=options.pop("opener", None))
        binary = io.BufferedWriter(raw)
        options.pop("buffering", None)
        return binary if "b" in mode else io.TextIOWrapper(binary, **options)

    io.open = builtins.open = opened


def answer_for_the_hardware() -> None:
    """Answer whether the hardware multiplies bf16 as RECUR_TEST_BF16 says (yes or no); without it, ask the hardware.

    The tests that ask are appended to the file RECUR_TEST_ASKED, a line each: the whole file of one whose fixture asks.
    """
    forced = {None: None, "yes": True, "no": False}[os.environ.get("RECUR_TEST_BF16")]

    def answered(honest: Callable[..., bool]) -> Callable[..., bool]:
        def asked(device: object) -> bool:
            test, _, phase = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")
            if test and (path := os.environ.get("RECUR_TEST_ASKED")):
                with Path(path).open("a", encoding="utf-8") as file:
                    file.write(f"{test if phase == '(call)' else test.partition('::')[0]}\n")
            return honest(device) if forced is None else forced

        return asked

    _replace("recurcli.device:multiplies_bf16", answered)


def _replace(function: str, wrapped: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Replace the public function or method `module:name` by `wrapped` of it, wherever recurcli has imported it."""
    module, path = function.split(":")
    if any(part.startswith("_") for part in (*module.split("."), *path.split("."))):
        raise ValueError(f"{function} is private: a fault is aimed at public functions")
    *classes, name = path.split(".")
    owner: Any = importlib.import_module(module)
    for part in classes:
        owner = getattr(owner, part)
    honest = getattr(owner, name)
    replacement = wrapped(honest)
    setattr(owner, name, replacement)
    for other in [value for key, value in sys.modules.items() if key.startswith("recurcli.")]:
        for key, value in list(vars(other).items()):
            if value is honest:
                setattr(other, key, replacement)


def _at(moment: str, call: int, act: Callable[[], None]) -> None:
    """Have `act` called when the moment comes for the `call`-th time."""
    calls = 0

    def watched(honest: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == call:
                act()
            return honest(*arguments, **options)

        return called

    for function in MOMENTS[moment]:
        _replace(function, watched)


def die_at(moment: str, call: int, delay: float) -> None:
    """Die `delay` seconds after the moment has come for the `call`-th time."""

    def late() -> None:
        time.sleep(delay)
        _die()

    _at(moment, call, threading.Thread(target=late, daemon=True).start if delay else _die)


def signal_at(moment: str, call: int, numbers: list[int]) -> None:
    """Send this process the signals when the moment comes for the `call`-th time."""

    def send() -> None:
        for number in numbers:
            os.kill(os.getpid(), number)

    _at(moment, call, send)


def ignore(numbers: list[int]) -> None:
    """Ignore the signals from the start, as nohup does."""
    for number in numbers:
        signal.signal(number, signal.SIG_IGN)


def fail_fsync(call: int, number: int = errno.EIO) -> None:
    """The `call`-th fsync fails as on a broken disk."""
    honest, calls = os.fsync, 0

    def fsync(descriptor: int) -> None:
        nonlocal calls
        calls += 1
        if calls == call:
            raise OSError(number, os.strerror(number))
        honest(descriptor)

    os.fsync = fsync  # type: ignore[assignment]


def limit_file_size(size: int) -> None:
    """No file of this process can grow beyond `size` bytes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def become_rank(rank: int, world_size: int, port: int) -> None:
    """Set the variables that torchrun sets."""
    variables = {"RANK": rank, "WORLD_SIZE": world_size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in variables.items()})


def read_from(path: str) -> None:
    """Standard input comes from the file at `path`."""
    os.dup2(os.open(path, os.O_RDONLY), 0)


def print_to(path: str) -> None:
    """Standard output goes to the file at `path`."""
    os.dup2(os.open(path, os.O_WRONLY), 1)


def poison(objective: str, call: int, value: str, where: str) -> None:
    """The `call`-th loss of the objective, or the gradient that flows from it, is NaN or infinite."""
    calls = 0

    def watched(honest: Callable[..., Any]) -> Callable[..., Any]:
        def loss(*arguments: Any) -> Any:
            nonlocal calls
            calls += 1
            total, auxiliary = honest(*arguments)
            if calls == call and where == "loss":
                total = total * float(value)
            elif calls == call:
                total.register_hook(lambda gradient: gradient * float(value))
            return total, auxiliary

        return loss

    _replace(f"recurcli.training.objectives:{objective}.loss", watched)


def keep_rows_often(window: int, seconds: float) -> None:
    """A prediction makes `window` rows at a time, and keeps them for a resume after `seconds`."""
    rows: Any = importlib.import_module("recurcli.commands.prediction.rows")
    output: Any = importlib.import_module("recurcli.commands.prediction.output")
    rows.WINDOW, output.SECONDS_BETWEEN_JOURNALS = window, seconds


def block_connections(code: int) -> None:
    """End with `code` at the first connection or look-up of a name, as a user who sets no HF_ variable would make them."""

    def refuse(*arguments: Any, **more: Any) -> NoReturn:
        print("a connection is made:", arguments, file=sys.stderr, flush=True)
        os._exit(code)

    assert not {"huggingface_hub", "datasets"} & set(sys.modules), "they read HF_HUB_OFFLINE when they are imported"
    for name in [name for name in os.environ if name.startswith("HF_")]:
        del os.environ[name]
    methods: Any = socket.socket
    functions: Any = socket
    methods.connect = methods.connect_ex = refuse
    functions.getaddrinfo = functions.create_connection = functions.gethostbyname = refuse
