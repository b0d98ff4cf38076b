"""FLOPs are counted on shapes alone, for every encoder."""

import pytest

from recurcli.diagnostics.flops import forward_flops_per_token
from recurcli.encoders import ENCODERS
from recurcli.model.config import ModelConfig

TIED = {"name": "starsaber", "hidden_size": 16, "num_layers": None, "tied": True, "max_iterations": 3}


def config(**encoder: object) -> ModelConfig:
    return ModelConfig(encoder={"hidden_size": 16, **encoder}, vocab_size=20, pad_id=0, max_length=64)


@pytest.mark.parametrize("name", sorted(ENCODERS))
def test_every_encoder_has_flops(name: str) -> None:
    assert forward_flops_per_token(config(name=name, num_layers=2), length=8) > 0


def test_starsaber_needs_eight_d_squared_and_six_t_d_a_layer() -> None:
    assert forward_flops_per_token(config(name="starsaber", num_layers=3), length=8) == 3 * (8 * 16**2 + 6 * 8 * 16)


def test_the_tied_form_counts_its_iterations() -> None:
    once, thrice = (forward_flops_per_token(config(**{**TIED, "max_iterations": n}), length=8) for n in (1, 3))
    assert thrice == pytest.approx(3 * once, rel=0.5)
    assert thrice > once
