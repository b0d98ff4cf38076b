"""TransJect: injective layers of orthogonal maps, mixed over experts (Sengupta, Akhtar & Chakraborty, Findings of EMNLP 2023).

    s      = q / max_i q_i,   q = sum_t P_t^2,   P = x Us                 eigenvalues, once, on the embeddings x
    Y_e    = ELU( ((h U_e) * s) V_e )                                     expert e of a layer, no bias
    lambda = softmax_e( w · max_t (h + r Y_e) + b_e )                     r = tanh(alpha) / L
    a      = h + r sum_e lambda_e Y_e
    h'     = a + r ELU( W2 dropout(ELU(W1 a)) )                           Us, U, V, W1, W2 orthogonal (D, D)

A token learns of the others through s (D numbers) and lambda (E numbers a layer) and in no other way: there is no
attention, time and memory are linear in T. There is no LayerNorm either; positions are half of each embedding. As every
map is orthogonal, s lies in [0, 1] and ELU never stretches, in evaluation two tokens of one sample stay apart:
prod (1 - |r|)^2 |x - y| <= |f(x) - f(y)| <= prod (1 + |r|)^2 |x - y| over the layers.

Shapes: B batch, T positions, D hidden size, E experts, L layers.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from recurcli.encoders.encoder import Encoder, check_dropout, check_sizes
from recurcli.layers.injective import TransJectLayer, run_layers
from recurcli.layers.orthogonal import orthogonal_matrices
from recurcli.ops.orthogonal import OrthogonalMap, orthogonal
from recurcli.validation import STRICT


def zero_padding(x: Tensor, mask: Tensor | None) -> Tensor:
    """`x` (B, T, D), with zeros where `mask` (B, T) is False."""
    return x if mask is None else x.masked_fill(~mask[..., None], 0.0)


def eigenvalues(x: Tensor, eigenvectors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """s (B, D) of x (B, T, D) and Us (D, D); also P (B, T, D) and the divisor (B, 1) that it is made with.

    The paper standardises q in a way that is lost; division by the greatest entry is ours.
    """
    projected = x @ eigenvectors
    q = projected.to(torch.promote_types(projected.dtype, torch.float32)).square().sum(dim=1)
    divisor = greatest(q)
    return q / divisor, projected, divisor


def greatest(q: Tensor) -> Tensor:
    """The greatest of the numbers (…, D) that are 0 or more, to divide by: (…, 1), and 1 where all are 0."""
    largest = q.amax(dim=-1, keepdim=True)
    return torch.where(largest > torch.finfo(q.dtype).tiny, largest, 1.0)


class TransJect(Encoder):
    """L layers of E experts, eigenvalues of the embeddings; (2 E + 2) D² + D + E + 1 parameters a layer, D² for Us.

    Ours: the raw parameters start as N(0, 1/D), the expert weights' vector too; dropout; the mean over samples
    of the auxiliary loss.
    """

    concatenates_positions: ClassVar[bool] = True

    @dataclass(frozen=True, kw_only=True)
    class Config:
        __pydantic_config__ = STRICT
        hidden_size: int
        """D, the size of embeddings and hidden states."""
        num_layers: int
        """L, the number of layers."""
        num_experts: int = 4
        """E, the experts of a layer."""
        orthogonal_map: OrthogonalMap = "cayley"
        """How parameters become orthogonal matrices: cayley (the fast one) or householder."""
        auxiliary_weight: float = 0.001
        """Weight of the loss that makes s the eigenvalues of x^T x; 0 leaves it out."""
        dropout: float = 0.1
        """Probability to drop an inner unit of the feed-forward network."""

        def __post_init__(self) -> None:
            check_sizes(hidden_size=self.hidden_size, num_layers=self.num_layers, num_experts=self.num_experts)
            check_dropout(self.dropout)
            if not 0 <= self.auxiliary_weight < float("inf"):
                raise ValueError(f"auxiliary_weight must be at least 0, not {self.auxiliary_weight}")

    def __init__(self, config: Config) -> None:
        super().__init__()
        size = config.hidden_size
        self.auxiliary_weight = config.auxiliary_weight
        self.orthogonal_map = config.orthogonal_map
        self.eigenvectors = nn.Parameter(torch.randn(size, size) * size**-0.5)
        """Us (D, D) before the map."""
        self.layers = nn.ModuleList(
            TransJectLayer(size, config.num_experts, config.num_layers, config.dropout)
            for _ in range(config.num_layers)
        )
        self.matrices = orthogonal_matrices(config.orthogonal_map)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = zero_padding(x, mask)
        eigenvectors, *matrices = self.matrices([self.eigenvectors, *(layer.raw for layer in self.layers)])
        s, _, _ = eigenvalues(x, eigenvectors)
        return run_layers(self.layers, matrices, x, s, mask)

    def auxiliary_losses(self, x: Tensor, mask: Tensor | None = None) -> dict[str, Tensor]:
        """`reconstruction`: weight · |Us^T (x^T x / max q) Us - diag(s)|^2 / D^2, squared Frobenius norm, sample mean.

        Us^T x^T x Us is P^T P, whose diagonal is q: what is left are the entries off the diagonal.
        """
        if self.auxiliary_weight == 0:
            return {}
        _, projected, divisor = eigenvalues(zero_padding(x, mask), orthogonal(self.eigenvectors, self.orthogonal_map))
        products = projected.mT @ projected / divisor[..., None]  # (B, D, D)
        remainder = products - torch.diag_embed(products.diagonal(dim1=1, dim2=2))
        return {"reconstruction": self.auxiliary_weight * remainder.square().mean()}


class RandomTransJect(Encoder):
    """TransJect whose eigenvalues are one learned vector for all samples, s = |theta| / max |theta|; no auxiliary loss.

    The authors' code draws s anew at every forward; a parameter with a random start is what the paper says. Ours: that
    start is N(0, 1), and as in `TransJect`.
    """

    concatenates_positions: ClassVar[bool] = True

    @dataclass(frozen=True, kw_only=True)
    class Config:
        __pydantic_config__ = STRICT
        hidden_size: int
        """D, the size of embeddings and hidden states."""
        num_layers: int
        """L, the number of layers."""
        num_experts: int = 4
        """E, the experts of a layer."""
        orthogonal_map: OrthogonalMap = "cayley"
        """How parameters become orthogonal matrices: cayley (the fast one) or householder."""
        dropout: float = 0.1
        """Probability to drop an inner unit of the feed-forward network."""

        def __post_init__(self) -> None:
            check_sizes(hidden_size=self.hidden_size, num_layers=self.num_layers, num_experts=self.num_experts)
            check_dropout(self.dropout)

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.randn(config.hidden_size))
        self.layers = nn.ModuleList(
            TransJectLayer(config.hidden_size, config.num_experts, config.num_layers, config.dropout)
            for _ in range(config.num_layers)
        )
        self.matrices = orthogonal_matrices(config.orthogonal_map)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        s = self.theta.abs() / greatest(self.theta.abs())
        matrices = self.matrices([layer.raw for layer in self.layers])
        return run_layers(self.layers, matrices, zero_padding(x, mask), s[None], mask)
