"""Whether the installed packages have the versions that recurcli requires, which its own metadata state."""

import re
from collections.abc import Collection, Mapping
from functools import cache

from recurcli.errors import UsageError


@cache
def unmet(extra: str = "") -> Mapping[str, str]:
    """Return the packages that recurcli requires, by itself or for its `extra`, and that do not meet this, each in words.

    A package under another name, such as onnxruntime-gpu, has no version that is known, and meets it. Where only the sources
    of recurcli are there, without metadata, nothing is required.
    """
    from importlib.metadata import PackageNotFoundError, requires, version
    from importlib.util import find_spec

    def found(name: str) -> str | None:
        try:
            return version(name)
        except PackageNotFoundError:
            return None

    lines = [] if found("recurcli") is None else requires("recurcli") or []
    words = {}
    for wanted, _, marker in (line.replace('"', "'").partition(";") for line in lines):
        if marker.strip() == (f"extra == '{extra}'" if extra else ""):
            name = re.split(r"[^\w.-]", wanted, maxsplit=1)[0]
            clauses, has = re.findall(r"(>=|!=) *([\w.+]+)", wanted), found(name)
            failed = [
                (sign, number)
                for sign, number in clauses
                if has is None or (has == number if sign == "!=" else _release(has) < _release(number))
            ]
            if failed and not (has is None and find_spec(name)):
                shown = " and ".join(f"{'≥' if sign == '>=' else 'other than'} {number}" for sign, number in failed)
                words[name] = f"{name} {shown}, found {has or 'none'}"
    return words


def _release(version: str) -> list[int]:
    """Return the numbers of a version without zeros at the end. A pre-release has those of its release."""
    numbers = re.split(r"[^\d.]", version, maxsplit=1)[0].strip(".")
    return [int(part) for part in re.sub(r"(\.0+)+$", "", numbers).split(".")]


def check_packages(extra: str = "", user: str = "recur", only: Collection[str] = ()) -> None:
    """Raise UsageError if packages that recurcli requires, by itself or for its `extra`, are missing or of other versions.

    `user` is what needs them; `only` some of them matter, by default all.
    """
    if failed := {name: words for name, words in unmet(extra).items() if not only or name in only}:
        packages = f"'recurcli[{extra}]'" if extra else f"--upgrade {' '.join(failed)}"
        raise UsageError(f"{user} needs {' and '.join(failed.values())}: pip install {packages}")
