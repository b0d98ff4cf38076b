"""A bidirectional LSTM: two directions of D/2 each, concatenated (Hochreiter & Schmidhuber, 1997; Schuster & Paliwal, 1997)."""

from typing import TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from recurcli.device import to_device
from recurcli.encoders.config import BiLSTMConfig
from recurcli.encoders.encoder import Encoder
from recurcli.layers import dropout
from recurcli.ops.precision import at_least_float32, without_autocast

States = TypeVar("States", Tensor, PackedSequence)


class BiLSTM(Encoder):
    """L bidirectional layers. The backward direction starts at the last real token of each row.

    6 D² + 8 D parameters per layer. The output at padded positions is zero.
    """

    Config = BiLSTMConfig
    checkpoint_obstacle = ""
    pretrained_learning_rate = 1e-3  # ours: Adam's customary rate; StarSaber's paper gives none for its BiLSTM

    def __init__(self, config: BiLSTMConfig) -> None:
        super().__init__()
        self.dropout = config.dropout
        self.layers = nn.ModuleList(
            nn.LSTM(config.hidden_size, config.hidden_size // 2, batch_first=True, bidirectional=True)
            for _ in range(config.num_layers)
        )

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        if x.is_cuda and torch.is_autocast_enabled("cuda"):  # cuDNN would run in float16, without a scale of the loss
            with without_autocast(x):
                return self.forward(at_least_float32(x), mask)
        if mask is None:
            return self._run(x)
        lengths = mask.sum(dim=-1).clamp(min=1)  # a row with no real token reads one padded position
        if torch.compiler.is_exporting():  # torch.export cannot pack rows of dynamic lengths
            for layer in self.layers:
                x = onnx_lstm(cast(nn.LSTM, layer), x, lengths)
            return x
        # torch would sort the rows in the same way, and wait for a GPU three times.
        lengths, order = lengths.cpu().sort(descending=True)
        packed = pack_padded_sequence(x.index_select(0, to_device(order, x.device)), lengths, batch_first=True)
        states = pad_packed_sequence(self._run(packed), batch_first=True, total_length=x.shape[1])[0]
        return states.index_select(0, to_device(order.argsort(), x.device))

    def _run(self, states: States) -> States:
        for index, layer in enumerate(self.layers):
            if index and isinstance(states, PackedSequence):
                states = states._replace(data=dropout(states.data, self.dropout, self.training))
            elif index:
                states = dropout(states, self.dropout, self.training)
            states = self.apply_layer(layer, states)[0]
        return states


def onnx_lstm(lstm: nn.LSTM, x: Tensor, lengths: Tensor) -> Tensor:
    """Return the states of one bidirectional layer by ONNX's operator LSTM: (B, T, D), (B,) -> (B, T, D), 0 at padding.

    ONNX has the gates in the order input, output, forget, cell; torch has input, forget, cell, output.
    """
    size = lstm.hidden_size

    def both(name: str) -> Tensor:
        parts = [lstm.get_parameter(f"{name}_l0{direction}") for direction in ("", "_reverse")]
        return torch.stack(
            [part.view(4, size, *part.shape[1:])[[0, 3, 1, 2]].flatten(0, 1) for part in parts]
        )  # (2, 4 S, …)

    states = torch.onnx.ops.symbolic(
        "LSTM",
        (
            x.transpose(0, 1),
            both("weight_ih"),
            both("weight_hh"),
            torch.cat([both("bias_ih"), both("bias_hh")], dim=1),
            lengths.int(),
        ),
        {"hidden_size": size, "direction": "bidirectional"},
        dtype=x.dtype,
        shape=(x.shape[1], 2, x.shape[0], size),
    )
    return states.permute(2, 0, 1, 3).flatten(2)
