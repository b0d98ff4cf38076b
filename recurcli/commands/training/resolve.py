"""Replaces each `auto` of a preset, and `learning_rate: null`, by a value for the data of a training.

In the order in which a training resolves them: tokenizer and length, word dropout, epochs and learning rate.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import TypeVar

from recurcli.data.config import TokenizerConfig
from recurcli.encoders import PRETRAINED
from recurcli.encoders.encoder import Encoder
from recurcli.encoders.folder import folder_of
from recurcli.errors import UsageError
from recurcli.log import Log
from recurcli.preset import Preset
from recurcli.preset.schema import check_encoder_length
from recurcli.tokens.pretrained import PretrainedTokenizer
from recurcli.tokens.texts import WINDOW
from recurcli.tokens.tokenizer import Tokenizer, choose_max_length, resolved_tokenizer
from recurcli.training.config import OptimizationConfig

ROWS_COUNTED = 10_000
"""Training rows whose lengths decide what `data.max_length: auto` stands for."""
WORD_DROPOUT, WORD_DROPOUT_OF_PAIRS = 0.5, 0.2
"""Values of `word_dropout: auto`. Ours; the evidence stands in presets/tasks/custom.yaml."""
MIN_EPOCHS, MAX_EPOCHS, ROWS_SEEN, ROWS_SEEN_WITH_WORD_DROPOUT = 3, 20, 20_000, 60_000
"""`epochs: auto` shows a model about ROWS_SEEN rows, or with word dropout ROWS_SEEN_WITH_WORD_DROPOUT, in MIN_EPOCHS to
MAX_EPOCHS passes; pairs always ROWS_SEEN. Ours, by accuracy on dev rows. StarSaber on 5,400 TNEWS headlines: 43.8 % in 3
passes, 41.5 in 10; with word_dropout 0.5 46.6 in 12, 46.2 in 20 (other dev rows). On 9,000 pairs of OCNLI with word_dropout
0.2: 55.5 after 3 passes, 53.4 after 7."""

Config = TypeVar("Config", bound=OptimizationConfig)


def resolve_tokens(
    preset: Preset,
    rows: Callable[[], Iterable[tuple[str, str | None]]],
    log: Log,
    build: Callable[[TokenizerConfig], Tokenizer] | None = None,
    tokenizer: Tokenizer | None = None,
    measured: Sequence[tuple[str, str | None]] | None = None,
) -> tuple[Tokenizer, int]:
    """Return the tokenizer and the largest length in tokens.

    `rows` returns the training rows. A given `tokenizer` is used as it is. Else `build` makes one, or one is trained on the
    rows if `build` is None. The length is chosen for the rows `measured`, or for all rows if it is None. Raises UsageError if
    the encoder cannot read rows of that length.
    """

    def texts() -> Iterator[str]:
        return (text for row in rows() for text in row if text is not None)

    if tokenizer is None and preset.encoder["name"] == PRETRAINED:
        tokenizer = PretrainedTokenizer.of_folder(folder_of(preset.encoder["path"]))
    if tokenizer is None:
        config = resolved_tokenizer(preset.tokenizer, texts())
        if config != preset.tokenizer:
            log.note(f"tokenizer.kind auto: {config.kind}, by the script of the texts")
        tokenizer = Tokenizer.train(texts(), config) if build is None else build(config)
    if isinstance(preset.data.max_length, int):
        max_length = preset.data.max_length
    else:
        chosen = choose_max_length(tokenizer.lengths(_sample(rows() if measured is None else measured)))
        max_length = min(chosen, preset.encoder["max_length"]) if preset.encoder["name"] == PRETRAINED else chosen
        log.note(f"data.max_length auto: {max_length} tokens")
        check_encoder_length(preset.encoder, max_length)
    special = sum(map(len, tokenizer.template))
    if tokenizer.template.before and max_length <= special:
        raise UsageError(
            f"data.max_length {max_length} leaves no room beside the {special} special tokens of a pair; raise it"
        )
    return tokenizer, max_length


def _sample(rows: Iterable[tuple[str, str | None]]) -> list[tuple[str, str | None]]:
    """Return about ROWS_COUNTED rows: evenly spaced ones of a list, which may be sorted, the first ones of a stream."""
    if isinstance(rows, list):
        return rows[:: max(1, len(rows) // ROWS_COUNTED)]
    return list(islice(rows, ROWS_COUNTED))


def resolve_window(preset: Preset, log: Log) -> Preset:
    """Return `preset` with the number of tokens of a window in place of `data.max_length: auto`."""
    if preset.data.max_length != "auto":
        return preset
    log.note(f"data.max_length auto: windows of {WINDOW} tokens")
    return replace(preset, data=replace(preset.data, max_length=WINDOW))


def resolve_word_dropout(preset: Preset, log: Log, *, pairs: bool) -> Preset:
    """Return `preset` with a number in place of `finetuning.word_dropout: auto`."""
    if preset.finetuning.word_dropout != "auto":
        return preset
    rate = WORD_DROPOUT_OF_PAIRS if pairs else WORD_DROPOUT
    log.note(f"finetuning.word_dropout auto: {rate}, for {'pairs' if pairs else 'single texts'}")
    return replace(preset, finetuning=replace(preset.finetuning, word_dropout=rate))


def resolve_schedule(config: Config, encoder: Encoder, rows: int, *, pretrained: bool, pairs: bool = False) -> Config:
    """Replace `learning_rate: null` by the encoder's rate, from scratch or after pre-training, and `epochs: auto`.

    `rows` is the number of training rows; `pairs`: each has two texts.
    """
    longer = bool(getattr(config, "word_dropout", 0)) and not pairs
    seen = ROWS_SEEN_WITH_WORD_DROPOUT if longer else ROWS_SEEN
    rate = encoder.pretrained_learning_rate if pretrained else encoder.scratch_learning_rate
    epochs = min(MAX_EPOCHS, max(MIN_EPOCHS, round(seen / rows)))
    return replace(
        config,
        learning_rate=rate if config.learning_rate is None else config.learning_rate,
        epochs=epochs if config.epochs == "auto" else config.epochs,
    )
