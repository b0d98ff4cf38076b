"""Reads a folder of folders named by label, one text file a row: the layout of the IMDb archive (Maas et al., 2011)."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from recurcli.data.formats.rows import BOM, Record, Records, Row, decoded, open_file
from recurcli.errors import DataError, escaped

LARGEST_TEXT = 64 << 20


def label_folder_records(path: Path, labels: Sequence[str] = ()) -> Records:
    """Return the texts in `path`/<label>/*.txt as records with `text`, `label` and `id` (the file's stem).

    Labels come in the order of `labels` (empty: all folders, sorted), files sorted by name. Raises DataError if there is
    no file.
    """
    try:
        names = labels or sorted(folder.name for folder in path.iterdir() if folder.is_dir())
        files = [(label, file) for label in names for file in sorted((path / label).glob("*.txt"))]
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    if not files:
        raise DataError(f"{path}: has no folders named by label that hold .txt files")
    return Records(str(path), "folders", ("text", "label", "id"), _read(path, files))


def _read(folder: Path, files: Sequence[tuple[str, Path]]) -> Iterator[Record]:
    for line, (label, path) in enumerate(files, 1):
        with open_file(path) as file:
            content = file.read(LARGEST_TEXT + 1)
        text, fault = decoded(Row(content.removeprefix(BOM), len(content) <= LARGEST_TEXT))
        fields = {"text": text, "label": _printable(label), "id": _printable(path.stem)}
        yield Record(line, fields, fault and f"{escaped(path.relative_to(folder))} {fault}")


def _printable(name: str) -> str:
    """Return a file's name with bytes that are not UTF-8 replaced."""
    return name.encode(errors="surrogateescape").decode(errors="replace")
