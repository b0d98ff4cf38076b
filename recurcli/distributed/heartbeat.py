"""Whether the processes of one run are all alive, and how they end together when one of them fails.

A thread of each process beats in torchrun's key-value store and looks at the beats of the others. That is why nothing
else here needs a short timeout: one process may work for an hour while the others wait for it, and one that was killed,
stopped or cut off is still found within SILENCE. The first failure that reaches the store is the run's verdict: its
process tells it, all end with its exit code.
"""

import contextlib
import json
import os
import sys
import threading
import time
import uuid
from typing import TYPE_CHECKING, NamedTuple

from recurcli.errors import RankError, last_line

if TYPE_CHECKING:
    from torch.distributed import Store  # type: ignore[attr-defined]

BEAT = 0.5
"""Seconds from one beat to the next."""
SILENCE = 15.0
"""Seconds without a beat after which a process counts as lost; none of our calls holds the interpreter that long."""
START = 120.0
"""Seconds that the processes may be apart when they start."""
GRACE = 5.0
"""Seconds that a process has to end by itself after another one has failed."""
PARTING = 2.0
"""Seconds that the first to fail waits for the others: when it is gone, torchrun sends them SIGTERM."""
LOST = RankError.exit_code


class Failure(NamedTuple):
    """How the run ends."""

    code: int
    message: str
    rank: int
    """The process that failed,"""
    node: str
    """and its machine."""


class Heartbeat:
    """This process among `size`, in the key-value store behind `store`."""

    def __init__(self, store: "Store", rank: int, size: int, node: str) -> None:
        from torch.distributed import PrefixStore  # type: ignore[attr-defined]

        self.rank, self.size, self.node = rank, size, node
        self._common = store
        self._token = uuid.uuid4().hex if rank == 0 else self._asked_token()
        # torchrun keeps one store over all restarts: what an earlier start left there must not be taken for ours.
        self.store = PrefixStore(self._token, store)
        other = store.clone()  # type: ignore[attr-defined]  # a connection of its own: the main thread may wait on the first
        self._beats, self._hellos = PrefixStore(self._token, other), other
        self._ended, self._leaving = threading.Event(), threading.Event()
        self._untold = threading.Semaphore()
        self._seen: dict[int, tuple[bytes, float]] = {}
        """The last beat of each other process, and for how long it has been the last."""
        self._thread = threading.Thread(target=self._run, name="recur-watch", daemon=True)
        self._thread.start()

    def report_failure(self, code: int, message: str) -> tuple[Failure, bool]:
        """The run's verdict, which is this failure if it is the first one; and whether this process is to tell it."""
        try:
            verdict, won = self._report_failure(self.store, code, message)
        except RuntimeError:  # the store is gone, and with it all that the others could say
            verdict, won = Failure(code, message, self.rank, self.node), self.rank == 0
        return verdict, self._is_to_tell(verdict, won=won)

    def missing(self) -> list[int]:
        """The processes that do not beat any more, found out in a few beats; none where the run has its verdict."""
        others = [rank for rank in range(self.size) if rank != self.rank]
        deadline = time.monotonic() + 5 * BEAT
        with contextlib.suppress(RuntimeError):
            before = {rank: self._last(self.store, rank) for rank in others}
            while others and time.monotonic() < deadline:
                if self.store.check(["verdict"]):
                    return []
                time.sleep(BEAT / 5)
                others = [rank for rank in others if self._last(self.store, rank) == before[rank]]
        return others

    def leave(self) -> None:
        """Say that this process ends in failure, and give the others a moment to do the same."""
        self._leaving.set()
        deadline = time.monotonic() + PARTING
        with contextlib.suppress(RuntimeError):
            self.store.add("left", 1)
            while self.store.add("left", 0) < self.size and time.monotonic() < deadline:
                time.sleep(BEAT / 20)

    def finish(self) -> Failure | None:
        """Wait until all processes have finished; the verdict if one of them failed instead."""
        self.store.add("finished", 1)
        while self.store.add("finished", 0) < self.size:
            if self.store.check(["verdict"]):
                return Failure(*json.loads(self.store.get("verdict")))
            time.sleep(BEAT / 10)
        self._ended.set()
        self._thread.join()
        return None

    def mark_started(self) -> None:
        """Remember, over restarts too, that the work of this torchrun has left its first trace on the disk."""
        self._common.set("recur/begun", "yes")

    def was_started(self) -> bool:
        """Whether an earlier start of this torchrun got that far."""
        return self._common.check(["recur/begun"])

    def _asked_token(self) -> str:
        """The name of this start, from rank 0; asked for by a key that no earlier start can have answered."""
        own, deadline = uuid.uuid4().hex, time.monotonic() + START
        self._common.set(f"recur/hello/{self.rank}", own)
        while not self._common.check([f"recur/reply/{own}"]):
            if time.monotonic() > deadline:
                raise RankError(f"rank 0 has not started within {START:.0f} s")
            time.sleep(BEAT / 20)
        return self._common.get(f"recur/reply/{own}").decode()

    def _run(self) -> None:
        silent = list(range(1, self.size)) if self.rank == 0 else []
        count, started = 0, time.monotonic()
        try:
            while not self._ended.wait(BEAT / 10 if silent else BEAT):
                count += 1
                self._beats.set(f"beat/{self.rank}", str(count))
                silent = self._answer(silent)
                self._look(silent if time.monotonic() - started > START else [])
        except RuntimeError:
            if not self._ended.is_set():
                self._leave(
                    Failure(LOST, "torchrun is gone, or cannot be reached", self.rank, self.node), won=self.rank == 0
                )

    def _answer(self, silent: list[int]) -> list[int]:
        """Tell the name of this start to those who ask for it; returns those who have not beaten yet."""
        for rank in silent:
            if self._hellos.check([f"recur/hello/{rank}"]):
                self._hellos.set("recur/reply/" + self._hellos.get(f"recur/hello/{rank}").decode(), self._token)
        return [rank for rank in silent if not self._beats.check([f"beat/{rank}"])]

    def _look(self, absent: list[int]) -> None:
        """End this process if the run has a verdict, or should have one."""
        if self._beats.check(["verdict"]):
            self._leave(Failure(*json.loads(self._beats.get("verdict"))), won=False)
        elif absent:
            self._give_up(f"{named(absent)} not started within {START:.0f} s")
        elif lost := self._lost():
            self._give_up(f"{named(lost)} given no sign of life for {SILENCE:.0f} s: killed, stopped or cut off")

    def _lost(self) -> list[int]:
        """Who has been silent for too long; time in which this process itself stood still does not count."""
        for rank in range(self.size):
            beat = self._last(self._beats, rank)
            before, silence = self._seen.get(rank, (b"", 0.0))
            if beat:
                self._seen[rank] = (beat, silence + BEAT if beat == before else 0.0)
        return [rank for rank, (_, silence) in self._seen.items() if silence > SILENCE and rank != self.rank]

    def _give_up(self, message: str) -> None:
        verdict, won = self._report_failure(self._beats, LOST, message)
        self._leave(verdict, won=won)

    def _leave(self, verdict: Failure, *, won: bool) -> None:
        """Let the main thread end by itself, which it cannot while it waits for a lost process; then end without it."""
        if self._is_to_tell(verdict, won=won):
            print(last_line(verdict.code, verdict.message), file=sys.__stderr__, flush=True)
        self._leaving.wait(GRACE)
        if self._leaving.is_set():
            time.sleep(GRACE)
        os._exit(verdict.code)

    def _report_failure(self, store: "Store", code: int, message: str) -> tuple[Failure, bool]:
        own = Failure(code, message, self.rank, self.node)
        stored = Failure(*json.loads(store.compare_set("verdict", "", json.dumps(own))))
        return stored, stored.rank == self.rank

    def _is_to_tell(self, verdict: Failure, *, won: bool) -> bool:
        """Once a machine: by the process that failed, and by the first one where stderr is another one."""
        tells = won or (verdict.node != self.node and os.environ.get("LOCAL_RANK") == "0")
        return tells and self._untold.acquire(blocking=False)

    @staticmethod
    def _last(store: "Store", rank: int) -> bytes:
        return store.get(f"beat/{rank}") if store.check([f"beat/{rank}"]) else b""


def named(ranks: list[int]) -> str:
    """`rank 1 has`, `ranks 1, 2 have`."""
    return f"rank {ranks[0]} has" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))} have"
