"""The request of `recur tune`: its arguments and options."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from recurcli.errors import UsageError, check_not_both
from recurcli.metrics import words_of
from recurcli.requests.options import OUTPUT, flag, option
from recurcli.requests.training import LabelledRequest


@dataclass(frozen=True, kw_only=True)
class TuneRequest(LabelledRequest):
    """The arguments and options of `recur tune`."""

    trials: Annotated[int, option("N", "Number of trials, with those before a --resume.", min=1)] = 20
    ranges: Annotated[
        list[str] | None,
        option(
            "KEY=VALUES",
            "A key and the values to choose among: KEY=LOW..HIGH, KEY=LOW..HIGH:log or KEY=A|B; may be repeated. "
            "Default (ours): finetuning.learning_rate=1e-4..3e-3:log, encoder.dropout=0..0.5, embedding.dropout=0..0.5, "
            "finetuning.epochs=5..20:log, finetuning.batch_size=16|32|64|128 and pooling=mean|max, without what --set fixes. "
            "Without an encoder: n-grams and C of the linear model.",
            "--range",
        ),
    ] = None
    output: Annotated[
        Path | None,
        option("FOLDER", "Folder to write. Default: runs/ and the name of the preset with -tuned.", *OUTPUT),
    ] = None
    storage: Annotated[
        str | None,
        option(
            "URL",
            "Database of a study that several workers share, such as postgresql://host/db or sqlite:////data/study.db: start "
            "the same command again with another --output. Such a study does not repeat.",
        ),
    ] = None
    resume: Annotated[bool, flag("--resume", "Continue the study; the trial that was interrupted is run again.")] = (
        False
    )
    overwrite: Annotated[bool, flag("--overwrite", "Replace the study in the folder.")] = False
    keep_runs: Annotated[bool, flag("--keep-runs", "Keep the run directories of the trials.")] = False

    def __post_init__(self) -> None:
        check_not_both(resume=self.resume, overwrite=self.overwrite)
        if self.storage and self.overwrite:
            raise UsageError(
                "--storage and --overwrite exclude each other, since other workers use the study; leave out one"
            )

    @property
    def folder(self) -> Path:
        """The folder of the study."""
        return self.output or Path("runs") / f"{self.resolved.name}-tuned"

    @property
    def of_encoder(self) -> bool:
        """Whether a trial is scored by its encoder; else by what it keeps of encoder and linear model, on held-out rows."""
        return self.resolved.preset.ensemble is None

    @property
    def is_by_loss(self) -> bool:
        """Whether a trial is scored by the loss of held-out rows, since nothing sets `finetuning.metric`."""
        return not self.of_encoder and self.resolved.preset.finetuning.metric == "auto"

    def score_in_words(self, metric: str) -> str:
        """Return what the score of a trial by the `metric` is."""
        words = words_of(metric)
        if self.resolved.preset.is_linear:
            return f"{words} of the linear model on held-out rows"
        held_out = f"{words} of the ensemble on held-out halves of the dev rows"
        return f"dev {words} of the encoder alone, without ensemble" if self.of_encoder else held_out

    @property
    def set_keys(self) -> list[str]:
        """The keys, or whole sections, that options set."""
        return [*(setting.partition("=")[0].strip() for setting in self.settings or []), *self.overrides]
