"""The one rule by which training rows become dev rows."""

import math
import sys
import unicodedata
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recurcli.data.splits import (
    Examples,
    RowHashes,
    canonical_texts,
    divide_lines,
    draw_dev_rows,
    draw_share,
    drawn_rows,
    hash_of,
    hashes_of,
    row_hash,
    split_in_memory,
    text_key,
)
from recurcli.errors import DataError


def split(rows: list[tuple[str, str]], *, every: int = 10, seed: int = 0) -> list[bool]:
    hashes = [row_hash(text, None) for text, _ in rows]
    return [*drawn_rows(np.array(hashes, np.uint64), [label for _, label in rows], 1 / every, seed)]


def plain_draw(groups: list[int], labels: list[str], fraction: float, seed: int, *, keep_fraction: bool) -> list[bool]:
    """The rule of `drawn_rows` with all groups in two sets."""
    rows, deficits, train, dev, found = Counter[str](), Counter[str](), set[int](), set[int](), list[bool]()
    for group, label in zip(groups, labels, strict=True):
        row, block = rows[label], 0
        rows[label] += 1
        while math.floor((block + 1) / fraction + 0.5) <= row:
            block += 1
        first, end = max(1, math.floor(block / fraction + 0.5)), math.floor((block + 1) / fraction + 0.5)
        drawn = first + hash_of(seed, label, block) % (end - first)
        deficit = (row == drawn) + deficits[label]
        is_due = deficit > 0 and (row == drawn or hash_of(seed, group) % 2 == 0)
        is_dev = row > 0 and group not in train and (group in dev or is_due)
        deficits[label] = (deficit - is_dev) if keep_fraction else 0
        (dev if is_dev else train).add(group)
        found.append(is_dev)
    return found


@given(
    st.lists(st.tuples(st.integers(0, 30), st.sampled_from("abc")), max_size=120),
    st.sampled_from([0.05, 0.1, 0.3, 1 / 3, 0.5]),
    st.integers(0, 5),
    st.booleans(),
)
def test_the_draw_is_that_of_a_plain_loop(rows: list[tuple[int, str]], share: float, seed: int, keeps: bool) -> None:
    groups, labels = [hash_of(number) for number, _ in rows], [label for _, label in rows]
    found = drawn_rows(np.array(groups, np.uint64), labels, share, seed, keep_fraction=keeps)
    assert [*found] == plain_draw(groups, labels, share, seed, keep_fraction=keeps)


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
    [
        "An ap\u200bp\xadle\ufeff a day",
        "An apple a day ",
        "  an APPLE\u3000a  day",
        "ａｎ ａｐｐｌｅ ａ ｄａｙ",
        "An apple\xa0a\tday",
        "AN APPLE A DAY",
    ],
)
def test_texts_that_differ_by_case_width_white_space_or_what_is_not_shown_are_equal(other: str) -> None:
    assert row_hash("An apple a day", None) == row_hash(other, None) == row_hash(other, "")
    rows = [("An apple a day" if number % 3 else other, "a") for number in range(60)]
    assert len(set(split(rows))) == 1


def test_composed_and_decomposed_letters_are_equal_and_other_texts_are_not() -> None:
    assert text_key("Cafe\u0301 STRASSE") == text_key("caf\xe9 straße") == "caf\xe9 strasse"
    assert text_key("  \ud800\r\n\u2028x\x00") == "? x"
    hashes = {
        row_hash(*row) for row in [("a b", None), ("a", "b"), ("b", "a"), ("", "a b"), ("a.b", None), ("गा", None)]
    }
    assert len(hashes) == 6


DIFFERENT = [
    ("ハス", "バス"),
    ("はは", "ばば", "ぱぱ"),
    ("कुल", "कल", "काल", "किल"),
    ("علم", "عَلَم", "عِلْم", "أمن", "امن"),
    ("มา", "ม้า", "หมา"),
    ("ma", "má", "mà", "mả", "mã", "mạ"),
    ("סֵפֶר", "סַפָּר", "ספר"),
    ("not able", "notable"),
    ("resume", "résumé"),
    ("한국", "한곡"),
]


@pytest.mark.parametrize("words", DIFFERENT)
def test_different_words_stay_different(words: tuple[str, ...]) -> None:
    assert len({text_key(word) for word in words}) == len({canonical_texts(word, None) for word in words}) == len(words)


def test_no_mark_is_dropped_and_every_control_and_format_character_is() -> None:
    kinds = {code: unicodedata.category(chr(code)) for code in range(sys.maxunicode + 1)}
    marks = [chr(code) for code, kind in kinds.items() if kind[0] == "M"]
    hidden = "".join(chr(code) for code, kind in kinds.items() if kind in ("Cc", "Cf") and not chr(code).isspace())
    assert len(marks) > 2000 and all(text_key(f"a{mark}") != "a" for mark in marks)
    assert all(character in hidden for character in "\u200b\u200c\u200d\u2060\ufeff\xad\u202e")
    assert text_key(f"go{hidden}od") == "good"


def test_one_text_is_the_same_in_nfc_but_for_white_space_around_it() -> None:
    assert canonical_texts(" Cafe\u0301\n", None) == canonical_texts("Caf\xe9", " ") == ("Caf\xe9", "")
    others = ["caf\xe9", "Cafe", "Caf\xe9 .", "Caf\xe9.", "Ca\u200df\xe9", "Ｃaf\xe9"]
    assert len({canonical_texts(text, None) for text in others} - {("Caf\xe9", "")}) == len(others)


def test_rows_are_hashed_once_however_often_they_are_divided_and_lengthened() -> None:
    everything = split_in_memory([(f"text {number}", None, "a") for number in range(40)])
    examples = [row._replace(extra=("text 1", f"more {row.id}")) for row in everything.examples]
    train, dev = draw_dev_rows(replace(everything, examples=Examples.of(examples)), 0.1, 0)
    longer = train.with_extra_rows(dev)
    for rows in (train, dev, train.dev, longer):
        assert rows is not None
        assert "hashes" in vars(rows), "known without a second hashing"
        np.testing.assert_array_equal(rows.hashes, hashes_of(rows.texts))
    assert len(dev.examples) == 4
    assert len(longer.examples) == 36 * 3


WORDS = ["coffee", "Ärger", "東京タワー", "バス", "दिन", "كتاب", "แมว", "nước", "שלום", "안녕하세요"]
DRAWN = {
    0.1: 13246709902822203150,
    0.2: 10993573542567489201,
    0.25: 11830170078175306864,
    0.5: 18182225350860632099,
}
"""The hash of the dev rows' ids by their share. A release that draws others takes training rows of before as dev rows."""


@pytest.mark.parametrize(("share", "ids"), DRAWN.items())
def test_the_dev_rows_of_different_texts_are_those_of_ever(share: float, ids: int) -> None:
    rows: list[tuple[str, str | None, str]]
    rows = [(f"{WORDS[n % 10]} {n * n}", None, "aab"[n * n % 7 % 3]) for n in range(240)]
    assert hash_of(*drawn_ids(rows, share)) == ids


@pytest.mark.parametrize("share", [0.01, 0.07, 0.15, 0.3, 1 / 3, 0.4, 0.45, 0.49, 0.5])
@pytest.mark.parametrize("seed", [0, 1])
def test_each_class_gives_the_share_of_its_rows_that_was_asked_for_to_a_row(share: float, seed: int) -> None:
    rows = [(f"text {number}", "aab"[number % 3]) for number in range(1000)]
    hashes, labels = [row_hash(text, None) for text, _ in rows], [label for _, label in rows]
    dev, seen = Counter[str](), Counter[str]()
    for label, is_dev in zip(labels, drawn_rows(np.array(hashes, np.uint64), labels, share, seed), strict=True):
        dev[label] += is_dev
        seen[label] += 1
        assert abs(dev[label] - share * seen[label]) < 1, "after each row"


def test_the_seed_changes_the_draw_and_nothing_else_does() -> None:
    rows = [(f"text {number}", "a") for number in range(100)]
    assert split(rows, seed=1) == split(rows, seed=1) != split(rows, seed=2)


def test_only_the_first_row_of_a_class_may_repeat_the_text_of_a_dev_row_of_another_class() -> None:
    rows = [(f"text {number}", "a") for number in range(10)]
    drawn = next(text for (text, _), is_dev in zip(rows, split(rows), strict=True) if is_dev)
    assert split([*rows, (drawn, "b")])[10:] == [False]
    assert split([*rows, ("other", "b"), (drawn, "b")])[10:] == [False, True]


def test_the_dev_lines_of_a_text_are_the_share_that_was_asked_for() -> None:
    assert [
        len(divide_lines(range(n), share, "x")[1]) for n, share in ((2, 0.1), (99, 0.1), (100, 0.4), (30, 0.2))
    ] == [*(1, 9, 40, 6)]


def drawn_ids(rows: list[tuple[str, str | None, str]], share: float = 0.1) -> list[int]:
    return [int(row.id) for row in draw_dev_rows(split_in_memory(rows), share, 0)[1].examples]


def test_single_texts_and_pairs_of_their_own_are_drawn_as_ever() -> None:
    rows = [(f"text {number * number % 211}", "abc"[number % 7 % 3]) for number in range(600)]
    ids = drawn_ids([(text, None, label) for text, label in rows])
    assert hash_of(*ids) == 16036691722258130245, "by the rule before first texts counted"
    assert ids == [number for number, is_dev in enumerate(split(rows)) if is_dev]
    pairs: list[tuple[str, str | None, str]] = [(f"text {number}", "same", "ab"[number % 2]) for number in range(600)]
    assert hash_of(*drawn_ids(pairs)) == 11704092872996070352


@pytest.mark.parametrize("rows_per_text", [2, 3, 6, 20])
@pytest.mark.parametrize("shuffled", [False, True])
def test_pairs_of_one_first_text_stay_on_one_side_and_each_class_keeps_its_tenth(
    rows_per_text: int, shuffled: bool
) -> None:
    rows: list[tuple[str, str | None, str]]
    rows = [(f"Premise {row // rows_per_text}", f"hypothesis {row}", "aab"[row % 3]) for row in range(6000)]
    if shuffled:
        rows = [rows[row] for row in np.random.default_rng(0).permutation(len(rows))]
    train, dev = draw_dev_rows(split_in_memory(rows), 0.1, 0)
    assert not {text_key(row.text) for row in train.examples} & {text_key(row.text) for row in dev.examples}
    totals, counts = (Counter(row[-1] for row in rows), Counter(row.label for row in dev.examples))
    for label, total in totals.items():
        assert counts[label] == pytest.approx(total / 10, rel=0.05)


def test_a_first_text_of_many_rows_keeps_none_together() -> None:
    for topics, rows in ((5, 1000), (40, 40 * 21), (2, 40)):
        texts = [(f"topic {row % topics}", f"text {row}") for row in range(rows)]
        assert not RowHashes.of(texts).are_grouped
        assert len(drawn_ids([(*pair, "ab"[row // topics % 2]) for row, pair in enumerate(texts)])) >= rows // 10 - 2
    assert RowHashes.of([(f"topic {row % 40}", f"text {row}") for row in range(800)]).are_grouped


def test_a_share_of_the_training_rows_has_that_share_of_each_class_and_lies_in_a_larger_one() -> None:
    rows = split_in_memory([(f"text {number % 190}", None, "abc"[number % 19 // 9]) for number in range(380)])
    counts = Counter(example.label for example in rows.examples)
    before: set[str] = set()
    for share in (0.01, 0.03, 0.1, 0.3, 0.31, 0.9, 1.0):
        if share * min(counts.values()) < 0.5:
            with pytest.raises(
                DataError, match=r"leaves no training row of the label 'c', which has 20 rows; give a larger"
            ):
                draw_share(rows, share, 0)
            continue
        drawn = draw_share(rows, share, 0)
        assert Counter(example.label for example in drawn.examples) == {
            label: int(share * count + 0.5) for label, count in counts.items()
        }
        numbers = [example.id for example in drawn.examples]
        assert numbers == sorted(numbers, key=int) and before <= set(numbers)
        assert drawn.hashes.tolist() == hashes_of(drawn.texts).tolist()
        before = set(numbers)
    assert before == {example.id for example in rows.examples}
    one, other = ({example.id for example in draw_share(rows, 0.3, seed).examples} for seed in (0, 1))
    assert one != other
