"""The scripts of `presets/examples`, and the files that they made."""

import csv
import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent / "presets" / "examples"


def stanza(name: str, text: str, section: str) -> str:
    return f"Package: {name}\nDescription: {text}\n more of it\nSection: {section}\nSize: 1"


def run_copy(script: str, folder: Path, stanzas: list[str]) -> None:
    """Run a copy of the script in `folder`."""
    folder.mkdir()
    copy = shutil.copy(EXAMPLES / script, folder)
    subprocess.run([sys.executable, copy], input="\n\n".join(stanzas).encode(), check=True)


def made(folder: Path, stanzas: list[str]) -> tuple[str, str]:
    """packages.csv and packages-new.txt as a copy of the script makes them in `folder`."""
    run_copy("make_packages.py", folder, stanzas)
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


def program(name: str, text: str, tags: str, size: int = 1000) -> str:
    return f"Package: {name}\nInstalled-Size: {size}\nDescription: {text}\nTag: {tags}\nSection: x"


def test_the_script_of_programs_takes_their_kinds_of_data_and_their_size(tmp_path: Path) -> None:
    texts = [
        program(f"t{n}", f"editor number {n}", "role::program,\n works-with::text, use::editing") for n in range(41)
    ]
    others = [
        program(
            "a", "Show - long", "role::program, works-with::image, works-with::image:raster, works-with::text", 100
        ),
        program("b", "Show (a tool for images)", "role::program, works-with::text"),
        program("c", "Plàyer of tunes", "works-with::audio, role::program", 0),
        program("d", "library of texts", "role::shared-lib, works-with::text"),
        program("e", "to be tagged", "role::program, works-with::TODO"),
        program("f", "Dummy for texts", "role::program, works-with::text"),
        stanza("g", "program without tags", "text"),
    ]
    run_copy("make_programs.py", tmp_path / "a", [*texts, *others])
    run_copy("make_programs.py", tmp_path / "b", [*others, *texts][::-1])
    lines = (tmp_path / "a" / "programs.jsonl").read_text(encoding="utf-8")
    assert lines == (tmp_path / "b" / "programs.jsonl").read_text(encoding="utf-8")
    rows = [json.loads(line) for line in lines.splitlines()]
    assert rows[:2] == [
        {"text": "Plàyer of tunes", "works_with": [], "size": 0.0},
        {"text": "Show - long", "works_with": ["text"], "size": 2.0},
    ]
    assert rows[2:] == sorted(rows[2:], key=lambda row: str(row["text"])) and len(rows) == 43
    assert all(row["works_with"] == ["text"] and row["size"] == 3.0 for row in rows[2:])


def test_the_programs_are_as_their_description_counts_them() -> None:
    rows = [json.loads(line) for line in (EXAMPLES / "programs.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len({row["text"] for row in rows}) == len(rows) == 3156
    readme = (EXAMPLES / "README.md").read_text(encoding="utf-8").replace("\n  ", " ")
    counts = Counter(kind for row in rows for kind in row["works_with"])
    assert all(f"{count} {kind}" in readme for kind, count in counts.items()) and len(counts) == 16
    assert f"leaves {sum(not row['works_with'] for row in rows)} rows without any label" in readme
