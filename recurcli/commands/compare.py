"""`recur compare`: scores of finished fine-tuning runs by preset over seeds, and paired tests between the presets."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from recurcli.commands.comparison.collect import Collected, ComparedRun, collect, require_comparable
from recurcli.commands.comparison.groups import Group, group_runs
from recurcli.errors import UsageError, counted, did_you_mean, escaped
from recurcli.evaluation.counts import OfCounts
from recurcli.evaluation.metrics import METRICS
from recurcli.evaluation.significance import (
    bootstrap_difference,
    holm,
    mcnemar,
    resampled_scores,
)
from recurcli.events import Finished, Note
from recurcli.facts import find_difference
from recurcli.runs.dev_predictions import Part

if TYPE_CHECKING:
    import numpy as np


def compare(paths: Sequence[Path], *, part: Part = "model", metric: str | None = None) -> Iterator[Note | Finished]:
    """Compare the runs at `paths` (run directories or folders of them); yields notes and the result.

    `part`: whose dev predictions are compared, those of the model or of its encoder alone. `metric`: a name of METRICS;
    None: the `finetuning.metric` of the runs. Raises UsageError if there is no run, or if two runs have other dev rows or
    labels; ModelError for a damaged run.
    """
    if metric is not None and metric not in METRICS:
        raise UsageError(f"--metric: no metric '{escaped(metric)}'" + did_you_mean(metric, METRICS))
    found = collect(paths, part)
    for entry in found.left_out:
        yield Note(f"{entry['path']}: left out: it {entry['reason']}")
    if not found.runs and not found.unfinished:
        raise UsageError(
            f"{escaped(paths[0])}: no run of `recur finetune` to compare; name run directories, or a folder of them"
        )
    require_comparable(found.runs, metric)
    name = metric or (found.runs[0].result["metric"] if found.runs else "accuracy")
    if name not in METRICS:
        raise UsageError(
            f"{found.runs[0].path}: its metric '{escaped(name)}' is unknown here; choose one with --metric"
        )
    for run in found.runs:
        if name not in run.scores:
            raise UsageError(f"{run.path}: its result has no {name}; choose another metric with --metric")
    groups, apart, others = group_runs(found.runs, name)
    yield from _notes(found.runs, part)
    if METRICS[name].of_counts is None and len(groups) > 1:
        yield Note(f"no tests: the metric {name} has no form for resamples (Metric.of_counts)", "warning")
    yield Finished(_result(found, groups, (apart, others), name, part))


def _result(
    found: Collected, groups: Sequence[Group], keys: tuple[list[str], list[str]], name: str, part: Part
) -> dict[str, Any]:
    of_counts = METRICS[name].of_counts
    drawn = _resample(groups, of_counts) if groups and of_counts is not None else None
    tests = [] if drawn is None else _tests(groups, drawn, name)
    intervals = [None] * len(groups) if drawn is None else _intervals(groups, drawn, name)
    smallest = [test["smallest_difference"] for test in tests if test["smallest_difference"] is not None]
    first = found.runs[0] if found.runs else None
    return {
        "task": None if first is None else first.result["task"],
        "metric": name,
        "part": part,
        "rows": 0 if first is None else len(first.dev.ids),
        "dev_sha256": None if first is None else first.result["data"]["dev"]["sha256"],
        "differences": keys[0],
        "other_differences": keys[1],
        "groups": [
            {**group.to_json(name), "interval": interval} for group, interval in zip(groups, intervals, strict=True)
        ],
        "tests": tests,
        "smallest_difference": median(smallest) if smallest else None,
        "unfinished": found.unfinished,
        "left_out": found.left_out,
    }


class _Resampled(NamedTuple):
    """The runs of all groups, one after the other, on resampled dev rows; R runs, N rows, B resamples."""

    labels: "np.ndarray"
    """(N,) class indices."""
    predictions: "np.ndarray"
    """(R, N) class indices."""
    scores: "np.ndarray"
    """(R, B) scores of the runs on the resamples."""
    places: list[slice]
    """The slice of the runs of each group."""


def _resample(groups: Sequence[Group], of_counts: OfCounts) -> _Resampled:
    import numpy as np

    runs = [run for group in groups for run in group.runs]
    index = {name: number for number, name in enumerate(runs[0].dev.names)}
    labels = np.array([index[label] for label in runs[0].dev.labels])
    predictions = np.array([[index[prediction] for prediction in run.dev.predictions] for run in runs])
    ends = list(itertools.accumulate(len(group.runs) for group in groups))
    places = [slice(end - len(group.runs), end) for end, group in zip(ends, groups, strict=True)]
    return _Resampled(labels, predictions, resampled_scores(of_counts, labels, predictions), places)


def _intervals(groups: Sequence[Group], drawn: _Resampled, name: str) -> list[list[float]]:
    """Return the 95 % interval [low, high] of each group's mean score.

    It is the interval of the difference between the group and a constant score of 0.
    """
    import numpy as np

    zero = np.zeros(1), np.zeros((1, drawn.scores.shape[1]))
    found = [
        bootstrap_difference(np.array(group.scores(name)), zero[0], drawn.scores[place], zero[1])
        for group, place in zip(groups, drawn.places, strict=True)
    ]
    return [[difference.low, difference.high] for difference in found]


def _tests(groups: Sequence[Group], drawn: _Resampled, name: str) -> list[dict[str, Any]]:
    """Test each pair of groups. The accuracies of two single runs get McNemar's test, all others a bootstrap."""
    import numpy as np

    tests: list[dict[str, Any]] = []
    for (a, own), (b, other) in itertools.combinations(zip(groups, drawn.places, strict=True), 2):
        scores = np.array(a.scores(name)), np.array(b.scores(name))
        found = bootstrap_difference(*scores, drawn.scores[own], drawn.scores[other])
        test: dict[str, Any] = {
            "a": a.name,
            "b": b.name,
            "difference": float(scores[0].mean() - scores[1].mean()),
            "interval": [found.low, found.high],
            "smallest_difference": found.detectable or None,  # None: the same predictions
            "test": "bootstrap",
            "p_value": found.p_value,
        }
        if len(a.runs) == len(b.runs) == 1 and name == "accuracy":
            right_a, right_b = (drawn.predictions[place][0] == drawn.labels for place in (own, other))
            only = int((right_a & ~right_b).sum()), int((right_b & ~right_a).sum())
            test |= {"test": "mcnemar", "p_value": mcnemar(*only), "only_a_right": only[0], "only_b_right": only[1]}
        tests.append(test)
    for test, p_holm in zip(tests, holm([test["p_value"] for test in tests]), strict=True):
        test["p_holm"] = p_holm
    return tests


def _notes(runs: Sequence[ComparedRun], part: Part) -> Iterator[Note]:
    """Yield notes on models that do not use their encoder, and on times of several machines."""
    priors = [run.result["prior"] for run in runs if run.result.get("prior")]
    unused = sum(not prior["encoder_weight"] for prior in priors)
    if part == "model" and unused:
        whose = "its" if unused == 1 else "their"
        text = f"{counted(unused, 'model', 'are', of=len(runs))} {whose} linear part alone, whatever the encoder"
        yield Note(f"{text}; --part encoder compares the encoders alone")
    machines: list[Mapping[str, Any]] = [run.result["machine"] for run in runs]
    for run, machine in zip(runs[1:], machines[1:], strict=True):
        if difference := find_difference(machines[0], machine):
            key, before, now = difference
            text = f"{key} was {before} in {runs[0].path} and {now} in {run.path}"
            yield Note(f"times and tokens/s are not of equal machines: {text}", "warning")
            break
