"""Detection of lost processes: each rank beats in torchrun's key-value store, and the first failure ends all ranks.

A thread of each rank counts up a key of the store every BEAT seconds and reads those of the other ranks. So collectives
need no short timeout: rank 0 may work for an hour while the others wait for it, and a rank that is killed, stopped or cut
off is detected within SILENCE seconds. The first failure in the store is that of the run: its rank prints it, and all
ranks exit with its code.
"""

import contextlib
import json
import os
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from recurcli.errors import RankError, last_line

if TYPE_CHECKING:
    from torch.distributed import Store  # type: ignore[attr-defined]

BEAT = 0.5
"""Seconds from one beat to the next."""
SILENCE = 15.0
"""Seconds without a beat after which a rank counts as lost; no call of ours holds the interpreter that long."""
START = 120.0
"""Seconds within which all ranks must start."""
GRACE = 5.0
"""Seconds that the main thread has to exit after another rank has failed."""
PARTING = 2.0
"""Seconds that the failed rank waits for the others: when it exits, torchrun sends them SIGTERM."""
LOST = RankError.exit_code


class Failure(NamedTuple):
    """The first failure of a run."""

    code: int
    message: str
    rank: int


class Heartbeat:
    """Sends a heartbeat of this rank to the store, and watches the heartbeats of the other ranks in a thread."""

    def __init__(self, store: "Store", rank: int, world_size: int) -> None:
        from torch.distributed import PrefixStore  # type: ignore[attr-defined]

        self.rank, self.world_size = rank, world_size
        self.common = store
        """torchrun's store, which is one over all restarts."""
        token = uuid.uuid4().hex if rank == 0 else self._request_token()
        self.store = PrefixStore(token, store)
        """The keys of this start; those of an earlier one must not be read."""
        self.store.set(f"beat/{rank}", "0")  # from here on SILENCE bounds the wait for this rank, not START
        self._finished, self._exiting = threading.Event(), threading.Event()
        self._unprinted = threading.Semaphore()
        common = store.clone()  # type: ignore[attr-defined]  # the main thread may block on its own connection
        arguments = (common, PrefixStore(token, common), token)
        self._thread = threading.Thread(target=self._run, args=arguments, name="recur-heartbeat", daemon=True)
        self._thread.start()

    @contextlib.contextmanager
    def slow_start(self) -> Iterator[None]:
        """Let the other ranks wait START seconds for a beat within the block, in which a call may hold the interpreter."""
        self.store.set(f"slow/{self.rank}", "yes")
        try:
            yield
        finally:
            self.store.delete_key(f"slow/{self.rank}")

    def report_failure(self, code: int, message: str) -> tuple[Failure, bool]:
        """Report a failure of this rank. Returns the run's first failure, and whether this rank must print it."""
        try:
            failure = self._store_failure(self.store, code, message)
            return failure, self._must_print(first=failure.rank == self.rank)
        except RuntimeError:  # torchrun is gone: each rank has its own failure, and rank 0 prints
            failure = Failure(code, message, self.rank)
            return failure, self._must_print(first=self.rank == 0)

    def missing(self) -> list[int]:
        """Ranks without a beat in the next few BEATs. It is empty if the run has a failure already."""
        others = [rank for rank in range(self.world_size) if rank != self.rank]
        deadline = time.monotonic() + 5 * BEAT
        with contextlib.suppress(RuntimeError):
            before = {rank: _last_beat(self.store, rank) for rank in others}
            while others and time.monotonic() < deadline:
                if self.store.check(["failure"]):
                    return []
                time.sleep(BEAT / 5)
                others = [rank for rank in others if _last_beat(self.store, rank) == before[rank]]
        return others

    def leave(self) -> None:
        """Announce that this rank exits with a failure, and wait up to PARTING seconds for the others to do so."""
        self._exiting.set()
        with contextlib.suppress(RuntimeError):
            self.store.add("exiting", 1)
            self._wait_for("exiting")

    def finish(self) -> None:
        """Wait until all ranks have finished. Raises RankError if one of them failed instead."""
        self.store.add("finished", 1)
        while self.store.add("finished", 0) < self.world_size:
            if self.store.check(["failure"]):
                raise RankError(_stored_failure(self.store).message)
            time.sleep(BEAT / 10)
        self._finished.set()
        self._thread.join()
        self.store.add("parted", 1)
        if self.rank == 0:  # without torchrun the store is a thread of rank 0, which must outlive the last question
            self._wait_for("parted")

    def _wait_for(self, counter: str) -> None:
        """Wait at most PARTING seconds until all ranks have raised the counter."""
        deadline = time.monotonic() + PARTING
        while self.store.add(counter, 0) < self.world_size and time.monotonic() < deadline:
            time.sleep(BEAT / 20)

    def _request_token(self) -> str:
        """The token of this start, from rank 0; its key holds a new id, which no earlier start can have answered."""
        request, deadline = uuid.uuid4().hex, time.monotonic() + START
        self.common.set(f"recur/request/{self.rank}", request)
        while not self.common.check([f"recur/token/{request}"]):
            if time.monotonic() > deadline:
                raise RankError(f"rank 0 has not started within {START:.0f} s")
            time.sleep(BEAT / 20)
        return self.common.get(f"recur/token/{request}").decode()

    def _run(self, common: "Store", store: "Store", token: str) -> None:
        """Beat and watch until the run ends. Rank 0 also sends the token to each rank without a beat."""
        beats = {rank: b"" for rank in range(self.world_size) if rank != self.rank}
        silence = dict.fromkeys(beats, 0.0)
        count, pause = 0, BEAT / 10
        try:
            while not self._finished.wait(pause):
                count += 1
                store.set(f"beat/{self.rank}", str(count))
                if store.check(["failure"]):
                    self._exit(_stored_failure(store), first=False)
                for rank, before in beats.items():
                    beats[rank] = _last_beat(store, rank)
                    # The pauses are added, not the time, so that a stop of this process does not count.
                    silence[rank] = silence[rank] + pause if beats[rank] == before else 0.0
                    if self.rank == 0 and not beats[rank] and common.check([f"recur/request/{rank}"]):
                        common.set(f"recur/token/{common.get(f'recur/request/{rank}').decode()}", token)
                absent = [rank for rank, beat in beats.items() if not beat and silence[rank] > START]
                silent_ranks = [rank for rank, beat in beats.items() if beat and silence[rank] > SILENCE]
                lost = [r for r in silent_ranks if silence[r] > START or not store.check([f"slow/{r}"])]
                if absent or lost:
                    silent = f"sent no heartbeat for {SILENCE:.0f} s: killed, suspended or disconnected"
                    reason = f"not started within {START:.0f} s" if absent else silent
                    failure = self._store_failure(store, LOST, f"{named(absent or lost)} {reason}")
                    self._exit(failure, first=failure.rank == self.rank)
                pause = BEAT if all(beats.values()) else BEAT / 10
        except RuntimeError:
            if not self._finished.is_set():
                gone = Failure(LOST, "torchrun has ended, or cannot be reached", self.rank)
                self._exit(gone, first=self.rank == 0)

    def _exit(self, failure: Failure, *, first: bool) -> NoReturn:
        """Exit for a main thread that blocks on a lost rank; one that does not block has GRACE seconds to exit itself."""
        if self._must_print(first=first):
            print(last_line(failure.code, failure.message), file=sys.__stderr__, flush=True)
        self._exiting.wait(GRACE)
        if self._exiting.is_set():
            time.sleep(GRACE)
        os._exit(failure.code)

    def _store_failure(self, store: "Store", code: int, message: str) -> Failure:
        """Store a failure of this rank if it is the first. Returns the first one."""
        failure = json.dumps(Failure(code, message, self.rank))
        return Failure(*json.loads(store.compare_set("failure", "", failure)))

    def _must_print(self, *, first: bool) -> bool:
        """Whether to print: once, by the rank that failed `first`."""
        return first and self._unprinted.acquire(blocking=False)


def named(ranks: list[int]) -> str:
    """Return the words for `ranks` with their verb, such as `rank 1 has` or `ranks 1, 2 have`."""
    return f"rank {ranks[0]} has" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))} have"


def _last_beat(store: "Store", rank: int) -> bytes:
    return store.get(f"beat/{rank}") if store.check([f"beat/{rank}"]) else b""


def _stored_failure(store: "Store") -> Failure:
    return Failure(*json.loads(store.get("failure")))
