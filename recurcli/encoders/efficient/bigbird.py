"""BigBird (Zaheer et al., Big Bird: Transformers for Longer Sequences, 2020): block-sparse attention in O(T).

    y_i = softmax over j in N(i) of (q_i · k_j / sqrt(K)) applied to v_j                section 2
    N(i) = the tokens of the first and the last block, of i's block and its two neighbours, and of r random blocks
    N(i) = all tokens, for i in the first or the last block

This is the form with internal global tokens (BigBird-ITC). Blocks of 64 and r = 3 are the paper's base model; in a text shorter
than 5 + 2 r blocks attention is full, much as in Hugging Face's code. Ours: pre-norm layers with sinusoidal positions, random
blocks that are drawn once for each head and layer, and a last block and a threshold by each row's real tokens.
Shapes: B batch, T positions, D hidden size, H heads, K head size, N blocks.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from recurcli.encoders.config import BigBirdConfig
from recurcli.encoders.encoder import BlockEncoder
from recurcli.layers import SelfAttention, softmax_attention
from recurcli.ops.attention import text_lengths
from recurcli.ops.block_sparse import block_sparse_attention, random_blocks
from recurcli.ops.seeded import draw_seeds


class BlockSparseAttention(SelfAttention):
    """Block-sparse attention, by the equations above: (B, T, D) -> (B, T, D). Projections have biases."""

    seeds: Tensor
    """The seed of each head's random blocks: (H,), int64."""

    def __init__(self, config: BigBirdConfig) -> None:
        super().__init__(config.hidden_size, config.num_heads, config.size_of_head)
        self.block_size = config.block_size
        self.num_random_blocks = config.num_random_blocks
        self.min_effective_length = (5 + 2 * config.num_random_blocks) * config.block_size
        self.register_buffer("seeds", draw_seeds(config.num_heads))

    def mix(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        length, traced = query.shape[2], torch.compiler.is_compiling()
        if not torch.compiler.is_exporting() and length < self.min_effective_length:
            return softmax_attention(query, key, value, mask)
        if mask is None and not traced:
            return self.sparse(query, key, value, mask)
        if mask is None:
            mask = torch.ones(len(query), length, dtype=torch.bool, device=query.device)
        is_short = mask.sum(dim=-1) < self.min_effective_length
        if traced:  # both forms for all rows, because a graph has one shape
            both = self.full(query, key, value, mask), self.sparse(query, key, value, mask)
            return torch.where(is_short[:, None, None, None], *both)
        if not is_short.any():
            return self.sparse(query, key, value, mask)
        short, long = is_short.nonzero().squeeze(1), (~is_short).nonzero().squeeze(1)
        mixed = [self.full(*(x[short] for x in (query, key, value, mask)))]
        if len(long):
            mixed.append(self.sparse(*(x[long] for x in (query, key, value, mask))))
        return torch.cat(mixed)[torch.cat([short, long]).argsort()]

    def full(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        """Full attention of rows with all real tokens among the first `min_effective_length` positions; zeros behind those."""
        length = query.shape[2]
        if torch.compiler.is_exporting():
            return softmax_attention(query, key, value, mask)
        q, k, v = (x[:, :, : self.min_effective_length] for x in (query, key, value))
        return F.pad(
            softmax_attention(q, k, v, mask[:, : self.min_effective_length]),
            (0, 0, 0, length - self.min_effective_length),
        )

    def sparse(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """Block-sparse attention of all rows."""
        chosen = self.plan(query, mask)
        return block_sparse_attention(query, key, value, mask, chosen, self.block_size)

    def plan(self, query: Tensor, mask: Tensor | None) -> Tensor:
        """The random blocks (B, H, N, r) of each row's blocks."""
        lengths, length = text_lengths(mask, query), query.shape[2]
        total = length // self.block_size + 3 if torch.compiler.is_exporting() else -(-length // self.block_size)
        return random_blocks(lengths, self.seeds, total, self.num_random_blocks, self.block_size)


class BigBird(BlockEncoder):
    """L layers with as many parameters as the Transformer's."""

    Config = BigBirdConfig
    Attention = BlockSparseAttention
