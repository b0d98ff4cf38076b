"""Signals that ask a training to stop or to save: the handler only sets a flag, which the training asks for after a step."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from recurcli.distributed.group import SINGLE_PROCESS, Ranks

_HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)


class StopTraining(Exception):
    """A signal asked for a stop in the middle of an evaluation."""


class StopRequest:
    """The signals that this process or another rank has received."""

    def __init__(self, ranks: Ranks = SINGLE_PROCESS) -> None:
        self.ranks = ranks
        self.signal: int | None = None
        """The signal that asks for a stop; None if there is none yet."""
        self.save_asked = False
        """Whether a rank had received SIGUSR1 at the last `agreed`; whoever saves sets it back."""
        self._usr1 = False

    def agreed(self) -> bool:
        """Return whether any rank received a signal to stop. All ranks must call this at the same point of their work."""
        usr1, self._usr1 = self._usr1, False
        received = self.ranks.all_gather([self.signal, usr1])
        self.save_asked = self.save_asked or any(save for _, save in received)
        numbers = [number for number, _ in received if number]
        if numbers:  # one that came to this process after all_gather stays for the next call
            self.signal = max(numbers)
        return bool(numbers)

    def raise_if_agreed(self) -> None:
        """Raise StopTraining if any rank received a signal to stop."""
        if self.agreed():
            raise StopTraining

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Collect SIGTERM, SIGINT, SIGHUP and SIGUSR1 in this object for the block, instead of what they did before.

        A second SIGINT raises KeyboardInterrupt. SIGUSR1 is what SLURM sends some time before the end
        (`--signal=USR1@60`). Outside the main thread, which alone may set handlers, nothing is collected.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        # What is ignored already, as under nohup, stays ignored.
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
