"""What is installed is what was tested: pinned versions for CI, lower bounds that hold."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CONSTRAINTS = (ROOT / ".ci" / "constraints.txt").read_text(encoding="utf-8").splitlines()
TEST_TOOLS = ("pytest", "pytest-xdist", "hypothesis", "build", "hatchling")
"""What the suite needs beyond the project's own dependencies."""
DISTRIBUTIONS = {"yaml": "PyYAML", "sklearn": "scikit-learn", "pydantic_core": "pydantic"}
"""The package that a module comes from, where the names differ."""


def lower_bounds(requirements: list[str]) -> dict[str, str]:
    """Name to lowest version, of requirements such as `torch>=2.10`."""
    found = [re.match(r"([A-Za-z0-9_.-]+)>=([0-9.]+)", requirement) for requirement in requirements]
    return {match[1].lower(): match[2] for match in found if match}


def version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text))


def imported(path: Path) -> set[str]:
    """The first names of the modules that a file imports, also inside functions."""
    nodes = [*ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    modules = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    modules += [str(node.module) for node in nodes if isinstance(node, ast.ImportFrom) and not node.level]
    return {module.split(".")[0] for module in modules}


def test_every_dependency_has_a_lower_bound_and_a_pinned_version_above_it() -> None:
    extras = PROJECT["optional-dependencies"]
    itself, *tools = extras["dev"]
    assert re.match(r"recurcli\[", itself)
    used = re.findall(r"\w+", itself)[1:]
    requirements = [*PROJECT["dependencies"], *(line for name in used for line in extras[name])]
    pinned = {line.split("==")[0].lower(): line.split("==")[1] for line in CONSTRAINTS}
    bounds = lower_bounds(requirements)
    assert len(bounds) == len(requirements)
    for name, bound in {**bounds, **lower_bounds(tools)}.items():
        assert version(pinned[name]) >= version(bound), name


def test_every_import_is_of_a_declared_package() -> None:
    groups = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    declared = {re.split(r"[^\w.-]", line)[0].lower().replace("_", "-") for group in groups for line in group}
    modules = set().union(*map(imported, (ROOT / "recurcli").rglob("*.py"))) - sys.stdlib_module_names - {"recurcli"}
    assert len(modules) > 20
    assert {DISTRIBUTIONS.get(module, module).lower().replace("_", "-") for module in modules} <= declared


def test_ci_installs_the_pinned_versions() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    installs = [line for line in readme.splitlines() if "pip install -q" in line]
    assert installs
    assert all("-c .ci/constraints.txt" in line for line in installs)


def test_the_workflow_runs_ci_from_the_lowest_python_on() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    job = workflow["jobs"]["ci"]
    assert f">={job['strategy']['matrix']['python'][0]}" == PROJECT["requires-python"]
    assert job["steps"][-1] == {"run": "bash .ci/run"}


@pytest.mark.slow
def test_the_suite_passes_on_the_declared_lower_bounds(tmp_path: Path) -> None:
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    bounds = lower_bounds([*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["report"]])
    tools = lower_bounds(PROJECT["optional-dependencies"]["dev"])
    wanted = {**bounds, **{name: tools[name] for name in TEST_TOOLS}}
    pins = [f"{name}=={bound}" for name, bound in wanted.items()]
    installed = subprocess.run(
        [python, "-m", "pip", "install", "-q", *pins], capture_output=True, text=True, check=False
    )
    assert installed.returncode == 0, installed.stderr[-2000:]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [python, "-m", "pytest", "-q", "-x", "-n", "2", "--deselect", "tests/test_wheel.py", "--deselect", __file__],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    print(done.stdout[-2000:])
    assert done.returncode == 0, done.stdout[-4000:]
