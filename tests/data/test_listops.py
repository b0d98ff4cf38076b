"""The ListOps generator keeps its grammar and its promises."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import pytest

from recurcli.config import DataConfig
from recurcli.data.listops import OPERATORS, Expression, generate, listops_rows, value_of
from recurcli.data.splits import load_split
from recurcli.data.tasks import TASKS


def evaluate(text: str) -> tuple[int, int, int]:
    """Value, depth and most children of an expression, by a stack; ValueError if it is not of the grammar."""
    stack: list[list[object]] = [[]]
    depth = most = 0
    for token in text.split(" "):
        if token in OPERATORS:
            stack.append([token])
            depth = max(depth, len(stack))
        elif token == "]":
            operator, *values = stack.pop()
            most = max(most, len(values))
            if len(values) < 2:
                raise ValueError(text)
            stack[-1].append(value_of(str(operator), [int(str(value)) for value in values]))
        else:
            stack[-1].append(int(token))
    ((value,),) = stack
    return int(str(value)), depth, most


@pytest.mark.parametrize(
    ("operator", "values", "value"),
    [
        ("[MIN", [3, 1, 2], 1),
        ("[MAX", [3, 1, 2], 3),
        ("[MED", [9, 1, 2], 2),
        ("[MED", [9, 1, 2, 5], 3),
        ("[MED", [4, 1], 2),
        ("[SM", [9, 9, 5], 3),
    ],
)
def test_operators_do_what_they_say(operator: str, values: list[int], value: int) -> None:
    assert value_of(operator, values) == value


def test_every_row_is_of_the_grammar_and_comes_to_its_label() -> None:
    for text, label in generate(3, 500):
        value, depth, most = evaluate(text)
        assert str(value) == label
        assert depth <= 10 and most <= 5
        assert 10 < len(text.split(" ")) <= 50


def test_the_same_seed_gives_the_same_rows_and_another_seed_others() -> None:
    assert generate(1, 50) == generate(1, 50) == generate(1, 80)[:50]
    assert generate(1, 50) != generate(2, 50)


def test_the_first_row_of_seed_0_is_what_it_always_was() -> None:
    assert generate(0, 1) == [Expression("[MAX 8 0 3 6 [MAX [MAX [MED 8 0 ] 5 1 7 8 ] 9 5 5 5 ] ]", "9")]


def test_the_mini_splits_share_no_row() -> None:
    splits = {split: listops_rows(TASKS["listops-mini"], split) for split in ("train", "dev", "test")}
    assert {name: len(rows) for name, rows in splits.items()} == {"train": 20_000, "dev": 2_000, "test": 2_000}
    assert len({row.text for rows in splits.values() for row in rows}) == 24_000
    assert set(Counter(row.label for row in splits["train"])) == set("0123456789")


def test_rows_without_closing_brackets_are_the_others_without_them() -> None:
    task = TASKS["listops-mini"]
    rows = load_split(task, "dev", DataConfig()).examples
    bare = load_split(task, "dev", DataConfig(close_brackets=False)).examples
    assert all("]" in row.text for row in rows)
    assert [(row.text.split(), row.label) for row in bare] == [
        ([token for token in row.text.split() if token != "]"], row.label) for row in rows
    ]


def baselines(rows: Sequence[Expression]) -> dict[str, float]:
    """Accuracies on `rows` of rules that ignore nesting; the task table holds those of the dev rows.

    majority        always the most frequent answer
    first_operator  the most frequent answer among the rows with the same first operator
    root_digits     the first operator on the digits that are its own children; `first_operator`'s answer without any
    """
    answers = Counter(label for _, label in rows)
    by_operator: dict[str, Counter[str]] = defaultdict(Counter)
    for text, label in rows:
        by_operator[text.split(" ", 1)[0]][label] += 1
    best = {operator: counts.most_common(1)[0][0] for operator, counts in by_operator.items()}
    right = 0
    for text, label in rows:
        operator, *rest = text.split(" ")
        digits = _direct_digits(rest)
        right += label == (str(value_of(operator, digits)) if digits else best[operator])
    return {
        "majority": max(answers.values()) / len(rows),
        "first_operator": sum(max(counts.values()) for counts in by_operator.values()) / len(rows),
        "root_digits": right / len(rows),
    }


def _direct_digits(tokens: Iterable[str]) -> list[int]:
    """The digits among the children of an operator; `tokens` are all that follows it."""
    depth, digits = 0, []
    for token in tokens:
        if token == "]":
            depth -= 1
        elif token in OPERATORS:
            depth += 1
        elif depth == 0:
            digits.append(int(token))
    return digits


@pytest.mark.parametrize("split", ["dev", "test"])
def test_the_baselines_are_those_that_the_task_claims(split: str) -> None:
    found, claimed = baselines(listops_rows(TASKS["listops-mini"], split)), TASKS["listops-mini"].baselines
    assert set(found) == set(claimed)
    for name, about in {"majority": 0.12, "first_operator": 0.24, "root_digits": 0.44}.items():
        assert found[name] == pytest.approx(about, abs=0.02)
        assert found[name] == pytest.approx(claimed[name], abs=0.02)
        assert split != "dev" or found[name] == claimed[name]


def test_the_arguments_reach_long_range_arenas_own_rows() -> None:
    for text, _ in generate(0, 5, max_children=10, min_length=501, max_length=1999):
        assert 500 < len(text.split(" ")) < 2000
        assert evaluate(text)[2] > 5
