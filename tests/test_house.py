"""The floors of the package: an import points down, and neighbours do not import each other."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "recurcli"

FLOORS = [
    {"__main__"},
    {"cli", "estimator"},
    {"display"},
    {"commands"},
    {"preset"},
    {"training"},
    {"evaluation", "export", "diagnostics", "inspection"},
    {"runs"},
    {"linear", "model", "tokens"},
    {"data", "encoders"},
    {"layers"},
    {"ops"},
]
EVERYWHERE = {
    "allocator",
    "cache",
    "distributed",
    "errors",
    "events",
    "facts",
    "files",
    "findings",
    "interruptible",
    "strict_yaml",
    "validation",
    "__init__",
}
"""The ground: imported by every floor, and importing only each other."""


def room_of(path: Path) -> str:
    relative = path.relative_to(PACKAGE)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


def imports_of(path: Path) -> set[str]:
    """The rooms of recurcli that a file imports."""
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            if node.module == "recurcli":
                rooms |= {alias.name if (PACKAGE / alias.name).exists() else "" for alias in node.names}
                rooms |= {alias.name for alias in node.names if (PACKAGE / f"{alias.name}.py").exists()}
            elif node.module and node.module.startswith("recurcli."):
                rooms.add(node.module.split(".")[1])
        elif isinstance(node, ast.Import):
            rooms |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("recurcli.")}
    return rooms - {""}


SOURCES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down(path: Path) -> None:
    room = room_of(path)
    if room == "__init__":
        return
    level = {name: height for height, floor in enumerate(FLOORS) for name in floor}
    for other in imports_of(path) - {room} - EVERYWHERE:
        assert room not in EVERYWHERE, f"{room} is the ground and imports {other}"
        assert level[room] < level[other], f"{room} must not import {other}: it is not on a floor below"


def test_every_room_has_a_floor() -> None:
    rooms = {room_of(path) for path in SOURCES}
    assert rooms == set().union(*FLOORS) | EVERYWHERE


@pytest.mark.parametrize("arguments", [["--help"], ["presets"], ["presets", "starsaber-tnews"], ["finetune", "--help"]])
def test_what_needs_no_torch_does_not_import_it(arguments: list[str]) -> None:
    code = (
        "import sys; from recurcli.cli import run; code = run(sys.argv[1:]); "
        "heavy = {'torch', 'datasets', 'transformers', 'sklearn', 'scipy', 'pandas', 'pyarrow'} & set(sys.modules); "
        "sys.exit(f'imported {heavy}' if heavy else code)"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_commands_print_nothing_and_know_no_typer() -> None:
    for path in (PACKAGE / "commands").rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
        assert not any(isinstance(call.func, ast.Name) and call.func.id == "print" for call in calls), path
        assert "import typer" not in path.read_text(encoding="utf-8")


def test_nothing_is_pickled() -> None:
    for path in SOURCES:
        text = path.read_text(encoding="utf-8")
        for word in ("torch.load(", "torch.save(", "import pickle", "yaml.load(", "yaml.unsafe_load"):
            assert word not in text, f"{path}: {word}"
