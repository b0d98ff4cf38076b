"""Plain text files for pre-training."""

import gzip
import lzma
from pathlib import Path

import pytest

from recurcli.data.text import is_text_file, load_text
from recurcli.errors import DataError


@pytest.mark.parametrize("name", ["x.txt", "x.txt.gz", "x.txt.xz"])
def test_every_line_with_text_is_a_row(tmp_path: Path, name: str) -> None:
    content = "eins\r\n\nzwei\u2028drei\n\t \nvier".encode()
    packed = {"x.txt": content, "x.txt.gz": gzip.compress(content), "x.txt.xz": lzma.compress(content)}
    (tmp_path / name).write_bytes(packed[name])
    split = load_text(tmp_path / name)
    assert [example.text for example in split.examples] == ["eins", "zwei\u2028drei", "vier"]
    assert all(example.label is None for example in split.examples)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.txt", b"", "has no lines with text"),
        ("x.txt", b"a\n\xff\nb\n", r"x\.txt:2: is not UTF-8"),
        ("x.txt.xz", lzma.compress(b"a\n" * 9999)[:-20], "no complete compressed file"),
        ("x.txt.xz", b"plain\n", "no complete compressed file"),
        ("x.txt.gz", gzip.compress(b"a\n" * 9999)[:-20], "no complete compressed file"),
    ],
)
def test_what_is_no_text_is_refused(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        load_text(tmp_path / name)


def test_only_names_of_text_files_are_text_files() -> None:
    names = {"a.txt": True, "a.b.txt.xz": True, "a.tsv": False, "a.json.gz": False, "txt": False}
    assert {name: is_text_file(Path(name)) for name in names} == names
