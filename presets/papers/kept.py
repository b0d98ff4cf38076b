"""What the scripts of the studies share: Markdown tables, p-values, and what is kept of a run: right rows and keys of its own.

Scripts are run by their path, so they read this one with runpy: `runpy.run_path(".../kept.py")["markdown"]`.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from recurcli.metrics import accuracy
from recurcli.preset import compose
from recurcli.significance import Runs, resampled_scores
from recurcli.validation import flatten


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def p_value(p: float) -> str:
    """Return a p-value with two significant digits, three decimals at most."""
    return "<0.001" if p < 0.0005 else f"{p:.3f}" if p < 0.0995 else f"{p:.2f}"


def packed(right: np.ndarray) -> str:
    """Pack the booleans `right` (N,) into bits, as a hexadecimal string."""
    return np.packbits(right).tobytes().hex()


def unpacked(runs: Sequence[str], rows: int) -> np.ndarray:
    """Unpack the bits of R runs of N `rows` each: (R, N), 1 where a row is right."""
    bits = [np.unpackbits(np.frombuffer(bytes.fromhex(run), dtype=np.uint8), count=rows) for run in runs]
    return np.array(bits, dtype=np.uint8).reshape(len(runs), rows)


def resampled(right: np.ndarray) -> Runs:
    """Return the accuracies of R runs with `right` rows (R, N), and those on resamples of the rows, always the same ones."""
    return Runs(right.mean(axis=1), resampled_scores(accuracy, np.ones(right.shape[1], dtype=np.uint8), right))


def own_keys(values: dict[str, Any], preset: str) -> dict[str, Any]:
    """Return the keys, with dots, in which the `values` of a run differ from its preset: without paths and the seed."""
    usual, own = (
        {".".join(map(str, key)): value for key, value in flatten(each)}
        for each in (json.loads(json.dumps(compose(preset).preset.to_dict())), values)
    )
    differ = {key: value for key, value in own.items() if usual.get(key, ...) != value and key != "runtime.seed"}
    return {key: value for key, value in differ.items() if "/" not in str(value)}
