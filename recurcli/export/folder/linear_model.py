"""The linear model on TF-IDF vectors of n-grams, for predict.py. Shapes: N rows, V n-grams, C labels.

It may have static vectors of tokens too, of which a text has the mean: S values, F features of a row.
"""

import re
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

ONE, PRIME = np.uint64(1), np.uint64(0x9E3779B97F4A7C15)


class Linear:
    def __init__(self, path: Path, config: dict[str, Any]) -> None:
        stored = np.load(path)
        self.keys, self.idf = stored["keys"], stored["idf"]  # (V,), the n-grams' hashes, ascending, and their weights
        self.weights, self.bias = stored["weights"], stored["bias"]  # (V, C) and (C,)
        self.config, self.longest_text = config["ngrams"], config["longest_text"]
        self.vectors = Vectors(path.parent, self.longest_text) if config["vectors"] else None

    def logits(self, rows: list[tuple[str, ...]]) -> Any:
        """Return the logits (N, C): the TF-IDF vectors of `rows` times the weights."""
        hashes, place = self.ngrams(rows)
        columns = np.searchsorted(self.keys, hashes).clip(max=len(self.keys) - 1)
        known = self.keys[columns] == hashes
        cells, counts = np.unique(place[known] * len(self.keys) + columns[known], return_counts=True)
        place, columns = np.divmod(cells, len(self.keys))
        values = (1 + np.log(counts)) * self.idf[columns]
        # the n-grams of characters of a row have norm 1, and those of words
        part = place * 2 + (self.keys[columns] & np.uint64(1)).astype(np.int64)
        values /= np.sqrt(np.bincount(part, values**2, minlength=1))[part]
        logits = np.tile(self.bias, (len(rows), 1))
        filled, starts = np.unique(place, return_index=True)
        logits[filled] += np.add.reduceat(values.astype(np.float32)[:, None] * self.weights[columns], starts)
        return logits if self.vectors is None else logits + self.vectors.logits(rows)

    def ngrams(self, rows: list[tuple[str, ...]]) -> Any:
        """Return the hash of each n-gram of each row, and its row."""
        sides = [self.ngrams_of_texts(texts) for texts in zip(*rows, strict=True)]
        if len(sides) == 2:  # n-grams of the first text only, of the second only, and of both
            in_row = [mix(keys + place.astype(np.uint64) * PRIME) for keys, place in sides]
            for side, (keys, place) in enumerate(sides):
                alone = np.uint64(self.config[("first_text", "second_text")[side]])
                mark = np.where(np.isin(in_row[side], in_row[1 - side]), np.uint64(self.config["both_texts"]), alone)
                sides[side] = (mix(keys + mark) & ~ONE | keys & ONE, place)
        return tuple(map(np.concatenate, zip(*sides, strict=True)))

    def ngrams_of_texts(self, texts: tuple[str, ...]) -> Any:
        """Return the hash of each n-gram of each text, and its row."""
        found = [(np.zeros(0, np.uint64), np.zeros(0, np.int64))]
        lower = [text[: self.longest_text].lower() for text in texts]
        for is_word, (shortest, longest) in enumerate((self.config["characters"], self.config["words"])):
            if not longest:
                continue
            kind, separator, units = is_word, None, [list(text) for text in lower]
            if is_word:
                units = [re.findall(self.config["word_pattern"], text) for text in lower]
            elif not self.config["across_words"]:
                kind, separator, units = (
                    2,
                    " ",
                    [list(f" {' '.join(text.split())} ") if text.strip() else [] for text in lower],
                )
            numbers = {unit: hash_word(unit) if is_word else ord(unit) for unit in {u for text in units for u in text}}
            codes = np.array([numbers[unit] for text in units for unit in text], np.uint64)
            lengths = np.array([len(text) for text in units])
            row, starts = np.repeat(np.arange(len(units)), lengths), np.arange(len(codes))
            ends, hashes = np.repeat(np.cumsum(lengths), lengths), np.zeros(len(codes), np.uint64)
            if separator:  # an n-gram ends with the next space after its first character, at the latest
                spaces = np.flatnonzero(codes == ord(separator))
                following = np.append(spaces, len(codes))[np.searchsorted(spaces, starts, side="right")]
                ends = np.minimum(ends, following + 1)
            for n in range(1, longest + 1):
                inside = starts + n <= ends[starts]  # the n-grams of one text
                starts, hashes = starts[inside], hashes[inside]
                hashes = hashes * PRIME + codes[starts + n - 1] + ONE
                if n >= shortest:
                    key = mix(hashes + np.uint64((kind << 8) + n)) & ~ONE | np.uint64(is_word)
                    found.append((key, row[starts]))
        return tuple(map(np.concatenate, zip(*found, strict=True)))


class Vectors:
    def __init__(self, folder: Path, longest_text: int) -> None:
        import tokenizers

        stored = np.load(folder / "vectors.npz")
        self.values, self.scales = (
            stored["values"],
            stored["scales"],
        )  # (K, S) of 8 bits, and a factor for each token (K,)
        self.weights, self.longest_text = stored["weights"], longest_text  # (F, C)
        self.tokenizer = tokenizers.Tokenizer.from_file(str(folder / "vectors.tokenizer.json"))
        self.tokenizer.encode_special_tokens = True  # the name of a special token in a text is text
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()

    def logits(self, rows: list[tuple[str, ...]]) -> Any:
        """Return the logits (N, C): each vector of a row scaled to norm 1, times the weights."""
        parts = [unit(self.means(texts)) for texts in zip(*rows, strict=True)]
        if len(parts) == 2:
            parts += [unit(np.abs(parts[0] - parts[1])), unit(parts[0] * parts[1])]
        return np.concatenate(parts, axis=1) @ self.weights

    def means(self, texts: tuple[str, ...]) -> Any:
        """Return the mean vector (N, S) of the tokens of each text."""
        cut = [text[: self.longest_text] for text in texts]
        means = np.zeros((len(texts), self.values.shape[1]))
        for row, encoding in enumerate(self.tokenizer.encode_batch_fast(cut, add_special_tokens=False)):
            if ids := encoding.ids:
                means[row] = self.scales[ids] @ self.values[ids] / len(ids)
        return means


def unit(vectors: Any) -> Any:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


def hash_word(word: str) -> int:
    return int.from_bytes(blake2b(word.encode(), digest_size=8).digest(), "little")


def mix(hashes: Any) -> Any:
    """Spread the bits (the finaliser of splitmix64)."""
    hashes = (hashes ^ (hashes >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    hashes = (hashes ^ (hashes >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return hashes ^ (hashes >> np.uint64(31))
