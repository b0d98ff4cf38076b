"""Texts become ids the same way every time, and nothing in a text can pass for a special token."""

import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from recurcli.config import TokenizerConfig, TokenizerKind, Truncation
from recurcli.errors import DataError
from recurcli.files import OpenedFile
from recurcli.tokens.tokenizer import (
    SPECIAL_TOKENS,
    Tokenizer,
    Tokens,
    choose_max_length,
    choose_unseen_max_length,
)

KINDS: tuple[TokenizerKind, ...] = tuple(kind for kind in get_args(TokenizerKind) if kind not in ("auto", "vectors"))
TRAINED = [kind for kind in KINDS if kind != "byte"]


CORPUS = [
    "今天天气很好，我们去公园吧！",
    "今天我们去看 the New York Times，天气好。",
    "hello hello world, the world is new and the park is green",
    "Hello World: 2023 年的天气 2023",
    "公园 park 公园 parks parking",
] * 4


def row_of(tokens: Tokens, index: int) -> np.ndarray:
    return tokens.take(np.array([index])).ids


def trained(kind: TokenizerKind, texts: list[str] | None = None, **more: object) -> Tokenizer:
    return Tokenizer.train(texts or CORPUS, TokenizerConfig(kind=kind, vocab_size=300, **more))  # type: ignore[arg-type]


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return trained(request.param)


def words_of(tokenizer: Tokenizer, text: str, max_length: int = 1000) -> list[str]:
    return [tokenizer.tokens[index] for index in row_of(tokenizer.encode([(text, None)], max_length), 0)]


def random_texts(seed: int) -> list[str]:
    draw = random.Random(seed)
    letters = "abcdefghij一二三四五六七八九十，。 "
    return ["".join(draw.choices(letters, k=draw.randrange(40))) for _ in range(400)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_texts_give_the_same_bytes_in_every_process(kind: TokenizerKind) -> None:
    code = (
        "import sys; sys.path[:0] = sys.argv[1:]; import test_tokenizer as t\n"
        f"print(t.trained({kind!r}, t.random_texts(1)).to_json())"
    )
    line = [sys.executable, "-c", code, str(Path(__file__).parent)]
    there = subprocess.run(line, check=True, capture_output=True, text=True).stdout
    here = [trained(kind, random_texts(1)).to_json() for _ in range(3)]
    assert {*here, there.strip()} == {here[0].strip()}


@pytest.mark.parametrize("kind", TRAINED)
def test_special_tokens_come_first_and_the_vocabulary_is_never_larger_than_allowed(kind: TokenizerKind) -> None:
    tokenizer = trained(kind)
    assert tuple(tokenizer.tokens[:4]) == SPECIAL_TOKENS
    ids = (tokenizer.pad_id, tokenizer.unknown_id, tokenizer.separator_id, tokenizer.mask_id)
    assert ids == (0, 1, 2, 3)
    assert tokenizer.word_ids.tolist() == list(range(4, tokenizer.vocab_size))
    assert len(set(tokenizer.tokens)) == tokenizer.vocab_size <= 300
    for size in (8, 20, 50):
        assert Tokenizer.train(random_texts(2), TokenizerConfig(kind=kind, vocab_size=size)).vocab_size <= size


def test_a_byte_is_its_value_plus_one() -> None:
    tokenizer = trained("byte")
    text = "<br />É好\0\n  A "
    assert row_of(tokenizer.encode([(text, None)], 100), 0).tolist() == [byte + 1 for byte in text.encode()]
    assert (tokenizer.pad_id, tokenizer.separator_id, tokenizer.mask_id) == (0, 257, 258)
    assert (tokenizer.unknown_id, tokenizer.vocab_size) == (None, 259)
    assert tokenizer.word_ids.tolist() == list(range(1, 257))


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("char", " Ａ今\u3000\n 天鱼 ", ["a", "今", " ", "天", "[UNK]"]),
        ("wordpiece", "今天 Parkings", ["今", "天", "parking", "##s"]),
        ("whitespace", "hello  Hello\tWORLD", ["hello", "Hello", "[UNK]"]),
        ("whitespace", "公园 park", ["公园", "park"]),
        ("bpe", "hello world", ["▁hello", "▁world"]),
    ],
)
def test_a_text_is_split_as_its_kind_says(kind: TokenizerKind, text: str, expected: list[str]) -> None:
    assert words_of(trained(kind), text) == expected


def test_rare_tokens_are_unknown() -> None:
    tokenizer = trained("char", ["Aab", "A"], min_frequency=2, lowercase=False)
    assert tokenizer.tokens == [*SPECIAL_TOKENS, "A"]
    assert words_of(tokenizer, "Ab") == ["A", "[UNK]"]


@pytest.mark.parametrize("texts", [[], [""], ["  \n"], ["a"]])
@pytest.mark.parametrize("kind", TRAINED)
def test_texts_without_a_frequent_token_are_refused(kind: TokenizerKind, texts: list[str]) -> None:
    with pytest.raises(DataError, match="the training texts hold no token that occurs 2 times"):
        Tokenizer.train(texts, TokenizerConfig(kind=kind))


def test_a_pair_has_a_separator_and_a_single_text_none(tokenizer: Tokenizer) -> None:
    tokens = tokenizer.encode([("今天", None), ("park", None), ("今天", "park")], 100)
    assert row_of(tokens, 2).tolist() == [*row_of(tokens, 0), tokenizer.separator_id, *row_of(tokens, 1)]
    assert tokenizer.separator_id not in row_of(tokens, 0)
    assert [tokens.ids.dtype, tokens.offsets.dtype] == [np.dtype("int32"), np.dtype("int64")]
    assert tokens.lengths.tolist() == [len(row_of(tokens, index)) for index in range(len(tokens))]


@pytest.mark.parametrize("texts", [CORPUS, ["[PAD] [SEP] [MASK] [UNK] a"] * 50])
@pytest.mark.parametrize("kind", KINDS)
def test_special_tokens_typed_in_a_text_are_text(kind: TokenizerKind, texts: list[str]) -> None:
    tokenizer = trained(kind, texts, lowercase=False)
    assert len(set(tokenizer.tokens)) == tokenizer.vocab_size
    typed = "[PAD] [SEP] [MASK] [CLS] [PAD][SEP] a"
    ids = tokenizer.encode([(typed, None), (typed, typed)], 1000)
    special = {tokenizer.pad_id, tokenizer.separator_id, tokenizer.mask_id}
    assert len(row_of(ids, 0)) > 0
    assert not special & set(row_of(ids, 0).tolist())
    assert np.count_nonzero(row_of(ids, 1) == tokenizer.separator_id) == 1


@pytest.mark.parametrize("text", ["", "   ", "\n\t\u3000"])
def test_a_text_of_nothing_is_an_empty_row_and_loses_none(tokenizer: Tokenizer, text: str) -> None:
    tokens = tokenizer.encode([("今天", None), (text, None), (text, text)], 100)
    assert len(tokens) == 3
    if tokenizer.unknown_id is not None:
        assert len(row_of(tokens, 1)) == 0
        assert row_of(tokens, 2).tolist() == [tokenizer.separator_id]


@given(text=st.text(st.characters(codec=None), max_size=40), max_length=st.integers(1, 30))
def test_any_string_is_encoded_without_an_error(tokenizer: Tokenizer, text: str, max_length: int) -> None:
    tokens = tokenizer.encode([(text, None)], max_length)
    assert len(tokens) == 1
    assert tokens.ids.min(initial=0) >= 0 and tokens.ids.max(initial=0) < tokenizer.vocab_size


texts = st.text(st.sampled_from("今天a b,[]PADSEP\u3000é\n"), max_size=30)


@given(rows=st.lists(st.tuples(texts, st.none() | texts), max_size=8), max_length=st.integers(3, 40))
def test_truncation_cuts_the_longer_text_not_the_separator(rows: list[tuple[str, str | None]], max_length: int) -> None:
    tokenizer = CHARACTERS
    whole = tokenizer.encode(rows, 10_000)
    cut = tokenizer.encode(rows, max_length)
    assert len(cut) == len(whole) == len(rows)
    assert cut.truncated == sum(bool(length > max_length) for length in whole.lengths)
    for index, (text, pair) in enumerate(rows):
        row, full = row_of(cut, index).tolist(), row_of(whole, index).tolist()
        assert len(row) == min(len(full), max_length)
        if pair is None:
            assert row == full[:max_length]
            continue
        first, second = (row_of(tokenizer.encode([(part, None)], 10_000), 0).tolist() for part in (text, pair))
        split = row.index(tokenizer.separator_id)
        assert row.count(tokenizer.separator_id) == 1
        assert row[:split] == first[:split] and row[split + 1 :] == second[: len(row) - split - 1]
        room = max_length - 1
        assert split >= min(len(first), room // 2)
        assert len(row) - split - 1 >= min(len(second), room // 2)


CHARACTERS = trained("char")


@pytest.mark.parametrize(
    ("truncate", "single", "pair"),
    [("head", "abcde", "ab[SEP]vw"), ("tail", "defgh", "gh[SEP]yz"), ("both", "abcgh", "ah[SEP]vz")],
)
def test_what_is_kept_of_a_row_is_what_truncate_says(truncate: Truncation, single: str, pair: str) -> None:
    tokenizer = Tokenizer.train(["abcdefgh", "vwxyz"], TokenizerConfig(min_frequency=1))
    rows = [("abcdefgh", None), ("abcdefgh", "vwxyz"), ("abc", None), ("ab", "yz")]
    tokens = tokenizer.encode(rows, 5, truncate)
    kept = ["".join(tokenizer.tokens[index] for index in row_of(tokens, row)) for row in range(len(rows))]
    assert kept == [single, pair, "abc", "ab[SEP]yz"]
    assert tokens.truncated == 2


@pytest.mark.parametrize(("truncate", "kept"), [("head", "aaaa"), ("tail", "cccc"), ("both", "aacc")])
def test_the_end_of_a_text_that_is_cut_before_it_is_tokenised_is_kept(truncate: Truncation, kept: str) -> None:
    tokenizer = Tokenizer.train(["abc"], TokenizerConfig(min_frequency=1))
    tokens = tokenizer.encode([("a" * 999 + "b" * 999 + "c" * 999, None)], 4, truncate)
    assert "".join(tokenizer.tokens[index] for index in tokens.ids) == kept


@given(rows=st.lists(st.tuples(texts, texts), min_size=1, max_size=5), max_length=st.integers(4, 40))
def test_other_users_of_the_file_get_the_same_ids(rows: list[tuple[str, str]], max_length: int) -> None:
    backend = tokenizers.Tokenizer.from_str(CHARACTERS.to_json())
    backend.encode_special_tokens = True
    backend.enable_truncation(max_length, strategy="longest_first")
    theirs = [encoding.ids for encoding in backend.encode_batch(rows)]
    ours = CHARACTERS.encode(list(rows), max_length)
    assert [row_of(ours, index).tolist() for index in range(len(rows))] == theirs


def test_rows_do_not_depend_on_the_block_they_are_encoded_in(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(text, text[::-1] if index % 2 else None) for index, text in enumerate(random_texts(3))]
    whole = CHARACTERS.encode(rows, 20)
    monkeypatch.setattr("recurcli.tokens.tokenizer.ROWS_AT_ONCE", 7)
    blocks = CHARACTERS.encode(rows, 20)
    assert np.array_equal(whole.ids, blocks.ids) and np.array_equal(whole.offsets, blocks.offsets)
    assert whole.truncated == blocks.truncated > 0


@pytest.mark.parametrize("huge", ["a" * 1_000_000, "今" * 1_000_000, " " * 1_000_000, "a " * 500_000])
def test_a_huge_text_is_cut_before_it_is_tokenised(tokenizer: Tokenizer, huge: str) -> None:
    seen = Watched(huge)
    tokens = tokenizer.encode([(seen, None), (huge, huge)], 16)
    assert seen.longest <= 16 * 64
    assert tokens.truncated == 2
    assert tokens.lengths.max() <= 16
    if not huge.isspace():
        assert np.count_nonzero(row_of(tokens, 1) == tokenizer.separator_id) == 1


class Watched(str):
    """A string that remembers the longest part of it that was taken."""

    longest = 0

    def __getitem__(self, index: object) -> str:
        part = super().__getitem__(index)  # type: ignore[index]
        self.longest = max(self.longest, len(part))
        return part

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("the whole text was walked through")


def test_a_saved_tokenizer_is_loaded_as_it_was(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(tokenizer.to_json())
    loaded = Tokenizer.load(OpenedFile(path))
    assert loaded.to_json() == tokenizer.to_json()
    rows: list[tuple[str, str | None]] = [("Hello 今天 [SEP]", "the  park"), ("天气", None)]
    assert np.array_equal(loaded.encode(rows, 7).ids, tokenizer.encode(rows, 7).ids)
    assert loaded.tokens == tokenizer.tokens and np.array_equal(loaded.word_ids, tokenizer.word_ids)


def with_vocabulary(tmp_path: Path, *lines: str) -> Tokenizer:
    path = tmp_path / "vocab.txt"
    path.write_text("".join(f"{line}\n" for line in lines))
    return Tokenizer.train([], TokenizerConfig(kind="char", vocabulary=str(path)))


def test_a_vocabulary_file_gives_ids_by_line_after_the_special_tokens(tmp_path: Path) -> None:
    tokenizer = with_vocabulary(tmp_path, "今", "天", "##天")
    assert tokenizer.tokens == [*SPECIAL_TOKENS, "今", "天", "##天"]
    assert words_of(tokenizer, "今天气") == ["今", "天", "[UNK]"]
    tokenizer = with_vocabulary(tmp_path, "a", "[unused1]", "[PAD]", "[CLS]", "[SEP]", "b")
    assert tokenizer.tokens == ["a", "[unused1]", "[PAD]", "[CLS]", "[SEP]", "b", "[UNK]", "[MASK]"]
    assert (tokenizer.pad_id, tokenizer.separator_id, tokenizer.unknown_id, tokenizer.mask_id) == (2, 4, 6, 7)
    assert tokenizer.word_ids.tolist() == [0, 5]
    assert row_of(tokenizer.encode([("ab", "[PAD]")], 20), 0).tolist() == [0, 5, 4, *[6, 6, 0, 6, 6]]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"a\n\nb\n", ":2: is blank"),
        (b"a\nb\na\n", ":3: repeats the token 'a'"),
        (b"a\n\xff\n", ":2: is not UTF-8"),
        (b"", ": is empty"),
        (b"[PAD]\n[UNK]\n", ": has no token beside the special ones"),
    ],
)
def test_a_vocabulary_that_is_none_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "vocab.txt"
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"vocab.txt{reason}"):
        Tokenizer.train([], TokenizerConfig(vocabulary=str(path)))


def test_the_chinese_bert_vocabulary_works_for_characters_and_word_pieces(real_data: Path) -> None:
    path = str(real_data / "bert_zh_vocab.txt")
    for kind, expected in (("char", list("今天ai")), ("wordpiece", ["今", "天", "ai"])):
        tokenizer = Tokenizer.train([], TokenizerConfig(kind=kind, vocabulary=path))  # type: ignore[arg-type]
        assert tokenizer.vocab_size == 21_128
        assert (tokenizer.pad_id, tokenizer.unknown_id, tokenizer.separator_id, tokenizer.mask_id) == (0, 100, 102, 103)
        assert words_of(tokenizer, "今天AI") == expected
        assert len(tokenizer.word_ids) == 21_128 - 5 - 99


@pytest.mark.filterwarnings("ignore:Deprecated in 0.9.0:DeprecationWarning")  # of the peer, until tokenizers 0.22
def test_word_pieces_are_those_of_bert(real_data: Path) -> None:
    path = str(real_data / "bert_zh_vocab.txt")
    ours = Tokenizer.train([], TokenizerConfig(kind="wordpiece", vocabulary=path))
    theirs = tokenizers.BertWordPieceTokenizer(vocab=path, lowercase=True)
    for text in [*CORPUS[:5], "Crème brûlée，３８％", "unaffable\u2003x\u200b"]:
        expected = theirs.encode(text, add_special_tokens=False).ids
        assert row_of(ours.encode([(text, None)], 100), 0).tolist() == expected


def of_one_word(count: int, seed: int) -> list[tuple[str, str | None]]:
    """Texts that each repeat one word of their own, which the tokenizer of other texts does not know whole."""
    draw = random.Random(seed)
    words = ("".join(draw.choices("abcdefgh", k=8)) for _ in range(count))
    return [(f"{word} {word} {word}", None) for word in words]


SUBWORDS = TokenizerConfig(kind="wordpiece", vocab_size=2000)


@pytest.mark.parametrize("copies", [1, 2])
def test_a_length_is_chosen_for_texts_that_the_vocabulary_has_not_seen(copies: int) -> None:
    rows = of_one_word(200, seed=0) * copies
    tokenizer = Tokenizer.train((text for text, _ in rows), SUBWORDS)
    seen, unseen = (choose_max_length(tokenizer.lengths(texts)) for texts in (rows, of_one_word(200, seed=1)))
    assert choose_unseen_max_length(tokenizer.lengths(rows), rows, SUBWORDS) == unseen > seen == 8


def test_a_sample_of_many_rows_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    measured, lengths = list[int](), Tokenizer.lengths

    def counting(tokenizer: Tokenizer, texts: Sequence[tuple[str, str | None]]) -> np.ndarray:
        measured.append(len(texts))
        return lengths(tokenizer, texts)

    monkeypatch.setattr(Tokenizer, "lengths", counting)
    monkeypatch.setattr("recurcli.tokens.tokenizer.FOLDED", 50)
    assert choose_unseen_max_length(np.full(201, 3), of_one_word(201, seed=0), SUBWORDS) > 8
    assert (len(measured), sum(measured)) == (2, 41)


@pytest.mark.parametrize(
    ("kind", "vocabulary", "rows"),
    [
        ("char", None, of_one_word(200, seed=0)),
        ("whitespace", None, of_one_word(200, seed=0)),
        ("byte", None, of_one_word(200, seed=0)),
        ("wordpiece", "vocab.txt", of_one_word(200, seed=0)),
        ("wordpiece", None, of_one_word(1, seed=0)),
    ],
)
def test_a_length_is_that_of_the_rows_where_another_vocabulary_changes_nothing_or_there_is_none(
    kind: TokenizerKind, vocabulary: str | None, rows: list[tuple[str, str | None]]
) -> None:
    config = TokenizerConfig(kind=kind, vocabulary=vocabulary)
    assert choose_unseen_max_length(np.full(len(rows), 3), rows, config) == 8
