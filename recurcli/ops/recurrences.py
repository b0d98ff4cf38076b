"""Linear recurrences with gates, in parallel over the positions, each beside its definition as a loop.

Shapes: B batch, T positions, C channels, N state size, H heads, K and V sizes of keys and values.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from recurcli.ops.chunks import joined, split

CHUNK = 32
"""Positions of a chunk of `gated_linear_attention`. Ours: a short text is then one chunk, without states; 16 takes longer."""
LEAST_LOG_GATE = -2.5
"""Gates are at least e^-2.5. Ours: over a chunk their inverse product is then below the largest float32. With the paper's
temperature of 16, a gate comes near it where W2 W1 x + b is -40."""


def linear_scan(coefficients: Tensor, values: Tensor) -> Tensor:
    """Return h_t = a_t h_(t-1) + b_t, h_0 = 0, of a in [-1, 1] and b: (B, T, C) x 2 -> (B, T, C).

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
        product, end = coefficient * product, torch.addcmul(value, coefficient, end)
    state = F.pad(linear_scan_loop(product, end)[:, :-1], (0, 0, 1, 0))  # before each block
    states = []
    for coefficient, value in steps:
        state = torch.addcmul(value, coefficient, state)
        states.append(state)
    return torch.stack(states, dim=2).flatten(1, 2)[:, :length]


def linear_scan_loop(coefficients: Tensor, values: Tensor) -> Tensor:
    """The definition of `linear_scan`, one position at a time."""
    states = [values[:, 0]]
    for coefficient, value in zip(coefficients[:, 1:].unbind(1), values[:, 1:].unbind(1), strict=True):
        states.append(torch.addcmul(value, coefficient, states[-1]))
    return torch.stack(states, dim=1)


def diagonal_ssm(u: Tensor, step: Tensor, rates: Tensor, weights: Tensor) -> Tensor:
    """Return y = K * u, a causal convolution: u (B, T, C), Δ (C,), A and C (C, N / 2), complex -> (B, T, C).

    K_l = 2 Re sum_n C_n (exp(Δ A_n) - 1) / A_n exp(l Δ A_n): the zero-order hold of x' = A x + u, y = 2 Re C x, of which each
    pair of conjugates has one member (Gu et al., 2022, section 3).
    """
    length = u.shape[1]
    kernel = _ssm_kernel(length, step[:, None] * rates, weights / rates)
    spectrum = torch.fft.rfft(u.mT, n=2 * length) * torch.fft.rfft(kernel, n=2 * length)
    return torch.fft.irfft(spectrum, n=2 * length)[..., :length].mT


def _ssm_kernel(length: int, exponents: Tensor, weights: Tensor) -> Tensor:
    """Return K (C, T) from Δ A and C / A (C, N / 2): with l = m p + q, a product of matrices of about √T powers each."""
    size = math.isqrt(length - 1) + 1
    near = torch.arange(size, device=weights.device)
    lags = torch.cat([near, size * near])
    magnitude, angle = (exponents.real[..., None] * lags).exp(), exponents.imag[..., None] * lags
    (near_real, real), (near_imaginary, imaginary) = (
        (magnitude * wave).chunk(2, dim=-1) for wave in (angle.cos(), angle.sin())
    )
    held = (2 * weights * torch.expm1(exponents))[..., None]  # (C, N / 2, 1)
    far = [held.real * real - held.imag * imaginary, -(held.real * imaginary + held.imag * real)]
    return torch.bmm(torch.cat(far, dim=1).mT, torch.cat([near_real, near_imaginary], dim=1)).flatten(1)[:, :length]


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

    (…, T, K), (…, T, K), (…, T, V) and log a (…, T, K) -> (…, T, V). Within a chunk b_t is the product of the gates so far:
    o = (q * b) S + tril((q * b) (k / b)^T) v. The state after it is b_C * S + (k * b_C / b)^T v (section 4.2).
    """
    length, chunk = query.shape[-2], min(CHUNK, query.shape[-2])
    query, key, value, log_gate = (split(part, chunk) for part in (query, key, value, log_gate))  # (…, N, C, K or V)
    products = log_gate.clamp(min=LEAST_LOG_GATE).cumsum(dim=-2)
    ahead, behind = products.exp() * query, products.neg().exp() * key
    found = (ahead @ behind.mT).tril() @ value
    if query.shape[-3] > 1:
        decay = products[..., -1, None, :].exp()
        written = (behind * decay).mT @ value  # (…, N, K, V)
        after = linear_scan_loop(*(part.flatten(0, -4)[:, :-1] for part in (decay.mT, written)))
        found = found + ahead @ F.pad(after, (0, 0, 0, 0, 1, 0)).view(written.shape)
    return joined(found, length)


def gated_linear_attention_loop(query: Tensor, key: Tensor, value: Tensor, log_gate: Tensor) -> Tensor:
    """The definition of `gated_linear_attention`, one position at a time."""
    gate = log_gate.clamp(min=LEAST_LOG_GATE).exp()
    state, outputs = query.new_zeros(*query.shape[:2], query.shape[-1], value.shape[-1]), []
    for position in range(query.shape[2]):
        written = key[:, :, position, :, None] * value[:, :, position, None]
        state = gate[:, :, position, :, None] * state + written
        outputs.append((query[:, :, position, None] @ state).squeeze(-2))
    return torch.stack(outputs, dim=2)
