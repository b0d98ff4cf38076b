"""The explanation of a label: spelled n-grams are those that were hashed, and the words that decide are named."""

import time

import numpy as np
import pytest
from class_numbers import fit_model

from recurcli.linear.explain import explain, occurrences
from recurcli.linear.model import Hyperparameters
from recurcli.linear.ngram_hashes import NgramConfig, hash_ngrams

ROWS = [
    ("股市今日 大涨", None),
    ("A bad  film,\ta BAD day ", None),
    ("", None),
    (" \n ", "x"),
    ("good one", "one bad good"),
    ("हिन्दी में लिखा।", "cafe\u0301 ❤️"),
]


@pytest.mark.parametrize(
    "config",
    [
        NgramConfig(characters=(1, 3)),
        NgramConfig(words=(1, 2)),
        NgramConfig(characters=(2, 5), words=(1, 2)),
        NgramConfig(characters=(1, 5), words=(2, 2), across_words=False),
    ],
)
@pytest.mark.parametrize("row", ROWS)
def test_occurrences_stand_in_the_order_of_their_hashes(row: tuple[str, str | None], config: NgramConfig) -> None:
    keys, found = hash_ngrams([row], config)[0], occurrences(row, config)
    assert len(keys) == len(found)
    lower = [(text or "").lower() for text in row]
    spelled = [" ".join(lower[place.side][place.start : place.end].split()) for place in found]
    kinds: dict[int, str] = {}  # equal n-grams of one side have equal hashes; a hash stands for one spelling
    for key, text in zip(keys.tolist(), spelled, strict=True):
        assert kinds.setdefault(key, text) == text


def test_the_words_that_decide_are_named() -> None:
    draw = np.random.default_rng(0)
    fillers = [f"film{n}" for n in range(30)]
    texts: list[tuple[str, str | None]] = []
    for n in range(200):
        before, after = draw.choice(fillers, 3), draw.choice(fillers, 2)
        texts.append((" ".join([*before, "superb" if n % 2 else "dreadful", *after]), None))
    for config in (NgramConfig(words=(1, 2), characters=(2, 5), across_words=False), NgramConfig(words=(1, 1))):
        model = fit_model(texts, [n % 2 for n in range(200)], 2, Hyperparameters(config, 0.5))
        assert explain(model, ("film3 Superb film4", None), 1)[0] == "Superb"
        assert explain(model, ("film3 Dreadful film4", None), 0)[0] == "Dreadful"
    assert explain(model, ("xyzzy", None), 0) == []  # the last model knows no such word
    pairs = [(text, "nothing") for text, _ in texts]
    model = fit_model(pairs, [n % 2 for n in range(200)], 2, Hyperparameters(NgramConfig(words=(1, 1)), 0.5))
    assert explain(model, ("a superb film", "nothing"), 1)[0] == "first: superb"
    pairs = [(f"red {n}", f"{'red' if n % 2 else 'blue'} thing {n}") for n in range(200)]
    for config in (NgramConfig(words=(1, 1)), NgramConfig(characters=(3, 3))):
        model = fit_model(pairs, [n % 2 for n in range(200)], 2, Hyperparameters(config, 0.5))
        assert "both: red" in explain(model, ("red x", "red"), 1)


def test_words_with_vowel_signs_are_named_whole() -> None:
    fillers = ["फिल्म", "कहानी", "अभिनेता", "संगीत", "निर्देशक"]
    texts = [(f"{fillers[n % 5]} {'शानदार' if n % 2 else 'घटिया'} {fillers[n % 3]}", None) for n in range(60)]
    config = NgramConfig(words=(1, 2), characters=(2, 5), across_words=False)
    model = fit_model(texts, [n % 2 for n in range(60)], 2, Hyperparameters(config, 0.5))
    assert explain(model, ("संगीत घटिया है", None), 0)[0] == "घटिया"


def test_a_part_that_ends_beside_an_emoji_names_its_text() -> None:
    pairs = [(f"film{n % 7}{'😀' if n % 2 else '😡'}", "nothing here") for n in range(80)]
    config = NgramConfig(words=(1, 1), characters=(1, 3), across_words=False)
    model = fit_model(pairs, [n % 2 for n in range(80)], 2, Hyperparameters(config, 0.5))
    parts = explain(model, ("film3😀", "nothing here"), 1)
    assert parts
    assert all(part.startswith("first: ") for part in parts)


def headlines(number: int) -> tuple[list[tuple[str, str | None]], list[int]]:
    """Chinese texts of two classes with a word of the class between random characters."""
    draw = np.random.default_rng(0)
    filler = [chr(0x4E00 + n) for n in range(60)]
    words = [["球队", "获胜"], ["股市", "大涨"]]
    texts = [
        "".join([*draw.choice(filler, 3), words[n % 2][draw.integers(2)], *draw.choice(filler, 3)])
        for n in range(number)
    ]
    return [(text, None) for text in texts], [n % 2 for n in range(number)]


def test_neighbouring_characters_with_large_shares_are_one_part() -> None:
    texts, labels = headlines(200)
    model = fit_model(texts, labels, 2, Hyperparameters(NgramConfig(characters=(1, 3)), 0.5))
    assert sorted(explain(model, ("今天股市，大涨了", None), 1)[:2]) == ["大涨", "股市"]
    assert explain(model, ("今天股市大涨了", None), 1)[0] == "股市大涨"
    assert explain(model, ("今天球队，输了", None), 0)[0] == "球队"
    assert explain(model, ("！，。", None), 0) == []


def test_a_long_row_is_explained_in_the_time_of_its_length() -> None:
    draw = np.random.default_rng(0)
    words = [f"w{n}" for n in range(2000)]
    texts: list[tuple[str, str | None]] = [(" ".join(draw.choice(words, 60)), None) for _ in range(100)]
    config = NgramConfig(words=(1, 2), characters=(2, 5))
    model = fit_model(texts, [n % 2 for n in range(100)], 2, Hyperparameters(config, 0.5))

    def seconds(length: int) -> float:
        row = (" ".join(draw.choice(words, length)), None)
        start = time.process_time()
        assert explain(model, row, 1)
        return time.process_time() - start

    short, long = (min(seconds(length) for _ in range(3)) for length in (200, 1600))
    assert long < 24 * short  # 8 times the length; quadratic time would be 64 times
