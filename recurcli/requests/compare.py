"""The request of `recur compare`: its arguments and options."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from recurcli.requests.options import argument, flag, option, reads


@dataclass(frozen=True, kw_only=True)
class CompareRequest:
    """The arguments and options of `recur compare`."""

    runs: Annotated[list[Path], reads(argument("RUN", "Run directories, or folders of them."))]
    part: Annotated[
        Literal["model", "encoder"],
        option(None, "What is compared where a run has an ensemble: the model, or its encoder alone."),
    ] = "model"
    split: Annotated[
        Literal["dev", "test", "test-long"],
        option(
            None,
            "Rows that are compared: those that chose the model, those of finetune --test, which chose nothing, or the longer "
            "ones of parity, recall and the like.",
        ),
    ] = "dev"
    metric: Annotated[
        str | None, option("NAME", "Metric, such as macro_f1 or f1:LABEL. Default: finetuning.metric.")
    ] = None
    pair_seeds: Annotated[
        bool,
        flag(
            "--pair-seeds",
            "Test groups by the differences of the runs of one seed. These share the order of the rows, which is all that "
            "encoders of different shapes share: their initial weights differ.",
        ),
    ] = False
    over: Annotated[
        str | None, option("KEY", "Also show the scores over a numeric key that differs, such as data.train_share.")
    ] = None
