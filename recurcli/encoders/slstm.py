"""sLSTM: an LSTM with exponential gates, a normaliser, and a recurrent matrix for each head (Beck et al., xLSTM, 2024,
section 2.2).

    c_t = f_t c_(t-1) + i_t z_t,   n_t = f_t n_(t-1) + i_t,   h_t = o_t c_t / n_t                     eqs. 8 to 10
    z = tanh(z~),  i = exp(i~),  f = σ(f~),  o = σ(o~),   each g~_t = W_g x_t + R_g h_(t-1) + b_g       eqs. 11 to 14

c and n are divided by e^m, m_t = max(log f_t + m_(t-1), i~_t), which changes no h (eqs. 15 to 17). R mixes the memories of a
head, so that a state depends on the one before by more than a product.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recurcli.encoders.config import SLSTMConfig
from recurcli.encoders.encoder import BlockEncoder, Mixer
from recurcli.layers import by_head

State = tuple[Tensor, Tensor, Tensor, Tensor]
"""h, c, n and m of a position, each (H, B, K)."""


class SLSTMMixer(Mixer):
    """The memories of H heads; 5 D² + 4 D² / H parameters. Ours: i and f read no convolution, and f is a sigmoid."""

    def __init__(self, config: SLSTMConfig) -> None:
        super().__init__()
        size, self.causal, self.heads = config.hidden_size, config.causal, config.num_heads
        own = size // self.heads
        self.gates = nn.Linear(size, 4 * size)
        """z, i, f and o of the first head, then of the second one, and so on."""
        self.recurrent = nn.Parameter(torch.empty(self.heads, own, 4 * own).normal_(std=own**-0.5))
        with torch.no_grad():  # memories forget slowly at first
            self.gates.bias.view(self.heads, 4, own)[:, 2] = torch.linspace(3, 6, own)
        self.norm = nn.Parameter(torch.ones(size))
        self.to_output = nn.Linear(size, size, bias=False)

    def inputs(self, x: Tensor) -> tuple[Tensor, ...]:
        return (self.gates(x),)

    def recur(self, *parts: Tensor) -> Tensor:
        gates = by_head(parts[0], self.heads).permute(1, 2, 0, 3).contiguous()  # (T, H, B, 4 K)
        state, states = None, []
        for own in gates.unbind(0):
            state = self.after(own, state)
            states.append(state[0])
        return self.normed(torch.stack(states, dim=1).permute(2, 1, 0, 3))  # from (H, T, B, K)

    def after(self, given: Tensor, state: State | None) -> State:
        """Return the state of the next position, whose W x + b of all gates is `given` (H, B, 4 K)."""
        gates = given if state is None else torch.baddbmm(given, state[0], self.recurrent.to(given.dtype))
        candidate, enter, forget, leave = gates.chunk(4, dim=-1)
        if state is None:
            memory, normalizer, largest = torch.tanh(candidate), torch.ones_like(enter), enter
        else:
            kept = F.logsigmoid(forget) + state[3]
            largest = torch.maximum(kept, enter)
            kept, added = (kept - largest).exp(), (enter - largest).exp()
            memory = kept * state[1] + added * torch.tanh(candidate)
            normalizer = kept * state[2] + added
        return torch.sigmoid(leave) * memory / normalizer, memory, normalizer, largest

    def recur_on(self, parts: list[Tensor], state: State | None) -> tuple[Tensor, State]:
        after = self.after(by_head(parts[0], self.heads).transpose(0, 1), state)
        return self.normed(after[0].transpose(0, 1)), after

    def normed(self, h: Tensor) -> Tensor:
        """Return RMSNorm(h) (…, D) of h (…, H, K), for each head."""
        return F.rms_norm(h, h.shape[-1:], eps=1e-5).flatten(-2) * self.norm.to(h.dtype)


class SLSTM(BlockEncoder):
    """L layers of the Transformer's block with the sLSTM in place of attention (ours); (13 + 4 / H) D² parameters per layer."""

    Config = SLSTMConfig
    Attention = SLSTMMixer
    adds_positions = False
    export_obstacle = "it runs a loop over the positions, and a graph has one length"
