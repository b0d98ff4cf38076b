"""TransJect's layer: orthogonal experts, mixed, and an orthogonal residual feed-forward network.

The equations are at the head of `encoders/transject.py`; two encoders differ in their eigenvalues s alone. Source:
Sengupta, Akhtar & Chakraborty, Findings of EMNLP 2023. Time and memory are linear in T.

Shapes: B batch, T positions, D hidden size, E experts; S sets of eigenvalues, one a sample or one for all.
"""

from collections.abc import Iterable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CACHED = 2**20  # numbers that experts put out and that a CPU still has at hand when it weighs them


def expert_outputs(h: Tensor, s: Tensor, inward: Tensor, outward: Tensor, *, folded: bool | None = None) -> Tensor:
    """Y_e = ELU( ((h U_e) * s) V_e ) of all experts: h (B, T, D), s (S, D), U and V (E, D, D) -> (E, B, T, D).

    `folded` multiplies out W_e = U_e diag(s) V_e first, which is less work where more than D tokens share one s (the
    default); else h U_e is scaled. Both are one batched product over experts, and equal.
    """
    experts, size = inward.shape[:2]
    tokens = h.shape[0] * h.shape[1] // s.shape[0]  # N, the tokens of each s
    if folded is None:
        folded = not torch.compiler.is_compiling() and tokens > size  # one graph serves all T
    if folded:
        weight = torch.bmm((inward[:, None] * s[:, None]).flatten(1, 2), outward).view(-1, size, size)  # (E S, D, D)
        y = torch.bmm(h.reshape(-1, tokens, size).expand(experts, -1, -1, -1).reshape(-1, tokens, size), weight)
    else:
        turned = torch.bmm(h.reshape(1, -1, size).expand(experts, -1, -1), inward)  # (E, S N, D)
        scaled = turned.view(experts, -1, tokens, size) * s[:, None].to(turned.dtype)
        y = torch.bmm(scaled.flatten(1, 2), outward)
    return F.elu(y, inplace=True).view(experts, *h.shape)


def max_over_time(h: Tensor, y: Tensor, r: Tensor, real: Tensor | None) -> Tensor:
    """max over the real t of h + r y: h (B, T, D), y (E, B, T, D), `real` (B, T) with one at least a row -> (E, B, D)."""
    with torch.no_grad():
        z = torch.addcmul(h, y, r)  # (E, B, T, D)
        if real is not None:
            z.masked_fill_(~real[..., None], torch.finfo(z.dtype).min)
    if not torch.is_grad_enabled():
        return z.amax(dim=2)
    place = z.max(dim=2, keepdim=True).indices  # a gradient of the chosen entries alone, not of all (E, B, T, D)
    return torch.addcmul(h.expand_as(y).gather(2, place), y.gather(2, place), r).squeeze(2)


class TransJectLayer(nn.Module):
    """One layer: experts, their weights, an orthogonal residual feed-forward network. Parameters before the map: `raw`.

    `raw` (2 E + 2, D, D) holds U of each expert, V of each expert, W1 and W2.
    """

    def __init__(self, hidden_size: int, num_experts: int, num_layers: int, dropout: float) -> None:
        super().__init__()
        self.num_experts = num_experts
        self.num_layers = num_layers
        self.raw = nn.Parameter(torch.randn(2 * num_experts + 2, hidden_size, hidden_size) * hidden_size**-0.5)
        self.alpha = nn.Parameter(torch.zeros(()))
        self.importance = nn.Parameter(torch.randn(hidden_size) * hidden_size**-0.5)
        self.bias = nn.Parameter(torch.zeros(num_experts))
        self.dropout = nn.Dropout(dropout)

    def forward(self, h: Tensor, s: Tensor, matrices: Tensor, real: Tensor | None) -> Tensor:
        """h' (B, T, D) of h (B, T, D), s (S, D) and the orthogonal `matrices` of `raw`."""
        inward, outward, feed_forward = torch.split(matrices, [self.num_experts, self.num_experts, 2])
        y = expert_outputs(h, s, inward, outward)
        return self.combine(h, y, self.expert_weights(h, y, real), feed_forward)

    @property
    def residual_weight(self) -> Tensor:
        """r, a scalar between -1/L and 1/L."""
        return torch.tanh(self.alpha) / self.num_layers

    def expert_weights(self, h: Tensor, y: Tensor, real: Tensor | None) -> Tensor:
        """lambda (E, B) of h (B, T, D) and the experts' y (E, B, T, D): the same at all positions of a sample."""
        highest = max_over_time(h, y, self.residual_weight, real)  # (E, B, D)
        scores = (highest * self.importance).sum(dim=-1)  # (E, B)
        return (scores + self.bias[:, None]).softmax(dim=0)

    def combine(self, h: Tensor, y: Tensor, weights: Tensor, feed_forward: Tensor) -> Tensor:
        """h' (B, T, D) with the expert weights (E, B) given; `feed_forward` (2, D, D) is W1 and W2."""
        r = self.residual_weight
        first, second = feed_forward.unbind()
        mixture = torch.bmm((r * weights).to(y.dtype).T[:, None], y.flatten(2).transpose(0, 1))  # (B, 1, T D)
        h = h + mixture.view_as(h)
        inner = self.dropout(F.elu(F.linear(h, first)))
        return h + r * F.elu(F.linear(inner, second))


def run_layers(
    layers: Iterable[nn.Module], matrices: Sequence[Tensor], x: Tensor, s: Tensor, mask: Tensor | None
) -> Tensor:
    """All layers, one after the other: (B, T, D) -> (B, T, D); in inference on a CPU a few samples at a time."""
    few = _samples_at_a_time(x, experts=len(matrices[0]) // 2 - 1)
    if few is not None:
        xs = torch.split(x, few)
        sets = torch.split(s, few) if len(s) == len(x) else [s] * len(xs)
        masks = [None] * len(xs) if mask is None else torch.split(mask, few)
        return torch.cat([run_layers(layers, matrices, *part) for part in zip(xs, sets, masks, strict=True)])
    real = None if mask is None else mask | ~mask.any(dim=-1, keepdim=True)  # a maximum needs something to choose from
    for layer, own in zip(layers, matrices, strict=True):
        x = layer(x, s, own, real)
    return x


def _samples_at_a_time(x: Tensor, *, experts: int) -> int | None:
    """How many samples of `x` (B, T, D) go through the layers together where `CACHED` does not allow all."""
    if x.device.type != "cpu" or torch.is_grad_enabled() or torch.compiler.is_compiling():
        return None
    few = max(1, CACHED // (experts * x[0].numel()))
    return few if few < len(x) else None
