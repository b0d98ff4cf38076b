"""Signals that ask a training to stop or to save: the handler only sets a flag, the training heeds it after a step."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from recurcli.distributed.group import SINGLE_PROCESS, Ranks

_HEEDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)


class StopRequest:
    """The signal that asked for a stop, if one did; and whether SIGUSR1 asked for a checkpoint."""

    def __init__(self, ranks: Ranks = SINGLE_PROCESS) -> None:
        self.signal: int | None = None
        self.ranks = ranks
        self.checkpoint = False
        """SIGUSR1 has come to this process; of several, none acts on that before all know."""
        self.saving = False
        """SIGUSR1 has come to one of the processes, and all know: whoever saves sets it back."""

    def agreed(self) -> bool:
        """Whether a signal to stop has come to any of the processes, which all ask this at the same point of their work."""
        asked, self.checkpoint = self.checkpoint, False
        heard = self.ranks.all_gather([self.signal, asked])
        self.saving = self.saving or any(saving for _, saving in heard)
        numbers = [number for number, _ in heard if number]
        if numbers:  # else one may have come meanwhile: it must be there at the next question
            self.signal = max(numbers)
        return bool(numbers)

    def __bool__(self) -> bool:
        return self.signal is not None


@contextlib.contextmanager
def stop_requests(ranks: Ranks = SINGLE_PROCESS) -> Iterator[StopRequest]:
    """Collect SIGTERM, SIGINT, SIGHUP and SIGUSR1 in a StopRequest for the length of the block.

    A second SIGINT leaves at once. SIGUSR1 is what SLURM sends some time before the end (`--signal=USR1@60`).
    """
    request = StopRequest(ranks)
    if threading.current_thread() is not threading.main_thread():
        yield request  # only the main thread may set handlers; a caller in another one stops by other means
        return

    def note(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGUSR1:
            request.checkpoint = True
            return
        if number == signal.SIGINT and request.signal == signal.SIGINT:
            raise KeyboardInterrupt
        request.signal = number

    # What is ignored already, as under nohup, stays ignored.
    wanted = [number for number in _HEEDED if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, note) for number in wanted}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
