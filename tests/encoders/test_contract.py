"""What every encoder keeps, whatever it computes: one body, a row for each name in SIZED (`pretrained` has tests of its own).

Padding in these tests is the largest garbage that the contract allows, which a sloppy mask lets through and NaN would not show.
"""

import dataclasses
from typing import Any

import pytest
import torch
from equations import check_same
from sized_encoders import SIZED
from torch import Tensor

from recurcli.encoders import Encoder, build_encoder, encoder_class
from recurcli.encoders.encoder import PADDING_LIMIT
from recurcli.errors import UsageError
from recurcli.layers import computed_once

SIZE = 16
GARBAGE = PADDING_LIMIT

SMALL: dict[str, dict[str, Any]] = {
    "transformer": {"num_heads": 2},
    "rezero": {"num_heads": 2},
    "transformer-xl": {"num_heads": 2, "segment": 4, "memory": 3},
    "block-recurrent-transformer": {"num_heads": 2, "window": 4, "num_states": 3},
    "temporal-latent-bottleneck": {"num_heads": 2, "chunk_size": 4, "num_states": 3},
    "reformer": {"num_heads": 2, "chunk_size": 8, "max_buckets": 16},
    "bigbird": {"num_heads": 2, "block_size": 4, "num_random_blocks": 1},  # full attention below 28 tokens
    "informer": {"num_heads": 2, "sampling_factor": 4},  # and below 13
    **{name: {"num_heads": 2, "num_landmarks": 8} for name in ("nystromformer", "skyformer")},
}
"""Keys that a small encoder has besides hidden_size and num_layers."""
LENGTHS = [61, 35, 27, 9, 1]
"""Of texts of many segments, chunks, blocks and samples."""
ENCODER = pytest.mark.parametrize("name", sorted(SIZED))


def config_of(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "hidden_size": SIZE, "num_layers": 2, **SMALL.get(name, {}), **more}


def moved(name: str, dtype: torch.dtype = torch.float64, **more: Any) -> Encoder:
    """An encoder whose every parameter was moved by N(0, 0.1²): at an identity start nothing would be tested."""
    torch.manual_seed(0)
    encoder = build_encoder(config_of(name, **more)).to(dtype).eval()
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
        encoder.project_()
    return encoder


def batch(lengths: list[int], dtype: torch.dtype = torch.float64, filler: float = GARBAGE) -> tuple[Tensor, Tensor]:
    """Random embeddings (B, T, D) with `filler` behind each row's length, and their mask (B, T)."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(len(lengths), max(lengths), SIZE, generator=generator, dtype=torch.float64).to(dtype)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return torch.where(mask[..., None], x, torch.tensor(filler, dtype=dtype)), mask


@ENCODER
def test_ignores_what_the_padding_holds(name: str) -> None:
    encoder = moved(name, torch.float32)
    mask = batch([7, 4, 1])[1]
    outputs = [
        encoder(batch([7, 4, 1], torch.float32, filler)[0], mask)[mask] for filler in (0.0, 1e4, GARBAGE, -GARBAGE)
    ]
    for other in outputs[1:]:
        torch.testing.assert_close(other, outputs[0], atol=1e-5, rtol=0)


@ENCODER
def test_gives_a_row_the_same_states_and_gradients_alone_and_among_others(name: str) -> None:
    encoder = moved(name)
    x, mask = batch(LENGTHS)
    x.requires_grad_()
    together = encoder(x, mask)
    rows = [encoder(x[row : row + 1, :length])[0] for row, length in enumerate(LENGTHS)]
    check_same(together[mask], torch.cat(rows), [x, *encoder.parameters()], 1e-9)
    with torch.no_grad():
        torch.testing.assert_close(encoder(x, mask)[mask], together[mask], atol=1e-9, rtol=0)


@ENCODER
def test_more_padding_changes_nothing(name: str) -> None:
    encoder = moved(name, torch.float32)
    x, mask = batch([5, 3], torch.float32)
    longer = torch.cat([x, torch.full((2, 11, SIZE), GARBAGE)], dim=1)
    wider = torch.cat([mask, torch.zeros(2, 11, dtype=torch.bool)], dim=1)
    torch.testing.assert_close(encoder(longer, wider)[:, :5][mask], encoder(x, mask)[mask], atol=1e-5, rtol=0)
    losses = encoder.auxiliary_losses(x, mask)
    torch.testing.assert_close(encoder.auxiliary_losses(longer, wider), losses)


@ENCODER
@pytest.mark.parametrize("filler", [0.0, GARBAGE])
def test_a_row_without_a_real_token_is_finite_and_so_are_its_gradients(name: str, filler: float) -> None:
    encoder = moved(name, torch.float32)
    x, mask = batch([4, 2], torch.float32, filler)
    mask[1] = False
    output = encoder(x.requires_grad_(), mask)
    assert torch.isfinite(output).all()
    output[mask].sum().backward()
    assert x.grad is not None
    assert torch.isfinite(x.grad).all()
    assert all(p.grad is None or torch.isfinite(p.grad).all() for p in encoder.parameters())


@ENCODER
def test_gradients_reach_every_parameter_and_every_real_input(name: str) -> None:
    encoder = moved(name).train()
    x, mask = batch([6, 4])
    x = x.requires_grad_()
    weights = torch.randn(6, SIZE, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    losses = encoder.auxiliary_losses(x, mask)
    assert all(key.isidentifier() and loss.shape == () and loss.isfinite() for key, loss in losses.items())
    total = (encoder(x, mask) * weights)[mask].sum() + sum(losses.values(), torch.zeros((), dtype=torch.float64))
    total.backward()
    for key, parameter in encoder.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.abs().max() > 0, key
    assert x.grad is not None
    assert (x.grad[mask].abs().amax(dim=-1) > 0).all()
    assert (x.grad[~mask] == 0).all()


@ENCODER
def test_evaluation_is_deterministic_and_draws_no_numbers_and_dropout_acts_in_training(name: str) -> None:
    encoder = moved(name, dropout=0.5)
    x, mask = batch([6, 4])
    before = torch.get_rng_state()
    states = encoder(x, mask)
    assert torch.equal(encoder(x, mask), states)
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.equal(encoder.train()(x, mask), states)


@ENCODER
def test_layers_that_are_computed_again_give_the_same_bits(name: str) -> None:
    """With dropout, in fp32; the tensors that are kept for the backward pass are fewer."""
    results = []
    for checkpoint_layers in (False, True):
        encoder, (x, mask) = moved(name, torch.float32, dropout=0.2).train(), batch([27, 9, 1], torch.float32)
        encoder.checkpoint_layers = checkpoint_layers
        inputs, kept = x.clone().requires_grad_(), dict[int, int]()

        def pack(tensor: Tensor, kept: dict[int, int] = kept) -> Tensor:
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        torch.manual_seed(3)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor), computed_once():
            states = encoder(inputs, mask)
            losses = encoder.auxiliary_losses(inputs, mask)
        (states[mask].square().sum() + sum(losses.values())).backward()
        gradients = [parameter.grad for parameter in encoder.parameters()]
        results.append((states[mask].detach(), inputs.grad, gradients, sum(kept.values())))
    (states, of_inputs, gradients, bytes_kept), (again, of_inputs_again, gradients_again, fewer) = results
    assert torch.equal(states, again)
    for one, other in zip((of_inputs, *gradients), (of_inputs_again, *gradients_again), strict=True):
        assert (one is None and other is None) or (one is not None and other is not None and torch.equal(one, other))
    assert encoder.checkpoint_obstacle or fewer < 0.7 * bytes_kept


@ENCODER
def test_the_same_seed_gives_the_same_weights_and_a_state_dict_carries_them_all(name: str) -> None:
    states = []
    for _ in range(2):
        torch.manual_seed(5)
        fresh = build_encoder(config_of(name))
        states.append(fresh.state_dict())
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])
    pointers = {parameter.data_ptr() for parameter in fresh.parameters()}
    assert len(pointers) == len([*fresh.parameters()]), "safetensors drops the twin of a shared tensor"
    encoder, (x, mask) = moved(name), batch([6, 4])
    fresh.double().eval().load_state_dict(encoder.state_dict())
    assert torch.equal(encoder(x, mask), fresh(x, mask))


@ENCODER
def test_runs_in_bf16_autocast_close_to_fp32(name: str) -> None:
    encoder = moved(name, torch.float32)
    x, mask = batch([6, 4], torch.float32, filler=0.0)
    for training in (True, False):
        with torch.set_grad_enabled(training):
            exact = encoder(x, mask)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                fast = encoder(x, mask).float()
        assert torch.isfinite(fast).all()
        assert (fast - exact)[mask].norm() < 0.05 * exact[mask].norm()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        encoder.train()(x, mask).float()[mask].sum().backward()
    assert all(p.grad is None or torch.isfinite(p.grad).all() for p in encoder.parameters())


@ENCODER
def test_every_key_has_a_default_and_each_layer_that_was_asked_for_is_there(name: str) -> None:
    config = SIZED[name].config
    assert dataclasses.is_dataclass(config())
    assert encoder_class(name).Config is config
    assert len(moved(name).layers) == 2


@ENCODER
@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("hiden_size", 3, "unknown key; did you mean 'hidden_size'"),
        *(("hidden_size", "16", ""), ("hidden_size", 0, ""), ("dropout", 1.0, "")),
    ],
)
def test_an_unknown_or_unfit_key_is_refused(name: str, key: str, value: object, reason: str) -> None:
    with pytest.raises(UsageError, match=f"{key}.*{reason}"):
        build_encoder(config_of(name, **{key: value}))


def test_an_unknown_encoder_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="'starsabre' is unknown; did you mean 'starsaber'"):
        build_encoder({"name": "starsabre", "hidden_size": 16, "num_layers": 1})
