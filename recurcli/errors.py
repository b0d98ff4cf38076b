"""The errors that a user can cause, with their exit codes, and helpers for their messages."""

import difflib
import html
import importlib.util
import shlex
import signal
import unicodedata
from collections.abc import Iterable, Sequence
from itertools import islice


class RecurError(Exception):
    """Base of the errors whose message is written for the user; anything else that escapes is a bug (exit 1)."""

    exit_code = 1


class UsageError(RecurError):
    """Wrong usage, preset or configuration."""

    exit_code = 2


class DataError(RecurError):
    """Input data that cannot be read as what it should be."""

    exit_code = 3

    def __init__(self, message: str, *, options: Sequence[str] = ()) -> None:
        """`options`: those which the user may add to the command, and which would let it work (see `way_out`)."""
        super().__init__(message)
        self.options = tuple(options)


class ModelError(RecurError):
    """A model or checkpoint that is damaged, foreign or unsafe."""

    exit_code = 4


class StorageError(RecurError):
    """Input or output that failed: a full disk, a read-only folder, a locked run."""

    exit_code = 5


class RankError(RecurError):
    """Another rank of the run failed or was lost."""

    exit_code = 5


class NumericError(RecurError):
    """A number is NaN or infinite."""

    exit_code = 6


class Interrupted(RecurError):
    """Raised after a signal asked the command to stop. What a resume needs is then saved."""

    def __init__(self, signal_number: int, message: str) -> None:
        super().__init__(message)
        self.exit_code = 128 + signal_number
        self.signal = signal.Signals(signal_number)


_LACK_OF_MEMORY = ("DefaultCPUAllocator", "can't allocate memory", "out of memory", "bad_alloc", "STATUS_ALLOC_FAILED")
"""Parts of the messages of torch's RuntimeErrors for a lack of memory. Torch has no type of its own for it on a CPU."""


def require_extra(extra: str, user: str, *packages: str) -> None:
    """Raise UsageError if a package of the `extra` of recurcli, which `user` needs, is not installed."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise UsageError(f"{user} needs {package}: pip install 'recurcli[{extra}]'")


def is_lack_of_memory(error: BaseException) -> bool:
    """Whether `error` says that the memory of the machine or of the GPU is full."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _LACK_OF_MEMORY)


def last_line(code: int, message: str) -> str:
    """The line on stderr that ends a command. A stop by a signal (128 and above) is not called an error."""
    return f"recur: {message}" if code > 128 else f"recur: error: {message}"


def way_out(arguments: Sequence[str], options: Sequence[str]) -> str:
    """The line on stderr below that of an error: the command of the `arguments` with the `options` that answer the error.

    The options stand before `--`, after which arguments are no options.
    """
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return f"recur: try: {escaped(shlex.join(['recur', *arguments[:end], *options, *arguments[end:]]), limit=4000)}"


def check_not_both(*, resume: bool, overwrite: bool) -> None:
    """Raise UsageError if --resume and --overwrite are both given."""
    if resume and overwrite:
        raise UsageError("--resume and --overwrite exclude each other; leave out one")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of an error message about an unknown `word`: its nearest known name, or all names when none is near.

    Of more than 1,000 names only the first are compared, since this is asked about each bad row.
    """
    names = sorted(islice(known, 1000))
    near = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    if near:
        return f"; did you mean '{near[0]}'?"
    if len(names) > 30:
        return ""
    return f"; known: {', '.join(names)}" if names else ""


def pluralize(number: int, noun: str, verb: str = "", *, of: int | None = None) -> str:
    """Return a number with its noun: "1 row" or "2 rows", or with `of` "1 of 2 rows".

    `verb` is are, were or have; it follows in the singular if the number or the noun is.
    """
    one = {"are": "is", "were": "was", "have": "has"}
    what = f"{number:,}{'' if of is None else f' of {of:,}'} {noun}{'' if (number if of is None else of) == 1 else 's'}"
    return f"{what} {one[verb] if 1 in (number, of) else verb}" if verb else what


def quoted(names: Sequence[str], limit: int = 8) -> str:
    """Return the first names in quotes, `limit` at most."""
    return ", ".join([*(f"'{escaped(name)}'" for name in names[:limit]), *["…"][: len(names) > limit]])


def html_table(rows: Iterable[Iterable[object]], columns: Sequence[str] = ()) -> str:
    """Return a table of HTML, whose cells are escaped; the first cell of each row, and the names of `columns`, are headers."""
    shown = ([html.escape(escaped(cell)) for cell in row] for row in rows)
    lines = [f"<tr><th>{name}</th>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>" for name, *cells in shown]
    names = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in columns)
    return f"<table>{f'<tr>{names}</tr>' * bool(names)}{''.join(lines)}</table>"


def escaped(text: object, limit: int = 120) -> str:
    """`text` on one line and safe for a terminal: control, bidi and line-separator characters escaped, its end cut."""
    shown = "".join(
        character
        if character == " " or unicodedata.category(character)[0] not in "CZ"
        else character.encode("unicode_escape").decode("ascii")
        for character in str(text)[: limit + 1]
    )
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"
