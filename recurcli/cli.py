"""Words on the screen: the signatures and help of the commands. What they do stands in `commands/`.

torch and datasets are imported only inside functions, so that help comes at once.
"""

import contextlib
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from recurcli import exits, ranks
from recurcli.errors import DataError, UsageError
from recurcli.options import (
    BatchSize,
    Data,
    Debug,
    Device,
    DryRun,
    Json,
    Output,
    Overwrite,
    PrecisionOption,
    Preset,
    Quiet,
    Resume,
    Run,
    Settings,
)

if TYPE_CHECKING:
    from recurcli.commands.parts import TrainingRequest
    from recurcli.commands.training import Event

app = typer.Typer(
    name="recur",
    help="Train, evaluate and ship small text classifiers whose encoders carry recurrence inside attention.",
    epilog="\b\nStart with (two minutes, no data needed):\n  recur finetune --preset starsaber-listops-mini",
    rich_markup_mode=None,  # plain help: nothing is squeezed into a narrow column, and rich need not be imported
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


SHARED = ("pretrain", "finetune", "eval", "predict")
"""Commands whose work several processes share under torchrun."""


def example(*lines: str) -> str:
    """The end of a command's help, its lines as they stand."""
    return "\n".join(["\b", "Example:" if len(lines) == 1 else "Examples:", *(f"  {line}" for line in lines)])


@app.command(epilog=example("recur pretrain --preset starsaber-tnews --data $RECUR_DATA --set pretraining.epochs=5"))
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
    """Train an encoder on text without labels.

    The text is that of the task's train, dev and test rows, or a text file (.txt) given as --data.
    """
    extra = _as_settings("pretraining", device, precision, batch_size)
    request = _training_request(
        preset, data, [*(settings or []), *extra], output, "-pretrained", None, resume, overwrite, dry_run
    )
    from recurcli.commands.pretrain import pretrain as command

    _train(command, request, json, quiet)


@app.command(
    epilog=example("recur finetune --preset starsaber-tnews --data $RECUR_DATA --init runs/starsaber-tnews-pretrained")
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
    """Train a classifier on labelled rows.

    Starts from scratch or from a pretrained run, and keeps the model of the best dev score.
    """
    extra = _as_settings("finetuning", device, precision, batch_size)
    request = _training_request(preset, data, [*(settings or []), *extra], output, "", init, resume, overwrite, dry_run)
    from recurcli.commands.finetune import finetune as command

    _train(command, request, json, quiet)


@app.command(name="eval", epilog=example("recur eval runs/starsaber-tnews --data $RECUR_DATA --json"))
def evaluate(
    run: Run,
    split: Annotated[Literal["dev", "test", "train"], typer.Option(help="Which rows to score.")] = "dev",
    data: Data = None,
    diagnose: Annotated[
        bool, typer.Option("--diagnose", help="Tell layer by layer what the encoder does to distances and attention.")
    ] = False,
    plots: Annotated[
        Path | None,
        typer.Option(help="Draw the diagnosis into this .png, .svg or .pdf (needs [report]).", metavar="FILE"),
    ] = None,
    json: Json = False,
    device: Device = None,
    precision: PrecisionOption = None,
    batch_size: BatchSize = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Score a trained classifier on labelled rows.

    Accuracy, precision, recall and F1 by class, MCC, loss, and the confusion table. Computes in fp32 unless
    --precision says otherwise, so that no score depends on a row's neighbours.
    """
    from recurcli.commands.evaluate import evaluate as command

    events = command(
        run,
        split=split,
        data=data,
        device=device or "auto",
        precision=precision or "fp32",
        batch_size=batch_size or 64,
        diagnosed=diagnose,
        plots=plots,
    )
    from recurcli.display import diagnosis, evaluation, progress, tables

    result = progress.follow(events, quiet=quiet)
    if json:
        tables.print_json(result)
    elif result:  # one process of several has it
        evaluation.print_evaluation(result)
        if diagnose:
            diagnosis.print_diagnosis(result["diagnosis"])


@app.command(
    epilog=example(
        "recur predict runs/starsaber-tnews texts.tsv > labels.tsv",
        "cut -f2 rows.tsv | recur predict runs/starsaber-tnews --no-header",
    )
)
def predict(
    run: Run,
    source: Annotated[
        Path, typer.Argument(help="TSV, CSV, JSON lines (also .gz) or Parquet; '-' is standard input.", metavar="INPUT")
    ] = Path("-"),
    output: Annotated[Path, typer.Option(help="File to write; '-' is standard output.", metavar="FILE")] = Path("-"),
    format: Annotated[
        Literal["tsv", "csv", "jsonl", "clue"] | None,
        typer.Option(help="Form of the output; default: that of the input (Parquet: jsonl)."),
    ] = None,
    input_format: Annotated[
        Literal["tsv", "csv", "jsonl", "parquet"] | None,
        typer.Option(help="Form of the input; default: as its name ends, else found out (a CSV in a pipe is not)."),
    ] = None,
    text: Annotated[
        str | None, typer.Option(help="Column of the text, by name or number from 1.", metavar="COLUMN")
    ] = None,
    pair: Annotated[str | None, typer.Option(help="Column of the second text.", metavar="COLUMN")] = None,
    id_column: Annotated[
        str | None, typer.Option("--id", help="Column of the ids that --format clue writes.", metavar="COLUMN")
    ] = None,
    header: Annotated[
        bool | None,
        typer.Option(
            "--header/--no-header", help="Whether the first row names the columns of a TSV or CSV; default: found."
        ),
    ] = None,
    probabilities: Annotated[bool, typer.Option("--probabilities", help="Add the probability of each label.")] = False,
    top_k: Annotated[
        int | None, typer.Option(help="Add the K best labels with their probabilities.", min=1, metavar="K")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at a row that cannot be read.")] = False,
    unbuffered: Annotated[
        bool, typer.Option("--unbuffered", help="Answer each row of a pipe when no other waits; default on a terminal.")
    ] = False,
    resume: Resume = False,
    overwrite: Overwrite = False,
    device: Device = None,
    precision: PrecisionOption = None,
    batch_size: BatchSize = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Label the rows of a file or a pipe, one row out for each row in.

    Writes the input's columns, then `prediction` and `score`. A row that cannot be read keeps its place, is labelled
    by what could be read of it, and has the reason in a last column `reason` (which a TSV from a pipe always has);
    --strict stops there instead. A FILE given as --output appears when it is complete; after a stop, or a kill, the
    same command with --resume makes the rest.
    """
    from recurcli.commands.predict import PredictRequest
    from recurcli.commands.predict import predict as command
    from recurcli.commands.prediction_columns import Wishes
    from recurcli.commands.prediction_file import telling_the_way_out

    request = PredictRequest(
        run=run,
        source=source,
        output=output,
        format=format,
        input_format=input_format,
        columns=Wishes(text=text, pair=pair, id=id_column, header=header),
        probabilities=probabilities,
        top_k=top_k,
        strict=strict,
        unbuffered=unbuffered,
        resume=resume,
        overwrite=overwrite,
        device=device or "auto",
        precision=precision or "auto",
        batch_size=batch_size or 64,
    )
    from recurcli.display import progress

    rows_on_screen = str(output) == "-" and sys.stdout.isatty()
    with telling_the_way_out(output):
        progress.follow(command(request), quiet=quiet, bar=not rows_on_screen, count=True)


@app.command(
    epilog=example("recur export runs/starsaber-tnews runs/starsaber-afqmc --data $RECUR_DATA --output clue.zip")
)
def export(
    runs: Annotated[
        list[Path], typer.Argument(help="Run directories; one zip holds the files of all.", metavar="RUN...")
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
    """Pack predictions of CLUE's test rows for its leaderboard.

    Predicts the test rows of each run's task and writes them as the leaderboard wants them, checked before they are
    written. Computes in fp32 unless --precision says otherwise, so that the same runs give the same bytes.
    """
    from recurcli.commands.export import export as command

    events = command(
        runs,
        output=output,
        data=data,
        overwrite=overwrite,
        device=device or "auto",
        precision=precision or "fp32",
        batch_size=batch_size or 64,
    )
    from recurcli.display import progress, tables

    result = progress.follow(events, quiet=quiet)
    if json:
        tables.print_json(result)
    else:
        tables.print_export(result)


@app.command(
    epilog=example(
        "recur check $RECUR_DATA/tnews",
        "recur check rows.tsv --text review --label stars",
        "recur check clue.zip",
    )
)
def check(
    paths: Annotated[
        list[Path],
        typer.Argument(
            help="Data files, folders of a task's files, folders of such folders, CLUE predictions or zips of them.",
            metavar="PATH...",
        ),
    ],
    task: Annotated[
        str | None,
        typer.Option(help="The task of the rows; default: as folder or file are named, else custom.", metavar="NAME"),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(help="Preset that says task, columns, tokenizer and max_length.", metavar="NAME|FILE"),
    ] = None,
    text: Annotated[
        str | None, typer.Option(help="Column of the text, by name or number from 1.", metavar="COLUMN")
    ] = None,
    pair: Annotated[str | None, typer.Option(help="Column of the second text.", metavar="COLUMN")] = None,
    label: Annotated[str | None, typer.Option(help="Column of the label.", metavar="COLUMN")] = None,
    id_column: Annotated[str | None, typer.Option("--id", help="Column of the ids.", metavar="COLUMN")] = None,
    header: Annotated[
        bool | None,
        typer.Option("--header/--no-header", help="Whether the first TSV or CSV row names the columns."),
    ] = None,
    no_lengths: Annotated[
        bool, typer.Option("--no-lengths", help="Count no tokens, which may need a vocabulary made first.")
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Find out what is wrong with data or with a CLUE submission, before a training or a leaderboard does.

    Data: rows that cannot be used, texts that are in two splits or have two labels, lengths, labels, odd characters.
    CLUE files and zips: why they would score 0. Exit code 3 where rows would be lost, a training would stop or a file would
    score 0; warnings leave it 0.
    """
    from recurcli.commands.check import CheckRequest
    from recurcli.commands.check import check as command

    columns = {"text": text, "pair": pair, "label": label, "id": id_column, "header": header}
    request = CheckRequest(paths=tuple(paths), task=task, preset=preset, columns=columns, lengths=not no_lengths)
    from recurcli.display import progress, tables
    from recurcli.display.check import print_check

    result = progress.follow(command(request), quiet=quiet)
    if json:
        tables.print_json(result)
    else:
        print_check(result)
    if result["errors"]:
        first = next(
            finding["message"]
            for report in result["reports"]
            for finding in report["findings"]
            if finding["level"] == "error"
        )
        count = "1 error was found" if result["errors"] == 1 else f"{result['errors']:,} errors were found, the first"
        raise DataError(f"{count}: {first}")


@app.command(epilog=example("recur presets starsaber-tnews"))
def presets(
    name: Annotated[
        str | None, typer.Argument(help="A preset's name or file, to be printed fully resolved.", metavar="NAME")
    ] = None,
    settings: Settings = None,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON Schema of a preset file.")] = False,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """List the presets, or print one with the origin of each value."""
    from recurcli.display import tables
    from recurcli.preset import compose, preset_names
    from recurcli.preset.schema import json_schema

    if schema:
        tables.print_json(json_schema())
    elif name is None:
        names = preset_names()
        if json:
            tables.print_json(names)
        else:
            tables.print_preset_names(names)
    else:
        resolved = compose(name, settings=settings or [])
        if json:
            rows = {key: {"value": value, "origin": origin} for key, value, origin in resolved.rows()}
            tables.print_json({"preset": resolved.name, "keys": rows})
        else:
            tables.print_preset(resolved)


def _version(asked: bool) -> None:
    if not asked:
        return
    from importlib.metadata import version

    from recurcli import __version__

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
    elif context.invoked_subcommand not in SHARED and not ranks.current().first:
        raise typer.Exit  # one process does it alone


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
    from recurcli.display import progress, tables

    result = progress.follow(command(request), quiet=quiet)
    if json:
        tables.print_json(result)
    elif request.dry_run:
        tables.print_plan(result)
    else:
        tables.print_training(result, request.output)


def main() -> None:
    """The entry point: runs a command and turns whatever happens into an exit code and at most one line."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run `arguments`; returns the exit code, after printing `recur: error: …` if it is not 0."""
    with exits.signals_as_errors() as received:
        try:
            exits.open_streams()
            ranks.join()
            code = app(arguments, prog_name="recur", standalone_mode=False)
            exits.flush_output()
            if code == 130:
                raise KeyboardInterrupt  # as which it began: Typer has made a number of it
            ranks.finish()
            return code if isinstance(code, int) else 0
        except BaseException as caught:
            if exits.is_closed_pipe(caught):
                ranks.condemn(caught, exits.CLOSED_PIPE, "")
                exits.die_of_closed_pipe()
            error = received[0] if received else caught
            code, line = ranks.condemn(error, *exits.explained(error))
            exits.drop_output()
            with contextlib.suppress(OSError):
                if line and "--debug" in arguments:
                    traceback.print_exc()
                if line:
                    print(f"recur: error: {line}", file=sys.stderr)
            ranks.part(code)
            return code
