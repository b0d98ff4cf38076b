"""The keys of the encoders in which a query attends to some of the keys, or some of the queries attend.

The defaults are those of the long-range comparison of Skyformer (Chen et al., 2021), where a comment does not say otherwise.
"""

from dataclasses import dataclass

from recurcli.encoders.config.attention import PreNormConfig
from recurcli.encoders.config.base import check_sizes


@dataclass(frozen=True, kw_only=True)
class ReformerConfig(PreNormConfig):
    """Keys of the Reformer."""

    chunk_size: int = 64
    """m, the number of tokens in a chunk, which attends to itself and to the chunk before it."""
    num_hashes: int = 2
    """Number of hash rounds. Each sorts the tokens into buckets of its own."""
    max_buckets: int = 128
    """Largest number of buckets, a power of 2; a text of n tokens has 2^⌊log2(2 n / chunk_size)⌋. 128 is ours, for texts of
    4,096 tokens."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(chunk_size=self.chunk_size, num_hashes=self.num_hashes)
        if self.max_buckets < 2 or self.max_buckets & (self.max_buckets - 1):
            raise ValueError(f"max_buckets must be a power of 2 and at least 2, not {self.max_buckets}")


@dataclass(frozen=True, kw_only=True)
class BigBirdConfig(PreNormConfig):
    """Keys of BigBird."""

    block_size: int = 64
    """m, the number of tokens in a block."""
    num_random_blocks: int = 3
    """r, the number of random blocks that a block attends to, besides the first, the last, itself and its two neighbours. A
    text below (5 + 2 r) block_size tokens, 704 by default, has full attention."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(block_size=self.block_size)
        if self.num_random_blocks < 0:
            raise ValueError(f"num_random_blocks must be at least 0, not {self.num_random_blocks}")


@dataclass(frozen=True, kw_only=True)
class InformerConfig(PreNormConfig):
    """Keys of the Informer."""

    sampling_factor: int = 17
    """c; a text of n tokens has c ⌈ln n⌉ queries with attention of their own, chosen by as many sampled keys. 17 is
    ⌈128 / ln 2000⌉, for ListOps; the Informer's own paper has 5."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(sampling_factor=self.sampling_factor)
