"""StarSaber: an RNN made bidirectional by attention, its fixed-point equations iterated L times (Xu, Hu & Tang, 2021).

    G_ni = softmax_i( h_n^T W h_i / sqrt(D) )                    over all positions i, both directions, one softmax
    A_n  = sum_{i<n} G_ni U h_i + sum_{i>=n} G_ni Q h_i
    h'_n = h_n + alpha tanh(A_n + V x_n)                         eq. 5;  h^0 = x

Shapes: B batch, T positions, D hidden size, L layers. 8 D² + 6 T D multiply-adds' FLOPs a token and layer.
"""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recurcli.encoders.encoder import Encoder, check_dropout, check_sizes
from recurcli.layers.positions import sinusoidal_positions
from recurcli.ops.attention import directional_attention
from recurcli.validation import STRICT


class StarSaberLayer(nn.Module):
    """One application of eq. 5. `weight` (3, D, D) holds W, U and Q; (2, D, D) where U and Q are one matrix."""

    def __init__(self, config: "StarSaber.Config") -> None:
        super().__init__()
        size = config.hidden_size
        self.weight = nn.Parameter(torch.empty(3 if config.position == "directional" else 2, size, size))
        self.input = nn.Parameter(torch.empty(size, size)) if config.direct_path else None
        self.bias = nn.Parameter(torch.zeros(size)) if config.bias else None
        self.alpha = None if config.tied else nn.Parameter(torch.tensor(config.alpha_init))
        self.dropout = nn.Dropout(config.dropout)

    @property
    def relation(self) -> Tensor:
        """W (D, D), a view to read and write in place."""
        return self.weight[0]

    @property
    def past(self) -> Tensor:
        """U (D, D), a view to read and write in place."""
        return self.weight[1]

    @property
    def future(self) -> Tensor:
        """Q (D, D), a view to read and write in place; with sinusoidal positions the same memory as `past`."""
        return self.weight[-1]

    def forward(self, h: Tensor, x: Tensor, mask: Tensor | None) -> Tensor:
        """h' of eq. 5: (B, T, D) -> (B, T, D)."""
        return h + self.alpha * self.dropout(self.update(h, x, mask))

    def update(self, h: Tensor, x: Tensor, mask: Tensor | None) -> Tensor:
        """tanh(A + V x + b): (B, T, D) -> (B, T, D)."""
        projected = F.linear(h, self.weight.flatten(0, 1)).chunk(len(self.weight), dim=-1)  # (B, T, D) each
        attended = directional_attention(h.to(projected[0].dtype), projected[0], projected[1], projected[-1], mask)
        if self.input is not None:
            attended = attended + F.linear(x, self.input)
        return torch.tanh(attended if self.bias is None else attended + self.bias)


class StarSaber(Encoder):
    """L untied layers, or with `tied` one layer iterated to its fixed point; 4 D² + 1 parameters a layer.

    Ours: the initial weights (`_reset`), biases (the paper ignores them: one vector a layer, inside tanh), and
    dropout, which acts on tanh's output before the residual sum (in the tied form one draw serves all iterations).
    """

    @dataclass(frozen=True, kw_only=True)
    class Config:
        __pydantic_config__ = STRICT
        hidden_size: int
        """D, the size of embeddings and hidden states."""
        num_layers: int | None = None
        """L, the number of layers; required, but refused with tied weights."""
        alpha_init: float = 1.0
        """Initial weight of a layer's update beside its residual path; 1 is the paper's, 0 is ReZero's."""
        position: Literal["directional", "sinusoidal"] = "directional"
        """How order enters: separate matrices for past and future, or one matrix and a sine table added to x."""
        direct_path: bool = True
        """Whether every layer sees the embeddings through V."""
        bias: bool = False
        """Whether a bias is added inside tanh."""
        dropout: float = 0.0
        """Probability to drop a unit of a layer's update, before it is added to the residual path."""
        tied: bool = False
        """One set of weights, no residual path, iterated to convergence (the paper's section 3.2)."""
        tolerance: float = 1e-6
        """Tied form: a sequence has converged when no position moves further than this, in the 2-norm."""
        max_iterations: int = 100
        """Tied form: the most iterations that a sequence may take."""
        initial: Literal["input", "zero", "linear"] = "input"
        """The first hidden states: the embeddings, zeros, or a linear map of the embeddings."""

        def __post_init__(self) -> None:
            check_sizes(hidden_size=self.hidden_size, max_iterations=self.max_iterations)
            check_dropout(self.dropout)
            if self.tied and self.num_layers is not None:
                raise ValueError(f"num_layers must be null with tied weights, not {self.num_layers}")
            if not self.tied and self.num_layers is None:
                raise ValueError("num_layers is required unless the weights are tied")
            check_sizes(num_layers=1 if self.num_layers is None else self.num_layers)
            if not self.tolerance >= 0:
                raise ValueError(f"tolerance must be at least 0, not {self.tolerance}")

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        size = config.hidden_size
        self.layers = nn.ModuleList(StarSaberLayer(config) for _ in range(config.num_layers or 1))
        self.initial = nn.Linear(size, size, bias=False) if config.initial == "linear" else None
        self.iterations: Tensor | None = None
        """Tied form: how many iterations each row (B,) of the last batch took."""
        for layer in self.layers:
            deviation = (size * len(self.layers)) ** -0.5
            nn.init.normal_(layer.weight, std=deviation)
            if layer.input is not None:
                nn.init.normal_(layer.input, std=deviation)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        if mask is not None:
            x = x.masked_fill(~mask[..., None], 0.0)
        if self.config.position == "sinusoidal":
            x = x + sinusoidal_positions(x)
        h = self._first(x)
        if self.config.tied:
            return self._fixed_point(h, x, mask)
        for layer in self.layers:
            h = layer(h, x, mask)
        return h

    def _first(self, x: Tensor) -> Tensor:
        """h^0 (B, T, D)."""
        if self.initial is not None:
            return self.initial(x)
        return torch.zeros_like(x) if self.config.initial == "zero" else x

    def _fixed_point(self, h: Tensor, x: Tensor, mask: Tensor | None) -> Tensor:
        """Iterate h' = tanh(A + V x) until every sequence has converged, each frozen at its own convergence."""
        layer = self.layers[0]
        kept = layer.dropout(torch.ones_like(x))
        active = torch.ones(len(x), dtype=torch.bool, device=x.device)  # (B,)
        iterations = torch.zeros_like(active, dtype=torch.int64)
        for _ in range(self.config.max_iterations):
            updated = kept * layer.update(h, x, mask)
            moved = torch.linalg.vector_norm((updated - h).detach(), dim=-1)  # (B, T)
            if mask is not None:
                moved = moved.masked_fill(~mask, 0.0)
            h = torch.where(active[:, None, None], updated, h)
            iterations += active
            active = active & (moved.amax(dim=-1) > self.config.tolerance)
            if not active.any():
                break
        self.iterations = iterations
        return h
