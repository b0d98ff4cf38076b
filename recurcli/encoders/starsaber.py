"""StarSaber: an RNN made bidirectional by attention, its fixed-point equations iterated L times (Xu, Hu & Tang, 2021).

    G_ni = softmax_i( h_n^T W h_i / sqrt(D) )                    over all positions i, both directions, one softmax
    A_n  = sum_{i<n} G_ni U h_i + sum_{i>=n} G_ni Q h_i
    h'_n = h_n + alpha tanh(A_n + V x_n)                         eq. 5;  h^0 = x

Shapes: B batch, T positions, D hidden size, L layers. 8 D² + 6 T D FLOPs a token and layer in matrix products.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recurcli.encoders.encoder import Encoder, check_dropout, check_sizes
from recurcli.layers.positions import sinusoidal_positions
from recurcli.layers.precision import compute_dtype
from recurcli.ops.attention import directional_attention
from recurcli.validation import STRICT


class StarSaberLayer(nn.Module):
    """One application of eq. 5. W, U, Q and V are `relation`, `past`, `future` and `input`: U h_i is past @ h_i.

    Without the direct path `input` is None. With sinusoidal positions `future` is another name of `past`. A layer of
    the tied form has no `alpha`.
    """

    def __init__(self, config: "StarSaber.Config") -> None:
        super().__init__()
        size = config.hidden_size
        self.relation = nn.Parameter(torch.empty(size, size))
        self.one_side = config.position == "sinusoidal"
        if not self.one_side:
            self.future = nn.Parameter(torch.empty(size, size))
        self.past = nn.Parameter(torch.empty(size, size))
        self.input = nn.Parameter(torch.empty(size, size)) if config.direct_path else None
        self.bias = nn.Parameter(torch.zeros(size)) if config.bias else None
        self.alpha = None if config.tied else nn.Parameter(torch.tensor(config.alpha_init))
        self.dropout = nn.Dropout(config.dropout)

    def __getattr__(self, name: str) -> Any:
        # The parameter is registered once, because a checkpoint refuses two names for one tensor.
        return super().__getattr__("past" if name == "future" and self.__dict__.get("one_side") else name)

    def forward(self, h: Tensor, x: Tensor, mask: Tensor | None) -> Tensor:
        """h' of eq. 5, or without `alpha` the update alone: (B, T, D) -> (B, T, D)."""
        update = self.update(h, x, mask)
        return update if self.alpha is None else torch.addcmul(h, self.alpha, self.dropout(update))

    def update(self, h: Tensor, x: Tensor, mask: Tensor | None) -> Tensor:
        """tanh(A + V x + b): (B, T, D) -> (B, T, D), in the type of matrix products."""
        h = h.to(compute_dtype(h))
        key, past = F.linear(h, self.relation), F.linear(h, self.past)
        future = past if self.one_side else F.linear(h, self.future)
        direct = None if self.input is None else F.linear(x, self.input)
        update = directional_attention(h, key, past, future, mask, onto=direct)
        if self.bias is not None:
            update += self.bias
        return update.tanh_()


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
        self.adds_positions = config.position == "sinusoidal"
        size = config.hidden_size
        self.layers = nn.ModuleList(StarSaberLayer(config) for _ in range(config.num_layers or 1))
        self.initial = nn.Linear(size, size, bias=False) if config.initial == "linear" else None
        self.iterations: Tensor | None = None
        """Tied form: how many iterations each row (B,) of the last batch took."""
        self._reset(config)

    def _reset(self, config: Config) -> None:
        """Draw the matrices; ours, because the paper says nothing of it.

        Stack: all N(0, 1 / (D L)). The L updates are then together as large as one of N(0, 1 / D), so that with alpha 1
        and inputs of any scale up to 1 a unit, states and gradients keep their size through 24 layers.
        Tied: U and Q have a 2-norm near 0.4 and W one near 1 / (2 sqrt(D)), so that K (1 + 2 sqrt(D) |W|) is near 0.8
        with K = max(|U|, |Q|): below 1 the iteration is a contraction from h^1 on, where |h_ni| <= 1.
        """
        size = config.hidden_size
        side = relation = direct = (size * len(self.layers)) ** -0.5
        if config.tied:
            side, relation, direct = 0.2 * size**-0.5, 0.25 / size, size**-0.5
        for layer in cast(Iterable[StarSaberLayer], self.layers):
            nn.init.normal_(layer.relation, std=relation)
            nn.init.normal_(layer.past, std=side)
            if not layer.one_side:
                nn.init.normal_(layer.future, std=side)
            if layer.input is not None:
                nn.init.normal_(layer.input, std=direct)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        if mask is not None:
            x = x.masked_fill(~mask[..., None], 0.0)
        if self.config.position == "sinusoidal":
            x = x + sinusoidal_positions(x)
        if self.config.tied:
            with torch.autocast(x.device.type, enabled=False):  # no narrower type reaches the tolerance
                return self._fixed_point(x, mask)
        h = self._first(x)
        x = x.to(compute_dtype(x))  # here once, not in every layer
        for layer in self.layers:
            h = layer(h, x, mask)
        return h

    def _first(self, x: Tensor) -> Tensor:
        """h^0 (B, T, D); under autocast it is float32, and so is the residual path."""
        dtype = torch.promote_types(x.dtype, torch.float32) if compute_dtype(x) != x.dtype else x.dtype
        if self.initial is not None:
            return self.initial(x).to(dtype)
        return torch.zeros_like(x, dtype=dtype) if self.config.initial == "zero" else x.to(dtype)

    def _fixed_point(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Iterate h' = tanh(A + V x) until every sequence has converged, each frozen at its own convergence."""
        layer = cast(StarSaberLayer, self.layers[0])
        kept = layer.dropout(torch.ones_like(x))
        h = self._first(x)
        active = torch.ones(len(x), dtype=torch.bool, device=x.device)  # (B,)
        iterations = torch.zeros_like(active, dtype=torch.int64)
        for _ in range(self.config.max_iterations):
            updated = kept * layer(h, x, mask)
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
