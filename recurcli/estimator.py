"""Estimators in the manner of scikit-learn: `fit` trains as `recur finetune` does, on rows in memory.

`TextClassifier` learns one label a row or several, `TextRegressor` numbers. Shapes: N texts, C classes.
"""

import contextlib
import math
import shutil
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import cached_property
from inspect import currentframe
from itertools import chain, compress
from pathlib import Path
from signal import raise_signal
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import torch
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets, is_multilabel
from sklearn.utils.validation import check_is_fitted, column_or_1d

from recurcli.commands.finetune import finetune
from recurcli.config import DataConfig, LabelType
from recurcli.data.splits import Split, check_dev_rows, dev_share, draw_dev_rows, split_in_memory
from recurcli.data.tasks import task_named
from recurcli.device import own_random_state
from recurcli.display.screen import Screen
from recurcli.errors import DataError, Interrupted, RecurError, StorageError, escaped
from recurcli.evaluation.predictor import Predictor, as_pair, text_rows
from recurcli.files import write_atomically
from recurcli.log import Log, Note
from recurcli.models.data import RowsInMemory
from recurcli.preset import ResolvedPreset, compose
from recurcli.requests.training import FinetuneRequest
from recurcli.runs.run_directory import CONTENTS, RESULT
from recurcli.targets import Cell, Number, OneLabel, SeveralLabels, Target
from recurcli.targets.target import labels_in

_KEYS_OF_ROWS = {
    *("max_length", "truncate", "dev_seed", "dev_fraction", "max_dev_rows", "train_share", "extra_rows"),
    *("at_least_one", "label_separator"),
}
_KEYS_OF_FILES = {f"data.{field.name}" for field in fields(DataConfig) if field.name not in _KEYS_OF_ROWS}
"""Keys that a training on rows in memory does not read."""
Rows = Iterable[Any]
"""Texts or pairs of texts: a list, an array, a Series, or a table of one or two columns (see `text_rows`)."""
_LISTS = (list, tuple, set, frozenset, np.ndarray)
"""What holds the labels of a row that has several."""


class _TextEstimator(BaseEstimator):  # type: ignore[misc]
    """What the estimators share: a preset, the files of the run that `fit` trains, and the model in them."""

    def __init__(
        self,
        preset: str = "starsaber-custom",
        *,
        settings: Mapping[str, Any] | None = None,
        seed: int | None = None,
        init: str | Path | None = None,
        verbose: bool = False,
    ) -> None:
        self.preset = preset
        """The name of a preset, or a YAML file."""
        self.settings = settings
        """Maps a key of the preset, such as "finetuning.epochs", to its value."""
        self.seed = seed
        """The value of `runtime.seed`; None: the preset's."""
        self.init = init
        """The pretrained run to start from; None: random initial weights."""
        self.verbose = verbose
        """Whether `fit` prints notes and progress on stderr. Warnings are Python warnings (UserWarning) in any case."""

    def _train(
        self,
        texts: Rows,
        targets: "_Targets",
        sample_weight: Iterable[float] | None,
        dev: tuple[Rows, Sequence[Cell]] | None,
        settings: Mapping[str, Any],
    ) -> None:
        """Train on texts (N) and their `targets`, and keep the files of the run. `dev`: texts with cells; None: they are drawn.

        `settings` are keys of the preset beside those of the user.
        """
        with _python_errors(), contextlib.ExitStack() as stack:
            stack.callback(torch.set_num_threads, torch.get_num_threads())
            resolved = self._resolve(settings)
            config, what = resolved.preset.data, f"{targets.kind.label_noun}s"
            try:
                target = targets.kind.of(targets.cells, config, targets.names)
            except DataError as error:
                raise DataError(f"{what}: {error}") from None
            weights = _sample_weights(sample_weight, len(targets.cells))
            rows = _split(texts, targets.cells, "texts", target, weights)
            rows = replace(rows, notes=tuple(Note(f"{what}: {doubt}", "warning") for doubt in target.doubts()))
            if dev is None:
                fraction = dev_share(task_named(resolved.preset.task), config, len(rows.examples))
                train, drawn = draw_dev_rows(rows, fraction, config.dev_seed)
                chosen = RowsInMemory(train, check_dev_rows(drawn, rows, "texts", fraction), targets.label_type)
            else:
                chosen = RowsInMemory(rows, _split(*dev, "dev texts", target), targets.label_type)
            with TemporaryDirectory(prefix="recur-") as folder, own_random_state():
                run, init = Path(folder) / "run", None if self.init is None else Path(self.init)
                request = FinetuneRequest(preset=str(self.preset), output=run, init=init)
                with Screen(quiet=not self.verbose, verbose=True, metric=resolved.preset.finetuning.metric) as screen:
                    self.result_ = finetune(request, _PythonWarnings(screen), resolved, chosen)
                self._files = {name: (run / name).read_bytes() for name in CONTENTS if (run / name).is_file()}
            self.__dict__.pop("_predictor", None)

    def save(self, path: str | Path) -> None:
        """Write the run directory of the fitted model, for `recurcli.load` and for `recur predict`.

        Raises FileExistsError if `path` exists. If it fails, it leaves no folder.
        """
        check_is_fitted(self, "_files")
        folder = Path(path).absolute()
        if folder.exists():
            raise FileExistsError(f"{path}: exists already; give the path of a new folder")
        made = next(parent for parent in (*reversed(folder.parents), folder) if not parent.exists())
        with _python_errors():
            try:
                folder.mkdir(parents=True)
                _write(self._files, folder)
            except BaseException:
                shutil.rmtree(made, ignore_errors=True)
                raise

    def _chosen(self, *, fast: bool) -> Predictor:
        """Return the fitted model, or with `fast` its linear model."""
        check_is_fitted(self, "_files")
        with _python_errors():
            return self._predictor.only_linear() if fast else self._predictor

    def _resolve(self, more: Mapping[str, Any]) -> ResolvedPreset:
        """Return the preset with `settings`, `seed` and the keys `more`."""
        if not isinstance(self.settings, Mapping | None):
            raise ValueError(f"settings must map keys to values, and is {escaped(repr(self.settings), 60)}")
        given = {str(key): getattr(value, "item", lambda v=value: v)() for key, value in (self.settings or {}).items()}
        if of_files := [key for key in given if key in _KEYS_OF_FILES]:
            raise ValueError(
                f"settings['{of_files[0]}'] is about files, but the rows and labels are those that fit is given; leave it out"
            )
        if self.seed is not None:
            given["runtime.seed"] = int(self.seed)
        overrides = {key: ("settings", value) for key, value in {**given, **more}.items()}
        return compose(str(self.preset), overrides=overrides, section="finetuning")

    @cached_property
    def _predictor(self) -> Predictor:
        """The fitted model. It is made at its first use, so that unpickling touches no GPU."""
        with TemporaryDirectory(prefix="recur-") as folder:
            _write(self._files, Path(folder))
            device = (self.settings or {}).get("runtime.device", "auto")
            return Predictor.load(folder, device=device)

    def __getstate__(self) -> dict[str, Any]:
        """Return the parameters and the files of the fitted model; its tensors are made from them again."""
        return {key: value for key, value in super().__getstate__().items() if key != "_predictor"}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = True, False
        return tags


class TextClassifier(ClassifierMixin, _TextEstimator):  # type: ignore[misc]
    """Trains a preset on texts and labels in memory, as `recur finetune` does with a file of them.

    Without `dev` rows, `fit` draws them from the training rows as the command does. Pickling keeps the fitted model. `fit`
    raises ValueError for rows, settings or a preset that cannot be used, TypeError for a row that is not a text.

    Rows have one label each, or any number of labels. Then `predict` gives an indicator matrix (N, C) in the order of
    `classes_`, also for lists of labels, and `classes_[row > 0]` are the labels of a row of it.
    """

    def __init__(
        self,
        preset: str = "starsaber-custom",
        *,
        settings: Mapping[str, Any] | None = None,
        seed: int | None = None,
        init: str | Path | None = None,
        class_weight: Mapping[Any, float] | Literal["balanced"] | None = None,
        verbose: bool = False,
    ) -> None:
        super().__init__(preset, settings=settings, seed=seed, init=init, verbose=verbose)
        self.class_weight = class_weight
        """`finetuning.class_weights`: "balanced", or the weight of a label (1 where it has none); None: the preset's."""

    def fit(
        self,
        texts: Rows,
        labels: Iterable[Any],
        sample_weight: Iterable[float] | None = None,
        *,
        dev: tuple[Rows, Iterable[Any]] | None = None,
    ) -> Self:
        """Train on `texts` (N) and `labels` (N): strings, whole numbers or bools. Returns the estimator.

        Several labels a row are a matrix (N, C) of 0 and 1, which may be sparse, or lists or sets of labels. The classes are
        the numbers of the columns, the names of those of a DataFrame, or the labels of the lists, sorted.

        `sample_weight` (N,) are factors of the rows' losses in all parts of the model, times those of `class_weight`. `dev`
        holds the texts and labels that select the model; None: `data.dev_fraction` of the rows of each class.
        """
        targets = _targets(labels, "labels")
        if targets.kind is OneLabel and len(targets.classes) < 2:
            only, rows = targets.classes.tolist()[0], len(targets.cells)
            raise ValueError(f"labels holds only {only!r} in all {rows:,} rows; it needs two classes")
        settings: dict[str, Any] = {"data.labels": targets.names} if targets.kind is OneLabel else {}
        dev_rows = None if dev is None else (dev[0], _dev_cells(dev[1], targets))
        self._train(texts, targets, sample_weight, dev_rows, settings | self._class_weights(targets))
        self.classes_, self._shares = targets.classes, targets.shares
        return self

    def predict(self, texts: Rows, *, fast: bool = False) -> np.ndarray:
        """Return the label of each text (N,), of the type that `fit` was given; for several labels a row 0 or 1 (N, C).

        `fast` takes the linear model of an ensemble alone. Raises TypeError or ValueError for what is neither a text nor a pair
        of texts, with its row from 0. Raises ValueError with `fast` if the model has no linear model.
        """
        predictor = self._chosen(fast=fast)
        found = predictor.kept.predict(predictor.logits(texts))
        return self.classes_[found] if found.ndim == 1 else self._of_all_classes(found[:, :-1])

    def predict_proba(self, texts: Rows, *, fast: bool = False) -> np.ndarray:
        """Return the probabilities (N, C) of the classes in the order of `classes_`. Raises as `predict` does.

        Those of several labels a row are of each label alone, and do not add up to 1.
        """
        predictor = self._chosen(fast=fast)
        found = predictor.kept.probabilities(predictor.logits(texts))
        return found if predictor.kept.target.kind == "one" else self._of_all_classes(found)

    def score(self, texts: Rows, labels: Iterable[Any], sample_weight: Any = None) -> float:
        """Return the accuracy; of several labels a row, as lists or as a matrix, the share of rows that get exactly theirs."""
        given = _targets(labels, "labels")
        if given.kind is OneLabel or is_multilabel(labels):
            return super().score(texts, labels, sample_weight)
        names = np.array([*map(_name, self.classes_.tolist())])
        found = [{*names[row > 0].tolist()} for row in self.predict(texts)]
        hits = [own == {*labels_in(cell)} for own, cell in zip(found, given.cells, strict=True)]
        return float(np.average(np.array(hits), weights=sample_weight))

    def _of_all_classes(self, found: np.ndarray) -> np.ndarray:
        """Return values of the learned labels (N, L) as columns of all classes (N, C).

        A label that all training rows have is 1, and one that none has is 0.
        """
        columns = np.tile(self._shares, (len(found), 1)).astype(found.dtype)
        columns[:, (self._shares > 0) & (self._shares < 1)] = found
        return columns

    def _class_weights(self, targets: "_Targets") -> dict[str, Any]:
        """Return `class_weight` as a key of the preset, which `finetune` checks. Labels that are not learned have no weight."""
        given: Any = self.class_weight
        if not isinstance(given, Mapping):
            return {} if given is None else {"finetuning.class_weights": given}
        names = dict(zip(targets.classes.tolist(), targets.names, strict=True))
        left_out = {*targets.classes[(targets.shares == 0) | (targets.shares == 1)].tolist()}
        weights = {names.get(label, str(label)): float(each) for label, each in given.items() if label not in left_out}
        return {"finetuning.class_weights": weights}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags


class TextRegressor(RegressorMixin, _TextEstimator):  # type: ignore[misc]
    """Trains a preset on texts and a number for each, as `recur finetune --target number` does; `score` is R².

    It draws dev rows, raises and is pickled as `TextClassifier`.
    """

    def fit(
        self,
        texts: Rows,
        numbers: Iterable[float],
        sample_weight: Iterable[float] | None = None,
        *,
        dev: tuple[Rows, Iterable[float]] | None = None,
    ) -> Self:
        """Train on `texts` (N) and finite `numbers` (N,), otherwise as `TextClassifier` does. Returns the estimator."""
        dev_rows = None if dev is None else (dev[0], _numbers(dev[1], "dev numbers").cells)
        self._train(texts, _numbers(numbers, "numbers"), sample_weight, dev_rows, {})
        return self

    def predict(self, texts: Rows, *, fast: bool = False) -> np.ndarray:
        """Return the predicted numbers (N,), within the range of the training rows. Raises as `TextClassifier.predict` does."""
        predictor = self._chosen(fast=fast)
        return predictor.kept.predict(predictor.logits(texts))


class _Targets(NamedTuple):
    """What `fit` is given to predict: its kind, the different labels (C,) with their names in the run (C), and the cells (N).

    Numbers have no labels.
    """

    kind: type[Target]
    classes: np.ndarray
    names: tuple[str, ...]
    cells: Sequence[Cell]

    @property
    def label_type(self) -> LabelType:
        """Python's type of the labels."""
        known: dict[str, LabelType] = {"int": "int", "float": "float", "bool": "bool"}
        return known.get(type(next(iter(self.classes.tolist()), "")).__name__, "str")

    @property
    def shares(self) -> np.ndarray:
        """The share of the rows with each label, (C,)."""
        rows = Counter(chain.from_iterable(map(labels_in, self.cells)))
        return np.array([rows[name] / len(self.cells) for name in self.names])


def _targets(labels: Iterable[Any], what: str) -> _Targets:
    """Return the labels of rows. Raises ValueError, with the row, for labels that are missing, blank or of mixed types."""
    if not hasattr(labels, "shape"):
        labels = list(labels)
        labels = np.array(labels) if is_multilabel(labels) else labels
    shape: tuple[int, ...] = getattr(labels, "shape", ())
    if len(shape) > 2 or 0 in shape[1:]:
        raise ValueError(f"{what} has the shape {shape}; it must be one column, or one of 0 and 1 for each label")
    if len(shape) == 2 and (shape[1] > 1 or issparse(labels)):
        return _of_matrix(labels, what)
    listed: Any = np.asarray(labels)[:, 0] if len(shape) == 2 else labels
    each = listed if isinstance(listed, list) else np.asarray(listed, dtype=object).tolist()
    if not each:
        raise ValueError(f"{what} is empty; a classifier needs rows of two classes or more")
    if any(isinstance(label, _LISTS) for label in each):
        return _of_lists(each, what)
    _check_labels(enumerate(each), what)
    classes, indexes = _classes(np.asarray(listed))
    names = tuple(map(_name, classes.tolist()))
    return _Targets(OneLabel, classes, names, [names[index] for index in indexes])


def _of_matrix(labels: Any, what: str) -> _Targets:
    """Return the labels of a matrix (N, C) of 0 and 1. Raises ValueError for other values and for two columns of one name."""
    values = np.asarray(labels.toarray() if issparse(labels) else labels, dtype=object)
    has = values == 1
    for row, column in np.argwhere(~has & (values != 0)).tolist():
        shown = escaped(repr(values[row, column]), 60)
        raise ValueError(f"{what}[{row}] has {shown} in column {column}; a matrix of labels holds 0 and 1")
    classes = np.array([*getattr(labels, "columns", range(values.shape[1]))])
    names = tuple(map(_name, classes.tolist()))
    if len({*names}) < len(names):
        raise ValueError(f"{what} has two columns of one name")
    return _Targets(SeveralLabels, classes, names, [tuple(sorted(compress(names, row))) for row in has])


def _of_lists(rows: Sequence[Any], what: str) -> _Targets:
    """Return the labels of lists or sets. Raises ValueError as `_targets` does, and where no row has a label."""
    for row, labels in enumerate(rows):
        if not isinstance(labels, _LISTS):
            shown = escaped(repr(labels), 60)
            raise ValueError(f"{what}[{row}] is {shown}, not a list of labels as others; it may be empty")
    flat = [(row, label) for row, labels in enumerate(rows) for label in labels]
    if not flat:
        raise ValueError(f"{what} holds no label in all {len(rows):,} rows")
    _check_labels(flat, what)
    classes, _ = _classes(np.array([label for _, label in flat]))
    names = dict(zip(classes.tolist(), map(_name, classes.tolist()), strict=True))
    cells = [tuple(sorted({names[label] for label in labels})) for labels in rows]
    return _Targets(SeveralLabels, classes, tuple(names.values()), cells)


def _check_labels(labels: Iterable[tuple[int, Any]], what: str) -> None:
    """Raise ValueError for the first of these labels, given with their rows, that is missing, blank or of another type."""
    are_strings = None
    for row, label in labels:
        is_label = isinstance(label, str | int | float | np.generic) and label == label
        are_strings = isinstance(label, str) if are_strings is None else are_strings
        if not is_label or isinstance(label, str) != are_strings:
            shown = escaped(repr(label), 60)
            raise ValueError(f"{what}[{row}] is {shown}; all labels are strings, or all are whole numbers or bools")
        if isinstance(label, str) and not label.strip():
            raise ValueError(f"{what}[{row}] is {label!r}; a label must not be blank")


def _classes(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the different labels (C,), sorted, and the index of each of the labels (N,)."""
    check_classification_targets(labels)
    return np.unique(labels, return_inverse=True)


def _name(label: Any) -> str:
    """Return a label as `recur finetune` would read it from a file: "true" for True, "1" for 1.0."""
    if isinstance(label, bool):
        return str(label).lower()
    return str(int(label)) if isinstance(label, float) else str(label)


def _dev_cells(labels: Iterable[Any], targets: _Targets) -> Sequence[Cell]:
    """Return the cell of each dev row. Raises ValueError for a label that no training row has, and for another kind."""
    dev, known = _targets(labels, "dev labels"), {*targets.classes.tolist()}
    if dev.kind is not targets.kind:
        raise ValueError("labels and dev labels must both be one label a row, or both several")
    if is_multilabel(labels) and len(dev.classes) != len(targets.classes):
        raise ValueError(f"dev labels has {len(dev.classes):,} columns, and labels {len(targets.classes):,}")
    unknown = {name: label for label, name in zip(dev.classes.tolist(), dev.names, strict=True) if label not in known}
    for row, cell in enumerate(dev.cells):
        for name in labels_in(cell):
            if name in unknown:
                shown = escaped(repr(unknown[name]), 60)
                raise ValueError(f"dev labels[{row}] is {shown}, a label that no training row has")
    return dev.cells


def _numbers(numbers: Iterable[float], what: str) -> _Targets:
    """Return the numbers of rows, a list, an array, a Series or a table of one column. Raises ValueError for another value."""
    column = column_or_1d(numbers if hasattr(numbers, "shape") else list(numbers)).tolist()
    if not column:
        raise ValueError(f"{what} is empty")
    for row, number in enumerate(column):
        if not isinstance(number, int | float) or not math.isfinite(number):
            raise ValueError(f"{what}[{row}] is {escaped(repr(number), 60)}, not a finite number")
    return _Targets(Number, np.zeros(0), (), [*map(float, column)])


def _sample_weights(weights: Iterable[float] | None, rows: int) -> list[float]:
    """Return the weights of `rows` rows. Raises ValueError for another number of them, or one that is not above 0."""
    values = column_or_1d(np.ones(rows) if weights is None else weights, dtype=np.float64)
    if len(values) != rows:
        raise ValueError(f"{rows:,} texts have {len(values):,} weights; each needs one")
    if wrong := np.flatnonzero(~(np.isfinite(values) & (values > 0))).tolist():
        raise ValueError(f"sample_weight[{wrong[0]}] is {values[wrong[0]]:g}, not above 0; leave such a row out")
    return values.tolist()


def _split(texts: Rows, cells: Sequence[Cell], what: str, target: Target, weights: list[float] | None = None) -> Split:
    """Return texts and the cells of their labels as a split. Raises ValueError if their numbers differ, or all are blank."""
    rows = [as_pair(text, row, what) for row, text in enumerate(text_rows(texts))]
    if len(rows) != len(cells):
        raise ValueError(f"{len(rows):,} {what} have {len(cells):,} {target.label_noun}s; each needs one")
    for row, (_, second) in enumerate(rows):
        if (second is None) != (rows[0][1] is None):
            raise ValueError(f"{what}[{row}] and {what}[0] are a pair and a single text; give rows of one kind")
    if not any(text.strip() or (second or "").strip() for text, second in rows):
        raise ValueError(f"all {len(rows):,} {what} are blank")
    for row, pair in enumerate(rows):
        if any("\ud800" <= character <= "\udfff" for text in pair if text and not text.isascii() for character in text):
            raise ValueError(f"{what}[{row}] holds a lone surrogate, half of a character")
    return split_in_memory(((*row, cell) for row, cell in zip(rows, cells, strict=True)), weights, target)


def _write(files: Mapping[str, bytes], folder: Path) -> None:
    """Write the files of a run into `folder`, result.json last."""
    for name in sorted(files, key=lambda name: name == RESULT):
        write_atomically(folder / name, files[name])


class _PythonWarnings(Log):
    """Raises a Python warning (UserWarning) for each warning. `shown` receives the rest, and the logger all."""

    def __init__(self, shown: Log) -> None:
        self.shown, self.progress, self.scored_by = shown, shown.progress, shown.scored_by  # type: ignore[method-assign]

    def note(self, text: str) -> None:
        super().note(text)
        self.shown.note(text)

    def detail(self, text: str) -> None:
        super().detail(text)
        self.shown.detail(text)

    def warn(self, text: str) -> None:
        super().warn(text)
        package, level, frame = str(Path(__file__).parent), 1, currentframe()
        while frame is not None and frame.f_code.co_filename.startswith(package):
            level, frame = level + 1, frame.f_back
        warnings.warn(text, stacklevel=level)  # the line that calls `fit`


@contextlib.contextmanager
def _python_errors() -> Iterator[None]:
    """Turn errors of recur into ValueError and OSError, and hand a signal that stopped the block to its usual handler."""
    try:
        yield
    except Interrupted as stop:
        raise_signal(stop.signal)
        raise
    except StorageError as error:
        raise OSError(str(error)) from None
    except RecurError as error:
        raise ValueError(str(error)) from None
