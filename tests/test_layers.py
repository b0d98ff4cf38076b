"""The baselines of the package: an import points down, and neighbours do not import each other."""

import ast
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "recurcli"

LAYERS = [
    {"__init__", "__main__"},
    {"cli", "estimator"},
    {"display"},
    {"commands"},
    {"requests"},
    {"models"},
    {"preset"},
    {"training"},
    {"export"},
    {"evaluation", "diagnostics"},
    {"runs"},
    {"linear"},
    {"network", "tokens"},
    {"data"},
    {"targets"},
    {"config"},
    {"encoders"},
    {"layers"},
    {"ops"},
]
EVERYWHERE = {
    *("cache", "device", "distributed", "errors", "files", "log"),
    *("metrics", "process", "significance", "validation", "version"),
}
"""The lowest layer: imported by every other, and importing only each other."""


def package_of(path: Path) -> str:
    relative = path.relative_to(PACKAGE)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


def imports_of(path: Path) -> set[str]:
    """The packages of recurcli that a file imports."""
    packages = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            if node.module == "recurcli":
                packages |= {alias.name if _is_module(alias.name) else "__init__" for alias in node.names}
            elif node.module and node.module.startswith("recurcli."):
                packages.add(node.module.split(".")[1])
        elif isinstance(node, ast.Import):
            packages |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("recurcli.")}
    return packages


def _is_module(name: str) -> bool:
    return (PACKAGE / name).exists() or (PACKAGE / f"{name}.py").exists()


SOURCES = sorted(PACKAGE.rglob("*.py"))


def test_imports_point_down() -> None:
    level = {name: height for height, layer in enumerate(LAYERS) for name in layer}
    for path in SOURCES:
        package = package_of(path)
        for other in imports_of(path) - {package} - EVERYWHERE:
            assert package not in EVERYWHERE, f"{path}: {package} is in the lowest layer and imports {other}"
            assert level[package] < level[other], f"{path}: {package} imports {other}, which is in no layer below"


def test_every_package_stands_in_a_layer() -> None:
    packages = {package_of(path) for path in SOURCES}
    assert packages == set().union(*LAYERS) | EVERYWHERE


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
