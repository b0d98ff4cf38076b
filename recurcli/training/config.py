"""The sections `pretraining`, `finetuning` and `runtime` of a preset."""

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le, Lt

from recurcli.evaluation.metrics import METRICS
from recurcli.validation import STRICT, Fraction, NonNegative, Positive, Probability


@dataclass(frozen=True, kw_only=True)
class OptimizationConfig:
    """Keys that pre-training and fine-tuning share: AdamW, learning-rate schedule, batches, checkpoints."""

    __pydantic_config__ = STRICT

    learning_rate: Positive[float] | None = None
    """Largest learning rate of the run; null: the encoder's rate from scratch or, with --init, after pre-training."""
    scalar_lr_factor: Positive[float] = 30.0
    """Learning rate of scalars such as alpha, as a multiple of learning_rate: per step Adam changes a parameter by about its
    learning rate. Ours: TransJect on 3,000 IMDb rows 67.7 -> 73.5 % and 68.1 -> 71.4 % accuracy (two seeds)."""
    ngram_learning_rate: Positive[float] = 0.02
    """Largest learning rate of the n-gram embeddings (`embedding.ngrams`), which row-wise Adagrad trains."""
    epochs: Positive[int] | Literal["auto"] = 10
    """Passes over the training rows. It is ignored if max_steps is set. auto: 3 to 20, the fewer the more rows there are."""
    max_steps: Positive[int] | None = None
    """Number of optimiser steps. null: the steps of `epochs` epochs."""
    batch_size: Positive[int] = 64
    """Rows per optimiser step, summed over all micro-batches and processes."""
    gradient_accumulation_steps: Positive[int] = 1
    """Number of micro-batches per batch. More micro-batches need less memory and give the same gradient."""
    warmup_ratio: Probability = 0.05
    """Fraction of the steps in which the learning rate rises from 0 to its peak."""
    warmup_steps: NonNegative[int] | None = None
    """Number of warm-up steps, which does not depend on the number of all steps. null: warmup_ratio of all steps."""
    lr_scheduler: Literal["linear", "cosine", "constant", "inverse"] = "linear"
    """Decay of the learning rate after the warm-up: linear or cosine to 0, constant, or inverse: the rate divided by t,
    the number of the epoch from 1 (Miller & Hardt's α/t; that t counts epochs is ours)."""
    weight_decay: NonNegative[float] = 0.01
    """AdamW's weight decay. It applies to matrices only, not to vectors (biases, LayerNorm), scalars or n-gram embeddings."""
    beta1: Probability = 0.9
    """Adam's decay rate of the first moment."""
    beta2: Probability = 0.999
    """Adam's decay rate of the second moment."""
    adam_epsilon: Fraction = 1e-8
    """Adam's epsilon, added to the denominator (Kingma & Ba, 2015)."""
    max_grad_norm: Positive[float] | None = 1.0
    """Norm to which larger gradients are clipped. null: no clipping."""
    max_grad_value: Positive[float] | None = None
    """Absolute value to which each larger number of the gradient is clipped, after `max_grad_norm`. null: no clipping."""
    checkpoint_every: Positive[int] | None = None
    """Optimiser steps between checkpoints. null: at the end of each epoch."""
    keep_checkpoints: Annotated[int, Ge(2)] = 2
    """Number of newest checkpoints that are kept; at least 2."""
    log_every: Positive[int] = 50
    """Optimiser steps between lines of metrics.jsonl."""

    @property
    def micro_batch_size(self) -> int:
        """Rows of the largest micro-batch. An evaluation during the training takes as many at a time."""
        return -(-self.batch_size // self.gradient_accumulation_steps)

    def __post_init__(self) -> None:
        if self.gradient_accumulation_steps > self.batch_size:
            raise ValueError(
                f"gradient_accumulation_steps must be at most batch_size ({self.batch_size}), "
                f"not {self.gradient_accumulation_steps}"
            )


@dataclass(frozen=True, kw_only=True)
class PretrainingConfig(OptimizationConfig):
    """Token prediction on text without labels."""

    objective: Literal["masked", "causal"] = "masked"
    """masked: predict masked tokens from both sides; causal: predict each token from the tokens before it. causal makes the
    encoder causal, and selects the model by its perplexity on the dev text."""
    mlm_probability: Fraction = 0.3
    """Probability that a token is masked (StarSaber, section 4: 0.3)."""
    masking: Literal["random", "bert"] = "random"
    """random: a masked token becomes a random word (StarSaber, section 4); bert: 80 % [MASK], 10 % random, 10 % unchanged."""
    loss_on: Literal["all", "masked"] = "all"
    """Positions that enter the loss: all (StarSaber, section 4), or only the masked ones (BERT)."""
    carry: bool = False
    """causal: whether an encoder goes on from window to window of a text, in training and in evaluation, without gradients from
    one to the next (truncated back-propagation through time; Mikolov et al., 2010; Dai et al., 2019, section 3.2). The training
    text is then `batch_size` contiguous streams that are read in order, and the dev text one stream."""
    evaluate_every: Positive[int] | None = None
    """causal: optimiser steps between evaluations on the dev text. null: at the end of each epoch."""
    patience: Positive[int] | None = None
    """causal: number of consecutive evaluations without a smaller dev perplexity after which training stops. null: never."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("evaluate_every", "patience"):
            if (value := getattr(self, name)) is not None and self.objective == "masked":
                raise ValueError(f"{name} must be null with objective masked, which evaluates nothing, not {value}")
        if self.carry and self.objective == "masked":
            raise ValueError("carry must be false with objective masked, whose texts are in random order")


@dataclass(frozen=True, kw_only=True)
class FinetuningConfig(OptimizationConfig):
    """Training on labelled rows."""

    loss: Literal["hinge", "cross_entropy"] = "cross_entropy"
    """hinge: the hinge loss (StarSaber, section 4) in Crammer and Singer's multi-class form (ours); cross_entropy."""
    metric: str = "accuracy"
    """Dev metric that selects the best model; a name in `recurcli.evaluation.metrics.METRICS`."""
    evaluate_every: Positive[int] | None = None
    """Optimiser steps between evaluations on the dev rows. null: at the end of each epoch."""
    patience: Positive[int] | None = None
    """Number of consecutive evaluations without an improvement after which training stops; null = never. An improvement is a
    larger dev metric, or an equal one with a smaller dev loss: the mean of what training minimizes (`loss`, weights of classes
    and smoothing of labels included)."""
    class_weights: Literal["none", "balanced"] | dict[str, Positive[float]] = "none"
    """Weight of each class in the loss. none: 1; balanced: inversely proportional to the number of training rows of the
    class; a mapping: label to weight, 1 for a label that it omits."""
    keep_texts: bool = True
    """Whether the run keeps the texts of its dev rows, in predictions.dev.jsonl, and hashes of those of its training and dev
    rows, in training_rows.safetensors. Without them nothing tells whether other rows are among them."""
    score_test: bool = True
    """Whether the chosen model is scored once, after the training, on the test rows, if these have labels."""
    linear_baseline: bool = True
    """Whether a linear model on n-grams of the training rows is fitted too; its accuracy is shown beside the encoder's. With a
    `ensemble` it is fitted in any case."""
    refit: bool | Literal["auto"] = "auto"
    """Whether a linear model that the chosen model has is fitted once more in the end, on the dev rows too. auto: only if the
    dev rows were drawn from the training rows, and `data.train_share` is 1. Scores on the dev rows are those of the first
    fit."""
    word_dropout: Probability | Literal["auto"] = 0.0
    """Probability that a token is left out of a training row, drawn anew in each step (word dropout; Iyyer et al.,
    2015, section 3.1; there whole words). auto: 0.5; for pairs, which are compared word by word, 0.2."""
    bag_learning_rate: Positive[float] = 0.003
    """Largest learning rate of the bag of n-grams (`embedding.bag`)."""
    label_smoothing: Probability = 0.0
    """Label smoothing of the cross-entropy: the probability that is spread evenly over all classes."""

    teacher: str | None = None
    """File with another model's soft labels of rows, as `recur predict --probabilities` writes them; null: none. Rows without a
    label of their own become training rows."""
    teacher_run: str | None = None
    """Run that wrote the file `teacher`; null: unknown. A warning counts the dev and test rows that it was trained on."""
    teacher_weight: Annotated[float, Gt(0), Le(1)] = 0.5
    """Weight w of the teacher's loss where a row has a label too; that of the label is 1 - w. The linear model has rows without
    a label of their own with the teacher's label and the weight w."""
    teacher_temperature: Positive[float] = 1.0
    """Temperature T of the teacher's loss, T² KL(teacher || student) (Hinton et al., 2015). 1 is ours; presets/RESULTS.md has
    1, 2 and 4 beside each other."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.metric not in METRICS:
            raise ValueError(f"metric must be one of {', '.join(METRICS)}, not {self.metric!r}")
        if self.label_smoothing and self.loss == "hinge":
            raise ValueError("label_smoothing must be 0 with loss hinge; use loss cross_entropy")
        if self.teacher is not None and self.loss == "hinge":
            raise ValueError("teacher must be null with loss hinge; use loss cross_entropy")


@dataclass(frozen=True, kw_only=True)
class RuntimeConfig:
    """Random seed, device, precision and threads."""

    __pydantic_config__ = STRICT

    seed: Annotated[int, Ge(0), Lt(2**63)] = 10
    """Seed of initial weights, row order, masking and dropout (StarSaber's authors used 10)."""
    device: str = "auto"
    """auto (CUDA if it is available, else cpu), cpu, cuda or cuda:N."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Precision of the forward pass in training. bf16 is autocast with weights in fp32. auto: bf16 if the hardware
    multiplies it (AMX, AVX512-BF16, CUDA of capability 8.0), else fp32."""
    threads: Positive[int] | None = None
    """torch.set_num_threads. null: torch's default, or OMP_NUM_THREADS if it is set."""
    compile: bool = False
    """Compile the encoder with torch.compile."""
