"""The candidate "linear" of a fine-tuning: the linear model on n-grams, and its logits of rows that it was not fitted on.

Shapes: M rows that choose, C logits of a row.
"""

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recurcli.config import Preset
from recurcli.data.splits import Split
from recurcli.distributed.group import current
from recurcli.errors import DataError
from recurcli.evaluation.decision import Kept
from recurcli.evaluation.report import report_of, scores_of
from recurcli.linear.fitting import fit_linear_model, refit_linear_model
from recurcli.linear.model import LinearModel
from recurcli.linear.out_of_fold import out_of_fold_logits
from recurcli.log import Log
from recurcli.models.candidate import Candidate
from recurcli.models.data import Data
from recurcli.runs.model_files import Files
from recurcli.runs.run_directory import LINEAR_MODEL, VECTORS
from recurcli.targets.target import Logits, RowWeights


@dataclass(frozen=True)
class Linear(Candidate):
    """The linear model that is fitted on the training rows."""

    model: LinearModel
    held_out: Logits
    """(M, C) logits of the rows that choose: of the dev rows, or out of fold where the training rows are cross-validated."""
    scores: dict[str, Any]
    """The metrics and the loss on these rows, with the metric that selects the encoder's step."""
    may_be_kept: bool
    """Whether it may be kept, alone or in an ensemble. False: the encoder is only compared with it."""
    refit: Callable[[], LinearModel] | None
    """Fits it again, on the dev rows too; None: it is not fitted again (`finetuning.refit`), or has all rows already."""
    holds = (LINEAR_MODEL,)

    def result(self) -> dict[str, Any]:
        """Return the number of parameters of a model that is this one alone."""
        size = self.model.parameters
        return {"parameters": {"embedding": 0, "linear": size, "total": size}}

    def files(self) -> Files:
        """Return the model, and its static vectors where it has any."""
        vectors = self.model.vectors
        return {LINEAR_MODEL: self.model.to_bytes(), **({} if vectors is None else {VECTORS: vectors.content})}


def fit_linear(
    preset: Preset, data: Data, log: Log, fit: Callable[..., LinearModel] = fit_linear_model, *, may_refit: bool = True
) -> Linear | None:
    """Fit the linear model, on rank 0. Return None if the preset wants none, and on ranks other than 0.

    If it `may_refit`, the preset says whether it is fitted again on the dev rows too. Raises DataError for rows that it cannot
    be fitted on if the preset has no encoder; otherwise the log says why there is no linear model.
    """
    if not preset.fits_linear_model or not current().is_main:
        return None
    train, dev, target = data.train, data.dev, data.learner

    def row_weights(*more: NDArray[np.float64]) -> RowWeights:
        """Return the factors of the training rows, and `more` after them; None if all are 1, which takes no memory."""
        taught = 1.0 if data.teacher is None else data.teacher.row_weights(preset.finetuning.teacher_weight)
        weights = np.concatenate([data.weights * taught, *more])
        return None if (weights == 1).all() else weights

    log.stage("fitting the linear model")
    ids = None if isinstance(train.examples.ids, array) else train.examples.ids
    try:
        model = fit(train.texts, train.y, target, log, preset.linear, row_weights(), ids)
    except DataError as error:
        reason = f"no linear model beside the encoder: {error}"
        if preset.is_linear:
            raise DataError(f"train: {reason}, and the preset has no encoder") from None
        (log.detail if preset.ensemble is None else log.warn)(reason)
        return None
    if dev is None:
        log.stage("cross-validating the linear model")
        seed = preset.data.dev_seed
        held_out = out_of_fold_logits(train.texts, train.y, target, model.hyperparameters, row_weights(), seed=seed)
    else:
        held_out = model.logits(dev.texts)
    scores = scores_of(report_of(Kept.as_is(data.target), held_out, data.choosing, data.metric), data.metric)

    def fit_again(dev: Split) -> LinearModel:
        rows = train.texts + dev.texts, np.concatenate([train.y, dev.y])
        of_rows = row_weights(data.choosing_weights)
        return refit_linear_model(model, *rows, target, of_rows, all_rows=preset.linear.all_rows)

    wants_more = may_refit and _is_fitted_again(preset, data)
    refit = None if dev is None or not wants_more else partial(fit_again, dev)
    return Linear(model, held_out, scores, preset.ensemble is not None, refit)


def _is_fitted_again(preset: Preset, data: Data) -> bool:
    wanted = preset.finetuning.refit
    return data.train.dev is not None and preset.data.train_share == 1 if wanted == "auto" else wanted
