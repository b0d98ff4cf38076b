"""`recur export`: trained classifiers as something that others take, here CLUE's leaderboard zip."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from recurcli.commands.evaluate import data_config
from recurcli.data.examples import load_split
from recurcli.data.tasks import Submission, Task, task_named
from recurcli.errors import DataError, UsageError
from recurcli.evaluation.predictor import Predictor
from recurcli.export.clue import validate, write_submission
from recurcli.training.events import Finished, Note


def export(
    runs: Sequence[Path],
    *,
    output: Path,
    data: Path | None = None,
    overwrite: bool = False,
    device: str = "auto",
    precision: Any = "auto",
    batch_size: int = 64,
) -> Iterator[Note | Finished]:
    """Predict every test file that CLUE takes of each run's task and write one zip; yields notes and the result.

    Raises UsageError if two runs answer the same task, DataError if a test file is missing or of another length.
    """
    if output.exists() and not overwrite:
        raise UsageError(f"{output}: exists already; replace it with --overwrite")
    if not output.parent.is_dir():
        raise UsageError(f"{output.parent}: no such folder; make it first, or choose another --output")
    answers: dict[str, list[str]] = {}
    sources: dict[str, Path] = {}
    for run in runs:
        predictor = Predictor.load(run, device=device, precision=precision, batch_size=batch_size)
        task = task_named(predictor.model.config.task)
        if not task.submissions:
            raise UsageError(f"{run}: {task.name} is no task of CLUE's leaderboard")
        for submission in task.submissions:
            if submission.name in sources:
                raise UsageError(
                    f"{run}: {submission.name} comes from {sources[submission.name]} already; give one run a task"
                )
            split = _split_of(task, submission)
            try:
                rows = load_split(task, split, data_config(run, data))
            except DataError as error:
                if submission is task.submissions[0]:
                    raise
                yield Note(f"{submission.name} is left out: {error}", "warning")
                continue
            texts = [(example.text, example.pair) for example in rows.examples]
            answers[submission.name] = [prediction.label for prediction in predictor.predict(texts)]
            sources[submission.name] = run
            yield Note(f"{submission.name}: {len(texts):,} rows of {submission.test_file}")
    write_submission(output, answers)
    for finding in validate(output):
        yield Note(finding.message, "warning" if finding.level == "warning" else "info")
    files = [{"name": name, "rows": len(answers[name]), "run": str(sources[name])} for name in sorted(answers)]
    yield Finished({"output": str(output), "format": "clue", "files": files})


def _split_of(task: Task, submission: Submission) -> str:
    """The split whose file is the one that `submission` answers."""
    return next(split for split, file in task.files.items() if file == submission.test_file)
