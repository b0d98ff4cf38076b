"""Attention between blocks of tokens (Zaheer et al., Big Bird, 2020, section 2 and appendix D).

A block attends to itself, to its two neighbours, to the first and the last block, and to some random blocks; the first and
the last block attend to all. Each row has its own last block. Shapes: B batch, H heads, T positions, K head size, V value
size, N blocks of m positions, r random blocks. `mask` (B, T) is bool, True at real tokens.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from recurcli.ops.attention import mask_or_full
from recurcli.ops.chunks import joined, split, split_rows
from recurcli.ops.seeded import hash_indices


def random_blocks(lengths: Tensor, seeds: Tensor, total: int, number: int, block_size: int) -> Tensor:
    """Return the random blocks of each block: (B, H, `total`, `number`), int64, -1 where a row has no more.

    They are distinct, and none is the first, the last, the block itself or a neighbour. They depend on the row's number of
    tokens in `lengths` (B,) and on the head's seed in `seeds` (H,), not on `total`.
    """
    place = torch.arange(total, device=lengths.device)
    last = last_blocks(lengths, block_size)[:, None, None]
    first_near = (place - 1).clamp(min=1)
    near = ((place + 1).minimum(last - 1) - first_near + 1).clamp(min=0)  # inner blocks next to each: (B, 1, N)
    others = last - 1 - near
    drawn: list[Tensor] = []  # of `others` numbers from 0, by Floyd's algorithm
    for step in range(number):
        top = others - number + step
        pick = hash_indices(seeds[:, None], place, step) % (top + 1).clamp(min=1)  # (B, H, N)
        for earlier in drawn:
            pick = pick.where(pick != earlier, top)
        drawn.append(pick.where(top >= 0, -1))
    picks = torch.stack(drawn, dim=-1) if drawn else lengths.new_empty(len(lengths), len(seeds), total, 0)
    blocks = picks + 1
    blocks = blocks + near.unsqueeze(-1) * (blocks >= first_near.unsqueeze(-1))  # those next to the block are skipped
    return blocks.where(picks >= 0, -1)


def last_blocks(lengths: Tensor, block_size: int) -> Tensor:
    """Return the index of the last block with a real token, for each of `lengths` (B,)."""
    return (lengths - 1).clamp(min=0) // block_size


def block_sparse_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, chosen: Tensor, block_size: int
) -> Tensor:
    """Return softmax attention over the union of a block's blocks: (B, H, T, K) x 2 and (B, H, T, V) -> (B, H, T, V).

    `chosen` (B, H, N, r) are the random blocks; a number that is negative, or that is not below the last block of the row,
    is left out. Time O(T (r + 7) m K), memory O(T (r + 5) K).
    """
    batch, heads, length, _ = query.shape
    real = torch.ones(batch, length, dtype=torch.bool, device=query.device) if mask is None else mask
    last = last_blocks(real.sum(dim=-1), block_size)[:, None, None, None]
    real = mask_or_full(real)
    queries, keys, values = (split(x, block_size) for x in (query, key, value))  # (B, H, N, m, K)
    reals = split_rows(real, block_size)  # (B, N, m)
    total = queries.shape[2]
    place = torch.arange(total, device=query.device)

    around = (place[:, None] + torch.arange(-1, 2, device=query.device)).expand(batch, heads, -1, -1)
    inner = torch.cat([around, chosen], dim=-1)  # the ends are added once: (B, H, N, 3 + r)
    inner = inner.where((inner > 0) & (inner < last), -1)
    end = last.where(last > 0, -1).expand(-1, heads, total, -1)
    blocks = torch.cat([torch.zeros_like(end), end, inner], dim=-1)  # (B, H, N, S)
    kept = _rows(reals[:, None].expand(-1, heads, -1, -1), blocks) & (blocks >= 0).unsqueeze(-1)  # (B, H, N, S, m)
    near = [_rows(x, blocks).flatten(3, 4) for x in (keys, values)]  # (B, H, N, S m, K)
    q, k, v = (x.flatten(0, 2).unsqueeze(1) for x in (queries, *near))  # one head and B H N rows
    bias = kept.flatten(3).flatten(0, 2)[:, None, None]  # (B H N, 1, 1, S m)
    mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=bias).view(values.shape)  # (B, H, N, m, V)

    ends = torch.cat([torch.zeros_like(last), last], dim=-1).expand(-1, heads, 1, -1)  # (B, H, 1, 2)
    asked = _rows(queries, ends).flatten(2, 4)  # (B, H, 2 m, K)
    answers = F.scaled_dot_product_attention(asked, key, value, attn_mask=real[:, None, None])
    first_answer, last_answer = answers.unsqueeze(2).chunk(2, dim=3)  # (B, H, 1, m, V) x 2
    at = place[:, None, None]
    mixed = torch.where(at == last.unsqueeze(-1), last_answer, mixed)
    return joined(torch.where(at == 0, first_answer, mixed), length)


def _rows(x: Tensor, blocks: Tensor) -> Tensor:
    """Return the rows of x (B, H, N, …) with the numbers `blocks` (B, H, M, S), row 0 for a negative one: (B, H, M, S, …)."""
    batch, heads, total = x.shape[:3]
    start = total * torch.arange(batch * heads, device=x.device).view(batch, heads, 1, 1)
    index = start + blocks.clamp(min=0)
    table = x.flatten(0, 2).flatten(1)
    rows = table[index] if x.dtype == torch.bool else F.embedding(index, table)
    return rows.view(*index.shape, *x.shape[3:])


def block_sparse_attention_loop(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, chosen: Tensor, block_size: int
) -> Tensor:
    """The definition of `block_sparse_attention`, one query at a time; zeros at padding."""
    batch, heads, length, size = query.shape
    rows = []
    for b in range(batch):
        real = [t for t in range(length) if mask is None or mask[b, t]]
        last = (len(real) - 1) // block_size
        for h in range(heads):
            for i in range(length):
                if i not in real:
                    rows.append(value.new_zeros(value.shape[-1]))
                    continue
                block = i // block_size
                seen = {0, last, block - 1, block, block + 1, *chosen[b, h, block].tolist()}
                keys = [j for j in real if block in (0, last) or j // block_size in seen]
                weights = (key[b, h, keys] @ query[b, h, i] / size**0.5).softmax(dim=0)
                rows.append(weights @ value[b, h, keys])
    return torch.stack(rows).view(value.shape)
