"""Paired tests between groups of classifiers on the same rows: Tango's, a bootstrap, and Holm's correction.

N rows, R runs, B resamples, C classes. A test and its interval agree: the p-value is below LEVEL if and only if the interval
excludes 0. numpy and scipy.special are imported when a test is computed, not with this module; scipy.stats takes a second.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

from recurcli.metrics import METRICS, ClassCounts, CountMetric, accuracy

if TYPE_CHECKING:
    import numpy as np

RESAMPLES = 10_000
RESAMPLES_OF_INTERVALS = 2_000
LEVEL, POWER = 0.05, 0.8
"""The significance level of the tests and intervals, and the power behind `Difference.detectable`."""
LIMITS = LEVEL / 2, 1 - LEVEL / 2
"""The quantiles that are the limits of a bootstrap interval."""
NOISIER = 0.01
"""The level at which the seeds of one group differ too much to be pooled with those of another. Ours: pooling exists because
the variance of few seeds is small by luck, and at 0.01 luck hardly decides it."""
ROUNDING = 1e-12
"""Standard errors below it are those of equal scores, which differ by a rounding."""
SMALLEST_P = 1e-30
"""The smallest p-value of a bootstrap test; a smaller one is given as this."""
CELLS_AT_ONCE = 4_000_000
"""Numbers in memory at a time while rows are resampled."""
FEWEST_ROWS_OF_CLASS = 10
"""Rows of each class that a resampled interval needs. Ours: resamples of three rows that are all right are all right too, so
their interval of the recall would be 1 to 1; by `exact_interval` it is 0.29 to 1."""


Errors = Sequence[tuple[float, int]]
"""The parts of the variance of a difference, each with its degrees of freedom."""


class Difference(NamedTuple):
    """The result of a paired test of the difference between two groups."""

    p_value: float
    """Two-sided."""
    interval: tuple[float, float] | None
    """The 95 % interval of the difference; None: the seeds are too few to tell."""
    detectable: float | None
    """The smallest true difference that a test at LEVEL finds with probability POWER. None if it is not known."""
    errors: Errors = ()
    """Empty where they are not known, and for Tango's test, which has none."""


@dataclass(frozen=True)
class Runs:
    """The runs of a group, which differ in their seed alone."""

    scores: "np.ndarray"
    """(R,) scores."""
    resampled: "np.ndarray"
    """(R, B) scores on resampled rows (`resampled_scores`), the same rows for all groups."""
    seeded: bool = True
    """Whether the score depends on the seed. It does not for a constant, or for a linear model."""

    @cached_property
    def seed_errors(self) -> "_SeedErrors | None":
        """The variance of one score over seeds. None for a single run. It is not smaller than the variance due to the rows."""
        if len(self.scores) == 1:
            return None
        between = float(self.scores.var(ddof=1))
        of_rows = max(0.0, float(self.resampled.var(axis=0, ddof=1).mean()) - between)
        return _SeedErrors(max(between, of_rows), of_rows, len(self.scores) - 1)


class _SeedErrors(NamedTuple):
    """The variance that seeds add to a score, or to the mean of several scores."""

    variance: float
    """The variance of the scores over seeds, on the same rows."""
    of_rows: float
    """The part of the variance that is due to the rows. Resampling of the rows adds it too."""
    freedom: int

    def of_mean(self, runs: int) -> "_SeedErrors":
        return _SeedErrors(self.variance / runs, self.of_rows / runs, self.freedom)

    def with_others(self, others: Sequence[Runs]) -> "_SeedErrors":
        """Return the errors with the variance pooled with that of other groups, unless it is larger by an F test at LEVEL.

        A group with a larger variance than these errors, by an F test at NOISIER, is left out.
        """
        from scipy.special import fdtrc

        known = [errors for each in others if (errors := each.seed_errors) is not None]
        if self.variance > ROUNDING**2:  # without one it is not known how far the others are
            ratios = [(each, each.variance / self.variance) for each in known]
            known = [each for each, ratio in ratios if float(fdtrc(each.freedom, self.freedom, ratio)) >= NOISIER]
        freedom = sum(each.freedom for each in known)
        total = sum(each.freedom * each.variance for each in known)
        if not total or float(fdtrc(self.freedom, freedom, self.variance * freedom / total)) < LEVEL:
            return self
        pooled = (self.freedom * self.variance + total) / (self.freedom + freedom)
        return _SeedErrors(max(self.variance, pooled), self.of_rows, self.freedom + freedom)


def tango(only_first: int, only_second: int, rows: int) -> Difference:
    """Compare the accuracies of two classifiers by the score test of Tango (Statistics in Medicine 17:891-908, 1998).

    `only_first` and `only_second` are the numbers of rows that only the first and only the second classifier predicts
    correctly, b and c of n `rows`. The test of the difference d has the statistic

    z(d) = (b - c - n d) / sqrt(n (2 q + d (1 - d)))

    where q is the share of rows that only the second predicts correctly, as maximum likelihood estimates it for d: the
    larger root of 2 n q^2 - (b + c - (2 n - b + c) d) q - c d (1 - d) = 0. The p-value is that of d = 0, McNemar's without
    a correction. The interval is the d that the test does not reject. `detectable` is None where the rows are too few to
    find any difference.
    """
    difference, critical = (only_first - only_second) / rows, NormalDist().inv_cdf(1 - LEVEL / 2)

    def statistic(d: float) -> float:
        half = (only_first + only_second - (2 * rows - only_first + only_second) * d) / (4 * rows)
        share = half + math.sqrt(max(0.0, half**2 + only_second * d * (1 - d) / (2 * rows)))
        distance, variance = abs(difference - d), (2 * share + d * (1 - d)) / rows
        return 0.0 if not distance else distance / math.sqrt(variance) if variance > 0 else math.inf

    low, high = (_last(lambda d: statistic(d) <= critical, difference, rejected) for rejected in (-1.0, 1.0))
    error = math.sqrt(only_first + only_second - (only_first - only_second) ** 2 / rows) / rows
    detectable = (critical + NormalDist().inv_cdf(POWER)) * error
    p_value = math.erfc(statistic(0.0) / math.sqrt(2))
    return Difference(p_value, (low, high), detectable if 0 < detectable < 1 else None)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p-values adjusted for their number, in the same order (Holm 1979, step-down)."""
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = largest
    return adjusted


def group_p_values(values: "np.ndarray", groups: "np.ndarray") -> list[float]:
    """Return for each group the two-sided p-value that the mean of its rows is that of all others, by a permutation test.

    `values` (N,) are those of the rows, `groups` (N,) their groups, from 0 on, each of which has a row. The rows are dealt out
    anew RESAMPLES times, or less often where they are many. p = (1 + b) / (1 + B), if in b of B deals the group is as far from
    the mean of all rows as it is (Phipson & Smyth, Statistical Applications in Genetics and Molecular Biology 9:39, 2010).
    """
    import numpy as np

    order, sizes = np.argsort(groups, kind="stable"), np.bincount(groups)
    starts, centred = np.cumsum(sizes) - sizes, (values - values.mean())[order]
    generator, deals = np.random.default_rng(0), max(999, min(RESAMPLES, 50 * CELLS_AT_ONCE // len(values)))
    observed, further = np.abs(np.add.reduceat(centred, starts)), np.zeros(len(sizes))
    for _ in range(deals):
        generator.shuffle(centred)
        further += np.abs(np.add.reduceat(centred, starts)) >= observed - ROUNDING * len(values)
    return ((1 + further) / (1 + deals)).tolist()


def share_interval(hits: int, rows: int) -> tuple[float, float]:
    """Return the 95 % interval of the share `hits` / `rows` (Wilson, 1927). The import of scipy.stats would take a second."""
    square = NormalDist().inv_cdf(1 - LEVEL / 2) ** 2
    share, scale = hits / rows, 1 + square / rows
    centre = (share + square / (2 * rows)) / scale
    width = (square * (share * (1 - share) / rows + square / (4 * rows**2))) ** 0.5 / scale
    return max(0.0, centre - width), min(1.0, centre + width)


def exact_interval(hits: int, rows: int) -> list[float]:
    """Return the 95 % interval of the share `hits` / `rows` that holds for any number of rows (Clopper & Pearson, 1934)."""
    from scipy.special import betaincinv

    low = float(betaincinv(hits, rows - hits + 1, LEVEL / 2)) if hits else 0.0
    return [low, float(betaincinv(hits + 1, rows - hits, 1 - LEVEL / 2)) if hits < rows else 1.0]


def resampled_scores(
    metric: CountMetric, labels: "np.ndarray", predictions: "np.ndarray", *, resamples: int = RESAMPLES, seed: int = 0
) -> "np.ndarray":
    """Return the metric of each run on rows drawn with replacement, the same rows for all runs: (R, B).

    `labels` (N,) and `predictions` (R, N) are class indices.
    """
    import numpy as np

    if metric is accuracy:  # right or wrong is all that counts, and leaves fewer different rows
        predictions, labels = (predictions != labels).astype(np.int64), np.zeros_like(labels)
    parts = [[metric(counts) for counts in runs] for runs in _resampled_counts(labels, predictions, resamples, seed)]
    return np.concatenate(parts, axis=1)


def resampled_sums(columns: "np.ndarray", *, resamples: int = RESAMPLES, seed: int = 0) -> Iterator["np.ndarray"]:
    """Yield the sums of the `columns` (R, N, K) of each run over rows drawn with replacement, for some resamples: (R, B, K)."""
    import numpy as np

    generator, rows = np.random.default_rng(seed), columns.shape[1]
    step = max(1, CELLS_AT_ONCE // rows)
    for start in range(0, resamples, step):
        size = min(step, resamples - start)
        drawn = [np.bincount(generator.integers(rows, size=rows), minlength=rows) for _ in range(size)]
        yield np.array(drawn, float) @ columns


def resampled_perplexities(
    nats: "np.ndarray", tokens: "np.ndarray", *, resamples: int = RESAMPLES, seed: int = 0
) -> "np.ndarray":
    """Return the perplexity of each run on blocks of a text drawn with replacement, the same blocks for all runs: (R, B).

    `nats` (R, K) are the summed losses of the K blocks, `tokens` (K,) their lengths. Whole blocks are drawn, because the losses
    of tokens beside each other are not independent (Künsch, 1989).
    """
    import numpy as np

    generator, blocks = np.random.default_rng(seed), len(tokens)
    step = max(1, CELLS_AT_ONCE // blocks)
    parts = []
    for start in range(0, resamples, step):
        drawn = generator.multinomial(blocks, np.full(blocks, 1 / blocks), size=min(step, resamples - start))
        parts.append(np.exp(nats @ drawn.T / (drawn @ tokens)))
    return np.concatenate(parts, axis=1)


def intervals(labels: "np.ndarray", predictions: "np.ndarray", names: Sequence[str]) -> dict[str, list[float] | None]:
    """Return the 95 % interval [low, high] of each of METRICS, by name.

    `labels` and `predictions` (N,) are indices of the classes `names`; an unknown label is -1. The interval of the accuracy is
    `share_interval`. The limits of the others are percentiles over RESAMPLES_OF_INTERVALS resamples of N rows. They hold for
    this model and say nothing of other seeds. Where a class has a row and fewer than FEWEST_ROWS_OF_CLASS, they are None, and
    the recall of each such class has its `exact_interval`.
    """
    import numpy as np

    of_accuracy = {"accuracy": [*share_interval(int((labels == predictions).sum()), len(labels))]}
    support = np.bincount(labels[labels >= 0], minlength=len(names))
    if rare := np.flatnonzero((support > 0) & (support < FEWEST_ROWS_OF_CLASS)).tolist():
        hits = {each: int((predictions[labels == each] == each).sum()) for each in rare}
        recalls = {f"recall:{names[each]}": exact_interval(hits[each], int(support[each])) for each in rare}
        return {**dict.fromkeys(METRICS), **of_accuracy, **recalls}
    drawn: dict[str, list[np.ndarray]] = {name: [] for name in METRICS}
    for [counts] in _resampled_counts(labels, predictions[None], RESAMPLES_OF_INTERVALS, 0, by_kind=True):
        for name, metric in METRICS.items():
            drawn[name].append(metric.of_counts(counts))
    found = {name: np.quantile(np.concatenate(scores), LIMITS).tolist() for name, scores in drawn.items()}
    return {**found, **of_accuracy}


def _resampled_counts(
    labels: "np.ndarray", predictions: "np.ndarray", resamples: int, seed: int, *, by_kind: bool = False
) -> Iterator[list[ClassCounts]]:
    """Yield the counts of each run (R) on some of the resamples, for the arguments of `resampled_scores`.

    `by_kind` draws the number of rows of each kind (label and predictions) in place of the rows. The distribution is the
    same, and many rows of few kinds take less time. Two calls with one seed then draw different rows.
    """
    import numpy as np

    rows, kinds, counts = np.unique(np.vstack([labels, predictions]), axis=1, return_inverse=True, return_counts=True)
    kinds = kinds.ravel()  # (N,), the place of each row among K kinds of rows
    label, *predicted = rows  # (K,) each
    known = label >= 0
    classes = int(rows.max()) + 1
    generator = np.random.default_rng(seed)
    step = max(1, CELLS_AT_ONCE // max(len(label), classes))
    for start in range(0, resamples, step):
        size = min(step, resamples - start)
        if by_kind:
            drawn = generator.multinomial(len(kinds), counts / len(kinds), size=size).astype(float)
        else:
            drawn = np.empty((size, len(label)))
            for resample in drawn:
                resample[:] = np.bincount(kinds[generator.integers(len(kinds), size=len(kinds))], minlength=len(label))
        support, unknown = _sums_by_class(drawn[:, known], label[known], classes), drawn[:, ~known].sum(axis=1)
        yield [
            ClassCounts(
                _sums_by_class(drawn[:, label == column], label[label == column], classes),
                _sums_by_class(drawn, column, classes),
                support,
                unknown,
            )
            for column in predicted
        ]


def _sums_by_class(drawn: "np.ndarray", of: "np.ndarray", classes: int) -> "np.ndarray":
    """Return the sums of the columns of `drawn` (B, K) by their class `of` (K,): (B, C)."""
    import numpy as np

    sums = np.zeros((len(drawn), classes))
    if len(of):
        order = np.argsort(of, kind="stable")
        present, starts = np.unique(of[order], return_index=True)
        sums[:, present] = np.add.reduceat(drawn[:, order], starts, axis=1)
    return sums


def bootstrap_difference(
    first: Runs,
    second: Runs,
    rows: int,
    *,
    half_range: float = 1.0,
    others: Sequence[Runs] = (),
    pair_seeds: bool = False,
) -> Difference:
    """Compare the mean scores of two groups on the same `rows` (N), over rows and seeds.

    `half_range` is the largest difference that two scores can have; `others` are further groups of the comparison. The
    variance of the difference has these parts:

    V_0  what the drawn rows add, from a paired bootstrap over rows (Koehn, EMNLP 2004), less what stands in the others
    V_g  s_g^2 / R_g for each group, of the sample variance s_g^2 of its scores over seeds

    The critical value is Cochran and Cox's (1950): the mean of Student's t for N - 1 and the freedom of each s_g^2, weighted by
    the parts. Welch's degrees of freedom follow the luck of two or three seeds.

    Where both groups have as many seeds, s_g^2 is the larger of its own and that pooled with the other group's, and the freedom
    is doubled. The sum of the parts would be right if they were pooled alone, but the freedom is too large where the variances
    differ (Box, Annals of Mathematical Statistics 25:290-302, 1954); the larger of both makes up for it. Without a difference
    p < 0.05 then in at most 6.5 % of simulated pairs if one standard deviation is at most four times the other, and for two
    seeds in up to 12 % beyond, or beside ten groups whose seeds differ far less. Nothing is pooled with the other group where
    one has fewer seeds: if these differed more, a small variance by luck would show a difference that there is not. With
    `others`, s_g^2 is pooled with theirs too, as in an analysis of variance, because no two or three seeds can tell a
    difference among hundreds of pairs. A group whose seeds differ more than those of the others keeps its own, and is not
    pooled with groups whose seeds differ far less; nor is one without any variance with the other group.

    A group of one run has no s_g^2. It takes that of the other group, if its score depends on a seed. For one run each
    nothing is known of the seeds, and the result holds for these two runs.

    With `pair_seeds` the runs of both groups have the same seeds, in the same order. The variance over seeds is then that of
    the differences of two runs of one seed, which is smaller where their scores go together; nothing is pooled.

    The interval is symmetric for atanh(difference / `half_range`), so it lies within the range. It is None where no difference
    of the range is detectable. `detectable` is the minimum detectable effect before any correction (Card et al., With Little
    Power Comes Great Responsibility, EMNLP 2020).
    """
    difference = float(first.scores.mean() - second.scores.mean())
    by_rows = float((first.resampled.mean(axis=0) - second.resampled.mean(axis=0)).var())
    if pair_seeds:
        pairs = Runs(first.scores - second.scores, first.resampled - second.resampled)
        seeds = [] if pairs.seed_errors is None else [pairs.seed_errors.of_mean(len(pairs.scores))]
        return _test(difference, by_rows, seeds, rows, half_range)
    alike = len(first.scores) == len(second.scores)
    seeds = [
        errors.with_others([other] if alike and errors.variance > ROUNDING**2 else [])
        .with_others(others)
        .of_mean(len(group.scores))
        for group, other in ((first, second), (second, first))
        if (errors := group.seed_errors or (other.seed_errors if group.seeded else None)) is not None
    ]
    return _test(difference, by_rows, seeds, rows, half_range)


def score_interval(
    group: Runs, rows: int, bounds: tuple[float, float], others: Sequence[Runs] = ()
) -> tuple[float, float] | None:
    """Return the 95 % interval of the mean score of a group over rows and seeds; None: the seeds are too few to tell.

    `bounds` are the smallest and the largest score; `others` are as in `bootstrap_difference`. The interval of one run holds
    for that run.
    """
    middle, half_range = sum(bounds) / 2, (bounds[1] - bounds[0]) / 2
    errors = group.seed_errors
    seeds = [] if errors is None else [errors.with_others(others).of_mean(len(group.scores))]
    by_rows = float(group.resampled.mean(axis=0).var())
    interval = _test(float(group.scores.mean()) - middle, by_rows, seeds, rows, half_range).interval
    return None if interval is None else (middle + interval[0], middle + interval[1])


def _test(difference: float, by_rows: float, seeds: Sequence[_SeedErrors], rows: int, half_range: float) -> Difference:
    """Test whether `difference` is 0; `by_rows` is its variance over resampled rows."""
    if rows < 2:
        return Difference(1.0, None, None)
    # Rows that all differ alike have no variance; they count as if one of them differed the other way.
    variance = max(by_rows * rows / (rows - 1), 4 * difference**2 * (rows - 1) / rows**3)
    errors = [(max(0.0, variance - sum(each.of_rows for each in seeds)), rows - 1)]
    errors += [(each.variance, each.freedom) for each in seeds]
    error = math.sqrt(sum(part for part, _ in errors))
    if error < ROUNDING:
        return Difference(1.0, (0.0, 0.0), None)
    critical = _critical_value(errors)
    share = max(-1 + 1 / rows, min(1 - 1 / rows, difference / half_range))
    centre, scale = math.atanh(share), error / half_range / (1 - share**2)
    p_value = _level_of(critical, abs(centre) / scale)
    detectable = (critical(LEVEL) + critical(2 * (1 - POWER))) * error
    if detectable >= half_range:
        return Difference(p_value, None, None, errors)
    low, high = (half_range * math.tanh(centre + sign * critical(LEVEL) * scale) for sign in (-1, 1))
    return Difference(p_value, (min(low, difference), max(high, difference)), detectable, errors)


def p_above(difference: float, errors: Errors, least: float) -> float:
    """Return the one-sided p-value of the hypothesis that the true difference is at most `least`.

    `errors` are those of `Difference`. With `least` = -margin it is a test of non-inferiority. The larger p-value of the
    tests on both sides is that of equivalence within ±margin (two one-sided tests; Schuirmann, 1987).
    """
    distance = (difference - least) / math.sqrt(sum(variance for variance, _ in errors))
    p_value = _level_of(_critical_value(errors), abs(distance)) / 2
    return p_value if distance > 0 else 1 - p_value


def power_of(true: float, errors: Errors) -> float:
    """Return the probability that a difference of `true` is found at LEVEL, two-sided, before any correction."""
    limit = _critical_value(errors)(LEVEL) * math.sqrt(sum(variance for variance, _ in errors))
    return p_above(limit, errors, abs(true))


def _critical_value(errors: Errors) -> Callable[[float], float]:
    """Return Cochran and Cox's two-sided critical value as a function of the level, for variances and their freedoms."""
    from scipy.special import stdtrit

    total = sum(variance for variance, _ in errors)

    def critical(level: float) -> float:
        return -sum(variance * float(stdtrit(freedom, level / 2)) for variance, freedom in errors if variance) / total

    return critical


def _level_of(critical: Callable[[float], float], statistic: float) -> float:
    """Return the level at which `statistic` is critical, to 12 digits: the p-value."""
    if statistic <= 0:
        return 1.0
    if critical(SMALLEST_P) <= statistic:
        return SMALLEST_P
    return math.exp(_last(lambda power: critical(math.exp(power)) <= statistic, 0.0, math.log(SMALLEST_P)))


def _last(holds: Callable[[float], bool], inside: float, outside: float) -> float:
    """Return the last number from `inside` towards `outside` of which `holds` is true, by bisection."""
    for _ in range(60):
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if holds(middle) else (inside, middle)
    return inside
