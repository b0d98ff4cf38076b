"""The diagnostics, on states whose answers are known."""

import math
from statistics import fmean

import pytest
import torch

from recurcli.diagnostics import (
    activation_factor,
    attention_entropy,
    distance_preservation,
    dot_product_factor,
    gradient_norm_by_distance,
    movement,
    scaled_entropy,
)
from recurcli.encoders import Encoder, build_encoder

STATES = torch.randn(3, 6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
NORMAL = 0.5 * math.log(2 * math.pi * math.e)
"""The entropy of a normal density of standard deviation 1."""
MASK = torch.arange(6) < torch.tensor([6, 3, 2])[:, None]


def test_an_orthogonal_map_has_the_factor_one_and_a_stretch_its_own() -> None:
    turned = STATES @ torch.linalg.qr(STATES[0, :5]).Q
    assert activation_factor(STATES, turned + 3, MASK) == pytest.approx(1)
    assert dot_product_factor(STATES, turned, MASK) == pytest.approx(1)
    assert activation_factor(STATES, 2.5 * STATES, MASK) == pytest.approx(2.5)
    assert dot_product_factor(STATES, 2.5 * STATES, MASK) == pytest.approx(6.25)
    for after in (turned, 2.5 * STATES):
        assert distance_preservation(STATES, after, MASK) == pytest.approx(1)


def test_the_factors_are_means_over_texts_of_those_of_the_pairs_of_real_tokens() -> None:
    after = STATES**3
    factors, products = [], []
    for row, real in enumerate(MASK.sum(dim=1).tolist()):
        pairs = [(i, j) for i in range(real) for j in range(i)]
        ratios = [(after[row, i] - after[row, j]).norm() / (STATES[row, i] - STATES[row, j]).norm() for i, j in pairs]
        factors.append(sum(ratios).item() / len(pairs))
        new, old = (sum((h[row, i] @ h[row, j]).abs().item() for i, j in pairs) for h in (after, STATES))
        products.append(new / old)
    garbage = torch.where(MASK[..., None], after, torch.tensor(1e4, dtype=torch.float64))
    assert activation_factor(STATES, garbage, MASK) == pytest.approx(fmean(factors))
    assert dot_product_factor(STATES, garbage, MASK) == pytest.approx(fmean(products))


def test_a_long_text_counts_as_a_short_one() -> None:
    scales = torch.tensor([1.0, 3.0, 3.0], dtype=torch.float64)[:, None, None]
    assert activation_factor(STATES, scales * STATES, MASK) == pytest.approx(7 / 3)


def test_texts_without_a_pair_have_no_factor_and_tokens_that_are_the_same_do_not_count() -> None:
    alone = torch.tensor([[True] + [False] * 5] * 3)
    assert math.isnan(activation_factor(STATES, STATES, alone))
    one_of_three = torch.stack([MASK[0], alone[0], alone[0]])
    assert activation_factor(STATES, 2 * STATES, one_of_three) == pytest.approx(2)
    before = torch.zeros(1, 3, 2)
    before[0, 2] = 1
    assert activation_factor(before, 2 * before, torch.ones(1, 3, dtype=torch.bool)) == pytest.approx(2)


def test_movement_is_the_mean_length_of_the_step() -> None:
    step = torch.zeros_like(STATES)
    step[..., 0] = 2
    assert movement(STATES, STATES + step, MASK) == pytest.approx(2)


def test_neither_a_lone_outlier_nor_short_texts_move_the_entropy() -> None:
    states = torch.randn(1, 1000, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    whole = scaled_entropy(states, torch.ones(1, 1000, dtype=torch.bool))
    short = scaled_entropy(states.view(250, 4, 64), torch.ones(250, 4, dtype=torch.bool))
    states[0, 0, 0] = 1000
    with_outlier = scaled_entropy(states, torch.ones(1, 1000, dtype=torch.bool))
    assert whole == pytest.approx(NORMAL, abs=0.01)
    assert scaled_entropy(16 * STATES, MASK) == pytest.approx(scaled_entropy(STATES, MASK)), "a factor leaves it"
    assert with_outlier == pytest.approx(whole, abs=0.01)
    assert short == pytest.approx(NORMAL, abs=0.05)


def test_values_that_repeat_have_a_finite_entropy() -> None:
    spike = torch.zeros(4, 5, 3)
    spike[:, 0, 0] = 1
    for states in (STATES[:1, :1].expand(4, 5, -1), torch.zeros(4, 5, 3), spike):
        assert math.isfinite(scaled_entropy(states, torch.ones(4, 5, dtype=torch.bool)))


def test_attention_entropy_runs_from_zero_to_log_length() -> None:
    mask = torch.tensor([[True] * 4])
    assert attention_entropy(torch.eye(4)[None], mask) == pytest.approx(0, abs=1e-6)
    assert attention_entropy(torch.full((1, 2, 4, 4), 0.25), mask) == pytest.approx(math.log(4))


class Averaging(Encoder):
    """h_t = sum over k of 2^-k x_{t-k}."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        length = x.shape[1]
        lag = torch.arange(length)[:, None] - torch.arange(length)
        return torch.where(lag >= 0, 0.5 ** lag.clamp_min(0), 0.0) @ x


def test_the_gradient_falls_as_the_memory_of_the_encoder_does() -> None:
    norms = gradient_norm_by_distance(Averaging(), torch.randn(2, 5, 3))
    assert norms == pytest.approx([1, 0.5, 0.25, 0.125, 0.0625])


def test_the_gradient_of_a_real_encoder_reaches_every_distance() -> None:
    encoder = build_encoder({"name": "starsaber", "hidden_size": 8, "num_layers": 2})
    norms = gradient_norm_by_distance(encoder, torch.randn(2, 7, 8))
    assert (len(norms), min(norms) > 0) == (7, True)
