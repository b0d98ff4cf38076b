"""S4D: a diagonal state space model for each channel (Gu et al., On the Parameterization and Initialization of Diagonal State
Space Models, 2022).

    x' = A x + u,   y = 2 Re C x + D u,   A_n = -exp(a_n) + i b_n,   held for steps Δ (zero-order hold)

At first A_n = -1/2 + i π n (S4D-Lin, section 4.3), C is complex normal, D normal, and Δ log-uniform.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recurcli.encoders.config import S4DConfig
from recurcli.encoders.encoder import BlockEncoder, Mixer
from recurcli.ops.recurrences import diagonal_ssm


class S4DMixer(Mixer):
    """The state space models, GELU, and an output map with a bias; D² + (2 N + 3) D parameters.

    As in the authors' code, A and Δ have no weight decay, and C has. Ours: A and Δ have the learning rate of the others, not
    one of at most 0.001; D has no weight decay; the output map is linear, without a gate.
    """

    def __init__(self, config: S4DConfig) -> None:
        super().__init__()
        size, pairs, self.causal = config.hidden_size, config.state_size // 2, config.causal
        low, high = math.log(config.step_min), math.log(config.step_max)
        self.log_step = nn.Parameter(low + (high - low) * torch.rand(size))
        self.log_decay = nn.Parameter(torch.full((size, pairs), math.log(0.5)))
        self.frequency = nn.Parameter(math.pi * torch.arange(pairs).expand(size, -1).clone().float())
        self.weights = nn.Parameter(torch.randn(size, pairs, 2) * 0.5**0.5)
        self.skip = nn.Parameter(torch.randn(size))
        self.to_output = nn.Linear(size, size)

    def inputs(self, x: Tensor) -> tuple[Tensor, ...]:
        return (x,)

    def recur(self, *parts: Tensor) -> Tensor:
        [u] = parts
        return torch.addcmul(diagonal_ssm(u, *self.model()), self.skip, u)

    def model(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return Δ (D,), A and C (D, N / 2)."""
        rates = torch.complex(-self.log_decay.exp(), self.frequency)
        return self.log_step.exp(), rates, torch.view_as_complex(self.weights)

    def recur_on(self, parts: list[Tensor], state: Tensor | None) -> tuple[Tensor, Tensor]:
        [u], (step, rates, weights) = parts, self.model()
        turned = torch.expm1(step[:, None] * rates)
        written = turned / rates * u[..., None]
        after = written if state is None else (turned + 1) * state + written
        return 2 * (weights * after).sum(dim=-1).real + self.skip * u, after

    def output(self, states: Tensor, x: Tensor) -> Tensor:
        found: Tensor = self.to_output(F.gelu(states).to(x.dtype))
        return found


class S4D(BlockEncoder):
    """L layers of the Transformer's block with S4D in place of attention (ours); 9 D² + 2 N D parameters per layer."""

    Config = S4DConfig
    Attention = S4DMixer
    adds_positions = False
    undecayed_names = ("log_decay", "frequency")
    export_obstacle = "ONNX has no complex numbers for its state space models"
