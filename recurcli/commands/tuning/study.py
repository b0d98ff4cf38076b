"""A study of `recur tune` on the disk: Optuna's SQLite storage in the output folder.

SQLite's transactions survive a kill, and its lock ends with the process; Optuna's journal file has neither.
"""

import contextlib
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import TrialState
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from recurcli.commands.tuning.request import Range
from recurcli.errors import ModelError, StorageError, escaped
from recurcli.facts import as_stored
from recurcli.training.fit import derived_seed

PARTS = 20
"""Parts of a training's steps at which the pruner compares trials. Ours: each report is a write to the disk."""
_KEPT = (TrialState.COMPLETE, TrialState.PRUNED)


class Study:
    """The study in the file `path`, which is created if it is missing.

    The sampler is the tree-structured Parzen estimator (Bergstra et al., NeurIPS 2011), with ten trials first: the preset, and
    random ones. Median pruning (Golovin et al., KDD 2017) starts with the sixth trial and the second evaluation. The number of
    earlier trials and `seed` give the seed of a trial's settings. An interrupted study therefore continues as if it had not
    been interrupted.
    """

    def __init__(self, path: Path, ranges: Sequence[Range], seed: int) -> None:
        self.path, self.ranges, self.seed = path, ranges, seed
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        # A creator, because a path in the address of a database would need escaping.
        engine = {"creator": lambda: sqlite3.connect(path, timeout=30.0, check_same_thread=False)}
        try:
            storage = optuna.storages.RDBStorage("sqlite:///study.db", engine_kwargs=engine)
            with contextlib.closing(sqlite3.connect(path, timeout=30.0)) as connection:
                [[state], *_] = connection.execute("PRAGMA integrity_check(1)")
            if state != "ok":
                raise ValueError(state.partition("\n")[2] or state)
            self._study = optuna.create_study(
                storage=storage,
                study_name="recur tune",
                direction="maximize",
                load_if_exists=True,
                pruner=optuna.pruners.MedianPruner(n_startup_trials=5),
            )
            _check(self.facts, self.results())
        except RuntimeError as error:
            raise ModelError(f"{path}: was written by another version of Optuna: {error}") from None
        except sqlite3.OperationalError as error:
            raise StorageError(f"{path}: cannot be read or written: {error}; continue with --resume") from None
        except (sqlite3.Error, ValueError, LookupError, TypeError, AttributeError, AssertionError) as error:
            raise ModelError(f"{path}: is damaged: {escaped(error)}; start again with --overwrite") from None

    @property
    def facts(self) -> dict[str, Any]:
        """The facts that a resume must match."""
        return dict(self._study.user_attrs.get("facts", {}))

    def set_facts(self, facts: Mapping[str, Any]) -> None:
        """Store `facts` in place of the earlier ones."""
        self._study.set_user_attr("facts", as_stored(facts))

    def results(self) -> list[dict[str, Any]]:
        """Return the results of the trials that ended, in their order."""
        return [trial.user_attrs["result"] for trial in self._study.get_trials(deepcopy=False, states=_KEPT)]

    def next_trial(self, preset: Mapping[str, Any]) -> "RunningTrial":
        """Start a trial. The first one has the settings of the `preset`. Interrupted trials are marked as failed."""
        for running in self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            self._study.tell(running.number, state=TrialState.FAIL)
        ended = len(self.results())
        if not ended:
            return RunningTrial(None, preset)
        seed = derived_seed(self.seed, ended) % 2**32
        self._study.sampler = optuna.samplers.TPESampler(seed=seed)
        trial = self._study.ask({each.key: each.distribution() for each in self.ranges})
        return RunningTrial(trial, {each.key: each.rounded(trial.params[each.key]) for each in self.ranges})

    def end(self, trial: "RunningTrial", result: Mapping[str, Any]) -> None:
        """Store the result of a trial. A diverged trial is stored like a pruned one.

        Of the preset's settings the sampler knows those that lie in their ranges.
        """
        state, value = TrialState.PRUNED, None
        if result["state"] == "complete":
            state, value = TrialState.COMPLETE, result["dev_metric"]
        attributes = {"result": as_stored(result)}
        if trial.asked is not None:
            trial.asked.set_user_attr("result", attributes["result"])
            self._study.tell(trial.asked, value, state=state)
            return
        known = [each for each in self.ranges if each.contains(result["settings"][each.key])]
        preset = optuna.trial.create_trial(
            state=state,
            value=value,
            params={each.key: result["settings"][each.key] for each in known},
            distributions={each.key: each.distribution() for each in known},
            user_attrs=attributes,
            intermediate_values=trial.reported,
        )
        self._study.add_trial(preset)


def _check(facts: Mapping[str, Any], results: Sequence[Mapping[str, Any]]) -> None:
    """Raise an error unless these are what `set_facts` and `end` store."""
    for number, result in enumerate(results, 1):
        if result["trial"] != number or result["state"] not in ("complete", "pruned", "diverged"):
            raise ValueError(f"trial {number} is not one of a study")
        metric = result["dev_metric"]
        if not isinstance(metric, float) and (metric is not None or result["state"] == "complete"):
            raise ValueError(f"trial {number} has no dev metric")
        dict(result["settings"])
    if results and not facts:
        raise ValueError("its facts are missing")


class RunningTrial:
    """A trial that is trained: its settings, and what its evaluations report to the pruner."""

    def __init__(self, asked: optuna.Trial | None, settings: Mapping[str, Any]) -> None:
        self.asked = asked
        """Optuna's trial. None for the preset itself, which Optuna did not choose and which is never pruned."""
        self.settings = settings
        """The value of each key that is searched."""
        self.evaluations = 0
        self.reported: dict[int, float] = {}
        """The dev metric at each of PARTS equal parts of the schedule."""
        self._last = 0.0

    def report(self, step: int, total_steps: int, dev_metric: float) -> None:
        """Report an evaluation after `step` of `total_steps`.

        The pruner compares trials at equal shares of their steps, because the learning rate of a training of two epochs has
        decayed at its second evaluation and that of twenty epochs has not. A trial keeps its last metric until the next
        evaluation, so that trials can be compared whose evaluations do not coincide.
        """
        now = step * PARTS // total_steps
        for part in range(max(self.reported) + 1 if self.reported else now, now + 1):
            self.reported[part] = dev_metric if part == now else self._last
            if self.asked is not None:
                self.asked.report(self.reported[part], part)
        self._last, self.evaluations = dev_metric, self.evaluations + 1

    def should_prune(self) -> bool:
        """Return whether the trial is below the median of the complete ones, from its second evaluation on."""
        return self.asked is not None and self.evaluations > 1 and self.asked.should_prune()


@contextlib.contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn errors of the database at `path` in the block into StorageError or ModelError."""
    try:
        yield
    except (optuna.exceptions.StorageInternalError, SQLAlchemyError) as error:
        cause = error if isinstance(error, SQLAlchemyError) else error.__cause__
        reason = str(getattr(cause, "orig", None) or cause).partition("\n")[0]
        if isinstance(cause, OperationalError):
            raise StorageError(f"{path}: cannot be read or written: {reason}; continue with --resume") from None
        raise ModelError(f"{path}: is damaged: {reason}; start again with --overwrite") from None
