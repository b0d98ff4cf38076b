"""result.json and metrics.jsonl of somebody else: what does not fit is refused in one line with exit code 4."""

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from test_evaluate import copy_of

from recurcli.display.tables import print_training
from recurcli.errors import ModelError
from recurcli.files import MANIFEST, extend_manifest, read_manifest
from recurcli.runs.run_directory import RunDirectory

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
    {},
    {"a": 1},
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path to every value in nested mappings and lists, a few of a list."""
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else list(enumerate(value))[:2] if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


def changed(value: Any, path: tuple[Any, ...], draw: random.Random) -> Any:
    """A copy of `value` with junk at `path`, or without the key."""
    copy = json.loads(json.dumps(value))
    holder = copy
    for key in path[:-1]:
        holder = holder[key]
    if isinstance(holder, dict) and draw.random() < 0.2:
        del holder[path[-1]]
    else:
        holder[path[-1]] = draw.choice(JUNK)
    return copy


@pytest.fixture
def forged(trained: Path, tmp_path: Path) -> Path:
    """A copy of a run whose manifest does not list result.json, as in an older run."""
    run = copy_of(trained, tmp_path / "run")
    manifest = json.loads((run / MANIFEST).read_text())
    manifest["files"] = [entry for entry in manifest["files"] if entry["name"] != "result.json"]
    (run / MANIFEST).write_text(json.dumps(manifest))
    return run


def test_what_a_forged_result_holds_is_refused_or_shown(
    forged: Path, recur: Recur, capsys: pytest.CaptureFixture[str]
) -> None:
    draw = random.Random(29)
    result = RunDirectory(forged).read_result()
    paths = list(places(result))
    refused = 0
    for number in range(160):
        path = draw.choice(paths) if number >= len(result) else (list(result)[number],)
        (forged / "result.json").write_text(json.dumps(changed(result, path, draw)))
        try:
            read = RunDirectory(forged).read_result()
            if number % 4 == 0:
                print_training(read, forged)
        except ModelError as error:
            assert str(error).startswith(f"{forged / 'result.json'}: is damaged: "), path
            assert len(str(error)) < 400
            refused += 1
        if number % 20 == 0:
            code, _, err = recur("compare", forged)
            assert code in (0, 2, 4), (path, err)
    assert 40 < refused < 150


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
    assert recur("compare", forged)[0] == 0, "an older run"
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
    assert recur("compare", run)[0] == 0
