"""Words on the screen: the signatures and help of the commands. What they do stands in `commands/`."""

# The order of the imports is that of the commands in the help.
from recurcli.cli import pretrain, finetune, evaluate, predict, export, check, presets  # isort: skip
from recurcli.cli.app import app
from recurcli.cli.process import main, run

__all__ = ["app", "check", "evaluate", "export", "finetune", "main", "predict", "presets", "pretrain", "run"]
