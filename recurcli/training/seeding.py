"""Randomness with an owner: every step draws from seeds made of (run's seed, step), so a resume repeats it."""

import numpy as np
import torch


def derived_seed(*parts: int) -> int:
    """One 63-bit seed from several numbers, unrelated to that of any other numbers."""
    return int(np.random.SeedSequence(parts).generate_state(1, np.uint64)[0] >> np.uint64(1))


def seed_step(seed: int, step: int, rank: int = 0) -> torch.Generator:
    """Seed torch's own generators (dropout draws from them) for step `step` of a run; returns one for masking.

    Each process drops units of its own; what is masked must not depend on how many there are.
    """
    torch.manual_seed(derived_seed(seed, 1, step, rank))
    return torch.Generator().manual_seed(derived_seed(seed, 2, step, 0))


def seed_weights(seed: int) -> None:
    """Seed torch's generators for the drawing of initial weights."""
    torch.manual_seed(derived_seed(seed, 0))
