"""Print how many recurrence encoding matrices a linear RNN is made of, and the error with fewer: python linear_rnn.py [STEPS].

Huang et al., Encoding Recurrence into Transformers, ICLR 2023, Proposition 1. With W_h = Z Λ Z⁻¹ and distinct eigenvalues

    h_t = W_h h_{t-1} + W_x x_t   is   W_x x_t + sum over k of (P_k X V_k)_t

where a real eigenvalue λ has a regular matrix P, and a pair γ exp(±iθ) a cosine and a sine one, both cyclical and damped.
Three RNNs of D units: W_h is normal, with the spectral radius 0.9; trained to tell what stood in a noisy series of a slow and a
cyclic part; trained to repeat the input of five tokens before. The error is that of h, ‖h - ĥ‖ / ‖h‖, with the matrices of the
largest ‖P_k X V_k‖ alone: with the proposition's V_k, and with V_k and W_x fitted to h again, as RSA trains them (ours).

Shapes: n rows, T tokens, E input size, D units.
"""

import sys
from functools import partial

import torch
from torch import Tensor

from recurcli.ops.recurrence import recurrence_matrix

ROWS, LENGTH, SIZE = 64, 48, 12
DELAY = 5


def states(recurrent: Tensor, given: Tensor) -> Tensor:
    """Return h_t of all tokens from W_x x_t: (D, D), (n, T, D) -> (n, T, D)."""
    h, found = torch.zeros_like(given[:, 0]), []
    for now in given.unbind(dim=1):
        h = h @ recurrent.T + now
        found.append(h)
    return torch.stack(found, dim=1)


def series() -> Tensor:
    """Return rows (n, T, 2), noise of variance 1 added to a slow and a cyclic series (n, T, 2)."""
    poles = torch.polar(torch.tensor([0.95, 0.95]).double(), torch.tensor([0.0, 0.8]).double())
    return states(torch.diag(poles), torch.randn(ROWS, LENGTH, 2, dtype=torch.complex128)).real


def trained(x: Tensor, y: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """Return W_h (D, D) and W_x (D, E) of an RNN that predicts y (n, T, F) from x (n, T, E) by a linear layer on h."""
    normal = partial(torch.randn, dtype=torch.float64)
    start = 0.9 * torch.linalg.qr(normal(SIZE, SIZE))[0]
    weights = [start, normal(SIZE, x.shape[2]) / x.shape[2] ** 0.5, normal(y.shape[2], SIZE) / SIZE**0.5]
    recurrent, into, out = weights = [weight.requires_grad_() for weight in weights]
    optimizer = torch.optim.Adam(weights, lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = (states(recurrent, x @ into.T) @ out.T - y).square().mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
    print(f"loss {loss:.3f} of {y.square().mean():.3f}", file=sys.stderr)
    return recurrent.detach(), into.detach()


def terms(recurrent: Tensor, given: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Return P_k W_x X and P_k X V_k (n, T, D) of each matrix of the sum, the largest ‖P_k X V_k‖ first.

    `given` is W_x x_t (n, T, D).
    """
    eigenvalues, vectors = torch.linalg.eig(recurrent)
    inverse, found = torch.linalg.inv(vectors), []
    for eigenvalue, column, row in zip(eigenvalues, vectors.T, inverse, strict=True):
        outer = torch.outer(column, row)
        kinds = {"regular": outer.real} if eigenvalue.imag == 0 else {"cosine": 2 * outer.real, "sine": -2 * outer.imag}
        for kind, matrix in kinds.items() if eigenvalue.imag >= 0 else ():
            rate, angle = (
                (eigenvalue.real, eigenvalue.imag) if kind == "regular" else (eigenvalue.abs(), eigenvalue.angle())
            )
            seen = recurrence_matrix([kind], LENGTH, rate=rate[None], angle=angle[None])[0] @ given
            found.append((seen, seen @ matrix.T))
    return sorted(found, key=lambda term: -term[1].norm().item())


def fitted(features: list[Tensor], h: Tensor) -> Tensor:
    """Return the least-squares approximation of h (n, T, D) by linear maps of features (n, T, D)."""
    columns = torch.cat(features, dim=-1).flatten(0, 1)
    return (columns @ torch.linalg.lstsq(columns, h.flatten(0, 1), rcond=1e-12, driver="gelsd").solution).view_as(h)


def main(steps: int) -> None:
    """Print a table of the errors."""
    torch.manual_seed(0)
    normal = partial(torch.randn, dtype=torch.float64)
    drawn = normal(SIZE, SIZE)
    x, clean = normal(ROWS, LENGTH, 2), series()
    noisy = clean + normal(ROWS, LENGTH, 2)
    earlier = torch.cat([torch.zeros_like(x[:, :DELAY]), x[:, :-DELAY]], dim=1)
    networks = {
        "drawn": (x, 0.9 * drawn / torch.linalg.eigvals(drawn).abs().amax(), normal(SIZE, 2)),
        "series": (noisy, *trained(noisy, clean, steps)),
        "delay": (x, *trained(x, earlier, steps)),
    }
    print("| RNN | condition of Z | matrices | error | fitted again |\n|---|---|---|---|---|")
    for name, (inputs, recurrent, into) in networks.items():
        given = inputs @ into.T
        h, found = states(recurrent, given), terms(recurrent, given)
        condition = torch.linalg.cond(torch.linalg.eig(recurrent)[1]).item()
        for count in (*range(0, len(found), 2), len(found)):
            total = given + sum(term for _, term in found[:count])
            best = fitted([given, *(seen for seen, _ in found[:count])], h)
            errors = [((h - other).norm() / h.norm()).item() for other in (total, best)]
            print(f"| {name} | {condition:.0e} | {count} of {len(found)} | {errors[0]:.1e} | {errors[1]:.1e} |")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 500)
