"""Causal pre-training from the command line: what it reads, reports, refuses and resumes, and what `eval` makes of its run."""

import json
import random
import shutil
from pathlib import Path

import pytest
import torch
from cases import slow_but
from logs import Kept, drop_at_step
from running import Recur, lines_of, result_of
from tiny_task import tiny
from torchrun import command, completed

from recurcli.commands.pretrain import pretrain
from recurcli.config import DataConfig, TokenizerConfig
from recurcli.data.tasks import task_named
from recurcli.encoders.registry import ENCODERS, causal_key
from recurcli.errors import DataError
from recurcli.files import extend_manifest, sha256_of
from recurcli.network import LanguageModel
from recurcli.preset import compose
from recurcli.requests.training import PretrainRequest
from recurcli.runs.network_files import build_trained, read_model
from recurcli.runs.run_directory import RunDirectory
from recurcli.tokens.texts import encode_stream, load_texts
from recurcli.tokens.tokenizer import Tokenizer

CAUSAL = ["pretraining.objective=causal", "tokenizer.kind=whitespace", "pretraining.learning_rate=1e-2"]


def write_treebank(folder: Path) -> Path:
    """Lines in which every word follows from the one before, in files named as the Penn Treebank's."""
    draw = random.Random(0)
    folder.mkdir(exist_ok=True)
    for split, lines in (("train", 60), ("valid", 12), ("test", 8)):
        starts = [draw.randrange(10) for _ in range(lines)]
        texts = [" ".join(f"w{(start + step) % 10}" for step in range(2 + start)) for start in starts]
        (folder / f"ptb.{split}.txt").write_text(" \n ".join(texts) + " \n", encoding="utf-8")
    return folder


def options(data: Path, output: Path, *more: str, preset: str = "rsa-ptb") -> list[object]:
    settings = ["pretraining.epochs=3", "pretraining.checkpoint_every=4", "encoder.num_heads=2", *CAUSAL, *more]
    return ["--preset", preset, "--data", data, "--output", output, *tiny(*settings)]


def request_of(line: list[object]) -> PretrainRequest:
    """What `recur pretrain` makes of such options."""
    _, preset, _, data, _, output, *settings = map(str, line)
    keys = [setting for setting in settings if setting != "--set"]
    return PretrainRequest(preset=preset, data=Path(data), settings=keys, output=Path(output), keep_checkpoints=True)


@pytest.fixture(scope="module")
def treebank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_treebank(tmp_path_factory.mktemp("ptb"))


@pytest.fixture(scope="module")
def model(treebank: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished causal pre-training, with its checkpoints."""
    run = tmp_path_factory.mktemp("runs") / "model"
    pretrain(request_of(options(treebank, run)), Kept())
    return run


def test_the_best_dev_perplexity_is_kept_and_stands_in_the_result(model: Path) -> None:
    result = result_of(model)
    lines = lines_of(model / "metrics.jsonl")
    found = [line["dev_metric"] for line in lines if "dev_metric" in line]
    assert len(found) == 3
    assert result["metric"] == "perplexity"
    assert result["dev"]["perplexity"] == pytest.approx(min(found), rel=1e-12)
    assert result["dev"]["perplexity"] < 10.5, "better than all words alike"
    assert result["best_step"] == next(line["step"] for line in lines if line.get("dev_metric") == min(found))
    assert (result["data"]["train"]["rows"], result["data"]["dev"]["rows"]) == (60, 12)
    assert result["data"]["dev"]["tokens"] == result["dev"]["tokens"]
    assert f"| dev perplexity | {result['dev']['perplexity']:.2f} " in (model / "README.md").read_text()


def test_eval_gives_the_perplexity_of_the_run_and_of_other_texts(recur: Recur, model: Path, treebank: Path) -> None:
    stored = result_of(model)["dev"]
    found = recur.json("eval", model)
    assert found["perplexity"] == found["metrics"]["perplexity"] == pytest.approx(stored["perplexity"], rel=1e-6)
    assert (found["split"], found["tokens"]) == ("dev", stored["tokens"])
    test = recur.json("eval", model, "--split", "test", "--batch-size", "2")
    words = (treebank / "ptb.test.txt").read_text().split()
    assert (test["tokens"], test["rows"]) == (len(words) + 8, 8)
    whole = recur.json("eval", model, "--data", treebank / "ptb.test.txt")
    assert whole["perplexity"] == pytest.approx(test["perplexity"], rel=1e-6)
    assert f"{test['perplexity']:.2f}" in recur.ok("eval", model, "--split", "test")[0]
    recur.refused(2, "is a language model", "eval", model, "--report", treebank / "page.html")


def test_a_resume_is_bit_identical(recur: Recur, model: Path, treebank: Path, tmp_path: Path) -> None:
    line = options(treebank, tmp_path / "stopped")
    drop_at_step(10, pretrain, request_of(line))
    out, err = recur.ok("pretrain", *line, "--resume")
    assert ("resumed at step" in err, "dev perplexity" in out) == (True, True)
    assert sha256_of(tmp_path / "stopped" / "model.safetensors") == sha256_of(model / "model.safetensors")
    out, err = recur.ok("pretrain", *line, "--resume", "--json")
    assert ("already finished" in err, json.loads(out)["metric"]) == (True, "perplexity")


def test_early_stopping_waits_for_a_smaller_perplexity(recur: Recur, treebank: Path, tmp_path: Path) -> None:
    settings = ("pretraining.patience=2", "pretraining.evaluate_every=1", "pretraining.learning_rate=5")
    line = options(treebank, tmp_path / "run", *settings, "pretraining.lr_scheduler=constant")
    out, err = recur.ok("pretrain", *line)
    assert "dev perplexity did not fall in 2 evaluations" in err + out
    result = result_of(tmp_path / "run")
    assert result["steps"] == result["best_step"] + 2


CARRY = "pretraining.carry=true"


@pytest.mark.parametrize(
    ("preset", "settings", "reason"),
    [
        ("bilstm-ptb", [], "the encoder bilstm cannot be causal; these encoders can: block-recurrent-transformer, del"),
        ("rsa-ptb", ["encoder.causal=false"], "pretraining.objective causal needs"),
        ("truncated-rnn-ptb", ["encoder.bidirectional=true"], "pretraining.objective causal needs"),
        ("rsa-ptb", ["pretraining.objective=masked", "pretraining.patience=1"], "must be null with objective masked"),
        ("transformer-ptb", [CARRY, "encoder.num_heads=2"], "encoder transformer: it has no state to carry"),
        ("lstm-ptb", [CARRY, "pretraining.objective=masked"], "with objective masked"),
        ("truncated-lstm-tnews", [CARRY, "pretraining.objective=causal"], "the data are rows, which do not go on"),
        ("lstm-ptb", [CARRY, "pretraining.batch_size=99999"], "makes 99,999 streams of"),
        ("lstm-ptb", [CARRY, "runtime.compile=true"], "runtime.compile"),
    ],
)
def test_what_cannot_be_causal_or_carried_is_refused(
    preset: str, settings: list[str], reason: str, recur: Recur, treebank: Path, tiny_tnews: Path, tmp_path: Path
) -> None:
    data = tiny_tnews if preset.endswith("tnews") else treebank
    line = ("--preset", preset, "--data", data, "--output", tmp_path / "x", *tiny(*settings))
    recur.refused(2, reason, "pretrain", *line)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("name", [name for name in sorted(ENCODERS) if causal_key(name)])
def test_the_objective_alone_makes_an_encoder_causal(name: str, recur: Recur) -> None:
    key, value = ("bidirectional", False) if name.startswith("truncated") else ("causal", True)
    rows = recur.json("presets", f"{name}-ptb")["keys"]
    assert rows[f"encoder.{key}"] == {"value": value, "origin": "pretraining.objective causal"}
    rows = recur.json("presets", f"{name}-tnews")["keys"]
    assert rows[f"encoder.{key}"] == {"value": not value, "origin": "default"}


def test_a_dry_run_and_matched_parameters_know_the_causal_encoder(recur: Recur, treebank: Path, tmp_path: Path) -> None:
    settings = ("encoder.num_layers=2", "pretraining.max_steps=6", "pretraining.evaluate_every=3")
    source = ("--preset", "starsaber-ptb", "--data", treebank, "--output", tmp_path / "x")
    given = [part for setting in settings for part in ("--set", setting)]
    plan = recur.json("pretrain", *source, *given, "--dry-run", "--match-parameters", "2k")
    size = plan["values"]["encoder"]["hidden_size"]
    assert plan["match_parameters"]["parameters"] == plan["parameters"]["encoder"] == 2 * (3 * size**2 + 1)
    assert not (tmp_path / "x").exists()


def test_a_classifier_starts_from_a_causal_model(recur: Recur, tiny_tnews: Path, tmp_path: Path) -> None:
    encoder = ["encoder.num_heads=2", "finetuning.linear_baseline=false", "finetuning.epochs=1", "ensemble=null"]
    common = ["--preset", "transformer-tnews", "--data", tiny_tnews]
    pretraining = [*common, "--output", tmp_path / "p", *tiny(*encoder, "pretraining.objective=causal")]
    result = recur.json("pretrain", *pretraining)
    assert [result["data"][split]["rows"] for split in ("train", "dev")] == [60, 24]
    finetuning = ["finetune", *common, "--output", tmp_path / "f", "--init", tmp_path / "p", *tiny(*encoder)]
    recur.refused(2, "encoder.causal was True and is now False in the preset", *finetuning)
    recur.ok(*finetuning, "--set", "encoder.causal=true")
    assert "causal: true" in (tmp_path / "f" / "preset.yaml").read_text()
    assert json.loads((tmp_path / "f" / "config.json").read_text())["network"]["encoder"]["causal"] is True


def test_text_without_labels_cannot_be_finetuned(recur: Recur, treebank: Path, tmp_path: Path) -> None:
    line = ("finetune", "--preset", "rsa-ptb", "--data", treebank, "--output", tmp_path / "x")
    recur.refused(2, "task ptb is text without labels", *line)
    masked = options(treebank, tmp_path / "m", "pretraining.objective=masked", "pretraining.max_steps=1")
    assert recur.json("pretrain", *masked)["data"]["text"]["rows"] == 60


@pytest.mark.parametrize(
    ("files", "train", "dev", "test"),
    [
        (["a", "b"], 4 + 20 + 14, 4, None),  # use_dev_split: of 42 lines the last tenth
        (["a", "test"], 18, 2, 22),
        (["a", "dev", "test"], 20, 21, 22),
        (["a", "books/b", "held/test/x"], 38, 4, 22),
        (["wiki.train", "wiki.valid", "wiki.test"], 20, 21, 22),
        (["train", "a", "valid"], 20, 21, None),
    ],
)
def test_held_out_lines_stay_held_out(files: list[str], train: int, dev: int, test: int | None, tmp_path: Path) -> None:
    lengths = {"b": 22, "valid": 21, "dev": 21, "test": 22, "x": 22}
    for name in files:
        path = tmp_path / f"{name}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = lengths.get(path.stem.rpartition(".")[2], 20)
        path.write_text("".join(f"{name} {n}\n" for n in range(lines)))
    task, config = task_named("custom"), DataConfig(path=str(tmp_path))
    found = {split: load_texts(task, split, config, use_dev_split=split != "test") for split in ("train", "dev")}
    assert [len(found[split].texts) for split in found] == [train, dev]
    if test is None:
        with pytest.raises(DataError, match="has no test text"):
            load_texts(task, "test", config)
    else:
        found["test"] = load_texts(task, "test", config)
        assert len(found["test"].texts) == test
    seen = [set(split.texts) for split in found.values()]
    assert sum(map(len, seen)) == len(set().union(*seen)), "no line is in two splits"


def test_a_line_of_a_million_words_is_not_cut() -> None:
    words = Tokenizer.train(["a b"], TokenizerConfig(kind="whitespace", min_frequency=1))
    assert len(encode_stream([("a " * 1_100_000, None)], words)) == 1_100_001


def test_eval_scores_all_of_a_folder_that_is_not_the_trainings(recur: Recur, model: Path, tmp_path: Path) -> None:
    (tmp_path / "ptb.valid.txt").write_text("w1 w2\n" * 20)
    assert recur.json("eval", model, "--data", tmp_path)["rows"] == 20
    (tmp_path / "ptb.valid.txt").rename(tmp_path / "book.txt")
    recur.refused(3, "has no dev text", "eval", model, "--data", tmp_path)


def test_eval_counts_training_lines_and_refuses_other_dev_text(recur: Recur, tmp_path: Path) -> None:
    data, run = tmp_path / "texts", tmp_path / "x"
    data.mkdir()
    lines = [f"w{number} w{number % 7}" for number in range(30)]
    (data / "train.txt").write_text("\n".join([*lines, "", ""]))
    (data / "valid.txt").write_text("\n".join([*lines, " "]))
    line = options(data, run, "encoder.num_heads=2", "pretraining.max_steps=2", preset="transformer-custom")
    _, err = recur.ok("pretrain", *line, "--quiet")
    assert err.startswith("recur: warning: dev: 30 of 30 lines are in the training lines") and err.count("\n") == 1
    assert "--init THIS_FOLDER --set pretraining.objective=causal" in (run / "README.md").read_text()
    recur.ok("eval", run)
    out, err = recur.ok("eval", run, "--data", data / "train.txt", "--json", "--quiet")
    assert err.startswith("recur: warning: 30 of 30 lines are in the training lines")
    assert json.loads(out)["training_rows"] == 30
    (data / "test.txt").write_text("\n".join([*lines[:2], *(f"w1 {line}" for line in lines)]))
    assert recur.ok("eval", run, "--split", "test", "--json", "--quiet")[1] == "", "lines repeat by themselves"
    _, err = recur.ok("eval", run, "--data", data / "test.txt")
    assert "recur: 2 of 32 lines are in the training lines" in err
    (tmp_path / "a.csv").write_text("text,label\nw1 w2 w3,x\nw2 w3,y\n")
    assert recur.json("eval", run, "--data", tmp_path / "a.csv")["tokens"] == 5 + 2
    (data / "valid.txt").unlink()
    recur.refused(3, f"its sha256 is not that of the dev rows of {run}; --data", "eval", run)


@pytest.mark.slow
def test_the_treebank_has_its_published_numbers_of_tokens(real_data: Path) -> None:
    """929k, 73k and 82k tokens with <eos> (Mikolov et al., 2010), and a closed vocabulary of 10,000 with <eos>."""
    task, config = task_named("ptb"), compose("rsa-ptb", data=real_data).preset
    texts = {split: load_texts(task, split, config.data).texts for split in ("train", "dev", "test")}
    assert {split: len(lines) for split, lines in texts.items()} == task.rows
    words = Tokenizer.train((text for text, _ in texts["train"]), config.tokenizer)
    assert words.vocab_size - 3 == 10_000  # [SEP] is <eos>; [PAD], [UNK] and [MASK] never occur
    streams = {split: encode_stream(texts[split], words) for split in ("dev", "test")}
    assert {split: len(stream) for split, stream in streams.items()} == {"dev": 73_760, "test": 82_430}
    assert sum(len(text.split()) + 1 for text, _ in texts["train"]) == 929_589
    assert not any((stream == words.unknown_id).any() for stream in streams.values())


@pytest.mark.slow
def test_two_processes_train_and_score_as_one_does(recur: Recur, treebank: Path, tmp_path: Path) -> None:
    more = ("encoder.dropout=0", "encoder.norm=pre")
    recur.ok("pretrain", *options(treebank, tmp_path / "one", *more))
    done = completed(command("pretrain", *options(treebank, tmp_path / "two", *more)))
    assert done.returncode == 0, done.stderr.decode()
    one, two = (result_of(tmp_path / name)["dev"] for name in ("one", "two"))
    assert two == pytest.approx(one, rel=1e-5)
    scored = completed(command("eval", tmp_path / "two", "--json", "--quiet"))
    assert json.loads(scored.stdout)["perplexity"] == pytest.approx(two["perplexity"], rel=1e-6)


@pytest.fixture(scope="module")
def models(treebank: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seeds of each of two sizes, after two steps."""
    folder = tmp_path_factory.mktemp("models") / "runs"
    for size in (8, 16):
        for seed in (1, 2):
            settings = ("pretraining.max_steps=2", f"encoder.hidden_size={size}", f"runtime.seed={seed}")
            pretrain(request_of(options(treebank, folder / f"{size}-{seed}", *settings)), Kept())
    return folder


def test_language_models_are_compared_by_perplexity(recur: Recur, models: Path, model: Path, tmp_path: Path) -> None:
    found = recur.json("compare", models, "--output", tmp_path / "table.csv")
    stored = {size: [result_of(models / f"{size}-{n}")["dev"]["perplexity"] for n in (1, 2)] for size in (8, 16)}
    order = sorted(stored, key=lambda size: sum(stored[size]))
    assert [group["values"]["encoder.hidden_size"] for group in found["groups"]] == order
    for group, size in zip(found["groups"], order, strict=True):
        assert group["scores"] == pytest.approx(stored[size], rel=1e-9)
        assert group["best"] == min(group["scores"])
        assert group["interval"] is None or group["interval"][0] < group["mean"] < group["interval"][1]
    (test,) = found["tests"]
    assert test["difference"] == pytest.approx((sum(stored[order[0]]) - sum(stored[order[1]])) / 2)
    assert (found["metric"], found["baselines"], found["unfinished"]) == ("perplexity", [], [])
    assert (found["rows"], test["test"]) == (result_of(model)["dev"]["tokens"], "bootstrap")
    out, _ = recur.ok("compare", models, "--over", "encoder.hidden_size", "--plot", tmp_path / "x.svg")
    assert "tokens of the dev text" in out
    assert f"{sum(stored[order[0]]) / 2:.2f} ±" in out
    code, _, err = recur("compare", models, "--split", "test")
    assert (code, err.count("leave out --split test")) == (2, 4), err
    recur.refused(2, "--metric accuracy is one of classifiers", "compare", models, "--metric", "accuracy")
    recur.refused(2, "--report is for classifiers", "compare", models, "--report", tmp_path / "x.html")


def test_other_tokens_or_losses_are_not_compared(recur: Recur, models: Path, treebank: Path, tmp_path: Path) -> None:
    runs = shutil.copytree(models, tmp_path / "runs")
    other = options(treebank, runs / "char", "pretraining.max_steps=1", "tokenizer.kind=char")
    pretrain(request_of(other), Kept())
    recur.refused(2, "numbers of tokens of their dev texts are", "compare", runs)
    losses = json.loads((runs / "8-1" / "losses.dev.json").read_text())
    for change, message in (
        (losses | {"nats": [number + 1 for number in losses["nats"]]}, "but its predictions give"),
        (losses | {"tokens": losses["tokens"][:-1]}, "losses.dev.json"),
    ):
        (runs / "8-1" / "losses.dev.json").write_text(json.dumps(change))
        extend_manifest(runs / "8-1", "losses.dev.json")
        recur.refused(4, message, "compare", runs / "8-1", runs / "16-1")


CARRYING = {
    "lstm-ptb": ("encoder.hidden_size=16",),
    "transformer-xl-ptb": ("encoder.num_heads=2", "encoder.segment=4", "encoder.memory=8", "encoder.rsa=true"),
    "truncated-rnn-ptb": ("encoder.window=5", "encoder.hidden_size=16"),
    "block-recurrent-transformer-ptb": ("encoder.num_heads=2", "encoder.window=4", "encoder.num_states=3"),
    "temporal-latent-bottleneck-ptb": ("encoder.num_heads=2", "encoder.chunk_size=4", "encoder.num_states=3"),
}


def carrying(data: Path, output: Path, preset: str, *more: str) -> list[object]:
    shared = ("pretraining.epochs=3", "pretraining.checkpoint_every=4", "pretraining.batch_size=4", "data.max_length=8")
    settings = tiny(*shared, *CAUSAL, *CARRYING[preset], "pretraining.carry=true", *more)
    return ["--preset", preset, "--data", data, "--output", output, *settings]


@pytest.mark.parametrize("preset", slow_but(["lstm-ptb"], CARRYING))
def test_a_run_that_carries_is_resumed_exactly(preset: str, recur: Recur, treebank: Path, tmp_path: Path) -> None:
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    out, err = recur.ok("pretrain", *carrying(treebank, whole, preset), "--json", "--verbose")
    result, data = json.loads(out), json.loads(out)["data"]["train"]
    assert f"4 streams of {data['tokens'] // 4:,} tokens" in err
    windows = -(-(data["tokens"] // 4) // 8)
    assert (result["carry"], result["steps"]) == (True, 3 * windows)
    line = carrying(treebank, stopped, preset)
    drop_at_step(windows + 10, pretrain, request_of(line))
    newest = max((stopped / "checkpoints").iterdir())
    assert (newest / "carried.safetensors").is_file()
    assert json.loads((newest / "state.json").read_text())["resume_key"]["world size"] == 1
    assert "resumed at step" in recur.ok("pretrain", *line, "--resume")[1]
    assert sha256_of(stopped / "model.safetensors") == sha256_of(whole / "model.safetensors")
    found = recur.json("eval", whole, "--batch-size", "3")
    assert (found["carry"], found["tokens"]) == (True, result["dev"]["tokens"])
    assert found["perplexity"] == pytest.approx(result["dev"]["perplexity"], rel=1e-6)
    out, err = recur.ok("eval", whole, "--diagnose")
    assert "state carried over windows" in out
    assert f"{found['perplexity']:.2f}" in out
    other = carrying(treebank, stopped, preset, "pretraining.batch_size=2")
    recur.refused(2, "pretraining.batch_size was 4 and is now 2", "pretrain", *other, "--resume")


@pytest.mark.slow
def test_two_processes_carry_as_one_does(recur: Recur, treebank: Path, tmp_path: Path) -> None:
    for preset in CARRYING:
        more = ("encoder.dropout=0", "embedding.dropout=0", "pretraining.batch_size=3")
        one, two = tmp_path / preset, tmp_path / f"{preset}-2"
        recur.ok("pretrain", *carrying(treebank, one, preset, *more))
        ended = completed(command("pretrain", *carrying(treebank, two, preset, *more), "--quiet"))
        assert ended.returncode == 0, ended.stderr.decode()
        assert result_of(two)["dev"]["loss"] == pytest.approx(result_of(one)["dev"]["loss"], rel=1e-4)
    line = carrying(treebank, tmp_path / "alone", "lstm-ptb")
    drop_at_step(10, pretrain, request_of(line))
    ended = completed(command("pretrain", *line, "--resume"))
    assert b"cannot be resumed: world size was 1 and is now 2" in ended.stderr
    recur.ok("pretrain", *line, "--resume")


def test_a_language_model_is_diagnosed(recur: Recur, model: Path) -> None:
    diagnosis = recur.json("eval", model, "--diagnose")["diagnosis"]
    assert [layer["layer"] for layer in diagnosis["layers"]] == [1, 2]
    files = read_model(model).of_encoder()
    language_model = build_trained(LanguageModel, files, torch.device("cpu"))
    texts = load_texts(task_named("ptb"), "dev", RunDirectory(model).read_data_config())
    length = files.config.max_length
    stream = encode_stream(texts.texts, files.tokenizer).tolist()
    norms = []
    for start in range(0, len(stream) - length + 1, length):  # a shorter window has not the median length
        row = [files.tokenizer.separator_id, *stream][start : start + length]
        x = language_model.embedding(torch.tensor([row])).detach().requires_grad_()
        logits = language_model.token_logits(language_model.encoder(x)[:, -1], language_model.embedding.output_weight())
        loss = torch.nn.functional.cross_entropy(logits, torch.tensor([stream[start + length - 1]]))
        norms.append(torch.autograd.grad(loss, x)[0][0].norm(dim=-1))
    expected = torch.stack(norms[:32]).mean(dim=0).flip(0)
    assert diagnosis["gradient_norm_by_distance"] == pytest.approx(expected.tolist(), rel=1e-4)


def test_notes_on_memory_are_those_of_the_windows(recur: Recur, treebank: Path, tmp_path: Path) -> None:
    more = ("data.max_length=3", "pretraining.max_steps=1")
    line = ("pretrain", *carrying(treebank, tmp_path / "x", "transformer-xl-ptb", *more))
    assert "not used" not in recur.ok(*line)[1]
    _, err = recur.ok(*line, "--overwrite", *tiny("pretraining.batch_size=40", "data.max_length=64")[-4:])
    assert "a stream has no second window of 64 tokens, so the training carries no state" in err
