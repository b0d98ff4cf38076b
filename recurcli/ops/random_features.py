"""FAVOR+: softmax attention in O(T) by positive orthogonal random features (Choromanski et al., Performers, 2021, section 2).

    exp(x · y) = E_w[ exp(w · x - |x|²/2) exp(w · y - |y|²/2) ],   w ~ N(0, I)                                Lemma 1
    y_i = φ(q_i)^T sum_j φ(k_j) v_j^T / (φ(q_i)^T sum_j φ(k_j)),   φ(x)_m = exp(w_m · x - |x|²/2 - c) + eps

The sums are over real j. Queries and keys are multiplied by K^(-1/4), and 1 / sqrt(M) cancels. As in the authors' code eps is
1e-4, and c, which keeps the exponentials finite, is the largest exponent: one for each query, and one for all real keys of a
text and head. It has no gradient. Shapes: B batch, T positions, H heads, K head size, M features. `mask` (B, T) is bool,
True at real tokens.
"""

import torch
from torch import Tensor

from recurcli.ops.attention import mask_or_full
from recurcli.ops.precision import at_least_float32, without_autocast

EPSILON = 1e-4


def draw_features(num_features: int, head_size: int) -> Tensor:
    """Draw w (M, K) from torch's global generator (section 2.4): blocks of K orthogonal rows, as long as Gaussian rows."""
    features = torch.empty(num_features, head_size)
    if features.is_meta:  # torch imports its compiler to draw numbers there
        return features
    blocks = torch.linalg.qr(torch.randn(-(-num_features // head_size), head_size, head_size))
    signs = blocks.R.diagonal(dim1=-2, dim2=-1).sign()  # makes the distribution of Q uniform
    rows = (blocks.Q * signs[:, None]).flatten(0, 1)[:num_features]
    return rows * torch.randn_like(features).norm(dim=-1, keepdim=True)


def log_features(x: Tensor, features: Tensor) -> Tensor:
    """Return w_m · x - |x|²/2: (…, T, K) and (M, K) -> (…, T, M)."""
    return x @ features.mT - x.square().sum(dim=-1, keepdim=True) / 2


def random_feature_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    features: Tensor,
    mask: Tensor | None = None,
    *,
    epsilon: float = EPSILON,
) -> Tensor:
    """Return y of the equation above: (B, H, T, K) x 3 and (M, K) -> (B, H, T, K) in O(T M K), at least in float32.

    A row without real tokens attends to its padding.
    """
    with without_autocast(query):
        query, key = random_features(query, key, features, mask, epsilon=epsilon)
        sums = key.mT @ at_least_float32(value)  # (B, H, M, K)
        total = query @ key.sum(dim=-2).unsqueeze(-1)  # (B, H, T, 1)
        return (query @ sums / total).to(value.dtype)


def random_features(
    query: Tensor, key: Tensor, features: Tensor, mask: Tensor | None = None, *, epsilon: float = EPSILON
) -> tuple[Tensor, Tensor]:
    """Return φ of queries and keys: (B, H, T, K) x 2 -> (B, H, T, M) x 2. φ of padded keys is 0."""
    scale = query.shape[-1] ** -0.25
    features = features.to(at_least_float32(query).dtype)
    queries, keys = (log_features(at_least_float32(x) * scale, features) for x in (query, key))
    padding = None if mask is None else ~mask_or_full(mask)[:, None, :, None]
    if padding is not None:
        keys = keys.masked_fill(padding, -torch.inf)
    most = keys.detach().amax(dim=(-2, -1), keepdim=True)
    mapped = (keys - most).exp() + epsilon
    if padding is not None:
        mapped = mapped.masked_fill(padding, 0.0)
    return (queries - queries.detach().amax(dim=-1, keepdim=True)).exp() + epsilon, mapped


def random_feature_attention_loop(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    features: Tensor,
    mask: Tensor | None = None,
    *,
    epsilon: float = EPSILON,
) -> Tensor:
    """The definition of `random_feature_attention`, one query at a time. Every row needs a real token."""
    result = torch.empty_like(value)
    scale = query.shape[-1] ** -0.25
    for b, h in [(b, h) for b in range(query.shape[0]) for h in range(query.shape[1])]:
        real = [t for t in range(query.shape[2]) if mask is None or mask[b, t]]

        def exponents(x: Tensor) -> Tensor:
            return torch.stack([w @ x * scale - x @ x * scale**2 / 2 for w in features])

        keys = torch.stack([exponents(key[b, h, j]) for j in real])
        mapped = (keys - keys.max().detach()).exp() + epsilon
        for i in range(query.shape[2]):
            own = exponents(query[b, h, i])
            weights = mapped @ ((own - own.max().detach()).exp() + epsilon)
            result[b, h, i] = sum(w * value[b, h, j] for w, j in zip(weights, real, strict=True)) / weights.sum()
    return result
