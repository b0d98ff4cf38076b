"""The request of `recur bench`: its arguments and options."""

from dataclasses import dataclass
from typing import Annotated

from recurcli.errors import UsageError, did_you_mean, escaped
from recurcli.requests.options import argument, device_option, flag, option

MODES = ("training", "inference", "step")
PRECISIONS = ("fp32", "bf16", "auto")
LONGEST = 1 << 20
"""The largest number of tokens in a row."""


@dataclass(frozen=True, kw_only=True)
class BenchRequest:
    """The options of `recur bench`. A list is a string such as "32,128".

    A setting is one combination of mode, precision and length. Raises UsageError for an option that no setting can have.
    """

    encoders: Annotated[list[str] | None, argument("ENCODER", "Encoders. Default: all.")] = None
    length: Annotated[str, option("N,…", "Tokens per row; a list.")] = "32,128"
    batch_size: Annotated[int, option("N", "Rows per batch.", min=1)] = 32
    hidden_size: Annotated[int | None, option("N", "Width of all. Default: 256.", min=1)] = None
    layers: Annotated[int, option("N", "Depth of all.", min=1)] = 4
    match_parameters: Annotated[
        str | None,
        option("N|PRESET", "In place of one width: so many parameters (800k, 3M), or as many as a preset's encoder."),
    ] = None
    precision: Annotated[str, option("NAME,…", "fp32, bf16 or auto: bf16 where the machine has it; a list.")] = "auto"
    mode: Annotated[
        str, option("NAME,…", "training, inference or both; or step: one token after --length N,… others.")
    ] = "training,inference"
    dropout: Annotated[float, option("P", "Dropout probability of encoders and peers.", min=0, max=0.99)] = 0.1
    rounds: Annotated[int, option("N", "Turns of each candidate.", min=1)] = 7
    peers: Annotated[bool, flag("--peers/--no-peers", "Whether the peers are measured too.")] = True
    device: Annotated[str, device_option] = "auto"

    def __post_init__(self) -> None:
        if self.match_parameters is not None and self.hidden_size is not None:
            raise UsageError("--match-parameters solves for the width, so it excludes --hidden-size; leave out one")
        if "step" in self.words("mode") and self.mode != "step":
            raise UsageError("--mode step measures causal encoders, so it excludes the other modes; run it alone")
        for number in self.words("length"):
            if not number.isdecimal() or not 1 <= int(number[:8]) <= LONGEST:
                raise UsageError(f"--length: '{escaped(number)}' is not a whole number from 1 to {LONGEST:,}")
        for name, known in (("precision", PRECISIONS), ("mode", MODES)):
            for word in self.words(name):
                if word not in known:
                    raise UsageError(f"--{name}: no '{escaped(word)}'" + did_you_mean(word, known))

    @property
    def lengths(self) -> list[int]:
        """The numbers of tokens per row in ascending order."""
        return sorted(map(int, self.words("length")))

    @property
    def width(self) -> int | None:
        """The hidden size of all candidates. None if each one has its own (`--match-parameters`)."""
        return None if self.match_parameters is not None else self.hidden_size or 256

    def words(self, name: str) -> list[str]:
        """Return the words of a list without repetitions."""
        return list(dict.fromkeys(word.strip() for word in getattr(self, name).split(",")))
