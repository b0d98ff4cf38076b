"""The names of presets, encoders and tasks, and what an unknown name may mean."""

import difflib
from importlib.metadata import entry_points
from itertools import chain
from pathlib import Path

from recurcli.data.tasks import TASKS
from recurcli.errors import did_you_mean


def preset_folder() -> Path:
    """Return the folder of recur's presets: inside an installed package, or next to the package in a checkout."""
    package = Path(__file__).resolve().parent.parent
    inside = package / "presets"
    return inside if inside.is_dir() else package.parent / "presets"


def preset_names() -> dict[str, list[str]]:
    """Return the names of the encoders, the tasks, and the presets with a file of their own that are no paper's."""
    return {
        "encoders": sorted({path.stem for path in preset_folder().glob("encoders/*.yaml")} | _foreign_encoders()),
        "tasks": sorted(TASKS),
        "presets": sorted(path.stem for path in preset_folder().glob("*.yaml") if path.stem != "base"),
    }


def paper_presets() -> dict[str, list[str]]:
    """Return the names of the presets in papers/, by the folder of their paper."""
    folders = sorted(path for path in preset_folder().glob("papers/*") if path.is_dir())
    return {folder.name: sorted(path.stem for path in folder.glob("*.yaml")) for folder in folders}


def preset_file(name: str) -> Path | None:
    """Return the file of the preset `name`, which may be one of a paper; None if it has no file of its own."""
    folder = preset_folder()
    found = [path for path in (folder / f"{name}.yaml", *folder.glob(f"papers/*/{name}.yaml")) if path.is_file()]
    return found[0] if found and name != "base" else None


def _foreign_encoders() -> set[str]:
    """Return the names of encoders of other installed packages, without importing them."""
    return {point.name for point in entry_points(group="recurcli.encoders")}


def preset_meant(name: str) -> str:
    """Return the end of the error message about an unknown preset: the part that is unknown, or the nearest preset."""
    names = preset_names()
    encoders, tasks = names["encoders"], names["tasks"]
    if name in encoders:
        return f" (an encoder has a task beside it); did you mean '{name}-custom'?"
    if name in tasks:
        return f" (a task has an encoder before it); did you mean 'starsaber-{name}'?"
    task = max((task for task in tasks if name.endswith(f"-{task}")), key=len, default="")
    if task:
        encoder = name.removesuffix(f"-{task}")
        near = difflib.get_close_matches(encoder, encoders, n=1)
        return (
            f"; did you mean '{near[0]}-{task}'?"
            if near
            else f": no encoder '{encoder}'{did_you_mean(encoder, encoders)}"
        )
    hint = did_you_mean(
        name,
        [
            *names["presets"],
            *chain(*paper_presets().values()),
            *(f"{encoder}-{task}" for encoder in encoders for task in tasks),
        ],
    )
    return hint if "mean" in hint else "; `recur presets` lists them"
