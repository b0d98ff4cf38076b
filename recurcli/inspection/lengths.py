"""The lengths of rows in the tokens of a task's tokenizer."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recurcli.inspection.rows import TokenCounter
from recurcli.tokens.config import TokenizerConfig
from recurcli.tokens.tokenizer import Tokenizer, encodable


def needs_texts(config: TokenizerConfig) -> bool:
    """Return whether lengths depend on a vocabulary that must be trained first."""
    return config.kind not in ("char", "byte", "whitespace") and config.vocabulary is None


def token_counter(config: TokenizerConfig, texts: Iterable[str]) -> TokenCounter:
    """Return what counts the tokens of rows as a training on `texts` does, a pair's separator included, before any cut.

    Raises DataError if a vocabulary is needed and `texts` give none.
    """
    if config.kind not in ("char", "byte"):
        if config.kind == "whitespace":
            config, texts = replace(config, min_frequency=1, vocabulary=None), ["a"]
        return Tokenizer.train(texts, config).lengths
    backend = Tokenizer.train(["a"], replace(config, min_frequency=1, vocabulary=None)).backend

    def length(text: str) -> int:  # equal to the number of tokens, without building them
        if config.kind == "byte":
            return len(encodable(text).encode())
        return len(backend.normalizer.normalize_str(encodable(text)))

    def lengths(rows: Sequence[tuple[str, str | None]]) -> NDArray[np.int64]:
        counts = [length(text) + (0 if pair is None else 1 + length(pair)) for text, pair in rows]
        return np.array(counts, dtype=np.int64)

    return lengths


def summarize_lengths(lengths: Sequence[int], max_length: int) -> dict[str, Any] | None:
    """Return minimum, quantiles, mean and maximum in tokens, and how many rows `max_length` cuts; None without rows."""
    if not lengths:
        return None
    array = np.array(lengths)
    median, p95, p99 = (round(float(number), 2) for number in np.percentile(array, (50, 95, 99)))
    return {
        "minimum": int(array.min()),
        "median": median,
        "mean": round(float(array.mean()), 2),
        "p95": p95,
        "p99": p99,
        "maximum": int(array.max()),
        "cut": int((array > max_length).sum()),
        "max_length": max_length,
    }
