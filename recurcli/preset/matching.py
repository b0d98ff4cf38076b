"""`--match-parameters`: gives an encoder a number of parameters, or as many as the encoder of another preset has.

torch is imported only to count parameters.
"""

import re
from dataclasses import replace
from typing import Any

from recurcli.encoders import PRETRAINED
from recurcli.errors import UsageError, escaped
from recurcli.preset.compose import ResolvedPreset, compose
from recurcli.validation import InvalidConfig, KeyPath

_NUMBER = re.compile(r"(\d{1,15}(?:\.\d{1,15})?)([kmb]?)", re.IGNORECASE)
_FACTORS = {"": 1, "k": 1_000, "m": 1_000_000, "b": 1_000_000_000}


def match_parameters(resolved: ResolvedPreset, asked: str) -> tuple[ResolvedPreset, dict[str, Any]]:
    """Return `resolved` with the size of its encoder that was found, and the facts of the search for result.json.

    `asked` is a preset, or a number of encoder parameters such as 3000000, 3M or 800k. Values that `--set` gives are kept,
    and so is `hidden_size` beside word vectors. Raises UsageError if `asked` is neither, or cannot be reached.
    """
    from recurcli.model.saved import solve_size

    encoder = resolved.preset.encoder
    if resolved.preset.is_linear:
        raise UsageError(f"--match-parameters: {resolved.name} has no encoder whose size could change; leave it out")
    if encoder["name"] == PRETRAINED:
        raise UsageError(f"--match-parameters: the size of {resolved.name} is that of its folder; leave it out")
    target, other = _number(asked), None
    if target is None:
        try:
            other = compose(asked)
        except UsageError as error:
            raise UsageError(f"--match-parameters {escaped(asked)}: is no number such as 3M or 800k; {error}") from None
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
    from recurcli.model.saved import encoder_parameters

    try:
        return encoder_parameters(resolved.preset.encoder)
    except InvalidConfig as fault:
        raise resolved.located(fault, "encoder") from None
