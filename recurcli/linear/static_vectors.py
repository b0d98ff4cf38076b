"""Static vectors of tokens: in the linear model a text's vector is the mean of its tokens' vectors, scaled to norm 1 [ours].

An encoder's embedding may start from them, and has their tokens then. The vectors were made by others from large models: those
in the package wordllama, or a folder of Model2Vec. The tokens are those of the vectors' own tokenizer. Shapes: N rows, K tokens
of the table, M tokens of all texts, S the size of a vector, F the features of a row: S, or 4 S for a pair.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from recurcli.config import SOURCE_DIGEST, LinearConfig, Preset
from recurcli.encoders.folder import folder_of
from recurcli.errors import ModelError, UsageError, escaped
from recurcli.files import OpenedFile, naming_damage, read_limited, stored_arrays
from recurcli.linear.features import VectorTable
from recurcli.linear.ngram_hashes import MAX_TEXT, Texts
from recurcli.log import Log
from recurcli.tokens.tokenizer import MAX_FILE, Tokenizer, read_backend
from recurcli.tokens.vectors import LARGEST, MODEL, TOKENIZER, Vectors, principal_components, read_table
from recurcli.tokens.word_tokens import encodable

PACKAGE = "wordllama"
PACKAGE_FILES = "weights/l2_supercat_256.safetensors", "tokenizers/l2_supercat_tokenizer_config.json"
MAX_FALLBACK = 0.1
"""Largest share of characters that the tokenizer spells in bytes for which `auto` uses the package. Ours: 0 in texts in Latin
letters, 0.22 and more in Chinese ones."""
SAMPLE = 1000
"""Texts on which the share is measured."""
_BYTE = re.compile(r"<0x[0-9A-F]{2}>")


class StaticVectors(VectorTable):
    """A table of vectors that a run keeps, with its tokenizer and where both are from."""

    def __init__(self, values: NDArray[np.int8], scales: NDArray[np.float32], tokenizer: bytes, about: dict[str, str]):
        super().__init__(values, scales, read_backend(tokenizer))
        self.tokenizer = tokenizer
        """The content of tokenizer.json."""
        self.about = about
        """The `source` and its `licence`."""
        count = max(self.backend.get_vocab().values(), default=-1) + 1
        are_small = (np.abs(scales) <= LARGEST / 127).all()  # NaN is not
        if values.ndim != 2 or not len(values) == len(scales) == count or not are_small:
            raise ValueError(f"a table of the shape {values.shape} is none of vectors for {count:,} tokens")

    @classmethod
    def quantize(cls, table: NDArray[np.float32], tokenizer: bytes, about: dict[str, str]) -> "StaticVectors":
        """Return the vectors of `table` (K, S) in 8 bits. Raises ValueError for one that is not finite, or another number K."""
        if not np.isfinite(table).all():
            raise ValueError("a vector is not finite")
        scales = np.maximum(np.abs(table).max(axis=-1), 1e-12).astype(np.float32) / 127
        return cls(np.rint(table / scales[..., None]).astype(np.int8), scales, tokenizer, about)

    @classmethod
    def load(cls, file: OpenedFile) -> "StaticVectors":
        """Read a file with the content of `to_bytes`. Raises ModelError for any other file."""
        with naming_damage(file.path):
            stored = stored_arrays(file)
            about = json.loads(stored["about"].tobytes())
            return cls(stored["values"], stored["scales"], stored["tokenizer"].tobytes(), about)

    @property
    def content(self) -> bytes:
        """The content of a safetensors file."""
        from safetensors.numpy import save

        texts = {"tokenizer": self.tokenizer, "about": json.dumps(self.about, sort_keys=True).encode()}
        arrays = {name: np.frombuffer(content, np.uint8) for name, content in texts.items()}
        return save({"values": self.values, "scales": self.scales, **arrays})

    @cached_property
    def digest(self) -> str:
        """The sha256 of table and tokenizer. It does not depend on where they were found."""
        return sha256(self.values.tobytes() + self.scales.tobytes() + self.tokenizer).hexdigest()

    @property
    def name(self) -> str:
        """Name and version."""
        return self.about["source"]

    @property
    def source(self) -> str:
        """Name, version and sha256."""
        return f"{self.name}@{self.digest}"

    def shares(self, text: str, weights: NDArray[np.float32], side: int) -> list[tuple[tuple[int, int], float]]:
        """Return the place of each token of a text, and its share of the logit that the text's vector has with `weights` (F,).

        `side` is 0 for the first text of a row, which has the first S of the weights, and 1 for the second.
        """
        encoding = self.backend.encode(encodable(text), add_special_tokens=False)
        own, size = self.table[encoding.ids], self.values.shape[1]
        if not len(own):
            return []
        parts = own @ weights[side * size : (side + 1) * size] / max(float(np.linalg.norm(own.sum(axis=0))), 1e-12)
        return list(zip(encoding.offsets, parts.tolist(), strict=True))

    def of_tokens(self, tokens: Sequence[str], size: int) -> Vectors:
        """Return the vectors of `tokens`, or their principal components if `size` is below S. No others are known."""
        table, vocab = self.table, self.backend.get_vocab()
        if size < table.shape[1]:
            table = principal_components(table, size)
        ids = np.array([vocab.get(token, -1) for token in tokens])
        return Vectors(table[ids], ids >= 0)

    def fallback_share(self, texts: Texts) -> float:
        """Return the share of the characters of SAMPLE texts, but for white space, that are spelled in bytes."""
        sample = [encodable(text[:MAX_TEXT]) for row in texts[:: max(1, len(texts) // SAMPLE)] for text in row if text]
        spelled, backend = 0, self.backend
        for text, encoding in zip(sample, backend.encode_batch(sample, add_special_tokens=False), strict=True):
            pieces = zip(encoding.offsets, encoding.tokens, strict=True)
            places = {place for place, token in pieces if _BYTE.fullmatch(token)}
            spelled += sum(end - start for start, end in places if not text[start:end].isspace())
        return spelled / max(1, sum(len("".join(text.split())) for text in sample))


def resolve_vectors(config: LinearConfig, texts: Texts, log: Log) -> LinearConfig:
    """Return `config` with `vectors` as name, version and sha256.

    `auto` becomes the package wordllama if it is installed and its tokens cover `texts`, else None. Raises UsageError for
    vectors that are not there or are not those of the sha256, ModelError for damaged ones.
    """
    if config.vectors is None:
        return config
    _read_folder.cache_clear()  # in a long process the folder may have changed since the last training
    if config.vectors != "auto":
        return replace(config, vectors=read_static_vectors(config.vectors).source)
    try:
        vectors = _read_package()
    except PackageNotFoundError:
        log.note(f"no static vectors: {PACKAGE} is not installed; pip install 'recurcli[vectors]'")
        return replace(config, vectors=None)
    share = vectors.fallback_share(texts)
    if share > MAX_FALLBACK:
        log.detail(f"no static vectors: {PACKAGE} has no tokens for {share:.0%} of the characters")
        return replace(config, vectors=None)
    log.detail(f"static vectors: {vectors.name}")
    return replace(config, vectors=vectors.source)


def vectors_of_tokens(preset: Preset) -> StaticVectors | None:
    """Return the static vectors whose tokens those of `preset` are; None: it has others. Raises as `read_static_vectors`."""
    source = preset.embedding.vectors if preset.tokenizer.kind == "vectors" else None
    return None if source is None else read_static_vectors(source, "embedding.vectors")


def resolve_vectors_of_tokens(preset: Preset) -> Preset:
    """Return `preset` with name, version and sha256 of the static vectors whose tokens it has, if any."""
    _read_folder.cache_clear()  # as in `resolve_vectors`
    vectors = vectors_of_tokens(preset)
    return preset if vectors is None else replace(preset, embedding=replace(preset.embedding, vectors=vectors.source))


def tokenizer_of_vectors(preset: Preset) -> Tokenizer | None:
    """Return the tokenizer of the static vectors whose tokens those of `preset` are; None: it has others."""
    if (vectors := vectors_of_tokens(preset)) is None:
        return None
    try:
        return Tokenizer.of_vectors(vectors.tokenizer)
    except ModelError as error:
        raise ModelError(f"{escaped(vectors.name)}: {error}") from None


def read_static_vectors(source: str, key: str = "linear.vectors") -> StaticVectors:
    """Read the vectors of `source`: wordllama, with or without a version, a folder of Model2Vec, or its name on the Hub.

    After an @ it may have their sha256. Raises UsageError, which names the preset's `key`, if they are not there, are of
    another version, or not those of the sha256; ModelError if they are damaged.
    """
    name = SOURCE_DIGEST.sub("", source)
    digest = source[len(name) + 1 :]
    if not (name == PACKAGE or name.startswith(f"{PACKAGE}==")):
        vectors, way_out = _read_folder(name, key), "restore its files"
    else:
        way_out = f"pip install {name}"
        try:
            vectors = _read_package()
        except PackageNotFoundError:
            raise UsageError(f"{key} {escaped(name)}: is not installed; {way_out}, or set it to null") from None
        if name not in (PACKAGE, vectors.name):
            raise UsageError(f"{key} {escaped(name)}: {vectors.name} is installed; {way_out}, or set it to null")
    if digest not in ("", vectors.digest):
        fault = f"its vectors do not have the sha256 {digest[:12]}…"
        raise UsageError(f"{key} {escaped(name)}: {fault}; {way_out}, or set it to null")
    return vectors


@lru_cache(maxsize=1)
def _read_package() -> StaticVectors:
    """Read the vectors in the installed package wordllama, which is not imported. Raises PackageNotFoundError."""
    package = distribution(PACKAGE)
    source, facts = f"{PACKAGE}=={package.version}", package.metadata
    table, tokenizer = (Path(str(package.locate_file(f"{PACKAGE}/{file}"))) for file in PACKAGE_FILES)
    if not (table.is_file() and tokenizer.is_file()):
        raise ModelError(f"{source}: has no {' and no '.join(PACKAGE_FILES)}; set linear.vectors=null")
    licence = str(facts["License"] or facts["License-Expression"] or "unknown").splitlines()[0]
    with naming_damage(table):
        values = stored_arrays(OpenedFile(table))["embedding.weight"].astype(np.float32)
        about = {"source": source, "licence": licence}
        return StaticVectors.quantize(values, read_limited(tokenizer, MAX_FILE), about)


@lru_cache(maxsize=2)
def _read_folder(name: str, key: str) -> StaticVectors:
    """Read a folder of Model2Vec, or the one of this name on the Hub."""
    folder = folder_of(name, download=True, key=key, files=(MODEL, TOKENIZER, "README.md"))
    table, rows, factors, _ = read_table(folder)
    card = folder / "README.md"
    words = read_limited(card, MAX_FILE).decode(errors="replace") if card.is_file() else ""
    stated = re.search(r"^license: *(\S+)", words, re.MULTILINE)
    about = {"source": name, "licence": stated[1] if stated else "unknown"}
    with naming_damage(folder):
        vectors = table[rows].astype(np.float32) * factors[:, None].astype(np.float32)
        return StaticVectors.quantize(vectors, read_limited(folder / TOKENIZER, MAX_FILE), about)
