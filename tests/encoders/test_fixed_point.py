"""StarSaber's tied form finds the fixed point of its equations, each row for itself."""

from typing import Any, cast

import pytest
import torch
from torch import Tensor

from recurcli.encoders import build_encoder
from recurcli.encoders.starsaber import StarSaber, StarSaberLayer

SIZE = 8


def tied(contraction: float = 0.8, **keys: Any) -> StarSaber:
    """A tied encoder in float64 with K (1 + 2 sqrt(D) |W|) = `contraction`, where K = max(|U|, |Q|) in the 2-norm."""
    torch.manual_seed(2)
    encoder = cast(
        StarSaber,
        build_encoder({"name": "starsaber", "hidden_size": SIZE, "num_layers": None, "tied": True, **keys}).double(),
    )
    layer = layer_of(encoder)
    with torch.no_grad():
        for matrix, norm in ((layer.relation, 1 / (2 * SIZE**0.5)), (layer.past, 0.5), (layer.future, 0.5)):
            matrix.normal_().mul_(norm / torch.linalg.matrix_norm(matrix, 2))
        layer.past.mul_(contraction)
        layer.future.mul_(contraction)
        if layer.input is not None:
            layer.input.normal_()
    return encoder.eval()


def layer_of(encoder: StarSaber) -> StarSaberLayer:
    return cast(StarSaberLayer, encoder.layers[0])


def batch() -> tuple[Tensor, Tensor]:
    x = torch.randn(3, 6, SIZE, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    return x, torch.arange(6) < torch.tensor([6, 4, 1])[:, None]


def test_what_it_returns_is_a_fixed_point() -> None:
    encoder, (x, mask) = tied(tolerance=1e-12), batch()
    h = encoder(x, mask)
    torch.testing.assert_close(layer_of(encoder)(h, x, mask)[mask], h[mask], atol=1e-11, rtol=0)


def test_the_limit_does_not_depend_on_the_first_states() -> None:
    x, mask = batch()
    first = tied(tolerance=1e-13)
    for initial in ("zero", "linear"):
        other = tied(tolerance=1e-13, initial=initial)
        other.load_state_dict(first.state_dict(), strict=False)
        torch.testing.assert_close(other(x, mask)[mask], first(x, mask)[mask], atol=1e-11, rtol=0)


def test_each_row_stops_at_its_own_convergence() -> None:
    encoder, (x, mask) = tied(), batch()
    together = encoder(x, mask)
    iterations = encoder.iterations
    assert iterations is not None
    assert len(set(iterations.tolist())) > 1
    for row, length in enumerate((6, 4, 1)):
        alone = encoder(x[row : row + 1, :length])
        assert encoder.iterations is not None
        assert encoder.iterations.tolist() == [int(iterations[row])]
        torch.testing.assert_close(together[row : row + 1, :length], alone, atol=1e-13, rtol=0)


def test_reports_the_iterations_that_an_unrolled_loop_needs() -> None:
    encoder, (x, _) = tied(tolerance=1e-4), batch()
    encoder(x)
    reported = encoder.iterations
    assert reported is not None
    for row in range(3):
        h, count, moved = x[row : row + 1], 0, 1.0
        while moved > 1e-4:
            after = layer_of(encoder)(h, x[row : row + 1], None).detach()
            moved, h, count = float(torch.linalg.vector_norm(after - h, dim=-1).max()), after, count + 1
        assert reported[row] == count


def test_stops_at_the_most_iterations_allowed() -> None:
    encoder, (x, mask) = tied(tolerance=0.0, max_iterations=3), batch()
    encoder(x, mask)
    assert encoder.iterations is not None
    assert encoder.iterations.tolist() == [3, 3, 3]


def test_gradients_are_those_of_the_unrolled_iterations() -> None:
    encoder, (x, _) = tied(max_iterations=4, tolerance=1e-15), batch()
    x.requires_grad_()
    h = x
    for _ in range(4):
        h = layer_of(encoder)(h, x, None)
    wanted = [x, *encoder.parameters()]
    gradients = [torch.autograd.grad(output.sin().sum(), wanted) for output in (encoder(x), h)]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=0)


def test_starts_as_a_contraction_and_converges_in_float32() -> None:
    torch.manual_seed(0)
    keys = {"name": "starsaber", "hidden_size": 256, "num_layers": None, "tied": True}
    encoder = cast(StarSaber, build_encoder(keys))
    layer = layer_of(encoder)
    relation, past, future = (
        torch.linalg.matrix_norm(w.detach(), 2) for w in (layer.relation, layer.past, layer.future)
    )
    assert max(past, future) * (1 + 2 * 256**0.5 * relation) < 1
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        output = encoder(torch.randn(4, 16, 256))
    assert output.dtype == torch.float32
    assert encoder.iterations is not None
    assert encoder.iterations.max() < 60


def test_one_dropout_draw_serves_all_iterations() -> None:
    encoder, (x, mask) = tied(dropout=0.5, tolerance=1e-12).train(), batch()
    output = encoder(x, mask)
    assert encoder.iterations is not None
    assert encoder.iterations.max() < 100
    assert 0.2 < (output[mask] == 0).double().mean() < 0.8


def test_its_gradients_reach_every_parameter() -> None:
    encoder, (x, mask) = tied(initial="linear", max_iterations=5), batch()
    encoder(x, mask)[mask].sum().backward()
    assert all(parameter.grad is not None and parameter.grad.abs().max() > 0 for parameter in encoder.parameters())


@pytest.mark.parametrize("position", ["directional", "sinusoidal"])
def test_orthogonal_matrices_stand_in_the_equations_and_have_gradients(position: str) -> None:
    keys = {"name": "starsaber", "hidden_size": SIZE, "num_layers": None, "tied": True, "orthogonal": True}
    torch.manual_seed(2)
    encoder = cast(StarSaber, build_encoder({**keys, "position": position, "max_iterations": 7}).double().eval())
    layer, (x, mask) = layer_of(encoder), batch()
    raw = {name: parameter.detach().clone() for name, parameter in layer.named_parameters()}
    fast = encoder(x, mask)
    gradients = torch.autograd.grad(fast[mask].sin().sum(), list(layer.parameters()))
    assert all(gradient.abs().max() > 1e-6 for gradient in gradients)
    identity, made = torch.eye(SIZE, dtype=torch.float64), {}
    for name, matrix in raw.items():
        skew = (matrix - matrix.T) / 2
        made[name] = matrix if name == "input" else torch.linalg.solve(identity + skew, identity - skew)
        if name != "input":
            torch.testing.assert_close(made[name] @ made[name].T, identity, atol=1e-12, rtol=0)
    plain = cast(StarSaber, build_encoder({**keys, "orthogonal": False, "position": position, "max_iterations": 7}))
    plain.double().eval()
    layer_of(plain).load_state_dict(made)
    torch.testing.assert_close(fast, plain(x, mask), atol=1e-10, rtol=0)
