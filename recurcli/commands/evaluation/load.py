"""Loads the labelled rows that `recur eval` scores, and counts those that the run was trained on."""

from collections.abc import Generator, Mapping
from pathlib import Path

from recurcli.commands.trained_run import data_config
from recurcli.data.columns import TrainingRows, option, setting
from recurcli.data.examples import Split, count_known_rows, load_split
from recurcli.data.sources import adapted, find_source, is_local, is_single
from recurcli.data.tasks import Task
from recurcli.errors import DataError, ModelError, UsageError, counted
from recurcli.events import Note
from recurcli.files import sha256_of
from recurcli.runs.run_directory import RunDirectory


def load_rows(
    run: Path,
    task: Task,
    split: str,
    data: Path | None,
    columns: Mapping[str, object] | None = None,
    trained: TrainingRows | None = None,
) -> Split:
    """Return the labelled rows to score. The split "file" means all rows of the file `data`.

    Raises DataError if the rows have no labels or cannot be read, and if they are pairs and the rows `trained` single texts,
    or the other way round.
    """
    config = data_config(run, data, columns)
    way_out = setting if data is None else option
    alone = config.path is not None and is_single(Path(config.path))
    named = data is None and config.named_file(split) is not None
    if not task.has_labels(split) and split != "file" and not named:
        raise DataError(f"the {split} rows of {task.name} carry no labels; `recur export` predicts them for CLUE")
    if data is None and alone and split not in ("train", "dev") and not named:
        raise DataError(f"{config.path}: holds train and dev rows; name the {split} rows with --data")
    if split == "file":
        return load_split(task, "dev", config, way_out=way_out, trained=trained)
    divided = data is None or (alone and is_training_file(run, task, data))
    rows = load_split(task, split, config, divided=divided, way_out=way_out, trained=trained)
    if rows.label is None:
        raise DataError(f"the {split} rows of {task.name} carry no labels; `recur predict` labels them")
    return rows


def is_training_file(run: Path, task: Task, data: Path) -> bool:
    """Return whether `data` is the file from which the run drew train and dev rows, or a copy of it."""
    config = RunDirectory(run).read_data_config()
    try:
        if not is_local(config, "train"):
            return False
        source = find_source(adapted(task, config), "train", config, divided=True)
    except DataError:
        return False
    if not source.divided or source.path.is_file() != data.is_file():
        return False
    if not data.is_file():
        return data.samefile(source.path)
    same_size = data.stat().st_size == source.path.stat().st_size
    return data.samefile(source.path) or (same_size and sha256_of(data) == sha256_of(source.path))


def known_rows(run: Path, task: Task, rows: Split) -> Generator[Note, None, dict[str, int | None]]:
    """Return the numbers of `rows` with the text of a training row and of a dev row of the run; yields a note on them.

    A number is None if the rows of the run can no longer be read. They are read from the path in the run's preset, never from
    the Hub.
    """
    unknown = "the number of training rows among these rows is unknown"
    counts: dict[str, int | None] = {"training_rows": None, "dev_rows": None}
    config = RunDirectory(run).read_data_config()
    if not is_local(config, "train") and (config.hub is not None or task.hub is not None):
        yield Note(f"{unknown}: the run was trained on rows of the Hub", "warning")
        return counts
    try:
        config = data_config(run, None)
        train = load_split(task, "train", config, divided=True)
        dev = train.dev or load_split(task, "dev", config, divided=True)
    except (DataError, UsageError) as error:  # a classifier fitted in Python names no data
        yield Note(f"{unknown}: {error}", "warning")
        return counts
    for split, known in (("train", train), ("dev", dev)):
        try:
            stored = RunDirectory(run).read_result()["data"][split]["sha256"]
        except (OSError, ModelError, KeyError, TypeError):
            stored = known.sha256  # an unfinished run has no result
        if stored != known.sha256:
            yield Note(f"{unknown}: {known.path} has changed since the training", "warning")
            return counts
    for key, known in (("training_rows", train), ("dev_rows", dev)):
        counts[key] = count_known_rows(rows, known.with_extra_rows())
    chosen = f", {counts['dev_rows']:,} in the dev rows, on which the model was selected" if counts["dev_rows"] else ""
    text = f"{counted(counts['training_rows'] or 0, 'row', 'are', of=len(rows.examples))} in the training rows{chosen}"
    yield Note(text, "warning" if counts["training_rows"] else "info")
    return counts
