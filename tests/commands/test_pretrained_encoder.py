"""The encoder `pretrained` by the commands: a run that needs neither the folder nor the network, and what is refused."""

import json
import random
import shutil
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from forked import ForkServer
from hf_folders import FAMILIES, WORDS, save_folder, tokenizer
from logs import Kept, drop_at_step
from ranks import run_ranks
from running import Recur, lines_of, result_of
from safetensors.torch import load_file, save_file
from small_runs import copy_of, fingerprint
from tokenizers import Regex
from tokenizers.pre_tokenizers import Split

import recurcli
from recurcli.cli import run
from recurcli.commands.finetune import finetune
from recurcli.encoders import build_encoder
from recurcli.encoders.folder import read_folder
from recurcli.encoders.pretrained import Pretrained
from recurcli.errors import ModelError, RecurError
from recurcli.files import extend_manifest
from recurcli.preset import compose
from recurcli.preset.matching import match_parameters
from recurcli.requests.training import FinetuneRequest
from recurcli.runs.network_files import read_model

SETTINGS = ("finetuning.learning_rate=1e-2", "finetuning.log_every=2", "runtime.precision=fp32")


NAME = "bert.encoder.layer.1.output.dense.weight"
"""A tensor of the folder."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny BERT and 120 rows, whose label a word of theirs gives."""
    made = tmp_path_factory.mktemp("place")
    save_folder(made / "bert")
    draw = random.Random(0)
    rows = []
    for number in range(120):
        word = ("good", "bad")[number % 2]
        rows.append(f"{' '.join(draw.choice(WORDS[4:]) for _ in range(4))} {word}\t{word}")
    (made / "rows.tsv").write_text("text\tlabel\n" + "\n".join(rows) + "\n")
    return made


def options(place: Path, output: Path, *settings: str, folder: Path | None = None) -> list[str]:
    path = f"encoder.path={folder or place / 'bert'}"
    given = [part for setting in (path, *SETTINGS, *settings) for part in ("--set", setting)]
    source = ["--preset", "pretrained-custom", "--data", str(place / "rows.tsv"), "--output", str(output)]
    return [*source, "--quiet", *given]


@pytest.fixture(scope="module")
def trained(place: Path) -> Path:
    """A finished run of it without a linear model, whose folder is gone."""
    output = place / "run"
    folder = shutil.copytree(place / "bert", place / "gone")
    settings = ("ensemble=null", "pooling=mean", "finetuning.epochs=4")
    assert run(["finetune", *options(place, output, *settings, folder=folder)]) == 0
    shutil.rmtree(folder)
    return output


def losses_of(run: Path) -> list[float]:
    return [line["loss"] for line in lines_of(run / "metrics.jsonl")]


def test_fine_tuning_learns_and_the_run_needs_no_folder(trained: Path) -> None:
    losses = losses_of(trained)
    assert losses[-1] < losses[0]
    assert result_of(trained)["dev"]["accuracy"] == 1
    found = recurcli.load(trained).predict(["a b good", "a b bad"])
    assert [prediction.label for prediction in found] == ["good", "bad"]
    assert run(["eval", str(trained), "--quiet"]) == 0


def test_masked_tokens_are_learned_and_a_classifier_starts_from_them(place: Path, tmp_path: Path) -> None:
    assert run(["pretrain", *options(place, tmp_path / "pre", "pretraining.log_every=2")]) == 0
    losses = losses_of(tmp_path / "pre")
    assert losses[-1] < losses[0]
    values = json.loads((tmp_path / "pre" / "config.json").read_text())["network"]["encoder"]
    assert (values["hidden_size"], values["num_layers"], values["max_length"]) == (16, 2, 24)
    assert read_model(tmp_path / "pre").of_encoder().tokenizer.mask_id == 4
    copy = shutil.copytree(place / "bert", tmp_path / "copy")  # it is known by its sizes, not by its place
    edit("config.json", architectures=["BertModel"])(copy)
    settings = ("finetuning.learning_rate=1e-9", "finetuning.max_steps=1")
    init = ["--init", str(tmp_path / "pre")]
    assert run(["finetune", *options(place, tmp_path / "x", *settings, folder=copy), *init]) == 0
    name = "encoder.model.encoder.layer.1.output.dense.weight"
    before, after = (load_file(tmp_path / folder / "model.safetensors")[name] for folder in ("pre", "x"))
    assert (before - after).abs().max() < 1e-6


@pytest.mark.parametrize(("family", "has_segments"), [("bert", True), ("roberta", False), ("distilbert", False)])
def test_segments_are_those_of_the_folder_unless_named(family: str, has_segments: bool, tmp_path: Path) -> None:
    path = f"encoder.path={save_folder(tmp_path / family, family)}"
    for named, expected in (([], has_segments), ([f"embedding.segments={not has_segments}".lower()], not has_segments)):
        preset = compose("pretrained-ocnli", settings=[path, *named], section="finetuning").preset
        assert preset.embedding.segments is expected


def test_a_run_that_dies_resumes_bit_for_bit(place: Path, tmp_path: Path) -> None:
    given = options(place, tmp_path, "finetuning.checkpoint_every=2", "finetuning.max_steps=5")[6:]
    settings = [f"encoder.path={place / 'bert'}", *(setting for setting in given if "=" in setting)]
    chosen: dict[str, Any] = {"data": place / "rows.tsv", "settings": settings, "keep_checkpoints": True}

    def asked(name: str, *, resume: bool = False) -> FinetuneRequest:
        return FinetuneRequest(preset="pretrained-custom", output=tmp_path / name, resume=resume, **chosen)

    finetune(asked("whole"), Kept())
    drop_at_step(3, finetune, asked("x"))
    finetune(asked("x", resume=True), Kept())
    assert fingerprint(tmp_path / "x") == fingerprint(tmp_path / "whole")


def test_a_resume_with_other_weights_in_the_folder_is_refused(recur: Recur, place: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(place / "bert", tmp_path / "bert")
    given = ["finetune", *options(place, tmp_path / "x", "finetuning.max_steps=1", folder=folder)]
    recur.ok(*given, "--keep-checkpoints")
    (tmp_path / "x" / "result.json").unlink()  # as a run that was killed at its end
    tensor(lambda tensor: tensor + 1)(folder)
    recur.refused(2, "encoder.path sha256 was ['", *given, "--resume")


def edit(name: str, **values: object) -> Callable[[Path], None]:
    """What changes keys of the JSON file `name` of a folder."""

    def change(folder: Path) -> None:
        path = folder / name
        path.write_text(json.dumps({**json.loads(path.read_text()), **values}))

    return change


def tensor(change: Callable[[torch.Tensor], torch.Tensor | None]) -> Callable[[Path], None]:
    """What changes the tensor NAME of a folder, or removes it."""

    def edit(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        changed = change(tensors.pop(NAME))
        save_file(tensors | ({} if changed is None else {NAME: changed}), folder / "model.safetensors")

    return edit


def content(name: str, text: str) -> Callable[[Path], object]:
    """What replaces a file of a folder."""
    return lambda folder: (folder / name).write_text(text)


def without(name: str) -> Callable[[Path], object]:
    """What deletes a file of a folder."""
    return lambda folder: (folder / name).unlink()


def as_pickle(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def of_more_tokens(folder: Path) -> None:
    made = tokenizer("bert")
    made.add_tokens(["x", "y", "z", "u"])
    made.save(str(folder / "tokenizer.json"))


def with_own_pattern(folder: Path) -> None:
    made = tokenizer("bert")
    made.pre_tokenizer = Split(Regex("(a+)+$"), "isolated")
    made.save(str(folder / "tokenizer.json"))


def without_words(folder: Path) -> None:
    path = folder / "tokenizer.json"
    document = json.loads(path.read_text())
    document["model"]["vocab"] = {token["content"]: token["id"] for token in document["added_tokens"]}
    path.write_text(json.dumps(document))


REFUSED: list[tuple[Callable[[Path], object], str, int]] = [
    (without("config.json"), "bert: has no config.json; it is not a model in Hugging Face's layout", 4),
    (content("config.json", "{"), "config.json: is damaged", 4),
    (without("model.safetensors"), "bert: has no model.safetensors", 4),
    (as_pickle, "pytorch_model.bin: is a pickle, which runs code when it is read, so recur does not read it", 4),
    (without("tokenizer.json"), "bert: has no tokenizer.json and no vocab.txt of WordPiece", 4),
    (content("tokenizer.json", "{}"), "tokenizer.json: is damaged or no tokenizer", 4),
    (edit("config.json", model_type="gpt2"), "model_type is 'gpt2', which is not an encoder that recur reads; it reads al", 4),
    (edit("config.json", is_decoder=True), "config.json: is_decoder is True; recur reads encoders", 4),
    (edit("config.json", model_type="recurcli"), "is a run of recur; `recur finetune --init", 4),
    (edit("config.json", max_position_embeddings="24"), "max_position_embeddings must be a whole number from 1, not '24'", 4),
    (edit("config.json", vocab_size=-3), "vocab_size must be a whole number from 0, not -3", 4),
    (edit("config.json", hidden_act="nope"), "encoder.architecture: transformers refuses it: 'nope'", 2),
    (edit("config.json", model_type="roberta", pad_token_id=None), "pad_token_id must be a whole number from 0", 4),
    (edit("config.json", model_type="roberta", pad_token_id=30), "max_position_embeddings must be above pad_token", 4),
    (edit("config.json", type_vocab_size=3), "has the shape [2, 16], but its config.json gives [3, 16]", 4),
    (edit("config.json", hidden_size=1 << 20), "hidden_size is 1048576, and the weights allow", 4),
    (edit("config.json", num_hidden_layers=10**6), "num_hidden_layers is 1000000, and the weights allow 100 at most", 4),
    (edit("config.json", num_attention_heads=5), "encoder.architecture: transformers refuses it: The hidden size (16)", 2),
    (edit("config.json", quantization_config={"load_in_8bit": True}), "quantization_config is {'load_in_8bit'", 4),
    (edit("config.json", chunk_size_feed_forward=7), "config.json: chunk_size_feed_forward is 7; recur", 4),
    (edit("config.json", attn_implementation="flash_attention_2"), "attn_implementation is 'flash_attention_2'; re", 4),
    (edit("config.json", position_embedding_type="relative_key"), "position_embedding_type is 'relative_key'; recur", 4),
    (tensor(lambda tensor: None), "has no tensor encoder.layer.1.output.dense.weight, which its config.json needs", 4),
    (tensor(lambda tensor: (tensor * 100).to(torch.int8)), f"{NAME} has the type 'I8'; recur reads floating-point", 4),
    (tensor(lambda tensor: tensor / 0), f"{NAME} has values that are not finite", 4),
    (of_more_tokens, "bert: its tokenizer has 23 tokens, and its config.json a vocab_size of 22", 4),
    (with_own_pattern, "tokenizer.json: is damaged or no tokenizer that recur reads: its pre_tokenizer has a step", 4),
    (without_words, "bert: its tokenizer has no token beside the special ones", 4),
    (content("model.safetensors", "x"), "model.safetensors: is not a safetensors file", 4),
]  # fmt: skip


@pytest.mark.parametrize(("change", "reason", "code"), REFUSED)
def test_a_folder_that_is_no_encoder_is_refused_in_one_line(
    change: Callable[[Path], object], reason: str, code: int, recur: Recur, place: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(place / "bert", tmp_path / "bert")
    change(folder)
    recur.refused(code, reason, "finetune", *options(place, tmp_path / "x", folder=folder))
    assert not (tmp_path / "x" / "config.json").exists()


KERNEL = "kernels-community/flash-attn2"


def claiming(trained: Path, target: Path, *, encoder: dict[str, object], **architecture: object) -> Path:
    """A copy of a run whose config.json has other keys of the encoder and its architecture, with a manifest that fits."""
    copy = copy_of(trained, target)
    config = json.loads((copy / "config.json").read_text())
    config["network"]["encoder"] |= encoder
    config["network"]["encoder"]["architecture"] |= architecture
    (copy / "config.json").write_text(json.dumps(config))
    extend_manifest(copy, "config.json")
    return copy


def test_neither_a_folder_nor_a_run_makes_transformers_fetch_a_kernel(
    recur: Recur, place: Path, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetch(name: str, **_: object) -> object:
        fetched.append(name)
        return types.SimpleNamespace(flash_attn_varlen_func=None, flash_attn_func=None)

    fetched: list[str] = []
    hub_kernels = pytest.importorskip("transformers.integrations.hub_kernels")
    monkeypatch.setattr(hub_kernels, "is_kernels_available", lambda: True)
    monkeypatch.setattr(hub_kernels, "get_kernel_hub", fetch, raising=False)  # of the package `kernels`
    folder = shutil.copytree(place / "bert", tmp_path / "bert")
    copy = claiming(trained, tmp_path / "run", encoder={}, attn_implementation=KERNEL)
    (tmp_path / "x.txt").write_text("a b good\n")
    edit("config.json", attn_implementation=KERNEL)(folder)
    reason = f"attn_implementation is '{KERNEL}'; recur reads"
    recur.refused(4, reason, "finetune", *options(place, tmp_path / "x", folder=folder))
    recur.refused(4, reason, "predict", copy, tmp_path / "x.txt", "--quiet", "--no-header")
    others = {"_attn_implementation": KERNEL, "use_kernels": True, "auto_map": {"AutoModel": "evil/code--m.M"}}
    edit("config.json", attn_implementation="eager", **others)(folder)
    encoder = build_encoder({"name": "pretrained", **read_folder(folder)})
    assert isinstance(encoder, Pretrained)
    assert encoder.architecture._attn_implementation == "sdpa"
    assert not fetched


def test_keys_that_no_encoder_reads_are_left_out(place: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(place / "bert", tmp_path / "bert")
    of_hub = {"directionality": "bidi", "torch_dtype": "float16", "id2label": {"0": "a"}, "pruned_heads": {}, "x": [1]}
    harmless = {"position_embedding_type": "absolute", "chunk_size_feed_forward": 0, "quantization_config": None}
    edit("config.json", **of_hub, **harmless)(folder)
    assert read_folder(folder) == read_folder(place / "bert")


@pytest.mark.parametrize(
    ("encoder", "architecture", "reason"),
    [
        ({}, {"num_hidden_layers": 10**6}, "num_hidden_layers is 1000000, and the weights allow 100 at most"),
        ({}, {"chunk_size_feed_forward": 7}, "encoder.architecture: chunk_size_feed_forward is 7; recur reads"),
        ({}, {"attn_implementation": "flash_attention_2"}, "attn_implementation is 'flash_attention_2'; recur"),
        ({}, {"model_type": ["bert"]}, "encoder.architecture: model_type is ['bert'], which is not an encoder"),
        ({"num_layers": 10**6}, {}, "num_layers is 1000000, and the weights allow 100 at most"),
        ({"num_layers": "2"}, {}, "encoder: num_layers: '2' should be a valid integer"),
    ],
)
def test_a_run_that_claims_another_architecture_is_refused_before_it_is_built(
    encoder: dict[str, Any], architecture: dict[str, Any], reason: str, recur: Recur, trained: Path, tmp_path: Path
) -> None:
    recur.refused(4, reason, "eval", claiming(trained, tmp_path / "run", encoder=encoder, **architecture))


@pytest.mark.parametrize("key", ["num_hidden_layers", "num_hidden_groups", "inner_group_num"])
def test_alberts_shared_layers_are_bounded(key: str, tmp_path: Path) -> None:
    folder = save_folder(tmp_path / "albert", "albert")
    edit("config.json", **{key: 10**6})(folder)
    with pytest.raises(ModelError, match=f"{key} is 1000000, and the weights allow 100 at most"):
        read_folder(folder)


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("encoder.hidden_size=32", r"encoder.hidden_size: is 32, but .* has 16; leave it out"),
        ("data.max_length=30", "cannot read longer rows; set data.max_length to 24 or less"),
        ("tokenizer.kind=char", "tokenizer.kind: the folder's tokens and vectors are used, so this key has no effect"),
        ("encoder.num_heads=3", "the encoder pretrained has no such key"),
        ("encoder.path=null", "encoder.path names no model; add --set encoder.path=FOLDER"),
        ("encoder.path=./none", "none: is not a folder"),
        ("encoder.dropout=1.5", "dropout: 1.5 should be less than 1"),
        ("pretraining.objective=causal", "the encoder pretrained cannot be causal"),
    ],
)
def test_a_setting_that_does_not_fit_the_folder_is_refused(setting: str, reason: str, place: Path) -> None:
    settings = [f"encoder.path={place / 'bert'}", setting]
    with pytest.raises(RecurError, match=reason):
        build_encoder(compose("pretrained-custom", settings=settings, section="pretraining").preset.encoder)


def test_transformers_loads_the_tokenizer_of_a_run(trained: Path) -> None:
    from transformers import PreTrainedTokenizerFast

    ours, theirs = (
        read_model(trained).of_encoder().tokenizer,
        PreTrainedTokenizerFast(tokenizer_file=str(trained / "tokenizer.json")),
    )
    for text in ("鼠牛虎 abc", "龙?"):
        assert theirs(text)["input_ids"] == ours.encode([(text, None)], 16, "head").ids.tolist()


def test_without_transformers_a_line_says_what_to_install(place: Path, without: Callable[..., None]) -> None:
    without("transformers")
    with pytest.raises(RecurError, match=r"needs transformers: pip install 'recurcli\[hf\]'"):
        compose("pretrained-custom", settings=[f"encoder.path={place / 'bert'}"], section="finetuning")


def test_its_size_is_a_target_for_others_and_is_not_changed(place: Path, tmp_path: Path) -> None:
    preset = tmp_path / "mine.yaml"
    preset.write_text(f"extends: pretrained-custom\nencoder:\n  path: {place / 'bert'}\n")
    _, facts = match_parameters(compose("transformer-custom", settings=["encoder.num_heads=2"]), str(preset))
    tensors = load_file(place / "bert" / "model.safetensors").items()
    encoder = [tensor for name, tensor in tensors if name.startswith("bert.") and "word_emb" not in name]
    assert facts["target"] == sum(tensor.numel() for tensor in encoder), "without word embeddings and head"
    with pytest.raises(RecurError, match=r"encoder\.path is null"):
        match_parameters(compose("transformer-custom"), "pretrained-custom")
    with pytest.raises(RecurError, match="the size of mine is that of its folder"):
        match_parameters(compose(str(preset)), "3M")


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_learns_and_is_exported_to_onnx(family: str, place: Path, tmp_path: Path) -> None:
    folder = save_folder(tmp_path / family, family)
    settings = ("ensemble=null", "pooling=mean", "finetuning.epochs=8", "runtime.precision=bf16")
    assert run(["finetune", *options(place, tmp_path / "x", *settings, folder=folder)]) == 0
    losses = losses_of(tmp_path / "x")
    assert losses[-1] < losses[0]
    assert run(["export", str(tmp_path / "x"), "--format", "onnx", "--output", str(tmp_path / "onnx"), "--quiet"]) == 0
    texts = ["a b good", "[CLS] bad [SEP] it", "", "the film " * 40]
    found = recurcli.load(tmp_path / "x").predict(texts)
    script = [sys.executable, str(tmp_path / "onnx" / "predict.py")]
    ended = subprocess.run(script, input="\n".join([*texts, ""]), capture_output=True, text=True, check=True)
    for line, prediction in zip(ended.stdout.splitlines(), found, strict=True):
        label, share = line.split("\t")
        assert label == prediction.label
        assert float(share) == pytest.approx(prediction.score, abs=1e-4)


@pytest.mark.slow
def test_two_processes_train_as_one_does(forks: ForkServer, place: Path, tmp_path: Path) -> None:
    settings = ("encoder.dropout=0", "finetuning.max_steps=4", "ensemble=null", "finetuning.adam_epsilon=1e-3")
    assert forks.run("finetune", *options(place, tmp_path / "one", *settings)).code == 0
    ended = run_ranks(forks, "finetune", *options(place, tmp_path / "two", *settings))
    assert [end.code for end in ended] == [0, 0], ended[0].err
    one, two = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "two"))
    assert max(float((one[name] - two[name]).abs().max()) for name in one) < 1e-4
