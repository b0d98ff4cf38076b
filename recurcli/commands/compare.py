"""`recur compare`: scores of finished runs by preset over seeds, and paired tests between the presets."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from recurcli.commands.comparison.collect import ComparedRun, check_comparable, collect
from recurcli.commands.comparison.groups import (
    Baseline,
    Group,
    baselines,
    check_over,
    check_pairs,
    group_runs,
    lines_over,
)
from recurcli.commands.comparison.verdict import verdict_on
from recurcli.errors import UsageError, escaped, pluralize
from recurcli.log import Log
from recurcli.metrics import (
    LABEL_METRICS,
    NUMBER_METRIC_NAMES,
    PERPLEXITY,
    format_score,
    is_of_labels,
    is_of_numbers,
    metric_named,
)
from recurcli.requests.compare import CompareRequest
from recurcli.runs.predictions import Part
from recurcli.runs.run_directory import RunDirectory, first_difference
from recurcli.significance import (
    Runs,
    bootstrap_difference,
    holm,
    resampled_perplexities,
    score_interval,
    tango,
)

if TYPE_CHECKING:
    import numpy as np


def compare(request: CompareRequest, log: Log) -> dict[str, Any]:
    """Compare the runs of the request. Each of its paths is a run directory or a folder of run directories.

    Classifiers are compared on their dev or test rows, causal language models by the perplexity of their dev text. A run
    without predictions of test rows is left out of a comparison on these. The metric is by default the `finetuning.metric`
    of the runs. Where all runs kept the same linear model, their encoders are compared.
    Raises UsageError if there is no run, if two runs have other dev rows or labels, or if the key of `--over` is one number
    in all; ModelError for a damaged run that is named itself.
    """
    metric = request.metric
    found = collect(request.runs, request.part, request.split)
    if request.part == "model" and _kept_one_linear_model(found.runs):
        result = compare(replace(request, part="encoder"), log)
        score = format_score(result["metric"], found.runs[0].score(result["metric"]))
        runs = "Both" if len(found.runs) == 2 else f"All {len(found.runs)}"
        said = [f"{runs} runs kept the same linear model ({score}): nothing to test.", *result["verdict"]]
        return {**result, "same_linear_model": True, "verdict": said}
    for run in found.runs:
        RunDirectory(run.path).note_if_unfinished(log)
    for entry in found.left_out:
        log.warn(f"{entry['path']}: left out: it {entry['reason']}")
    if not found.runs and not found.unfinished:
        what = "no classifier and no causal language model to compare"
        raise UsageError(f"{escaped(request.runs[0])}: {what}; name run directories, or a folder of them")
    if metric is not None and found.runs and found.runs[0].text is not None:
        raise UsageError(f"--metric {metric} is one of classifiers; language models are compared by their perplexity")
    check_comparable(found.runs, metric)
    if request.over is not None:
        check_over(found.runs, request.over)
    name = metric or (found.runs[0].result["metric"] if found.runs else "accuracy")
    if name != PERPLEXITY and not (is_of_labels(name) or is_of_numbers(name)):
        whose = "" if metric else f"{found.runs[0].path}: finetuning.metric {name} is one of probabilities; "
        of_labels = not found.runs or found.runs[0].rows.target.has_labels
        known = ", ".join(LABEL_METRICS if of_labels else NUMBER_METRIC_NAMES)
        raise UsageError(f"{whose}--metric must be one of {known}, not '{escaped(name)}'")
    if found.runs and name != PERPLEXITY:
        found.runs[0].rows.target.check_metric("--metric", name)
    groups, differences, other_differences = group_runs(found.runs, name)
    if request.pair_seeds:
        check_pairs(groups, log)
    _notes(found.runs, request.part, log)
    fixed = baselines(groups, name)
    resampled = _resample(groups, fixed, name)
    tests = _tests(groups, fixed, resampled, name, pair_seeds=request.pair_seeds)
    smallest = [test["smallest_difference"] for test in tests if test["smallest_difference"] is not None]
    rows = {group.name: group.to_json(name) for group in groups}
    rows |= {baseline.name: {"name": baseline.name, "mean": baseline.score} for baseline in fixed}
    for member, row in rows.items():
        row["interval"] = _interval(member, resampled, name)
    first = found.runs[0] if found.runs else None
    result = {
        "split": request.split,
        "task": first and first.result["task"],
        "metric": name,
        "part": request.part,
        "rows": first.units if first else 0,
        "dev_sha256": first and first.result["data"]["dev"]["sha256"],
        "differences": differences,
        "other_differences": other_differences,
        "groups": [rows[group.name] for group in groups],
        "baselines": [rows[baseline.name] for baseline in fixed],
        "over": request.over and {"key": request.over, "lines": lines_over(groups, request.over, rows)},
        "tests": tests,
        "smallest_difference": median(smallest) if smallest else None,
        "unfinished": found.unfinished,
        "left_out": found.left_out,
        "same_linear_model": False,
    }
    return {**result, "verdict": verdict_on(result)}


def _kept_one_linear_model(runs: Sequence[ComparedRun]) -> bool:
    """Return whether several runs, some of them with an encoder, all kept the same linear model."""
    scored = {(*run.rows.predictions, f"{run.result[run.split]['loss']:.6f}") for run in runs}
    kept = {run.result.get("kept", {}).get("name") for run in runs}
    return (
        len(runs) > 1 and len(scored) == 1 and kept == {"linear model"} and any("parts" in run.stored for run in runs)
    )


class _Resampled(NamedTuple):
    """A group or a baseline on resampled rows; R runs, N rows."""

    runs: Runs
    predictions: "np.ndarray"
    """(R, N, …) the predictions; the losses of language models on the N blocks of a text."""
    is_right: "np.ndarray | None" = None
    """(N,) whether each row is predicted correctly. None where several runs, or a metric other than accuracy, are compared."""
    interval: tuple[float, float] | None = None
    """The 95 % interval of the headline of one run, as `recur eval` has it. None for several runs, and for other metrics."""

    def predicts_as(self, other: "_Resampled") -> bool:
        """Return whether the runs of both predict the same: all of them, or each as one of the other's."""
        own, others = (sorted(run.tobytes() for run in each.predictions) for each in (self, other))
        return own == others or len({*own, *others}) == 1


def _resample(groups: Sequence[Group], fixed: Sequence[Baseline], name: str) -> dict[str, _Resampled]:
    """Return what the tests need of the groups and baselines by name; those are missing whose predictions are not known."""
    import numpy as np

    if not groups:
        return {}
    first = groups[0].runs[0]
    if first.text is not None:
        members = {}
        for group in groups:
            nats = np.array([run.text.nats for run in group.runs if run.text is not None])
            drawn = resampled_perplexities(nats, np.array(first.text.tokens))
            members[group.name] = _Resampled(Runs(np.array(group.scores(name)), drawn), nats)
        return members
    known = [(group.name, group.scores(name), [run.rows.predictions for run in group.runs], True) for group in groups]
    known += [(one.name, [one.score], [list(one.predictions)], False) for one in fixed if one.predictions is not None]
    target = first.rows.target
    labels = target.encode(first.rows.labels)
    predictions = np.array([target.encode(run) for _, _, runs, _ in known for run in runs])
    ends = np.cumsum([len(runs) for _, _, runs, _ in known])[:-1]
    resamples = np.split(target.resampled(name, labels, predictions), ends)
    members = {}
    for (member, scores, _, seeded), own, drawn in zip(known, np.split(predictions, ends), resamples, strict=True):
        is_single = len(own) == 1
        is_right = target.hits(labels, own[0]) if is_single and name == "accuracy" else None
        interval = target.interval(labels, own[0]) if is_single and name == target.headline else None
        members[member] = _Resampled(Runs(np.array(scores), drawn, seeded), own, is_right, interval)
    return members


def _interval(member: str, resampled: Mapping[str, _Resampled], name: str) -> list[float] | None:
    """Return the 95 % interval of a mean score."""
    if member not in resampled:
        return None
    own = resampled[member]
    rows = own.predictions.shape[1]
    if own.interval is not None:
        return list(own.interval)
    others = [each.runs for other, each in resampled.items() if other != member]
    found = score_interval(own.runs, rows, metric_named(name).bounds, others)
    return found and list(found)


def _tests(
    groups: Sequence[Group],
    fixed: Sequence[Baseline],
    resampled: Mapping[str, _Resampled],
    name: str,
    *,
    pair_seeds: bool = False,
) -> list[dict[str, Any]]:
    """Test each pair of groups, and each group against the linear model of its training rows.

    The accuracies of two single runs get Tango's score test, all others a bootstrap. Where the predictions are identical there
    is no interval: nothing of a difference was seen, and the seeds of other groups say nothing of it.
    """
    pairs = [(a.name, b.name) for a, b in itertools.combinations(groups, 2)]
    pairs += [(group.name, baseline.name) for baseline in fixed for group in baseline.groups]
    low, high = metric_named(name).bounds
    tests: list[dict[str, Any]] = []
    for first, second in pairs:
        if first not in resampled or second not in resampled:
            continue
        a, b = resampled[first], resampled[second]
        rows = a.predictions.shape[1]
        kind: dict[str, Any] = {"test": "bootstrap"}
        if a.is_right is not None and b.is_right is not None:
            only_a, only_b = int((a.is_right & ~b.is_right).sum()), int((b.is_right & ~a.is_right).sum())
            kind = {"test": "tango", "only_a_right": only_a, "only_b_right": only_b}
            found = tango(only_a, only_b, rows)
        else:
            others = [each.runs for other, each in resampled.items() if other not in (first, second)]
            paired = pair_seeds and a.runs.seeded and b.runs.seeded
            found = bootstrap_difference(a.runs, b.runs, rows, half_range=high - low, others=others, pair_seeds=paired)
            kind["paired_by_seed"] = paired
        identical = a.predicts_as(b)
        tests.append(
            {
                "a": first,
                "b": second,
                "difference": float(a.runs.scores.mean() - b.runs.scores.mean()),
                "identical_predictions": identical,
                "interval": None if identical or found.interval is None else list(found.interval),
                "p_value": found.p_value,
                "smallest_difference": found.detectable,
                "errors": found.errors,
                **kind,
            }
        )
    for test, p_holm in zip(tests, holm([test["p_value"] for test in tests]), strict=True):
        test["p_holm"] = p_holm
    return tests


def _notes(runs: Sequence[ComparedRun], part: Part, log: Log) -> None:
    """Log notes on models that do not use their encoder, and on times of several machines."""
    kept = [run.result["kept"]["name"] for run in runs if "parts" in run.result]
    unused = kept.count("linear model")
    if part == "model" and unused:
        text = f"{pluralize(unused, 'kept model', 'are', of=len(runs))} the linear model alone, whatever the encoder"
        log.note(f"{text}; --part encoder compares the encoders alone")
    for run in runs[1:]:
        if difference := first_difference(runs[0].result["machine"], run.result["machine"]):
            log.warn(f"times and tokens/s are not of equal machines: {runs[0].path} and {run.path}: {difference}")
            break
