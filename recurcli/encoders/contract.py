"""The contract of an encoder as functions, which the tests of any encoder can call with its name and keys of its Config.

Each raises AssertionError where the encoder breaks it. The Config has at least `hidden_size`, `num_layers` and `dropout`.
Padding is the largest garbage that the contract allows, which a sloppy mask lets through and NaN would not show.
B batch, T positions, D hidden size.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.testing import assert_close

from recurcli.encoders.encoder import PADDING_LIMIT, Encoder
from recurcli.encoders.registry import build_encoder, causal_key

SIZE = 16
"""D of the encoders that are checked."""


def moved(name: str, dtype: torch.dtype = torch.float64, *, by: float = 0.1, seed: int = 0, **keys: Any) -> Encoder:
    """Return a small encoder in evaluation, its parameters moved by N(0, by²): an identity start would hide what is wrong."""
    torch.manual_seed(seed)
    encoder = build_encoder({"name": name, "hidden_size": SIZE, "num_layers": 2, **keys}).to(dtype).eval()
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(by * torch.randn_like(parameter))
        encoder.project_()
    return encoder


def batch(
    lengths: Sequence[int], size: int = SIZE, filler: float = PADDING_LIMIT, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor]:
    """Return random embeddings (B, T, `size`) with `filler` behind each row's length, and their mask (B, T)."""
    x = torch.randn(len(lengths), max(lengths), size, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return x.masked_fill(~mask[..., None], filler).to(dtype), mask


def check_same(fast: Tensor, slow: Tensor, leaves: Sequence[Tensor], tolerance: float = 1e-12) -> None:
    """Compare two forms of one computation, and the gradients of what both are made of."""
    assert_close(fast, slow, atol=tolerance, rtol=0)
    weights = torch.randn(slow.shape, dtype=slow.dtype, generator=torch.Generator().manual_seed(5))
    gradients = [torch.autograd.grad((made * weights).sum(), leaves, materialize_grads=True) for made in (fast, slow)]
    assert_close(*gradients, atol=100 * tolerance, rtol=0)


def check_padding(name: str, **keys: Any) -> None:
    """Check that no real position, and no auxiliary loss, depends on what the padding holds or on how much there is."""
    encoder, (x, mask) = moved(name, torch.float32, **keys), batch([7, 4, 1], filler=0.0, dtype=torch.float32)
    expected, losses = encoder(x, mask)[mask], encoder.auxiliary_losses(x, mask)
    for more, filler in itertools.product((0, 11), (1e4, PADDING_LIMIT, -PADDING_LIMIT)):
        wider = F.pad(mask, (0, more))
        longer = torch.full((*wider.shape, SIZE), filler).masked_scatter(wider[..., None], x[mask])
        assert_close(encoder(longer, wider)[wider], expected, atol=1e-5, rtol=0)
        assert_close(encoder.auxiliary_losses(longer, wider), losses)


def check_rows(name: str, **keys: Any) -> None:
    """Check that a row has the same states and gradients alone and among others, whose lengths span chunks and segments."""
    encoder, lengths = moved(name, **keys), [61, 35, 27, 9, 1]
    x, mask = batch(lengths)
    together = encoder(x.requires_grad_(), mask)
    rows = [encoder(x[row : row + 1, :length])[0] for row, length in enumerate(lengths)]
    check_same(together[mask], torch.cat(rows), [x, *encoder.parameters()], 1e-9)
    with torch.no_grad():
        assert_close(encoder(x, mask)[mask], together[mask], atol=1e-9, rtol=0)


def check_empty_row(name: str, **keys: Any) -> None:
    """Check that a row without a real token gives finite states and gradients."""
    for filler in (0.0, PADDING_LIMIT):
        encoder, (x, mask) = moved(name, torch.float32, **keys), batch([4, 2], filler=filler, dtype=torch.float32)
        mask[1] = False
        states = encoder(x.requires_grad_(), mask)
        states[mask].sum().backward()
        for tensor in (states, *(each.grad for each in (x, *encoder.parameters()) if each.grad is not None)):
            assert tensor.isfinite().all(), "a row without a real token has a state or a gradient that is not finite"


def check_gradients(name: str, **keys: Any) -> None:
    """Check that a gradient reaches every parameter and every real token, and no padding; auxiliary losses are scalars."""
    encoder, (x, mask) = moved(name, **keys).train(), batch([6, 4])
    losses = encoder.auxiliary_losses(x.requires_grad_(), mask)
    for key, loss in losses.items():
        assert key.isidentifier() and loss.shape == () and loss.isfinite(), f"{key} {loss} is no finite scalar"
    weights = torch.randn(6, SIZE, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    ((encoder(x, mask) * weights)[mask].sum() + sum(losses.values())).backward()
    for key, tensor in (("the embeddings", x), *encoder.named_parameters()):
        assert tensor.grad is not None and tensor.grad.abs().max() > 0, f"no gradient reaches {key}"
    assert x.grad is not None and torch.equal(x.grad.abs().amax(dim=-1) > 0, mask), (
        "gradients are not those of real tokens"
    )


def check_reach(name: str, **keys: Any) -> None:
    """Check that the last state depends on the first token and, if the encoder is causal, no state on a later one."""
    encoder, (x, _) = moved(name, **keys), batch([7])
    first, last, states = x.clone(), x.clone(), encoder(x)
    first[:, 0] *= -1  # a constant would vanish in LayerNorm
    last[:, -1] *= -1
    assert (encoder(first) - states)[:, -1].abs().max() > 1e-9, "the last state does not depend on the first token"
    if causal_key(name) in [*keys.items()]:  # the FFT of a long convolution rounds all positions together
        assert_close(encoder(last)[:, :-1], states[:, :-1], atol=1e-9, rtol=0)


def check_evaluation(name: str, **keys: Any) -> None:
    """Check that evaluation repeats its bits and draws no random numbers, and that dropout acts in training."""
    encoder, (x, mask) = moved(name, **{**keys, "dropout": 0.5}), batch([6, 4])
    before, states = torch.get_rng_state(), encoder(x, mask)
    assert torch.equal(encoder(x, mask), states), "two evaluations differ"
    assert torch.equal(torch.get_rng_state(), before), "an evaluation draws random numbers"
    assert not torch.equal(encoder.train()(x, mask), states), "dropout changes nothing in training"


def check_steps(name: str, **keys: Any) -> None:
    """Check that `step` gives the states and gradients of all positions at once; nothing is checked if it has an obstacle."""
    causal = causal_key(name)
    encoder, (x, _) = moved(name, **{**dict([causal] if causal else []), **keys}), batch([23, 23])
    if encoder.step_obstacle:
        return
    state, states = None, []
    for position in x.requires_grad_().unbind(1):
        found, state = encoder.step(position, state)
        states.append(found)
    check_same(torch.stack(states, dim=1), encoder(x), [x, *encoder.parameters()], 1e-10)


CHECKS = (check_padding, check_rows, check_empty_row, check_gradients, check_reach, check_evaluation, check_steps)
