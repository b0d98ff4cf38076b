"""minGRU: a GRU whose gate and candidate do not read the state (Feng et al., Were RNNs All We Needed?, 2024, section 3.1).

    h_t = (1 - z_t) * h_(t-1) + z_t * g(U x_t),   z_t = σ(W x_t)

With `signed`, h_t = a_t * h_(t-1) + (1 - |a_t|) * g(U x_t) and a_t = 1 - 2 z_t, as Grazzi et al. change gates (Unlocking
State-Tracking in Linear RNNs Through Negative Eigenvalues, 2025, section 5). The factor of the input is ours.

g(x) = x + 0.5 for x >= 0 and σ(x) below (appendix B), so that states are positive and have the logarithms that the paper adds
up in parallel. Ours is a scan in two levels without logarithms: it is faster on a CPU, and loses no digits.
"""

import torch
from torch import Tensor, nn

from recurcli.encoders.config import MinGRUConfig
from recurcli.encoders.encoder import BlockEncoder, Mixer
from recurcli.ops.recurrences import linear_scan


class MinGRUMixer(Mixer):
    """The recurrence, and an output map with a bias; 3 D² + 3 D parameters. Ours: h_0 is 0."""

    def __init__(self, config: MinGRUConfig) -> None:
        super().__init__()
        size, self.causal, self.signed = config.hidden_size, config.causal, config.signed
        self.gate, self.candidate, self.to_output = (nn.Linear(size, size) for _ in range(3))

    def inputs(self, x: Tensor) -> tuple[Tensor, ...]:
        return self.gate(x), self.candidate(x)

    def recur(self, *parts: Tensor) -> Tensor:
        return linear_scan(*self.recurrence(*parts))

    def recurrence(self, gate: Tensor, candidate: Tensor) -> tuple[Tensor, Tensor]:
        """Return the factors of the state and what is added to it, each (…, C), of W x and U x."""
        value = (candidate + 0.5).where(candidate >= 0, torch.sigmoid(candidate))
        if self.signed:
            factor = torch.tanh(-0.5 * gate)  # 1 - 2 σ
            return factor, (1 - factor.abs()) * value
        return torch.sigmoid(-gate), torch.sigmoid(gate) * value

    def recur_on(self, parts: list[Tensor], state: Tensor | None) -> tuple[Tensor, Tensor]:
        coefficient, value = self.recurrence(*parts)
        after = value if state is None else coefficient * state + value
        return after, after


class MinGRU(BlockEncoder):
    """L layers of the Transformer's block with minGRU in place of attention (ours); 11 D² parameters per layer."""

    Config = MinGRUConfig
    Attention = MinGRUMixer
    adds_positions = False
    export_obstacle = "it runs a loop over the positions of a block, and a graph has one length"
