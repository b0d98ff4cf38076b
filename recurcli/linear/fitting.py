"""Fits the linear model: two solvers, cross-validation of n-grams and C, and the cache of fitted models.

The solver is that of the target (`Target.linear_solver`), for few rows from their Gram matrix (`inner_products`), or stochastic
gradient descent for data on which that takes too long. All minimize one loss, so their logits have one scale. Shapes: N rows, V
n-grams of the vocabulary, C logits of a row.
"""

import functools
import hashlib
import time
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from recurcli.cache import cached
from recurcli.config import LinearConfig
from recurcli.data.splits import RowHashes
from recurcli.errors import DataError, ModelError, StorageError
from recurcli.linear.ensemble import fit_calibration
from recurcli.linear.features import Vectors, characters_read, row_blocks
from recurcli.linear.inner_products import GRADIENT_NORM_OF_CHOICE, MAX_ROWS, fit_on_parts, gram_matrix, pays
from recurcli.linear.model import Hyperparameters, LinearModel
from recurcli.linear.ngram_hashes import NgramConfig, Texts
from recurcli.linear.ngrams import MAX_COUNTED, MAX_VALUES, Ngrams, ngram_sets
from recurcli.linear.static_vectors import StaticVectors, read_static_vectors
from recurcli.log import Log
from recurcli.process import return_freed_memory
from recurcli.targets import Target
from recurcli.targets.target import LinearWeights, RowWeights, Y

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

SVC_WORK, SVC_VALUES = 150_000_000, 15_000_000
"""LinearSVC fits at most this many values of the vectors x classes, and values. Ours: 15 s and 0.5 GB."""
SGD_WORK = 1_600_000_000
"""Values x classes x epochs of SGD. Ours: 10 s."""
MAX_EPOCHS = 3
LEARNING_RATE = 0.2
"""Ours: with it SGD is about as accurate as LinearSVC."""
BATCH_SIZE = 32
BLOCK_SIZE = 32 * BATCH_SIZE
"""Rows whose features are made at once, and that follow each other in each epoch of SGD."""
CENTERED_ROWS = 4096
"""Rows whose mean is subtracted from static vectors in SGD."""
FORMAT = 21
"""Version of the fitting; the cache does not reuse models of another version."""
MAX_CHOICE_ROWS, MAX_CHOICE_CHARACTERS, MAX_CHOICE_WORK = MAX_ROWS, 3_000_000, 20_000_000
"""Cross-validation is made on at most this many training rows, characters x sets of n-grams, and values of the
vectors x classes. Ours: 5 s."""
FOLDS = 3
C_GRID = tuple(2.0**power for power in range(-5, 4))
"""The values of C among which cross-validation chooses. It starts at INITIAL_C."""
INITIAL_C = 0.5
SCALES = (1.0, 0.5, 0.25, 2.0, 0.0)
"""The norms of static vectors among which cross-validation chooses, the likeliest first. Ours: presets/RESULTS.md."""
MAX_DOUBLINGS = 2.0
"""Losses are extrapolated to at most four times the rows; beyond, the differences between them would be noise [ours]."""
MIN_CHOICE = 3
"""Rows for each class that cross-validation needs; numbers count as two classes. Ours."""


@dataclass(frozen=True)
class _InOrder(Sequence[tuple[str, str | None]]):
    """The rows of `texts` at the places `order` (N,)."""

    texts: Texts
    order: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, row: Any) -> Any:
        places = self.order[row]
        return [self.texts[place] for place in places] if isinstance(row, slice) else self.texts[places]


SomeRows = Callable[[slice], tuple["csr_matrix", NDArray[np.float32]]]
"""Returns the vectors (n, V) and the features (n, F) of a slice of the rows; with F = 0 there are no static vectors."""


def needs_sgd(values: int, width: int, dense: int = 0) -> bool:
    """Return whether LinearSVC would take too long, or too much memory, for vectors with this many values.

    Of `dense` further values, those of static vectors, three take the time of one [ours].
    """
    work = (values + dense // 3) * (1 if width == 2 else width)
    return values + dense > SVC_VALUES or work > SVC_WORK


def fit_sgd(
    rows: SomeRows,
    order: NDArray[np.int64],
    y: Y,
    target: Target,
    start: LinearWeights | None = None,
    row_weights: RowWeights = None,
) -> LinearWeights:
    """Fit by SGD on batches of rows, which are in random order; the learning rate falls to 0.

    `order` (n,) are the places of their labels and factors in `y` (N,) and `row_weights` (N,).

    The order of the blocks of batches is drawn in each epoch; fewer epochs are made of larger data. From the weights `start`,
    which are changed in place, one epoch is made, at half the learning rate. The weights of the features are after those of the
    n-grams. The features' mean is subtracted, and no batch moves their weights further along one direction than a single row
    would: without that the steps of a batch's rows, which have much in common, add up.
    """
    from scipy.sparse._sparsetools import csc_matvecs, csr_matvecs  # they add to an array in place, as `@` does not

    return_freed_memory()  # that of the vocabulary
    count = len(order)
    vectors, features = rows(slice(0, min(CENTERED_ROWS, count)))
    center, size, width = features.mean(axis=0), vectors.shape[1], target.width
    values = vectors.nnz / len(features) * count
    epochs, rate = max(1, min(MAX_EPOCHS, int(SGD_WORK / max(1, values * width)))), LEARNING_RATE
    if start is None:
        start = np.zeros((size + len(center), width), np.float32), np.zeros(width, np.float32)
    else:
        epochs, rate = 1, LEARNING_RATE / 2
    weights, bias = start
    flat, of_features = weights.reshape(-1), weights[size:]
    bias += center @ of_features
    drawn, done = np.random.default_rng(0), 0
    for begin in chain.from_iterable(drawn.permutation(range(0, count, BLOCK_SIZE)) for _ in range(epochs)):
        block = slice(begin, min(begin + BLOCK_SIZE, count))
        vectors, features = rows(block)
        labels, of_rows = y[order[block]], None if row_weights is None else row_weights[order[block]]
        features = features - center
        largest = _largest_eigenvalues(features).clip(min=1)
        for number, first in enumerate(range(0, len(features), BATCH_SIZE)):
            own = features[first : first + BATCH_SIZE]
            bags, place = vectors.indptr[first : first + len(own) + 1], slice(first, first + len(own))
            logits = own @ of_features + bias
            csr_matvecs(len(own), size, width, bags, vectors.indices, vectors.data, flat, logits.reshape(-1))
            factors = None if of_rows is None else of_rows[place]
            step = target.linear_loss_gradient(logits, labels[place], factors) * -rate * (1 - done / (epochs * count))
            step = step.astype(np.float32)
            csc_matvecs(size, len(own), width, bags, vectors.indices, vectors.data, step.reshape(-1), flat)
            of_features += own.T @ (step / largest[number])
            bias += np.float32(0.1) * step.sum(axis=0)
            done += len(own)
    bias -= center @ of_features
    return weights, target.default_bias(bias, y[order])


def _largest_eigenvalues(features: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return an upper bound of the largest eigenvalue of the Gram matrix of each batch of rows of `features` (N, F).

    It is the Frobenius norm of the matrix's eighth power, which is above by a quarter at most.
    """
    count = -(-len(features) // BATCH_SIZE)
    padded = np.zeros((count * BATCH_SIZE, features.shape[1]), np.float32)
    padded[: len(features)] = features
    batches = padded.reshape(count, BATCH_SIZE, features.shape[1])
    powers = batches @ batches.swapaxes(1, 2)
    traces = np.maximum(np.trace(powers, axis1=1, axis2=2), np.float32(1e-12))
    powers /= traces[:, None, None]
    for _ in range(3):
        powers = powers @ powers
    return traces * np.linalg.norm(powers, axis=(1, 2)) ** np.float32(1 / 8)


def fit_model(
    texts: Texts,
    y: Y,
    target: Target,
    hyperparameters: Hyperparameters,
    row_weights: RowWeights = None,
    *,
    all_rows: bool = False,
) -> LinearModel:
    """Fit a model with `hyperparameters` on TF-IDF vectors of `texts`, whose labels are `y`.

    `row_weights` (N,) are factors of the rows' losses; None: 1. Of more rows than can be kept as vectors some are drawn. With
    `all_rows` SGD makes their vectors anew in each epoch. Raises DataError if the target cannot be learned from these rows
    (`Target.linear_obstacle`), or no text has an n-gram.
    """
    if needed := target.linear_obstacle(y):
        raise DataError(f"a linear model needs {needed}")
    return_freed_memory()  # that of the choice
    order = np.random.default_rng(0).permutation(len(texts))
    shuffled = _InOrder(texts, order)
    most = MAX_COUNTED if all_rows else None  # what is made anew needs no memory
    ngrams, vectors, distinct_ngrams = Ngrams.fit(shuffled, hyperparameters.ngrams, target.width, most)
    if not len(ngrams.keys):
        raise DataError("a linear model needs n-grams, and no training text has one")
    count, scale, static, solver = len(vectors.offsets) - 1, hyperparameters.vector_scale, None, hyperparameters.solver
    if hyperparameters.vectors is not None and scale:
        static = read_static_vectors(hyperparameters.vectors)
    if all_rows and count < len(order):
        count, solver, rows = len(order), "SGD", _rows_made_anew(ngrams, static, scale, shuffled)
        del vectors
    else:
        matrix, features = (
            _matrix(vectors, len(ngrams.keys)),
            _scaled_features(static, shuffled[:count], scale),
        )
        further = count * features(slice(0, 1)).shape[1]
        solver = solver or ("SGD" if needs_sgd(matrix.nnz, target.width, further) else target.linear_solver)

        def rows(part: slice) -> tuple["csr_matrix", NDArray[np.float32]]:
            return matrix[part], features(part)

    order = order[:count]
    if solver == "SGD":
        weights, bias = fit_sgd(rows, order, y, target, row_weights=row_weights)
    else:
        own = None if row_weights is None else row_weights[order]
        weights, bias = _fit_linear(*rows(slice(None)), scale, y[order], target, hyperparameters.c, own)
    found = replace(hyperparameters, solver=solver)
    if static is None:
        found = replace(found, vectors=None, vector_scale=0.0)
    model = LinearModel(ngrams, weights[: len(ngrams.keys)], bias, count, distinct_ngrams, found)
    return (
        model if static is None else replace(model, vectors=static, vector_weights=scale * weights[len(ngrams.keys) :])
    )


def _fit_linear(
    vectors: "csr_matrix",
    features: NDArray[np.float32],
    scale: float,
    y: Y,
    target: Target,
    c: float,
    row_weights: RowWeights,
) -> LinearWeights:
    """Return the weights of the `vectors` (N, V), and after them those of the `features` (N, F), whose norm is `scale`."""
    if not pays(len(y), vectors.nnz, features.shape[1], scale, 1 if target.width == 2 else target.width):
        from scipy.sparse import csr_matrix, hstack

        every = (
            hstack([vectors, csr_matrix(features)], format="csr", dtype=np.float32) if features.shape[1] else vectors
        )
        return target.fit_linear(every, y, c, row_weights)
    products = gram_matrix(vectors) + features @ features.T
    coefficients, bias, _ = fit_on_parts(products, y, target, c, row_weights, np.ones((1, len(y)), bool))
    return np.concatenate([part.T @ coefficients[0].T for part in (vectors, features)]), bias[0]


def _scaled_features(
    static: StaticVectors | None, texts: Texts, scale: float
) -> Callable[[slice], NDArray[np.float32]]:
    """Return a function that returns `scale` times the features (n, F) of a slice of `texts`, of which only tokens are kept."""
    if static is None:
        none = np.zeros((len(texts), 0), np.float32)
        return lambda rows: none[rows]
    tokens = static.tokenize(texts)
    return lambda rows: np.float32(scale) * static.features(tokens, rows)


def _rows_made_anew(ngrams: Ngrams, static: StaticVectors | None, scale: float, texts: Texts) -> SomeRows:
    """Return a function that makes vectors and features of a slice of `texts`, and keeps none."""
    from scipy.sparse import vstack

    def rows(part: slice) -> tuple["csr_matrix", NDArray[np.float32]]:
        own = texts[part]
        vectors = [_matrix(ngrams.transform(block), len(ngrams.keys)) for block in row_blocks(own)]
        return vstack(vectors, format="csr"), _scaled_features(static, own, scale)(slice(None))

    return rows


def search_hyperparameters(
    texts: Texts,
    y: Y,
    target: Target,
    config: LinearConfig,
    row_weights: RowWeights = None,
    ids: Sequence[str] | Sequence[int] | None = None,
) -> Hyperparameters:
    """Choose the n-grams and C that `config` leaves open by 3-fold cross-validation on at most MAX_CHOICE_ROWS rows.

    Rows of one group (see `RowHashes`) are in one fold. So are rows with equal `ids` (N,), a row and its extra rows. The set of
    n-grams is the one with the lowest loss of held-out rows, with INITIAL_C; C is chosen last. The rows' losses have
    the factors `row_weights` (N,). Each candidate has one temperature, fitted on the same rows: LinearSVC's logits are no
    log-probabilities. Where the choice has fewer rows than the fit, the loss of each set is extrapolated to all rows, along
    the logarithm of their number, from models of one fold and of two. Ours: with 1,500 reviews of IMDb the loss is lower with
    characters, with 5,000 without. The largest set and INITIAL_C are chosen where the rows are too few, or the classes too
    many, to tell. The vocabulary and the inverse document frequencies are those of all folds; they read no labels.

    The scale of static vectors is chosen after the n-grams, and C beside it, on fewer rows where the classes are many, since
    each row then has F values more. It is 1 where the rows are too few to tell.
    """
    sets = list(dict.fromkeys(_with_given(ngrams, config) for ngrams in ngram_sets(texts)))
    first = INITIAL_C if config.c == "auto" else config.c
    static = None if config.vectors is None else read_static_vectors(config.vectors)
    scale = (1.0 if config.vector_scale == "auto" else config.vector_scale) if static else 0.0
    unchosen = functools.partial(Hyperparameters, vectors=config.vectors, vector_scale=scale)
    if len(sets) == 1 and config.c != "auto" and (static is None or config.vector_scale != "auto"):
        return unchosen(sets[0], first)
    rows = np.random.default_rng(1).permutation(len(texts))[:MAX_CHOICE_ROWS]
    ends = np.cumsum([characters_read(texts[row]) for row in rows])
    rows = rows[: max(1, int(np.searchsorted(ends, MAX_CHOICE_CHARACTERS // len(sets))))]
    sample, labels = [texts[row] for row in rows], y[rows]
    matrices = {}
    for ngrams in sets:
        vocabulary, vectors, _ = Ngrams.fit(sample, ngrams, target.width)
        if len(vocabulary.keys):
            matrices[ngrams] = _matrix(vectors, len(vocabulary.keys))
    if not matrices:
        return unchosen(sets[-1], first)
    work = max(matrix.nnz for matrix in matrices.values()) * target.width
    labels = labels[: int(len(labels) * min(1.0, MAX_CHOICE_WORK / max(1, work)))]
    own_ids = None if ids is None else [ids[row] for row in rows[: len(labels)]]
    folds = _draw_folds(sample[: len(labels)], own_ids)

    def can_tell(rows: int) -> bool:
        """Return whether the first `rows` rows are enough, and each fold's model can be fitted on the others."""
        fitted = (labels[:rows][folds[:rows] != fold] for fold in range(FOLDS))
        return rows >= MIN_CHOICE * max(2, target.width) and not any(map(target.linear_obstacle, fitted))

    if not can_tell(len(labels)):
        return unchosen([*matrices][-1], first)
    factors = np.ones(len(labels)) if row_weights is None else row_weights[rows[: len(labels)]]
    every, few = len(labels), 0  # the rows of a choice, without and with static vectors
    if static is not None:
        values = max(matrix.nnz for matrix in matrices.values()) / len(sample)
        values += static.features(static.tokenize(sample[:1])).shape[1]
        few = min(every, int(MAX_CHOICE_WORK / (values * target.width)))
        features = static.features(static.tokenize(sample[:few]))

    @functools.lru_cache(maxsize=2)  # 64 MB each
    def products_of(ngrams: NgramConfig | None) -> NDArray[np.float32]:
        """Return the inner products of the rows: of their n-grams, or of the static vectors for None."""
        return features @ features.T if ngrams is None else gram_matrix(matrices[ngrams][:every])

    @functools.cache
    def held_out_losses(
        ngrams: NgramConfig, c: float, scale: float, rows: int, fitted_folds: int
    ) -> tuple[NDArray[np.float64], float]:
        """Return the loss of each row (N,) by a model of the folds after its own, times its factor; and the headline metric."""
        logits, own, weights_of_rows = np.empty((rows, target.width)), labels[:rows], factors[:rows]
        distances = (folds[:rows] - np.arange(FOLDS)[:, None] - 1) % FOLDS
        fitted, held_out = distances < fitted_folds, distances == FOLDS - 1
        products = products_of(ngrams)[:rows, :rows]
        if scale:
            products = products + np.float32(scale**2) * products_of(None)[:rows, :rows]
        found = fit_on_parts(products, own, target, c, weights_of_rows, fitted, GRADIENT_NORM_OF_CHOICE)[2]
        for fold in range(FOLDS):
            logits[held_out[fold]] = found[fold].T[held_out[fold]]
        logits *= fit_calibration(logits, own, target, 1.0, weights_of_rows)
        losses = weights_of_rows * target.losses_and_gradient(logits, own)[0]
        return losses, target.score(target.headline, own, target.decide(target.probabilities(logits)))

    def expected_losses(ngrams: NgramConfig, scale: float, rows: int) -> NDArray[np.float64]:
        """Return the losses (N,) that are expected of a model of all rows."""
        losses = held_out_losses(ngrams, c, scale, rows, FOLDS - 1)[0]
        of_folds = (labels[:rows][folds[:rows] == fold] for fold in range(FOLDS))
        if rows == len(texts) or any(map(target.linear_obstacle, of_folds)):
            return losses
        doublings = min(MAX_DOUBLINGS, np.log2(len(texts) / rows))
        return losses + doublings * (losses - held_out_losses(ngrams, c, scale, rows, 1)[0])

    def choose_c(scale: float, rows: int) -> float:
        further = features.shape[1] * len(texts) if scale else 0
        if config.c != "auto" or needs_sgd(int(matrices[best].nnz / len(sample) * len(texts)), target.width, further):
            return c
        return _choose_c(lambda c: held_out_losses(best, c, scale, rows, FOLDS - 1)[0])

    best, c, rows_used = next(iter(matrices)), first, every
    if len(matrices) > 1:
        best = min(matrices, key=lambda ngrams: expected_losses(ngrams, 0.0, every).mean())
    if scale and not can_tell(few):
        return unchosen(best, choose_c(0.0, every))
    if scale:
        rows_used = few
        if config.vector_scale == "auto":
            scale = _choose_scale(lambda scale: expected_losses(best, scale, few))
            rows_used = few if scale else every
    c = choose_c(scale, rows_used)
    score = held_out_losses(best, c, scale, rows_used, FOLDS - 1)[1]
    return replace(unchosen(best, c), vector_scale=scale, score=score, rows=rows_used)


def _draw_folds(texts: Texts, ids: Sequence[str] | Sequence[int] | None) -> NDArray[np.int64]:
    """Return the fold of each row (N,). Rows of one group, and rows with equal `ids`, are in one fold, directly or by others.

    Where that joins more than a fold's share of the rows, as extra rows with few different texts do, equal ids alone count.
    """
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    _, groups = np.unique(RowHashes.of(texts).group_ids, return_inverse=True)
    if ids is not None:
        _, sources = np.unique(ids, return_inverse=True)
        nodes = int(groups.max()) + int(sources.max()) + 2
        edges = (np.ones(len(groups)), (groups, groups.max() + 1 + sources))
        joined = connected_components(coo_matrix(edges, shape=(nodes, nodes)), directed=False)[1][groups]
        groups = joined if FOLDS * np.bincount(joined).max() <= len(joined) else sources
    numbers: dict[int, int] = {}
    return np.array([numbers.setdefault(group, len(numbers)) for group in groups.tolist()], np.int64) % FOLDS


def _choose_c(losses: Callable[[float], NDArray[np.float64]]) -> float:
    """Return C, from the `losses` (N,) of held-out rows with each: the smallest C that may be as good as the best.

    The search starts at INITIAL_C. It goes up, or else down, while the mean loss falls. Then it goes down while the mean is
    higher than the lowest by one standard error of the rows' differences at most (Hastie, Tibshirani & Friedman, 2009, section
    7.10). presets/RESULTS.md has rules beside each other.
    """
    place = C_GRID.index(INITIAL_C)
    for step in (1, -1):
        while place + step in range(len(C_GRID)) and losses(C_GRID[place + step]).sum() < losses(C_GRID[place]).sum():
            place += step
        if place != C_GRID.index(INITIAL_C):
            break
    best = losses(C_GRID[place])
    while place:
        lost = losses(C_GRID[place - 1]) - best
        if lost.mean() > lost.std() / len(lost) ** 0.5:
            break
        place -= 1
    return C_GRID[place]


def _choose_scale(losses: Callable[[float], NDArray[np.float64]]) -> float:
    """Return the first of SCALES whose mean of `losses` (N,) is above the lowest by one standard error of the rows'
    differences at most.
    """
    best = losses(min(SCALES, key=lambda scale: float(losses(scale).mean())))
    for scale in SCALES:
        lost = losses(scale) - best
        if lost.mean() <= lost.std() / len(lost) ** 0.5:
            break
    return scale


def _with_given(ngrams: NgramConfig, config: LinearConfig) -> NgramConfig:
    """Return the n-grams with what `config` gives in place of what it leaves open."""
    characters = ngrams.characters if config.characters == "auto" else config.characters or (0, 0)
    words = ngrams.words if config.words == "auto" else config.words or (0, 0)
    across = ngrams.across_words if config.across_words == "auto" else config.across_words
    return replace(ngrams, characters=characters, words=words, across_words=across or not characters[1])


def _matrix(vectors: Vectors, size: int) -> "csr_matrix":
    """Return the vectors (N, V) as SciPy's sparse rows."""
    from scipy.sparse import csr_matrix

    offsets, columns, values = vectors
    return csr_matrix((values, columns, offsets.astype(np.int32)), shape=(len(offsets) - 1, size))


def fit_linear_model(
    texts: Texts,
    y: Y,
    target: Target,
    log: Log,
    config: LinearConfig | None = None,
    row_weights: RowWeights = None,
    ids: Sequence[str] | Sequence[int] | None = None,
) -> LinearModel:
    """Choose and fit the linear model on the training rows, or read it from the cache if it was fitted on these rows before.

    `row_weights` (N,) are factors of the rows' losses; None: 1. `ids` (N,): see `search_hyperparameters`; None: all differ.
    Raises DataError if the rows cannot be learned from. A cache that cannot be written, or is locked, is not used.
    """
    settings = config or LinearConfig()
    if ids is not None and len(set(ids)) == len(ids):
        ids = None
    choose = functools.partial(search_hyperparameters, texts, y, target, settings, row_weights, ids)
    depends_on = {**asdict(settings), "ids": ids and list(ids)}
    model, words = _fit(texts, y, target, choose, depends_on, row_weights, settings.all_rows)
    if model.hyperparameters.solver == "SGD" and settings.c != "auto":
        words += "; linear.c has no effect on SGD"
    log.detail(words)
    return model


def refit_linear_model(
    model: LinearModel, texts: Texts, y: Y, target: Target, row_weights: RowWeights = None, *, all_rows: bool = False
) -> LinearModel:
    """Return a linear model of more rows, with the kinds of n-grams, the solver and C of `model`. It may come from the cache.

    A model that SGD fitted goes on with its vocabulary for one epoch of `all_rows`, or of as many as have about MAX_VALUES
    n-grams, drawn anew. Raises DataError as `fit_model` does.
    """
    if model.hyperparameters.solver == "SGD":
        order = np.random.default_rng(1).permutation(len(texts))
        scale, size, parts = model.hyperparameters.vector_scale, len(model.ngrams.keys), [model.weights]
        if model.vector_weights is not None:
            parts.append(model.vector_weights / scale)
        rows = _rows_made_anew(model.ngrams, model.vectors, scale, _InOrder(texts, order))
        if not all_rows:
            some = rows(slice(0, CENTERED_ROWS))[0]
            order = order[: int(MAX_VALUES * some.shape[0] / max(1, some.nnz))]
        weights, bias = fit_sgd(rows, order, y, target, (np.concatenate(parts), model.bias.copy()), row_weights)
        of_vectors = None if model.vectors is None else scale * weights[size:]
        return replace(model, weights=weights[:size], bias=bias, rows=len(order), vector_weights=of_vectors)
    known = model.hyperparameters
    return _fit(texts, y, target, lambda: known, {**asdict(known), "all_rows": all_rows}, row_weights, all_rows)[0]


def _fit(
    texts: Texts,
    y: Y,
    target: Target,
    choose: Callable[[], Hyperparameters],
    depends_on: dict[str, Any],
    row_weights: RowWeights,
    all_rows: bool,
) -> tuple[LinearModel, str]:
    """Return the linear model of these rows, from the cache if it is there, and the words for a note. Raises DataError."""
    fitted: list[LinearModel] = []
    fit = functools.partial(fit_model, texts, y, target, row_weights=row_weights, all_rows=all_rows)
    digest = hashlib.sha256(repr((y.shape, target, depends_on)).encode() + y.tobytes())
    for row in texts:
        digest.update(repr(row).encode())
    if row_weights is not None:
        digest.update(np.asarray(row_weights, np.float64).tobytes())
    started = time.perf_counter()

    def write(path: Path) -> dict[str, Any]:
        fitted.append(fit(choose()))
        path.write_bytes(fitted[0].to_bytes())
        return {}

    # Python's Unicode decides what lower case and what a word is.
    versions = [unicodedata.unidata_version, *map(version, ("scikit-learn", "numpy", "scipy", "torch", "tokenizers"))]
    reason = ""
    try:
        file, _ = cached((FORMAT, versions, digest.hexdigest()), ".linear.safetensors", write, wait=False)
        if not fitted:
            model = LinearModel.load(file, lambda: read_static_vectors(depends_on["vectors"]))
            return model, f"linear model: {model.in_words(len(texts))}, from the cache"
    except (StorageError, ModelError) as error:
        reason = f" (not cached: {error})"
    model = fitted[0] if fitted else fit(choose())
    words = f"linear model: {model.in_words(len(texts))}, fitted in {time.perf_counter() - started:.1f} s{reason}"
    return model, words
