"""A trained classifier as a function from texts to labels: what `recur predict` and `recurcli.load` share."""

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import torch

from recurcli.distributed.group import SINGLE_PROCESS, Ranks
from recurcli.evaluation.inference import InferenceConfig, predict_logits, probabilities, scoring
from recurcli.model.device import Precision, choose_device
from recurcli.model.models import Classifier
from recurcli.runs.model_files import build_trained_classifier, read_model
from recurcli.tokens.tokenizer import Tokenizer, Tokens

Text = str | tuple[str, str | None]
WINDOW = 4096
"""Rows that are read, sorted by length and scored at a time: what bounds the memory of a prediction."""


@dataclass(frozen=True)
class Prediction:
    """A label, its probability, and the probabilities of all labels in the model's order."""

    label: str
    score: float
    probabilities: dict[str, float]


class Predictor:
    """A classifier with its tokenizer and labels."""

    def __init__(self, model: Classifier, tokenizer: Tokenizer, computation: InferenceConfig) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.computation = computation
        self.labels = model.config.labels
        self.truncated = 0
        """Rows that were longer than the model's `max_length` and lost their end, so far."""

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
        """The model of a run directory; raises ModelError if it is damaged, foreign or has no classes.

        Of several `ranks` the first one asks for scores, and `dismiss`es the others at last; those `serve`.
        """
        files = read_model(Path(run))
        computation = InferenceConfig(choose_device(device, ranks), precision, batch_size, ranks)
        ranks.connect(computation.device)
        return cls(build_trained_classifier(files, computation.device), files.tokenizer, computation)

    def predict(self, texts: Iterable[Text]) -> list[Prediction]:
        """One prediction for each text, or pair of texts, in order."""
        if isinstance(texts, str):
            raise TypeError("texts is one string; put it in a list")
        return list(self.predict_stream(texts))

    def predict_stream(self, texts: Iterable[Text]) -> Iterator[Prediction]:
        """As `predict`, for inputs of any length: reads a window, predicts it, goes on."""
        source = iter(texts)
        while window := list(islice(source, WINDOW)):
            yield from self.predictions(self.scores(window))

    def predictions(self, scores: np.ndarray) -> Iterator[Prediction]:
        """What the class scores (N, C) say, a Prediction a row."""
        shares = probabilities(scores)
        for best, row in zip(shares.argmax(axis=1).tolist(), shares.tolist(), strict=True):
            yield Prediction(self.labels[best], row[best], dict(zip(self.labels, row, strict=True)))

    def scores(self, texts: Sequence[Text]) -> np.ndarray:
        """The raw class scores (N, C) of `texts`."""
        steps = self.scoring(texts)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return end.value

    def scoring(self, texts: Sequence[Text]) -> Generator[int, None, np.ndarray]:
        """As `scores`, as a generator that yields how many rows are done after each batch."""
        pairs = [(text, None) if isinstance(text, str) else text for text in texts]
        tokens = self.tokenizer.encode(pairs, self.model.config.max_length)
        self.truncated += tokens.truncated
        self.computation.ranks.broadcast([len(tokens), len(tokens.ids)])
        self.computation.ranks.broadcast_([torch.from_numpy(tokens.offsets), torch.from_numpy(tokens.ids)])
        return (yield from scoring(self.model, tokens, self.computation))

    def serve(self) -> None:
        """Compute a share of all that the first process wants scored, until it has no more."""
        while (sizes := self.computation.ranks.broadcast(None)) is not None:
            tokens = Tokens(offsets=np.zeros(sizes[0] + 1, np.int64), ids=np.zeros(sizes[1], np.int32))
            self.computation.ranks.broadcast_([torch.from_numpy(tokens.offsets), torch.from_numpy(tokens.ids)])
            predict_logits(self.model, tokens, self.computation)

    def dismiss(self) -> None:
        """Let the processes that `serve` go."""
        self.computation.ranks.broadcast(None)
