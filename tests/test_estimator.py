"""`recurcli.TextClassifier`: an estimator of scikit-learn whose labels come back as they were given."""

import json
import pickle
import re
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch
from class_numbers import probabilities
from running import Recur
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline
from small_runs import reweighted
from tiny_task import rows

import recurcli
from recurcli import TextClassifier, TextRegressor
from recurcli.estimator import _targets
from recurcli.files import sha256_of

SETTINGS = {
    "encoder.hidden_size": 16,
    "encoder.num_layers": 1,
    "tokenizer.kind": "char",
    "data.max_length": 16,
    "finetuning.encoder": "always",
    "finetuning.epochs": 3,
    "finetuning.batch_size": 8,
    "finetuning.learning_rate": 0.01,
    "runtime.precision": "fp32",
}
ALONE = {"ensemble": None, "finetuning.linear_baseline": False}
ONE_STEP = {**ALONE, "finetuning.max_steps": 1}


ROWS = rows(90, seed=5, labelled=True)
TEXTS = [str(row["sentence"]) for row in ROWS]
LABELS = [str(row["label"]) for row in ROWS]
FIRST = ("100", "101", "102")


def tiny(**more: Any) -> TextClassifier:
    return TextClassifier(settings={**SETTINGS, **more}, seed=10)


@pytest.fixture(scope="module")
def fitted() -> TextClassifier:
    return tiny().fit(TEXTS, LABELS)


def test_the_public_names_are_listed_and_exist() -> None:
    public = {name for name in dir(recurcli) if not name.startswith("__")} | {"__version__"}
    assert public == set(recurcli.__all__) >= {"TextClassifier", "TextRegressor", "build_encoder", "load", "Prediction"}
    for name in recurcli.__all__:
        assert getattr(recurcli, name) is not None
    encoder = recurcli.build_encoder({"name": "starsaber", "hidden_size": 16, "num_layers": 1})
    assert sum(parameter.numel() for parameter in encoder.parameters()) == 4 * 16 * 16 + 1
    with pytest.raises(AttributeError, match="no attribute 'lod'"):
        recurcli.lod  # noqa: B018


def test_fit_trains_what_the_command_trains(fitted: TextClassifier, recur: Recur, tmp_path: Path) -> None:
    lines = "".join(f"{text}\t{label}\n" for text, label in zip(TEXTS, LABELS, strict=True))
    (tmp_path / "x.tsv").write_text(f"text\tlabel\n{lines}", encoding="utf-8")
    settings = [part for key, value in SETTINGS.items() for part in ("--set", f"{key}={json.dumps(value)}")]
    source = ["--preset", "starsaber-custom", "--data", tmp_path / "x.tsv", "--output", tmp_path / "run"]
    recur.ok("finetune", *source, *settings)
    fitted.save(tmp_path / "saved")
    for name in ("model.safetensors", "linear.safetensors", "kept.json", "tokenizer.json", "predictions.dev.jsonl"):
        assert sha256_of(tmp_path / "saved" / name) == sha256_of(tmp_path / "run" / name), name
    found = recurcli.load(tmp_path / "saved").predict(TEXTS[:9])
    assert [prediction.label for prediction in found] == fitted.predict(TEXTS[:9]).tolist()
    _, err = recur.ok("eval", tmp_path / "saved", "--data", tmp_path / "x.tsv")
    assert "90 of 90 rows are in the training rows" in err
    recur.refused(2, "", "eval", tmp_path / "saved")
    with pytest.raises(FileExistsError, match="saved: exists already; give the path of a new folder"):
        fitted.save(tmp_path / "saved")


def test_a_save_that_fails_leaves_nothing(fitted: TextClassifier, tmp_path: Path) -> None:
    broken = TextClassifier()
    broken.classes_, broken._files = fitted.classes_, {**fitted._files, "no/such/folder": b""}
    with pytest.raises(OSError, match="folder: cannot be written"):
        broken.save(tmp_path / "new" / "run")
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (["b", "c", "a"], np.str_),
        ([7, -1, 10], np.int64),
        pytest.param([True, False, False], np.bool_, marks=pytest.mark.slow),
        pytest.param(np.array([2, 0, 1], np.int8), np.int8, marks=pytest.mark.slow),
    ],
)
def test_labels_come_back_as_they_were_given(names: Sequence[Any], kind: type, tmp_path: Path) -> None:
    labels = np.array([names[FIRST.index(label)] for label in LABELS])
    model = tiny(**ALONE).fit(TEXTS, labels)
    assert model.classes_.tolist() == sorted({*labels.tolist()})
    predicted, probabilities = model.predict(TEXTS), model.predict_proba(TEXTS)
    assert isinstance(predicted[0], kind)
    assert (predicted == labels).mean() > 0.6
    assert probabilities.shape == (len(TEXTS), len(model.classes_))
    assert np.allclose(probabilities.sum(axis=1), 1)
    assert (model.classes_[probabilities.argmax(axis=1)] == predicted).all()
    model.save(tmp_path / "run")
    found = recurcli.load(tmp_path / "run").predict(TEXTS[:3])
    assert [prediction.label for prediction in found] == predicted[:3].tolist()
    assert [type(label) for label in found[0].probabilities] == [type(label) for label in model.classes_.tolist()]


def test_texts_may_be_arrays_series_and_tables(fitted: TextClassifier, trained: Path) -> None:
    frame = pandas.DataFrame({"text": TEXTS[:6], "second": TEXTS[6:12]}, index=range(10, 16))
    wanted = fitted.predict_proba(TEXTS[:6])
    for texts in (np.array(TEXTS[:6]), frame["text"], frame[["text"]], np.array(TEXTS[:6])[:, None], tuple(TEXTS[:6])):
        assert np.array_equal(fitted.predict_proba(texts), wanted)
    model = recurcli.load(trained)
    for predict in (fitted.predict, model.predict):
        with pytest.raises(ValueError, match=r"texts\[0\] is .*, but the model was trained on single texts"):
            predict(frame)
    assert model.predict(frame[["text"]]) == model.predict(TEXTS[:6])
    with pytest.raises(ValueError, match=re.escape("texts has the shape (2, 3)")):
        model.predict(np.array([["a"] * 3] * 2))
    with pytest.raises(TypeError, match=re.escape("texts[1] is nan (float)")):
        model.predict(pandas.Series(["a", None], dtype=object).fillna(float("nan")))


def test_pairs_and_dev_rows_of_ones_own() -> None:
    pairs, threads = [*zip(TEXTS[:60], TEXTS[30:], strict=True)], torch.get_num_threads()
    model = tiny(**ONE_STEP, **{"runtime.threads": threads + 1})
    with pytest.warns(UserWarning, match="dev: 10 of 10 rows are in the training rows") as caught:
        model.fit(pairs, LABELS[:60], dev=(pairs[:10], LABELS[:10]))
    assert caught[0].filename == __file__
    assert torch.get_num_threads() == threads, "a fit leaves the number of threads"
    assert model.result_["data"]["dev"]["rows"] == 10
    assert model.result_["data"]["train"]["rows"] == 60
    assert len(model.predict(np.array(pairs))) == 60
    frame = pandas.DataFrame(pairs, columns=["text", "second"])
    assert np.array_equal(model.predict_proba(frame), model.predict_proba(pairs))
    with pytest.raises(ValueError, match=re.escape("dev labels[1] is '9', a label that no training row has")):
        tiny().fit(TEXTS, LABELS, dev=(TEXTS[:2], ["100", "9"]))


def test_labels_may_be_a_table_of_one_column() -> None:
    for column in (pandas.DataFrame({"y": LABELS})[["y"]], np.array(LABELS)[:, None]):
        targets = _targets(column, "labels")
        assert ([*targets.cells], targets.classes.tolist()) == (LABELS, [*FIRST])


def test_texts_are_of_one_kind() -> None:
    pairs = [*zip(TEXTS[:60], TEXTS[30:], strict=True)]
    mixed: list[tuple[list[Any], str]] = [
        ([*pairs, *TEXTS[60:]], "texts[60] and texts[0] are a pair and a single text"),
        ([*TEXTS[:2], *pairs, *pairs[:28]], "texts[2] and texts[0] are a pair and a single text"),
    ]
    for some, reason in mixed:
        with pytest.raises(ValueError, match=re.escape(reason)):
            tiny().fit(some, LABELS)
    for texts, dev, message in ((TEXTS, pairs, "holds pairs of texts"), (pairs, TEXTS, "holds single texts")):
        with pytest.raises(ValueError, match=f"^dev texts: {message}.*, but texts has .*; give rows of one kind"):
            tiny().fit(texts, LABELS[: len(texts)], dev=(dev[:10], LABELS[:10]))


def test_a_fitted_model_survives_pickling(fitted: TextClassifier) -> None:
    again = pickle.loads(pickle.dumps(fitted))
    assert "_predictor" not in vars(again), "no device is touched before the first use"
    assert np.array_equal(again.predict_proba(TEXTS), fitted.predict_proba(TEXTS))


def test_predict_follows_the_thresholds_and_the_probabilities_stay(fitted: TextClassifier) -> None:
    model, before = pickle.loads(pickle.dumps(fitted)), fitted.predict_proba(TEXTS)
    least = {each: 0.5 if each == 0 else 1e-6 for each in range(before.shape[1])}
    model._predictor.kept = replace(model._predictor.kept, thresholds={"thresholds": least})
    assert 0 not in np.searchsorted(model.classes_, model.predict(TEXTS))
    assert np.array_equal(model.predict_proba(TEXTS), before)


def test_fast_predicts_with_the_linear_model_alone(fitted: TextClassifier) -> None:
    model = pickle.loads(pickle.dumps(fitted))
    kept = model._predictor.kept
    model._predictor.kept = reweighted(kept, 0.7, 1.3)
    logits = kept.alone["linear"] * model._predictor.linear.logits([(text, None) for text in TEXTS])
    assert np.array_equal(model.predict_proba(TEXTS, fast=True), probabilities(logits, rows=kept.rows))
    assert np.array_equal(model.predict(TEXTS, fast=True), model.classes_[logits.argmax(axis=1)])
    model._predictor.kept = reweighted(kept, 1.0, 0.0)
    with pytest.raises(ValueError, match=r"it has no linear model.*fast=True"):
        model.predict(TEXTS, fast=True)


@pytest.mark.slow
def test_the_tools_of_scikit_learn_take_it(fitted: TextClassifier, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(NotFittedError):
        clone(fitted).predict(TEXTS)
    model = tiny(**ALONE)
    assert clone(model).get_params() == model.get_params()
    assert model.set_params(seed=3).seed == 3
    assert (cross_val_score(model, TEXTS, LABELS, cv=2) > 0.4).all()
    choices = [{**SETTINGS, **ONE_STEP}, {**SETTINGS, **ALONE}]
    search = GridSearchCV(Pipeline([("model", model)]), {"model__settings": choices}, cv=2)
    assert search.fit(np.array(TEXTS), np.array(LABELS)).best_params_ == {"model__settings": choices[1]}
    assert search.predict_proba(TEXTS[:2]).shape == (2, 3)
    assert capfd.readouterr() == ("", ""), "fit is silent"


@pytest.mark.slow
def test_folds_are_fitted_in_processes(fitted: TextClassifier) -> None:
    assert np.array_equal(*(cross_val_score(fitted, TEXTS, LABELS, cv=2, n_jobs=jobs) for jobs in (1, 2)))


BAD = [
    ([], [], ValueError, "labels is empty"),
    (TEXTS[:4], LABELS[:4], ValueError, "texts: none of its 4 rows becomes a dev row; the share 0.1 of a class does"),
    (TEXTS, [1] * 90, ValueError, "labels holds only 1 in all 90 rows; it needs two classes"),
    (TEXTS, LABELS[:-1], ValueError, "90 texts have 89 labels; each needs one"),
    (["a", None] * 45, LABELS, TypeError, "texts[1] is None (NoneType); it must be a string or a pair of strings"),
    ([float("nan"), *TEXTS[1:]], LABELS, TypeError, "texts[0] is nan (float)"),
    ([" "] * 90, LABELS, ValueError, "all 90 texts are blank"),
    (["\ud800", *TEXTS[1:]], LABELS, ValueError, "texts[0] holds a lone surrogate"),
    ("abc", ["a", "b", "c"], TypeError, "texts is one string; put it in a list"),
    (TEXTS, [*LABELS[:-1], None], ValueError, "labels[89] is None; all labels are strings, or all are"),
    (TEXTS, [*LABELS[:-1], float("nan")], ValueError, "labels[89] is nan"),
    (TEXTS, [*LABELS[:-1], 3], ValueError, "labels[89] is 3; all labels are strings, or all are whole"),
    (TEXTS, [*LABELS[:-1], " "], ValueError, "labels[89] is ' '; a label must not be blank"),
    (TEXTS, [n / 7 for n in range(90)], ValueError, "continuous"),
    (
        TEXTS,
        np.zeros((90, 1, 1)),
        ValueError,
        "labels has the shape (90, 1, 1); it must be one column, or one of 0 and 1",
    ),
    (TEXTS, np.array([["a", "b"]] * 90), ValueError, "labels[0] has 'a' in column 0; a matrix of labels holds 0 and 1"),
    (TEXTS, pandas.DataFrame({"a": [1.0, np.nan], "b": [0, 1]}), ValueError, "labels[1] has nan in column 0"),
    (TEXTS, pandas.DataFrame([[1, 0]], columns=["a", "a"]), ValueError, "labels has two columns of one name"),
    (
        TEXTS,
        [[1, 0]] * 90,
        ValueError,
        "labels: there is no label that some rows have and others have not (",
    ),
    (TEXTS, [["a"], [], "a"], ValueError, "labels[2] is 'a', not a list of labels as others; it may be empty"),
    (TEXTS, [["a"], None], ValueError, "labels[1] is None, not a list of labels"),
    (TEXTS, [["a"], ("b", 3)], ValueError, "; all labels are strings, or all are whole"),
    (TEXTS, [["a"], [" "]], ValueError, "labels[1] is ' '; a label must not be blank"),
    (TEXTS, [[], set()], ValueError, "labels holds no label in all 2 rows"),
    (TEXTS[:3], [["a"], ["b", "a"], ["b"], []], ValueError, "3 texts have 4 labels; each needs one"),
]


@pytest.mark.parametrize(("texts", "labels", "kind", "message"), BAD, ids=lambda value: str(value)[:30])
def test_rows_that_cannot_be_used_are_named(texts: Any, labels: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=re.escape(message)):
        tiny().fit(texts, labels)


WORDS = ("cold", "warm", "wet")
SETS = [{word for place, word in enumerate(WORDS) if number >> place & 1} for number in range(8)] * 15
OF_SETS = [" ".join([f"day{number % 12}", f"year{number // 12}", *sorted(words)]) for number, words in enumerate(SETS)]
MATRIX = np.array([[int(word in words) for word in WORDS] for words in SETS])
FAST = {"linear.c": 1, "linear.characters": None, "linear.words": [1, 1], "linear.vectors": None}


def linear(**more: Any) -> TextClassifier:
    return TextClassifier("linear-custom", settings={**FAST, **more}, seed=10)


@pytest.fixture(scope="module")
def of_sets() -> TextClassifier:
    return linear().fit(OF_SETS, SETS)


def test_labels_of_a_row_may_be_lists_sets_and_matrices(of_sets: TextClassifier) -> None:
    assert of_sets.classes_.tolist() == [*WORDS]
    found, chances = of_sets.predict(OF_SETS), of_sets.predict_proba(OF_SETS)
    assert found.tolist() == MATRIX.tolist() == (chances >= 0.5).astype(int).tolist()
    frame = pandas.DataFrame(MATRIX.astype(bool), columns=[*WORDS])
    numbers = [[place for place, word in enumerate(WORDS) if word in words] for words in SETS]
    given: list[tuple[Any, list[Any]]] = [
        ([*map(sorted, SETS)], [*WORDS]),
        (pandas.Series([np.array(sorted(words)) for words in SETS]), [*WORDS]),
        (frame, [*WORDS]),
        (MATRIX.tolist(), [0, 1, 2]),
        (csr_matrix(MATRIX, dtype=float), [0, 1, 2]),
        (numbers, [0, 1, 2]),
    ]
    for labels, classes in given:
        targets = _targets(labels, "labels")
        names = [*map(str, classes)]
        assert (targets.classes.tolist(), [*targets.names]) == (classes, names)
        wanted = [tuple(sorted(names[WORDS.index(word)] for word in words)) for words in SETS]
        assert targets.cells == wanted
    model = linear().fit(OF_SETS, csr_matrix(MATRIX))
    assert (model.predict_proba(OF_SETS) == chances).all() and model.classes_.tolist() == [0, 1, 2]


def test_score_is_the_share_of_rows_with_exactly_their_labels(of_sets: TextClassifier) -> None:
    wrong = [*map(sorted, SETS[:-30]), *[["cold", "new"]] * 30]
    assert of_sets.score(OF_SETS, SETS) == of_sets.score(OF_SETS, MATRIX) == 1
    assert of_sets.score(OF_SETS, wrong) == 0.75
    assert of_sets.score(OF_SETS, wrong, sample_weight=[0.0] * 90 + [1.0] * 30) == 0
    assert of_sets.score(OF_SETS, np.where(np.arange(120)[:, None] < 60, MATRIX, 1 - MATRIX)) == 0.5


def test_a_label_that_all_rows_have_or_none_stays_a_column() -> None:
    ends = np.hstack([np.zeros((120, 1), int), MATRIX, np.ones((120, 1), int)])
    model = TextClassifier("linear-custom", settings=FAST, seed=10, class_weight={0: 2, 1: 3})
    with pytest.warns(UserWarning, match="labels: 1 label is left out, since (all rows have|no row has) it"):
        model.fit(OF_SETS, ends)
    assert model.predict(OF_SETS).tolist() == ends.tolist()
    assert model.predict_proba(OF_SETS)[:, [0, -1]].tolist() == [[0.0, 1.0]] * 120
    plain = linear().fit(OF_SETS, MATRIX)
    assert not np.array_equal(model.predict_proba(OF_SETS)[:, 1], plain.predict_proba(OF_SETS)[:, 0]), "a weight of 3"


def test_dev_rows_with_several_labels_and_a_label_for_each_row() -> None:
    model = linear(**{"data.at_least_one": True}).fit(
        OF_SETS, MATRIX, dev=([f"{text} dev" for text in OF_SETS], MATRIX)
    )
    assert model.result_["data"]["dev"]["rows"] == 120
    assert (model.predict(OF_SETS).sum(axis=1) == np.maximum(MATRIX.sum(axis=1), 1)).all()
    for labels, dev, message in (
        (SETS, [["cold"], ["hot"]], "dev labels[1] is 'hot', a label that no training row has"),
        (MATRIX, MATRIX[:2, :2], "dev labels has 2 columns, and labels 3"),
        (MATRIX, ["0", "1"], "labels and dev labels must both be one label a row, or both several"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            linear().fit(OF_SETS, labels, dev=(OF_SETS[:2], dev))


def test_a_fit_on_several_labels_is_pickled_and_saved(of_sets: TextClassifier, tmp_path: Path) -> None:
    again = pickle.loads(pickle.dumps(of_sets))
    assert (again.predict_proba(OF_SETS) == of_sets.predict_proba(OF_SETS)).all()
    of_sets.save(tmp_path / "run")
    config = json.loads((tmp_path / "run" / "config.json").read_text(encoding="utf-8"))
    assert config["target"]["kind"] == "several" and [*config["id2label"].values()] == [*WORDS]


@pytest.mark.slow
def test_the_tools_of_scikit_learn_take_several_labels() -> None:
    assert (cross_val_score(linear(), OF_SETS, MATRIX, cv=2) > 0.9).all()
    assert (cross_val_score(linear(), OF_SETS, MATRIX, cv=2, scoring="roc_auc") > 0.9).all()
    choices = [FAST, {**FAST, "linear.words": None, "linear.characters": [1, 1]}]
    search = GridSearchCV(Pipeline([("model", linear())]), {"model__settings": choices}, cv=2)
    assert search.fit(OF_SETS, MATRIX).best_params_ == {"model__settings": FAST}
    assert search.predict(OF_SETS[:2]).shape == search.predict_proba(OF_SETS[:2]).shape == (2, 3)


SIZES = [0.5 * len(words) + (number % 5) / 50 for number, words in enumerate(SETS)]


def regressor(**more: Any) -> TextRegressor:
    return TextRegressor("linear-custom", settings={**FAST, "linear.c": 100, **more}, seed=10)


def test_a_regressor_learns_numbers(tmp_path: Path) -> None:
    model = regressor().fit(OF_SETS, SIZES)
    found = model.predict(OF_SETS)
    assert found.shape == (120,) and found.dtype == np.float64
    assert model.score(OF_SETS, SIZES) > 0.9
    assert min(SIZES) <= found.min() and found.max() <= max(SIZES)
    assert (pickle.loads(pickle.dumps(model)).predict(OF_SETS, fast=True) == found).all()
    weighted = regressor().fit(OF_SETS, pandas.Series(SIZES), [1.0 + 9 * (size > 1) for size in SIZES])
    assert np.abs(weighted.predict(OF_SETS) - found).max() > 1e-3
    own = regressor().fit(OF_SETS, SIZES, dev=([f"{text} dev" for text in OF_SETS[:60]], np.array(SIZES[:60])))
    assert own.result_["data"]["dev"]["rows"] == 60
    model.save(tmp_path / "run")
    config = json.loads((tmp_path / "run" / "config.json").read_text(encoding="utf-8"))
    assert config["target"]["kind"] == "number"


@pytest.mark.slow
def test_the_tools_of_scikit_learn_take_a_regressor() -> None:
    with pytest.raises(NotFittedError):
        regressor().predict(TEXTS)
    assert clone(regressor()).get_params() == regressor().get_params()
    assert "class_weight" not in regressor().get_params()
    assert (cross_val_score(regressor(), OF_SETS, SIZES, cv=2) > 0.8).all()
    search = GridSearchCV(Pipeline([("model", regressor())]), {"model__seed": [1, 2]}, cv=2)
    assert search.fit(OF_SETS, SIZES).predict(OF_SETS[:2]).shape == (2,)


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ([], "numbers is empty"),
        ([*SIZES[:-1], float("nan")], "numbers[119] is nan, not a finite number"),
        ([*SIZES[:-1], "1"], "numbers[0] is '0.0', not a finite number"),
        ([*SIZES[:-1], None], "numbers[119] is None, not a finite number"),
        ([2] * 120, "numbers: holds only 2 in all 120 rows; there is nothing to predict"),
        (SIZES[:-1], "120 texts have 119 numbers; each needs one"),
        ([[1.0, 2.0]] * 120, "y should be a 1d array"),
    ],
)
def test_numbers_that_cannot_be_used_are_named(numbers: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        regressor().fit(OF_SETS, numbers)


def with_setting(key: str, value: object) -> dict[str, Any]:
    return {"settings": {key: value}}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"preset": "starsaber-tnew"}, "no preset 'starsaber-tnew'; did you mean 'starsaber-tnews'?"),
        (with_setting("finetuning.epoch", 3), "finetuning.epoch: unknown key; did you mean 'finetuning.epochs'?"),
        (with_setting("finetuning.epochs", "3"), "settings: finetuning.epochs: '3' should be a valid integer"),
        (with_setting("finetuning.lr", 3), "unknown key; did you mean 'finetuning.learning_rate'?"),
        (with_setting("data.path", "x.csv"), "settings['data.path'] is about files, but the rows and labels are those"),
        ({"settings": ["finetuning.epochs=3"]}, "settings must map keys to values"),
        ({"class_weight": {"100": 2, "1OO": 3}}, "finetuning.class_weights: unknown label '1OO'; known: 100, 101, 102"),
        ({"class_weight": {"100": 0}}, "finetuning.class_weights.100: 0.0 should be greater than 0"),
        ({"init": "no/such/run"}, "no/such/run: is not a run directory"),
    ],
)
def test_parameters_that_cannot_be_used_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        TextClassifier(**{"settings": SETTINGS, "seed": 1, **options}).fit(TEXTS, LABELS)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0] * 89, "90 texts have 89 weights; each needs one"),
        ([1.0] * 88 + [0.0, 1.0], "sample_weight[88] is 0, not above 0; leave such a row out"),
        ([np.nan] * 90, "sample_weight[0] is nan"),
    ],
)
def test_weights_that_cannot_be_used_are_named(weights: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        tiny().fit(TEXTS, LABELS, weights)


@pytest.mark.parametrize("preset", ["linear-custom", "starsaber-custom"])
def test_weights_of_rows_are_those_of_their_classes(preset: str) -> None:
    """The linear model, the encoder and their ensemble have the same bits by either."""
    settings: dict[str, Any] = {"linear.c": 1, "linear.characters": [1, 2], "linear.words": None}
    if preset == "starsaber-custom":
        settings |= SETTINGS | {"finetuning.epochs": 1}
    plain, by_class, by_row = (
        TextClassifier(preset, settings=settings, seed=10, class_weight=weights).fit(TEXTS, LABELS, rows)
        for weights, rows in (
            (None, None),
            ({"100": 3, "101": 0.5}, None),
            (None, [{"100": 3.0, "101": 0.5}.get(label, 1.0) for label in LABELS]),
        )
    )
    probabilities_by_row = by_row.predict_proba(TEXTS)
    assert (by_class.predict_proba(TEXTS) == probabilities_by_row).all()
    assert np.abs(plain.predict_proba(TEXTS) - probabilities_by_row).max() > 1e-3
    if preset == "starsaber-custom":
        assert by_row.result_["parts"]["encoder"] != plain.result_["parts"]["encoder"]
        assert by_row.result_["parts"]["linear"] != plain.result_["parts"]["linear"]


def test_a_stop_by_the_keyboard_is_what_python_makes_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = 0

    def stopping(*arguments: Any) -> None:
        nonlocal taken
        taken += 1
        if taken == 2:
            signal.raise_signal(signal.SIGINT)
        honest(*arguments)

    from recurcli.training import fit

    honest = fit.take_step
    monkeypatch.setattr(fit, "take_step", stopping)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # which is ignored in a script's background
    with pytest.raises(KeyboardInterrupt):
        tiny().fit(TEXTS, LABELS)
    signal.signal(signal.SIGINT, before)
    assert taken == 2
