"""Contents of files that are traps, each with the word by which it must be refused: YAML, safetensors, tokenizer.json."""

import base64
import json
import struct
from typing import Any

from tokenizers import Tokenizer, models

from recurcli.config import TokenizerConfig
from recurcli.tokens import tokenizer as ours
from recurcli.validation import MAX_BYTES

EVIL = "[red]\x1b[31my\x07\u202e[link=x]"
"""A name that is an order to a terminal."""
SHOWN = "[red]\\x1b[31my\\x07\\u202e[link=x]"
"""What is shown of it."""

# --- YAML

NO_YAML, UNUSED, TWICE = "is not YAML", "anchors, aliases and tags", "stands here and in line"
YAML: dict[str, tuple[str, str]] = {
    "laughs": ("a: &a [x]\n" + "".join(f"b{i}: &b{i} [*a, *a, *a]\n" for i in range(30)), UNUSED),
    "merge keys": ("base: &base {a: 1}\nb:\n  <<: *base\n", UNUSED),
    "an anchor alone": ("a: &x 1\n", UNUSED),
    "a python object": ("a: !!python/object/new:os.system [echo]\n", UNUSED),
    "a python name": ("a: !!python/name:os.system ''\n", UNUSED),
    "an own tag": ("a: !x 1\n", UNUSED),
    "bytes": ("a: !!binary aGVsbG8=\n", UNUSED),
    "sequences without end": ("a: " + "[" * 60_000, NO_YAML),
    "mappings without end": ("{a: " * 15_000, NO_YAML),
    "blocks without end": ("- " * 30_000, NO_YAML),
    "keys of keys": ("? " * 30_000, NO_YAML),
    "two documents": ("a: 1\n---\na: 2\n", NO_YAML),
    "a key twice": ("a: 1\nb: 2\na: 3\n", TWICE),
    "a key twice, deep": ("a: {b: {c: 1, c: 2}}\n", TWICE),
    "a key that is a list": ("[a]: 1\n", "a key is a word"),
    "a number of 60,000 digits": ("a: " + "9" * 60_000, NO_YAML),
    "a directive": ("%YAML 9.9\n---\na: 1\n", NO_YAML),
    "too much": ("#" * (MAX_BYTES + 1), "is larger than"),
    "a control character": ("a: \x1b[31m\n", NO_YAML),
    "no text": ("\x00\x01\x02", NO_YAML),
    "a list": ("- a\n", "is a mapping"),
}

# --- safetensors

F32 = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
NO_TENSORS, DAMAGED, HEADER = "is not a safetensors file", "is damaged", "its safetensors header"


def safetensors(header: object, data: bytes = b"\0" * 8) -> bytes:
    """The content of a safetensors file with this header."""
    content = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(content)) + content + data


SAFETENSORS: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", NO_TENSORS),
    "braces": (b"{}", NO_TENSORS),
    "a zip": (b"PK\x03\x04 no tensors at all", NO_TENSORS),
    "a header above 1 MB": (safetensors({"x": F32, "__metadata__": {"a": "b" * (1 << 20)}}), NO_TENSORS),
    "more than 10,000 tensors": (safetensors({f"t{i}": F32 for i in range(10_001)}), HEADER),
    "an unknown kind of number": (safetensors({"x": {**F32, "dtype": "F33"}}), DAMAGED),
    "no kind of number": (safetensors({"x": {**F32, "dtype": 3}}), DAMAGED),
    "offsets outside": (safetensors({"x": {**F32, "data_offsets": [8, 16]}}), DAMAGED),
    "offsets below zero": (safetensors({"x": {**F32, "data_offsets": [-8, 0]}}), DAMAGED),
    "offsets backwards": (safetensors({"x": {**F32, "data_offsets": [8, 0]}}), DAMAGED),
    "offsets beyond all numbers": (safetensors({"x": {**F32, "data_offsets": [0, 1 << 70]}}), DAMAGED),
    "overlapping tensors": (safetensors({"x": F32, "y": F32}), DAMAGED),
    "a hole": (safetensors({"x": F32, "y": {**F32, "data_offsets": [16, 24]}}, b"\0" * 24), DAMAGED),
    "bytes after the last tensor": (safetensors({"x": F32}, b"\0" * 64), DAMAGED),
    "a shape of another size": (safetensors({"x": {**F32, "shape": [3]}}), DAMAGED),
    "a shape beyond all memory": (safetensors({"x": {**F32, "shape": [1 << 31, 1 << 31, 1 << 31]}}), DAMAGED),
    "a shape below zero": (safetensors({"x": {**F32, "shape": [-1, -2]}}), DAMAGED),
    "a header that is a list": (safetensors([F32]), HEADER),
    "a header that is no JSON": (safetensors(b"{" * 64), HEADER),
    "a header of brackets": (safetensors(b"[" * 60_000), HEADER),
    "a header that is not UTF-8": (safetensors(b'{"\xff": 1}'), HEADER),
    "a header as long as a file can be": (struct.pack("<Q", (1 << 64) - 1) + b"{}", NO_TENSORS),
    "a header longer than the file": (struct.pack("<Q", 100) + b"{}", NO_TENSORS),
    "a header of headers": (safetensors(b'{"a":' * 5000 + b"1" + b"}" * 5000), HEADER),
    "another model": (safetensors({"x": F32}), "hidden_size is 16, and the weights allow 2 at most"),
}

# --- tokenizer.json

BACKTRACKING = {"Regex": "(a+)+$"}
REPLACE: dict[str, Any] = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
SPLIT: dict[str, Any] = {"type": "Split", "pattern": BACKTRACKING, "behavior": "Removed", "invert": False}
BYTES = {"type": "ByteLevel"}


def sequence(*steps: object) -> dict[str, object]:
    return {"type": "Sequence", "normalizers": steps}


def units(value: int, content: bytes) -> str:
    """A table of SentencePiece for the letter a, whose text begins at `value` in `content`."""
    trie = [0] * 768
    trie[0], trie[256 ^ 97], trie[512] = 256 << 10, (256 ^ 97 ^ 512) << 10 | 1 << 8 | 97, 1 << 31 | value
    return base64.b64encode(struct.pack("<769I", 4 * 768, *trie) + content).decode()


def table(value: int = 0, content: bytes = b"bc\0") -> dict[str, str]:
    return {"type": "Precompiled", "precompiled_charsmap": units(value, content)}


def written(**parts: object) -> str:
    """The content of a tokenizer.json with these parts."""
    vocabulary = {"[PAD]": 0, "[UNK]": 1, "[SEP]": 2, "[MASK]": 3, "a": 4, "bc": 5}
    model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"}
    return json.dumps({"version": "1.0", "added_tokens": [], "model": model, **parts})


LONG_WORDS = {"type": "WordPiece", "vocab": {"[UNK]": 0}, "unk_token": "[UNK]", "max_input_chars_per_word": 10**9}
OURS = ours.Tokenizer.train(["今天abc"], TokenizerConfig(kind="char", min_frequency=1)).to_json()
FOREIGN = Tokenizer(models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]")).to_str()
STEP, NOT_OURS, NO_TOKENIZER = "has a step that recur does not run", "is not a tokenizer of recur", "is damaged or no"
TOKENIZERS: dict[str, tuple[str | bytes, str]] = {
    "nothing": ("", NO_TOKENIZER),
    "braces": ("{}", NO_TOKENIZER),
    "no UTF-8": (b"\xff\xfe", NO_TOKENIZER),
    "brackets without end": ("[" * 99_999, NO_TOKENIZER),
    "no model": ('{"version": "1.0"}', NO_TOKENIZER),
    "a part of a tokenizer": (OURS[:-200], NO_TOKENIZER),
    "a tokenizer of others": (FOREIGN, NOT_OURS),
    "an id that jumps": (OURS.replace('"今": ', '"今": 9'), NOT_OURS),
    "another vocabulary": (OURS, "the tokenizer does not fit the model"),
    "a pattern that backtracks": (written(normalizer={**REPLACE, "pattern": BACKTRACKING}), STEP),
    "a pattern in sequences": (written(normalizer=sequence(sequence({**REPLACE, "pattern": BACKTRACKING}))), STEP),
    "a pattern of a step without a type": (written(normalizer={"pattern": BACKTRACKING, "content": " "}), STEP),
    "a pattern without a type in a sequence": (
        written(normalizer={"normalizers": [{**REPLACE, "pattern": BACKTRACKING}]}),
        STEP,
    ),
    "a pattern that splits": (written(pre_tokenizer=SPLIT), STEP),
    "a pattern that splits in a sequence": (
        written(pre_tokenizer={"type": "Sequence", "pretokenizers": [SPLIT]}),
        STEP,
    ),
    "a pattern that decodes": (written(decoder={**REPLACE, "pattern": BACKTRACKING}), STEP),
    "a replacement that grows": (written(normalizer={**REPLACE, "content": "▁" * 200_000}), STEP),
    "a known replacement as a pattern": (
        written(normalizer={**REPLACE, "pattern": {"Regex": "|"}, "content": " | "}),
        STEP,
    ),
    "a mark that grows each time": (
        written(normalizer=sequence(*[{**REPLACE, "pattern": {"String": "!"}, "content": " ! "}] * 2)),
        STEP,
    ),
    "bytes of bytes": (written(normalizer=sequence(*[BYTES] * 30)), STEP),
    "a long start of each text": (written(normalizer={"type": "Prepend", "prepend": "▁" * 200_000}), STEP),
    "more steps than any": (written(normalizer=sequence(*[{"type": "Lowercase"}] * 101)), "has 101 steps"),
    "an unknown step": (written(normalizer={"type": "Rewrite"}), STEP),
    "pieces of no length": (written(pre_tokenizer={"type": "FixedLength", "length": 0}), STEP),
    "a letter that grows": (written(normalizer=table(content=b"b" * 65 + b"\0")), "more than 64 bytes of a character"),
    "a text outside a table": (written(normalizer=table(value=9)), NO_TOKENIZER),
    "a text that begins inside a character": (written(normalizer=table(1, "ü\0".encode())), "a damaged table"),
    "a trie that is cut": (
        written(normalizer={**table(), "precompiled_charsmap": base64.b64encode(b"\4\0\0\0" * 2).decode()}),
        NO_TOKENIZER,
    ),
    "a key twice": (written(normalizer=None).replace("{", '{"normalizer": {"type": "NFC"},', 1), "a key stands twice"),
    "words of any length": (json.dumps({"model": LONG_WORDS}), "its words have 1000000000 characters"),
}
