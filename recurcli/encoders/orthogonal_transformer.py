"""The Orthogonal Transformer: the Transformer with orthogonal weights, TransJect's baseline (Sengupta et al., 2023).

In the paper every weight is orthogonal; in the authors' older code only those of queries, keys and values. Only a square
matrix can be orthogonal: W_Q, W_K, W_V, W_O, and both feed-forward matrices if feed_forward_size is hidden_size.

Shapes: B batch, T positions, D hidden size, H heads, K = D / H head size, L layers.
"""

from functools import partial

from torch import Tensor
from torch.func import functional_call

from recurcli.encoders.config import OrthogonalTransformerConfig
from recurcli.encoders.encoder import BlockEncoder
from recurcli.encoders.transformer import MultiheadAttention
from recurcli.layers import normal_, orthogonal_matrices


class OrthogonalTransformer(BlockEncoder):
    """L layers of the Transformer, with the same number of parameters.

    The `weight` of an orthogonal layer is the raw parameter of the orthogonal map, initialised as N(0, 1/D) (ours). Biases
    and LayerNorms are those of the Transformer.
    """

    Config = OrthogonalTransformerConfig
    Attention = MultiheadAttention

    def __init__(self, config: OrthogonalTransformerConfig) -> None:
        super().__init__(config)
        self.matrices = orthogonal_matrices(config.orthogonal_map)
        self.orthogonal_names = ["attention.query_key_value.weight"]
        if config.orthogonal_weights == "square":
            self.orthogonal_names.append("attention.output.weight")
            if config.feed_forward_size == config.hidden_size:
                self.orthogonal_names += ["feed_forward.inner.weight", "feed_forward.outer.weight"]
        for weight in self._raw():
            normal_(weight, std=config.hidden_size**-0.5)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        h = self.dropout(self.with_positions(x))
        for layer, weights in zip(self.layers, self.orthogonal_weights(), strict=True):
            h = self.apply_layer(partial(functional_call, layer, weights), (h, mask))
        return self.final_norm(h)

    def orthogonal_weights(self) -> list[dict[str, Tensor]]:
        """Return the orthogonal weights of each layer by name; each is one orthogonal D x D matrix, or a stack of several."""
        made = iter(self.matrices(self._raw()))
        return [{name: next(made) for name in self.orthogonal_names} for _ in self.layers]

    def _raw(self) -> list[Tensor]:
        return [layer.get_parameter(name) for layer in self.layers for name in self.orthogonal_names]
