"""The linear model on n-grams: the fast vectors are those of a plain loop, and what is saved comes back."""

import math
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load, save
from scipy import sparse

from recurcli.errors import DataError, ModelError
from recurcli.export.folder.linear_model import Linear
from recurcli.linear import model
from recurcli.linear.model import IDF_POWER, MAX_TEXT, SECOND_TEXT, LinearModel, NgramConfig, Ngrams, choose_ngrams

TEXTS = [
    *[("股市今日大涨", None), ("股市大跌", None), ("", None), ("a bad film, a bad day", None)],
    *[("good", "bad good"), ("  \n ", "x"), ("\ud800 half", None), ("股", "市")],
]


def plain_vectors(texts: list[tuple[str, str | None]], config: NgramConfig) -> list[dict[object, float]]:
    """TF-IDF by the equation, a dictionary for each row."""

    def counts(row: tuple[str, str | None]) -> Counter[object]:
        found: Counter[object] = Counter()
        for side, text in enumerate(row):
            characters = list((text or "").lower())
            for kind, units, (shortest, longest) in (
                ("c", characters, config.characters),
                ("w", model._WORD.findall((text or "").lower()), config.words),
            ):
                for n in range(shortest, longest + 1) if longest else ():
                    found.update((side, kind, tuple(units[i : i + n])) for i in range(len(units) - n + 1))
        return found

    tf = [counts(row) for row in texts]
    df = Counter(gram for row in tf for gram in row)
    vectors = []
    for row in tf:
        vector = {
            gram: (1 + math.log(n)) * (1 + math.log((1 + len(texts)) / (1 + df[gram]))) ** IDF_POWER
            for gram, n in row.items()
        }
        norm = math.sqrt(sum(value**2 for value in vector.values())) or 1.0
        vectors.append({gram: value / norm for gram, value in vector.items()})
    return vectors


@pytest.mark.parametrize("rows_at_once", [1, 3, 4096])
@pytest.mark.parametrize(
    "config", [NgramConfig(characters=(1, 3)), NgramConfig(characters=(2, 4), words=(1, 2)), NgramConfig(words=(2, 2))]
)
def test_vectors_are_those_of_a_plain_loop(
    config: NgramConfig, rows_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "ROWS_AT_ONCE", rows_at_once)
    plain = plain_vectors(TEXTS, config)
    vocabulary = Ngrams.fit(TEXTS, config)
    offsets, columns, values = vocabulary.transform(TEXTS)
    made = sparse.csr_matrix((values, columns, offsets), shape=(len(TEXTS), len(vocabulary.keys)))
    assert made.shape == (len(TEXTS), len({gram for row in plain for gram in row}))
    products = np.array([[sum(a[gram] * b.get(gram, 0.0) for gram in a) for b in plain] for a in plain])
    np.testing.assert_allclose((made @ made.T).toarray(), products, atol=1e-5)
    for row, vector in enumerate(plain):
        np.testing.assert_allclose(np.sort(made[row].data), np.sort(list(vector.values())), atol=1e-5)


def test_no_character_of_one_text_is_taken_for_another_of_the_other() -> None:
    characters = [chr(code) for code in (*range(0x20, 0xD800), *range(0xE000, 0x11000))]
    alphabet = [character for character in characters if character.lower() == character]
    pairs = [("".join(alphabet[start : start + 500]), None) for start in range(0, len(alphabet), 500)]
    sides = [
        Ngrams.fit(rows, NgramConfig(characters=(1, 3))).keys for rows in (pairs, [("", text) for text, _ in pairs])
    ]
    assert len(sides[0]) == len(sides[1]) > 3 * len(alphabet) - 500
    assert not np.intersect1d(sides[0], sides[1]).size


def test_a_file_of_an_older_recur_keeps_its_hashes(tmp_path: Path) -> None:
    texts = [("good film", f"{'good' if n % 3 else 'bad'} {n}") for n in range(30)]
    ngrams = Ngrams.fit(
        texts, NgramConfig(characters=(1, 2), second_text=512)
    )  # that of a character 512 places further on
    weights = np.random.default_rng(0).standard_normal((len(ngrams.keys), 2)).astype(np.float32)
    older = LinearModel(ngrams, weights, np.zeros(2, np.float32), len(texts))
    tensors = {name: tensor for name, tensor in load(older.to_bytes()).items() if name != "second_text"}
    (tmp_path / "linear.safetensors").write_bytes(save(tensors))
    assert (LinearModel.load(tmp_path / "linear.safetensors").logits(texts) == older.logits(texts)).all()


@pytest.mark.parametrize("second_text", [SECOND_TEXT, 512])
def test_the_script_of_an_export_hashes_as_the_model_does(second_text: int) -> None:
    config = NgramConfig(characters=(2, 4), words=(1, 2), second_text=second_text)
    script = object.__new__(Linear)
    script.ranges, script.longest_text, script.second_text = [(2, 4), (1, 2)], MAX_TEXT, second_text
    rows: list[tuple[str, ...]] = [(text, pair or "") for text, pair in TEXTS if "\ud800" not in text]
    keys = Ngrams.fit([(row[0], row[1]) for row in rows], config).keys
    assert (np.unique(script.ngrams(rows)[0]) == keys).all()


def test_ngrams_follow_the_script_and_the_length_of_the_texts() -> None:
    assert choose_ngrams([("股市今日大涨", "今日天气")]) == NgramConfig(characters=(1, 3))
    assert choose_ngrams([("what is the price of gold?", None)]) == NgramConfig(characters=(2, 4), words=(1, 2))
    assert choose_ngrams([("a long review of a film " * 40, None)]) == NgramConfig(words=(1, 2))


def test_it_learns_and_comes_back_from_its_file(tmp_path: Path) -> None:
    texts = [(f"{'good' if n % 3 else 'bad'} film number {n}", None) for n in range(90)]
    model = LinearModel.fit(texts, [0 if n % 3 else 2 for n in range(90)], num_classes=3)
    logits = model.logits(texts)
    assert (logits.argmax(axis=1) == [0 if n % 3 else 2 for n in range(90)]).all()
    assert (logits[:, 1] < logits[:, [0, 2]].min()).all()  # no row had class 1
    (tmp_path / "linear.safetensors").write_bytes(model.to_bytes())
    assert (LinearModel.load(tmp_path / "linear.safetensors").logits(texts) == logits).all()


def test_a_row_of_its_own_scores_as_it_does_among_others() -> None:
    model = LinearModel.fit(TEXTS, [0, 1, 0, 1, 0, 1, 0, 1], num_classes=2)
    alone = np.concatenate([model.logits([row]) for row in TEXTS])
    assert (alone == model.logits(TEXTS)).all()


@pytest.mark.parametrize(
    ("texts", "targets", "reason"),
    [([("a", None), ("b", None)], [1, 1], "two classes"), ([("", None), ("", None)], [0, 1], "empty")],
)
def test_what_cannot_be_learnt_from_is_refused(
    texts: list[tuple[str, str | None]], targets: list[int], reason: str
) -> None:
    with pytest.raises(DataError, match=reason):
        LinearModel.fit(texts, targets, num_classes=2)


def test_very_large_data_are_thinned_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recurcli.linear.model.MAX_CHARACTERS", 1000)
    texts = [(f"text number {n}", None) for n in range(300)]
    assert LinearModel.fit(texts, [n // 150 for n in range(300)], num_classes=2).rows < 100


@pytest.mark.parametrize("content", [b"", b"{}", b"PK\x03\x04 no tensors at all"])
def test_another_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "linear.safetensors"
    path.write_bytes(content)
    with pytest.raises(ModelError, match="not a linear model"):
        LinearModel.load(path)


@pytest.mark.parametrize(
    ("name", "tensor", "reason"),
    [
        ("ranges", np.array([[1, 10**9], [0, 0]]), "ranges has values that are not between 0 and 16"),
        ("ranges", np.zeros(0, np.int64), "ranges is int64 (0,), not int64 (2, 2)"),
        ("rows", np.zeros(0, np.int64), "rows is int64 (0,), not int64 (1,)"),
        ("bias", np.array(1, np.float32), "weights is float32"),
        ("bias", np.zeros(3, np.float32), "weights is float32"),
        ("keys", np.zeros((2, 2), np.uint64), "keys is uint64 (2, 2), not uint64 (4,)"),
        ("keys", None, "keys must ascend"),
        ("weights", np.float32(3e38), "weights has values that are not between -1e+06 and 1e+06"),
        ("weights", np.float32(np.nan), "weights has values that are not"),
        ("weights", np.float64(1), "weights is float64"),
        ("idf", np.float32(0), "idf has values that are not between 0.001 and 1e+06"),
        ("second_text", np.zeros(2, np.uint64), "second_text is uint64 (2,), not uint64 (1,)"),
    ],
)
def test_tensors_that_no_fit_gives_are_refused(name: str, tensor: Any, reason: str, tmp_path: Path) -> None:
    tensors = load(LinearModel.fit(TEXTS, [0, 1, 0, 1, 0, 1, 0, 1], num_classes=2).to_bytes())
    whole = tensors[name][::-1].copy() if tensor is None else tensor
    tensors[name] = np.full(tensors[name].shape, tensor) if isinstance(tensor, np.floating) else whole
    path = tmp_path / "linear.safetensors"
    path.write_bytes(save(tensors))
    with pytest.raises(ModelError, match=re.escape(f"{path}: is not a linear model of recur: {reason}")):
        LinearModel.load(path)
