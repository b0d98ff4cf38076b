"""The options of `recur tune`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recurcli.errors import check_not_both
from recurcli.preset import ResolvedPreset, compose


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
        object.__setattr__(self, "resolved", resolved)
        object.__setattr__(self, "folder", self.output or Path("runs") / f"{resolved.name}-tuned")

    def compose(self, overrides: Mapping[str, tuple[str, Any]]) -> ResolvedPreset:
        """Return the preset with the options of the study and then `overrides` applied.

        `overrides` maps a dotted key to its value and the name of the option that sets it. Raises UsageError with the place
        of a fault.
        """
        overrides = {**self.overrides, **overrides}
        return compose(self.preset, data=self.data, settings=self.settings, overrides=overrides, section="finetuning")
