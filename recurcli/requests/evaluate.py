"""The request of `recur eval`: its argument and options."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from recurcli.errors import UsageError, escaped
from recurcli.metrics import LABEL_METRICS, is_of_labels
from recurcli.requests.options import (
    Columns,
    Data,
    File,
    Inference,
    Verbose,
    argument,
    flag,
    option,
    reads,
    take_file,
)


@dataclass(frozen=True, kw_only=True)
class EvaluateRequest:
    """The argument and options of `recur eval`."""

    run: Annotated[
        Path,
        reads(
            argument(
                "RUN",
                "Run directory of `recur finetune`, or of a language model's `recur pretrain`; or hf://OWNER/NAME@REVISION.",
            ),
            hub=True,
        ),
    ]
    file: File = None
    split: Annotated[
        Literal["dev", "test", "test-long", "train"] | None,
        option(
            None,
            "Which rows to score; test-long: the longer ones of parity, recall and the like. Default: all rows of a FILE (or "
            "of label folders) that is given, else dev.",
        ),
    ] = None
    data: Data = None
    columns: Columns = field(default_factory=Columns)
    """A column that is None is that of the training."""
    drop_unknown: Annotated[
        bool,
        flag("--drop-unknown", "Leave out rows with a label that the model does not have, which count as mistakes."),
    ] = False
    diagnose: Annotated[bool, flag("--diagnose", "Measure distances and attention layer by layer.")] = False
    errors: Annotated[
        Path | None, option("FILE", "Write the rows that are predicted wrongly to this .tsv, the surest first.")
    ] = None
    report: Annotated[
        Path | None,
        option(
            "FILE",
            "Write a page with scores, curves, confusions, calibration and mistakes to this .html (needs [report]).",
        ),
    ] = None
    by: Annotated[str | None, option("COLUMN", "Scores by group: a column, text-length, or file of several.")] = None
    fit_thresholds: Annotated[
        str | None, option("METRIC", "Choose thresholds of the labels on the dev rows, as for f1:LABEL.")
    ] = None
    save: Annotated[bool, flag("--save", "Keep the thresholds in the run for all later use.")] = False
    overwrite: Annotated[bool, flag("--overwrite", "Replace existing files of --errors and --report.")] = False
    verbose: Verbose = False
    inference: Inference = field(default_factory=Inference)

    def __post_init__(self) -> None:
        take_file(self)
        given = [key for key, value in vars(self.columns).items() if value is not None]
        if given and self.data is None:
            raise UsageError(f"--{given[0].replace('_', '-')} belongs to the rows of --data; add --data PATH")
        if self.save and self.fit_thresholds is None:
            raise UsageError("--save keeps thresholds; choose them with --fit-thresholds METRIC")
        if self.fit_thresholds is not None:
            if not is_of_labels(self.fit_thresholds):
                known = ", ".join(LABEL_METRICS)
                raise UsageError(f"--fit-thresholds must be one of {known}, not '{escaped(self.fit_thresholds)}'")
            if self.data is not None or self.split not in (None, "dev"):
                raise UsageError("--fit-thresholds chooses on the dev rows of the run; leave out --data and --split")
