"""Print all tests of a study as a Markdown table, with Holm's correction over them: python summary.py FOLDER.

FOLDER has the tables that study.sh wrote, the JSON of `recur compare`. Accuracies are in per cent, perplexities are not.
The minutes are the CPU time of a table's trainings.
"""

import json
import sys
from pathlib import Path

from recurcli.evaluation.significance import holm


def main(folder: Path) -> None:
    """Print the table of the tests in `folder`."""
    tables = {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}
    tables = {name: table for name, table in tables.items() if "tests" in table}
    tests = [(name, test) for name, table in tables.items() for test in table["tests"]]
    corrected = holm([test["p_value"] for _, test in tests])
    print("| table | A | B | A, B | A − B | 95 % interval | p | p (Holm) | minutes |")
    print("|---|---|---|---|---|---|---|---|---|")
    for (name, test), p_holm in zip(tests, corrected, strict=True):
        groups = {group["name"]: group for group in tables[name]["groups"]}
        factor = 1 if tables[name]["metric"] == "perplexity" else 100
        scores = ", ".join(_score(groups[test[side]], factor) for side in ("a", "b") if test[side] in groups)
        interval = "–" if test["interval"] is None else " to ".join(f"{factor * end:+.1f}" for end in test["interval"])
        seconds = [group["n"] * (group["cpu_seconds"] or 0) for group in groups.values()]
        difference = f"{factor * test['difference']:+.1f}"
        numbers = f"{difference} | {interval} | {test['p_value']:.3f} | {p_holm:.3f} | {sum(seconds) / 60:.0f}"
        print(f"| {name} | {test['a']} | {test['b']} | {scores} | {numbers} |")


def _score(group: dict[str, float], factor: int) -> str:
    return f"{factor * group['mean']:.1f} ± {factor * (group['std'] or 0):.1f}"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
