"""What a tokenizer.json may do with a text: steps that recur knows, with patterns and replacements from a list.

A stranger's pattern may take time without end on a text, and a stranger's replacement may lengthen it without end. The list
has those of recur's own tokenizers, of wordllama and Model2Vec, and those that `transformers` writes for BERT, GPT-2, Llama 3,
Qwen, and models of SentencePiece.
"""

import json
from base64 import b64decode
from string import punctuation
from typing import Any

import numpy as np

from recurcli.errors import escaped

_SPLITS = {
    " ",
    "\n",
    r"[\s\S]",
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",  # GPT-2
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"  # GPT-4, Llama 3
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"  # Qwen 2
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}
_SPACED = {("String", mark, content) for mark in punctuation for content in (f" {mark} ", f"{mark} ")}  # Model2Vec
_REPLACED = {
    *(("String", text, content) for text, content in ((" ", "▁"), ("▁", " "), ("``", '"'), ("''", '"'))),
    *(("Regex", pattern, " ") for pattern in (r"\s+", " {2,}", r"\n", r"[\n\r\t]", r"\s{2,}|[\n\r\t]")),
    ("Regex", " {2,}", "▁"),
    *_SPACED,
}
"""The kind of a pattern, the pattern, and what it becomes."""
_TYPES = {
    "normalizer": "BertNormalizer ByteLevel Lowercase NFC NFD NFKC NFKD Nmt Precompiled Prepend Replace Strip StripAccents",
    "pre_tokenizer": "BertPreTokenizer ByteLevel CharDelimiterSplit Digits FixedLength Metaspace Punctuation Split "
    "UnicodeScripts Whitespace WhitespaceSplit",
    "decoder": "BPEDecoder ByteFallback ByteLevel CTC Fuse Metaspace Replace Strip WordPiece",
}
_ONCE = {"BertNormalizer", "ByteLevel", "Precompiled", "Prepend"} | _SPACED
"""Types and replacements that lengthen a text each time."""
MAX_STEPS = 100
MAX_WORD = 1000
"""Most characters of a word of WordPiece, whose time grows with their cube; BERT has 100."""
MAX_REPLACEMENT = 64
"""Most bytes that a character becomes by a table of SentencePiece; those of NFKC have 33 at most."""
MAX_KEY = 6
"""More bytes than a key of such a table that `tokenizers` looks up."""


def check_steps(content: bytes) -> None:
    """Raise ValueError if the tokenizer.json with this `content` does more with a text than recur knows, or has a key twice.

    Content of another form raises any Exception.
    """
    document = json.loads(content, object_pairs_hook=_without_duplicates)
    if (longest := document["model"].get("max_input_chars_per_word", 0)) > MAX_WORD:
        raise ValueError(f"its words have {escaped(longest)} characters; recur reads {MAX_WORD} at most")
    for part, types in _TYPES.items():
        steps = [*_steps(document.get(part))]
        if len(steps) > MAX_STEPS:
            raise ValueError(f"its {part} has {len(steps):,} steps; recur runs {MAX_STEPS} at most")
        done: set[object] = set()
        for step in steps:
            what = step.get("type")
            is_known = what in types.split()
            if what == "Precompiled":
                _check_table(b64decode(step["precompiled_charsmap"]))
            if "pattern" in step:
                ((kind, pattern),) = step["pattern"].items()
                what = kind, pattern, step.get("content")
                is_known &= what in _REPLACED if step.get("type") == "Replace" else pattern in _SPLITS
            is_known &= step.get("prepend", "▁") in ("▁", " ") and step.get("length") != 0
            if not is_known or what in done & _ONCE:
                raise ValueError(f"its {part} has a step that recur does not run: {escaped(json.dumps(step), 200)}")
            done.add(what)


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON, of which other readers may take the first of two values of a key."""
    if len(values := dict(pairs)) != len(pairs):
        raise ValueError("a key stands twice in it")
    return values


def _steps(part: Any) -> list[dict[str, Any]]:
    """Return the steps of a part, and of all sequences in it."""
    if isinstance(part, list):
        return [step for each in part for step in _steps(each)]
    is_sequence = isinstance(part, dict) and part.get("type") == "Sequence"
    return _steps([*part.values()]) if is_sequence else [part] if isinstance(part, dict) else []


def _check_table(table: bytes) -> None:
    """Raise ValueError or IndexError if a table of SentencePiece leads outside itself, or to more than MAX_REPLACEMENT bytes.

    It has the size of a trie in bytes, the units of the trie (darts-clone), and texts with a NUL after each.
    """
    end = 4 + int.from_bytes(table[:4], "little")
    units, texts = np.frombuffer(table[4:end], "<u4").astype(np.int64), table[end:]
    if max(map(len, texts.split(b"\0"))) > MAX_REPLACEMENT:
        raise ValueError(f"its normalizer makes more than {MAX_REPLACEMENT} bytes of a character")
    places = np.arange(len(units))
    labels, has_text = units & 0x800000FF, (units >> 8) & 1 == 1  # the bits 0 to 7 and 31, and bit 8
    shift = np.where((units >> 9) & 1 == 1, 8, 0)  # bit 9: the offset counts in 256
    after = places ^ ((units >> 10) << shift)
    nodes = after[:1]
    for _ in range(MAX_KEY):
        children = (labels < 256) & np.isin(places ^ labels, nodes)
        starts = units[after[children & has_text]] & 0x7FFFFFFF
        if (nodes | 255 >= len(units)).any() or (np.frombuffer(texts, np.uint8)[starts] & 0xC0 == 0x80).any():
            raise ValueError("its normalizer has a damaged table")
        nodes = np.unique(after[children])
