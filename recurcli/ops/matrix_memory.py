"""Memories that are matrices, in parallel over the positions of a chunk, each beside its definition as a loop.

    S_t = a_t (I - β_t k_t k_t^T) S_(t-1) + β_t k_t v_t^T,   S_0 = 0,   o_t = S_t^T q_t       a delta rule
    S_t = a_t S_(t-1) + k_t v_t^T                                                             without β

Within a chunk, S_t = g_t S + sum_(j<=t) (g_t / g_j) k_j u_j^T, where g_t is the product of the decays so far, S the state
before the chunk, and u_j = v_j without β. With β, u solves the triangular system of the WY form (Yang et al., Parallelizing
Linear Transformers with the Delta Rule over Sequence Length, 2024, section 3.2; with decays Yang et al., Gated Delta Networks,
2025, section 3.3). Shapes: B batch, H heads, T positions, K and V sizes of keys and values.
"""

import torch
from torch import Tensor

from recurcli.ops.chunks import joined, split, split_rows

CHUNK = 32
"""The most positions of a chunk. Ours."""
LEAST_DECAY = 1e-12
"""The least magnitude of a decay, which has a logarithm. Ours."""


def matrix_memory(query: Tensor, key: Tensor, value: Tensor, decay: Tensor, beta: Tensor | None = None) -> Tensor:
    """Return o of q, k (B, H, T, K), v (B, H, T, V), decays a in [-1, 1] and β in [0, 2] (B, H, T): (B, H, T, V).

    With β the keys have norm 1 at most.
    """
    length = query.shape[2]
    chunk = -(-length // -(-length // CHUNK))  # equal chunks, of CHUNK positions at most
    query, key, value = (split(part, chunk) for part in (query, key, value))  # (B, H, N, C, …)
    decay = split_rows(decay, chunk)
    logs = decay.abs().clamp(min=LEAST_DECAY).log().cumsum(dim=-1)  # (B, H, N, C)
    signs = torch.where(decay < 0, -1.0, 1.0).to(decay.dtype).cumprod(dim=-1)
    later = torch.ones(chunk, chunk, dtype=torch.bool, device=query.device).triu(1)
    ratios = (logs[..., :, None] - logs[..., None, :]).masked_fill(later, -torch.inf).exp()
    ratios, since = ratios * signs[..., :, None] * signs[..., None, :], logs.exp() * signs
    reading = None
    if beta is not None:
        beta = split_rows(beta, chunk)
        overlaps = (beta[..., None] * ratios * (key @ key.mT)).tril(-1)
        sides = torch.cat([beta[..., None] * value, (beta * since)[..., None] * key], dim=-1)
        solved = torch.linalg.solve_triangular(overlaps, sides, upper=False, unitriangular=True)
        value, reading = solved.split([value.shape[-1], key.shape[-1]], dim=-1)  # u = value - reading S
    weights = (query @ key.mT) * ratios
    found = weights @ value
    if query.shape[2] > 1:
        kept = (key * ratios[..., -1, :, None]).mT  # what the state after the chunk has of each position
        states = _states_before(kept, value, reading, since[..., -1])
        found = found + (query * since[..., None]) @ states
        if reading is not None:
            found = found - weights @ (reading @ states)
    return joined(found, length)


def _states_before(kept: Tensor, value: Tensor, reading: Tensor | None, decay: Tensor) -> Tensor:
    """Return S before each chunk: S_(n+1) = d_n S_n + kept_n (value_n - reading_n S_n), d (B, H, N): (B, H, N, K, V)."""
    written = kept @ value
    states = [torch.zeros_like(written[:, :, 0])]
    moved = None if reading is None else kept @ reading
    for number in range(written.shape[2] - 1):
        after = decay[:, :, number, None, None] * states[-1] + written[:, :, number]
        states.append(after if moved is None else after - moved[:, :, number] @ states[-1])
    return torch.stack(states, dim=2)


def memory_after(state: Tensor | None, key: Tensor, value: Tensor, decay: Tensor, beta: Tensor | None = None) -> Tensor:
    """Return S_t (B, H, K, V) from S_(t-1), or from 0 if it is None, and k (B, H, K), v (B, H, V), a and β (B, H) of t."""
    if state is not None:
        state = decay[..., None, None] * state
        if beta is not None:
            value = value - (key[..., None, :] @ state).squeeze(-2)
    if beta is not None:
        value = beta[..., None] * value
    written = key[..., None] * value[..., None, :]
    return written if state is None else state + written


def matrix_memory_loop(query: Tensor, key: Tensor, value: Tensor, decay: Tensor, beta: Tensor | None = None) -> Tensor:
    """The definition of `matrix_memory`, one position at a time."""
    state, outputs = query.new_zeros(*query.shape[:2], query.shape[-1], value.shape[-1]), []
    for t in range(query.shape[2]):
        k, v = key[:, :, t, :, None], value[:, :, t, None]
        state = decay[:, :, t, None, None] * state
        if beta is not None:
            b = beta[:, :, t, None, None]
            state, v = state - b * (k @ (k.mT @ state)), b * v
        state = state + k @ v
        outputs.append((query[:, :, t, None] @ state).squeeze(-2))
    return torch.stack(outputs, dim=2)
