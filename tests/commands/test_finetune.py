"""`recur finetune` and `recur pretrain` from the command line: what they write, and what bad input does."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from cases import slow_but
from running import Recur, handlers_kept, lines_of, result_of, saved
from safetensors.torch import load_file
from tiny_task import rows, tiny, write_rows

from recurcli.cli import run
from recurcli.files import sha256_of
from recurcli.runs.network_files import read_model


def options(data: Path, output: Path, *more: str) -> list[object]:
    return ["--preset", "starsaber-tnews", "--data", data, "--output", output, *tiny(*more)]


@pytest.fixture(scope="module")
def pretrained(tiny_tnews: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished pre-training on the small TNEWS, with all of its splits."""
    output = tmp_path_factory.mktemp("pretrained") / "x"
    with handlers_kept():
        assert run(["pretrain", *map(str, options(tiny_tnews, output)), "--quiet"]) == 0
    assert set(result_of(output)["data"]) == {"train", "dev", "test"}
    return output


def test_a_run_directory_holds_all_that_its_model_needs(trained: Path) -> None:
    model = "preset.yaml config.json model.safetensors tokenizer.json linear.safetensors kept.json manifest.json"
    facts = "training_rows.safetensors metrics.jsonl predictions.dev.jsonl result.json README.md checkpoints"
    assert {path.name for path in trained.iterdir()} == {*model.split(), *facts.split()}
    result = result_of(trained)
    assert result["dev"]["accuracy"] > 0.9
    lines = lines_of(trained / "predictions.dev.jsonl")
    assert len(lines) == result["data"]["dev"]["rows"] == 24
    right = sum(line["label"] == line["prediction"] for line in lines) / len(lines)
    assert right == pytest.approx(result["dev"]["accuracy"])
    assert all(sum(line["probabilities"].values()) == pytest.approx(1) for line in lines)
    assert "recur predict" in (trained / "README.md").read_text()
    assert len(list((trained / "checkpoints").iterdir())) == 2


@pytest.mark.parametrize("command", ["pretrain", "finetune"])
def test_checkpoints_are_deleted_unless_kept(command: str, recur: Recur, tiny_tnews: Path, tmp_path: Path) -> None:
    short = ("finetuning.max_steps=3", "pretraining.max_steps=3", "finetuning.linear_baseline=false", "ensemble=null")
    run = tmp_path / "x"
    arguments = [command, *options(tiny_tnews, run, *short)]
    recur.ok(*arguments, "--keep-checkpoints")
    kept = sorted((run / "checkpoints").iterdir())
    assert "is already finished; nothing to do" in recur.ok(*arguments, "--resume")[1]
    assert sorted((run / "checkpoints").iterdir()) == kept, "a resume without the option leaves what is kept"
    recur.ok(*arguments, "--overwrite")
    assert not (run / "checkpoints").exists()
    assert "is already finished; nothing to do" in recur.ok(*arguments, "--resume")[1]
    assert not [path.name for path in run.iterdir() if path.name.startswith(".")]


def test_the_resolved_preset_repeats_the_run(recur: Recur, trained: Path, tmp_path: Path) -> None:
    recur.ok("finetune", "--preset", trained / "preset.yaml", "--output", tmp_path / "again", "--quiet")
    assert sha256_of(tmp_path / "again" / "model.safetensors") == sha256_of(trained / "model.safetensors")


def test_finetuning_starts_from_pretraining(recur: Recur, pretrained: Path, tiny_tnews: Path, tmp_path: Path) -> None:
    step = options(tiny_tnews, tmp_path / "x", "finetuning.max_steps=1")
    _, err = recur.ok("finetune", *step, "--init", pretrained, "--verbose")
    assert f"starting from {pretrained}, with its tokenizer" in err
    before, after = (read_model(run).of_encoder() for run in (pretrained, tmp_path / "x"))
    assert before.tokenizer.to_json() == after.tokenizer.to_json()
    difference = (before.tensors["embedding.weight"] - after.tensors["embedding.weight"]).abs().max()
    assert 0 < difference < 0.011, "one step of 1e-2 away from where pre-training ended"


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("encoder.num_layers=3", "encoder.num_layers was 2 and is now 3"),
        ("embedding.orthonormal=true", "embedding.orthonormal was "),
    ],
)
def test_a_pretrained_run_of_another_model_is_refused(
    setting: str, reason: str, recur: Recur, pretrained: Path, tiny_tnews: Path, tmp_path: Path
) -> None:
    other = options(tiny_tnews, tmp_path / "x", setting)
    recur.refused(2, reason, "finetune", *other, "--init", pretrained)
    assert not (tmp_path / "x").exists()


def test_unknown_tokens_are_a_warning(recur: Recur, pretrained: Path, tiny_tnews: Path, tmp_path: Path) -> None:
    for split in ("train", "dev"):
        rows = lines_of(tiny_tnews / f"{split}.json")
        english = [{**row, "sentence": f"plain English, number {number}"} for number, row in enumerate(rows)]
        write_rows(tmp_path / f"{split}.json", english)
    step = options(tmp_path, tmp_path / "x", "finetuning.max_steps=1")
    assert "% of the tokens are not in the vocabulary" in recur.ok("finetune", *step, "--init", pretrained)[1]


def test_dev_batches_are_micro_batches(
    recur: Recur, tiny_tnews: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from recurcli.network import Classifier

    sizes, forward = set(), Classifier.forward

    def watched(self: Classifier, ids: Any, mask: Any, **more: Any) -> Any:
        sizes.add((self.training, len(ids)))
        return forward(self, ids, mask, **more)

    monkeypatch.setattr(Classifier, "forward", watched)
    accumulated = "finetuning.gradient_accumulation_steps=2"
    more = [*options(tiny_tnews, tmp_path / "x", accumulated, "finetuning.max_steps=2"), "--batch-size", 10]
    recur.ok("finetune", *more, "--quiet")
    assert max(size for training, size in sizes if training) == 5
    assert max(size for training, size in sizes if not training) == 5


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--preset", "starsaber-tnew"], 2, "did you mean 'starsaber-tnews'?"),
        (["--preset", "starsaber-tnews", "--set", "finetuning.epoch=3"], 2, "did you mean 'finetuning.epochs'?"),
        (["--preset", "starsaber-tnews", "--set", "encoder.num_heads=3"], 2, "the encoder starsaber has no such key"),
        (["--preset", "starsaber-tnews", "--set", "encoder.hidden_size=-1"], 2, "encoder.hidden_size: -1 should"),
        (["--preset", "bilstm-tnews", "--set", "encoder.hidden_size=7"], 2, "hidden_size"),
        (["--preset", "starsaber-tnews", "--device", "tpu"], 2, "is unknown"),
        (["--preset", "starsaber-tnews", "--data", "empty"], 3, "has no train rows (looked for train.json"),
        (["--preset", "starsaber-tnews", "--data", "label"], 3, "train.json:2: label '117' is not one of tnews' 15 labels"),
        (["--preset", "starsaber-tnews", "--data", "column"], 3, "train.json:1: has no 'sentence'; did you mean 'sentense'?"),
        (
            ["--preset", "truncated-rnn-tnews", "--set", "runtime.checkpoint_layers=true"],
            2,
            "runtime.checkpoint_layers: encoder truncated-rnn: its layers cannot be recomputed one by one; set it to false",
        ),
        (["--preset", "starsaber-tnews", "--set", "embedding.vectors=nowhere.txt"], 3, "nowhere.txt: does not exist"),
        (["--preset", "starsaber-tnews", "--set", "tokenizer.vocabulary=nowhere.txt"], 3, "nowhere.txt: does not exist"),
        (["--preset", "bilstm-tnews-vectors", "--dry-run"], 2, "embedding.vectors: this preset is for pre-trained word"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line_with_the_way_out(
    arguments: list[str],
    code: int,
    message: str,
    recur: Recur,
    tiny_tnews: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    for name, row in (("label", {"sentence": "a", "label": "117"}), ("column", {"sentense": "a", "label": "100"})):
        (tmp_path / name).mkdir()
        good: dict[str, object] = {"sentence": "a", "label": "100"}
        write_rows(tmp_path / name / "train.json", [good, row] if name == "label" else [row, row])
        write_rows(tmp_path / name / "dev.json", [good])
    data = [] if "--data" in arguments else ["--data", tiny_tnews]
    recur.refused(code, message, "finetune", *arguments, *data, "--output", "x")
    assert not (tmp_path / "x").exists(), "nothing is left behind"


def test_classes_without_a_dev_row_are_named(recur: Recur, tiny_tnews: Path, tmp_path: Path) -> None:
    _, err = recur.ok("finetune", *options(tiny_tnews, tmp_path / "run", "finetuning.max_steps=1"), "--verbose")
    assert "no dev row for 12 of 15 classes ('103', '104', '106', '107', " in err
    assert "no row for 12 of 15 classes ('103'," in recur.ok("eval", tmp_path / "run", "--verbose")[1]


@pytest.mark.parametrize(
    ("text", "kind"), [("{animal}年第{n}天", "char"), ("the text number {n} {word}", "wordpiece")], ids=["zh", "en"]
)
def test_auto_settles_tokens_and_length_by_the_texts(text: str, kind: str, recur: Recur, tmp_path: Path) -> None:
    texts = [text.format(n=n, animal="鼠牛"[n % 2], word=("bad", "good")[n % 2]) for n in range(60)]
    write_tsv(tmp_path / "x.tsv", texts)
    data = (
        "--data",
        tmp_path / "x.tsv",
        "--output",
        tmp_path / "x",
        "--set",
        "encoder.hidden_size=16",
        "--set",
        "finetuning.encoder=always",
    )
    _, err = recur.ok("finetune", "--preset", "starsaber-custom", *data, "--set", "finetuning.max_steps=1", "--verbose")
    assert f"tokenizer.kind auto: {kind}" in err
    assert "data.max_length auto: 8 tokens" in err
    assert json.loads((tmp_path / "x" / "config.json").read_text())["network"]["max_length"] == 8


def notes_of_dry_run(recur: Recur, folder: Path) -> str:
    """The notes of a training of an encoder on the rows of x.tsv."""
    keys = ("--set", "encoder.hidden_size=16", "--set", "finetuning.encoder=always")
    line = ("finetune", "--preset", "starsaber-custom", "--data", folder / "x.tsv", "--output", folder / "x", *keys)
    return recur.ok(*line, "--dry-run", "--verbose")[1]


def test_auto_measures_a_sample_of_a_whole_file(recur: Recur, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tsv(tmp_path / "x.tsv", [f"{'字' * (5 + n // 5)}{n % 10}" for n in range(200)])
    monkeypatch.setattr("recurcli.models.build.ROWS_COUNTED", 20)
    err = notes_of_dry_run(recur, tmp_path)
    assert "data.max_length auto: 48 tokens" in err


def test_auto_is_a_length_for_texts_that_train_no_vocabulary_and_check_names_the_same(
    recur: Recur, tmp_path: Path
) -> None:
    words = [f"{n * 7919 % 100003:05d}".translate(str.maketrans("0123456789", "abcdefghij")) for n in range(1, 201)]
    write_tsv(tmp_path / "x.tsv", [f"{word} " * 4 for word in words])
    err = notes_of_dry_run(recur, tmp_path)
    assert "data.max_length auto: 24 tokens" in err, "4 tokens each where the vocabulary has the words"
    preset = saved(tmp_path / "mine.yaml", "extends: starsaber-custom\nfinetuning: {encoder: always}\n")
    (report,) = recur.json("check", tmp_path / "x.tsv", "--preset", preset)["reports"]
    assert report["tokens"]["max_length"] == 24
    assert report["splits"][0]["lengths"]["median"] == 4


def write_tsv(path: Path, texts: list[str]) -> None:
    """Write texts with the labels a and b in turn."""
    rows = "".join(f"{text}\t{'ab'[n % 2]}\n" for n, text in enumerate(texts))
    path.write_text(f"text\tlabel\n{rows}", encoding="utf-8")


def test_a_run_keeps_which_tokens_of_a_long_row_its_encoder_reads(
    recur: Recur, tiny_tnews: Path, tmp_path: Path
) -> None:
    settings = ("data.max_length=8", "data.truncate=tail", "finetuning.max_steps=2", "ensemble=null")
    _, err = recur.ok("finetune", *options(tiny_tnews, tmp_path / "run", *settings), "--verbose")
    assert re.search(r"train: \d+ rows \(\d+\.\d%\) cut to data.max_length 8 \(data.truncate tail\)\n", err)
    assert json.loads((tmp_path / "run" / "config.json").read_text())["network"]["truncate"] == "tail"
    (tmp_path / "x.txt").write_text("".join(f"{start * 20}龙蛇马羊龙蛇马羊\n" for start in ("", "鼠", "猴")))
    out, err = recur.ok("predict", tmp_path / "run", tmp_path / "x.txt", "--format", "jsonl")
    assert len({json.loads(line)["score"] for line in out.splitlines()}) == 1
    assert "recur: 2 rows (66.7%) cut to the model's 8 tokens (data.truncate tail)\n" in err


def test_dev_and_test_rows_that_are_no_training_rows_are_scored_beside_all(
    recur: Recur, tiny_tnews: Path, tmp_path: Path
) -> None:
    lines = [(tiny_tnews / f"{split}.json").read_text().splitlines(keepends=True) for split in ("train", "dev")]
    for name, known, new in (("dev", 9, lines[1][:11]), ("test", 5, lines[1][11:])):
        (tmp_path / f"{name}.json").write_text("".join([*lines[0][:known], *new]))
    files = ("--dev", tmp_path / "dev.json", "--test", tmp_path / "test.json")
    arguments = options(tiny_tnews, tmp_path / "run", "finetuning.max_steps=1")
    out, _ = recur.ok("finetune", *arguments, *files)
    result, seen = result_of(tmp_path / "run"), {json.loads(line)["sentence"] for line in lines[0]}
    for scores, known, split in ((result, 9, "dev"), (result["test"], 5, "test")):
        rows = [json.loads(line)["sentence"] for line in (tmp_path / f"{split}.json").read_text().splitlines()]
        unseen = sum(text not in seen for text in rows)
        assert scores["unseen"]["rows"] == unseen <= len(rows) - known
        accuracy = f"{100 * scores['unseen']['accuracy']:.1f}"
        note = f"{len(rows) - unseen} of the {len(rows)} {split} rows were trained on; the "
        for text in (out, (tmp_path / "run" / "README.md").read_text()):
            assert re.search(rf"{note}.* has {accuracy} on the {unseen} others\.", text)


def test_layers_that_are_computed_again_give_the_same_model(recur: Recur, tiny_tnews: Path, tmp_path: Path) -> None:
    for name in ("false", "true"):
        settings = ("ensemble=null", "finetuning.max_steps=3", f"runtime.checkpoint_layers={name}")
        recur.ok("finetune", *options(tiny_tnews, tmp_path / name, *settings), "--precision", "fp32")
    one, two = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("false", "true"))
    assert one == two


def test_few_rows_of_a_long_dev_file_choose_the_step_and_all_are_scored(
    recur: Recur, tiny_tnews: Path, tmp_path: Path
) -> None:
    settings = ("data.max_dev_rows=8", "ensemble=null", "finetuning.linear_baseline=false")
    out, err = recur.ok("finetune", *options(tiny_tnews, tmp_path / "run", *settings), "--json", "--verbose")
    assert "8 of 24 dev rows choose the step (data.max_dev_rows); in the end all are scored" in err
    scores = [line["dev_metric"] for line in lines_of(tmp_path / "run" / "metrics.jsonl") if "dev_metric" in line]
    assert scores and all(8 * score == round(8 * score) for score in scores)
    assert sum(map(sum, json.loads(out)["dev"]["confusion"])) == 24


def test_a_score_below_a_baseline_is_told(recur: Recur, tiny_tnews: Path, tmp_path: Path) -> None:
    settings = ("finetuning.max_steps=1", "finetuning.learning_rate=1e-30")
    out, err = recur.ok("finetune", *options(tiny_tnews, tmp_path / "run", *settings), "--json", "--verbose")
    result = json.loads(out)
    accuracy, baselines = result["parts"]["encoder"]["accuracy"], result["baselines"]
    assert accuracy < baselines["majority"] < baselines["linear"] <= result["dev"]["accuracy"]
    assert f"the encoder's accuracy, {100 * accuracy:.1f}, is below that of the majority class (" in err
    out, err = recur.ok("finetune", *options(tiny_tnews, tmp_path / "alone", *settings, "ensemble=null"), "--json")
    accuracy = json.loads(out)["dev"]["accuracy"]
    assert accuracy < baselines["linear"]
    assert f"the accuracy, {100 * accuracy:.1f}, is below that of the" in err


@pytest.mark.parametrize("command", ["pretrain", "finetune"])
def test_rows_beyond_the_encoder_are_refused(command: str, recur: Recur, tiny_tnews: Path, tmp_path: Path) -> None:
    settings = ["--set", "data.max_length=auto", "--set", "encoder.max_length=3"]
    line = ["--preset", "linformer-tnews", "--data", tiny_tnews, "--output", tmp_path / "x", *settings]
    recur.refused(2, "encoder.max_length 3 is below data.max_length ", command, *line)


@pytest.mark.parametrize("name", slow_but(["linformer"], ["linformer", "synthesizer"]))
def test_an_encoder_may_read_just_the_longest_row(name: str, recur: Recur, tiny_tnews: Path, tmp_path: Path) -> None:
    settings = ["--set", "data.max_length=6", "--set", "encoder.max_length=6", "--set", "encoder.hidden_size=16"]
    line = ["--preset", f"{name}-tnews", "--data", tiny_tnews, "--output", tmp_path / "x", *settings]
    recur.ok("finetune", *line, "--epochs", "1")
    assert recur.json("eval", tmp_path / "x", "--diagnose")["rows"] > 0


@pytest.mark.parametrize(
    ("name", "length", "below"),
    [("bigbird", 24, 704), ("informer", 8, 86), ("informer", 96, None), ("transformer-xl", 129, None)],
)
def test_an_encoder_that_is_another_on_these_rows_says_so(
    name: str, length: int, below: int | None, recur: Recur, tiny_tnews: Path, tmp_path: Path
) -> None:
    settings = ["--set", f"data.max_length={length}", "--set", "encoder.hidden_size=16"]
    line = ["--preset", f"{name}-tnews", "--data", tiny_tnews, "--output", tmp_path / "x", *settings, "--dry-run"]
    _, err = recur.ok("finetune", *line)
    said = f"{name}: a text below {below} tokens is too short for it, and data.max_length is {length}"
    assert (said in err) if below else ("too short for it" not in err)


def test_the_metric_of_one_label_selects_and_is_shown(recur: Recur, tiny_tnews: Path, tmp_path: Path) -> None:
    arguments = ["finetune", "--preset", "starsaber-tnews", "--data", tiny_tnews, "--output", tmp_path / "run"]
    out, err = recur.ok(*arguments, *tiny("finetuning.max_steps=2", "ensemble=linear", "finetuning.metric=f1:101"))
    result = result_of(tmp_path / "run")
    score = f"{100 * result['dev']['per_class']['101']['f1']:.1f}"
    assert result["metric"] == "f1:101"
    assert re.search(rf"  F1 of 101 on 24 dev rows: [a-z ]+ {score}, ", out)
    assert "dev F1 of 101 of the linear model" in err
    assert result["linear_baseline"]["dev"]["f1:101"] == result["parts"]["linear"]["f1:101"]


@pytest.mark.parametrize(
    ("metric", "reason"),
    [("recall:11", "metric recall:11: unknown label '11'"), ("f2:101", "not 'f2:101'"), ("f1:", "not 'f1:'")],
)
def test_a_metric_that_does_not_exist_is_refused_before_anything_is_written(
    metric: str, reason: str, recur: Recur, tiny_tnews: Path, tmp_path: Path
) -> None:
    arguments = ["finetune", "--preset", "starsaber-tnews", "--data", tiny_tnews, "--output", tmp_path / "run"]
    recur.refused(2, reason, *arguments, *tiny(f"finetuning.metric={metric}"))
    assert not (tmp_path / "run").exists()


def test_a_metric_that_the_dev_rows_do_not_define_is_refused(recur: Recur, tiny_tnews: Path, tmp_path: Path) -> None:
    one = [row for row in rows(200, seed=3, labelled=True) if row["label"] == "101"]
    write_rows(tmp_path / "dev.json", one)
    arguments = ["finetune", "--preset", "starsaber-tnews", "--output", tmp_path / "run"]
    files = ["--train", tiny_tnews / "train.json", "--dev", tmp_path / "dev.json"]
    settings = tiny("finetuning.metric=roc_auc", "finetuning.score_test=false")
    recur.refused(2, f"all {len(one)} dev rows have the label '101'", *arguments, *files, *settings)


def test_a_frozen_encoder_keeps_its_first_weights(tiny_tnews: Path, tmp_path: Path, recur: Recur) -> None:
    weights = {}
    for steps in (1, 3):
        run = tmp_path / str(steps)
        settings = tiny("ensemble=null", "encoder.freeze=true", f"finetuning.max_steps={steps}")
        recur.ok("finetune", "--preset", "starsaber-tnews", "--data", tiny_tnews, *settings, "--output", run, "--quiet")
        weights[steps] = load_file(run / "model.safetensors")
    for name, before in weights[1].items():
        assert torch.equal(before, weights[3][name]) is name.startswith("encoder."), name


def test_a_pretrained_encoder_is_frozen(pretrained: Path, tiny_tnews: Path, tmp_path: Path, recur: Recur) -> None:
    more = ("ensemble=null", "encoder.freeze=true")
    recur.ok("finetune", *options(tiny_tnews, tmp_path / "x", *more), "--init", pretrained, "--quiet")
    before, after = (load_file(run / "model.safetensors") for run in (pretrained, tmp_path / "x"))
    encoder = [name for name in before if name.startswith("encoder.")]
    assert encoder and all(torch.equal(before[name], after[name]) for name in encoder)
    assert not torch.equal(before["embedding.weight"], after["embedding.weight"])
