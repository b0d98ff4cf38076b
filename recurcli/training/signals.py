"""Signals that ask a training to stop: the handler only sets a flag, the training stops where it can be resumed."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from recurcli.ranks import ALONE, Ranks

_STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class StopRequest:
    """The signal that asked for a stop, if one did."""

    def __init__(self, ranks: Ranks = ALONE) -> None:
        self.signal: int | None = None
        self.ranks = ranks

    def agreed(self) -> bool:
        """Whether a signal has come to any of the processes, which all ask this at the same point of their work."""
        numbers = [number for number in self.ranks.exchanged(self.signal) if number]
        if numbers:  # else one may have come meanwhile: it must be there at the next question
            self.signal = max(numbers)
        return bool(numbers)

    def __bool__(self) -> bool:
        return self.signal is not None


@contextlib.contextmanager
def stop_requests(ranks: Ranks = ALONE) -> Iterator[StopRequest]:
    """Collect SIGTERM, SIGINT and SIGHUP in a StopRequest for the length of the block; a second SIGINT leaves at once."""
    request = StopRequest(ranks)
    if threading.current_thread() is not threading.main_thread():
        yield request  # only the main thread may set handlers; a caller in another one stops by other means
        return

    def note(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and request.signal == signal.SIGINT:
            raise KeyboardInterrupt
        request.signal = number

    # What is ignored already, as under nohup, stays ignored.
    wanted = [number for number in _STOPPING if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, note) for number in wanted}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
