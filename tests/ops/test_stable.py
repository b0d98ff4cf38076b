"""Projections reach their ball, leave alone what is in it, and make the models contract, each in its own norm."""

import pytest
import torch
from torch import Tensor

from recurcli.ops.stable import clip_singular_values, lstm_bounds, lstm_contraction, project_lstm, scale_rows

SIZE = 6


def matrix(rows: int = SIZE, scale: float = 1.0, seed: int = 1) -> Tensor:
    return scale * torch.randn(rows, SIZE, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def row_sums(weight: Tensor) -> Tensor:
    return weight.abs().sum(dim=-1)


PROJECTION = pytest.mark.parametrize(
    "project",
    [
        lambda weight: clip_singular_values(weight, 0.95),
        lambda weight: scale_rows(weight, 0.95),
        lambda weight: project_lstm(weight, 0.64),
    ],
    ids=["singular values", "rows", "lstm"],
)


@PROJECTION
def test_projecting_twice_is_projecting_once(project) -> None:  # type: ignore[no-untyped-def]
    once = project(matrix(4 * SIZE))
    torch.testing.assert_close(project(once), once, atol=1e-14, rtol=0)


@PROJECTION
def test_what_lies_inside_comes_back_as_it_is(project) -> None:  # type: ignore[no-untyped-def]
    inside = matrix(4 * SIZE, 1e-3)
    assert torch.equal(project(inside), inside)
    assert torch.equal(project(torch.zeros_like(inside)), torch.zeros_like(inside))


def test_singular_values_are_clipped_and_the_others_kept() -> None:
    weight = matrix()
    before, after = torch.linalg.svdvals(weight), torch.linalg.svdvals(clip_singular_values(weight, 0.95))
    assert before.max() > 0.95 > before.min()
    torch.testing.assert_close(after, before.clamp(max=0.95))


def test_rows_are_scaled_to_the_bound_in_their_own_direction() -> None:
    weight = matrix(scale=0.3)
    scaled = scale_rows(weight, 1.0)
    torch.testing.assert_close(row_sums(scaled), row_sums(weight).clamp(max=1.0))
    torch.testing.assert_close(scaled / row_sums(scaled)[:, None], weight / row_sums(weight)[:, None])


@pytest.mark.parametrize("bound", [0.3, 0.64, 0.9])
def test_lstm_weights_keep_the_inequalities_of_the_paper(bound: float) -> None:
    enter, forget, candidate, leave = project_lstm(matrix(4 * SIZE, 5.0), bound).chunk(4)
    assert row_sums(enter).max() <= 1 - bound + 1e-12
    assert row_sums(leave).max() <= 1 - bound + 1e-12
    assert row_sums(candidate).max() <= (1 - bound) / 4 + 1e-12
    assert row_sums(forget).max() <= (1 - bound) ** 2 + 1e-12
    assert lstm_bounds(bound) == pytest.approx((1 - bound, (1 - bound) ** 2, (1 - bound) / 4, 1 - bound))
    assert bound < lstm_contraction(bound) < 1
