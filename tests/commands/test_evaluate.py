"""`recur eval` from the command line: the scores of a run, and which rows it refuses to score."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from class_numbers import report as report_by_name
from predicting import jsonl
from running import Recur, lines_of, result_of
from scipy.stats import binomtest
from small_runs import copy_of, edit_preset, weighted
from tiny_task import LABELS, rows, tiny, write_rows

from recurcli.cli import run as run_command
from recurcli.config import DataConfig
from recurcli.data.known import KnownRows
from recurcli.data.splits import load_split
from recurcli.data.tasks import task_named
from recurcli.display.evaluation import print_evaluation
from recurcli.evaluation.result_block import ResultBlock
from recurcli.metrics import METRICS
from recurcli.runs.model_files import read_known_rows
from recurcli.runs.predictions import read_predictions, read_texts
from recurcli.runs.run_directory import MODEL_CARD, Run


def test_the_dev_scores_are_those_of_the_training(recur: Recur, trained: Path) -> None:
    found = recur.json("eval", trained)
    stored = result_of(trained)
    assert found["metrics"].pop("loss") == pytest.approx(stored["dev"].pop("loss"), abs=1e-6)
    assert found["metrics"] == stored["dev"]
    assert found["sha256"] == stored["data"]["dev"]["sha256"]
    assert (found["split"], found["rows"], found["task"]) == ("dev", 24, "tnews")


def test_a_table_shows_the_same(recur: Recur, trained: Path) -> None:
    out, _ = recur.ok("eval", trained)
    found = recur.json("eval", trained)
    report, (low, high) = found["metrics"], found["intervals"]["accuracy"]
    lines = [line.split() for line in out.splitlines()]
    scores = [f"{100 * report['accuracy']:.1f}", f"{100 * low:.1f}–{100 * high:.1f}"]
    assert scores in [line[-2:] for line in lines if "(kept)" in line]
    more = [line.split() for line in recur.ok("eval", trained, "--verbose")[0].splitlines()]
    assert ["accuracy", *scores] in more and ["accuracy", *scores] not in lines
    assert ["calibration", "error", "(ECE)", f"{100 * found['calibration']['ece']:.1f}"] in more
    assert ["loss", "(cross-entropy)", f"{report['loss']:.4f}"] in more
    scores = report["per_class"]["101"]
    shown = [*(f"{100 * scores[key]:.1f}" for key in ("precision", "recall", "f1")), str(scores["support"])]
    low, high = found["intervals"]["recall:101"]
    shown.insert(2, f"({100 * low:.1f}–{100 * high:.1f})")
    assert ["101", *shown, str(sum(row[1] for row in report["confusion"]))] in lines
    assert ["101", *(str(count) if count else "·" for count in report["confusion"][1])] in lines
    assert all(line == line.rstrip() for line in out.splitlines())


def test_a_class_of_few_rows_has_the_exact_interval_of_its_recall_and_macro_metrics_have_none(
    recur: Recur, trained: Path, tmp_path: Path
) -> None:
    lines = [row for row in rows(4000, seed=6, labelled=True) if row["label"] in ("100", "101")]
    rare, often = (
        [row for row in lines if row["label"] == label][:count] for label, count in (("100", 3), ("101", 60))
    )
    write_rows(tmp_path / "rare.jsonl", [*rare, *often])
    found, err = scored(recur, trained, "--data", tmp_path / "rare.jsonl")
    assert "fewer than 10 rows ('100' has 3" in err
    recall = found["metrics"]["per_class"]["100"]["recall"]
    exact = binomtest(round(3 * recall), 3).proportion_ci(method="exact")
    assert found["intervals"].pop("recall:100") == pytest.approx([exact.low, exact.high])
    assert {name for name, limits in found["intervals"].items() if limits is not None} == {"accuracy"}
    assert set(found["intervals"]) >= {"macro_f1", "mcc", "balanced_accuracy"}
    out, _ = recur.ok("eval", trained, "--data", tmp_path / "rare.jsonl")
    assert f"{100 * recall:.1f} ({100 * exact.low:.1f}–{100 * exact.high:.1f})" in out


def test_classes_of_ten_rows_have_intervals_of_all_metrics_and_no_warning(
    recur: Recur, trained: Path, tmp_path: Path
) -> None:
    lines = rows(4000, seed=6, labelled=True)
    ten = [row for label in LABELS for row in [row for row in lines if row["label"] == label][:10]]
    write_rows(tmp_path / "ten.jsonl", ten)
    found, err = scored(recur, trained, "--data", tmp_path / "ten.jsonl")
    assert "fewer than" not in err and set(found["intervals"]) == set(METRICS)
    assert all(low <= found["metrics"][name] <= high for name, (low, high) in found["intervals"].items())


def test_other_splits_and_other_data(recur: Recur, trained: Path, tmp_path: Path) -> None:
    found = recur.json("eval", trained, "--split", "train")
    assert (found["split"], found["rows"]) == ("train", 60)
    write_rows(tmp_path / "mine.jsonl", rows(7, seed=9, labelled=True))
    found = recur.json("eval", trained, "--data", tmp_path / "mine.jsonl")
    assert (found["rows"], found["path"]) == (7, str(tmp_path / "mine.jsonl"))
    (tmp_path / "mine.tsv").write_text("label\tsentence\n" + f"100\t{LABELS['100']}\n" * 3)
    assert recur.json("eval", trained, "--data", tmp_path / "mine.tsv")["rows"] == 3


def test_longer_rows_than_those_of_training_are_a_split_of_their_own(recur: Recur, tmp_path: Path) -> None:
    run = tmp_path / "run"
    sizes = ("encoder.hidden_size=8", "encoder.num_layers=1", "encoder.num_heads=2", "encoder.projected_length=4")
    settings = [part for setting in (*sizes, "data.train_share=0.01") for part in ("--set", setting)]
    _, warnings = recur.ok("finetune", "--preset", "linformer-parity", "--output", run, "--epochs", 1, *settings)
    assert "no training row was so long" in warnings, "a training scores them too"
    found, notes = scored(recur, run, "--split", "test-long")
    assert (found["split"], found["rows"], found["truncated"], found["training_rows"]) == ("test-long", 2000, 0, 0)
    assert "no training row was so long: the encoder's learned weights of the last positions were not trained" in notes
    assert "no training row was so long" not in scored(recur, run, "--split", "test")[1]


def test_a_task_without_longer_rows_is_named(recur: Recur, trained: Path) -> None:
    recur.refused(2, "tnews has no split 'test-long'; did you mean 'test'?", "eval", trained, "--split", "test-long")


def scored(recur: Recur, *arguments: object) -> tuple[dict[str, Any], str]:
    out, err = recur.ok("eval", *arguments, "--json")
    return json.loads(out), err


def test_training_rows_in_a_file_are_counted(recur: Recur, trained: Path, tiny_tnews: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copy(tiny_tnews / "train.json", tmp_path / "copy.json"))
    for path in (copy, tiny_tnews / "train.json"):
        found, err = scored(recur, trained, "--data", path)
        assert (found["split"], found["rows"], found["training_rows"]) == ("file", 60, 60)
        assert "60 of 60 rows are in the training rows" in err
    found, err = scored(recur, trained, "--data", copy, "--split", "dev", "--quiet")
    assert (found["split"], found["training_rows"]) == ("dev", 60)
    assert "60 of 60 rows are in the training rows" in err, "a warning is not quiet"
    found, err = scored(recur, trained, "--data", tiny_tnews / "dev.json")
    known = {row["sentence"] for row in map(json.loads, copy.read_text().splitlines())}
    dev = [json.loads(line)["sentence"] for line in (tiny_tnews / "dev.json").read_text().splitlines()]
    assert (found["split"], found["training_rows"]) == ("file", sum(text in known for text in dev))
    assert found["dev_rows"] == 24
    assert "24 in the dev rows, on which the model was selected" in err
    assert found["baselines"].keys() == {"majority", "linear"}
    (tmp_path / "folder").mkdir()
    shutil.copy(copy, tmp_path / "folder" / "dev.json")
    found, err = scored(recur, trained, "--data", tmp_path / "folder")
    assert (found["split"], found["training_rows"]) == ("dev", 60)
    assert "warning: 60 of 60 rows are in the training rows" in err, "a folder's rows are counted as a file's are"
    found, err = scored(recur, trained)
    assert (found["split"], found["dev_rows"]) == ("dev", 24) and "dev rows" not in err


def test_rows_that_were_not_trained_on_are_scored_beside_all(
    recur: Recur, trained: Path, tiny_tnews: Path, tmp_path: Path
) -> None:
    seen = [json.loads(line) for line in (tiny_tnews / "train.json").read_text().splitlines()[:20]]
    new = [{**row, "sentence": f"蛇蛇{row['sentence']}鼠鼠"} for row in rows(12, seed=30, labelled=True)]
    new[0]["label"] = "101" if new[0]["label"] == "100" else "100"
    write_rows(tmp_path / "new.json", new)
    write_rows(tmp_path / "mixed.json", [*seen, *new])
    alone, mixed = (recur.json("eval", trained, "--data", tmp_path / name) for name in ("new.json", "mixed.json"))
    assert (mixed["training_rows"], mixed["unseen"].pop("rows")) == (20, 12)
    assert mixed["unseen"] == {name: alone["metrics"][name] for name in mixed["unseen"]}
    assert mixed["unseen"]["accuracy"] < mixed["metrics"]["accuracy"]
    assert "unseen" not in alone, "no row was trained on"
    assert "unseen" not in recur.json("eval", trained, "--data", tiny_tnews / "train.json"), "every row was trained on"
    page, row = tmp_path / "page.html", f"has {100 * mixed['unseen']['accuracy']:.1f} on the 12 others"
    out, _ = recur.ok("eval", trained, "--data", tmp_path / "mixed.json", "--report", page)
    assert re.search(row, out)
    assert row in page.read_text()


def test_dev_rows_that_the_linear_model_was_fitted_on_again_are_not_unseen(recur: Recur, tmp_path: Path) -> None:
    lines = [f"{('good', 'bad')[n % 2]} day {chr(97 + n % 26)}{n} {n * n}\t{'ab'[n % 2]}\n" for n in range(80)]
    for name, own in (("train", lines[:60]), ("test", lines[40:])):
        (tmp_path / f"{name}.tsv").write_text("text\tlabel\n" + "".join(own))
    files = ("--train", tmp_path / "train.tsv", "--test", tmp_path / "test.tsv", "--output", tmp_path / "run")
    out, _ = recur.ok("finetune", "--preset", "linear-custom", *files, "--json")
    assert json.loads(out)["test"]["unseen"]["rows"] == 20, "6 of the 20 others are dev rows, or so"
    assert recur.json("eval", tmp_path / "run", "--split", "test")["unseen"] == json.loads(out)["test"]["unseen"]


def on_copied_data(trained: Path, tiny_tnews: Path, target: Path) -> tuple[Path, Path]:
    """A copy of a run whose preset names a copy of its data; and that copy."""
    data, run = target / "data", copy_of(trained, target / "run")
    shutil.copytree(tiny_tnews, data)
    edit_preset(run, str(tiny_tnews), str(data))
    return run, data


def test_changed_rows_are_not_scored_as_its_own(recur: Recur, trained: Path, tiny_tnews: Path, tmp_path: Path) -> None:
    run, data = on_copied_data(trained, tiny_tnews, tmp_path)
    assert scored(recur, run)[0]["rows"] == 24
    shutil.copy(data / "train.json", data / "dev.json")
    recur.refused(3, f"{data / 'dev.json'}: changed since the training", "eval", run)
    assert "60 of 60 rows are in the training rows" in scored(recur, trained, "--data", data / "dev.json")[1]
    assert scored(recur, run, "--split", "train")[0]["rows"] == 60


def test_an_unfinished_run_is_scored_on_its_rows(recur: Recur, trained: Path, tiny_tnews: Path, tmp_path: Path) -> None:
    run, data = on_copied_data(trained, tiny_tnews, tmp_path)
    (run / "result.json").unlink()
    shutil.copytree(trained / "checkpoints", run / "checkpoints")
    found, err = scored(recur, run, "--quiet")
    step = max(path.name for path in (run / "checkpoints").glob("step-*"))
    assert found["rows"] == 24 and f"its training is not finished (newest checkpoint: {step})" in err
    write_rows(data / "dev.json", [json.loads(line) for line in (data / "dev.json").read_text().splitlines()[1:]])
    recur.refused(3, "its sha256 is not that", "eval", run)


@pytest.fixture(scope="module")
def without_texts(tiny_tnews: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run that keeps no texts, and its data."""
    folder = tmp_path_factory.mktemp("without")
    data = shutil.copytree(tiny_tnews, folder / "data")
    options = ["finetune", "--preset", "starsaber-tnews", "--data", data, "--output", folder / "run", "--quiet"]
    settings = tiny("finetuning.max_steps=1", "ensemble=linear", "finetuning.keep_texts=false")
    assert run_command([str(part) for part in [*options, *settings]]) == 0
    return folder / "run", data


def test_a_run_that_keeps_no_texts_holds_none_and_no_hashes(without_texts: tuple[Path, Path], trained: Path) -> None:
    run, data = without_texts
    texts = [row["sentence"] for name in ("train", "dev") for row in lines_of(data / f"{name}.json")]
    everything = b"".join(path.read_bytes() for path in run.rglob("*") if path.is_file())
    assert not [text for text in texts if len(text) > 8 and text.encode() in everything]
    assert read_known_rows(Run(run)) is None
    assert read_texts(Run(run)) == [] and len(read_predictions(Run(run), "model").ids) == 24
    assert "in clear" not in (run / MODEL_CARD).read_text()


def test_without_texts_rows_are_checked_by_hash(without_texts: tuple[Path, Path], recur: Recur, tmp_path: Path) -> None:
    run, data = without_texts
    found, _ = scored(recur, run, "--report", tmp_path / "page.html")
    assert (found["rows"], found["training_rows"], found["dev_rows"]) == (24, None, 24)
    assert "How many of these rows were trained on is unknown" in (tmp_path / "page.html").read_text()
    found, err = scored(recur, run, "--data", data / "train.json")
    assert (found["training_rows"], found["dev_rows"]) == (None, None)
    assert f"is unknown: {run} keeps no hashes" in err
    copy = copy_of(run, tmp_path / "run")
    edit_preset(copy, str(data), str(shutil.copytree(data, tmp_path / "data")))
    write_rows(tmp_path / "data" / "dev.json", rows(24, seed=9, labelled=True))
    recur.refused(3, "its sha256 is not that of the dev rows", "eval", copy)


def test_a_run_from_one_without_hashes_has_none(without_texts: tuple[Path, Path], recur: Recur, tmp_path: Path) -> None:
    run, data = without_texts
    options = ["--preset", "starsaber-tnews", "--data", data, "--init", run, "--output", tmp_path / "x", "--quiet"]
    _, err = recur.ok("finetune", *options, *tiny("finetuning.max_steps=1", "ensemble=null"))
    assert "among these rows is unknown: " in err
    assert read_known_rows(Run(tmp_path / "x")) is None, "a part of the rows would be counted as all"


def test_rows_of_an_init_run_are_told_and_kept(recur: Recur, trained: Path, tiny_tnews: Path, tmp_path: Path) -> None:
    """Rows that a finetuned run was trained on are no dev or test rows for a run that starts from it."""
    lines = (tiny_tnews / "train.json").read_text().splitlines(keepends=True)
    new = rows(20, seed=30, labelled=True)
    write_rows(tmp_path / "train.json", [{**row, "sentence": f"蛇蛇{row['sentence']}"} for row in new])
    (tmp_path / "dev.json").write_text("".join(lines[:8]))
    seen = [json.loads(line) for line in lines[:5]]
    write_rows(tmp_path / "test.json", [{**row, "sentence": f" {row['sentence']} "} for row in seen])
    options = ["finetune", "--preset", "starsaber-tnews", "--init", trained, "--output", tmp_path / "run", "--quiet"]
    files = [part for split in ("train", "dev", "test") for part in (f"--{split}", tmp_path / f"{split}.json")]
    _, err = recur.ok(*options, *files, *tiny("finetuning.max_steps=1", "ensemble=linear"))
    assert f"recur: warning: dev: 8 of 8 rows are in the training rows of {trained}" in err
    assert f"recur: warning: test: 5 of 5 rows are in the training rows of {trained}" in err
    before, known = read_known_rows(Run(trained)), read_known_rows(Run(tmp_path / "run"))
    assert before is not None and known is not None
    own = KnownRows.of(load_split(task_named("tnews"), "train", DataConfig(path=str(tmp_path))).hashes)
    assert set(known.trained) == {*before.trained, *own.trained}
    assert len(own.trained) == 20
    _, err = scored(recur, tmp_path / "run", "--data", tiny_tnews / "train.json")
    assert "60 of 60 rows are in the training rows" in err


def test_rows_without_labels_are_refused(recur: Recur, trained: Path) -> None:
    recur.refused(3, "the test rows of tnews carry no labels", "eval", trained, "--split", "test")


def test_data_that_are_gone_are_asked_for(recur: Recur, trained: Path, tiny_tnews: Path, tmp_path: Path) -> None:
    run = copy_of(trained, tmp_path / "run")
    edit_preset(run, str(tiny_tnews), str(tmp_path / "gone"))
    recur.refused(3, f"{tmp_path / 'gone'}: the data of {run} are no longer there", "eval", run)
    recur.ok("eval", run, "--data", tiny_tnews)


def test_cut_rows_are_told(recur: Recur, trained: Path, tmp_path: Path) -> None:
    write_rows(tmp_path / "dev.json", [{"sentence": "鼠" * 99, "label": "100"}, {"sentence": "鼠", "label": "100"}])
    _, out, err = recur("eval", trained, "--data", tmp_path, "--json")
    assert json.loads(out)["truncated"] == 1
    assert "recur: 1 row (50.0%) cut to the encoder's 16 tokens (data.truncate head)\n" in err
    assert "cut" not in recur("eval", trained, "--data", tmp_path, "--quiet")[2]
    linear = weighted(trained, tmp_path / "linear", 0, 1)
    assert "cut" not in recur.ok("eval", linear, "--data", tmp_path)[1], "the linear model reads whole texts"


# --- the table of confusions, in the terminal's width


def shown(names: list[str], width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    """What eval prints on a terminal of `width` columns about a model that takes each class for the next one at times."""
    labels = [name for name in names for _ in range(1200)]
    predictions = [names[(names.index(name) + (place % 5 == 0)) % len(names)] for place, name in enumerate(labels)]
    report = report_by_name(labels, predictions, names, loss=1.0)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    block = ResultBlock(("runs/[red]x[/]", "seed 1"), ["kept: encoder"], [["encoder (kept)"]], [], [])
    print_evaluation({"metrics": report, "intervals": {}}, block)
    out = re.sub("\x1b\\[[0-9;]*m", "", capsys.readouterr().out)
    assert "runs/[red]x[/]" in out
    return "\n".join(line for line in out.partition("confusion")[2].splitlines() if line and "─" not in line)


def test_12_short_labels_fit_80_columns(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    names = [str(100 + number) for number in range(12)]
    lines = shown(names, 80, capsys, monkeypatch).splitlines()
    assert len(lines) == 1 + 1 + 12
    assert max(map(len, lines)) <= 80
    assert lines[1].split() == names
    assert lines[2].split()[:3] == ["100", "960", "240"]


def test_what_does_not_fit_becomes_a_list(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"class {number}" for number in range(40)]
    out = shown(names, 80, capsys, monkeypatch)
    assert "--json has all" in out
    assert ["class", "0", "class", "1", "240", "20.0%"] in [line.split() for line in out.splitlines()]
    assert len(out.splitlines()) < 20


def test_mistakes_in_a_file_the_surest_first(recur: Recur, trained: Path, tmp_path: Path) -> None:
    texts = (("龙\t龙\\\n马", "100"), ("鼠牛", "102"), ("猴鸡猴鸡", "102"))
    write_rows(tmp_path / "d.json", [{"id": n, "sentence": t, "label": label} for n, (t, label) in enumerate(texts, 7)])
    _, err = recur.ok("eval", trained, "--data", tmp_path / "d.json", "--errors", tmp_path / "e.tsv")
    assert f"{tmp_path / 'e.tsv'}: 2 rows predicted wrongly" in err
    head, *lines = (tmp_path / "e.tsv").read_text(encoding="utf-8").splitlines()
    assert head.split("\t") == ["line", "id", "label", "prediction", "score", "label_probability", "text"]
    found = [line.split("\t") for line in lines]
    assert {(fields[0], fields[1]) for fields in found} == {("1", "7"), ("2", "8")}
    assert next(fields[-1] for fields in found if fields[1] == "7") == r"龙\t龙\\n马"
    predicted = jsonl(recur.ok("predict", trained, tmp_path / "d.json", "--text", "sentence")[0])
    scores = {str(row["id"]): row["score"] for row in predicted}
    assert [float(fields[4]) for fields in found] == sorted((scores["7"], scores["8"]), reverse=True)
    assert recur("eval", trained, "--errors", tmp_path / "e.tsv")[0] == 2, "it exists"
    recur.ok("eval", trained, "--errors", tmp_path / "e.tsv", "--overwrite")


def test_a_linear_model_that_no_manifest_lists_is_not_read(recur: Recur, trained: Path, tmp_path: Path) -> None:
    run = copy_of(trained, tmp_path / "run")
    (run / "linear.safetensors").write_bytes(b"not of this run")
    assert recur("eval", run)[0] == 4, "its manifest lists the file"
    manifest = json.loads((run / "manifest.json").read_text())
    linear = ("linear.safetensors", "kept.json")
    manifest["files"] = [entry for entry in manifest["files"] if entry["name"] not in linear]
    (run / "manifest.json").write_text(json.dumps(manifest))
    found, _ = scored(recur, run)
    assert set(found["baselines"]) == {"majority"}
