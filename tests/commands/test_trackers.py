"""`--track`: what the real packages read of a training afterwards. Without its package, a tracker's tests are skipped."""

import math
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from logs import Kept, drop_at_step
from running import Recur, lines_of, result_of
from small_runs import AWKWARD, Prints, fingerprint, options
from tiny_task import tiny

from recurcli.commands.finetune import finetune
from recurcli.requests.training import FinetuneRequest, Tracker
from recurcli.training.trackers import CALM, LOCAL

pytestmark = pytest.mark.filterwarnings("ignore")  # the trackers warn about their own code, and in threads
WANDB_HEADER, WANDB_BLOCK = 7, 32768
"""Bytes of the header of a .wandb file and of its blocks, as in a log of LevelDB."""


class Read(NamedTuple):
    """What a tracker has of a training."""

    losses: dict[int, float]
    accuracy: float
    """The accuracy of result.json."""
    preset: str
    """The preset in words."""


def read_tensorboard(run: Path) -> list[Read]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run / "tracks"), size_guidance={"scalars": 0, "tensors": 0}).Reload()
    losses = [(event.step, event.value) for event in events.Scalars("loss")]
    assert len(dict(losses)) == len(losses), "a step is there twice"
    text = events.Tensors("preset/text_summary")[-1].tensor_proto.string_val[0].decode()
    return [Read(dict(losses), events.Scalars("result/dev/accuracy")[-1].value, text)]


def read_mlflow(run: Path) -> list[Read]:
    import mlflow

    found = []
    for own in mlflow.search_runs(order_by=["start_time"], output_format="list"):
        history = mlflow.MlflowClient().get_metric_history(own.info.run_id, "loss")
        losses = [(metric.step, metric.value) for metric in history]
        assert len(dict(losses)) == len(losses), "a step is there twice"
        assert (own.info.status, own.info.run_name) == ("FINISHED", run.name)
        preset = "".join(f"{key}: {value}\n" for key, value in own.data.params.items())
        found.append(Read(dict(losses), own.data.metrics["result/dev/accuracy"], preset))
    return found


def read_wandb(run: Path) -> list[Read]:
    """Offline a resume makes a new folder with a file of the same name; the newest one is read."""
    import wandb

    wandb.teardown()  # its service writes the end of the files
    paths = Path().glob("wandb/offline-run-*/run-*.wandb")
    files = {path.name: path for path in sorted(paths, key=lambda path: path.stat().st_mtime_ns)}
    return [read_wandb_file(path) for path in files.values()]


def read_wandb_file(path: Path) -> Read:
    losses, accuracy, preset = {}, math.nan, ""
    for record in wandb_records(path.read_bytes()):
        row = {item.key or item.nested_key[0]: item.value_json for item in record.history.item}
        if "loss" in row:
            losses[int(row["_step"])] = float(row["loss"])
        accuracy = float(row.get("result/dev/accuracy", accuracy))
        preset += "".join(
            f"{item.key or '.'.join(item.nested_key)}: {item.value_json}\n" for item in record.run.config.update
        )
    return Read(losses, accuracy, preset)


def wandb_records(content: bytes) -> Iterator[Any]:
    """Yield the records of a .wandb file: each has a checksum (4 bytes), a length (2), a kind (1) and a message."""
    from wandb.proto.wandb_internal_pb2 import Record

    at, message = WANDB_HEADER, b""
    while at + 7 <= len(content):
        if (left := WANDB_BLOCK - at % WANDB_BLOCK) < 7:
            at += left
            continue
        length, kind = int.from_bytes(content[at + 4 : at + 6], "little"), content[at + 6]
        message += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # a whole message, or its last part
            yield Record.FromString(message)
            message = b""


READERS = {"tensorboard": read_tensorboard, "wandb": read_wandb, "mlflow": read_mlflow}


@pytest.fixture(params=READERS)
def tracker(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tracker:
    """Each of the trackers, whose own files are in the test's folder."""
    pytest.importorskip(request.param)
    monkeypatch.chdir(tmp_path)
    for variable, value in {**LOCAL, **CALM}.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    return Tracker(request.param)


def asked(data: Path, run: Path, *trackers: Tracker, **more: Any) -> FinetuneRequest:
    settings = [setting for setting in tiny(*AWKWARD) if setting != "--set"]
    more = {"keep_checkpoints": True, "track": [*trackers], **more}
    return FinetuneRequest(preset="starsaber-tnews", data=data, settings=settings, output=run, **more)


def check(read: Read, run: Path) -> None:
    """Assert that a track has what the files of `run` have; TensorBoard's numbers are fp32."""
    assert read.losses == pytest.approx({line["step"]: line["loss"] for line in lines_of(run / "metrics.jsonl")})
    assert read.accuracy == pytest.approx(result_of(run)["dev"]["accuracy"])
    assert re.search(r"hidden_size\W+16\b", read.preset)


def test_a_track_has_the_preset_the_metrics_and_the_result(
    tracker: Tracker, tiny_tnews: Path, tmp_path: Path, recur: Recur
) -> None:
    run = tmp_path / "run"
    shown = recur.json("finetune", *options(tiny_tnews, run), "--track", tracker)
    assert shown["steps"] == result_of(run)["steps"], "something else is on stdout"
    (read,) = READERS[tracker](run)
    check(read, run)


def test_a_resume_goes_on_in_the_same_track_and_no_bit_is_another(
    tracker: Tracker, tiny_tnews: Path, tmp_path: Path, untouched: Prints
) -> None:
    run, log = tmp_path / "run", Kept()
    drop_at_step(5, finetune, asked(tiny_tnews, run, tracker))
    finetune(asked(tiny_tnews, run, tracker, resume=True), log)
    (read,) = READERS[tracker](run)
    check(read, run)
    assert not log.warnings
    assert fingerprint(run) == untouched["finetune"]


def test_a_tracker_that_comes_at_a_resume_has_the_earlier_steps_too(
    tracker: Tracker, tiny_tnews: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    drop_at_step(5, finetune, asked(tiny_tnews, run))
    finetune(asked(tiny_tnews, run, tracker, resume=True), Kept())
    (read,) = READERS[tracker](run)
    check(read, run)


def test_a_new_training_of_a_run_has_a_track_of_its_own(tracker: Tracker, tiny_tnews: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    finetune(asked(tiny_tnews, run, tracker), Kept())
    log = Kept()
    finetune(asked(tiny_tnews, run, tracker, overwrite=True, seed=2), log)
    *before, read = READERS[tracker](run)
    check(read, run)
    assert not log.warnings
    assert len(before) == (tracker != "tensorboard"), "TensorBoard's track is in the run, which is replaced"


def test_a_tracker_that_cannot_be_opened_is_a_warning(tracker: Tracker, tiny_tnews: Path, tmp_path: Path) -> None:
    run, log = tmp_path / "run", Kept()
    drop_at_step(5, finetune, asked(tiny_tnews, run))
    (run / "tracks" / "id").mkdir(parents=True)  # where the file with its id would be
    finetune(asked(tiny_tnews, run, tracker, resume=True), log)
    (warning,) = log.warnings
    assert warning.startswith(f"--track {tracker}: ")
    assert warning.endswith("; the training goes on without it")
    assert result_of(run)["steps"]


def test_nothing_is_written_through_a_link(tracker: Tracker, tiny_tnews: Path, tmp_path: Path) -> None:
    run, elsewhere, log = tmp_path / "run", tmp_path / "elsewhere", Kept()
    drop_at_step(5, finetune, asked(tiny_tnews, run))
    elsewhere.mkdir()
    (run / "tracks").symlink_to(elsewhere)
    finetune(asked(tiny_tnews, run, tracker, resume=True), log)
    assert not list(elsewhere.iterdir())
    (warning,) = log.warnings
    assert "symbolic link" in warning


def test_a_tracker_that_fails_in_the_middle_is_a_warning(tiny_tnews: Path, tmp_path: Path, untouched: Prints) -> None:
    pytest.importorskip("tensorboard")
    run = tmp_path / "run"
    log = Kept(lambda state: shutil.rmtree(run / "tracks", ignore_errors=True))
    finetune(asked(tiny_tnews, run, Tracker.TENSORBOARD), log)
    (warning,) = log.warnings
    assert warning.startswith("--track tensorboard: ")
    assert fingerprint(run) == untouched["finetune"]


@pytest.mark.parametrize("name", READERS)
def test_a_missing_package_is_refused_before_anything_is_read(
    name: str, recur: Recur, without: Callable[..., None], tmp_path: Path
) -> None:
    without(name)
    line = f"--track {name} needs {name}: pip"
    err = recur.refused(
        2, line, "pretrain", "--preset", "starsaber-tnews", "--track", name, "--output", tmp_path / "run"
    )
    assert f"pip install 'recurcli[{name}]'" in err
    assert not (tmp_path / "run").exists()


def test_an_unknown_tracker_is_refused_with_the_known_ones(recur: Recur) -> None:
    recur.refused(2, "'tensorboard', 'wandb', 'mlflow'", "finetune", "--track", "comet")
