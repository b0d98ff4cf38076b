"""TransJect and Random-TransJect equal the plain loop, and have the properties that their paper claims."""

import math
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from equations import batch, built, check_same
from torch import Tensor

from recurcli.encoders.transject import TransJectLayer, eigenvalues, expert_outputs
from recurcli.layers import computed_once
from recurcli.ops.orthogonal import orthogonal, orthogonal_loop

SIZE, EXPERTS = 6, 3
BOTH = pytest.mark.parametrize("name", ["transject", "random-transject"])


def build(name: str, *, moved: float = 0.5, **keys: Any) -> Any:
    return built(name, moved=moved, **{"hidden_size": SIZE, "num_layers": 2, "num_experts": EXPERTS, **keys})


def layer_of(encoder: Any, number: int) -> tuple[TransJectLayer, Tensor]:
    """A layer and its orthogonal matrices."""
    layer: TransJectLayer = encoder.layers[number]
    return layer, orthogonal(layer.raw)


def plain_eigenvalues(encoder: Any, tokens: Tensor) -> Tensor:
    """s (D,) of the real tokens (T, D) of one sample, as the formulas have it."""
    if hasattr(encoder, "theta"):
        return encoder.theta.abs() / encoder.theta.abs().max()
    vectors = orthogonal_loop(encoder.eigenvectors)
    q = torch.diagonal(vectors.T @ tokens.T @ tokens @ vectors)
    return q / q.max()


def plain_forward(encoder: Any, tokens: Tensor) -> Tensor:
    """The encoder on the real tokens (T, D) of one sample: a loop over layers, experts and tokens."""
    s, h = plain_eigenvalues(encoder, tokens), list(tokens)
    for layer in encoder.layers:
        r = torch.tanh(layer.alpha) / len(encoder.layers)
        matrices = orthogonal_loop(layer.raw)
        y = [[F.elu((token @ matrices[e] * s) @ matrices[EXPERTS + e]) for token in h] for e in range(EXPERTS)]
        scores = []
        for e in range(EXPERTS):
            highest = torch.stack([token + r * y[e][t] for t, token in enumerate(h)]).max(dim=0).values
            scores.append(layer.importance @ highest + layer.bias[e])
        exponentials = [torch.exp(score) for score in scores]
        weights = [value / torch.stack(exponentials).sum() for value in exponentials]
        for t, token in enumerate(h):
            between = token + r * torch.stack([weights[e] * y[e][t] for e in range(EXPERTS)]).sum(dim=0)
            h[t] = between + r * F.elu(matrices[-1] @ F.elu(matrices[-2] @ between))
    return torch.stack(h)


@BOTH
@pytest.mark.parametrize("lengths", [(4, 2), (9, 7, 8), (1,)], ids=["scaled rows", "folded", "one token"])
def test_equals_the_plain_loop_and_so_do_its_gradients(name: str, lengths: tuple[int, ...]) -> None:
    encoder, (x, mask) = build(name), batch(lengths, SIZE)
    x.requires_grad_()
    slow = torch.cat([plain_forward(encoder, row[:length]) for row, length in zip(x, lengths, strict=True)])
    check_same(encoder(x, mask)[mask], slow, [x, *encoder.parameters()], 1e-10)
    with torch.no_grad():
        torch.testing.assert_close(encoder(x, mask)[mask], slow, rtol=0, atol=1e-10)


@BOTH
@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_alpha_init_is_the_first_alpha_of_every_layer(name: str, alpha: float) -> None:
    encoder = build(name, moved=0.0, alpha_init=alpha)
    weights = [layer.residual_weight.item() for layer in encoder.layers]
    assert weights == pytest.approx([math.tanh(alpha) / 2] * 2)
    x, mask = batch((4,), SIZE)
    assert torch.equal(encoder(x, mask), x) is (alpha == 0)


@BOTH
@pytest.mark.parametrize("masked", [False, True])
def test_inference_of_a_few_samples_at_a_time_changes_nothing(
    name: str, masked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder, (x, mask) = build(name), batch([5, 3, 5, 4, 1], SIZE)
    x, given = (x, mask) if masked else (x * mask[..., None], None)
    with torch.no_grad():
        together = encoder(x, given)
        for numbers in (1, 2 * EXPERTS * 5 * SIZE):
            monkeypatch.setattr("recurcli.encoders.transject.CACHED", numbers)
            torch.testing.assert_close(encoder(x, given), together, rtol=0, atol=1e-12)


@pytest.mark.parametrize("sets", [1, 4], ids=["one s for all", "an s for each sample"])
def test_folding_the_experts_changes_nothing(sets: int) -> None:
    torch.manual_seed(0)
    inputs = [torch.randn(4, 5, SIZE), torch.rand(sets, SIZE), *orthogonal(torch.randn(2, EXPERTS, SIZE, SIZE))]
    inputs = [tensor.double().requires_grad_() for tensor in inputs]
    folded, scaled = (expert_outputs(*inputs, folded=folded) for folded in (True, False))
    check_same(folded, scaled, inputs, 1e-6)


def test_the_greatest_eigenvalue_is_one_and_padding_alone_has_none() -> None:
    x, mask = batch([5, 3, 1], SIZE)
    s, _, _ = eigenvalues(x * mask[..., None], orthogonal(build("transject").eigenvectors))
    assert torch.equal(s.amax(dim=-1), torch.ones(3, dtype=torch.float64))
    assert s.min() >= 0
    nothing = torch.zeros(1, 4, SIZE, requires_grad=True)
    s, _, _ = eigenvalues(nothing, torch.eye(SIZE))
    assert torch.equal(s, torch.zeros(1, SIZE))
    s.sum().mul(1e30).backward()  # type: ignore[no-untyped-call]
    assert nothing.grad is not None
    assert nothing.grad.isfinite().all()


@BOTH
def test_the_eigenvalues_are_made_once_of_the_embeddings_and_serve_all_layers(name: str) -> None:
    encoder, (x, mask) = build(name), batch([5, 3], SIZE)
    seen: list[Tensor] = []
    for layer in encoder.layers:
        layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[1]))
    encoder(x, mask)
    assert len(seen) == 2
    assert seen[0] is seen[1]
    for row, length in enumerate((5, 3)):
        s = seen[0].expand(2, -1)[row]
        torch.testing.assert_close(s, plain_eigenvalues(encoder, x[row, :length]), rtol=0, atol=1e-12)


@BOTH
def test_starts_as_the_identity(name: str) -> None:
    encoder, (x, mask) = build(name, moved=0.0).train(), batch([9, 4], SIZE)
    assert torch.equal(encoder(x, mask)[mask], x[mask])


@BOTH
def test_experts_start_apart(name: str) -> None:
    _, matrices = layer_of(build(name, moved=0.0), 0)
    x, _ = batch([4], SIZE)
    inward, outward = torch.split(matrices[:-2], EXPERTS)
    y = expert_outputs(x, torch.ones(1, SIZE, dtype=torch.float64), inward, outward)
    assert (y[0] - y[1]).abs().max() > 0.1


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("transject", "cayley"),
        pytest.param("random-transject", "householder", marks=pytest.mark.slow),
        pytest.param("transject", "householder", marks=pytest.mark.slow),
        pytest.param("random-transject", "cayley", marks=pytest.mark.slow),
    ],
)
def test_matrices_are_orthogonal_after_a_hundred_large_steps(name: str, kind: str) -> None:
    encoder = build(name, hidden_size=32, orthogonal_map=kind, moved=0.0).float().train()
    before = encoder.layers[0].raw.detach().clone()
    x, mask = batch([6, 4, 6], 32)
    x = x.float()
    optimizer = torch.optim.Adam(encoder.parameters(), lr=0.04)
    for _ in range(100):
        optimizer.zero_grad()
        losses = encoder.auxiliary_losses(x, mask)
        total = encoder(x, mask)[mask].sin().sum() + sum(losses.values(), torch.zeros(()))
        total.backward()
        optimizer.step()
    assert (encoder.layers[0].raw - before).abs().max() > 0.3
    raw = [parameter for parameter in encoder.parameters() if parameter.ndim > 1]
    for matrices in encoder.matrices(raw):
        assert (matrices.mT @ matrices - torch.eye(32)).abs().max() <= 1e-5


@BOTH
@pytest.mark.parametrize("length", [4, 20])
def test_two_tokens_of_a_sample_stay_apart_and_together(name: str, length: int) -> None:
    encoder = build(name, num_layers=3)
    with torch.no_grad():
        for layer, alpha in zip(encoder.layers, (5.0, -5.0, 1.5), strict=True):
            layer.alpha.fill_(alpha)
        x, _ = batch([length], SIZE)
        x[0, 1] = x[0, 0] + 1e-4 * x[0, 1]
        states = encoder(x)
    weights = torch.stack([layer.residual_weight.abs() for layer in encoder.layers])
    assert weights.max() > 0.3
    rows, columns = torch.triu_indices(length, length, offset=1)
    factor = (states[0, rows] - states[0, columns]).norm(dim=-1) / (x[0, rows] - x[0, columns]).norm(dim=-1)
    assert factor.min() >= (1 - weights).square().prod() - 1e-9
    assert factor.max() <= (1 + weights).square().prod() + 1e-9


@pytest.mark.parametrize("held", [False, True], ids=["of a map of its own", "of the map of the forward pass"])
def test_bf16_does_not_round_the_sums_of_the_auxiliary_loss(held: bool) -> None:
    encoder = build("transject", auxiliary_weight=1.0).float()
    vectors = orthogonal(encoder.eigenvectors).detach()
    x = (torch.linspace(1, 2, SIZE - 1)[:, None] * vectors.T[:-1])[None]  # multiples of the eigenvectors: a loss of 0
    with torch.autocast("cpu", torch.bfloat16), computed_once() if held else nullcontext():
        encoder(x)
        loss = encoder.auxiliary_losses(x)["reconstruction"]
    assert loss.dtype == torch.float32
    assert loss < 1e-5


@pytest.mark.parametrize("lengths", [(5, 3), (9, 7)], ids=["fewer tokens than dimensions", "more"])
def test_the_auxiliary_loss_is_the_distance_to_the_eigendecomposition(lengths: tuple[int, int]) -> None:
    encoder = build("transject", auxiliary_weight=0.3)
    x, mask = batch(lengths, SIZE)
    losses = encoder.auxiliary_losses(x, mask)
    assert list(losses) == ["reconstruction"]
    vectors = orthogonal_loop(encoder.eigenvectors)
    distances = []
    for row, length in zip(x, lengths, strict=True):
        tokens = row[:length]
        q = torch.diagonal(vectors.T @ tokens.T @ tokens @ vectors)
        difference = vectors.T @ (tokens.T @ tokens / q.max()) @ vectors - torch.diag(q / q.max())
        distances.append(0.3 * difference.square().sum() / SIZE**2)
    slow = torch.stack(distances).mean()
    torch.testing.assert_close(losses["reconstruction"], slow, rtol=1e-10, atol=0)
    gradients = [torch.autograd.grad(loss, encoder.eigenvectors)[0] for loss in (losses["reconstruction"], slow)]
    assert gradients[0].abs().max() > 1e-4
    torch.testing.assert_close(*gradients, rtol=1e-8, atol=1e-12)


def test_random_transject_learns_its_eigenvalues_and_has_no_auxiliary_loss() -> None:
    encoder, (x, mask) = build("random-transject"), batch([5, 3], SIZE)
    assert encoder.auxiliary_losses(x, mask) == {}
    assert build("transject", auxiliary_weight=0.0).auxiliary_losses(x, mask) == {}
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.1)
    before = encoder.theta.detach().clone()
    encoder.train()(x, mask)[mask].square().sum().backward()
    optimizer.step()
    assert not torch.equal(encoder.theta, before)
    with torch.no_grad():
        encoder.theta.zero_()
        assert encoder.eval()(x, mask)[mask].isfinite().all()


def test_layers_whose_update_has_the_largest_weight_are_told() -> None:
    encoder = build("transject", moved=0.0, num_layers=3)
    assert encoder.capped_layers() == []
    with torch.no_grad():
        for layer, alpha in zip(encoder.layers, (-4.0, 2.0, 3.0), strict=True):
            layer.alpha.fill_(alpha)
    assert encoder.capped_layers() == [1, 3]
