"""`recur tune`: searches the settings of a preset for the best dev score. Each trial is a fine-tuning run.

Optuna runs the trials and stores them in a database, whose transactions survive a kill and which pickles nothing. (Its journal
file may end in half a line after a kill, and its lock stays.) A study is a file in its folder, or with --storage one that many
workers share.
"""

import contextlib
import functools
import hashlib
import math
import operator
import shlex
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from recurcli.commands.comparison.groups import short_names, text_of
from recurcli.commands.finetune import finetune
from recurcli.commands.training.resume import check_inputs, preset_facts
from recurcli.commands.training.trainer import check_encoder
from recurcli.data.splits import kind_before_reading, load_split
from recurcli.data.tasks import task_named, task_with_columns
from recurcli.distributed.group import current
from recurcli.encoders.registry import encoder_config
from recurcli.errors import (
    Interrupted,
    NumericError,
    RecurError,
    StorageError,
    UsageError,
    escaped,
    pluralize,
    require_extra,
)
from recurcli.files import refuse_links, remove, to_json, write_atomically
from recurcli.linear.fitting import fit_linear_model
from recurcli.log import Log, Progress, State, TrialProgress
from recurcli.metrics import format_score, metric_named, score_in, words_of
from recurcli.preset import Preset
from recurcli.preset.compose import is_file_name
from recurcli.requests.training import FinetuneRequest
from recurcli.requests.tune import TuneRequest
from recurcli.runs.run_directory import LOCK, Facts, RunDirectory, check_same
from recurcli.targets import Target
from recurcli.training.fit import derived_seed
from recurcli.validation import dump, flatten, parse_config, parse_value

if TYPE_CHECKING:
    import optuna

BEST, TRIALS, STUDY = "best.yaml", "trials", "study.db"
JOURNAL = f"{STUDY}-journal"
FIXED: Mapping[str, Any] = {"finetuning.encoder": "always", "finetuning.score_test": False}
"""The settings of every trial: an encoder of few rows too, and no test rows."""
STATES = ("complete", "pruned", "diverged", "refused")
ENDED = ("COMPLETE", "PRUNED")
"""Optuna's states of the trials that ended in one of STATES."""
HEARTBEAT, ATTEMPTS = 30, 5
"""Seconds between two signs of life of a worker, and how often it tries to open a database, once a second."""
PARTS = 20
"""Parts of a training's steps at which the pruner compares trials. Ours: each report is a write to the disk."""
DEFAULT_RANGES = (
    "finetuning.learning_rate=1e-4..3e-3:log",
    "encoder.dropout=0.0..0.5",
    "embedding.dropout=0.0..0.5",
    "finetuning.epochs=5..20:log",
    "finetuning.batch_size=16|32|64|128",
    "pooling=mean|max",
)
"""The default ranges, which are ours. They lie around the defaults of the presets, for a training from scratch on a few
thousand rows."""
LINEAR_RANGES = (
    "linear.words=null|[1,1]|[1,2]|[1,3]",
    "linear.characters=null|[1,2]|[1,3]|[2,5]|[1,5]",
    "linear.across_words=true|false",
    "linear.c=0.03..8:log",
)
"""The default ranges of a preset without an encoder, which are ours: around what `auto` chooses among."""
TUNED_SECTIONS = ("encoder.", "embedding.", "tokenizer.", "finetuning.", "pooling", "pair_pooling", "data.max_length")
"""The beginnings of the keys that may be searched. Other keys have no effect, or they change the rows or the seed."""
NOT_TUNED = tuple(f"finetuning.{key}" for key in ("metric", "thresholds", "score_test", "linear_baseline", "encoder"))
SIGNIFICANT_DIGITS = 3
"""The number of digits of a sampled number in the training. Few digits make the best preset readable."""


@dataclass(frozen=True)
class Range:
    """The values of one key among which a study chooses."""

    key: str
    values: tuple[Any, ...]
    """The smallest and the largest number, or the choices."""
    scale: Literal["linear", "log", "choices"]

    def __str__(self) -> str:
        if self.scale == "choices":
            return "|".join(map(text_of, self.values))
        return f"{self.values[0]}..{self.values[1]}{':log' if self.scale == 'log' else ''}"

    def suggest(self, trial: "optuna.Trial") -> Any:
        """Return the value that Optuna chooses for a trial, as the training takes it."""
        if self.scale == "choices":
            choices = {text_of(value): value for value in self.values}  # Optuna stores no list
            return choices[trial.suggest_categorical(self.key, [*choices])]
        low, high = self.values
        if isinstance(low, int):
            return trial.suggest_int(self.key, low, high, log=self.scale == "log")
        value = trial.suggest_float(self.key, low, high, log=self.scale == "log")
        return min(max(float(f"{value:.{SIGNIFICANT_DIGITS}g}"), low), high)

    def contains(self, value: Any) -> bool:
        """Return whether `value` lies in the range."""
        if self.scale == "choices":
            return value in self.values
        return isinstance(value, int | float) and self.values[0] <= value <= self.values[1]


def tune(request: TuneRequest, log: Log) -> dict[str, Any]:
    """Run the trials of a study, write the best preset after each trial, and return the result.

    The first trial is the preset itself.

    Raises UsageError for a wrong range, for a folder or database that cannot be used, and without Optuna. Raises NumericError
    if every trial diverged. A study that ends early keeps its finished trials.
    """
    require_extra("tune", "recur tune", "optuna")
    if current().world_size > 1:
        raise UsageError("recur tune runs in one process; start it without torchrun")
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    ranges, folder = ranges_of(request), request.folder
    _check_folder(request)
    metric = metric_of(request)
    log.scored_by(metric)
    quiet = warnings.catch_warnings(action="ignore", category=optuna.exceptions.ExperimentalWarning)
    with quiet, RunDirectory(folder).lock(), storage_errors(_place_of(request)):
        if request.overwrite:
            _clear(folder)
        refuse_links(folder / STUDY, folder / JOURNAL, folder / TRIALS)
        study = open_study(request, metric, facts_of(request, metric, ranges))
        try:
            _Search(request, metric, ranges, study, log).run()
        except Interrupted as stop:
            kept = pluralize(len(results_of(study)), "trial", "are", of=request.trials)
            stop.__notes__ = [f"{kept} kept; continue with the same command and --resume"]
            raise
        finally:
            if not results_of(study):
                _clear(folder)
        return result_of(request, metric, results_of(study), ranges)


def metric_of(request: TuneRequest) -> str:
    """Return the metric of the trials: `finetuning.metric`, but the loss of held-out rows where nothing sets that key.

    The training rows are read where neither that, nor the task, nor another setting says what their labels are.
    """
    preset = request.resolved.preset
    if preset.finetuning.metric != "auto":
        return preset.finetuning.metric
    task = task_with_columns(task_named(preset.task), preset.data)
    target = kind_before_reading(task, preset.data) or load_split(task, "train", preset.data).target
    assert target is not None
    return target.loss_name if request.is_by_loss else target.headline


def _check_folder(request: TuneRequest) -> None:
    """Raise UsageError for a folder with other files than those of such a study, and for one in which the study reads."""
    folder = request.folder
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    known = names if STUDY in names else {LOCK}
    if names - ({LOCK, BEST, TRIALS} if request.storage else known):
        raise UsageError(f"{folder}: has files that are not of this study; choose another --output")
    if not request.resume:
        file = Path(request.preset).expanduser() if is_file_name(request.preset) else None
        check_inputs(folder, request.resolved.preset, file, (BEST, TRIALS, STUDY, JOURNAL))


def _clear(folder: Path) -> None:
    for name in (BEST, TRIALS, JOURNAL, STUDY):
        remove(folder / name)


def _place_of(request: TuneRequest) -> str:
    """Return the name of the database for messages: its file, or the URL of --storage without password and query.

    Raises UsageError for a URL that is not one of a database that workers can share.
    """
    import sqlalchemy

    url = request.storage
    if not url:
        return str(request.folder / STUDY)
    try:
        parsed = sqlalchemy.create_engine(url).url
    except (sqlalchemy.exc.ArgumentError, ImportError, ValueError) as error:
        reason = "" if isinstance(error, ValueError) else f" ({escaped(error)})"  # a ValueError may show the password
        way_out = "name one such as postgresql://host/db"
        raise UsageError(f"--storage: is not the address of a database that can be used{reason}; {way_out}") from None
    if parsed.get_backend_name() == "sqlite" and parsed.database in (None, "", ":memory:"):
        way_out = "name a file, such as sqlite:////data/study.db, or leave --storage out"
        raise UsageError(f"--storage {escaped(url)}: is in memory, which no other worker can read; {way_out}")
    return f"--storage {escaped(parsed.set(query={}))}"


def facts_of(request: TuneRequest, metric: str, ranges: Sequence[Range]) -> dict[str, Any]:
    """Return the facts that a resume of a study must match, without those of the data."""
    asked = {"metric of the trials": metric, **{f"--range {each.key}": str(each) for each in ranges}}
    return {**preset_facts(request.resolved.preset.to_dict(), "finetuning"), **asked}


def open_study(request: TuneRequest, metric: str, facts: Facts) -> "optuna.Study":
    """Return the study of the request, which is created if it is missing.

    In the database of --storage a study has a hash of its `facts` as its name. A trial there whose heartbeat stops is run again
    by another worker. Median pruning (Golovin et al., KDD 2017) starts with the sixth trial.

    Raises UsageError if the study has other `facts` or is there without --resume, and if the folder has the best preset of
    another one.
    """
    import optuna

    name, best = "recur tune", request.folder / BEST
    if request.storage:
        name += f" {hashlib.sha256(to_json(dict(facts)).encode()).hexdigest()[:16]}"
        if best.is_file() and name.encode() not in best.read_bytes():
            raise UsageError(f"{best}: is of another study and would be replaced; choose another --output")
    study = optuna.create_study(
        storage=_connect(request),
        study_name=name,
        direction="minimize" if metric_named(metric).minimize else "maximize",
        load_if_exists=True,
        pruner=optuna.pruners.MedianPruner(n_startup_trials=5),
    )
    if "facts" not in study.user_attrs:
        study.set_user_attr("facts", facts)
    check_same(study.user_attrs["facts"], facts, request.folder)
    if request.storage:
        return study
    if results_of(study) and not request.resume:
        way_out = "continue it with --resume, or replace it with --overwrite"
        raise UsageError(f"{request.folder}: already has a study; {way_out}")
    for left in study.get_trials(states=(optuna.trial.TrialState.RUNNING,)):
        study.tell(left.number, state=optuna.trial.TrialState.FAIL)  # its process was killed
    return study


def _connect(request: TuneRequest) -> "optuna.storages.RDBStorage":
    """Return the database of the request. Where workers share it, another one may be creating its tables at this moment."""
    from optuna.storages import RDBStorage
    from sqlalchemy import URL
    from sqlalchemy.exc import DatabaseError

    if not request.storage:
        return RDBStorage(URL.create("sqlite", database=str(request.folder / STUDY)).render_as_string())
    shared = functools.partial(RDBStorage, request.storage, heartbeat_interval=HEARTBEAT)
    for _ in range(ATTEMPTS - 1):
        with contextlib.suppress(DatabaseError):
            return shared(heartbeat_stale_trial_callback=run_again)
        time.sleep(1)
    return shared(heartbeat_stale_trial_callback=run_again)


@contextlib.contextmanager
def storage_errors(place: str) -> Iterator[None]:
    """Turn an error of the database at `place` in the block, which may be the cause of Optuna's, into StorageError."""
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except RecurError:
        raise
    except Exception as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, SQLAlchemyError):
            cause = cause.__cause__ or cause.__context__
        if cause is None:
            raise
        reason = escaped(str(getattr(cause, "orig", None) or cause).partition("\n")[0])
        way_out = "continue with --resume, or start another study"
        raise StorageError(f"{place}: cannot be read or written: {reason}; {way_out}") from None


def run_again(study: "optuna.Study", trial: "optuna.Trial | optuna.trial.FrozenTrial") -> None:
    """Queue a trial that failed, or whose worker was killed. It keeps its place, which gives its settings."""
    study.enqueue_trial({}, user_attrs={"place": trial.user_attrs.get("place", trial.number)})


def trials_of(study: "optuna.Study") -> "list[optuna.trial.FrozenTrial]":
    """Return the trials in the order in which they were begun; one that repeats a failed trial stands in its place."""
    trials = [trial for trial in study.get_trials(deepcopy=False) if trial.state.name != "FAIL"]
    return sorted(trials, key=lambda trial: trial.user_attrs.get("place", trial.number))


def results_of(study: "optuna.Study") -> list[dict[str, Any]]:
    """Return the results of the trials that ended, in the order of their numbers."""
    return [trial.user_attrs["result"] for trial in trials_of(study) if trial.state.name in ENDED]


class _Search:
    """The trials of a study.

    The sampler is the tree-structured Parzen estimator (Bergstra et al., NeurIPS 2011), with ten trials first: the preset, and
    random ones.
    """

    def __init__(
        self, request: TuneRequest, metric: str, ranges: Sequence[Range], study: "optuna.Study", log: Log
    ) -> None:
        self.request, self.metric, self.ranges, self.study, self.log = request, metric, ranges, study, log
        values = dict(flatten(request.resolved.preset.to_dict()))
        self.preset = {each.key: values[tuple(each.key.split("."))] for each in ranges}
        self.fitted: tuple[Any, Any] = (None, None)  # what the last linear model was fitted on, and the model

    def run(self) -> None:
        """Run the trials that are missing.

        While other workers run the last trials, this one waits: it takes over the trial of one that is killed.
        """
        from optuna.storages import fail_stale_trials

        self._keep_best()
        while len(results_of(self.study)) < self.request.trials:
            fail_stale_trials(self.study)
            begun = [trial for trial in trials_of(self.study) if trial.state.name != "WAITING"]
            if len(begun) < self.request.trials:
                self.study.optimize(self._objective, n_trials=1, callbacks=[self._show])
            else:
                time.sleep(1)
        self._keep_best()

    def _objective(self, trial: "optuna.Trial") -> float:
        """Train the preset itself first, then settings that Optuna chooses. Return the dev score.

        The place of the trial gives the seed of the sampler, so an interrupted study continues as if it had not been.
        """
        from optuna import TrialPruned

        place = [each.number for each in trials_of(self.study)].index(trial.number)
        if place >= self.request.trials:
            return math.nan  # one too many, since another worker began one at this moment: Optuna marks it as failed
        try:
            result = self._train(place + 1, self._choose(place, trial), trial)
        except Exception:
            run_again(self.study, trial)
            raise
        trial.set_user_attr("result", result)
        if result["state"] != "complete":
            raise TrialPruned
        return result["dev_metric"]

    def _choose(self, place: int, trial: "optuna.Trial") -> dict[str, Any]:
        """Return the settings of a trial. Of those of the preset the sampler knows the ones that lie in their ranges."""
        from optuna.samplers import PartialFixedSampler, TPESampler

        seed = derived_seed(self.request.resolved.preset.runtime.seed, place) % 2**32
        self.study.sampler = TPESampler(seed=seed, constant_liar=bool(self.request.storage))
        searched = self.ranges
        if place == 0:
            searched = [each for each in self.ranges if each.contains(self.preset[each.key])]
            known = [(each, self.preset[each.key]) for each in searched]
            stored = {each.key: text_of(value) if each.scale == "choices" else value for each, value in known}
            self.study.sampler = PartialFixedSampler(stored, self.study.sampler)
        return {**self.preset, **{each.key: each.suggest(trial) for each in searched}}

    def _train(self, number: int, settings: Mapping[str, Any], trial: "optuna.Trial") -> dict[str, Any]:
        """Train a trial until it ends in one of STATES, and return its result. The first trial is the preset.

        It is refused if the preset rejects its values together.
        """
        from optuna import TrialPruned

        overrides: dict[str, tuple[str, Any]] = {key: ("recur tune", value) for key, value in FIXED.items()}
        if number > 1:
            overrides["finetuning.linear_baseline"] = ("recur tune", False)
            overrides |= {key: ("--range", value) for key, value in settings.items()}
        run = self.request.folder / TRIALS / f"{number:03}"
        remove(run)  # what a kill left
        result: dict[str, Any] = {"trial": number, "settings": settings, "state": "complete", "dev_metric": None}
        best = best_of(results_of(self.study), self.metric)
        log = TrialLog(self.log, self.request.trials, number, trial, None if best is None else best["dev_metric"])
        try:
            check_encoder(resolved := self.request.compose(overrides))
        except UsageError as error:
            self.request.compose({})  # raises an error if it is not for these values
            return {**result, "state": "refused", "reason": str(error)}
        try:
            request = FinetuneRequest(preset=self.request.preset, output=run)
            trained = finetune(request, log, resolved, trial_fit=self._fit)
            result |= self._outcome(number, settings, trained)
        except TrialPruned:
            result["state"] = "pruned"
        except NumericError as error:
            result |= {"state": "diverged", "reason": str(error)}
        return result

    def _fit(self, texts: Any, y: Any, target: Target, log: Log, config: Any, weights: Any, ids: Any) -> Any:
        """Fit the linear model, once for trials that change neither it nor the rows, even where no cache can be written."""
        given = (texts, y.tolist(), target, config, None if weights is None else weights.tolist(), ids)
        if given != self.fitted[0]:
            self.fitted = given, fit_linear_model(texts, y, target, log, config, weights, ids)
        return self.fitted[1]

    def _outcome(self, number: int, settings: Mapping[str, Any], trained: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a study keeps of the result of a training. The settings of the preset are those that `auto` came to.

        Raises UsageError if the rows are not those of the earlier trials.
        """
        data = {f"{split} sha256": trained["data"][split]["sha256"] for split in ("train", "dev")}
        check_same(self.study.user_attrs.get("data", data), data, self.request.folder)
        self.study.set_user_attr("data", data)
        dev_metric = score_in(trained.get("held_out", trained["dev"]), self.metric)
        if number > 1:
            return {"dev_metric": dev_metric}
        beside = trained.get("linear_baseline", {}) if "encoder" in trained["kept"]["alone"] else {}
        linear = beside.get("dev", {}).get(self.metric)
        settled = {key: trained["settled"].get(key, value) for key, value in settings.items()}
        return {"dev_metric": dev_metric, "settings": settled, "linear_dev_metric": linear}

    def _show(self, study: "optuna.Study", trial: "optuna.trial.FrozenTrial") -> None:
        """Keep the best preset, and show the line of the trial that ended, if it was not one too many."""
        self._keep_best()
        if "result" in trial.user_attrs:
            best = best_of(results_of(study), self.metric)
            self.log.note(line_of(self.request, self.metric, trial.user_attrs["result"], best))

    def _keep_best(self) -> None:
        """Write the best preset so far. Remove the run directories, unless they are to be kept."""
        if not self.request.keep_runs:
            remove(self.request.folder / TRIALS)
        if best := best_of(results_of(self.study), self.metric):
            write_atomically(self.request.folder / BEST, best_preset(self.request, self.metric, best, self.study))


class TrialLog(Log):
    """Receives the progress of a trial: shows it as the study's, reports its evaluations, and ends it if it is pruned.

    Notes are shown of the first trial, before its first progress. `best` is the best score of the trials before.
    """

    def __init__(self, shown: Log, trials: int, number: int, trial: "optuna.Trial", best: float | None) -> None:
        self._shown, self._trials, self._number, self._trial, self._best = shown, trials, number, trial, best
        self._minimizes = trial.study.direction.name == "MINIMIZE"
        self._sign = -1 if self._minimizes else 1
        self._count = 0
        self._part: int | None = None
        """The last of PARTS equal parts of the schedule that was reported."""
        self._last = 0.0
        if number == 1:
            self.note, self.detail, self.warn = shown.note, shown.detail, shown.warn  # type: ignore[method-assign]

    def scored_by(self, metric: str) -> None:
        """Take the direction of the encoder's dev metric, which may not be the study's."""
        self._sign = 1 if metric_named(metric).minimize == self._minimizes else -1

    def progress(self, state: State) -> None:
        """Show where the study stands. Raises TrialPruned for a trial that is below the median of the complete ones.

        A trial is compared after its second evaluation at the earliest, and not in its last step.
        """
        from optuna import TrialPruned

        assert isinstance(state, Progress)
        self.note, self.detail, self.warn = super().note, super().detail, super().warn  # type: ignore[method-assign]
        self._shown.progress(TrialProgress(self._number, self._trials, state, self._best))
        if state.dev_metric is not None:
            self.report(state.step, state.total_steps, state.dev_metric)
            if state.step < state.total_steps and self.should_prune():
                raise TrialPruned

    def report(self, step: int, total_steps: int, dev_metric: float) -> None:
        """Report an evaluation of the encoder after `step` of `total_steps`, with the sign by which the study compares.

        The pruner compares trials at equal shares of their steps, because the learning rate of a training of two epochs has
        decayed at its second evaluation and that of twenty epochs has not. A trial keeps its last metric until the next
        evaluation, so that trials can be compared whose evaluations do not coincide.
        """
        now = step * PARTS // total_steps
        for part in range(now if self._part is None else self._part + 1, now + 1):
            self._trial.report(self._sign * (dev_metric if part == now else self._last), part)
        self._part, self._last, self._count = now, dev_metric, self._count + 1

    def should_prune(self) -> bool:
        """Return whether the trial is below the median of the complete ones, from its second evaluation on."""
        return self._count > 1 and self._trial.should_prune()


def best_of(results: Sequence[Mapping[str, Any]], metric: str) -> Mapping[str, Any] | None:
    """Return the complete trial with the best score by `metric`, the first one of equal ones, or None if none is complete."""
    complete = [result for result in results if result["state"] == "complete"]
    best = min if metric_named(metric).minimize else max
    return best(complete, key=lambda result: result["dev_metric"], default=None)


def line_of(request: TuneRequest, metric: str, result: Mapping[str, Any], best: Mapping[str, Any] | None) -> str:
    """Return the progress line for a trial: its number, settings and score, or why it has none, and the `best` trial."""
    names, score = short_names(result["settings"]), f"dev {words_of(metric)}"
    shown = " ".join(f"{names[key]}={text_of(value)}" for key, value in result["settings"].items())
    line = f"trial {result['trial']} of {request.trials}: {shown}; "
    if result["state"] == "complete":
        line += f"{score} {format_score(metric, result['dev_metric'])}"
    else:
        line += ": ".join(filter(None, (result["state"], result.get("reason"))))
    if best is not None:
        line += f"; best {score} {format_score(metric, best['dev_metric'])} (trial {best['trial']})"
    return line


def command_of(request: TuneRequest) -> str:
    """Return the shell line that trains with the best preset on the data of the study."""
    files = {"data": [request.data] if request.data else [], "train": request.train or [], "dev": request.dev or []}
    named = {"preset": [request.folder / BEST], **files}
    options = [(f"--{name}", str(path)) for name, paths in named.items() for path in paths]
    return shlex.join(["recur", "finetune", *(part for option in options for part in option)])


def best_preset(request: TuneRequest, metric: str, best: Mapping[str, Any], study: "optuna.Study") -> str:
    """Return the text of best.yaml, which extends the preset by the options and by the values of the `best` trial.

    Comments at its top give the dev metric and the study, and say that it is not a test score.
    """
    preset = request.resolved.preset
    named = is_file_name(request.preset)
    values: dict[str, Any] = {"extends": str(Path(request.preset).expanduser().absolute()) if named else request.preset}
    whole = preset.to_dict()
    changed = {key: functools.reduce(operator.getitem, key.split("."), whole) for key in request.set_keys}
    as_in_trials = {"finetuning.encoder": "always"}
    for key, value in {**changed, **as_in_trials, **best["settings"]}.items():
        *sections, last = key.split(".")
        functools.reduce(lambda holder, section: holder.setdefault(section, {}), sections, values)[last] = value
    score = f"{words_of(metric)} {format_score(metric, best['dev_metric'])}"
    comment = [
        f"dev {score} in trial {best['trial']} of `recur tune`, the best one: the {request.score_in_words(metric)}.",
        "This score is optimistic, because it selected the trial; it is not a test score.",
        f"The study is '{study.study_name}'.",
    ]
    return "".join(f"# {line}\n" for line in comment) + dump(values)


def result_of(
    request: TuneRequest, metric: str, results: Sequence[Mapping[str, Any]], ranges: Sequence[Range]
) -> dict[str, Any]:
    """Return the result of the study. Raises NumericError if no trial is complete."""
    best, first, last = best_of(results, metric), results[0], results[-1]
    if best is None:
        fault = f"none of the {pluralize(len(results), 'trial')} ended with a finite dev metric"
        raise NumericError(f"{request.folder}: {fault}; trial {last['trial']}: {last.get('reason', '')}")
    states = [result["state"] for result in results]
    return {
        "preset": request.resolved.name,
        "task": request.resolved.preset.task,
        "metric": metric,
        "score": request.score_in_words(metric),
        "seed": request.resolved.preset.runtime.seed,
        "output": str(request.folder),
        "ranges": {each.key: str(each) for each in ranges},
        "trials": [dict(result) for result in results],
        **{state: states.count(state) for state in STATES},
        "preset_dev_metric": first["dev_metric"],
        "linear_dev_metric": first.get("linear_dev_metric"),
        "command": command_of(request),
        "best": {**best, "preset": str(request.folder / BEST), "chosen_by_this_score": True},
    }


def parse_range(text: str) -> Range:
    """Return the range in `text`: KEY=LOW..HIGH, KEY=LOW..HIGH:log or KEY=A|B. Raises UsageError for anything else."""
    shown = f"--range {escaped(text)}"
    fault = UsageError(
        f"{shown}: is not KEY=LOW..HIGH, KEY=LOW..HIGH:log with LOW above 0, or KEY=A|B with two values or more"
    )
    key, _, written = (part.strip() for part in text.partition("="))
    if "|" in written or ".." not in written:
        choices = [parse_value(part, shown) for part in written.split("|")]
        if len(set(map(text_of, choices))) < max(2, len(choices)):
            raise fault
        return Range(key, tuple(choices), "choices")
    ends, colon, scale = written.partition(":")
    low, high = (parse_value(part, shown) for part in ends.split("..", 1))
    are_numbers = all(type(value) in (int, float) and math.isfinite(value) for value in (low, high))
    if not are_numbers or low >= high or (colon and (scale != "log" or low <= 0)):
        raise fault
    return Range(key, (low, high), "log" if colon else "linear")


def ranges_of(request: TuneRequest) -> list[Range]:
    """Return the ranges of the request, else the default ranges whose keys the preset has and no option sets.

    Raises UsageError for a malformed range, for a key that is unknown or cannot be searched, and for a value that the preset
    rejects.
    """
    preset = request.resolved.preset
    fixed = tuple(f"{key}." for key in request.set_keys)
    ranges = [parse_range(text) for text in request.ranges or (LINEAR_RANGES if preset.is_linear else DEFAULT_RANGES)]
    if not request.ranges:
        if None in (preset.linear.words, preset.linear.characters):
            ranges = [replace(each, values=tuple(x for x in each.values if x is not None)) for each in ranges]
        missing = {"encoder.dropout"} if "dropout" not in preset.encoder else set()
        missing |= {"finetuning.epochs"} if preset.finetuning.max_steps else set()
        ranges = [each for each in ranges if each.key not in missing and not f"{each.key}.".startswith(fixed)]
        if not ranges:
            raise UsageError("--set fixes every key that is searched by default; name others with --range")
    keys = [each.key for each in ranges]
    for key in keys:
        if keys.count(key) > 1 or f"{key}.".startswith(fixed):
            raise UsageError(f"--range {escaped(key)}: another --range or --set has this key too; keep one")
    return [_typed(request, each) for each in ranges]


def _typed(request: TuneRequest, searched: Range) -> Range:
    """Return the range with values of the type of their key.

    Raises UsageError if the preset rejects one of the values, and for a key that is not searched.
    """
    shown, values = f"--range {escaped(searched.key)}={escaped(searched)}", []
    for value in searched.values:
        try:
            check_encoder(resolved := request.compose({searched.key: (shown, value)}))
        except UsageError as error:
            raise UsageError(str(error) if str(error).startswith(shown) else f"{shown}: {error}") from None
        values.append(_value_of(searched.key, resolved.preset))
    sections = TUNED_SECTIONS if request.resolved.preset.ensemble is None else (*TUNED_SECTIONS, "linear.")
    others = (*NOT_TUNED, "finetuning.class_weights") if request.is_by_loss else NOT_TUNED
    if not searched.key.startswith(sections) or searched.key.startswith(others):
        fault = "is not searched: it has no effect on the dev metric, or changes what it means"
        raise UsageError(f"--range {searched.key}: {fault}")
    return replace(searched, values=tuple(values))


def _value_of(key: str, preset: Preset) -> Any:
    """Return the value of a key of a preset. A whole number is a float if the key takes floats."""
    keys = {key: value for key, value in preset.encoder.items() if key != "name"}
    encoder = parse_config(encoder_config(preset.encoder["name"]), keys)
    return dict(flatten({**preset.to_dict(), "encoder": asdict(encoder)}))[tuple(key.split("."))]
