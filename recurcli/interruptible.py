"""Lets a signal interrupt work that does not check for signals: a library's C code, or code that catches every error."""

import threading
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")
SECONDS_BETWEEN_LOOKS = 0.2
"""Seconds between two checks of the main thread for a signal that the system gave to another thread."""


def interruptible(work: Callable[[], Result]) -> Result:
    """Return what `work` returns, or raise what it raises. It runs in a thread, on which this one waits.

    Python runs the handler of a signal in the main thread, between two of its instructions. There the error that the handler
    raises comes at once, and no library catches it. After such an error the thread is left to itself, so `work` must change
    nothing but what it returns: no files, and no generator or grad mode of this thread.
    """
    returned: list[Result] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            returned.append(work())
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(SECONDS_BETWEEN_LOOKS)
    if raised:
        raise raised[0]
    return returned[0]
