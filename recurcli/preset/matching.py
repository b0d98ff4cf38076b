"""`--match-parameters`: gives an encoder a number of parameters, or as many as the encoder of another preset has.

A size counts the encoder without embedding and head, so that it does not depend on the vocabulary. torch is imported only to
count parameters.
"""

import bisect
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Literal, NamedTuple

from recurcli.encoders import LINEAR, PRETRAINED, build_encoder
from recurcli.errors import UsageError, escaped
from recurcli.preset.compose import ResolvedPreset, compose
from recurcli.validation import InvalidConfig, KeyPath

Key = Literal["hidden_size", "num_layers"]
LARGEST: Mapping[Key, int] = {"hidden_size": 8192, "num_layers": 256}
"""The largest values of the search, which are ours."""
_NUMBER = re.compile(r"(\d{1,15}(?:\.\d{1,15})?)([kmb]?)", re.IGNORECASE)
_FACTORS = {"": 1, "k": 1_000, "m": 1_000_000, "b": 1_000_000_000}


def match_parameters(resolved: ResolvedPreset, asked: str) -> tuple[ResolvedPreset, dict[str, Any]]:
    """Return `resolved` with the size of its encoder that was found, and the facts of the search for result.json.

    `asked` is a preset, or a number of encoder parameters such as 3000000, 3M or 800k. Values that `--set` gives are kept,
    and so is `hidden_size` beside word vectors. Raises UsageError if `asked` is neither, or cannot be reached.
    """
    encoder = resolved.preset.encoder
    if encoder["name"] == LINEAR:
        raise UsageError(f"--match-parameters: {resolved.name} has no encoder whose size could change; leave it out")
    if encoder["name"] == PRETRAINED:
        raise UsageError(f"--match-parameters: the size of {resolved.name} is that of its folder; leave it out")
    target, other = _number(asked), None
    if target is None:
        try:
            other = compose(asked)
        except UsageError as error:
            raise UsageError(
                f"--match-parameters {escaped(asked)}: is not a number such as 3M or 800k; {error}"
            ) from None
        target = parameters_of(other)
    fixed = {key for key in encoder if resolved.origins.get(("encoder", key), "").startswith("--set")}
    if resolved.preset.embedding.vectors is not None:
        fixed.add("hidden_size")
    try:
        size = solve_size(encoder, target, frozenset(fixed))
    except InvalidConfig as fault:
        raise resolved.located(fault, "encoder") from None
    except UsageError as error:
        raise UsageError(f"--match-parameters {escaped(asked)}: {error}") from None
    preset = replace(resolved.preset, encoder={**encoder, **size.keys})
    solved: dict[KeyPath, str] = {("encoder", key): f"--match-parameters {asked}" for key in size.keys}
    question = {"asked": asked, "other": other and other.preset.encoder}
    facts = {"question": question, "keys": size.keys, "target": target, "parameters": size.parameters}
    return replace(resolved, preset=preset, origins={**resolved.origins, **solved}), facts


def _number(asked: str) -> int | None:
    """Return the number of parameters in `asked`, or None if `asked` names a preset. Raises UsageError for 0."""
    found = _NUMBER.fullmatch(asked.replace(",", "").replace("_", ""))
    if found is None:
        return None
    number = round(float(found[1]) * _FACTORS[found[2].lower()])
    if number < 1:
        raise UsageError(f"--match-parameters {escaped(asked)}: must be at least 1")
    return number


def parameters_of(resolved: ResolvedPreset) -> int:
    """Return the number of encoder parameters of a preset.

    Raises UsageError with the place of a value that the encoder rejects.
    """
    try:
        return encoder_parameters(resolved.preset.encoder)
    except InvalidConfig as fault:
        raise resolved.located(fault, "encoder") from None


class Size(NamedTuple):
    """The values of the keys that were searched, and the number of parameters of the encoder with them."""

    keys: dict[str, int]
    parameters: int


def encoder_parameters(config: Mapping[str, Any]) -> int:
    """Return the number of parameters of the encoder that `build_encoder(config)` builds. Raises UsageError as it does."""
    from recurcli.runs.network_files import build_shapes

    return sum(parameter.numel() for parameter in build_shapes(partial(build_encoder, config)).parameters())


def solve_size(config: Mapping[str, Any], target: int, fixed: frozenset[str] = frozenset()) -> Size:
    """Return the size with the number of encoder parameters nearest to `target`. Of two sizes equally near it is the smaller.

    The size is `hidden_size`, in multiples of 8 and of `num_heads`. A numeric `feed_forward_size` keeps its ratio to it. The
    size is `num_layers` if `hidden_size` is among the `fixed` keys. Raises UsageError if both are fixed, if the encoder
    takes no other width, or if the target is outside the range.
    """
    keys: list[Key] = [key for key in LARGEST if isinstance(config.get(key), int) and key not in fixed]
    multiple_of = math.lcm(8, max(1, config.get("num_heads") or 1))
    if not keys:
        raise UsageError("encoder.hidden_size and encoder.num_layers are both fixed, so no size is left to solve for")
    key = keys[0]
    step = multiple_of if key == "hidden_size" else 1

    def sized(multiple: int) -> dict[str, int]:
        return _with_width(config, step * multiple, fixed) if key == "hidden_size" else {key: multiple}

    def count(multiple: int) -> int:
        return encoder_parameters({**config, **sized(multiple)})

    largest, upper = LARGEST[key] // step, 1
    while upper < largest and count(upper) < target:  # so that few large encoders are built
        upper = min(2 * upper, largest)
    if count(1) > target or count(upper) < target:
        raise UsageError(
            f"encoder.{key} from {step:,} to {largest * step:,} gives {count(1):,} to {count(largest):,} encoder parameters, "
            f"so {target:,} cannot be reached; choose a number in this range, or change other sizes of the encoder"
        )
    above = bisect.bisect_left(range(upper), target, lo=max(1, upper // 2), key=count)
    nearest = min((max(1, above - 1), above), key=lambda multiple: abs(count(multiple) - target))
    return Size(sized(nearest), count(nearest))


def _with_width(config: Mapping[str, Any], width: int, fixed: frozenset[str]) -> dict[str, int]:
    """Return the keys of an encoder of this width. A numeric feed-forward size keeps its ratio to the width."""
    inner = config.get("feed_forward_size")
    if not isinstance(inner, int) or "feed_forward_size" in fixed:
        return {"hidden_size": width}
    return {"hidden_size": width, "feed_forward_size": max(1, round(inner * width / config["hidden_size"]))}
