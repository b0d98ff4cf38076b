"""A training step and the inference of a batch on the GPU without numbers, for encoders and features.

    LD_PRELOAD=STUB python steps.py ENCODER/FEATURE…

prints a line of JSON for each: what `measured` returns, or the error.
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
    OptimizationConfig,
    PretrainingConfig,
    TokenizerConfig,
)
from recurcli.data.teacher import Teacher
from recurcli.device import SettledPrecision
from recurcli.encoders import PRETRAINED
from recurcli.encoders.registry import causal_key
from recurcli.evaluation.inference import InferenceConfig, compute_logits, score_text
from recurcli.network import Backbone, Classifier, LanguageModel
from recurcli.targets import OneLabel
from recurcli.tokens.texts import cut_windows, encode_stream
from recurcli.tokens.tokenizer import Tokenizer
from recurcli.training import fit
from recurcli.training.objectives import (
    ClassificationObjective,
    MaskedTokenObjective,
    NextTokenObjective,
    Objective,
    StreamObjective,
)

GPU = torch.device("cuda", 0)
BATCH = 4
LABELS = ("x", "y", "z")
Rows = list[tuple[str, str | None]]


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
BERT = {"model_type": "bert", "num_attention_heads": 2, "intermediate_size": 128, "max_position_embeddings": 512}
"""What the architecture of `pretrained` has besides its sizes."""


def measured(encoder: str, feature: Feature) -> dict[str, list[str]]:
    """What the CPU waits for in a training step and in the inference of a batch, and the dtypes of recurrent layers."""
    draw = random.Random(0)
    texts = ["".join(draw.choices("abcdefgh", k=feature.length - row)) for row in range(2 * BATCH)]
    rows = [(text, text[::-1] if feature.pairs else None) for text in texts]
    words = Tokenizer.train(texts, TokenizerConfig(kind="char", min_frequency=1))
    config = model_config(encoder, feature, words)
    model = Classifier(config) if feature.learns == "labels" else LanguageModel(config)
    objective, optimization = objective_of(feature, rows, words)
    with fake_gpu() as watch:
        model.to(GPU)
        loop = fit.TrainingLoop(
            model=model,
            optimizer=fit.build_optimizer(model, optimization),
            objective=objective,
            config=optimization,
            seed=1,
            device=GPU,
            precision=feature.precision,
        )
        batches = loop.batches(0)
        if feature.learns == "streams":  # nothing is carried to the first step
            fit.take_step(loop, next(batches))
        watch.waits = []
        fit.take_step(loop, next(batches))
        training, watch.waits = watch.waits, []
        infer(model, feature, rows, words)
    recurrent = [str(dtype).removeprefix("torch.") for dtype in watch.recurrent]
    return {"training": training, "inference": watch.waits, "recurrent": recurrent}


def model_config(encoder: str, feature: Feature, words: Tokenizer) -> ModelConfig:
    """A model of two layers."""
    keys: dict[str, Any] = {"name": encoder, "hidden_size": 64, "num_layers": 2, **feature.encoder}
    if encoder == PRETRAINED:
        sizes = {"hidden_size": 64, "num_hidden_layers": 2, "vocab_size": words.vocab_size}
        keys["architecture"] = {**BERT, **sizes}
    if feature.learns in ("next tokens", "streams"):
        key, value = causal_key(encoder) or ("causal", True)
        keys[key] = value
    return ModelConfig(
        encoder=keys,
        vocab_size=words.vocab_size,
        pad_id=words.pad_id,
        separator_id=words.separator_id,
        max_length=feature.length,
        num_classes=len(LABELS) if feature.learns == "labels" else 0,
        **feature.model,
    )


def objective_of(feature: Feature, rows: Rows, words: Tokenizer) -> tuple[Objective, OptimizationConfig]:
    """What is learned from the rows, and how."""
    common: dict[str, Any] = {"learning_rate": 1e-3, "epochs": 1, "batch_size": BATCH, "max_grad_value": 1.0}
    tokens, stream = words.encode(rows, feature.length), encode_stream(rows, words)
    if feature.learns == "labels":
        finetuning = FinetuningConfig(word_dropout=0.1, **common, **feature.finetuning)
        y, target = np.arange(len(rows)) % len(LABELS), OneLabel(LABELS)
        weights = target.row_weights(target.weights_of_labels(finetuning.class_weights, y), y)
        soft = np.full((len(rows), len(LABELS)), 1 / len(LABELS), np.float32)
        teacher = Teacher(soft, np.arange(len(rows)) > 1, {}) if feature.teacher else None
        return ClassificationObjective(tokens, y, target, weights, finetuning, words, teacher), finetuning
    pretraining = PretrainingConfig(**common)
    if feature.learns == "masked tokens":
        return MaskedTokenObjective(tokens, words, pretraining), pretraining
    if feature.learns == "next tokens":
        return NextTokenObjective(cut_windows(stream, words.separator_id, feature.length), words), pretraining
    windows = cut_windows(stream, words.separator_id, feature.length, BATCH)
    streams: NextTokenObjective = StreamObjective(windows, words, BATCH)
    return streams, pretraining


def infer(model: Backbone, feature: Feature, rows: Rows, words: Tokenizer) -> None:
    """Infer a batch of all rows, or of two windows; with masked tokens there is no inference."""
    inference = InferenceConfig(GPU, feature.precision, len(rows))
    if isinstance(model, Classifier):
        compute_logits(model, words.encode(rows, feature.length), inference)
    elif isinstance(model, LanguageModel) and feature.learns != "masked tokens":
        stream = encode_stream(rows, words)[: 2 * feature.length]
        windows = cut_windows(stream, words.separator_id, feature.length)
        score_text(model, windows, inference, carry=feature.learns == "streams")


if __name__ == "__main__":
    for case in sys.argv[1:]:
        name, _, what = case.partition("/")
        found: dict[str, Any]
        try:
            found = measured(name, FEATURES[what])
        except Exception:
            found = {"error": traceback.format_exc()}
        print(json.dumps({"case": case, **found}), flush=True)
