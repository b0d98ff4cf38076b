"""How far back an encoder looks: the size of the gradient of a state with respect to earlier inputs.

After Miller & Hardt, Stable Recurrent Models, ICLR 2019, figure 2, which takes the gradient of the loss at all
positions; a random projection of the last state is ours. Shapes: B batch, T positions, D hidden size.
"""

import torch
from torch import Tensor

from recurcli.encoders.encoder import Encoder


def gradient_norm_by_distance(encoder: Encoder, x: Tensor, seed: int = 0) -> list[float]:
    """‖∂(v · h_T) / ∂x_{T-k}‖ for k = 0 … T-1, the mean over rows x (B, T, D) without padding and random unit v."""
    # cuDNN's LSTM has no backward pass in evaluation mode; without it, torch's LSTM has.
    with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
        x = x.detach().requires_grad_()
        last = encoder(x)[:, -1]  # (B, D)
        generator = torch.Generator().manual_seed(seed)
        v = torch.nn.functional.normalize(torch.randn(last.shape, generator=generator), dim=-1).to(last)
        (gradient,) = torch.autograd.grad((v * last).sum(), x)
    return gradient.double().norm(dim=-1).mean(dim=0).flip(0).tolist()
