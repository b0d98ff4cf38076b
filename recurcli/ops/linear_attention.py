"""Linear attention (Katharopoulos et al., Transformers are RNNs, 2020): the softmax's kernel replaced by φ(q) · φ(k).

    y_i = φ(q_i)^T S_i / (φ(q_i)^T Z_i + eps),   S_i = sum_j φ(k_j) v_j^T,   Z_i = sum_j φ(k_j)          (eqs. 4 to 7)

Sums over all real j, or over j <= i if causal; φ(x) is elu(x) + 1 (eq. 7), relu(x) or exp(x), and no 1 / sqrt(K). Like the
authors' code the denominator has an eps of 1e-6. Shapes: B batch, T positions, K key size, V value size, … further dimensions
such as heads. `mask` (B, T) is bool, True at real tokens; B is the first dimension of keys.
"""

import math
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from recurcli.ops.precision import at_least_float32, without_autocast

EPSILON = 1e-6
BLOCK = 64
"""Positions of a block of the causal form."""

State = tuple[Tensor, Tensor]
"""S (…, K, V) and Z (…, K): what the recurrent form carries, of one size at every position."""


FeatureMap = Literal["elu", "relu", "exp"]
LARGEST = 30.0
"""exp takes no larger number [ours]: with two such factors a sum over any text stays within float32."""


def feature_map(x: Tensor, kind: FeatureMap = "elu") -> Tensor:
    """Return φ(x): elu(x) + 1, relu(x), or exp(x) of x up to LARGEST.

    elu is computed as max(x, 0) + exp(min(x, 0)): far below 0 the sum would be rounded to 0 sooner.
    """
    if kind == "elu":
        return x.relu() + x.clamp(max=0).exp()
    return x.relu() if kind == "relu" else x.clamp(max=LARGEST).exp()


def _derivative(mapped: Tensor, kind: FeatureMap) -> Tensor:
    """Return φ'(x), given φ(x)."""
    if kind == "elu":
        return mapped.clamp(max=1)
    return (mapped > 0).to(mapped.dtype) if kind == "relu" else mapped * (mapped < (1 - 1e-6) * math.exp(LARGEST))


def linear_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    *,
    causal: bool = False,
    kind: FeatureMap = "elu",
) -> Tensor:
    """(…, T, K), (…, T, K), (…, T, V) -> (…, T, V) in O(T K V); padded keys do not count.

    `kind` is φ. A row with no real token gives 0. The form that is not causal has first derivatives only.
    """
    if causal and torch.compiler.is_exporting():  # a graph for every length has no number of blocks
        return linear_attention_loop(query, key, value, mask, causal=True, kind=kind)
    if causal:
        return _causal(feature_map(query, kind), _real(feature_map(key, kind), mask), value)
    if torch.compiler.is_compiling():  # a graph for all lengths cannot hold a backward pass of our own
        query, key = feature_map(query, kind), _real(feature_map(key, kind), mask)
        return (query @ (key.mT @ value)) / (query @ key.sum(dim=-2, keepdim=True).mT + EPSILON)
    with without_autocast(query):
        return _Bidirectional.apply(query, key, value, mask, kind)  # type: ignore[no-untyped-call]


class _Bidirectional(torch.autograd.Function):
    """The form that is not causal. It keeps φ and four smaller tensors."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, kind: FeatureMap) -> Tensor:
        query, key = feature_map(query.contiguous(), kind), _real(feature_map(key.contiguous(), kind), mask)
        ctx.kind = kind
        sums, normalizer = key.mT @ value, key.sum(dim=-2, keepdim=True)  # (…, K, V) and (…, 1, K)
        total = query @ normalizer.mT + EPSILON  # (…, T, 1)
        result = (query @ sums).div_(total)
        ctx.save_for_backward(query, key, value, sums, normalizer, total, result)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        query, key, value, sums, normalizer, total, result = ctx.saved_tensors
        of_product = gradient / total  # of query @ sums
        of_total = -(of_product * result).sum(dim=-1, keepdim=True)
        of_sums = query.mT @ of_product
        of_query = (of_product @ sums.mT).addcmul_(of_total, normalizer)
        of_key = (value @ of_sums.mT).add_((query.mT @ of_total).mT)
        of_query, of_key = of_query.mul_(_derivative(query, ctx.kind)), of_key.mul_(_derivative(key, ctx.kind))
        return of_query, of_key, key @ of_sums, None, None


def linear_attention_step(
    query: Tensor, key: Tensor, value: Tensor, state: State | None = None, *, kind: FeatureMap = "elu"
) -> tuple[Tensor, State]:
    """One position of the causal form (eqs. 16 to 20): (…, K), (…, K), (…, V) -> (…, V) and the state; None is empty."""
    with without_autocast(query):  # in bf16 the sums would stop growing after some hundred positions
        query, key = (feature_map(at_least_float32(part), kind) for part in (query, key))
        product = key.unsqueeze(-1) * value.unsqueeze(-2)  # (…, K, V)
        sums, normalizer = (product, key) if state is None else (state[0] + product, state[1] + key)
        total = (query * normalizer).sum(dim=-1, keepdim=True)
        found = (query.unsqueeze(-2) @ sums).squeeze(-2) / (total + EPSILON)
    return found.to(value.dtype), (sums, normalizer)


def linear_attention_loop(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    *,
    causal: bool = False,
    kind: FeatureMap = "elu",
) -> Tensor:
    """The definition of `linear_attention`: every query's weights over all keys, a (T, T) matrix (eq. 4)."""
    return linear_attention_weights(query, key, mask, causal=causal, kind=kind) @ value


def linear_attention_weights(
    query: Tensor, key: Tensor, mask: Tensor | None = None, *, causal: bool = False, kind: FeatureMap = "elu"
) -> Tensor:
    """φ(q_i) · φ(k_j), divided by its sum over j: (…, T, K) x 2 -> (…, T, T), rows that sum to 1."""
    weights = feature_map(query, kind) @ _real(feature_map(key, kind), mask).mT
    if causal:
        weights = weights.tril()
    return weights / (weights.sum(dim=-1, keepdim=True) + EPSILON)


def _real(key: Tensor, mask: Tensor | None) -> Tensor:
    """φ(K) (…, T, K) with zeros at padding."""
    if mask is None:
        return key
    shape = (mask.shape[0], *[1] * (key.ndim - 3), mask.shape[1], 1)
    return key.masked_fill(~mask.view(shape), 0.0)


def _causal(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """The causal form of mapped queries and keys: inside a block by its weights, before it by the sums so far."""
    length = value.shape[-2]
    block = BLOCK if torch.compiler.is_compiling() else min(BLOCK, length)  # one graph serves all lengths
    missing = -length % block
    query, key, value = (
        F.pad(x, (0, 0, 0, missing)).reshape(*x.shape[:-2], -1, block, x.shape[-1]) for x in (query, key, value)
    )  # (…, N, C, K) and (…, N, C, V)
    weights = (query @ key.mT).tril()  # (…, N, C, C)
    products = key.mT @ value  # (…, N, K, V)
    sums = _before(products.flatten(-2)).view(products.shape)
    counts = _before(key.sum(dim=-2))  # (…, N, K)
    total = weights.sum(dim=-1, keepdim=True) + query @ counts.unsqueeze(-1)  # (…, N, C, 1)
    result = (weights @ value + query @ sums) / (total + EPSILON)
    return result.flatten(-3, -2)[..., :length, :]


def _before(x: Tensor) -> Tensor:
    """The sum of all earlier blocks, for every block: (…, N, E) -> (…, N, E)."""
    return F.pad(x.cumsum(dim=-2), (0, 0, 1, -1))
