"""Labels of rows that may be wrong, by confident learning (`find_suspects`). Shapes: N rows, C classes."""

import numpy as np
from numpy.typing import NDArray

from recurcli.targets.target import Probabilities


def find_suspects(probabilities: Probabilities, targets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the numbers of the rows whose label may be wrong, the least probable label first.

    `probabilities` (N, C) are out of fold, `targets` (N,) the given labels. A row is counted in the confident joint if a class
    has at least the mean probability of its own rows; its class there is the most probable such class. Rows whose most probable
    class is another one are ranked by the probability of their label, and as many are returned as the calibrated joint has off
    its diagonal. (Confident learning: Northcutt, Jiang & Chuang, JAIR 2021, sections 3.1 and 3.2; the ranking is their
    self-confidence.)
    """
    count = probabilities.shape[1]
    own = probabilities[np.arange(len(targets)), targets]
    sizes = np.bincount(targets, minlength=count)
    thresholds = np.where(sizes > 0, np.bincount(targets, own, minlength=count) / np.maximum(sizes, 1), np.inf)
    confident = np.where(probabilities >= thresholds, probabilities, -1.0)
    counted = confident.max(axis=1) >= 0
    joint = np.zeros((count, count))
    np.add.at(joint, (targets[counted], confident.argmax(axis=1)[counted]), 1)
    shares = joint / np.maximum(joint.sum(axis=1, keepdims=True), 1)
    expected = round(float((sizes[:, None] * shares)[~np.eye(count, dtype=bool)].sum()))
    other = np.flatnonzero(probabilities.argmax(axis=1) != targets)
    return other[np.argsort(own[other], kind="stable")][:expected]
