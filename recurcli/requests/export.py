"""The request of `recur export`: its arguments and options."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from recurcli.requests.options import OUTPUT, Data, Fast, Inference, argument, flag, option, reads


@dataclass(frozen=True, kw_only=True)
class ExportRequest:
    """The arguments and options of `recur export`."""

    runs: Annotated[
        list[Path],
        reads(
            argument("RUN", "Run directories, or hf://OWNER/NAME@REVISION; one zip for all, one of the other formats."),
            hub=True,
        ),
    ]
    output: Annotated[Path | None, option("PATH", "File or, for onnx and run, folder to write.", *OUTPUT)] = None
    format: Annotated[
        str | None,
        option(
            "NAME",
            "clue, a zip for CLUE's leaderboard: default for its tasks; onnx, a folder that predicts without torch; html, a "
            "page whose linear model labels texts in a browser; or run, a copy without the texts of rows: default with --push.",
        ),
    ] = None
    data: Data = None
    fast: Fast = False
    quantize: Annotated[Literal["int8"] | None, option(None, "Store the weights in 8 bits. For onnx.")] = None
    min_agreement: Annotated[
        float | None,
        option(
            "SHARE",
            "Refuse int8, or a page, below this share of dev rows whose labels stay, or of numbers' variance; default 0.98.",
            min=0,
            max=1,
        ),
    ] = None
    max_size: Annotated[
        float | None,
        option("MB", "For html: leave out n-grams with the smallest weights until it fits; default 5.", min=0.01),
    ] = None
    push: Annotated[str | None, option("OWNER/NAME", "Upload the folder of run or onnx to the Hugging Face Hub.")] = (
        None
    )
    public: Annotated[bool, flag("--public", "Let everybody read what --push uploads.")] = False
    license: Annotated[str | None, option("NAME", "License in the card that --push uploads.")] = None
    overwrite: Annotated[
        bool, flag("--overwrite", "Replace an existing output file. Of a folder: an earlier export.")
    ] = False
    inference: Inference = field(default_factory=Inference)
