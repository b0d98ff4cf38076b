"""Gated StarSaber: fixed-point equations of a gated RNN, untied and stacked (Xu, Hu & Tang, 2021, sections 2 and 5.1).

The appendix with the equations is not available. The paper says only that the highway connection is the fixed-point
generalisation of the GRU (section 2), and that a gated layer has as many parameters as two plain ones (section 5.1). The
equations below are ours. A and the softmax G are those of StarSaber's eq. 5; σ is the sigmoid:

    gru_light   z = σ(W_z h + V_z x)      r = σ(W_r h + V_r x)                                           8 D²
    gru         z = σ(A^z + V_z x)        r = σ(A^r + V_r x)                                            10 D²
                h' = (1 - z) ∘ h + z ∘ tanh(r ∘ A + V x)
    lstm        f, i, o = σ(A^f + V_f x), σ(A^i + V_i x), σ(A^o + V_o x)      u = tanh(A + V x)          13 D²
                s' = f ∘ s + i ∘ u        h' = o ∘ tanh(s')        s^0 = h^0 = x

h' of the GRU is that of Cho et al., 2014, eq. 7, with z for 1 - z, and s' that of Gers et al., 2000. A^z, A^r, A^f, A^i and A^o
have separate past and future matrices and share G. Shapes: B batch, T positions, D hidden size, g gates.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recurcli.encoders.config import Gate, GatedStarSaberConfig
from recurcli.encoders.encoder import Encoder, LayerStats
from recurcli.layers import Dropout, normal_
from recurcli.ops.attention import attention_weights, directional_attention

GATES: dict[Gate, int] = {"gru_light": 2, "gru": 2, "lstm": 3}
"""Number of gates g of each form."""


class GatedStarSaberLayer(nn.Module):
    """One gated layer. `relation` (D, D) is W. The other matrices stack D rows of A or V and D rows per gate.

    `input` is ((1 + g) D, D). `past` and `future` are ((1 + g) D, D) for gru and lstm. For gru_light they are (D, D), and
    `gate` (2 D, D) computes the gates.
    """

    def __init__(self, config: GatedStarSaberConfig) -> None:
        super().__init__()
        size, gates = config.hidden_size, GATES[config.gate]
        self.kind = config.gate
        attended = 1 if config.gate == "gru_light" else 1 + gates
        self.relation = nn.Parameter(torch.empty(size, size))
        self.past = nn.Parameter(torch.empty(attended * size, size))
        self.future = nn.Parameter(torch.empty(attended * size, size))
        self.input = nn.Parameter(torch.empty((1 + gates) * size, size))
        self.gate = nn.Parameter(torch.empty(gates * size, size)) if config.gate == "gru_light" else None
        self.dropout = Dropout(config.dropout)

    def forward(
        self, h: Tensor, s: Tensor, x: Tensor, mask: Tensor | None, first: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Return h' and s'. h, s and x are (B, T, D); s is the cell state of lstm, which gru and gru_light do not change.

        In the `first` layer h is x.
        """
        size = h.shape[-1]
        key, past, future = (F.linear(h, weight) for weight in (self.relation, self.past, self.future))
        attended = directional_attention(h.to(key.dtype), key, past, future, mask)  # (B, T, D) or (B, T, (1 + g) D)
        weight: Tensor = self.input
        if self.gate is not None and first:  # (W_z + V_z) x takes one product
            weight = torch.cat([weight[:size], weight[size:] + self.gate])
        direct, raw = torch.tensor_split(F.linear(x, weight), [size], dim=-1)  # (B, T, D) and (B, T, g D)
        content = attended
        if self.gate is None:
            content, attended = torch.tensor_split(attended, [size], dim=-1)
            raw = raw + attended
        elif not first:
            raw = raw + F.linear(h, self.gate)
        gates = torch.sigmoid(raw).chunk(GATES[self.kind], dim=-1)  # g of (B, T, D)
        if self.kind == "lstm":
            forget, admit, output = gates
            candidate = self.dropout(torch.tanh(content + direct))
            s = forget * s + admit * candidate
            return output * torch.tanh(s), s
        update, reset = gates
        candidate = self.dropout(torch.tanh(reset * content + direct))
        return torch.lerp(h, candidate.to(h.dtype), update.to(h.dtype)), s

    def stats(self, h: Tensor, s: Tensor, x: Tensor, mask: Tensor | None, first: bool = False) -> LayerStats:
        """Return `attention`, the softmax G (B, T, T)."""
        return {"attention": attention_weights(h, F.linear(h, self.relation), mask)}


class GatedStarSaber(Encoder):
    """L untied gated layers. Dropout applies to the candidate state before gating (ours)."""

    Config = GatedStarSaberConfig
    checkpoint_obstacle = ""

    def __init__(self, config: GatedStarSaberConfig) -> None:
        super().__init__()
        self.config = config
        self.layers = nn.ModuleList(GatedStarSaberLayer(config) for _ in range(config.num_layers))
        for parameter in self.parameters():
            normal_(parameter, std=config.hidden_size**-0.5)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        if mask is not None:
            x = x.masked_fill(~mask[..., None], 0.0)
        h = s = x
        for number, layer in enumerate(self.layers):
            h, s = self.apply_layer(layer, h, s, x, mask, number == 0)
        return h
