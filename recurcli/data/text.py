"""Plain text files for pre-training: one text a line."""

import contextlib
import lzma
from pathlib import Path
from typing import BinaryIO, cast

from recurcli.data.examples import Example, Split, judge_bad_rows
from recurcli.data.rows import open_file, rows_of
from recurcli.errors import DataError
from recurcli.files import sha256_of


def is_text_file(path: Path) -> bool:
    """Whether `path` is named like a plain text file: .txt, .txt.gz or .txt.xz."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    return suffixes[-1:] == [".txt"] or suffixes[-2:] in ([".txt", ".gz"], [".txt", ".xz"])


def load_text(path: Path, *, skip_bad_rows: bool = False) -> Split:
    """The lines of a text file as examples without labels; blank lines separate and are no rows.

    Raises DataError if the file is missing, is no UTF-8 text, or has lines that cannot be read (up to 1 % are forgiven
    with `skip_bad_rows`).
    """
    examples: list[Example] = []
    bad: list[str] = []
    number = 0
    with contextlib.ExitStack() as stack:
        stream = stack.enter_context(open_file(path))
        if path.suffix.lower() == ".xz":
            stream = cast(BinaryIO, stack.enter_context(lzma.open(stream)))
        for number, row in enumerate(rows_of(stream, str(path)), 1):
            if not row.whole:
                bad.append(f"{path}:{number}: is too long")
                continue
            try:
                text = row.content.decode()
            except UnicodeDecodeError as error:
                bad.append(f"{path}:{number}: is not UTF-8 at byte {error.start + 1}")
                continue
            if text.strip():
                examples.append(Example(str(number - 1), text, None, None))
    judge_bad_rows(bad, rows=number, name=str(path), skip=skip_bad_rows)
    if not examples:
        raise DataError(f"{path}: has no lines with text")
    return Split(examples, path=path, sha256=sha256_of(path), bad=bad)
