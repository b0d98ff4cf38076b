"""The one rule by which training rows become dev rows."""

from collections import Counter

import pytest

from recurcli.data.dev_split import DevSplitter, row_hash, text_key


def split(rows: list[tuple[str, str]], *, every: int = 10, seed: int = 0) -> list[bool]:
    splitter = DevSplitter(1 / every, seed)
    return [splitter.is_dev(text, None, label) for text, label in rows]


def test_one_of_every_ten_rows_of_each_class_is_a_dev_row() -> None:
    rows = [(f"text {number}", "ab"[number % 3 == 0]) for number in range(600)]
    dev = Counter(label for (_, label), is_dev in zip(rows, split(rows), strict=True) if is_dev)
    assert dev == {"a": 40, "b": 20}


@pytest.mark.parametrize("seed", range(20))
def test_the_first_row_of_a_class_is_a_training_row(seed: int) -> None:
    rows = [(f"text {number}", f"class {number // 2}") for number in range(40)]
    assert not any(split(rows, every=2, seed=seed)[::2])


def test_rows_with_equal_texts_stay_on_one_side() -> None:
    rows = [(f"text {number % 150}", "ab"[number % 2]) for number in range(600)]
    sides: dict[str, set[bool]] = {}
    for (text, _), is_dev in zip(rows, split(rows), strict=True):
        sides.setdefault(text, set()).add(is_dev)
    assert all(len(side) == 1 for side in sides.values())
    assert {True} in sides.values()


@pytest.mark.parametrize(
    "other",
    ["An apple a day ", "  an APPLE\u3000a  day", "ａｎ ａｐｐｌｅ ａ ｄａｙ", "An apple\xa0a\tday", "AN APPLE A DAY"],
)
def test_texts_that_differ_by_case_width_or_white_space_are_equal(other: str) -> None:
    assert row_hash("An apple a day", None) == row_hash(other, None) == row_hash(other, "")
    rows = [("An apple a day" if number % 3 else other, "a") for number in range(60)]
    assert len(set(split(rows))) == 1


def test_composed_and_decomposed_letters_are_equal_and_other_texts_are_not() -> None:
    assert text_key("Cafe\u0301 STRASSE") == text_key("caf\xe9 straße") == "caf\xe9 strasse"
    hashes = {
        row_hash(*row) for row in [("a b", None), ("ab", None), ("a", "b"), ("b", "a"), ("", "a b"), ("a.b", None)]
    }
    assert len(hashes) == 6


def test_the_seed_changes_the_draw_and_nothing_else_does() -> None:
    rows = [(f"text {number}", "a") for number in range(100)]
    assert split(rows, seed=1) == split(rows, seed=1) != split(rows, seed=2)


def test_only_the_first_row_of_a_class_may_repeat_the_text_of_a_dev_row_of_another_class() -> None:
    rows = [(f"text {number}", "a") for number in range(10)]
    drawn = next(text for (text, _), is_dev in zip(rows, split(rows), strict=True) if is_dev)
    assert split([*rows, (drawn, "b")])[10:] == [False]
    assert split([*rows, ("other", "b"), (drawn, "b")])[10:] == [False, True]
