"""The linear floor of a fine-tuning: a linear model on n-grams of the same training rows."""

import hashlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from recurcli.cache import cached
from recurcli.data.examples import Split
from recurcli.errors import DataError, StorageError
from recurcli.events import Note
from recurcli.linear.model import FORMAT, LinearModel


def fit_linear_floor(train: Split, targets: Sequence[int], num_classes: int) -> tuple[LinearModel | None, Note]:
    """Fit the linear model on the training rows, or read it from the cache if it was fitted on these rows before.

    Returns None and the reason if the rows cannot be learned from. A cache that cannot be written is not used.
    """
    texts = train.texts
    rows = hashlib.sha256(repr((texts, targets, num_classes)).encode(errors="surrogatepass")).hexdigest()
    started, made = time.perf_counter(), "from the cache"

    def fit() -> LinearModel:
        nonlocal made
        model = LinearModel.fit(texts, targets, num_classes)
        made = f"fitted in {time.perf_counter() - started:.1f} s"
        return model

    def write(path: Path) -> dict[str, Any]:
        path.write_bytes(fit().to_bytes())
        return {}

    try:
        try:
            path, _ = cached((FORMAT, rows), ".linear.safetensors", write)
            model = LinearModel.load(path)
        except StorageError:
            model = fit()
    except DataError as error:
        return None, Note(f"no linear floor: {error}")
    used = f"{model.rows:,} of {len(texts):,} rows" if model.rows < len(texts) else f"{len(texts):,} rows"
    return model, Note(f"linear floor: {len(model.ngrams.keys):,} n-grams of {used}, {made}")
