"""Recurrence encoding matrices P and their products with values (Huang et al., Encoding Recurrence into Transformers, 2023).

With lag m = t - s, for t > s, and 0 on the diagonal:

    regular   P_ts = rate^m                      -1 < rate < 1
    cosine    P_ts = rate^m cos(m angle)          0 < rate < 1
    sine      P_ts = rate^m sin(m angle)          0 < rate < 1

Causal: P is strictly lower triangular. Not causal: P_ts is the same function of |t - s|. Dilated by d: P_ts has the
lag m / d if d divides m, else P_ts is 0. Shapes: H heads, T positions, K head size; `kind`, `rate` and `angle` have one entry
for each head, and the angle of a regular head is 0.

P V is a linear recurrence with one complex state z_t = λ (z_{t-1} + v_{t-1}), λ = rate exp(i angle), of which a cosine
head reads the real part and a sine head the imaginary one; a regular head is a cosine head of angle 0.
"""

import math
from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from recurcli.device import to_device

Kind = Literal["regular", "cosine", "sine"]
BLOCK = 128
"""Positions of a block of the fast product: long enough for matrix products, short enough to be cheap. Ours."""


def recurrence_matrix(
    kind: Sequence[Kind],
    length: int,
    *,
    rate: Tensor,
    angle: Tensor,
    dilation: int | Sequence[int] = 1,
    causal: bool = True,
) -> Tensor:
    """Return P of every head (…, H, T, T) for rates and angles (…, H); `dilation` may be that of each head."""
    lags = torch.arange(length, device=rate.device)
    dilations = to_device(torch.tensor(dilation), rate.device)[..., None]
    real, imaginary = _powers(rate, angle, lags // dilations)
    wanted = (lags % dilations == 0) & (lags > 0)
    return toeplitz(torch.where(_is_sine(kind, rate), imaginary, real).masked_fill(~wanted, 0.0), causal=causal)


def recurrence_product(
    kind: Sequence[Kind], value: Tensor, *, rate: Tensor, angle: Tensor, dilation: int = 1, causal: bool = True
) -> Tensor:
    """P V in O(T): (…, H, T, K) to the same shape.

    Positions that are `dilation` apart form one sequence, which is split into blocks. Within a block P is a
    small matrix. The complex state is carried from block to block, in log2(T / BLOCK) steps.
    """
    length = value.shape[-2]
    steps = -(-length // dilation)
    block = min(BLOCK, steps)
    count = -(-steps // block)
    padded = F.pad(value.unsqueeze(0).flatten(0, -4), (0, 0, 0, count * block * dilation - length))
    parts = padded.reshape(*padded.shape[:2], count, block, dilation, -1)  # (B, H, N, C, d, K)
    columns = parts.permute(1, 3, 0, 2, 4, 5)  # (H, C, B, N, d, K)
    sine = _is_sine(kind, rate)
    product = _blockwise(columns.flatten(2), count, len(parts), rate, angle, sine, causal)  # (H, C, B N d K)
    product = product.view(columns.shape).permute(2, 0, 3, 1, 4, 5).flatten(2, 4)  # (B, H, T, K), padded
    return product[..., :length, :].reshape(value.shape)


def toeplitz(coefficients: Tensor, *, causal: bool) -> Tensor:
    """The matrix (…, T, T) whose entry (t, s) is the coefficient (…, T) of lag t - s, or of |t - s| if not causal.

    No (T, T) tensor of lags is built. The first row and its mirror image, 2 T values, are repeated T times and read in
    rows of 2 T - 1 values, so that each row is shifted right by one place.
    """
    length = coefficients.shape[-1]
    ahead = torch.zeros_like(coefficients) if causal else coefficients
    period = torch.cat([ahead, coefficients.roll(-1, -1).flip(-1)], dim=-1)  # lags 0 … T-1, unused, T-1 … 1
    repeated = period.unsqueeze(-2).expand(*period.shape[:-1], length, 2 * length).flatten(-2)
    shape = (*coefficients.shape[:-1], length, 2 * length - 1)
    return repeated[..., : length * (2 * length - 1)].reshape(shape)[..., :length]


def _is_sine(kind: Sequence[Kind], rate: Tensor) -> Tensor:
    """Return which heads read the imaginary part: (H, 1)."""
    return to_device(torch.tensor([name == "sine" for name in kind]), rate.device)[:, None]


def _powers(rate: Tensor, angle: Tensor, exponent: Tensor) -> tuple[Tensor, Tensor]:
    """Real and imaginary part of λ^n for whole n >= 0: (…, H) and (N,) or (H, N) -> (…, H, N) each.

    λ^0 is 1 without a gradient. The exponent 0 is masked before the power: where the rate is 0 its gradient would be 0 / 0.
    """
    size = (rate[..., None] ** exponent.clamp(min=1).to(rate.dtype)).masked_fill(exponent == 0, 1.0)
    turn = angle[..., None] * exponent
    return size * turn.cos(), size * turn.sin()


def _blockwise(
    columns: Tensor, count: int, batch: int, rates: Tensor, angles: Tensor, sine: Tensor, causal: bool
) -> Tensor:
    """P V for values (H, C, B N E) in N blocks of C positions, E features: inside each block, then across blocks."""
    heads, block = columns.shape[:2]
    steps = torch.arange(block + 1, device=rates.device)
    real, imaginary = _powers(rates, angles, steps)  # (H, C + 1)
    lags = torch.where(sine, imaginary, real)[:, :-1].masked_fill(steps[:-1] == 0, 0.0)
    within = toeplitz(lags.to(columns.dtype), causal=causal)  # (H, C, C)
    if count == 1:
        return torch.bmm(within, columns)
    powers = torch.stack([real, imaginary], dim=1)  # (H, 2, C + 1)
    # A cosine head reads Re(λ^i z) = Re λ^i Re z - Im λ^i Im z, a sine head Im(λ^i z) = Im λ^i Re z + Re λ^i Im z.
    reading = torch.where(sine[..., None], powers.flip(1), torch.stack([real, -imaginary], dim=1))
    # λ^{C-j} gathers position j for the next block, λ^i reads at position i what came before; backwards the mirror image.
    gather, read, directions = [powers[..., 1:].flip(-1)], [reading[..., :-1]], [1]
    if not causal:
        gather, read, directions = [*gather, powers[..., 1:]], [*read, reading[..., :-1].flip(-1)], [1, -1]
    rows = torch.cat([within, *(part.to(columns.dtype) for part in gather)], dim=1)  # (H, C + 2 or 4, C)
    inside, *sums = torch.split(torch.bmm(rows, columns), [block] + [2] * len(gather), dim=1)
    states = []
    for part, direction in zip(sums, directions, strict=True):
        states.append(_carried(part.view(heads, 2, batch, count, -1), rates, angles, block, direction).flatten(2))
    left = torch.cat(read, dim=1).mT.to(columns.dtype)  # (H, C, 2 or 4)
    return torch.baddbmm(inside, left, torch.cat(states, dim=1).to(columns.dtype))


def _carried(sums: Tensor, rates: Tensor, angles: Tensor, block: int, direction: int) -> Tensor:
    """The state at each block's edge from the sums (H, 2, B, N, E) of the blocks: z_{n+1} = λ^C z_n + sum_n.

    Doubling: after the step k a state holds the 2^k blocks before it (after it where `direction` is -1).
    """
    state = _moved(sums, direction)
    count = sums.shape[-2]
    for power in range(math.ceil(math.log2(count))):
        step = 2**power
        real, imaginary = _powers(rates, angles, torch.full((1,), step * block, device=rates.device))  # (H, 1) each
        turn = torch.stack([real, -imaginary, imaginary, real], dim=-1).view(-1, 2, 2).to(state.dtype)
        turned = torch.bmm(turn, state.flatten(2)).view(state.shape)
        state = state + _moved(turned, direction * step)
    return state


def _moved(x: Tensor, places: int) -> Tensor:
    """x with the dimension before the last moved `places` to the right, or to the left if negative; zeros come in."""
    return F.pad(x, (0, 0, places, -places))


def recurrence_matrix_loop(
    kind: Kind, length: int, *, rate: float, angle: float = 0.0, dilation: int = 1, causal: bool = True
) -> Tensor:
    """The definition of `recurrence_matrix` for one head: an entry at a time, (T, T) in float64."""
    result = torch.zeros(length, length, dtype=torch.float64)
    for t in range(length):
        for s in range(t if causal else length):
            lag, rest = divmod(abs(t - s), dilation)
            if lag and not rest:
                wave = {"regular": 1.0, "cosine": math.cos(lag * angle), "sine": math.sin(lag * angle)}[kind]
                result[t, s] = rate**lag * wave
    return result


def recurrence_product_loop(
    kind: Kind, value: Tensor, *, rate: Tensor, angle: Tensor | None = None, dilation: int = 1, causal: bool = True
) -> Tensor:
    """The recurrence that defines `recurrence_product` for one head: z_t = λ (z_{t-d} + v_{t-d}), a position at a time."""
    turn = torch.polar(torch.ones_like(rate), torch.zeros_like(rate) if angle is None else angle)
    multiplier = rate * (turn if kind != "regular" else torch.ones_like(turn))
    states: list[Tensor] = []
    for t in range(value.shape[-2]):
        before = t - dilation
        zero = torch.zeros_like(value[..., 0, :]) * multiplier
        states.append(multiplier * (states[before] + value[..., before, :]) if before >= 0 else zero)
    result = torch.stack(states, dim=-2)
    result = result.imag if kind == "sine" else result.real
    if causal:
        return result
    mirrored = recurrence_product_loop(kind, value.flip(-2), rate=rate, angle=angle, dilation=dilation)
    return result + mirrored.flip(-2)
