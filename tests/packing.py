"""Compresses bytes as each ending of a compressed file says."""

import bz2
import gzip
import io
import lzma
import zipfile
from collections.abc import Callable

import pyarrow


def zipped(content: bytes, *names: str) -> bytes:
    """Returns a zip of files of the same content, beside what macOS adds."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("folder/", *names, "__MACOSX/._x"):
            archive.writestr(name, content)
    return buffer.getvalue()


PACK: dict[str, Callable[[bytes], bytes]] = {
    ".gz": lambda content: gzip.compress(content, mtime=0),
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
    ".zst": lambda content: bytes(pyarrow.compress(content, codec="zstd", asbytes=True)),
    ".zip": lambda content: zipped(content, "folder/x"),
}
