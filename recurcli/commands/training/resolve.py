"""Replaces each `auto` of a preset, and `learning_rate: null`, by a value for the data and the machine of a training.

In the order in which a training resolves them: tokenizer and length, word dropout, epochs and learning rate, precision.
"""

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from statistics import median
from typing import TypeVar

import numpy as np
import torch

from recurcli.commands.training.request import TrainingRequest
from recurcli.data.config import TokenizerConfig
from recurcli.distributed.group import SINGLE_PROCESS
from recurcli.encoders import PRETRAINED
from recurcli.encoders.encoder import Encoder
from recurcli.encoders.folder import folder_of
from recurcli.errors import UsageError
from recurcli.events import Note
from recurcli.model.device import SettledPrecision
from recurcli.preset import Preset
from recurcli.preset.schema import check_encoder_length
from recurcli.runs.run_directory import RunDirectory, RunStatus
from recurcli.tokens.pretrained import PretrainedTokenizer
from recurcli.tokens.texts import WINDOW
from recurcli.tokens.tokenizer import Tokenizer, choose_max_length, resolved_tokenizer
from recurcli.training.config import OptimizationConfig
from recurcli.training.fit import TrainingLoop, compute_gradients, seed_step
from recurcli.training.session import stored_facts

ROWS_COUNTED = 10_000
"""Training rows whose lengths decide what `data.max_length: auto` stands for."""
WORD_DROPOUT, WORD_DROPOUT_OF_PAIRS = 0.5, 0.2
"""Values of `word_dropout: auto`. Ours; the evidence stands in presets/tasks/custom.yaml."""
MIN_EPOCHS, MAX_EPOCHS, ROWS_SEEN, ROWS_SEEN_WITH_WORD_DROPOUT = 3, 20, 20_000, 60_000
"""`epochs: auto` shows a model about ROWS_SEEN rows, or with word dropout ROWS_SEEN_WITH_WORD_DROPOUT, in MIN_EPOCHS to
MAX_EPOCHS passes; pairs always ROWS_SEEN. Ours, by accuracy on dev rows. StarSaber on 5,400 TNEWS headlines: 43.8 % in 3
passes, 41.5 in 10; with word_dropout 0.5 46.6 in 12, 46.2 in 20 (other dev rows). On 9,000 pairs of OCNLI with word_dropout
0.2: 55.5 after 3 passes, 53.4 after 7."""
FEWEST_STEPS = 50
"""The number of steps of a training below which nothing is timed."""
SECONDS, SHARE = 0.5, 0.02
"""The CPU seconds of a thread, and the share of the training's time, that the timing may take. The larger of the two counts."""
ROUNDS, OBVIOUS = 5, 1.2
"""The timing ends after SECONDS if each precision has taken ROUNDS steps, or if one is OBVIOUS times as fast as the other."""
CLEARLY = 1.03
"""The ratio of the speeds of bf16 and fp32 above which bf16 is chosen, because fp32 is exact. The value is ours."""
BATCHES = 50
"""The number of batches at the start of the training from which a typical one is timed."""

Config = TypeVar("Config", bound=OptimizationConfig)
Timed = Callable[[TrainingLoop, np.ndarray], float]


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

    if tokenizer is None and preset.encoder["name"] == PRETRAINED:
        tokenizer = PretrainedTokenizer.of_folder(folder_of(preset.encoder["path"]))
    if tokenizer is None:
        config = resolved_tokenizer(preset.tokenizer, texts())
        if config != preset.tokenizer:
            yield Note(f"tokenizer.kind auto: {config.kind}, by the script of the texts")
        tokenizer = Tokenizer.train(texts(), config) if build is None else build(config)
    if isinstance(preset.data.max_length, int):
        max_length = preset.data.max_length
    else:
        chosen = choose_max_length(tokenizer.lengths(_sample(rows() if measured is None else measured)))
        max_length = min(chosen, preset.encoder["max_length"]) if preset.encoder["name"] == PRETRAINED else chosen
        yield Note(f"data.max_length auto: {max_length} tokens")
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


def resolve_window(preset: Preset) -> Generator[Note, None, Preset]:
    """Return `preset` with the number of tokens of a window in place of `data.max_length: auto`. Yields a note on it."""
    if preset.data.max_length != "auto":
        return preset
    yield Note(f"data.max_length auto: windows of {WINDOW} tokens")
    return replace(preset, data=replace(preset.data, max_length=WINDOW))


def resolve_word_dropout(preset: Preset, *, pairs: bool) -> Generator[Note, None, Preset]:
    """Return `preset` with a number in place of `finetuning.word_dropout: auto`. Yields a note on it."""
    if preset.finetuning.word_dropout != "auto":
        return preset
    rate = WORD_DROPOUT_OF_PAIRS if pairs else WORD_DROPOUT
    yield Note(f"finetuning.word_dropout auto: {rate}, for {'pairs' if pairs else 'single texts'}")
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


def resolve_precision(
    loop: TrainingLoop, request: TrainingRequest, status: RunStatus
) -> Generator[Note, None, TrainingLoop]:
    """Return `loop` with the precision of its training; yields a note on the timing.

    `runtime.precision: auto` is decided by a few timed steps on a CPU that multiplies bf16 in hardware. A training keeps its
    first precision: a resume reads it from the newest checkpoint and times nothing. All ranks must call this. Rank 0 decides
    for all ranks that have `auto`.
    """
    runtime = request.resolved.preset.runtime
    if request.dry_run and loop.ranks.world_size > 1:  # which are not connected
        return loop
    found, auto = loop.precision, runtime.precision == "auto"
    if auto and loop.ranks.is_main and loop.device.type == "cpu" and found == "bf16":
        if status != "new" and (facts := stored_facts(RunDirectory(request.output).checkpoints)):
            found = "fp32" if facts.get("precision") == "fp32" else "bf16"
        elif request.time_precision and not runtime.compile:  # compiling for both takes longer than a timing may
            started = time.perf_counter()
            if timing := time_precisions(loop):
                found = timing.faster
                seconds = time.perf_counter() - started
                yield Note(f"runtime.precision auto: {timing.in_words()} ({seconds:.1f} s of timing)")
    found = loop.ranks.broadcast(found)
    return replace(loop, precision=found) if auto else loop


@dataclass(frozen=True)
class Timing:
    """Median seconds of a step in each precision."""

    fp32: float
    bf16: float

    @property
    def faster(self) -> SettledPrecision:
        """The faster precision. It is fp32 unless bf16 is CLEARLY times as fast."""
        return "bf16" if self.fp32 > CLEARLY * self.bf16 else "fp32"

    @property
    def ratio(self) -> float:
        """The speed of the faster precision over that of the other one, at least 1."""
        return max(self.fp32 / self.bf16, self.bf16 / self.fp32)

    def in_words(self) -> str:
        """Return text with the faster precision and the ratio."""
        other = "fp32" if self.faster == "bf16" else "bf16"
        speed = f"{self.ratio:.2f} times" if self.ratio > CLEARLY else "about"
        return f"{self.faster}, {speed} as fast as {other} here"


def time_precisions(loop: TrainingLoop, timed: Timed | None = None) -> Timing | None:
    """Return the median seconds of a step of `loop` in each precision; None if the training is too short to time any.

    The steps take one typical batch, in both precisions by turns. `timed` returns the seconds of a step; None means
    `step_seconds`. Afterwards the model has no gradients, and torch's generator on the CPU has its earlier state.
    """
    timed = timed or step_seconds
    if loop.total_steps < FEWEST_STEPS:
        return None
    rows = _typical_batch(loop)[:: loop.ranks.world_size]
    fp32, bf16 = (replace(loop, ranks=SINGLE_PROCESS, precision=name) for name in ("fp32", "bf16"))
    with torch.random.fork_rng(devices=[]):
        spent = timed(bf16, rows)
        enough = SECONDS * torch.get_num_threads()
        limit = max(enough, SHARE * loop.total_steps * spent)
        if 4 * spent > limit:
            return None
        spent += timed(fp32, rows)  # the first steps are slower than all others
        turns: list[tuple[float, float]] = []
        while True:
            turns.append((timed(fp32, rows), timed(bf16, rows)))
            spent += sum(turns[-1])
            timing = Timing(*(median(seconds) for seconds in zip(*turns, strict=True)))
            settled = spent >= enough and (timing.ratio > OBVIOUS or len(turns) >= ROUNDS)
            if settled or spent + timing.fp32 + timing.bf16 > limit:
                return timing


def step_seconds(loop: TrainingLoop, rows: np.ndarray) -> float:
    """Return the CPU seconds of a forward and a backward pass on one batch. `rows` are the indices of its training rows."""
    started = time.process_time()
    loop.model.train()
    compute_gradients(loop, rows, seed_step(loop.seed, 0))
    seconds = time.process_time() - started
    loop.model.zero_grad()
    return seconds


def _typical_batch(loop: TrainingLoop) -> np.ndarray:
    """Return the row indices of the full batch whose longest row is nearest to the mean of the longest rows."""
    batches = list(islice(loop.batches(0), min(BATCHES, loop.steps_per_epoch)))
    full = [rows for rows in batches if len(rows) == max(map(len, batches))]
    longest = np.array([loop.objective.lengths[rows].max() for rows in full])
    return full[int(np.abs(longest - longest.mean()).argmin())]
