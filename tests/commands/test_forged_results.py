"""result.json and metrics.jsonl of somebody else: what does not fit is refused in one line with exit code 4."""

import json
import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from test_evaluate import copy_of

from recurcli.commands.comparison.collect import collect
from recurcli.commands.comparison.groups import baselines, group_runs
from recurcli.display.training import print_training
from recurcli.errors import ModelError
from recurcli.files import MANIFEST, CommittedFolder, extend_manifest, read_manifest, write_manifest
from recurcli.runs.predictions import read_predictions, read_texts
from recurcli.runs.run_directory import (
    RESULT_SHAPE,
    ROW_SHAPE,
    SCORED_SHAPES,
    SHARES_SHAPE,
    TEXT_SHAPE,
    RunDirectory,
)

Recur = Callable[..., tuple[int, str, str]]
JUNK: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    2.5,
    10**400,
    1e300,
    float("nan"),
    float("inf"),
    "",
    "x" * 99,
    [],
    [[]],
    [7],
    {},
    {"a": 1},
    {"a": ["b"]},
)
MISSING = object()


def places(shape: Any, value: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The path to every key of a shape, those that may be missing too; of * the keys that `value` has."""
    if isinstance(shape, tuple):
        shape = shape[0]
    if not isinstance(shape, Mapping):
        return
    value = value if isinstance(value, dict) else {}
    for name, inner in shape.items():
        known = {key.removesuffix("?") for key in shape}
        for key in [key for key in value if key not in known] if name == "*" else [name.removesuffix("?")]:
            yield (*path, key)
            yield from places(inner, value.get(key), (*path, key))


def forgeries(value: Any, shape: Any) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """The path and the junk, and `value` with that junk at that path, for each path of the shape and each junk."""
    text = json.dumps(value)
    for path in places(shape, value):
        for junk in (MISSING, *JUNK):
            copy = json.loads(text)
            holder = copy
            for key in path[:-1]:
                if not isinstance(holder.get(key), dict):
                    holder[key] = {}
                holder = holder[key]
            if junk is MISSING:
                holder.pop(path[-1], None)
            else:
                holder[path[-1]] = junk
            yield path, junk, copy


@pytest.fixture
def forged(trained: Path, tmp_path: Path) -> Path:
    """A copy of a run whose manifest does not list result.json, so that only its content is checked."""
    run = copy_of(trained, tmp_path / "run")
    manifest = json.loads((run / MANIFEST).read_text())
    manifest["files"] = [entry for entry in manifest["files"] if entry["name"] != "result.json"]
    (run / MANIFEST).write_text(json.dumps(manifest))
    return run


def test_what_a_forged_result_holds_is_refused_or_compared(
    forged: Path, recur: Recur, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each key that a command reads with each wrong value: the shape refuses it, or the comparison can use it."""
    draw = random.Random(29)
    result = RunDirectory(forged).read_result()
    result["test"] = {**result["dev"], **{key: result[key] for key in ("baselines", "parts", "calibration")}}
    shape = {**RESULT_SHAPE, **SCORED_SHAPES["finetune"]}
    refused, used = 0, 0
    for path, junk, content in forgeries(result, shape):
        if draw.random() > 0.5 and junk not in ("x" * 99, [7]):
            continue
        (forged / "result.json").write_text(json.dumps(content))
        try:
            read = RunDirectory(forged).read_result()
        except ModelError as error:
            assert str(error).startswith(f"{forged / 'result.json'}: is damaged: "), path
            assert len(str(error)) < 400
            refused += 1
            continue
        if draw.random() > 0.25:
            continue
        used += 1
        try:
            print_training(read, forged)
            groups = group_runs(collect([forged], "model").runs, "accuracy")[0]
            assert [group.to_json("accuracy") for group in groups], (path, junk)
            assert len(baselines(groups, "accuracy")) > 0
        except ModelError as error:
            assert str(forged) in str(error), (path, junk)
    assert refused > 1000
    assert used > 20
    (forged / "result.json").write_text(json.dumps({**result, "cpu_seconds": [1]}))
    code, _, err = recur("compare", forged)
    assert (code, err) == (4, f"recur: error: {forged / 'result.json'}: is damaged: cpu_seconds is [1]\n")


def test_what_forged_predictions_hold_is_refused_by_line(trained: Path, tmp_path: Path) -> None:
    """Each key with each wrong value, in the first row and in a later one."""
    rows = [json.loads(line) for line in (trained / "predictions.dev.jsonl").read_text().splitlines()[:2]]
    path = tmp_path / "predictions.dev.jsonl"
    shape = {**ROW_SHAPE, **SHARES_SHAPE, **TEXT_SHAPE}
    readers: dict[str, Callable[[], Any]] = {
        "model": lambda: read_predictions(CommittedFolder(tmp_path), "model"),
        "encoder": lambda: read_predictions(CommittedFolder(tmp_path), "encoder"),
        "linear": lambda: read_predictions(CommittedFolder(tmp_path), "linear"),
        "text": lambda: read_texts(CommittedFolder(tmp_path)),
    }
    refused = dict.fromkeys(readers, 0)
    for number in (0, 1):
        for key, junk, row in forgeries(rows[number], shape):
            path.write_text("".join(json.dumps(row if place == number else rows[place]) + "\n" for place in (0, 1)))
            write_manifest(tmp_path, [path.name])
            for name, read in readers.items():
                try:
                    read()
                except ModelError as error:
                    assert str(error).startswith(str(path)), (key, junk)
                    refused[name] += 1
    assert min(refused.values()) > 40


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (None, "does not list config.json"),
        ('{"id2label": ["neg", "pos"]}', "id2label is no mapping"),
        ('{"id2label": {"0": ["neg"]}}', r"id2label.0 is \['neg'\]"),
        ("[]", "its content is no mapping"),
        ("{}", "id2label is missing"),
    ],
)
def test_names_of_many_classes_that_cannot_be_read_are_refused(config: str | None, reason: str, tmp_path: Path) -> None:
    row = {"id": "1", "label": "a", "prediction": "a", "probabilities": {"a": 1.0}, "other_probabilities": 0.0}
    (tmp_path / "predictions.dev.jsonl").write_text(json.dumps(row) + "\n")
    if config is not None:
        (tmp_path / "config.json").write_text(config)
    write_manifest(tmp_path, [path.name for path in tmp_path.iterdir()])
    with pytest.raises(ModelError, match=f"manifest.json: {reason}" if config is None else f"config.json: .*{reason}"):
        read_predictions(CommittedFolder(tmp_path), "model")


def test_lines_of_metrics_that_hold_no_numbers_are_refused_and_incomplete_ones_left_out(forged: Path) -> None:
    run = RunDirectory(forged)
    whole = run.metrics.read_text()
    run.metrics.write_text(whole + '{"step": 99, "lo')
    assert len(run.read_metrics()) == whole.count("\n")
    for line in (
        '{"step": "x"}',
        '{"step": 1e400}',
        '{"step": 3, "loss": [1]}',
        '{"step": 3, "dev_metric": {}}',
        "[1]",
        '{"a": 1}',
    ):
        run.metrics.write_text(f"{whole}{line}\n")
        with pytest.raises(ModelError, match=r"metrics.jsonl:\d+: is damaged: "):
            run.read_metrics()


def test_a_changed_result_is_found_by_the_manifest(recur: Recur, trained: Path, forged: Path, tmp_path: Path) -> None:
    assert "result.json" in read_manifest(trained)
    assert recur("compare", forged)[0] == 0, "a manifest that does not list it"
    run = copy_of(trained, tmp_path / "other")
    text = (run / "result.json").read_text()
    result = json.loads(text)
    (run / "result.json").write_text(text.replace(f'"macro_f1": {result["dev"]["macro_f1"]}', '"macro_f1": 0.875', 1))
    with pytest.raises(
        ModelError, match=r"result.json: is damaged \(its size or sha256 is not what manifest.json says\)"
    ):
        RunDirectory(run).read_result()
    for command in ("compare", "eval"):
        code, out, err = recur(command, run)
        assert (code, out, err.count("\n")) == (4, "", 1), err
    extend_manifest(run, "result.json")
    assert recur("eval", run)[0] == 0
    code, _, err = recur("compare", run)
    assert (code, "its macro F1 is 0.8750, but its predictions give" in err) == (4, True), err
