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

    try:
        lines = requires("recurcli") or []
    except PackageNotFoundError:
        return {}
    words = {}
    for line in lines:
        wanted, _, marker = line.replace('"', "'").partition(";")
        if marker.strip() != (f"extra == '{extra}'" if extra else ""):
            continue
        name = re.split(r"[^\w.-]", wanted, maxsplit=1)[0]
        try:
            found = version(name)
        except PackageNotFoundError:
            if find_spec(name):
                continue
            found = ""
        failed = []
        for sign, number in re.findall(r"(>=|!=) *([\w.+]+)", wanted):
            if not found or (found == number if sign == "!=" else _release(found) < _release(number)):
                failed.append(f"{'≥' if sign == '>=' else 'other than'} {number}")
        if failed:
            words[name] = f"{name} {' and '.join(failed)}, found {found or 'none'}"
    return words


def _release(version: str) -> list[int]:
    """Return the numbers of a version without zeros at the end. A pre-release has those of its release."""
    numbers = re.split(r"[^\d.]", version, maxsplit=1)[0].strip(".")
    return [*map(int, re.sub(r"(\.0+)+$", "", numbers).split("."))]


def check_packages(extra: str = "", user: str = "recur", only: Collection[str] = ()) -> None:
    """Raise UsageError if packages that recurcli requires, by itself or for its `extra`, are missing or of other versions.

    `user` is what needs them; `only` some of them matter, by default all.
    """
    if failed := {name: words for name, words in unmet(extra).items() if not only or name in only}:
        packages = f"'recurcli[{extra}]'" if extra else f"--upgrade {' '.join(failed)}"
        raise UsageError(f"{user} needs {' and '.join(failed.values())}: pip install {packages}")
