"""The classifier two-sample test: seldom an alarm within one set of texts, always one between two."""

import math
import random
from statistics import NormalDist

import numpy as np
import pytest

from recurcli.data.splits import RowHashes
from recurcli.linear.fitting import INITIAL_C
from recurcli.linear.model import Hyperparameters
from recurcli.linear.ngram_hashes import NgramConfig
from recurcli.linear.ngrams import Ngrams, ngram_sets
from recurcli.linear.out_of_fold import out_of_fold_logits
from recurcli.linear.two_sample import two_sample_test
from recurcli.targets import OneLabel

Texts = list[tuple[str, str | None]]


def texts_of(words: str, count: int, seed: int) -> Texts:
    """Texts of six of the `words`."""
    draw = random.Random(seed)
    return [(" ".join(draw.choices(words.split(), k=6)), None) for _ in range(count)]


FRUIT, TREES = "apple pear plum fig lime quince the a of with", "oak elm ash yew the a of with birch pine"


@pytest.mark.parametrize(("times", "most"), [(20, (1, 3)), pytest.param(50, (2, 5), marks=pytest.mark.slow)])
def test_halves_of_one_set_seldom_differ(times: int, most: tuple[int, int]) -> None:
    found = [two_sample_test(texts_of(FRUIT, 60, 2 * seed), texts_of(FRUIT, 60, 2 * seed + 1)) for seed in range(times)]
    assert sum(each.p_value < 0.01 for each in found) <= most[0]
    assert sum(each.p_value < 0.05 for each in found) <= most[1]
    assert 0.45 < np.mean([each.accuracy for each in found]) < 0.55


def test_two_sets_differ_and_the_strangest_texts_are_named() -> None:
    second = [*texts_of(FRUIT, 30, 1), *texts_of(TREES, 50, 2)]
    found = two_sample_test(texts_of(FRUIT, 80, 0), second)
    assert found.p_value < 1e-3 and found.accuracy > 0.65
    assert min(np.argsort(-found.distances)[:20]) >= 30, "the trees"


def test_a_text_of_both_sets_tells_nothing() -> None:
    same = texts_of(FRUIT, 40, 0)
    found = two_sample_test(same, same)
    assert found.accuracy <= 0.5 and found.p_value > 0.4


def test_the_p_value_is_that_of_the_formula_as_a_loop() -> None:
    first = [(text, str(number)) for number, (text, _) in enumerate(texts_of("oak elm ash fig", 60, 1))]
    second = [(text, str(number)) for number, (text, _) in enumerate(texts_of("oak yew plum fig", 60, 2))]
    texts, y = first + second, np.repeat([0, 1], 60)
    chosen = Hyperparameters(ngram_sets(texts)[0], INITIAL_C)
    logits = out_of_fold_logits(texts, y, OneLabel(("first", "second")), chosen).tolist()
    groups = RowHashes.of(texts).group_ids.tolist()
    assert len({*groups}) < 120, "some pairs have one first text"
    hits, sums = 0.0, dict.fromkeys(groups, 0.0)
    for (of_first, of_second), of_set, group in zip(logits, y.tolist(), groups, strict=True):
        hit = 0.5 if of_first == of_second else float((of_second > of_first) == of_set)
        hits += hit
        sums[group] += hit - 0.5
    z = sum(sums.values()) / math.sqrt((1 + 5 / 4) * sum(each**2 for each in sums.values()))
    found = two_sample_test(first, second)
    assert found.accuracy == pytest.approx(hits / 120)
    assert found.p_value == pytest.approx(1 - NormalDist().cdf(z), rel=1e-6)
    assert found.distances == pytest.approx([of_second - of_first for of_first, of_second in logits[60:]])


def test_the_share_of_unknown_ngrams_is_counted_and_is_a_by_product_of_the_vectors() -> None:
    words = NgramConfig(words=(1, 1))
    ngrams, _, _ = Ngrams.fit([("oak elm", None), ("oak ash", None)], words)
    assert ngrams.unknown_share([("oak fig", None), ("elm plum", None), ("", None)]) == 0.5
    assert ngrams.unknown_share([]) == 0
    assert ngrams.unknown_share([("oak elm", None), ("oak ash", None)], fitted=True) == 0.5, "elm and ash stand once"
    again = Ngrams(words, ngrams.keys, ngrams.weights)
    assert (again.unknown, again.counted) == (0, 0)
    again.transform([("oak fig", None)])
    again.transform([("elm oak", None), ("yew lime", None)])
    assert (again.unknown, again.counted) == (3, 6)
