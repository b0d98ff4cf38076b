"""The tokens of texts from a cache of the tokens of words, for tokenizers that read every word of a text by itself.

`recur export` copies this file, so it imports numpy alone. N texts.
"""

import json
import re
from array import array
from collections.abc import Mapping, Sequence
from typing import Any, Optional

import numpy as np
from numpy.typing import NDArray

MARK = "▁"
"""Stands for a space in the tokens of Llama."""
MAX_WORDS, MAX_LENGTH = 1 << 16, 32
"""Most words in the cache, and most characters of one. Ours: 10 MB; longer words hardly come twice."""
SPLIT_AT_SPACES = ("BertPreTokenizer", "Whitespace", "WhitespaceSplit")
BY_CHARACTER = ("BertNormalizer", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "StripAccents")
"""Normalizers that change no character because of another one beyond a space."""
LLAMA = [
    {"type": "Prepend", "prepend": MARK},
    {"type": "Replace", "pattern": {"String": " "}, "content": MARK},
]
SAMPLE = (
    "a  b c",
    "  the the\nend \u0301a",
    "x\ty\u00a0z \u3000 \u200d",
    "<s> [UNK] </s>",
    "\U0001f468\u200d\U0001f469 鼠牛",
)
"""Texts by which each cache is tried."""


def encodable(text: str) -> str:
    """Replace each lone surrogate, which UTF-8 cannot encode, by a question mark."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def reads_words_alone(tokenizer: Mapping[str, Any]) -> bool:
    """Return whether the content of a tokenizer.json says that the tokens of `words_of` a text, joined, are the text's tokens.

    It splits a text at spaces before anything else that looks beyond one; or it is Llama's, which writes spaces as MARK, and
    merges no MARK with what stands before it but another MARK.
    """
    normalizer, splitting, model = (tokenizer[name] or {} for name in ("normalizer", "pre_tokenizer", "model"))
    steps = normalizer.get("normalizers", [normalizer] if normalizer else [])
    if not all(added["special"] for added in tokenizer["added_tokens"]) or model.get("dropout"):
        return False
    if splitting:
        return splitting["type"] in SPLIT_AT_SPACES and all(step["type"] in BY_CHARACTER for step in steps)
    affixes = (model.get(name) for name in ("continuing_subword_prefix", "end_of_word_suffix", "ignore_merges"))
    if steps != LLAMA or model["type"] != "BPE" or MARK not in model["vocab"] or any(affixes):
        return False
    pairs = (merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"])
    return not any(second.startswith(MARK) and first.strip(MARK) for first, second in pairs)


def words_of(text: str) -> list[str]:
    """Split a text at the first of the spaces after each word. One that has a MARK, or ends with a space, stays whole."""
    if MARK in text or text.endswith(" "):
        return [text]
    return re.split("(?<=[^ ]) ", text) if "  " in text or text.startswith(" ") else text.split(" ")


class WordTokens(dict[str, bytes]):
    """The ids of words, which `backend` (a `tokenizers.Tokenizer`) encodes, as arrays of the type `kind`."""

    def __init__(self, backend: Any, kind: str) -> None:
        self.backend, self.kind = backend, kind

    @classmethod
    def of(cls, backend: Any, kind: str) -> Optional["WordTokens"]:
        """Return an empty cache; None for a tokenizer that does not read words alone."""
        cache = cls(backend, kind)
        if not reads_words_alone(json.loads(backend.to_str())):
            return None
        whole = (array(kind, backend.encode(text, add_special_tokens=False).ids).tobytes() for text in SAMPLE)
        return cache if cache.tokens(SAMPLE)[0] == b"".join(whole) else None

    def tokens(self, texts: Sequence[str]) -> tuple[bytes, NDArray[np.integer]]:
        """Return the ids of the tokens of all texts, one after the other, and the number of each text's (N,)."""
        words: list[str] = []
        firsts = []
        for text in texts:
            firsts.append(len(words))
            words += words_of(text)
        found: list[Any] = [*map(self.get, words)]  # once, since other threads change the cache
        if None in found:
            new = [*{word for word, ids in zip(words, found, strict=True) if ids is None}]
            encodings = self.backend.encode_batch_fast(new, add_special_tokens=False)
            own = {word: array(self.kind, each.ids).tobytes() for word, each in zip(new, encodings, strict=True)}
            found = [own[word] if ids is None else ids for word, ids in zip(words, found, strict=True)]
            if len(self) + len(new) > MAX_WORDS:
                self.clear()
            self.update((word, own[word]) for word in new[:MAX_WORDS] if len(word) <= MAX_LENGTH)
        sizes = np.fromiter(map(len, found), np.int64, len(found))
        return b"".join(found), np.add.reduceat(sizes, firsts) // array(self.kind).itemsize
