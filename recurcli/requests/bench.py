"""The request of `recur bench`: its arguments and options."""

from dataclasses import dataclass
from typing import Annotated, Literal

from recurcli.errors import UsageError, did_you_mean, escaped
from recurcli.requests.options import argument, device_option, flag, option

MODES = ("training", "inference", "step")
PRECISIONS = ("fp32", "bf16", "auto")
HIDDEN_SIZE, LAYERS, DROPOUT = 256, 4, 0.1
"""The width, depth and dropout if neither an option nor a preset gives them. They are the defaults of the encoders."""
LARGEST = 1 << 20
"""The largest number in a list of widths, depths, batch sizes or lengths."""


@dataclass(frozen=True, kw_only=True)
class BenchRequest:
    """The options of `recur bench`. A list is a string such as "32,128".

    A setting is one combination of mode, precision, width, depth, batch size and length. Raises UsageError for an option
    that no setting can have.
    """

    encoders: Annotated[list[str] | None, argument("ENCODER", "Encoders. Default: that of --preset, else all.")] = None
    preset: Annotated[str | None, option("NAME|FILE", "Also measure the encoder of this preset with its settings.")] = (
        None
    )
    length: Annotated[str, option("N,…", "Tokens per row; a list.")] = "32,128"
    batch_size: Annotated[str, option("N,…", "Rows per batch; a list.")] = "32"
    hidden_size: Annotated[str | None, option("N,…", "Width of all; a list. Default: the preset's, else 256.")] = None
    layers: Annotated[str | None, option("N,…", "Depth of all; a list. Default: the preset's, else 4.")] = None
    match_parameters: Annotated[
        str | None,
        option(
            "N|PRESET",
            "In place of one width for all, solve for the width that gives each as many parameters (800k, 3M), or as "
            "many as the encoder of a preset.",
        ),
    ] = None
    precision: Annotated[
        str, option("NAME,…", "fp32, bf16 or auto, which is bf16 where the machine supports it; a list.")
    ] = "auto"
    mode: Annotated[
        str,
        option(
            "NAME,…",
            "training, inference or both; or step: causal encoders one token at a time, after --length N,… tokens.",
        ),
    ] = "training,inference"
    dropout: Annotated[
        float | None,
        option("P", "Dropout probability of encoders and peers. Default: the preset's, else 0.1.", min=0, max=0.99),
    ] = None
    attention_dropout: Annotated[
        float,
        option("P", "The same on the attention weights, of the peers and the encoders that have it.", min=0, max=0.99),
    ] = 0.0
    rounds: Annotated[int, option("N", "Turns of each candidate.", min=1)] = 7
    peers: Annotated[bool, flag("--peers/--no-peers", "Whether the peers are measured too.")] = True
    device: Annotated[str, device_option] = "auto"

    def __post_init__(self) -> None:
        if self.match_parameters is not None and self.hidden_size is not None:
            raise UsageError("--match-parameters solves for the width, so it excludes --hidden-size; leave out one")
        if "step" in self.words("mode") and self.words("mode") != ["step"]:
            raise UsageError("--mode step measures causal encoders, so it excludes the other modes; run it alone")
        for numbers in ("length", "batch_size", "hidden_size", "layers"):
            self.numbers(numbers)
        for words, known in (("precision", PRECISIONS), ("mode", MODES)):
            for word in self.words(words):
                if word not in known:
                    raise UsageError(f"--{words}: no '{escaped(word)}'" + did_you_mean(word, known))

    def numbers(self, name: Literal["length", "batch_size", "hidden_size", "layers"]) -> list[int]:
        """Return the numbers of a list in ascending order, [] if it is not given."""
        for number in (words := self.words(name)):
            if not number.isdecimal() or len(number) > 7 or not 1 <= int(number) <= LARGEST:
                option, way_out = f"--{name.replace('_', '-')}", "a list is written 32,128"
                raise UsageError(
                    f"{option}: '{escaped(number)}' is not a whole number from 1 to {LARGEST:,}; {way_out}"
                )
        return sorted({int(number) for number in words})

    def words(self, name: str) -> list[str]:
        """Return the words of a list without repetitions, [] if it is not given."""
        text = getattr(self, name)
        return [] if text is None else list(dict.fromkeys(word.strip() for word in text.split(",")))
