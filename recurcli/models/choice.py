"""The choice among the candidates of a fine-tuning, and the scores of what is kept. Shapes: M dev rows, N rows, C logits
of a row.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recurcli.config import Preset
from recurcli.data.known import KnownRows
from recurcli.data.splits import RowHashes, Split
from recurcli.distributed.group import current
from recurcli.evaluation.decision import Kept, choose
from recurcli.evaluation.report import cut_score, report_of, report_with_parts
from recurcli.files import to_json
from recurcli.linear.model import LinearModel
from recurcli.linear.out_of_fold import OUTER_FOLDS, draw_folds
from recurcli.metrics import format_interval, format_score, score_in, words_of
from recurcli.models.data import Data
from recurcli.models.encoder import Encoder
from recurcli.models.linear import Linear
from recurcli.runs.model_files import write_listed, write_predictions, write_refit
from recurcli.runs.run_directory import KEPT, PREDICTIONS, TEST_PREDICTIONS, RunDirectory
from recurcli.targets import SeveralLabels
from recurcli.targets.target import Logits

Rows = NDArray[np.bool_] | slice
"""Some of the dev rows."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The encoder and the linear model of a fine-tuning. The run keeps one of them, or an ensemble of both."""

    data: Data
    preset: Preset
    encoder: Encoder | None
    linear: Linear | None
    """None if it is not fitted, and on ranks other than 0."""
    known: KnownRows
    """The rows that the model is trained on, those of a run that it starts from too, and the dev rows."""
    halves_seed: int | None = None
    """Seed by which the dev rows are halved, to score a trial of `tune` on held-out rows. None: it is not such a trial."""

    @property
    def metric_name(self) -> str:
        """The dev metric that selects the encoder's step."""
        return self.data.metric

    @cached_property
    def first_kept(self) -> Kept:
        """What is kept until the encoder is trained: the linear model if it may be kept, else the encoder as it is."""
        if self.linear is not None and self.linear.may_be_kept:
            return self._choose(None)
        return Kept.as_is(self.data.target)

    def linear_in_words(self, linear: Linear) -> str:
        """Return the score of what is kept of the linear model at first; with its 95 % interval by the target's headline."""
        kept, target, metric, rows = self.first_kept, self.data.target, self.data.metric, self.data.choosing
        logits = kept.logits(dict.fromkeys(kept.weights, linear.held_out))
        score = format_score(metric, score_in(report_of(kept, logits, rows, metric), metric))
        limits = target.interval(rows.y, kept.predict(logits)) if metric == target.headline else ()
        ends = f" (95 % interval {format_interval(metric, limits)})" if limits else ""
        return f"dev {words_of(metric)} of the linear model: {score}{ends}"

    def decide_and_score(self, folder: Path) -> dict[str, Any]:
        """Choose what is kept, write it and its predictions in `folder` (rank 0), and return result.json's facts.

        In the end the linear model is fitted again, if it is to be, and is a part of the kept model: the test rows are scored
        with it, the dev rows without. Raises StopTraining on a signal.
        """
        data, encoded = self.data, dict[str, Logits]()
        if self.encoder is not None:
            encoded = {split: self.encoder.logits(split) for split in ("dev", *data.tests)}
        if not current().is_main:
            return {}
        dev = encoded.get("dev")
        kept = self._choose(dev)
        write_listed(folder / KEPT, to_json(kept.to_json()))
        if kept.thresholds is not None:
            RunDirectory(folder).write_thresholds(kept.thresholds)
        report, facts = self._write_scores(folder / PREDICTIONS, data.choosing, kept, dev, data.task.baselines)
        facts["kept"] = kept.to_json()
        if self.halves_seed is not None:
            facts["held_out"] = self._held_out(dev)
        if self.linear is not None:
            scores = dict(self.linear.scores)
            if self.halves_seed is not None:
                name = data.target.loss_name
                scores[name] = self._held_out(None)[name]
            model, texts = self.linear.model, data.choosing.texts
            unknown = model.ngrams.unknown_share(texts, fitted=data.dev is None)
            facts["linear_baseline"] = {**model.facts(texts), "dev": scores, "unknown_ngrams": unknown}
        fitted = None
        if self.linear is not None and self.linear.refit is not None and "linear" in kept.weights:
            fitted = self.linear.refit()  # on rank 0 alone, so no signal is agreed upon here
            write_refit(folder, fitted)
            facts["linear_baseline"]["refit_rows"] = fitted.rows
        for split, rows in data.tests.items():
            path, of_encoder = folder / TEST_PREDICTIONS[split], encoded.get(split)
            test, of_test = self._write_scores(path, rows, kept, of_encoder, {}, fitted)
            facts[split] = {**test, **of_test}
        if data.dev is None:
            facts["cross_validation"] = {"folds": OUTER_FOLDS, "rows": kept.rows}
        return {
            "target": data.target.kind,
            "metric": self.metric_name,
            "dev": report,
            **facts,
            "thresholds": kept.thresholds,
        }

    def _logits_of(self, rows: Split, encoder: Logits | None) -> dict[str, Logits]:
        """Return the logits (N, C) of each candidate on `rows`, on dev rows by models that were not fitted on them.

        `encoder`: those of the encoder, None without one.
        """
        of = {} if encoder is None else {"encoder": encoder}
        if self.linear is None:
            return of
        is_dev = rows is self.data.choosing
        return {**of, "linear": self.linear.held_out if is_dev else self.linear.model.logits(rows.texts)}

    def _choose(self, encoder: Logits | None, rows: Rows = slice(None)) -> Kept:
        """Choose what is kept, and its thresholds, by these `rows` of the dev rows; `encoder`: its logits (M, C)."""
        data, setting = self.data, self.preset.finetuning.thresholds
        held_out = {name: logits[rows] for name, logits in self._logits_of(self.data.choosing, encoder).items()}
        if self.linear is not None and not self.linear.may_be_kept:
            del held_out["linear"]
        y = data.choosing.y[rows]
        kept = replace(choose(held_out, y, data.learner, data.choosing_weights[rows]), target=data.target)
        metric = data.target.thresholds_for if setting == "auto" else setting
        if metric is None or not len(y):
            return kept
        chosen = kept.with_thresholds(kept.probabilities(kept.logits(held_out)), y, metric)
        return chosen if setting != "auto" or chosen.thresholds_help else kept

    def _held_out(self, encoder: Logits | None) -> dict[str, Any]:
        """Return the report on the dev rows, each by what is chosen on the other half of them, with the weighted loss.

        Rows of one group (see `RowHashes`) are in one half. `encoder`: its logits (M, C); None: it is left out.
        """
        data, target, y = self.data, self.data.target, self.data.choosing.y
        shares, predictions = np.empty((len(y), target.width)), np.empty_like(y)
        group_ids = RowHashes.of(data.choosing.texts).group_ids
        halves = draw_folds(group_ids, y, target, self.halves_seed or 0, folds=2)
        for half in (0, 1):
            own, kept = halves == half, self._choose(encoder, halves != half)
            of_all = kept.probabilities(kept.logits(self._logits_of(data.choosing, encoder)))
            shares[own], predictions[own] = of_all[own], kept.decide(of_all)[own]
        loss = np.average(data.learner.losses_of_probabilities(shares, y), weights=data.choosing_weights)
        report = target.report(y, predictions, shares) | cut_score(target, self.metric_name, y, predictions)
        return {**report, target.loss_name: loss}

    def _write_scores(
        self,
        path: Path,
        split: Split,
        kept: Kept,
        encoder: Logits | None,
        baselines: Mapping[str, float],
        fitted: LinearModel | None = None,
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Write the predictions of the rows of `split` to `path`; return their metrics and `report_with_parts`' facts.

        `encoder` are the encoder's logits (N, C), `fitted` is the linear model that was fitted again. The scores of the linear
        model are those of its first fit. `baselines` are accuracies of the task.
        """
        data, known, is_dev = self.data, self.known, split is self.data.choosing
        of, refitted = self._logits_of(split, encoder), None
        linear_scores = self.linear.scores if self.linear is not None and is_dev else None
        if fitted is not None:
            refitted, known = fitted.logits(split.texts), known.refitted()
        trained_on = None if is_dev and data.dev is None else known.trains(split.hashes)
        report, facts, logits = report_with_parts(
            kept, of, split, baselines, self.metric_name, trained_on, refitted, linear_scores
        )
        if trained_on is not None and not is_dev:
            facts["training_rows"] = int(trained_on.sum())
        shares = {"probabilities": kept.probabilities(logits)}
        if len(kept.alone) > 1:
            parts = {part: kept.calibrated(part, own) for part, own in of.items()}
            alone = {part: kept.target.probabilities(own, kept.rows) for part, own in parts.items()}
            shares |= {f"{part}_probabilities": own for part, own in alone.items()}
        ids, are_numbered = [*map(str, split.examples.ids)], data.dev is None and any(split.examples.lines)
        lines = [*map(split.place_of, split.examples.lines)] if are_numbered else ()
        shown = split.texts if self.preset.finetuning.keep_texts and is_dev else None
        labels, predictions = split.cells, kept.decide(shares["probabilities"])
        least = np.minimum(kept.threshold_values or 0.5, 0.5) if isinstance(data.target, SeveralLabels) else 0.5
        decided = data.target.decode(predictions)
        write_predictions(path, ids, labels, data.target.labels, shares, decided, shown, lines, least=least)
        return report, facts
