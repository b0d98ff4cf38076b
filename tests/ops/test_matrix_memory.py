"""Memories that are matrices: the form in chunks against the loop, with gradients, short and long."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from equations import check_same
from torch import Tensor

from recurcli.ops.matrix_memory import CHUNK, matrix_memory, matrix_memory_loop, memory_after


def normal(*shape: int, seed: int, scale: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (scale * torch.randn(*shape, generator=generator, dtype=torch.float64)).requires_grad_()


def inputs(length: int, strength: float) -> list[Tensor]:
    """Queries, keys, values, and the numbers that decays and β are made of."""
    vectors = [normal(2, 3, length, size, seed=seed) for seed, size in enumerate((4, 4, 5))]
    return [*vectors, *(normal(2, 3, length, seed=seed, scale=strength) for seed in (3, 4))]


@pytest.mark.parametrize("length", [1, 2, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 5])
@pytest.mark.parametrize("strength", [0.1, 3.0])
@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("is_delta", [False, True])
def test_the_form_in_chunks_is_the_loop(length: int, strength: float, signed: bool, is_delta: bool) -> None:
    query, key, value, decay, beta = leaves = inputs(length, strength)

    def by(form: Callable[..., Tensor]) -> Tensor:
        decays = torch.tanh(decay) if signed else torch.sigmoid(decay)
        more = [2 * torch.sigmoid(beta)] if is_delta else []
        return form(query, F.normalize(key, dim=-1), value, decays, *more)

    check_same(by(matrix_memory), by(matrix_memory_loop), leaves, 1e-11)


@pytest.mark.parametrize("is_delta", [False, True])
def test_steps_are_the_loop(is_delta: bool) -> None:
    query, key, value, decay, beta = inputs(7, 1.0)
    more = [torch.sigmoid(beta)] if is_delta else []
    state, found = None, []
    for t in range(7):
        state = memory_after(
            state, key[:, :, t], value[:, :, t], decay.tanh()[:, :, t], *(part[:, :, t] for part in more)
        )
        found.append((query[:, :, t, None] @ state).squeeze(-2))
    torch.testing.assert_close(torch.stack(found, dim=2), matrix_memory_loop(query, key, value, decay.tanh(), *more))


def test_a_decay_of_zero_forgets_all_and_has_finite_gradients() -> None:
    query, key, value, _, _ = inputs(5, 1.0)
    decay = torch.zeros(2, 3, 5, dtype=torch.float64, requires_grad=True)
    found = matrix_memory(query, key, value, decay)
    torch.testing.assert_close(found, (query * key).sum(dim=-1, keepdim=True) * value, atol=1e-9, rtol=0)
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(found.sum(), [query, key, value, decay]))


def test_keys_that_repeat_with_the_largest_beta_keep_their_digits_in_float32() -> None:
    """Each update then mirrors the memory, and powers of the triangular matrix would grow to a million."""
    key = F.normalize(normal(1, 1, 1, 8, seed=1), dim=-1).expand(1, 1, 8 * CHUNK, 8).detach()
    query, value = (normal(1, 1, 8 * CHUNK, 8, seed=seed).detach() for seed in (2, 3))
    ones = torch.ones(1, 1, 8 * CHUNK, dtype=torch.float64)
    exact = matrix_memory_loop(query, key, value, ones, 2 * ones)
    found = matrix_memory(*(part.float() for part in (query, key, value, ones, 2 * ones)))
    assert (found.double() - exact).norm() < 1e-4 * exact.norm()
