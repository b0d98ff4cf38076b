"""RSA is its equation, head by head, and reduces to attention and to recurrence at the ends of its gate."""

from typing import Any, cast

import pytest
import torch
from allocations import Allocations
from equations import batch, built, check_same
from torch import Tensor

from recurcli.encoders import build_encoder, rsa
from recurcli.encoders.config import TransformerConfig
from recurcli.encoders.rsa import RSA, SHORT, RecurrentAttention
from recurcli.encoders.transformer import MultiheadAttention
from recurcli.ops.recurrence import BLOCK, recurrence_matrix_loop

SIZE, HEADS, K = 24, 8, 3
ALL_KINDS = {"rem_heads": [1, 1, 1, 2, 1, 1], "dilations": [3, 2, 4]}


def encoder_of(**more: Any) -> RSA:
    return built("rsa", moved=0.1, hidden_size=SIZE, num_layers=1, num_heads=HEADS, **more)


def attention_of(**more: Any) -> RecurrentAttention:
    return cast(RecurrentAttention, encoder_of(**more).layers[0].attention)


def close(actual: Tensor, expected: Tensor, tolerance: float = 1e-10) -> None:
    torch.testing.assert_close(actual, expected, atol=tolerance, rtol=0)


def slow(layer: RecurrentAttention, x: Tensor) -> Tensor:
    """The module's equation for one text (T, D), a head at a time, every P entry by entry."""
    length = len(x)
    query, key, value = layer.query_key_value(x).view(length, 3, HEADS, K).permute(1, 2, 0, 3)  # (H, T, K) each
    gate = torch.sigmoid(layer.mu)
    heads = []
    for index in range(HEADS):
        scores = query[index] @ key[index].T / K**0.5
        if layer.causal:
            scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -torch.inf)
        weights = scores.softmax(dim=-1)
        if index < len(layer.heads):
            kind, dilation, place = layer.heads[index]
            rates = layer.eta.tanh() if kind == "regular" else layer.nu.sigmoid()  # type: ignore[union-attr]
            rate = rates[place].item()
            angle = 0.0 if kind == "regular" else layer.theta[place].item()  # type: ignore[index]
            keys: dict[str, Any] = {"rate": rate, "angle": angle, "dilation": dilation, "causal": layer.causal}
            weights = (1 - gate) * weights + gate * recurrence_matrix_loop(kind, length, **keys)
        heads.append(weights @ value[index])
    return layer.output(torch.cat(heads, dim=-1))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lengths", [(13, 6), (BLOCK + 50, 70)], ids=["one block", "several blocks"])
def test_a_layer_is_its_equation_head_by_head(causal: bool, lengths: tuple[int, int]) -> None:
    layer = attention_of(causal=causal, **ALL_KINDS)
    assert {head.kind for head in layer.heads} == {"regular", "cosine", "sine"}
    assert {head.dilation for head in layer.heads} == {1, 2, 3, 4}
    assert len(layer.heads) == 7 < HEADS
    x, mask = batch([*lengths], SIZE)
    found = layer(x, mask)
    for row, length in enumerate(lengths):
        close(found[row, :length], slow(layer, x[row, :length]))


@pytest.mark.parametrize(
    ("heads", "dilations", "count"),
    [([0, 0, 0, 0, 2, 2], [2, 4], 5), ([2, 1, 1, 1, 1, 1], [2, 2], 8), ([3, 0, 0, 0, 0, 0], [], 4)],
)
def test_adds_a_gate_a_rate_a_regular_head_and_two_numbers_a_pair(
    heads: list[int], dilations: list[int], count: int
) -> None:
    layer = attention_of(rem_heads=heads, dilations=dilations)
    plain = MultiheadAttention(TransformerConfig(hidden_size=SIZE, num_heads=HEADS, head_size=K))
    assert sum(p.numel() for p in layer.parameters()) - sum(p.numel() for p in plain.parameters()) == count
    assert count == 1 + heads[0] + heads[3] + 2 * (heads[1] + heads[4])


def test_the_heads_of_a_pair_share_rate_angle_and_dilation() -> None:
    layer = attention_of(rem_heads=[0, 1, 1, 0, 2, 2], dilations=[2, 4, 2, 4])
    rates, angles = layer.rates_and_angles()
    pairs: dict[int, list[tuple[str, tuple[float, ...]]]] = {}
    for head, rate, angle in zip(layer.heads, rates.tolist(), angles.tolist(), strict=True):
        pairs.setdefault(head.place, []).append((head.kind, (head.dilation, rate, angle)))
    assert [head.dilation for head in layer.heads] == [1, 1, 2, 2, 4, 4]
    for cosine, sine in pairs.values():
        assert (cosine[0], sine[0]) == ("cosine", "sine")
        assert cosine[1] == sine[1]


def test_starts_where_the_paper_starts() -> None:
    torch.manual_seed(0)
    config = {"name": "rsa", "hidden_size": SIZE, "num_layers": 1, "rem_heads": [3, 1, 1, 0, 1, 1], "gate_init": -3.0}
    layer = cast(RecurrentAttention, cast(RSA, build_encoder(config)).layers[0].attention)
    assert layer.eta is not None and layer.nu is not None and layer.theta is not None
    assert layer.eta.tolist() == [1.0, -1.5, 2.0]
    assert layer.nu.tolist() == [1.0, 2.0]
    torch.testing.assert_close(layer.theta.detach(), torch.full((2,), torch.pi / 4))
    assert layer.mu.item() == -3.0


@pytest.mark.parametrize("length", [6, 200])
def test_gradients_reach_rates_angles_and_gate(length: int) -> None:
    layer = attention_of(rem_heads=[1, 1, 1, 1, 1, 1], dilations=[2, 3])
    (layer(batch([length], SIZE)[0], None) ** 2).sum().backward()
    for parameter in (layer.eta, layer.nu, layer.theta, layer.mu):
        assert parameter is not None and parameter.grad is not None
        assert (parameter.grad != 0).all()


def test_a_rate_of_exactly_0_has_finite_gradients() -> None:
    layer = attention_of(**ALL_KINDS)
    assert layer.eta is not None and layer.nu is not None
    torch.nn.init.zeros_(layer.eta)
    torch.nn.init.constant_(layer.nu, -1e4)
    layer(batch([100], SIZE)[0], None).sum().backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in layer.parameters())


@pytest.mark.parametrize("causal", [False, True])
def test_short_texts_take_another_way_to_the_same_states_and_gradients(causal: bool) -> None:
    keys: dict[str, Any] = {"hidden_size": SIZE, "num_layers": 2, "num_heads": HEADS, "causal": causal, **ALL_KINDS}
    encoder = built("rsa", moved=0.1, **keys)
    x, mask = batch([20, 7], SIZE)
    found = []
    for short in (SHORT, 0):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(rsa, "SHORT", short)
            found.append(encoder(x, mask)[mask])
    short_states, long_states = found
    check_same(short_states, long_states, list(encoder.parameters()), 1e-11)


def test_no_layer_and_no_head_makes_a_matrix_of_lags() -> None:
    torch.manual_seed(0)
    encoder = build_encoder({"name": "rsa", "hidden_size": SIZE, "num_layers": 3})
    x, mask = batch([50, 31], SIZE)
    with Allocations() as allocations:
        encoder.eval()(x.float(), mask)
    whole = [shape for shape, dtype in allocations.made if not dtype.is_floating_point]
    assert max(shape.numel() for shape in whole) < 50 * 50


@pytest.mark.slow
def test_one_graph_serves_every_length() -> None:
    encoder = encoder_of(**ALL_KINDS).float()
    lengths = {0: torch.export.Dim("B", max=64), 1: torch.export.Dim("T", min=2, max=512)}
    x, mask = batch([7, 4], SIZE)
    graph = torch.export.export(encoder, (x.float(), mask), dynamic_shapes=(lengths, lengths)).module()
    for size in ((2,), (150, 80, 9)):
        x, mask = batch([*size], SIZE)
        close(graph(x.float(), mask)[mask], encoder(x.float(), mask)[mask], 1e-5)


def test_without_a_word_on_heads_a_quarter_of_them_are_dilated_pairs() -> None:
    config = RSA.Config(hidden_size=SIZE, num_layers=1)
    assert (config.head_counts, config.head_dilations) == ((0, 0, 0, 0, 2, 2), (2, 4))
    for heads, counts in ((4, (0, 0, 0, 0, 1, 1)), (2, (0, 0, 0, 0, 1, 1)), (1, (1, 0, 0, 0, 0, 0))):
        assert RSA.Config(hidden_size=SIZE, num_layers=1, num_heads=heads).head_counts == counts
