"""The Predictor: labels texts with a trained classifier. `recur predict` and `recurcli.load` use it."""

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from recurcli.distributed.group import SINGLE_PROCESS, Ranks
from recurcli.errors import escaped
from recurcli.evaluation.inference import InferenceConfig, iter_logits, predict_logits, probabilities
from recurcli.events import RowsDone
from recurcli.linear.ensemble import Ensemble
from recurcli.model.config import Label
from recurcli.model.device import Precision, choose_device
from recurcli.model.models import Classifier
from recurcli.runs.model_files import build_trained_classifier, read_ensemble, read_model, read_temperature
from recurcli.tokens.tokenizer import Tokenizer, Tokens

Text = str | tuple[str, str | None]
"""A text, or a pair of texts; None as the second item: no second text."""
WINDOW = 4096
"""Number of rows that are sorted by length and predicted together; it limits the memory."""


@dataclass(frozen=True)
class Prediction:
    """The most probable label, its probability `score`, and the probabilities of all labels in the model's order.

    Labels are strings, or of the type that a fit in Python was given.
    """

    label: Any
    score: float
    probabilities: dict[Any, float]


class Predictor:
    """A trained classifier with its tokenizer. Shapes: N texts, C labels."""

    def __init__(
        self,
        model: Classifier,
        tokenizer: Tokenizer,
        config: InferenceConfig,
        run: Path | None = None,
        ensemble: Ensemble | None = None,
        temperature: float = 1.0,
    ) -> None:
        self.run = run
        """The run directory of the model; None if it is not known."""
        self.ensemble = ensemble
        """The linear model whose logits are added to the encoder's; None: there is none."""
        self.temperature = temperature
        """The probabilities are softmax(logits / temperature). It is 1 with an ensemble, whose weights are fitted instead."""
        self.model = model
        self.tokenizer = tokenizer
        self.config = config
        self.labels = model.config.labels
        self.truncated = 0
        """Number of texts so far that were truncated to the model's `max_length` tokens."""

    @classmethod
    def load(
        cls,
        run: str | Path,
        *,
        device: str = "auto",
        precision: Precision = "auto",
        batch_size: int = 64,
        ranks: Ranks = SINGLE_PROCESS,
    ) -> "Predictor":
        """Load the model of a run directory. Raises ModelError if it is damaged, was not written by recur, or has no labels.

        With several `ranks`, rank 0 predicts and finally calls `dismiss`; the others call `serve`.
        """
        files = read_model(Path(run))
        config = InferenceConfig(choose_device(device, ranks), precision, batch_size, ranks)
        ranks.connect(config.device)
        ensemble = read_ensemble(files.path, len(files.config.labels)) if ranks.is_main else None
        temperature = 1.0 if ensemble else read_temperature(files.path)
        model = build_trained_classifier(files, config.device)
        return cls(model, files.tokenizer, config, files.path, ensemble, temperature)

    @property
    def cut_to(self) -> str:
        """What longer texts are cut to, in words. The linear model of an ensemble reads on."""
        return f"{'encoder' if self.ensemble else 'model'}'s {self.model.config.max_length}"

    def __repr__(self) -> str:
        """Return run, task, labels (at most 8) and device."""
        more = ["…"] if len(self.labels) > 8 else []
        labels = ", ".join([*map(repr, self.labels[:8]), *more])
        return (
            f"Predictor(run={str(self.run)!r}, task={self.model.config.task!r}, "
            f"labels=[{labels}], device={str(self.config.device)!r})"
        )

    def predict(self, texts: Iterable[Text]) -> list[Prediction]:
        """Return one prediction for each text or pair of texts, in order.

        `texts` is a list, an array, a Series, or a table with one column of texts or two columns of pairs (see `text_rows`).
        Raises TypeError for a value that is neither a string nor a pair of strings (None, NaN, a number). Raises ValueError
        for a tuple without two items, for a single text if the model was trained on pairs, and for a pair if it was trained
        on single texts. The messages name the row, counted from 0.
        """
        return list(self.predict_stream(texts))

    def predict_stream(self, texts: Iterable[Text]) -> Iterator[Prediction]:
        """Yield the predictions of `predict` one by one. WINDOW texts are in memory at a time, so `texts` may be endless."""
        source = enumerate(text_rows(texts))
        while window := self._pairs(islice(source, WINDOW)):
            yield from self.predictions(self.logits(window), self.model.config.classes)

    def _pairs(self, rows: Iterable[tuple[int, Any]]) -> list[tuple[str, str | None]]:
        """Return numbered texts or pairs as pairs. Raises as `predict` does."""
        pairs = [(row, as_pair(text, row)) for row, text in rows]
        trained = self.model.config.columns
        of_pairs, of_singles = bool(trained.get("pair")), bool(trained.get("text") and not trained.get("pair"))
        for row, (text, second) in pairs:
            if of_pairs and second is None:
                raise ValueError(
                    f"texts[{row}] is {_shown(text)}, but the model was trained on pairs; give (first, second)"
                )
            if of_singles and second is not None:
                given = _shown((text, second))
                raise ValueError(f"texts[{row}] is {given}, but the model was trained on single texts; give one text")
        return [pair for _, pair in pairs]

    def predictions(self, logits: np.ndarray, classes: Sequence[Label] = ()) -> Iterator[Prediction]:
        """Yield the Prediction of each row of `logits` (N, C); its labels are the `classes` (C), or () for their names."""
        classes = classes or self.labels
        rows = probabilities(logits, self.temperature)
        for best, row in zip(rows.argmax(axis=1).tolist(), rows.tolist(), strict=True):
            yield Prediction(classes[best], row[best], dict(zip(classes, row, strict=True)))

    def logits(self, texts: Iterable[Text]) -> np.ndarray:
        """Return the logits (N, C) of `texts`. Raises as `predict` does."""
        batches = self.iter_logits(self._pairs(enumerate(text_rows(texts))))
        while True:
            try:
                next(batches)
            except StopIteration as end:
                logits: np.ndarray = end.value
                return logits

    def iter_logits(
        self, texts: Sequence[Text], *, total: int | None = None, before: int = 0
    ) -> Generator[RowsDone, None, np.ndarray]:
        """Return the logits as `logits` does, and yield the number of finished rows after each batch.

        `before` is the number of rows that were finished earlier; `total` is the number of all rows; None: unknown.
        """
        if self.ensemble is None:
            return (yield from self.iter_encoder_logits(texts, total=total, before=before))
        linear = self.linear_logits(texts)
        if not self.ensemble.encoder_weight:
            yield RowsDone(before + len(texts), total)
            return self.ensemble.join(np.zeros_like(linear), linear)
        encoder = yield from self.iter_encoder_logits(texts, total=total, before=before)
        return self.ensemble.join(encoder, linear)

    def iter_encoder_logits(
        self, texts: Sequence[Text], *, total: int | None = None, before: int = 0
    ) -> Generator[RowsDone, None, np.ndarray]:
        """Return the logits of the encoder alone, as `iter_logits` does."""
        return (yield from self.iter_token_logits(self.encode(texts), total=total, before=before))

    def iter_token_logits(
        self, tokens: Tokens, *, total: int | None = None, before: int = 0
    ) -> Generator[RowsDone, None, np.ndarray]:
        """Return the logits of the encoder alone for the `tokens` of `encode`, as `iter_logits` does."""
        return (yield from iter_logits(self.model, tokens, self.config, total=total, before=before))

    def linear_logits(self, texts: Sequence[Text]) -> np.ndarray:
        """Return the logits (N, C) of the ensemble's linear model alone."""
        assert self.ensemble is not None
        return self.ensemble.linear.logits(_as_pairs(texts))

    def encode(self, texts: Sequence[Text]) -> Tokens:
        """Tokenise `texts`, count those that are truncated, and broadcast the tokens to the other ranks."""
        tokens = self.tokenizer.encode(_as_pairs(texts), self.model.config.max_length)
        self.truncated += tokens.truncated
        self.config.ranks.broadcast([len(tokens), len(tokens.ids)])
        self.config.ranks.broadcast_([torch.from_numpy(tokens.offsets), torch.from_numpy(tokens.ids)])
        return tokens

    def serve(self) -> None:
        """Compute this rank's batches of every prediction of rank 0, until rank 0 calls `dismiss`."""
        while (sizes := self.config.ranks.broadcast(None)) is not None:
            tokens = Tokens(offsets=np.zeros(sizes[0] + 1, np.int64), ids=np.zeros(sizes[1], np.int32))
            self.config.ranks.broadcast_([torch.from_numpy(tokens.offsets), torch.from_numpy(tokens.ids)])
            predict_logits(self.model, tokens, self.config)

    def dismiss(self) -> None:
        """End `serve` on the other ranks."""
        self.config.ranks.broadcast(None)


def text_rows(texts: Iterable[Any]) -> Iterable[Any]:
    """Return the rows of `texts`. A table (an array or a DataFrame) has one column of texts, or two columns of pairs.

    Raises TypeError for one string, ValueError for another number of columns. Iteration over a DataFrame alone would give the
    names of its columns.
    """
    if isinstance(texts, str):
        raise TypeError("texts is one string; put it in a list")
    shape: tuple[int, ...] = getattr(texts, "shape", ())
    if len(shape) < 2:
        return texts
    if len(shape) > 2 or shape[1] not in (1, 2):
        raise ValueError(f"texts has the shape {shape}; it must be one column of texts, or two columns of pairs")
    rows: list[Any] = np.asarray(texts, dtype=object).tolist()
    return [row[0] for row in rows] if shape[1] == 1 else rows


def _as_pairs(texts: Iterable[Text]) -> list[tuple[str, str | None]]:
    return [as_pair(text, row) for row, text in enumerate(texts)]


def as_pair(text: object, row: int, what: str = "texts") -> tuple[str, str | None]:
    """Return `text` as a pair. Raises TypeError or ValueError, `what[row]` first, if it is neither a text nor a pair."""
    if isinstance(text, str):
        return text, None
    if not isinstance(text, tuple | list):
        raise TypeError(f"{what}[{row}] is {_shown(text)}; it must be a string or a pair of strings")
    if len(text) != 2:
        raise ValueError(f"{what}[{row}] is {_shown(text)} with {len(text)} items; a pair must have two")
    first, second = text
    if not isinstance(first, str) or not isinstance(second, str | None):
        raise TypeError(f"{what}[{row}] is {_shown(text)}; it must be a pair of strings")
    return first, second


def _shown(value: object) -> str:
    return f"{escaped(repr(value), 60)} ({type(value).__name__})"
