"""All orthogonal matrices of a model at once."""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from recurcli.layers.cached import CachedMap, compute_dtype
from recurcli.ops.orthogonal import orthogonal
from recurcli.validation import OrthogonalMap


def orthogonal_matrices(kind: OrthogonalMap) -> CachedMap:
    """From raw tensors of one D to their orthogonal matrices, in one batched call, kept in evaluation."""
    return CachedMap(partial(orthogonal_together, kind=kind))


def orthogonal_together(raw: Sequence[Tensor], kind: OrthogonalMap) -> list[Tensor]:
    """Return the orthogonal matrices of all `raw` tensors, from one batched call. The shapes do not change.

    A tensor is (…, D, D), or (N D, D) with N matrices one below the other; all have the same D. The map is computed in
    float32. The result has the dtype of matrix products (`compute_dtype`).
    """
    stacks = [tensor.reshape(-1, tensor.shape[-1], tensor.shape[-1]) for tensor in raw]
    stacked = torch.cat(stacks)
    made = orthogonal(stacked, kind, gradient_dtype=compute_dtype(stacked))
    parts = torch.split(made.to(compute_dtype(made)), [len(stack) for stack in stacks])
    return [matrices.reshape(tensor.shape) for matrices, tensor in zip(parts, raw, strict=True)]
