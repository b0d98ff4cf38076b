"""StarSaber is its equations, and has the properties that follow from them; all in float64, nothing is trained."""

from typing import Any, cast

import pytest
import torch
from equations import batch, built, check_same
from torch import Tensor

from recurcli.encoders import build_encoder
from recurcli.encoders.starsaber import StarSaber, StarSaberLayer
from recurcli.layers import sinusoidal_positions

SIZE = 6
LENGTHS = [5, 3, 1]


def starsaber(num_layers: int | None = 2, **keys: Any) -> StarSaber:
    """A float64 encoder whose matrices are large enough for every term to count."""
    return built("starsaber", moved=0.5, hidden_size=SIZE, num_layers=num_layers, **keys)


def layers_of(encoder: StarSaber) -> list[StarSaberLayer]:
    return [cast(StarSaberLayer, layer) for layer in encoder.layers]


def equation_5(layer: StarSaberLayer, h: Tensor, x: Tensor) -> Tensor:
    """h' (T, D) of one row without padding: the paper's sums over n and i, a vector at a time."""
    assert layer.input is not None and layer.alpha is not None
    alphas = (
        [layer.alpha for _ in h]
        if layer.slope is None
        else [2 * layer.alpha / (1 + (-layer.slope @ each).exp()) for each in h]
    )
    rows = []
    for n in range(len(h)):
        scores = torch.stack([h[n] @ layer.relation @ h[i] / SIZE**0.5 for i in range(len(h))])
        weights = scores.exp() / scores.exp().sum()
        attended = torch.zeros(SIZE, dtype=h.dtype)
        for i in range(len(h)):
            attended = attended + weights[i] * ((layer.past if i < n else layer.future) @ h[i])
        rows.append(h[n] + alphas[n] * torch.tanh(attended + layer.input @ x[n]))
    return torch.stack(rows)


@pytest.mark.parametrize("alpha", ["learned", "state"])
def test_each_layer_is_equation_5_and_so_are_its_gradients(alpha: str) -> None:
    encoder = starsaber(alpha=alpha)
    x, mask = batch(LENGTHS, SIZE)
    x.requires_grad_()
    rows = []
    for row, length in enumerate(LENGTHS):
        h = x[row, :length]
        for layer in layers_of(encoder):
            h = equation_5(layer, h, x[row, :length])
        rows.append(h)
    fast, slow = encoder(x, mask)[mask], torch.cat(rows)
    check_same(fast, slow, [x, *encoder.parameters()])


def test_an_alpha_that_is_fixed_is_no_parameter_and_one_of_the_state_begins_as_alpha_init() -> None:
    x, mask = batch(LENGTHS, SIZE)
    found = {}
    for alpha in ("learned", "fixed", "state"):
        encoder = built("starsaber", hidden_size=SIZE, alpha_init=0.5, alpha=alpha)
        names = {name.rpartition(".")[2] for name, _ in encoder.named_parameters()}
        assert ("alpha" in names, "slope" in names) == (alpha != "fixed", alpha == "state")
        assert encoder.state_dict()["layers.0.alpha"] == 0.5
        found[alpha] = encoder(x, mask)[mask]
    torch.testing.assert_close(found["fixed"], found["learned"], atol=0, rtol=0)
    torch.testing.assert_close(found["state"], found["learned"], atol=1e-12, rtol=0)


def test_the_alpha_of_the_statistics_is_the_mean_of_the_one_that_each_real_state_has() -> None:
    encoder, (x, mask) = starsaber(num_layers=1, alpha="state"), batch(LENGTHS, SIZE)
    (layer,) = layers_of(encoder)
    assert layer.alpha is not None and layer.slope is not None
    alphas = [2 * layer.alpha / (1 + (-layer.slope @ state).exp()) for state in x[mask]]
    assert layer.stats(x, x, mask)["alpha"] == pytest.approx(torch.stack(alphas).mean().item(), abs=1e-12)


@pytest.mark.parametrize(("scale", "factor"), [(None, (2 / SIZE) ** 0.5), (1.0, 1.0)])
def test_sinusoidal_positions_have_one_matrix_for_both_sides(scale: float | None, factor: float) -> None:
    encoder, (x, mask) = starsaber(position="sinusoidal", position_scale=scale), batch(LENGTHS, SIZE)
    layer = layers_of(encoder)[0]
    assert layer.past is layer.future
    assert [name for name in layer.state_dict() if name in ("past", "future")] == ["past"]
    directional = starsaber()
    with torch.no_grad():
        for ours, theirs in zip(layers_of(directional), layers_of(encoder), strict=True):
            for name in ("relation", "past", "future", "input", "alpha"):
                getattr(ours, name).copy_(getattr(theirs, name))
    shifted = x + sinusoidal_positions(x) * factor
    torch.testing.assert_close(encoder(x, mask)[mask], directional(shifted, mask)[mask], atol=1e-12, rtol=0)


def test_without_the_direct_path_the_input_matrix_counts_as_zero() -> None:
    encoder, (x, mask) = starsaber(direct_path=False), batch(LENGTHS, SIZE)
    assert all(layer.input is None for layer in layers_of(encoder))
    full = starsaber()
    full.load_state_dict(encoder.state_dict(), strict=False)
    with torch.no_grad():
        for layer in layers_of(full):
            cast(Tensor, layer.input).zero_()
    torch.testing.assert_close(encoder(x, mask)[mask], full(x, mask)[mask], atol=1e-12, rtol=0)


def test_the_first_states_may_be_zero_or_a_linear_map() -> None:
    x, mask = batch(LENGTHS, SIZE)
    zero = starsaber(num_layers=1, initial="zero")
    expected = cast(Tensor, layers_of(zero)[0].alpha) * torch.tanh(x @ cast(Tensor, layers_of(zero)[0].input).T)
    torch.testing.assert_close(zero(x, mask)[mask], expected[mask], atol=1e-12, rtol=0)
    linear, plain = starsaber(initial="linear"), starsaber()
    plain.load_state_dict(linear.state_dict(), strict=False)
    assert linear.initial is not None
    with torch.no_grad():
        linear.initial.weight.copy_(torch.eye(SIZE))
    torch.testing.assert_close(linear(x, mask)[mask], plain(x, mask)[mask], atol=1e-12, rtol=0)


def test_the_residual_path_stays_in_float32_under_autocast() -> None:
    encoder, (x, mask) = starsaber(num_layers=1).float(), batch(LENGTHS, SIZE)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        cast(Tensor, layers_of(encoder)[0].alpha).fill_(1e-4)
        moved = encoder(1 + x.float(), mask) - (1 + x.float())
    assert moved.dtype == torch.float32
    assert 1e-5 < moved[mask].abs().max() < 1.1e-4


def test_dropout_acts_on_the_update_alone() -> None:
    encoder, (x, mask) = starsaber(num_layers=1, dropout=0.5), batch(LENGTHS, SIZE)
    still = encoder(x, mask) - x
    moving = encoder.train()(x, mask) - x
    dropped = moving == 0
    assert 0.2 < dropped[mask].double().mean() < 0.8
    torch.testing.assert_close(moving[mask][~dropped[mask]], 2 * still[mask][~dropped[mask]], atol=1e-12, rtol=0)


@pytest.mark.parametrize("num_layers", [12, 24])
def test_a_deep_stack_starts_with_states_and_gradients_of_one_size(num_layers: int) -> None:
    torch.manual_seed(0)
    encoder = build_encoder({"name": "starsaber", "hidden_size": 64, "num_layers": num_layers})
    x = torch.randn(4, 20, 64, requires_grad=True)
    output = encoder(x)
    output.backward(torch.randn_like(output))
    assert x.grad is not None
    assert 0.5 < output.pow(2).mean().sqrt() < 4
    assert 0.5 < x.grad.pow(2).mean().sqrt() < 8
