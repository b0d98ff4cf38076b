"""A folder of folders named by label, a text file a row: the layout of the IMDb archive (Maas et al., 2011)."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from recurcli.data.formats.records import Record, Records
from recurcli.data.formats.rows import BOM, Row, open_file
from recurcli.data.formats.separated import decoded
from recurcli.errors import DataError, escaped

LARGEST_TEXT = 64 << 20


class LabelFolders(Records):
    """The texts in `path`/<label>/*.txt as records with `text`, `label` and `id` (the file's name without its ending).

    Labels in their order in `labels` – every folder, sorted, where that is empty – and files sorted by name. Raises
    DataError if there are none.
    """

    format = "folders"
    columns = ("text", "label", "id")

    def __init__(self, path: Path, labels: Sequence[str] = ()) -> None:
        super().__init__(str(path))
        try:
            found = labels or sorted(folder.name for folder in path.iterdir() if folder.is_dir())
            self._files = [(label, file) for label in found for file in sorted((path / label).glob("*.txt"))]
        except OSError as error:
            raise DataError(f"{path}: cannot be read: {error.strerror}") from None
        if not self._files:
            raise DataError(f"{path}: has no folders named by label that hold .txt files")
        self.rows = len(self._files)
        self._records = self._read()

    def __next__(self) -> Record:
        return next(self._records)

    def close(self) -> None:
        """Nothing stays open between two rows."""

    def _read(self) -> Iterator[Record]:
        for line, (label, path) in enumerate(self._files, 1):
            with open_file(path) as file:
                content = file.read(LARGEST_TEXT + 1)
            text, fault = decoded(Row(content.removeprefix(BOM), len(content) <= LARGEST_TEXT))
            fields = {"text": text, "label": _name(label), "id": _name(path.stem)}
            yield Record(line, fields, fault and f"{escaped(path.relative_to(self.name))} {fault}")


def _name(name: str) -> str:
    """The name of a file as text, even where it is no UTF-8."""
    return name.encode(errors="surrogateescape").decode(errors="replace")
