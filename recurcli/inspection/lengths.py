"""The lengths of rows in the tokens of a task's tokenizer."""

from collections.abc import Generator, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recurcli.data.config import DataConfig
from recurcli.data.tasks import Task
from recurcli.events import Note
from recurcli.inspection.locate import UNNAMED, DataFile
from recurcli.inspection.rows import TokenCounter, training_texts
from recurcli.tokens.auto import settled_tokenizer
from recurcli.tokens.config import TokenizerConfig
from recurcli.tokens.tokenizer import Tokenizer, encodable

LARGE = 4 << 20
"""Bytes of training rows from which training a vocabulary takes long enough for a note."""


def prepare_tokens(
    files: Sequence[DataFile], task: Task, config: DataConfig, tokenizer: TokenizerConfig
) -> Generator[Note, None, tuple[dict[str, Any], TokenCounter]]:
    """Return the description of the tokenizer for the report, and a function that counts tokens as training would.

    `vocabulary` in the description is a file, or the split that the vocabulary is trained on; None: lengths do not depend
    on a vocabulary. Raises DataError if the texts give no vocabulary.
    """
    file = next((file for file in files if "train" in file.splits), files[0])
    split, path = file.splits[0], file.source.path
    tokenizer = settled_tokenizer(tokenizer, training_texts(file, task, config))
    trained = needs_texts(tokenizer)
    if trained and path.is_file() and path.stat().st_size > LARGE:
        rows = "its rows" if split == UNNAMED else f"the {split} rows"
        yield Note(
            f"{path}: training a {tokenizer.kind} vocabulary on {rows} to count tokens (--no-lengths skips this)"
        )
    vocabulary = tokenizer.vocabulary or (split if trained else None)
    tokens = {"kind": tokenizer.kind, "max_length": config.max_length, "vocabulary": vocabulary}
    return tokens, token_counter(tokenizer, training_texts(file, task, config))


def needs_texts(config: TokenizerConfig) -> bool:
    """Return whether lengths depend on a vocabulary that must be trained first."""
    return config.kind not in ("char", "byte", "whitespace") and config.vocabulary is None


def token_counter(config: TokenizerConfig, texts: Iterable[str]) -> TokenCounter:
    """Return a function that counts the tokens of rows before truncation, including the separator of a pair.

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
