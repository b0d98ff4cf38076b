"""What a run keeps of its candidates, and how their logits become its probabilities and predictions.

Shapes: N rows, C logits of a row.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from recurcli.linear.ensemble import fit_calibration, fit_ensemble
from recurcli.targets import Target
from recurcli.targets.target import Calibration, Logits, Probabilities, RowWeights, Y

KeptName = Literal["encoder", "linear model", "ensemble"]


@dataclass(frozen=True)
class Kept:
    """The model that a run keeps: its encoder, its linear model or both, and how logits become predictions."""

    target: Target
    name: KeptName
    weights: Mapping[str, float]
    """The weight of each part, "encoder" or "linear". The logits of the model are the weighted sum of theirs."""
    alone: Mapping[str, float]
    """The weight of each part that could be kept, for its use without the other."""
    temperature: float = 1.0
    """The probabilities are those of logits / temperature. It is 1 where the weights are fitted instead."""
    rows: int = 0
    """Number of dev rows by which it was chosen, which bounds the probabilities; 0: it was not chosen yet."""
    thresholds: Mapping[str, Any] | None = None
    """The thresholds of the labels (`Target.fit_thresholds`), as thresholds.json has them. None: none were chosen."""
    calibrations: Mapping[str, Calibration] = field(default_factory=dict)
    """The calibration by label of each candidate, which comes before its weight; {} if the target calibrates no labels."""

    @classmethod
    def as_is(cls, target: Target) -> "Kept":
        """Return an encoder alone, whose logits are taken as they are: without temperature and thresholds."""
        return cls(target, "encoder", {"encoder": 1.0}, {"encoder": 1.0})

    def logits(self, of: Mapping[str, Logits]) -> Logits:
        """Return the logits (N, C) of the kept model, given those `of` the candidates by name."""
        first, *others = (weight * self.calibrated(name, of[name]) for name, weight in self.weights.items())
        return sum(others, first)

    def calibrated(self, candidate: str, logits: Logits) -> Logits:
        """Return the logits (N, C) of a candidate after its calibration by label, if it has one."""
        if candidate not in self.calibrations:
            return logits
        slopes, offsets = map(np.array, self.calibrations[candidate])
        return slopes * logits + offsets

    def probabilities(self, logits: Logits) -> Probabilities:
        """Return the probabilities (N, C) of its logits (N, C)."""
        return self.target.probabilities(logits / self.temperature, self.rows)

    @property
    def slopes_and_offsets(self) -> dict[str, NDArray[np.float64]]:
        """The factor and the summand, (2,) or for each label (2, C), that make its part of the logits of a candidate's."""
        return {
            name: weight / self.temperature * np.array(self.calibrations.get(name, (1.0, 0.0)))
            for name, weight in self.weights.items()
        }

    @property
    def threshold_values(self) -> list[float]:
        """The thresholds (C), or [] without."""
        return [] if self.thresholds is None else [*self.thresholds["thresholds"].values()]

    @property
    def thresholds_help(self) -> bool:
        """Whether its thresholds raise their metric by cross-validation."""
        return self.thresholds is not None and self.thresholds["cross_validated"] > self.thresholds["most_probable"]

    @property
    def thresholds_of_parts(self) -> Mapping[str, Any] | None:
        """Its thresholds, if they hold for each of its parts."""
        return self.thresholds if self.target.thresholds_for else None

    def decide(self, probabilities: Probabilities) -> Y:
        """Return the prediction (N, …) of each row with these probabilities (N, C)."""
        return self.target.decide(probabilities, self.threshold_values)

    def predict(self, logits: Logits) -> Y:
        """Return the prediction (N, …) of each row with these logits (N, C)."""
        return self.decide(self.probabilities(logits))

    def with_thresholds(self, probabilities: Probabilities, y: Y, metric: str) -> "Kept":
        """Return a copy with the thresholds of the best `metric` on rows with these probabilities (N, C) and labels `y`."""
        return replace(self, thresholds=self.target.fit_thresholds(probabilities, y, metric))

    def with_threshold(self, threshold: float) -> "Kept":
        """Return a copy with the same `threshold` for each label."""
        return replace(self, thresholds={"thresholds": dict.fromkeys(self.target.labels, threshold)})

    @property
    def only_linear(self) -> "Kept":
        """The linear model in place of what is kept, by its own calibration and with the thresholds that hold for it."""
        alone = _single(self.target, "linear", self.alone, self.rows)
        return replace(alone, calibrations=self.calibrations, thresholds=self.thresholds_of_parts)

    def to_json(self) -> dict[str, Any]:
        """Return the content of kept.json."""
        omitted = ("target", "thresholds", *(() if self.calibrations else ("calibrations",)))
        return {key: value for key, value in vars(self).items() if key not in omitted}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any], target: Target) -> "Kept":
        """Return what `to_json` stored.

        Raises ValueError if its name is not that of its weights, `alone` lacks one, or calibrations do not fit the target.
        """
        kept = cls(target, **stored)
        parts = {"ensemble": {"encoder", "linear"}, "linear model": {"linear"}, "encoder": {"encoder"}}[kept.name]
        if kept.weights.keys() != parts or not parts <= kept.alone.keys():
            named = f"{sorted(kept.weights)} and {sorted(kept.alone)}"
            raise ValueError(f"its weights and alone are of {named}, but it is named {kept.name}")
        of_width = all(len(numbers) == target.width for own in kept.calibrations.values() for numbers in own)
        if kept.calibrations and not (of_width and kept.alone.keys() <= kept.calibrations.keys()):
            raise ValueError(f"its calibrations are not a slope and an offset of each of {target.width:,} labels")
        return kept


def _single(target: Target, candidate: str, alone: Mapping[str, float], rows: int) -> Kept:
    name: KeptName = "encoder" if candidate == "encoder" else "linear model"
    return Kept(target, name, {candidate: alone[candidate]}, alone, rows=rows)


def choose(held_out: Mapping[str, Logits], y: Y, target: Target, row_weights: RowWeights = None) -> Kept:
    """Choose what is kept, by the logits (N, C) of each candidate on rows that it was not fitted on.

    The rows have the labels `y` and the `row_weights` (N,). Where the target calibrates labels, the candidates are calibrated
    first. An encoder that is the only candidate has a fitted temperature; otherwise the candidates have fitted weights
    (`fit_ensemble`).
    """
    found = {name: target.fit_calibration(logits, y, row_weights) for name, logits in held_out.items()}
    before = replace(Kept.as_is(target), calibrations={name: own for name, own in found.items() if own is not None})
    calibrated = {name: before.calibrated(name, logits) for name, logits in held_out.items()}
    rows = len(y)
    if held_out.keys() == {"encoder"}:
        temperature = 1 / fit_calibration(calibrated["encoder"], y, target, 1.0, row_weights)
        return replace(before, temperature=temperature, rows=rows)
    if held_out.keys() == {"linear"}:
        weight = fit_calibration(calibrated["linear"], y, target, target.prior_weights[1], row_weights)
        kept = _single(target, "linear", {"linear": weight}, rows)
    else:
        weights, alone = fit_ensemble(calibrated["encoder"], calibrated["linear"], y, target, row_weights)
        both = Kept(target, "ensemble", weights, alone, rows=rows)
        kept = both if len(weights) > 1 else _single(target, next(iter(weights)), alone, rows)
    return replace(kept, calibrations=before.calibrations)
