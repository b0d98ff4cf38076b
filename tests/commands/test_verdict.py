"""The sentences that end a comparison: they claim what the tests show, and no more."""

from typing import Any

import pytest

from recurcli.commands.comparison.verdict import verdict


def outcome(
    a: str, b: str, difference: float, p_holm: float = 1.0, interval: tuple[float, float] | None = (-0.1, 0.1)
) -> dict[str, Any]:
    return {
        "a": a,
        "b": b,
        "difference": difference,
        "p_holm": p_holm,
        "interval": interval and list(interval),
        "identical_predictions": False,
    }


def compared(
    groups: dict[str, float],
    tests: list[dict[str, Any]],
    *,
    baselines: dict[str, float] | None = None,
    over: dict[str, Any] | None = None,
    metric: str = "accuracy",
) -> list[str]:
    named, others = (
        [{"name": name, "mean": mean} for name, mean in rows.items()] for rows in (groups, baselines or {})
    )
    return verdict({"metric": metric, "groups": named, "baselines": others, "tests": tests, "over": over})


def line(key: str, *values: tuple[float | None, str, int]) -> dict[str, Any]:
    points = [{"value": value, "name": name, "train_rows": rows} for value, name, rows in values]
    return {"key": key, "lines": [{"name": "rsa", "points": points}]}


def test_two_groups_differ_only_where_the_corrected_test_says_so() -> None:
    groups = {"starsaber": 0.336, "bilstm": 0.312}
    assert compared(groups, [outcome("starsaber", "bilstm", 0.024, 0.051, (0.001, 0.05))]) == [
        "starsaber 33.6, bilstm 31.2: not shown to differ (+2.4, +0.1 – +5.0)."
    ]
    assert compared(groups, [outcome("starsaber", "bilstm", 0.024, 0.049, (0.001, 0.05))]) == [
        "starsaber 33.6 is shown to be better than bilstm 31.2 (+2.4, +0.1 – +5.0)."
    ]
    assert compared(groups, [outcome("starsaber", "bilstm", 0.024, 1.0, None)]) == [
        "starsaber 33.6, bilstm 31.2: not shown to differ (+2.4, too few seeds)."
    ]


def test_of_many_groups_those_that_are_worse_are_named_apart() -> None:
    tests = [outcome("a", "b", 0.1, 0.2), outcome("a", "c", 0.2, 0.01), outcome("b", "c", 0.1, 0.01)]
    assert compared({"a": 0.5, "b": 0.4, "c": 0.3}, tests) == [
        "a 50.0 is the best of 3; shown to be worse: c 30.0; not shown to differ: b 40.0."
    ]


@pytest.mark.parametrize(
    ("p_values", "said"),
    [
        ((0.01, 0.01), "Both are below the linear model, 50.7."),
        ((0.9, 0.9), "Neither is shown to differ from the linear model, 50.7."),
        ((0.9, 0.01), "a is not shown to differ from; b is below the linear model, 50.7."),
    ],
)
def test_the_linear_model_is_a_measure_of_each_group(p_values: tuple[float, float], said: str) -> None:
    tests = [
        outcome("a", "b", 0.0),
        *(outcome(name, "linear model", -0.1, p) for name, p in zip("ab", p_values, strict=True)),
    ]
    assert compared({"a": 0.4, "b": 0.4}, tests, baselines={"linear model": 0.507, "majority class": 0.1})[1:] == [said]


@pytest.mark.parametrize(
    ("interval", "said"),
    [
        ((0.02, 0.14), "rsa: more labels help: 810 → 2,702 rows, +8.4 points (+2.0 – +14.0)."),
        ((-0.02, 0.14), "rsa: more labels are not shown to help: 810 → 2,702 rows, +8.4 points (-2.0 – +14.0)."),
        (None, "rsa: more labels are not shown to help: 810 → 2,702 rows, +8.4 points (too few seeds)."),
    ],
)
def test_more_labels_help_where_the_paired_interval_excludes_0(interval: tuple[float, float] | None, said: str) -> None:
    over = line("data.train_share", (0.3, "small", 810), (1.0, "large", 2702))
    tests = [outcome("large", "small", 0.084, 0.5, interval)]
    assert compared({"large": 0.5, "small": 0.4}, tests, over=over)[-1] == said


def test_the_smaller_value_may_be_the_better_one() -> None:
    over = line("encoder.window", (4, "four", 10), (8, "eight", 10), (None, "none", 10))
    tests = [outcome("four", "eight", 0.05, 0.01, (0.01, 0.09))]
    said = "rsa: a larger encoder.window hurts: 4 → 8, -5.0 points (-9.0 – -1.0)."
    assert compared({"four": 0.5, "eight": 0.45}, tests, over=over)[-1] == said
    tests = [outcome("eight", "four", -3.0, 0.01, (-4.0, -2.0))]
    said = "rsa: a larger encoder.window helps: 4 → 8, -3.00 (-4.00 – -2.00)."
    assert compared({"eight": 20.0, "four": 23.0}, tests, over=over, metric="perplexity")[-1] == said


def test_one_run_has_nothing_to_be_compared_with() -> None:
    assert compared({"a": 0.5}, []) == []
