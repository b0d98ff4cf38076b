"""What `recur bench` times: a training step, or a forward pass, of one candidate on random embeddings.

Shapes: B rows, T positions, D hidden size. Every row has T tokens, so there is no padding.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recurcli.commands.benchmark.candidates import Candidate
from recurcli.commands.benchmark.request import Setting
from recurcli.layers import computed_once
from recurcli.model.device import autocast
from recurcli.training.config import FinetuningConfig
from recurcli.training.fit import AdamWWithSparseRows

LEARNING_RATE, WEIGHT_DECAY = 1e-4, 0.01
INCLUDED = {
    "training": "forward pass to all states, mean squared distance to random states with auxiliary losses, backward pass to "
    "weights and embeddings, gradient clipping, AdamW; without embedding table and head",
    "inference": "forward pass to all states, orthogonal maps made before; without embedding table and head; under "
    "bf16 the encoders have fp32 weights and autocast, as in recur predict, and the peers bf16 weights, which is faster",
}


class Workload:
    """A candidate with its optimizer and its input. `recur bench` times its `step`.

    Under bf16 the encoders have fp32 weights and use autocast, as in `recur`. In inference the peers have bf16 weights
    instead, because that is faster for them.
    """

    def __init__(self, candidate: Candidate, setting: Setting, device: torch.device) -> None:
        torch.manual_seed(0)
        self.training = setting.mode == "training"
        self.device = device
        self.model = candidate.build(setting.length).to(device).train(self.training)
        half = setting.precision == "bf16" and not self.training and candidate.family is not None
        self.dtype = torch.bfloat16 if half else torch.float32
        self.precision = "fp32" if half else setting.precision
        self.model = self.model.to(self.dtype)
        self.hidden_size = candidate.hidden_size
        if self.training:
            self.optimizer = AdamWWithSparseRows(
                self.model.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY, fused=True
            )
        self.resize(1, 1)

    def resize(self, rows: int, length: int) -> None:
        """Replace the input by random rows of `length` tokens.

        The input has embeddings and target states, both (rows, T, D), and no mask.
        """
        shape = (rows, length, self.hidden_size)
        self.x = torch.randn(shape, device=self.device, dtype=self.dtype).requires_grad_(self.training)
        self.wanted = torch.randn(shape, device=self.device) if self.training else None

    def step_at(self, rows: int, length: int) -> None:
        """Replace the input, and take one step."""
        self.resize(rows, length)
        self.step()

    def step(self) -> None:
        """Take one training step, or one forward pass."""
        if self.wanted is None:
            with torch.inference_mode(), autocast(self.device, self.precision):
                self.model(self.x)
            return
        with autocast(self.device, self.precision), computed_once():
            states: Tensor = self.model(self.x)
            auxiliary = self.model.auxiliary_losses(self.x)
            loss = sum(auxiliary.values(), F.mse_loss(states.float(), self.wanted))
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.model.parameters(), FinetuningConfig().max_grad_norm or 1.0).item()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.x.grad = None
        with torch.no_grad():
            self.model.project_()
