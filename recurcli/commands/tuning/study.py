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

from recurcli.commands.tuning.ranges import Range
from recurcli.errors import ModelError, StorageError
from recurcli.facts import as_stored
from recurcli.training.fit import derived_seed

_KEPT = (TrialState.COMPLETE, TrialState.PRUNED)


class Study:
    """The study in the file `path`, which is created if it is missing.

    The sampler is the tree-structured Parzen estimator (Bergstra et al., NeurIPS 2011), with ten random trials first. Median
    pruning (Golovin et al., KDD 2017) starts with the sixth trial and the second evaluation. The number of earlier trials and
    `seed` give the seed of a trial's settings. An interrupted study therefore continues as if it had not been interrupted.
    """

    def __init__(self, path: Path, ranges: Sequence[Range], seed: int) -> None:
        self.path, self.ranges, self.seed = path, ranges, seed
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        # A creator, because a path in the address of a database would need escaping.
        engine = {"creator": lambda: sqlite3.connect(path, timeout=30.0, check_same_thread=False)}
        try:
            storage = optuna.storages.RDBStorage("sqlite:///study.db", engine_kwargs=engine)
        except RuntimeError as error:
            raise ModelError(f"{path}: was written by another version of Optuna: {error}") from None
        self._study = optuna.create_study(
            storage=storage,
            study_name="recur tune",
            direction="maximize",
            load_if_exists=True,
            pruner=optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=2),
        )

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

    def next_trial(self) -> tuple[optuna.Trial, dict[str, Any]]:
        """Start a trial and return it with the value of each key. Interrupted trials are marked as failed."""
        for running in self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            self._study.tell(running.number, state=TrialState.FAIL)
        seed = derived_seed(self.seed, len(self.results())) % 2**32
        self._study.sampler = optuna.samplers.TPESampler(seed=seed)
        trial = self._study.ask({each.key: each.distribution() for each in self.ranges})
        return trial, {each.key: each.rounded(trial.params[each.key]) for each in self.ranges}

    def end(self, trial: optuna.Trial, result: Mapping[str, Any]) -> None:
        """Store the result of a trial. A diverged trial is stored like a pruned one."""
        trial.set_user_attr("result", as_stored(result))
        if result["state"] == "complete":
            self._study.tell(trial, result["dev_metric"])
        else:
            self._study.tell(trial, state=TrialState.PRUNED)


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
