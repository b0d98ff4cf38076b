"""The updates of gated recurrences, with their gates given.

All tensors have one shape, (..., D); a gate lies in [0, 1].
"""

import torch
from torch import Tensor


def gru_candidate(attended: Tensor, direct: Tensor, reset: Tensor) -> Tensor:
    """c = tanh(r ∘ A + V x): the new content, of which the reset gate can shut out what comes from other positions."""
    return torch.tanh(reset * attended + direct)


def gru_update(hidden: Tensor, candidate: Tensor, update: Tensor) -> Tensor:
    """h' = (1 - z) ∘ h + z ∘ c (Cho et al., 2014, eq. 7, with z for 1 - z)."""
    return torch.lerp(hidden, candidate, update)


def lstm_state(state: Tensor, candidate: Tensor, forget: Tensor, input: Tensor) -> Tensor:
    """s' = f ∘ s + i ∘ u (Hochreiter & Schmidhuber, 1997; Gers et al., 2000)."""
    return forget * state + input * candidate


def lstm_output(state: Tensor, output: Tensor) -> Tensor:
    """h' = o ∘ tanh(s')."""
    return output * torch.tanh(state)
