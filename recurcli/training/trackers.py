"""The trackers of `--track`: TensorBoard, Weights & Biases (wandb) and MLflow, each by its own client.

A track has the preset, the lines of metrics.jsonl and the numbers of result.json.
"""

import contextlib
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from recurcli.errors import escaped
from recurcli.files import to_json, write_atomically
from recurcli.log import Log
from recurcli.runs.run_directory import TRACKS, RunDirectory
from recurcli.validation import dump, flatten

DEFAULTS = {
    **{"WANDB_MODE": "offline", "WANDB_ERROR_REPORTING": "false", "MLFLOW_DISABLE_TELEMETRY": "true"},
    **{"WANDB_SILENT": "true", "WANDB_CONSOLE": "off", "MLFLOW_LOGGING_LEVEL": "WARNING"},
}
"""Environment variables of the clients that the user has not set: nothing leaves the machine, and nothing is printed."""
Values = Mapping[str, Any]


class Track(NamedTuple):
    """What a tracker keeps of a training."""

    id: str | None
    """Names the track to the tracker, for a resume. None: a resume writes it anew."""
    place: object
    """The folder or address, for the user."""
    last_step: int
    """The last step whose numbers it has."""
    add: Callable[[dict[str, float], int], object]
    """Adds the numbers of a step."""
    end: Callable[[bool], object]
    """Closes the track, and says whether the training is finished."""


def _tensorboard(folder: Path, name: str, id: str | None, preset: Values) -> Track:
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(folder), purge_step=0, flush_secs=5)  # hides the steps of earlier files
    writer.add_text("preset", f"```yaml\n{dump(preset)}```")

    def add(numbers: dict[str, float], step: int) -> None:
        for key, number in numbers.items():
            writer.add_scalar(key, number, step)

    return Track(None, writer.log_dir, 0, add, lambda finished: writer.close())


def _wandb(folder: Path, name: str, id: str | None, preset: Values) -> Track:
    import wandb

    own = wandb.init(name=name, id=id, resume="allow", config=dict(preset))
    place = own.url or Path(own.dir).parent
    return Track(own.id, place, own.step - 1, own.log, lambda finished: own.finish(0 if finished else 1))


def _mlflow(folder: Path, name: str, id: str | None, preset: Values) -> Track:
    import mlflow

    own, place = mlflow.start_run(run_id=id, run_name=name), mlflow.get_tracking_uri()
    if id is None:
        mlflow.log_params(preset)
    last_step = int(own.data.metrics.get("step", 0))
    end = {True: "FINISHED", False: "KILLED"}
    return Track(own.info.run_id, place, last_step, mlflow.log_metrics, lambda done: mlflow.end_run(end[done]))


TRACKERS = {"tensorboard": _tensorboard, "wandb": _wandb, "mlflow": _mlflow}


def _by_name(values: Values) -> dict[str, Any]:
    """Return the values of nested mappings by dotted names, without the characters that MLflow refuses in a name."""
    return {re.sub(r"[^\w .:-]", "_", ".".join(path)): value for path, value in flatten(values)}


def _numbers(values: Values) -> dict[str, float]:
    """Return the numbers of nested mappings, but for those by class. A slash ends the first name, by which trackers group."""
    numbers = {key: value for key, value in _by_name(values).items() if type(value) in (int, float)}
    return {key.replace(".", "/", 1): value for key, value in numbers.items() if ".per_class." not in key}


@contextlib.contextmanager
def tracking(names: Sequence[str], run: RunDirectory, name: str, preset: Values, log: Log) -> Iterator[Any]:
    """Open the tracks of the training of `run` at the trackers `names`; yields a function that adds values of a step to all.

    A track that is new has the earlier lines of metrics.jsonl too. A tracker that fails gets nothing more, with a warning.
    """
    tracks: dict[str, Track] = {}
    folder = run.path / TRACKS
    names_file = folder / "ids.json"

    @contextlib.contextmanager
    def guarded(tracker: str) -> Iterator[None]:
        try:
            with contextlib.redirect_stdout(sys.stderr):
                yield
        except Exception as error:
            tracks.pop(tracker, None)
            log.warn(f"--track {tracker}: {escaped(error, limit=300)}; the training goes on without it")

    def add(values: Values, step: int) -> None:
        for tracker, track in [*tracks.items()]:
            if step > track.last_step:
                with guarded(tracker):
                    track.add(_numbers(values), step)

    os.environ.update({**DEFAULTS, **os.environ})
    for tracker in names:
        with guarded(tracker):
            folder.mkdir(exist_ok=True)
            ids = json.loads(names_file.read_bytes()) if names_file.exists() else {}
            tracks[tracker] = track = TRACKERS[tracker](folder, name, ids.get(tracker), _by_name(preset))
            write_atomically(names_file, to_json({**ids, tracker: track.id}))
            log.note(f"--track {tracker}: {track.place}")
    try:
        for line in run.read_metrics() if tracks else ():
            add(line, line["step"])
        yield add
    finally:
        for tracker, track in [*tracks.items()]:
            with guarded(tracker):
                track.end(sys.exception() is None)
