"""The wheel is the same file each time, and works in an empty folder: it carries the presets, and neither tests nor data."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from hatchling.build import build_wheel

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = folder.glob("*.whl")
    return path


def test_two_builds_of_a_wheel_are_the_same_file(wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert (tmp_path / build_wheel(str(tmp_path))).read_bytes() == wheel.read_bytes()


def test_the_wheel_holds_the_presets_and_no_tests(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    shipped = {name.removeprefix("recurcli/presets/") for name in names if name.startswith("recurcli/presets/")}
    there = [path.relative_to(ROOT / "presets") for path in (ROOT / "presets").rglob("*.*")]
    assert shipped == {str(path) for path in there if not path.is_relative_to("papers/results")}
    assert "recurcli/py.typed" in names, "the wheel is typed"
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "recurcli").rglob("*.py")}
    assert modules <= set(names), "no rule of .gitignore hides a module from the wheel"
    tops = {name.split("/")[0] for name in names}
    assert tops == {"recurcli", next(top for top in tops if top.endswith(".dist-info"))}


@pytest.mark.slow
def test_an_installed_wheel_finds_its_presets(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", str(site), str(wheel)]
    subprocess.run(pip, check=True, capture_output=True)
    empty = tmp_path / "empty"
    empty.mkdir()
    code = "import sys, recurcli.cli as cli; assert 'site/recurcli' in cli.__file__; sys.exit(cli.run(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", code, "presets", "starsaber-tnews"],
        cwd=empty,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "presets/tasks/tnews.yaml:" in done.stdout
    assert not list(empty.iterdir())
