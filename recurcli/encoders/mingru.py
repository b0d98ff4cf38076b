"""minGRU: a GRU whose gate and candidate do not read the state (Feng et al., Were RNNs All We Needed?, 2024, section 3.1).

    h_t = (1 - z_t) * h_(t-1) + z_t * g(U x_t),   z_t = σ(W x_t)

g(x) = x + 0.5 for x >= 0 and σ(x) below (appendix B): states are positive, and their logarithms are added up in parallel.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recurcli.encoders.config import MinGRUConfig
from recurcli.encoders.encoder import BlockEncoder, Mixer
from recurcli.ops.recurrences import log_scan


class MinGRUMixer(Mixer):
    """The recurrence, and an output map with a bias; 3 D² + 3 D parameters. Ours: h_0 is 0."""

    def __init__(self, config: MinGRUConfig) -> None:
        super().__init__()
        size, self.causal = config.hidden_size, config.causal
        self.gate, self.candidate, self.to_output = (nn.Linear(size, size) for _ in range(3))

    def inputs(self, x: Tensor) -> tuple[Tensor, ...]:
        return self.gate(x), self.candidate(x)

    def recur(self, *parts: Tensor, channels: slice) -> Tensor:
        gate, candidate = parts
        log_candidate = F.logsigmoid(candidate).where(candidate < 0, (F.relu(candidate) + 0.5).log())
        return log_scan(F.logsigmoid(-gate), F.logsigmoid(gate) + log_candidate)

    def recur_on(self, parts: list[Tensor], state: Tensor | None) -> tuple[Tensor, Tensor]:
        gate, candidate = torch.sigmoid(parts[0]), parts[1]
        value = gate * (candidate + 0.5).where(candidate >= 0, torch.sigmoid(candidate))
        after = value if state is None else (1 - gate) * state + value
        return after, after

    def output(self, states: Tensor, x: Tensor) -> Tensor:
        found: Tensor = self.to_output(states.to(x.dtype))
        return found


class MinGRU(BlockEncoder):
    """L layers of the Transformer's block with minGRU in place of attention (ours); 11 D² parameters per layer."""

    Config = MinGRUConfig
    Attention = MinGRUMixer
    adds_positions = False
    export_obstacle = "ONNX has no cumulative log-sum-exp"
