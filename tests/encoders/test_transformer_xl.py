"""Transformer-XL is its equations, segment by segment, in both of its forms, with and without RSA."""

from typing import Any, cast

import pytest
import torch
from equations import built, check_same
from torch import Tensor

from recurcli.encoders.transformer_xl import SegmentAttention, TransformerXL
from recurcli.layers import sinusoids
from recurcli.ops.recurrence import recurrence_matrix_loop
from recurcli.ops.relative import relative_attention_weights_loop

SIZE, HEADS, K, LENGTH = 12, 3, 4, 14
RSA = {"rsa": True, "rem_heads": [1, 0, 0, 0, 1, 1], "dilations": [2]}
FORM = pytest.mark.parametrize("more", [{}, RSA], ids=["softmax", "rsa"])


def encoder_of(**more: Any) -> TransformerXL:
    keys = {"num_heads": HEADS, "num_layers": 2, "segment": 5, "memory": 5, "feed_forward_size": 8}
    return built("transformer-xl", moved=0.1, hidden_size=SIZE, **{**keys, **more})


def text(*shape: int) -> Tensor:
    return torch.randn(*shape, SIZE, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def recurrence(layer: SegmentAttention, length: int, head: int) -> Tensor:
    kind, dilation, place = layer.heads[head]
    scalars = {"regular": layer.eta.tanh() if layer.eta is not None else None}.get(kind, layer.nu.sigmoid())  # type: ignore[union-attr]
    angle = 0.0 if kind == "regular" else layer.theta[place].item()  # type: ignore[index]
    rate = scalars[place].item()  # type: ignore[index]
    return recurrence_matrix_loop(kind, length, rate=rate, angle=angle, dilation=dilation, causal=layer.causal)


def attention_loop(layer: SegmentAttention, x: Tensor, memory: Tensor) -> Tensor:
    """Section 3.3 for one segment x (S, D) and its memory (M, D), a head and a score at a time."""
    context = torch.cat([memory, x])
    matrices, biases = layer.query_key_value.weight.chunk(3), layer.query_key_value.bias.chunk(3)
    query, key, value = ((x if n == 0 else context) @ matrices[n].T + biases[n] for n in range(3))
    positions = torch.arange(-len(x), len(context), dtype=x.dtype)
    lags = dict(zip(positions.int().tolist(), sinusoids(positions, SIZE) @ layer.position.weight.T, strict=True))
    mixed = []
    for head in range(HEADS):
        one = slice(head * K, (head + 1) * K)
        of_head = {lag: r[one] for lag, r in lags.items()}
        parts = query[:, one], key[:, one], of_head, layer.u[one], layer.v[one]
        weights = relative_attention_weights_loop(*parts, causal=layer.causal)
        if layer.rsa and head < len(layer.heads):
            gate = layer.mu.sigmoid()
            weights = (1 - gate) * weights + gate * recurrence(layer, len(context), head)[len(memory) :]
        mixed.append(weights @ value[:, one])
    return layer.output(torch.cat(mixed, dim=-1))


def loop(encoder: TransformerXL, x: Tensor, segment: int, memory: int) -> Tensor:
    """Section 3.2 for one text (T, D): segments in order, the memory concatenated and without gradient."""
    past = [x[:0] for _ in encoder.layers]
    outputs = []
    for start in range(0, len(x), segment):
        h = x[start : start + segment]
        for n, layer in enumerate(encoder.layers):
            given = layer.attention_norm(h) if layer.pre_norm else h  # type: ignore[operator]
            attended = h + attention_loop(cast(SegmentAttention, layer.attention), given, past[n])
            past[n] = torch.cat([past[n], given.detach()])[max(0, len(past[n]) + len(h) - memory) :]
            if layer.pre_norm:
                h = attended + layer.feed_forward(layer.feed_forward_norm(attended))  # type: ignore[operator]
            else:
                h = layer.attention_norm(attended)  # type: ignore[operator]
                h = layer.feed_forward_norm(h + layer.feed_forward(h))  # type: ignore[operator]
        outputs.append(encoder.final_norm(h))
    return torch.cat(outputs)


def both_forms(encoder: TransformerXL, x: Tensor, mask: Tensor | None = None) -> list[Tensor]:
    """All segments at once, as in training, and one after the other, as in inference."""
    with torch.no_grad():
        return [encoder(x, mask), torch.enable_grad()(encoder)(x, mask).detach()]


@pytest.mark.parametrize(
    ("segment", "memory", "more"),
    [
        (5, 5, {}),
        (5, 5, {"causal": True}),
        (5, 5, RSA),
        (5, 7, {**RSA, "causal": True}),
        (4, 2, {}),
        (3, 8, {"norm": "pre"}),
        (5, 0, {}),
        (14, 3, {}),
        (500, 600, RSA),
        (1, 3, RSA),
    ],
    ids=str,
)
def test_states_and_gradients_are_those_of_the_loop_over_segments(
    segment: int, memory: int, more: dict[str, Any]
) -> None:
    encoder = encoder_of(segment=segment, memory=memory, **more)
    x = text(LENGTH).requires_grad_()
    expected = loop(encoder, x, segment, memory)
    found = encoder(x[None])[0]
    with torch.no_grad():
        torch.testing.assert_close(encoder(x[None])[0], expected)
    recurrent = ("eta", "nu", "theta")  # the loop has numbers in their place
    variables = [x, *(p for name, p in encoder.named_parameters() if name.rpartition(".")[2] not in recurrent)]
    check_same(found, expected, variables, 1e-11)


@FORM
@pytest.mark.parametrize("causal", [False, True])
def test_rows_of_several_segments_are_the_same_alone_and_whatever_the_padding_is(
    causal: bool, more: dict[str, Any]
) -> None:
    encoder = encoder_of(causal=causal, **more)
    lengths = [13, 11, 10, 6, 5, 1, 0]
    mask = torch.arange(23) < torch.tensor(lengths)[:, None]
    x = text(len(lengths), 23)
    first, *others = [
        states
        for filler in (1e4, -3.0)
        for states in both_forms(encoder, x.masked_fill(~mask[..., None], filler), mask)
    ]
    assert torch.isfinite(first).all()
    for other in others:
        torch.testing.assert_close(other[mask], first[mask])
    for row, length in enumerate(lengths[:-1]):
        for alone in both_forms(encoder, x[row : row + 1, :length]):
            torch.testing.assert_close(alone[0], first[row, :length])


def test_stats_are_the_weights_on_memory_and_segment_and_with_rsa_its_numbers() -> None:
    x = text(2, LENGTH)
    plain, gated = (encoder_of(**keys).layers[0].stats(x, None) for keys in ({}, RSA))  # type: ignore[operator]
    assert plain.keys() == {"attention"}
    assert gated.keys() == {"attention", "gate", "rates", "angles"}
    assert plain["attention"].shape == (2, HEADS, LENGTH, 10)
    torch.testing.assert_close(plain["attention"].sum(dim=-1), torch.ones(2, HEADS, LENGTH, dtype=x.dtype))
    assert (plain["attention"][:, :, :5, :5] == 0).all(), "the first segment has no memory"
