"""FLOPs are counted for every encoder by a forward pass."""

import pytest
import torch
from cases import slow_but
from sized_encoders import SIZED

from recurcli.config import ModelConfig
from recurcli.encoders import build_encoder
from recurcli.network import forward_flops_per_token

FEW = ("bilstm", "linear-transformer", "rsa", "skyformer", "starsaber", "transject", "transformer-xl")
"""Encoders of all kinds of products: of torch's own layers, of attention in each form, of recurrences and inverses."""
TIED = {"name": "starsaber", "hidden_size": 16, "num_layers": None, "tied": True, "max_iterations": 3}


def config(**encoder: object) -> ModelConfig:
    return ModelConfig(encoder={"hidden_size": 16, **encoder}, vocab_size=20, pad_id=0, max_length=64)


@pytest.mark.parametrize("name", sorted(SIZED))
def test_every_encoder_has_flops(name: str) -> None:
    assert forward_flops_per_token(config(name=name, num_layers=2), length=8) > 0


@pytest.mark.parametrize("length", slow_but([9], [1, 9]))
@pytest.mark.parametrize("encoder", [{"name": "nystromformer", "convolution_size": 3}, *slow_but(FEW, sorted(SIZED))])
def test_the_count_is_that_of_torch(encoder: str | dict[str, object], length: int) -> None:
    from torch.utils.flop_counter import (
        FlopCounterMode,
        flop_registry,
    )  # imports triton, which no other test here needs

    model = config(num_layers=2, **({"name": encoder} if isinstance(encoder, str) else encoder))
    product = {torch.ops.aten.baddbmm_: lambda *shapes, **_: flop_registry[torch.ops.aten.baddbmm](*shapes)}
    with torch.device("meta"), torch.no_grad():
        module, x = build_encoder(model.encoder).eval().requires_grad_(False), torch.empty(1, length, 16)
        module(x)
        with FlopCounterMode(display=False, custom_mapping=product) as counter:
            module(x)
    assert forward_flops_per_token(model, length) * length == pytest.approx(counter.get_total_flops())


def test_counting_leaves_torchs_generator_as_it_was() -> None:
    before = torch.get_rng_state()
    forward_flops_per_token(config(name="rsa"), length=8)
    assert torch.equal(torch.get_rng_state(), before)


def test_starsaber_needs_eight_d_squared_and_six_t_d_a_layer() -> None:
    assert forward_flops_per_token(config(name="starsaber", num_layers=3), length=8) == 3 * (8 * 16**2 + 6 * 8 * 16)


def test_the_tied_form_counts_its_iterations() -> None:
    once, thrice = (forward_flops_per_token(config(**{**TIED, "max_iterations": n}), length=8) for n in (1, 3))
    assert thrice == pytest.approx(3 * once, rel=0.5)
    assert thrice > once
