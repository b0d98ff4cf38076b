"""What every encoder keeps: one body, a row for each name in SIZED (`pretrained` has tests of its own)."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from sized_encoders import SIZED
from torch import Tensor

from recurcli.encoders import Encoder, build_encoder, encoder_class
from recurcli.encoders.contract import CHECKS, SIZE, batch, moved
from recurcli.errors import UsageError
from recurcli.layers import computed_once

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
ENCODER = pytest.mark.parametrize("name", sorted(SIZED))


def config_of(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "hidden_size": SIZE, "num_layers": 2, **SMALL.get(name, {}), **more}


def small(name: str, dtype: torch.dtype = torch.float64, **more: Any) -> Encoder:
    return moved(name, dtype, **SMALL.get(name, {}), **more)


@ENCODER
@pytest.mark.parametrize("check", CHECKS)
def test_keeps_the_contract(name: str, check: Callable[..., None]) -> None:
    check(name, **SMALL.get(name, {}))


@ENCODER
def test_layers_that_are_computed_again_give_the_same_bits(name: str) -> None:
    """With dropout, in fp32; the tensors that are kept for the backward pass are fewer."""
    results = []
    for checkpoint_layers in (False, True):
        encoder, (x, mask) = small(name, torch.float32, dropout=0.2).train(), batch([27, 9, 1], dtype=torch.float32)
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
    encoder, (x, mask) = small(name), batch([6, 4])
    fresh.double().eval().load_state_dict(encoder.state_dict())
    assert torch.equal(encoder(x, mask), fresh(x, mask))


@ENCODER
def test_runs_in_bf16_autocast_close_to_fp32(name: str) -> None:
    encoder = small(name, torch.float32)
    x, mask = batch([6, 4], filler=0.0, dtype=torch.float32)
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
    assert len(small(name).layers) == 2


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
