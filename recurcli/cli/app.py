"""The Typer application that the commands belong to.

torch and datasets are imported only inside functions, here and in the commands, so that help comes at once.
"""

import sys
from typing import Annotated

import typer
from typer.core import TyperArgument

from recurcli.distributed import group

app = typer.Typer(
    name="recur",
    help="Train small text classifiers from labelled rows, evaluate them, and ship them.",
    epilog="\b\nStart with (two minutes, no data needed):\n  recur finetune --preset starsaber-listops-mini",
    rich_markup_mode=None,  # plain help: nothing is squeezed into a narrow column, and rich need not be imported
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _name(self: TyperArgument) -> str:
    """Return RUN or, for an argument that may be repeated, RUN..."""
    return f"{self.metavar}{'' if self.nargs == 1 else '...'}"


# Typer has no option for these: by default help shows `{RUN}...` in the usage, and `RUN <list[Path]>` below it.
# They are private to Typer: where it renames one, help shows its default again.
TyperArgument._usage_display_name = lambda self: _name(self) if self.required else f"[{_name(self)}]"  # type: ignore[method-assign]
TyperArgument._rich_display_name = _name  # type: ignore[method-assign]
TyperArgument.display_type_rich = lambda self, ctx: None  # type: ignore[method-assign]

SHARED = ("pretrain", "finetune", "eval", "predict")
"""Commands whose work several processes share under torchrun."""


def example(*lines: str) -> str:
    """Return the epilogue of a command's help: `lines` as examples, unwrapped."""
    return "\n".join(["\b", "Example:" if len(lines) == 1 else "Examples:", *(f"  {line}" for line in lines)])


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
    elif context.invoked_subcommand not in SHARED and not group.current().is_main:
        raise typer.Exit  # one process does it alone
