"""The position-wise feed-forward network (Vaswani et al., 2017, section 3.3)."""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from recurcli.layers.dropout import Dropout
from recurcli.validation import Activation


class FeedForward(nn.Module):
    """W_2 dropout(activation(W_1 x + b_1)) + b_2: (…, D) -> (…, D)."""

    def __init__(self, hidden_size: int, inner_size: int, activation: Activation, dropout: float) -> None:
        super().__init__()
        self.inner = nn.Linear(hidden_size, inner_size)
        self.activation: Callable[[Tensor], Tensor] = F.gelu if activation == "gelu" else F.relu
        self.dropout = Dropout(dropout)
        self.outer = nn.Linear(inner_size, hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(self.dropout(self.activation(self.inner(x))))
