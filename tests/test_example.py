"""`presets/examples/make_packages.py`, and the two files that it made."""

import csv
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent / "presets" / "examples"


def stanza(name: str, text: str, section: str) -> str:
    return f"Package: {name}\nDescription: {text}\n more of it\nSection: {section}\nSize: 1"


def made(folder: Path, stanzas: list[str]) -> tuple[str, str]:
    """packages.csv and packages-new.txt as a copy of the script makes them in `folder`."""
    folder.mkdir()
    script = shutil.copy(EXAMPLES / "make_packages.py", folder)
    subprocess.run([sys.executable, script], input="\n\n".join(stanzas).encode(), check=True)
    return (folder / "packages.csv").read_text(encoding="utf-8"), (folder / "packages-new.txt").read_text("utf-8")


def test_the_script_takes_one_description_a_program_in_any_order(tmp_path: Path) -> None:
    games = [stanza(f"g{n}", f"game number {n}", "games") for n in range(610)]
    sounds = ["Plàyer (data files)", "Plàyer - long", "a", "b", "c"]
    others = [
        *(stanza(f"p{n}", text, "sound") for n, text in enumerate(sounds)),
        stanza("old", "transitional package", "mail"),
        stanza("dummy", "Dummy for mail", "mail"),
        *(stanza(f"b-{section}", "in both: one", section) for section in ("math", "fonts")),
        stanza("e", "editor of texts", "editors"),
    ]
    table, new = made(tmp_path / "a", [*games, *others])
    assert (table, new) == made(tmp_path / "b", [*others, *games][::-1])
    head, *rows = csv.reader(table.splitlines())
    assert head == ["text", "label"] and rows == sorted(rows)
    assert Counter(label for _, label in rows) == {"games": 600}
    assert len(new.splitlines()) == 8 and not {text for text, _ in rows} & set(new.splitlines())
    assert {text for text in new.splitlines() if "game" not in text} == {"Plàyer - long", "a", "b", "c"}


def test_the_files_have_the_rows_that_their_description_counts() -> None:
    with (EXAMPLES / "packages.csv").open(encoding="utf-8", newline="") as file:
        _, *rows = csv.reader(file)
    texts, new = [text for text, _ in rows], (EXAMPLES / "packages-new.txt").read_text(encoding="utf-8").splitlines()
    assert len(set(texts)) == len(rows) == 2381 and len(new) == 20 and not set(texts) & set(new)
    readme = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert all(f"{count} {label}" in readme for label, count in Counter(label for _, label in rows).items())
