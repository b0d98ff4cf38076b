"""The options that several commands share, alone and in groups, and the keys of the preset that they set."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from recurcli.config import Files
from recurcli.errors import UsageError


def option(metavar: str | None, help: str, *names: str, **settings: Any) -> Any:
    """Return an option with a value, which the help calls `metavar`; None: what Typer calls it, such as the choices.

    `names` are needed where there is a short one.
    """
    return typer.Option(*names, metavar=metavar, help=help, **settings)


def flag(name: str, help: str, *short: str) -> Any:
    """Return an option without a value. `name` has both forms where it can be negated: --peers/--no-peers."""
    return typer.Option(name, *short, help=help)


def argument(metavar: str | None, help: str) -> Any:
    """Return an argument, which the help calls `metavar`."""
    return typer.Argument(metavar=metavar, help=help)


def reads(path: Any, *, stdin: bool = False, hub: bool = False) -> Any:
    """Mark an option or argument as a path that the command reads, and return it.

    A path that does not exist is refused before the command runs. With `stdin`, "-" means standard input; with `hub`, hf:// a
    run on the Hub (`runs.hub`), which is looked for when it is read.
    """
    path.no_file = "-" if stdin else "hf:/.+" if hub else ""
    return path


def check_exists(path: Path) -> None:
    """Raise UsageError for a path that does not exist, but for a run that another takes the place of.

    A path may name a part of a file, such as book.xlsx#Sheet2.
    """
    name = os.path.expanduser(path)  # noqa: PTH111 - it raises nothing for a path
    if not (os.path.exists(name) or os.path.exists(name.rpartition("#")[0])):  # noqa: PTH110
        from recurcli.runs.run_directory import is_being_replaced

        if not is_being_replaced(path):
            reason = "; predict, eval, export and check --against read the Hub" if name[:4] == "hf:/" else ""
            raise UsageError(f"{name.replace('hf:/', 'hf://')}: there is no such file or folder{reason}")


def _presets(incomplete: str) -> list[str]:
    """Return the presets whose names begin so, for the completion of the shell."""
    from recurcli.preset.compose import paper_presets, preset_names

    known = preset_names()
    pairs = [f"{encoder}-{task}" for encoder in known["encoders"] for task in known["tasks"]]
    named = sorted({*pairs, *known["presets"], *(name for names in paper_presets().values() for name in names)})
    return [name for name in named if name.startswith(incomplete)]


def _keys(incomplete: str) -> list[str]:
    """Return the keys of a preset that begin so, each with its `=`, for the completion of the shell."""
    from recurcli.preset.compose import compose
    from recurcli.validation import flatten

    keys = (".".join(path) for path, _ in flatten(compose("starsaber-custom").preset.to_dict()))
    return [f"{key}=" for key in keys if key.startswith(incomplete)]


OUTPUT = "--output", "-o"
File = Annotated[Path | None, reads(argument("FILE", "The same as --data FILE."))]


Preset = Annotated[
    str,
    option(
        "NAME|FILE",
        "ENCODER-TASK, a preset's name (`recur presets` lists them) or a YAML file.",
        autocompletion=_presets,
    ),
]
Data = Annotated[
    Path | None,
    reads(
        option(
            "PATH",
            "Folder with the task's files, a parent of folders named by task, or one file. "
            "Default: the Hugging Face Hub or its cache.",
        )
    ),
]
Train = Annotated[
    list[Path] | None,
    reads(option("FILE", "Training rows; may be repeated. Without --dev the dev rows are drawn from them.")),
]
Dev = Annotated[list[Path] | None, reads(option("FILE", "Rows that select the best model; may be repeated."))]
Settings = Annotated[
    list[str] | None,
    option("KEY=VALUE", "Change any key of the preset; may be repeated.", "--set", autocompletion=_keys),
]
Seed = Annotated[int | None, option("N", "The same as --set runtime.seed=N.")]
Json = Annotated[bool, flag("--json", "Print one JSON object instead of a table.")]
Precision = Literal["auto", "fp32", "bf16"]
device_option = option(
    "DEVICE", "auto, cpu, cuda or cuda:N. Default: runtime.device in training, else auto.", show_default=False
)
precision_option = option(
    None,
    "Precision of the arithmetic; auto is bf16 where the machine multiplies it. Default: runtime.precision in training, "
    "else fp32.",
    show_default=False,
)
batch_size_option = option(
    "N", "Rows per batch. Default: batch_size of the preset in training, else 64.", min=1, show_default=False
)
Quiet = Annotated[bool, flag("--quiet", "Show warnings and errors only: no progress, no notes.", "-q")]
Verbose = Annotated[bool, flag("--verbose", "Show all metrics, and what the program chose; in training the time too.")]
Debug = Annotated[bool, flag("--debug", "Show the traceback of an error.")]
Run = Annotated[
    Path, reads(argument("RUN", "Run directory of `recur finetune`, or hf://OWNER/NAME@REVISION."), hub=True)
]


Fast = Annotated[
    bool, flag("--fast", "Take the linear model of an ensemble alone: no encoder runs, and the labels may differ.")
]


@dataclass(frozen=True, kw_only=True)
class TextColumns:
    """The options on the columns and the form of rows of texts, of which those of columns may be repeated."""

    text: Annotated[
        list[str] | None, option("COLUMN", "Column of the text, by name or number from 1; may be repeated.")
    ] = None
    pair: Annotated[list[str] | None, option("COLUMN", "Column of the second text; may be repeated.")] = None
    header: Annotated[
        bool | None,
        flag("--header/--no-header", "Whether row 1 of a TSV or CSV names the columns. Default: what it holds."),
    ] = None
    delimiter: Annotated[
        str | None, option("MARK", "Separator of the fields of a TSV or CSV, if not a TAB or a comma, or TAB or SPACE.")
    ] = None
    quote: Annotated[
        str | None, option("MARK", 'Quote around fields of a TSV or CSV. Default: " in a CSV, none in a TSV.')
    ] = None
    encoding: Annotated[
        str | None,
        option(
            "NAME",
            "Encoding of the files, such as latin-1, cp1252, gb18030 or utf-16. Default: that of the preset, else UTF-8; of "
            "files beside a run, that of the run where UTF-8 does not fit.",
        ),
    ] = None

    def given(self) -> dict[str, object]:
        """Return the options as keys of DataConfig. A single column is a string, several are a tuple."""
        given = dict(vars(self))
        for key in ("text", "pair", "label"):
            if names := given.get(key):
                given[key] = names[0] if len(names) == 1 else tuple(names)
        if (path := given.get("label_names")) is not None:
            from recurcli.data.labels import read_label_names

            given["label_names"] = read_label_names(path)
        if paths := given.get("label_files"):
            given["label_files"] = tuple(str(path.expanduser().absolute()) for path in paths)
        return given


@dataclass(frozen=True, kw_only=True)
class Columns(TextColumns):
    """The options on the columns and the form of labelled rows."""

    label: Annotated[
        list[str] | None,
        option(
            "COLUMN", "Column of the label; may be repeated for columns of 0 and 1, one for each of several labels."
        ),
    ] = None
    label_separator: Annotated[
        str | None, option("MARK", "Mark that joins several labels of a row in one cell, such as a comma.")
    ] = None
    label_files: Annotated[
        list[Path] | None,
        reads(option("FILE", "File with a label a line for each file of rows; may be repeated.", "--labels")),
    ] = None
    id: Annotated[str | None, option("COLUMN", "Column of the ids.")] = None


@dataclass(frozen=True, kw_only=True)
class TrainedColumns(Columns):
    """The options on labelled rows to train on."""

    target: Annotated[
        Literal["auto", "one", "several", "number"] | None,
        option(
            None, "What the label of a row is: one label, several, or a number to predict. Default: what they hold."
        ),
    ] = None
    label_names: Annotated[
        Path | None, reads(option("FILE", "Names of numbered labels: a name, or number and name, a line; or JSON."))
    ] = None
    label_by: Annotated[
        Literal["column", "file"] | None, option(None, "file: the label is the name of the row's file, as in good.txt.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class Inference:
    """The options `--device`, `--precision` and `--batch-size` of a command that reads a run."""

    device: Annotated[str, device_option] = "auto"
    precision: Annotated[Precision, precision_option] = "fp32"
    batch_size: Annotated[int, batch_size_option] = 64


@dataclass(frozen=True, kw_only=True)
class Computation:
    """The options `--device`, `--precision` and `--batch-size` of a training. None: the value of the preset."""

    device: Annotated[str | None, device_option] = None
    precision: Annotated[Precision | None, precision_option] = None
    batch_size: Annotated[int | None, batch_size_option] = None


def take_file(request: Any) -> None:
    """Let FILE be the --data of a request. Raises UsageError if both are given."""
    if request.file is not None and request.data not in (None, request.file):
        raise UsageError(f"{request.file} and --data {request.data} both name the data; leave out one")
    object.__setattr__(request, "data", request.file or request.data)


def named_files(data: Path | None, **files: Sequence[Path] | None) -> dict[str, Files]:
    """Return the absolute path of each file that an option names, by the split of its rows; a list of several.

    Raises UsageError if --data and --train both name the training rows. Raises UsageError if two options name the same file,
    because rows that train or select the model must not be scored.
    """
    if (train := files.get("train")) and data is not None:
        raise UsageError(f"FILE (--data) {data} and --train {train[0]} both name the training rows; leave out one")
    given = {"data": () if data is None else (data,), **files}
    named = [(name, path) for name, paths in given.items() for path in paths or () if path.exists()]
    for (one, first), (two, second) in combinations(named, 2):
        if first.samefile(second):
            raise UsageError(
                f"--{one} {first} and --{two} {second} are the same; leave out --{two}, or name other rows"
            )
    found = {
        split: tuple(str(path.expanduser().absolute()) for path in paths) for split, paths in files.items() if paths
    }
    return {split: paths if paths[1:] else paths[0] for split, paths in found.items()}


def overrides_of(section: str, settings: Sequence[str], given: Mapping[str, object]) -> dict[str, tuple[str, object]]:
    """Return the keys of the preset that options set, each with the name of its option and its value.

    `given` maps the name of an option, with underscores, to its value; None means that it was not given, and an option that
    sets no key is left out. The options --device, --precision and --batch-size override --set. Raises UsageError if --set sets
    the key of any other option.
    """
    from recurcli.validation import parse_value

    keys = {
        **dict.fromkeys(("seed", "device", "precision"), "runtime"),
        **dict.fromkeys(("epochs", "learning_rate", "batch_size", "teacher"), section),
        **dict.fromkeys(("train", "dev", "test"), "data.files"),
        **dict.fromkeys(("text", "pair", "target", "label", "label_separator", "id"), "data"),
        **dict.fromkeys(("label_files", "label_names", "label_by"), "data"),
        **dict.fromkeys(("header", "delimiter", "quote", "encoding"), "data"),
    }
    overrides = {}
    for name, value in given.items():
        if value is None or name not in keys:
            continue
        key, option = f"{keys[name]}.{name}", f"--{name.replace('_', '-')}"
        twice = any(setting.partition("=")[0].strip() == key for setting in settings)
        if twice and name not in ("device", "precision", "batch_size"):
            raise UsageError(f"{option} and --set {key} set the same key; give one of them")
        value = str(value) if isinstance(value, Path) else value
        overrides[key] = (option, parse_value(str(value), option) if name == "epochs" else value)
    return overrides
