"""A text classifier in the manner of scikit-learn: `fit` trains as `recur finetune` does, on rows in memory.

Shapes: N texts, C classes.
"""

import contextlib
import shutil
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from functools import cached_property
from inspect import currentframe
from pathlib import Path
from signal import raise_signal
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from recurcli.commands.finetune import finetune
from recurcli.config import DataConfig, LabelType
from recurcli.data.splits import Split, check_dev_rows, dev_share, draw_dev_rows, split_in_memory
from recurcli.data.tasks import task_named
from recurcli.device import own_random_state
from recurcli.display.screen import Screen
from recurcli.errors import Interrupted, RecurError, StorageError, escaped
from recurcli.evaluation.inference import Predictor, as_pair, text_rows
from recurcli.files import write_atomically
from recurcli.log import Log
from recurcli.models.data import RowsInMemory
from recurcli.preset import ResolvedPreset, compose
from recurcli.requests.training import FinetuneRequest
from recurcli.runs.run_directory import CONTENTS, RESULT
from recurcli.targets import OneLabel, Target

_KEYS_OF_ROWS = ("max_length", "truncate", "dev_seed", "dev_fraction", "max_dev_rows", "train_share", "extra_rows")
_KEYS_OF_FILES = {f"data.{field.name}" for field in fields(DataConfig) if field.name not in _KEYS_OF_ROWS}
"""Keys that a training on rows in memory does not read."""
Rows = Iterable[Any]
"""Texts or pairs of texts: a list, an array, a Series, or a table of one or two columns (see `text_rows`)."""


class TextClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Trains a preset on texts and labels in memory, as `recur finetune` does with a file of them.

    Without `dev` rows, `fit` draws them from the training rows as the command does. Pickling keeps the fitted model. `fit`
    raises ValueError for rows, settings or a preset that cannot be used, TypeError for a row that is not a text.
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
        self.preset = preset
        """The name of a preset, or a YAML file."""
        self.settings = settings
        """Maps a key of the preset, such as "finetuning.epochs", to its value."""
        self.seed = seed
        """The value of `runtime.seed`; None: the preset's."""
        self.init = init
        """The pretrained run to start from; None: random initial weights."""
        self.class_weight = class_weight
        """`finetuning.class_weights`: "balanced", or the weight of a label (1 where it has none); None: the preset's."""
        self.verbose = verbose
        """Whether `fit` prints notes and progress on stderr. Warnings are Python warnings (UserWarning) in any case."""

    def fit(
        self,
        texts: Rows,
        labels: Iterable[Any],
        sample_weight: Iterable[float] | None = None,
        *,
        dev: tuple[Rows, Iterable[Any]] | None = None,
    ) -> Self:
        """Train on `texts` (N) and `labels` (N): strings, whole numbers or bools. Returns the estimator.

        `sample_weight` (N,) are factors of the rows' losses in all parts of the model, times those of `class_weight`. `dev`
        holds the texts and labels that select the model; None: `data.dev_fraction` of the rows of each class.
        """
        with _python_errors(), contextlib.ExitStack() as stack:
            stack.callback(torch.set_num_threads, torch.get_num_threads())
            targets = _targets(labels, "labels")
            resolved = self._resolve({"data.labels": targets.known, **self._class_weights(targets)})
            target, weights = OneLabel(targets.known), _sample_weights(sample_weight, len(targets.names))
            rows = _split(texts, targets.names, "texts", target, weights)
            if dev is None:
                config = resolved.preset.data
                fraction = dev_share(task_named(resolved.preset.task), config, len(rows.examples))
                train, drawn = draw_dev_rows(rows, fraction, config.dev_seed)
                chosen = RowsInMemory(train, check_dev_rows(drawn, rows, "texts", fraction), targets.label_type)
            else:
                dev_rows = _split(dev[0], _dev_names(dev[1], targets), "dev texts", target)
                chosen = RowsInMemory(rows, dev_rows, targets.label_type)
            with TemporaryDirectory(prefix="recur-") as folder, own_random_state():
                run, init = Path(folder) / "run", None if self.init is None else Path(self.init)
                request = FinetuneRequest(preset=str(self.preset), output=run, init=init)
                with Screen(quiet=not self.verbose, metric=resolved.preset.finetuning.metric) as screen:
                    self.result_ = finetune(request, _PythonWarnings(screen), resolved, chosen)
                self._files = {name: (run / name).read_bytes() for name in CONTENTS if (run / name).is_file()}
            self.classes_ = targets.classes
            self.__dict__.pop("_predictor", None)
        return self

    def predict(self, texts: Rows, *, fast: bool = False) -> np.ndarray:
        """Return the label of each text (N,), of the type that `fit` was given.

        `fast` takes the linear model of an ensemble alone. Raises TypeError or ValueError for what is neither a text nor a pair
        of texts, with its row from 0. Raises ValueError with `fast` if the model has no linear model.
        """
        predictor = self._chosen(fast=fast)
        return self.classes_[predictor.kept.predict(predictor.logits(texts))]

    def predict_proba(self, texts: Rows, *, fast: bool = False) -> np.ndarray:
        """Return the probabilities (N, C) of the classes in the order of `classes_`. Raises as `predict` does."""
        predictor = self._chosen(fast=fast)
        return predictor.kept.probabilities(predictor.logits(texts))

    def save(self, path: str | Path) -> None:
        """Write the run directory of the fitted model, for `recurcli.load` and for `recur predict`.

        Raises FileExistsError if `path` exists. If it fails, it leaves no folder.
        """
        check_is_fitted(self, "classes_")
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
        check_is_fitted(self, "classes_")
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

    def _class_weights(self, targets: "_Targets") -> dict[str, Any]:
        """Return `class_weight` as a key of the preset, which `finetune` checks."""
        given: Any = self.class_weight
        if not isinstance(given, Mapping):
            return {} if given is None else {"finetuning.class_weights": given}
        names = dict(zip(targets.classes.tolist(), targets.known, strict=True))
        weights = {names.get(label, str(label)): float(weight) for label, weight in given.items()}
        return {"finetuning.class_weights": weights}

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


class _Targets(NamedTuple):
    """The different labels (C,), sorted, with their names in the run (C), and the names of the rows' labels (N)."""

    classes: np.ndarray
    known: tuple[str, ...]
    names: list[str]

    @property
    def label_type(self) -> LabelType:
        """Python's type of the labels."""
        known: dict[str, LabelType] = {"int": "int", "float": "float", "bool": "bool"}
        return known.get(type(self.classes.tolist()[0]).__name__, "str")


def _targets(labels: Iterable[Any], what: str) -> _Targets:
    """Return the classes of `labels`. Raises ValueError for a missing or blank label, for mixed types and a single class."""
    values = column_or_1d(_plain(labels, what))
    if not len(values):
        raise ValueError(f"{what} is empty; a classifier needs rows of two classes or more")
    check_classification_targets(values)
    classes, indexes = np.unique(values, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"{what} holds only {classes.tolist()[0]!r} in all {len(values):,} rows; it needs two classes")
    known = tuple(map(_name, classes.tolist()))
    return _Targets(classes, known, [known[index] for index in indexes])


def _plain(labels: Iterable[Any], what: str) -> np.ndarray:
    """Return `labels`, a list, an array, a Series or a table of one column, as an array of strings, numbers or bools."""
    shape: tuple[int, ...] = getattr(labels, "shape", ())
    if len(shape) > 1:
        if len(shape) > 2 or shape[1] != 1:
            raise ValueError(f"{what} has the shape {shape}; it must be one column, with one label for each row")
        labels = np.asarray(labels)[:, 0]
    listed = labels if hasattr(labels, "dtype") else list(labels)
    each = listed if isinstance(listed, list) else np.asarray(listed, dtype=object).tolist()
    for row, label in enumerate(each):
        is_label = isinstance(label, str | int | float | np.generic) and label == label
        if not is_label or isinstance(label, str) != isinstance(each[0], str):
            shown = escaped(repr(label), 60)
            raise ValueError(f"{what}[{row}] is {shown}; all labels are strings, or all are whole numbers or bools")
        if isinstance(label, str) and not label.strip():
            raise ValueError(f"{what}[{row}] is {label!r}; a label must not be blank")
    return np.asarray(listed)


def _name(label: Any) -> str:
    """Return a label as `recur finetune` would read it from a file: "true" for True, "1" for 1.0."""
    if isinstance(label, bool):
        return str(label).lower()
    return str(int(label)) if isinstance(label, float) else str(label)


def _dev_names(labels: Iterable[Any], targets: _Targets) -> list[str]:
    """Return the name of each dev row's class. Raises ValueError for a label that no training row has."""
    names = dict(zip(targets.classes.tolist(), targets.known, strict=True))
    values = _plain(labels, "dev labels").tolist()
    for row, label in enumerate(values):
        if label not in names:
            raise ValueError(f"dev labels[{row}] is {escaped(repr(label), 60)}, a label that no training row has")
    return [names[label] for label in values]


def _sample_weights(weights: Iterable[float] | None, rows: int) -> list[float]:
    """Return the weights of `rows` rows. Raises ValueError for another number of them, or one that is not above 0."""
    values = column_or_1d(np.ones(rows) if weights is None else weights, dtype=np.float64)
    if len(values) != rows:
        raise ValueError(f"{rows:,} texts have {len(values):,} weights; each needs one")
    if wrong := np.flatnonzero(~(np.isfinite(values) & (values > 0))).tolist():
        raise ValueError(f"sample_weight[{wrong[0]}] is {values[wrong[0]]:g}, not above 0; leave such a row out")
    return values.tolist()


def _split(texts: Rows, names: list[str], what: str, target: Target, weights: list[float] | None = None) -> Split:
    """Return texts and the names of their classes as a split. Raises ValueError if their numbers differ, or all are blank."""
    rows = [as_pair(text, row, what) for row, text in enumerate(text_rows(texts))]
    if len(rows) != len(names):
        raise ValueError(f"{len(rows):,} {what} have {len(names):,} labels; each needs one")
    for row, (_, second) in enumerate(rows):
        if (second is None) != (rows[0][1] is None):
            raise ValueError(f"{what}[{row}] and {what}[0] are a pair and a single text; give rows of one kind")
    if not any(text.strip() or (second or "").strip() for text, second in rows):
        raise ValueError(f"all {len(rows):,} {what} are blank")
    for row, pair in enumerate(rows):
        if any("\ud800" <= character <= "\udfff" for text in pair if text and not text.isascii() for character in text):
            raise ValueError(f"{what}[{row}] holds a lone surrogate, half of a character")
    return split_in_memory(((*row, name) for row, name in zip(rows, names, strict=True)), weights, target)


def _write(files: Mapping[str, bytes], folder: Path) -> None:
    """Write the files of a run into `folder`, result.json last."""
    for name in sorted(files, key=lambda name: name == RESULT):
        write_atomically(folder / name, files[name])


class _PythonWarnings(Log):
    """Raises a Python warning (UserWarning) for each warning. `shown` receives the rest."""

    def __init__(self, shown: Log) -> None:
        self.note, self.progress = shown.note, shown.progress  # type: ignore[method-assign]
        self.scored_by = shown.scored_by  # type: ignore[method-assign]

    def warn(self, text: str) -> None:
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
