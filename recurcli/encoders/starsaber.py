"""StarSaber: the fixed-point equations of an RNN with bidirectional attention, iterated L times (Xu, Hu & Tang, 2021).

    G_ni = softmax_i( h_n^T W h_i / sqrt(D) )                    one softmax over all positions i
    A_n  = sum_{i<n} G_ni U h_i + sum_{i>=n} G_ni Q h_i
    h'_n = h_n + alpha tanh(A_n + V x_n)                         eq. 5;  h^0 = x

One-sided (`causal`; ours): the softmax is over i < n alone and there is no Q, so A_n = sum_{i<n} G_ni U h_i, and A_1 = 0. An
average of all earlier states stands where an RNN has the last one.

Shapes: B batch, T positions, D hidden size, L layers. Matrix products: 8 D² + 6 T D FLOPs per token and layer.
"""

from collections.abc import Callable, Iterable
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from recurcli.encoders.config import StarSaberConfig
from recurcli.encoders.encoder import Encoder, LayerStats
from recurcli.layers import Dropout, compute_dtype, normal_, orthogonal_matrices, sinusoidal_positions
from recurcli.ops.attention import (
    KERNEL_SIZES,
    attention_weights,
    directional_attention_,
    past_attention_,
    past_weights,
)
from recurcli.ops.precision import without_autocast


class StarSaberLayer(nn.Module):
    """One layer of eq. 5. W, U, Q and V are `relation`, `past`, `future` and `input`, each (D, D); U h_i is past @ h_i.

    `input` is None without the direct path. With sinusoidal positions, `future` is an alias of `past`. If one-sided, `future`
    is None. `alpha` is None in the tied form. `slope` (D,) is w where alpha depends on the state, else None.
    """

    alpha: Tensor | None
    attend = staticmethod(directional_attention_)
    """`directional_attention_`, or its kernels (`StarSaber.use_kernel`)."""

    def __init__(self, config: StarSaberConfig) -> None:
        super().__init__()
        size = config.hidden_size
        self.relation = nn.Parameter(torch.empty(size, size))
        self.causal, self.one_side = config.causal, config.position == "sinusoidal"
        if not self.one_side and not self.causal:
            self.future = nn.Parameter(torch.empty(size, size))
        self.past = nn.Parameter(torch.empty(size, size))
        self.input = nn.Parameter(torch.empty(size, size)) if config.direct_path else None
        self.bias = nn.Parameter(torch.zeros(size)) if config.bias else None
        alpha = torch.tensor(config.alpha_init)
        if config.alpha == "fixed":
            self.register_buffer("alpha", alpha)
        else:
            self.alpha = None if config.tied else nn.Parameter(alpha)
        self.slope = nn.Parameter(torch.zeros(size)) if config.alpha == "state" else None
        self.dropout = Dropout(config.dropout)

    def __getattr__(self, name: str) -> Any:
        if name == "future" and self.__dict__.get("causal"):
            return None
        # The parameter is registered once, because safetensors refuses two names for one tensor.
        return super().__getattr__("past" if name == "future" and self.__dict__.get("one_side") else name)

    def forward(self, h: Tensor, x: Tensor, mask: Tensor | None) -> Tensor:
        """Return h' of eq. 5, or only the update, in the dtype of autocast, if `alpha` is None: (B, T, D) -> (B, T, D)."""
        state = h.to(compute_dtype(h))
        key, past = F.linear(state, self.relation), F.linear(state, self.past)
        update = None if self.input is None else F.linear(x, self.input)
        if self.causal:
            update = past_attention_(update, state, key, past)
        else:
            future = past if self.one_side else F.linear(state, self.future)
            update = self.attend(update, state, key, past, future, mask)
        if self.bias is not None:
            update += self.bias
        update.tanh_()
        if self.alpha is None:
            return update
        alpha = self.alpha if self.slope is None else 2 * self.alpha * torch.sigmoid(h @ self.slope).unsqueeze(-1)
        return torch.addcmul(h, alpha, self.dropout(update))

    def scalars(self) -> dict[str, float]:
        """Return alpha, if there is one; where it depends on the state, its factor."""
        if self.alpha is None:
            return {}
        return {"alpha" if self.slope is None else "alpha_factor": self.alpha.item()}

    def stats(self, h: Tensor, x: Tensor, mask: Tensor | None) -> LayerStats:
        """Return `attention`, the softmax G (B, T, T), and alpha if there is one.

        If one-sided, the first position, which attends to none, counts as attending to itself.
        """
        stats: LayerStats = {} if self.alpha is None else {"alpha": self.alpha.item()}
        if self.alpha is not None and self.slope is not None:
            alphas = 2 * self.alpha * torch.sigmoid(h @ self.slope)
            stats = {"alpha": (alphas if mask is None else alphas[mask]).mean().item()}
        key = F.linear(h, self.relation)
        if not self.causal:
            return {**stats, "attention": attention_weights(h, key, mask)}
        weights = past_weights(h, key)
        weights[:, 0, 0] = 1.0
        return {**stats, "attention": weights}


class StarSaber(Encoder):
    """L untied layers, or with `tied` one layer iterated to its fixed point; 4 D² + 1 parameters per layer.

    Ours: the initial weights (`_reset`); the scale of sinusoidal positions (`position_scale`); one
    bias vector per layer inside tanh (the paper ignores biases); dropout on the output of tanh before the residual sum, with
    one dropout mask for all iterations of the tied form.
    """

    Config = StarSaberConfig
    rate_factor_with_word_dropout = 4.0  # ours; presets/tasks/custom.yaml has the evidence

    def __init__(self, config: StarSaberConfig) -> None:
        super().__init__()
        self.config = config
        self.checkpoint_obstacle = "its one layer is iterated" if config.tied else ""
        obstacles = {
            "it is tied": config.tied,
            "it is causal": config.causal,
            f"encoder.hidden_size {config.hidden_size} is none of {KERNEL_SIZES}": config.hidden_size
            not in KERNEL_SIZES,
        }
        self.kernel_obstacle = next((reason for reason, holds in obstacles.items() if holds), "")
        size = config.hidden_size
        self.layers = nn.ModuleList(StarSaberLayer(config) for _ in range(config.num_layers or 1))
        self.initial = nn.Linear(size, size, bias=False) if config.initial == "linear" else None
        self.matrices = orthogonal_matrices("cayley") if config.orthogonal else None
        if config.orthogonal:
            self.export_obstacle = "torch cannot hold the loop over replaced weights of encoder.orthogonal in a graph"
        self.iterations: Tensor | None = None
        """Tied form: the number of iterations of each row of the last batch, (B,). None before the first batch."""
        self._reset(config)

    def _reset(self, config: StarSaberConfig) -> None:
        """Draw the initial matrices. Ours: the paper does not give an initialisation.

        Untied: N(0, 1 / (D L)). The sum of L updates is then as large as one update with N(0, 1 / D). With alpha 1 and inputs
        of scale up to 1 per unit, states and gradients keep their size through 24 layers.
        Orthogonal: N(0, 1 / D), as in the Orthogonal Transformer.
        Otherwise tied: |U| and |Q| are near 0.4 and |W| is near 1 / (2 sqrt(D)) (2-norms). With K = max(|U|, |Q|),
        K (1 + 2 sqrt(D) |W|) is near 0.8. Below 1 the iteration is a contraction from h^1 on, where |h_ni| <= 1.
        """
        size = config.hidden_size
        side = relation = direct = (size * len(self.layers)) ** -0.5
        if config.orthogonal:
            side = relation = direct = size**-0.5
        elif config.tied:
            side, relation, direct = 0.2 * size**-0.5, 0.25 / size, size**-0.5
        for layer in cast(Iterable[StarSaberLayer], self.layers):
            normal_(layer.relation, std=relation)
            normal_(layer.past, std=side)
            if not layer.one_side and not layer.causal:
                normal_(layer.future, std=side)
            if layer.input is not None:
                normal_(layer.input, std=direct)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        if mask is not None:
            x = x.masked_fill(~mask[..., None], 0.0)
        if self.config.position == "sinusoidal":
            x = x + sinusoidal_positions(x) * (self.config.position_scale or (2 / x.shape[-1]) ** 0.5)
        if self.config.tied:
            with without_autocast(x):  # bf16 does not reach the tolerance
                return self._fixed_point(x, mask)
        h = self._first(x)
        x = x.to(compute_dtype(x))  # cast once, not in every layer
        for layer in self.layers:
            h = self.apply_layer(layer, h, x, mask)
        return h

    def use_kernel(self) -> None:
        from recurcli.ops.directional_kernel import kernel_attention_  # imports triton

        for layer in cast(Iterable[StarSaberLayer], self.layers):
            layer.attend = kernel_attention_

    def stats(self, x: Tensor, mask: Tensor | None) -> LayerStats:
        """Tied form: return the mean and the largest number of iterations of the last batch's rows."""
        if self.iterations is None:
            return {}
        return {"iterations": self.iterations.double().mean().item(), "most_iterations": self.iterations.amax().item()}

    def _first(self, x: Tensor) -> Tensor:
        """Return h^0 (B, T, D). Under autocast h^0 and the residual sum are float32."""
        dtype = torch.promote_types(x.dtype, torch.float32) if compute_dtype(x) != x.dtype else x.dtype
        if self.initial is not None:
            return self.initial(x).to(dtype)
        return torch.zeros_like(x, dtype=dtype) if self.config.initial == "zero" else x.to(dtype)

    def _fixed_point(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Iterate h' = tanh(A + V x) until every row has converged. A row is frozen when it has converged.

        If one-sided, each position is frozen when it and all earlier ones have converged, so that no later one changes it.
        """
        layer = cast(StarSaberLayer, self.layers[0])
        dropout = layer.dropout(torch.ones_like(x))  # one dropout mask for all iterations
        weights: dict[str, Tensor] = {}
        if self.matrices is not None:
            names = [name for name in ("relation", "past", "future") if name in dict(layer.named_parameters())]
            weights = dict(zip(names, self.matrices([layer.get_parameter(name) for name in names]), strict=True))
        h = self._first(x)

        def iterate(h: Tensor, active: Tensor) -> tuple[Tensor, Tensor]:
            updated = dropout * (functional_call(layer, weights, (h, x, mask)) if weights else layer(h, x, mask))
            moved = torch.linalg.vector_norm((updated - h).detach(), dim=-1)  # (B, T)
            if mask is not None:
                moved = moved.masked_fill(~mask, 0.0)
            moving = moved > self.config.tolerance
            moving = moving.cumsum(dim=-1) > 0 if self.config.causal else moving.any(dim=-1, keepdim=True)
            return torch.where(active[..., None], updated, h), active & moving

        # (B, T) if one-sided, else (B, 1)
        active = torch.ones_like(x[..., 0] if self.config.causal else x[:, :1, 0], dtype=torch.bool)
        if torch.compiler.is_exporting():
            return _exported_loop(iterate, h, active, self.config.max_iterations)
        iterations = torch.zeros(len(active), dtype=torch.int64, device=x.device)
        for _ in range(self.config.max_iterations):
            iterations += active.any(dim=-1)
            h, active = iterate(h, active)
            if not active.any():
                break
        self.iterations = iterations
        return h


def _exported_loop(
    iterate: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]], h: Tensor, active: Tensor, max_iterations: int
) -> Tensor:
    """Return the last h of `iterate` as a loop of the exported graph, because a graph has no break."""
    from torch._higher_order_ops import while_loop  # torch has no public name for it; a move breaks the export to ONNX

    def go_on(step: Tensor, h: Tensor, active: Tensor) -> Tensor:
        return (step < max_iterations) & active.any()

    def body(step: Tensor, h: Tensor, active: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return step + 1, *iterate(h, active)

    start = torch.zeros((), dtype=torch.int64, device=h.device), h.clone(), active  # h may be the embeddings
    return while_loop(go_on, body, start)[1]  # type: ignore[no-untyped-call]
