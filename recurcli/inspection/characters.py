"""What a text may hold that nobody sees: control, bidi and zero-width characters, and words that others read as missing."""

import re
from collections.abc import Iterator
from typing import Literal

from recurcli.findings import Level

Kind = Literal[
    "nul", "control", "bidi", "replacement", "byte order mark", "line separator", "carriage return", "zero-width"
]
KINDS: dict[Kind, tuple[str, Level, str]] = {
    "nul": ("\\x00", "warning", "a NUL"),
    "control": (
        "\\x01-\\x08\\x0b\\x0c\\x0e-\\x1f\\x7f-\\x84\\x86-\\x9f",
        "warning",
        "control characters, which are no text",
    ),
    "bidi": (
        "\\u061c\\u200e\\u200f\\u202a-\\u202e\\u2066-\\u2069",
        "warning",
        "bidi controls, which turn what is shown around",
    ),
    "replacement": (
        "\\ufffd",
        "warning",
        "U+FFFD, which stands for characters that were lost when the text was decoded",
    ),
    "byte order mark": ("\\ufeff", "warning", "U+FEFF, a byte order mark, inside a text"),
    "line separator": (
        "\\x85\\u2028\\u2029",
        "information",
        "U+0085, U+2028 or U+2029, at which other readers end a line",
    ),
    "carriage return": ("\\r", "information", "a CR inside a text, at which other readers end a line"),
    "zero-width": ("\\u200b-\\u200d\\u2060", "information", "zero-width characters: equal to the eye, not to a model"),
}
"""For each kind: its characters as a regular expression's class has them, how grave it is, and what it is in words."""

_PATTERNS = {kind: re.compile(f"[{characters}]") for kind, (characters, _, _) in KINDS.items()}
_ANY = re.compile(f"[{''.join(characters for characters, _, _ in KINDS.values())}]")

MISSING_WORDS = frozenset(("na", "n/a", "#n/a", "nan", "null", "none", "nil", "<na>"))
"""Texts that the usual readers of tables take for a missing value; recur keeps them as the texts that they are."""


def odd_characters(text: str) -> Iterator[Kind]:
    """The kinds of characters in `text` that should make one look twice, each once."""
    if (text.isprintable() and "\ufffd" not in text) or not _ANY.search(text):
        return
    for kind, pattern in _PATTERNS.items():
        if pattern.search(text):
            yield kind


def is_missing_word(text: str) -> bool:
    """Whether another reader would take the whole text for a missing value."""
    return len(text) < 16 and text.strip().casefold() in MISSING_WORDS


def odd_quotes(text: str) -> set[str]:
    """What is suspicious about the quotes in a field of a TSV, where a quote has no meaning."""
    found = {"odd quotes"} if text.count('"') % 2 else set()
    if len(text) > 1 and text[0] == text[-1] == '"':
        return found | {"quoted field"}
    return found | {"lone quote"} if '"' in (text[0], text[-1]) else found
