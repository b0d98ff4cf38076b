"""Make programs.jsonl, beside this script, from the stanzas of Debian's packages on stdin.

    apt-cache dumpavail | python presets/examples/make_programs.py

A row is the one-line description of a program, the kinds of data that it works with by its tags (any number of them), and
the decimal logarithm of its installed size in KiB. The order of the stanzas does not matter: the same packages make the
same bytes.
"""

import json
import math
import re
import sys
from collections import Counter, defaultdict
from pathlib import Path

FEWEST = 40
"""The rows that a tag needs to be a label."""
FILE = Path(__file__).parent / "programs.jsonl"


def programs(stanzas: str) -> list[tuple[str, list[str], int]]:
    """Descriptions of programs with the kinds of data that they work with and the installed size, sorted.

    Descriptions that are equal up to a dash, a colon or a bracket are of one program. The shortest of them stays.
    """
    alike = defaultdict[str, list[tuple[int, str, list[str], int]]](list)
    for stanza in stanzas.split("\n\n"):
        fields = dict(re.findall(r"^(Description|Installed-Size|Tag): (.*(?:\n .*)*)$", stanza, flags=re.MULTILINE))
        text, tags = " ".join(fields.get("Description", "").split("\n")[0].split()), fields.get("Tag", "")
        kinds = sorted({*re.findall(r"\bworks-with::([\w-]+)", tags)} - {"TODO"})
        if not (text and kinds and re.search(r"\brole::program\b", tags) and fields.get("Installed-Size")):
            continue
        if not re.search("transit|dummy", text, flags=re.IGNORECASE):
            start = re.split(r" --? | [(\[]|: ", text)[0].casefold()
            alike[start].append((len(text), text, kinds, int(fields["Installed-Size"])))
    return sorted(min(found)[1:] for found in alike.values())


def main() -> None:
    rows = programs(sys.stdin.buffer.read().decode())
    counts = Counter(kind for _, kinds, _ in rows for kind in kinds)
    with FILE.open("w", encoding="utf-8", newline="\n") as file:
        for text, kinds, size in rows:
            works_with = [kind for kind in kinds if counts[kind] >= FEWEST]
            row = {"text": text, "works_with": works_with, "size": round(math.log10(max(size, 1)), 2)}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
