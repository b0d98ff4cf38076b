"""The explanation of a label: spelled n-grams are those that were hashed, and the words that decide are named."""

import time

import numpy as np
import pytest

from recurcli.linear.explain import explain, occurrences
from recurcli.linear.fitting import fit_choice
from recurcli.linear.model import Choice
from recurcli.linear.ngrams import OLDER_HASH_VERSION, NgramConfig, hash_ngrams

ROWS = [
    ("股市今日 大涨", None),
    ("A bad  film,\ta BAD day ", None),
    ("", None),
    (" \n ", "x"),
    ("good one", "one bad good"),
]


@pytest.mark.parametrize("hash_version", [OLDER_HASH_VERSION, 2])
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
def test_occurrences_stand_in_the_order_of_their_hashes(
    row: tuple[str, str | None], config: NgramConfig, hash_version: int
) -> None:
    config = NgramConfig(
        characters=config.characters, words=config.words, across_words=config.across_words, hash_version=hash_version
    )
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
        model = fit_choice(texts, [n % 2 for n in range(200)], 2, Choice(config, 0.5))
        assert explain(model, ("film3 Superb film4", None), 1)[0] == "Superb"
        assert explain(model, ("film3 Dreadful film4", None), 0)[0] == "Dreadful"
        assert explain(model, ("xyzzy", None), 0) == [] or config.characters[1]
    pairs = [(text, "nothing") for text, _ in texts]
    model = fit_choice(pairs, [n % 2 for n in range(200)], 2, Choice(NgramConfig(words=(1, 1)), 0.5))
    assert explain(model, ("a superb film", "nothing"), 1)[0] == "first: superb"
    pairs = [(f"red {n}", f"{'red' if n % 2 else 'blue'} thing {n}") for n in range(200)]
    for config in (NgramConfig(words=(1, 1)), NgramConfig(characters=(3, 3))):
        model = fit_choice(pairs, [n % 2 for n in range(200)], 2, Choice(config, 0.5))
        assert "both: red" in explain(model, ("red x", "red"), 1)


def test_texts_without_words_are_explained_by_ngrams_that_do_not_overlap() -> None:
    texts = [(f"{'股市大涨' if n % 2 else '球队获胜'}{chr(0x4E00 + n)}", None) for n in range(100)]
    model = fit_choice(texts, [n % 2 for n in range(100)], 2, Choice(NgramConfig(characters=(1, 3)), 0.5))
    parts = explain(model, ("今天股市大涨了", None), 1)
    assert set("".join(parts)) <= set("股市大涨")
    assert sum(map(len, parts)) <= 4


@pytest.mark.parametrize("config", [NgramConfig(characters=(1, 3)), NgramConfig(words=(1, 2), characters=(2, 5))])
def test_a_long_row_is_explained_in_the_time_of_its_length(config: NgramConfig) -> None:
    draw = np.random.default_rng(0)
    words = [f"w{n}" for n in range(2000)]
    texts: list[tuple[str, str | None]] = [(" ".join(draw.choice(words, 60)), None) for _ in range(100)]
    model = fit_choice(texts, [n % 2 for n in range(100)], 2, Choice(config, 0.5))
    start = time.perf_counter()
    assert explain(model, (" ".join(draw.choice(words, 3000)), None), 1)
    assert time.perf_counter() - start < 2
