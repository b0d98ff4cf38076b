"""`recur pretrain`: train an encoder by masked-token prediction on text without labels."""

from collections.abc import Generator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from recurcli.cache import cache_folder
from recurcli.commands.training.request import Event, TrainingRequest, finished_run
from recurcli.commands.training.run import enter_run, run_training
from recurcli.commands.training.setup import (
    TrainingSetup,
    build_loop,
    build_model,
    encode_splits,
    note_on_cuts,
    settle_tokens,
)
from recurcli.data.examples import Split, load_split
from recurcli.data.formats.fasttext import is_fasttext
from recurcli.data.sources import has_split, is_label_folder, is_single
from recurcli.data.tasks import task_named
from recurcli.distributed.group import current
from recurcli.errors import counted
from recurcli.events import Note
from recurcli.model.models import MaskedTokenModel
from recurcli.preset import Preset
from recurcli.tokens.batching import TokenRows
from recurcli.tokens.corpus import corpus_tokenizer, read_corpus, stored_tokens, text_files
from recurcli.tokens.tokenizer import Tokenizer, joined
from recurcli.training.objectives import MaskedTokenObjective
from recurcli.training.stop import StopRequest

Tokenized = tuple[TokenRows, Tokenizer, int, dict[str, dict[str, Any]], bool]
"""The rows as token ids, the tokenizer, max_length, `TrainingSetup.data` (plain text has the one split `text`), and whether
rows are pairs."""


def pretrain(request: TrainingRequest) -> Iterator[Event]:
    """Train an encoder as `request` says; yields notes, progress and the result."""
    preset = request.resolved.preset
    with enter_run(request, "pretraining") as (status, device):
        if status == "finished":
            yield from finished_run(request)
            return
        tokenise = _tokenize_corpus if _is_corpus(preset) else _tokenize_splits
        tokens, tokenizer, max_length, data, pairs = yield from tokenise(preset)
        model = yield from build_model(MaskedTokenModel, preset, tokenizer, max_length, pairs=pairs)
        objective = MaskedTokenObjective(tokens, tokenizer, preset.pretraining)
        yield from run_training(
            TrainingSetup(
                request=request,
                section="pretraining",
                status=status,
                loop=build_loop(preset, "pretraining", model, objective, device),
                tokenizer=tokenizer,
                data=data,
                stop=StopRequest(current()),
            )
        )


def _is_corpus(preset: Preset) -> bool:
    """Return whether data.path is plain text.

    Plain text is a text file without fastText's labels, or a folder with text files and without rows of the task.
    """
    if preset.data.path is None:
        return False
    path = Path(preset.data.path)
    if path.is_dir() and not is_label_folder(path) and has_split(task_named(preset.task), "train", preset.data):
        return False
    return bool(text_files(path)) and not is_fasttext(path)


def _tokenize_corpus(preset: Preset) -> Generator[Note, None, Tokenized]:
    """Train the tokenizer and tokenise text files, which may be larger than memory."""
    path, skip_bad_rows = Path(str(preset.data.path)), preset.data.skip_bad_rows
    corpus = read_corpus(path, skip_bad_rows=skip_bad_rows, encoding=preset.data.encoding)
    size = f"{counted(len(corpus.files), 'text file')}, {corpus.size / 1e6:,.1f} MB"
    yield Note(f"{corpus.path}: {size}; tokenised in {cache_folder()}")
    tokenizer, max_length = yield from settle_tokens(
        preset, lambda: ((text, None) for text in corpus.texts()), partial(corpus_tokenizer, corpus)
    )
    tokens = stored_tokens(corpus, tokenizer, max_length)
    if corpus.bad_rows:
        yield Note(f"text: {counted(corpus.bad_rows, 'bad row')} skipped, the first: {corpus.bad[0]}", "warning")
    yield from note_on_cuts("text", tokens.truncated, len(tokens), max_length)
    facts = {"path": str(corpus.path), "rows": len(tokens), "sha256": corpus.sha256}
    counts = {"dropped": 0, "bad": corpus.bad_rows, "truncated": tokens.truncated}
    return tokens, tokenizer, max_length, {"text": {**facts, **counts}}, False


def _tokenize_splits(preset: Preset) -> Generator[Note, None, Tokenized]:
    """Train the tokenizer on all texts of the splits and tokenise them."""
    splits = _load_splits(preset)
    rows = [row for split in splits.values() for row in split.texts]
    tokenizer, max_length = yield from settle_tokens(preset, lambda: rows)
    tokens, data = yield from encode_splits(splits, tokenizer, max_length)
    pairs = any(split.columns.pair for split in splits.values())
    return joined(tokens.values()), tokenizer, max_length, data, pairs


def _load_splits(preset: Preset) -> dict[str, Split]:
    """Return the rows of a single file or of label folders, or the train, dev and test rows of the task (StarSaber, section 4).

    For your own rows, missing splits are left out.
    """
    task = task_named(preset.task)
    if preset.data.path is not None and is_single(Path(preset.data.path)):
        return {"text": load_split(task, "train", preset.data, labelled=False)}
    found: dict[str, Split] = {}
    for split in ("train", "dev", "test"):
        if split == "dev" and (dev := found["train"].dev if "train" in found else None):
            found["dev"] = dev
        elif task.labels or has_split(task, split, preset.data):
            found[split] = load_split(task, split, preset.data, labelled=False, divided=True)
    return found
