"""The line of a usage error: Typer's message, and the command, option or key that was meant."""

from typing import Any

from typer.core import TyperGroup

from recurcli.errors import UsageError, escaped

OTHER_COMMANDS = {"train": "finetune", "fit": "finetune", "evaluate": "eval", "test": "eval", "infer": "predict"}
"""Maps the name of a command in other tools to ours."""
OTHER_OPTIONS = {"model": "preset", "model_name_or_path": "preset", "config": "preset", "train_file": "train"}
"""Maps the name of an option in other tools to ours."""


class Commands(TyperGroup):
    """The commands of recur, which know the names of other tools."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that `args` name. Raises UsageError with ours for the name of another tool's."""
        if ours := OTHER_COMMANDS.get(args[0]):
            raise UsageError(f"no such command '{args[0]}'; did you mean '{ours}'?; see `recur --help`")
        return super().resolve_command(ctx, args)


def usage_line(error: Any) -> str:
    """Return Typer's message about a wrong command or option on one line, with the command that prints the help."""
    context = getattr(error, "ctx", None)
    message = error.format_message().replace("Value error, ", "").replace(". Did you mean", "; did you mean")
    if hasattr(error, "possibilities"):  # no such option
        meant = _option_meant(error.option_name, context) or ", ".join(sorted(error.possibilities))
        message = f"{error.message}; did you mean {meant}?" if meant else error.message
    where = context.command_path if context else "recur"
    return f"{escaped(message[:1].lower() + message[1:].rstrip('.'), limit=1000)}; see `{where} --help`"


def _option_meant(name: str, context: Any) -> str:
    """Return the option of the command, or the setting of a preset, that other tools call `name`, or "" if there is none."""
    from recurcli.preset.schema import preset_keys
    from recurcli.validation import OTHER_NAMES, paths_of  # imports yaml, which the help does not need

    word = name.lstrip("-").replace("-", "_")
    ours = OTHER_OPTIONS.get(word) or OTHER_NAMES.get(word, word)
    known = {option for parameter in context.command.params for option in (*parameter.opts, parameter.metavar)}
    option = f"--{ours.rpartition('.')[2].replace('_', '-')}"
    if option == "--preset" and option not in known:
        return "the argument RUN" if "RUN" in known else ""
    keys = paths_of(ours, preset_keys()) if "--set" in known else []
    return option if option in known else " or ".join(f"--set {key}=VALUE" for key in keys)
