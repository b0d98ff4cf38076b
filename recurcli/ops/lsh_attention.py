"""Attention among tokens that a locality-sensitive hash puts together (Kitaev, Kaiser & Levskaya, Reformer, 2020).

A round hashes every token, sorts the tokens by bucket and then by position, and cuts them into chunks. A token attends to its
chunk and to the one before it (section 2, eq. 5). Shapes: B batch, H heads, R rounds, T positions, K head size, V value size,
C half the largest number of buckets, N chunks, m chunk size. `mask` (B, T) is bool, True at real tokens.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from recurcli.ops.chunks import joined, split, split_rows

SELF = -1e5
"""The number added to the score of a token for itself. The token attends to itself only if it has no other key (section 2)."""


def bucket_counts(lengths: Tensor, chunk_size: int, most: int) -> Tensor:
    """Return 2^⌊log2(2 n / m)⌋ for each n of `lengths` (B,), from 1 to `most`, a power of 2."""
    powers = 2 ** torch.arange(most.bit_length(), device=lengths.device)
    return powers.where(2 * lengths[:, None] >= powers * chunk_size, 1).amax(dim=-1)


@torch.no_grad()
def angular_buckets(x: Tensor, rotations: Tensor, counts: Tensor) -> Tensor:
    """Return argmax([x R; -x R]), the bucket of each x (B, H, T, K) in each round: (B, H, R, T), int64.

    A row with b of `counts` (B,) buckets has the first b / 2 columns of R; `rotations` is (H, R, K, C). With one bucket,
    all are 0.
    """
    rounds, _, columns = rotations.shape[1:]
    half = (counts // 2).clamp(min=1)[:, None, None, None]
    used = torch.arange(columns, device=x.device) < half.unsqueeze(-1)  # (B, 1, 1, 1, C)
    own = rotations.where(used, 0.0).movedim(2, 3).flatten(3)  # (B, H, K, R C); a column of zeros is never the largest
    turned = (x @ own).view(*x.shape[:3], rounds, columns).transpose(2, 3)  # (B, H, R, T, C)
    place = turned.abs().argmax(dim=-1, keepdim=True)
    negative = turned.gather(-1, place).squeeze(-1) < 0
    return (place.squeeze(-1) + negative * half).minimum(counts[:, None, None, None] - 1)


def lsh_attention(
    query: Tensor, key: Tensor, value: Tensor, buckets: Tensor, mask: Tensor | None, chunk_size: int
) -> Tensor:
    """Return the attention in sorted chunks, merged over the rounds: (B, H, T, K) x 2 and (B, H, T, V) -> (B, H, T, V).

    Rounds are merged by the softmax of their log-sum-exp, so that a key which two rounds find counts twice; the paper's
    appendix A divides by the count. Padding comes after all buckets. Time and memory O(R T (K + m)).
    """
    length = query.shape[2]
    places = torch.arange(length, device=query.device)
    real = places.new_ones(1, length, dtype=torch.bool) if mask is None else mask
    last = length * (buckets.max() + 1)  # behind all real tokens
    order = torch.where(real[:, None, None], buckets * length, last).add(places).argsort(dim=-1)  # (B, H, R, T)
    queries, keys, values = (split(_taken(x, order), chunk_size) for x in (query, key, value))  # (B, H, R, N, m, K)
    found = real[:, None, None].expand(order.shape).gather(-1, order)
    reals = split_rows(found, chunk_size)  # (B, H, R, N, m)
    keys, values, reals = (_with_previous(x) for x in (keys, values, reals))

    itself = key.new_full((chunk_size,), SELF).diag()
    bias = F.pad(itself, (chunk_size, 0)).where(
        reals.unsqueeze(-2), torch.finfo(key.dtype).min / 2
    )  # (B, H, R, N, m, 2m)
    scores = torch.baddbmm(*(x.flatten(0, 3) for x in (bias, queries, keys.mT)), alpha=query.shape[-1] ** -0.5)
    scores = scores.view(bias.shape).to(torch.promote_types(scores.dtype, torch.float32))
    largest = scores.detach().amax(dim=-1, keepdim=True)
    exponentials = (scores - largest).exp()
    sums = exponentials.sum(dim=-1, keepdim=True)
    mixed = joined((exponentials.to(values.dtype) @ values) / sums, length)  # (B, H, R, T, V)
    totals = joined(largest + sums.log(), length)  # (B, H, R, T, 1), the log-sum-exp

    inverse = order.argsort(dim=-1).unsqueeze(-1)
    weights = totals.gather(-2, inverse).softmax(dim=2)
    return (weights * mixed.gather(-2, inverse.expand(mixed.shape))).sum(dim=2).to(value.dtype)


def _taken(x: Tensor, order: Tensor) -> Tensor:
    """Return x (B, H, T, K) in the `order` (B, H, R, T) of each round: (B, H, R, T, K)."""
    index = order.flatten(2).unsqueeze(-1).expand(-1, -1, -1, x.shape[-1])
    return x.gather(2, index).view(*order.shape, x.shape[-1])


def _with_previous(x: Tensor) -> Tensor:
    """Return each chunk of x (B, H, R, N, m, …) behind the previous chunk, or behind zeros: (B, H, R, N, 2m, …)."""
    before = torch.cat([torch.zeros_like(x[:, :, :, :1]), x[:, :, :, :-1]], dim=3)
    return torch.cat([before, x], dim=4)


def shared_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """Return the result of `lsh_attention` with one chunk: softmax attention with SELF added to the diagonal of the scores."""
    bias = key.new_full((query.shape[2],), SELF).diag()
    if mask is not None:
        bias = bias.where(mask[:, None, None], torch.finfo(key.dtype).min / 2)
    scores = query @ key.mT * query.shape[-1] ** -0.5 + bias  # (B, H, T, T)
    return scores.softmax(dim=-1).to(value.dtype) @ value


def lsh_attention_loop(
    query: Tensor, key: Tensor, value: Tensor, buckets: Tensor, mask: Tensor | None, chunk_size: int
) -> Tensor:
    """The definition of `lsh_attention`, one query at a time; zeros at padding.

    The softmax of a query is over the scores of its keys in all rounds.
    """
    batch, heads, length, size = query.shape
    rows = []
    for b in range(batch):
        real = [t for t in range(length) if mask is None or mask[b, t]]
        for h in range(heads):
            chunks = []
            for bucket in buckets[b, h].tolist():
                ordered = sorted(real, key=lambda t: (bucket[t], t))
                chunks.append({t: place // chunk_size for place, t in enumerate(ordered)})
            for i in range(length):
                if i not in chunks[0]:
                    rows.append(value.new_zeros(value.shape[-1]))
                    continue
                keys = [j for chunk in chunks for j in real if chunk[i] - 1 <= chunk[j] <= chunk[i]]
                itself = SELF * (torch.tensor(keys) == i)
                scores = key[b, h, keys] @ query[b, h, i] / size**0.5 + itself
                rows.append(scores.softmax(dim=0) @ value[b, h, keys])
    return torch.stack(rows).view(value.shape)
