"""The linear model on n-grams that a fine-tuning is shown beside."""

import time
from collections.abc import Sequence

from recurcli.data.examples import Split
from recurcli.errors import DataError
from recurcli.events import Note
from recurcli.linear.model import LinearModel


def fit_linear_floor(train: Split, targets: Sequence[int], num_classes: int) -> tuple[LinearModel | None, Note]:
    """Fit the linear model on the training rows; returns None and the reason if they are nothing to learn from."""
    started = time.perf_counter()
    texts = [(example.text, example.pair) for example in train.examples]
    try:
        model = LinearModel.fit(texts, targets, num_classes)
    except DataError as error:
        return None, Note(f"no linear floor: {error}")
    rows = f"{model.rows:,} of {len(texts):,} rows" if model.rows < len(texts) else f"{len(texts):,} rows"
    seconds = time.perf_counter() - started
    return model, Note(f"linear floor: {len(model.ngrams.keys):,} n-grams of {rows}, fitted in {seconds:.1f} s")
