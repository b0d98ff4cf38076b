"""`recur pretrain`: train an encoder on text without labels, by predicting masked tokens or the next token."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from recurcli.cache import cache_folder
from recurcli.commands.training.resume import finished_run
from recurcli.commands.training.trainer import Training, enter_run
from recurcli.config import UTF8, RunConfig
from recurcli.data.known import KnownRows, log_known_rows
from recurcli.data.splits import Split, hashes_of, load_split
from recurcli.data.tasks import find_place, has_split, is_one_file, task_named
from recurcli.device import choose_precision
from recurcli.distributed.group import current
from recurcli.errors import UsageError, pluralize
from recurcli.evaluation.inference import DevPerplexity, InferenceConfig
from recurcli.linear.static_vectors import resolve_vectors_of_tokens
from recurcli.log import Log
from recurcli.models.build import build_loop, build_model, resolve_tokens, settle, settle_kernel
from recurcli.models.candidate import Network
from recurcli.network import LanguageModel
from recurcli.preset import Preset
from recurcli.requests.training import PretrainRequest
from recurcli.tokens.batching import TokenRows
from recurcli.tokens.texts import (
    WINDOW,
    corpus_tokenizer,
    is_plain_text,
    load_texts,
    read_corpus,
    stored_tokens,
    windows_of_splits,
)
from recurcli.tokens.tokenizer import Tokenizer, encode_splits, facts_of, joined, note_on_bad_rows, note_on_cuts
from recurcli.training.fit import TrainingLoop
from recurcli.training.objectives import MaskedTokenObjective, NextTokenObjective, StreamObjective
from recurcli.training.session import StopRequest

Tokenized = tuple[TokenRows, Tokenizer, int, dict[str, dict[str, Any]], bool]
"""The rows as token ids, the tokenizer, max_length, `Training.data` (plain text has the one split `text`), and whether
rows are pairs."""


def pretrain(request: PretrainRequest, log: Log) -> dict[str, Any]:
    """Train an encoder as `request` says, and return the content of result.json."""
    resolved = request.resolved
    with enter_run(request, resolved) as (run, status, device):
        if status == "finished":
            return finished_run(request, log)
        if resolved.preset.data.train_share < 1:
            raise UsageError(
                "data.train_share is for labelled rows, and pre-training reads all texts; leave it out here"
            )
        resolved = replace(resolved, preset=resolve_vectors_of_tokens(resolved.preset))
        started = partial(Training, request=request, resolved=resolved, run=run, status=status, device=device)
        build = _build_causal if resolved.preset.pretraining.objective == "causal" else _build_masked
        return build(started, resolved.preset, device, log).execute(log)


def _build_masked(started: Callable[..., Training], preset: Preset, device: torch.device, log: Log) -> Training:
    """Build the training on masked tokens, which evaluates nothing. `started` makes a Training of the run."""
    tokenise = _tokenize_corpus if _is_corpus(preset) else _tokenize_splits
    tokens, tokenizer, max_length, data, pairs = tokenise(preset, log)
    if tokenizer.mask_id < 0 and preset.pretraining.masking == "bert":
        raise UsageError(
            "pretraining.masking bert needs a token for masks, and the tokenizer has none; set it to random"
        )
    preset = settle(preset, "pretraining", tokenizer, max_length, len(tokens.lengths), log)
    model = build_model(LanguageModel, preset, tokenizer, log, pairs=pairs)
    settle_kernel(model, preset, device, log)
    objective = MaskedTokenObjective(tokens, tokenizer, preset.pretraining)
    loop = build_loop(preset, "pretraining", model, objective, device, None, log)
    return started(**_parts(preset, tokenizer, loop), data=data, stop=StopRequest(current()))


def _build_causal(started: Callable[..., Training], preset: Preset, device: torch.device, log: Log) -> Training:
    """Build the training on next tokens, with the evaluation on the dev text."""
    task, carry, streams = task_named(preset.task), preset.pretraining.carry, preset.pretraining.batch_size
    obstacles = {
        "the data are rows, which do not go on from one to the next": not _is_corpus(preset),
        "the step that carries is not compiled, as runtime.compile asks": preset.runtime.compile,
        "layers that carry are not computed again, as runtime.checkpoint_layers asks": preset.runtime.checkpoint_layers,
    }
    if carry and any(obstacles.values()):
        reason = next(reason for reason, holds in obstacles.items() if holds)
        raise UsageError(f"pretraining.carry: {reason}; --set pretraining.carry=false")
    splits = {split: load_texts(task, split, preset.data, use_dev_split=True) for split in ("train", "dev")}
    if preset.data.max_length == "auto":
        log.detail(f"data.max_length auto: windows of {WINDOW} tokens")
        preset = replace(preset, data=replace(preset.data, max_length=WINDOW))
    known = KnownRows.of(splits["train"].hashes, splits["dev"].hashes)
    lines = hashes_of(splits["dev"].lines)
    repeated = {**known.count(lines), "dev_rows": 0}
    if repeated["training_rows"]:
        log_known_rows(log, repeated, len(lines), name="dev", lines=True)
    tokenizer, length = resolve_tokens(preset, lambda: splits["train"].texts, log)
    windows, data = windows_of_splits(splits, tokenizer, length, log, streams if carry else None)
    train = windows["train"]
    objective = StreamObjective(train, tokenizer, streams) if carry else NextTokenObjective(train, tokenizer)
    preset = settle(preset, "pretraining", tokenizer, length, len(objective.lengths), log)
    model = build_model(LanguageModel, preset, tokenizer, log, pairs=False)
    if carry and (obstacle := model.encoder.carry_obstacle):
        raise UsageError(
            f"pretraining.carry: encoder {preset.encoder['name']}: {obstacle}; --set pretraining.carry=false"
        )
    settle_kernel(model, preset, device, log)
    inference = InferenceConfig(device, batch_size=preset.pretraining.micro_batch_size, ranks=current())
    stop = StopRequest(current())
    dev = DevPerplexity(
        model=model,
        windows=windows["dev"],
        inference=inference,
        check_stop=stop.raise_if_agreed,
        precision=choose_precision(preset.runtime.precision, device) if device.type == "cuda" else "fp32",
        carry=carry,
    )
    loop = build_loop(preset, "pretraining", model, objective, device, dev, log)
    return started(**_parts(preset, tokenizer, loop), data=data, stop=stop, dev=dev, known=known)


def _parts(preset: Preset, tokenizer: Tokenizer, loop: TrainingLoop) -> dict[str, Any]:
    """Return the settled preset, the content of config.json and the only candidate, for a Training."""
    config = RunConfig(task=preset.task, network=loop.model.config)
    return {"preset": preset, "config": config, "candidates": [Network(preset, "pretraining", tokenizer, loop)]}


def _is_corpus(preset: Preset) -> bool:
    """Return whether the data are plain text."""
    task = task_named(preset.task)
    return task.plain_text or is_plain_text(task, preset.data)


def _tokenize_corpus(preset: Preset, log: Log) -> Tokenized:
    """Train the tokenizer and tokenise text files, which may be larger than memory."""
    task, config = task_named(preset.task), preset.data
    path = find_place(task, "train", config).paths[0] if task.plain_text else Path(str(config.path))
    corpus = read_corpus(path, skip_bad_rows=config.skip_bad_rows, encoding=config.encoding or UTF8)
    size = f"{pluralize(len(corpus.files), 'text file')}, {corpus.size / 1e6:,.1f} MB"
    log.detail(f"{corpus.path}: {size}; tokenised in {cache_folder()}")
    tokenizer, max_length = resolve_tokens(
        preset, lambda: ((text, None) for text in corpus.texts()), log, partial(corpus_tokenizer, corpus)
    )
    tokens = stored_tokens(corpus, tokenizer, max_length, config.truncate)
    note_on_bad_rows("text", corpus.bad_rows, "".join(corpus.bad[:1]), log)
    note_on_cuts(tokens.truncated, len(tokens), f"data.max_length {max_length}", config.truncate, log, "text")
    facts = facts_of(corpus.path, len(tokens), corpus.sha256)
    counts = {"dropped": 0, "bad": corpus.bad_rows, "truncated": tokens.truncated}
    return tokens, tokenizer, max_length, {"text": {**facts, **counts}}, False


def _tokenize_splits(preset: Preset, log: Log) -> Tokenized:
    """Train the tokenizer on all texts and tokenise them.

    They are those of a single file or of label folders, or of the train, dev and test rows of the task (StarSaber, section 4).
    For your own rows, missing splits are left out.
    """
    task, config, splits = task_named(preset.task), preset.data, dict[str, Split]()
    if config.path is not None and is_one_file(Path(config.path)):
        splits["text"] = load_split(task, "train", config, labelled=False)
    else:
        for split in ("train", "dev", "test"):
            if split == "dev" and (dev := splits["train"].dev if "train" in splits else None):
                splits["dev"] = dev
            elif task.labels or has_split(task, split, config):
                splits[split] = load_split(task, split, config, labelled=False, use_dev_split=True)
    rows = [row for split in splits.values() for row in split.texts]
    tokenizer, max_length = resolve_tokens(preset, lambda: rows, log)
    tokens, data = encode_splits(splits, tokenizer, max_length, config.truncate, log)
    pairs = any(split.source.columns.pair for split in splits.values())
    return joined(tokens.values()), tokenizer, max_length, data, pairs
