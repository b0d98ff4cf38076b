"""The linear model on n-grams: the fast vectors are those of a plain loop, and what is saved comes back."""

import importlib
import math
import random
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from class_numbers import fit_linear_model, fit_model, refit_linear_model, search_hyperparameters
from logs import Kept
from scipy import sparse

from recurcli.config import LinearConfig
from recurcli.errors import DataError
from recurcli.files import OpenedFile, locked
from recurcli.linear import features, fitting, ngrams
from recurcli.linear.model import Hyperparameters, LinearModel
from recurcli.linear.ngram_hashes import JOINERS, NgramConfig, hash_ngrams, word_spans
from recurcli.linear.ngrams import IDF_POWER, Ngrams, ngram_sets
from recurcli.targets import OneLabel

TEXTS = [
    *[("股市今日大涨", None), ("股市大跌", None), ("", None), ("a bad film, a bad day", None)],
    *[("good", "bad good"), ("  \n ", "x"), ("\ud800 half", None), ("股", "市")],
    *[("हिन्दी में लिखा", "cafe\u0301 ❤️"), ("हिन्दी लिखा।", None)],
]


def words_of(text: str) -> list[str]:
    """The words and punctuation marks of a text, each with its combining marks, by a loop over its characters."""
    words: list[str] = []
    new = True
    for character in text:
        is_mark = character in JOINERS or unicodedata.category(character).startswith("M")
        if character.isspace():
            new = True
        elif not new and (is_mark or (re.match(r"\w", character) and re.match(r"\w", words[-1]))):
            words[-1] += character
        else:
            words.append(character)
            new = False
    return words


def plain_vectors(texts: list[tuple[str, str | None]], config: NgramConfig) -> list[dict[Any, float]]:
    """TF-IDF by the equation, a dictionary for each row."""

    def side_counts(text: str) -> Counter[Any]:
        found: Counter[Any] = Counter()
        lower, (shortest, longest) = text.lower(), config.characters
        part = lower if config.across_words else " ".join(["", *lower.split(), ""]) if lower.split() else ""
        for n in range(shortest, longest + 1) if longest else ():
            grams = [part[i : i + n] for i in range(len(part) - n + 1)]
            found.update(("c", gram) for gram in grams if config.across_words or " " not in gram[1:-1])
        words, (shortest, longest) = words_of(lower), config.words
        for n in range(shortest, longest + 1) if longest else ():
            found.update(("w", *words[i : i + n]) for i in range(len(words) - n + 1))
        return found

    def counts(row: tuple[str, str | None]) -> Counter[Any]:
        sides = [side_counts(text or "") for text in row]
        if row[1] is None:
            return sides[0]
        found: Counter[Any] = Counter()
        for number, (side, other) in enumerate((sides, sides[::-1])):
            for gram, count in side.items():
                found[(*gram, "both" if gram in other else number)] += count
        return found

    tf = [counts(row) for row in texts]
    df = Counter(gram for row in tf for gram in row)
    vectors = []
    for row in tf:
        vector = {
            gram: (1 + math.log(n)) * (1 + math.log((1 + len(texts)) / (1 + df[gram]))) ** IDF_POWER
            for gram, n in row.items()
        }
        for kind in ("c", "w"):
            norm = math.sqrt(sum(value**2 for gram, value in vector.items() if gram[0] == kind))
            vector = {gram: value / (norm if gram[0] == kind else 1) for gram, value in vector.items()}
        vectors.append(vector)
    return vectors


@pytest.mark.parametrize("rows_at_once", [1, 3, 4096])
@pytest.mark.parametrize(
    "config",
    [
        NgramConfig(characters=(1, 3)),
        NgramConfig(characters=(2, 4), words=(1, 2)),
        NgramConfig(words=(2, 2)),
        NgramConfig(characters=(1, 5), words=(1, 2), across_words=False),
    ],
)
def test_vectors_are_those_of_a_loop(config: NgramConfig, rows_at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "ROWS_AT_ONCE", rows_at_once)
    plain = plain_vectors(TEXTS, config)
    vocabulary, fitted, found = Ngrams.fit(TEXTS, config)
    offsets, columns, values = vocabulary.transform(TEXTS)
    assert found == len(vocabulary.keys)
    for one, other in zip(fitted, (offsets, columns, values), strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))
    made = sparse.csr_matrix((values, columns, offsets), shape=(len(TEXTS), len(vocabulary.keys)))
    assert made.shape == (len(TEXTS), len({gram for row in plain for gram in row}))
    products = np.array([[sum(a[gram] * b.get(gram, 0.0) for gram in a) for b in plain] for a in plain])
    np.testing.assert_allclose((made @ made.T).toarray(), products, atol=1e-5)
    for row, vector in enumerate(plain):
        np.testing.assert_allclose(np.sort(made[row].data), np.sort(list(vector.values())), atol=1e-5)


@pytest.mark.parametrize("kept", [1, 5, 20, 10_000])
def test_the_most_frequent_ngrams_are_kept_and_of_equal_ones_the_lowest_hashes(
    kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ngrams, "KEPT_WEIGHTS", 2 * kept)
    config = NgramConfig(characters=(1, 2), words=(1, 1))
    counts = Counter(hash_ngrams(TEXTS, config)[0].tolist())
    expected = sorted(sorted(counts, key=lambda key: (-counts[key], key))[:kept])
    vocabulary, _, found = Ngrams.fit(TEXTS, config)
    assert (vocabulary.keys.tolist(), found) == (expected, len(counts))


def test_the_hashes_of_stored_models_stay_what_they_are() -> None:
    """FORMAT_VERSION of recurcli/config.py and FORMAT of the cache grow with any change of these numbers."""
    whole, inside = NgramConfig(characters=(1, 2), words=(1, 2)), NgramConfig(characters=(2, 2), across_words=False)
    assert {hex(key) for key in hash_ngrams([("股 A1", None)], whole)[0]} == {
        *("0x1eaf816e815ab29d", "0x2ee008093ea2bd6d", "0x33d500ed3e4d3270", "0x79ce5dc97509c088", "0x8116bb8e9a01f4f4"),
        *("0x9a2a78d5b0e17538", "0xc1341fbcbfc715d8", "0xc67949c3a864283c", "0xcb9ebfbdfe40f3f8", "0xee156e5a6ab91ffd"),
    }
    assert {hex(key) for key in hash_ngrams([("ab", "b")], whole)[0]} == {
        *("0x1aa6161b3499d484", "0x2806adbc54dfc36f", "0x67b225b86bddcfff", "0x7cb20fd5a943e9c0", "0xe7b45d99875d4952"),
    }
    assert {hex(key) for key in hash_ngrams([("a b", None)], inside)[0]} == {
        "0x1127d0dcd35e3078",
        "0x2712b3e37bfcf2a2",
        "0x52806f4a8245f530",
        "0xba06261e5e88b2e8",
    }


def test_no_character_of_one_text_is_taken_for_another_of_the_other() -> None:
    characters = [chr(code) for code in (*range(0x20, 0xD800), *range(0xE000, 0x11000))]
    alphabet = [character for character in characters if character.lower() == character]
    pairs = [("".join(alphabet[start : start + 500]), None) for start in range(0, len(alphabet), 500)]
    sides = [
        Ngrams.fit(rows, NgramConfig(characters=(1, 3)))[0].keys for rows in (pairs, [("", text) for text, _ in pairs])
    ]
    assert len(sides[0]) == len(sides[1]) > 3 * len(alphabet) - 500
    assert not np.intersect1d(sides[0], sides[1]).size


@pytest.mark.parametrize("across_words", [False, True])
@pytest.mark.parametrize("pairs", [False, True])
def test_the_script_of_an_export_scores_as_the_model_does(*, across_words: bool, pairs: bool, tmp_path: Path) -> None:
    config = NgramConfig(characters=(1, 4), words=(1, 2), across_words=across_words)
    rows = [(text, pair or "" if pairs else None) for text, pair in TEXTS if "\ud800" not in text]
    fitted = fit_model(rows, [n % 3 for n in range(len(rows))], 3, Hyperparameters(config, 0.5))
    own = fitted.ngrams
    np.savez(tmp_path / "linear.npz", keys=own.keys, idf=own.weights, weights=fitted.weights, bias=fitted.bias)
    module = importlib.import_module("recurcli.export.folder.linear_model")
    script = module.Linear(tmp_path / "linear.npz", {"ngrams": asdict(config), "vectors": None})
    texts = [tuple(text for text in row if text is not None) for row in rows]
    np.testing.assert_allclose(script.logits(texts), fitted.logits(rows), atol=1e-5)


def test_combining_marks_are_parts_of_words() -> None:
    text = "हिन्दी में लिखा। cafe\u0301, می\u200cخواهم ❤\ufe0f don't"
    words = ["हिन्दी", "में", "लिखा", "।", "cafe\u0301", ",", "می\u200cخواهم", "❤\ufe0f", "don", "'", "t"]
    assert [text[start:end] for start, end in word_spans(text)] == words


def test_words_are_those_of_a_loop() -> None:
    draw = random.Random(0)
    alphabet = "aB9_ \n\t\u3000.'股\u0301\u093f\u200c\u200d❤\ufe0f\U0001d165\ud800"
    for _ in range(500):
        text = "".join(draw.choices(alphabet, k=draw.randrange(12)))
        assert [text[start:end] for start, end in word_spans(text)] == words_of(text), repr(text)


def test_ngrams_follow_the_script() -> None:
    assert {ngrams.words for ngrams in ngram_sets([("股市今日大涨", "今日天气")])} == {(0, 0)}
    assert ngram_sets([("a long review of a film " * 40, None)]) == ngram_sets([("a good film", None)])
    assert {ngrams.words for ngrams in ngram_sets([("what is the price of gold?", None)])} == {(1, 2)}


WORDS = ["good", "great", "fine", "fun", "bad", "poor", "awful", "dull", *(f"film{n}" for n in range(60))]


def made_rows(count: int) -> tuple[list[tuple[str, str | None]], list[int]]:
    """Return texts of 6 words, and whether more of their words are among the first 4 than among the next 4."""
    drawn = np.random.default_rng(0)
    words = [drawn.choice(WORDS, 6, p=[0.05] * 8 + [0.01] * 60) for _ in range(count)]
    targets = [int(np.isin(row, WORDS[:4]).sum() > np.isin(row, WORDS[4:8]).sum()) for row in words]
    return [(" ".join(row), None) for row in words], targets


def test_what_is_given_is_not_chosen() -> None:
    rows = (*made_rows(300), 2)
    config = LinearConfig(c=3.0, characters=(3, 4), words=None, across_words=True)
    assert search_hyperparameters(*rows, config) == Hyperparameters(NgramConfig(characters=(3, 4)), 3.0)
    chosen = search_hyperparameters(*rows, LinearConfig(characters=None))
    assert (chosen.ngrams, chosen.rows) == (NgramConfig(words=(1, 2)), 300)


def test_c_has_nearly_the_best_held_out_accuracy() -> None:
    texts, targets = made_rows(600)
    chosen = search_hyperparameters(texts, targets, 2, LinearConfig())
    found = {c: search_hyperparameters(texts, targets, 2, LinearConfig(c=c)).score or 0 for c in fitting.C_GRID}
    assert found[chosen.c] == chosen.score
    assert (
        found[min(found)] + 0.02 < found[chosen.c] > max(found.values()) - 0.02
    )  # so that there was something to choose


def long_rows(count: int) -> tuple[list[tuple[str, str | None]], list[int]]:
    """Return texts of 80 words of which no two have one in common, but all words of a class end alike, and the classes."""
    stems = np.random.default_rng(0).choice([*"aeiou"], (count, 80, 9)).tolist()
    texts = [" ".join("".join([*stem, "xy"[n % 2]]) for stem in words) for n, words in enumerate(stems)]
    return [(text, None) for text in texts], [n % 2 for n in range(count)]


def test_characters_are_counted_in_long_texts_where_they_tell_more() -> None:
    assert search_hyperparameters(*long_rows(90), 2, LinearConfig()).ngrams.characters == (2, 5)


@pytest.mark.parametrize(("rows", "characters"), [(240, (2, 5)), (60, (0, 0))])
def test_ngrams_whose_loss_falls_faster_are_chosen_where_the_fit_has_more_rows_than_the_choice(
    rows: int, characters: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Characters tell all with one fold or two. Words tell nothing with one fold, and less than characters with two."""
    texts = [(f"{('good', 'bad')[n % 2]} film number {n}", None) for n in range(240)]
    real, columns, drawn = OneLabel.fit_linear, list[int](), np.random.default_rng(0)

    def fit_weights(target: Any, vectors: Any, labels: Any, *options: Any) -> Any:
        weights, bias = real(target, vectors, labels, *options)
        columns.append(vectors.shape[1])
        if vectors.shape[1] == min(columns):  # words alone, which are tried first
            noise = 0.2 * drawn.normal(size=weights.shape)
            return weights + noise if len(labels) > rows // 2 else weights * 0, bias
        return weights, bias

    monkeypatch.setattr(OneLabel, "fit_linear", fit_weights)
    monkeypatch.setattr(fitting, "MAX_CHOICE_ROWS", rows)
    chosen = search_hyperparameters(texts, [n % 2 for n in range(240)], 2, LinearConfig(c=0.5))
    assert (chosen.ngrams.characters, chosen.rows) == (characters, rows)


@pytest.mark.parametrize("in_the_fit", [True, False])
def test_the_weights_of_rows_weight_the_losses_that_choose(
    *, in_the_fit: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random labels ask for a small C. Rows that have hardly any weight ask for nothing."""
    texts, targets = made_rows(600)
    noise = np.random.default_rng(1).random(600) < 0.3
    flipped = np.where(noise, 1 - np.array(targets), targets).tolist()
    if not in_the_fit:
        real = OneLabel.fit_linear
        monkeypatch.setattr(OneLabel, "fit_linear", lambda *options: real(*options[:-1]))
    words = LinearConfig(characters=None)
    plain = search_hyperparameters(texts, flipped, 2, words)
    clean = search_hyperparameters(texts, flipped, 2, words, np.where(noise, 1e-3, 1.0))
    assert clean.c > plain.c
    assert search_hyperparameters(texts, flipped, 2, words, np.ones(600)) == plain


@pytest.mark.parametrize(
    ("means", "expected"),
    [
        ((9, 6, 4, 3.8, 3.8, 4, 5, 6, 7), 0.25),  # the lowest within a standard error of the best
        ((9, 9, 9, 9, 9, 9, 9, 9, 9), 2**-5),
        ((9, 8, 7, 6, 5, 4, 3, 2.7, 4), 4.0),  # upwards while the mean falls
        ((9, 3, 2, 4, 5, 6, 7, 8, 9), 2**-3),  # downwards
    ],
)
def test_c_is_the_smallest_that_may_be_as_good_as_the_best(means: tuple[float, ...], expected: float) -> None:
    rows = np.linspace(-1, 1, 200)
    assert fitting._choose_c(lambda c: means[fitting.C_GRID.index(c)] * (1 + rows)) == expected


@pytest.mark.parametrize(("lost", "chosen"), [(0.06, 0.25), (0.08, 0.5)])
def test_c_is_lowered_while_it_loses_one_standard_error_at_most(lost: float, chosen: float) -> None:
    differences = np.where(np.arange(200) % 2, 1.0, -1.0)  # their mean has the standard error 1 / sqrt(200), 0.071
    losses = {0.5: np.ones(200), 0.25: 1 + lost + differences}
    assert fitting._choose_c(lambda c: losses.get(c, np.full(200, 9.0))) == chosen


def fit_with_note(texts: Any, targets: Any, num_classes: int, *options: Any) -> tuple[LinearModel, str]:
    """The linear model, and the note on it."""
    log = Kept()
    model = fit_linear_model(texts, targets, num_classes, log, *options)
    (note,) = log.notes
    return model, note


def test_a_set_without_an_ngram_is_not_tried() -> None:
    texts, targets = made_rows(60)
    model, _ = fit_with_note(texts, targets, 2, LinearConfig(characters=(1, 1), words=None))
    assert model.ngrams.config.across_words
    with pytest.raises(DataError, match="n-grams"):
        fit_with_note(texts, targets, 2, LinearConfig(characters=None, words=(9, 9)))


def test_rows_of_one_text_are_in_one_fold() -> None:
    texts = [(f"row {n // 2}", None) for n in range(200)]  # each text twice, with a label of its own
    targets = np.random.default_rng(0).integers(0, 2, 100).repeat(2).tolist()
    accuracy = search_hyperparameters(texts, targets, 2, LinearConfig()).score
    assert accuracy is not None and accuracy < 0.7  # 1 if the other row of a text were in the training folds


def test_an_extra_row_is_in_the_fold_of_its_row() -> None:
    shared = [(f"row {n}", None) for n in range(90)] + [(f"city {n % 3}", None) for n in range(90)]
    folds = fitting._draw_folds(shared, [str(n) for n in range(90)] * 2)  # three cities would join all rows
    assert np.bincount(folds).tolist() == [60, 60, 60] and (folds[:90] == folds[90:]).all()
    chained = [*((text, None) for text in "abbc"), *((f"other {n}", None) for n in range(8))]
    assert len(set(fitting._draw_folds(chained, [*"1122", *"abcdefgh"])[:4])) == 1


@pytest.mark.parametrize("targets", [[0] * 5 + [1], [0, 1] * 2])
def test_too_few_rows_are_fitted_without_a_choice(targets: list[int]) -> None:
    texts = [(f"text {n}", None) for n in range(len(targets))]
    chosen = search_hyperparameters(texts, targets, 2, LinearConfig())
    assert chosen.score is None
    assert fit_model(texts, targets, 2, chosen).rows == len(texts)


def test_sgd_fits_as_linear_svc_does_and_a_refit_keeps_the_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    texts, targets = made_rows(3000)
    labels, choice = np.array(targets), Hyperparameters(NgramConfig(words=(1, 2)), 0.5)
    svc = fit_model(texts[:2000], targets[:2000], 3, choice)
    monkeypatch.setattr(fitting, "SVC_WORK", 0)
    sgd = fit_model(texts[:2000], targets[:2000], 3, choice)
    assert (svc.facts(texts)["solver"], sgd.facts(texts)["solver"]) == ("LinearSVC", "SGD")

    def accuracy(model: LinearModel) -> float:
        return float((model.logits(texts[2000:]).argmax(axis=1) == labels[2000:]).mean())

    assert accuracy(svc) > 0.8
    assert abs(accuracy(svc) - accuracy(sgd)) < 0.03
    more, again = (refit_linear_model(sgd, texts, targets) for _ in range(2))
    assert more.rows == 3000
    assert accuracy(more) >= accuracy(sgd)
    assert (again.weights == more.weights).all()
    refitted = refit_linear_model(svc, texts[:100], targets[:100]).facts(texts)
    assert (refitted["solver"], refitted["c"]) == ("LinearSVC", 0.5)


def test_it_learns_and_comes_back_from_its_file(tmp_path: Path) -> None:
    texts = [(f"{'good' if n % 3 else 'bad'} film number {n}", None) for n in range(90)]
    targets = [0 if n % 3 else 2 for n in range(90)]
    fitted = fit_model(texts, targets, 3, Hyperparameters(NgramConfig(characters=(2, 4), words=(1, 2)), 0.5))
    logits = fitted.logits(texts)
    assert (logits.argmax(axis=1) == targets).all()
    assert (logits[:, 1] < logits[:, [0, 2]].min()).all()  # no row had class 1
    (tmp_path / "linear.safetensors").write_bytes(fitted.to_bytes())
    assert (LinearModel.load(OpenedFile(tmp_path / "linear.safetensors")).logits(texts) == logits).all()


def test_a_row_of_its_own_scores_as_it_does_among_others() -> None:
    fitted = fit_model(TEXTS, [0, 1] * (len(TEXTS) // 2), 2, Hyperparameters(NgramConfig(characters=(1, 3)), 0.5))
    alone = np.concatenate([fitted.logits([row]) for row in TEXTS])
    assert (alone == fitted.logits(TEXTS)).all()


@pytest.mark.parametrize(("texts", "targets", "reason"), [("ab", [1, 1], "two classes"), (["", ""], [0, 1], "n-grams")])
def test_what_cannot_be_learnt_from_is_refused(texts: Sequence[str], targets: list[int], reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        fit_model([(text, None) for text in texts], targets, 2, Hyperparameters(NgramConfig(words=(1, 2)), 0.5))


def test_of_very_large_data_a_part_of_the_rows_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ngrams, "MAX_VALUES", 400)
    monkeypatch.setattr(features, "ROWS_AT_ONCE", 10)
    texts = [(f"text number {n}", None) for n in range(300)]
    fitted = fit_model(texts, [n // 150 for n in range(300)], 2, Hyperparameters(NgramConfig(words=(1, 2)), 0.5))
    assert 60 <= fitted.rows <= 100
    assert "in 80 of 300 rows" in fitted.in_words(300)


def test_all_rows_are_fitted_where_the_preset_wants_it_and_learned_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "ROWS_AT_ONCE", 10)
    monkeypatch.setattr(fitting, "SVC_WORK", 0)
    texts, targets = made_rows(3000)
    chosen = Hyperparameters(NgramConfig(words=(1, 1)), 0.5)
    monkeypatch.setattr(ngrams, "MAX_VALUES", 3000)
    monkeypatch.setattr(fitting, "MAX_VALUES", 3000)
    monkeypatch.setattr(fitting, "MAX_COUNTED", 3000)
    some, every = (fit_model(texts, targets, 2, chosen, all_rows=each) for each in (False, True))
    assert some.rows < 1000 < every.rows == 3000
    right = [float((model.logits(texts).argmax(axis=1) == targets).mean()) for model in (some, every)]
    assert right[0] < right[1] > 0.8
    more = [refit_linear_model(some, texts, targets, None, all_rows=each) for each in (False, True)]
    assert some.rows - 10 <= more[0].rows <= some.rows + 20
    assert more[1].rows == 3000


def test_no_row_is_left_out_of_a_block_whose_texts_are_long(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = made_rows(60)[0]
    vocabulary = Ngrams.fit(texts, NgramConfig(words=(1, 2)))[0]
    monkeypatch.setattr(ngrams, "MAX_VALUES", 100)
    vectors, features = fitting._rows_made_anew(vocabulary, None, 0.0, texts)(slice(0, 60))
    assert len(features) == vectors.shape[0] == 60 and vectors.nnz > 100


def test_rows_that_are_made_anew_are_those_of_the_vocabulary() -> None:
    texts, order = made_rows(60)[0], np.random.default_rng(0).permutation(60)
    vocabulary = Ngrams.fit(texts, NgramConfig(words=(1, 2)))[0]
    vectors, none = fitting._rows_made_anew(vocabulary, None, 0.0, fitting._InOrder(texts, order))(slice(5, 40))
    offsets, columns, values = vocabulary.transform([texts[row] for row in order[5:40]])
    for found, expected in ((vectors.indptr, offsets), (vectors.indices, columns), (vectors.data, values)):
        np.testing.assert_array_equal(found, expected)
    assert none.shape == (35, 0)


def test_the_most_frequent_ngrams_are_kept_and_the_cut_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ngrams, "KEPT_WEIGHTS", 12)
    texts = [(f"{'good' if n % 2 else 'bad'} book {n}", None) for n in range(60)]
    fitted = fit_model(texts, [n % 3 for n in range(60)], 3, Hyperparameters(NgramConfig(words=(1, 1)), 0.5))
    assert fitted.weights.shape == (4, 3)
    assert fitted.in_words(60).startswith("4 of 63 n-grams of words 1-1 in 60 rows")
    assert {*Ngrams.fit([("good book bad", None)], NgramConfig(words=(1, 1)))[0].keys} < {*fitted.ngrams.keys}


@pytest.mark.parametrize("library", ["scikit-learn", "numpy", "scipy", "torch"])
def test_a_model_is_fitted_again_by_another_version_of_a_library(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = (*made_rows(100), 2, LinearConfig(c=0.5, characters=None, words=(1, 1)))
    fit_with_note(*rows)
    assert fit_with_note(*rows)[1].endswith("from the cache")
    monkeypatch.setattr(fitting, "version", lambda name: "0.0" if name == library else version(name))
    assert "fitted in" in fit_with_note(*rows)[1]


def fitted_anew(*arguments: Any) -> LinearModel:
    """A model that is not read from the cache."""
    model, note = fit_with_note(*arguments)
    assert "fitted in" in note and "not cached" not in note
    return model


def test_other_weights_of_rows_or_other_ids_are_fitted_anew() -> None:
    rows = (*made_rows(100), 2, LinearConfig(characters=None, words=(1, 1)))
    one, other = (fitted_anew(*rows, np.where(np.arange(100) % 3, 1.0, weight), None) for weight in (1.0, 0.1))
    assert not np.array_equal(one.weights, other.weights)
    ids = ["0", "0", *(str(n) for n in range(1, 99))]
    fitted_anew(*rows, np.where(np.arange(100) % 3, 1.0, 0.1), ids)


def test_a_cache_that_is_damaged_busy_or_cannot_be_written_is_not_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECUR_CACHE", str(tmp_path / "cache"))
    rows = (*made_rows(100), 2, LinearConfig(c=0.5, characters=None, words=(1, 1)))
    weights = fitted_anew(*rows).weights
    (stored,) = (tmp_path / "cache").glob("*.linear.safetensors")
    stored.write_bytes(stored.read_bytes()[:-1])
    assert (fitted_anew(*rows).weights == weights).all()
    stored.unlink()
    (tmp_path / "file").write_text("")
    with locked(stored.with_name(f"{stored.name}.lock")):
        for cache in (tmp_path / "cache", tmp_path / "file", "~no-such-user/cache"):
            monkeypatch.setenv("RECUR_CACHE", str(cache))
            model, note = fit_with_note(*rows)
            assert (model.weights == weights).all()
            assert "fitted in" in note and "(not cached: " in note


def test_labels_and_weights_in_arrays_are_in_the_key_as_a_whole() -> None:
    """NumPy shows an array of more than 1,000 numbers by its two ends."""
    texts = [(f"{'good' if n % 3 else 'bad'} word{n % 50}", None) for n in range(2_000)]
    targets: Any = np.array([n % 3 > 0 for n in range(2_000)], np.int64)
    config = LinearConfig(c=0.5, characters=None, words=(1, 1))
    first = fitted_anew(texts, targets, 2, config)
    assert fit_with_note(texts, targets.tolist(), 2, config)[1].endswith("from the cache")
    targets[900:1100] = 1 - targets[900:1100]
    assert not np.array_equal(first.weights, fitted_anew(texts, targets, 2, config).weights)


def test_a_given_c_that_sgd_does_not_read_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    texts, targets = made_rows(100)
    monkeypatch.setattr(fitting, "SVC_WORK", 0)
    notes = [fit_with_note(texts, targets, 2, LinearConfig(c=c, characters=None))[1] for c in ("auto", 2.0)]
    assert [note.endswith("; linear.c has no effect on SGD") for note in notes] == [False, True]


def test_texts_that_grow_in_lower_case_lose_no_row() -> None:
    texts = [("".join(f"\u0130{chr(0x4E00 + 50 * n + k)}" for k in range(40)), None) for n in range(50)]
    assert len(Ngrams.fit(texts, NgramConfig(characters=(2, 5)))[1].offsets) == 51


def test_single_words_need_no_ngrams_of_words() -> None:
    drawn = np.random.default_rng(0)
    words = ["".join(drawn.choice([*"bdgklmnprst"], 7)) + ("a", "o")[n % 2] for n in range(300)]
    chosen = search_hyperparameters([(word, None) for word in words], [n % 2 for n in range(300)], 2, LinearConfig())
    assert (chosen.ngrams.words, chosen.ngrams.characters[0], chosen.ngrams.across_words) == ((0, 0), 1, False)
