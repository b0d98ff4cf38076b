"""The learning rate as a function of the step alone, so that a resume has no schedule to restore."""

import math

from recurcli.training.config import OptimizationConfig


def learning_rate(step: int, total_steps: int, config: OptimizationConfig) -> float:
    """The rate of optimiser step `step` (counted from 0): a linear rise over the warm-up, then the decay."""
    warmup_steps = round(config.warmup_ratio * total_steps)
    if step < warmup_steps:
        return config.learning_rate * (step + 1) / (warmup_steps + 1)
    progress = (step - warmup_steps) / max(1, total_steps - warmup_steps)
    if config.lr_scheduler == "linear":
        return config.learning_rate * (1 - progress)
    if config.lr_scheduler == "cosine":
        return config.learning_rate * 0.5 * (1 + math.cos(math.pi * progress))
    return config.learning_rate
