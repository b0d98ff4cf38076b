"""The number of parameters of each encoder, as its paper counts them."""

from typing import Any

import pytest
from equations import built

TIED = {"tied": True, "num_layers": None}


def size_of(name: str, **keys: Any) -> int:
    """Parameters of two layers of D = 24 and two heads."""
    heads = {} if "starsaber" in name or name in ("mingru", "s4d") else {"num_heads": 2}
    encoder = built(name, **{"hidden_size": D, "num_layers": 2, **heads, **keys})
    return sum(parameter.numel() for parameter in encoder.parameters())


D = 24
PRE_NORM = 12 * D**2 + 13 * D + D
"""A layer of the pre-norm Transformer with half of the final norm."""
FOUR = {"max_length": 9, "rank": 4}


@pytest.mark.parametrize(
    ("name", "keys", "of_a_layer"),
    [
        ("transformer", {}, 12 * D**2 + 13 * D),
        ("linear-transformer", {}, 12 * D**2 + 13 * D),
        ("rezero", {}, 12 * D**2 + 9 * D + 1),
        *((name, {}, PRE_NORM) for name in ("performer", "nystromformer", "skyformer")),
        ("reformer", {}, PRE_NORM - D**2 - D),
        ("synthesizer", {"kind": "dense", **FOUR}, PRE_NORM - D**2 - D + (D + 2) * 9),
        ("synthesizer", {"kind": "random", **FOUR}, PRE_NORM - 2 * D**2 - 2 * D + 2 * 9**2),
        ("synthesizer", {"kind": "factorised", **FOUR}, PRE_NORM - 2 * D**2 - 2 * D + 2 * 2 * 9 * 4),
        ("starsaber", {}, 4 * D**2 + 1),
        ("starsaber", {"bias": True}, 4 * D**2 + D + 1),
        ("starsaber", {"direct_path": False}, 3 * D**2 + 1),
        ("starsaber", {"position": "sinusoidal"}, 3 * D**2 + 1),
        ("starsaber", {"position": "sinusoidal", "direct_path": False}, 2 * D**2 + 1),
        ("starsaber", {"causal": True}, 3 * D**2 + 1),
        ("starsaber", TIED, 2 * D**2),
        ("gated-starsaber", {"gate": "gru_light"}, 8 * D**2),
        ("gated-starsaber", {"gate": "gru"}, 10 * D**2),
        ("gated-starsaber", {"gate": "lstm"}, 13 * D**2),
        ("mingru", {}, 11 * D**2 + 12 * D + D),
        ("s4d", {"state_size": 6}, 9 * D**2 + 2 * 6 * D + 12 * D + D),
        ("gated-linear-attention", {"gate_rank": 3}, 12 * D**2 + 1.5 * 3 * D + 0.5 * D + 9 * D + D),
        ("delta-net", {}, 12 * D**2 + 2 * D + 3 * 4 * D + D / 2 + 9 * D + D),
        ("delta-net", {"products": 2, "gate": "scalar"}, 14 * D**2 + 6 * D + 5 * 4 * D + 4 + D / 2 + 9 * D + D),
        ("mamba2", {"state_size": 6}, 11 * D**2 + 4 * 6 * D + 2 * D + 4 * (D + 4 * 6) + 6 + D + 9 * D + D),
        ("mlstm", {}, 13 * D**2 + 4 * D + 4 + 2 * 4 * D + 2 * D + 9 * D + D),
        ("slstm", {}, (13 + 2) * D**2 + 4 * D + D + 9 * D + D),
        ("transformer-xl", {}, 12 * D**2 + 13 * D + D**2 + 2 * D),
    ],
)
def test_a_layer_has_the_parameters_that_its_paper_counts(name: str, keys: dict[str, Any], of_a_layer: float) -> None:
    assert size_of(name, **keys) == 2 * of_a_layer


def test_rsa_adds_as_much_to_transformer_xl_as_to_the_transformer() -> None:
    xl = size_of("transformer-xl", rsa=True) - size_of("transformer-xl")
    assert xl == size_of("rsa") - size_of("transformer") > 0
