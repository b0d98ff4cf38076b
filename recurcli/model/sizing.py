"""Finds the size of an encoder with a given number of parameters, without allocating memory.

The embedding and the head do not count, so encoders have equal capacity whatever the vocabulary is.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, NamedTuple

from recurcli.encoders import build_encoder
from recurcli.errors import UsageError
from recurcli.model.saved import build_shapes

Key = Literal["hidden_size", "num_layers"]
LARGEST: Mapping[Key, int] = {"hidden_size": 8192, "num_layers": 256}
"""The largest values of the search, which are ours."""


class Size(NamedTuple):
    """The values of the keys that were searched, and the number of parameters of the encoder with them."""

    keys: dict[str, int]
    parameters: int


def encoder_parameters(config: Mapping[str, Any]) -> int:
    """Return the number of parameters of the encoder `config` (`build_encoder`). Raises UsageError for an invalid config."""
    return sum(parameter.numel() for parameter in build_shapes(partial(build_encoder, config)).parameters())


def solve_size(config: Mapping[str, Any], target: int, fixed: frozenset[str] = frozenset()) -> Size:
    """Return the size with the number of encoder parameters nearest to `target`. Of two sizes equally near it is the smaller.

    The size is `hidden_size`, in multiples of 8 and of `num_heads`. A numeric `feed_forward_size` keeps its ratio to it. The
    size is `num_layers` if `hidden_size` is among the `fixed` keys, or if the encoder takes no other width. Raises UsageError
    if both are fixed, or if the target is outside the range.
    """
    keys: list[Key] = [key for key in LARGEST if isinstance(config.get(key), int) and key not in fixed]
    multiple_of = math.lcm(8, max(1, config.get("num_heads") or 1))
    if "hidden_size" in keys and not all(_takes_width(config, times * multiple_of, fixed) for times in (1, 2)):
        keys.remove("hidden_size")
    if not keys:
        raise UsageError("encoder.hidden_size and encoder.num_layers are both fixed, so no size is left to solve for")
    key = keys[0]
    step = multiple_of if key == "hidden_size" else 1

    def sized(multiple: int) -> dict[str, int]:
        return _with_width(config, step * multiple, fixed) if key == "hidden_size" else {key: multiple}

    def count(multiple: int) -> int:
        return encoder_parameters({**config, **sized(multiple)})

    below, above = _bracket(count, target, LARGEST[key] // step)
    if above is None:
        smallest, largest = count(1), count(LARGEST[key] // step)
        raise UsageError(
            f"encoder.{key} from {step:,} to {LARGEST[key] // step * step:,} gives {smallest:,} to {largest:,} encoder "
            f"parameters, so {target:,} cannot be reached; choose a number in this range, or another "
            + ("depth" if key == "hidden_size" else "width")
            + (", encoder.max_length" if "max_length" in config else "")
            + " or encoder"
        )
    nearest = min((below, above), key=lambda multiple: abs(count(multiple) - target))
    return Size(sized(nearest), count(nearest))


def _bracket(count: Callable[[int], int], target: int, largest: int) -> tuple[int, int | None]:
    """Return neighbours with count(below) <= target <= count(above), for a `count` that rises with its argument.

    `above` is None if the target is outside the range of `count` from 1 to `largest`.
    """
    below, above = 1, 1
    if count(1) > target:
        return 1, None
    while count(above) < target:
        if above == largest:
            return above, None
        below, above = above, min(2 * above, largest)
    while above - below > 1:
        middle = (below + above) // 2
        below, above = (middle, above) if count(middle) <= target else (below, middle)
    return below, above


def _with_width(config: Mapping[str, Any], width: int, fixed: frozenset[str]) -> dict[str, int]:
    """Return the keys of an encoder of this width. A numeric feed-forward size keeps its ratio to the width."""
    inner = config.get("feed_forward_size")
    if not isinstance(inner, int) or "feed_forward_size" in fixed:
        return {"hidden_size": width}
    return {"hidden_size": width, "feed_forward_size": max(1, round(inner * width / config["hidden_size"]))}


def _takes_width(config: Mapping[str, Any], width: int, fixed: frozenset[str]) -> bool:
    """Return whether the encoder takes this width. A fault that it also has at its own width is raised later."""
    try:
        encoder_parameters({**config, **_with_width(config, width, fixed)})
    except UsageError:
        return False
    return True
