"""Make packages.csv and packages-new.txt, beside this script, from the stanzas of Debian's packages on stdin.

    apt-cache dumpavail | python presets/examples/make_packages.py

A row is the one-line description of a package and its section. The order of the stanzas does not matter: the same
packages make the same bytes.
"""

import csv
import hashlib
import re
import sys
from collections import defaultdict
from pathlib import Path

SECTIONS = ("fonts", "games", "mail", "math", "sound")
MOST, NEW = 600, 4
"""The largest number of rows of a section in packages.csv, and the rows of each section in packages-new.txt."""
FOLDER = Path(__file__).parent


def described(stanzas: str) -> list[tuple[str, str]]:
    """Descriptions and their sections, sorted.

    Descriptions that are equal up to a dash, a colon or a bracket are of one program: its data files, its
    documentation, its variants. The shortest of them stays, or none if they are of two sections.
    """
    alike = defaultdict[str, list[tuple[int, str, str]]](list)
    for stanza in stanzas.split("\n\n"):
        fields = dict(re.findall(r"^(Description|Section): (.*)$", stanza, flags=re.MULTILINE))
        text, section = " ".join(fields.get("Description", "").split()), fields.get("Section")
        if text and section in SECTIONS and not re.search("transit|dummy", text, flags=re.IGNORECASE):
            start = re.split(r" --? | [(\[]|: ", text)[0].casefold()
            alike[start].append((len(text), text, section))
    one_section = (min(found) for found in alike.values() if len({section for *_, section in found}) == 1)
    return sorted((text, section) for _, text, section in one_section)


def main() -> None:
    rows = described(sys.stdin.buffer.read().decode())
    drawn = sorted(rows, key=lambda row: hashlib.sha256(row[0].encode()).digest())  # the same draw each time
    kept, new = list[tuple[str, str]](), list[str]()
    for section in SECTIONS:
        own = [row for row in drawn if row[1] == section]
        new += [text for text, _ in own[:NEW]]
        kept += own[NEW : NEW + MOST]
    with (FOLDER / "packages.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([("text", "label"), *sorted(kept)])
    (FOLDER / "packages-new.txt").write_bytes("".join(f"{text}\n" for text in sorted(new)).encode())


if __name__ == "__main__":
    main()
