"""Steps that trainings share before the model is built: the tokenizer, and the rows or texts as token ids."""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from recurcli.data.examples import Split
from recurcli.errors import escaped, pluralize
from recurcli.events import Note
from recurcli.preset import Preset
from recurcli.preset.schema import check_encoder_length
from recurcli.tokens.config import TokenizerConfig
from recurcli.tokens.splits import TextSplit
from recurcli.tokens.stream import Windows, cut_windows, encode_stream
from recurcli.tokens.tokenizer import Tokenizer, Tokens, choose_max_length, resolved_tokenizer

MANY_UNKNOWN = 0.2
"""Fraction of unknown tokens in a split above which a warning says so."""
ROWS_COUNTED = 10_000
"""Training rows whose lengths decide what `data.max_length: auto` stands for."""


def resolve_tokens(
    preset: Preset,
    rows: Callable[[], Iterable[tuple[str, str | None]]],
    build: Callable[[TokenizerConfig], Tokenizer] | None = None,
    tokenizer: Tokenizer | None = None,
    measured: Sequence[tuple[str, str | None]] | None = None,
) -> Generator[Note, None, tuple[Tokenizer, int]]:
    """Return the tokenizer and the largest length in tokens; yields a note on what each `auto` became.

    `rows` returns the training rows. A given `tokenizer` is used as it is. Else `build` makes one, or one is trained on the
    rows if `build` is None. The length is chosen for the rows `measured`, or for all rows if it is None. Raises UsageError if
    the encoder cannot read rows of that length.
    """

    def texts() -> Iterator[str]:
        return (text for row in rows() for text in row if text is not None)

    if tokenizer is None:
        config = resolved_tokenizer(preset.tokenizer, texts())
        if config != preset.tokenizer:
            yield Note(f"tokenizer.kind auto: {config.kind}, by the script of the texts")
        tokenizer = Tokenizer.train(texts(), config) if build is None else build(config)
    max_length = preset.data.max_length
    if max_length == "auto":
        max_length = choose_max_length(tokenizer.lengths(_sample(rows() if measured is None else measured)))
        yield Note(f"data.max_length auto: {max_length} tokens")
        check_encoder_length(preset.encoder, max_length)
    return tokenizer, max_length


def _sample(rows: Iterable[tuple[str, str | None]]) -> list[tuple[str, str | None]]:
    """Return about ROWS_COUNTED rows: evenly spaced ones of a list, which may be sorted, the first ones of a stream."""
    if isinstance(rows, list):
        return rows[:: max(1, len(rows) // ROWS_COUNTED)]
    return list(islice(rows, ROWS_COUNTED))


def encode_splits(
    splits: Mapping[str, Split], tokenizer: Tokenizer, max_length: int
) -> Generator[Note, None, tuple[dict[str, Tokens], dict[str, dict[str, Any]]]]:
    """Return the tokens of each split and the facts about it for result.json.

    Yields notes on the rows that were skipped, dropped or truncated.
    """
    tokens, data = {}, {}
    for name, split in splits.items():
        tokens[name] = tokenizer.encode(split.texts, max_length)
        counts = {
            "dropped": split.dropped,
            "unlabelled": split.unlabelled,
            "bad": len(split.bad),
            "truncated": tokens[name].truncated,
        }
        data[name] = {**facts_of(split.path, len(split.examples), split.sha256), **counts}
        yield from split.notes
        yield from note_on_bad_rows(name, len(split.bad), "".join(split.bad[:1]))
        if split.dropped:
            kept = f"{len(split.examples):,} kept"
            yield Note(f"{name}: {pluralize(split.dropped, 'row')} without a majority label ('-') dropped, {kept}")
        yield from note_on_cuts(name, tokens[name].truncated, len(tokens[name]), max_length)
        unknown = float((tokens[name].ids == tokenizer.unknown_id).mean()) if len(tokens[name].ids) else 0.0
        if unknown > MANY_UNKNOWN:
            yield Note(
                f"{name}: {unknown:.0%} of the tokens are not in the vocabulary, so they are all [UNK]", "warning"
            )
    return tokens, data


def windows_of_splits(
    splits: Mapping[str, TextSplit], tokenizer: Tokenizer, length: int
) -> Generator[Note, None, tuple[dict[str, Windows], dict[str, dict[str, Any]]]]:
    """Cut the text of each split into windows of `length` tokens.

    Returns the windows and the facts for result.json, both by split. Yields notes on skipped lines and on unknown tokens.
    """
    windows, data = {}, {}
    for name, split in splits.items():
        stream = encode_stream(split.texts, tokenizer)
        windows[name] = cut_windows(stream, tokenizer.separator_id, length)
        unknown = int(np.count_nonzero(stream == tokenizer.unknown_id))
        counts = {"dropped": split.dropped, "bad": split.bad, "truncated": 0}
        sizes = {"tokens": len(stream), "unknown": unknown}
        data[name] = {**facts_of(split.path, len(split.texts), split.sha256), **counts, **sizes}
        yield from split.notes
        yield from note_on_bad_rows(name, split.bad, split.first_bad)
        if split.unread and name == "train":
            names = ", ".join(escaped(file.name) for file in split.unread[:3]) + (
                ", …" if len(split.unread) > 3 else ""
            )
            yield Note(
                f"{pluralize(len(split.unread), 'text file', 'are')} not read, because train has its own file: {names}"
            )
        of = (
            f"{unknown / len(stream):.1%} of them not in the vocabulary, so [UNK]"
            if unknown
            else "all in the vocabulary"
        )
        ends = int(np.count_nonzero(stream == tokenizer.separator_id))
        size = f"{pluralize(len(stream), 'token')} with an <eos> after each of {pluralize(ends, 'text')}"
        yield Note(f"{name}: {size}; {of}", "warning" if unknown > MANY_UNKNOWN * len(stream) else "info")
    return windows, data


def facts_of(path: Path | None, rows: int, sha256: str) -> dict[str, Any]:
    """Return path, number of rows and sha256 of the data of a split, for result.json."""
    return {"path": None if path is None else str(path), "rows": rows, "sha256": sha256}


def note_on_bad_rows(name: str, number: int, first: str) -> Iterator[Note]:
    """Yield a warning about the `number` of skipped rows, if there are any. `first` describes the first one."""
    if number:
        yield Note(f"{name}: {pluralize(number, 'bad row')} skipped, the first: {first}", "warning")


def note_on_cuts(name: str, cut: int, rows: int, max_length: int) -> Iterator[Note]:
    """Yield a note on the number of rows that were truncated to `max_length` tokens, if there are any."""
    if cut:
        yield Note(f"{name}: {pluralize(cut, 'row')} ({cut / rows:.1%}) cut to data.max_length {max_length}")
