"""The learning-rate schedule. It depends on the step alone, so a checkpoint does not store it."""

import math

from recurcli.training.config import OptimizationConfig


def learning_rate(step: int, total_steps: int, config: OptimizationConfig) -> float:
    """Return the learning rate of optimiser step `step` (from 0): linear warm-up, then decay by `lr_scheduler`."""
    warmup_steps = round(config.warmup_ratio * total_steps)
    if step < warmup_steps:
        return config.learning_rate * (step + 1) / (warmup_steps + 1)
    progress = (step - warmup_steps) / max(1, total_steps - warmup_steps)
    if config.lr_scheduler == "linear":
        return config.learning_rate * (1 - progress)
    if config.lr_scheduler == "cosine":
        return config.learning_rate * 0.5 * (1 + math.cos(math.pi * progress))
    return config.learning_rate
