"""Trainings of a moment, to test `fit` and `Session` themselves."""

from typing import Any

import numpy as np
import torch

from recurcli.config import FinetuningConfig, ModelConfig, OptimizationConfig, PretrainingConfig, TokenizerConfig
from recurcli.distributed.group import SINGLE_PROCESS, Ranks
from recurcli.network import Classifier, LanguageModel
from recurcli.targets import OneLabel
from recurcli.tokens.texts import cut_windows, encode_stream
from recurcli.tokens.tokenizer import Tokenizer
from recurcli.training.fit import TrainingLoop, seed_weights
from recurcli.training.objectives import (
    ClassificationObjective,
    MaskedTokenObjective,
    NextTokenObjective,
    Objective,
    StreamObjective,
)

TEXTS = ["ab", "bca", "c", "abcabcabc", "ca", "", "bb"]
LABELS = [0, 1, 1, 1, 0, 0, 1]
WINDOW_OF_ONE = {"name": "truncated-rnn", "window": 1}
"""An encoder whose recurrent matrices never have a gradient."""
STREAMS, WINDOW = 3, 2
"""The batch size, and the window length in tokens, of a loop of the kind "streams". TEXTS have 25 tokens; one is left out."""


def tokenizer() -> Tokenizer:
    return Tokenizer.train(TEXTS, TokenizerConfig(kind="char", min_frequency=1))


def training_loop(
    kind: str = "classification",
    encoder: str | dict[str, Any] = "starsaber",
    *,
    optimizer: type[torch.optim.Optimizer] = torch.optim.SGD,
    ranks: Ranks = SINGLE_PROCESS,
    evaluate: Any = None,
    minimize: bool = False,
    **settings: Any,
) -> TrainingLoop:
    """Return a training loop over TEXTS with newly initialised float64 weights. By default the optimizer is SGD.

    `kind` is "classification", "masked tokens" or "streams", which is causal training with a carried state.
    """
    words = tokenizer()
    tokens = words.encode([(text, None) for text in TEXTS], 16)
    plain: dict[str, Any] = {"learning_rate": 0.1, "warmup_ratio": 0.0, "lr_scheduler": "constant"}
    settings = {**plain, "max_grad_norm": None, **settings}
    named = {"name": encoder} if isinstance(encoder, str) else encoder
    config = ModelConfig(
        encoder={"hidden_size": 8, "num_layers": 2, "dropout": 0.0, **named},
        vocab_size=words.vocab_size,
        pad_id=words.pad_id,
        max_length=16,
        num_classes=2 if kind == "classification" else 0,
    )
    seed_weights(0)
    model: Classifier | LanguageModel
    objective: Objective
    optimization: OptimizationConfig
    if kind == "classification":
        optimization = finetuning = FinetuningConfig(class_weights="balanced", loss="hinge", **settings)
        target, y = OneLabel(("x", "y")), np.array(LABELS)
        weights = target.row_weights(target.weights_of_labels(finetuning.class_weights, y), y)
        objective = ClassificationObjective(tokens, y, target, weights, finetuning, words)
        model = Classifier(config)
    else:
        masked = {"loss_on": "masked", "mlm_probability": 0.5}
        streams = {"objective": "causal", "carry": True, "batch_size": STREAMS}
        pretraining = PretrainingConfig(**{**(streams if kind == "streams" else masked), **settings})
        if kind == "streams":
            text = encode_stream([(text, None) for text in TEXTS], words)
            windows = cut_windows(text, words.separator_id, WINDOW, STREAMS)
            of_streams: NextTokenObjective = StreamObjective(windows, words, STREAMS)
            objective = of_streams
        else:
            objective = MaskedTokenObjective(tokens, words, pretraining)
        optimization = pretraining
        model = LanguageModel(config)
    model.double()
    return TrainingLoop(
        model=model,
        optimizer=optimizer(model.parameters(), lr=1.0, weight_decay=0.1),  # type: ignore[call-arg]
        objective=objective,
        config=optimization,
        seed=3,
        evaluate=evaluate,
        minimize=minimize,
        ranks=ranks,
    )


def weights(loop: TrainingLoop) -> dict[str, torch.Tensor]:
    """A copy of the weights."""
    return {name: tensor.clone() for name, tensor in loop.model.state_dict().items()}
