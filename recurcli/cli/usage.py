"""The line of a usage error: Typer's message, and the command, option or key that was meant."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from recurcli.errors import escaped

OTHER_COMMANDS = {
    **dict.fromkeys(("train", "fit", "fine-tune", "classify"), "finetune"),
    **dict.fromkeys(("evaluate", "test", "score"), "eval"),
    **dict.fromkeys(("infer", "inference", "label"), "predict"),
    **dict.fromkeys(("validate", "lint"), "check"),
    **dict.fromkeys(("benchmark", "speed", "profile"), "bench"),
    **dict.fromkeys(("preset", "list", "show", "config"), "presets"),
}
"""Maps the name of a command in other tools to ours."""


OTHER_OPTIONS = {"model": "preset", "model_name_or_path": "preset", "config": "preset", "train_file": "train"}
"""Maps the name of an option in other tools to ours."""


def usage_line(error: Any, arguments: Sequence[str] = ()) -> str:
    """Return Typer's message about a wrong command or option on one line, with the command that prints the help.

    `arguments` are those of the command line, for errors that do not say their command.
    """
    context = getattr(error, "ctx", None)
    message: str = error.format_message().replace("Value error, ", "").rstrip(".")
    command = re.match(r"No such command '(.*?)'", message)
    meant = f"'{OTHER_COMMANDS[command[1]]}'" if command and command[1] in OTHER_COMMANDS else ""
    if hasattr(error, "option_name") and hasattr(error, "possibilities"):
        meant = _option_meant(error.option_name, context)
    elif extra := _extra_argument(message, context, arguments):
        meant = _argument_meant(extra, context, message)
    if meant:
        first = command[0] if command else getattr(error, "message", "") or message
        message = f"{first.rstrip('.')}; did you mean {meant}?"
    message = re.sub(r"\. Did you mean", "; did you mean", message)
    message = re.sub(r" \(Possible options: (.*)\)$", r"; did you mean \1?", message)
    named = next((word for word in arguments if not word.startswith("-")), "")
    where = getattr(context, "command_path", f"recur {escaped(named)}".rstrip())
    return f"{escaped(message[:1].lower() + message[1:], limit=1000)}; see `{where} --help`"


def _extra_argument(message: str, context: Any, arguments: Sequence[str]) -> str:
    """Return the first argument that the command does not take, or "" if there is none."""
    if extra := re.match(r"Got unexpected extra arguments?(?:\(s\))? \((\S+)", message):
        return extra[1].rstrip(")")
    words = [*arguments[1:2]] if message.startswith("Missing option") and context is not None else []
    takes_none = context is not None and all(parameter.opts[0].startswith("-") for parameter in context.command.params)
    return words[0] if words and takes_none and not words[0].startswith("-") else ""


def _argument_meant(word: str, context: Any, message: str) -> str:
    """Return the option that takes the argument `word`: --preset for a preset, --data for anything else, or "" if none does."""
    options = {option for parameter in context.command.params for option in parameter.opts}
    is_preset = word.endswith((".yaml", ".yml")) or not (Path(word).suffix or Path(word).exists())
    option = "--preset" if is_preset else "--data"
    missing = "--preset NAME " if message.startswith("Missing option '--preset'") and not is_preset else ""
    return f"{missing}{option} {word}" if option in options else ""


def _option_meant(name: str, context: Any) -> str:
    """Return the option of the command, or the setting of a preset, that other tools call `name`, or "" if there is none."""
    from recurcli.validation import OTHER_NAMES, paths_of  # imports yaml, which the help does not need

    word = name.lstrip("-").replace("-", "_")
    ours = OTHER_OPTIONS.get(word) or OTHER_NAMES.get(word, word)
    options = {option for parameter in context.command.params for option in parameter.opts}
    option = f"--{ours.rpartition('.')[2].replace('_', '-')}"
    if option in options:
        return option
    if ours == "preset" and any(parameter.metavar == "RUN" for parameter in context.command.params):
        return "the argument RUN"
    if "--set" not in options:
        return ""
    from recurcli.preset.schema import preset_keys

    other = "finetuning." if context.info_name == "pretrain" else "pretraining."
    keys = [key for key in paths_of(ours, preset_keys()) if not key.startswith(other)]
    return " or ".join(f"--set {key}=VALUE" for key in keys)
