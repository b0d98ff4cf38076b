"""The trackers of `--track`: TensorBoard, Weights & Biases (wandb) and MLflow, each by its own client.

A track has the preset, the lines of metrics.jsonl and the numbers of result.json.
"""

import contextlib
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from recurcli.errors import escaped
from recurcli.files import refuse_links, write_atomically
from recurcli.log import Log
from recurcli.runs.run_directory import TRACKS, RunDirectory
from recurcli.validation import dump, flatten

LOCAL = {"WANDB_MODE": "offline", "WANDB_ERROR_REPORTING": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
"""Environment variables by which nothing leaves the machine, where the user has not set them."""
QUIET = {"WANDB_SILENT": "true", "WANDB_CONSOLE": "off", "MLFLOW_LOGGING_LEVEL": "WARNING"}
"""Those by which the clients print no notes of their own."""
PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3"}
"""Those by which a training waits 14 seconds for a server that is gone, and not four minutes."""
Values = Mapping[str, Any]
Add = Callable[[Values, int], None]


class Track(NamedTuple):
    """What a tracker keeps of a training."""

    id: str
    """Names the track at a resume. Empty: a resume writes it anew."""
    place: object
    """Its folder or address."""
    last_step: int
    """The last step whose numbers it has."""
    add: Callable[[dict[str, float], int], object]
    """Adds the numbers of a step."""
    end: Callable[[bool], object]
    """Closes the track; the argument says whether the training is finished."""


def _tensorboard(folder: Path, title: str, id: str, preset: Values) -> Track:
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(folder), purge_step=0, flush_secs=5)  # hides the steps of earlier files
    writer.add_text("preset", f"```yaml\n{dump(preset)}```")

    def add(numbers: dict[str, float], step: int) -> None:
        for name, number in numbers.items():
            writer.add_scalar(name, number, step)

    return Track("", folder, 0, add, lambda finished: writer.close())


def _wandb(folder: Path, title: str, id: str, preset: Values) -> Track:
    import wandb

    own = wandb.init(name=title, id=id or None, resume="allow", config=dict(preset))
    place = own.url or Path(own.dir).parent
    return Track(own.id, place, own.step - 1, own.log, lambda finished: own.finish(0 if finished else 1))


def _mlflow(folder: Path, title: str, id: str, preset: Values) -> Track:
    import mlflow

    own, status = mlflow.start_run(run_id=id or None, run_name=title), {True: "FINISHED", False: "KILLED"}
    if not id:
        mlflow.log_params(_by_name(preset))
    place, step = mlflow.get_tracking_uri(), int(own.data.metrics.get("step", 0))
    return Track(own.info.run_id, place, step, mlflow.log_metrics, lambda finished: mlflow.end_run(status[finished]))


TRACKERS = {"tensorboard": _tensorboard, "wandb": _wandb, "mlflow": _mlflow}


def _by_name(values: Values) -> dict[str, Any]:
    """Return the values of nested mappings by dotted names, without the characters that MLflow refuses in a name."""
    return {re.sub(r"[^\w .:-]", "_", ".".join(path)): value for path, value in flatten(values)}


def _numbers(values: Values) -> dict[str, float]:
    """Return the numbers of nested mappings, but for those by class. Trackers group names by what precedes a slash."""
    numbers = {name: value for name, value in _by_name(values).items() if type(value) in (int, float)}
    return {
        name.replace(".", "/", 1): value
        for name, value in numbers.items()
        if not any(part in name for part in (".per_class.", ".thresholds.thresholds."))
    }


@contextlib.contextmanager
def _environment(more: Mapping[str, str]) -> Iterator[None]:
    """Set the environment variables of `more` that are not set, for the length of the block."""
    lacking = more.keys() - os.environ.keys()
    os.environ.update({name: more[name] for name in lacking})
    try:
        yield
    finally:
        for name in lacking:
            os.environ.pop(name, None)


@contextlib.contextmanager
def tracking(names: Sequence[str], run: RunDirectory, title: str, preset: Values, log: Log) -> Iterator[Add]:
    """Open a track of the training of `run` at each tracker of `names`, or go on in the one that it has there.

    Yields a function that adds the values of a step to all of them. First a track gets the lines of metrics.jsonl that it
    lacks. A tracker that fails gets nothing more, and a warning says so.
    """
    tracks: dict[str, Track] = {}

    def attempt(name: str, act: Callable[..., object], *arguments: Any) -> None:
        try:
            with contextlib.redirect_stdout(sys.stderr):
                act(*arguments)
        except Exception as error:
            tracks.pop(name, None)
            reason = escaped(str(error).strip().rstrip("."), limit=300)
            log.warn(f"--track {name}: {reason}; the training goes on without it")

    def begin(name: str) -> None:
        id_file = run.path / TRACKS / name
        refuse_links(id_file.parent, id_file)
        id_file.parent.mkdir(exist_ok=True)
        id = id_file.read_text() if id_file.exists() else ""
        tracks[name] = track = TRACKERS[name](id_file.parent, title, id, preset)
        write_atomically(id_file, track.id)
        log.note(f"--track {name}: {track.place}")

    def add(values: Values, step: int) -> None:
        for name, track in [*tracks.items()]:
            if step > track.last_step:
                attempt(name, track.add, _numbers(values), step)

    with _environment({**LOCAL, **QUIET, **PATIENCE} if names else {}):
        for name in names:
            attempt(name, begin, name)
        try:
            for line in run.read_metrics() if tracks else ():
                add(line, line["step"])
            yield add
        finally:
            for name, track in [*tracks.items()]:
                attempt(name, track.end, sys.exception() is None)
