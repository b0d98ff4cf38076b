"""The Orthogonal Transformer: the Transformer with orthogonal weights, TransJect's baseline (Sengupta et al., 2023).

The paper makes every weight orthogonal, its authors' older code the query's, key's and value's alone. Only a square
matrix can be orthogonal: W_Q, W_K, W_V and W_O, and both of the feed-forward network where that is as wide as D.

Shapes: B batch, T positions, D hidden size, H heads, K = D / H head size, L layers.
"""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn
from torch.func import functional_call

from recurcli.encoders.encoder import Encoder
from recurcli.encoders.transformer import Transformer, TransformerLayer
from recurcli.layers.attention import key_mask
from recurcli.layers.orthogonal import orthogonal_matrices
from recurcli.layers.positions import sinusoidal_positions
from recurcli.ops.orthogonal import OrthogonalMap
from recurcli.validation import STRICT


class OrthogonalTransformer(Encoder):
    """L layers of the Transformer over x + sinusoidal positions; as many parameters as there.

    A layer's own `weight` of an orthogonal map is what the map is made from, N(0, 1/D) at the start (ours). Biases and
    LayerNorms are the Transformer's.
    """

    adds_positions = True

    @dataclass(frozen=True, kw_only=True)
    class Config(Transformer.Config):
        __pydantic_config__ = STRICT
        orthogonal_weights: Literal["square", "query_key_value"] = "square"
        """Which weights are orthogonal: every square one, or those of queries, keys and values alone."""
        orthogonal_map: OrthogonalMap = "cayley"
        """How parameters become orthogonal matrices: cayley (the fast one) or householder."""

        def __post_init__(self) -> None:
            super().__post_init__()
            if self.head_size is not None and self.head_size * self.num_heads != self.hidden_size:
                raise ValueError(
                    f"head_size must be hidden_size / num_heads, not {self.head_size}: only a square matrix is orthogonal"
                )

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.ModuleList(TransformerLayer(config) for _ in range(config.num_layers))
        self.matrices = orthogonal_matrices(config.orthogonal_map)
        self.orthogonal_names = ["attention.query_key_value.weight"]
        if config.orthogonal_weights == "square":
            self.orthogonal_names.append("attention.output.weight")
            if config.feed_forward_size == config.hidden_size:
                self.orthogonal_names += ["feed_forward.inner.weight", "feed_forward.outer.weight"]
        for weight in self._raw():
            nn.init.normal_(weight, std=config.hidden_size**-0.5)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        kept = key_mask(mask)
        h = self.dropout(x + sinusoidal_positions(x))
        for layer, weights in zip(self.layers, self.orthogonal_weights(), strict=True):
            h = functional_call(layer, weights, (h, kept))
        return h

    def orthogonal_weights(self) -> list[dict[str, Tensor]]:
        """For each layer the weights that it computes with: orthogonal, or D x D blocks that are, one below the other."""
        made = iter(self.matrices(self._raw()))
        return [{name: next(made) for name in self.orthogonal_names} for _ in self.layers]

    def _raw(self) -> list[Tensor]:
        return [layer.get_parameter(name) for layer in self.layers for name in self.orthogonal_names]
