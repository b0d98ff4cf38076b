"""The request of `recur tune`: its options, the ranges that it searches, their notation, and those of a preset."""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from recurcli.commands.training.trainer import check_encoder
from recurcli.encoders import encoder_class
from recurcli.errors import UsageError, check_not_both, escaped
from recurcli.preset import Preset, ResolvedPreset, compose
from recurcli.validation import parse_value, section_of

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution


@dataclass(frozen=True)
class TuningRequest:
    """The options of `recur tune`."""

    preset: str
    data: Path | None = None
    trials: int = 20
    """The number of all trials of the study, also after a resume."""
    output: Path | None = None
    """The folder of the study; None: runs/ and the name of the preset with `-tuned`."""
    ranges: Sequence[str] = ()
    settings: Sequence[str] = ()
    overrides: Mapping[str, tuple[str, Any]] = field(default_factory=dict)
    """The keys that options set, as `compose` takes them."""
    resume: bool = False
    overwrite: bool = False
    keep_runs: bool = False
    """Whether the run directories of the trials stay."""
    resolved: ResolvedPreset = field(init=False)
    folder: Path = field(init=False)

    def __post_init__(self) -> None:
        check_not_both(resume=self.resume, overwrite=self.overwrite)
        resolved = self.compose({})
        if resolved.preset.is_linear:
            raise UsageError(
                f"--preset: {resolved.name} has no encoder to tune; `recur finetune` chooses its `linear:` keys"
            )
        object.__setattr__(self, "resolved", resolved)
        object.__setattr__(self, "folder", self.output or Path("runs") / f"{resolved.name}-tuned")

    def compose(self, overrides: Mapping[str, tuple[str, Any]]) -> ResolvedPreset:
        """Return the preset with the options of the study and then `overrides` applied.

        `overrides` maps a dotted key to its value and the name of the option that sets it. Raises UsageError with the place
        of a fault.
        """
        overrides = {**self.overrides, **overrides}
        return compose(self.preset, data=self.data, settings=self.settings, overrides=overrides, section="finetuning")


DEFAULT_RANGES = (
    "finetuning.learning_rate=1e-4..3e-3:log",
    "encoder.dropout=0.0..0.5",
    "embedding.dropout=0.0..0.5",
    "finetuning.epochs=1..20:log",
    "finetuning.batch_size=16|32|64|128",
    "pooling=mean|max",
)
"""The default ranges, which are ours. They lie around the defaults of the presets, for a training from scratch on a few
thousand rows; that of the epochs begins at half the preset's (`ranges_around`)."""
EPOCHS = "finetuning.epochs"
TUNED_SECTIONS = ("encoder.", "embedding.", "tokenizer.", "finetuning.", "pooling", "pair_pooling", "data.max_length")
"""The beginnings of the keys that may be searched. Other keys have no effect, or they change the rows or the seed."""
NOT_TUNED = ("finetuning.metric", "finetuning.score_test", "finetuning.linear_baseline")
SIGNIFICANT_DIGITS = 3
"""The number of digits of a sampled number in the training. Few digits make the best preset readable."""


@dataclass(frozen=True)
class Range:
    """The values of one key among which a study chooses."""

    key: str
    values: tuple[Any, ...]
    """The smallest and the largest number, or the choices."""
    scale: Literal["linear", "log", "choices"]

    def __str__(self) -> str:
        if self.scale == "choices":
            return "|".join(str(value) for value in self.values)
        return f"{self.values[0]}..{self.values[1]}{':log' if self.scale == 'log' else ''}"

    def distribution(self) -> "BaseDistribution":
        """Return the range as a distribution of Optuna."""
        from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

        if self.scale == "choices":
            return CategoricalDistribution(self.values)
        low, high = self.values
        kind = IntDistribution if isinstance(low, int) else FloatDistribution
        return kind(low, high, log=self.scale == "log")

    def contains(self, value: Any) -> bool:
        """Return whether `value` lies in the range."""
        if self.scale == "choices":
            return value in self.values
        return isinstance(value, int | float) and self.values[0] <= value <= self.values[1]

    def rounded(self, value: Any) -> Any:
        """Return a sampled value as the training takes it. A float has SIGNIFICANT_DIGITS digits and stays in the range."""
        if self.scale == "choices" or not isinstance(value, float):
            return value
        low, high = self.values
        return min(max(float(f"{value:.{SIGNIFICANT_DIGITS}g}"), low), high)


def parse_range(text: str) -> Range:
    """Return the range in `text`: KEY=LOW..HIGH, KEY=LOW..HIGH:log or KEY=A|B. Raises UsageError for anything else."""
    shown = f"--range {escaped(text)}"
    key, equals, written = (part.strip() for part in text.partition("="))
    if not equals or not key or not written:
        raise UsageError(f"{shown}: is not KEY=LOW..HIGH or KEY=A|B, such as finetuning.learning_rate=1e-4..3e-3:log")
    if "|" in written or ".." not in written:
        choices = [parse_value(part, shown) for part in written.split("|")]
        if not all(isinstance(choice, str | int | float) for choice in choices):
            raise UsageError(f"{shown}: each choice is a word or a number")
        if len(set(choices)) < max(2, len(choices)):
            way_out = f"write LOW..HIGH or A|B, or fix the value by --set {escaped(text)}"
            raise UsageError(f"{shown}: {'is one value' if len(choices) < 2 else 'names a choice twice'}; {way_out}")
        return Range(key, tuple(choices), "choices")
    ends, colon, scale = written.partition(":")
    if colon and scale != "log":
        raise UsageError(f"{shown}: '{escaped(scale)}' is no scale; write LOW..HIGH:log, or LOW..HIGH")
    values = [parse_value(part, shown) for part in ends.split("..", 1)]
    if not all(type(value) in (int, float) and math.isfinite(value) for value in values):
        raise UsageError(f"{shown}: both ends must be numbers")
    if not values[0] < values[1]:
        raise UsageError(f"{shown}: the range is empty; the first number must be below the second")
    if colon and values[0] <= 0:
        raise UsageError(f"{shown}: a logarithmic range starts above 0")
    return Range(key, tuple(values), "log" if colon else "linear")


def ranges_of(request: TuningRequest) -> list[Range]:
    """Return the ranges of the request, else the default ranges whose keys the preset has and no option sets.

    Raises UsageError for a malformed range, for a key that is unknown or cannot be searched, and for a value that the preset
    rejects.
    """
    preset = request.resolved.preset
    keys = [*(setting.partition("=")[0].strip() for setting in request.settings), *request.overrides]
    fixed = tuple(f"{key}." for key in keys)  # of keys, or of whole sections
    if request.ranges:
        ranges = [parse_range(text) for text in request.ranges]
    else:
        missing = {"encoder.dropout"} if "dropout" not in preset.encoder else set()
        missing |= {EPOCHS} if preset.finetuning.max_steps else set()
        ranges = [each for each in map(parse_range, DEFAULT_RANGES) if each.key not in missing]
        ranges = [each for each in ranges if not f"{each.key}.".startswith(fixed)]
        if not ranges:
            raise UsageError("--set fixes every key that is searched by default; name others with --range")
    keys = [each.key for each in ranges]
    for place, key in enumerate(keys):
        if f"{key}.".startswith(fixed) or key in keys[:place]:
            raise UsageError(
                f"--range {escaped(key)}: {'stands twice' if key in keys[:place] else '--set fixes it'}; keep one"
            )
    for each in ranges:
        shown = f"--range {escaped(each.key)}={escaped(each)}"
        for value in each.values:
            try:
                check_encoder(request.compose({each.key: (shown, value)}))
            except UsageError as error:
                raise UsageError(str(error) if str(error).startswith(shown) else f"{shown}: {error}") from None
    return [_typed(each, str(preset.encoder["name"])) for each in ranges]


def ranges_around(request: TuningRequest, ranges: Sequence[Range], results: Sequence[Mapping[str, Any]]) -> list[Range]:
    """Return the ranges for the trials after `results`, the first of which is the preset's.

    The default range of the epochs begins at half the preset's [ours]: a training of one epoch in place of twenty has seen too
    little. A range of the request stays as it is.
    """
    epochs = results[0]["settings"].get(EPOCHS) if results and not request.ranges else None
    if not isinstance(epochs, int):
        return list(ranges)
    return [
        dataclasses.replace(each, values=(-(-epochs // 2), max(epochs, each.values[1]))) if each.key == EPOCHS else each
        for each in ranges
    ]


def short_names(keys: Iterable[str]) -> dict[str, str]:
    """Return the last part of each key, or the whole key if another key ends in the same part."""
    keys = list(keys)
    last = [key.rpartition(".")[2] for key in keys]
    return {key: short if last.count(short) == 1 else key for key, short in zip(keys, last, strict=True)}


def _typed(searched: Range, encoder: str) -> Range:
    """Return the range with numbers of the type of its key. Raises UsageError if the key takes none, or is not searched."""
    shown = f"--range {searched.key}"
    if not searched.key.startswith(TUNED_SECTIONS) or searched.key in NOT_TUNED:
        raise UsageError(f"{shown}: is not searched: it has no effect on the dev metric, or changes what it means")
    if searched.scale == "choices":
        return searched
    kind = _number_type(searched.key, encoder)
    if kind is None:
        raise UsageError(f"{shown}: takes no range of numbers; name choices: {escaped(searched.key)}=A|B")
    if kind is int and not all(isinstance(value, int) for value in searched.values):
        raise UsageError(f"{shown}: takes whole numbers, not {searched}")
    return dataclasses.replace(searched, values=tuple(map(kind, searched.values)))


def _number_type(key: str, encoder: str) -> type[int] | type[float] | None:
    """Return the type of the numbers that a key of a preset takes, or None if it takes none."""
    kind: Any = Preset
    for part in key.split("."):
        if kind is Preset and part == "encoder":
            kind = encoder_class(encoder).Config
            continue
        kind = {field.name: field.type for field in dataclasses.fields(kind)}.get(part)
        kind = section_of(kind) or kind
        if not dataclasses.is_dataclass(kind):
            break
    members = (kind, *get_args(kind))
    return float if float in members else int if int in members else None
