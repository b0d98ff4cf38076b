"""A training step and an inference of any encoder with any feature on the GPU without numbers.

    LD_PRELOAD=STUB python steps.py ENCODER/FEATURE…

prints a line of JSON for each: what the CPU waits for in the step and in the inference of one batch, and the dtypes of recurrent
layers on cuDNN; or the error.
"""

import json
import random
import sys
import traceback
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from fake_gpu import fake_gpu

from recurcli.config import (
    FinetuningConfig,
    ModelConfig,
    NgramBagConfig,
    NgramEmbeddingConfig,
    PretrainingConfig,
    TokenizerConfig,
)
from recurcli.data.teacher import Teacher
from recurcli.device import SettledPrecision
from recurcli.encoders.config import causal_key
from recurcli.evaluation.inference import InferenceConfig, compute_logits, score_text
from recurcli.model.models import Backbone, Classifier, LanguageModel
from recurcli.tokens.texts import cut_windows, encode_stream
from recurcli.tokens.tokenizer import Tokenizer
from recurcli.training import fit
from recurcli.training.objectives import (
    ClassificationObjective,
    MaskedTokenObjective,
    NextTokenObjective,
    Objective,
    StreamObjective,
    class_weights,
)

GPU = torch.device("cuda", 0)
BATCH = 4
LABELS = ("x", "y", "z")


@dataclass(frozen=True)
class Feature:
    """What a training has besides its encoder. The defaults classify short texts."""

    learns: Literal["labels", "masked tokens", "next tokens", "streams"] = "labels"
    length: int = 32
    precision: SettledPrecision = "bf16"
    encoder: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)
    finetuning: dict[str, Any] = field(default_factory=dict)
    pairs: bool = False
    teacher: bool = False


FEATURES = {
    "plain": Feature(),
    "n-gram embedding": Feature(model={"embedding_ngrams": NgramEmbeddingConfig()}),
    "bag": Feature(model={"embedding_bag": NgramBagConfig()}),
    "class weights": Feature(finetuning={"class_weights": "balanced"}),
    "pairs": Feature(
        pairs=True, model={"embedding_segments": True, "embedding_matches": True, "pair_pooling": "sides"}
    ),
    "teacher": Feature(teacher=True),
    "masked tokens": Feature("masked tokens"),
    "next tokens": Feature("next tokens"),
    "carry": Feature("streams"),
    "T 512": Feature(length=512),
    "fp32": Feature(precision="fp32"),
    "no window": Feature(encoder={"window": None, "stable": False}),
}


def measured(encoder: str, feature: Feature) -> dict[str, list[str]]:
    """What the CPU waits for in a training step, and in the inference of a batch."""
    draw = random.Random(0)
    texts = ["".join(draw.choices("abcdefgh", k=feature.length - 8 * (row % 2))) for row in range(2 * BATCH)]
    rows = [(text, text[::-1] if feature.pairs else None) for text in texts]
    words = Tokenizer.train(texts, TokenizerConfig(kind="char", min_frequency=1))
    key, value = (feature.learns in ("next tokens", "streams") and causal_key(encoder)) or ("name", encoder)
    config = ModelConfig(
        encoder={"name": encoder, "hidden_size": 64, "num_layers": 2, key: value, **feature.encoder},
        vocab_size=words.vocab_size,
        pad_id=words.pad_id,
        separator_id=words.separator_id,
        unknown_id=words.unknown_id,
        max_length=feature.length,
        labels=LABELS if feature.learns == "labels" else (),
        **feature.model,
    )
    tokens = words.encode(rows, feature.length)
    streams = BATCH if feature.learns == "streams" else 1
    stream = encode_stream(rows, words)
    windows = cut_windows(stream, words.separator_id, feature.length, streams)
    optimization = {"learning_rate": 1e-3, "epochs": 1, "batch_size": BATCH, "max_grad_value": 1.0}
    finetuning = FinetuningConfig(word_dropout=0.1, **optimization, **feature.finetuning)
    pretraining = PretrainingConfig(**optimization)
    model: Backbone
    objective: Objective
    if feature.learns == "labels":
        model = Classifier(config)
        targets = [row % len(LABELS) for row in range(len(rows))]
        soft = Teacher(np.full((len(rows), len(LABELS)), 1 / len(LABELS), np.float32), np.arange(len(rows)) > 1, {})
        weights = class_weights(finetuning, LABELS, targets)[targets]
        objective = ClassificationObjective(
            tokens, targets, weights, finetuning, words, soft if feature.teacher else None
        )
    else:
        model = LanguageModel(config)
        if feature.learns == "masked tokens":
            objective = MaskedTokenObjective(tokens, words, pretraining)
        elif feature.learns == "next tokens":
            objective = NextTokenObjective(windows, words)
        else:
            objective = StreamObjective(windows, words, streams)

    with fake_gpu() as watch:
        model = model.to(GPU)
        loop = fit.TrainingLoop(
            model=model,
            optimizer=fit.build_optimizer(model, finetuning if feature.learns == "labels" else pretraining),
            objective=objective,
            config=finetuning if feature.learns == "labels" else pretraining,
            seed=1,
            device=GPU,
            precision=feature.precision,
        )
        batches = loop.batches(0)
        for _ in range(streams > 1):  # nothing is carried to the first step
            fit.take_step(loop, next(batches))
        watch.waits = []
        fit.take_step(loop, next(batches))
        training, watch.waits = watch.waits, []
        inference = InferenceConfig(GPU, feature.precision, batch_size=len(rows))
        if isinstance(model, Classifier):
            compute_logits(model, tokens, inference)
        elif isinstance(model, LanguageModel) and feature.learns != "masked tokens":
            two = cut_windows(stream[: 2 * feature.length], words.separator_id, feature.length)
            score_text(model, two, inference, carry=streams > 1)
    return {
        "training": training,
        "inference": watch.waits,
        "recurrent": [str(dtype).removeprefix("torch.") for dtype in watch.recurrent],
    }


if __name__ == "__main__":
    for case in sys.argv[1:]:
        encoder, _, feature = case.partition("/")
        found: dict[str, Any]
        try:
            found = measured(encoder, FEATURES[feature])
        except Exception:
            found = {"error": traceback.format_exc()}
        print(json.dumps({"case": case, **found}), flush=True)
