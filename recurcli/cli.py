"""Words on the screen: the signatures and help of the commands. What they do stands in `commands/`.

torch and datasets are imported only inside functions, so that help comes at once.
"""

import contextlib
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from recurcli.errors import Interrupted, RecurError, UsageError, visible

if TYPE_CHECKING:
    from recurcli.commands.parts import TrainingRequest
    from recurcli.commands.training import Event

app = typer.Typer(
    name="recur",
    help="Train, evaluate and ship small text classifiers whose encoders carry recurrence inside attention.",
    epilog="Start with: recur finetune --preset starsaber-listops-mini (two minutes, no data needed)",
    no_args_is_help=True,
    rich_markup_mode=None if os.environ.get("TERM") == "dumb" else "rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Preset = Annotated[
    str,
    typer.Option(
        help="ENCODER-TASK, a preset's name (`recur presets` lists them) or a YAML file.", metavar="NAME|FILE"
    ),
]
Data = Annotated[
    Path | None,
    typer.Option(
        help="Folder with the task's files, a parent of folders named by task, or one file. "
        "Default: the Hugging Face Hub or its cache.",
        metavar="PATH",
    ),
]
Output = Annotated[Path | None, typer.Option(help="Run directory to write.", metavar="RUN")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", help="Change any key of the preset; may be repeated.", metavar="KEY=VALUE")
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on where the run stopped; start it where there is none.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would run, and write nothing.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]
Device = Annotated[str | None, typer.Option(help="auto, cpu, cuda or cuda:N.", metavar="DEVICE")]
PrecisionOption = Annotated[
    Literal["auto", "fp32", "bf16"] | None, typer.Option(help="Arithmetic; auto is bf16 where the machine has it.")
]
BatchSize = Annotated[int | None, typer.Option(help="Rows of one batch.", min=1)]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress and no notes; errors are still shown.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Run = Annotated[Path, typer.Argument(help="Run directory of a finished `recur finetune`.", metavar="RUN")]


@app.command(epilog="Example: recur pretrain --preset starsaber-tnews --data $RECUR_DATA --set pretraining.epochs=5")
def pretrain(
    preset: Preset,
    data: Data = None,
    output: Output = None,
    settings: Settings = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    dry_run: DryRun = False,
    json: Json = False,
    device: Device = None,
    precision: PrecisionOption = None,
    batch_size: BatchSize = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Pre-train an encoder on a task's own text (train, dev and test inputs), or on a text file given as --data."""
    extra = _as_settings("pretraining", device, precision, batch_size)
    request = _training_request(
        preset, data, [*(settings or []), *extra], output, "-pretrained", None, resume, overwrite, dry_run
    )
    from recurcli.commands.pretrain import pretrain as command

    _train(command, request, json, quiet)


@app.command(
    epilog="Example: recur finetune --preset starsaber-tnews --data $RECUR_DATA --init runs/starsaber-tnews-pretrained"
)
def finetune(
    preset: Preset,
    data: Data = None,
    output: Output = None,
    settings: Settings = None,
    init: Annotated[
        Path | None, typer.Option(help="Pretrained run to start from: its tokenizer and encoder.", metavar="RUN")
    ] = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    dry_run: DryRun = False,
    json: Json = False,
    device: Device = None,
    precision: PrecisionOption = None,
    batch_size: BatchSize = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Train a classifier on labelled rows, from scratch or from a pretrained run; keeps the model of the best dev score."""
    extra = _as_settings("finetuning", device, precision, batch_size)
    request = _training_request(preset, data, [*(settings or []), *extra], output, "", init, resume, overwrite, dry_run)
    from recurcli.commands.finetune import finetune as command

    _train(command, request, json, quiet)


@app.command(name="eval", epilog="Example: recur eval runs/starsaber-tnews --data $RECUR_DATA --json")
def evaluate(
    run: Run,
    split: Annotated[Literal["dev", "test", "train"], typer.Option(help="Which rows to score.")] = "dev",
    data: Data = None,
    json: Json = False,
    device: Device = None,
    precision: PrecisionOption = None,
    batch_size: BatchSize = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Score a trained classifier: accuracy, precision, recall and F1 by class, MCC, confusion table, loss.

    Computes in fp32 unless --precision says otherwise, so that no score depends on a row's neighbours.
    """
    from recurcli.commands.evaluate import evaluate as command

    result = command(run, split=split, data=data, device=device, precision=precision, batch_size=batch_size)
    from recurcli import display

    if json:
        display.print_json(result)
    else:
        display.print_evaluation(result)


@app.command(epilog="Example: cut -f1 texts.tsv | recur predict runs/starsaber-tnews --no-header > labels.tsv")
def predict(
    run: Run,
    source: Annotated[Path, typer.Argument(help="TSV or JSON lines; '-' is standard input.", metavar="[INPUT]")] = Path(
        "-"
    ),
    output: Annotated[Path, typer.Option(help="File to write; '-' is standard output.", metavar="FILE|-")] = Path("-"),
    format: Annotated[
        Literal["tsv", "jsonl", "clue"] | None, typer.Option(help="Form of the output; default: that of the input.")
    ] = None,
    text: Annotated[
        str | None, typer.Option(help="Column of the text, by name or number from 1.", metavar="COLUMN")
    ] = None,
    pair: Annotated[str | None, typer.Option(help="Column of the second text.", metavar="COLUMN")] = None,
    id_column: Annotated[str | None, typer.Option("--id", help="Column of the row's id.", metavar="COLUMN")] = None,
    header: Annotated[
        bool | None,
        typer.Option("--header/--no-header", help="Whether the first TSV row names the columns; default: found out."),
    ] = None,
    probabilities: Annotated[bool, typer.Option("--probabilities", help="Add a column for each label.")] = False,
    top_k: Annotated[
        int | None, typer.Option(help="Add the K best labels with their probabilities.", min=1, metavar="K")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at a row that cannot be read.")] = False,
    overwrite: Overwrite = False,
    device: Device = None,
    precision: PrecisionOption = None,
    batch_size: BatchSize = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Label the rows of a file or a pipe: the input's columns, then `prediction` and `score`; one row out for each row in.

    A row that cannot be read keeps its place and gets the reason in a column `fault`; --strict stops there instead.
    """
    from recurcli.commands.predict import PredictRequest
    from recurcli.commands.predict import predict as command

    request = PredictRequest(
        run=run,
        source=source,
        output=output,
        format=format,
        text=text,
        pair=pair,
        id=id_column,
        header=header,
        probabilities=probabilities,
        top_k=top_k,
        strict=strict,
        overwrite=overwrite,
        device=device or "auto",
        precision=precision or "auto",
        batch_size=batch_size or 64,
    )
    from recurcli import display

    display.follow_prediction(command(request), quiet=quiet)


@app.command(epilog="Example: recur export runs/starsaber-tnews --format clue --data $RECUR_DATA --output clue.zip")
def export(
    runs: Annotated[
        list[Path], typer.Argument(help="Run directories; one zip holds the files of all.", metavar="RUN…")
    ],
    output: Annotated[Path, typer.Option(help="File to write.", metavar="PATH")],
    format: Annotated[Literal["clue"], typer.Option(help="What to make: a CLUE leaderboard zip.")] = "clue",
    data: Data = None,
    overwrite: Overwrite = False,
    json: Json = False,
    device: Device = None,
    precision: PrecisionOption = None,
    batch_size: BatchSize = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Predict the test rows of a CLUE task and pack them as the leaderboard wants them, checked before it is written."""
    from recurcli.commands.export import export as command

    events = command(
        runs,
        output=output,
        data=data,
        overwrite=overwrite,
        device=device or "auto",
        precision=precision or "auto",
        batch_size=batch_size or 64,
    )
    from recurcli import display

    result = display.follow(events, quiet=quiet)
    if json:
        display.print_json(result)
    else:
        display.print_export(result)


@app.command(epilog="Example: recur presets starsaber-tnews")
def presets(
    name: Annotated[
        str | None, typer.Argument(help="A preset to print, fully resolved.", metavar="[NAME|FILE]")
    ] = None,
    settings: Settings = None,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON Schema of a preset file.")] = False,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """List the presets, or print one fully resolved, with where each value comes from."""
    from recurcli import display
    from recurcli.preset import compose, preset_names
    from recurcli.preset.schema import json_schema

    if schema:
        display.print_json(json_schema())
    elif name is None:
        names = preset_names()
        if json:
            display.print_json(names)
        else:
            display.print_preset_names(names)
    else:
        resolved = compose(name, settings=settings or [])
        if json:
            rows = {key: {"value": value, "origin": origin} for key, value, origin in resolved.rows()}
            display.print_json({"preset": resolved.name, "keys": rows})
        else:
            display.print_preset(resolved)


def _version(asked: bool) -> None:
    if not asked:
        return
    from importlib.metadata import version

    from recurcli import __version__

    parts = ", ".join(f"{name} {version(name)}" for name in ("torch", "tokenizers", "safetensors", "datasets"))
    print(f"recur {__version__} (Python {sys.version.split()[0]}, {parts})")
    raise typer.Exit


@app.callback()
def _app(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the versions that matter.")
    ] = False,
) -> None:
    pass


def _as_settings(section: str, device: str | None, precision: str | None, batch_size: int | None) -> list[str]:
    values = {"runtime.device": device, "runtime.precision": precision, f"{section}.batch_size": batch_size}
    return [f"{key}={value}" for key, value in values.items() if value is not None]


def _training_request(
    preset: str,
    data: Path | None,
    settings: list[str],
    output: Path | None,
    suffix: str,
    init: Path | None,
    resume: bool,
    overwrite: bool,
    dry_run: bool,
) -> "TrainingRequest":
    from recurcli.preset import compose

    resolved = compose(preset, data=None if data is None else str(data), settings=settings)
    if resume and overwrite:
        raise UsageError("--resume and --overwrite exclude each other")
    from recurcli.commands.parts import TrainingRequest

    return TrainingRequest(
        resolved=resolved,
        output=output or Path("runs") / f"{resolved.name}{suffix}",
        init=init,
        resume=resume,
        overwrite=overwrite,
        dry_run=dry_run,
    )


def _train(
    command: "Callable[[TrainingRequest], Iterator[Event]]", request: "TrainingRequest", json: bool, quiet: bool
) -> None:
    from recurcli import display

    result = display.follow(command(request), quiet=quiet)
    if json:
        display.print_json(result)
    elif request.dry_run:
        display.print_plan(result)
    else:
        display.print_training(result, request.output)


def main() -> None:
    """The entry point: runs a command and turns whatever happens into an exit code and at most one line."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run `arguments`; returns the exit code, after printing `recur: error: …` if it is not 0."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _raise_interrupted)
    try:
        code = app(arguments, standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except BrokenPipeError:
        _die_of_closed_pipe()
        return 0
    except BaseException as error:
        code, message = _explain(error)
        if "--debug" in arguments:
            traceback.print_exc()
        with contextlib.suppress(OSError):
            print(f"recur: error: {message}", file=sys.stderr)
        return code


def _explain(error: BaseException) -> tuple[int, str]:
    """The exit code and the one line for what ended a command."""
    if isinstance(error, RecurError):
        return error.exit_code, visible(error, limit=4000)
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        return 130, "interrupted"
    if isinstance(error, OSError):
        name = f"{visible(error.filename)}: " if error.filename else ""
        return 5, f"{name}{visible(error.strerror or error)}"
    if hasattr(error, "format_message") and hasattr(error, "exit_code"):  # Typer's own usage errors
        return 2, f"{visible(error.format_message(), limit=1000)}; `recur --help` tells more"
    if type(error).__name__ == "OutOfMemoryError":
        return 5, "the GPU's memory is full; try a smaller --batch-size, or more finetuning.accumulation"
    if isinstance(error, MemoryError):
        return 5, "the memory is full; try a smaller --batch-size"
    return 1, f"a bug in recur: {type(error).__name__}: {visible(error, limit=500)}; --debug shows where"


def _raise_interrupted(number: int, frame: FrameType | None) -> Any:
    raise Interrupted(number, f"stopped by {signal.Signals(number).name}")


def _die_of_closed_pipe() -> None:
    """End as other filters do when nobody reads them any more: silently, of SIGPIPE."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGPIPE)
