"""`linear-TASK`: the linear model alone, as a preset like any other."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from predicting import as_stdin
from running import Recur, result_of, saved

REVIEWS = Path(__file__).parent.parent / "reviews.csv"
FINETUNE = ("finetune", "--preset", "linear-custom", "--data", REVIEWS)
CHOSEN = ("--set", "linear.c=1", "--set", "linear.characters=null", "--set", "linear.words=[1, 2]")


def test_it_trains_labels_and_is_scored_without_an_encoder(recur: Recur, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    out, err = recur.ok(*FINETUNE, *CHOSEN, "--output", folder)
    shown = out + err + (folder / "README.md").read_text()
    assert not any(word in shown for word in ("encoder", "steps", "tokens", "linear baseline", "auto"))
    assert {path.name for path in folder.iterdir()} == {
        *("README.md", "config.json", "kept.json", "linear.safetensors", "manifest.json"),
        *("predictions.dev.jsonl", "preset.yaml", "result.json", "training_rows.safetensors"),
    }
    assert "network" not in json.loads((folder / "config.json").read_text())
    result = result_of(folder)
    assert result["kept"]["name"] == "linear model" and "parts" not in result
    assert result["parameters"]["total"] == (result["linear_baseline"]["ngrams"] + 1) * 2
    scored = recur.json("eval", folder, "--quiet")
    assert scored["metrics"]["accuracy"] == result["dev"]["accuracy"] and "parts" not in scored
    page = tmp_path / "page.html"
    recur.ok("eval", folder, "--report", page, "--quiet")
    text = re.sub(r"<(style|script).*?</\1>|<[^>]*>", "", page.read_text(), flags=re.DOTALL)
    assert not re.search("steps|encoder", text)
    assert len(recur.ok("predict", folder, REVIEWS, "--quiet")[0].splitlines()) == 281
    assert "already finished" in recur(*FINETUNE, *CHOSEN, "--output", folder, "--resume")[2]
    recur.ok(*FINETUNE, *CHOSEN, "--output", folder, "--overwrite", "--quiet")
    tiny = ("--set", "encoder.num_layers=1", "--set", "encoder.hidden_size=16", "--epochs", "1")
    other = ("finetune", "--preset", "starsaber-custom", "--data", REVIEWS, *tiny, "--output", tmp_path / "starsaber")
    recur.ok(*other)
    compared = recur.json("compare", folder, tmp_path / "starsaber")
    keys = {"linear.c", "linear.characters", "linear.words"}  # so few rows have no encoder with the other preset either
    assert [set(group["values"]) for group in compared["groups"]] == [keys, keys]
    assert "without an encoder" in recur("compare", folder, "--part", "encoder")[2]
    recur.ok("export", folder, "--format", "onnx", "--output", tmp_path / "onnx")
    assert not (tmp_path / "onnx" / "model.onnx").exists()
    assert "no layers to diagnose" in recur("eval", folder, "--diagnose")[2]
    assert "is a linear model, which has no encoder" in recur(*other[:-1], tmp_path / "new", "--init", folder)[2]
    assert "encoder" not in recur("predict", folder, REVIEWS)[2]


def test_class_weights_find_more_of_a_rare_class(recur: Recur, tmp_path: Path) -> None:
    """A word of each text tells its class with 3 in 4; with one rare row in 25, the prior outweighs it."""
    drawn, lines = np.random.default_rng(0), list[str]()
    for row in range(3000):
        rare = row % 50 < 2
        words = ["storm" if rare == (drawn.random() < 0.75) else "sun", *(f"w{n}" for n in drawn.integers(0, 60, 4))]
        lines.append(f"{' '.join(words)},{'rare' if rare else 'common'}")
    files = [saved(tmp_path / f"{n}.csv", "\n".join(["text,label", *lines[n::2]])) for n in range(2)]
    command = ("finetune", "--preset", "linear-custom", "--train", files[0], "--dev", files[1], "--output")
    found = {}
    for name, weights in (("plain", "none"), ("weighted", "balanced")):
        recur.ok(*command, tmp_path / name, "--set", f"finetuning.class_weights={weights}")
        found[name] = result_of(tmp_path / name)["dev"]
    recalls = [found[name]["per_class"]["rare"]["recall"] for name in ("plain", "weighted")]
    assert recalls[0] < 0.2 < 0.5 < recalls[1]
    assert found["weighted"]["macro_f1"] > found["plain"]["macro_f1"]
    reason = "finetuning.class_weights: unknown label 'rar'; did you mean 'rare'?"
    recur.refused(2, reason, *command, tmp_path / "no", "--set", "finetuning.class_weights={rar: 2}")


def test_three_short_rows_are_enough(recur: Recur, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("text,label\na,x\nb,x\nc,y\n")
    recur.ok("finetune", "--preset", "linear-custom", "--data", tmp_path / "x.csv", "--output", tmp_path / "run")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("pretrain", "--preset", "linear-custom"), "has no encoder to pretrain"),
        (("finetune", "--preset", "linear-ptb"), "a linear model on n-grams cannot be causal"),
        (
            ("tune", "--preset", "linear-custom", "--range", "encoder.dropout=0..0.5"),
            "without an encoder, so this key has no",
        ),
        ((*FINETUNE, "--init", "."), "has no encoder to start from a run"),
        ((*FINETUNE, "--match-parameters", "3M"), "has no encoder whose size could change"),
        ((*FINETUNE, "--set", "ensemble=null"), "--set ensemble: must be linear"),
        ((*FINETUNE, "--epochs", "3"), "--epochs: finetuning.epochs: linear-custom is a linear model"),
        ((*FINETUNE, "--set", "encoder.dropout=0.2"), "--set encoder.dropout: linear-custom is a linear model"),
        ((*FINETUNE, "--set", "linear.C=1"), "unknown key; did you mean 'linear.c'?"),
        ((*FINETUNE, "--set", "linear.words=[1]"), "--set linear.words: linear.words.1: is required"),
        ((*FINETUNE, "--set", "linear.across_words=7"), "linear.across_words: 7 should be a valid boolean or"),
        ((*FINETUNE, "--set", "pretraining.epochs=2"), "--set pretraining.epochs: linear-custom is a linear model"),
    ],
)
def test_what_needs_an_encoder_is_refused(recur: Recur, command: tuple[str, ...], said: str) -> None:
    recur.refused(2, said, *command)


def test_a_share_of_the_training_rows_is_trained_on_and_the_dev_rows_stay(recur: Recur, tmp_path: Path) -> None:
    def line(share: str) -> tuple[object, ...]:
        return (*FINETUNE, *CHOSEN, "--output", tmp_path / share, "--set", f"data.train_share={share}")

    recur.refused(3, "data.train_share 0.001 leaves no training row of the label", *line("0.001"))
    whole, part = (recur.json(*line(share))["data"] for share in ("0.8", "0.2"))
    assert part["dev"] == whole["dev"]
    assert part["train"]["rows"] == pytest.approx(whole["train"]["rows"] / 4, abs=1)
    over = recur.json("compare", tmp_path / "0.8", tmp_path / "0.2", "--over", "data.train_share")
    (line_of_points,) = over["over"]["lines"]
    assert [point["value"] for point in line_of_points["points"]] == [0.2, 0.8]
    pretraining = ("pretrain", "--preset", "starsaber-custom", "--data", REVIEWS, "--set", "data.train_share=0.5")
    recur.refused(2, "data.train_share is for labelled rows", *pretraining)
    known = recur.json("eval", tmp_path / "0.2", "--data", REVIEWS, "--quiet")
    assert known["training_rows"] == part["train"]["rows"]


def test_the_cross_validation_of_extra_rows_is_that_of_their_rows(recur: Recur, tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    words = [f"word{n}" for n in range(2000)]
    rows = [draw.choice(words, 12).tolist() for _ in range(400)]
    lines = [f"{' '.join(row)},{' '.join(row[:8])},{'xy'[draw.integers(2)]}" for row in rows]
    (tmp_path / "x.csv").write_text("text,words,label\n" + "\n".join(lines) + "\n")
    line = ("finetune", "--preset", "linear-custom", "--data", tmp_path / "x.csv", "--output", tmp_path / "run")
    result = recur.json(*line, "--set", "data.extra_rows=[words]", "--set", "linear.c=1")
    assert result["linear_baseline"]["cross_validation"]["score"] < 0.62  # 0.8 with the row in another fold


def test_test_rows_that_are_dev_rows_are_counted(recur: Recur, tmp_path: Path) -> None:
    lines = [f"{'good' if n % 2 else 'bad'} text {n},{'xy'[n % 2]}" for n in range(100)]
    test = [lines[85].upper().replace("Y", "y"), *lines[86:]]
    for name, own in (("train", lines[:80]), ("dev", lines[80:90]), ("test", test)):
        (tmp_path / f"{name}.csv").write_text("text,label\n" + "\n".join(own) + "\n")
    files = [part for name in ("train", "dev", "test") for part in (f"--{name}", tmp_path / f"{name}.csv")]
    line = ("finetune", "--preset", "linear-custom", *files, "--output", tmp_path / "run")
    _, err = recur.ok(*line)
    assert "test: 0 of 15 rows are in the training rows (equal or nearly equal texts), 5 in the dev rows" in err


def test_a_run_reads_later_files_with_the_quote_of_its_training(recur: Recur, tmp_path: Path) -> None:
    path, run, output = tmp_path / "x.csv", tmp_path / "run", tmp_path / "o.csv"
    rows = [f"'{'good' if n % 2 else 'bad'}; it''s \"{n}\"';{'pn'[n % 2]}" for n in range(40)]
    path.write_text("text;label\n" + "".join(f"{row}\n" for row in rows))
    line = ("finetune", "--preset", "linear-custom", "--data", path, "--output", run)
    recur.ok(*line, "--quote", "'")
    recur.ok("eval", run, "--data", path)
    recur.ok("predict", run, path, "--output", output)
    head, first, *_ = output.read_text().splitlines()
    assert head == "text;label;prediction;score"
    assert first.startswith(rows[0]), "the output has the marks of the input"
    lines = recur.ok("predict", run, path, "--format", "jsonl")[0].splitlines()
    assert json.loads(lines[0])["text"] == 'bad; it\'s "0"'
    assert recur.json("eval", run, "--data", output)["rows"] == 40


QUOTED = "text\tlabel\n" + "".join(f'"{("good", "bad")[n % 2]}\t""{n}""\nline two"\t{n % 2}\n' for n in range(40))
"""A TSV of 40 rows whose texts hold TABs, quotes and line ends."""


def test_a_run_reads_a_tsv_with_its_quote(recur: Recur, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, run = saved(tmp_path / "x.tsv", QUOTED), tmp_path / "run"
    recur.ok("finetune", "--preset", "linear-custom", "--data", path, *CHOSEN, "--quote", '"', "--output", run)
    for name in ("y.tsv", "z.csv", "z.jsonl"):
        recur.ok("predict", run, path, "--output", tmp_path / name)
    for name in ("x.tsv", "y.tsv", "z.csv"):
        assert recur.json("eval", run, "--data", tmp_path / name)["rows"] == 40
    head, first, *_ = (tmp_path / "y.tsv").read_text().split("\n")
    assert (head, first) == ("text\tlabel\tprediction\tscore", QUOTED.split("\n")[1])
    as_stdin(monkeypatch, QUOTED.encode())
    piped = recur.ok("predict", run, "--format", "jsonl")[0]
    texts = [json.loads(line)["text"] for line in piped.splitlines()]
    assert (texts[0], len(texts)) == ('good\t"0"\nline two', 40)
    assert (tmp_path / "z.jsonl").read_text() == piped


def test_a_pipe_of_texts_has_no_quotes(recur: Recur, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    recur.ok(*FINETUNE, *CHOSEN, "--quote", '"', "--output", run)
    as_stdin(monkeypatch, b'"good\nbad" film\n')
    assert len(recur.ok("predict", run)[0].splitlines()) == 2
