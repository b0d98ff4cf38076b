"""What `recur compare` answers, in sentences that claim no more than its tests.

Groups are said to differ where p is below the level after Holm's correction, because the best of many groups is the
luckiest too. `--over` asks for one difference a line, that of its ends, and there the interval decides.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from recurcli.evaluation.significance import LEVEL
from recurcli.metrics import PERPLEXITY, format_interval, format_score, metric_named, words_of

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
        yield f"{groups[0]['name']} has the best {words_of(metric)} of {len(groups)} groups, {score}."
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
    outcomes = [
        UNCLEAR if test["p_holm"] >= LEVEL else "above" if test["difference"] > 0 else "below" for test in tests
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
    """Yield whether the largest value of the key of `--over` is shown to be better than the smallest, if a line has two."""
    points = [point for point in line["points"] if point["value"] is not None]
    if len(points) < 2:
        return
    first, last, metric, over = points[0], points[-1], result["metric"], result["over"]
    [test] = [test for test in result["tests"] if {test["a"], test["b"]} == {first["name"], last["name"]}]
    difference, does = last["mean"] - first["mean"], "are not shown to help"
    if test["p_value"] < LEVEL:
        does = "help" if (difference > 0) != metric_named(metric).minimize else "hurt"
    what, ends = f"Larger values of {over['key']}", f"{first['value']:g} → {last['value']:g}"
    if over["key"] == "data.train_share":
        what, ends = "More labels", f"{first['train_rows']:,} → {last['train_rows']:,} rows"
    whose = f" {line['name']}" if len(over["lines"]) > 1 else ""
    by = format_score(metric, difference, "+") + ("" if metric == PERPLEXITY else " points")
    limits = interval_in_words(test, metric, 1 if test["a"] == last["name"] else -1)
    yield f"{what} {does}{whose}: {ends}, {by} ({limits})."


def _on_pair(a: Facts, b: Facts, test: Facts, metric: str) -> str:
    """Return whether the groups A and B are shown to differ; B may be the linear model."""
    limits = f"{format_score(metric, test['difference'], '+')}, {interval_in_words(test, metric)}"
    verdict = "not shown to differ"
    if test["p_holm"] < LEVEL:
        is_first = (test["difference"] > 0) != metric_named(metric).minimize
        verdict = f"{(a if is_first else b)['name']} is better"
    elif test["p_value"] < LEVEL:
        limits += f", p {test['p_holm']:.3f} after Holm's correction"
    scores = ", ".join(f"{each['name']} {format_score(metric, each['mean'])}" for each in (a, b))
    return f"{scores}: {verdict} ({limits})."


def _listed(names: Sequence[str], one: str, many: str) -> str:
    """Return the names as the subject of a sentence, with its verb in the singular or the plural."""
    shown = [*names[:MAX_NAMES], *([f"{len(names) - MAX_NAMES} more"] if len(names) > MAX_NAMES else [])]
    comma = "; " if any("," in name for name in shown) else ", "
    return f"{comma.join(shown[:-1])} and {shown[-1]} {many}" if len(shown) > 1 else f"{shown[0]} {one}"
