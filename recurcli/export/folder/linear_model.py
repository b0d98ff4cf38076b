"""The linear model of this folder, for predict.py. Shapes: N rows, C labels."""

from pathlib import Path
from typing import Any

import numpy as np

from recurcli.linear.features import VectorTable, Vocabulary, ngram_logits, vector_logits
from recurcli.linear.ngram_hashes import NgramConfig


class Linear:
    """The linear model on n-grams, and on static vectors where it has them."""

    def __init__(self, path: Path, config: dict[str, Any]) -> None:
        stored = np.load(path)
        self.weights, self.bias = stored["weights"].astype(np.float32), stored["bias"]  # a weight may have 16 bits
        idf = stored["idf"].astype(np.float32)
        self.vocabulary = Vocabulary(NgramConfig(**config["ngrams"]), stored["keys"], idf)
        self.vectors = None
        if config["vectors"]:
            import tokenizers

            backend = tokenizers.Tokenizer.from_file(str(path.parent / "vectors.tokenizer.json"))
            backend.no_padding()
            backend.no_truncation()
            stored = np.load(path.parent / "vectors.npz")
            self.vectors = VectorTable(stored["values"], stored["scales"], backend)
            self.vector_weights = stored["weights"].astype(np.float32)

    def logits(self, rows: list[tuple[str, ...]]) -> Any:
        """Return the logits (N, C) of texts or pairs."""
        texts = [(row[0], row[1] if len(row) > 1 else None) for row in rows]
        logits = ngram_logits(texts, self.vocabulary, self.weights) + self.bias
        return logits if self.vectors is None else logits + vector_logits(texts, self.vectors, self.vector_weights)
