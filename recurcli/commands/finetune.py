"""`recur finetune`: labelled rows to a classifier, from scratch or from a pretrained run."""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from recurcli.commands.training.run import Event, run_training
from recurcli.commands.training.setup import (
    TrainingRequest,
    TrainingSetup,
    ask_to_stop,
    build_model,
    describe_split,
    encode_split,
    model_config,
    notes_on,
    stored_preset,
    texts_of,
)
from recurcli.data.examples import Split, load_split, notes_on_dev_rows, with_labels_of
from recurcli.data.labels import labels_that_look_alike
from recurcli.data.tasks import Task, task_named
from recurcli.distributed.group import current
from recurcli.errors import UsageError, escaped
from recurcli.evaluation import metrics
from recurcli.evaluation.inference import InferenceConfig, cross_entropy, predict_logits, probabilities
from recurcli.events import Note
from recurcli.files import sha256_of
from recurcli.model.models import Classifier
from recurcli.model.saved import load_weights
from recurcli.preset import Preset
from recurcli.preset.strict_yaml import flatten
from recurcli.runs.model_files import TrainedFiles, read_model, write_predictions
from recurcli.tokens.tokenizer import Tokenizer, Tokens
from recurcli.training.objectives import ClassificationObjective
from recurcli.training.signals import StopRequest


def finetune(request: TrainingRequest) -> Iterator[Event]:
    """Train a classifier as `request` says; yields notes, progress and the result."""
    yield from run_training(request, "finetuning", _prepare)


def _prepare(request: TrainingRequest, device: torch.device) -> Iterator[Note | TrainingSetup]:
    preset = request.resolved.preset
    task = task_named(preset.task)
    init = None if request.init is None else _read_init(request.init, preset)
    train = load_split(task, "train", preset.data, divided=True)
    task = with_labels_of(task, train, preset.data)
    dev = train.dev or load_split(task, "dev", preset.data, divided=True)
    yield from notes_on_dev_rows(train, task, preset.data)
    yield from _notes_on_labels(task, train, dev)
    tokenizer = init.tokenizer if init else Tokenizer.train(texts_of(train), preset.tokenizer)
    tokens = {name: encode_split(split, tokenizer, preset.data.max_length) for name, split in _named(train, dev)}
    for name, split in _named(train, dev):
        yield from notes_on(name, split, tokens[name], preset.data.max_length)
    config = model_config(preset, tokenizer, task.labels, train.columns.to_json())
    model = yield from build_model(Classifier, config, preset, tokenizer)
    if init is not None:
        _take_over(model, init)
        yield Note(f"starting from {init.path}")
    number = {label: index for index, label in enumerate(task.labels)}
    targets = [number[example.label] for example in train.examples if example.label is not None]
    rows = -(-preset.finetuning.batch_size // preset.finetuning.gradient_accumulation_steps)  # those of a micro-batch
    inference = InferenceConfig(device, "fp32", batch_size=rows, ranks=current())
    scoring = _DevScoring(model, dev, tokens["dev"], inference, preset, task)
    yield TrainingSetup(
        model=model,
        objective=ClassificationObjective(tokens["train"], targets, task.labels, preset.finetuning, tokenizer.pad_id),
        tokenizer=tokenizer,
        config=config,
        data={name: describe_split(split, tokens[name]) for name, split in _named(train, dev)},
        evaluate=scoring.evaluate,
        init_sha256=None if init is None else sha256_of(init.path / "model.safetensors"),
        finish=scoring.finish,
    )


def _notes_on_labels(task: Task, train: Split, dev: Split) -> Iterator[Note]:
    """What was found out about the rows of one's own data, and what looks wrong with their labels."""
    if len(dev.labels) == 1:
        yield Note(
            f"all {len(dev.examples):,} dev rows have the label '{escaped(dev.labels[0])}': their score says little",
            "warning",
        )
    if task_named(task.name).labels:
        return
    read = " and ".join(
        f"'{escaped(' + '.join(names))}'" for names in (train.columns.text, train.columns.pair) if names
    )
    shown = ", ".join(map(escaped, task.labels[:8])) + (", …" if len(task.labels) > 8 else "")
    yield Note(f"reading {read}; {len(task.labels)} labels from '{escaped(train.label)}': {shown}")
    for group in labels_that_look_alike(task.labels):
        names = " and ".join(f"'{escaped(label)}'" for label in group)
        yield Note(
            f"the labels {names} differ by case or spaces alone; they are taken as {len(group)} classes", "warning"
        )


class _DevScoring:
    """The dev rows, and what they say of the model as it is. Always in fp32: no neighbour changes a score there."""

    def __init__(
        self, model: Classifier, dev: Split, tokens: Tokens, computation: InferenceConfig, preset: Preset, task: Task
    ) -> None:
        self.model, self.dev, self.tokens, self.computation = model, dev, tokens, computation
        self.metric = preset.finetuning.metric
        self.task = task
        self.labels = [str(example.label) for example in dev.examples]

    def evaluate(self, stop: StopRequest) -> float:
        """The score that decides which model is the best."""
        scores = predict_logits(self.model, self.tokens, self.computation, between=partial(ask_to_stop, stop))
        if not self.computation.ranks.is_main:
            return self.computation.ranks.broadcast(None)
        score = metrics.compute_metric(self.metric, self.labels, self._predictions(scores), self.task.labels)
        return self.computation.ranks.broadcast(score)

    def finish(self, folder: Path, stop: StopRequest) -> dict[str, Any]:
        """Write predictions.dev.jsonl; returns the scores of the final model."""
        scores = predict_logits(self.model, self.tokens, self.computation, between=partial(ask_to_stop, stop))
        if not self.computation.ranks.is_main:
            return {}
        names = self.task.labels
        ids = [example.id for example in self.dev.examples]
        write_predictions(folder, ids, self.labels, names, probabilities(scores).tolist())
        targets = np.array([names.index(label) for label in self.labels])
        report = metrics.classification_report(
            self.labels, self._predictions(scores), names, loss=cross_entropy(scores, targets)
        )
        floors = {"floors": dict(self.task.floors)} if self.task.floors else {}
        return {"metric": self.metric, "dev": report.to_json(), **floors}

    def _predictions(self, scores: np.ndarray) -> list[str]:
        return [self.task.labels[index] for index in scores.argmax(axis=1)]


def _named(train: Split, dev: Split) -> tuple[tuple[str, Split], ...]:
    return ("train", train), ("dev", dev)


def _read_init(path: Path, preset: Preset) -> TrainedFiles:
    """The pretrained run at `path`, checked to be of the preset's tokenizer, embedding and encoder."""
    files = read_model(path)
    before, now = (_architecture(values) for values in (stored_preset(path), preset.to_dict()))
    for key in sorted(before.keys() | now.keys()):
        if before.get(key) != now.get(key):
            raise UsageError(
                f"--init {path}: its {key} is {escaped(repr(before.get(key)))}, the preset's is "
                f"{escaped(repr(now.get(key)))}; give both the same"
            )
    return files


def _architecture(values: Mapping[str, Any]) -> dict[str, Any]:
    """What a pretrained run and a fine-tuning must share; dropout may differ."""
    return {
        ".".join(path): value
        for path, value in flatten(values)
        if (path[0] in ("tokenizer", "encoder") and path[-1] != "dropout")
        or (path == ("embedding", "orthonormal") and value)
    }


def _take_over(model: Classifier, init: TrainedFiles) -> None:
    """Copy embedding and encoder of a pretrained run; the head starts anew."""
    own_head = {f"head.{name}": tensor for name, tensor in model.head.state_dict().items()}
    shared = {name: tensor for name, tensor in init.tensors.items() if name.startswith(("embedding.", "encoder."))}
    load_weights(model, {**shared, **own_head}, init.path / "model.safetensors")
