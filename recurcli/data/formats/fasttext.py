"""Reads fastText's lines `__label__x text`, one label a line (Joulin et al., EACL 2017; fasttext.cc)."""

import re
from pathlib import Path
from typing import Any

from recurcli.data.formats.rows import Record, Row, decoded, open_file
from recurcli.errors import DataError, escaped

PREFIX = "__label__"
"""fastText's default prefix of a label."""
FASTTEXT_COLUMNS = ("text", "label")
_LABEL = re.compile(rf"(?:^|(?<=[ \t])){PREFIX}([^ \t]*)[ \t]*")


def fasttext_record(line: int, row: Row) -> Record:
    """Return a record with `text` and, if the row has one, `label`. Several labels in a row are a fault."""
    content, fault = decoded(row)
    labels = _LABEL.findall(content)
    fields: dict[str, Any] = {"text": _LABEL.sub("", content).strip(" \t")}
    if labels:
        fields["label"] = labels[0]
    if len(labels) > 1:
        shown = ", ".join(escaped(f"{PREFIX}{label}", 40) for label in labels[:5])
        fault = fault or f"has {len(labels)} labels ({shown}); a row has one"
    return Record(line, fields, fault or ("is blank" if not content.strip() else None))


def is_fasttext(path: Path) -> bool:
    """Return whether a file begins with a labelled line; False if it cannot be read. A .gz file is unpacked."""
    try:
        with open_file(path) as file:
            return file.read(len(PREFIX) + 3).removeprefix(b"\xef\xbb\xbf").startswith(PREFIX.encode())
    except (DataError, OSError, EOFError):
        return False
