"""mLSTM: an LSTM whose memory is a matrix (Beck et al., xLSTM, 2024, section 2.3).

    C_t = f_t C_(t-1) + i_t k_t v_t^T,   n_t = f_t n_(t-1) + i_t k_t,   h_t = C_t^T q_t / max(|n_t^T q_t|, 1)
    i = exp(I x),   f = σ(F x),   y = O (σ(G x) * RMSNorm(h_t))                      eqs. 19 to 27

Both are divided by e^m, m_t = max(log f_t + m_(t-1), log i_t), which changes no h (eq. 15). A query is divided by the square
root of its size K.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recurcli.encoders.config import MLSTMConfig
from recurcli.encoders.encoder import BlockEncoder, Mixer
from recurcli.layers import ShortConvolution, by_head
from recurcli.ops.matrix_memory import matrix_memory, memory_after


class MLSTMMixer(Mixer):
    """The memories of H heads; 5 D² parameters and a few a head. Ours: the projections are not those of blocks of channels."""

    def __init__(self, config: MLSTMConfig) -> None:
        super().__init__()
        size, self.causal, self.heads = config.hidden_size, config.causal, config.num_heads
        self.key_size = size // self.heads
        self.query_key = nn.Linear(size, 2 * size, bias=False)
        """The query and the key of the first head, then of the second one, and so on."""
        self.value = nn.Linear(size, size, bias=False)
        self.gates = nn.Linear(size, 2 * self.heads)
        """log i and the logit of f of the first head, then of the second one, and so on."""
        nn.init.zeros_(self.gates.weight)
        with torch.no_grad():  # a head forgets slowly at first (the authors' code)
            self.gates.bias.copy_(torch.stack([torch.zeros(self.heads), torch.linspace(3, 6, self.heads)], 1).flatten())
        self.convolution = ShortConvolution(2 * size, config.short_convolution)
        self.gate, self.to_output = nn.Linear(size, size), nn.Linear(size, size, bias=False)
        self.norm = nn.Parameter(torch.ones(size))

    def inputs(self, x: Tensor) -> tuple[Tensor, ...]:
        return self.query_key(x), self.value(x), self.gates(x)

    def parts(self, read: Tensor, value: Tensor, gates: Tensor) -> tuple[Tensor, ...]:
        """Split the inputs of `recur` by head, after the convolution of `read`.

        Return queries and keys (…, H, K), values with a column of ones (…, H, K + 1), and log i and log f (…, H).
        """
        query, key = by_head(read, self.heads).chunk(2, dim=-1)
        value = F.pad(by_head(value, self.heads), (0, 1), value=1.0)  # its column of C is n
        enter, forget = by_head(gates, self.heads).unbind(-1)
        return query * self.key_size**-0.5, key, value, enter, F.logsigmoid(forget)

    def recur(self, *parts: Tensor) -> Tensor:
        query, key, value, enter, forget = self.parts(self.convolution(parts[0])[0], *parts[1:])
        passed = forget.cumsum(dim=1)
        largest = passed + (enter - passed).cummax(dim=1).values  # m, of which the result does not depend
        before = torch.cat([largest[:, :1], largest[:, :-1]], dim=1)
        decay, key = (forget + before - largest).exp(), key * (enter - largest).exp()[..., None]
        read = matrix_memory(*(part.transpose(1, 2) for part in (query, key, value, decay))).transpose(1, 2)
        return self.hidden(read, largest)

    def recur_on(self, parts: list[Tensor], state: tuple[Tensor, ...] | None) -> tuple[Tensor, tuple[Tensor, ...]]:
        columns, memory, before = state or (None, None, None)
        found, columns = self.convolution(parts[0][:, None], columns)
        query, key, value, enter, forget = self.parts(found[:, 0], *parts[1:])
        largest = enter if before is None else torch.maximum(forget + before, enter)
        decay = (forget + (largest if before is None else before) - largest).exp()
        memory = memory_after(memory, key * (enter - largest).exp()[..., None], value, decay)
        return self.hidden((query[..., None, :] @ memory).squeeze(-2), largest), (columns, memory, largest)

    def hidden(self, read: Tensor, largest: Tensor) -> Tensor:
        """Normalize what the queries read: `read` (…, H, K + 1) -> RMSNorm(h) (…, D).

        `read` is C^T q / e^m with n^T q / e^m as its last column, and `largest` is m (…, H).
        """
        divided, normalizer = torch.split(read, [self.key_size, 1], dim=-1)
        h = divided / torch.maximum(normalizer.abs(), (-largest).exp()[..., None])
        return F.rms_norm(h, h.shape[-1:], eps=1e-5).flatten(-2)

    def output(self, states: Tensor, x: Tensor) -> Tensor:
        gated = torch.sigmoid(self.gate(x)) * (states * self.norm.to(states.dtype)).to(x.dtype)
        found: Tensor = self.to_output(gated)
        return found


class MLSTM(BlockEncoder):
    """L layers of the Transformer's block with the mLSTM in place of attention (ours); 13 D² parameters per layer."""

    Config = MLSTMConfig
    Attention = MLSTMMixer
    adds_positions = False
    export_obstacle = "it runs a loop over the chunks, and a graph has one length"
