"""The two models: a classifier, and a language model for pre-training.

Shapes: B batch, T positions, D hidden, C classes, V vocabulary, N chosen positions.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recurcli.encoders import build_encoder
from recurcli.encoders.encoder import Encoder
from recurcli.layers.cached import computed_once
from recurcli.model.config import ModelConfig
from recurcli.model.embedding import TokenEmbedding
from recurcli.model.head import ClassificationHead


class Backbone(nn.Module):
    """Embedding and encoder; fine-tuning loads both from a pretrained run."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder: Encoder = build_encoder(config.encoder)
        self.embedding = TokenEmbedding(
            config.vocab_size,
            config.hidden_size,
            dropout=config.embedding_dropout,
            orthonormal=config.embedding_orthonormal,
            concatenate_positions=self.encoder.concatenates_positions,
            scaled=config.embedding_scaled or self.encoder.adds_positions,
            separator_id=config.separator_id,
            unknown_id=config.unknown_id,
            segments=config.embedding_segments,
            matches=config.embedding_matches,
            ngrams=config.embedding_ngrams,
        )

    def encode(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return the embeddings and the encoder's hidden states, both (B, T, D): ids, mask (B, T)."""
        x = self.embedding(ids)
        return x, self.encoder(x, self._mask_if_padded(mask))

    def _mask_if_padded(self, mask: Tensor) -> Tensor | None:
        """Return None in place of `mask` (B, T) if no token is padding: an encoder on a CPU takes less time without a mask.

        A compiled or exported encoder gets the mask always, so that one graph serves all batches.
        """
        # Private to torch, which has no public test for a module that `compile()` has changed: a rename breaks this line.
        in_graph = torch.compiler.is_compiling() or self.encoder._compiled_call_impl is not None
        return None if mask.device.type == "cpu" and not in_graph and mask.all() else mask


class Classifier(Backbone):
    """A backbone with a classification head."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.head = ClassificationHead(config.hidden_size, len(config.labels), config.pooling, config.pair_pooling)

    def forward(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the logits (B, C) of ids, mask (B, T), and the encoder's auxiliary losses ({} in evaluation mode)."""
        with computed_once():
            x, states = self.encode(ids, mask)
            losses = self.encoder.auxiliary_losses(x, mask) if self.training else {}
        return self.head(states, mask, ids == self.config.separator_id), losses


class LanguageModel(Backbone):
    """A backbone with a head that predicts tokens: masked ones, or the next ones if the encoder is causal.

    The head's output weights are tied to the embedding.

    If positions are concatenated, an embedding has W < D columns. The head then uses the first W units of a state [ours].
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.token_bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, ids: Tensor, mask: Tensor, positions: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the logits (N, V) and the encoder's auxiliary losses ({} in evaluation mode).

        ids, mask: (B, T); positions: (N,) indices into the flattened (B·T,) input.
        """
        with computed_once():
            x, states = self.encode(ids, mask)
            weight = self.embedding.output_weight()
            losses = self.encoder.auxiliary_losses(x, mask) if self.training else {}
        return self.token_logits(states.flatten(0, 1)[positions], weight), losses

    def token_logits(self, states: Tensor, weight: Tensor) -> Tensor:
        """Return the logits of all tokens: states (N, D), output weights (V, W) -> (N, V)."""
        return F.linear(states[:, : weight.shape[1]], weight, self.token_bias)
