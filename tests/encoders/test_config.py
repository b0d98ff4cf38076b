"""A key of an encoder that does not fit is refused by its name and value before memory is allocated."""

from typing import Any

import pytest

from recurcli.encoders import build_encoder
from recurcli.errors import UsageError

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("starsaber", {"dropout": 1.0}, "dropout: 1.0 should be less than 1"),
    ("starsaber", {"hidden_size": 0}, "hidden_size: 0 should"),
    ("starsaber", {"hidden_size": True}, "hidden_size: True should be a valid integer"),
    ("starsaber", {"hidden_size": "16"}, "hidden_size: '16' should be a valid integer"),
    ("starsaber", {"alpha_init": float("nan")}, "alpha_init: nan should be a finite number"),
    ("starsaber", {"num_layers": None}, "num_layers: must be null with tied weights, and a number without"),
    ("starsaber", {"num_layers": 2, "tied": True}, "num_layers: must be null with tied weights"),
    ("starsaber", {"tied": True, "num_layers": None, "alpha": "fixed"}, "alpha: must be learned with tied weights"),
    ("starsaber", {"orthogonal": True}, "orthogonal: must be false unless the weights are tied"),
    ("bilstm", {"hidden_size": 7}, "hidden_size: 7 should be a multiple of 2"),
    ("truncated-rnn", {"spectral_bound": 1.0}, "spectral_bound: 1.0 should"),
    ("truncated-lstm", {"forget_bound": 0.0}, "forget_bound: 0.0 should"),
    ("truncated-lstm", {"window": 0}, "window: 0 should"),
    ("transject", {"num_experts": 0}, "num_experts: 0 should"),
    ("transject", {"auxiliary_weight": -1.0}, "auxiliary_weight: -1.0 should"),
    ("transformer", {"feed_forward_dropout": -0.1}, "feed_forward_dropout: -0.1 should"),
    ("transformer", {"num_heads": 5}, "hidden_size: 24 is not a multiple of num_heads 5"),
    ("orthogonal-transformer", {"head_size": 5}, "head_size: must be null or hidden_size / num_heads, not 5"),
    ("orthogonal-transformer", {"orthogonal_weights": "all"}, "orthogonal_weights: 'all' should be"),
    ("rsa", {"rem_heads": [0, 2, 1, 0, 0, 0]}, "rem_heads: must have as many sine as cosine heads"),
    ("rsa", {"rem_heads": [9, 0, 0, 0, 0, 0]}, "rem_heads: must sum to 1 to 8"),
    ("rsa", {"rem_heads": [0, 0, 0, 0, 0, 0]}, "rem_heads: must sum to 1 to 8"),
    ("rsa", {"rem_heads": [0, 0, 0, 0, 2, 2], "dilations": [2]}, "dilations: must have 2 numbers"),
    ("rsa", {"rem_heads": [0, 0, 0, 0, 2, 2], "dilations": [2, 4, 4, 2]}, "dilations: must have 2 numbers"),
    ("rsa", {"dilations": [2, 0]}, "dilations.1: 0 should"),
    ("rsa", {"gate_init": 4.0}, "gate_init: 4.0 should"),
    ("transformer-xl", {"memory": -1}, "memory: -1 should"),
    ("transformer-xl", {"rem_heads": [3, 0, 0, 0, 0, 0]}, "rem_heads: has no effect without rsa"),
    ("transformer-xl", {"dilations": [2]}, "dilations: has no effect without rsa"),
    ("transformer-xl", {"gate_init": 1.0}, "gate_init: has no effect without rsa, and is 1.0"),
    ("transformer-xl", {"rsa": True, "rem_heads": [9, 0, 0, 0, 0, 0]}, "rem_heads: must sum to 1 to 8"),
    ("block-recurrent-transformer", {"num_layers": 2, "recurrent_layer": 3}, "recurrent_layer: must be at most"),
    ("temporal-latent-bottleneck", {"rsa": True, "attention_dropout": 0.1}, "attention_dropout: must be 0 with rsa"),
    ("temporal-latent-bottleneck", {"rem_heads": [1, 0, 0, 0, 0, 0]}, "rem_heads: has no effect without rsa"),
    ("nystromformer", {"convolution_size": 4}, "convolution_size: must be odd, not 4"),
    ("nystromformer", {"iterations": 17}, "iterations: 17 should be less than or equal to 16"),
    ("skyformer", {"num_landmarks": 3}, "num_landmarks: 3 should be a multiple of 2"),
    ("skyformer", {"gamma": -1.0}, "gamma: -1.0 should"),
    ("linformer", {"projected_length": 0}, "projected_length: 0 should"),
    ("synthesizer", {"kind": "sparse"}, "kind: 'sparse' should be 'dense', 'random' or 'factorised'"),
    *[("reformer", {"max_buckets": number}, f"max_buckets: {number} should be 2, 4") for number in (0, 1, 6, -4)],
]


@pytest.mark.parametrize(("name", "keys", "message"), REFUSED)
def test_a_key_that_does_not_fit_is_refused(name: str, keys: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as refusal:
        build_encoder({"name": name, "hidden_size": 24, **keys})
    assert str(refusal.value).startswith(message)
