"""`recur pretrain`: text without labels to an encoder that knows its language."""

from collections.abc import Iterator
from pathlib import Path

import torch

from recurcli.commands.training.run import Event, run_training
from recurcli.commands.training.setup import (
    TrainingRequest,
    TrainingSetup,
    build_model,
    describe_split,
    encode_split,
    model_config,
    note_on_cuts,
    notes_on,
    texts_of,
)
from recurcli.data.examples import Split, load_split
from recurcli.data.sources.find import has_split
from recurcli.data.tasks import task_named
from recurcli.events import Note
from recurcli.model.models import MaskedTokenModel
from recurcli.preset import Preset
from recurcli.tokens.corpus import cache_folder, corpus_tokenizer, read_corpus, stored_tokens, text_files
from recurcli.tokens.tokenizer import Tokenizer, joined
from recurcli.training.objectives import MaskedTokenObjective


def pretrain(request: TrainingRequest) -> Iterator[Event]:
    """Train an encoder by masked-token prediction as `request` says; yields notes, progress and the result."""
    yield from run_training(request, "pretraining", _prepare)


def _prepare(request: TrainingRequest, device: torch.device) -> Iterator[Note | TrainingSetup]:
    preset = request.resolved.preset
    if _is_corpus(preset):
        yield from _prepare_corpus(preset)
        return
    splits = _load(preset)
    tokenizer = Tokenizer.train(texts_of(*splits.values()), preset.tokenizer)
    tokens = {name: encode_split(split, tokenizer, preset.data.max_length) for name, split in splits.items()}
    for name, split in splits.items():
        yield from notes_on(name, split, tokens[name], preset.data.max_length)
    config = model_config(preset, tokenizer, labels=(), columns={})
    model = yield from build_model(MaskedTokenModel, config, preset, tokenizer)
    yield TrainingSetup(
        model=model,
        objective=MaskedTokenObjective(joined(tokens.values()), tokenizer, preset.pretraining),
        tokenizer=tokenizer,
        config=config,
        data={name: describe_split(split, tokens[name]) for name, split in splits.items()},
    )


def _is_corpus(preset: Preset) -> bool:
    """Whether the data are plain text: a text file, or a folder of them that holds no rows of the task."""
    if preset.data.path is None:
        return False
    path = Path(preset.data.path)
    if path.is_dir() and has_split(task_named(preset.task), "train", preset.data):
        return False
    return bool(text_files(path))


def _prepare_corpus(preset: Preset) -> Iterator[Note | TrainingSetup]:
    """The same for text files, which may be larger than memory."""
    assert preset.data.path is not None
    corpus = read_corpus(Path(preset.data.path), skip_bad_rows=preset.data.skip_bad_rows)
    yield Note(
        f"{corpus.path}: {len(corpus.files):,} text files, {corpus.size / 1e6:,.1f} MB; tokenised in {cache_folder()}"
    )
    tokenizer = corpus_tokenizer(corpus, preset.tokenizer)
    tokens = stored_tokens(corpus, tokenizer, preset.data.max_length)
    if corpus.bad_rows:
        yield Note(f"text: {corpus.bad_rows:,} bad rows skipped, the first: {corpus.bad[0]}", "warning")
    yield from note_on_cuts("text", tokens.truncated, len(tokens), preset.data.max_length)
    config = model_config(preset, tokenizer, labels=(), columns={})
    model = yield from build_model(MaskedTokenModel, config, preset, tokenizer)
    facts = {"path": str(corpus.path), "rows": len(tokens), "sha256": corpus.sha256}
    counts = {"dropped": 0, "bad": corpus.bad_rows, "truncated": tokens.truncated}
    yield TrainingSetup(
        model=model,
        objective=MaskedTokenObjective(tokens, tokenizer, preset.pretraining),
        tokenizer=tokenizer,
        config=config,
        data={"text": {**facts, **counts}},
    )


def _load(preset: Preset) -> dict[str, Split]:
    """The rows to learn from: those of a file, or the train, dev and test rows of the task (StarSaber, section 4).

    A task of one's own need not have all of them.
    """
    task = task_named(preset.task)
    if preset.data.path is not None and Path(preset.data.path).is_file():
        return {"text": load_split(task, "train", preset.data, labelled=False)}
    found: dict[str, Split] = {}
    for split in ("train", "dev", "test"):
        if split == "dev" and (dev := found["train"].dev if "train" in found else None):
            found["dev"] = dev
        elif task.labels or has_split(task, split, preset.data):
            found[split] = load_split(task, split, preset.data, labelled=False, divided=True)
    return found
