"""`recur tune`: search the settings of a preset for the best dev metric, each trial a fine-tuning run."""

import contextlib
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recurcli.commands.finetune import finetune
from recurcli.commands.training.request import TrainingRequest, preset_facts
from recurcli.commands.tuning.ranges import Range, ranges_of, short_names
from recurcli.distributed.group import current
from recurcli.errors import Interrupted, NumericError, UsageError
from recurcli.evaluation.metrics import METRICS
from recurcli.events import Finished, Note, Progress
from recurcli.facts import require_same
from recurcli.files import remove, write_atomically
from recurcli.preset import Preset, ResolvedPreset, compose
from recurcli.preset.compose import is_file_name
from recurcli.runs.run_directory import LOCK, RunDirectory
from recurcli.strict_yaml import dump

if TYPE_CHECKING:
    from optuna import Trial

    from recurcli.commands.tuning.study import Study

BEST, TRIALS, STUDY = "best.yaml", "trials", "study.db"
FIXED: Mapping[str, object] = {"prior": None, "finetuning.linear_floor": False, "finetuning.score_test": False}
"""What every trial has: the encoder is tuned, and no test row is read."""

DATA_FACTS = ("train sha256", "dev sha256")
"""What a resume must match and is known when the first trial is complete."""


@dataclass(frozen=True)
class TuningRequest:
    """The options of `recur tune`."""

    preset: str
    data: Path | None = None
    trials: int = 20
    """The number of all trials of the study, also after a resume."""
    output: Path | None = None
    """The folder of the study; None: runs/ and the name of the preset with `-tuned`."""
    ranges: Sequence[str] = ()
    settings: Sequence[str] = ()
    resume: bool = False
    overwrite: bool = False
    keep_runs: bool = False
    """Whether the run directories of the trials stay."""
    resolved: ResolvedPreset = field(init=False)
    folder: Path = field(init=False)

    def __post_init__(self) -> None:
        if self.resume and self.overwrite:
            raise UsageError("--resume and --overwrite exclude each other; leave out one")
        resolved = compose(self.preset, data=self.data, settings=self.settings)
        object.__setattr__(self, "resolved", resolved)
        object.__setattr__(self, "folder", self.output or Path("runs") / f"{resolved.name}-tuned")


def tune(request: TuningRequest) -> Iterator[Note | Finished]:
    """Run the trials of a study, and write the best preset after each of them; yields notes and the result.

    Raises UsageError for a wrong range, without Optuna, and if the folder cannot be used; NumericError if every trial
    diverged. A study that ends early keeps its finished trials.
    """
    if find_spec("optuna") is None:
        raise UsageError("recur tune needs Optuna: pip install 'recurcli[tune]'")
    if current().world_size > 1:
        raise UsageError("recur tune runs in one process; start it without torchrun")
    ranges = ranges_of(request.preset, request.resolved, request.ranges, data=request.data, settings=request.settings)
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
            kept = f"{len(study.results()):,} of {request.trials:,} trials are kept"
            stop.__notes__ = [f"{kept}; continue with the same command and --resume"]
            raise
        finally:
            if not study.results():
                _clear(folder)
        results = study.results()
        yield Finished(_result(request, results, {each.key: str(each) for each in ranges}))


def facts_of(preset: Preset, ranges: Sequence[Range]) -> dict[str, Any]:
    """Return what a resume of a study must match, without the data."""
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
    """Run the trials that are missing; yields the notes of the first one, and a line for each."""
    runs = request.folder / TRIALS
    if not request.keep_runs:
        remove(runs)  # what a kill left
    first = len(study.results()) + 1
    for number in range(first, request.trials + 1):
        trial, settings = study.next_trial()
        run, started = runs / f"{number:03}", time.perf_counter()
        remove(run)
        outcome = yield from _train(request, trial, settings, run, with_notes=number == first)
        if "data" in outcome:
            data = {key: outcome["data"][key.partition(" ")[0]]["sha256"] for key in DATA_FACTS}
            stored = {key: value for key, value in study.facts.items() if key in DATA_FACTS}
            require_same(stored or data, data, request.folder)
            study.set_facts({**study.facts, **data})
        outcome = {key: value for key, value in outcome.items() if key != "data"}
        seconds = round(time.perf_counter() - started, 1)
        study.end(trial, {"trial": number, "settings": settings, **outcome, "seconds": seconds})
        if not request.keep_runs:
            remove(run)
        results = study.results()
        if best := best_of(results):
            write_atomically(request.folder / BEST, _best_preset(request, results, best))
        yield Note(_line(request, results[-1], best))
    if not request.keep_runs:
        remove(runs)


def _train(
    request: TuningRequest, trial: "Trial", settings: Mapping[str, Any], run: Path, *, with_notes: bool
) -> Generator[Note, None, dict[str, Any]]:
    """Train a trial until it is finished, is pruned or diverges. Returns its state, dev metric, and the facts of its data.

    Yields the notes before the first step, if asked.
    """
    overrides: dict[str, tuple[str, object]] = {key: ("recur tune", value) for key, value in FIXED.items()}
    overrides |= {key: ("--range", value) for key, value in settings.items()}
    resolved = compose(request.preset, data=request.data, settings=request.settings, overrides=overrides)
    outcome: dict[str, Any] = {"state": "complete", "dev_metric": None, "evaluations": 0}
    with contextlib.closing(finetune(TrainingRequest(resolved, run))) as events:
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


def best_of(results: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the complete trial with the largest dev metric, the first of equals; None if there is none."""
    complete = [result for result in results if result["state"] == "complete"]
    return max(complete, key=lambda result: result["dev_metric"], default=None)


def counted(results: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return the number of trials in each state."""
    states = [result["state"] for result in results]
    return {state: states.count(state) for state in ("complete", "pruned", "diverged")}


def _line(request: TuningRequest, result: Mapping[str, Any], best: Mapping[str, Any] | None) -> str:
    """Return the line of a trial: its number, settings and dev metric, whether it was pruned, and the best so far."""
    names = short_names(result["settings"])
    shown = " ".join(f"{names[key]}={value}" for key, value in result["settings"].items())
    metric = METRICS[request.resolved.preset.finetuning.metric].words
    score = "" if result["dev_metric"] is None else f"; dev {metric} {result['dev_metric']:.4f}"
    after = {"complete": "", "pruned": f", pruned after {result['evaluations']} evaluations"}
    end = after.get(result["state"], f"; diverged: {result.get('reason')}")
    so_far = "" if best is None else f"; best {best['dev_metric']:.4f} (trial {best['trial']})"
    return f"trial {result['trial']} of {request.trials}: {shown}{score}{end}{so_far}"


def _best_preset(request: TuningRequest, results: Sequence[Mapping[str, Any]], best: Mapping[str, Any]) -> str:
    """Return best.yaml: the preset that it extends, what `--set` and the best trial change in it, and what its score is."""
    preset = request.resolved.preset
    named = is_file_name(request.preset)
    values: dict[str, Any] = {"extends": str(Path(request.preset).expanduser().absolute()) if named else request.preset}
    changed: dict[str, Any] = {}
    for key in (setting.partition("=")[0].strip() for setting in request.settings):
        changed[key] = preset.to_dict()
        for part in key.split("."):
            changed[key] = changed[key][part]
    for key, value in {**changed, **best["settings"]}.items():
        *sections, last = key.split(".")
        holder = values
        for section in sections:
            holder = holder.setdefault(section, {})
        holder[last] = value
    counts = ", ".join(f"{count} {state}" for state, count in counted(results).items() if count)
    comment = [
        f"dev {METRICS[preset.finetuning.metric].words} {best['dev_metric']:.4f}: the best of {len(results)} trials "
        f"of `recur tune` ({counts}), trial {best['trial']}.",
        "This score chose the preset, so it is too high; it is no test score.",
        "It is that of the encoder alone, without prior.",
    ]
    return "".join(f"# {line}\n" for line in comment) + dump(values)


def _result(request: TuningRequest, results: Sequence[Mapping[str, Any]], ranges: Mapping[str, str]) -> dict[str, Any]:
    """Return the result of the study. Raises NumericError if no trial is complete."""
    best = best_of(results)
    if best is None:
        reason = results[-1].get("reason", "")
        count = len(results)
        fault = f"none of the {count} trials ended with a finite dev metric; trial {count}: {reason}"
        raise NumericError(f"{request.folder}: {fault}")
    preset = request.resolved.preset
    return {
        "preset": request.resolved.name,
        "task": preset.task,
        "metric": preset.finetuning.metric,
        "seed": preset.runtime.seed,
        "output": str(request.folder),
        "ranges": dict(ranges),
        "trials": [dict(result) for result in results],
        **counted(results),
        "best": {**best, "preset": str(request.folder / BEST), "chosen_by_this_score": True},
    }
