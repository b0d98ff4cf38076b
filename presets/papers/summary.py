"""Print the tests of a study as a Markdown table, with Holm's correction over them: python summary.py FOLDER.

FOLDER has the tables that study.sh wrote, the JSON of `recur compare`, and beside each its claim: what it says of the runs in
a folder, a margin, and that folder. Their tests against the other runs count. Accuracies and margins are in per cent, and
perplexities are not. The minutes are the CPU time of a table's trainings. An encoder with a run that is not better than the
majority class does not train with this recipe, and a claim on it cannot be told.

Or it has what keep.py kept of a study, such as results/rsa. The tests are then made again, as `recur compare` makes them.
"""

import itertools
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from recurcli.metrics import PERPLEXITY, accuracy, metric_named
from recurcli.significance import (
    LEVEL,
    Runs,
    bootstrap_difference,
    holm,
    p_above,
    power_of,
    resampled_perplexities,
    resampled_scores,
)

MAJORITY = "majority class"
"""The name of the baseline in the JSON of `recur compare`; a language model has none."""


def main(folder: Path) -> None:
    """Print the table of the tests in `folder`."""
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
    print("| table | A | B | A, B | A − B | 95 % interval | p | p (Holm) | p alike (Holm) | power | claim | minutes |")
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    for (name, test), p_differ, p_alike in zip(tests, differ, alike, strict=True):
        kind, margin, factor = claims[name]
        groups = {group["name"]: group for group in tables[name]["groups"]}
        scores = ", ".join(_score(groups[test[side]], factor) for side in ("a", "b") if test[side] in groups)
        interval = "identical predictions" if test["identical_predictions"] else "–"
        if test["interval"] is not None:
            interval = " to ".join(f"{factor * end:+.1f}" for end in test["interval"])
        seconds = [group["n"] * (group["cpu_seconds"] or 0) for group in groups.values()]
        difference = f"{factor * test['difference']:+.1f}"
        power = f"{power_of(2 * margin, test['errors']):.2f}" if test["errors"] else "–"
        verdict = untrained(groups, test, tables[name]["baselines"])
        if not verdict:
            verdict = verdict_on(kind, test["difference"] * (-1 if factor == 1 else 1), p_differ, p_alike)
        numbers = f"{difference} | {interval} | {test['p_value']:.3f} | {p_differ:.3f} | {p_alike:.3f} | {power}"
        print(
            f"| {name} | {test['a']} | {test['b']} | {scores} | {numbers} | {kind}: {verdict} | {sum(seconds) / 60:.0f} |"
        )


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
    packed = [np.frombuffer(bytes.fromhex(run["right"]), dtype=np.uint8) for run in runs]
    right = np.array([np.unpackbits(bits, count=len(units)) for bits in packed])
    return right.mean(axis=1), resampled_scores(accuracy, np.ones(len(units), dtype=np.uint8), right), right


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
