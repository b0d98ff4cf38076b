"""The rows that `recur eval` scores: where they are, and which of them the training has read."""

import contextlib
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recurcli.commands.prediction.rows import as_text
from recurcli.commands.trained_run import data_config
from recurcli.config import DataConfig
from recurcli.data.known import Hashes, log_known_rows
from recurcli.data.labels import joint_doubt
from recurcli.data.rows import file_and_part
from recurcli.data.source import Source
from recurcli.data.splits import OF_FILE, Split, load_split
from recurcli.data.tasks import Task, check_split, find_place, is_local, is_one_file, task_with_columns
from recurcli.errors import DataError, did_you_mean, escaped, pluralize
from recurcli.files import sha256_of, sha256_of_all
from recurcli.log import Log
from recurcli.requests.evaluate import EvaluateRequest
from recurcli.runs.model_files import read_known_rows
from recurcli.runs.run_directory import LINEAR_FIRST_FIT, Run
from recurcli.targets import OneLabel, Target
from recurcli.targets.target import labels_in
from recurcli.tokens.texts import TextSplit

BY_LENGTH, BY_FILE = "text-length", "file"
"""What --by takes beside the columns of the rows, which come first."""
MOST_NAMED = 8
"""Unknown labels that a warning names, with their rows."""


def read_rows(
    request: EvaluateRequest, run: Run, task: Task, like: Source, log: Log
) -> tuple[str, Split, bool, dict[str, int | None], NDArray[np.bool_] | None]:
    """Return the split to score, its rows, whether they are the run's own dev rows, and `training_overlap` of them.

    Rows that the training has not read may have labels that it had not. Raises DataError for rows without labels, for rows of
    which none has a label of the training, and for rows of the run's own that changed since the training.
    """
    target, is_own = task.target, request.data is None
    assert target is not None
    split, config = scored_split(request, run, task, "rows")
    if split != "file" and not (is_own and config.files_of(split)) and not task.has_labels(split):
        raise DataError(f"the {split} rows of {task.name} carry no labels; `recur export` predicts them for CLUE")
    divided = is_own or (
        split != "file" and is_one_file(Path(str(config.path))) and is_training_data(run, task, config)
    )
    own_dev, is_file = split == "dev" and divided, split == "file"
    sha256 = trained_sha256(run, split) if is_own else None
    source, is_divided = ("dev", False) if is_file else (split, divided)
    load = partial(load_split, task, source, config, keep_records=request.by is not None)
    rows = load(use_dev_split=is_divided, like=like, any_label=sha256 is None)
    if not rows.source.label:
        raise DataError(f"the {split} rows of {task.name} carry no labels; `recur predict` labels them")
    check_rows_of_training(run, split, rows, sha256)
    log.add(*rows.notes)
    if rows.bad:
        log.warn(f"{pluralize(len(rows.bad), 'bad row')} skipped, the first: {rows.bad[0]}")
    if rows.dropped:
        log.note(f"{pluralize(rows.dropped, 'row')} without a majority label ('-') dropped")
    rows = _with_unknown_labels(rows.encoded(target), target, log, drop=request.drop_unknown)
    return split, rows, own_dev, *training_overlap(run, split, rows.hashes, log, is_own=is_own, own_dev=own_dev)


def training_rows(run: Run, task: Task, like: Source, *, keep_records: bool = False) -> Split:
    """Read the training rows of a run again. Raises DataError if they are gone, or have changed."""
    config = data_config(run, None)
    rows = load_split(task, "train", config, use_dev_split=True, like=like, any_label=True, keep_records=keep_records)
    check_rows_of_training(run, "train", rows, trained_sha256(run, "train"))
    return rows


def values_by(by: str, split: Split) -> dict[int | str, Any]:
    """Return the value by which each row is grouped, by its place in the file. Raises DataError for an unknown column."""
    lines, fields = split.examples.lines, {record.line: record.fields for record in split.records}
    column = [as_text(fields[line].get(by)) for line in lines]
    values: dict[str, list[Any]] = {BY_LENGTH: [len(text) + len(pair or "") for text, pair in split.texts]}
    values |= {BY_FILE: [split.files[line // OF_FILE] for line in lines]} if split.files else {}
    values |= dict.fromkeys((key for own in fields.values() for key in own), column)
    if by not in values:
        near = did_you_mean(by, values)
        raise DataError(f"{split.path or 'the rows'}: --by: there is no column '{escaped(by)}'{near}")
    return dict(zip(map(split.place_of, lines), values[by], strict=True))


def _with_unknown_labels(rows: Split, target: Target, log: Log, *, drop: bool) -> Split:
    """Return the rows, without those of labels not seen in training if they are to be dropped; a warning counts these.

    Raises DataError if there are no others.
    """
    known = target.is_known(rows.y)
    if known.all():
        return rows
    others = (label for cell in rows.take(~known).cells for label in labels_in(cell))
    counts = Counter(label for label in others if target.unknown_in(label) is not None).most_common()
    named = ", ".join(f"'{escaped(label)}' {count:,}" for label, count in counts[:MOST_NAMED])
    named += ", …" if len(counts) > MOST_NAMED else ""
    is_one = isinstance(target, OneLabel)
    if not known.any():
        near = did_you_mean(counts[0][0], target.labels)
        what = "no row has a label of the training" if is_one else "every row has a label not seen in training"
        raise DataError(f"{rows.path or 'the Hub'}: {what} ({named}){near}")
    unknown = int((~known).sum())
    what = f"{pluralize(unknown, 'row', 'have', of=len(known))} a label not seen in training ({named})"
    if drop:
        log.warn(f"{what}, left out by --drop-unknown")
        return rows.take(known, dropped=rows.dropped + unknown)
    scored = "such a row is a mistake, but in no loss, calibration, ROC AUC or average precision"
    if not is_one:
        scored = "such a label counts as missed, and its row is in no loss, calibration or average precision"
    joint = joint_doubt([*target.labels, *(label for label, _ in counts)])
    log.warn(f"{what}; {scored}; --drop-unknown leaves it out{f'; {joint}' if joint else ''}")
    return rows


def scored_split(request: EvaluateRequest, run: Run, task: Task, unit: str) -> tuple[str, DataConfig]:
    """Return the split to score, and where its rows or lines (the `unit`) are; "file" is all of the file that --data names.

    Raises UsageError for a split that the task does not have, DataError if the run's own file holds another split.
    """
    check_split(task, request.split or "dev", run.read_data_config())
    split = request.split or ("file" if request.data is not None and is_one_file(request.data) else "dev")
    config = data_config(run, request.data, request.columns.given())
    is_lone_file = request.data is None and config.path is not None and is_one_file(Path(config.path))
    if is_lone_file and split not in ("train", "dev") and not config.files_of(split):
        raise DataError(f"{config.path}: holds train and dev {unit}; name the {split} {unit} with --data")
    return split, config


def is_training_data(run: Run, task: Task, scored: DataConfig) -> bool:
    """Return whether the path of `scored` is the data folder of the run, or a file as the one that gave train and dev rows."""
    config, data = run.read_data_config(), Path(str(scored.path))
    if data.is_dir() and config.path is not None and Path(config.path).is_dir():
        return data.samefile(config.path)
    with contextlib.suppress(DataError):
        if is_local(config, "train"):
            place = find_place(task_with_columns(task, config), "train", config, use_dev_split=True)
            (file, part), *others = map(file_and_part, (data, *place.paths))
            files = [other for other, _ in others]
            same = file.is_file() and files[0].is_file() and sha256_of(file) == sha256_of_all(files)
            is_one = len(files) == 1 and file.samefile(files[0])
            return place.use_dev_split and part == others[0][1] and (same or is_one)
    return False


def trained_sha256(run: Run, split: str) -> str | None:
    """Return the hash of the rows of `split` that the training of `run` read; None: it read none, or that is not known.

    It is that of result.json, or of the newest checkpoint of a run that is not finished.
    """
    if run.is_finished:
        return run.read_result()["data"].get(split, {}).get("sha256")
    return next((state["resume_key"].get(f"{split} sha256") for state in run.read_states()), None)


def check_rows_of_training(run: Run, split: str, rows: Split | TextSplit, sha256: str | None) -> None:
    """Raise DataError if the `rows`, read from the place that the run names for `split`, have another hash than `sha256`."""
    if sha256 not in (None, rows.sha256):
        raise DataError(
            f"{rows.path or 'the Hub'}: changed since the training: its sha256 is not that of the {split} rows of {run}; "
            f"--data {rows.path or 'FILE'} scores it as it is and counts the rows that were trained on"
        )


def training_overlap(
    run: Run, split: str, hashes: Hashes, log: Log, *, is_own: bool, own_dev: bool = False, lines: bool = False
) -> tuple[dict[str, int | None], NDArray[np.bool_] | None]:
    """Return how many of the rows or `lines` of text with these hashes are training rows and dev rows; of the train split {}.
    And return whether each is a training row (N,), or None if that is unknown, and of the train split.

    The dev rows are training rows if the linear model was fitted again on them; as `own_dev` rows they are not. A number is
    None if it is unknown. On rows of the run's own (`is_own`) there is a note only if it is a warning.
    """
    if split == "train":
        return {}, None
    known = read_known_rows(run, None if is_own else log)
    if known is None:
        return {"training_rows": None, "dev_rows": len(hashes) if own_dev else None}, None
    if LINEAR_FIRST_FIT in run and not own_dev:
        known = known.refitted()
    counts = known.count(hashes)
    log_known_rows(log, counts, len(hashes), lines=lines, warnings_only=is_own)
    return {**counts}, known.trains(hashes)
