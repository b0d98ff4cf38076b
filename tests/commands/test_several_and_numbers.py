"""What leaves a run of several labels a row, or of numbers: predictions in all formats, `load`, and exports that agree."""

import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from logs import Kept, drop
from predicting import as_stdin, jsonl, tsv
from running import Recur, saved
from small_runs import weighted
from test_export_onnx import labelled
from tiny_task import write_rows

import recurcli
from recurcli.cli import run
from recurcli.commands.predict import predict
from recurcli.commands.prediction import output as prediction_output
from recurcli.commands.prediction import rows as prediction_rows
from recurcli.export.quantize import Agreement
from recurcli.requests.predict import PredictRequest
from recurcli.targets import Number, SeveralLabels

WORDS = {"cold, icy": "frost", "wet": "rain", 'so "bright"': "sun"}
LINEAR = ("--preset", "linear-custom", "--set", "linear.vectors=null", "--set", "linear.c=1", "--quiet")
ENCODER = (
    *("--preset", "transformer-custom", "--set", "linear.vectors=null", "--set", "linear.c=1", "--quiet"),
    *("--set", "encoder.num_layers=1", "--set", "encoder.hidden_size=16", "--set", "finetuning.encoder=always"),
    *("--epochs", "2"),
)


def weather(count: int) -> list[dict[str, Any]]:
    """Texts in which a word tells each label, and each label has its number; every third row has no label."""
    draw, made = random.Random(0), list[dict[str, Any]]()
    for row in range(count):
        own = [label for label in WORDS if row % 3 and draw.random() < 0.6]
        words = [*(WORDS[label] for label in own), *(f"w{draw.randrange(40)}" for _ in range(4))]
        number = round(sum(10 ** list(WORDS).index(label) for label in own) + draw.random() / 10, 3)
        made.append({"text": " ".join(draw.sample(words, len(words))), "labels": own, "number": number})
    return made


def trained(folder: Path, kind: str, *options: str) -> Path:
    rows = [{key: row[key] for key in ("text", {"several": "labels"}.get(kind, kind))} for row in weather(400)]
    write_rows(folder / "rows.jsonl", rows)
    (file, output) = (str(folder / "rows.jsonl"), str(folder / "run"))
    assert run(["finetune", file, "--label", [*rows[0]][1], "--target", kind, *options, "--output", output]) == 0
    return folder / "run"


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("several"), "several", *LINEAR)


@pytest.fixture(scope="module")
def number(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("number"), "number", *LINEAR)


def test_several_labels_are_joined_in_tables_and_lists_elsewhere(recur: Recur, several: Path, tmp_path: Path) -> None:
    table = saved(tmp_path / "x.csv", 'text,n\n"rain, frost",1\nw1,2\nsun,3\n')
    out, err = recur.ok("predict", several, table)
    assert out.splitlines() == [
        "text,n,prediction",
        '"rain, frost",1,"cold, icy|wet"',
        "w1,2,",
        'sun,3,"so ""bright"""',
    ]
    assert re.search(r'3 rows \((cold, icy|wet|so "bright") 1, .* 1; 1 without a label\)', err)
    lists = [["cold, icy", "wet"], [], ['so "bright"']]
    rows = jsonl(recur.ok("predict", several, table, "--format", "jsonl", "--explain")[0])
    assert [row["prediction"] for row in rows] == lists and "score" not in rows[0]
    assert [row["explanation"] for row in rows][1:] == [{}, {'so "bright"': ["sun"]}]
    header, row, *_ = tsv(
        recur.ok("predict", several, table, "--format", "tsv", "--probabilities", "--top-k", "2", "--explain")[0]
    )
    assert header[2:] == [
        *("prediction", "label_1", "score_1", "label_2", "score_2"),
        *(f"probability_{label}" for label in recurcli.load(several).labels),
        "explanation",
    ]
    assert set(row[3:7:2]) == {"cold, icy", "wet"} and float(row[4]) >= float(row[6]) > 0.5
    assert row[-1] == "cold, icy: frost; wet: rain"
    recur.ok("predict", several, table, "--output", tmp_path / "x.parquet", "--quiet")
    parquet = pytest.importorskip("pyarrow.parquet")
    assert parquet.read_table(tmp_path / "x.parquet").column("prediction").to_pylist() == lists


def test_one_threshold_takes_the_place_of_all(
    recur: Recur, several: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = saved(tmp_path / "x.txt", "".join(f"{text}\n" for text in ("w3 w4", "rain", "sun frost")))
    for threshold, least, most in (("0", 3, 3), ("1", 0, 0)):
        rows = jsonl(
            recur.ok("predict", several, texts, "--no-header", "--format", "jsonl", "--threshold", threshold)[0]
        )
        assert all(least <= len(row["prediction"]) <= most and "reason" not in row for row in rows)
    as_stdin(monkeypatch, b"rain\n\xff\n")
    out, _ = recur.ok("predict", several, "--no-header")
    first, bad = tsv(out)
    assert first[1:] == ["wet", ""] and "UTF-8" in bad[-1]


def test_numbers_are_predicted_alone(recur: Recur, number: Path, tmp_path: Path) -> None:
    table = saved(tmp_path / "x.csv", "text,score\nw1 sun,1\nw2 w3,2\n")
    out, err = recur.ok("predict", number, table, "--format", "tsv")
    header, *rows = tsv(out)
    assert header == ["text", "score", "prediction"]
    high, low = (float(row[2]) for row in rows)
    assert high > 40 > low
    assert f"2 rows (numbers from {rows[1][2]} to {rows[0][2]})" in err
    found = jsonl(recur.ok("predict", number, table, "--format", "jsonl", "--explain")[0])
    assert [row["prediction"] for row in found] == [high, low]
    assert found[0]["explanation"][0] == "sun"
    recur.ok("predict", number, table, "--output", tmp_path / "x.parquet", "--quiet")
    parquet = pytest.importorskip("pyarrow.parquet")
    assert parquet.read_table(tmp_path / "x.parquet").column("prediction").to_pylist() == [high, low]
    for option in (("--threshold", "0.5"), ("--top-k", "1"), ("--probabilities",)):
        reason = f"predicts numbers, which have no probabilities; leave out {option[0]}"
        recur.refused(2, reason, "predict", number, table, *option)


def test_they_are_no_submission_to_clue(recur: Recur, several: Path, number: Path, tmp_path: Path) -> None:
    texts = saved(tmp_path / "x.txt", "rain\n")
    for folder in (several, number):
        reason = "does not predict one label a row, which --format clue has"
        recur.refused(2, reason, "predict", folder, texts, "--format", "clue")
        line = ("export", folder, "--format", "clue", "--output", tmp_path / "x.zip")
        recur.refused(2, "does not predict one label a row, which CLUE takes", *line)


def test_predict_in_python_has_labels_or_a_number(several: Path, number: Path) -> None:
    both, none = recurcli.load(several).predict(["rain frost", "w1"])
    assert (both.label, both.score, none.label) == (("cold, icy", "wet"), None, ())
    assert both.probabilities["wet"] > 0.5 > both.probabilities['so "bright"']
    [found] = recurcli.load(number).predict(["sun"])
    assert isinstance(found.label, float) and (found.score, found.probabilities) == (None, {})


@pytest.mark.parametrize("kind", ["several", "number"])
def test_a_resumed_output_has_the_same_bytes_and_counts(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prediction_rows, "WINDOW", 20)
    monkeypatch.setattr(prediction_output, "SECONDS_BETWEEN_JOURNALS", 0)
    source, output, log, again = tmp_path / "x.jsonl", tmp_path / "out.csv", Kept(), Kept()
    write_rows(source, [{"text": row["text"]} for row in weather(90)])
    wanted = PredictRequest(run=request.getfixturevalue(kind), inputs=[source], output=output)
    predict(wanted, log)
    whole = output.read_bytes()
    output.unlink()
    drop(predict, wanted, lambda state: state.done >= 50)
    predict(replace(wanted, resume=True), again)
    assert output.read_bytes() == whole
    assert again.notes[-1] == log.notes[-1]
    assert f"{output}: going on after row 40" in again.notes


@pytest.mark.parametrize("kind", ["several", "number"])
def test_an_exported_linear_model_answers_as_predict(
    kind: str, recur: Recur, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    check_export(recur, request.getfixturevalue(kind), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("several", ("finetuning.thresholds=macro_f1",)),
        ("several", ("data.at_least_one=true",)),
        ("number", ()),
    ],
)
def test_an_exported_ensemble_and_its_linear_model_answer_as_predict(
    kind: str, more: tuple[str, ...], recur: Recur, tmp_path: Path
) -> None:
    pytest.importorskip("onnxscript")
    folder = trained(tmp_path, kind, *ENCODER, *(part for setting in more for part in ("--set", setting)))
    folder = weighted(folder, tmp_path / "ensemble", 0.5, 1)
    check_export(recur, folder, tmp_path)
    check_export(recur, folder, tmp_path, "--fast")


def check_export(recur: Recur, folder: Path, place: Path, *fast: str) -> None:
    """Compare predict.py of the exported folder, and of the int8 one, with `recur predict`."""
    texts = [*(row["text"] for row in weather(150)), "frost\tx", ""]
    write_rows(place / "texts.jsonl", [{"text": text} for text in texts])
    rows = jsonl(recur.ok("predict", folder, place / "texts.jsonl", "--quiet", *fast)[0])
    target = recurcli.load(folder).kept.target
    for int8 in ((), ("--quantize", "int8")):
        output = place / f"exported{len(int8)}{len(fast)}"
        recur.ok("export", folder, "--format", "onnx", "--output", output, "--quiet", *fast, *int8)
        done = labelled(output, "".join(f"{text}\n" for text in texts).encode())
        assert (done.returncode, done.stderr) == (0, b"")
        found = done.stdout.decode().splitlines()
        assert ("joined by `|`" if target.has_labels else "the number") in (output / "README.md").read_text()
        if target.has_labels:
            same = [given == target.text_of(tuple(row["prediction"])) for given, row in zip(found, rows, strict=True)]
            assert np.mean(same) >= (0.98 if int8 else 1)
        else:
            numbers = [float(given) for given in found]
            assert numbers == pytest.approx([row["prediction"] for row in rows], rel=1e-4, abs=2 if int8 else 1e-3)


def test_agreement_is_of_sets_of_labels_or_of_the_variance_of_numbers() -> None:
    labels, fp32 = SeveralLabels(("a", "b"), ","), np.array([[1, 0, 0], [1, 1, 0], [0, 0, 0], [0, 1, 0]])
    agreement = Agreement.of(labels, fp32, np.array([[1, 0, 0], [1, 0, 0], [0, 0, 0], [0, 1, 0]]), fp32)
    assert [agreement.fp32, agreement.int8, agreement.agreement] == pytest.approx([1, 6 / 7, 0.75])
    assert str(agreement).endswith("micro F1 100.00 % in fp32 and 85.71 % in int8; agreement 75.00 %")
    numbers, fp32 = Number(("number",), 0.0, 8.0, 4.0, 2.0, False), np.array([1.0, 3.0])
    agreement = Agreement.of(numbers, fp32, fp32 + 0.2, fp32)
    assert agreement.agreement == pytest.approx(0.99)
    assert str(agreement).endswith("MAE 0.0000 in fp32 and 0.2000 in int8; agreement 99.00 %")
