"""The request of `recur tune`: its arguments and options."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recurcli.errors import check_not_both
from recurcli.requests.options import Columns, Data, Dev, Preset, Seed, Settings, Train, named_files, overrides_of

if TYPE_CHECKING:
    from recurcli.preset import ResolvedPreset


@dataclass(frozen=True, kw_only=True)
class TuneRequest:
    """The arguments and options of `recur tune`."""

    preset: Preset
    data: Data = None
    train: Train = None
    dev: Dev = None
    columns: Columns = field(default_factory=Columns)
    trials: Annotated[int, typer.Option(help="Number of trials, with those before a --resume.", min=1, metavar="N")] = (
        20
    )
    ranges: Annotated[
        list[str] | None,
        typer.Option(
            "--range",
            help="A key and the values to choose among: KEY=LOW..HIGH, KEY=LOW..HIGH:log or KEY=A|B; may be repeated. "
            "Default (ours): finetuning.learning_rate=1e-4..3e-3:log, encoder.dropout=0..0.5, embedding.dropout=0..0.5, "
            "finetuning.epochs=5..20:log, finetuning.batch_size=16|32|64|128 and pooling=mean|max, without what --set fixes.",
            metavar="KEY=VALUES",
        ),
    ] = None
    output: Annotated[
        Path | None,
        typer.Option(help="Folder to write. Default: runs/ and the name of the preset with -tuned.", metavar="FOLDER"),
    ] = None
    settings: Settings = None
    seed: Seed = None
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the study; the trial that was interrupted is run again.")
    ] = False
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the study in the folder.")] = False
    keep_runs: Annotated[bool, typer.Option("--keep-runs", help="Keep the run directories of the trials.")] = False

    def __post_init__(self) -> None:
        check_not_both(resume=self.resume, overwrite=self.overwrite)

    @cached_property
    def overrides(self) -> Mapping[str, tuple[str, object]]:
        """The keys that options set, as `compose` takes them. Raises UsageError for options that exclude each other."""
        files = named_files(self.data, train=self.train, dev=self.dev)
        return overrides_of("finetuning", self.settings or [], {**self.columns.given(), "seed": self.seed, **files})

    def compose(self, overrides: Mapping[str, tuple[str, Any]]) -> "ResolvedPreset":
        """Return the preset with the options of the study and then `overrides` applied.

        `overrides` maps a dotted key to its value and the name of the option that sets it. Raises UsageError with the place
        of a fault.
        """
        from recurcli.preset import compose

        overrides = {**self.overrides, **overrides}
        return compose(
            self.preset, data=self.data, settings=self.settings or [], overrides=overrides, section="finetuning"
        )

    @cached_property
    def resolved(self) -> "ResolvedPreset":
        """The preset with the options of the study."""
        return self.compose({})

    @property
    def folder(self) -> Path:
        """The folder of the study."""
        return self.output or Path("runs") / f"{self.resolved.name}-tuned"

    @property
    def set_keys(self) -> list[str]:
        """The keys, or whole sections, that options set."""
        return [*(setting.partition("=")[0].strip() for setting in self.settings or []), *self.overrides]
