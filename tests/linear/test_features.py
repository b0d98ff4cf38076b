"""The parts of the linear model that the exported folder has too: sums of the rows of a table."""

import functools
import itertools
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import distribution
from importlib.util import find_spec

import numpy as np
import pytest
import tokenizers
from cases import examples
from hypothesis import given, settings
from hypothesis.strategies import lists, sampled_from, text
from tokenizers import models, normalizers, pre_tokenizers

from recurcli.linear.features import LONG_BAG, NARROW, bag_sums, unit
from recurcli.linear.static_vectors import PACKAGE_FILES
from recurcli.tokens.word_tokens import WordTokens, encodable


def bags(
    bags: int = 40, longest: int = 2 * LONG_BAG, size: int = 7
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the offsets, rows, table and weights of random bags, of which the first and the last are empty."""
    drawn = np.random.default_rng(0)
    lengths = np.append(0, drawn.integers(0, longest, bags - 1))
    lengths[-1] = 0
    rows = drawn.integers(0, 50, lengths.sum()).astype(np.uint16)
    table = drawn.normal(size=(50, size)).astype(np.float32)
    return np.append(0, np.cumsum(lengths)), rows, table, drawn.normal(size=len(rows)).astype(np.float32)


@pytest.mark.parametrize("size", [7, NARROW + 1])
@pytest.mark.parametrize("weighted", [False, True])
def test_each_bag_has_the_weighted_sum_of_its_rows(*, weighted: bool, size: int) -> None:
    offsets, rows, table, weights = bags(size=size)
    expected = np.zeros((len(offsets) - 1, table.shape[1]))
    for bag in range(len(expected)):
        for item in range(offsets[bag], offsets[bag + 1]):
            expected[bag] += (float(weights[item]) if weighted else 1.0) * table[rows[item]].astype(np.float64)
    found = bag_sums(offsets, rows, table, weights if weighted else None)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize("size", [7, NARROW + 1])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_sum_does_not_depend_on_the_other_bags(*, weighted: bool, size: int) -> None:
    offsets, rows, table, weights = bags(size=size)
    together = bag_sums(offsets, rows, table, weights if weighted else None)
    for bag, (start, end) in enumerate(itertools.pairwise(offsets)):
        alone = bag_sums(np.array([0, end - start]), rows[start:end], table, weights[start:end] if weighted else None)
        assert np.array_equal(alone[0], together[bag])


def test_zeros_have_no_direction() -> None:
    assert np.allclose(unit(np.array([[3, 4], [0, 0]], np.float32)), np.array([[0.6, 0.8], [0, 0]]))


ODD = (
    *("a", "b", "the", " ", "  ", "\t", "\n", "\u00a0", "\u3000", "\u2028", "▁", "▁▁"),
    *("<s>", "</s>", "<unk>", "[UNK]", "[SEP]", "\u0301", "e\u0301", "\u200d", "\u202e", "👩\u200d👧", "🇩🇪"),
    *("鼠", "ｆ", "İ", "ß", "Σ", "ʼn", ".", "'s", "\ufeff", "\x07", "\ud800"),
)
LLAMA_MERGES = [("t", "h"), ("th", "e"), ("▁", "the"), ("▁", "▁"), ("▁▁", "▁"), ("▁", "a")]


def llama(*merges: tuple[str, str]) -> tokenizers.Tokenizer:
    """Return a tokenizer of the kind of Llama's with these merges."""
    pieces = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *"abthe▁", *(a + b for a, b in merges)]
    vocabulary = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    model = models.BPE(vocabulary, [*merges], unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    backend = tokenizers.Tokenizer(model)
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.add_special_tokens(["<unk>"])
    return backend


def bert(splitting: pre_tokenizers.PreTokenizer) -> tokenizers.Tokenizer:
    """Return a WordPiece tokenizer."""
    pieces = ["[UNK]", "a", "the", "b", "##b", "##a", "e", ".", "鼠", "f", "i", "ss", "σ", "[", "]", "<", ">"]
    model = models.WordPiece({piece: number for number, piece in enumerate(pieces)}, unk_token="[UNK]")
    backend = tokenizers.Tokenizer(model)
    backend.normalizer, backend.pre_tokenizer = normalizers.BertNormalizer(), splitting
    backend.add_special_tokens(["[UNK]"])
    return backend


TOKENIZERS = {
    "llama": llama(*LLAMA_MERGES),
    "bert": bert(pre_tokenizers.BertPreTokenizer()),
    "whitespace": bert(pre_tokenizers.Whitespace()),
}
if find_spec("wordllama"):
    file = distribution("wordllama").locate_file(f"wordllama/{PACKAGE_FILES[1]}")
    TOKENIZERS["wordllama"] = tokenizers.Tokenizer.from_file(str(file))


@functools.cache
def cache_of(name: str) -> WordTokens:
    """The cache of a tokenizer, which one text after the other fills."""
    cache = WordTokens.of(TOKENIZERS[name], "H")
    assert cache is not None
    return cache


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=examples(30), deadline=None, derandomize=True)
@given(texts=lists(lists(sampled_from(ODD) | text(max_size=3), max_size=14).map("".join), min_size=1, max_size=5))
def test_the_tokens_of_words_are_those_of_the_text(name: str, texts: list[str]) -> None:
    backend, texts = TOKENIZERS[name], [encodable(text) for text in texts]
    backend.encode_special_tokens = True
    cache = cache_of(name)
    ids, counts = cache.tokens(texts)
    expected = [backend.encode(text, add_special_tokens=False).ids for text in texts]
    assert counts.tolist() == [*map(len, expected)]
    assert np.frombuffer(ids, np.uint16).tolist() == [number for own in expected for number in own]


def test_a_very_long_text_has_the_same_tokens_and_the_cache_stays_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recurcli.tokens.word_tokens.MAX_WORDS", 50)
    drawn, backend = np.random.default_rng(0), TOKENIZERS["llama"]
    cache = WordTokens.of(backend, "i")
    assert cache is not None
    long = "".join(drawn.choice(list("abthe  é\n"), 60_000))
    for each in (long, long.replace(" ", "")):
        found = np.frombuffer(cache.tokens([each])[0], np.int32).tolist()
        assert found == backend.encode(each, add_special_tokens=False).ids
        assert len(cache) <= 50


def test_threads_share_a_cache_that_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recurcli.tokens.word_tokens.MAX_WORDS", 3)
    backend = TOKENIZERS["llama"]
    cache = WordTokens.of(backend, "i")
    assert cache is not None
    texts = [[f"the {number % 7} a{number} b{number % 5}" * 3] for number in range(400)]
    with ThreadPoolExecutor(4) as threads:
        found = [*threads.map(cache.tokens, texts)]
    for [own], (ids, _) in zip(texts, found, strict=True):
        assert np.frombuffer(ids, np.int32).tolist() == backend.encode(own, add_special_tokens=False).ids


def test_tokenizers_that_look_beyond_a_word_have_no_cache() -> None:
    across = llama(*LLAMA_MERGES, ("a", "▁"), ("a", "▁the"))
    stripped = llama(*LLAMA_MERGES)
    stripped.normalizer = normalizers.Sequence([stripped.normalizer, normalizers.Strip()])
    known = llama(*LLAMA_MERGES)
    known.add_tokens(["a b"])
    metaspace = bert(pre_tokenizers.Metaspace())
    for backend in (across, stripped, known, metaspace):
        assert WordTokens.of(backend, "H") is None
