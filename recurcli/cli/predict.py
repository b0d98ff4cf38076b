"""The `recur predict` command."""

import sys

from recurcli.cli.app import command
from recurcli.requests.options import Debug, Quiet
from recurcli.requests.predict import PredictRequest


@command(
    "recur predict runs/starsaber-tnews texts.tsv > labels.tsv",
    "cut -f2 rows.tsv | recur predict runs/starsaber-tnews --no-header",
    "recur predict hf://me/packages@v1 new.csv --output labelled.csv",
)
def predict(request: PredictRequest, quiet: Quiet = False, debug: Debug = False) -> None:
    """Label the rows of files or of a pipe, one row out for each row in.

    Writes the input's columns, then `prediction` and, of one label a row, its `score`. A row that cannot be read keeps
    its place. Its label comes from the part that could be read, and the last column `reason` says what is wrong (a TSV
    from a pipe always has this column); --strict stops there instead. A FILE given as --output appears when it is
    complete. After a stop or a kill, the same command with --resume writes the remaining rows.
    """
    from recurcli.commands.predict import predict as run_predict
    from recurcli.display.screen import Screen

    rows_on_screen = str(request.output) == "-" and sys.stdout.isatty()
    with Screen(quiet=quiet, bar=not rows_on_screen) as log:
        run_predict(request, log)
