"""The optimizer, AdamW with row-wise Adagrad for sparse gradients; its schedule; its state as named tensors for checkpoints.

The learning rate depends on the step alone, so a checkpoint does not store it.
"""

import math
from collections.abc import Iterable, Mapping
from inspect import unwrap

import torch
from torch import Tensor, nn

from recurcli.errors import ModelError
from recurcli.model.models import Backbone
from recurcli.training.config import OptimizationConfig


class AdamWWithSparseRows(torch.optim.AdamW):
    """AdamW, but a parameter (H, D) with a sparse gradient is trained by row-wise Adagrad.

    Row h of a table (H, D) has one sum of squares, s_h += mean_d g_hd^2, and changes by -lr g_h / sqrt(s_h): Adagrad (Duchi
    et al., JMLR 2011) with one step size a row (Mudigere et al., ISCA 2022). Rows without a gradient stay as they are,
    so a step costs what its batch holds.
    """

    # torch wraps these for graphs that hold an optimizer, and the wrappers import torch._dynamo: over a second, for nothing.
    # A wrapper of torch without functools.wraps would stay on: training would be right, and start late.
    add_param_group = unwrap(torch.optim.AdamW.add_param_group)
    zero_grad = unwrap(torch.optim.AdamW.zero_grad)
    _step_dense = unwrap(torch.optim.AdamW.step)

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """Do one step, and drop the sparse gradients."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None and parameter.grad.is_sparse:
                    self._step_rows(parameter, group["lr"])
                    parameter.grad = None  # AdamW leaves out a parameter without a gradient
        self._step_dense()

    def _step_rows(self, table: Tensor, rate: float) -> None:
        gradient = table.grad.coalesce()  # type: ignore[union-attr]
        rows, values = gradient.indices()[0], gradient.values()
        if "row_sum" not in self.state[table]:
            self.state[table]["row_sum"] = table.new_zeros(len(table))
        sums = self.state[table]["row_sum"]
        sums[rows] += values.square().mean(dim=1)
        table[rows] -= rate * values * sums[rows].clamp_min(1e-20).rsqrt().unsqueeze(1)


def build_optimizer(model: Backbone, config: OptimizationConfig) -> AdamWWithSparseRows:
    """Return the optimizer of the parameters that require gradients. Weight decay applies to matrices, but not to the n-gram
    table and to an embedding with frozen rows.

    The `lr_factor` of a parameter group multiplies the learning rate. It is `config.scalar_lr_factor` for scalars, because
    Adam changes a parameter by about one learning rate per step; the n-gram table has a rate of its own.
    """
    assert config.learning_rate is not None
    table = ngram_table(model)
    scalars: list[nn.Parameter] = []
    vectors: list[nn.Parameter] = []  # and what else has no weight decay
    matrices: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and parameter is not table:
            scalar = parameter.ndim == 0 or name.rpartition(".")[2] in model.encoder.scalar_names
            undecayed = parameter.ndim == 1 or (model.embedding.frozen and parameter is model.embedding.weight)
            (scalars if scalar else vectors if undecayed else matrices).append(parameter)
    groups = [
        {"params": matrices, "weight_decay": config.weight_decay, "lr_factor": 1.0},
        {"params": vectors, "weight_decay": 0.0, "lr_factor": 1.0},
        {"params": scalars, "weight_decay": 0.0, "lr_factor": config.scalar_lr_factor},
        {
            "params": [] if table is None else [table],
            "weight_decay": 0.0,
            "lr_factor": config.ngram_learning_rate / config.learning_rate,
        },
    ]
    return AdamWWithSparseRows(
        [group for group in groups if group["params"]],
        lr=config.learning_rate,
        betas=(config.beta1, config.beta2),
        eps=config.adam_epsilon,
        fused=True,
    )


def ngram_table(model: Backbone) -> nn.Parameter | None:
    """Return the table (H, D) of the n-gram embeddings, whose gradient is sparse; None: the model has none."""
    return None if model.embedding.ngrams is None else model.embedding.ngrams.table


def warmup_steps(total_steps: int, config: OptimizationConfig) -> int:
    """Return the number of warm-up steps: `config.warmup_steps`, or else `config.warmup_ratio` of `total_steps`."""
    return round(config.warmup_ratio * total_steps) if config.warmup_steps is None else config.warmup_steps


def learning_rate(step: int, total_steps: int, config: OptimizationConfig) -> float:
    """Return the learning rate of optimiser step `step` (from 0): linear warm-up, then decay by `lr_scheduler`.

    `config.learning_rate` must be a number: `resolve_schedule` replaces null.
    """
    assert config.learning_rate is not None
    warmup = warmup_steps(total_steps, config)
    if step < warmup:
        return config.learning_rate * (step + 1) / (warmup + 1)
    progress = (step - warmup) / max(1, total_steps - warmup)
    if config.lr_scheduler == "linear":
        return config.learning_rate * (1 - progress)
    if config.lr_scheduler == "cosine":
        return config.learning_rate * 0.5 * (1 + math.cos(math.pi * progress))
    return config.learning_rate


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
        tensors[name] = torch.zeros(_state_shape(key, parameters[owner]), device=parameters[owner].device)
    return tensors


def _state_shape(key: str, parameter: Tensor) -> torch.Size:
    """Return the shape of the state `key` of a parameter."""
    return parameter.shape[: {"step": 0, "row_sum": 1}.get(key, parameter.ndim)]


def load_optimizer_tensors(model: Backbone, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Load the tensors of `optimizer_tensors` into `optimizer`. Raises ModelError if they do not fit the model."""
    left, table = dict(tensors), ngram_table(model)
    for name, parameter in model.named_parameters():
        keys = ("row_sum",) if parameter is table else ("step", "exp_avg", "exp_avg_sq")
        state = {key: left.pop(f"{key}/{name}", None) for key in keys}
        if all(value is None for value in state.values()):
            continue
        for key, value in state.items():
            shape = _state_shape(key, parameter)
            if value is None or value.shape != shape or not value.is_floating_point() or not parameter.requires_grad:
                raise ModelError(f"the checkpoint's optimizer state does not fit the model: {key}/{name}")
        # A fused AdamW keeps its step count beside the parameter.
        optimizer.state[parameter] = {
            key: value.to(parameter.device) for key, value in state.items() if value is not None
        }
    if left:
        raise ModelError(f"the checkpoint's optimizer state does not fit the model: {min(left)}")
