"""A tokenizer.json that is a trap: patterns that take for ever, texts that grow without end. The usual ones are read."""

import base64
import importlib
import json
import string
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from running import Recur
from safetensors.numpy import save_file
from small_runs import copy_of
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from recurcli.files import extend_manifest
from recurcli.tokens.allowed import check_steps
from recurcli.tokens.tokenizer import read_backend

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


HOSTILE = {
    "a pattern that backtracks": written(normalizer={**REPLACE, "pattern": BACKTRACKING}),
    "a pattern in sequences": written(normalizer=sequence(sequence({**REPLACE, "pattern": BACKTRACKING}))),
    "a pattern of a step without a type": written(normalizer={"pattern": BACKTRACKING, "content": " "}),
    "a pattern without a type in a sequence": written(
        normalizer={"normalizers": [{**REPLACE, "pattern": BACKTRACKING}]}
    ),
    "a pattern that splits": written(pre_tokenizer=SPLIT),
    "a pattern that splits in a sequence": written(pre_tokenizer={"type": "Sequence", "pretokenizers": [SPLIT]}),
    "a pattern that decodes": written(decoder={**REPLACE, "pattern": BACKTRACKING}),
    "a replacement that grows": written(normalizer={**REPLACE, "content": "▁" * 200_000}),
    "a known replacement as a pattern": written(normalizer={**REPLACE, "pattern": {"Regex": "|"}, "content": " | "}),
    "a mark that grows each time": written(
        normalizer=sequence(*[{**REPLACE, "pattern": {"String": "!"}, "content": " ! "}] * 2)
    ),
    "bytes of bytes": written(normalizer=sequence(*[BYTES] * 30)),
    "a long start of each text": written(normalizer={"type": "Prepend", "prepend": "▁" * 200_000}),
    "more steps than any": written(normalizer=sequence(*[{"type": "Lowercase"}] * 101)),
    "an unknown step": written(normalizer={"type": "Rewrite"}),
    "pieces of no length": written(pre_tokenizer={"type": "FixedLength", "length": 0}),
    "a letter that grows": written(normalizer=table(content=b"b" * 65 + b"\0")),
    "a text outside a table": written(normalizer=table(value=9)),
    "a text that begins inside a character": written(normalizer=table(1, "ü\0".encode())),
    "a trie that is cut": written(
        normalizer={**table(), "precompiled_charsmap": base64.b64encode(b"\4\0\0\0" * 2).decode()}
    ),
    "a key twice": written(normalizer=None).replace("{", '{"normalizer": {"type": "NFC"},', 1),
    "words of any length": json.dumps(
        {"model": {"type": "WordPiece", "vocab": {"[UNK]": 0}, "unk_token": "[UNK]", "max_input_chars_per_word": 10**9}}
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_tokenizer_is_refused_before_it_runs(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match=r"is damaged or no tokenizer that recur reads: .{20}"):
        read_backend(HOSTILE[name].encode())
    assert capfd.readouterr().err == ""


def test_padding_of_any_length_is_left_out() -> None:
    padding = {"direction": "Right", "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]", "pad_to_multiple_of": None}
    backend = read_backend(written(padding={"strategy": {"Fixed": 1 << 40}, **padding}).encode())
    assert len(backend.encode("a")) == 1


def test_a_run_with_a_hostile_tokenizer_is_refused(trained: Path, recur: Recur, tmp_path: Path) -> None:
    run = copy_of(trained, tmp_path / "run")
    document = json.loads((run / "tokenizer.json").read_text(encoding="utf-8"))
    document["normalizer"] = {**REPLACE, "pattern": BACKTRACKING}
    (run / "tokenizer.json").write_text(json.dumps(document), encoding="utf-8")
    extend_manifest(run, "tokenizer.json")
    (tmp_path / "x.tsv").write_text("a" * 40 + "!\n", encoding="utf-8")
    recur.refused(4, f"{run}/tokenizer.json: ", "predict", run, tmp_path / "x.tsv")


@pytest.mark.parametrize("key", ["linear.vectors", "embedding.vectors"])
@pytest.mark.parametrize("fault", ["a pattern that backtracks", "values that overflow"])
def test_a_hostile_folder_of_vectors_is_refused(key: str, fault: str, recur: Recur, tmp_path: Path) -> None:
    folder, rows = tmp_path / "vectors", tmp_path / "x.tsv"
    folder.mkdir()
    (folder / "tokenizer.json").write_text(HOSTILE.get(fault, written()), encoding="utf-8")
    values = np.full((6, 4), 3e38 if fault not in HOSTILE else 1, np.float32)
    save_file({"embeddings": values}, folder / "model.safetensors")
    rows.write_text("text\tlabel\n" + "".join(f"{'a' * 40}! {n}\t{'pn'[n % 2]}\n" for n in range(60)), encoding="utf-8")
    settings = ["--set", f"{key}={folder}"] + ["--set", "tokenizer.kind=vectors"] * (key == "embedding.vectors")
    preset = "linear-custom" if key == "linear.vectors" else "starsaber-custom"
    recur.refused(
        4, f"{folder}", "finetune", "--preset", preset, "--data", rows, *settings, "--output", tmp_path / "run"
    )


SPACES = normalizers.Replace(Regex(" {2,}"), " ")
USUAL: dict[str, tuple[Any, Any, Any]] = {
    "BERT": (normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()),
    "GPT-2": (normalizers.NFC(), pre_tokenizers.ByteLevel(), decoders.ByteLevel()),
    "T5": (
        normalizers.Sequence([normalizers.Precompiled(base64.b64decode(units(0, b"bc\0"))), SPACES]),
        pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]),
        decoders.Metaspace(),
    ),
    "ALBERT": (
        normalizers.Sequence(
            [normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), normalizers.NFKD(), SPACES]
        ),
        pre_tokenizers.Metaspace(),
        decoders.Metaspace(),
    ),
    "Llama": (
        normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]),
        None,
        decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        ),
    ),
    "Model2Vec": (
        normalizers.Sequence(
            [
                normalizers.BertNormalizer(),
                *(normalizers.Replace(mark, f" {mark} ") for mark in string.punctuation),
                normalizers.Replace(Regex(r"\s+"), " "),
                normalizers.Strip(left=False, right=True),
            ]
        ),
        pre_tokenizers.BertPreTokenizer(),
        None,
    ),
}


@pytest.mark.parametrize("name", USUAL)
def test_a_usual_tokenizer_is_read(name: str) -> None:
    backend = Tokenizer(models.WordLevel({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
    for part, step in zip(("normalizer", "pre_tokenizer", "decoder"), USUAL[name], strict=True):
        if step is not None:
            setattr(backend, part, step)
    assert read_backend(backend.to_str().encode()).to_str() == backend.to_str()


def test_a_table_of_sentencepiece_is_what_tokenizers_reads() -> None:
    assert read_backend(written(normalizer=table()).encode()).normalizer.normalize_str("ab") == "bcb"


MADE = (
    "albert bert big_bird camembert deberta_v2 distilbert gemma gpt2 gpt_neox llama mbart50 mpnet qwen2 rembert roberta"
)


@pytest.mark.slow
@pytest.mark.parametrize("family", [*MADE.split(), "t5", "xglm", "xlm_roberta", "xlnet"])
def test_a_tokenizer_that_transformers_makes_is_read(family: str) -> None:
    pytest.importorskip("transformers")
    module = importlib.import_module(f"transformers.models.{family}.tokenization_{family}")
    found = [value for name, value in vars(module).items() if name.endswith("Tokenizer")]
    made = [kind().backend_tokenizer for kind in found if kind.__module__ == module.__name__]
    assert made
    for backend in made:
        check_steps(backend.to_str().encode())
