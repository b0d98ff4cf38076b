"""Random seeds. Each step has its own seed, derived from (seed of the run, step), so a resume draws the same numbers."""

import numpy as np
import torch


def derived_seed(*parts: int) -> int:
    """Hash several integers to one 63-bit seed. Different integers give statistically independent seeds."""
    return int(np.random.SeedSequence(parts).generate_state(1, np.uint64)[0] >> np.uint64(1))


def seed_step(seed: int, step: int, rank: int = 0) -> torch.Generator:
    """Seed torch's global generators (for dropout) for step `step`, and return a generator for masking.

    Dropout differs between ranks. Masking does not depend on `rank`, so it is the same for any number of processes.
    """
    torch.manual_seed(derived_seed(seed, 1, step, rank))
    return torch.Generator().manual_seed(derived_seed(seed, 2, step, 0))


def seed_weights(seed: int) -> None:
    """Seed torch's global generators for the initial weights."""
    torch.manual_seed(derived_seed(seed, 0))
