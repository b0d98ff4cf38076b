"""The learning-rate schedule. It depends on the step alone, so a checkpoint does not store it."""

import math
from dataclasses import replace
from typing import TypeVar

from recurcli.encoders.encoder import Encoder
from recurcli.training.config import FinetuningConfig, OptimizationConfig

Config = TypeVar("Config", bound=OptimizationConfig)


MIN_EPOCHS, MAX_EPOCHS, ROWS_SEEN, ROWS_SEEN_WITH_WORD_DROPOUT = 3, 20, 20_000, 60_000
"""`epochs: auto` shows a model about ROWS_SEEN rows, or with a word_dropout of 0.5 ROWS_SEEN_WITH_WORD_DROPOUT, in MIN_EPOCHS
to MAX_EPOCHS passes. Ours: on 5,400 TNEWS headlines StarSaber was best in 3 epochs (43.8 %; 41.5 in 10), with word_dropout 0.5
in 12 (46.6; 46.2 in 20; other dev rows); on 9,000 pairs of OCNLI with word_dropout 0.2 in 3 (56.6 %; 7 had 56.9 on the dev rows
after 3 of them and 53.4 at the end)."""


def _rows_seen(config: OptimizationConfig) -> int:
    rate = config.word_dropout if isinstance(config, FinetuningConfig) else 0.0
    assert rate != "auto", "finetune replaces auto"
    return ROWS_SEEN_WITH_WORD_DROPOUT if rate >= 0.5 else ROWS_SEEN


def settle_schedule(config: Config, encoder: Encoder, rows: int, *, pretrained: bool) -> Config:
    """Replace `learning_rate: null` by the encoder's rate, from scratch or after pre-training, and `epochs: auto`."""
    rate = encoder.pretrained_learning_rate if pretrained else encoder.scratch_learning_rate
    epochs = min(MAX_EPOCHS, max(MIN_EPOCHS, round(_rows_seen(config) / rows)))
    return replace(
        config,
        learning_rate=rate if config.learning_rate is None else config.learning_rate,
        epochs=epochs if config.epochs == "auto" else config.epochs,
    )


def learning_rate(step: int, total_steps: int, config: OptimizationConfig) -> float:
    """Return the learning rate of optimiser step `step` (from 0): linear warm-up, then decay by `lr_scheduler`.

    `config.learning_rate` must be a number: `settle_schedule` replaces null.
    """
    assert config.learning_rate is not None
    warmup_steps = round(config.warmup_ratio * total_steps)
    if step < warmup_steps:
        return config.learning_rate * (step + 1) / (warmup_steps + 1)
    progress = (step - warmup_steps) / max(1, total_steps - warmup_steps)
    if config.lr_scheduler == "linear":
        return config.learning_rate * (1 - progress)
    if config.lr_scheduler == "cosine":
        return config.learning_rate * 0.5 * (1 + math.cos(math.pi * progress))
    return config.learning_rate
