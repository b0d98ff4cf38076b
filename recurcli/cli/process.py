"""Run a command in this process: every error becomes an exit code and at most one line."""

import contextlib
import sys
import traceback

from recurcli import exits
from recurcli.cli.app import app
from recurcli.distributed import group
from recurcli.errors import last_line


def main() -> None:
    """Run the command line of this process and exit with its code."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run `arguments`. Returns the exit code; if it is not 0, one line is printed on stderr."""
    with exits.signals_as_errors() as received:
        try:
            exits.open_streams()
            group.join()
            code = app(arguments, prog_name="recur", standalone_mode=False)
            exits.flush_output()
            if code == 130:
                raise KeyboardInterrupt  # as which it began: Typer has made a number of it
            group.finish()
            return code if isinstance(code, int) else 0
        except BaseException as caught:
            if exits.is_closed_pipe(caught):
                group.report_failure(caught, exits.CLOSED_PIPE, "")
                exits.die_of_closed_pipe()
            error = received[0] if received else caught
            code, line = group.report_failure(error, *exits.explained(error))
            exits.drop_output()
            with contextlib.suppress(OSError):
                if line and "--debug" in arguments:
                    traceback.print_exc()
                if line:
                    print(last_line(code, line), file=sys.stderr)
            group.exit_group(code)
            return code
