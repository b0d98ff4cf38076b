"""AdamW, and its state as named tensors."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from recurcli.errors import ModelError
from recurcli.training.config import OptimizationConfig

_STATE = ("step", "exp_avg", "exp_avg_sq")


def build_optimizer(model: nn.Module, config: OptimizationConfig) -> torch.optim.AdamW:
    """AdamW over the parameters that learn; only matrices decay."""
    learning = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in learning if p.ndim >= 2], "weight_decay": config.weight_decay},
        {"params": [p for p in learning if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=config.learning_rate,
        betas=(config.beta1, config.beta2),
        eps=config.adam_epsilon,
        fused=True,
    )


def empty_optimizer_tensors(model: nn.Module) -> dict[str, Tensor]:
    """What `optimizer_tensors` gives after a step, as zeros: for the state of another process to be copied into."""
    return {
        f"{key}/{name}": torch.zeros((), device=parameter.device) if key == "step" else torch.zeros_like(parameter)
        for name, parameter in model.named_parameters()
        for key in _STATE
        if parameter.requires_grad
    }


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's state, each tensor named by its parameter: `exp_avg/encoder.layers.0.…`."""
    tensors = {}
    for name, parameter in model.named_parameters():
        for key, value in optimizer.state.get(parameter, {}).items():
            tensors[f"{key}/{name}"] = value
    return tensors


def load_optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Undo `optimizer_tensors`; ModelError if the tensors are not those of this model."""
    wanted = {f"{key}/{name}" for name, p in model.named_parameters() if p.requires_grad for key in _STATE}
    if tensors and set(tensors) != wanted:
        odd = sorted(wanted ^ set(tensors))[0]
        raise ModelError(f"the checkpoint's optimizer state does not fit the model: {odd}")
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad or not tensors:
            continue
        state = {key: tensors[f"{key}/{name}"] for key in _STATE}
        wanted_shapes = {"step": torch.Size(), "exp_avg": parameter.shape, "exp_avg_sq": parameter.shape}
        for key, value in state.items():
            if value.shape != wanted_shapes[key] or not value.is_floating_point():
                raise ModelError(f"the checkpoint's optimizer state does not fit the model: {key}/{name}")
        # A fused AdamW keeps its step count beside the parameter.
        optimizer.state[parameter] = {key: value.to(parameter.device) for key, value in state.items()}
