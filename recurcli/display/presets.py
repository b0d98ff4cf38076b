"""What `recur presets` prints: encoders, tasks and presets by name, and one preset with all its keys."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from recurcli.config import Preset, described
from recurcli.display.screen import Styled, Table, cell, heading, listing, show, styled
from recurcli.encoders.registry import encoder_config
from recurcli.errors import pluralize

if TYPE_CHECKING:
    from recurcli.preset import ResolvedPreset

ADVICE = (
    ("any texts", "starsaber-custom", "keeps the best of a linear model, the encoder and their ensemble"),
    ("in seconds", "linear-custom", "the linear model alone"),
    ("order matters", "bilstm-custom", "recurrence over each text from both ends"),
)
"""Advice on the encoder for each kind of rows: preset and reason."""


def print_preset_names(names: Mapping[str, list[str]], papers: Mapping[str, list[str]], *, every: bool) -> None:
    """Print which encoder is for what, then the names of encoders, tasks and presets. `every` adds the presets of papers."""
    advice = [(kind, Styled(preset, "bold"), reason) for kind, preset, reason in ADVICE]
    listed = [(kind, "  ".join(names[kind])) for kind in ("encoders", "tasks", "presets")]
    if every:
        listed += [(f"paper {paper}", "  ".join(rows)) for paper, rows in papers.items()]
    else:
        listed.append(("papers", "  ".join(f"{paper} ({len(rows)} presets)" for paper, rows in papers.items())))
    show(
        Text("A good start:"),
        Table(["", "", ""], advice),
        Text("A preset is ENCODER-TASK: any encoder with any task (ptb: causal encoders), or a name of its own."),
        listing(listed),
        Text("recur presets NAME shows what a preset changes; --all lists those of papers.", style="dim"),
    )


def print_preset(resolved: "ResolvedPreset", *, every: bool) -> None:
    """Print the keys in which a preset differs from the defaults, each with its value, origin and meaning.

    With `every` print all keys with their values and origins.
    """
    rows = [(key, json.dumps(value, ensure_ascii=False), origin) for key, value, origin in resolved.rows()]
    if every:
        shown = [styled(row, "dim") if row[-1] == "default" else row for row in rows]
        show(heading(resolved.name), Table(["key", "value", "from"], shown))
        return
    about = dict(described(Preset))
    about |= described(encoder_config(resolved.preset.encoder["name"]), "encoder.")
    about["encoder.name"] = "The encoder."
    own = [row for row in rows if row[-1] != "default"]
    what = f"{len(own)} of {pluralize(len(rows), 'key')} differ from the defaults; --all shows the others"
    lines: list[RenderableType] = []
    for key, value, origin in own:
        lines += [Text("  ").join([cell(key, "bold"), cell(value), cell(origin, "dim")])]
        lines += [Padding(cell(about.get(key, "")), (0, 0, 0, 4))]
    show(heading(resolved.name, what), "", *lines)
