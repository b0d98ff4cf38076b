"""The export format `clue`: predictions of CLUE's test rows in one zip for its leaderboard."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from recurcli.config import DataConfig
from recurcli.data.rows import uncompressed
from recurcli.data.splits import Split, load_split
from recurcli.data.tasks import find_place
from recurcli.errors import DataError, UsageError
from recurcli.export.clue import Submission, validate, write_submission
from recurcli.export.format import TrainedRun
from recurcli.log import Log


def export_clue(runs: Sequence[TrainedRun], output: Path, log: Log) -> dict[str, Any]:
    """Predict every test file that CLUE takes of each run's task and write one zip; return the files in it.

    All test files are read before the first row is predicted. Raises UsageError for labels that are not one a row, for a task
    that is not CLUE's and for two runs of one task, DataError for a test file that is missing, has bad rows or is of another
    length.
    """
    for run in runs:
        if not run.predictor.kept.target.has_score:
            raise UsageError(f"{run.path}: does not predict one label a row, which CLUE takes; add --format onnx")
    answers: list[tuple[Submission, TrainedRun, Split]] = []
    for run in runs:
        if not run.task.submissions:
            raise UsageError(f"{run.path}: {run.task.name} is not a task of CLUE's leaderboard")
        if earlier := next((other for _, other, _ in answers if other.task.name == run.task.name), None):
            raise UsageError(f"{run.path}: is of the task {run.task.name}, as is {earlier.path}; give one run per task")
        for split in run.task.submissions:
            submission = Submission(run.task, split)
            rows = _test_rows(submission, run)
            if isinstance(rows, str):
                log.warn(f"{submission.name} is left out: {rows}")
            else:
                answers.append((submission, run, rows))
    if not answers:
        raise DataError("no submission can be made of these runs; the reasons stand above")
    labels: dict[str, list[str]] = {}
    done, total = 0, sum(len(rows.examples) for _, _, rows in answers)
    for submission, run, rows in answers:
        logits = run.predictor.logits_of_pairs(rows.texts, partial(log.rows, before=done, total=total))
        kept = run.predictor.kept
        labels[submission.name] = [*map(str, kept.target.decode(kept.predict(logits)))]
        done += len(rows.examples)
    write_submission(output, labels)
    for finding in validate(output):
        (log.warn if finding.level == "warning" else log.note)(finding.message)
    files = [
        {
            "name": submission.name,
            "rows": len(rows.examples),
            "from": submission.test_file if rows.path is None else rows.path.name,
            "run": str(run.folder),
        }
        for submission, run, rows in sorted(answers, key=lambda answer: answer[0].name)
    ]
    return {"files": files}


def _test_rows(submission: Submission, run: TrainedRun) -> Split | str:
    """Read the rows of `submission`, or return why it is left out."""
    # The file of --test has labelled rows.
    config = replace(run.data, files={**run.data.files_of_folder} or None, skip_bad_rows=False)
    if not _has_test_file(submission, config):
        return f"{submission.test_file} is missing"
    rows = load_split(submission.task, submission.split, config, like=run.predictor.source)
    if len(rows.examples) != submission.rows:
        raise DataError(
            f"{rows.path or submission.task.name}: has {len(rows.examples):,} rows; {submission.test_file} of CLUE has "
            f"{submission.rows:,}, and each needs its line in {submission.name}"
        )
    return rows


def _has_test_file(submission: Submission, config: DataConfig) -> bool:
    """Return whether the data has the test file of `submission`; raises DataError if the task's first one is missing.

    A single file is the test file with its name, else the task's first test file.
    """
    task = submission.task
    first = submission.split == next(iter(task.submissions))
    if config.path is None:
        return first  # the Hub has one test set a task
    path = Path(config.path)
    if not path.is_dir():
        name = uncompressed(path.name)
        if name in (task.files["train"], task.files["dev"]):
            raise UsageError(
                f"{path}: holds labelled rows, not test rows; {submission.name} needs {submission.test_file}"
            )
        return name == submission.test_file or (first and name not in [task.files[split] for split in task.submissions])
    try:
        find_place(task, submission.split, config)
    except DataError:
        if first:
            raise
        return False
    return True
