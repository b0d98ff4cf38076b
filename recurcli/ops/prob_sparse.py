"""ProbSparse attention: some queries attend, the others have the mean of the values (Zhou et al., Informer, 2021).

    M_i = max_j q_i · k_j / sqrt(K) - mean_j q_i · k_j / sqrt(K)           eq. 4, j in a sample of u real keys
    y_i = softmax(q_i K^T / sqrt(K)) V for the u queries of largest M_i    eq. 3
    y_i = mean of the values of real tokens for the others

For n real tokens u is c ⌈ln n⌉, n at most. Shapes: B batch, H heads, T positions, K head size, V value size. `mask` (B, T) is
bool, True at real tokens.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from recurcli.device import to_device
from recurcli.ops.attention import mask_or_full
from recurcli.ops.seeded import hash_indices

POWERS = [math.floor(math.exp(power)) for power in range(40)]
"""⌊e^k⌋; ⌈ln n⌉ of an integer n is the number of those below n."""


def query_count(length: int, factor: int) -> int:
    """Return u of a text of `length` tokens: `factor` ⌈ln n⌉, n at most, and 1 of one token."""
    return min(length, factor * max(1, sum(power < length for power in POWERS)))


def query_counts(lengths: Tensor, factor: int) -> Tensor:
    """Return u for each of `lengths` (B,)."""
    powers = to_device(torch.tensor(POWERS), lengths.device)
    return lengths.minimum(factor * (powers < lengths[:, None]).sum(dim=-1).clamp(min=1))


def sampled_keys(real: Tensor, seeds: Tensor, count: int) -> Tensor:
    """Return `count` distinct positions for each row and head, real ones first: (B, H, `count`), int64.

    The first u of them depend on the real tokens of `real` (B, T) and on `seeds` (H,), not on `count` or T.
    """
    place = torch.arange(real.shape[1], device=real.device)
    return hash_indices(seeds[:, None], place).where(real[:, None], -1).topk(count, dim=-1).indices


def prob_sparse_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, seeds: Tensor, factor: int
) -> Tensor:
    """Return y of the equations above: (B, H, T, K) x 2 and (B, H, T, V) -> (B, H, T, V). Time O(T c ln T).

    A head has one sample of keys for all queries (ours); `seeds` (H,) fix it.
    """
    batch, _, length, size = query.shape
    real = torch.ones(batch, length, dtype=torch.bool, device=query.device) if mask is None else mask
    lengths = real.sum(dim=-1)
    most = length if torch.compiler.is_exporting() else query_count(length, factor)
    ranks = torch.arange(most, device=query.device)
    counted = ranks < query_counts(lengths, factor)[:, None]  # (B, u), the ranks within each row's own u
    with torch.no_grad():
        places = sampled_keys(real, seeds, most)
        places = places.where(counted[:, None], places[..., :1])  # the first once more does not change the maximum
        sample = key.gather(2, _index(places, size))  # (B, H, u, K)
        number = counted.sum(dim=-1).clamp(min=1)[:, None, None, None]
        mean = sample.where(counted[:, None, :, None], 0.0).sum(dim=2, keepdim=True) / number  # (B, H, 1, K)
        above = (query @ sample.mT).amax(dim=-1) - (query * mean).sum(dim=-1)  # M_i sqrt(K): (B, H, T)
        chosen = above.masked_fill(~real[:, None], -torch.inf).topk(most, dim=-1).indices  # (B, H, u)

    kept = mask_or_full(real)[:, None, None]
    attended = F.scaled_dot_product_attention(query.gather(2, _index(chosen, size)), key, value, attn_mask=kept)
    total = value.masked_fill(~real[:, None, :, None], 0.0).sum(dim=2, keepdim=True)
    average = total / lengths.clamp(min=1)[:, None, None, None]  # (B, H, 1, V)
    attended = torch.where(counted[:, None, :, None], attended, average)
    return average.expand(value.shape).scatter(2, _index(chosen, value.shape[-1]), attended)


def _index(positions: Tensor, size: int) -> Tensor:
    """`positions` (B, H, u) as an index of rows of `size` numbers: (B, H, u, size)."""
    return positions.unsqueeze(-1).expand(-1, -1, -1, size)


def prob_sparse_attention_loop(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, seeds: Tensor, factor: int
) -> Tensor:
    """The definition of `prob_sparse_attention`, one query at a time; zeros at padding."""
    batch, heads, length, size = query.shape
    result = torch.zeros_like(value)
    for b in range(batch):
        real = [t for t in range(length) if mask is None or mask[b, t]]
        number = min(len(real), factor * max(1, math.ceil(math.log(max(1, len(real))))))
        for h in range(heads):
            order = [int(hash_indices(seeds[h], torch.tensor(j))) for j in range(length)]
            sample = sorted(real, key=lambda j: -order[j])[:number]
            scores = {i: key[b, h, sample] @ query[b, h, i] / size**0.5 for i in real}
            measured = {i: (score.max() - score.mean()).item() for i, score in scores.items()}
            chosen = sorted(real, key=lambda i: -measured[i])[:number]
            for i in real:
                weights = torch.full((len(real),), 1 / len(real), dtype=value.dtype)
                if i in chosen:
                    weights = (key[b, h, real] @ query[b, h, i] / size**0.5).softmax(dim=0)
                result[b, h, i] = weights @ value[b, h, real]
    return result
