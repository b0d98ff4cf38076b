"""The trackers of `--track`: TensorBoard, Weights & Biases (wandb) and MLflow, each by its own client.

A track has the preset, the lines of metrics.jsonl and the numbers of result.json. A file in the run has the id of its tracks.
"""

import contextlib
import os
import re
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from recurcli.errors import escaped
from recurcli.files import refuse_links, write_atomically
from recurcli.log import Log
from recurcli.runs.run_directory import TRACKS, RunDirectory
from recurcli.validation import dump, flatten

LOCAL = {"WANDB_MODE": "offline", "WANDB_ERROR_REPORTING": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
"""Environment variables by which nothing leaves the machine, where the user has not set them."""
CALM = {"WANDB_SILENT": "true", "WANDB_CONSOLE": "off", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3"}
"""Those by which wandb prints no notes of its own, and MLflow waits 14 seconds for a server that is gone, not four minutes."""
Values = Mapping[str, Any]
Add = Callable[[Values, int], object]
Client = tuple[Any, Add]
"""A context that closes the track, and a function that adds the numbers of a step to it."""


def _tensorboard(folder: Path, title: str, id: str, preset: Values) -> Client:
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(folder), purge_step=0, flush_secs=5)  # hides the steps of earlier files
    writer.add_text("preset", f"```yaml\n{dump(preset)}```")

    def add(numbers: Values, step: int) -> None:
        for name, number in numbers.items():
            writer.add_scalar(name, number, step)

    return writer, add


def _wandb(folder: Path, title: str, id: str, preset: Values) -> Client:
    import wandb

    track = wandb.init(name=title, id=id, resume="allow", config=dict(preset))
    return track, track.log


def _mlflow(folder: Path, title: str, id: str, preset: Values) -> Client:
    import mlflow

    found = mlflow.search_runs(filter_string=f"tags.recur = '{id}'", output_format="list")
    track = mlflow.start_run(found[0].info.run_id if found else None, run_name=title, tags={"recur": id})
    if not found:
        mlflow.log_params(_by_name(preset))
    last_step = track.data.metrics.get("step", 0)
    return track, lambda numbers, step: step > last_step and mlflow.log_metrics(numbers, step)


TRACKERS = {"tensorboard": _tensorboard, "wandb": _wandb, "mlflow": _mlflow}


def _by_name(values: Values) -> dict[str, Any]:
    """Return the values of nested mappings, but for those by label. Trackers group names by what precedes a slash."""
    paths = {
        path: value for path, value in flatten(values) if not {"per_class", "per_label", "thresholds"} & {*path[:-1]}
    }
    return {re.sub(r"[^\w .:/-]", "_", "/".join(path)): value for path, value in paths.items()}  # MLflow refuses others


@contextlib.contextmanager
def tracking(names: Sequence[str], run: RunDirectory, title: str, preset: Values, log: Log) -> Iterator[Add]:
    """Open a track of the training of `run` at each tracker of `names`, or go on in the one that it has there.

    Yields a function that adds the values of a step to all of them. First a track gets the lines of metrics.jsonl that it
    lacks. A tracker that fails gets nothing more, and a warning says so. Sets LOCAL and CALM for the rest of the process.
    """
    clients: dict[str, Client] = {}
    if names:
        os.environ.update({**LOCAL, **CALM, **os.environ})

    def attempt(name: str, act: Callable[..., object], *arguments: Any) -> None:
        try:
            with contextlib.redirect_stdout(sys.stderr):
                act(*arguments)
        except Exception as error:
            clients.pop(name, None)
            reason = escaped(str(error).strip().rstrip("."), limit=300)
            log.warn(f"--track {name}: {reason}; the training goes on without it")

    def begin(name: str) -> None:
        file = run.path / TRACKS / "id"
        refuse_links(file.parent, file)
        file.parent.mkdir(exist_ok=True)
        if not file.exists():
            write_atomically(file, uuid.uuid4().hex)
        clients[name] = TRACKERS[name](file.parent, title, file.read_text(), preset)

    def add(values: Values, step: int) -> None:
        numbers = {name: value for name, value in _by_name(values).items() if type(value) in (int, float)}
        for name, (_, add_numbers) in [*clients.items()]:
            attempt(name, add_numbers, numbers, step)

    for name in names:
        attempt(name, begin, name)
    try:
        for line in run.read_metrics() if clients else ():
            add(line, line["step"])
        yield add
    finally:
        for name, (track, _) in [*clients.items()]:
            attempt(name, track.__exit__, *sys.exc_info())
