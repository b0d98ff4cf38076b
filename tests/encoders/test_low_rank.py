"""Linformer, Performer, Nyströmformer, Synthesizer and Skyformer: their equations, and the limits in which they are exact."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import equations
import pytest
import torch
import torch.nn.functional as F
from equations import built
from torch import Tensor

from recurcli.encoders import Encoder
from recurcli.ops.attention import attention_weights
from recurcli.ops.gaussian_attention import DRAWS, attention_kernel, skyformer_attention, skyformer_attention_loop
from recurcli.ops.nystrom import nystrom_attention, nystrom_attention_loop, pseudo_inverse, segments
from recurcli.ops.random_features import (
    draw_features,
    log_features,
    random_feature_attention,
    random_feature_attention_loop,
)

SIZE, HEADS, LENGTH = 8, 2, 9
LENGTHS = torch.tensor([LENGTH, 5])
MASK = torch.arange(LENGTH) < LENGTHS[:, None]


def encoder_of(name: str, **more: Any) -> Encoder:
    return built(name, hidden_size=SIZE, num_layers=1, num_heads=HEADS, **more)


def draw(*shape: int, seed: int = 4) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def triple(length: int = LENGTH, size: int = 4) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values (2, HEADS, length, size)."""
    query, key, value = draw(3, 2, HEADS, length, size)
    return query, key, value


def softmax_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
    return attention_weights(query, key, mask) @ value


def error(found: Tensor, exact: Tensor) -> float:
    return ((found - exact).norm() / exact.norm()).item()


def check_same(fast: Callable[..., Tensor], slow: Callable[..., Tensor], mask: Tensor | None) -> None:
    """Compare two forms of an attention at the real tokens, and the gradients of their inputs."""
    real = torch.ones_like(MASK) if mask is None else mask
    inputs = [x.requires_grad_() for x in triple()]
    found, expected = (form(*inputs, mask=mask).transpose(1, 2)[real] for form in (fast, slow))
    equations.check_same(found, expected, inputs, 1e-9)


DRAWN = torch.randint(0, DRAWS, (2, 3), generator=torch.Generator().manual_seed(7))
FEATURES = draw(6, 4, seed=8)
FORMS: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor]]] = {
    "performer": (
        partial(random_feature_attention, features=FEATURES),
        partial(random_feature_attention_loop, features=FEATURES),
    ),
    **{
        f"nystromformer with {count} landmarks": (
            partial(nystrom_attention, num_landmarks=count, iterations=6),
            partial(nystrom_attention_loop, num_landmarks=count, iterations=6),
        )
        for count in (1, 4, 7, 20)
    },
    "skyformer": (
        partial(skyformer_attention, draws=DRAWN, gamma=0.1, iterations=14),
        partial(skyformer_attention_loop, draws=DRAWN, gamma=0.1),
    ),
}


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("name", FORMS)
def test_an_attention_and_its_gradients_are_those_of_its_loop(name: str, padded: bool) -> None:
    check_same(*FORMS[name], MASK if padded else None)


def test_random_features_estimate_the_softmax_kernel_without_bias() -> None:
    torch.manual_seed(0)
    query, key = draw(2, 4) / 2
    estimates = torch.stack(
        [
            (log_features(query, features) + log_features(key, features)).exp().mean()
            for features in (draw_features(8, 4).double() for _ in range(1000))
        ]
    )
    standard_error = estimates.std() / len(estimates) ** 0.5
    assert abs(estimates.mean() - (query @ key).exp()) < 3 * standard_error < 0.05 * (query @ key).exp()


def test_random_features_are_orthogonal_in_blocks_and_as_long_as_gaussian_rows() -> None:
    torch.manual_seed(0)
    features = draw_features(1024, 16).double()
    block = F.normalize(features[:16], dim=-1)
    torch.testing.assert_close(block @ block.mT, torch.eye(16, dtype=torch.float64), rtol=0, atol=1e-5)
    assert features.square().sum(dim=-1).mean().item() == pytest.approx(16, rel=0.05)
    assert features.mean().abs() < 0.03
    assert len(draw_features(7, 4)) == 7


def test_performer_takes_scores_of_any_size() -> None:
    query, key, value = (100 * x for x in triple())
    found = random_feature_attention(query.float(), key.float(), value.float(), FEATURES.float(), MASK)
    assert torch.isfinite(found).all()


@pytest.mark.parametrize("mask", [None, MASK], ids=["whole", "padded"])
def test_nystromformer_with_a_landmark_for_each_token_is_softmax_attention(mask: Tensor | None) -> None:
    query, key, value = triple()
    real = torch.ones_like(MASK) if mask is None else mask
    exact = softmax_attention(query, key, value, mask).transpose(1, 2)[real]
    for landmarks in (LENGTH, 3 * LENGTH):
        few, many = (
            nystrom_attention(query, key, value, mask, num_landmarks=landmarks, iterations=iterations)
            for iterations in (6, 16)
        )
        assert error(few.transpose(1, 2)[real], exact) < 0.1
        assert error(many.transpose(1, 2)[real], exact) < 1e-6


@pytest.mark.parametrize("mask", [None, MASK], ids=["whole", "padded"])
def test_skyformer_with_all_tokens_as_landmarks_is_its_kernel(mask: Tensor | None) -> None:
    query, key, value = triple()
    real = torch.ones_like(MASK) if mask is None else mask
    exact = (attention_kernel(query, key, mask) @ value).transpose(1, 2)[real]
    draws = torch.randint(0, DRAWS, (2, LENGTH))
    found = skyformer_attention(query, key, value, draws, mask, gamma=1e-8, iterations=40)
    assert error(found.transpose(1, 2)[real], exact) < 1e-5
    kernel = torch.exp(-(query[:, :, :, None] - key[:, :, None]).square().sum(dim=-1) / (2 * 4**0.5))
    torch.testing.assert_close(attention_kernel(query, key), kernel)


def test_the_pseudo_inverse_takes_each_matrix_by_itself() -> None:
    matrices = draw(3, 5, 5) * torch.tensor([1.0, 100.0, 0.01])[:, None, None]
    found = pseudo_inverse(matrices, 30)
    torch.testing.assert_close(found, torch.linalg.inv(matrices))
    torch.testing.assert_close(pseudo_inverse(matrices[:1], 3), pseudo_inverse(matrices, 3)[:1])


@pytest.mark.parametrize("count", [1, 3, 4, 64])
def test_segments_cover_the_real_tokens_alone(count: int) -> None:
    mask = torch.arange(13) < torch.tensor([13, 8, 1, 0])[:, None]
    starts, sizes = segments(mask, torch.empty(4, 13, 2), count)
    for row, length in enumerate((13, 8, 1, 13)):  # a row without a real token has those of its padding
        covered = [t for start, size in zip(starts[row], sizes[row], strict=True) for t in range(start, start + size)]
        assert covered == list(range(length))
        used = sizes[row][sizes[row] > 0]
        assert len(used) == min(count, length)
        assert used.max() - used.min() <= 1


def test_linformer_with_the_identity_as_projection_is_softmax_attention() -> None:
    layer: Any = encoder_of("linformer", projected_length=LENGTH, max_length=LENGTH).layers[0].attention
    with torch.no_grad():
        layer.projection.copy_(torch.eye(LENGTH)[:, None].expand(-1, HEADS, -1))
    query, key, value = triple()
    torch.testing.assert_close(layer.mix(query, key, value, None), softmax_attention(query, key, value))


@pytest.mark.parametrize("padded", [False, True])
def test_linformer_is_its_loop(padded: bool) -> None:
    layer: Any = encoder_of("linformer", projected_length=3, max_length=12).layers[0].attention
    with torch.no_grad():
        layer.projection.normal_()

    def loop(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        rows = []
        for b, h in [(b, h) for b in range(2) for h in range(HEADS)]:
            real = [t for t in range(LENGTH) if mask is None or mask[b, t]]
            keys, values = (
                torch.stack(
                    [torch.stack([layer.projection[t, h, i] * x[b, h, t] for t in real]).sum(dim=0) for i in range(3)]
                )
                for x in (key, value)
            )
            for n in range(LENGTH):
                weights = torch.stack([torch.exp(query[b, h, n] @ k / 2) for k in keys])
                rows.append((weights[:, None] * values).sum(dim=0) / weights.sum())
        return torch.stack(rows).view(2, HEADS, LENGTH, 4)

    check_same(layer.mix, loop, MASK if padded else None)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("kind", ["dense", "random", "factorised"])
def test_synthesizer_is_its_loop(kind: str, padded: bool) -> None:
    layer: Any = encoder_of("synthesizer", kind=kind, max_length=12, rank=2).layers[0].attention
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_()

    def score(query: Tensor, b: int, h: int, n: int, t: int) -> Tensor:
        if kind == "dense":
            found = layer.score_weight[t, h] @ query[b, h, n].clamp(min=0) + layer.score_bias[t, h]
        else:
            found = layer.random[h, n, t] if kind == "random" else layer.left[n, h] @ layer.right[t, h]
        return torch.as_tensor(found)

    def loop(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        rows = []
        for b, h, n in [(b, h, n) for b in range(2) for h in range(HEADS) for n in range(LENGTH)]:
            real = [t for t in range(LENGTH) if mask is None or mask[b, t]]
            weights = torch.stack([torch.exp(score(query, b, h, n, t)) for t in real])
            rows.append((weights[:, None] * value[b, h, real]).sum(dim=0) / weights.sum())
        return torch.stack(rows).view(2, HEADS, LENGTH, 4) + 0 * (query.sum() + key.sum())  # a gradient for all

    def mix(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        return torch.as_tensor(layer.mix(query, key, value, mask) + 0 * (query.sum() + key.sum()))

    check_same(mix, loop, MASK if padded else None)


def test_the_convolution_reads_neighbours_and_no_padding() -> None:
    layer: Any = encoder_of("nystromformer", convolution_size=3).layers[0].attention
    query, key, value = triple()
    kernel = layer.convolution.weight[:, 0, :, 0]  # (H, 3)
    plain = nystrom_attention(query, key, value, MASK, num_landmarks=128, iterations=6)
    inner = sum(kernel[:, i, None] * value[1, :, 3 + i] for i in range(3))  # at position 4, the last real one is 4
    last = inner - kernel[:, 2, None] * value[1, :, 5]
    torch.testing.assert_close((layer.mix(query, key, value, MASK) - plain)[1, :, 4], last)


@pytest.mark.parametrize("name", ["linformer", "synthesizer"])
def test_an_input_longer_than_max_length_is_refused(name: str) -> None:
    encoder = encoder_of(name, max_length=6)
    assert encoder(draw(1, 6, SIZE)).shape == (1, 6, SIZE)
    with pytest.raises(ValueError, match="the input has 7 positions, and the encoder's max_length is 6"):
        encoder(draw(1, 7, SIZE))
    with pytest.raises(ValueError, match="the input has 7 positions, and the encoder's max_length is 6"):
        encoder(draw(1, 7, SIZE), torch.ones(1, 7, dtype=torch.bool))


@pytest.mark.parametrize("name", ["linformer", "synthesizer"])
def test_padding_after_max_length_changes_nothing(name: str) -> None:
    encoder = encoder_of(name, max_length=6)
    x, mask = draw(2, 8, SIZE), torch.arange(8) < torch.tensor([[6], [3]])
    states = encoder(x, mask)
    torch.testing.assert_close(states[:, :6], encoder(x[:, :6], mask[:, :6]), rtol=0, atol=0)
    assert not states[:, 6:].any()


@pytest.mark.parametrize(("name", "most"), [("linformer", 128), ("synthesizer", 5), ("nystromformer", 5)])
def test_entropies_are_those_of_what_is_attended(name: str, most: int) -> None:
    layer: Any = encoder_of(name).layers[0]
    with torch.no_grad():
        for parameter in layer.attention.parameters():
            parameter.zero_()
    stats = layer.stats(draw(1, 5, SIZE), None)
    if name == "linformer":
        assert stats["projected_entropy"] == pytest.approx(math.log(most))
    else:
        torch.testing.assert_close(stats["attention"], torch.full((1, HEADS, 5, 5), 1 / most, dtype=torch.float64))
