"""Processes that start in milliseconds, to be killed, stopped and starved: a server has imported all, and forks them.

A child is a process of its own that runs `recur` as the command line does. The server has started no thread and
trained nothing when it forks, so that nothing of it can be wrong in the child.
"""

import gc
import importlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[1]
Shim = tuple[str, dict[str, Any]]
"""A function of shims.py and its arguments, called in the child before anything else."""


def handle_ignored_signals() -> None:
    """Signals that nohup or a shell in the background has set to be ignored get a handler that does nothing.

    A handler becomes the default in the programs that a test starts, which would inherit that a signal is ignored; the tests
    themselves go on as they would with an ignored one.
    """
    for number in (signal.SIGHUP, signal.SIGINT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda number, frame: None)


@dataclass(frozen=True)
class Ended:
    """How a child ended: its exit code, or minus the signal that killed it, and what it said."""

    code: int
    out: str
    err: str


class Child:
    """A process that the server has forked."""

    def __init__(self, server: "ForkServer", pid: int, out: Path, err: Path) -> None:
        self.pid = pid
        self._server, self._out, self._err = server, out, err

    def send(self, number: signal.Signals) -> None:
        """Send it a signal; the server has not reaped it yet, so the number is no other process'."""
        os.kill(self.pid, number)

    def wait(self, seconds: float = 60) -> Ended | None:
        """How it ended, or None if it still runs after `seconds`."""
        code = self._server.ask({"wait": self.pid, "seconds": seconds})["code"]
        return None if code is None else Ended(code, self._out.read_text("utf-8"), self._err.read_text("utf-8"))

    def end(self) -> Ended:
        """How it ended; one that does not end within a minute is killed, and an error."""
        if ended := self.wait():
            return ended
        self.send(signal.SIGKILL)
        self.wait()
        raise TimeoutError(f"still running after a minute: {self._err.read_text('utf-8')}")

    def said(self, words: str, seconds: float = 30) -> None:
        """Wait until `words` stand on its stderr."""
        deadline = time.monotonic() + seconds
        while words not in self._err.read_text("utf-8"):
            assert time.monotonic() < deadline, f"{words!r} is not in {self._err.read_text('utf-8')!r}"
            time.sleep(0.001)


class ForkServer:
    """A Python process in which everything is imported, and which forks on demand."""

    def __init__(self, folder: Path) -> None:
        paths = (CHECKOUT, CHECKOUT / "tests", CHECKOUT / "tests" / "faults")
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
        }
        self._folder = folder
        self._count = 0
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """The server's answer to a request."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def start(self, *arguments: object, call: str = "recurcli.cli:run", shims: tuple[Shim, ...] = ()) -> Child:
        """Fork a process that calls `module:function` with the arguments, as a list of strings, and exits with its value."""
        self._count += 1
        out, err = self._folder / f"{self._count}.out", self._folder / f"{self._count}.err"
        out.touch()
        err.touch()
        test = os.environ.get("PYTEST_CURRENT_TEST", "")
        request = {"call": call, "arguments": list(map(str, arguments)), "shims": shims, "test": test}
        return Child(self, self.ask({**request, "out": str(out), "err": str(err)})["pid"], out, err)

    def run(self, *arguments: object, call: str = "recurcli.cli:run", shims: tuple[Shim, ...] = ()) -> Ended:
        """`start`, and wait for the end."""
        return self.start(*arguments, call=call, shims=shims).end()

    def close(self) -> None:
        """End the server."""
        self._process.communicate()


def _serve() -> None:
    """Answer requests, a line of JSON each, until there are no more."""
    _import_all()
    importlib.import_module("shims").answer_for_the_hardware()
    gc.freeze()  # a child's collections do not copy the memory of what is imported
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            answer = {"code": _code_of(request["wait"], request["seconds"])}
        else:
            pid = os.fork()
            if pid == 0:
                _be_the_child(request)
            answer = {"pid": pid}
        print(json.dumps(answer), flush=True)


def _code_of(pid: int, seconds: float) -> int | None:
    """The exit code of a child, None if it does not end within `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            return None
        time.sleep(0.002)


def _be_the_child(request: dict[str, Any]) -> None:
    for path, flags, target in (
        ("/dev/null", os.O_RDONLY, 0),
        (request["out"], os.O_WRONLY | os.O_CREAT, 1),
        (request["err"], os.O_WRONLY | os.O_CREAT, 2),
    ):
        os.dup2(os.open(path, flags, 0o600), target)
    os.environ["PYTEST_CURRENT_TEST"] = request["test"]
    code = 1
    try:
        for name, values in request["shims"]:
            getattr(importlib.import_module("shims"), name)(**values)
        module, name = request["call"].split(":")
        code = getattr(importlib.import_module(module), name)(request["arguments"])
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _import_all() -> None:
    """What a command would import, so that a child need not."""
    for name in ("finetune", "pretrain", "predict", "evaluate", "export"):
        importlib.import_module(f"recurcli.commands.{name}")
    for name in (
        "sklearn.svm",
        "recurcli.display.screen",
        "recurcli.display.evaluation",
        "recurcli.cli.app",
        "recurcli.encoders.starsaber",
        "shims",
        "rich.progress",
    ):
        importlib.import_module(name)
    if importlib.util.find_spec("optuna"):
        importlib.import_module("optuna")
    from recurcli.preset import compose

    compose("starsaber-tnews")


if __name__ == "__main__":
    _serve()
