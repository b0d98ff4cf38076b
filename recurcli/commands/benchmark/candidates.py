"""Builds the candidates of `recur bench`: encoders of equal width or of equal size, and their peers."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from recurcli.commands.benchmark.request import DROPOUT, HIDDEN_SIZE, LAYERS, BenchRequest
from recurcli.encoders import Encoder, build_encoder, encoder_config
from recurcli.errors import UsageError, did_you_mean, escaped
from recurcli.preset import compose, preset_names
from recurcli.preset.matching import match_parameters, parameters_of


class Candidate(NamedTuple):
    """An encoder to measure, or a peer."""

    name: str
    hidden_size: int
    num_layers: int | None
    """The number of layers. None for tied StarSaber, which iterates one layer."""
    parameters: int
    """The number of parameters of the layers."""
    build: Callable[[int], Encoder]
    """Returns the encoder with random initial weights for texts of at most the given number of tokens."""
    attention_dropout: bool
    """Whether the encoder can have dropout on attention weights."""
    family: str | None = None
    """The model of which a peer is one form, such as BERT with SDPA attention. None for an encoder that is no peer."""


class Shape(NamedTuple):
    """The hidden size, the number of layers and the dropout that all candidates of a comparison share."""

    hidden_size: int | None
    """The width; None if each candidate has its own (`--match-parameters`)."""
    num_layers: int
    dropout: float


def shapes(request: BenchRequest) -> Iterator[Shape]:
    """Yield each combination of width and depth. What no option gives is taken from the preset, or from the defaults."""
    encoder = compose(request.preset).preset.encoder if request.preset is not None else {}
    own: dict[str, Any] = {"hidden_size": HIDDEN_SIZE, "num_layers": LAYERS, "dropout": DROPOUT}
    own |= {key: encoder[key] for key in own if encoder.get(key) is not None}
    dropout = own["dropout"] if request.dropout is None else request.dropout
    widths = (None,) if request.match is not None else request.hidden_sizes or (own["hidden_size"],)
    for width in widths:
        for depth in request.layers or (own["num_layers"],):
            yield Shape(width, depth, dropout)


def encoder_candidates(request: BenchRequest, shape: Shape) -> list[Candidate]:
    """Return the encoder of the preset, under the preset's name, and the encoders that the request names.

    Returns all encoders if the request has neither a preset nor names. Raises UsageError if a name is unknown, or if an
    encoder cannot have the shape.
    """
    known = preset_names()["encoders"]
    names = request.encoders or ([] if request.preset is not None else known)
    for name in names:
        if name not in known:
            raise UsageError(f"no encoder '{escaped(name)}'" + did_you_mean(name, known))
    made = []
    if request.preset is not None:
        own = compose(request.preset)
        name, encoder = f"{own.name} (preset)" if own.name in names else own.name, own.preset.encoder
        made = [_candidate(name, request.preset, encoder["name"], request, shape, tied=encoder.get("tied", False))]
    return made + [_candidate(name, f"{name}-custom", name, request, shape) for name in names]


def _candidate(
    name: str, preset: str, encoder: str, request: BenchRequest, shape: Shape, *, tied: bool = False
) -> Candidate:
    asked: dict[str, tuple[str, Any]] = {
        "hidden_size": ("--hidden-size", shape.hidden_size),
        "num_layers": ("--layers", None if tied else shape.num_layers),
        "dropout": ("--dropout", shape.dropout),
        "attention_dropout": ("--attention-dropout", request.attention_dropout),
        "feed_forward_dropout": ("recur bench", 0.0),  # the peers have none either
    }
    keys = {field.name for field in dataclasses.fields(encoder_config(encoder))}
    given = {f"encoder.{key}": of for key, of in asked.items() if key in keys and of[1] is not None}
    resolved = compose(preset, overrides=given)
    if request.match is not None:
        resolved, _ = match_parameters(resolved, request.match)
    config = resolved.preset.encoder
    return Candidate(
        name,
        config["hidden_size"],
        config.get("num_layers"),
        parameters_of(resolved),
        lambda length: build_encoder(_with_length(config, length)),
        "attention_dropout" in keys,
    )


def _with_length(config: dict[str, Any], length: int) -> dict[str, Any]:
    """Return `config` for texts of `length` tokens: an encoder with a `max_length` has at least this one."""
    return {**config, "max_length": max(config["max_length"], length)} if "max_length" in config else config
