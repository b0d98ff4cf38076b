"""`recur pretrain`: train an encoder by masked-token prediction on text without labels."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from recurcli.cache import cache_folder
from recurcli.commands.training.run import Event, enter_run, finished_run, run_training
from recurcli.commands.training.setup import (
    TrainingRequest,
    TrainingSetup,
    build_loop,
    build_model,
    describe_split,
    encode_split,
    model_config,
    note_on_cuts,
    notes_on,
    settle_tokens,
    use_vectors,
)
from recurcli.data.examples import Split, load_split
from recurcli.data.sources.find import has_split
from recurcli.data.tasks import task_named
from recurcli.distributed.group import current
from recurcli.events import Note
from recurcli.model.models import MaskedTokenModel
from recurcli.preset import Preset
from recurcli.tokens.batching import TokenRows
from recurcli.tokens.corpus import Corpus, corpus_tokenizer, read_corpus, stored_tokens, text_files
from recurcli.tokens.tokenizer import Tokenizer, joined
from recurcli.training.objectives import MaskedTokenObjective
from recurcli.training.session import StopRequest


def pretrain(request: TrainingRequest) -> Iterator[Event]:
    """Train an encoder as `request` says; yields notes, progress and the result."""
    preset = request.resolved.preset
    with enter_run(request, "pretraining") as (status, device):
        if status == "finished":
            yield from finished_run(request)
            return
        if _is_corpus(preset):
            corpus = read_corpus(Path(str(preset.data.path)), skip_bad_rows=preset.data.skip_bad_rows)
            size = f"{len(corpus.files):,} text files, {corpus.size / 1e6:,.1f} MB"
            yield Note(f"{corpus.path}: {size}; tokenised in {cache_folder()}")
            text = _tokenize_corpus(corpus, preset)
        else:
            text = _tokenize_splits(_load_splits(preset), preset)
        yield from text.notes

        config = model_config(preset, text.tokenizer, text.max_length, labels=(), columns={})
        model = build_model(MaskedTokenModel, config, preset.runtime.seed)
        yield from use_vectors(model, preset, text.tokenizer)
        objective = MaskedTokenObjective(text.tokens, text.tokenizer, preset.pretraining)
        yield from run_training(
            TrainingSetup(
                request=request,
                section="pretraining",
                status=status,
                loop=build_loop(preset, "pretraining", model, objective, device),
                config=config,
                tokenizer=text.tokenizer,
                data=text.data,
                stop=StopRequest(current()),
            )
        )


class _TokenizedText(NamedTuple):
    tokenizer: Tokenizer
    max_length: int
    tokens: TokenRows
    data: dict[str, dict[str, Any]]
    """By split, or for `text`: path, sha256, and the numbers of rows, dropped rows, bad rows and truncated rows."""
    notes: list[Note]


def _is_corpus(preset: Preset) -> bool:
    """Whether data.path is plain text: a text file, or a folder with text files and no rows of the task."""
    if preset.data.path is None:
        return False
    path = Path(preset.data.path)
    if path.is_dir() and has_split(task_named(preset.task), "train", preset.data):
        return False
    return bool(text_files(path))


def _tokenize_corpus(corpus: Corpus, preset: Preset) -> _TokenizedText:
    """Train the tokenizer and tokenise text files, which may be larger than memory."""
    settled = settle_tokens(
        preset, lambda: ((text, None) for text in corpus.texts()), partial(corpus_tokenizer, corpus)
    )
    tokenizer, max_length = settled.tokenizer, settled.max_length
    tokens = stored_tokens(corpus, tokenizer, max_length)
    notes = [*settled.notes, *note_on_cuts("text", tokens.truncated, len(tokens), max_length)]
    if corpus.bad_rows:
        notes.insert(0, Note(f"text: {corpus.bad_rows:,} bad rows skipped, the first: {corpus.bad[0]}", "warning"))
    facts = {"path": str(corpus.path), "rows": len(tokens), "sha256": corpus.sha256}
    counts = {"dropped": 0, "bad": corpus.bad_rows, "truncated": tokens.truncated}
    return _TokenizedText(tokenizer, max_length, tokens, {"text": {**facts, **counts}}, notes)


def _tokenize_splits(splits: dict[str, Split], preset: Preset) -> _TokenizedText:
    """Train the tokenizer on all texts of the splits and tokenise them."""
    tokenizer, max_length, notes = settle_tokens(
        preset, lambda: [row for split in splits.values() for row in split.texts]
    )
    tokens = {name: encode_split(split, tokenizer, max_length) for name, split in splits.items()}
    data = {name: describe_split(split, tokens[name]) for name, split in splits.items()}
    notes += [note for name, split in splits.items() for note in notes_on(name, split, tokens[name], max_length)]
    return _TokenizedText(tokenizer, max_length, joined(tokens.values()), data, notes)


def _load_splits(preset: Preset) -> dict[str, Split]:
    """Return the rows of a single file, or the train, dev and test rows of the task (StarSaber, section 4).

    For your own rows, missing splits are left out.
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
