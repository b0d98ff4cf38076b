"""The folder of one run: who may write to it, what is in it, and its metrics file.

The names are a contract: scripts and other floors find them by the constants here and in `evaluation/trained.py`.
"""

import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from recurcli.errors import ModelError, UsageError
from recurcli.files import MANIFEST, locked, open_no_follow, sync_directory, remove, to_json, write_atomically, writing

CONTENTS = (
    "preset.yaml",
    "config.json",
    "model.safetensors",
    "tokenizer.json",
    MANIFEST,
    "metrics.jsonl",
    "predictions.dev.jsonl",
    "result.json",
    "README.md",
    "checkpoints",
)
"""All that a run writes, besides its lock."""
LOCK = ".lock"
RunStatus = Literal["new", "resume", "finished"]


def _is_leftover(name: str) -> bool:
    """Whether `name` is that of a half-written file, ours or of safetensors, which a kill left behind."""
    ours = name.endswith(".tmp") and name.startswith(tuple(f".{own}." for own in CONTENTS))
    return ours or re.fullmatch(r"\.tmp[A-Za-z0-9]{6}", name) is not None


class RunDirectory:
    """One run's folder at `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.preset = path / "preset.yaml"
        self.metrics = path / "metrics.jsonl"
        self.result = path / "result.json"
        self.checkpoints = path / "checkpoints"

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Be the only recur in this folder, made if need be; a folder that stays empty is taken away again.

        What a kill left half-written is taken away too. Raises StorageError at once when another process is at work
        here, or nothing can be written.
        """
        created = not self.path.exists()
        try:
            with writing(self.path):
                self.path.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            raise UsageError(f"{self.path}: is a file, not a folder; choose another --output") from None
        with locked(self.path / LOCK):
            for entry in list(self.path.iterdir()):
                if _is_leftover(entry.name):
                    remove(entry)
            try:
                yield
            finally:
                # Still under the lock: nobody else can have begun here. One who comes now makes the folder anew.
                if created and [entry.name for entry in self.path.iterdir()] == [LOCK]:
                    (self.path / LOCK).unlink()
                    with contextlib.suppress(OSError):
                        self.path.rmdir()

    def admit(self, *, resume: bool, overwrite: bool) -> RunStatus:
        """What a training may do here; UsageError when it would destroy something that it was not told to."""
        if resume and overwrite:
            raise UsageError("--resume and --overwrite exclude each other")
        entries = [entry.name for entry in self.path.iterdir()] if self.path.is_dir() else []
        present = [name for name in entries if name != LOCK and not _is_leftover(name)]
        if not present:
            return "new"
        if "preset.yaml" not in present:
            raise UsageError(f"{self.path}: holds other things and no run; choose another --output")
        if overwrite:
            return "new"
        if not resume:
            raise UsageError(f"{self.path}: a run is here already; go on with --resume, or start anew with --overwrite")
        return "finished" if self.result.is_file() else "resume"

    def clear(self) -> None:
        """Take away what an older run left, but for its preset: a kill in between leaves an unfinished run.

        All checkpoints go at once, and first: a resume after that kill must find none to go on from.
        """
        if self.checkpoints.is_dir() and not self.checkpoints.is_symlink():
            with writing(self.checkpoints):
                aside = self.path / f".{self.checkpoints.name}.{os.getpid()}.tmp"
                self.checkpoints.rename(aside)
                sync_directory(self.path)
            remove(aside)
        for name in ("result.json", MANIFEST, *CONTENTS):
            if name != "preset.yaml" or (self.path / name).is_dir():
                remove(self.path / name)

    def read_result(self) -> dict[str, Any]:
        """The stored result of a finished run."""
        try:
            result = json.loads(self.result.read_bytes())
            if not isinstance(result, dict) or "parameters" not in result:
                raise ValueError("it holds no result")
        except (ValueError, RecursionError) as error:
            raise ModelError(f"{self.result}: is damaged: {error}") from None
        return result

    def write_result(self, result: Mapping[str, Any]) -> None:
        """Store the result, which is what makes a run finished."""
        write_atomically(self.result, to_json(result))

    def cut_metrics(self, last_step: int) -> None:
        """Drop lines of steps after `last_step`, which a resume will write again, and a line that a kill cut."""
        if not self.metrics.is_file():
            self.metrics.unlink(missing_ok=True)  # a link that leads nowhere
            return
        kept = []
        for line in self.metrics.read_bytes().split(b"\n"):
            try:
                if json.loads(line)["step"] <= last_step:
                    kept.append(line + b"\n")
            except (ValueError, KeyError, TypeError, RecursionError):
                continue
        write_atomically(self.metrics, b"".join(kept))

    def append_metrics(self, line: Mapping[str, Any]) -> None:
        """Add one line to metrics.jsonl, on the disk before a checkpoint can say that it is there."""
        with writing(self.metrics), open_no_follow(self.metrics) as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
            file.flush()
            os.fsync(file.fileno())
