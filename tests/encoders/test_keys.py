"""Keys of encoders: which values are refused, and how many parameters the others make."""

from typing import Any

import pytest
from equations import built

from recurcli.encoders import build_encoder
from recurcli.encoders.config import ReformerConfig
from recurcli.errors import UsageError

TIED = {"tied": True, "num_layers": None}


@pytest.mark.parametrize(
    ("name", "keys", "reason"),
    [
        ("transformer", {"hidden_size": 300}, "set head_size, for example to 38"),
        ("rezero", {"hidden_size": 300}, "set head_size, for example to 38"),
        ("bilstm", {"hidden_size": 7}, "must be even, because each direction has half of it, not 7"),
        ("starsaber", {"num_layers": None}, "num_layers: must be a number unless"),
        ("starsaber", {"tied": True}, "num_layers: must be null with tied weights, not 2"),
        ("starsaber", {**TIED, "alpha": "fixed"}, "alpha: must be learned with tied weights"),
        ("starsaber", {"orthogonal": True}, "orthogonal: must be false unless the weights are tied"),
        ("block-recurrent-transformer", {"recurrent_layer": 3}, "recurrent_layer"),
        ("temporal-latent-bottleneck", {"rsa": True, "attention_dropout": 0.1}, "attention_dropout"),
        ("temporal-latent-bottleneck", {"rem_heads": [0, 0, 0, 0, 1, 1]}, "rem_heads"),
        ("nystromformer", {"convolution_size": 4}, "convolution_size.*must be odd"),
        ("nystromformer", {"iterations": 17}, "iterations.*must be at most 16"),
        ("skyformer", {"num_landmarks": 3}, "num_landmarks.*must be even"),
        ("skyformer", {"gamma": -1.0}, "gamma.*must be at least 0"),
        ("linformer", {"projected_length": 0}, "projected_length.*must be at least 1"),
        ("synthesizer", {"kind": "sparse"}, "kind.*should be 'dense', 'random' or 'factorised'"),
        ("orthogonal-transformer", {"head_size": 5}, "head_size: must be null or hidden_size / num_heads, not 5"),
        ("orthogonal-transformer", {"orthogonal_weights": "all"}, "orthogonal_weights"),
        ("transject", {"num_experts": 0}, "num_experts: must be at least"),
        ("transject", {"auxiliary_weight": -1.0}, "auxiliary_weight: must be at least"),
        ("truncated-rnn", {"hidden_size": 7}, "hidden_size: must be even"),
        ("truncated-rnn", {"spectral_bound": 1.0}, "spectral_bound: must be above 0 and below 1"),
        ("truncated-lstm", {"forget_bound": 0.0}, "forget_bound: must be above 0 and below 1"),
        ("truncated-lstm", {"window": 0}, "window: must be at least 1, not 0"),
        ("rsa", {"rem_heads": [0, 2, 1, 0, 0, 0]}, "rem_heads.*must have as many sine as cosine heads"),
        ("rsa", {"rem_heads": [9, 0, 0, 0, 0, 0]}, "rem_heads.*must sum to 1 to 8"),
        ("rsa", {"rem_heads": [0, 0, 0, 0, 0, 0]}, "rem_heads.*must sum to 1 to 8"),
        ("rsa", {"rem_heads": [0, 0, 0, 0, 2, 2], "dilations": [2]}, "dilations.*must have 2 numbers"),
        ("rsa", {"rem_heads": [0, 0, 0, 0, 2, 2], "dilations": [2, 4, 4, 2]}, "dilations.*must have 2 numbers"),
        ("rsa", {"dilations": [2, 0]}, "dilations.*must be at least 1"),
        ("rsa", {"gate_init": 4.0}, "gate_init.*must be from -3 to 3, not 4.0"),
        ("rsa", {"num_heads": 5}, "hidden_size: 24 is not a multiple of num_heads 5"),
        ("transformer-xl", {"segment": 0}, "segment.*must be at least 1, not 0"),
        ("transformer-xl", {"memory": -1}, "memory.*must be at least 0, not -1"),
        ("transformer-xl", {"rem_heads": [3, 0, 0, 0, 0, 0]}, "rem_heads.*must be null without rsa"),
        ("transformer-xl", {"dilations": [2]}, "dilations.*must be null without rsa"),
        ("transformer-xl", {"gate_init": 1.0}, "gate_init.*must be 0 without rsa, not 1.0"),
        ("transformer-xl", {"rsa": True, "rem_heads": [9, 0, 0, 0, 0, 0]}, "rem_heads.*must sum to 1 to 8"),
        ("transformer-xl", {"attention_dropout": 1.0}, "attention_dropout.*must be at least 0 and below 1"),
    ],
)
def test_keys_that_do_not_fit_are_refused(name: str, keys: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        build_encoder({"name": name, "hidden_size": 24, "num_layers": 2, **keys})


@pytest.mark.parametrize("number", [0, 1, 6, -4])
def test_buckets_that_are_no_power_of_two_are_refused(number: int) -> None:
    with pytest.raises(ValueError, match=f"max_buckets must be a power of 2 and at least 2, not {number}"):
        ReformerConfig(max_buckets=number)


def size_of(name: str, **keys: Any) -> int:
    """Parameters of two layers of D = 24 and two heads."""
    heads = {} if "starsaber" in name else {"num_heads": 2}
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
        ("transformer-xl", {}, 12 * D**2 + 13 * D + D**2 + 2 * D),
    ],
)
def test_a_layer_has_the_parameters_that_its_paper_counts(name: str, keys: dict[str, Any], of_a_layer: int) -> None:
    assert size_of(name, **keys) == 2 * of_a_layer


def test_rsa_adds_as_much_to_transformer_xl_as_to_the_transformer() -> None:
    xl = size_of("transformer-xl", rsa=True) - size_of("transformer-xl")
    assert xl == size_of("rsa") - size_of("transformer") > 0
