"""A bidirectional LSTM: two directions of D/2 each, concatenated (Hochreiter & Schmidhuber, 1997; Schuster & Paliwal, 1997)."""

from dataclasses import dataclass
from typing import TypeVar

import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from recurcli.encoders.encoder import Encoder, check_dropout, check_sizes
from recurcli.validation import STRICT

States = TypeVar("States", Tensor, PackedSequence)


class BiLSTM(Encoder):
    """L bidirectional layers; the backward direction begins at each row's last real token.

    6 D² + 8 D parameters a layer. Padded positions give zeros.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config:
        __pydantic_config__ = STRICT
        hidden_size: int
        """D, the size of embeddings and of both directions' states together: an even number."""
        num_layers: int
        """L, the number of layers."""
        dropout: float = 0.0
        """Probability to drop a hidden state between two layers."""

        def __post_init__(self) -> None:
            check_sizes(hidden_size=self.hidden_size, num_layers=self.num_layers)
            check_dropout(self.dropout)
            if self.hidden_size % 2:
                raise ValueError(f"hidden_size must be even, half for each direction, not {self.hidden_size}")

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.dropout = config.dropout
        self.layers = nn.ModuleList(
            nn.LSTM(config.hidden_size, config.hidden_size // 2, batch_first=True, bidirectional=True)
            for _ in range(config.num_layers)
        )

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        if mask is None:
            return self._run(x)
        lengths = mask.sum(dim=-1).clamp(min=1).cpu()  # a row with no real token reads one padded position
        states = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(self._run(states), batch_first=True, total_length=x.shape[1])[0]

    def _run(self, states: States) -> States:
        for index, layer in enumerate(self.layers):
            if index and self.dropout:
                states = self._dropped(states)
            states = layer(states)[0]
        return states

    def _dropped(self, states: States) -> States:
        if isinstance(states, PackedSequence):
            return states._replace(data=F.dropout(states.data, self.dropout, self.training))
        return F.dropout(states, self.dropout, self.training)
