"""A signal that comes in the midst of other code, which it must end within a second."""

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

import pytest

from recurcli.errors import Interrupted


@contextlib.contextmanager
def interrupted_soon() -> Iterator[Callable[[], None]]:
    """What it yields asks for a signal, whose Interrupted must end the block within a second.

    The thread that works on is waited for: beside the next test it would import, allocate and compute.
    """
    asked: list[float] = []
    others = threading.enumerate()

    def stop(number: int, frame: FrameType | None) -> None:
        raise Interrupted(number, "stopped")

    def ask() -> None:
        asked.append(time.monotonic())
        signal.setitimer(signal.ITIMER_REAL, 0.1)

    before = signal.signal(signal.SIGALRM, stop)
    try:
        with pytest.raises(Interrupted):
            yield ask
        assert time.monotonic() - asked[0] < 1
    finally:
        signal.signal(signal.SIGALRM, before)
        for thread in threading.enumerate():
            if thread not in others:
                thread.join()
