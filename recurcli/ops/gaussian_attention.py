"""Skyformer's attention (Chen et al., Skyformer, 2021): a Gaussian kernel in place of the softmax, in O(T) by M landmarks.

    C V with C_ij = exp(-|q_i - k_j|² / (2 sqrt(K))), rows not normalised, approximated by
    κ(Q, L) D (D (κ(L, L) + γ I) D)^-1 D κ(L, K) V,   D = diag(row sums of κ(L, L) + γ I)^(-1/2)

L are M / 2 queries and M / 2 keys of real tokens: Nyström's method for the symmetric kernel of [Q; K]. One token is drawn
from each of M / 2 equal segments (ours; the paper draws from the whole row). Shapes: B batch, T positions, H heads, K head
size, M landmarks. `mask` (B, T) is bool, True at real tokens. A row without real tokens attends to its padding.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from recurcli.ops.attention import mask_or_full
from recurcli.ops.nystrom import pseudo_inverse, segments
from recurcli.ops.precision import at_least_float32, without_autocast

DRAWS = 1 << 16
"""The landmark of a segment is drawn as an integer below DRAWS, a fraction of the segment."""


def gaussian_kernel(x: Tensor, y: Tensor) -> Tensor:
    """Return exp(-|x_i - y_j|² / 2): (…, N, K) and (…, M, K) -> (…, N, M)."""
    norms = x.square().sum(dim=-1, keepdim=True) + y.square().sum(dim=-1).unsqueeze(-2)
    return (x @ y.mT - norms / 2).clamp(max=0).exp()


def attention_kernel(query: Tensor, key: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the exact kernel matrix C in O(T²) time: query and key (B, H, T, K) -> (B, H, T, T). Padded keys have zeros."""
    scale = query.shape[-1] ** -0.25
    kernel = gaussian_kernel(query * scale, key * scale)
    return kernel if mask is None else kernel * mask_or_full(mask)[:, None, None]


def skyformer_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    draws: Tensor,
    mask: Tensor | None = None,
    *,
    gamma: float,
    iterations: int,
) -> Tensor:
    """Skyformer's attention: (B, H, T, K) x 3 -> (B, H, T, K), at least in float32.

    `draws` (2, M / 2) are integers below DRAWS: which token of each of M / 2 segments is a landmark, for queries and for keys.
    """
    with without_autocast(query):
        scale = query.shape[-1] ** -0.25
        query, key, wide = at_least_float32(query) * scale, at_least_float32(key) * scale, at_least_float32(value)
        starts, sizes = segments(mask, query, draws.shape[1])
        used = (sizes > 0).repeat(1, 2)[:, None].to(query.dtype)  # (B, 1, M)
        landmarks = torch.cat(
            [_drawn(x, starts, sizes, draw) for x, draw in zip((query, key), draws.unbind(), strict=True)], dim=2
        )  # (B, H, M, K)
        kernel = gaussian_kernel(landmarks, landmarks) * used[..., None, :]
        kernel = kernel + gamma * torch.eye(kernel.shape[-1], dtype=kernel.dtype, device=kernel.device)
        scales = (kernel.sum(dim=-1) + (1 - used)).rsqrt() * used  # (B, H, M), 0 where there is no landmark
        inverse = pseudo_inverse(scales[..., None] * kernel * scales[..., None, :], iterations)
        if mask is not None:
            wide = wide * mask_or_full(mask)[:, None, :, None]
        sums = scales[..., None] * (gaussian_kernel(landmarks, key) @ wide)  # (B, H, M, K)
        return (gaussian_kernel(query, landmarks) @ (scales[..., None] * (inverse @ sums))).to(value.dtype)


def _drawn(x: Tensor, starts: Tensor, sizes: Tensor, draw: Tensor) -> Tensor:
    """Return the token of each segment that `draw` (M,) says: (B, H, T, K) -> (B, H, M, K)."""
    positions = starts + sizes * draw[: sizes.shape[1]] // DRAWS
    positions = positions.clamp(max=x.shape[2] - 1)[:, None, :, None]  # an empty segment may start behind the row
    return x.gather(2, positions.expand(-1, x.shape[1], -1, x.shape[3]))


def skyformer_attention_loop(
    query: Tensor, key: Tensor, value: Tensor, draws: Tensor, mask: Tensor | None = None, *, gamma: float
) -> Tensor:
    """The definition of `skyformer_attention` with the exact inverse, one row and head at a time.

    Padded queries give 0; every row needs a real token.
    """
    result = torch.zeros_like(value)
    for b, h in [(b, h) for b in range(query.shape[0]) for h in range(query.shape[1])]:
        n = query.shape[2] if mask is None else int(mask[b].sum())
        q, k, v = query[b, h, :n], key[b, h, :n], value[b, h, :n]
        count = min(draws.shape[1], n)
        members = [[t for t in range(n) if t * count // n == segment] for segment in range(count)]
        landmarks = [
            x[these[int(draw[i]) * len(these) // DRAWS]]
            for x, draw in ((q, draws[0]), (k, draws[1]))
            for i, these in enumerate(members)
        ]

        def kernel(xs: Sequence[Tensor], ys: Sequence[Tensor]) -> Tensor:
            width = 2 * query.shape[-1] ** 0.5
            return torch.stack([torch.stack([torch.exp(-(x - y).square().sum() / width) for y in ys]) for x in xs])

        inner = kernel(landmarks, landmarks) + gamma * torch.eye(len(landmarks), dtype=q.dtype)
        result[b, h, :n] = kernel(list(q), landmarks) @ torch.linalg.solve(inner, kernel(landmarks, list(k)) @ v)
    return result
