"""TransJect: injective layers of orthogonal maps, mixed over experts (Sengupta, Akhtar & Chakraborty, Findings of EMNLP 2023).

    s      = q / max_i q_i,   q = sum_t P_t^2,   P = x Us                 eigenvalues, computed once from the embeddings x
    Y_e    = ELU( ((h U_e) * s) V_e )                                     expert e of a layer, no bias
    lambda = softmax_e( w · max_t (h + r Y_e) + b_e )                     r = tanh(alpha) / L (as in the released code)
    a      = h + r sum_e lambda_e Y_e
    h'     = a + r ELU( W2 dropout(ELU(W1 a)) )                           Us, U, V, W1, W2 orthogonal (D, D)

Tokens exchange information only through s (D numbers) and lambda (E numbers per layer). There is no attention, so time
and memory are linear in T. There is no LayerNorm. Half of each embedding encodes the position. All maps are orthogonal, s
is in [0, 1] and ELU has slope at most 1, so in evaluation the distance of two tokens x, y of a sample is bounded:
prod (1 - |r|)^2 |x - y| <= |f(x) - f(y)| <= prod (1 + |r|)^2 |x - y| over the layers.

Two defaults of the released code are left out (ours). `--use_random_features`, which the paper does not mention, mixes
slices of the states at random, in evaluation too, so two evaluations differ. `matrix_exp` makes a matrix orthogonal as the
exponential of a skew-symmetric one; Cayley's map takes less time (`orthogonal_map`).

Shapes: B batch, T positions, D hidden size, E experts, L layers.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from recurcli.encoders.config import RandomTransJectConfig, TransJectConfig
from recurcli.encoders.encoder import Encoder, LayerStats
from recurcli.layers import Dropout, normal_, orthogonal_matrices
from recurcli.ops.attention import mask_or_full
from recurcli.ops.orthogonal import orthogonal
from recurcli.ops.precision import without_autocast

CACHED = 2**20  # largest number of expert outputs that fit into the CPU cache


def zero_padding(x: Tensor, mask: Tensor | None) -> Tensor:
    """Return `x` (B, T, D) with zeros where `mask` (B, T) is False; None: no padding."""
    return x if mask is None else x.masked_fill(~mask[..., None], 0.0)


def eigenvalues(x: Tensor, eigenvectors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return s (B, D), P (B, T, D) and the divisor max q (B, 1), from x (B, T, D) and Us (D, D).

    The paper's standardisation of q is not available. The released code applies tanh and divides by the largest entry.
    """
    projected = x @ eigenvectors
    q = projected.to(torch.promote_types(projected.dtype, torch.float32)).square().sum(dim=1)
    divisor = greatest(q)
    return q / divisor, projected, divisor


def off_diagonal(projected: Tensor, s: Tensor, divisor: Tensor) -> Tensor:
    """Return the mean square of P^T P / max q - diag(s), per sample: P (B, T, D), s (B, D), max q (B, 1) -> (B,).

    P^T P / max q has the diagonal s. If T < D, the sum of squares is that of the smaller matrix P P^T / max q less that of s;
    a difference below its rounding error is 0.
    """
    if projected.shape[1] < s.shape[1]:
        with without_autocast(s):
            scaled = projected.to(s.dtype) * divisor.rsqrt()[..., None]
            total = (scaled @ scaled.mT).square().sum(dim=(1, 2))
        return (total - s.square().sum(dim=1)).clamp(min=0) / s.shape[1] ** 2
    products = projected.mT @ projected / divisor[..., None]
    return (products - torch.diag_embed(products.diagonal(dim1=1, dim2=2))).square().mean(dim=(1, 2))


def greatest(q: Tensor) -> Tensor:
    """Return the maximum of the non-negative `q` (…, D) as a safe divisor (…, 1): 1 where all entries are 0."""
    largest = q.amax(dim=-1, keepdim=True)
    return torch.where(largest > torch.finfo(q.dtype).tiny, largest, 1.0)


def expert_outputs(
    h: Tensor,
    s: Tensor,
    inward: Tensor,
    outward: Tensor,
    *,
    folded: bool | None = None,
) -> Tensor:
    """Return Y_e = ELU( ((h U_e) * s) V_e ) of all experts: h (B, T, D), s (S, D), U and V (E, D, D) -> (E, B, T, D).

    S is B, or 1 if all samples share s. `folded` computes W_e = U_e diag(s) V_e first, which is faster if more than D tokens
    share one s. None: choose the faster way. Both ways give the same result.
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


class _MaxOverTime(torch.autograd.Function):
    """Return max over t of h + r y, and y. Backward adds the gradient of the maximum to that of y at the chosen positions."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, y: Tensor, r: Tensor, real: Tensor | None) -> tuple[Tensor, Tensor]:
        highest, place = _shifted(h, y, r, real).max(dim=2, keepdim=True)
        ctx.save_for_backward(place, y.gather(2, place), r)
        ctx.shape = h.shape
        return highest.squeeze(2), y.view_as(y)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, of_y: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        place, chosen, r = ctx.saved_tensors
        rows = [part.transpose(0, 1) for part in (place.squeeze(2), gradient)]  # (B, E, D)
        of_h = gradient.new_zeros(ctx.shape).scatter_add_(1, *rows)
        gradient = gradient[:, :, None]
        of_y = of_y.scatter_add(2, place, (r * gradient).to(of_y.dtype))
        return of_h, of_y, (gradient * chosen).sum().to(r.dtype), None


def _shifted(h: Tensor, y: Tensor, r: Tensor, real: Tensor | None) -> Tensor:
    """Return h + r y (E, B, T, D), with the least number where `real` is False."""
    z = torch.addcmul(h, y, r)
    return z if real is None else z.masked_fill_(~real[..., None], torch.finfo(z.dtype).min)


def max_over_time(h: Tensor, y: Tensor, r: Tensor, real: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return max over t of h + r y, and y itself: h (B, T, D), y (E, B, T, D) -> (E, B, D), (E, B, T, D).

    Later operations must use the returned y, so that the gradient of the maximum reaches it.
    `real` (B, T) selects the positions t, at least one per row; None: all.
    """
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        return _MaxOverTime.apply(h, y, r, real)  # type: ignore[no-untyped-call]
    return _shifted(h, y, r, real).amax(dim=2), y


class TransJectLayer(nn.Module):
    """One layer: experts, expert weights, and an orthogonal feed-forward network with a residual path.

    `raw` (2 E + 2, D, D) has the parameters before the orthogonal map: U of each expert, V of each expert, W1 and W2.
    """

    def __init__(self, config: RandomTransJectConfig) -> None:
        super().__init__()
        size = config.hidden_size
        self.num_experts = config.num_experts
        self.num_layers = config.num_layers
        self.raw = nn.Parameter(normal_(torch.empty(2 * self.num_experts + 2, size, size), std=size**-0.5))
        self.alpha = nn.Parameter(torch.tensor(config.alpha_init))
        self.importance = nn.Parameter(normal_(torch.empty(size), std=size**-0.5))
        self.bias = nn.Parameter(torch.zeros(self.num_experts))
        self.dropout = Dropout(config.dropout)

    def forward(self, h: Tensor, s: Tensor, matrices: Tensor, real: Tensor | None) -> Tensor:
        """Return h' (B, T, D) from h (B, T, D), s (S, D) and `matrices`, the orthogonal matrices of `raw`."""
        inward, outward, feed_forward = torch.split(matrices, [self.num_experts, self.num_experts, 2])
        y = expert_outputs(h, s, inward, outward)
        highest, y = max_over_time(h, y, self.residual_weight, real)
        return self.combine(h, y, self.expert_weights(highest), feed_forward)

    @property
    def residual_weight(self) -> Tensor:
        """r, a scalar in (-1/L, 1/L). The paper (section 3.3) has sigmoid(alpha) / L, initially 1 / (2 L)."""
        return torch.tanh(self.alpha) / self.num_layers

    def expert_weights(self, highest: Tensor) -> Tensor:
        """Return lambda (E, B) from the maxima (E, B, D). All positions of a sample share it."""
        scores = (highest * self.importance).sum(dim=-1)  # (E, B)
        return (scores + self.bias[:, None]).softmax(dim=0)

    def combine(self, h: Tensor, y: Tensor, weights: Tensor, feed_forward: Tensor) -> Tensor:
        """Return h' (B, T, D) with the expert weights (E, B); `feed_forward` (2, D, D) is W1 and W2."""
        r = self.residual_weight
        first, second = feed_forward.unbind()
        mixture = torch.bmm((r * weights).to(y.dtype).T[:, None], y.flatten(2).transpose(0, 1))  # (B, 1, T D)
        h = h + mixture.view_as(h)
        inner = self.dropout(F.elu(F.linear(h, first), inplace=True))
        return h + r * F.elu(F.linear(inner, second), inplace=True)

    @property
    def is_at_cap(self) -> bool:
        """Whether r is within 1 % of its cap 1 / L, where tanh has hardly a gradient."""
        return abs(torch.tanh(self.alpha).item()) > 0.99

    def scalars(self) -> dict[str, float]:
        """Return r, the weight of the layer's update."""
        return {"residual_weight": self.residual_weight.item()}

    def stats(self, h: Tensor, s: Tensor, matrices: Tensor, real: Tensor | None) -> LayerStats:
        """Return r, and the mean weight of each expert."""
        inward, outward, _ = torch.split(matrices, [self.num_experts, self.num_experts, 2])
        y = expert_outputs(h, s, inward, outward)
        highest, _ = max_over_time(h, y, self.residual_weight, real)
        weights = self.expert_weights(highest).mean(dim=1).tolist()
        return {"residual_weight": self.residual_weight.item(), "expert_weights": weights}


def run_layers(
    layers: Sequence[Callable[..., Tensor]], matrices: Sequence[Tensor], x: Tensor, s: Tensor, mask: Tensor | None
) -> Tensor:
    """Apply all layers: (B, T, D) -> (B, T, D). Inference on a CPU processes a few samples at a time."""
    few = _samples_at_a_time(x, experts=len(matrices[0]) // 2 - 1)
    if few is not None:
        xs = torch.split(x, few)
        sets = torch.split(s, few) if len(s) == len(x) else [s] * len(xs)
        masks = [None] * len(xs) if mask is None else torch.split(mask, few)
        return torch.cat([run_layers(layers, matrices, *part) for part in zip(xs, sets, masks, strict=True)])
    real = None if mask is None else mask_or_full(mask)  # the maximum needs at least one position
    for layer, own in zip(layers, matrices, strict=True):
        x = layer(x, s, own, real)
    return x


def _samples_at_a_time(x: Tensor, *, experts: int) -> int | None:
    """Return the number of samples of `x` (B, T, D) whose expert outputs fit into CACHED; None: no split is needed."""
    if x.device.type != "cpu" or torch.is_grad_enabled() or torch.compiler.is_compiling():
        return None
    few = max(1, CACHED // (experts * x[0].numel()))
    return few if few < len(x) else None


class TransJect(Encoder):
    """L layers of E experts; (2 E + 2) D² + D + E + 1 parameters per layer, and D² for Us, the eigenvectors of all layers.

    Ours: raw parameters and w are initialised as N(0, 1/D); dropout; the auxiliary loss is a mean over the samples.
    """

    concatenates_positions: ClassVar[bool] = True
    checkpoint_obstacle = ""

    Config = TransJectConfig
    scratch_learning_rate = pretrained_learning_rate = 5e-4  # the paper's, from scratch

    def __init__(self, config: TransJectConfig) -> None:
        super().__init__()
        size = config.hidden_size
        self.auxiliary_weight = config.auxiliary_weight
        self.orthogonal_map = config.orthogonal_map
        self.eigenvectors = nn.Parameter(normal_(torch.empty(size, size), std=size**-0.5))
        """Parameters (D, D) of Us before the orthogonal map."""
        self.layers = nn.ModuleList(TransJectLayer(config) for _ in range(config.num_layers))
        self.matrices = orthogonal_matrices(config.orthogonal_map)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = zero_padding(x, mask)
        eigenvectors, *matrices = self.matrices([self.eigenvectors, *(layer.raw for layer in self.layers)])
        s, _, _ = eigenvalues(x, eigenvectors)
        return run_layers([partial(self.apply_layer, layer) for layer in self.layers], matrices, x, s, mask)

    def auxiliary_losses(self, x: Tensor, mask: Tensor | None = None) -> dict[str, Tensor]:
        """`reconstruction`: weight · |Us^T (x^T x / max q) Us - diag(s)|^2 / D^2, squared Frobenius norm, sample mean."""
        if self.auxiliary_weight == 0:
            return {}
        held = self.matrices.held()
        eigenvectors = held[0] if held else orthogonal(self.eigenvectors, self.orthogonal_map)
        s, projected, divisor = eigenvalues(zero_padding(x, mask), eigenvectors)
        return {"reconstruction": self.auxiliary_weight * off_diagonal(projected, s, divisor).mean()}


class RandomTransJect(Encoder):
    """TransJect with one learned vector of eigenvalues for all samples, s = |theta| / max |theta|; no auxiliary loss.

    In the paper theta is a parameter with random initialisation; the authors' code draws s in every forward pass. Ours:
    theta is initialised as N(0, 1), and the choices of `TransJect`.
    """

    concatenates_positions: ClassVar[bool] = True
    checkpoint_obstacle = ""

    Config = RandomTransJectConfig
    scratch_learning_rate = pretrained_learning_rate = 5e-4  # the paper's, from scratch

    def __init__(self, config: RandomTransJectConfig) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.randn(config.hidden_size))
        self.layers = nn.ModuleList(TransJectLayer(config) for _ in range(config.num_layers))
        self.matrices = orthogonal_matrices(config.orthogonal_map)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        s = self.theta.abs() / greatest(self.theta.abs())
        matrices = self.matrices([layer.raw for layer in self.layers])
        layers = [partial(self.apply_layer, layer) for layer in self.layers]
        return run_layers(layers, matrices, zero_padding(x, mask), s[None], mask)
