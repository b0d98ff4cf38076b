"""Files that are made once and found again: `$RECUR_CACHE`, or else `~/.cache/recurcli`.

A file's name there is a hash of everything that its content depends on.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from recurcli.errors import StorageError
from recurcli.files import locked, replacing, sha256_of, to_json, write_atomically, writing

FORMAT = 1
"""Version of the cached files; a part of their names, so that another version writes new ones."""


def cache_folder() -> Path:
    """Return the cache folder. Raises StorageError if the home directory that `~` stands for is unknown."""
    folder = os.environ.get("RECUR_CACHE") or f"{os.environ.get('XDG_CACHE_HOME') or '~/.cache'}/recurcli"
    try:
        return Path(folder).expanduser()
    except RuntimeError:
        raise StorageError(f"{folder}: there is no such home folder; set RECUR_CACHE to a folder") from None


def cached(
    depends_on: tuple[object, ...], suffix: str, write: Callable[[Path], dict[str, Any]], *, wait: bool = True
) -> tuple[Path, dict[str, Any]]:
    """Return a file of the cache and the facts about it, both from `write` if the file is missing or damaged.

    The facts and the file's sha256 are in a JSON file beside it. One process at a time writes the file; the others wait, or
    get a StorageError if `wait` is False. Raises StorageError if the cache cannot be written.
    """
    name = hashlib.sha256(repr((FORMAT, *depends_on)).encode(errors="surrogatepass")).hexdigest()[:32]
    path = cache_folder() / f"{name}{suffix}"
    sidecar = path.with_name(f"{path.name}.json")
    if facts := _verified(path, sidecar):
        return path, facts
    try:
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with locked(path.with_name(f"{path.name}.lock"), wait=wait):
                if facts := _verified(path, sidecar):  # another process wrote it meanwhile
                    return path, facts
                with replacing(path) as temporary:
                    facts = write(temporary)
                    write_atomically(sidecar, to_json({**facts, "sha256": sha256_of(temporary)}))
                return path, facts
    except StorageError as error:
        error.add_note("this file belongs to recur's cache; set RECUR_CACHE to use another folder")
        raise


def _verified(path: Path, sidecar: Path) -> dict[str, Any] | None:
    """Return the facts about a file of the cache; None if it is missing or damaged."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        facts: dict[str, Any] = json.loads(sidecar.read_text(encoding="utf-8"))
        if facts["sha256"] == sha256_of(path):
            return facts
    return None
