"""Differentiable maps from unconstrained matrices to orthogonal ones; square matrices are mapped in batches.

    cayley        Q = (I + S/2)^-1 (I - S/2) = 2 (I + S/2)^-1 - I        S = X - X^T
    householder   Q = H_1 H_2 … H_D,   H_k = I - 2 v_k v_k^T / (v_k^T v_k)

with v_k the k-th column of X strictly below the diagonal, and 1 on it. Shapes: D rows and columns, any dimensions before.
"""

from typing import Any

import torch
from torch import Tensor

from recurcli.ops.precision import at_least_float32, without_autocast
from recurcli.validation import OrthogonalMap

BLOCK = 32  # up to this size LAPACK's inverse is as fast as products of its halves


def orthogonal(raw: Tensor, kind: OrthogonalMap = "cayley", *, gradient_dtype: torch.dtype | None = None) -> Tensor:
    """Return the orthogonal matrix of each matrix of `raw`, in one batched call: (…, D, D) -> (…, D, D).

    cayley (Cayley, 1846) uses the second form above. It maps 0 to I. Its results have determinant 1 and are all
    orthogonal matrices without the eigenvalue -1. householder (Householder, 1958) maps 0 to -I. Its results have
    determinant (-1)^D. The reflections are multiplied at once in the compact WY form I - V T V^T, where T^-1 is the
    strictly upper part of V^T V plus half its diagonal (Schreiber & Van Loan, 1989; Joffrain et al., 2006). Both
    compute in float32 or a wider dtype, also under autocast, and return the dtype of `raw`. The matrix products in the
    backward pass of cayley take `gradient_dtype`, so that mixed precision covers them; None means the dtype of the map.
    householder does not use `gradient_dtype`.
    """
    with without_autocast(raw):
        wide = at_least_float32(raw)
        made = _householder(wide) if kind == "householder" else _cayley(wide, gradient_dtype or wide.dtype)
    return made.to(raw.dtype)


def orthonormal(raw: Tensor) -> Tensor:
    """Make the columns of `raw` (N, D) orthonormal: Q = X R^-1 with R^T R = X^T X. If N < D, make its rows orthonormal.

    Different rows stay different: all rows are multiplied by one invertible matrix, or they are orthonormal. R is the
    Cholesky factor of X^T X (CholeskyQR), in float64, because X^T X has the squared condition number of X.
    """
    if raw.shape[0] < raw.shape[1]:
        return orthonormal(raw.mT).mT
    with without_autocast(raw):
        products = raw.double().mT @ raw.double()
        least = torch.finfo(products.dtype).eps * products.trace()  # a column that depends on others leaves no hole
        factor = torch.linalg.cholesky_ex(products + least * _identity(products)).L
        inverse = torch.linalg.solve_triangular(factor, _identity(products), upper=False).mT  # R^-1
        made = at_least_float32(raw) @ inverse.to(at_least_float32(raw).dtype)
    return made.to(raw.dtype)


def _cayley(raw: Tensor, gradient_dtype: torch.dtype) -> Tensor:
    return _Cayley.apply(raw, gradient_dtype)  # type: ignore[no-untyped-call]


def _householder(raw: Tensor) -> Tensor:
    vectors = raw.tril(-1) + _identity(raw)  # (…, D, D), a reflection's vector in each column
    products = vectors.mT @ vectors
    inverse = products.triu(1) + torch.diag_embed(products.diagonal(dim1=-2, dim2=-1) / 2)  # T^-1
    return _identity(raw) - vectors @ torch.linalg.solve_triangular(inverse, vectors.mT, upper=True)


def _identity(like: Tensor) -> Tensor:
    return torch.eye(like.shape[-1], dtype=like.dtype, device=like.device)


class _Cayley(torch.autograd.Function):
    """Cayley's map. Its inverse takes a third of the time of LAPACK's on a CPU, because nearly all of it is matrix products."""

    generate_vmap_rule = True

    @staticmethod
    def forward(raw: Tensor, gradient_dtype: torch.dtype) -> Tensor:
        matrix = torch.sub(raw, raw.mT)  # 2 I + S, twice the matrix to invert
        matrix.diagonal(dim1=-2, dim2=-1).add_(2)
        result = _block_inverse(matrix.flatten(0, -3)).view_as(matrix) if matrix.ndim > 3 else _block_inverse(matrix)
        result.mul_(4)
        result.diagonal(dim1=-2, dim2=-1).sub_(1)
        return result

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, torch.dtype], output: Tensor) -> None:
        ctx.gradient_dtype = inputs[1]
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """With M = I + S/2 and Q = 2 M^-1 - I, the gradient of X is K^T - K, K = M^-T G M^-T and M^-1 = (Q + I) / 2.

        On a CPU it takes one matrix at a time, which stays in the cache.
        """
        parts = (x.to(ctx.gradient_dtype).reshape(-1, *x.shape[-2:]) for x in (*ctx.saved_tensors, gradient))
        products = []
        for q, g in zip(*(torch.split(x, 1 if x.device.type == "cpu" else len(x)) for x in parts), strict=True):
            half = torch.baddbmm(g, q.mT, g)  # (I + Q^T) G
            products.append(torch.baddbmm(half, half, q.mT))
        product = torch.cat(products).view_as(gradient).to(gradient.dtype)
        return torch.sub(product.mT, product).div_(4), None


def _block_inverse(matrix: Tensor) -> Tensor:
    """Return M^-1 by recursion on 2 x 2 blocks, with a Schur complement: (…, D, D) -> (…, D, D).

    No pivoting is needed: M + M^T >= 2 I holds for M, and so for its diagonal blocks and every Schur complement.
    """
    size = matrix.shape[-1]
    if size <= BLOCK:
        return torch.linalg.inv_ex(matrix).inverse
    half = size // 2
    (a, b), (c, d) = (rows.tensor_split([half], dim=-1) for rows in matrix.tensor_split([half], dim=-2))
    first = _block_inverse(a)
    left, right = first @ b, c @ first
    second = _block_inverse(d - c @ left)
    upper = left @ second
    inverse = torch.empty_like(matrix, memory_format=torch.contiguous_format)
    inverse[..., :half, :half] = first + upper @ right
    inverse[..., :half, half:] = -upper
    inverse[..., half:, :half] = -(second @ right)
    inverse[..., half:, half:] = second
    return inverse


def orthogonal_loop(raw: Tensor, kind: OrthogonalMap = "cayley") -> Tensor:
    """The definition of `orthogonal`: one matrix at a time, Cayley's quotient or one reflection after the other."""
    size = raw.shape[-1]
    identity = _identity(raw)
    matrices = []
    for single in raw.reshape(-1, size, size).unbind():
        if kind == "cayley":
            skew = single - single.mT
            matrices.append(torch.linalg.solve(identity + skew / 2, identity - skew / 2))
        else:
            product = identity
            for k in range(size):
                vector = torch.cat([raw.new_zeros(k), raw.new_ones(1), single[k + 1 :, k]])
                product = product @ (identity - 2 * torch.outer(vector, vector) / (vector @ vector))
            matrices.append(product)
    return torch.stack(matrices).reshape(raw.shape)
