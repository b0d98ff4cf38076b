"""Linear recurrences with gates, in parallel over the positions, each beside its definition as a loop.

Shapes: B batch, T positions, C channels, N state size, H heads, K and V sizes of keys and values.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

CHUNK = 16
"""Positions of a chunk of `gated_linear_attention`; 16 is the paper's secondary chunk (section 4.3)."""
LEAST_LOG_GATE = -5.0
"""Gates are at least e^-5. Ours: over a chunk their inverse product is then below the largest float32."""


def linear_scan(coefficients: Tensor, values: Tensor) -> Tensor:
    """Return h_t = a_t h_(t-1) + b_t, h_0 = 0, of a in [0, 1] and b: (B, T, C) x 2 -> (B, T, C).

    It is a scan in two levels, with blocks of about √T positions. All blocks are read at once: first for their ends, which are
    then carried from block to block, and again for the states. Products and sums alone keep all digits, at any strength of a.
    """
    length = values.shape[1]
    size = math.isqrt(length - 1) + 1
    padded = (F.pad(part, (0, 0, 0, -length % size)) for part in (coefficients, values))
    parts = (part.reshape(len(part), -1, size, part.shape[-1]).unbind(2) for part in padded)
    steps = list(zip(*parts, strict=True))  # size x 2 x (B, blocks, C)
    product, end = steps[0]
    for coefficient, value in steps[1:]:
        product, end = coefficient * product, coefficient * end + value
    state = F.pad(linear_scan_loop(product, end)[:, :-1], (0, 0, 1, 0))  # before each block
    states = []
    for coefficient, value in steps:
        state = coefficient * state + value
        states.append(state)
    return torch.stack(states, dim=2).flatten(1, 2)[:, :length]


def linear_scan_loop(coefficients: Tensor, values: Tensor) -> Tensor:
    """The definition of `linear_scan`, one position at a time."""
    state, states = torch.zeros_like(values[:, 0]), []
    for coefficient, value in zip(coefficients.unbind(1), values.unbind(1), strict=True):
        state = coefficient * state + value
        states.append(state)
    return torch.stack(states, dim=1)


def diagonal_ssm(u: Tensor, step: Tensor, rates: Tensor, weights: Tensor) -> Tensor:
    """Return y = K * u, a causal convolution by FFT: u (B, T, C), Δ (C,), A and C (C, N / 2), complex -> (B, T, C).

    K_l = 2 Re sum_n C_n (exp(Δ A_n) - 1) / A_n exp(l Δ A_n): the zero-order hold of x' = A x + u, y = 2 Re C x, of which each
    pair of conjugates has one member (Gu et al., 2022, section 3).
    """
    length = u.shape[1]
    powers = (step[:, None] * rates)[..., None] * torch.arange(length, device=u.device)  # (C, N / 2, T)
    held = weights * torch.expm1(step[:, None] * rates) / rates
    kernel = 2 * torch.einsum("cn,cnt->ct", held, powers.exp()).real
    spectrum = torch.fft.rfft(u.mT, n=2 * length) * torch.fft.rfft(kernel, n=2 * length)
    return torch.fft.irfft(spectrum, n=2 * length)[..., :length].mT


def diagonal_ssm_loop(u: Tensor, step: Tensor, rates: Tensor, weights: Tensor) -> Tensor:
    """The definition of `diagonal_ssm`, one position at a time: x_t = exp(Δ A) x_(t-1) + (exp(Δ A) - 1) / A u_t."""
    decay = torch.exp(step[:, None] * rates)  # (C, N / 2)
    state, outputs = torch.zeros_like(decay).expand(len(u), -1, -1), []
    for position in range(u.shape[1]):
        state = decay * state + (decay - 1) / rates * u[:, position, :, None]
        outputs.append(2 * (weights * state).sum(dim=-1).real)
    return torch.stack(outputs, dim=1)


def gated_linear_attention(query: Tensor, key: Tensor, value: Tensor, log_gate: Tensor) -> Tensor:
    """Return o_t = q_t S_t of S_t = diag(a_t) S_(t-1) + k_t v_t^T, S_0 = 0 (Yang et al., 2024, section 4.1), chunk by chunk.

    (B, H, T, K), (B, H, T, K), (B, H, T, V) and log a (B, H, T, K) -> (B, H, T, V). Within a chunk b_t is the product of the
    gates so far: o = (q * b) S + tril((q * b) (k / b)^T) v. The state after it is b_C * S + (k * b_C / b)^T v (section 4.2).
    """
    length = query.shape[2]
    missing = -length % CHUNK
    parts = [
        F.pad(part, (0, 0, 0, missing)).reshape(*part.shape[:2], -1, CHUNK, part.shape[-1])
        for part in (query, key, value, log_gate.clamp(min=LEAST_LOG_GATE))
    ]
    query, key, value, log_gate = parts  # (B, H, chunks, CHUNK, …)
    products = log_gate.cumsum(dim=3)
    last = products[..., -1:, :]
    ahead = query * products.exp()
    within = (ahead @ (key * (-products).exp()).mT).tril() @ value
    written = (key * (last - products).exp()).mT @ value  # (B, H, chunks, K, V)
    state, before = torch.zeros_like(written[:, :, 0]), []
    for chunk in range(written.shape[2]):
        before.append(state)
        state = last[:, :, chunk].exp().mT * state + written[:, :, chunk]
    found = within + ahead @ torch.stack(before, dim=2)
    return found.flatten(2, 3)[:, :, :length]


def gated_linear_attention_loop(query: Tensor, key: Tensor, value: Tensor, log_gate: Tensor) -> Tensor:
    """The definition of `gated_linear_attention`, one position at a time."""
    gate = log_gate.clamp(min=LEAST_LOG_GATE).exp()
    state, outputs = query.new_zeros(*query.shape[:2], query.shape[-1], value.shape[-1]), []
    for position in range(query.shape[2]):
        written = key[:, :, position, :, None] * value[:, :, position, None]
        state = gate[:, :, position, :, None] * state + written
        outputs.append((query[:, :, position, None] @ state).squeeze(-2))
    return torch.stack(outputs, dim=2)
