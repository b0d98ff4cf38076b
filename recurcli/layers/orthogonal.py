"""All orthogonal matrices of a model at once."""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from recurcli.layers.cached import CachedMap, compute_dtype
from recurcli.ops.orthogonal import OrthogonalMap, orthogonal


def orthogonal_matrices(kind: OrthogonalMap) -> CachedMap:
    """From raw tensors of one D to their orthogonal matrices, in one batched call, kept in evaluation."""
    return CachedMap(partial(orthogonal_together, kind=kind))


def orthogonal_together(raw: Sequence[Tensor], kind: OrthogonalMap) -> list[Tensor]:
    """The orthogonal matrices of tensors of one D, all in one batched call; shaped as they came.

    (…, D, D) holds matrices, (N D, D) too, one below the other. They are made in float32, and given in the type of
    matrix products.
    """
    stacks = [tensor.reshape(-1, tensor.shape[-1], tensor.shape[-1]) for tensor in raw]
    made = orthogonal(torch.cat(stacks), kind)
    parts = torch.split(made.to(compute_dtype(made)), [len(stack) for stack in stacks])
    return [matrices.reshape(tensor.shape) for matrices, tensor in zip(parts, raw, strict=True)]
