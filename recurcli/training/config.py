"""What a preset says about pre-training, fine-tuning and the machine."""

from dataclasses import dataclass
from typing import Literal

from recurcli.evaluation.metrics import METRICS
from recurcli.validation import STRICT


@dataclass(frozen=True, kw_only=True)
class OptimizationConfig:
    """What every training has: AdamW, a learning rate that warms up and decays, batches, checkpoints."""

    __pydantic_config__ = STRICT

    learning_rate: float = 1e-3
    """Largest learning rate of the run."""
    epochs: int = 10
    """Passes over the training rows; max_steps wins over it."""
    max_steps: int | None = None
    """Optimiser steps; null = as many as `epochs` need."""
    batch_size: int = 64
    """Rows of one optimiser step, over all accumulation parts and processes together."""
    gradient_accumulation_steps: int = 1
    """Parts in which a batch goes through the model; more parts, less memory, the same gradient."""
    warmup_ratio: float = 0.05
    """Share of the steps in which the learning rate rises from 0."""
    lr_scheduler: Literal["linear", "cosine", "constant"] = "linear"
    """How the learning rate falls after the warm-up: to 0, or not at all."""
    weight_decay: float = 0.01
    """AdamW's decoupled decay of matrices; vectors and scalars are never decayed."""
    beta1: float = 0.9
    """Adam's decay of the gradient's mean."""
    beta2: float = 0.999
    """Adam's decay of the gradient's square."""
    adam_epsilon: float = 1e-8
    """Adam's term in the denominator (Kingma & Ba, 2015)."""
    max_grad_norm: float | None = 1.0
    """Largest norm of the gradient; null = no clipping."""
    checkpoint_every: int | None = None
    """Steps from one checkpoint to the next; null = at each epoch's end."""
    keep_checkpoints: int = 2
    """How many checkpoints stay on the disk; at least 2."""
    log_every: int = 50
    """Steps from one line of metrics.jsonl to the next."""

    def __post_init__(self) -> None:
        for name in (
            "epochs",
            "batch_size",
            "gradient_accumulation_steps",
            "log_every",
            "max_steps",
            "checkpoint_every",
        ):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")
        if self.gradient_accumulation_steps > self.batch_size:
            raise ValueError(
                f"gradient_accumulation_steps must be at most batch_size ({self.batch_size}), "
                f"not {self.gradient_accumulation_steps}"
            )
        if self.keep_checkpoints < 2:
            raise ValueError(f"keep_checkpoints must be at least 2, not {self.keep_checkpoints}")
        if not 0 < self.learning_rate < float("inf"):
            raise ValueError(f"learning_rate must be above 0, not {self.learning_rate}")
        if not 0 <= self.weight_decay < float("inf"):
            raise ValueError(f"weight_decay must be at least 0, not {self.weight_decay}")
        if not 0 < self.adam_epsilon < 1:
            raise ValueError(f"adam_epsilon must lie in (0, 1), not {self.adam_epsilon}")
        for name in ("warmup_ratio", "beta1", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must lie in [0, 1), not {getattr(self, name)}")
        if self.max_grad_norm is not None and not self.max_grad_norm > 0:
            raise ValueError(f"max_grad_norm must be above 0 or null, not {self.max_grad_norm}")


@dataclass(frozen=True, kw_only=True)
class PretrainingConfig(OptimizationConfig):
    """Masked-token prediction on text without labels."""

    mlm_probability: float = 0.3
    """Share of the positions that are masked (StarSaber, section 4: 0.3)."""
    masking: Literal["random", "bert"] = "random"
    """random: a masked position gets a random word (StarSaber, section 4); bert: 80 % [MASK], 10 % random, 10 % kept."""
    loss_on: Literal["all", "masked"] = "all"
    """Positions whose token is asked for: all (StarSaber, section 4) or only the masked ones (BERT)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.mlm_probability < 1:
            raise ValueError(f"mlm_probability must lie in (0, 1), not {self.mlm_probability}")


@dataclass(frozen=True, kw_only=True)
class FinetuningConfig(OptimizationConfig):
    """Training on labelled rows."""

    loss: Literal["hinge", "cross_entropy"] = "cross_entropy"
    """hinge: the multi-class hinge loss of the StarSaber paper (section 4); cross_entropy."""
    metric: str = "accuracy"
    """Metric on the dev rows that selects the best model, by its name in `recurcli.evaluation.metrics.METRICS`."""
    evaluate_every: int | None = None
    """Steps from one evaluation to the next; null = at each epoch's end."""
    patience: int | None = None
    """Evaluations without a better dev score after which training stops; null = never."""
    class_weights: Literal["none", "balanced"] | dict[str, float] = "none"
    """How much a row of each class counts. balanced: by the inverse of the class's share of the training rows; or a weight
    by label, 1 where a label is not named."""
    label_smoothing: float = 0.0
    """Share of the target that is spread over all classes; cross-entropy only."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.metric not in METRICS:
            raise ValueError(f"metric must be one of {', '.join(METRICS)}, not {self.metric!r}")
        for name in ("evaluate_every", "patience"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1 or null, not {value}")
        for label, weight in self.class_weights.items() if isinstance(self.class_weights, dict) else ():
            if not 0 < weight < float("inf"):
                raise ValueError(f"class_weights must be above 0, not {weight} for {label!r}")
        if not 0 <= self.label_smoothing < 1:
            raise ValueError(f"label_smoothing must lie in [0, 1), not {self.label_smoothing}")
        if self.label_smoothing and self.loss == "hinge":
            raise ValueError("label_smoothing belongs to cross_entropy; the hinge loss has none")


@dataclass(frozen=True, kw_only=True)
class RuntimeConfig:
    """The machine, and the seed of all that is random."""

    __pydantic_config__ = STRICT

    seed: int = 10
    """Seed of weights, order, masking and dropout (StarSaber's authors used 10)."""
    device: str = "auto"
    """auto (CUDA where there is one), cpu, cuda or cuda:N."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Arithmetic of training; auto is bf16 where the machine multiplies it in hardware. Weights stay in fp32."""
    threads: int | None = None
    """Threads of one operation on a CPU; null = torch's choice, or OMP_NUM_THREADS."""
    compile: bool = False
    """Run the encoder through torch.compile."""

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**63:
            raise ValueError(f"seed must lie in [0, 2^63), not {self.seed}")
        if self.threads is not None and self.threads < 1:
            raise ValueError(f"threads must be at least 1 or null, not {self.threads}")
