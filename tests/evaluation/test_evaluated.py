"""Evaluated rows: the mistakes among them, found once."""

import numpy as np

from recurcli.evaluation.report import EvaluatedRows
from recurcli.targets import OneLabel


def test_mistakes_are_the_wrong_rows_the_surest_first() -> None:
    generator = np.random.default_rng(0)
    shares = generator.dirichlet(np.ones(5), size=300)
    targets = generator.integers(5, size=300)
    rows = EvaluatedRows(
        ids=None,
        lines=range(1, 301),
        texts=[("a", None)] * 300,
        target=OneLabel(tuple("abcde")),
        labels=["abcde"[target] for target in targets],
        y=targets,
        probabilities=shares,
        predictions=shares.argmax(axis=1),
    )
    wrong = [row for row in range(300) if shares[row].argmax() != targets[row]]
    assert rows.mistakes.tolist() == sorted(wrong, key=lambda row: -shares[row].max())
    assert rows.scores is rows.scores, "they are computed once, not once a row"
