"""The `recur check` command."""

from recurcli.cli.app import command
from recurcli.errors import DataError, pluralize
from recurcli.requests.check import CheckRequest
from recurcli.requests.options import Debug, Json, Quiet


@command(
    "recur check $RECUR_DATA/tnews",
    "recur check rows.tsv --text review --label stars",
    "recur check --train a.csv --test b.csv",
    "recur check clue.zip",
    "recur check rows.tsv --suspects suspects.tsv",
)
def check(request: CheckRequest, json: Json = False, quiet: Quiet = False, debug: Debug = False) -> None:
    """Find faults in data files and CLUE submissions.

    Data: rows that cannot be used, texts in two splits or with two labels, near-duplicates, lengths, labels, invisible
    characters. Each PATH is checked by itself; the splits of a folder, and the files of --train, --dev and --test, are
    compared with each other. CLUE files and zips: why they would score 0. Exit code 3 where rows would be lost, a training on
    the files would stop or a file would score 0; warnings leave it 0.
    """
    from recurcli.commands.check import check as run_check
    from recurcli.display.check import print_check
    from recurcli.display.screen import Screen, print_result

    with Screen(quiet=quiet) as log:
        result = run_check(request, log)
    print_result(result, print_check, json=json)
    if result["errors"]:
        findings = (finding for report in result["reports"] for finding in report["findings"])
        first = next(finding["message"] for finding in findings if finding["level"] == "error")
        raise DataError(f"{pluralize(result['errors'], 'error', 'were')} found, the first: {first}")
