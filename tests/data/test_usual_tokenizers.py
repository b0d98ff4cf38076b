"""The usual tokenizer.json are read; hostile_contents.py has those that are refused, and a folder of vectors may hold one."""

import base64
import importlib
import string
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hostile_contents import TOKENIZERS, table, units, written
from running import Recur
from safetensors.numpy import save_file
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from recurcli.tokens.allowed import check_steps
from recurcli.tokens.tokenizer import read_backend


def test_padding_of_any_length_is_left_out() -> None:
    padding = {"direction": "Right", "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]", "pad_to_multiple_of": None}
    backend = read_backend(written(padding={"strategy": {"Fixed": 1 << 40}, **padding}).encode())
    assert len(backend.encode("a")) == 1


@pytest.mark.parametrize("key", ["linear.vectors", "embedding.vectors"])
@pytest.mark.parametrize("fault", ["a pattern that backtracks", "values that overflow"])
def test_a_hostile_folder_of_vectors_is_refused(key: str, fault: str, recur: Recur, tmp_path: Path) -> None:
    folder, rows = tmp_path / "vectors", tmp_path / "x.tsv"
    folder.mkdir()
    (folder / "tokenizer.json").write_text(
        str(TOKENIZERS[fault][0]) if fault in TOKENIZERS else written(), encoding="utf-8"
    )
    values = np.full((6, 4), 1 if fault in TOKENIZERS else 3e38, np.float32)
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
