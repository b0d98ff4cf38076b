"""The AdamW optimizer, and its state as named tensors for checkpoints."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from recurcli.errors import ModelError
from recurcli.model.models import Backbone
from recurcli.training.config import OptimizationConfig

_STATE = ("step", "exp_avg", "exp_avg_sq")


def build_optimizer(model: Backbone, config: OptimizationConfig) -> torch.optim.AdamW:
    """Return AdamW over the parameters that require gradients. Weight decay applies to matrices only.

    The `lr_factor` of a parameter group multiplies the learning rate. It is `config.scalar_lr_factor` for scalars, because
    Adam changes a parameter by about one learning rate per step.
    """
    scalars: list[nn.Parameter] = []
    vectors: list[nn.Parameter] = []
    matrices: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            scalar = parameter.ndim == 0 or name.rpartition(".")[2] in model.encoder.scalar_names
            (scalars if scalar else vectors if parameter.ndim == 1 else matrices).append(parameter)
    groups = [
        {"params": matrices, "weight_decay": config.weight_decay, "lr_factor": 1.0},
        {"params": vectors, "weight_decay": 0.0, "lr_factor": 1.0},
        {"params": scalars, "weight_decay": 0.0, "lr_factor": config.scalar_lr_factor},
    ]
    assert config.learning_rate is not None
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=config.learning_rate,
        betas=(config.beta1, config.beta2),
        eps=config.adam_epsilon,
        fused=True,
    )


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the optimizer's state, with names such as `exp_avg/encoder.layers.0.…`.

    A parameter that never had a gradient has no state.
    """
    tensors = {}
    for name, parameter in model.named_parameters():
        for key, value in optimizer.state.get(parameter, {}).items():
            tensors[f"{key}/{name}"] = value
    return tensors


def empty_optimizer_tensors(model: nn.Module, names: Iterable[str]) -> dict[str, Tensor]:
    """Return zeros in the shapes of the optimizer tensors `names`; a broadcast from rank 0 then fills them."""
    parameters = dict(model.named_parameters())
    tensors = {}
    for name in names:
        key, _, owner = name.partition("/")
        shape = () if key == "step" else parameters[owner].shape
        tensors[name] = torch.zeros(shape, device=parameters[owner].device)
    return tensors


def load_optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Load the tensors of `optimizer_tensors` into `optimizer`. Raises ModelError if they do not fit the model."""
    left = dict(tensors)
    for name, parameter in model.named_parameters():
        state = {key: left.pop(f"{key}/{name}", None) for key in _STATE}
        if all(value is None for value in state.values()):
            continue
        for key, value in state.items():
            shape = torch.Size() if key == "step" else parameter.shape
            if value is None or value.shape != shape or not value.is_floating_point() or not parameter.requires_grad:
                raise ModelError(f"the checkpoint's optimizer state does not fit the model: {key}/{name}")
        # A fused AdamW keeps its step count beside the parameter.
        optimizer.state[parameter] = {
            key: value.to(parameter.device) for key, value in state.items() if value is not None
        }
    if left:
        raise ModelError(f"the checkpoint's optimizer state does not fit the model: {min(left)}")
