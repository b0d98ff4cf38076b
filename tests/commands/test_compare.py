"""`recur compare`: groups over seeds, tests between them, what is refused or left out, and the tables."""

import csv
import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean, mean, stdev
from typing import Any

import pytest
from class_numbers import report as report_by_name
from running import Recur, lines_of, result_of
from tiny_task import write_rows

from recurcli.commands.comparison.groups import differing_keys
from recurcli.evaluation.decision import Kept
from recurcli.files import extend_manifest, to_json, write_manifest
from recurcli.metrics import METRICS, percent
from recurcli.runs.predictions import read_predictions
from recurcli.runs.run_directory import NETWORK_FILES, REQUIRED_FILES, Run, RunDirectory
from recurcli.significance import holm, share_interval, tango
from recurcli.targets import OneLabel

Line = dict[str, Any]


def variant(
    trained: Path,
    target: Path,
    *,
    seed: int = 10,
    wrong: int = 0,
    change: Callable[[Line], None] = lambda line: None,
    share: float | None = None,
    **finetuning: float | str,
) -> Path:
    """A copy of a trained run with another seed and other dev predictions: the last `wrong` of the right ones are wrong.

    `change` is called with each line of the predictions; `finetuning` are keys of that section with their values. The run has
    the `share` of the training rows.
    """
    shutil.copytree(trained, target, ignore=shutil.ignore_patterns("checkpoints"))
    preset = RunDirectory(target).read_preset()
    preset["runtime"]["seed"] = seed
    preset["finetuning"] |= finetuning
    preset["data"]["train_share"] = share or preset["data"]["train_share"]
    RunDirectory(target).write_preset(preset, "finetune")
    lines = lines_of(target / "predictions.dev.jsonl")
    names = list(lines[0]["probabilities"])
    for line in [line for line in lines if line["label"] == line["prediction"]][: -wrong - 1 : -1]:
        line["prediction"] = names[(names.index(line["label"]) + 1) % len(names)]
    for line in lines:
        change(line)
    write_rows(target / "predictions.dev.jsonl", lines)
    write_manifest(
        target, (*REQUIRED_FILES, *NETWORK_FILES, "linear.safetensors", "kept.json", "predictions.dev.jsonl")
    )
    report = report_by_name([line["label"] for line in lines], [line["prediction"] for line in lines], names)
    with edited(target) as result:
        result["seed"] = seed
        result["dev"] |= {name: report[name] for name in METRICS}
        result["data"]["train"]["rows"] = int(result["data"]["train"]["rows"] * (share or 1))
    return target


@contextmanager
def edited(run: Path) -> Iterator[Any]:
    """The result of a run, which is written again with its changes."""
    result = result_of(run)
    yield result
    (run / "result.json").write_text(to_json(result))


@pytest.fixture(scope="module")
def five_runs(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seeds at a learning rate of 1e-2, and three, worse, at 1e-3."""
    folder = tmp_path_factory.mktemp("five") / "runs"
    for seed, wrong in ((10, 0), (11, 2)):
        variant(trained, folder / f"good-{seed}", seed=seed, wrong=wrong)
    for seed, wrong in ((10, 9), (11, 12), (12, 10)):
        variant(trained, folder / "low" / f"bad-{seed}", seed=seed, wrong=wrong, learning_rate=0.001)
    return folder


@pytest.fixture
def runs(five_runs: Path, tmp_path: Path) -> Path:
    """A copy of the five runs, to be changed."""
    return shutil.copytree(five_runs, tmp_path / "runs")


def compared(recur: Recur, *arguments: object) -> Any:
    return recur.json("compare", *arguments)


def test_runs_are_grouped_by_preset_over_seeds(recur: Recur, runs: Path) -> None:
    found = compared(recur, runs)
    assert (found["task"], found["metric"], found["part"], found["rows"]) == ("tnews", "accuracy", "model", 24)
    key = "finetuning.learning_rate"
    assert (found["differences"], found["other_differences"]) == ([key], [])
    good, bad = found["groups"]
    assert (good["n"], good["seeds"], bad["n"], bad["seeds"]) == (2, [10, 11], 3, [10, 11, 12])
    assert (good["values"], bad["values"]) == ({key: 0.01}, {key: 0.001})
    for group in (good, bad):
        results = [result_of(Path(run)) for run in group["runs"]]
        scores = [result["dev"]["accuracy"] for result in results]
        assert (group["scores"], group["best"]) == (scores, max(scores))
        assert (group["mean"], group["std"]) == (pytest.approx(mean(scores)), pytest.approx(stdev(scores)))
        assert group["parameters"] == results[0]["parameters"]["total"]
        assert group["parameters_without_embeddings"] == group["parameters"] - results[0]["parameters"]["embedding"]
        for name in ("forward_flops_per_token", "seconds", "cpu_seconds"):
            assert group[name] == pytest.approx(results[0][name]) and group[name] > 0
    test, *with_linear = found["tests"]
    assert (test["a"], test["b"], test["test"]) == ("learning_rate=0.01", "learning_rate=0.001", "bootstrap")
    assert 0.05 < test["p_value"] <= test["p_holm"] < 0.5, "two seeds of two groups say little"
    low, high = test["interval"]
    assert test["difference"] == pytest.approx(good["mean"] - bad["mean"])
    assert -1 < low < 0 < test["difference"] < high < 1
    linear, majority = found["baselines"]
    assert (linear["name"], majority["name"]) == ("linear model", "majority class")
    assert [(test["a"], test["b"]) for test in with_linear] == [(g["name"], "linear model") for g in (good, bad)]
    result = result_of(runs / "good-10")
    assert linear["mean"] == pytest.approx(result["parts"]["linear"]["accuracy"]) == result["baselines"]["linear"]
    assert majority["mean"] == result["baselines"]["majority"]
    assert linear["interval"] == list(share_interval(24, 24)), "the one that `recur eval` gives"


def test_other_linear_models_are_rows_of_their_own(recur: Recur, trained: Path, tmp_path: Path) -> None:
    def swapped(line: Line) -> None:
        shares = line["linear_probabilities"]
        line["linear_probabilities"] = dict(zip(shares, reversed(shares.values()), strict=True))

    variant(trained, tmp_path / "a")
    variant(trained, tmp_path / "b", learning_rate=0.001, change=swapped)
    names = sorted(baseline["name"] for baseline in compared(recur, tmp_path)["baselines"])
    assert names == [*(f"linear model (learning_rate={rate})" for rate in (0.001, 0.01)), "majority class"]


def test_groups_with_equal_predictions_are_called_identical(recur: Recur, runs: Path, tmp_path: Path) -> None:
    """Also beside groups whose seeds differ, which say nothing of a difference between these two."""
    for name in ("good-10", "good-11"):
        variant(runs / name, tmp_path / "runs" / f"equal-{name}", seed=int(name[-2:]), learning_rate=0.02)
    found = compared(recur, runs, tmp_path / "runs")
    [equal] = [test for test in found["tests"] if test["identical_predictions"]]
    assert {equal["a"], equal["b"]} == {"learning_rate=0.01", "learning_rate=0.02"}
    assert (equal["difference"], equal["interval"], equal["p_value"], equal["p_holm"]) == (0.0, None, 1.0, 1.0)
    out = recur("compare", runs, tmp_path / "runs")[1]
    assert (out.count("identical predictions"), "too few seeds" in out) == (1, False)


def test_runs_without_an_ensemble_show_the_linear_models_accuracy_without_a_test(recur: Recur, runs: Path) -> None:
    for path in runs.rglob("result.json"):
        with edited(path.parent) as result:
            del result["parts"]
            result["kept"] = Kept.as_is(OneLabel(())).to_json()
    found = compared(recur, runs)
    assert [baseline["name"] for baseline in found["baselines"]] == ["linear model", "majority class"]
    assert (found["baselines"][0]["mean"], found["baselines"][0]["interval"]) == (result["baselines"]["linear"], None)
    assert len(found["tests"]) == 1
    others = compared(recur, runs, "--metric", "macro_f1")
    assert [baseline["name"] for baseline in others["baselines"]] == ["majority class"]


def test_precision_tells_runs_of_one_preset_and_seed_apart(recur: Recur, runs: Path) -> None:
    other = shutil.copytree(runs / "good-10", runs / "good-10-bf16")
    with edited(other) as result:
        result["machine"]["precision"] = "bf16"
    found = compared(recur, runs / "good-10", other)
    assert (found["differences"], found["left_out"]) == (["runtime.precision"], [])
    assert [group["name"] for group in found["groups"]] == ["precision=fp32", "precision=bf16"]


def test_one_seed_each_is_tested_by_tangos_test_with_holms_correction(recur: Recur, runs: Path, trained: Path) -> None:
    other = variant(trained, runs / "third", wrong=3, learning_rate=0.005)
    found = compared(recur, runs / "good-10", runs / "low" / "bad-10", other)
    counts = [(test["test"], test["only_a_right"], test["only_b_right"]) for test in found["tests"][:3]]
    assert counts == [("tango", 3, 0), ("tango", 9, 0), ("tango", 6, 0)]
    exact = [tango(test["only_a_right"], test["only_b_right"], 24) for test in found["tests"]]
    assert [test["p_value"] for test in found["tests"]] == [each.p_value for each in exact]
    assert [test["p_holm"] for test in found["tests"]] == holm([each.p_value for each in exact])
    for test, each in zip(found["tests"], exact, strict=True):
        assert test["identical_predictions"] or tuple(test["interval"]) == each.interval
    assert len(exact) == 6, "three pairs, and three groups with the linear model"
    assert [group["std"] for group in found["groups"]] == [None] * 3


def test_another_metric_is_tested_by_a_bootstrap(recur: Recur, runs: Path) -> None:
    found = compared(recur, runs / "good-10", runs / "low" / "bad-10", "--metric", "macro_f1")
    stored = result_of(runs / "good-10")["dev"]
    assert (found["metric"], found["groups"][0]["mean"]) == ("macro_f1", stored["macro_f1"])
    assert [test["test"] for test in found["tests"]] == ["bootstrap"] * 3
    recur.refused(2, "--metric must be one of accuracy, ", "compare", runs, "--metric", "macro_f")


def test_runs_are_compared_by_a_metric_of_one_label(recur: Recur, trained: Path, tmp_path: Path) -> None:
    variant(trained, tmp_path / "a")
    found = compared(recur, tmp_path, "--metric", "recall:101")
    assert found["groups"][0]["mean"] == result_of(trained)["dev"]["per_class"]["101"]["recall"]
    assert {baseline["name"]: baseline["mean"] for baseline in found["baselines"]}["majority class"] == 0
    recur.refused(2, "metric f1:999: unknown label '999'", "compare", tmp_path, "--metric", "f1:999")


def test_runs_that_were_selected_by_probabilities_need_a_metric_of_labels(
    recur: Recur, trained: Path, tmp_path: Path
) -> None:
    variant(trained, tmp_path / "a")
    with edited(tmp_path / "a") as result:
        result["metric"] = "roc_auc"
    reason = "recall:LABEL, not 'roc_auc'"
    recur.refused(2, reason, "compare", tmp_path)
    recur.refused(2, reason, "compare", trained, "--metric", "roc_auc")


OTHER_ROWS = {"path": "b/dev.json", "rows": 24, "sha256": "f" * 64}


def relabelled(line: Line) -> None:
    if line["id"] == "3":
        line["label"] = "100" if line["label"] != "100" else "101"


@pytest.mark.parametrize(
    ("change", "stored", "reason"),
    [
        (lambda line: line.update(id=f"{line['id']}x"), {}, "their dev rows have other ids or labels"),
        (relabelled, {}, "their dev rows have other ids or labels"),
        (id, {"classes": "new"}, "their classes are 100, "),
        (id, {"task": "afqmc"}, "their tasks are tnews and afqmc; .*: name them, or a folder"),
        (id, {"metric": "mcc"}, "their metrics, of which --metric chooses one, are accuracy and mcc"),
        (id, {"data": {"dev": OTHER_ROWS}}, r"the sha256 of their dev rows is .*/dev.json\) and f{12} \(b/"),
        (id, {"task": "parity", "data": {"dev": {**OTHER_ROWS, "path": None}}}, r".* and f{12} \(parity\)"),
    ],
)
def test_other_rows_and_labels_are_refused_by_name(
    change: Callable[[Line], None], stored: Line, reason: str, recur: Recur, runs: Path, trained: Path
) -> None:
    other = variant(trained, runs / "other", seed=3, change=change)
    if new := stored.pop("classes", None):
        config = json.loads((other / "config.json").read_text())
        config["id2label"]["15"] = new
        (other / "config.json").write_text(json.dumps(config))
        extend_manifest(other, "config.json")
    with edited(other) as result:
        for key, value in stored.items():
            result[key] = {**result[key], **value} if isinstance(value, dict) else value
    err = recur.refused(2, "cannot be compared", "compare", runs / "good-10", other)
    assert re.match(rf"recur: error: {runs / 'good-10'} and {other} cannot be compared: {reason}", err), err


def test_what_is_no_finished_run_is_listed_or_left_out(recur: Recur, runs: Path, trained: Path) -> None:
    for name in ("stopped", "new"):
        variant(trained, runs / name, seed=4)
        (runs / name / "result.json").unlink()
    shutil.copytree(trained / "checkpoints", runs / "stopped" / "checkpoints")
    (runs / "new" / "metrics.jsonl").unlink()
    (runs / "notes").mkdir()
    (runs / "table.md").write_text("")
    (runs / "pre").mkdir()
    preset = (trained / "preset.yaml").read_text()
    (runs / "pre" / "preset.yaml").write_text(preset.replace("# command: finetune", "# command: pretrain"))
    variant(trained, runs / "twin")
    found = compared(recur, runs, runs / "good-10", runs)
    steps = result_of(trained)["steps"]
    assert found["unfinished"] == [
        {"run": str(runs / "new"), "step": 0, "steps": None, "running": False},
        {"run": str(runs / "stopped"), "step": steps, "steps": steps, "running": False},
    ]
    assert [(Path(entry["path"]).name, entry["reason"]) for entry in found["left_out"]] == [
        ("pre", "is pretrained on masked tokens, without a dev text"),
        ("twin", f"has the preset and the seed of {runs / 'good-10'}"),
    ]
    assert [group["n"] for group in found["groups"]] == [2, 3]
    out, err = recur.ok("compare", runs)
    assert re.search(rf"stopped +{steps} +{steps} +stopped", out)
    assert f"recur: warning: {runs / 'twin'}: left out: it has the preset and the seed of" in err
    assert compared(recur, runs / "stopped")["groups"] == []
    recur.refused(2, "no classifier and no causal language model to compare", "compare", runs / "notes")


def test_a_damaged_run_is_refused_by_name_and_left_out_of_a_folder(recur: Recur, runs: Path) -> None:
    result, weights = runs / "good-10" / "result.json", runs / "good-11" / "model.safetensors"
    whole = result.read_text()
    for text, reason in (
        (re.sub(r'"macro_f1": [0-9.]+', '"macro_f1": 0.99', whole, count=1), "its macro F1 is 0.9900"),
        (whole.replace('"seconds": ', '"second": '), "is damaged: seconds is missing"),
        (whole[:-9], "is damaged"),
    ):
        result.write_text(text)
        assert str(result) in recur.refused(4, reason, "compare", runs / "good-10", runs)
        out, err = recur.ok("compare", runs, "--json")
        assert f"warning: {result.parent}: left out: it cannot be read: {result}" in err and reason in err
        found = json.loads(out)
        assert [group["n"] for group in found["groups"]] == [1, 3]
        assert [Path(entry["path"]).name for entry in found["left_out"]] == ["good-10"]
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    shutil.rmtree(runs / "good-10")
    assert f"{weights}: is damaged" in recur.ok("compare", runs)[1]


def test_tables_are_written_by_their_suffix(recur: Recur, runs: Path, tmp_path: Path) -> None:
    found = compared(recur, runs)
    for suffix in ("md", "csv", "json"):
        table = tmp_path / f"table.{suffix}"
        assert recur.ok("compare", runs, "--output", table)[1] == f"recur: {table}: written\n"
    assert json.loads((tmp_path / "table.json").read_text()) == found
    lines = (tmp_path / "table.md").read_text().splitlines()
    assert lines[0] == "Kept models."
    said = [line for line in lines[2 : lines.index("", 1) + 2 * len(found["verdict"])] if line]
    assert said == [re.sub(r"([_*])", r"\\\1", sentence) for sentence in found["verdict"]]
    lines = lines[2 + 2 * len(said) :]
    assert lines[0].startswith(r"| finetuning.learning\_rate | n | accuracy | best | parameters |")
    first = found["groups"][0]
    assert lines[2].startswith(f"| 0.01 | 2 | {100 * first['mean']:.1f} ± {100 * first['std']:.1f} |")
    assert [line.split(" | ")[0] for line in lines[4:6]] == ["| linear model", "| majority class"]
    assert lines[7].startswith(r"| A | B | A - B |")
    rows = list(csv.DictReader((tmp_path / "table.csv").read_text().splitlines()))
    assert [float(row["mean"]) for row in rows] == [row["mean"] for row in (*found["groups"], *found["baselines"])]
    assert [row["part"] for row in rows] == ["model"] * len(found["groups"]) + [""] * len(found["baselines"])
    recur.ok("compare", runs, "--output", tmp_path / "table.md", "--overwrite")
    recur.refused(2, "table.xlsx: a table ends in one of ", "compare", runs, "--output", tmp_path / "table.xlsx")


def test_no_table_holds_a_control_character_of_a_name(recur: Recur, runs: Path, tmp_path: Path) -> None:
    odd = runs / "o\x1b[31m<b>dd"
    (runs / "good-10").rename(odd)
    for path in runs.rglob("result.json"):
        path.write_text(path.read_text().replace('"preset": "starsaber', '"preset": "\\u001b[31m\\u202e<b>starsaber'))
    for suffix in ("md", "csv", "json", "html"):
        table = tmp_path / f"table.{suffix}"
        code, out, _ = recur("compare", runs, "--report" if suffix == "html" else "--output", table, "--quiet")
        text = out + table.read_text(encoding="utf-8")
        assert (code, "\x1b" in text, "\u202e" in text and suffix != "json") == (0, False, False), suffix
        assert "<b>" not in table.read_text(encoding="utf-8") or suffix != "html"


def test_seeds_that_are_too_few_to_tell_have_no_interval(recur: Recur, trained: Path, tmp_path: Path) -> None:
    for rate, wrongs in ((0.01, (0, 12)), (0.001, (3, 16))):
        for seed, wrong in enumerate(wrongs):
            variant(trained, tmp_path / "runs" / f"{rate}-{seed}", seed=seed, wrong=wrong, learning_rate=rate)
    test = compared(recur, tmp_path / "runs")["tests"][0]
    assert (test["interval"], test["smallest_difference"]) == (None, None)
    assert test["p_value"] > 0.5
    out, _ = recur.ok("compare", tmp_path / "runs")
    assert "3 of 3 tests have too few seeds to tell any difference of accuracy." in out


def test_a_narrow_screen_drops_no_name_and_breaks_no_number(
    recur: Recur, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    piped = recur("compare", runs)[1]
    assert re.search(r"^  group +n +accuracy +best$", piped, flags=re.MULTILINE)
    assert "Minimum detectable difference on 24 dev rows: " in piped
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for width in (40, 60, 80, 120):
        monkeypatch.setenv("COLUMNS", str(width))
        out = re.sub("\x1b\\[[0-9;]*m", "", recur("compare", runs)[1])
        assert max(map(len, out.splitlines())) <= width
        assert {word for word in piped.split() if word[-1].isdigit()} <= {*out.split()}, width
        if width == 40:
            assert re.search(r"^  group: +learning_rate=0\.01\n  parameters: +[\d,]+$", out, flags=re.MULTILINE)
            assert re.search(r"^  A: +learning_rate=0\.01\n  B: +learning_rate=0\.001$", out, flags=re.MULTILINE)


def test_the_differing_keys_tell_the_groups_apart() -> None:
    base = {"encoder.name": "rsa", "encoder.layers": 2, "rate": 1, "size": 8, "heads": 1}
    other = {"encoder.name": "bilstm", "rate": 2, "size": 8, "heads": 1}
    assert differing_keys([base]) == ([], [])
    assert differing_keys([base, other]) == (["encoder.name"], ["rate"]), "layers go with the encoder"
    assert differing_keys([base, {**base, "encoder.layers": 4}, other])[0] == ["encoder.name", "encoder.layers"]
    both = {**base, "encoder.heads": 2, "encoder.layers": 4}
    assert differing_keys([{**base, "encoder.heads": 8}, both, other]) == (
        ["encoder.name", "encoder.heads"],
        ["encoder.layers", "rate"],
    )
    wide = {**base, "size": 16, "heads": 2}
    assert differing_keys([base, wide]) == (["heads"], ["size"])
    assert differing_keys([base, wide, {**wide, "size": 24}]) == (["size"], ["heads"])
    folders = [{"encoder.name": "pretrained", "encoder.path": path, "embedding.segments": path == "a"} for path in "ab"]
    assert differing_keys(folders) == (["encoder.path"], ["embedding.segments"])


def test_odd_ids_of_dev_rows_are_read_as_they_are(tmp_path: Path) -> None:
    odd = ['a", "probabilities": {"x": 1}', "line\u2028separator", "\u001b[31m", ""]
    shares = {"y": 0.25, "n": 0.75}
    lines = [{"id": name, "label": "y", "prediction": "n", "probabilities": shares} for name in odd]
    for line in lines:
        line["encoder_probabilities"] = {"y": 0.9, "n": 0.1} if line is lines[1] else shares
    content = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    (tmp_path / "predictions.dev.jsonl").write_text(content, encoding="utf-8")
    (tmp_path / "config.json").write_text('{"target": {"kind": "one"}, "id2label": {"0": "y", "1": "n"}}')
    write_manifest(tmp_path, ["predictions.dev.jsonl", "config.json"])
    found = read_predictions(Run(tmp_path), "model")
    assert (found.ids, found.labels, found.predictions, found.target) == (
        odd,
        ["y"] * 4,
        ["n"] * 4,
        OneLabel(("y", "n")),
    )
    assert read_predictions(Run(tmp_path), "encoder").predictions == ["n", "y", "n", "n"]


def test_runs_from_pretrained_ones_are_groups_of_their_own(recur: Recur, trained: Path, tmp_path: Path) -> None:
    """Pretrained runs that differ in their seed are one origin; another number of epochs is another."""
    for name, seed, epochs in (("a", 1, 2), ("b", 2, 2), ("c", 3, 9)):
        run = RunDirectory(variant(trained, tmp_path / "pre" / name))
        preset = run.read_preset()
        preset["runtime"]["seed"], preset["pretraining"]["epochs"] = seed, epochs
        run.write_preset(preset, "pretrain")
    for seed, origin in ((1, None), (2, "a"), (3, "b"), (4, "c"), (5, "gone")):
        with edited(variant(trained, tmp_path / "runs" / str(seed), seed=seed)) as result:
            result["init"] = origin and str(tmp_path / "pre" / origin)
    found = compared(recur, tmp_path / "runs")
    assert sorted(group["seeds"] for group in found["groups"]) == [[1], [2, 3], [4], [5]]
    assert found["differences"] == ["init", "init.pretraining.epochs"]


def test_scores_are_shown_and_drawn_over_a_numeric_key(recur: Recur, trained: Path, tmp_path: Path) -> None:
    runs, key = tmp_path / "runs", "finetuning.epochs"
    groups: list[tuple[float, Any, int]]
    groups = [(0.01, 2, 8), (0.01, 4, 5), (0.01, "auto", 4), (0.001, 2, 14), (0.001, 4, 11)]
    for rate, epochs, wrong in groups:
        for seed in (10, 11):
            target = runs / f"{rate}-{epochs}-{seed}"
            variant(trained, target, seed=seed, wrong=wrong + seed % 2, learning_rate=rate, epochs=epochs)
    over = compared(recur, runs, "--over", key)["over"]
    assert [line["name"] for line in over["lines"]] == ["learning_rate=0.01", "learning_rate=0.001"]
    auto = over["lines"][0]["points"].pop()  # a group without a number
    assert (auto["value"], auto["scores"]) == (None, [1 - 4 / 24, 1 - 5 / 24])
    for line, wrongs in zip(over["lines"], ((8, 5), (14, 11)), strict=True):
        assert [point["value"] for point in line["points"]] == [2, 4]
        scores = [pytest.approx([1 - wrong / 24, 1 - (wrong + 1) / 24]) for wrong in wrongs]
        assert [point["scores"] for point in line["points"]] == scores
        assert all(point["interval"][0] < point["mean"] < point["interval"][1] for point in line["points"])
    report = ("--report", tmp_path / "r.html", "--overwrite")
    for plot in ("over.png", "over.svg"):
        out, _ = recur.ok("compare", runs, "--over", key, "--plot", tmp_path / plot, *report)
    assert re.search(r"finetuning\.epochs +learning_rate=0\.01 +learning_rate=0\.001\s+─+\s+2 +6", out), out
    assert re.search(r"\n +null +81\.2 ± [0-9.]+ +–", out), out
    drawn = (tmp_path / "over.svg").read_text()
    assert "learning_rate=0.01, epochs null" in drawn and key in drawn
    page = (tmp_path / "r.html").read_text()
    assert f"Scores over {key}" in page and page.count("<svg") == 2


def test_scores_over_the_share_are_one_line_though_the_rows_differ(recur: Recur, trained: Path, tmp_path: Path) -> None:
    for share, wrong in ((0.25, 9), (0.5, 5), (1.0, 2)):
        variant(trained, tmp_path / "runs" / str(share), wrong=wrong, share=share)
    (line,) = compared(recur, tmp_path / "runs", "--over", "data.train_share")["over"]["lines"]
    assert [point["value"] for point in line["points"]] == [0.25, 0.5, 1.0]
    assert [point["mean"] for point in line["points"]] == [pytest.approx(1 - wrong / 24) for wrong in (9, 5, 2)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--over", "finetuning.epoch"], "no run has the key 'finetuning.epoch'; did you mean 'finetuning.epochs'?"),
        (["--over", "finetuning.loss"], "finetuning.loss has not two numbers: it is cross_entropy"),
        (["--over", "finetuning.epochs"], "finetuning.epochs has not two numbers: it is 6"),
        (["--plot", "x.png"], "--plot draws the scores over a key; name it with --over"),
        (["--over", "finetuning.learning_rate", "--plot", "x.txt"], "x.txt"),
    ],
)
def test_a_key_that_cannot_be_drawn_over_is_refused(options: list[str], message: str, recur: Recur, runs: Path) -> None:
    recur.refused(2, message, "compare", runs, *options)


def test_a_key_without_numbers_is_refused_with_all_its_values(recur: Recur, trained: Path, tmp_path: Path) -> None:
    for rule in ("linear", "cosine"):
        variant(trained, tmp_path / rule, lr_scheduler=rule)
    message = "finetuning.lr_scheduler has not two numbers: it is cosine and linear"
    recur.refused(2, message, "compare", tmp_path, "--over", "finetuning.lr_scheduler")


def test_runs_are_compared_on_the_test_rows_that_they_were_scored_on(recur: Recur, tmp_path: Path) -> None:
    for name, count in (("train", 80), ("dev", 24), ("test", 40)):
        words = [["ok", "good", "fine"][n % 3] if n % 2 else "bad" for n in range(count)]
        lines = [f"{n},{word} day {n % 7},{'np'[(n % 2) ^ (n % 5 == 0)]}\n" for n, word in enumerate(words)]
        (tmp_path / f"{name}.csv").write_text("id,text,label\n" + "".join(lines))
    files = [word for split in ("train", "dev", "test") for word in (f"--{split}", tmp_path / f"{split}.csv")]
    small = ["encoder.hidden_size=8", "encoder.num_layers=1", "finetuning.max_steps=2"]
    settings = [word for setting in [*small, "finetuning.encoder=always"] for word in ("--set", setting)]
    encoder, linear, untested = (tmp_path / "runs" / name for name in ("encoder", "linear", "untested"))
    recur.ok("finetune", "--preset", "starsaber-custom", *files, *settings, "--output", encoder)
    recur.ok("finetune", "--preset", "linear-custom", *files, "--output", linear)
    recur.ok("finetune", "--preset", "linear-custom", *files[:4], "--output", untested)
    of_test = ("--split", "test", "--json")
    report = tmp_path / "page.html"
    out, err = recur.ok("compare", tmp_path / "runs", *of_test, "--report", report)
    assert "untested: left out: it has no predictions of test rows, which `recur finetune --test FILE` names" in err
    found, stored = json.loads(out), [result_of(run) for run in (encoder, linear)]
    assert (found["split"], found["rows"], len(found["tests"])) == ("test", 40, 1)
    score = stored[1]["test"]["accuracy"]
    assert found["verdict"][0] == f"Both runs kept the same linear model ({percent(score)}): nothing to test."
    [group] = found["groups"]
    assert (found["part"], group["preset"]) == ("encoder", stored[0]["preset"])
    assert "encoder: left out: it is a linear model" not in err and "linear: left out: it is a linear model" in err
    rows = lines_of(linear / "predictions.test.jsonl")
    [baseline] = [row for row in found["baselines"] if row["name"] == "linear model"]
    assert baseline["mean"] == pytest.approx(fmean(row["prediction"] == row["label"] for row in rows))
    assert "40 test rows" in report.read_text()
    [alone] = compared(recur, encoder, "--split", "test", "--part", "encoder")["groups"]
    assert alone["mean"] == pytest.approx(stored[0]["test"]["parts"]["encoder"]["accuracy"])
    with (linear / "predictions.test.jsonl").open("a") as file:
        file.write("{}\n")
    recur.refused(4, "predictions.test.jsonl", "compare", linear, "--split", "test")


def test_runs_are_compared_on_rows_longer_than_those_of_training(recur: Recur, trained: Path, tmp_path: Path) -> None:
    sizes = ("encoder.hidden_size=8", "encoder.num_layers=1", "encoder.num_heads=2", "data.train_share=0.01")
    settings = [word for setting in sizes for word in ("--set", setting)]
    encoder, linear = tmp_path / "runs" / "encoder", tmp_path / "runs" / "linear"
    recur.ok("finetune", "--preset", "transformer-parity", *settings, "--epochs", 1, "--output", encoder)
    recur.ok("finetune", "--preset", "linear-parity", *settings[-2:], "--output", linear)
    found = compared(recur, tmp_path / "runs", "--split", "test-long")
    assert (found["split"], found["rows"], len(found["groups"])) == ("test-long", 2000, 2)
    for run in (encoder, linear):
        result, rows = result_of(run), lines_of(run / "predictions.test-long.jsonl")
        accuracy = result["test-long"]["accuracy"]
        assert accuracy == fmean(row["prediction"] == row["label"] for row in rows)
        assert accuracy in [group["mean"] for group in found["groups"]]
    recur.ok("eval", linear, "--fit-thresholds", "macro_f1", "--save")
    assert compared(recur, linear, "--split", "test-long")["rows"] == 2000, "the predictions follow the thresholds"
    reason = "left out: it has no predictions of test-long rows, which generated tasks such as parity have"
    assert reason in recur.refused(2, "no classifier", "compare", trained, "--split", "test-long")


def test_groups_are_tested_by_pairs_of_seeds(recur: Recur, trained: Path, tmp_path: Path) -> None:
    for rate, shift in ((0.01, 0), (0.001, 3)):
        for seed, wrong in enumerate((0, 6, 12)):  # seeds that go together
            variant(trained, tmp_path / "runs" / f"{rate}-{seed}", seed=seed, wrong=wrong + shift, learning_rate=rate)
    plain, paired = (recur.json("compare", tmp_path / "runs", *more)["tests"][0] for more in ((), ("--pair-seeds",)))
    assert (plain["paired_by_seed"], paired["paired_by_seed"]) == (False, True)
    assert paired["difference"] == plain["difference"]
    assert paired["p_value"] < 0.2 < plain["p_value"]
    _, err = recur.ok("compare", tmp_path / "runs", "--pair-seeds")
    assert "use at least 5 seeds; 3 differences can tell little" in err


def test_fewer_than_two_groups_have_no_pairs(recur: Recur, trained: Path, tmp_path: Path) -> None:
    run = variant(trained, tmp_path / "runs" / "a", seed=1)
    assert "--pair-seeds has no effect: it pairs" in recur.ok("compare", tmp_path / "runs", "--pair-seeds")[1]
    (run / "result.json").unlink()
    assert recur.json("compare", tmp_path / "runs", "--pair-seeds")["groups"] == []


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"seed": 7}, "have different seeds, 1 and 7"),
        ({"seed": 1, "share": 0.5}, "differ in data.train_share"),
    ],
)
def test_runs_that_do_not_go_together_are_not_paired(
    more: dict[str, Any], reason: str, recur: Recur, trained: Path, tmp_path: Path
) -> None:
    variant(trained, tmp_path / "runs" / "a", seed=1)
    variant(trained, tmp_path / "runs" / "b", learning_rate=0.001, **more)
    recur.refused(2, reason, "compare", tmp_path / "runs", "--pair-seeds")
    with edited(variant(trained, tmp_path / "others" / "b", seed=1, learning_rate=0.001)) as result:
        result["data"]["train"]["sha256"] = "0" * 64
    recur.refused(
        2, "have different training rows", "compare", tmp_path / "runs" / "a", tmp_path / "others", "--pair-seeds"
    )
