"""The signals that stop a training or ask for a checkpoint. The handler only sets a flag, which each step reads."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from recurcli.distributed.group import SINGLE_PROCESS, Ranks

_HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)


class StopTraining(Exception):
    """Raised during an evaluation when a rank has received a signal to stop."""


class StopRequest:
    """The stop and checkpoint signals that any rank has received."""

    def __init__(self, ranks: Ranks = SINGLE_PROCESS) -> None:
        self.ranks = ranks
        self.signal: int | None = None
        """Number of the stop signal; None if none was received."""
        self.save_asked = False
        """Whether any rank had received SIGUSR1 at the last call of `agreed`. The caller resets it when it has saved."""
        self._usr1 = False

    def agreed(self) -> bool:
        """Return whether any rank has received a signal to stop. A collective call: every rank must make it."""
        usr1, self._usr1 = self._usr1, False
        received = self.ranks.all_gather([self.signal, usr1])
        self.save_asked = self.save_asked or any(save for _, save in received)
        numbers = [number for number, _ in received if number]
        if numbers:  # a signal that arrives after all_gather is handled by the next call
            self.signal = max(numbers)
        return bool(numbers)

    def raise_if_agreed(self) -> None:
        """Raise StopTraining if any rank has received a signal to stop. A collective call."""
        if self.agreed():
            raise StopTraining

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Handle SIGTERM, SIGINT, SIGHUP and SIGUSR1 within the block, and restore the previous handlers after it.

        A second SIGINT raises KeyboardInterrupt. SLURM can send SIGUSR1 before the time limit (`--signal=USR1@60`). Outside
        the main thread no handler is installed, because Python forbids it.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        # A signal that is already ignored, as under nohup, stays ignored.
        handled = [number for number in _HANDLED if signal.getsignal(number) is not signal.SIG_IGN]
        before = {number: signal.signal(number, self._handle) for number in handled}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGUSR1:
            self._usr1 = True
        elif number == signal.SIGINT and self.signal == signal.SIGINT:
            raise KeyboardInterrupt
        else:
            self.signal = number
