"""What `recur compare` answers, in sentences that claim no more than its tests.

Groups are said to differ where p is below the level after Holm's correction, because the best of many groups is the
luckiest too. `--over` asks for one difference a line, that of its ends; its p is not corrected, and the sentence says so.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from recurcli.metrics import format_interval, format_score, metric_named, words_of
from recurcli.significance import LEVEL

MAX_NAMES = 6
"""Names that a sentence lists; it counts the others."""
UNCLEAR = "shown to differ from"

Facts = Mapping[str, Any]
"""The result of `recur compare`, or a group, a baseline, a line or a test of it."""


def verdict_on(result: Facts) -> list[str]:
    """Return sentences on the lines of `--over`, or on the best group and the linear model; [] if nothing was tested."""
    groups = result["groups"]
    if result["over"] is not None:
        said = [sentence for line in result["over"]["lines"] for sentence in _on_line(line, result)]
    else:
        said = [*_on_groups(result), *_on_linear_models(result)]
    single = [group["name"] for group in groups if group["n"] == 1]
    if said and single:
        have = "Each group has" if len(single) == len(groups) > 1 else _listed(single, "has", "have")
        said.append(f"{have} one seed; other seeds may give other scores.")
    return said


def interval_in_words(test: Facts, metric: str, sign: int = 1) -> str:
    """Return the interval of the difference A - B of a test, or why it has none; of B - A if `sign` is -1."""
    if test["identical_predictions"]:
        return "identical predictions"
    if test["interval"] is None:
        return "too few seeds"
    return format_interval(metric, sorted(sign * limit for limit in test["interval"]), "+")


def _on_groups(result: Facts) -> Iterator[str]:
    """Yield a sentence on two groups, or sentences on the best of more."""
    groups, metric = result["groups"], result["metric"]
    tests = {test["b"]: test for test in result["tests"] if test["a"] == groups[0]["name"]}
    others = [group["name"] for group in groups[1:]]
    if len(others) == 1:
        yield _on_pair(groups[0], groups[1], tests[others[0]], metric)
    elif others:
        score = format_score(metric, groups[0]["mean"])
        best = [group["name"] for group in groups if group["mean"] == groups[0]["mean"]]
        yield f"{_listed(best, 'has', 'have')} the best {words_of(metric)} of {len(groups)} groups, {score}."
        worse = [name for name in others if tests[name]["p_holm"] < LEVEL]
        rest = [name for name in others if name not in worse]
        if worse and rest:
            yield f"{_listed(worse, 'is', 'are')} shown to be worse, {_listed(rest, 'is', 'are')} not."
        else:
            yield f"{'All others are' if worse else 'No other is'} shown to be worse."


def _on_linear_models(result: Facts) -> Iterator[str]:
    """Yield which groups are shown to be above or below the linear model of their training rows."""
    groups, models = ({row["name"]: row for row in result[key]} for key in ("groups", "baselines"))
    tests = [test for test in result["tests"] if test["b"] in models]
    if len(groups) == 1:
        for test in tests:
            linear = {**models[test["b"]], "name": f"the {test['b']}"}
            yield _on_pair(groups[test["a"]], linear, test, result["metric"])
        return
    scores = {test["b"]: format_score(result["metric"], models[test["b"]]["mean"]) for test in tests}
    model = "their linear models" if len(scores) > 1 else f"the linear model, {''.join(scores.values())}"
    better, worse = ("better than", "worse than") if metric_named(result["metric"]).minimize else ("above", "below")
    outcomes = [
        UNCLEAR if test["p_holm"] >= LEVEL else better if _is_better(test["difference"], result["metric"]) else worse
        for test in tests
    ]
    for outcome in dict.fromkeys(outcomes):
        names = [test["a"] for test, own in zip(tests, outcomes, strict=True) if own == outcome]
        who, no = ("Both", "Neither") if len(groups) == 2 else ("All", "None")
        if len(names) < len(groups):
            subject = _listed(names, "is", "are") + (" not" if outcome == UNCLEAR else "")
        else:
            subject = f"{no} is" if outcome == UNCLEAR else f"{who} are"
        yield f"{subject} {outcome} {model}."


def _on_line(line: Facts, result: Facts) -> Iterator[str]:
    """Yield whether the ends of a line of `--over` are shown to differ, if it has two, and which point between is better."""
    points = [point for point in line["points"] if point["value"] is not None]
    if len(points) < 2:
        return
    first, last, metric, key = points[0], points[-1], result["metric"], result["over"]["key"]
    [test] = [test for test in result["tests"] if {test["a"], test["b"]} == {first["name"], last["name"]}]
    difference, is_shown = last["mean"] - first["mean"], test["p_value"] < LEVEL
    by = format_score(metric, difference, "+") + ("" if metric_named(metric).decimals is not None else " points")
    limits = interval_in_words(test, metric, 1 if test["a"] == last["name"] else -1)
    if len(result["tests"]) > 1 and test["interval"] is not None:
        limits += ", p not corrected"
    values = [f"{point['value']:g}" for point in points]
    is_better = _is_better(difference, metric)
    if key == "data.train_share":
        values = [f"{point['train_rows']:,}" for point in points]
        does = "are not shown to help" if not is_shown else "help" if is_better else "hurt"
        said = f"More labels {does}: {values[0]} → {values[-1]} rows, {by} ({limits})"
    else:
        is_than = f"is not {UNCLEAR}" if not is_shown else "is better than" if is_better else "is worse than"
        said = f"{key} {values[-1]} {is_than} {values[0]}: {by} ({limits})"
    means = [point["mean"] for point in points]
    best = (min if metric_named(metric).minimize else max)(means)
    if best not in (means[0], means[-1]):
        said += f"; the best is {values[means.index(best)]}, {format_score(metric, best)}"
    whose = f"{line['name']}: " if len(result["over"]["lines"]) > 1 else ""
    yield f"{whose}{said}."


def _is_better(difference: float, metric: str) -> bool:
    """Return whether a score that is larger by `difference` is the better one."""
    return (difference > 0) != metric_named(metric).minimize


def _on_pair(a: Facts, b: Facts, test: Facts, metric: str) -> str:
    """Return whether the groups A and B are shown to differ; B may be the linear model."""
    limits = f"{format_score(metric, test['difference'], '+')}, {interval_in_words(test, metric)}"
    verdict = "not shown to differ"
    if test["p_holm"] < LEVEL:
        verdict = f"{(a if _is_better(test['difference'], metric) else b)['name']} is better"
    elif test["p_value"] < LEVEL:
        limits += f", p {test['p_holm']:.3f} after Holm's correction"
    scores = ", ".join(f"{each['name']} {format_score(metric, each['mean'])}" for each in (a, b))
    return f"{scores}: {verdict} ({limits})."


def _listed(names: Sequence[str], one: str, many: str) -> str:
    """Return the names as the subject of a sentence, with its verb in the singular or the plural."""
    shown = [*names[:MAX_NAMES], *([f"{len(names) - MAX_NAMES} more"] if len(names) > MAX_NAMES else [])]
    comma = "; " if any("," in name for name in shown) else ", "
    return f"{comma.join(shown[:-1])} and {shown[-1]} {many}" if len(shown) > 1 else f"{shown[0]} {one}"
