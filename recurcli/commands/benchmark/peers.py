"""The peers of `recur bench`: torch's TransformerEncoder and Hugging Face's BERT, with the interface of an encoder.

Both have post-norm layers with GELU and a feed-forward network 4 times as wide, like the encoder `transformer`. One dropout
probability applies to embeddings and sublayer outputs, and another one to attention weights, as in that encoder. The peers
get no mask, because their fastest paths need none. Shapes: B batch, T positions, D hidden size.
"""

import math
import warnings
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec

from torch import Tensor, nn

from recurcli.commands.benchmark.candidates import Candidate, Shape
from recurcli.commands.benchmark.request import BenchRequest
from recurcli.encoders.encoder import Encoder
from recurcli.layers import sinusoidal_positions
from recurcli.model.saved import build_shapes
from recurcli.preset import compose
from recurcli.preset.matching import match_parameters

HEADS = 8
"""The number of attention heads. It is lower if the width is not a multiple of 8."""


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
        self, hidden_size: int, num_layers: int, dropout: float, attention_dropout: float, length: int, attention: str
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


def has_transformers() -> bool:
    """Return whether Hugging Face's transformers is installed."""
    return find_spec("transformers") is not None


def peer_candidates(request: BenchRequest, shape: Shape) -> Iterator[Candidate]:
    """Yield the peers of a shape.

    With `--match-parameters` they are as wide as the encoder `transformer` of that many parameters.
    """
    width, depth = shape.hidden_size, shape.num_layers
    if request.match is not None:
        settings = {"encoder.num_layers": ("--layers", depth)}
        matched, _ = match_parameters(compose("transformer-custom", overrides=settings), request.match)
        width = matched.preset.encoder["hidden_size"]
    assert width is not None
    sizes = (width, depth, shape.dropout, request.attention_dropout)

    def build_torch(length: int) -> Encoder:
        return TorchTransformer(*sizes)

    def build_bert(attention: str, length: int) -> Encoder:
        return Bert(*sizes, length, attention)

    layer = build_shapes(
        partial(nn.TransformerEncoderLayer, width, math.gcd(width, HEADS), 4 * width)
    )  # BERT's is as large
    parameters = depth * sum(parameter.numel() for parameter in layer.parameters())
    yield Candidate("torch Transformer", width, depth, parameters, build_torch, True, "torch")
    if has_transformers():
        for attention in ("eager", "sdpa"):
            name, build = f"BERT {attention}", partial(build_bert, attention)
            yield Candidate(name, width, depth, parameters, build, True, "BERT")
