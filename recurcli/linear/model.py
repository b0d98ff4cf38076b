"""The linear classifier on TF-IDF vectors of character and word n-grams.

It is the baseline that a trained encoder has to beat, and a part of a model with an ensemble. Shapes: N rows, V n-grams of the
vocabulary, C classes.
"""

import functools
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from recurcli.data.splits import RowHashes
from recurcli.errors import DataError, ModelError, StorageError, escaped, pluralize
from recurcli.events import Note
from recurcli.files import cached
from recurcli.linear.config import MAX_NGRAM, LinearConfig
from recurcli.linear.ngrams import (
    CHARACTERS_AT_ONCE,
    HASH_VERSION,
    OLDER_HASH_VERSION,
    OLDER_SECOND_TEXT,
    NgramConfig,
    Ngrams,
    Texts,
    Vectors,
    characters_read,
    ngram_sets,
    row_blocks,
)
from recurcli.linear.solvers import fit_sgd, fit_svc, needs_sgd

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

FORMAT = 8
"""Version of the fitting; the cache does not reuse models of another version."""
MAX_WEIGHTS = 100_000_000
"""Maximal number of weights, one for each n-gram and class. Ours: 0.4 GB, 0.8 GB while they are fitted."""
MAX_WEIGHT = 1e6
"""Largest weight that is read, far above any that is fitted; sums of such weights are finite."""
MAX_CHOICE_ROWS, MAX_CHOICE_CHARACTERS, MAX_CHOICE_WORK = 20_000, 6_000_000, 20_000_000
"""Cross-validation is made on at most this many training rows, characters x sets of n-grams, and values of the
vectors x classes. Ours: 10 s."""
NOT_IN_OLDER = ("second_text", "scheme", "found", "c", "cross_validation")
"""Tensors that the file of an older recur lacks."""
OLDER_C = 0.5
"""The C of an older recur."""
FOLDS = 3
C_GRID = tuple(2.0**power for power in range(-5, 4))
"""The values of LinearSVC's C among which cross-validation chooses. It starts at INITIAL_C."""
INITIAL_C = 0.5
MIN_CHOICE = 3
"""Rows for each class that cross-validation needs. Ours."""


@dataclass(frozen=True)
class Choice:
    """The n-grams, the solver and LinearSVC's C of a linear model."""

    ngrams: NgramConfig
    c: float
    solver: Literal["LinearSVC", "SGD"] | None = None
    """None: LinearSVC, or SGD on large data. SGD does not read C."""
    accuracy: float | None = None
    """Accuracy in cross-validation; None: nothing was chosen by it."""
    rows: int = 0
    """Number of training rows of the cross-validation."""


@dataclass(frozen=True)
class LinearModel:
    """One weight for each n-gram and class: logits = tfidf(text) W + b."""

    ngrams: Ngrams
    weights: NDArray[np.float32]
    """W (V, C)."""
    bias: NDArray[np.float32]
    """b (C,)."""
    rows: int
    """Number of training rows that were used."""

    distinct_ngrams: int = 0
    """Number of distinct n-grams of the training rows. The most frequent ones were kept."""
    choice: Choice = Choice(NgramConfig(), OLDER_C, "LinearSVC")
    """How it was fitted."""

    @classmethod
    def fit(cls, texts: Texts, targets: Sequence[int], num_classes: int, choice: Choice) -> "LinearModel":
        """Fit `choice` (squared hinge, one class against the rest) on TF-IDF vectors of `texts`.

        `targets` (N,) are class numbers. A class without a training row gets the logit UNSEEN. Raises DataError if all
        rows have one class, no text has an n-gram, or there would be more than MAX_WEIGHTS weights.
        """
        labels = np.asarray(targets)
        if len(np.unique(labels)) < 2:
            raise DataError("a linear model needs training rows of two classes")
        order = np.random.default_rng(0).permutation(len(texts))
        ngrams, vectors, distinct_ngrams = Ngrams.fit([texts[row] for row in order], choice.ngrams, num_classes)
        if not len(ngrams.keys):
            raise DataError("a linear model needs texts, and all training texts are empty")
        if (weights_needed := len(ngrams.keys) * num_classes) > MAX_WEIGHTS:
            sizes = f"{len(ngrams.keys):,} n-grams and {num_classes:,} classes"
            raise DataError(f"it would have {weights_needed:,} weights for {sizes}; at most {MAX_WEIGHTS:,} are fitted")
        matrix, labels = _matrix(vectors, len(ngrams.keys)), labels[order[: len(vectors.offsets) - 1]]
        solver = choice.solver or ("SGD" if needs_sgd(matrix.nnz, num_classes) else "LinearSVC")
        if solver == "SGD":
            weights, bias = fit_sgd(matrix, labels, num_classes)
        else:
            weights, bias = fit_svc(matrix, labels, num_classes, choice.c)
        return cls(ngrams, weights, bias, len(labels), distinct_ngrams, replace(choice, solver=solver))

    def facts(self) -> dict[str, Any]:
        """Return the facts for result.json: numbers of training rows and n-grams, the n-grams, the solver and its C."""
        config, choice = self.ngrams.config, self.choice
        return {
            "rows": self.rows,
            "ngrams": len(self.ngrams.keys),
            "characters": list(config.characters),
            "words": list(config.words),
            "across_words": config.across_words,
            "solver": choice.solver,
            "c": choice.c if choice.solver == "LinearSVC" else None,
            "cross_validation": None if choice.accuracy is None else {"accuracy": choice.accuracy, "rows": choice.rows},
        }

    def in_words(self, rows: int) -> str:
        """Describe the model in words: its n-grams, its solver, and how many of the `rows` training rows were used."""
        config, kept = self.ngrams.config, len(self.ngrams.keys)
        kinds = {"characters": config.characters, "words": config.words}
        sorts = " and ".join(f"{name} {low}-{high}" for name, (low, high) in kinds.items() if high)
        inside = "" if config.across_words else " inside words"
        ngrams = pluralize(kept, "n-gram", of=None if kept == self.distinct_ngrams else self.distinct_ngrams)
        used = pluralize(self.rows, "row", of=None if self.rows == rows else rows)
        sgd = self.choice.solver == "SGD"
        solver = "by SGD, since LinearSVC takes too long for so many" if sgd else f"C {self.choice.c:g}"
        return f"{ngrams} of {sorts}{inside} in {used}, {solver}"

    def logits(self, texts: Texts) -> NDArray[np.float64]:
        """Return the logits (N, C) of `texts`."""
        weights, logits = torch.from_numpy(self.weights), [np.zeros((0, len(self.bias)))]
        for block in row_blocks(texts, CHARACTERS_AT_ONCE):
            offsets, columns, values = self.ngrams.transform(block)
            bags = torch.from_numpy(offsets.astype(np.int32))
            sums = F.embedding_bag(
                torch.from_numpy(columns),
                weights,
                bags,
                mode="sum",
                per_sample_weights=torch.from_numpy(values),
                include_last_offset=True,
            )
            logits.append(sums.double().numpy() + self.bias)
        return np.concatenate(logits)

    def to_bytes(self) -> bytes:
        """Return the content of a safetensors file.

        The file calls the hash version `scheme`, and the number of distinct n-grams `found`, so that every recur reads it.
        """
        from safetensors.numpy import save

        config = self.ngrams.config
        tensors = {
            "keys": self.ngrams.keys,
            "idf": self.ngrams.weights,
            "weights": self.weights,
            "bias": self.bias,
            "ranges": np.array([config.characters, config.words], np.int64),
            "rows": np.array([self.rows], np.int64),
            "second_text": np.array([config.second_text], np.uint64),
            "scheme": np.array([config.hash_version, config.across_words], np.int64),
            "found": np.array([self.distinct_ngrams], np.int64),
            "c": np.array([0.0 if self.choice.solver == "SGD" else self.choice.c], np.float64),  # 0 stands for SGD
            "cross_validation": np.array([self.choice.accuracy or 0.0, self.choice.rows], np.float64),
        }
        return save(tensors)

    @classmethod
    def load(cls, path: Path) -> "LinearModel":
        """Read a file with the content of `to_bytes`. Raises ModelError for any other file."""
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        try:
            tensors = load_file(path)
            _check_tensors(tensors)
        except (SafetensorError, OSError, KeyError, ValueError, TypeError) as error:
            raise ModelError(f"{path}: is not a linear model of recur: {escaped(error)}") from None
        characters, words = (tuple(pair) for pair in tensors["ranges"].tolist())
        second_text = int(tensors["second_text"][0]) if "second_text" in tensors else OLDER_SECOND_TEXT
        hash_version, across_words = tensors.get("scheme", np.array([OLDER_HASH_VERSION, 1])).tolist()
        config = NgramConfig(
            characters=characters,
            words=words,
            across_words=bool(across_words),
            hash_version=hash_version,
            second_text=second_text,
        )
        accuracy, rows = tensors.get("cross_validation", np.zeros(2)).tolist()
        c = float(tensors.get("c", [OLDER_C])[0])
        choice = Choice(config, c, "LinearSVC" if c else "SGD", accuracy if rows else None, int(rows))
        ngrams = Ngrams(config, tensors["keys"], tensors["idf"])
        distinct = int(tensors.get("found", [len(ngrams.keys)])[0])
        return cls(ngrams, tensors["weights"], tensors["bias"], int(tensors["rows"][0]), distinct, choice)


def choose(texts: Texts, targets: Sequence[int], num_classes: int, config: LinearConfig) -> Choice:
    """Choose the n-grams and C that `config` leaves open by 3-fold cross-validation on at most MAX_CHOICE_ROWS rows.

    Rows of one side (see `RowHashes`) are in one fold. A larger set of n-grams is chosen where it is better than a smaller
    one by one standard error, with INITIAL_C; C after it. The largest set and INITIAL_C are chosen where the rows are too few,
    or the classes too many, to tell.
    """
    sets = list(dict.fromkeys(_with_given(ngrams, config) for ngrams in ngram_sets(texts)))
    first = INITIAL_C if config.c == "auto" else config.c
    if len(sets) == 1 and config.c != "auto":
        return Choice(sets[0], first)
    rows = _draw_rows(texts, MAX_CHOICE_CHARACTERS // len(sets))
    sample, labels = [texts[row] for row in rows], np.asarray(targets)[rows]
    matrices = []
    for ngrams in sets:
        vocabulary, vectors, _ = Ngrams.fit(sample, ngrams, num_classes)
        matrices.append(_matrix(vectors, len(vocabulary.keys)))
    work = max(matrix.nnz for matrix in matrices) * num_classes
    labels = labels[: int(len(labels) * min(1.0, MAX_CHOICE_WORK / max(1, work)))]
    numbers: dict[int, int] = {}
    sides = RowHashes.of(sample[: len(labels)]).sides.tolist()
    folds = np.array([numbers.setdefault(side, len(numbers)) for side in sides], np.int64) % FOLDS
    if (
        any(len(np.unique(labels[folds != fold])) < 2 for fold in range(FOLDS))
        or len(labels) < MIN_CHOICE * num_classes
    ):
        return Choice(sets[-1], first)

    @functools.cache
    def correct(number: int, c: float) -> NDArray[np.bool_]:
        return _cross_validated(matrices[number][: len(labels)], labels, folds, num_classes, c)

    best, c = 0, first
    for number in range(1, len(sets)):
        gain = correct(number, first).astype(int) - correct(best, first)
        if gain.sum() > np.sqrt(np.abs(gain).sum()):  # the standard error of the difference, in rows
            best = number
    share = len(labels) / len(texts)
    if config.c == "auto" and not needs_sgd(int(matrices[best][: len(labels)].nnz / share), num_classes):
        c = _choose_c(lambda c: correct(best, c))
    return Choice(sets[best], c, accuracy=float(correct(best, c).mean()), rows=len(labels))


def _draw_rows(texts: Texts, characters: int) -> NDArray[np.int64]:
    """Return the numbers of at most MAX_CHOICE_ROWS rows of so many `characters`, in random order."""
    rows = np.random.default_rng(1).permutation(len(texts))[:MAX_CHOICE_ROWS]
    ends = np.cumsum([characters_read(texts[row]) for row in rows])
    return rows[: max(1, int(np.searchsorted(ends, characters)))]


def _choose_c(correct: Callable[[float], NDArray[np.bool_]]) -> float:
    """Return C, from whether each row is `correct` with it: the smallest C that may be as good as the best.

    The search starts at INITIAL_C. It goes up, or else down, while the accuracy rises. Then it goes down while the accuracy is
    lower than the best by half a standard error at most. Half is ours, after the one-standard-error rule (Hastie, Tibshirani &
    Friedman, 2009, section 7.10). On 14 samples of six sets, half and one standard error have an accuracy on test rows of
    60.47, the best C of cross-validation 60.40, and INITIAL_C 60.12.
    """
    place = C_GRID.index(INITIAL_C)
    for step in (1, -1):
        while place + step in range(len(C_GRID)) and correct(C_GRID[place + step]).sum() > correct(C_GRID[place]).sum():
            place += step
        if place != C_GRID.index(INITIAL_C):
            break
    best = correct(C_GRID[place]).astype(int)
    while place:
        lost = best - correct(C_GRID[place - 1])
        if lost.sum() > np.sqrt(np.abs(lost).sum()) / 2:
            break
        place -= 1
    return C_GRID[place]


def _with_given(ngrams: NgramConfig, config: LinearConfig) -> NgramConfig:
    """Return the n-grams with what `config` gives in place of what it leaves open."""
    characters = ngrams.characters if config.characters == "auto" else config.characters or (0, 0)
    words = ngrams.words if config.words == "auto" else config.words or (0, 0)
    across = ngrams.across_words if config.across_words == "auto" else config.across_words
    return replace(ngrams, characters=characters, words=words, across_words=across or not characters[1])


def _cross_validated(
    vectors: "csr_matrix", labels: NDArray[np.int64], folds: NDArray[np.int64], num_classes: int, c: float
) -> NDArray[np.bool_]:
    """Return whether each row (N,) is classified rightly by a model of the other folds."""
    right = np.zeros(len(labels), bool)
    for fold in range(FOLDS):
        held_out = folds == fold
        weights, bias = fit_svc(vectors[~held_out], labels[~held_out], num_classes, c)
        right[held_out] = (vectors[held_out] @ weights + bias).argmax(axis=1) == labels[held_out]
    return right


def _matrix(vectors: Vectors, size: int) -> "csr_matrix":
    """Return the vectors (N, V) as SciPy's sparse rows."""
    from scipy.sparse import csr_matrix

    offsets, columns, values = vectors
    return csr_matrix((values, columns, offsets.astype(np.int32)), shape=(len(offsets) - 1, size))


def fit_linear_model(
    texts: Texts, targets: Sequence[int], num_classes: int, config: LinearConfig | None = None
) -> tuple[LinearModel | None, Note]:
    """Choose and fit the linear model on the training rows, or read it from the cache if it was fitted on these rows before.

    Returns None and the reason if the rows cannot be learned from. A cache that cannot be written, or is locked, is not used.
    """
    settings = config or LinearConfig()
    chosen = functools.partial(choose, texts, targets, num_classes, settings)
    model, note = _fit(texts, targets, num_classes, chosen, asdict(settings))
    if model is not None and model.choice.solver == "SGD" and settings.c != "auto":
        note = Note(f"{note.text}; linear.c has no effect on SGD")
    return model, note


def refit_linear_model(model: LinearModel, texts: Texts, targets: Sequence[int]) -> LinearModel:
    """Return a linear model of more rows, with the kinds of n-grams, the solver and C of `model`. It may come from the cache.

    A model that SGD fitted goes on with its vocabulary for one epoch of all rows, or of as many as fit in memory, drawn anew.

    Raises DataError as `LinearModel.fit` does.
    """
    if model.choice.solver == "SGD":
        order = np.random.default_rng(1).permutation(len(texts))
        vectors = model.ngrams.count_first([texts[row] for row in order])
        model.ngrams.weigh_all(vectors)
        labels = np.asarray(targets)[order[: len(vectors.offsets) - 1]]
        start = model.weights, model.bias
        weights, bias = fit_sgd(_matrix(vectors, len(model.ngrams.keys)), labels, len(model.bias), start)
        return replace(model, weights=weights, bias=bias, rows=len(labels))
    refitted, note = _fit(texts, targets, len(model.bias), lambda: model.choice, asdict(model.choice))
    if refitted is None:
        raise DataError(note.text)
    return refitted


def _fit(
    texts: Texts, targets: Sequence[int], num_classes: int, chosen: Callable[[], Choice], depends_on: dict[str, Any]
) -> tuple[LinearModel | None, Note]:
    """Return the linear model of these rows, from the cache if it is there, and a note on it."""
    fitted: list[LinearModel] = []
    digest = hashlib.sha256(repr((targets, num_classes, depends_on)).encode())
    for row in texts:
        digest.update(repr(row).encode())
    started = time.perf_counter()

    def fit() -> LinearModel:
        fitted.append(LinearModel.fit(texts, targets, num_classes, chosen()))
        return fitted[-1]

    def write(path: Path) -> dict[str, Any]:
        path.write_bytes(fit().to_bytes())
        return {}

    versions = [version(name) for name in ("scikit-learn", "numpy", "scipy")]
    note = ""
    try:
        try:
            path, _ = cached((FORMAT, versions, digest.hexdigest()), ".linear.safetensors", write, wait=False)
            model = fitted[0] if fitted else LinearModel.load(path)
        except (StorageError, ModelError) as error:
            model = fitted[0] if fitted else fit()
            note = f" (not cached: {error})"
    except DataError as error:
        return None, Note(f"no linear model beside the encoder: {error}")
    made = f"fitted in {time.perf_counter() - started:.1f} s{note}" if fitted else "from the cache"
    return model, Note(f"linear model: {model.in_words(len(texts))}, {made}")


def _check_tensors(tensors: Mapping[str, NDArray[Any]]) -> None:
    """Raise KeyError or ValueError if `tensors` have other types, shapes or values than those that are written.

    Their scores are then finite, and they need no more time than those of any other model.
    """
    size, classes = len(tensors["keys"].flat), len(tensors["bias"].flat)
    expected: dict[str, tuple[type, tuple[int, ...], float, float]] = {
        "keys": (np.uint64, (size,), 0, 2.0**64),
        "idf": (np.float32, (size,), 1e-3, MAX_WEIGHT),
        "weights": (np.float32, (size, classes), -MAX_WEIGHT, MAX_WEIGHT),
        "bias": (np.float32, (classes,), -MAX_WEIGHT, MAX_WEIGHT),
        "ranges": (np.int64, (2, 2), 0, MAX_NGRAM),
        "rows": (np.int64, (1,), 0, 2.0**63),
        "second_text": (np.uint64, (1,), 0, 2.0**64),
        "scheme": (np.int64, (2,), 0, HASH_VERSION),
        "found": (np.int64, (1,), 0, 2.0**63),
        "c": (np.float64, (1,), 0, MAX_WEIGHT),
        "cross_validation": (np.float64, (2,), 0, 2.0**63),
    }
    for name, (kind, shape, least, most) in expected.items():
        if name in NOT_IN_OLDER and name not in tensors:
            continue
        tensor = tensors[name]
        if tensor.dtype != kind or tensor.shape != shape:
            raise ValueError(f"{name} is {tensor.dtype} {tensor.shape}, not {np.dtype(kind)} {shape}")
        if not ((tensor >= least) & (tensor <= most)).all():  # NaN is neither
            raise ValueError(f"{name} has values that are not between {least:g} and {most:g}")
    if not (tensors["keys"][1:] > tensors["keys"][:-1]).all():
        raise ValueError("keys must ascend")
