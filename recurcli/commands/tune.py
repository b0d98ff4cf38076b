"""`recur tune`: searches the settings of a preset for the best dev metric. Each trial is a fine-tuning run."""

import contextlib
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recurcli.commands.finetune import finetune
from recurcli.commands.training.request import TrainingRequest, preset_facts
from recurcli.commands.tuning.ranges import Range, ranges_of
from recurcli.commands.tuning.report import BEST, best_of, best_preset, line_of, result_of
from recurcli.commands.tuning.request import TuningRequest
from recurcli.distributed.group import current
from recurcli.errors import Interrupted, NumericError, UsageError, counted
from recurcli.events import Finished, Note, Progress
from recurcli.facts import require_same
from recurcli.files import remove, write_atomically
from recurcli.preset import Preset
from recurcli.runs.run_directory import LOCK, RunDirectory

if TYPE_CHECKING:
    from optuna import Trial

    from recurcli.commands.tuning.study import Study

TRIALS, STUDY = "trials", "study.db"
FIXED: Mapping[str, object] = {"prior": None, "finetuning.linear_floor": False, "finetuning.score_test": False}
"""The settings of every trial. They leave out the prior, the linear floor and the test rows."""

DATA_FACTS = ("train sha256", "dev sha256")
"""The facts that a resume must match and that are unknown before the first complete trial."""


def tune(request: TuningRequest) -> Iterator[Note | Finished]:
    """Run the trials of a study, and write the best preset after each of them; yields notes and the result.

    Raises UsageError for a wrong range, for a folder that cannot be used, and without Optuna. Raises NumericError if every
    trial diverged. A study that ends early keeps its finished trials.
    """
    if find_spec("optuna") is None:
        raise UsageError("recur tune needs Optuna: pip install 'recurcli[tune]'")
    if current().world_size > 1:
        raise UsageError("recur tune runs in one process; start it without torchrun")
    ranges = ranges_of(request)
    from recurcli.commands.tuning.study import Study, storage_errors

    folder, preset = request.folder, request.resolved.preset
    _check_folder(folder)
    facts = facts_of(preset, ranges)
    with RunDirectory(folder).lock(), storage_errors(folder / STUDY):
        if request.overwrite:
            _clear(folder)
        new = not (folder / STUDY).exists()
        study = Study(folder / STUDY, ranges, preset.runtime.seed)
        if not new and not study.results():  # a kill in its first trial; its ranges may have been others
            _clear(folder)
            new, study = True, Study(folder / STUDY, ranges, preset.runtime.seed)
        if new:
            study.set_facts(facts)
        elif not request.resume:
            raise UsageError(
                f"{folder}: already has a study; continue it with --resume, or replace it with --overwrite"
            )
        require_same({key: value for key, value in study.facts.items() if key not in DATA_FACTS}, facts, folder)
        try:
            yield from _run_trials(request, study)
        except Interrupted as stop:
            kept = f"{counted(len(study.results()), 'trial', 'are', of=request.trials)} kept"
            hint = f"{kept}; continue with the same command and --resume"
            stop.__notes__ = [hint if study.results() else "nothing was kept; run the same command to start again"]
            raise
        finally:
            if not study.results():
                _clear(folder)
        results = study.results()
        yield Finished(result_of(request, results, {each.key: str(each) for each in ranges}))


def facts_of(preset: Preset, ranges: Sequence[Range]) -> dict[str, Any]:
    """Return the facts that a resume of a study must match, without those of the data."""
    return {**preset_facts(preset.to_dict(), "finetuning"), **{f"--range {each.key}": str(each) for each in ranges}}


def _check_folder(folder: Path) -> None:
    """Raise UsageError if the folder has files but no study."""
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    if names - {LOCK} and STUDY not in names:
        raise UsageError(f"{folder}: is not empty and has no study; choose another --output")


def _clear(folder: Path) -> None:
    for name in (BEST, TRIALS, f"{STUDY}-journal", STUDY):
        remove(folder / name)


def _run_trials(request: TuningRequest, study: "Study") -> Iterator[Note]:
    """Run the trials that are missing; yields the notes of the first trial and a line for each trial."""
    runs = request.folder / TRIALS
    if not request.keep_runs:
        remove(runs)  # what a kill left
    first = len(study.results()) + 1
    for number in range(first, request.trials + 1):
        trial, settings = study.next_trial()
        run, started = runs / f"{number:03}", time.perf_counter()
        remove(run)
        outcome = yield from _train(request, trial, settings, run, with_notes=number == first)
        if splits := outcome.pop("data", None):
            data = {key: splits[key.partition(" ")[0]]["sha256"] for key in DATA_FACTS}
            stored = {key: value for key, value in study.facts.items() if key in DATA_FACTS}
            require_same(stored or data, data, request.folder)
            study.set_facts({**study.facts, **data})
        seconds = round(time.perf_counter() - started, 1)
        study.end(trial, {"trial": number, "settings": settings, **outcome, "seconds": seconds})
        if not request.keep_runs:
            remove(run)
        results = study.results()
        if best := best_of(results):
            write_atomically(request.folder / BEST, best_preset(request, results, best))
        yield Note(line_of(request, results[-1], best))
    if not request.keep_runs:
        remove(runs)


def _train(
    request: TuningRequest, trial: "Trial", settings: Mapping[str, Any], run: Path, *, with_notes: bool
) -> Generator[Note, None, dict[str, Any]]:
    """Train a trial until it is finished, pruned or diverged. Returns its state, its dev metric and the facts of its data.

    Yields the notes before the first progress if `with_notes` is True.
    """
    overrides: dict[str, tuple[str, object]] = {key: ("recur tune", value) for key, value in FIXED.items()}
    overrides |= {key: ("--range", value) for key, value in settings.items()}
    resolved = request.compose(overrides)
    outcome: dict[str, Any] = {"state": "complete", "dev_metric": None, "evaluations": 0}
    with contextlib.closing(finetune(TrainingRequest(resolved, run, time_precision=False))) as events:
        try:
            for event in events:
                if isinstance(event, Note):
                    if with_notes:
                        yield event
                elif isinstance(event, Finished):
                    outcome |= {"dev_metric": event.result["dev"][event.result["metric"]], "data": event.result["data"]}
                elif event.dev_metric is not None:
                    outcome |= {"dev_metric": event.best_dev_metric, "evaluations": outcome["evaluations"] + 1}
                    trial.report(event.dev_metric, outcome["evaluations"])
                    if event.step < event.total_steps and trial.should_prune():
                        return {**outcome, "state": "pruned"}
                with_notes = with_notes and not isinstance(event, Progress)
        except NumericError as error:
            return {**outcome, "state": "diverged", "reason": str(error)}
    return outcome
