"""A trained model in Python: predictions of texts and of pairs, in order, and errors that name a row."""

import math
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from class_numbers import probabilities
from sources import like
from tiny_task import LABELS

from recurcli.evaluation import predictor as module
from recurcli.evaluation.predictor import Predictor

CHARACTERS = "".join(LABELS.values())
TEXTS = [CHARACTERS[n % 7 : n % 7 + n % 9 + 1] for n in range(30)]


@pytest.fixture(scope="module")
def loaded(trained: Path) -> Predictor:
    return Predictor.load(trained, device="cpu")


def test_a_prediction_is_the_label_of_the_highest_probability(loaded: Predictor) -> None:
    found = loaded.predict(TEXTS)
    logits = loaded.logits(TEXTS)
    assert logits.shape == (len(TEXTS), len(loaded.labels))
    for row, prediction in zip(logits, found, strict=True):
        [shares] = probabilities(row[None], rows=24)  # the dev rows
        assert prediction.label == loaded.labels[row.argmax()]
        assert prediction.score == pytest.approx(shares.max())
        assert list(prediction.probabilities) == list(loaded.labels)
        assert list(prediction.probabilities.values()) == pytest.approx(shares.tolist())
    assert loaded.predict([]) == []


def test_a_stream_is_read_a_window_at_a_time(loaded: Predictor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WINDOW", 4)
    read = 0

    def endless() -> Iterator[str]:
        nonlocal read
        while True:
            yield TEXTS[read % len(TEXTS)]
            read += 1

    found = list(islice(loaded.predict_stream(endless()), 10))
    assert read < 12
    assert [prediction.label for prediction in found] == [prediction.label for prediction in loaded.predict(TEXTS[:10])]


def test_a_second_text_counts_and_none_is_no_second_text(trained: Path) -> None:
    loaded = Predictor.load(trained, device="cpu")
    first, none = loaded.logits(["鼠", ("鼠", None)])
    assert np.abs(first - none).max() < 1e-5
    loaded.source = like("a", "b")
    pair, as_list = loaded.logits([("鼠", "牛"), ["鼠", "牛"]])  # type: ignore[list-item]
    assert np.abs(first - pair).max() > 1e-6
    assert np.abs(pair - as_list).max() < 1e-5
    assert len(loaded.predict([("鼠", "牛")])) == 1
    for call in (loaded.predict, loaded.logits):
        for text in ("牛", ("牛", None)):
            with pytest.raises(ValueError, match=r"texts\[1\] is .*牛.*, but the model was trained on pairs"):
                call([("鼠", "牛"), text])


def test_a_pair_for_a_model_of_single_texts_is_an_error_with_its_row(loaded: Predictor) -> None:
    assert len(loaded.predict([("鼠", None), "牛"])) == 2
    array = np.array([["鼠", None], ["牛", "虎"]], object)
    for call in (loaded.predict, loaded.logits):
        for texts in (["鼠", ("牛", "虎")], [("鼠", None), ["牛", "虎"]], array):
            with pytest.raises(ValueError, match=r"texts\[1\] is .*牛.*虎.*, but the model was trained on single"):
                call(texts)  # type: ignore[arg-type]


def test_texts_that_lose_their_end_are_counted(trained: Path) -> None:
    loaded = Predictor.load(trained, device="cpu")
    assert loaded.encoder is not None
    longest = loaded.encoder.model.config.max_length
    loaded.predict(["鼠" * longest * 2, "鼠", "牛" * longest * 3])
    assert loaded.truncated == 2
    loaded.predict(["虎" * longest * 2])
    assert loaded.truncated == 3


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (None, TypeError, "texts[5] is None (NoneType); it must be a string or a pair of strings"),
        (7, TypeError, "texts[5] is 7 (int); it must be a string or a pair of strings"),
        (("a", "b", "c"), ValueError, "texts[5] is ('a', 'b', 'c') (tuple) with 3 items; a pair must have two"),
        ((None, "a"), TypeError, "texts[5] is (None, 'a') (tuple); it must be a pair of strings"),
        (("a", math.nan), TypeError, "texts[5] is ('a', nan) (tuple); it must be a pair of strings"),
    ],
)
def test_what_is_no_text_is_named_with_its_row(
    value: Any, error: type[Exception], message: str, loaded: Predictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WINDOW", 2)
    for call in (loaded.predict, loaded.logits):
        with pytest.raises(error, match=f"^{re.escape(message)}$"):
            call(["a"] * 5 + [value])
    with pytest.raises(TypeError, match="put it in a list"):
        loaded.predict("鼠")
