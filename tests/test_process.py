"""A process keeps freed memory: blocks that are made again and again cost page faults once."""

import gc
import platform
import subprocess
import sys

import pytest

from recurcli.process import disable_gc, gc_between_steps

SCRIPT = """
import resource
import numpy as np
from recurcli.process import keep_freed_memory

if {kept}:
    keep_freed_memory()
for round in range(12):
    if round == 2:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.ones(6_000_000)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
def test_blocks_of_one_size_cost_page_faults_once() -> None:
    faults = [
        int(subprocess.run([sys.executable, "-c", SCRIPT.format(kept=kept)], capture_output=True, check=True).stdout)
        for kept in (False, True)
    ]
    assert faults[1] < 100 < faults[0]


def test_a_collection_that_the_user_turned_off_stays_off() -> None:
    was = gc.isenabled()
    try:
        gc.disable()
        gc_between_steps()
        assert not gc.isenabled()
        disable_gc()
        gc_between_steps()
        assert not gc.isenabled()
        gc.enable()
        disable_gc()
        assert not gc.isenabled()
        gc_between_steps()
        assert gc.isenabled()
    finally:
        gc.unfreeze()
        (gc.enable if was else gc.disable)()
