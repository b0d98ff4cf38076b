"""`recur pretrain`: text without labels to an encoder that knows its language."""

from collections.abc import Iterator
from pathlib import Path

import torch

from recurcli.commands.parts import (
    Prepared,
    TrainingRequest,
    build_model,
    describe_split,
    encode_split,
    model_config,
    notes_on,
    texts_of,
)
from recurcli.commands.training import Event, run_training
from recurcli.data.examples import Split, load_split
from recurcli.data.sources import has_split
from recurcli.data.tasks import task_named
from recurcli.data.text import is_text_file, load_text
from recurcli.data.tokenizer import Tokenizer, joined
from recurcli.model.models import MaskedTokenModel
from recurcli.preset import Preset
from recurcli.training.events import Note
from recurcli.training.objectives import MaskedTokenObjective


def pretrain(request: TrainingRequest) -> Iterator[Event]:
    """Train an encoder by masked-token prediction as `request` says; yields notes, progress and the result."""
    yield from run_training(request, "pretraining", _prepare)


def _prepare(request: TrainingRequest, device: torch.device) -> Iterator[Note | Prepared]:
    preset = request.resolved.preset
    splits = _load(preset)
    tokenizer = Tokenizer.train(texts_of(*splits.values()), preset.tokenizer)
    tokens = {name: encode_split(split, tokenizer, preset.data.max_length) for name, split in splits.items()}
    for name, split in splits.items():
        yield from notes_on(name, split, tokens[name], preset.data.max_length)
    config = model_config(preset, tokenizer, labels=(), columns={})
    model = yield from build_model(MaskedTokenModel, config, preset, tokenizer)
    yield Prepared(
        model=model,
        objective=MaskedTokenObjective(joined(tokens.values()), tokenizer, preset.pretraining),
        tokenizer=tokenizer,
        config=config,
        data={name: describe_split(split, tokens[name]) for name, split in splits.items()},
    )


def _load(preset: Preset) -> dict[str, Split]:
    """The text to learn from: a file, or the train, dev and test rows of the task (StarSaber, section 4).

    A task of one's own need not have all of them.
    """
    if preset.data.path is not None and is_text_file(path := Path(preset.data.path)):
        return {"text": load_text(path, skip_bad_rows=preset.data.skip_bad_rows)}
    task = task_named(preset.task)
    if preset.data.path is not None and Path(preset.data.path).is_file():
        return {"text": load_split(task, "train", preset.data, labelled=False)}
    return {
        split: load_split(task, split, preset.data, labelled=False, divided=True)
        for split in ("train", "dev", "test")
        if task.labels or has_split(task, split, preset.data)
    }
