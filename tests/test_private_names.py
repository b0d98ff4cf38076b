"""The private names of other packages that recurcli touches exist: a version that renames one fails here, by its name."""

import pkgutil
import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "recurcli"
SECTION = (PACKAGE / "README.md").read_text(encoding="utf-8").partition("## Private names of other packages")[2]
ROWS = re.findall(r"^\| `([\w.]+)` \| \[([\w./]+)\]", SECTION, flags=re.MULTILINE)


def test_the_readme_lists_private_names() -> None:
    assert len(ROWS) >= 5


@pytest.mark.parametrize(("name", "file"), ROWS)
def test_a_private_name_exists_and_is_used_where_the_readme_says(name: str, file: str) -> None:
    pkgutil.resolve_name(name)  # raises AttributeError
    assert name.rpartition(".")[2] in (PACKAGE / file).read_text(encoding="utf-8")
