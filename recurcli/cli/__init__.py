"""The signatures and help of the commands. The work of the commands is in `commands/`."""

import sys

if sys.platform == "win32":
    print("recur: error: recur runs on Linux and macOS; on Windows use WSL", file=sys.stderr)
    sys.exit(2)

# The order of the imports is that of the commands in the help.
from recurcli.cli import training, tune, evaluate, compare, predict, export, check, bench, presets  # isort: skip
from recurcli.cli.app import app, main, run

__all__ = [
    "app",
    "bench",
    "check",
    "compare",
    "evaluate",
    "export",
    "main",
    "predict",
    "presets",
    "run",
    "training",
    "tune",
]
