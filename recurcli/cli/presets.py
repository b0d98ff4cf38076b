"""The `recur presets` command: its options and help."""

from typing import Annotated

import typer

from recurcli.cli.app import app, example
from recurcli.cli.options import Debug, Json, Quiet, Settings


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
