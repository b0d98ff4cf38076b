"""Scores of groups of rows: how rows are grouped, and each group's test against the others."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import fisher_exact

from recurcli.config import DataConfig
from recurcli.evaluation.groups import NOT_FOUND, TOO_FEW, WORSE, divide, group_scores
from recurcli.evaluation.report import EvaluatedRows
from recurcli.significance import group_p_values, holm
from recurcli.targets import Number, OneLabel, SeveralLabels, Target


def evaluated(target: Target, y: NDArray[Any], predictions: NDArray[Any]) -> EvaluatedRows:
    cells = target.decode(predictions)
    lines, texts = range(len(y)), [("a", None)] * len(y)
    return EvaluatedRows(None, lines, texts, target, cells, y, np.zeros((len(y), target.width)), predictions)


def of_hits(*groups: tuple[str, int, int]) -> tuple[EvaluatedRows, list[str]]:
    """Rows of groups with a name, a number of rows, and how many of them are right."""
    wrong = [place >= right for _, rows, right in groups for place in range(rows)]
    values = [name for name, rows, _ in groups for _ in range(rows)]
    return evaluated(OneLabel(("a", "b")), np.zeros(len(wrong), np.int64), np.array(wrong, np.int64)), values


@pytest.mark.parametrize("right", [6, 9, 12, 19])
def test_of_right_and_wrong_rows_the_permutation_test_is_fishers(right: int) -> None:
    rows, group = of_hits(("one", 20, right), ("other", 80, 70))
    hits = rows.target.row_values(rows.y, rows.predictions)
    found = group_p_values(hits, np.array([name == "other" for name in group], np.int64))
    # SciPy counts the tables that are as unlikely; on the other side that is another set than those as far from the mean
    exact = float(fisher_exact([[right, 20 - right], [70, 10]]).pvalue)
    assert found[0] == pytest.approx(exact, abs=0.02) == found[1]


@pytest.mark.parametrize(("times", "most"), [(25, 4), pytest.param(100, 12, marks=pytest.mark.slow)])
def test_rows_of_one_set_seldom_differ_by_their_group(times: int, most: int) -> None:
    generator, alarms = np.random.default_rng(3), 0
    for _ in range(times):
        values = generator.exponential(size=90)  # errors are as skewed
        alarms += min(holm(group_p_values(values, np.repeat([0, 1, 2], [15, 30, 45])))) < 0.05
    assert alarms <= most, "more would have a probability below 0.04 of 25, and below 0.002 of 100"


def test_a_group_is_named_worse_only_after_holms_correction() -> None:
    rows, values = of_hits(("a", 400, 360), ("b", 400, 359), ("low", 100, 70), ("rare", 9, 7))
    found = {own["group"]: own for own in group_scores(rows, values)}
    assert [*found] == ["a", "b", "low", "rare"], "the largest group first"
    assert [own["p_holm"] for own in found.values()] == holm([own["p_value"] for own in found.values()])
    assert found["low"]["verdict"] == WORSE and found["low"]["score"] == 0.7
    assert found["low"]["others"] == pytest.approx((360 + 359 + 7) / 809)
    low, high = found["low"]["interval"]
    assert low < 0.7 < high
    assert found["rare"]["verdict"] == TOO_FEW and found["a"]["verdict"] == NOT_FOUND


def test_few_rows_without_a_difference_are_too_few_to_tell() -> None:
    rows, values = of_hits(("many", 300, 240), ("some", 60, 48), ("few", 20, 16))
    verdicts = {own["group"]: own["verdict"] for own in group_scores(rows, values)}
    assert verdicts == {"many": NOT_FOUND, "some": NOT_FOUND, "few": TOO_FEW}


def test_a_single_group_does_not_differ_from_itself() -> None:
    rows, values = of_hits(("all", 30, 12))
    [own] = group_scores(rows, values)
    assert (own["verdict"], own["others"], own["p_holm"], own["score"]) == (TOO_FEW, 0.4, 1.0, 0.4)


def test_the_parts_of_micro_f1_tell_groups_apart() -> None:
    target, generator = SeveralLabels(("a", "b", "c"), separator=","), np.random.default_rng(0)
    y = np.column_stack([generator.integers(2, size=(200, 3)), np.zeros(200, np.int64)])
    predictions = y.copy()
    predictions[:60, 0] = 1 - y[:60, 0]
    assert target.row_values(y, predictions).sum() == pytest.approx(0, abs=1e-9)
    own = group_scores(evaluated(target, y, predictions), ["bad"] * 60 + ["good"] * 140)
    assert {each["group"]: each["verdict"] for each in own} == {"bad": "worse", "good": "better"}


def test_a_larger_error_of_numbers_is_worse() -> None:
    numbers = np.linspace(0, 10, 200)
    target = Number.of(numbers.tolist(), DataConfig())
    predictions = numbers + np.where(np.arange(200) < 70, 2.0, 0.5)
    own = group_scores(evaluated(target, numbers, predictions), ["far"] * 70 + ["near"] * 130)
    assert {each["group"]: (each["score"], each["verdict"]) for each in own} == {
        "near": (pytest.approx(0.5), "better"),
        "far": (pytest.approx(2.0), "worse"),
    }


def test_many_numbers_are_quarters_and_few_are_groups() -> None:
    names, group = divide([str(number) for number in range(1, 101)])
    assert names == ["1–25", "26–50", "51–75", "76–100"] and np.bincount(group).tolist() == [25] * 4
    assert divide([2019, 2020, 2020])[0] == ["2020", "2019"]
    assert divide([*map(str, range(50)), "nan"])[0][:2] == ["0", "1"], "a word among the numbers: no quarters"
    assert divide(["", "x", "x"])[0] == ["x", "(blank)"]
