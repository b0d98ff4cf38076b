"""`recur tune`: searches the settings of a preset for the best dev metric. Each trial is a fine-tuning run."""

import contextlib
import shlex
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recurcli.commands.finetune import finetune
from recurcli.commands.training.request import TrainingRequest, check_inputs, preset_facts
from recurcli.commands.tuning.request import Range, TuningRequest, ranges_around, ranges_of, short_names
from recurcli.distributed.group import current
from recurcli.errors import Interrupted, ModelError, NumericError, UsageError, pluralize
from recurcli.evaluation.metrics import METRICS
from recurcli.events import Finished, Note, TrialProgress
from recurcli.facts import check_same
from recurcli.files import refuse_links, remove, write_atomically
from recurcli.preset import Preset, ResolvedPreset
from recurcli.preset.compose import is_file_name
from recurcli.requirements import check_packages
from recurcli.runs.run_directory import LOCK, RunDirectory
from recurcli.validation import dump, flatten

if TYPE_CHECKING:
    from recurcli.commands.tuning.study import RunningTrial, Study

BEST = "best.yaml"
TRIALS, STUDY = "trials", "study.db"
JOURNAL = f"{STUDY}-journal"
FIXED: Mapping[str, object] = {"ensemble": None, "finetuning.linear_baseline": False, "finetuning.score_test": False}
"""The settings of every trial. They leave out the ensemble and the test rows, and the linear model after the first trial."""
STUDY_FORMAT = 2
"""Version of what a study holds: since 2 its first trial is the preset, and trials report shares of their steps."""

DATA_FACTS = ("train sha256", "dev sha256")
"""The facts that a resume must match and that are unknown before the first complete trial."""


def tune(request: TuningRequest) -> Iterator[Note | TrialProgress | Finished]:
    """Run the trials of a study and write the best preset after each trial. Yields notes, progress and the result.

    The first trial is the preset itself.

    Raises UsageError for a wrong range, for a folder that cannot be used, and without Optuna. Raises NumericError if every
    trial diverged. A study that ends early keeps its finished trials.
    """
    check_packages("tune", "recur tune")
    if current().world_size > 1:
        raise UsageError("recur tune runs in one process; start it without torchrun")
    ranges = ranges_of(request)
    from recurcli.commands.tuning.study import Study, storage_errors

    folder, preset = request.folder, request.resolved.preset
    _check_folder(folder)
    if not request.resume:
        file = Path(request.preset).expanduser() if is_file_name(request.preset) else None
        check_inputs(folder, preset, file, (BEST, TRIALS, STUDY, JOURNAL))
    facts = facts_of(preset, ranges)
    with RunDirectory(folder).lock(), storage_errors(folder / STUDY):
        if request.overwrite:
            _clear(folder)
        refuse_links(folder / STUDY, folder / JOURNAL, folder / TRIALS)
        new = not (folder / STUDY).exists()
        study = Study(folder / STUDY, ranges, preset.runtime.seed)
        if not new and not study.results():  # a kill in its first trial; its ranges may have been others
            if (folder / BEST).exists():
                way_out = f"start again with --overwrite, which replaces {BEST}"
                raise ModelError(f"{folder / STUDY}: has no trial, but {BEST} is that of one; {way_out}")
            yield Note(f"{folder}: has no finished trial; the study starts again")
            _clear(folder)
            new, study = True, Study(folder / STUDY, ranges, preset.runtime.seed)
        if new:
            study.set_facts(facts)
        elif not request.resume:
            raise UsageError(
                f"{folder}: already has a study; continue it with --resume, or replace it with --overwrite"
            )
        check_same({key: value for key, value in study.facts.items() if key not in DATA_FACTS}, facts, folder)
        try:
            yield from _run_trials(request, study)
        except Interrupted as stop:
            kept = f"{pluralize(len(study.results()), 'trial', 'are', of=request.trials)} kept"
            hint = f"{kept}; continue with the same command and --resume"
            stop.__notes__ = [hint if study.results() else "nothing was kept; run the same command to start again"]
            raise
        finally:
            if not study.results():
                _clear(folder)
        results = study.results()
        searched = ranges_around(request, ranges, results)
        yield Finished(result_of(request, results, {each.key: str(each) for each in searched}))


def facts_of(preset: Preset, ranges: Sequence[Range]) -> dict[str, Any]:
    """Return the facts that a resume of a study must match, without those of the data."""
    asked = {f"--range {each.key}": str(each) for each in ranges}
    return {"study format": STUDY_FORMAT, **preset_facts(preset.to_dict(), "finetuning"), **asked}


def _check_folder(folder: Path) -> None:
    """Raise UsageError if the folder has files but no study."""
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    if names - {LOCK} and STUDY not in names:
        raise UsageError(f"{folder}: is not empty and has no study; choose another --output")


def _clear(folder: Path) -> None:
    for name in (BEST, TRIALS, JOURNAL, STUDY):
        remove(folder / name)


def _run_trials(request: TuningRequest, study: "Study") -> Iterator[Note | TrialProgress]:
    """Run the trials that are missing. Yields the notes of the first trial, progress, and a line for each trial."""
    runs = request.folder / TRIALS
    if not request.keep_runs:
        remove(runs)  # what a kill left
    results, values = study.results(), dict(flatten(request.resolved.preset.to_dict()))
    preset = {each.key: values[tuple(each.key.split("."))] for each in study.ranges}
    first = len(results) + 1
    for number in range(first, request.trials + 1):
        study.ranges = ranges_around(request, study.ranges, results)
        trial = study.next_trial(preset)
        run, started = runs / f"{number:03}", time.perf_counter()
        remove(run)
        best = best_of(results)
        so_far = None if best is None else best["dev_metric"]
        outcome = yield from _train(request, trial, run, number, so_far, with_notes=number == first)
        if splits := outcome.pop("data", None):
            data = {key: splits[key.partition(" ")[0]]["sha256"] for key in DATA_FACTS}
            stored = {key: value for key, value in study.facts.items() if key in DATA_FACTS}
            check_same(stored or data, data, request.folder)
            study.set_facts({**study.facts, **data})
        seconds = round(time.perf_counter() - started, 1)
        study.end(trial, {"trial": number, **outcome, "seconds": seconds})
        if not request.keep_runs:
            remove(run)
        results = study.results()
        if best := best_of(results):
            write_atomically(request.folder / BEST, best_preset(request, results, best))
        yield Note(line_of(request, results[-1], best))
    if not request.keep_runs:
        remove(runs)


def _train(
    request: TuningRequest, trial: "RunningTrial", run: Path, number: int, best: float | None, *, with_notes: bool
) -> Generator[Note | TrialProgress, None, dict[str, Any]]:
    """Train a trial until it is finished, pruned or diverged. Returns its settings, state, dev metric and facts of its data.

    Yields progress, and the notes before the first progress if `with_notes` is True. `best` is the best dev metric of the
    earlier trials.
    """
    outcome: dict[str, Any] = {"settings": dict(trial.settings), "state": "complete", "dev_metric": None}
    with contextlib.closing(finetune(TrainingRequest(_resolved(request, trial), run))) as events:
        try:
            for event in events:
                if isinstance(event, Note):
                    if with_notes:
                        yield event
                elif isinstance(event, Finished):
                    outcome |= _outcome_of(trial, event.result)
                else:
                    with_notes = False
                    if event.dev_metric is not None:
                        outcome["dev_metric"] = event.best_dev_metric
                        best = max(event.dev_metric, event.dev_metric if best is None else best)
                        trial.report(event.step, event.total_steps, event.dev_metric)
                    yield TrialProgress(number, request.trials, event, best)
                    if event.dev_metric is not None and event.step < event.total_steps and trial.should_prune():
                        outcome["state"] = "pruned"
                        break
        except NumericError as error:
            outcome |= {"state": "diverged", "reason": str(error)}
    return {**outcome, "evaluations": trial.evaluations}


def _resolved(request: TuningRequest, trial: "RunningTrial") -> ResolvedPreset:
    """Return the preset of a trial. The first one is as it was written, and fits the linear model if the preset has one."""
    overrides: dict[str, tuple[str, object]] = {key: ("recur tune", value) for key, value in FIXED.items()}
    preset = request.resolved.preset
    if trial.asked is None:
        overrides["finetuning.linear_baseline"] = (
            "recur tune",
            preset.finetuning.linear_baseline or preset.ensemble is not None,
        )
        return request.compose(overrides)
    return request.compose(overrides | {key: ("--range", value) for key, value in trial.settings.items()})


def _outcome_of(trial: "RunningTrial", result: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a study keeps of the `result` of a trial. The settings of the preset are those that `auto` came to."""
    metric = result["metric"]
    facts = {"dev_metric": result["dev"][metric], "data": result["data"]}
    if trial.asked is None:
        facts["settings"] = {key: result["settled"].get(key, value) for key, value in trial.settings.items()}
        facts["linear_dev_metric"] = result.get("linear_baseline", {}).get("dev", {}).get(metric)
    return facts


def best_of(results: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the complete trial with the largest dev metric, the first one of equal trials, or None if no trial is complete."""
    complete = [result for result in results if result["state"] == "complete"]
    return max(complete, key=lambda result: result["dev_metric"], default=None)


def trials_by_state(results: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return the number of trials in each state."""
    states = [result["state"] for result in results]
    return {state: states.count(state) for state in ("complete", "pruned", "diverged")}


def line_of(request: TuningRequest, result: Mapping[str, Any], best: Mapping[str, Any] | None) -> str:
    """Return the line of a trial: its number, settings and dev metric, how it ended early, and the best dev metric so far."""
    names = short_names(result["settings"])
    shown = " ".join(f"{names[key]}={shown_value(value)}" for key, value in result["settings"].items())
    metric = METRICS[request.resolved.preset.finetuning.metric].words
    score = "" if result["dev_metric"] is None else f"; dev {metric} {result['dev_metric']:.4f}"
    after = {"complete": "", "pruned": f", pruned after {pluralize(result['evaluations'], 'evaluation')}"}
    end = after.get(result["state"], f"; diverged: {result.get('reason')}")
    so_far = "" if best is None else f"; best dev {metric} {best['dev_metric']:.4f} (trial {best['trial']})"
    return f"trial {result['trial']} of {request.trials}: {shown}{score}{end}{so_far}"


def shown_value(value: Any) -> str:
    """Return a setting as it is written in a preset."""
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def command_of(request: TuningRequest) -> str:
    """Return the shell line that trains with the best preset on the data of the study."""
    files = {name: request.overrides.get(f"data.files.{name}", ("", None))[1] for name in ("train", "dev")}
    named = {"preset": request.folder / BEST, "data": request.data, **files}
    options = [(f"--{name}", str(value)) for name, value in named.items() if value is not None]
    return shlex.join(["recur", "finetune", *(part for option in options for part in option)])


def best_preset(request: TuningRequest, results: Sequence[Mapping[str, Any]], best: Mapping[str, Any]) -> str:
    """Return the text of best.yaml, which extends the preset by the options and by the values of the best trial.

    Comments at its top give the dev metric and say that it is no test score.
    """
    preset = request.resolved.preset
    named = is_file_name(request.preset)
    values: dict[str, Any] = {"extends": str(Path(request.preset).expanduser().absolute()) if named else request.preset}
    changed: dict[str, Any] = {}
    for key in (*(setting.partition("=")[0].strip() for setting in request.settings), *request.overrides):
        changed[key] = preset.to_dict()
        for part in key.split("."):
            changed[key] = changed[key][part]
    for key, value in {**changed, **best["settings"]}.items():
        *sections, last = key.split(".")
        holder = values
        for section in sections:
            holder = holder.setdefault(section, {})
        holder[last] = value
    counts = ", ".join(f"{count} {state}" for state, count in trials_by_state(results).items() if count)
    comment = [
        f"dev {METRICS[preset.finetuning.metric].words} {best['dev_metric']:.4f}: the best of "
        f"{pluralize(len(results), 'trial')} of `recur tune` ({counts}), trial {best['trial']}"
        f"{', the preset itself' if best['trial'] == 1 else ''}.",
        "This score is optimistic, because it selected the trial; it is no test score.",
        "It is that of the encoder alone, without ensemble.",
    ]
    return "".join(f"# {line}\n" for line in comment) + dump(values)


def result_of(
    request: TuningRequest, results: Sequence[Mapping[str, Any]], ranges: Mapping[str, str]
) -> dict[str, Any]:
    """Return the result of the study. Raises NumericError if no trial is complete."""
    best = best_of(results)
    if best is None:
        reason = results[-1].get("reason", "")
        count = len(results)
        fault = f"none of the {pluralize(count, 'trial')} ended with a finite dev metric; trial {count}: {reason}"
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
        **trials_by_state(results),
        "preset_dev_metric": results[0]["dev_metric"],
        "linear_dev_metric": results[0].get("linear_dev_metric"),
        "command": command_of(request),
        "best": {**best, "preset": str(request.folder / BEST), "chosen_by_this_score": True},
    }
