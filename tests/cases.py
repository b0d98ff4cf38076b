"""Tables of cases of which the default run tries a covering few, and the slow run all the others; numbers of examples."""

import os
from collections.abc import Iterable
from typing import Any

import pytest


def slow_but(default: Iterable[object], cases: Iterable[Any], *, unpack: bool = False) -> list[Any]:
    """Return `cases` for `parametrize`: those in `default` as they are, all others marked slow.

    `unpack`: a case is a tuple of several arguments. Raises ValueError if a default is no case.
    """
    default, cases = list(default), list(cases)
    if unknown := [case for case in default if case not in cases]:
        raise ValueError(f"no case: {unknown}")
    slow = pytest.mark.slow
    return [case if case in default else pytest.param(*(case if unpack else [case]), marks=slow) for case in cases]


def examples(count: int) -> int:
    """Return how many examples hypothesis draws: `count` times RECUR_TEST_EXAMPLES, which is 1 unless it is set."""
    return count * int(os.environ.get("RECUR_TEST_EXAMPLES", "1"))
