"""The linear model on TF-IDF vectors of n-grams, for predict.py. Shapes: N rows, V n-grams, C labels.

It may have static vectors of tokens too, of which a text has the mean: S values, F features of a row.
"""

from pathlib import Path
from typing import Any

import numpy as np
from ngram_hashes import MAX_TEXT, Columns, NgramConfig, hash_ngrams


class Linear:
    def __init__(self, path: Path, config: dict[str, Any]) -> None:
        stored = np.load(path)
        self.keys, self.idf = stored["keys"], stored["idf"]  # (V,), the n-grams' hashes, ascending, and their weights
        self.weights, self.bias = stored["weights"], stored["bias"]  # (V, C) and (C,)
        self.columns = Columns(self.keys)
        self.config = NgramConfig(**config["ngrams"])
        self.vectors = Vectors(path.parent) if config["vectors"] else None

    def logits(self, rows: list[tuple[str, ...]]) -> Any:
        """Return the logits (N, C): the TF-IDF vectors of `rows` times the weights."""
        hashes, place = hash_ngrams([(row[0], row[1] if len(row) > 1 else None) for row in rows], self.config)
        columns = self.columns.of(hashes)
        known = columns >= 0
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


class Vectors:
    def __init__(self, folder: Path) -> None:
        import tokenizers

        stored = np.load(folder / "vectors.npz")
        self.values, self.scales = (
            stored["values"],
            stored["scales"],
        )  # (K, S) of 8 bits, and a factor for each token (K,)
        self.weights = stored["weights"]  # (F, C)
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
        cut = [text[:MAX_TEXT] for text in texts]
        means = np.zeros((len(texts), self.values.shape[1]))
        for row, encoding in enumerate(self.tokenizer.encode_batch_fast(cut, add_special_tokens=False)):
            if ids := encoding.ids:
                means[row] = self.scales[ids] @ self.values[ids] / len(ids)
        return means


def unit(vectors: Any) -> Any:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
