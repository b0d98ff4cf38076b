"""The `recur presets` command: its options and help."""

from typing import Annotated

from recurcli.cli.app import command
from recurcli.requests.options import Debug, Json, Quiet, Settings, argument, flag


@command("recur presets starsaber-tnews")
def presets(
    *,
    name: Annotated[str | None, argument("NAME", "A preset's name or file.")] = None,
    settings: Settings = None,
    every: Annotated[bool, flag("--all", "Show all keys; without NAME list the papers' presets too.")] = False,
    schema: Annotated[bool, flag("--schema", "Print the JSON Schema of a preset file.")] = False,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """List the presets, or show what one changes."""
    from recurcli.config import json_schema
    from recurcli.display.presets import print_preset, print_preset_names
    from recurcli.display.screen import print_json
    from recurcli.preset import compose, paper_presets, preset_names

    if schema:
        print_json(json_schema())
    elif name is None:
        names, papers = preset_names(), paper_presets()
        if json:
            print_json({**names, "papers": papers})
        else:
            print_preset_names(names, papers, every=every)
    else:
        resolved = compose(name, settings=settings or [])
        if json:
            rows = {key: {"value": value, "origin": origin} for key, value, origin in resolved.rows()}
            print_json({"preset": resolved.name, "keys": rows})
        else:
            print_preset(resolved, every=every)
