"""The search space of `recur tune`: the notation of a range, and the ranges of a preset."""

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from recurcli.commands.training.trainer import check_encoder
from recurcli.encoders import encoder_class
from recurcli.errors import UsageError, escaped
from recurcli.preset import Preset
from recurcli.requests.tune import TuneRequest
from recurcli.validation import flatten, parse_config, parse_value

if TYPE_CHECKING:
    from optuna import Trial


DEFAULT_RANGES = (
    "finetuning.learning_rate=1e-4..3e-3:log",
    "encoder.dropout=0.0..0.5",
    "embedding.dropout=0.0..0.5",
    "finetuning.epochs=5..20:log",
    "finetuning.batch_size=16|32|64|128",
    "pooling=mean|max",
)
"""The default ranges, which are ours. They lie around the defaults of the presets, for a training from scratch on a few
thousand rows."""
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

    def suggest(self, trial: "Trial") -> Any:
        """Return the value that Optuna chooses for a trial, as the training takes it."""
        if self.scale == "choices":
            return trial.suggest_categorical(self.key, self.values)
        low, high = self.values
        if isinstance(low, int):
            return trial.suggest_int(self.key, low, high, log=self.scale == "log")
        value = trial.suggest_float(self.key, low, high, log=self.scale == "log")
        return min(max(float(f"{value:.{SIGNIFICANT_DIGITS}g}"), low), high)

    def contains(self, value: Any) -> bool:
        """Return whether `value` lies in the range."""
        if self.scale == "choices":
            return value in self.values
        return isinstance(value, int | float) and self.values[0] <= value <= self.values[1]


def parse_range(text: str) -> Range:
    """Return the range in `text`: KEY=LOW..HIGH, KEY=LOW..HIGH:log or KEY=A|B. Raises UsageError for anything else."""
    shown = f"--range {escaped(text)}"
    key, equals, written = (part.strip() for part in text.partition("="))
    if not equals or not key or not written:
        raise UsageError(f"{shown}: is not KEY=LOW..HIGH or KEY=A|B, such as finetuning.learning_rate=1e-4..3e-3:log")
    if "|" in written or ".." not in written:
        choices = [parse_value(part, shown) for part in written.split("|")]
        are_scalars = all(isinstance(choice, str | int | float) for choice in choices)
        if not are_scalars or len(set(choices)) < max(2, len(choices)):
            raise UsageError(f"{shown}: is not two or more words or numbers that differ; --set fixes one value")
        return Range(key, tuple(choices), "choices")
    ends, colon, scale = written.partition(":")
    low, high = (parse_value(part, shown) for part in ends.split("..", 1))
    are_numbers = all(type(value) in (int, float) and math.isfinite(value) for value in (low, high))
    if not are_numbers or low >= high or (colon and (scale != "log" or low <= 0)):
        raise UsageError(f"{shown}: is not LOW..HIGH, or LOW..HIGH:log with LOW above 0")
    return Range(key, (low, high), "log" if colon else "linear")


def ranges_of(request: TuneRequest) -> list[Range]:
    """Return the ranges of the request, else the default ranges whose keys the preset has and no option sets.

    Raises UsageError for a malformed range, for a key that is unknown or cannot be searched, and for a value that the preset
    rejects.
    """
    preset = request.resolved.preset
    if preset.is_linear:
        name = request.resolved.name
        raise UsageError(f"--preset: {name} has no encoder to tune; `recur finetune` chooses its `linear:` keys")
    fixed = tuple(f"{key}." for key in request.set_keys)
    ranges = [parse_range(text) for text in request.ranges or DEFAULT_RANGES]
    if not request.ranges:
        missing = {"encoder.dropout"} if "dropout" not in preset.encoder else set()
        missing |= {"finetuning.epochs"} if preset.finetuning.max_steps else set()
        ranges = [each for each in ranges if each.key not in missing and not f"{each.key}.".startswith(fixed)]
        if not ranges:
            raise UsageError("--set fixes every key that is searched by default; name others with --range")
    keys = [each.key for each in ranges]
    for key in keys:
        if keys.count(key) > 1 or f"{key}.".startswith(fixed):
            fault = "stands twice" if keys.count(key) > 1 else "--set fixes it"
            raise UsageError(f"--range {escaped(key)}: {fault}; keep one")
    return [_typed(request, each) for each in ranges]


def short_names(keys: Iterable[str]) -> dict[str, str]:
    """Return the last part of each key, or the whole key if another key ends in the same part."""
    keys = list(keys)
    last = [key.rpartition(".")[2] for key in keys]
    return {key: short if last.count(short) == 1 else key for key, short in zip(keys, last, strict=True)}


def _typed(request: TuneRequest, searched: Range) -> Range:
    """Return the range with numbers of the type of its key.

    Raises UsageError if the preset rejects one of the values, and for a key that is not searched.
    """
    shown, presets = f"--range {escaped(searched.key)}={escaped(searched)}", []
    for value in searched.values:
        try:
            resolved = request.compose({searched.key: (shown, value)})
            check_encoder(resolved)
        except UsageError as error:
            raise UsageError(str(error) if str(error).startswith(shown) else f"{shown}: {error}") from None
        presets.append(resolved.preset)
    if not searched.key.startswith(TUNED_SECTIONS) or searched.key in NOT_TUNED:
        fault = "is not searched: it has no effect on the dev metric, or changes what it means"
        raise UsageError(f"--range {searched.key}: {fault}")
    if searched.scale == "choices":
        return searched
    is_float = any(isinstance(_value_of(searched.key, preset), float) for preset in presets)
    return dataclasses.replace(searched, values=tuple(map(float, searched.values))) if is_float else searched


def _value_of(key: str, preset: Preset) -> Any:
    """Return the value of a key of a preset. A whole number is a float if the key takes floats."""
    keys = {key: value for key, value in preset.encoder.items() if key != "name"}
    encoder = parse_config(encoder_class(preset.encoder["name"]).Config, keys)
    return dict(flatten({**preset.to_dict(), "encoder": dataclasses.asdict(encoder)}))[tuple(key.split("."))]
