"""The Orthogonal Transformer: the Transformer with orthogonal weights, TransJect's baseline (Sengupta et al., 2023).

The paper makes every weight orthogonal, its authors' older code the query's, key's and value's alone. Only a square
matrix can be orthogonal: W_Q, W_K, W_V and W_O, and both of the feed-forward network where that is as wide as D.

Shapes: B batch, T positions, D hidden size, H heads, K = D / H head size, L layers.
"""

from torch import Tensor
from torch.func import functional_call

from recurcli.encoders.block import BlockEncoder
from recurcli.encoders.config import OrthogonalTransformerConfig
from recurcli.encoders.transformer import transformer_layer
from recurcli.layers.initial import normal_
from recurcli.layers.orthogonal import orthogonal_matrices
from recurcli.layers.positions import sinusoidal_positions


class OrthogonalTransformer(BlockEncoder):
    """L layers of the Transformer, with as many parameters.

    A layer's `weight` of an orthogonal map is the map's raw parameter, N(0, 1/D) at the start (ours). Biases and
    LayerNorms are the Transformer's.
    """

    Config = OrthogonalTransformerConfig

    def __init__(self, config: OrthogonalTransformerConfig) -> None:
        super().__init__(config, lambda: transformer_layer(config))
        self.matrices = orthogonal_matrices(config.orthogonal_map)
        self.orthogonal_names = ["attention.query_key_value.weight"]
        if config.orthogonal_weights == "square":
            self.orthogonal_names.append("attention.output.weight")
            if config.feed_forward_size == config.hidden_size:
                self.orthogonal_names += ["feed_forward.inner.weight", "feed_forward.outer.weight"]
        for weight in self._raw():
            normal_(weight, std=config.hidden_size**-0.5)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        h = self.dropout(x + sinusoidal_positions(x))
        for layer, weights in zip(self.layers, self.orthogonal_weights(), strict=True):
            h = functional_call(layer, weights, (h, mask))
        return h

    def orthogonal_weights(self) -> list[dict[str, Tensor]]:
        """For each layer the weights that it computes with: orthogonal, or D x D blocks that are, one below the other."""
        made = iter(self.matrices(self._raw()))
        return [{name: next(made) for name in self.orthogonal_names} for _ in self.layers]

    def _raw(self) -> list[Tensor]:
        return [layer.get_parameter(name) for layer in self.layers for name in self.orthogonal_names]
