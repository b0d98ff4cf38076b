"""The encoder `pretrained`, against `transformers` itself: tiny random folders of ten families, saved by the test."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from hf_folders import FAMILIES, OF_ROBERTA, WORDS, save_folder, special_tokens
from safetensors.torch import load_file, save_file
from torch import Tensor

from recurcli.config import ModelConfig
from recurcli.encoders import build_encoder
from recurcli.encoders.folder import read_folder
from recurcli.encoders.pretrained import Pretrained
from recurcli.errors import ModelError
from recurcli.network import Classifier, LanguageModel
from recurcli.runs.folder_weights import find_weights, load_folder
from recurcli.runs.network_files import NetworkFiles, build_shapes, build_trained
from recurcli.tokens.batching import collate
from recurcli.tokens.pretrained import PretrainedTokenizer

FAMILY = pytest.mark.parametrize("family", FAMILIES)
TEXTS: list[tuple[str, str | None]] = [
    ("the film was good .", "it was a bad plot"),
    ("a b c", "good"),
    ("the plots", "the films was d e e e e"),
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Any:
    made: dict[str, Path] = {}

    def folder(family: str) -> Path:
        if family not in made:
            made[family] = save_folder(tmp_path_factory.mktemp("hf") / family, family)
        return made[family]

    return folder


def config_of(folder: Path, tokenizer: PretrainedTokenizer, **more: Any) -> ModelConfig:
    found = read_folder(folder)
    return ModelConfig(
        encoder={"name": "pretrained", **found},
        vocab_size=tokenizer.vocab_size,
        pad_id=tokenizer.pad_id,
        max_length=found["max_length"],
        separator_id=tokenizer.separator_id,
        **more,
    )


def encoded(tokenizer: PretrainedTokenizer, texts: list[tuple[str, str | None]] = TEXTS) -> tuple[Tensor, Tensor]:
    import numpy as np

    return collate(tokenizer.encode(texts, 20), np.arange(len(texts)), pad_id=tokenizer.pad_id)


@FAMILY
def test_states_of_pairs_are_those_of_automodel_with_ids_masks_and_token_types(family: str, folders: Any) -> None:
    from transformers import AutoModel, PreTrainedTokenizerFast

    folder = folders(family)
    tokenizer = PretrainedTokenizer.of_folder(folder)
    segments = read_folder(folder)["architecture"].get("type_vocab_size", 0) > 1
    config = config_of(folder, tokenizer, embedding_segments=segments, pooling="first", num_classes=2)
    model = Classifier(config).eval()
    load_folder(model, find_weights(model, folder))
    theirs = AutoModel.from_pretrained(folder, local_files_only=True).eval()
    kind = PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"), pad_token=special_tokens(family)[family in OF_ROBERTA]
    )
    given = kind(
        [text for text, _ in TEXTS],
        [pair for _, pair in TEXTS],
        padding=True,
        return_tensors="pt",
        return_token_type_ids=True,
    )
    ids, mask = encoded(tokenizer)
    width = given["input_ids"].shape[1]
    assert torch.equal(ids[:, :width], given["input_ids"])
    types = {"token_type_ids": given["token_type_ids"]} if segments else {}
    with torch.no_grad():
        expected = theirs(input_ids=given["input_ids"], attention_mask=given["attention_mask"], **types)[0]
        states = model.encode(ids, mask)[1]
        logits = model(ids, mask)[0]
    torch.testing.assert_close(
        states[:, :width][given["attention_mask"].bool()], expected[given["attention_mask"].bool()], atol=2e-6, rtol=0
    )
    torch.testing.assert_close(logits, model.head.output(expected[:, 0]), atol=2e-6, rtol=0)


@FAMILY
def test_predicts_masked_tokens_as_the_folder_does(family: str, folders: Any) -> None:
    from transformers import AutoModelForMaskedLM

    folder = folders(family)
    tokenizer = PretrainedTokenizer.of_folder(folder)
    model = LanguageModel(config_of(folder, tokenizer)).eval()
    weights = find_weights(build_shapes(lambda: LanguageModel(model.config)), folder)
    assert weights.bias is not None
    load_folder(model, weights)
    ids, mask = encoded(tokenizer, [(text, None) for text, _ in TEXTS])
    positions = mask.flatten().nonzero().squeeze(1)
    with torch.no_grad():
        theirs = AutoModelForMaskedLM.from_pretrained(folder, local_files_only=True).eval()
        expected = theirs(input_ids=ids, attention_mask=mask.long()).logits[mask][:, : len(WORDS) + 5]
        torch.testing.assert_close(model(ids, mask, positions)[0], expected, atol=5e-6, rtol=0)


@FAMILY
def test_a_run_of_a_family_is_built_from_its_own_tensors_with_attention_by_torch(
    family: str, folders: Any, tmp_path: Path
) -> None:
    folder = folders(family)
    tokenizer = PretrainedTokenizer.of_folder(folder)
    config = config_of(folder, tokenizer, num_classes=2)
    model = Classifier(config)
    files = NetworkFiles(config, tokenizer, model.state_dict(), tmp_path)
    encoder = build_trained(Classifier, files, torch.device("cpu")).encoder
    assert isinstance(encoder, Pretrained)
    assert encoder.architecture._attn_implementation in ("sdpa", "eager")


def test_a_head_with_the_older_names_of_layernorm_is_read(folders: Any, tmp_path: Path) -> None:
    folder = shutil.copytree(folders("bert"), tmp_path / "older")
    tensors = load_file(folder / "model.safetensors")
    new, old = ("LayerNorm.weight", "LayerNorm.bias"), ("LayerNorm.gamma", "LayerNorm.beta")
    renamed = {name.replace(new[0], old[0]).replace(new[1], old[1]): tensor for name, tensor in tensors.items()}
    assert "cls.predictions.transform.LayerNorm.gamma" in renamed
    save_file(renamed, folder / "model.safetensors")
    tokenizer = PretrainedTokenizer.of_folder(folder)
    found = []
    for place in (folder, folders("bert")):
        model = LanguageModel(config_of(place, tokenizer)).eval()
        weights = find_weights(model, place)
        assert weights.bias is not None
        load_folder(model, weights)
        found.append(model.state_dict())
    for name, tensor in found[0].items():
        assert torch.equal(tensor, found[1][name]), name


@FAMILY
def test_a_head_with_output_weights_of_its_own_is_not_taken_for_a_tied_one(family: str, tmp_path: Path) -> None:
    folder = save_folder(tmp_path / family, family, tie_word_embeddings=False)
    model = LanguageModel(config_of(folder, PretrainedTokenizer.of_folder(folder)))
    assert find_weights(model, folder).bias is None


@FAMILY
def test_keeps_the_contract_of_an_encoder(family: str, folders: Any) -> None:
    config = {"name": "pretrained", **read_folder(folders(family))}
    torch.manual_seed(0)
    encoder = build_encoder(config).eval()
    assert isinstance(encoder, Pretrained)
    x = torch.randn(3, 9, encoder.embedding_size or 0, requires_grad=True)
    mask = torch.arange(9) < torch.tensor([9, 4, 0])[:, None]
    states = [encoder(torch.where(mask[..., None], x, filler), mask) for filler in (0.0, 1e4, -1e10)]
    for other in states[1:]:
        torch.testing.assert_close(other[mask], states[0][mask], atol=1e-5, rtol=0)
    torch.testing.assert_close(encoder(x[1:2, :4])[0], states[0][1, :4], atol=1e-5, rtol=0)
    assert all(torch.isfinite(state).all() for state in states)
    assert states[0].shape == (3, 9, 16)
    states[0][mask].square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in encoder.parameters() if p.requires_grad)
    longest = encoder.max_length or 0
    wide = torch.nn.functional.pad(x.detach(), (0, 0, 0, longest - 9 + 3))
    wider = torch.nn.functional.pad(mask, (0, longest - 9 + 3))
    torch.testing.assert_close(encoder(wide, wider)[:, :9][mask], states[0][mask], atol=1e-5, rtol=0)
    with pytest.raises(ValueError, match="max_length is"):
        encoder(wide, torch.ones_like(wider))
    pointers = [parameter.data_ptr() for parameter in encoder.parameters()]
    assert len(set(pointers)) == len(pointers)
    assert len(encoder.layers) == (1 if family == "albert" else 2)


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_special_tokens_come_from_the_template_alone(family: str, folders: Any) -> None:
    tokenizer = PretrainedTokenizer.of_folder(folders(family))
    typed = " ".join(special_tokens(family))
    before, between, after = tokenizer.template
    (row,) = (tokenizer.encode([(f"a {typed}", f"{typed} b")], 24).ids.tolist(),)
    text = [token for token in row if token in {*before, *between, *after, tokenizer.pad_id, tokenizer.mask_id}]
    assert text == [*before, *between, *after]
    assert row[0] == before[0]
    long = tokenizer.encode([("a " * 50, None), ("a " * 50, "b " * 50)], 12)
    assert long.lengths.tolist() == [12, 12]
    assert tokenizer.lengths([("a b", None), ("a", "b")]).tolist() == [
        len(tokenizer.encode([pair], 24).ids) for pair in (("a b", None), ("a", "b"))
    ]
    assert not {*tokenizer.word_ids.tolist()} & {*range(5)}


def test_a_vocab_txt_gives_the_ids_of_tokenizer_json(folders: Any, tmp_path: Path) -> None:
    expected = PretrainedTokenizer.of_folder(folders("bert"))
    (tmp_path / "vocab.txt").write_text("".join(f"{token}\n" for token in expected.tokens))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": False}))
    found = PretrainedTokenizer.of_folder(tmp_path)
    assert found.template == expected.template
    rows: list[tuple[str, str | None]] = [("the films", "good plot ."), ("a", None)]
    assert found.encode(rows, 20).ids.tolist() == expected.encode(rows, 20).ids.tolist()
    assert found.encode([("GOOD", None)], 20).ids.tolist() == [2, 1, 3], "cased"
    (tmp_path / "vocab.txt").write_text("".join(f"{token}\n" for token in WORDS))
    with pytest.raises(ModelError, match=r"its vocab\.txt is none of WordPiece"):
        PretrainedTokenizer.of_folder(tmp_path)


def test_a_model_in_several_files_is_read(folders: Any, tmp_path: Path) -> None:
    from transformers import AutoModelForMaskedLM

    folder = folders("bert")
    AutoModelForMaskedLM.from_pretrained(folder, local_files_only=True).save_pretrained(tmp_path, max_shard_size="4KB")
    assert not (tmp_path / "model.safetensors").exists()
    tokenizer = PretrainedTokenizer.of_folder(folder)
    one, several = (LanguageModel(config_of(folder, tokenizer)) for _ in range(2))
    load_folder(one, find_weights(one, folder))
    load_folder(several, find_weights(several, tmp_path))
    assert all(torch.equal(tensor, several.state_dict()[name]) for name, tensor in one.state_dict().items())
