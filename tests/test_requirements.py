"""Installed packages that are older than recur needs are named before they are imported."""

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from recurcli.errors import UsageError
from recurcli.requirements import check_packages, unmet

ROOT = Path(__file__).resolve().parent.parent


def install(folder: Path, name: str, version: str, *required: str) -> None:
    """Write the metadata of a package into `folder`."""
    (folder / f"{name}-{version}.dist-info").mkdir()
    lines = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {each}" for each in required)]
    (folder / f"{name}-{version}.dist-info" / "METADATA").write_text("Metadata-Version: 2.4\n" + "\n".join(lines))


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder whose packages come before the others."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    unmet.cache_clear()
    yield tmp_path
    unmet.cache_clear()


def python(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(site)}
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def run_in_one_process(site: Path, *lines: str) -> subprocess.CompletedProcess[str]:
    """Run command lines one after another; the last line on stdout has their exit codes."""
    code = "import sys; from recurcli.cli import run; print([run(line.split()) for line in sys.argv[1:]])"
    return python(site, "-c", code, *lines)


def test_a_torch_that_is_too_old_is_named_and_not_imported(tmp_path: Path) -> None:
    install(tmp_path, "torch", "2.4.0")
    (tmp_path / "torch.py").write_text("raise SystemExit('torch was imported')")
    commands = ("predict x", "finetune --preset starsaber-custom --data x.csv", "check x.csv")
    done = run_in_one_process(tmp_path, *commands)
    line = "recur: error: recur needs torch ≥ 2.10, found 2.4.0: pip install --upgrade torch\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, "[2, 2, 2]\n", 3 * line)


def test_a_torch_that_is_too_old_is_named_in_python(tmp_path: Path) -> None:
    install(tmp_path, "torch", "2.4.0")
    (tmp_path / "torch.py").write_text("raise SystemExit('torch was imported')")
    last = python(tmp_path, "-c", "import recurcli; recurcli.load").stderr.splitlines()[-1]
    assert last.startswith("recurcli.errors.UsageError: recur needs torch ≥ 2.10, found 2.4.0")


def test_help_and_presets_do_not_look_at_the_versions(tmp_path: Path) -> None:
    install(tmp_path, "torch", "2.4.0")
    done = run_in_one_process(tmp_path, "--help", "finetune --help", "presets", "presets starsaber-tnews")
    assert (done.returncode, done.stdout.splitlines()[-1], done.stderr) == (0, "[0, 0, 0, 0]", "")


@pytest.mark.parametrize(
    ("required", "version", "words"),
    [
        ("a>=2.10", "2.9.1", "a ≥ 2.10, found 2.9.1"),
        ("a>=2.10", "2.10.0+cpu", None),
        ("a>=2.10.0", "2.10", None),
        ("a>=2.10", "2.10.0a0+git1", None),
        ("a>=2.10", "10.0", None),
        ("a (>=2.10)", "2.4", "a ≥ 2.10, found 2.4"),
        ("a!=0.8.0rc0,>=0.4.5", "0.8.0rc0", "a other than 0.8.0rc0, found 0.8.0rc0"),
        ("a!=0.8.0rc0,>=0.4.5", "0.4.4", "a ≥ 0.4.5, found 0.4.4"),
        ("a!=0.8.0rc0,>=0.4.5", "0.8.0", None),
        ("a>=1; extra == 'tune'", "0.1", None),
        ("b>=1", "2", "b ≥ 1, found none"),
        ("json>=1", "2", None),  # without metadata, but there
    ],
)
def test_a_version_is_compared_with_the_requirement(required: str, version: str, words: str | None, site: Path) -> None:
    install(site, "recurcli", "9.9", required)
    install(site, "a", version)
    assert [*unmet().values()] == ([] if words is None else [words])


def test_the_packages_of_an_extra_are_checked_where_it_is_used(site: Path) -> None:
    required = ("matplotlib>=3.11; extra == 'report'", 'jinja2>=3.1; extra == "report"', "torch>=99")
    install(site, "recurcli", "9.9", *required)
    install(site, "jinja2", "3.0.3")
    install(site, "matplotlib", "3.2")
    check_packages("tune", "recur tune")
    with pytest.raises(UsageError) as raised:
        check_packages("report", "--plot", ("matplotlib",))
    assert str(raised.value) == "--plot needs matplotlib ≥ 3.11, found 3.2: pip install 'recurcli[report]'"
    with pytest.raises(UsageError, match=r"--report needs matplotlib ≥ 3.11, found 3.2 and jinja2 ≥ 3.1, found 3.0.3"):
        check_packages("report", "--report")


def test_every_declared_requirement_is_of_a_form_that_is_read() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    used = [*project["dependencies"], *(each for extra in extras if extra != "dev" for each in extras[extra])]
    assert not [each for each in used if not re.fullmatch(r"[\w-]+(,?(>=|!=)[\w.]+)+", each)]
