"""Reads a folder of folders named by label, one text file a row: the layout of the IMDb archive (Maas et al., 2011)."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from recurcli.data.formats.encodings import TextDecoder
from recurcli.data.formats.rows import BOM, Record, Records, Row, chunks_of, decoded, open_file
from recurcli.errors import DataError, escaped

MAX_TEXT = 64 << 20


def label_folder_records(path: Path, labels: Sequence[str], decoder: TextDecoder) -> Records:
    """Return the texts in `path`/<label>/ as records with `text`, `label` and `id` (the file's name, without .txt).

    Labels come in the order of `labels`; if it is empty, all folders come in the order of their names. The files of a label
    are sorted by name. Files and folders whose names begin with a dot are skipped. Raises DataError if there is no file.
    """
    if foreign := [label for label in labels if label.startswith(".") or Path(label).name != label or "\0" in label]:
        raise DataError(
            f"{path}: the label '{escaped(foreign[0])}' is not the name of a folder in it; change data.labels"
        )
    try:
        names = labels or sorted(folder.name for folder in path.iterdir() if folder.is_dir() and not _is_hidden(folder))
        files = [(label, file) for label in names for file in _files_in(path / label)]
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    if not files:
        raise DataError(f"{path}: has no folders named by label that hold files of text")
    return Records(str(path), "folders", ("text", "label", "id"), _read(path, files, decoder), decoder=decoder)


def _files_in(folder: Path) -> list[Path]:
    files = sorted(file for file in folder.iterdir() if not _is_hidden(file)) if folder.is_dir() else []
    for file in files:
        if file.is_dir():
            raise DataError(f"{file}: is a folder, not a file with a text; move its files up, or the folder away")
    return files


def _is_hidden(path: Path) -> bool:
    return path.name.startswith(".")


def _read(folder: Path, files: Sequence[tuple[str, Path]], decoder: TextDecoder) -> Iterator[Record]:
    for line, (label, path) in enumerate(files, 1):
        content = b""
        with open_file(path) as file:
            for chunk in chunks_of(file, str(path)):
                content += chunk
                if len(content) > MAX_TEXT:
                    break
        whole = b"".join(decoder.to_utf8([content])).removeprefix(BOM)
        text, fault = decoded(Row(whole, len(content) <= MAX_TEXT, decoder))
        name = path.stem if path.suffix == ".txt" else path.name
        fields = {"text": text, "label": _printable(label), "id": _printable(name)}
        yield Record(line, fields, fault and f"{escaped(path.relative_to(folder))} {fault}")


def _printable(name: str) -> str:
    """Return a file's name with bytes that are not UTF-8 replaced."""
    return name.encode(errors="surrogateescape").decode(errors="replace")
