"""The `recur eval` command: its options and help."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from recurcli.cli.app import command
from recurcli.requests.options import Columns, Computation, Data, Debug, Json, Quiet


@command("recur eval runs/starsaber-tnews --data $RECUR_DATA --json", name="eval")
def evaluate(
    *,
    run: Annotated[
        Path,
        typer.Argument(
            help="Run directory of `recur finetune`, or of a language model's `recur pretrain`.", metavar="RUN"
        ),
    ],
    split: Annotated[
        Literal["dev", "test", "train"] | None,
        typer.Option(
            help="Which rows to score. Default: all rows of a file (or of label folders) given with --data, else dev."
        ),
    ] = None,
    data: Data = None,
    columns: Columns,
    diagnose: Annotated[
        bool, typer.Option("--diagnose", help="Measure distances and attention layer by layer.")
    ] = False,
    plots: Annotated[
        Path | None,
        typer.Option(help="Draw the diagnosis into this .png, .svg or .pdf (needs [report]).", metavar="FILE"),
    ] = None,
    errors: Annotated[
        Path | None,
        typer.Option(help="Write the rows that are predicted wrongly to this .tsv, the surest first.", metavar="FILE"),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            help="Write a page with scores, curves, confusions, calibration and mistakes to this .html (needs [report]).",
            metavar="FILE",
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace existing files of --plots, --errors and --report.")
    ] = False,
    json: Json = False,
    computation: Computation,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Score a classifier on labelled rows, or a language model.

    Of a classifier, prints accuracy, precision, recall and F1 by class, MCC with 95 % intervals, loss, calibration, and the
    confusion table; of a language model (`recur pretrain` with the causal objective) the perplexity, in windows as long as in
    training. Computes in fp32 unless --precision says otherwise, as all that reads a run does. A file given
    with --data is scored whole, and the numbers of training and dev rows among its rows are reported; with --split dev or
    train, the file that the run was trained on is divided as in training. The columns and the encoding of --data are those of
    the training, unless --text, --pair, --label or --encoding name others.
    """
    from recurcli.commands.evaluate import ERRORS, EvaluationRequest
    from recurcli.commands.evaluate import evaluate as run_evaluate
    from recurcli.display.report.page import REPORT
    from recurcli.files import PLOT, check_writable
    from recurcli.runs.run_directory import contents_of

    read = [*contents_of(run), *([] if data is None else [data])]
    for option, path, kind in (("--plots", plots, PLOT), ("--errors", errors, ERRORS), ("--report", report, REPORT)):
        if path is not None:
            check_writable(path, kind, overwrite=overwrite, option=option, inputs=read)
    request = EvaluationRequest(
        run=run,
        split=split,
        data=data,
        columns=columns.given(),
        **computation.given(),
        diagnosed=diagnose or report is not None,
        plots=plots,
        errors=errors,
        report=_writer(report),
    )
    from recurcli.display import diagnosis, evaluation, progress, tables

    with progress.Screen(quiet=quiet) as log:
        result = run_evaluate(request, log)
    if report is not None and result:  # one process of several has it
        progress.tell_written(report, quiet=quiet)
    if json:
        tables.print_json(result)
    elif "perplexity" in result:
        evaluation.print_perplexity(result)
    elif result:
        evaluation.print_evaluation(result)
    if diagnose and not json and result and result["diagnosis"]:
        diagnosis.print_diagnosis(result["diagnosis"])


def _writer(report: Path | None) -> Callable[..., Any] | None:
    """Return the function that writes the page of an evaluation to `report`, or None without --report."""
    if report is None:
        return None
    from recurcli.display.report.evaluation import write_report

    return partial(write_report, report)
