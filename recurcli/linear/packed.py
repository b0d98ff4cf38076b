"""The linear model in few bytes, which JavaScript reads too (`export/page/model.js`): a page holds it.

A key has 48 bits of the hash of an n-gram beside its kind. Weights are integers of 8 or 16 bits with a scale for each label; 16
bits are finer than half precision is at the largest weight. N-grams with the same weights share a record: those of a single
row do. Shapes: V n-grams, U records, C labels.
"""

import gzip
import unicodedata
import zlib
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recurcli.files import OpenedFile, naming_damage, stored_arrays
from recurcli.linear.model import Hyperparameters, LinearModel
from recurcli.linear.ngram_hashes import OTHER, NgramConfig, code_points, kind_of
from recurcli.linear.ngrams import Ngrams

Arrays = dict[str, NDArray[Any]]
LARGEST = 1 << 28
"""Bytes that are read of a page, and of its arrays."""
KEY_MASK = ~np.uint64(0xFFFF) | np.uint64(1)
"""The bits of a hash that are kept; the lowest one is the kind."""
SYMBOL, CASED, IGNORED = 5, 8, 16
"""A symbol or format character, which is an other one to n-grams; whether the lower case of a capital sigma looks at it."""
DOTTED, SIGMA, FINAL_SIGMA = 0x130, 0x3A3, 0x3C2
"""Capital letters whose lower case is two code points, or depends on its neighbours; the small sigma at the end of a word."""


def pack(model: LinearModel, share: float = 1.0, *, bits: int) -> Arrays:
    """Return the arrays of a model without static vectors, whose weights get 8 or 16 `bits`.

    A `share` of its n-grams stays, those with the largest weights: idf times the largest one of a label.
    """
    idf, weights = model.ngrams.weights, model.weights
    order = np.argsort(-idf * np.abs(weights).max(axis=1), kind="stable")
    keys, kept = np.unique(model.ngrams.keys[order[: round(share * len(order))]] & KEY_MASK, return_index=True)
    by_kind = np.argsort(keys & np.uint64(1), kind="stable")
    keys, kept = keys[by_kind], order[kept[by_kind]]
    leading = ((keys & np.uint64(1)) << np.uint64(16) | keys >> np.uint64(48)).astype(np.int64)
    scales = np.maximum(np.abs(weights[kept]).max(axis=0), 1e-30).astype("<f4") / np.float32(2 ** (bits - 1) - 1)
    integers = np.rint(weights[kept] / scales).astype(f"<i{bits // 8}")
    content = np.concatenate([idf[kept].astype("<f4")[:, None].view(np.uint8), integers.view(np.uint8)], axis=1)
    rows = content.view(f"V{content.shape[1]}")[:, 0]
    _, firsts, records, times = np.unique(rows, return_index=True, return_inverse=True, return_counts=True)
    frequent = np.argsort(-times, kind="stable")  # small numbers for them take fewer bytes
    return {
        "rest": (keys >> np.uint64(16)).astype("<u4"),  # (V,) bits 16 to 47 of each key, by kind and ascending
        "records": np.argsort(frequent)[records].astype("<u4"),  # (V,) the record of each n-gram
        "idf": idf[kept][firsts[frequent]].astype("<f4"),  # (U,)
        "bias": model.bias.astype("<f4"),  # (C,)
        "scales": scales,  # (C,) what the integers are multiplied by
        "weights": integers[firsts[frequent]],  # (U, C)
        "counts": np.bincount(leading, minlength=1 << 17).astype("<u2"),  # (2 x 65,536,) keys with these bits 48 to 63
        **character_table(),
    }


def to_bytes(arrays: Arrays) -> bytes:
    """Return the arrays as a compressed safetensors file, which aligns each."""
    from safetensors.numpy import save

    return gzip.compress(save(arrays), 9, mtime=0)


def from_bytes(content: bytes, path: Path) -> Arrays:
    """Return the arrays that `to_bytes` stored, which `path` holds. Raises ModelError if they are damaged."""
    with naming_damage(path):
        found = zlib.decompressobj(wbits=31).decompress(content, LARGEST)
    return stored_arrays(OpenedFile(path, memoryview(found)))


def unpack(arrays: Arrays, config: NgramConfig) -> LinearModel:
    """Return the model that `pack` stored. It finds n-grams by their `KEY_MASK`."""
    bias, idf, records = arrays["bias"], arrays["idf"], arrays["records"]
    leading = np.repeat(np.arange(1 << 17, dtype=np.uint64), arrays["counts"])
    keys = leading << np.uint64(48) | arrays["rest"].astype(np.uint64) << np.uint64(16) | leading >> np.uint64(16)
    weights = arrays["weights"].astype(np.float32) * arrays["scales"]
    order = np.argsort(keys)
    found = Ngrams(config, keys[order], idf[records[order]])
    columns_of = found.columns_of
    found.columns_of = lambda hashes: columns_of(hashes & KEY_MASK)
    return LinearModel(found, weights[records[order]], bias, 0, len(keys), Hyperparameters(config, 1.0))


@lru_cache(maxsize=1)
def character_table() -> Arrays:
    """Return what n-grams and explanations ask of characters, by the tables of this Python.

    Runs of code points have the same `properties`: the kind (1 to 5), CASED and IGNORED. `upper` and `lower` are one code point
    each; the three that are not are named here.
    """
    every = [*map(chr, range(0x110000))]
    kinds = np.fromiter(map(kind_of, every), np.uint8)
    is_symbol = np.fromiter((unicodedata.category(each) in ("So", "Cf") for each in every), bool)
    every[DOTTED] = "I"  # one code point in lower case, and the same properties
    # the small sigma is that of the end of a word after 1 and what is cased, after A and what is either
    sigmas = ("".join(f"{before}{each}\u03a3\n" for each in every).lower() for before in "1A")
    cased, either = (code_points(text)[2::4] == FINAL_SIGMA for text in sigmas)
    properties = np.where(is_symbol & (kinds == OTHER), SYMBOL, kinds) + CASED * cased + IGNORED * (either & ~cased)
    starts = np.flatnonzero(np.append(True, properties[1:] != properties[:-1]))
    lower = code_points("".join(each + "\n" for each in every).lower())[::2]
    upper = np.setdiff1d(np.flatnonzero(lower != np.arange(0x110000)), (DOTTED, SIGMA))
    table = {"starts": starts, "upper": upper, "lower": lower[upper]}
    of_runs = properties[starts].astype(np.uint8)
    return {**{name: own.astype(np.uint32) for name, own in table.items()}, "properties": of_runs}
