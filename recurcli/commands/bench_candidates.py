"""The candidates of `recur bench`: encoders of equal width or of equal size, and their peers.

The peers are torch's TransformerEncoder and Hugging Face's BERT, with the interface of an encoder. They have post-norm layers
with GELU and a feed-forward network 4 times as wide, like the encoder `transformer`. One dropout probability applies to
embeddings and sublayer outputs, and another one to attention weights, as in that encoder. They get no mask, because their
fastest paths need none. Shapes: B batch, T positions, D hidden size.
"""

import dataclasses
import math
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from torch import Tensor, nn

from recurcli.encoders.config import LINEAR, PRETRAINED, build_encoder, encoder_config
from recurcli.encoders.encoder import Encoder
from recurcli.errors import UsageError, did_you_mean, escaped
from recurcli.layers import sinusoidal_positions
from recurcli.preset import compose, preset_names
from recurcli.preset.matching import match_parameters, parameters_of
from recurcli.requests.bench import DROPOUT, HIDDEN_SIZE, LAYERS, BenchRequest
from recurcli.requirements import unmet
from recurcli.runs.model_files import build_shapes

HEADS = 8
"""The number of attention heads. A width that is not a multiple of 8 has fewer heads."""


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
    is_peer: bool = False
    """Whether it is an implementation of others, to which the encoders are compared."""


class Shape(NamedTuple):
    """The hidden size, the number of layers and the dropout that all candidates of a comparison share."""

    hidden_size: int | None
    """The width. None if each candidate has its own (`--match-parameters`)."""
    num_layers: int
    dropout: float


def shapes(request: BenchRequest) -> Iterator[Shape]:
    """Yield each combination of width and depth. What no option gives is taken from the preset, or from the defaults."""
    encoder = compose(request.preset).preset.encoder if request.preset is not None else {}
    own: dict[str, Any] = {"hidden_size": HIDDEN_SIZE, "num_layers": LAYERS, "dropout": DROPOUT}
    own |= {key: encoder[key] for key in own if encoder.get(key) is not None}
    dropout = own["dropout"] if request.dropout is None else request.dropout
    widths = [None] if request.match_parameters is not None else request.numbers("hidden_size") or [own["hidden_size"]]
    for width in widths:
        for depth in request.numbers("layers") or [own["num_layers"]]:
            yield Shape(width, depth, dropout)


def encoder_candidates(request: BenchRequest, shape: Shape) -> list[Candidate]:
    """Return the encoder of the preset, under the preset's name, and the encoders that the request names.

    Returns all encoders if the request has neither a preset nor names. Raises UsageError if a name is unknown, or if an
    encoder cannot have the shape.
    """
    known = [name for name in preset_names()["encoders"] if name not in (LINEAR, PRETRAINED)]
    names = list(dict.fromkeys(request.encoders or ([] if request.preset is not None else known)))
    for name in names:
        if name not in known:
            raise UsageError(f"no encoder '{escaped(name)}'" + did_you_mean(name, known))
    made = []
    if request.preset is not None:
        own = compose(request.preset)
        if own.preset.is_linear or own.preset.encoder["name"] == PRETRAINED:
            has = "no encoder to measure" if own.preset.is_linear else "an encoder whose size is that of its folder"
            raise UsageError(f"--preset: {own.name} has {has}; name another preset")
        encoder = own.preset.encoder
        made = [_candidate(own.name, request.preset, encoder["name"], request, shape, tied=encoder.get("tied", False))]
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
    if request.match_parameters is not None:
        resolved, _ = match_parameters(resolved, request.match_parameters)
    config = resolved.preset.encoder

    def build(length: int) -> Encoder:
        limits = {"max_length": max(config["max_length"], length)} if "max_length" in config else {}
        return build_encoder({**config, **limits})

    return Candidate(name, config["hidden_size"], config.get("num_layers"), parameters_of(resolved), build)


class TorchTransformer(Encoder):
    """`torch.nn.TransformerEncoder` on embeddings with sinusoidal positions. Inference uses torch's fast path."""

    def __init__(self, hidden_size: int, num_layers: int, dropout: float, attention_dropout: float) -> None:
        super().__init__()
        heads = math.gcd(hidden_size, HEADS)
        layer = nn.TransformerEncoderLayer(
            hidden_size, heads, 4 * hidden_size, dropout, activation="gelu", batch_first=True
        )
        layer.self_attn.dropout = attention_dropout
        layer.dropout.p = 0.0  # on the inner units of the feed-forward network, where BERT has none
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an odd number of heads has no nested tensors, which are not used here
            self.stack = nn.TransformerEncoder(layer, num_layers, enable_nested_tensor=False)
        self.layers = self.stack.layers
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        states: Tensor = self.stack(self.dropout(x + sinusoidal_positions(x)))
        return states


class Bert(Encoder):
    """Hugging Face's `BertModel` without token table and pooler. Learned positions and LayerNorm come before the layers."""

    def __init__(
        self, hidden_size: int, num_layers: int, dropout: float, attention_dropout: float, attention: str, length: int
    ) -> None:
        super().__init__()
        from transformers import BertConfig, BertModel

        config = BertConfig(
            vocab_size=1,  # the embeddings are given
            hidden_size=hidden_size,
            num_hidden_layers=num_layers,
            num_attention_heads=math.gcd(hidden_size, HEADS),
            intermediate_size=4 * hidden_size,
            max_position_embeddings=length,
            hidden_dropout_prob=dropout,
            attention_probs_dropout_prob=attention_dropout,
            attn_implementation=attention,
        )
        self.bert = BertModel(config, add_pooling_layer=False)
        self.layers = self.bert.encoder.layer

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        states: Tensor = self.bert(inputs_embeds=x).last_hidden_state
        return states


def peer_candidates(request: BenchRequest, shape: Shape) -> Iterator[Candidate]:
    """Yield the peers of a shape.

    With `--match-parameters` they are as wide as the encoder `transformer` of that many parameters.
    """
    width, depth = shape.hidden_size, shape.num_layers
    if request.match_parameters is not None:
        settings = {"encoder.num_layers": ("--layers", depth)}
        matched, _ = match_parameters(compose("transformer-custom", overrides=settings), request.match_parameters)
        width = matched.preset.encoder["hidden_size"]
    assert width is not None
    sizes = (width, depth, shape.dropout, request.attention_dropout)

    layer = build_shapes(partial(nn.TransformerEncoderLayer, width, math.gcd(width, HEADS), 4 * width))
    parameters = depth * sum(parameter.numel() for parameter in layer.parameters())  # BERT's layer is as large
    builds: dict[str, Callable[[int], Encoder]] = {"torch Transformer": lambda length: TorchTransformer(*sizes)}
    if not unmet("hf"):
        builds |= {f"BERT {attention}": partial(Bert, *sizes, attention) for attention in ("eager", "sdpa")}
    for name, build in builds.items():
        yield Candidate(name, width, depth, parameters, build, is_peer=True)
