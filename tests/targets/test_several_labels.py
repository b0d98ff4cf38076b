"""Rows with several labels: read and decided, learned, divided, and scored as scikit-learn scores them."""

import json
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from sklearn import metrics as sklearn_metrics
from sklearn.svm import LinearSVC

from recurcli.config import DataConfig, FinetuningConfig
from recurcli.data.splits import draw_dev_rows, draw_share, no_dev_rows_in_words, split_in_memory
from recurcli.errors import DataError, UsageError
from recurcli.evaluation.decision import Kept, choose
from recurcli.metrics import average_precision, is_of_labels, metric_named, ranking_average_precision
from recurcli.models.choice import Choice
from recurcli.targets import SeveralLabels, target_from_json
from recurcli.targets.calibration import DEVIATIONS, fit_calibration
from recurcli.targets.stratification import stratified_parts

ABC = SeveralLabels(("a", "b", "c"), ",")


def drawn(rows: int, labels: int, seed: int = 0, ties: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Return y (N, C + 1) and probabilities (N, C), some of them equal, that say something of it."""
    draw = np.random.default_rng(seed)
    has = draw.random((rows, labels)) < np.linspace(0.02, 0.5, labels)
    probabilities = 1 / (1 + np.exp(-(draw.normal(size=has.shape) + 2 * has - 1)))
    if ties:
        probabilities = probabilities.round(1)
    return np.column_stack([has, np.zeros(rows)]).astype(np.int64), probabilities


def named(labels: int) -> SeveralLabels:
    return SeveralLabels(tuple(f"l{number}" for number in range(labels)), ",")


def test_labels_that_divide_no_rows_are_left_out_with_a_warning() -> None:
    target = SeveralLabels.of([("2", "10", "all"), ("all",), ("10", "all")], DataConfig(), ("2", "10", "all", "none"))
    assert (target.labels, target.left_out, target.unseen, target.separator) == (("2", "10"), ("all",), ("none",), ",")
    all_have, none_has = target.doubts()
    assert all_have == "1 label is left out, since all rows have it: 'all'"
    assert none_has == "1 label is left out, since no row has it: 'none'"
    assert target.unknown_in(("none",)) == "none"
    cells = [("10", "all", "new", "other"), (), ("2",)]
    y = target.encode(cells)
    assert y.tolist() == [[0, 1, 2], [0, 0, 0], [1, 0, 0]]
    assert target.is_known(y).tolist() == [False, True, True]
    assert target.unknown_in(cells[0]) == "new" and target.unknown_in(("all", "2")) is None
    assert target.decode(y) == [("10",), (), ("2",)]
    assert target.decode(np.array([[1, 1, 0]])) == [("10", "2")], "in the order of their names"
    assert target.text_of(("10", "2")) == "10,2" and target.text_of(()) == ""
    assert SeveralLabels.of([("2",), ("10",)], DataConfig()).labels == ("2", "10"), "numbers in their order"


@pytest.mark.parametrize(
    ("cells", "separator", "message"),
    [
        (
            [("a",), ("a",)],
            None,
            r"no label that some rows have and others have not \('a': all rows have it, or none\)",
        ),
        ([(), ()], None, "no row has one"),
        ([("a/b",), ("c",)], "/", "the label 'a/b' holds the separator '/'"),
        ([("a,b",), ("a|b",), ("a;b",)], None, "--label-separator MARK"),
        ([(f"l{n}",) for n in range(10_001)], None, "10,001 different ones; at most 10,000"),
    ],
)
def test_labels_that_cannot_be_learned_or_joined_are_refused(cells: Any, separator: str | None, message: str) -> None:
    with pytest.raises(DataError, match=message):
        SeveralLabels.of(cells, DataConfig(label_separator=separator))


def test_the_first_mark_that_no_label_holds_joins_them() -> None:
    assert SeveralLabels.of([("a,b",), ("c",)], DataConfig()).separator == "|"
    assert SeveralLabels.of([("a,b",), ("c",)], DataConfig(label_separator="/")).separator == "/"


def test_a_label_alone_is_several_and_a_number_is_none() -> None:
    assert SeveralLabels.cell_of("a") == ("a",) and SeveralLabels.cell_of(("a", "b")) == ("a", "b")
    with pytest.raises(ValueError, match=r"has the number 0\.5, not labels"):
        SeveralLabels.cell_of(0.5)


def test_a_target_is_read_back_from_json() -> None:
    target = SeveralLabels(("a", "b"), "|", True, ("c",))
    assert target_from_json(json.loads(json.dumps(target.to_json())), target.labels) == target
    assert target_from_json(target.weighted(np.array([2.0, 3.0])).to_json(), target.labels) == target


def test_what_several_labels_do_not_have_is_refused() -> None:
    with pytest.raises(UsageError, match="loss hinge is for one label a row"):
        ABC.check_settings(FinetuningConfig(loss="hinge"))
    with pytest.raises(UsageError, match="chosen for one of micro_f1, macro_f1, f1:LABEL"):
        ABC.check_settings(FinetuningConfig(thresholds="exact_match"))
    ABC.check_settings(FinetuningConfig(thresholds="f1:b", label_smoothing=0.1))
    with pytest.raises(UsageError, match=r"labels of this kind have micro_f1, .*, not mcc"):
        ABC.score("mcc", *2 * [np.zeros((1, 4), np.int64)])


@pytest.mark.parametrize("weights", [(), (1.0, 3.0, 0.5)])
def test_losses_have_the_gradient_and_the_curvature_of_finite_differences(weights: tuple[float, ...]) -> None:
    target = replace(ABC, weights=weights)
    draw, (y, _) = np.random.default_rng(0), drawn(20, 3)
    parts, factors, step = draw.normal(size=(2, 20, 3)), draw.random(20), 1e-4
    logits, gradient = parts[0], target.losses_and_gradient(parts[0], y)[1]
    for label in range(3):
        moved = np.eye(3)[label] * step
        up, down = (target.losses_and_gradient(logits + sign * moved, y)[0] for sign in (1, -1))
        assert (up - down) / (2 * step) == pytest.approx(gradient[:, label], abs=1e-6)
    losses = target.losses_and_gradient(logits, y)[0]
    assert losses == pytest.approx(target.losses_of_probabilities(target.probabilities(logits), y))
    of_encoder = target.loss(torch.from_numpy(logits), torch.from_numpy(y), FinetuningConfig())
    assert losses == pytest.approx(of_encoder.numpy())
    if not weights:

        def gradients(of: np.ndarray) -> np.ndarray:
            own = target.losses_and_gradient(np.tensordot(of, parts, 1), y)[1]
            return np.tensordot(parts, factors[:, None] * own, 2)

        at = np.array([0.3, 0.7])
        rows = [(gradients(at + step * each) - gradients(at - step * each)) / (2 * step) for each in np.eye(2)]
        assert np.array(rows) == pytest.approx(target.curvature(np.tensordot(at, parts, 1), parts, factors), abs=1e-5)


def test_the_gradient_of_the_squared_hinge_is_that_of_autograd() -> None:
    target, (y, _) = ABC.weighted(np.array([1.0, 3.0, 0.5])), drawn(30, 3)
    logits = torch.from_numpy(np.random.default_rng(1).normal(size=(30, 3))).requires_grad_()
    has = torch.from_numpy(y[:, :-1])
    factors = torch.where(has > 0, torch.tensor([1.0, 3.0, 0.5]), 1.0)
    (factors * (1 - (2 * has - 1) * logits).clamp(min=0) ** 2).sum().backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    assert target.linear_loss_gradient(logits.detach().numpy(), y) == pytest.approx(logits.grad.numpy())


def test_label_smoothing_and_a_teacher_meet_their_definitions() -> None:
    logits, has = torch.tensor([[0.4, -1.0]]), torch.tensor([[1, 0, 0]])
    target, p = named(2), torch.sigmoid(torch.tensor([0.4, -1.0]))
    expected = -(0.95 * p[0].log() + 0.05 * (1 - p[0]).log()) - (0.05 * p[1].log() + 0.95 * (1 - p[1]).log())
    assert target.loss(logits, has, FinetuningConfig(label_smoothing=0.1)).item() == pytest.approx(expected.item())
    teacher = torch.tensor([[0.9, 0.0], [1.0, 0.5]])
    soft = target.soften(teacher, 2.0)
    assert soft[0, 0].item() == pytest.approx(3 / 4)  # the odds 9 become 3
    assert soft[1].tolist() == [1.0, 0.5] and soft[0, 1] == 0
    student = torch.logit(torch.tensor([[0.75, 0.2], [0.6, 0.5]])) * 2
    expected = 4 * torch.tensor([-np.log(0.8), -np.log(0.6)])
    assert target.teacher_loss(student, soft, 2.0) == pytest.approx(expected, rel=1e-5)
    weighted = target.weighted(np.array([3.0, 1.0]))
    own = 3 * 0.75 * np.log(0.75 / 0.6) + 0.25 * np.log(0.25 / 0.4) - np.log(0.8)
    student = torch.logit(torch.tensor([[0.6, 0.2]])) * 2
    assert weighted.teacher_loss(student, soft[:1], 2.0).item() == pytest.approx(4 * own, rel=1e-5)


def test_weights_are_those_of_the_rows_that_have_a_label() -> None:
    y, _ = drawn(200, 3)
    balanced = ABC.weights_of_labels("balanced", y)
    assert balanced == pytest.approx((200 - y[:, :3].sum(axis=0)) / y[:, :3].sum(axis=0))
    assert ABC.weights_of_labels({"b": 4.0}, y).tolist() == [1, 4, 1]
    with pytest.raises(UsageError, match="unknown label 'd'"):
        ABC.weights_of_labels({"d": 4.0}, y)
    assert (ABC.row_weights(balanced, y) == 1).all()


def test_a_linear_model_is_an_svm_a_label_and_constant_where_rows_do_not_differ() -> None:
    draw = np.random.default_rng(0)
    features, weights = csr_matrix(draw.normal(size=(80, 6)).astype(np.float32)), draw.random(80)
    y = np.column_stack([draw.random(80) < 0.3, np.zeros(80), np.ones(80), np.zeros(80)]).astype(np.int64)
    target = ABC.weighted(np.array([2.0, 1.0, 1.0]))
    found, bias = target.fit_linear(features, y, 0.5, weights)
    own = LinearSVC(C=0.5, tol=0.1, random_state=0)
    own.fit(features.astype(np.float64), y[:, 0], weights * np.where(y[:, 0], 2.0, 1.0))
    assert found[:, 0] == pytest.approx(own.coef_[0], rel=1e-5) and bias[0] == pytest.approx(
        own.intercept_[0], rel=1e-5
    )
    assert not found[:, 1:].any() and bias[1:].tolist() == [-1, 1]
    assert ABC.linear_obstacle(y) == "" and "with and without" in ABC.linear_obstacle(y[:, [1, 2, 3]])
    assert ABC.constant_logits(y).tolist() == [1, -1, 1]


@pytest.mark.parametrize(("rows", "labels"), [(1, 1), (100, 1), (50, 20)])
def test_probabilities_are_bounded_by_what_rows_can_show_and_keep_their_order(rows: int, labels: int) -> None:
    target, logits = named(labels), np.sort(np.random.default_rng(0).normal(size=(99, labels)) * 20, axis=0)
    logits[0], logits[-1] = -900, 900
    plain, bounded = target.probabilities(logits), target.probabilities(logits, rows)
    assert (plain[-1] == 1).all() and (np.diff(bounded, axis=0) >= 0).all()
    assert bounded[0] == pytest.approx(np.full(labels, 1 / (labels * (rows + 2))))
    assert 1 - bounded[-1] == pytest.approx(bounded[0])
    assert ((bounded >= 0.5) == (plain >= 0.5)).all()


def test_labels_are_given_from_their_thresholds_and_one_at_least_if_that_is_asked() -> None:
    probabilities = np.array([[0.5, 0.2, 0.9], [0.4, 0.1, 0.3]])
    assert ABC.decode(ABC.decide(probabilities)) == [("a", "c"), ()]
    assert ABC.decode(ABC.decide(probabilities, [0.6, 0.2, 0.91])) == [("b",), ()]
    at_least_one = replace(ABC, at_least_one=True)
    assert at_least_one.decode(at_least_one.decide(probabilities)) == [("a", "c"), ("a",)]
    assert at_least_one.decode(at_least_one.decide(probabilities, [0.6, 0.2, 0.31])) == [("b", "c"), ("c",)]


@pytest.mark.parametrize("ties", [False, True])
def test_metrics_are_those_of_scikit_learn(ties: bool) -> None:
    target, (y, probabilities) = named(6), drawn(300, 6, ties=ties)
    y[:, 2] = 0  # no row has the third label
    has, predictions = y[:, :-1], target.decide(probabilities)
    gets, report = predictions[:, :-1], target.report(y, predictions, probabilities, loss=0.5)
    for average in ("micro", "macro"):
        expected = sklearn_metrics.f1_score(has, gets, average=average, zero_division=0)
        assert report[f"{average}_f1"] == pytest.approx(expected, abs=1e-15)
    assert report["samples_f1"] == pytest.approx(
        sklearn_metrics.f1_score(has, gets, average="samples", zero_division=1)
    )
    assert report["exact_match"] == sklearn_metrics.accuracy_score(has, gets) == target.hits(y, predictions).mean()
    assert report["hamming_loss"] == pytest.approx(sklearn_metrics.hamming_loss(has, gets))
    assert report["ranking_average_precision"] == pytest.approx(
        sklearn_metrics.label_ranking_average_precision_score(has, probabilities)
    )
    precisions, recalls, _, support = sklearn_metrics.precision_recall_fscore_support(has, gets, zero_division=0)
    for label, (name, own) in enumerate(report["per_label"].items()):
        assert (own["precision"], own["recall"], own["support"]) == (precisions[label], recalls[label], support[label])
        assert target.score(f"f1:{name}", y, predictions) == own["f1"]
        if own["support"]:
            area = sklearn_metrics.average_precision_score(has[:, label], probabilities[:, label])
            assert own["average_precision"] == pytest.approx(area)
    assert report["per_label"]["l2"]["average_precision"] is None
    assert {name: target.score(name, y, predictions) for name in target.scores}.items() <= report.items()
    assert target.report(y, predictions, None)["ranking_average_precision"] is None


def test_a_row_without_labels_counts_and_unknown_labels_are_missed() -> None:
    y = np.array([[0, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 2]])
    predictions = np.array([[0, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]])
    report = ABC.report(y, predictions, np.full((3, 3), 0.1))
    assert report["samples_f1"] == pytest.approx((1 + 1 + 0.5) / 3)
    assert report["micro_f1"] == pytest.approx(2 * 2 / (2 + 4))
    assert report["exact_match"] == pytest.approx(2 / 3) and report["hamming_loss"] == 0
    assert ABC.errors(y, predictions, np.full((3, 3), 0.1)).tolist() == [0, 0, 2]
    assert ranking_average_precision(np.zeros((1, 3), np.int64), np.full((1, 3), 0.1)) == 1
    assert average_precision(np.zeros(2, bool), np.zeros(2)) is None


def test_the_names_of_the_metrics_are_known() -> None:
    assert all(map(is_of_labels, ABC.metrics)) and not is_of_labels("ranking_average_precision")
    assert metric_named("hamming_loss").minimize and metric_named("micro_f1").words == "micro F1"
    assert metric_named("ranking_average_precision").words == "label ranking average precision"


def test_rows_with_more_and_surer_mistakes_come_first() -> None:
    y = np.array([[1, 0, 0, 0]] * 4)
    predictions = np.array([[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 0, 0], [0, 1, 0, 0]])
    probabilities = np.array([[0.9, 0.1, 0.1], [0.9, 0.6, 0.1], [0.9, 0.8, 0.1], [0.4, 0.6, 0.1]])
    assert ABC.errors(y, predictions, probabilities) == pytest.approx([0, 1.6, 1.8, 2.6])


def test_notes_name_labels_without_rows_and_labels_that_no_row_gets() -> None:
    y = np.array([[1, 0, 0, 0], [1, 1, 0, 0]])
    notes = [*ABC.notes(ABC.report(y, np.array([[1, 0, 0, 0]] * 2), None))]
    assert [note.text for note in notes] == [
        "no dev row for 1 of 3 labels ('c'); each counts as 0 in macro F1",
        "no dev row gets 1 of 3 labels ('b') rightly; --set finetuning.thresholds=macro_f1 chooses a threshold for each",
    ]


def test_the_constant_prediction_is_the_most_frequent_set() -> None:
    y = np.array([[1, 1, 0, 0], [1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 0, 1], [0, 0, 0, 1], [0, 0, 0, 1]])
    assert ABC.constant(y).tolist() == [[1, 1, 0, 0]] * 6


def test_strata_are_the_rarest_labels() -> None:
    y = np.array([[1, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0], [1, 0, 1, 0], [0, 0, 1, 0]])
    assert ABC.strata(y).tolist() == [1, 0, 3, 2, 2]


@pytest.mark.parametrize("shares", [(0.9, 0.1), (0.2,) * 5])
def test_each_part_has_its_share_of_each_label_and_of_rows_without(shares: tuple[float, ...]) -> None:
    y, _ = drawn(3000, 6)
    y[y[:, :-1].sum(axis=1) > 2] = 0
    ids = np.random.default_rng(1).integers(2**63, size=3000).astype(np.uint64)
    parts = named(6).divide(y, ids, shares, 3)
    kinds = np.column_stack([y[:, :-1], ~y.any(axis=1)])
    for part, share in enumerate(shares):
        assert np.abs(kinds[parts == part].sum(axis=0) - share * kinds.sum(axis=0)).max() <= 2
        assert (parts == part).mean() == pytest.approx(share, abs=0.005)
    order = np.random.default_rng(2).permutation(3000)
    assert (named(6).divide(y[order], ids[order], shares, 3) == parts[order]).all(), "whatever the order of the rows"
    assert (named(6).divide(y, ids, shares, 4) != parts).any()


def test_rows_of_a_group_are_in_one_part_and_each_label_has_a_row_in_the_first() -> None:
    y, _ = drawn(400, 5)
    y[:, 0] = 0
    y[7, 0] = 1  # a label with one row
    ids = np.random.default_rng(1).integers(100, size=400).astype(np.uint64)
    for seed in range(20):
        parts = stratified_parts(y[:, :-1] > 0, ids, (0.6, 0.4), seed)
        assert all(len({*parts[ids == each]}) == 1 for each in np.unique(ids))
        assert y[parts == 0, :-1].any(axis=0).all()
        assert np.abs(y[parts == 1, 1:-1].sum(axis=0) - 0.4 * y[:, 1:-1].sum(axis=0)).max() <= 8


def test_rows_of_rare_labels_are_shared_by_folds_and_dev_rows() -> None:
    own, ids = np.eye(200, dtype=bool), np.arange(200, dtype=np.uint64)
    assert np.bincount(stratified_parts(own, ids, [0.2] * 5, 0)).tolist() == [40] * 5
    assert np.bincount(stratified_parts(own, ids, (0.9, 0.1), 0)).tolist() == [180, 20]
    frequent = np.arange(200)[:, None] % 4 == 1
    mixed = np.column_stack([own[:, :40], frequent & (np.arange(200)[:, None] >= 40)])
    parts = stratified_parts(mixed, ids, (0.9, 0.1), 0)
    assert not parts[:40].any() and parts.sum() >= 15, "labels of one row stay in training where others are enough"
    draw = np.random.default_rng(0)
    zipf = np.zeros((1000, 400), bool)
    zipf[np.arange(1000), draw.zipf(1.3, 1000) % 400] = True
    assert np.ptp(np.bincount(stratified_parts(zipf, np.arange(1000, dtype=np.uint64), [0.2] * 5, 0))) <= 2


def test_all_labels_have_one_threshold_for_micro_f1_which_is_half_of_what_is_expected_with_it() -> None:
    target, draw = named(5), np.random.default_rng(0)
    probabilities = draw.beta(0.5, 2, size=(4000, 5))
    y = np.concatenate([draw.random((4000, 5)) < probabilities, np.zeros((4000, 1))], axis=1).astype(np.int64)
    found = target.fit_thresholds(probabilities, y, "micro_f1")
    [value] = {*found["thresholds"].values()}
    scores = {
        cut: target.score("micro_f1", y, target.decide(probabilities, [cut] * 5)) for cut in np.arange(0, 1, 0.01)
    }
    assert scores[0.5] == found["most_probable"] < found["cross_validated"]
    assert found["cross_validated"] == pytest.approx(max(scores.values()), abs=0.003)
    assert value == pytest.approx(max(scores.values()) / 2, abs=0.005)
    y[:, -1] = 5  # unknown labels, which are missed
    assert target.fit_thresholds(probabilities, y, "micro_f1")["thresholds"]["l0"] < value - 0.1


@pytest.mark.parametrize("metric", ["macro_f1", "f1:l3"])
def test_thresholds_are_as_good_as_any_on_their_rows(metric: str) -> None:
    target, (y, probabilities) = named(4), drawn(120, 4, seed=1)
    y[:12, 0] = 1
    found = target.fit_thresholds(probabilities, y, metric)
    values = [*found["thresholds"].values()]
    best = target.score(metric, y, target.decide(probabilities, values))
    draw = np.random.default_rng(0)
    assert all(
        target.score(metric, y, target.decide(probabilities, draw.random(4).tolist())) <= best for _ in range(3000)
    )
    for label in range(4):
        for cut in probabilities[:, label]:
            other = [*values[:label], cut, *values[label + 1 :]]
            assert target.score(metric, y, target.decide(probabilities, other)) <= best + 1e-12
    assert found["most_probable"] == target.score(metric, y, target.decide(probabilities)) <= best
    assert found["cross_validated"] <= best and (found["folds"], found["rows"]) == (5, 120)


def test_thresholds_of_labels_that_tell_nothing_stay() -> None:
    target, (y, probabilities) = named(3), drawn(60, 3)
    y[:, 1] = 0
    assert target.fit_thresholds(probabilities, y, "macro_f1")["thresholds"]["l1"] == 0.5
    others = target.fit_thresholds(probabilities, y, "f1:l2")["thresholds"]
    assert (others["l0"], others["l1"]) == (0.5, 0.5)
    sure = np.where(y[:, :-1] > 0, 0.9, 0.1)
    assert [*target.fit_thresholds(sure, y, "macro_f1")["thresholds"].values()] == [0.5] * 3
    with pytest.raises(UsageError, match="unknown label 'l9'"):
        target.fit_thresholds(probabilities, y, "f1:l9")


def test_thresholds_of_rare_labels_stay_and_none_is_worse_than_a_half() -> None:
    target, (y, probabilities) = named(3), drawn(60, 3)
    y[:, 0] = np.arange(60) < 9
    for metric in ("macro_f1", "micro_f1", "f1:l0"):
        assert target.fit_thresholds(probabilities, y, metric)["thresholds"]["l0"] == 0.5
    for seed in range(30):
        at_least_one, (y, probabilities) = replace(named(3), at_least_one=True), drawn(60, 3, seed)
        found = at_least_one.fit_thresholds(probabilities, y, "micro_f1")
        best = at_least_one.decide(probabilities, [*found["thresholds"].values()])
        assert at_least_one.score("micro_f1", y, best) >= found["most_probable"]


def test_intervals_are_those_of_a_plain_loop_over_resamples() -> None:
    target, (y, probabilities) = named(4), drawn(80, 4)
    y[:, 0] = np.arange(80) < 12
    predictions = target.decide(probabilities)
    drawn_rows = np.random.default_rng(0)
    counts = [np.bincount(drawn_rows.integers(80, size=80), minlength=80) for _ in range(2000)]
    found = target.intervals(y, predictions)
    for metric in target.scores:
        plain = [
            target.score(metric, *(np.repeat(each, own, axis=0) for each in (y, predictions))) for own in counts[:200]
        ]
        resampled = target.resampled(metric, y, predictions[None], resamples=200)
        assert resampled[0] == pytest.approx(plain), metric
        limits = found[metric]
        assert limits is not None and limits[0] < target.score(metric, y, predictions) < limits[1]
    assert [*target.interval(y, predictions)] == found["micro_f1"]
    other = target.decide(probabilities, [0.3] * 4)
    paired = target.paired_interval(y, predictions, other)
    assert paired is not None
    low, high = paired
    assert low < target.score("micro_f1", y, predictions) - target.score("micro_f1", y, other) < high
    assert target.paired_interval(y, other, other) == (0, 0)
    of_label = target.resampled("recall:l3", y, np.array([predictions, other]), resamples=7)
    assert of_label.shape == (2, 7) and (of_label[1] >= of_label[0]).all()
    y[3:, 0] = 0
    assert target.intervals(y, predictions)["macro_f1"] is None, "a label of three rows"


def test_calibration_is_over_all_labels_of_all_rows() -> None:
    y = np.array([[1, 0, 0], [1, 0, 0], [0, 0, 0], [0, 0, 0]])
    found = named(2).calibration(np.array([[0.7, 0.1], [0.7, 0.1], [0.7, 0.1], [0.7, 0.1]]), y)
    assert [(each["rows"], each["accuracy"]) for each in found["bins"]] == [(4, 0.0), (4, 0.5)]
    assert found["ece"] == pytest.approx((0.1 + 0.2) / 2)
    assert found["loss"] == pytest.approx(-np.log(0.7 * 0.3) / 2 - np.log(0.9))


def test_calibrations_are_the_least_of_the_penalised_loss_and_rare_labels_share() -> None:
    from scipy.optimize import minimize

    draw = np.random.default_rng(0)
    logits, factors = draw.normal(size=(300, 4)) - 1, draw.random((300, 4))
    rates = 1 / (1 + np.exp(-(np.array([1.0, 2.0, 3.0, 2.0]) * logits + np.array([0, 1, -1, -9]))))
    has = draw.random((300, 4)) < rates
    slopes, offsets = fit_calibration(logits, has, factors)

    def objective(values: np.ndarray, prior: np.ndarray, deviations: np.ndarray, own: Any) -> float:
        margins = np.where(has[:, own], 1, -1) * (values[0] * logits[:, own] + values[1])
        return float(
            (factors[:, own] * np.logaddexp(0, -margins)).sum() + (((values - prior) / deviations) ** 2).sum() / 2
        )

    shared = minimize(objective, [2, 0], args=(np.array([2, 0]), np.ones(2), slice(None)), tol=1e-10).x
    for label in range(4):
        expected = minimize(objective, shared, args=(shared, DEVIATIONS, label), tol=1e-10).x
        assert [slopes[label], offsets[label]] == pytest.approx(expected, abs=1e-3)


def test_what_is_kept_calibrates_each_label_and_is_read_back() -> None:
    draw, target = np.random.default_rng(0), named(5)
    y, _ = drawn(600, 5)
    noise = draw.normal(size=(2, 600, 5))
    linear = 0.3 * (2 * y[:, :-1] - 1) + 0.4 * noise[0] - 0.3
    encoder = 3 * (2 * y[:, :-1] - 1) + 3 * noise[1] + np.arange(5)
    for held_out in ({"linear": linear}, {"encoder": encoder}, {"encoder": encoder, "linear": linear}):
        kept = choose(held_out, y, target)
        logits = kept.logits(held_out)
        plain = Kept.as_is(target).target.losses_and_gradient(next(iter(held_out.values())), y)[0].mean()
        assert target.losses_and_gradient(logits / kept.temperature, y)[0].mean() < plain
        if len(held_out) == 1:
            rates = kept.probabilities(logits).mean(axis=0)
            assert rates == pytest.approx(y[:, :-1].mean(axis=0), abs=0.02)
        stored = json.loads(json.dumps(kept.to_json()))
        again = Kept.from_json(stored, target)
        assert (again.logits(held_out) == logits).all() and again == kept
        with pytest.raises(ValueError, match="a slope and an offset of each of 4 labels"):
            Kept.from_json(stored, named(4))
    assert (kept.only_linear.logits(held_out) == kept.alone["linear"] * kept.calibrated("linear", linear)).all()


def test_the_loss_of_held_out_halves_has_the_weights_of_the_labels() -> None:
    y, _ = drawn(60, 2)
    learner, logits = named(2).weighted(np.array([5.0, 1.0])), np.random.default_rng(1).normal(size=(60, 2))
    rows = SimpleNamespace(y=y, texts=[(f"text {row}", None) for row in range(60)])
    facts = {"choosing_weights": np.ones(60), "metric": "micro_f1", "dev": None}
    data: Any = SimpleNamespace(target=named(2), learner=learner, choosing=rows, **facts)
    linear, preset = SimpleNamespace(held_out=logits, may_be_kept=True), SimpleNamespace(finetuning=FinetuningConfig())
    parts: dict[str, Any] = {"preset": preset, "encoder": None, "linear": linear, "known": None, "halves_seed": 0}
    found = Choice(data=data, **parts)._held_out(None)["log_loss"]
    data.learner = data.target
    assert found > 1.2 * Choice(data=data, **parts)._held_out(None)["log_loss"]


def test_a_share_of_the_rows_keeps_one_of_each_rare_label() -> None:
    cells = [("a",)] * 40 + [("a", "rare")] + [()] * 20
    rows = [(f"text {number}", None, cell) for number, cell in enumerate(cells)]
    target = SeveralLabels.of(cells, DataConfig())
    assert target.strata_names(target.encode(cells))[39:42] == ["a", "rare", ""]
    kept = Counter(draw_share(split_in_memory(rows, target=target), 0.1, 0).cells)
    assert kept == {("a",): 4, ("a", "rare"): 1, (): 2}


def test_without_dev_rows_the_reason_is_that_of_labels() -> None:
    rows = [(f"text {number}", None, cell) for number, cell in enumerate([("a",), ("b",), ()])]
    split = split_in_memory(rows, target=SeveralLabels(("a", "b"), ","))
    train, dev = draw_dev_rows(split, 0.1, 0)
    assert len(train.examples) == 3 and not dev.examples
    reason = (
        "none of its 3 rows becomes a dev row; the share 0.1 of a label does (data.dev_fraction), never all of its rows"
    )
    assert no_dev_rows_in_words(split, 0.1).startswith(reason)
