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
import re
import shlex
import sqlite3
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
from recurcli.distributed.group import current
from recurcli.encoders import encoder_class
from recurcli.errors import (
    Interrupted,
    ModelError,
    NumericError,
    StorageError,
    UsageError,
    escaped,
    pluralize,
    require_extra,
)
from recurcli.files import refuse_links, remove, to_json, write_atomically
from recurcli.linear.fitting import fit_linear_model
from recurcli.log import Log, Progress, State, TrialProgress
from recurcli.metrics import LOG_LOSS, format_score, metric_named, score_in, words_of
from recurcli.preset import Preset
from recurcli.preset.compose import is_file_name
from recurcli.requests.training import FinetuneRequest
from recurcli.requests.tune import TuneRequest
from recurcli.runs.run_directory import LOCK, Facts, RunDirectory, check_same
from recurcli.training.fit import derived_seed
from recurcli.validation import dump, flatten, parse_config, parse_value

if TYPE_CHECKING:
    import optuna

BEST = "best.yaml"
TRIALS, STUDY = "trials", "study.db"
JOURNAL = f"{STUDY}-journal"
FIXED: Mapping[str, Any] = {"finetuning.encoder": "always", "finetuning.score_test": False}
"""The settings of every trial: an encoder of few rows too, and no test rows."""
STUDY_FORMAT = 2
"""Version of what a study holds."""
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

    Raises UsageError for a wrong range, for a folder that cannot be used, and without Optuna. Raises NumericError if every
    trial diverged. A study that ends early keeps its finished trials.
    """
    require_extra("tune", "recur tune", "optuna")
    if current().world_size > 1:
        raise UsageError("recur tune runs in one process; start it without torchrun")
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    ranges = ranges_of(request)
    folder, preset = request.folder, request.resolved.preset
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    if request.storage:
        names -= {BEST, TRIALS}  # of a worker that was here before
    if names - {LOCK} and (request.storage or STUDY not in names):
        what = "has a study of its own" if STUDY in names else "is not empty and has no study"
        raise UsageError(f"{folder}: {what}; choose another --output")
    if not request.resume:
        file = Path(request.preset).expanduser() if is_file_name(request.preset) else None
        check_inputs(folder, preset, file, (BEST, TRIALS, STUDY, JOURNAL))
    facts = facts_of(request, ranges)
    place = f"--storage {_checked_storage(request.storage, folder)}" if request.storage else str(folder / STUDY)
    quiet = warnings.catch_warnings(action="ignore", category=optuna.exceptions.ExperimentalWarning)
    with quiet, RunDirectory(folder).lock(), storage_errors(place):
        if request.overwrite:
            _clear(folder)
        refuse_links(folder / STUDY, folder / JOURNAL, folder / TRIALS)
        study, storage = _join_study(request, facts, place) if request.storage else (_own_study(request, facts), None)
        try:
            with storage_errors(place):
                _Search(request, ranges, study, log).run(storage)
        except Interrupted as stop:
            kept = pluralize(len(results_of(study)), "trial", "are", of=request.trials)
            stop.__notes__ = [f"{kept} kept; continue with the same command and --resume"]
            raise
        finally:
            if not results_of(study):
                _clear(folder)
        return result_of(request, results_of(study), ranges)


def _own_study(request: TuneRequest, facts: Facts) -> "optuna.Study":
    """Return the study in the folder of the request, which is created if it is missing.

    Raises UsageError if there is one, and no --resume or with other `facts`.
    """
    folder = request.folder
    study = open_study(folder / STUDY, request.metric)
    if not results_of(study):
        _clear(folder)  # what a kill in the first trial left
        study = open_study(folder / STUDY, request.metric)
        study.set_user_attr("facts", facts)
    elif not request.resume:
        raise UsageError(f"{folder}: already has a study; continue it with --resume, or replace it with --overwrite")
    check_same(study.user_attrs["facts"], facts, folder)
    return study


def facts_of(request: TuneRequest, ranges: Sequence[Range]) -> dict[str, Any]:
    """Return the facts that a resume of a study must match, without those of the data."""
    asked = {"metric of the trials": request.metric, **{f"--range {each.key}": str(each) for each in ranges}}
    return {"study format": STUDY_FORMAT, **preset_facts(request.resolved.preset.to_dict(), "finetuning"), **asked}


def _clear(folder: Path) -> None:
    for name in (BEST, TRIALS, JOURNAL, STUDY):
        remove(folder / name)


class _Search:
    """The trials of a study.

    The sampler is the tree-structured Parzen estimator (Bergstra et al., NeurIPS 2011), with ten trials first: the preset, and
    random ones.
    """

    def __init__(self, request: TuneRequest, ranges: Sequence[Range], study: "optuna.Study", log: Log) -> None:
        self.request, self.ranges, self.study, self.log = request, ranges, study, log
        self.fitted: tuple[Any, Any] = (None, None)  # what the last linear model was fitted on, and the model

    def run(self, shared: "optuna.storages.RDBStorage | None") -> None:
        """Run the trials that are missing. One that a kill interrupted is chosen again, with the same settings.

        `shared` is the database of --storage. While other workers run the last trials, this one waits: it takes over the trial
        of one that is killed.
        """
        from optuna.storages import fail_stale_trials

        self._keep_best()
        seen: dict[int, float] = {}
        values = dict(flatten(self.request.resolved.preset.to_dict()))
        self.preset = {each.key: values[tuple(each.key.split("."))] for each in self.ranges}
        while len(results_of(self.study)) < self.request.trials:
            fail_stale_trials(self.study)  # a copy of each trial of a killed worker waits from now on
            if shared is not None:
                self._give_first_heartbeats(shared, seen)
            if sum(each.state.name in (*ENDED, "RUNNING") for each in self.study.get_trials()) < self.request.trials:
                self.study.optimize(self._objective, n_trials=1, callbacks=[self._show])
            else:
                time.sleep(1)
        self._keep_best()

    def _give_first_heartbeats(self, shared: "optuna.storages.RDBStorage", seen: dict[int, float]) -> None:
        """Give a heartbeat, once, to each trial that runs twice HEARTBEAT after it was `seen`: it may have none.

        Its worker was then killed before the first one, and for Optuna such a trial runs for ever.
        """
        for number in (each.number for each in self.study.get_trials(deepcopy=False) if each.state.name == "RUNNING"):
            if time.monotonic() - seen.setdefault(number, time.monotonic()) > 2 * HEARTBEAT:
                study = shared.get_study_id_from_name(self.study.study_name)
                shared.record_heartbeat(shared.get_trial_id_from_study_id_trial_number(study, number))
                seen[number] = math.inf

    def _objective(self, trial: "optuna.Trial") -> float:
        """Train the preset itself first, then settings that Optuna chooses.

        Of the settings of the preset the sampler knows those that lie in their ranges. The number of finished trials gives the
        seed of the sampler, so an interrupted study continues as if it had not been. With several workers it is the number of
        trials that were begun before this one; a trial that is run again keeps its number.
        """
        from optuna import TrialPruned
        from optuna.samplers import PartialFixedSampler, TPESampler
        from optuna.storages import RetryHeartbeatStaleTrialCallback as Retry

        trials, retried = self.study.get_trials(), Retry.retried_trial_number
        first = retried(trials[trial.number])
        earlier = sum(each.state.name != "FAIL" for each in trials[: trial.number])
        if first is None and earlier >= self.request.trials:
            return math.nan  # one too many, since another worker began one at this moment: Optuna marks it as failed
        asked = sum(retried(each) is None for each in trials[: trial.number if first is None else first])
        done = asked if self.request.storage else earlier
        searched, settings = self.ranges, {**self.preset}
        seed = derived_seed(self.request.resolved.preset.runtime.seed, done) % 2**32
        self.study.sampler = TPESampler(seed=seed, constant_liar=bool(self.request.storage))
        if done == 0:
            searched = [each for each in self.ranges if each.contains(settings[each.key])]
            known = [(each, settings[each.key]) for each in searched]
            stored = {each.key: text_of(value) if each.scale == "choices" else value for each, value in known}
            self.study.sampler = PartialFixedSampler(stored, self.study.sampler)
        settings |= {each.key: each.suggest(trial) for each in searched}
        best, number = best_of(results_of(self.study), self.request.metric), done + 1
        score = None if best is None else best["dev_metric"]
        log = TrialLog(self.log, self.request.trials, number, trial, score, of_encoder=self.request.of_encoder)
        try:
            result = self._train(number, settings, log)
        except Exception as error:
            if number == 1 or isinstance(error, Interrupted):
                Retry()(self.study, self.study.trials[trial.number])
            raise
        trial.set_user_attr("result", result)
        if result["state"] != "complete":
            raise TrialPruned
        return result["dev_metric"]

    def _train(self, number: int, settings: Mapping[str, Any], log: "TrialLog") -> dict[str, Any]:
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
        started = time.perf_counter()
        try:
            check_encoder(resolved := self.request.compose(overrides))
        except UsageError as error:
            self.request.compose({})  # raises an error if it is not for these values
            return {**result, "state": "refused", "reason": str(error), "evaluations": 0, "seconds": 0.0}
        try:
            request = FinetuneRequest(preset=self.request.preset, output=run)
            trained = finetune(request, log, resolved, trial_fit=self._fit)
            result |= self._outcome(number, settings, trained)
        except TrialPruned:
            result |= {"state": "pruned", "dev_metric": log.best}
        except NumericError as error:
            result |= {"state": "diverged", "dev_metric": log.best, "reason": str(error)}
        return {**result, "evaluations": log.count, "seconds": round(time.perf_counter() - started, 1)}

    def _fit(self, texts: Any, targets: Any, classes: int, log: Log, config: Any, weights: Any, ids: Any) -> Any:
        """Fit the linear model, once for trials that change neither it nor the rows, even where no cache can be written."""
        given = (texts, targets, classes, config, weights.tolist(), ids)
        if given != self.fitted[0]:
            self.fitted = given, fit_linear_model(texts, targets, classes, log, config, weights, ids)
        return self.fitted[1]

    def _outcome(self, number: int, settings: Mapping[str, Any], trained: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a study keeps of the result of a training. The settings of the preset are those that `auto` came to.

        Raises UsageError if the rows, or static vectors that are not searched, are not those of the earlier trials.
        """
        data = {f"{split} sha256": trained["data"][split]["sha256"] for split in ("train", "dev")}
        if "linear.vectors" not in settings and not self.request.of_encoder:  # whose later trials fit no linear model
            run = RunDirectory(self.request.folder / TRIALS / f"{number:03}")
            data["linear.vectors"] = run.read_preset()["linear"]["vectors"]
        check_same(self.study.user_attrs.get("data", data), data, self.request.folder)
        self.study.set_user_attr("data", data)
        metric = self.request.metric
        dev_metric = score_in(trained.get("held_out", trained["dev"]), metric)
        if number > 1:
            return {"dev_metric": dev_metric}
        linear = trained.get("linear_baseline", {}).get("dev", {}).get(metric)
        settled = {key: trained["settled"].get(key, value) for key, value in settings.items()}
        return {"dev_metric": dev_metric, "settings": settled, "linear_dev_metric": linear}

    def _show(self, study: "optuna.Study", trial: "optuna.trial.FrozenTrial") -> None:
        """Keep the best preset, and show the line of the trial that ended, if it was not one too many."""
        self._keep_best()
        if "result" in trial.user_attrs:
            self.log.note(line_of(self.request, trial.user_attrs["result"], results_of(study)))

    def _keep_best(self) -> None:
        """Write the best preset so far. Remove the run directories, unless they are to be kept."""
        if not self.request.keep_runs:
            remove(self.request.folder / TRIALS)
        results = results_of(self.study)
        if best_of(results, self.request.metric):
            write_atomically(self.request.folder / BEST, best_preset(self.request, results, self.study))


class TrialLog(Log):
    """Receives the progress of a trial: shows it as the study's, reports its evaluations, and ends it if it is pruned.

    Notes are shown of the first trial, before its first progress.
    """

    def __init__(
        self, shown: Log, trials: int, number: int, trial: "optuna.Trial", earlier: float | None, *, of_encoder: bool
    ) -> None:
        self._shown, self._trials, self._trial, self._earlier = shown, trials, trial, earlier
        self._of_encoder, self._sign = of_encoder, -1 if trial.study.direction.name == "MINIMIZE" else 1
        self.number, self.count = number, 0
        self.best: float | None = None
        """The encoder's best dev metric, if the trial is scored by it."""
        self._part: int | None = None
        """The last of PARTS equal parts of the schedule that was reported."""
        self._last = 0.0
        if number == 1:
            self.note, self.warn = shown.note, shown.warn  # type: ignore[method-assign]

    def progress(self, state: State) -> None:
        """Show where the study stands. Raises TrialPruned for a trial that is below the median of the complete ones.

        A trial is compared after its second evaluation at the earliest, and not in its last step.
        """
        from optuna import TrialPruned

        assert isinstance(state, Progress)
        self.note, self.warn = super().note, super().warn  # type: ignore[method-assign]
        if state.dev_metric is not None:
            self.report(state.step, state.total_steps, state.dev_metric)
        known = [score for score in (self._earlier, self.best) if score is not None]
        self._shown.progress(TrialProgress(self.number, self._trials, state, max(known, default=None)))
        if state.dev_metric is not None and state.step < state.total_steps and self.should_prune():
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
        self._part, self._last, self.count = now, dev_metric, self.count + 1
        if self._of_encoder:
            self.best = dev_metric if self.best is None else max(self.best, dev_metric)

    def should_prune(self) -> bool:
        """Return whether the trial is below the median of the complete ones, from its second evaluation on."""
        return self.count > 1 and self._trial.should_prune()


def open_study(path: Path, metric: str = "accuracy") -> "optuna.Study":
    """Return the study in the file `path`, which is created if it is missing. Raises ModelError for a damaged one.

    Trials that a kill interrupted are marked as failed: the sampler would count them as bad ones that still run.
    """
    import optuna

    # A creator, because a path in the address of a database would need escaping.
    engine = {"creator": lambda: sqlite3.connect(path, timeout=30.0, check_same_thread=False)}
    try:
        storage = optuna.storages.RDBStorage("sqlite:///study.db", engine_kwargs=engine)
        with storage.engine.connect() as connection:
            state = connection.exec_driver_sql("PRAGMA integrity_check(1)").scalar_one()
        if state != "ok":
            raise ValueError(state.partition("\n")[2] or state)
        study = _create_study(storage, "recur tune", metric)
        for left in study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,)):
            study.tell(left.number, state=optuna.trial.TrialState.FAIL)
        return study
    except RuntimeError as error:
        raise ModelError(f"{path}: was written by another version of Optuna: {error}") from None
    except (ValueError, LookupError, TypeError, AttributeError, AssertionError) as error:
        raise ModelError(f"{path}: is damaged: {escaped(error)}; start again with --overwrite") from None


def _create_study(storage: "optuna.storages.BaseStorage", name: str, metric: str) -> "optuna.Study":
    """Return the study with this name, which is created if it is missing.

    Median pruning (Golovin et al., KDD 2017) starts with the sixth trial.
    """
    import optuna

    return optuna.create_study(
        storage=storage,
        study_name=name,
        direction="minimize" if metric_named(metric).minimize else "maximize",
        load_if_exists=True,
        pruner=optuna.pruners.MedianPruner(n_startup_trials=5),
    )


def _join_study(request: TuneRequest, facts: Facts, place: str) -> "tuple[optuna.Study, optuna.storages.RDBStorage]":
    """Return the study with these `facts` from the database of --storage, and the database. Create the study if it is missing.

    The name of the study is a hash of the facts. If the heartbeat of a trial stops, its worker was killed, and another
    worker runs the trial again. Raises UsageError if the database cannot be opened, or if the folder of the request has the
    best preset of another study. `place` names the database in messages.
    """
    from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback
    from sqlalchemy.exc import DatabaseError, SQLAlchemyError

    name = f"recur tune {hashlib.sha256(to_json(dict(facts)).encode()).hexdigest()[:16]}"
    url, best = str(request.storage), request.folder / BEST
    if best.is_file() and name.encode() not in best.read_bytes():
        raise UsageError(f"{best}: is of another study and would be replaced; choose another --output")
    for left in reversed(range(ATTEMPTS)):
        try:
            again = RetryHeartbeatStaleTrialCallback()
            storage = RDBStorage(url, heartbeat_interval=HEARTBEAT, heartbeat_stale_trial_callback=again)
            return _create_study(storage, name, request.metric), storage
        except (SQLAlchemyError, ImportError, ValueError) as error:
            if isinstance(error, DatabaseError) and left:
                time.sleep(1)  # another worker may be creating the tables
                continue
            reason = str(getattr(error, "orig", None) or error).partition("\n")[0]
            raise UsageError(f"{place}: cannot be opened: {escaped(reason)}") from None
    raise AssertionError("the last attempt returns or raises")


def _checked_storage(url: str, folder: Path) -> str:
    """Check the URL of --storage, and return it without user, password and query.

    Raises UsageError if it is no URL of a database, or if the database is in memory or in `folder`, which --overwrite empties.
    """
    import sqlalchemy

    try:
        parsed = sqlalchemy.make_url(url)
        shown = escaped(re.sub("//.*@", "//", parsed.set(query={}).render_as_string()))
    except (sqlalchemy.exc.ArgumentError, ValueError):
        raise UsageError("--storage: is not the address of a database, such as postgresql://host/db") from None
    name = parsed.database or ":memory:"
    if parsed.get_backend_name() == "sqlite" and (":memory:" in name or parsed.query.get("mode") == "memory"):
        way_out = "name a file, such as sqlite:////data/study.db, or leave --storage out"
        raise UsageError(f"--storage {escaped(url)}: is in memory, which no other worker can read; {way_out}")
    if parsed.get_backend_name() == "sqlite" and Path(name).resolve().parent == folder.resolve():
        raise UsageError(f"--storage {escaped(url)}: is in --output, which --overwrite empties; name a file elsewhere")
    return shown


def results_of(study: "optuna.Study") -> list[dict[str, Any]]:
    """Return the results of the trials that ended, in the order of their numbers."""
    ended = [trial for trial in study.get_trials(deepcopy=False) if trial.state.name in ENDED]
    return sorted((trial.user_attrs["result"] for trial in ended), key=operator.itemgetter("trial"))


@contextlib.contextmanager
def storage_errors(path: str) -> Iterator[None]:
    """Turn errors of the database at `path` in the block into StorageError or ModelError.

    If Optuna's loop cannot store the end of a trial, it raises an AssertionError in place of the cause, which may also be a
    signal.
    """
    from sqlalchemy.exc import OperationalError, SQLAlchemyError

    try:
        yield
    except UsageError:
        raise
    except Exception as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, SQLAlchemyError | Interrupted):
            cause = cause.__cause__ or cause.__context__
        if cause is None:
            raise
        if isinstance(cause, Interrupted):
            raise cause from None
        reason = str(getattr(cause, "orig", None) or cause).partition("\n")[0]
        if isinstance(cause, OperationalError):
            raise StorageError(f"{path}: cannot be read or written: {reason}; continue with --resume") from None
        raise ModelError(f"{path}: is damaged: {reason}; start again with --overwrite") from None


def best_of(results: Sequence[Mapping[str, Any]], metric: str) -> Mapping[str, Any] | None:
    """Return the complete trial with the best score by `metric`, the first one of equal ones, or None if none is complete."""
    complete = [result for result in results if result["state"] == "complete"]
    best = min if metric_named(metric).minimize else max
    return best(complete, key=lambda result: result["dev_metric"], default=None)


def trials_by_state(results: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return the number of trials in each state."""
    states = [result["state"] for result in results]
    return {state: states.count(state) for state in STATES}


def line_of(request: TuneRequest, result: Mapping[str, Any], results: Sequence[Mapping[str, Any]]) -> str:
    """Return the progress line for a trial: its number, settings and score, whether it ended early, the best score of all."""
    best = best_of(results, request.metric)
    names, name = short_names(result["settings"]), request.metric
    shown = " ".join(f"{names[key]}={text_of(value)}" for key, value in result["settings"].items())
    line = f"trial {result['trial']} of {request.trials}: {shown}"
    if result["dev_metric"] is not None:
        line += f"; dev {words_of(name)} {format_score(name, result['dev_metric'])}"
    if result["state"] == "pruned":
        line += f"; pruned after {pluralize(result['evaluations'], 'evaluation')}"
    elif result["state"] in ("diverged", "refused"):
        line += f"; {result['state']}: {result['reason']}"
    if best is not None:
        line += f"; best dev {words_of(name)} {format_score(name, best['dev_metric'])} (trial {best['trial']})"
    return line


def command_of(request: TuneRequest) -> str:
    """Return the shell line that trains with the best preset on the data of the study."""
    named = {"preset": request.folder / BEST, "data": request.data, "train": request.train, "dev": request.dev}
    options = [(f"--{name}", str(value)) for name, value in named.items() if value is not None]
    return shlex.join(["recur", "finetune", *(part for option in options for part in option)])


def best_preset(request: TuneRequest, results: Sequence[Mapping[str, Any]], study: "optuna.Study") -> str:
    """Return the text of best.yaml, which extends the preset by the options and by the values of the best trial.

    Comments at its top give the dev metric and the study, and say that it is no test score. At least one trial is complete.
    """
    preset, best = request.resolved.preset, best_of(results, request.metric) or {}
    named = is_file_name(request.preset)
    values: dict[str, Any] = {"extends": str(Path(request.preset).expanduser().absolute()) if named else request.preset}
    whole = preset.to_dict()
    changed = {key: functools.reduce(operator.getitem, key.split("."), whole) for key in request.set_keys}
    encoder = {} if preset.is_linear else {"finetuning.encoder": "always"}  # as in the trials
    for key, value in {**changed, **encoder, **best["settings"]}.items():
        *sections, last = key.split(".")
        functools.reduce(lambda holder, section: holder.setdefault(section, {}), sections, values)[last] = value
    counts = ", ".join(f"{count} {state}" for state, count in trials_by_state(results).items() if count)
    metric = request.metric
    comment = [
        f"dev {words_of(metric)} {format_score(metric, best['dev_metric'])}: the best of "
        f"{pluralize(len(results), 'trial')} of `recur tune` ({counts}), trial {best['trial']}"
        f"{', the preset itself' if best['trial'] == 1 else ''}.",
        "This score is optimistic, because it selected the trial; it is no test score.",
        f"It is the {request.score_in_words}.",
        f"The study is '{study.study_name}'.",
    ]
    return "".join(f"# {line}\n" for line in comment) + dump(values)


def result_of(request: TuneRequest, results: Sequence[Mapping[str, Any]], ranges: Sequence[Range]) -> dict[str, Any]:
    """Return the result of the study. Raises NumericError if no trial is complete."""
    best = best_of(results, request.metric)
    if best is None:
        last, count = results[-1], pluralize(len(results), "trial")
        fault = f"none of the {count} ended with a finite dev metric; trial {last['trial']}: {last.get('reason', '')}"
        raise NumericError(f"{request.folder}: {fault}")
    preset, first = request.resolved.preset, {each["trial"]: each for each in results}.get(1, {})
    return {
        "preset": request.resolved.name,
        "task": preset.task,
        "metric": request.metric,
        "score": request.score_in_words,
        "seed": preset.runtime.seed,
        "output": str(request.folder),
        "ranges": {each.key: str(each) for each in ranges},
        "trials": [dict(result) for result in results],
        **trials_by_state(results),
        "preset_dev_metric": first.get("dev_metric"),
        "linear_dev_metric": None if preset.is_linear else first.get("linear_dev_metric"),
        "command": command_of(request),
        "best": {**best, "preset": str(request.folder / BEST), "chosen_by_this_score": True},
    }


def parse_range(text: str) -> Range:
    """Return the range in `text`: KEY=LOW..HIGH, KEY=LOW..HIGH:log or KEY=A|B. Raises UsageError for anything else."""
    shown = f"--range {escaped(text)}"
    key, equals, written = (part.strip() for part in text.partition("="))
    if not equals or not key or not written:
        raise UsageError(f"{shown}: is not KEY=LOW..HIGH or KEY=A|B, such as finetuning.learning_rate=1e-4..3e-3:log")
    if "|" in written or ".." not in written:
        choices = [parse_value(part, shown) for part in written.split("|")]
        are_known = all(choice is None or isinstance(choice, str | int | float | list) for choice in choices)
        if not are_known or len(set(map(text_of, choices))) < max(2, len(choices)):
            raise UsageError(f"{shown}: is not two or more words, numbers or lists that differ; --set fixes one value")
        return Range(key, tuple(choices), "choices")
    ends, colon, scale = written.partition(":")
    low, high = (parse_value(part, shown) for part in ends.split("..", 1))
    are_numbers = all(type(value) in (int, float) and math.isfinite(value) for value in (low, high))
    if not are_numbers or low >= high or (colon and (scale != "log" or low <= 0)):
        raise UsageError(f"{shown}: is not LOW..HIGH, or LOW..HIGH:log with LOW above 0")
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
            fault = "stands twice" if keys.count(key) > 1 else "--set fixes it"
            raise UsageError(f"--range {escaped(key)}: {fault}; keep one")
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
    others = (*NOT_TUNED, "finetuning.class_weights") if request.metric == LOG_LOSS else NOT_TUNED
    if not searched.key.startswith(sections) or searched.key.startswith(others):
        fault = "is not searched: it has no effect on the dev metric, or changes what it means"
        raise UsageError(f"--range {searched.key}: {fault}")
    return replace(searched, values=tuple(values))


def _value_of(key: str, preset: Preset) -> Any:
    """Return the value of a key of a preset. A whole number is a float if the key takes floats."""
    keys = {key: value for key, value in preset.encoder.items() if key != "name"}
    encoder = parse_config(encoder_class(preset.encoder["name"]).Config, keys)
    return dict(flatten({**preset.to_dict(), "encoder": asdict(encoder)}))[tuple(key.split("."))]
