"""The request of `recur predict`: its arguments and options."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from recurcli.errors import UsageError, escaped
from recurcli.requests.options import OUTPUT, Fast, Inference, Run, TextColumns, argument, flag, option, reads

InputFormat = Literal["tsv", "csv", "jsonl", "fasttext", "parquet"]
OutputFormat = Literal["tsv", "csv", "jsonl", "parquet", "clue"]
STDIN = Path("-")


@dataclass(frozen=True, kw_only=True)
class PredictRequest:
    """The arguments and options of `recur predict`."""

    run: Run
    inputs: Annotated[
        list[Path] | None,
        reads(
            argument(
                "INPUT",
                "TSV, CSV, JSON lines, fastText (also compressed), Parquet or Excel; '-' is standard input. The rows of "
                "several files of the same format and columns follow each other.",
            ),
            stdin=True,
        ),
    ] = None
    output: Annotated[
        Path,
        option(
            "FILE",
            "File to write, in the format of its ending: .tsv, .csv or .jsonl, each also with .gz or .zst, or .parquet; "
            "'-' is standard output.",
            *OUTPUT,
        ),
    ] = Path("-")
    format: Annotated[
        OutputFormat | None,
        option(
            None,
            "Format of the output. Default: from the ending of --output, else that of the input; jsonl for "
            "Parquet and fastText.",
        ),
    ] = None
    input_format: Annotated[
        InputFormat | None,
        option(
            None, "Format of the input. Default: from the file name, else detected; a CSV in a pipe is not detected."
        ),
    ] = None
    shard: Annotated[
        str | None,
        option(
            "I/N",
            "Label part I of N of a file, or of a list of files. The N outputs, joined by cat in their order, are that of "
            "all rows; of several files each is in one part, and each part of Parquet is a file of its own.",
        ),
    ] = None
    columns: TextColumns = field(default_factory=TextColumns)
    probabilities: Annotated[bool, flag("--probabilities", "Add the probability of each label.")] = False
    output_columns: Annotated[
        str | None,
        option(
            "NAME[=NEW],…",
            "Columns of the output in this order, each under its own or a new name; default: all.",
            "--columns",
        ),
    ] = None
    top_k: Annotated[int | None, option("K", "Add the K best labels with their probabilities.", min=1)] = None
    threshold: Annotated[
        float | None,
        option(
            "SCORE",
            "Leave `prediction` empty where the score is lower; of several labels, give all that have this probability.",
            min=0,
            max=1,
        ),
    ] = None
    strict: Annotated[bool, flag("--strict", "Stop at a row that cannot be read.")] = False
    unbuffered: Annotated[
        bool, flag("--unbuffered", "Predict each row of a pipe as it comes; default on a terminal.")
    ] = False
    explain: Annotated[
        bool,
        flag(
            "--explain",
            "Add the parts of the row with the largest share in the linear model's score of its label, labels or number.",
        ),
    ] = False
    fast: Fast = False
    resume: Annotated[
        bool, flag("--resume", "Continue a stopped prediction to --output; start it if there is none.")
    ] = False
    overwrite: Annotated[bool, flag("--overwrite", "Replace an existing output file.")] = False
    inference: Inference = field(default_factory=Inference)

    def __post_init__(self) -> None:
        number, parts = self.part
        if not 1 <= number <= parts:
            raise UsageError(f"--shard {escaped(self.shard)}: is not I/N with I from 1 to N, such as 2/8")
        if self.shard is not None and STDIN in self.sources:
            raise UsageError("--shard takes a part of a file, and a pipe has no parts; name the file")
        if len(self.sources) > 1 and STDIN in self.sources:
            raise UsageError("standard input cannot be one of several inputs; write it to a file")
        if not all(map(all, self.picked)) or len({new for _, new in self.picked}) < len(self.picked):
            raise UsageError(
                f"--columns {escaped(self.output_columns)}: needs names that differ, such as id,prediction=target"
            )

    @property
    def sources(self) -> list[Path]:
        """The inputs, or standard input."""
        return self.inputs or [STDIN]

    @property
    def picked(self) -> list[tuple[str, str]]:
        """The columns that the output has, and their names in it; [] stands for all."""
        parts = [] if self.output_columns is None else [part.partition("=") for part in self.output_columns.split(",")]
        return [(name, new if mark else name) for name, mark, new in parts]

    @property
    def part(self) -> tuple[int, int]:
        """I and N of `shard`: part 1 of 1 where it is not given, part 0 for a text that is not I/N."""
        if self.shard is None:
            return 1, 1
        found = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", self.shard)
        return (int(found[1]), int(found[2])) if found else (0, 0)
