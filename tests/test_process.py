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


LARGE = """
import numpy as np
from recurcli.process import keep_freed_memory, large_blocks_returned

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

def hold(count):
    before, blocks = resident(), [np.ones(10_000_000) for _ in range(count)]  # larger than TOP_PAD
    del blocks[::2]  # leaves holes
    return (resident() - before) / 80e6

keep_freed_memory()
with large_blocks_returned():
    print(hold(4))
print(hold(4))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
def test_large_blocks_are_returned_in_a_step_that_asks_for_it() -> None:
    done = subprocess.run([sys.executable, "-c", LARGE], capture_output=True, check=True, text=True)
    returned, kept = map(float, done.stdout.split())
    assert returned < 2.5 < 3.5 < kept, "blocks that stay resident of four, two of which were freed"
