"""The two solvers of the linear model: LinearSVC, and stochastic gradient descent for data on which it takes too long.

Both minimize the squared hinge loss of each class against the rest, so their logits have one scale. Shapes: N rows, V n-grams,
C classes.
"""

import warnings
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from recurcli.interruptible import interruptible

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

Weights = tuple[NDArray[np.float32], NDArray[np.float32]]
"""W (V, C) and b (C,): logits = vectors W + b."""
TOLERANCE = 0.1
"""LIBLINEAR's own stopping tolerance. Ours: on four sets 1e-4, scikit-learn's, has the same accuracy in twice the time."""
UNSEEN = -2.0
"""Logit of a class without training rows. LinearSVC's logits of a class that a row does not have are about -1. Ours."""
SVC_WORK, SVC_VALUES = 150_000_000, 15_000_000
"""LinearSVC fits at most this many values of the vectors x classes, and values. Ours: 15 s and 0.5 GB."""
SGD_WORK = 2_400_000_000
"""Values x classes x epochs of SGD. Ours: 20 s."""
MAX_EPOCHS = 3
LEARNING_RATE = 0.2
"""Ours: on 180,000 lines of 20 classes SGD has an accuracy of 82.2 with it (0.1: 81.8, 0.05: 80.4) and LinearSVC 82.3; on
60,000 lines 77.4 and 77.7."""
BATCH_SIZE = 32


def needs_sgd(values: int, num_classes: int) -> bool:
    """Return whether LinearSVC would take too long, or too much memory, for vectors with this many values."""
    return values > SVC_VALUES or values * (1 if num_classes == 2 else num_classes) > SVC_WORK


def fit_svc(vectors: "csr_matrix", targets: NDArray[np.int64], num_classes: int, c: float) -> Weights:
    """Fit scikit-learn's LinearSVC on `vectors` (N, V). A class without a training row gets the logit UNSEEN."""
    from sklearn.svm import LinearSVC

    classes = np.unique(targets)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about many classes, and about steps that did not converge
        solver = interruptible(partial(LinearSVC(C=c, tol=TOLERANCE, random_state=0).fit, vectors, targets))
    weights, bias = solver.coef_, solver.intercept_
    if len(classes) == 2:  # one vector stands for both classes
        weights, bias = np.concatenate([-weights, weights]), np.concatenate([-bias, bias])
    all_weights = np.zeros((vectors.shape[1], num_classes), np.float32)
    all_bias = np.full(num_classes, UNSEEN, np.float32)
    all_weights[:, classes], all_bias[classes] = weights.T, bias
    return all_weights, all_bias


def fit_sgd(
    vectors: "csr_matrix", targets: NDArray[np.int64], num_classes: int, start: Weights | None = None
) -> Weights:
    """Fit by SGD on batches of `vectors` (N, V), whose rows are in random order; the learning rate falls to 0.

    The order of the batches is drawn in each epoch; fewer epochs are made of larger data. From the weights `start` one epoch
    is made, at half the learning rate.
    """
    columns, offsets = torch.from_numpy(vectors.indices), torch.from_numpy(vectors.indptr)
    values, labels = torch.from_numpy(vectors.data), torch.from_numpy(targets)
    given = (np.zeros((vectors.shape[1], num_classes), np.float32), np.zeros(num_classes, np.float32))
    weights, bias = (torch.from_numpy(tensor.copy()) for tensor in start or given)
    starts = torch.arange(0, len(targets), BATCH_SIZE)
    epochs = max(1, min(MAX_EPOCHS, SGD_WORK // max(1, vectors.nnz * num_classes)))
    first_rate = LEARNING_RATE
    if start is not None:
        epochs, first_rate = 1, LEARNING_RATE / 2
    drawn = np.random.default_rng(0)
    order = np.concatenate([drawn.permutation(len(starts)) for _ in range(epochs)])
    for step, begin in enumerate(starts[order].tolist()):
        ends = offsets[begin : begin + BATCH_SIZE + 1]
        here = slice(int(ends[0]), int(ends[-1]))
        bags = ends - ends[0]
        logits = bias + F.embedding_bag(
            columns[here], weights, bags, mode="sum", per_sample_weights=values[here], include_last_offset=True
        )
        signs = 2.0 * F.one_hot(labels[begin : begin + BATCH_SIZE], num_classes) - 1
        grad_logits = -2 * signs * (1 - signs * logits).clamp(min=0)
        rate = first_rate * (1 - step / len(order))
        by_value = grad_logits.repeat_interleave(bags.diff(), 0, output_size=here.stop - here.start)
        weights.index_add_(0, columns[here], by_value.mul_(values[here, None]), alpha=-rate)
        bias -= 0.1 * rate * grad_logits.sum(0)
    bias[~torch.isin(torch.arange(num_classes), labels)] = UNSEEN
    return weights.numpy(), bias.numpy()
