"""The size of an encoder that has a given number of parameters."""

from typing import Any

import pytest
from sized_encoders import SIZED

from recurcli.encoders import build_encoder
from recurcli.errors import UsageError
from recurcli.preset.matching import encoder_parameters, solve_size

LENGTH_KEYS = {"linformer": {"max_length": 8}, "synthesizer": {"max_length": 8}}
"""Keys of the encoders with parameters for each position, so that they can be as small as the others."""
TRANSFORMER = {"name": "transformer", "hidden_size": 16, "num_layers": 1, "num_heads": 6}


@pytest.mark.parametrize("name", sorted(SIZED))
def test_no_other_width_is_nearer_to_the_target(name: str) -> None:
    config: dict[str, Any] = {"name": name, "hidden_size": 64, "num_layers": 2, **LENGTH_KEYS.get(name, {})}
    target = 30_000
    size = solve_size(config, target)
    width = size.keys["hidden_size"]
    assert width % config.get("num_heads", 8) == 0
    assert size.parameters == sum(p.numel() for p in build_encoder({**config, **size.keys}).parameters())
    for other in (width - 8, width + 8):
        assert abs(encoder_parameters({**config, "hidden_size": other}) - target) >= abs(size.parameters - target)


def test_the_width_is_a_multiple_of_8_and_of_the_heads() -> None:
    assert solve_size(TRANSFORMER, 50_000).keys["hidden_size"] % 24 == 0


def test_a_given_feed_forward_size_keeps_its_ratio_unless_it_is_fixed() -> None:
    config = {"name": "transformer", "hidden_size": 64, "num_layers": 1, "feed_forward_size": 96}
    keys = solve_size(config, 50_000).keys
    assert keys["feed_forward_size"] == 1.5 * keys["hidden_size"]
    assert solve_size(config, 50_000, frozenset({"feed_forward_size"})).keys.keys() == {"hidden_size"}


def test_the_depth_is_solved_for_where_the_width_is_fixed() -> None:
    config = {"name": "transformer", "hidden_size": 16, "num_layers": 1, "num_heads": 2, "head_size": 8}
    three = encoder_parameters({**config, "num_layers": 3})
    assert solve_size(config, three + 5, frozenset({"hidden_size"})) == ({"num_layers": 3}, three)


def test_a_target_that_cannot_be_reached_names_the_range() -> None:
    smallest = encoder_parameters({**TRANSFORMER, "hidden_size": 24})
    with pytest.raises(UsageError, match=f"from 24 to 8,184 gives {smallest:,} to .* so 10 cannot be reached"):
        solve_size(TRANSFORMER, 10)
    with pytest.raises(UsageError, match="cannot be reached"):
        solve_size(TRANSFORMER, 10**12)


def test_something_must_vary() -> None:
    with pytest.raises(UsageError, match="both fixed"):
        solve_size(
            {"name": "starsaber", "hidden_size": 16, "num_layers": None, "tied": True}, 900, frozenset({"hidden_size"})
        )
