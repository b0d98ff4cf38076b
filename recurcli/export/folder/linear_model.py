"""The linear model on TF-IDF vectors of n-grams, for predict.py. Shapes: N rows, V n-grams, C labels."""

import re
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np


class Linear:
    def __init__(self, path: Path, config: dict[str, Any]) -> None:
        stored = np.load(path)
        self.keys, self.idf = stored["keys"], stored["idf"]  # (V,), the n-grams' hashes, ascending, and their weights
        self.weights, self.bias = stored["weights"], stored["bias"]  # (V, C) and (C,)
        self.ranges = config["ngrams"]  # the shortest and longest n-gram of characters and of words; [0, 0]: none
        self.second_text = config["second_text"]  # what is added to the hash of an n-gram of the second text
        self.longest_text = config["longest_text"]

    def logits(self, rows: list[tuple[str, ...]]) -> Any:
        """Return the logits (N, C): the TF-IDF vectors of `rows`, of norm 1, times the weights."""
        hashes, place = self.ngrams(rows)
        columns = np.searchsorted(self.keys, hashes).clip(max=len(self.keys) - 1)
        known = self.keys[columns] == hashes
        cells, counts = np.unique(place[known] * len(self.keys) + columns[known], return_counts=True)
        place, columns = np.divmod(cells, len(self.keys))
        values = (1 + np.log(counts)) * self.idf[columns]
        values /= np.sqrt(np.bincount(place, values**2, minlength=len(rows)))[place]
        logits = np.tile(self.bias, (len(rows), 1))
        filled, starts = np.unique(place, return_index=True)
        logits[filled] += np.add.reduceat(values.astype(np.float32)[:, None] * self.weights[columns], starts)
        return logits

    def ngrams(self, rows: list[tuple[str, ...]]) -> Any:
        """Return the hash of each n-gram of each row, and its row."""
        found = [(np.zeros(0, np.uint64), np.zeros(0, np.int64))]
        for side, texts in enumerate(zip(*rows, strict=True)):
            lower = [text[: self.longest_text].lower() for text in texts]
            for kind, (shortest, longest) in enumerate(self.ranges):
                if not longest:
                    continue
                units = [re.findall(r"\w+|[^\w\s]", text) if kind else list(text) for text in lower]
                numbers = {unit: hash_word(unit) if kind else ord(unit) for unit in {u for text in units for u in text}}
                codes = np.array([numbers[unit] for text in units for unit in text], np.uint64)
                lengths = np.array([len(text) for text in units])
                row, hashes = np.repeat(np.arange(len(units)), lengths), np.zeros(len(codes), np.uint64)
                left = np.repeat(np.cumsum(lengths), lengths) - np.arange(len(codes))  # units to the end of the text
                for n in range(1, longest + 1):
                    count = max(0, len(codes) - n + 1)
                    hashes = (
                        hashes[:count] * np.uint64(0x9E3779B97F4A7C15) + codes[n - 1 : n - 1 + count] + np.uint64(1)
                    )
                    if n >= shortest:
                        inside = left[:count] >= n  # the n-grams of one text
                        salt = (side * self.second_text + (kind << 8) + n) % 2**64
                        found.append((mix(hashes[inside] + np.uint64(salt)), row[:count][inside]))
        return tuple(map(np.concatenate, zip(*found, strict=True)))


def hash_word(word: str) -> int:
    return int.from_bytes(blake2b(word.encode(), digest_size=8).digest(), "little")


def mix(hashes: Any) -> Any:
    """Spread the bits (the finaliser of splitmix64)."""
    hashes = (hashes ^ (hashes >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    hashes = (hashes ^ (hashes >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return hashes ^ (hashes >> np.uint64(31))
