"""What a comparison decides, in sentences: which group is better, what the linear model has, what a larger value brings."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from recurcli.evaluation.significance import LEVEL
from recurcli.metrics import PERPLEXITY, format_score, percent_interval

Test = Mapping[str, Any]
_UNKNOWN = "not shown to differ from"


def verdict(result: Mapping[str, Any]) -> list[str]:
    """Return the sentences that end a comparison. "Shown" means below LEVEL with Holm's correction.

    `result` is that of `recur compare`. The values of `--over` are told apart by the paired interval of the smallest and the
    largest one, without the correction, since that is one question.
    """
    metric, groups = result["metric"], result["groups"]
    tests = {(test["a"], test["b"]): test for test in result["tests"]}
    sentences = [*_on_best(groups, tests, metric), *_on_linear_models(groups, result["baselines"], tests, metric)]
    if result["over"] is not None:
        sentences += [
            said for line in result["over"]["lines"] for said in _on_line(line, result["over"]["key"], tests, metric)
        ]
    return sentences


def interval_in_words(test: Test, metric: str) -> str:
    """Return the 95 % interval of a test, or why there is none."""
    if test["identical_predictions"]:
        return "identical predictions"
    if test["interval"] is None:
        return "too few seeds"
    if metric == PERPLEXITY:
        return " – ".join(format_score(metric, limit, "+") for limit in test["interval"])
    return percent_interval(test["interval"], "+")


def _on_best(groups: Sequence[Any], tests: Mapping[tuple[str, str], Test], metric: str) -> Iterator[str]:
    """Yield a sentence on the best group, which is the first, against each other one."""
    named = [f"{group['name']} {format_score(metric, group['mean'])}" for group in groups]
    shown: dict[bool, list[str]] = {True: [], False: []}
    for name, group in zip(named[1:], groups[1:], strict=True):
        shown[_is_shown(tests.get((groups[0]["name"], group["name"])))].append(name)
    if len(groups) == 2 and (test := tests.get((groups[0]["name"], groups[1]["name"]))):
        what = f"{named[0]} is shown to be better than {named[1]}"
        what = what if shown[True] else f"{', '.join(named)}: not shown to differ"
        difference = format_score(metric, test["difference"], "+")
        yield f"{what} ({difference}, {interval_in_words(test, metric)})."
    elif len(groups) > 2:
        words = {True: "shown to be worse", False: "not shown to differ"}
        said = [f"{words[key]}: {', '.join(names)}" for key, names in shown.items() if names]
        yield f"{named[0]} is the best of {len(groups)}; {'; '.join(said)}."


def _on_linear_models(
    groups: Sequence[Any], baselines: Iterable[Any], tests: Mapping[tuple[str, str], Test], metric: str
) -> Iterator[str]:
    """Yield a sentence on each linear model against the groups that were tested against it."""
    for baseline in baselines:
        places: dict[str, list[str]] = {}
        for group in groups:
            if (test := tests.get((group["name"], baseline["name"]))) is not None:
                place = ("above" if test["difference"] > 0 else "below") if _is_shown(test) else _UNKNOWN
                places.setdefault(place, []).append(group["name"])
        said = [_on_place(place, names, len(groups)) for place, names in places.items()]
        if said:
            yield f"{'; '.join(said)} the {baseline['name']}, {format_score(metric, baseline['mean'])}."


def _on_place(place: str, names: Sequence[str], groups: int) -> str:
    """Say that the groups `names`, which may be all, are above or below a linear model, or not shown to differ from it."""
    verb = "is" if len(names) == 1 else "are"
    if len(names) < max(2, groups):
        return f"{', '.join(names)} {verb} {place}"
    if place == _UNKNOWN:
        return f"{'Neither' if groups == 2 else 'None'} is {place.removeprefix('not ')}"
    return f"{'Both' if groups == 2 else f'All {groups}'} are {place}"


def _on_line(line: Mapping[str, Any], key: str, tests: Mapping[tuple[str, str], Test], metric: str) -> Iterator[str]:
    """Yield a sentence on the largest value of the key `--over` against the smallest one, for a line of groups."""
    points = [point for point in line["points"] if point["value"] is not None]
    if len(points) < 2:
        return
    first, last = points[0], points[-1]
    test = tests.get((last["name"], first["name"])) or tests.get((first["name"], last["name"]))
    if test is None:
        return
    sign = 1 if test["a"] == last["name"] else -1
    limits = test["interval"] and sorted(sign * limit for limit in test["interval"])
    turned = {**test, "difference": sign * test["difference"], "interval": limits}
    low, high = limits or (0.0, 0.0)
    helps, hurts = (high < 0, low > 0) if metric == PERPLEXITY else (low > 0, high < 0)
    what, verbs = f"a larger {key}", ("helps", "hurts", "is")
    values = f"{first['value']:g} → {last['value']:g}"
    if key == "data.train_share":
        what, verbs = "more labels", ("help", "hurt", "are")
        values = f"{first['train_rows']:,} → {last['train_rows']:,} rows"
    found = verbs[0] if helps else verbs[1] if hurts else f"{verbs[2]} not shown to help"
    unit = "" if metric == PERPLEXITY else " points"
    difference = f"{format_score(metric, turned['difference'], '+')}{unit} ({interval_in_words(turned, metric)})"
    yield f"{line['name']}: {what} {found}: {values}, {difference}."


def _is_shown(test: Test | None) -> bool:
    return test is not None and test["p_holm"] < LEVEL
