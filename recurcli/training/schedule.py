"""The learning-rate schedule. It depends on the step alone, so a checkpoint does not store it."""

import math
from dataclasses import replace
from typing import TypeVar

from recurcli.encoders.encoder import Encoder
from recurcli.training.config import OptimizationConfig

Config = TypeVar("Config", bound=OptimizationConfig)


MIN_EPOCHS, MAX_EPOCHS, ROWS_SEEN, ROWS_SEEN_WITH_WORD_DROPOUT = 3, 20, 20_000, 60_000
"""`epochs: auto` shows a model about ROWS_SEEN rows, in MIN_EPOCHS to MAX_EPOCHS passes. Ours: on 5,400 TNEWS headlines
StarSaber was best in 3 epochs (43.8 %; 41.5 in 10), with word_dropout 0.5 in 12 (46.6; 46.2 in 20; other dev rows)."""


def settle_schedule(config: Config, encoder: Encoder, rows: int, *, pretrained: bool) -> Config:
    """Replace `learning_rate: null` by the encoder's rate, from scratch or after pre-training, and `epochs: auto`."""
    rate = encoder.pretrained_learning_rate if pretrained else encoder.scratch_learning_rate
    seen = ROWS_SEEN_WITH_WORD_DROPOUT if getattr(config, "word_dropout", 0) else ROWS_SEEN
    epochs = min(MAX_EPOCHS, max(MIN_EPOCHS, round(seen / rows)))
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
