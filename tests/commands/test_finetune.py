"""`recur finetune` and `recur pretrain` from the command line: what they write, and what bad input does."""

import json
import os
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cases import slow_but
from tiny_task import tiny, write_rows

from recurcli.files import locked, sha256_of
from recurcli.runs.model_files import read_model

Recur = Callable[..., tuple[int, str, str]]


def options(data: Path, output: Path, *more: str) -> list[object]:
    return ["--preset", "starsaber-tnews", "--data", data, "--output", output, *tiny(*more)]


def test_a_run_directory_holds_all_that_its_model_needs(trained: Path) -> None:
    present = {path.name for path in trained.iterdir()}
    assert present == {
        *("preset.yaml", "config.json", "model.safetensors", "tokenizer.json", "linear.safetensors", "ensemble.json"),
        "training_rows.safetensors",
        *(
            "manifest.json",
            "metrics.jsonl",
            "predictions.dev.jsonl",
            "result.json",
            "README.md",
            "checkpoints",
            ".lock",
        ),
    }
    result = json.loads((trained / "result.json").read_text())
    assert result["dev"]["accuracy"] > 0.9
    lines = [json.loads(line) for line in (trained / "predictions.dev.jsonl").read_text().splitlines()]
    assert len(lines) == result["data"]["dev"]["rows"] == 24
    right = sum(line["label"] == line["prediction"] for line in lines) / len(lines)
    assert right == pytest.approx(result["dev"]["accuracy"])
    assert all(sum(line["probabilities"].values()) == pytest.approx(1) for line in lines)
    assert "recur predict" in (trained / "README.md").read_text()
    assert len(list((trained / "checkpoints").iterdir())) == 2


@pytest.mark.parametrize("command", ["pretrain", "finetune"])
def test_a_finished_run_has_no_checkpoints_unless_they_are_kept(
    command: str, recur: Recur, tiny_tnews: Path, tmp_path: Path
) -> None:
    short = ("finetuning.max_steps=3", "pretraining.max_steps=3", "finetuning.linear_baseline=false", "ensemble=null")
    arguments = [command, *options(tiny_tnews, tmp_path / "x", *short), "--quiet"]
    run = tmp_path / "x"
    assert recur(*arguments, "--keep-checkpoints")[0] == 0
    kept = sorted((run / "checkpoints").iterdir())
    code, _, err = recur(*arguments[:-1], "--resume")
    assert (code, "is already finished; nothing to do" in err) == (0, True)
    assert sorted((run / "checkpoints").iterdir()) == kept, "a resume without the option leaves what is kept"
    assert recur(*arguments, "--overwrite")[0] == 0
    assert not (run / "checkpoints").exists()
    code, _, err = recur(*arguments[:-1], "--resume")
    assert (code, "is already finished; nothing to do" in err) == (0, True)
    assert not [path.name for path in run.iterdir() if path.name.startswith(".") and path.name != ".lock"]


def test_the_resolved_preset_repeats_the_run(recur: Recur, trained: Path, tmp_path: Path) -> None:
    code, _, err = recur("finetune", "--preset", trained / "preset.yaml", "--output", tmp_path / "again", "--quiet")
    assert code == 0, err
    assert sha256_of(tmp_path / "again" / "model.safetensors") == sha256_of(trained / "model.safetensors")


def test_finetuning_starts_from_a_pretrained_run(recur: Recur, tiny_tnews: Path, tmp_path: Path) -> None:
    pretrained = tmp_path / "pretrained"
    code, out, err = recur("pretrain", *options(tiny_tnews, pretrained), "--json")
    assert code == 0, err
    assert set(json.loads(out)["data"]) == {"train", "dev", "test"}
    code, out, err = recur(
        "finetune", *options(tiny_tnews, tmp_path / "x", "finetuning.max_steps=1"), "--init", pretrained, "--json"
    )
    assert code == 0, err
    before, after = read_model(pretrained), read_model(tmp_path / "x")
    assert before.tokenizer.to_json() == after.tokenizer.to_json()
    difference = (before.tensors["embedding.weight"] - after.tensors["embedding.weight"]).abs().max()
    assert 0 < difference < 0.011, "one step of 1e-2 away from where pre-training ended"


def test_a_pretrained_run_of_another_encoder_is_refused(recur: Recur, tiny_tnews: Path, tmp_path: Path) -> None:
    pretrained = tmp_path / "pretrained"
    assert recur("pretrain", *options(tiny_tnews, pretrained, "pretraining.max_steps=1"), "--quiet")[0] == 0
    other = options(tiny_tnews, tmp_path / "x", "encoder.num_layers=3")
    code, _, err = recur("finetune", *other, "--init", pretrained)
    assert code == 2
    assert "encoder.num_layers is 2, the preset's is 3" in err
    assert not (tmp_path / "x").exists()


def test_pretraining_reads_a_text_file(recur: Recur, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("天地玄黄\n宇宙洪荒\n" * 20, encoding="utf-8")
    code, out, err = recur("pretrain", *options(tmp_path / "text.txt", tmp_path / "x"), "--json", "--quiet")
    assert code == 0, err
    assert json.loads(out)["data"]["text"]["rows"] == 40


def test_word_vectors_are_used_and_frozen(recur: Recur, tiny_tnews: Path, tmp_path: Path) -> None:
    words = tmp_path / "words.txt"
    words.write_text("2 16\n" + "".join(f"{word} {' '.join(['0.25'] * 16)}\n" for word in "鼠龙"), encoding="utf-8")
    more = (f"embedding.vectors={words}", "embedding.freeze=true", "finetuning.epochs=1")
    code, _, err = recur("finetune", *options(tiny_tnews, tmp_path / "x", *more))
    assert code == 0, err
    assert "vectors for 2 of" in err
    trained = read_model(tmp_path / "x")
    place = [trained.tokenizer.tokens.index(word) for word in "鼠龙"]
    rows = trained.tensors["embedding.weight"][place]
    assert rows.std(dim=1).max() < 1e-6, "a frozen vector is still what it was, but for its length"


def test_a_dry_run_tells_what_would_run_and_writes_nothing(recur: Recur, tiny_tnews: Path, tmp_path: Path) -> None:
    code, out, err = recur("finetune", *options(tiny_tnews, tmp_path / "x"), "--dry-run", "--json", "--quiet")
    assert code == 0, err
    plan = json.loads(out)
    assert plan["steps"] == 16
    assert plan["parameters"]["encoder"] == 2 * (4 * 16 * 16 + 1)
    assert plan["forward_flops_per_token"] > 2 * 2 * 4 * 16 * 16
    assert not (tmp_path / "x").exists()
    assert "linear baseline" not in recur("finetune", *options(tiny_tnews, tmp_path / "x"), "--dry-run")[2]
    code, _, err = recur("finetune", *options(tiny_tnews, tmp_path / "x"), "--quiet", "--keep-checkpoints")
    assert code == 0, err
    checkpoint = max((tmp_path / "x" / "checkpoints").iterdir())
    size = sum(path.stat().st_size for path in checkpoint.glob("*.safetensors"))
    assert size == pytest.approx(plan["checkpoint_bytes"], rel=0.35)


def test_an_existing_run_is_refused_and_overwritten_only_when_told(
    recur: Recur, tiny_tnews: Path, tmp_path: Path
) -> None:
    command = ["finetune", *options(tiny_tnews, tmp_path / "x", "finetuning.epochs=1"), "--quiet"]
    assert recur(*command)[0] == 0
    before = (tmp_path / "x" / "result.json").read_bytes()
    code, _, err = recur(*command)
    assert code == 2
    assert "continue it with --resume, or replace it with --overwrite" in err
    assert (tmp_path / "x" / "result.json").read_bytes() == before
    assert recur(*command, "--overwrite", "--resume")[0] == 2
    (tmp_path / "x" / "notes.md").write_text("mine")
    assert recur(*command, "--overwrite")[0] == 0
    assert (tmp_path / "x" / "notes.md").read_text() == "mine"


def test_a_folder_with_other_things_is_never_written_to(recur: Recur, tiny_tnews: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    code, _, err = recur("finetune", *options(tiny_tnews, tmp_path), "--overwrite", "--quiet")
    assert code == 2
    assert "is not empty and is not a run directory" in err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_what_a_kill_left_half_written_is_no_obstacle(recur: Recur, tiny_tnews: Path, tmp_path: Path) -> None:
    run = tmp_path / "x"
    (run / ".checkpoints.a1b2.tmp").mkdir(parents=True)
    (run / ".preset.yaml.a1b2.tmp").write_text("half")
    code, _, err = recur("finetune", *options(tiny_tnews, run, "finetuning.epochs=1"), "--quiet", "--resume")
    assert code == 0, err
    assert not list(run.glob(".*.tmp"))


def test_dev_rows_are_evaluated_in_batches_that_the_memory_of_training_holds(
    recur: Recur, tiny_tnews: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from recurcli.model.models import Classifier

    sizes, forward = set(), Classifier.forward

    def watched(self: Classifier, ids: Any, mask: Any, whole: Any = None) -> Any:
        sizes.add((self.training, len(ids)))
        return forward(self, ids, mask, whole)

    monkeypatch.setattr(Classifier, "forward", watched)
    accumulated = "finetuning.gradient_accumulation_steps=2"
    more = [*options(tiny_tnews, tmp_path / "x", accumulated, "finetuning.max_steps=2"), "--batch-size", 10]
    code, _, err = recur("finetune", *more, "--quiet")
    assert code == 0, err
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
        (["--preset", "starsaber-tnews", "--device", "cuda:99"], 2, "is not available"),
        (["--preset", "starsaber-tnews", "--device", "tpu"], 2, "is unknown"),
        (["--preset", "starsaber-tnews", "--data", "nowhere"], 3, "does not exist; --data"),
        (["--preset", "starsaber-tnews", "--data", "empty"], 3, "has no train rows (looked for train.json"),
        (["--preset", "starsaber-tnews", "--data", "label"], 3, "train.json:2: label '117' is not one of tnews' 15 labels"),
        (["--preset", "starsaber-tnews", "--data", "column"], 3, "train.json:1: has no 'sentence'; did you mean 'sentense'?"),
        (["--preset", "starsaber-tnews", "--init", "nowhere"], 4, "nowhere: is not a run directory"),
        (["--preset", "starsaber-tnews", "--set", "embedding.vectors=nowhere.txt"], 3, "nowhere.txt: does not exist"),
        (["--preset", "starsaber-tnews", "--set", "tokenizer.vocabulary=nowhere.txt"], 3, "nowhere.txt: does not exist"),
        (["--preset", "bilstm-tnews-vectors", "--dry-run"], 2, "embedding.vectors: this preset is for pre-trained word"),
        (["--preset", "rezero-tnews-vectors", "--set", "embedding.vectors=no.txt"], 3, "no.txt: does not exist"),
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
        write_rows(tmp_path / name / "train.json", [good, row] if name == "label" else [row, row])  # type: ignore[list-item]
        write_rows(tmp_path / name / "dev.json", [good])
    data = [] if "--data" in arguments else ["--data", tiny_tnews]
    found, out, err = recur("finetune", *arguments, *data, "--output", "x")
    assert (found, out) == (code, ""), err
    assert message in err
    assert err.splitlines()[-1].startswith("recur: error: ")
    assert not (tmp_path / "x").exists(), "nothing is left behind"


def test_a_loss_that_is_not_finite_takes_no_step(
    recur: Recur, tiny_tnews: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from recurcli.training.objectives import ClassificationObjective

    steps = 0
    honest = ClassificationObjective.loss

    def poisoned(self: ClassificationObjective, *arguments: object) -> object:
        nonlocal steps
        steps += 1
        total, auxiliary = honest(self, *arguments)  # type: ignore[arg-type]
        return (total * torch.nan if steps == 11 else total), auxiliary

    monkeypatch.setattr(ClassificationObjective, "loss", poisoned)
    code, _, err = recur("finetune", *options(tiny_tnews, tmp_path / "x", "finetuning.checkpoint_every=2"), "--quiet")
    assert code == 6
    assert "step 11: loss nan" in err
    assert max((tmp_path / "x" / "checkpoints").iterdir()).name == "step-00000010"
    monkeypatch.undo()
    code, _, err = recur(
        "finetune", *options(tiny_tnews, tmp_path / "x", "finetuning.checkpoint_every=2"), "--quiet", "--resume"
    )
    assert code == 0, err


def test_the_baselines_stand_beside_the_dev_accuracy_and_the_linear_one_can_be_left_out(
    recur: Recur, tiny_tnews: Path, trained: Path, tmp_path: Path
) -> None:
    result = json.loads((trained / "result.json").read_text())
    assert result["baselines"].keys() == {"majority", "linear"}
    assert all(0 <= baseline <= 1 for baseline in result["baselines"].values())
    assert result["linear_baseline"]["rows"] == 60
    again = json.loads(recur("eval", trained, "--data", tiny_tnews, "--json", "--quiet")[1])
    assert again["baselines"] == result["baselines"]
    without = options(tiny_tnews, tmp_path / "run", "finetuning.linear_baseline=false", "ensemble=null")
    code, out, _ = recur("finetune", *without, "--quiet", "--json")
    assert code == 0
    assert json.loads(out)["baselines"].keys() == {"majority"}
    assert not (tmp_path / "run" / "linear.safetensors").exists()


def test_notes_say_what_a_result_may_owe_to_the_training(recur: Recur, tiny_tnews: Path, tmp_path: Path) -> None:
    settings = ("finetuning.epochs=9", "finetuning.learning_rate=1e-30", "finetuning.patience=2")
    code, _, err = recur("finetune", *options(tiny_tnews, tmp_path / "run", *settings))
    assert code == 0
    assert "12 of 15 classes have no dev row" in err
    assert "stopped early at step" in err


def test_rows_without_a_text_are_counted(recur: Recur, tmp_path: Path) -> None:
    rows = [f"{['good', 'bad'][n % 2]} day {n},{'ab'[n % 2]}\n" for n in range(60)]
    (tmp_path / "x.csv").write_text("text,label\n" + "".join(rows) + ",a\n  ,b\n,a\n")
    (tmp_path / "dev.csv").write_text("text,label\ngood,b\nfine,a\n")
    data = ("--train", tmp_path / "x.csv", "--dev", tmp_path / "dev.csv")
    code, _, err = recur("finetune", "--preset", "linear-custom", *data, "--output", tmp_path / "run")
    assert code == 0, err
    (note,) = [line for line in err.splitlines() if "empty text" in line]
    assert note.endswith("train: 3 rows have empty texts; `recur check` names the lines")


def test_auto_settles_tokens_and_length_by_the_texts(recur: Recur, tmp_path: Path) -> None:
    chinese = "".join(f"{'鼠牛'[n % 2]}年第{n}天\t{'ab'[n % 2]}\n" for n in range(60))
    english = "".join(f"the text number {n} {'good' if n % 2 else 'bad'}\t{'ab'[n % 2]}\n" for n in range(60))
    for name, rows, kind in (("zh", chinese, "char"), ("en", english, "wordpiece")):
        (tmp_path / f"{name}.tsv").write_text(f"text\tlabel\n{rows}", encoding="utf-8")
        arguments = ["--preset", "starsaber-custom", "--data", tmp_path / f"{name}.tsv", "--output", tmp_path / name]
        code, _, err = recur("finetune", *arguments, "--set", "encoder.hidden_size=16", "--set", "finetuning.epochs=1")
        assert code == 0, err
        assert f"tokenizer.kind auto: {kind}" in err
        assert "data.max_length auto: 8 tokens" in err
        assert json.loads((tmp_path / name / "config.json").read_text())["max_length"] == 8


def test_auto_measures_rows_from_the_whole_of_a_sorted_file(
    recur: Recur, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = "".join(f"{'字' * (5 + n // 5)}{n % 10}\t{'ab'[n % 2]}\n" for n in range(200))
    (tmp_path / "x.tsv").write_text(f"text\tlabel\n{rows}", encoding="utf-8")
    monkeypatch.setattr("recurcli.commands.training.resolve.ROWS_COUNTED", 20)
    options = ["--data", tmp_path / "x.tsv", "--output", tmp_path / "x", "--dry-run", "--set", "encoder.hidden_size=16"]
    code, _, err = recur("finetune", "--preset", "starsaber-custom", *options)
    assert code == 0, err
    assert "data.max_length auto: 48 tokens" in err


@pytest.mark.slow
def test_the_linear_floor_is_fitted_once_for_the_same_rows(
    recur: Recur, tiny_tnews: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def baseline_of(name: str) -> tuple[str, bytes]:
        code, _, err = recur("finetune", *options(tiny_tnews, tmp_path / name, "finetuning.epochs=1"))
        assert code == 0, err
        (line,) = [line for line in err.splitlines() if "linear model:" in line]
        return line, (tmp_path / name / "linear.safetensors").read_bytes()

    monkeypatch.setenv("RECUR_CACHE", str(tmp_path / "cache"))
    first, weights = baseline_of("a")
    assert "fitted in" in first
    second, again = baseline_of("b")
    assert "from the cache" in second
    assert again == weights
    (stored,) = (tmp_path / "cache").glob("*.linear.safetensors")
    stored.write_bytes(stored.read_bytes()[:-1])
    assert "fitted in" in baseline_of("c")[0], "a damaged file of the cache is made again"
    (tmp_path / "file").write_text("")
    for number, cache in enumerate((tmp_path / "file", "~no-such-user/cache")):
        monkeypatch.setenv("RECUR_CACHE", str(cache))
        third, again = baseline_of(f"d{number}")
        assert "fitted in" in third, "a cache that cannot be written is not needed"
        assert f"(not cached: {cache}" in third
        assert again == weights


def test_a_cache_that_others_may_write_to_is_closed_and_one_of_another_user_not_used(
    recur: Recur, tiny_tnews: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    cache.chmod(0o777)
    monkeypatch.setenv("RECUR_CACHE", str(cache))
    told = f"recur: warning: {cache}: others could write to this cache; only you can open it now (mode 0700)\n"
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        code, _, err = recur("finetune", *options(tiny_tnews, tmp_path / "a", "finetuning.epochs=1"))
    assert (code, err.count(told), err.count("others could write")) == (0, 1, 1), err
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    held = [*cache.iterdir()]
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        code, _, err = recur("finetune", *options(tiny_tnews, tmp_path / "b", "finetuning.epochs=1"))
    assert (code, [*cache.iterdir()]) == (0, held), err
    assert f"recur: warning: {cache}: belongs to another user or to all, so it is not used as a cache; " in err


def test_a_busy_cache_does_not_hold_up_a_training(
    recur: Recur, tiny_tnews: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECUR_CACHE", str(tmp_path / "cache"))
    assert recur("finetune", *options(tiny_tnews, tmp_path / "a", "finetuning.epochs=1"))[0] == 0
    (stored,) = (tmp_path / "cache").glob("*.linear.safetensors")
    stored.unlink()
    with locked(stored.with_name(f"{stored.name}.lock")):
        code, _, err = recur("finetune", *options(tiny_tnews, tmp_path / "b", "finetuning.epochs=1"))
    assert code == 0, err
    assert "fitted in" in err
    assert "(not cached: " in err


def test_texts_of_another_script_than_the_pretrained_tokenizer_are_a_warning(
    recur: Recur, tiny_tnews: Path, tmp_path: Path
) -> None:
    pretrained = tmp_path / "pretrained"
    assert recur("pretrain", *options(tiny_tnews, pretrained, "pretraining.max_steps=1"))[0] == 0
    for split in ("train", "dev"):
        rows = [json.loads(line) for line in (tiny_tnews / f"{split}.json").read_text().splitlines()]
        lines = [json.dumps({**row, "sentence": f"plain English, number {number}"}) for number, row in enumerate(rows)]
        (tmp_path / f"{split}.json").write_text("\n".join(lines) + "\n")
    code, _, err = recur("finetune", *options(tmp_path, tmp_path / "x", "finetuning.max_steps=1"), "--init", pretrained)
    assert code == 0, err
    assert "% of the tokens are not in the vocabulary" in err
    assert f"starting from {pretrained}, with its tokenizer" in err


def test_a_score_below_a_floor_is_told(recur: Recur, tiny_tnews: Path, tmp_path: Path) -> None:
    settings = ("finetuning.max_steps=1", "finetuning.learning_rate=1e-30")
    code, out, err = recur("finetune", *options(tiny_tnews, tmp_path / "run", *settings), "--json")
    assert code == 0, err
    result = json.loads(out)
    assert result["parts"]["encoder"]["accuracy"] < result["baselines"]["linear"] <= result["dev"]["accuracy"]
    accuracy = result["parts"]["encoder"]["accuracy"]
    assert accuracy < result["baselines"]["majority"] < result["baselines"]["linear"]
    assert f"the encoder's accuracy, {100 * accuracy:.1f}, is below that of the baseline majority and linear" in err
    code, out, err = recur("finetune", *options(tiny_tnews, tmp_path / "alone", *settings, "ensemble=null"), "--json")
    assert code == 0, err
    result = json.loads(out)
    assert result["dev"]["accuracy"] < result["baselines"]["linear"]
    assert f"the accuracy, {100 * result['dev']['accuracy']:.1f}, is below that of the baseline" in err


@pytest.mark.parametrize("command", ["pretrain", "finetune"])
def test_rows_longer_than_the_encoder_reads_end_the_command_before_the_training(
    command: str, recur: Recur, tiny_tnews: Path, tmp_path: Path
) -> None:
    settings = ["--set", "data.max_length=auto", "--set", "encoder.max_length=3"]
    line = ["--preset", "linformer-tnews", "--data", tiny_tnews, "--output", tmp_path / "x", "--quiet", *settings]
    code, _, err = recur(command, *line)
    assert code == 2
    assert re.search(r"encoder\.max_length 3 is below data\.max_length \d+: linformer cannot", err), err


@pytest.mark.parametrize("name", slow_but(["linformer"], ["linformer", "synthesizer"]))
def test_the_encoder_may_read_no_more_than_the_longest_row(
    name: str, recur: Recur, tiny_tnews: Path, tmp_path: Path
) -> None:
    settings = ["--set", "data.max_length=6", "--set", "encoder.max_length=6", "--set", "encoder.hidden_size=16"]
    line = ["--preset", f"{name}-tnews", "--data", tiny_tnews, "--output", tmp_path / "x", "--quiet", *settings]
    code, _, err = recur("finetune", *line, "--epochs", "1")
    assert code == 0, err
    code, out, err = recur("eval", tmp_path / "x", "--diagnose", "--json")
    assert code == 0, err
    assert json.loads(out)["rows"] > 0


@pytest.mark.parametrize(
    ("name", "length", "below"),
    [
        ("bigbird", 24, 704),
        ("informer", 8, 86),
        ("informer", 96, None),
        ("transformer-xl", 128, 129),
        ("transformer-xl", 129, None),
    ],
)
def test_an_encoder_that_is_another_on_these_rows_says_so(
    name: str, length: int, below: int | None, recur: Recur, tiny_tnews: Path, tmp_path: Path
) -> None:
    settings = ["--set", f"data.max_length={length}", "--set", "encoder.hidden_size=16"]
    line = ["--preset", f"{name}-tnews", "--data", tiny_tnews, "--output", tmp_path / "x", *settings, "--dry-run"]
    code, _, err = recur("finetune", *line)
    assert code == 0, err
    holds = "its memory is not used" if name == "transformer-xl" else "its attention is full"
    said = f"{name}: {holds} below {below} tokens, and data.max_length is {length}"
    assert (said in err) if below else (holds not in err)
