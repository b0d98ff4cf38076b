"""How long the rows of a split are in tokens."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recurcli.data.columns.texts import BadRow
from recurcli.data.config import DataConfig
from recurcli.data.examples import example_of, opened
from recurcli.data.sources.find import Source
from recurcli.data.tasks import Task
from recurcli.inspection.rows import Measure, SplitRows
from recurcli.tokens.config import TokenizerConfig
from recurcli.tokens.tokenizer import Tokenizer, encodable

UNTRAINED = ("char", "byte", "whitespace")
"""Kinds of tokens whose number in a text does not depend on a vocabulary."""


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """Tokens a row, a pair's separator included, before anything is cut."""

    minimum: int
    median: float
    mean: float
    p95: float
    p99: float
    maximum: int
    cut: int
    """Rows that are longer than `max_length`."""
    max_length: int

    def to_json(self) -> dict[str, Any]:
        """The same as a mapping."""
        return asdict(self)


def lengths_of(rows: SplitRows, max_length: int) -> Lengths | None:
    """The lengths of a split's rows; None where there are none."""
    if not rows.lengths:
        return None
    lengths = np.array(rows.lengths)
    median, p95, p99 = (float(number) for number in np.percentile(lengths, (50, 95, 99)))
    return Lengths(
        minimum=int(lengths.min()),
        median=median,
        mean=round(float(lengths.mean()), 2),
        p95=round(p95, 2),
        p99=round(p99, 2),
        maximum=int(lengths.max()),
        cut=int((lengths > max_length).sum()),
        max_length=max_length,
    )


def needs_texts(config: TokenizerConfig) -> bool:
    """Whether a tokenizer must be trained before it can tell how long a text is."""
    return config.kind not in UNTRAINED and config.vocabulary is None


def measure_of(config: TokenizerConfig, texts: Iterable[str]) -> Measure:
    """Counts the tokens that rows have in a training whose `texts` are given; DataError where they give no vocabulary."""
    if config.kind not in UNTRAINED:
        return Tokenizer.train(texts, config).lengths
    tokenizer = Tokenizer.train(["a"], replace(config, min_frequency=1, vocabulary=None))
    if config.kind == "byte":
        return partial(_lengths, lambda text: len(encodable(text).encode()))
    if config.kind == "char":  # what the tokenizer would give, without building its tokens
        normalized = tokenizer.backend.normalizer.normalize_str
        return partial(_lengths, lambda text: len(normalized(encodable(text))))
    return tokenizer.lengths


def _lengths(length: Callable[[str], int], rows: Sequence[tuple[str, str | None]]) -> NDArray[np.int64]:
    """As `Tokenizer.lengths`, by the `length` of each text."""
    found = [length(text) + (0 if pair is None else 1 + length(pair)) for text, pair in rows]
    return np.array(found, dtype=np.int64)


def training_texts(source: Source, task: Task, config: DataConfig, *, divided: bool) -> Iterator[str]:
    """Every text that a vocabulary would be made from: those of the usable training rows of `source`."""
    every = task.dev_every or 10
    used = 0
    with opened(source, task, config, labelled=None) as (records, columns):
        for record in records:
            try:
                example = example_of(record, task, columns, source.layout.label_names)
            except BadRow:
                continue
            if example.label is not None and example.label == task.dropped_label:
                continue
            used += 1
            if divided and used % every == 0:
                continue
            yield example.text
            if example.pair is not None:
                yield example.pair
