"""The line of a usage error: Typer's message, and the command, option or key that was meant."""

import re
from typing import Any

from recurcli.errors import escaped
from recurcli.validation import OTHER_NAMES, paths_of

OTHER_COMMANDS = {
    **dict.fromkeys(("train", "fit", "fine-tune", "classify"), "finetune"),
    **dict.fromkeys(("evaluate", "test", "score"), "eval"),
    **dict.fromkeys(("infer", "inference", "label"), "predict"),
    **dict.fromkeys(("validate", "lint"), "check"),
    **dict.fromkeys(("benchmark", "speed", "profile"), "bench"),
    **dict.fromkeys(("preset", "list", "show", "config"), "presets"),
}
"""Maps the name of a command in other tools to ours."""


def usage_line(error: Any) -> str:
    """Return Typer's message about a wrong command or option on one line, with the command that prints the help."""
    context = getattr(error, "ctx", None)
    message: str = error.format_message().replace("Value error, ", "").rstrip(".")
    command = re.match(r"No such command '(.*?)'", message)
    meant = f"'{OTHER_COMMANDS[command[1]]}'" if command and command[1] in OTHER_COMMANDS else ""
    if hasattr(error, "option_name") and hasattr(error, "possibilities"):
        meant = _option_meant(error.option_name, context)
    if meant:
        message = f"{command[0] if command else error.message}; did you mean {meant}?"
    message = re.sub(r"\. Did you mean", "; did you mean", message)
    message = re.sub(r" \(Possible options: (.*)\)$", r"; did you mean \1?", message)
    where = getattr(context, "command_path", "recur")
    return f"{escaped(message[:1].lower() + message[1:], limit=1000)}; see `{where} --help`"


def _option_meant(name: str, context: Any) -> str:
    """Return the option of the command, or the setting of a preset, that other tools call `name`; "" if there is none."""
    word = name.lstrip("-").replace("-", "_")
    ours = OTHER_NAMES.get(word, word)
    options = {option for parameter in context.command.params for option in parameter.opts}
    option = f"--{ours.rpartition('.')[2].replace('_', '-')}"
    if option in options:
        return option
    if "--set" not in options:
        return ""
    from recurcli.preset.schema import preset_keys

    other = "finetuning." if context.info_name == "pretrain" else "pretraining."
    keys = [key for key in paths_of(ours, preset_keys()) if not key.startswith(other)]
    return " or ".join(f"--set {key}=VALUE" for key in keys)
