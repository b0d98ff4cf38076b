"""Loads the labelled rows that `recur eval` scores, and counts those that the run was trained on."""

from collections.abc import Generator, Mapping
from pathlib import Path

from recurcli.commands.trained_run import check_rows_of_training, data_config, known_rows_of
from recurcli.data.columns import TrainingRows
from recurcli.data.examples import Split, load_split
from recurcli.data.sources import find_source, is_local, is_one_file, task_with_columns
from recurcli.data.tasks import Task
from recurcli.errors import DataError
from recurcli.events import Note
from recurcli.files import sha256_of
from recurcli.runs.run_directory import RunDirectory
from recurcli.runs.training_overlap import read_known_rows


def load_rows(
    run: Path,
    task: Task,
    split: str,
    data: Path | None,
    columns: Mapping[str, object] | None = None,
    trained: TrainingRows | None = None,
) -> Split:
    """Return the labelled rows to score. The split "file" means all rows of the file `data`.

    Raises DataError if the rows have no labels or cannot be read, if they are pairs and the rows `trained` single texts, or
    the other way round, and without `data` if they are not those of the training.
    """
    config = data_config(run, data, columns)
    alone = config.path is not None and is_one_file(Path(config.path))
    named = data is None and config.named_file(split) is not None
    if not task.has_labels(split) and split != "file" and not named:
        raise DataError(f"the {split} rows of {task.name} carry no labels; `recur export` predicts them for CLUE")
    if data is None and alone and split not in ("train", "dev") and not named:
        raise DataError(f"{config.path}: holds train and dev rows; name the {split} rows with --data")
    if split == "file":
        return load_split(task, "dev", config, trained=trained)
    use_dev_split = data is None or (alone and is_training_file(run, task, data))
    rows = load_split(task, split, config, use_dev_split=use_dev_split, trained=trained)
    if rows.label is None:
        raise DataError(f"the {split} rows of {task.name} carry no labels; `recur predict` labels them")
    if data is None:
        check_rows_of_training(run, split, rows)
    return rows


def is_training_file(run: Path, task: Task, data: Path) -> bool:
    """Return whether `data` is the file from which the run drew train and dev rows, or a copy of it."""
    config = RunDirectory(run).read_data_config()
    try:
        if not is_local(config, "train"):
            return False
        source = find_source(task_with_columns(task, config), "train", config, use_dev_split=True)
    except DataError:
        return False
    if not source.use_dev_split or source.path.is_file() != data.is_file():
        return False
    if not data.is_file():
        return data.samefile(source.path)
    same_size = data.stat().st_size == source.path.stat().st_size
    return data.samefile(source.path) or (same_size and sha256_of(data) == sha256_of(source.path))


def count_known_rows(
    run: Path, task: Task, rows: Split, data: Path | None
) -> Generator[Note, None, dict[str, int | None]]:
    """Return the numbers of `rows` with the text of a training row and of a dev row of the run; yields a note on them.

    A number is None if the run tells no longer. On rows of the run's own, for which `data` is None, there is a note only if
    training rows are among them.
    """
    stored = read_known_rows(run)
    if stored is None and data is None:  # the training counted them
        return {}
    known = stored or (yield from known_rows_of(run, task))
    if known is None:
        return {"training_rows": None, "dev_rows": None}
    counts, note = known.among(rows.texts)
    if data is not None or counts["training_rows"]:
        yield note
    return counts
