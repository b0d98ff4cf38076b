"""Pseudo-random numbers that depend on a seed and on indices alone: no generator, and no table with a largest length."""

import torch
from torch import Tensor

PRIME = 2**31 - 1
"""The numbers are below it, so products of two fit in int64."""


def hash_indices(seeds: Tensor, *indices: Tensor | int) -> Tensor:
    """Return a number in [0, 2^31 - 1) for each seed and indices (int64, broadcast together).

    Each index is added to the number so far, and x -> x^5 (mod 2^31 - 1) is applied thrice, with an addition between: a
    permutation, because 5 and 2^31 - 2 have no common factor. So distinct last indices give distinct numbers.
    """
    number = seeds % PRIME
    for index in indices:
        number = (number + index) % PRIME
        for _ in range(3):
            number = (_fifth_power(number) + 11) % PRIME
    return number


def draw_seeds(count: int) -> Tensor:
    """Return seeds (count,) for `hash_indices`, drawn from torch's global generator."""
    return torch.randint(PRIME, (count,))


def _fifth_power(x: Tensor) -> Tensor:
    square = x * x % PRIME
    return square * square % PRIME * x % PRIME
