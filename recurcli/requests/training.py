"""The requests of `recur pretrain` and `recur finetune`: their options, and the preset that these give."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from recurcli.config import Section
from recurcli.errors import check_not_both, require_extra
from recurcli.requests.options import (
    OUTPUT,
    Computation,
    Data,
    Dev,
    File,
    Preset,
    Seed,
    Settings,
    TextColumns,
    Train,
    TrainedColumns,
    Verbose,
    flag,
    named_files,
    option,
    overrides_of,
    reads,
    take_file,
)

if TYPE_CHECKING:
    from recurcli.preset import ResolvedPreset

Tracker = StrEnum("Tracker", ["TENSORBOARD", "WANDB", "MLFLOW"])


@dataclass(frozen=True, kw_only=True)
class PresetRequest:
    """The options on the preset and its columns, which `recur tune` has too."""

    section: ClassVar[Section] = "finetuning"
    """The section of the preset that the command reads."""
    command: ClassVar[str] = "finetune"
    """The command that makes such a run."""
    preset: Preset
    data: Data = None
    settings: Settings = None
    seed: Seed = None
    columns: TextColumns = field(default_factory=TextColumns)

    @cached_property
    def overrides(self) -> Mapping[str, tuple[str, Any]]:
        """The keys that options set, as `compose` takes them. Raises UsageError for options that exclude each other."""
        options = {**vars(self), **self.columns.given()}
        files = named_files(self.data, train=options.get("train"), dev=options.get("dev"), test=options.get("test"))
        return overrides_of(self.section, self.settings or [], {**options, **files})

    def compose(self, overrides: Mapping[str, tuple[str, Any]]) -> "ResolvedPreset":
        """Return the preset with the options and then `overrides` applied.

        `overrides` maps a dotted key to the name of the option that sets it and its value. Raises UsageError with the place
        of a fault.
        """
        from recurcli.preset import compose

        overrides = {**self.overrides, **overrides}
        return compose(
            self.preset, data=self.data, settings=self.settings or [], overrides=overrides, section=self.section
        )

    @cached_property
    def resolved(self) -> "ResolvedPreset":
        """The preset with the options."""
        return self.compose({})


@dataclass(frozen=True, kw_only=True)
class LabelledRequest(PresetRequest):
    """The options on labelled rows, which `recur finetune` and `recur tune` share."""

    train: Train = None
    dev: Dev = None
    columns: TrainedColumns = field(default_factory=TrainedColumns)


@dataclass(frozen=True, kw_only=True)
class TrainingRequest(Computation, PresetRequest):
    """The options that `recur pretrain` and `recur finetune` share."""

    init: ClassVar[Path | None] = None
    verbose: Verbose = False
    output: Annotated[
        Path | None,
        option(
            "RUN", "Run directory to write. Default: runs/ and the name of FILE, of the preset, or of both.", *OUTPUT
        ),
    ] = None
    epochs: Annotated[str | None, option("N|auto", "Passes over the training rows: the key epochs of the preset.")] = (
        None
    )
    learning_rate: Annotated[
        float | None, option("RATE", "Largest learning rate: the key learning_rate of the preset.")
    ] = None
    match_parameters: Annotated[
        str | None,
        option(
            "N|PRESET",
            "Solve for encoder.hidden_size so that the encoder has N parameters (3000000, 3M, 800k), or as many as that "
            "of a preset, without the embedding. What --set gives stays; with encoder.hidden_size it is encoder.num_layers.",
        ),
    ] = None
    resume: Annotated[
        bool, flag("--resume", "Resume the run from its newest checkpoint; start it if there is none.")
    ] = False
    overwrite: Annotated[
        bool, flag("--overwrite", "Train anew; the run that is there stays until the new one is finished.")
    ] = False
    keep_checkpoints: Annotated[
        bool, flag("--keep-checkpoints", "Keep the newest checkpoints when the run is finished.")
    ] = False
    dry_run: Annotated[bool, flag("--dry-run", "Show the settings of the run and write nothing.")] = False
    track: Annotated[
        list[Tracker] | None, option("tensorboard|wandb|mlflow", "Tracker that gets the numbers; may be repeated.")
    ] = None

    def __post_init__(self) -> None:
        check_not_both(resume=self.resume, overwrite=self.overwrite)
        for tracker in self.track or ():
            require_extra(tracker, f"--track {tracker}", tracker)

    @cached_property
    def matching(self) -> "tuple[ResolvedPreset, Mapping[str, Any]] | None":
        """The preset with the size that `--match-parameters` gives its encoder, and the facts for result.json.

        None if the option is not given.
        """
        if self.match_parameters is None:
            return None
        from recurcli.preset.matching import match_parameters

        return match_parameters(self.compose({}), self.match_parameters)

    @cached_property
    def resolved(self) -> "ResolvedPreset":
        """The preset with the options."""
        return self.compose({}) if self.matching is None else self.matching[0]

    @property
    def folder(self) -> Path:
        """The run directory."""
        suffix = "-pretrained" if self.section == "pretraining" else ""
        return self.output or Path("runs") / f"{self.resolved.name}{suffix}"


@dataclass(frozen=True, kw_only=True)
class PretrainRequest(TrainingRequest):
    """The options of `recur pretrain`."""

    section, command = "pretraining", "pretrain"


@dataclass(frozen=True, kw_only=True)
class FinetuneRequest(TrainingRequest, LabelledRequest):
    """The options of `recur finetune`."""

    file: File = None
    preset: Preset = "starsaber-custom"
    columns: TrainedColumns = field(default_factory=TrainedColumns)  # TrainingRequest has those of texts alone
    test: Annotated[
        list[Path] | None,
        reads(
            option(
                "FILE",
                "File with labelled rows on which the chosen model is scored once, after the training; may be repeated. "
                "Default: the task's test rows, if they have labels.",
            )
        ),
    ] = None
    init: Annotated[  # type: ignore[misc]
        Path | None, reads(option("RUN", "Pretrained run to start from: its tokenizer and encoder."))
    ] = None
    teacher: Annotated[
        Path | None,
        reads(
            option(
                "FILE",
                "File with another model's soft labels of rows, as `recur predict --probabilities` writes them: the key "
                "finetuning.teacher. Rows without a label of their own are trained on too.",
            )
        ),
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        take_file(self)

    @property
    def folder(self) -> Path:
        """The run directory: runs/reviews for reviews.csv, and runs/reviews-bilstm-custom with another preset."""
        stem = self.file.resolve().name.partition(".")[0] if self.file and not self.output else ""
        if not stem:
            return super().folder
        return Path("runs") / (stem if self.preset == type(self).preset else f"{stem}-{self.resolved.name}")
