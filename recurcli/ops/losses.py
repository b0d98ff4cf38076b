"""Losses of rows with one label, from logits. Shapes: B rows, C classes."""

import torch.nn.functional as F
from torch import Tensor


def multiclass_hinge(logits: Tensor, targets: Tensor) -> Tensor:
    """Crammer and Singer's multi-class hinge loss: max(0, 1 + largest wrong logit - right logit). (B, C), (B,) -> (B,).

    The StarSaber paper (section 4) names the hinge loss and no form of it. Ours: the largest violation, not the sum of all.
    """
    right = logits.gather(1, targets.unsqueeze(1)).squeeze(1)
    wrong = logits.scatter(1, targets.unsqueeze(1), float("-inf")).amax(dim=1)
    return F.relu(1 + wrong - right)


def distillation_loss(logits: Tensor, probabilities: Tensor, temperature: float) -> Tensor:
    """Return T² KL(teacher || student) of each row: (B, C), (B, C) -> (B,).

    `probabilities` are the teacher's at the temperature T (see `soften`); the student's are softmax(logits / T). The factor T²
    keeps the size of the gradient (Hinton, Vinyals & Dean, 2015, section 2.1).
    """
    log_student = F.log_softmax(logits / temperature, dim=1)
    return temperature**2 * F.kl_div(log_student, probabilities, reduction="none").sum(dim=1)


def soften(probabilities: Tensor, temperature: float) -> Tensor:
    """Return softmax(log(probabilities) / T), (N, C): the teacher's probabilities at the temperature T. Rows of zeros stay."""
    scaled = probabilities.double() ** (1 / temperature)
    return (scaled / scaled.sum(dim=1, keepdim=True).clamp_min(1e-300)).to(probabilities.dtype)
