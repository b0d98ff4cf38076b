"""Print the tests of a study as a Markdown table, with Holm's correction over them: python summary.py FOLDER.

FOLDER has the tables that study.sh wrote, the JSON of `recur compare`, and beside each the folder of the runs that its claim
is on. Their tests against the other runs count. Accuracies are in per cent, perplexities are not. The minutes are the CPU
time of a table's trainings.
"""

import json
import sys
from pathlib import Path
from typing import Any

from recurcli.evaluation.significance import holm


def main(folder: Path) -> None:
    """Print the table of the tests in `folder`."""
    tables, tests = {}, []
    for path in sorted(folder.glob("*.reference")):
        table = tables[path.stem] = json.loads(path.with_suffix(".json").read_text())
        runs = Path(path.read_text().strip())
        (claimed,) = (group["name"] for group in table["groups"] if Path(group["runs"][0]).is_relative_to(runs))
        names = {group["name"] for group in table["groups"]} - {claimed}
        for test in table["tests"]:
            if test["a"] == claimed and test["b"] in names:
                tests.append((path.stem, test))
            elif test["b"] == claimed and test["a"] in names:
                tests.append((path.stem, _turned(test)))
    corrected = holm([test["p_value"] for _, test in tests])
    print("| table | A | B | A, B | A − B | 95 % interval | p | p (Holm) | minutes |")
    print("|---|---|---|---|---|---|---|---|---|")
    for (name, test), p_holm in zip(tests, corrected, strict=True):
        groups = {group["name"]: group for group in tables[name]["groups"]}
        factor = 1 if tables[name]["metric"] == "perplexity" else 100
        scores = ", ".join(_score(groups[test[side]], factor) for side in ("a", "b") if test[side] in groups)
        interval = "identical predictions" if test["identical_predictions"] else "–"
        if test["interval"] is not None:
            interval = " to ".join(f"{factor * end:+.1f}" for end in test["interval"])
        seconds = [group["n"] * (group["cpu_seconds"] or 0) for group in groups.values()]
        difference = f"{factor * test['difference']:+.1f}"
        numbers = f"{difference} | {interval} | {test['p_value']:.3f} | {p_holm:.3f} | {sum(seconds) / 60:.0f}"
        print(f"| {name} | {test['a']} | {test['b']} | {scores} | {numbers} |")


def _turned(test: dict[str, Any]) -> dict[str, Any]:
    """Return a test of A and B as that of B and A."""
    low, high = test["interval"] or (0, 0)
    interval = None if test["interval"] is None else [-high, -low]
    return {**test, "a": test["b"], "b": test["a"], "difference": -test["difference"], "interval": interval}


def _score(group: dict[str, float], factor: int) -> str:
    return f"{factor * group['mean']:.1f} ± {factor * (group['std'] or 0):.1f}"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
