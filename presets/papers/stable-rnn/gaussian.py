"""Print how far a window moves an RNN and its training on Gaussian instances: python gaussian.py [STEPS].

Miller & Hardt, Stable Recurrent Models, ICLR 2019, section 3 and figure 1. With ‖W‖ ≤ λ < 1, ‖U‖ ≤ 1 and ‖x_t‖ ≤ B:

    network        h_t = tanh(W h_{t-1} + U x_t),  y = c · h_T,  p = mean of (y - z)² / 2;  hᵏ and yᵏ know k inputs alone
    Lemma 1        ‖h_T - h_Tᵏ‖ ≤ λᵏ B / (1 - λ)
    Lemma 2        ‖∇p - ∇pᵏ‖ ≤ γ k λᵏ
    Proposition 2  ‖w - wᵏ‖ ≤ α γ k λᵏ N^(αβ + 1) after N steps of projected gradient descent, the step t at the rate α / t
    Theorem 1      |y - yᵏ|, each with the weights that it has trained, is at most ε for k of the order of log(N / ε)

The unstable model has λ > 1, and so no bound. W, U, x, z and c are normal. Ours: all sizes, γ of this network
(`gradient_bound`), and the constant rate. The smoothness β of p is not known, so of Proposition 2 αγkλᵏN is printed, which is
less than the bound.

Shapes: n rows, T inputs, D units.
"""

import math
import sys
from functools import partial
from itertools import product

import torch
from torch import Tensor

from recurcli.ops.stable import clip_singular_values

ROWS, LENGTH, SIZE = 32, 48, 10
WINDOWS = (1, 2, 4, 8, 16, 32)
ALPHA, CONSTANT_RATE = 1.0, 0.1
BOUNDS = {"stable": 0.75, "unstable": 3.0}  # λ


class Instance:
    """Inputs x (n, T, D), targets z (n,), c (D,), and `start`, W and U (2, D, D) with ‖W‖ = λ and ‖U‖ = 1."""

    def __init__(self, bound: float) -> None:
        normal = partial(torch.randn, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        self.bound = bound
        self.x, self.z, self.c = normal(ROWS, LENGTH, SIZE) / SIZE**0.5, normal(ROWS), normal(SIZE) / SIZE**0.5
        matrices = normal(2, SIZE, SIZE)
        norms = torch.linalg.matrix_norm(matrices, ord=2, keepdim=True)
        self.start = matrices / norms * torch.tensor([bound, 1.0])[:, None, None]

    def state(self, weights: Tensor, window: int) -> Tensor:
        """Return h_T (n, D) of the last `window` inputs, from the zero state on."""
        recurrent, into = weights
        zero = self.x.new_zeros(1, ROWS, SIZE)
        return torch.rnn_tanh(self.x[:, -window:], zero, [into, recurrent], False, 1, 0.0, False, False, True)[1][0]

    def gradient(self, weights: Tensor, window: int) -> Tensor:
        """Return the gradient of p in W and U: (2, D, D)."""
        weights = weights.detach().requires_grad_()
        loss = (self.state(weights, window) @ self.c - self.z).square().mean() / 2
        return torch.autograd.grad(loss, weights)[0]

    def train(self, window: int, steps: int, *, decays: bool) -> list[Tensor]:
        """Train by projected gradient descent, and return W and U (2, D, D) after each step."""
        path = [self.start]
        for step in range(1, steps + 1):
            rate = ALPHA / step if decays else CONSTANT_RATE
            moved = path[-1] - rate * self.gradient(path[-1], window)
            path.append(torch.stack([*map(clip_singular_values, moved, (self.bound, 1.0))]))
        return path[1:]

    def state_bound(self, window: int) -> float:
        """Return the bound of Lemma 1; with the window 0 that of ‖h_T‖."""
        return self.bound**window * self.x.norm(dim=-1).amax().item() / (1 - self.bound)

    def gradient_bound(self, window: int) -> float:
        """Return γ k λᵏ of Lemma 2, in the sum of the norms of both gradients.

        With H ≥ ‖h_t‖, G ≥ ‖∂p/∂h_T‖ and |tanh''| ≤ s, the gradient of W is the sum over j of δ_{T-j} h_{T-j-1}ᵀ. There
        ‖δ_{T-j}‖ ≤ λʲG, ‖h - hᵏ‖ ≤ λ^{k-j-1} H, and ‖δ - δᵏ‖ ≤ λʲ‖c‖²λᵏH + sλᵏHG / (1 - λ). U has x_{T-j} for h_{T-j-1}.
        """
        k, rest, s = window, 1 - self.bound, 4 / 3**1.5
        most, c = self.state_bound(0), self.c.norm().item()  # H and ‖c‖
        slope = c * (c * most + self.z.abs().amax().item())  # G
        given = most + self.x.norm(dim=-1).amax().item()
        either = given * (c**2 * most + k * s * most * slope + slope) / rest
        return self.bound**k * (either + k * slope * most / self.bound)


def main(steps: int) -> None:
    """Print what a window changes at the start (Lemmas 1 and 2), and after training (Proposition 2 and Theorem 1)."""
    models = {name: Instance(bound) for name, bound in BOUNDS.items()}
    print("| model | k | ‖h - hᵏ‖ | Lemma 1 | ‖∇p - ∇pᵏ‖ | Lemma 2 |\n|---|---|---|---|---|---|")
    for name, model in models.items():
        for k in WINDOWS:
            state = (model.state(model.start, LENGTH) - model.state(model.start, k)).norm(dim=-1).amax().item()
            gradient = norm_of(model.gradient(model.start, LENGTH) - model.gradient(model.start, k))
            bounds = (model.state_bound(k), model.gradient_bound(k)) if model.bound < 1 else (math.inf, math.inf)
            print(row(name, k, state, bounds[0], gradient, bounds[1]))
    some = (1, steps // 10, steps)
    after = " | ".join(f"‖w - wᵏ‖, N = {number}" for number in some)
    print(f"\n| model | rate | k | {after} | αγkλᵏN | \\|y - yᵏ\\| |\n|---|---|---|---|---|---|---|---|")
    for (name, model), decays in product(models.items(), (True, False)):
        whole = model.train(LENGTH, steps, decays=decays)
        for k in WINDOWS:
            own = model.train(k, steps, decays=decays)
            apart = [norm_of(whole[number - 1] - own[number - 1]) for number in some]
            answers = ((model.state(whole[-1], LENGTH) - model.state(own[-1], k)) @ model.c).abs().amax().item()
            bound = ALPHA * model.gradient_bound(k) * steps if model.bound < 1 and decays else math.inf
            print(row(name, "α / t" if decays else "constant", k, *apart, bound, answers))


def norm_of(weights: Tensor) -> float:
    """Return ‖W‖ + ‖U‖ of weights (2, D, D), Frobenius norms."""
    return torch.linalg.matrix_norm(weights).sum().item()


def row(*cells: float | str) -> str:
    """Return a row of a Markdown table. No bound is infinite."""
    shown = [f"{cell:.1e}" if isinstance(cell, float) else str(cell) for cell in cells]
    return f"| {' | '.join(shown)} |".replace("inf", "–")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
