"""The Typer application, and how a command runs in this process: every error becomes an exit code and one line on stderr.

torch and datasets are imported only inside functions, here and in the commands, so that help comes at once.
"""

import contextlib
import gc
import inspect
import io
import math
import os
import re
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import is_dataclass
from types import FrameType
from typing import Annotated, Any, TextIO, get_args

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup

from recurcli.distributed import group
from recurcli.errors import (
    Interrupted,
    RecurError,
    StorageError,
    UsageError,
    escaped,
    is_lack_of_memory,
    last_line,
    way_out,
)
from recurcli.files import storage_errors
from recurcli.process import disable_gc, signal_handlers
from recurcli.requests.options import check_exists

COMMANDS = {
    "Start": ("check", "finetune", "eval", "predict", "export"),
    "Improve": ("compare", "tune", "pretrain"),
    "More": ("bench", "presets"),
}
"""The groups in which help lists the commands."""
FEW_OPTIONS = 12
"""Help lists so many options without groups."""
OPTIONS = {
    "Data": ("data", "train", "dev", "test", "split", "against", "by", "task", "input_format", "shard"),
    "Columns": (
        *("text", "pair", "target", "label", "label_separator", "label_files", "label_names", "label_by", "id"),
        *("header", "delimiter", "quote", "encoding"),
    ),
    "Model": ("preset", "settings", "init", "teacher", "match_parameters", "hidden_size", "layers", "fast"),
    "Training": ("seed", "epochs", "learning_rate", "trials", "ranges", "storage", "fit_thresholds", "save"),
    "Output": (
        *("output", "format", "output_columns", "report", "errors", "suspects", "out_of_fold"),
        *("probabilities", "top_k", "threshold", "explain", "resume", "overwrite", "track", "verbose", "json", "quiet"),
    ),
    "Machine": ("device", "precision", "batch_size"),
}
"""The groups in which help lists the options of a command, and their order; all others are "Advanced"."""


class Commands(TyperGroup):
    """The group of all commands. Its help begins with the command that a new user needs first."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help."""
        formatter.write("recur finetune FILE.csv\n\n")
        super().format_help(ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands in the groups of COMMANDS."""
        width = max(map(len, self.commands))
        for title, names in COMMANDS.items():
            with formatter.section(title):
                lines = ((name.ljust(width), self.commands[name].get_short_help_str(formatter.width)) for name in names)
                formatter.write_dl(list(lines))


app = typer.Typer(
    name="recur",
    cls=Commands,
    help="Train small text classifiers from labelled rows, evaluate them, and ship them.",
    rich_markup_mode=None,  # plain help: nothing is squeezed into a narrow column, and rich need not be imported
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": shutil.get_terminal_size().columns},
)


def _name(self: TyperArgument) -> str:
    """Return RUN or, for an argument that may be repeated, RUN..."""
    return f"{self.metavar}{'' if self.nargs == 1 else '...'}"


# Typer has no option for these: by default help shows `{RUN}...` in the usage, and `RUN <list[Path]>` below it.
TyperArgument._usage_display_name = lambda self: _name(self) if self.required else f"[{_name(self)}]"  # type: ignore[method-assign]
TyperArgument._rich_display_name = _name  # type: ignore[method-assign]
TyperArgument.display_type_rich = lambda self, ctx: None  # type: ignore[method-assign]

SHARED = ("pretrain", "finetune")
"""Commands whose work several processes share under torchrun."""
ONE_PROCESS = {"eval": "", "predict": ", and give each process a part of the rows with --shard I/N"}
"""Commands that one process does, with the way out; the others are done by rank 0."""


class SingleValues(TyperCommand):
    """A command that refuses a repeated option, and whose help has its options in groups.

    Flags may be repeated, and the options that are lists.
    """

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, and the options in the groups of OPTIONS."""
        lines: dict[str, dict[str, Any]] = {name: {} for name in ("Arguments", "Options", *OPTIONS, "Advanced")}
        options = [each for each in self.get_params(ctx) if each.param_type_name == "option"]
        titles = {name: title for title, names in OPTIONS.items() for name in names}
        for each in self.get_params(ctx):
            title = titles.get(each.name, "Advanced") if len(options) > FEW_OPTIONS else "Options"
            title = title if each in options else "Arguments"
            if (line := each.get_help_record(ctx)) is not None:
                lines[title][each.name] = line
        for title, own in lines.items():
            if own:
                with formatter.section(title):
                    formatter.write_dl([own[name] for name in sorted(own, key=[*OPTIONS.get(title, own)].index)])

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments. Raises UsageError for an option that has two values, since one would be lost."""
        _, _, given = self.make_parser(ctx).parse_args(args=[*args])
        left = super().parse_args(ctx, args)  # which first prints the help, if it is asked for
        for option, times in Counter[Any](given).items():
            if times > 1 and not option.multiple and (not option.is_flag or option.secondary_opts):
                name = "/".join([*option.opts, *option.secondary_opts])
                raise UsageError(f"{name} is given {times} times, but takes one value; give it once")
        return left


def _options(function: Callable[..., Any]) -> Iterator[inspect.Parameter]:
    """Yield the parameters of a function or a dataclass, with the fields of a dataclass in place of it."""
    for each in inspect.signature(function).parameters.values():
        if is_dataclass(each.annotation):
            yield from _options(each.annotation)  # type: ignore[arg-type]
        else:
            yield each.replace(kind=inspect.Parameter.KEYWORD_ONLY)


def _arguments(function: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `function` for the `options` that `_options` has for it, with its dataclasses."""
    arguments = {}
    for key, each in inspect.signature(function).parameters.items():
        if is_dataclass(each.annotation):
            kind: Any = each.annotation
            arguments[key] = kind(**_arguments(kind, options))
        else:
            arguments[key] = options[key]
    return arguments


def command(*examples: str, name: str | None = None) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a function as a command, with `examples` below its help.

    A parameter of a dataclass (see `recurcli.requests`) stands for its fields, each of which is an option of its own.
    """
    shown = ["\b", "Example:" if len(examples) == 1 else "Examples:", *(f"  {line}" for line in examples)]

    def register(function: Callable[..., None]) -> Callable[..., None]:

        parameters = [*_options(function)]
        about = {each.name: get_args(each.annotation)[-1] for each in parameters}
        read = {name: option.no_file for name, option in about.items() if hasattr(option, "no_file")}

        def run(**options: Any) -> None:
            arguments = _arguments(function, options)
            for name, no_file in read.items() if not options.get("resume") else ():  # a finished run needs no data
                for path in options[name] if isinstance(options[name], list) else [options[name]]:
                    if path is not None and not re.fullmatch(no_file, str(path)):
                        check_exists(path)
            function(**arguments)

        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__name__, run.__doc__ = function.__name__, function.__doc__
        app.command(name=name, cls=SingleValues, epilog="\n".join(shown))(run)
        return function

    return register


def _version(asked: bool) -> None:
    if not asked:
        return
    from importlib.metadata import version

    from recurcli.version import __version__

    parts = ", ".join(f"{name} {version(name)}" for name in ("torch", "tokenizers", "safetensors", "datasets"))
    print(f"recur {__version__} (Python {sys.version.split()[0]}, {parts})")
    raise typer.Exit


@app.callback(invoke_without_command=True)
def _app(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the versions that matter.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())
    elif context.invoked_subcommand in ONE_PROCESS and group.current().world_size > 1:
        command = str(context.invoked_subcommand)
        raise UsageError(f"recur {command} runs in one process: start it without torchrun{ONE_PROCESS[command]}")
    elif context.invoked_subcommand not in SHARED and not group.current().is_main:
        raise typer.Exit  # one process does it alone


IMPATIENCE = 1.0
"""Seconds after the first signal during which more signals are ignored, so that clean-up can finish."""
CLOSED_PIPE = 128 + signal.SIGPIPE
_SMALLER = (
    "use a smaller --batch-size or, in training, a smaller data.max_length or more "
    "finetuning.gradient_accumulation_steps (or pretraining.…)"
)
_FAILED_COMPILERS = ("BackendCompilerFailed", "CppCompileError")
"""Names of torch's errors of `torch.compile`, which only `runtime.compile` asks for; their modules are not imported here."""


def main() -> None:
    """Run the command line of this process and exit with its code."""
    disable_gc()
    code = run(sys.argv[1:])
    if code > 128:  # a library may still be at work in a thread, on which a normal exit could wait or fail
        drop_output()
        os._exit(code)
    gc.freeze()  # a last look at all objects takes 0.3 seconds or more after `import torch`
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Run `arguments`. Returns the exit code; if it is not 0, one line is printed on stderr, and the command that is a way out
    if the error knows one.
    """
    with signals_as_errors() as received:
        try:
            open_streams()
            group.join()
            code = app(arguments, prog_name="recur", standalone_mode=False)
            with storage_errors("standard output"):
                sys.stdout.flush()
            if code == 130:
                raise KeyboardInterrupt  # as which it began: Typer has made a number of it
            if received:
                raise received[0]  # which a library on the way has swallowed
            group.finish()
            return code if isinstance(code, int) else 0
        except BaseException as caught:
            if is_closed_pipe(caught):
                group.report_failure(CLOSED_PIPE, "")
                drop_output()
                signal.signal(signal.SIGPIPE, signal.SIG_DFL)
                os.kill(os.getpid(), signal.SIGPIPE)  # silently, as other filters end
            if isinstance(caught, SystemExit) and not received:  # the completion of the shell has printed what it found
                return int(caught.code or 0)
            error = received[0] if received else caught
            code, line = group.report_failure(*explained(error))
            drop_output()
            with contextlib.suppress(OSError):
                if line and "--debug" in arguments:
                    traceback.print_exc()
                if line:
                    print(last_line(code, line), file=sys.stderr)
                if line and (options := getattr(error, "options", ())):
                    print(way_out(arguments, options), file=sys.stderr)
            group.exit_group(code)
            return code


@contextlib.contextmanager
def signals_as_errors() -> Iterator[list[Interrupted]]:
    """Let SIGTERM, SIGHUP and SIGINT raise Interrupted within the block. An ignored signal, as under nohup, stays ignored.

    The value is a list that holds the Interrupted once it is raised: a library on the way may have swallowed it.
    """
    received: list[Interrupted] = []

    last = -math.inf

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal last
        if time.monotonic() - last < IMPATIENCE:
            return
        last = time.monotonic()
        received.append(Interrupted(number, f"stopped by {signal.Signals(number).name}"))
        raise received[-1]

    stops = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
    heard = (number for number in stops if signal.getsignal(number) is not signal.SIG_IGN)
    with signal_handlers(dict.fromkeys(heard, stop)):
        yield received


def explained(error: BaseException) -> tuple[int, str]:
    """Return the exit code of an error and its message on one line, with the notes added to it."""
    code, message = _explained(error)
    return code, "; ".join([message, *(escaped(note, limit=1000) for note in getattr(error, "__notes__", []))])


def _explained(error: BaseException) -> tuple[int, str]:
    if isinstance(error, RecurError):
        return error.exit_code, escaped(error, limit=4000)
    if isinstance(error, OSError):
        name = f"{escaped(error.filename)}: " if error.filename else ""
        return 5, f"{name}{escaped(error.strerror or error)}"
    if hasattr(error, "format_message") and hasattr(error, "exit_code"):  # Typer's own usage errors
        return 2, usage_line(error)
    if is_lack_of_memory(error):
        whose = "the GPU's" if "CU" in str(error) else "the"  # CUDA, CUBLAS, CUDNN
        return StorageError.exit_code, f"{whose} memory is full; {_SMALLER}"
    if any(kind.__name__ in _FAILED_COMPILERS for kind in type(error).__mro__):
        first = escaped(str(error).partition("\n")[0], limit=300)
        return UsageError.exit_code, f"torch cannot compile the encoder here: {first}; set runtime.compile=false"
    if isinstance(error, KeyboardInterrupt) or type(error).__name__ == "Abort":
        return 130, "interrupted"
    return 1, f"a bug in recur: {type(error).__name__}: {escaped(error, limit=500)}; --debug shows where"


def usage_line(error: Any) -> str:
    """Return Typer's message about a wrong command or option on one line, with the command that prints the help."""
    context = getattr(error, "ctx", None)
    message = error.format_message().replace("Value error, ", "")
    where = context.command_path if context else "recur"
    return f"{escaped(message[:1].lower() + message[1:].rstrip('.'), limit=1000)}; see `{where} --help`"


def is_closed_pipe(error: BaseException | None) -> bool:
    """Whether a command ended because nobody reads its output any more (Typer turns that into SystemExit)."""
    while error is not None:
        if isinstance(error, BrokenPipeError):
            return True
        error = error.__cause__ or error.__context__
    return False


def open_streams() -> None:
    """Let stdout and stderr replace characters that their encoding lacks, instead of raising an error.

    A closed stderr becomes one that nobody reads, as a print to it would go to stdout. Raises StorageError for a closed
    stdout: there is nowhere for a result to go.
    """
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - for the life of the process
    if sys.stdout is None:
        raise StorageError("standard output is closed; send it to /dev/null to do without it")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def drop_output() -> None:
    """Discard what stdout still buffers if it cannot be flushed. Python's flush at exit would fail again."""
    stream: TextIO | None = sys.stdout
    with contextlib.suppress(OSError, ValueError, AttributeError):
        stream.flush()  # type: ignore[union-attr]
        return
    with contextlib.suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())  # type: ignore[union-attr]
        os.close(nowhere)
