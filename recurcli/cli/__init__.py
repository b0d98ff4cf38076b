"""The signatures and help of the commands. The work of the commands is in `commands/`."""

import sys
from importlib.util import find_spec

from recurcli.version import SYSTEMS

if find_spec("fcntl") is None:
    print(f"recur: error: {SYSTEMS}", file=sys.stderr)
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
