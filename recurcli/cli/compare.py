"""The `recur compare` command: its options and help."""

from pathlib import Path
from typing import Annotated

from recurcli.cli.app import command
from recurcli.requests.compare import CompareRequest
from recurcli.requests.options import OUTPUT, Debug, Json, Quiet, flag, option


@command(
    "recur compare runs/",
    "recur compare runs/starsaber-* runs/transformer-* --part encoder --output table.md",
    "recur compare runs/shares --over data.train_share --plot shares.png",
)
def compare(
    *,
    request: CompareRequest,
    output: Annotated[Path | None, option("FILE", "Also write the table: .md, .csv or .json.", *OUTPUT)] = None,
    report: Annotated[
        Path | None,
        option(
            "FILE",
            "Also write a page with scores, curves, tests and the rows that differ to this .html (needs [report]).",
        ),
    ] = None,
    plot: Annotated[
        Path | None, option("FILE", "Draw the scores over the key of --over into this .png, .svg or .pdf.")
    ] = None,
    overwrite: Annotated[bool, flag("--overwrite", "Replace an existing --output, --plot or --report.")] = False,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Compare finished runs by preset, over their seeds.

    Runs whose presets differ in the seed alone are a group: mean, standard deviation and best of the metric, size
    and speed. Each pair of groups is tested on the stored predictions of the dev or test rows, by Tango's score test for
    accuracies of one seed each, else by a paired bootstrap over rows and seeds, with Holm's correction. Causal language
    models are compared by the perplexity of their dev text. Runs that are not finished are listed with their steps. The
    last lines are the verdict: which groups are shown to differ, or with --over whether larger values help.
    """
    from recurcli.commands.compare import compare as run_compare
    from recurcli.display.comparison import TABLE, print_comparison, write_plot, write_report, write_table
    from recurcli.display.screen import Screen, print_result
    from recurcli.errors import UsageError
    from recurcli.files import PLOT, REPORT, check_writable
    from recurcli.runs.run_directory import contents_of

    read = [file for run in request.runs for file in contents_of(run)]
    if plot is not None and request.over is None:
        raise UsageError("--plot draws the scores over a key; name it with --over, such as --over data.train_share")
    for name, path, kind in (("--output", output, TABLE), ("--plot", plot, PLOT), ("--report", report, REPORT)):
        if path is not None:
            check_writable(path, kind, overwrite=overwrite, option=name, inputs=read)
    with Screen(quiet=quiet) as log:
        result = run_compare(request, log)
        if output is not None:
            write_table(output, result)
            log.note(f"{output}: written")
        print_result(result, print_comparison, json=json)
        for path, write in ((plot, write_plot), (report, write_report)):
            if path is not None:
                write(path, result)
                log.note(f"{path}: written")
