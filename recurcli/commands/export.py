"""`recur export`: trained classifiers as something that others take, here CLUE's leaderboard zip."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from recurcli.commands.evaluate import data_config, task_of
from recurcli.data.config import DataConfig
from recurcli.data.examples import Split, load_split
from recurcli.data.sources.find import find_source
from recurcli.data.tasks import Submission, Task
from recurcli.errors import DataError, UsageError
from recurcli.evaluation.predictor import Predictor
from recurcli.events import Finished, Note, RowsDone
from recurcli.export.clue import validate, write_submission
from recurcli.model.device import Precision


class Answer(NamedTuple):
    """A file of the zip that is to be made: whose model predicts which rows."""

    submission: Submission
    run: Path
    predictor: Predictor
    rows: Split


def export(
    runs: Sequence[Path],
    *,
    output: Path,
    data: Path | None = None,
    overwrite: bool = False,
    device: str = "auto",
    precision: Precision = "fp32",
    batch_size: int = 64,
) -> Iterator[Note | RowsDone | Finished]:
    """Predict every test file that CLUE takes of each run's task and write one zip; yields notes, rows done, the result.

    All models and test files are read before the first row is predicted. Raises UsageError if two runs answer the same
    task, DataError if a test file is missing, has bad rows or is of another length.
    """
    _refuse_output(output, overwrite=overwrite)
    predictors = [Predictor.load(run, device=device, precision=precision, batch_size=batch_size) for run in runs]
    answers: list[Answer] = []
    for run, predictor in zip(runs, predictors, strict=True):
        task = task_of(run, predictor)
        if not task.submissions:
            raise UsageError(f"{run}: {task.name} is no task of CLUE's leaderboard")
        if earlier := next((answer.run for answer in answers if answer.submission in task.submissions), None):
            raise UsageError(f"{run}: is of the task {task.name}, as is {earlier}; give one run a task")
        for submission in task.submissions:
            if (rows := _test_rows(task, submission, data_config(run, data))) is None:
                yield Note(f"{submission.name} is left out: there is no {submission.test_file}", "warning")
            else:
                answers.append(Answer(submission, run, predictor, rows))
    labels: dict[str, list[str]] = {}
    done, total = 0, sum(len(answer.rows.examples) for answer in answers)
    for answer in answers:
        texts = [(example.text, example.pair) for example in answer.rows.examples]
        scores: np.ndarray = yield from answer.predictor.iter_logits(texts, total=total, before=done)
        labels[answer.submission.name] = [answer.predictor.labels[index] for index in scores.argmax(axis=1)]
        done += len(texts)
    write_submission(output, labels)
    for finding in validate(output):
        yield Note(finding.message, "warning" if finding.level == "warning" else "info")
    files = [
        {
            "name": answer.submission.name,
            "rows": len(answer.rows.examples),
            "from": answer.submission.test_file if answer.rows.path is None else answer.rows.path.name,
            "run": str(answer.run),
        }
        for answer in sorted(answers, key=lambda answer: answer.submission.name)
    ]
    yield Finished({"output": str(output), "format": "clue", "files": files})


def _refuse_output(output: Path, *, overwrite: bool) -> None:
    if output.suffix != ".zip":
        raise UsageError(f"{output}: a CLUE submission is a zip; name it {output.name}.zip")
    if not output.parent.is_dir():
        raise UsageError(f"{output.parent}: no such folder; make it first, or choose another --output")
    if output.is_dir():
        raise UsageError(f"{output}: is a folder; choose another --output")
    if os.path.lexists(output) and not overwrite:
        raise UsageError(f"{output}: exists already; replace it with --overwrite")


def _test_rows(task: Task, submission: Submission, config: DataConfig) -> Split | None:
    """The rows that `submission` answers; None if its file is not there, though another one of the task may be."""
    split = next(name for name, file in task.files.items() if file == submission.test_file)
    if not _is_there(task, submission, split, config):
        return None
    rows = load_split(task, split, replace(config, skip_bad_rows=False))
    if len(rows.examples) != submission.rows:
        raise DataError(
            f"{rows.path or task.name}: has {len(rows.examples):,} rows; {submission.test_file} of CLUE has "
            f"{submission.rows:,}, and each needs its line in {submission.name}"
        )
    return rows


def _is_there(task: Task, submission: Submission, split: str, config: DataConfig) -> bool:
    """Whether the data have the test file of `submission`; the task's first one is missed loudly.

    A single file given as the data is the test file whose name it has, or else the task's first one.
    """
    first = submission is task.submissions[0]
    if config.path is None:
        return first  # the Hub has one test set a task
    path = Path(config.path)
    if not path.is_dir():
        name = path.name.removesuffix(".gz")
        if name in (task.files["train"], task.files["dev"]):
            raise UsageError(
                f"{path}: holds labelled rows, no test rows; {submission.name} answers {submission.test_file}"
            )
        return name == submission.test_file or (first and name not in [other.test_file for other in task.submissions])
    try:
        find_source(task, split, config)
    except DataError:
        if first:
            raise
        return False
    return True
