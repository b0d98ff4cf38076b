"""Causal pre-training from the command line: what it reads, reports, refuses and resumes, and what `eval` makes of its run."""

import json
import random
import shutil
from pathlib import Path

import pytest
import torch
from cases import slow_but
from logs import Kept, drop_at_step
from predicting import Recur
from tiny_task import tiny
from torchrun import command, completed

from recurcli.commands.pretrain import pretrain
from recurcli.commands.training.request import TrainingRequest
from recurcli.data.config import DataConfig, TokenizerConfig
from recurcli.data.tasks import task_named
from recurcli.encoders import ENCODERS, causal_key
from recurcli.errors import DataError
from recurcli.files import extend_manifest, sha256_of
from recurcli.preset import compose
from recurcli.runs.model_files import build_trained_language_model, read_model
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


@pytest.fixture(scope="module")
def treebank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_treebank(tmp_path_factory.mktemp("ptb"))


@pytest.fixture(scope="module")
def model(treebank: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished causal pre-training, with its checkpoints."""
    run = tmp_path_factory.mktemp("runs") / "model"
    asked = [str(part) for part in options(treebank, run)]
    resolved = compose("rsa-ptb", data=treebank, settings=[part for part in asked[6:] if part != "--set"])
    pretrain(TrainingRequest(resolved, run, keep_checkpoints=True), Kept())
    return run


def test_the_best_dev_perplexity_is_kept_and_stands_in_the_result(model: Path) -> None:
    result = json.loads((model / "result.json").read_text())
    lines = [json.loads(line) for line in (model / "metrics.jsonl").read_text().splitlines()]
    found = [line["dev_metric"] for line in lines if "dev_metric" in line]
    assert len(found) == 3
    assert result["metric"] == "perplexity"
    assert result["dev"]["perplexity"] == pytest.approx(min(found), rel=1e-12)
    assert result["dev"]["perplexity"] < 10.5, "better than all words alike"
    assert result["best_step"] == next(line["step"] for line in lines if line.get("dev_metric") == min(found))
    assert (result["data"]["train"]["rows"], result["data"]["dev"]["rows"]) == (60, 12)
    assert result["data"]["dev"]["tokens"] == result["dev"]["tokens"]
    assert f"| dev perplexity | {result['dev']['perplexity']:.2f} " in (model / "README.md").read_text()
    preset = (model / "preset.yaml").read_text()
    assert "causal: true" in preset and "objective: causal" in preset


def test_eval_gives_the_perplexity_of_the_run_and_of_other_texts(recur: Recur, model: Path, treebank: Path) -> None:
    stored = json.loads((model / "result.json").read_text())["dev"]
    code, out, err = recur("eval", model, "--json", "--quiet")
    assert code == 0, err
    found = json.loads(out)
    assert found["perplexity"] == found["metrics"]["perplexity"] == pytest.approx(stored["perplexity"], rel=1e-6)
    assert (found["split"], found["tokens"]) == ("dev", stored["tokens"])
    test = json.loads(recur("eval", model, "--split", "test", "--json", "--quiet", "--batch-size", "2")[1])
    words = (treebank / "ptb.test.txt").read_text().split()
    assert (test["tokens"], test["rows"]) == (len(words) + 8, 8)
    whole = json.loads(recur("eval", model, "--data", treebank / "ptb.test.txt", "--json", "--quiet")[1])
    assert whole["perplexity"] == pytest.approx(test["perplexity"], rel=1e-6)
    code, out, _ = recur("eval", model, "--split", "test")
    assert (code, f"{test['perplexity']:.2f}" in out) == (0, True)
    code, _, err = recur("eval", model, "--data", treebank / "nothing.txt")
    assert (code, "nothing.txt: does not exist" in err) == (3, True)
    code, _, err = recur("eval", model, "--report", treebank / "page.html")
    assert (code, "is a language model" in err) == (2, True)


def test_a_resume_is_bit_identical(recur: Recur, model: Path, treebank: Path, tmp_path: Path) -> None:
    asked = [str(part) for part in options(treebank, tmp_path)]
    resolved = compose("rsa-ptb", data=treebank, settings=[part for part in asked[6:] if part != "--set"])
    drop_at_step(10, pretrain, TrainingRequest(resolved, tmp_path / "stopped"))
    code, out, err = recur("pretrain", *options(treebank, tmp_path / "stopped"), "--resume")
    assert (code, "resumed at step" in err, "dev perplexity" in out) == (0, True, True)
    assert sha256_of(tmp_path / "stopped" / "model.safetensors") == sha256_of(model / "model.safetensors")
    code, out, err = recur("pretrain", *options(treebank, tmp_path / "stopped"), "--resume", "--json")
    assert (code, "already finished" in err, json.loads(out)["metric"]) == (0, True, "perplexity")


def test_early_stopping_waits_for_a_smaller_perplexity(recur: Recur, treebank: Path, tmp_path: Path) -> None:
    settings = ("pretraining.patience=2", "pretraining.evaluate_every=1", "pretraining.learning_rate=5")
    code, out, err = recur(
        "pretrain", *options(treebank, tmp_path / "run", *settings, "pretraining.lr_scheduler=constant")
    )
    assert code == 0, err
    assert "dev perplexity did not fall in 2 evaluations" in err + out
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["steps"] == result["best_step"] + 2


def test_an_encoder_that_cannot_be_causal_is_refused_with_those_that_can(
    recur: Recur, treebank: Path, tmp_path: Path
) -> None:
    code, _, err = recur("pretrain", *options(treebank, tmp_path / "x", preset="bilstm-ptb"))
    assert code == 2
    assert "the encoder bilstm cannot be causal; these encoders can: block-recurrent-transformer, linear-" in err
    for name, value in (("rsa-ptb", "encoder.causal=false"), ("truncated-rnn-ptb", "encoder.bidirectional=true")):
        code, _, err = recur("pretrain", *options(treebank, tmp_path / "x", value, preset=name))
        assert (code, "pretraining.objective causal needs" in err) == (2, True)
    assert not (tmp_path / "x").exists()
    masked = options(treebank, tmp_path / "x", "pretraining.objective=masked", "pretraining.patience=1")
    code, _, err = recur("pretrain", *masked)
    assert (code, "must be null with objective masked" in err) == (2, True)


@pytest.mark.parametrize("name", [name for name in sorted(ENCODERS) if causal_key(name)])
def test_the_objective_alone_makes_an_encoder_causal(name: str, recur: Recur) -> None:
    key, value = ("bidirectional", False) if name.startswith("truncated") else ("causal", True)
    rows = json.loads(recur("presets", f"{name}-ptb", "--json")[1])["keys"]
    assert rows[f"encoder.{key}"] == {"value": value, "origin": "pretraining.objective causal"}
    rows = json.loads(recur("presets", f"{name}-tnews", "--json")[1])["keys"]
    assert rows[f"encoder.{key}"] == {"value": not value, "origin": "default"}


def test_a_dry_run_and_matched_parameters_know_the_causal_encoder(recur: Recur, treebank: Path, tmp_path: Path) -> None:
    asked = ["--preset", "starsaber-ptb", "--data", treebank, "--output", tmp_path / "x"]
    for setting in ("encoder.num_layers=2", "pretraining.max_steps=6", "pretraining.evaluate_every=3"):
        asked += ["--set", setting]
    code, out, err = recur("pretrain", *asked, "--dry-run", "--json", "--match-parameters", "2k")
    assert code == 0, err
    plan = json.loads(out)
    size = plan["values"]["encoder"]["hidden_size"]
    assert plan["match_parameters"]["parameters"] == plan["parameters"]["encoder"] == 2 * (3 * size**2 + 1)
    assert not (tmp_path / "x").exists()


def test_a_classifier_starts_from_a_causal_model_and_stays_causal(
    recur: Recur, tiny_tnews: Path, tmp_path: Path
) -> None:
    encoder = ["encoder.num_heads=2", "finetuning.linear_baseline=false", "finetuning.epochs=1", "ensemble=null"]
    common = ["--preset", "transformer-tnews", "--data", tiny_tnews]
    pretraining = [*common, "--output", tmp_path / "p", *tiny(*encoder, "pretraining.objective=causal"), "--quiet"]
    code, _, err = recur("pretrain", *pretraining)
    assert code == 0, err
    result = json.loads((tmp_path / "p" / "result.json").read_text())
    assert [result["data"][split]["rows"] for split in ("train", "dev")] == [60, 24]
    finetuning = [*common, "--output", tmp_path / "f", "--init", tmp_path / "p", "--quiet"]
    code, _, err = recur("finetune", *finetuning, *tiny(*encoder))
    assert (code, "its encoder.causal is True, the preset's is False" in err) == (2, True)
    code, _, err = recur("finetune", *finetuning, *tiny(*encoder, "encoder.causal=true"))
    assert code == 0, err
    assert "causal: true" in (tmp_path / "f" / "preset.yaml").read_text()
    assert json.loads((tmp_path / "f" / "config.json").read_text())["encoder"]["causal"] is True


def test_text_without_labels_cannot_be_finetuned(recur: Recur, treebank: Path, tmp_path: Path) -> None:
    code, _, err = recur("finetune", "--preset", "rsa-ptb", "--data", treebank, "--output", tmp_path / "x")
    assert (code, "task ptb is text without labels" in err) == (2, True)
    masked = options(treebank, tmp_path / "m", "pretraining.objective=masked", "pretraining.max_steps=1")
    code, out, err = recur("pretrain", *masked, "--json", "--quiet")
    assert (code, json.loads(out)["data"]["text"]["rows"]) == (0, 60), err


@pytest.mark.parametrize(
    ("files", "train", "dev", "test", "unread"),
    [
        (["a", "b"], 4 + 20 + 14, 4, None, 0),  # use_dev_split: of 42 lines the last tenth
        (["a", "test"], 18, 2, 22, 0),
        (["a", "dev", "test"], 20, 21, 22, 0),
        (["a", "books/b", "held/test/x"], 38, 4, 22, 0),
        (["wiki.train", "wiki.valid", "wiki.test"], 20, 21, 22, 0),
        (["train", "a", "valid"], 20, 21, None, 1),
    ],
)
def test_no_line_of_test_or_dev_text_is_trained_on(
    files: list[str], train: int, dev: int, test: int | None, unread: int, tmp_path: Path
) -> None:
    lengths = {"b": 22, "valid": 21, "dev": 21, "test": 22, "x": 22}
    for name in files:
        path = tmp_path / f"{name}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = lengths.get(path.stem.rpartition(".")[2], 20)
        path.write_text("".join(f"{name} {n}\n" for n in range(lines)))
    task, config = task_named("custom"), DataConfig(path=str(tmp_path))
    found = {split: load_texts(task, split, config, use_dev_split=split != "test") for split in ("train", "dev")}
    assert [len(found[split].texts) for split in found] == [train, dev]
    assert len(found["train"].unread) == unread
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
    code, out, err = recur("eval", model, "--data", tmp_path, "--json", "--quiet")
    assert (code, json.loads(out)["rows"]) == (0, 20), err
    (tmp_path / "ptb.valid.txt").rename(tmp_path / "book.txt")
    code, _, err = recur("eval", model, "--data", tmp_path, "--quiet")
    assert (code, "has no dev text" in err) == (3, True), err


def test_eval_refuses_dev_text_that_is_not_that_of_the_training(recur: Recur, tmp_path: Path) -> None:
    data = tmp_path / "texts"
    data.mkdir()
    (data / "train.txt").write_text("w1 w2 w3\n" * 30)
    (data / "valid.txt").write_text("w2 w3\n" * 5)
    line = options(data, tmp_path / "x", "encoder.num_heads=2", "pretraining.max_steps=2", preset="transformer-custom")
    assert recur("pretrain", *line, "--quiet")[0] == 0
    assert "--init THIS_FOLDER --set pretraining.objective=causal" in (tmp_path / "x" / "README.md").read_text()
    code, _, err = recur("eval", tmp_path / "x", "--quiet")
    assert (code, err) == (0, "")
    (tmp_path / "a.csv").write_text("text,label\nw1 w2 w3,x\nw2 w3,y\n")
    code, out, err = recur("eval", tmp_path / "x", "--data", tmp_path / "a.csv", "--json", "--quiet")
    assert (code, json.loads(out)["tokens"]) == (0, 5 + 2), err
    (data / "valid.txt").unlink()
    code, _, err = recur("eval", tmp_path / "x", "--quiet")
    assert (code, f"its sha256 is not that of the dev rows of {tmp_path / 'x'}; --data" in err) == (3, True), err


def test_training_lines_that_are_scored_are_told(recur: Recur, tmp_path: Path) -> None:
    data = tmp_path / "texts"
    data.mkdir()
    lines = [f"w{number} w{number % 7}" for number in range(30)]
    (data / "train.txt").write_text("\n".join([*lines, "", ""]))
    (data / "valid.txt").write_text("\n".join([*lines, " "]))
    line = options(data, tmp_path / "x", "encoder.num_heads=2", "pretraining.max_steps=2", preset="transformer-custom")
    code, _, err = recur("pretrain", *line, "--quiet")
    assert (code, "recur: warning: dev: 30 of 30 lines are in the training lines" in err) == (0, True)
    code, out, err = recur("eval", tmp_path / "x", "--data", data / "train.txt", "--json", "--quiet")
    assert "recur: warning: 30 of 30 lines are in the training lines (equal or nearly equal texts), 30 in" in err
    assert (code, json.loads(out)["training_rows"]) == (0, 30)
    (data / "test.txt").write_text("\n".join([*lines[:2], *(f"w1 {line}" for line in lines)]))
    code, _, err = recur("eval", tmp_path / "x", "--split", "test", "--json", "--quiet")
    assert (code, err) == (0, ""), "lines repeat by themselves"
    assert "recur: 2 of 32 lines are in" in recur("eval", tmp_path / "x", "--data", data / "test.txt")[2]


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
    assert recur("pretrain", *options(treebank, tmp_path / "one", *more), "--quiet")[0] == 0
    done = completed(command("pretrain", *options(treebank, tmp_path / "two", *more)))
    assert done.returncode == 0, done.stderr.decode()
    one, two = (json.loads((tmp_path / name / "result.json").read_text())["dev"] for name in ("one", "two"))
    assert two == pytest.approx(one, rel=1e-5)
    scored = completed(command("eval", tmp_path / "two", "--json", "--quiet"))
    assert json.loads(scored.stdout)["perplexity"] == pytest.approx(two["perplexity"], rel=1e-6)


@pytest.fixture(scope="module")
def models(treebank: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seeds of each of two sizes, after two steps."""
    folder = tmp_path_factory.mktemp("models") / "runs"
    for size in (8, 16):
        for seed in (1, 2):
            given = options(treebank, folder, "pretraining.max_steps=2", f"encoder.hidden_size={size}")
            settings = [*(str(part) for part in given[6:] if part != "--set"), f"runtime.seed={seed}"]
            resolved = compose("rsa-ptb", data=treebank, settings=settings)
            pretrain(TrainingRequest(resolved, folder / f"{size}-{seed}"), Kept())
    return folder


def test_language_models_are_compared_by_the_perplexity_of_their_dev_text(
    recur: Recur, models: Path, tmp_path: Path
) -> None:
    code, out, err = recur("compare", models, "--json", "--output", tmp_path / "table.csv")
    assert code == 0, err
    found = json.loads(out)
    results = {name: json.loads((models / name / "result.json").read_text()) for name in ("8-1", "8-2", "16-1", "16-2")}
    stored = {size: [results[f"{size}-{seed}"]["dev"]["perplexity"] for seed in (1, 2)] for size in (8, 16)}
    order = sorted(stored, key=lambda size: sum(stored[size]))
    assert [group["values"]["encoder.hidden_size"] for group in found["groups"]] == order
    for group, size in zip(found["groups"], order, strict=True):
        assert group["scores"] == pytest.approx(stored[size], rel=1e-9)
        assert group["best"] == min(group["scores"])
        assert group["interval"] is None or group["interval"][0] < group["mean"] < group["interval"][1]
    (test,) = found["tests"]
    assert test["difference"] == pytest.approx((sum(stored[order[0]]) - sum(stored[order[1]])) / 2)
    assert (found["metric"], found["baselines"], found["unfinished"]) == ("perplexity", [], [])
    assert (found["rows"], test["test"]) == (results["8-1"]["dev"]["tokens"], "bootstrap")
    code, out, err = recur("compare", models, "--over", "encoder.hidden_size", "--plot", tmp_path / "x.svg")
    assert (code, "tokens of the dev text" in out) == (0, True), err
    assert f"{sum(stored[order[0]]) / 2:.2f} ±" in out
    code, _, err = recur("compare", models, "--split", "test")
    assert (code, err.count("leave out --split test")) == (2, 4), err
    for line, message in (
        (("--metric", "accuracy"), "--metric accuracy is one of classifiers"),
        (("--report", tmp_path / "x.html"), "--report is for classifiers"),
    ):
        code, _, err = recur("compare", models, *line, "--quiet")
        assert (code, err.count("\n"), message in err) == (2, 1, True), err


def test_language_models_of_other_tokens_or_with_changed_losses_are_not_compared(
    recur: Recur, models: Path, treebank: Path, tmp_path: Path
) -> None:
    runs = shutil.copytree(models, tmp_path / "runs")
    settings = ["pretraining.max_steps=1", "tokenizer.kind=char"]
    given = [str(part) for part in options(treebank, tmp_path)[6:] if part != "--set"]
    pretrain(TrainingRequest(compose("rsa-ptb", data=treebank, settings=[*given, *settings]), runs / "char"), Kept())
    code, _, err = recur("compare", runs, "--quiet")
    assert (code, "numbers of tokens of their dev texts are" in err) == (2, True), err
    shutil.rmtree(runs / "char")
    losses = json.loads((runs / "8-1" / "losses.dev.json").read_text())
    for change, message in (
        (losses | {"nats": [number + 1 for number in losses["nats"]]}, "but its predictions give"),
        (losses | {"tokens": losses["tokens"][:-1]}, "losses.dev.json"),
    ):
        (runs / "8-1" / "losses.dev.json").write_text(json.dumps(change))
        extend_manifest(runs / "8-1", "losses.dev.json")
        code, _, err = recur("compare", runs / "8-1", runs / "16-1", "--quiet")
        assert (code, err.count("\n"), message in err) == (4, 1, True), err


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


@pytest.mark.parametrize("preset", slow_but(["lstm-ptb", "block-recurrent-transformer-ptb"], CARRYING))
def test_a_run_that_carries_is_resumed_in_the_middle_of_its_streams(
    preset: str, recur: Recur, treebank: Path, tmp_path: Path
) -> None:
    code, out, err = recur("pretrain", *carrying(treebank, tmp_path / "whole", preset), "--json")
    assert code == 0, err
    result, data = json.loads(out), json.loads(out)["data"]["train"]
    assert f"4 streams of {data['tokens'] // 4:,} tokens" in err
    windows = -(-(data["tokens"] // 4) // 8)
    assert (result["carry"], result["steps"]) == (True, 3 * windows)
    line = [str(part) for part in carrying(treebank, tmp_path, preset)]
    settings = [part for part in line[6:] if part != "--set"]
    resolved = compose(preset, data=treebank, settings=settings)
    drop_at_step(windows + 10, pretrain, TrainingRequest(resolved, tmp_path / "stopped"))
    newest = max((tmp_path / "stopped" / "checkpoints").iterdir())
    assert (newest / "carried.safetensors").is_file()
    assert json.loads((newest / "state.json").read_text())["resume_key"]["world size"] == 1
    code, _, err = recur("pretrain", *carrying(treebank, tmp_path / "stopped", preset), "--resume")
    assert (code, "resumed at step" in err) == (0, True), err
    assert sha256_of(tmp_path / "stopped" / "model.safetensors") == sha256_of(tmp_path / "whole" / "model.safetensors")
    code, out, err = recur("eval", tmp_path / "whole", "--json", "--quiet", "--batch-size", "3")
    found = json.loads(out)
    assert (found["carry"], found["tokens"]) == (True, result["dev"]["tokens"])
    assert found["perplexity"] == pytest.approx(result["dev"]["perplexity"], rel=1e-6)
    code, out, err = recur("eval", tmp_path / "whole", "--diagnose")
    assert "state carried over windows" in out
    assert f"{found['perplexity']:.2f}" in out
    assert "the diagnosis is of windows alone: each begins without a carried state" in err
    other = carrying(treebank, tmp_path / "stopped", preset, "pretraining.batch_size=2")
    code, _, err = recur("pretrain", *other, "--resume")
    assert (code, "pretraining.batch_size was 4 and is now 2" in err) == (2, True), err


def test_a_training_without_a_second_window_says_that_it_carries_nothing(
    recur: Recur, treebank: Path, tmp_path: Path
) -> None:
    more = ("pretraining.batch_size=40", "data.max_length=64", "pretraining.max_steps=1")
    code, _, err = recur("pretrain", *carrying(treebank, tmp_path / "run", "lstm-ptb", *more))
    assert code == 0, err
    assert "a stream has no second window of 64 tokens, so the training carries no state" in err


def test_what_cannot_be_carried_is_refused_in_one_line(
    recur: Recur, treebank: Path, tiny_tnews: Path, tmp_path: Path
) -> None:
    cases = [
        (["--preset", "transformer-ptb", "--data", treebank], (), "encoder transformer: it has no state to carry"),
        (["--preset", "lstm-ptb", "--data", treebank], ("pretraining.objective=masked",), "with objective masked"),
        (["--preset", "truncated-lstm-tnews", "--data", tiny_tnews], CAUSAL, "takes a running text, and the data are"),
        (["--preset", "lstm-ptb", "--data", treebank], ("pretraining.batch_size=99999",), "makes 99,999 streams of"),
        (["--preset", "lstm-ptb", "--data", treebank], ("runtime.compile=true",), "is not compiled"),
        (["--preset", "lstm-ptb", "--data", treebank], ("embedding.ngrams={}",), "n-grams of the embedding end where"),
    ]
    for line, settings, message in cases:
        every = tiny("encoder.num_heads=2" if "transformer" in str(line[1]) else "encoder.hidden_size=16")
        more = [part for setting in ("pretraining.carry=true", *settings) for part in ("--set", setting)]
        code, _, err = recur("pretrain", *line, "--output", tmp_path / "x", *every, *more)
        errors = [line for line in err.splitlines() if line.startswith("recur: error")]
        assert (code, len(errors), message in err) == (2, 1, True), err
    assert not (tmp_path / "x").exists()


@pytest.mark.slow
def test_two_processes_carry_as_one_does(recur: Recur, treebank: Path, tmp_path: Path) -> None:
    for preset in CARRYING:
        more = ("encoder.dropout=0", "embedding.dropout=0", "pretraining.batch_size=3")
        name = preset.partition("-")[0]
        code, _, err = recur("pretrain", *carrying(treebank, tmp_path / name, preset, *more), "--quiet")
        assert code == 0, err
        ended = completed(command("pretrain", *carrying(treebank, tmp_path / f"{name}2", preset, *more), "--quiet"))
        assert ended.returncode == 0, ended.stderr.decode()
        one, two = (
            json.loads((tmp_path / run / "result.json").read_text())["dev"]["loss"] for run in (name, f"{name}2")
        )
        assert two == pytest.approx(one, rel=1e-4)
    line = carrying(treebank, tmp_path / "alone", "lstm-ptb")
    resolved = compose("lstm-ptb", data=treebank, settings=[str(part) for part in line[6:] if part != "--set"])
    drop_at_step(10, pretrain, TrainingRequest(resolved, tmp_path / "alone"))
    ended = completed(command("pretrain", *line, "--resume"))
    assert b"cannot be resumed: world size was 1 and is now 2" in ended.stderr
    code, _, err = recur("pretrain", *line, "--resume", "--quiet")
    assert code == 0, err


def test_a_language_model_is_diagnosed(recur: Recur, model: Path, tmp_path: Path) -> None:
    code, out, err = recur("eval", model, "--diagnose", "--plots", tmp_path / "plots.svg", "--json")
    assert code == 0, err
    diagnosis = json.loads(out)["diagnosis"]
    assert [layer["layer"] for layer in diagnosis["layers"]] == [1, 2]
    assert "gradient norm by distance" in (tmp_path / "plots.svg").read_text()
    files = read_model(model)
    language_model = build_trained_language_model(files, torch.device("cpu"))
    texts = load_texts(task_named("ptb"), "dev", RunDirectory(model).read_data_config())
    length = files.config.max_length
    stream = encode_stream(texts.texts, files.tokenizer).tolist()
    rows = [[files.tokenizer.separator_id, *stream][start : start + length] for start in range(0, len(stream), length)]
    following = [stream[start : start + length] for start in range(0, len(stream), length)]
    norms = []
    for row, targets in zip(rows, following, strict=True):
        if len(row) < length:
            continue  # shorter than the median
        x = language_model.embedding(torch.tensor([row])).detach().requires_grad_()
        last = language_model.encoder(x)[:, -1]
        logits = language_model.token_logits(last, language_model.embedding.output_weight())
        loss = torch.nn.functional.cross_entropy(logits, torch.tensor(targets[-1:]))
        norms.append(torch.autograd.grad(loss, x)[0][0].norm(dim=-1))
    expected = torch.stack(norms[:32]).mean(dim=0).flip(0)
    assert diagnosis["gradient_norm_by_distance"] == pytest.approx(expected.tolist(), rel=1e-4)
    code, out, err = recur("eval", model, "--diagnose")
    assert (code, "positions back" in out, "perplexity" in out) == (0, True, True), err


@pytest.mark.parametrize(("length", "told"), [(8, False), (6, True), (3, False)])
def test_a_carried_run_says_whether_its_windows_fit_the_segments_and_not_that_it_has_no_memory(
    length: int, told: bool, recur: Recur, treebank: Path, tmp_path: Path
) -> None:
    more = (f"data.max_length={length}", "pretraining.max_steps=1")
    code, _, err = recur("pretrain", *carrying(treebank, tmp_path / "x", "transformer-xl-ptb", *more))
    assert (code, "is no multiple of the encoder's 4 tokens" in err, "not used" in err) == (0, told, False), err
