"""Print the tests of a study as a Markdown table, with Holm's correction over them: python summary.py FOLDER.

FOLDER has the tables that study.sh wrote, the JSON of `recur compare`, and beside each its claim: what it says of the runs in
a folder, a margin, and that folder. Their tests against the other runs count. Accuracies and margins are in per cent, and
perplexities are not. The minutes are the CPU time of a table's trainings. An encoder with a run that is not better than the
majority class does not train with this recipe, and a claim on it cannot be told.

Or it has what keep.py kept of a study, such as results/rsa. The tests are then made again, as `recur compare` makes them.
"""

import itertools
import json
import runpy
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from recurcli.metrics import PERPLEXITY, metric_named
from recurcli.significance import (
    LEVEL,
    POWER,
    Errors,
    Runs,
    bootstrap_difference,
    holm,
    p_above,
    power_of,
    resampled_perplexities,
)

KEPT = runpy.run_path(str(Path(__file__).parent / "kept.py"))
markdown, p_value = KEPT["markdown"], KEPT["p_value"]

MAJORITY = "majority class"
"""The name of the baseline in the JSON of `recur compare`; a language model has none."""
MOST_SEEDS = 100
"""Ours: a claim that takes more seeds than these takes other rows or another task."""


class Tested(NamedTuple):
    """A test of a claim on the runs A against B, and what it says. Numbers are in per cent, or perplexities."""

    table: str
    a: str
    b: str
    scores: tuple[str, ...]
    """Mean and standard deviation over the seeds, of A and of B."""
    difference: str
    interval: str
    p_value: float
    p_differ: float
    """After Holm's correction."""
    p_alike: float
    """The p-value within the margin, after Holm's correction."""
    power: float | None
    seeds: int | None
    """How many seeds of each would find the paper's difference with the probability POWER. None: MOST_SEEDS do not."""
    kind: str
    verdict: str
    minutes: float
    runs: int

    @property
    def cells(self) -> list[str]:
        """The cells of its row."""
        numbers = map(p_value, (self.p_value, self.p_differ, self.p_alike))
        power = "–" if self.power is None else f"{self.power:.2f}"
        found = [self.table, self.a, self.b, ", ".join(self.scores), self.difference, self.interval]
        return [*found, *numbers, power, f"{self.kind}: {self.verdict}", f"{self.minutes:.0f}"]


def main(folder: Path) -> None:
    """Print the table of the tests in `folder`."""
    numbers = ("A, B", "A − B", "95 % interval", "p", "p (Holm)", "p alike (Holm)", "power")
    head = ("table", "A", "B", *numbers, "claim", "minutes")
    print(markdown(head, (tested.cells for tested in tests_of(folder))))


def tests_of(folder: Path) -> list[Tested]:
    """Return the tests of the claims in `folder`."""
    tables, claims, tests = {}, {}, []
    for path in sorted(folder.glob("*.claim")):
        table = json.loads(path.with_suffix(".json").read_text())
        table = tables[path.stem] = table if "tests" in table else compared(table, folder.parent)
        kind, margin, runs = path.read_text().split()
        factor = 1 if table["metric"] == PERPLEXITY else 100
        claims[path.stem] = kind, float(margin) / factor, factor
        (claimed,) = (group["name"] for group in table["groups"] if Path(group["runs"][0]).is_relative_to(runs))
        names = {group["name"] for group in table["groups"]} - {claimed}
        for test in table["tests"]:
            if test["a"] == claimed and test["b"] in names:
                tests.append((path.stem, test))
            elif test["b"] == claimed and test["a"] in names:
                tests.append((path.stem, _turned(test)))
    differ = holm([test["p_value"] for _, test in tests])
    alike = holm([_p_alike(test, *claims[name]) for name, test in tests])
    return [
        _tested(name, tables[name], test, claims[name], p_differ, p_alike)
        for (name, test), p_differ, p_alike in zip(tests, differ, alike, strict=True)
    ]


def _tested(
    name: str,
    table: Mapping[str, Any],
    test: dict[str, Any],
    claim: tuple[str, float, int],
    p_differ: float,
    p_alike: float,
) -> Tested:
    kind, margin, factor = claim
    groups = {group["name"]: group for group in table["groups"]}
    compared = [groups[test[side]] for side in ("a", "b")]
    interval = "identical predictions" if test["identical_predictions"] else "–"
    if test["interval"] is not None:
        interval = " to ".join(f"{factor * end:+.1f}" for end in test["interval"])
    seconds = [group["n"] * (group["cpu_seconds"] or 0) for group in groups.values()]
    verdict = untrained(groups, test, table["baselines"])
    if not verdict:
        verdict = verdict_on(kind, test["difference"] * (-1 if factor == 1 else 1), p_differ, p_alike)
    errors = test["errors"]
    return Tested(
        name,
        test["a"],
        test["b"],
        tuple(_score(group, factor) for group in compared),
        f"{factor * test['difference']:+.1f}",
        interval,
        test["p_value"],
        p_differ,
        p_alike,
        power_of(2 * margin, errors) if errors else None,
        seeds_needed(2 * margin, errors, min(group["n"] for group in compared)) if errors else None,
        kind,
        verdict,
        sum(seconds) / 60,
        min(group["n"] for group in compared),
    )


def seeds_needed(true: float, errors: Errors, seeds: int) -> int | None:
    """Return the fewest seeds of each group with which a difference of `true` is found with the probability POWER.

    `errors` are those of a test with so many `seeds` of each. Their first part is of the rows, which more seeds do not change.
    None: MOST_SEEDS do not find it, or nothing is known of the errors of one seed.
    """
    if seeds < 2:
        return None
    of_rows, *of_seeds = errors
    for count in range(2, MOST_SEEDS + 1):
        parts = [
            (variance * seeds / count, max(1, round(freedom * (count - 1) / (seeds - 1))))
            for variance, freedom in of_seeds
        ]
        if power_of(true, [of_rows, *parts]) >= POWER:
            return count
    return None


def compared(kept: dict[str, Any], results: Path) -> dict[str, Any]:
    """Add scores and tests to a table that keep.py wrote, as `recur compare` computes them from the runs in `results`."""
    trained = [[json.loads((results / f"{run}.json").read_text()) for run in group["runs"]] for group in kept["groups"]]
    first = trained[0][0]["result"]["data"][kept["split"]]
    units = (results / "rows" / f"{first['sha256']}.txt").read_text().split()
    parts = _resampled(kept["metric"], units, list(itertools.chain(*trained)))
    ends = np.cumsum([len(runs) for runs in trained])[:-1]
    groups, members, stored = [], {}, {}
    for group, runs, scores, drawn, own in zip(
        kept["groups"], trained, *(np.split(part, ends) for part in parts), strict=True
    ):
        std = float(scores.std(ddof=1)) if len(scores) > 1 else None
        seconds = fmean(run["result"]["cpu_seconds"] for run in runs)
        own_scores = {"n": len(runs), "mean": float(scores.mean()), "std": std, "scores": scores.tolist()}
        groups.append({**group, **own_scores, "cpu_seconds": seconds})
        members[group["name"]] = Runs(scores, drawn)
        stored[group["name"]] = sorted(run.tobytes() for run in own)
    low, high = metric_named(kept["metric"]).bounds
    tests = []
    for a, b in itertools.combinations(members, 2):
        others = [own for name, own in members.items() if name not in (a, b)]
        found = bootstrap_difference(members[a], members[b], len(units), half_range=high - low, others=others)
        identical = stored[a] == stored[b] or len({*stored[a], *stored[b]}) == 1
        tests.append(
            {
                "a": a,
                "b": b,
                "difference": float(members[a].scores.mean() - members[b].scores.mean()),
                "identical_predictions": identical,
                "interval": None if identical else found.interval,
                "p_value": found.p_value,
                "errors": found.errors,
            }
        )
    scored = trained[0][0]["result"]
    shares = (scored if kept["split"] == "dev" else scored[kept["split"]]).get("baselines", {})
    baselines = [{"name": MAJORITY, "mean": shares["majority"]}] if shares else []
    return {**kept, "groups": groups, "baselines": baselines, "tests": tests}


def _resampled(
    metric: str, units: Sequence[str], runs: Sequence[dict[str, Any]]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the scores (R,) of kept runs, those on B resamples (R, B), and what was kept of their N `units` (R, N).

    The units are the hashes of rows, of which a run has 1 or 0, right or wrong; or the tokens of blocks of a text, of which it
    has the losses.
    """
    if metric == PERPLEXITY:
        tokens, nats = np.array(units, dtype=int), np.array([run["nats"] for run in runs])
        return np.exp(nats.sum(axis=1) / tokens.sum()), resampled_perplexities(nats, tokens), nats
    right = KEPT["unpacked"]([run["right"] for run in runs], len(units))
    found = KEPT["resampled"](right)
    return found.scores, found.resampled, right


def untrained(groups: Mapping[str, Any], test: Mapping[str, Any], baselines: Sequence[Mapping[str, Any]]) -> str:
    """Return why runs of A and B are no evidence on a claim: one is not better than the majority class. "" if all are."""
    least = next((each["mean"] for each in baselines if each["name"] == MAJORITY), None)
    names = [test[side] for side in ("a", "b") if least is not None and min(groups[test[side]]["scores"]) <= least]
    does = "does" if len(names) == 1 else "do"
    return f"cannot be told: {' and '.join(names)} {does} not train with this recipe" if names else ""


def verdict_on(kind: str, better_by: float, p_differ: float, p_alike: float) -> str:
    """Return what the corrected p-values of a difference say of a claim: holds, does not hold, cannot be told.

    The claims are that the runs are `better`, as `good` up to the margin, or `alike`, within it.
    """
    is_better, is_worse = (p_differ < LEVEL and sign * better_by > 0 for sign in (1, -1))
    is_alike = p_alike < LEVEL
    holds = {"better": is_better, "good": is_better or is_alike, "alike": is_alike}[kind]
    fails = {"better": is_worse or is_alike, "good": is_worse, "alike": is_better or is_worse}[kind]
    return "holds" if holds else "does not hold" if fails else "cannot be told"


def _p_alike(test: dict[str, Any], kind: str, margin: float, factor: int) -> float:
    """Return the p-value of a difference within the margin; of the claim `good` of one that is not worse by more than it."""
    if not test["errors"] or not margin:
        return 1.0
    sign = -1 if factor == 1 else 1  # a smaller perplexity is better
    not_worse, not_better = (p_above(side * test["difference"], test["errors"], -margin) for side in (sign, -sign))
    return not_worse if kind == "good" else max(not_worse, not_better)


def _turned(test: dict[str, Any]) -> dict[str, Any]:
    """Return a test of A and B as that of B and A."""
    low, high = test["interval"] or (0, 0)
    interval = None if test["interval"] is None else [-high, -low]
    return {**test, "a": test["b"], "b": test["a"], "difference": -test["difference"], "interval": interval}


def _score(group: dict[str, float], factor: int) -> str:
    return f"{factor * group['mean']:.1f} ± {factor * (group['std'] or 0):.1f}"


if __name__ == "__main__":
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_dir():
        sys.exit(str(__doc__).partition("\n")[0])
    main(Path(sys.argv[1]))
