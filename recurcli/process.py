"""What a command sets in its own process: the memory that glibc keeps, when Python collects garbage, handlers of signals, and
work in a thread that a signal can interrupt."""

import contextlib
import gc
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import TypeVar

Result = TypeVar("Result")
SignalHandler = Callable[[int, FrameType | None], object]
SECONDS_BETWEEN_LOOKS = 0.2
"""Seconds between two checks of the main thread for a signal that the system gave to another thread."""
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4
"""Parameters of glibc's mallopt (malloc.h)."""
TOP_PAD = 64 << 20
"""Bytes by which the heap grows at a time."""
_put_off = False


def keep_freed_memory() -> None:
    """Let glibc keep freed memory in this process. Other C libraries are left as they are.

    By default glibc returns each large block to the system, and the next step pays page faults for it. A step of pre-training
    takes 0.8 of its time without them (StarSaber 4 x 256, batches of 64 rows). The setting overrules environment variables
    such as MALLOC_MMAP_MAX_.
    """
    for parameter, value in (_MMAP_MAX, 0), (_TRIM_THRESHOLD, -1), (_TOP_PAD, TOP_PAD):
        _call_glibc("mallopt", parameter, value)


def return_freed_memory() -> None:
    """Return freed memory to the operating system, by `malloc_trim` of glibc."""
    _call_glibc("malloc_trim", 0)


def _call_glibc(function: str, *arguments: int) -> None:
    """Call a `function` of glibc; where there is another C library, such as musl, do nothing."""
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        getattr(ctypes.CDLL(None), function)(*map(ctypes.c_int, arguments))


def end_with_parent() -> None:
    """Let Linux send SIGTERM to this process when its parent ends. Other systems are left as they are."""
    _call_glibc("prctl", 1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def disable_gc() -> None:
    """Turn Python's garbage collection off until `gc_between_steps`. Imports make many objects and hardly any garbage."""
    global _put_off
    _put_off = gc.isenabled()
    gc.disable()


def gc_between_steps() -> None:
    """End `disable_gc`. Objects that are there by now are not looked at again. Without that call, do nothing."""
    global _put_off
    if _put_off:
        _put_off = False
        gc.freeze()
        gc.enable()


@contextlib.contextmanager
def signal_handlers(handlers: Mapping[int, SignalHandler]) -> Iterator[None]:
    """Handle signals by these `handlers` within the block, and by those of before after it."""
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def interruptible(work: Callable[[], Result]) -> Result:
    """Return what `work` returns, or raise what it raises. It runs in a thread, on which this one waits.

    It is for work that does not check for signals: a library's C code, or code that catches every error.
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
