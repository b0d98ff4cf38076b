"""The Predictor: labels texts with what a run keeps. It is importable without torch, which is for encoders.

Shapes: N texts, C labels.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from recurcli.config import Label, RunConfig
from recurcli.data.source import Source
from recurcli.errors import ModelError, UsageError, escaped, html_table, quoted
from recurcli.evaluation.decision import Kept
from recurcli.files import naming_damage
from recurcli.linear.model import LinearModel
from recurcli.log import AfterBatch, Log, ignore
from recurcli.runs.hub import local_run
from recurcli.runs.model_files import config_from_file, read_linear_model
from recurcli.runs.run_directory import (
    KEPT,
    KEPT_FILE,
    LINEAR_MODEL,
    NETWORK_FILES,
    THRESHOLDS,
    Run,
    open_run,
    read_json,
)
from recurcli.targets import Cell, target_from_json
from recurcli.tokens.tokenizer import note_on_cuts

if TYPE_CHECKING:
    from recurcli.device import Precision
    from recurcli.evaluation.inference import TrainedEncoder

Pair = tuple[str, str | None]
"""A pair of texts; None as the second item: no second text."""
Text = str | Pair
MOST_SHOWN = 5
"""The labels of a prediction in a notebook."""
WINDOW = 4096
"""Number of rows that are sorted by length and predicted together; it limits the memory."""


@dataclass(frozen=True)
class Prediction:
    """The label, its probability `score`, and the probabilities of all labels in the model's order.

    The label is the most probable one, unless the run has thresholds. Labels are strings, or of the type that a fit in Python
    was given. Where rows have several labels, it is the tuple of those that reach their thresholds, in the order of their
    names, and () for none. Where rows have numbers, it is the number, and there are no probabilities.
    """

    label: Any
    score: float | None
    """None for several labels, and for a number."""
    probabilities: dict[Any, float]

    def _repr_html_(self) -> str:
        """Return label and probabilities for a notebook, the most probable labels first."""
        likeliest = sorted(self.probabilities.items(), key=lambda item: -item[1])[:MOST_SHOWN]
        return html_table([("label", self.label), *((label, f"{share:.3f}") for label, share in likeliest)])


def read_kept(run: Run, config: RunConfig) -> Kept:
    """Read kept.json of a run, without its thresholds. Raises ModelError if it is damaged."""
    with naming_damage(run.path / "config.json"):
        target = target_from_json(config.target, config.labels)
    if KEPT not in run:
        return Kept.as_is(target)
    with naming_damage(run[KEPT].path):
        return Kept.from_json(read_json(run[KEPT], KEPT_FILE), target)


@dataclass(kw_only=True, eq=False)
class Predictor:
    """A trained classifier. Shapes: N texts, C labels."""

    config: RunConfig
    source: Source
    """What the training rows were like."""
    encoder: "TrainedEncoder | None"
    """The encoder, if it is a part of what is kept, or was asked for."""
    linear: LinearModel | None
    """The linear model, if it is a part of what is kept."""
    kept: Kept
    """How the logits of encoder and linear model become probabilities and labels."""
    run: Path | None = None
    """The run directory of the model. None if it is not known."""
    truncated: int = 0
    """Number of texts so far that were truncated to the encoder's `max_length` tokens."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The classes (C), in the order of the logits."""
        return self.kept.target.labels

    def _repr_html_(self) -> str:
        """Return what the model is for a notebook."""
        facts = {"run": self.run, "task": self.config.task, "kept": self.kept.name, "labels": quoted(self.labels)}
        return html_table({**facts, "texts from": quoted(self.source.columns.names)}.items())

    @classmethod
    def load(
        cls,
        run: str | Path | Run,
        *,
        device: str = "auto",
        precision: "Precision" = "fp32",
        batch_size: int = 64,
        fast: bool = False,
        every_part: bool = False,
    ) -> "Predictor":
        """Load the model of a run directory, which is named or opened.

        Raises ModelError if it is damaged, was not written by recur, or has no labels; UsageError for a `device` that is not
        there.

        `fast` takes the linear model of an ensemble alone. Raises UsageError if there is none. `every_part` reads the encoder
        of a run that keeps its linear model alone, too.
        """
        folder = run if isinstance(run, Run) else open_run(local_run(Path(run), Log()))
        config = config_from_file(folder["config.json"])
        kept, linear, encoder = read_kept(folder, config), None, None
        if "linear" in kept.weights:
            linear = read_linear_model(folder, kept.target.width)
        for name, part, file in (("linear", linear, LINEAR_MODEL), ("encoder", config.network, NETWORK_FILES[0])):
            if name in kept.weights and part is None:
                raise ModelError(f"{folder.path / KEPT}: is damaged: it needs {file}")
        is_linear = kept.name == "linear model" or (fast and linear is not None)
        network = None if is_linear and not every_part else config.network
        if network is not None or device not in ("auto", "cpu"):
            from recurcli.device import choose_device  # these two need torch
            from recurcli.evaluation.inference import InferenceConfig, TrainedEncoder

            inference = InferenceConfig(choose_device(device), precision, batch_size)
            encoder = None if network is None else TrainedEncoder.load(folder, network, inference)
        if thresholds := folder.read_thresholds():
            if [*thresholds["thresholds"]] != [*config.labels]:
                raise ModelError(f"{folder.path / THRESHOLDS}: is damaged: its labels are not those of the model")
            kept = replace(kept, thresholds=thresholds)
        source = Source.from_json(config.source, folder.path / "config.json")
        predictor = cls(config=config, source=source, encoder=encoder, linear=linear, kept=kept, run=folder.path)
        return predictor.only_linear() if fast else predictor

    def only_linear(self) -> "Predictor":
        """Return a predictor of the linear model alone, without encoder and thresholds.

        A predictor without an encoder is returned as it is. Raises UsageError if there is no linear model.
        """
        if self.kept.name == "encoder":
            where = "" if self.run is None else f"{self.run}: "
            raise UsageError(
                f"{where}the model is the encoder alone, so it has no linear model; leave --fast out (in Python: fast=True)"
            )
        if self.kept.name == "linear model":
            return self
        return replace(self, kept=self.kept.only_linear, truncated=0)

    def note_on_cuts(self, rows: int, log: Log) -> None:
        """Log how many of the `rows` so far were truncated. A linear model reads whole texts."""
        if self.encoder is None or self.kept.name == "linear model":
            return
        config = self.encoder.model.config
        length = f"the {'encoder' if len(self.kept.alone) > 1 else 'model'}'s {config.max_length} tokens"
        note_on_cuts(self.truncated, rows, length, config.truncate, log)

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
            yield from self.predictions(self.logits(window), self.config.classes)

    def _pairs(self, rows: Iterable[tuple[int, Any]]) -> list[Pair]:
        """Return numbered texts or pairs as pairs. Raises as `predict` does."""
        pairs = [(row, as_pair(text, row)) for row, text in rows]
        of_pairs = bool(self.source.columns.pair)
        wanted = "pairs; give (first, second)" if of_pairs else "single texts; give one text"
        for row, (text, second) in pairs:
            if of_pairs == (second is None):
                given = _shown(text if second is None else (text, second))
                raise ValueError(f"texts[{row}] is {given}, but the model was trained on {wanted}")
        return [pair for _, pair in pairs]

    def predictions(self, logits: np.ndarray, classes: Sequence[Label] = ()) -> Iterator[Prediction]:
        """Yield the Prediction of each row of `logits` (N, C); its labels are the `classes` (C), or () for their names."""
        known: dict[Cell, Any] = dict(zip(self.labels, classes or self.labels, strict=True))
        rows = self.kept.probabilities(logits)
        for cell, row in zip(self.kept.target.decode(self.kept.decide(rows)), rows.tolist(), strict=True):
            probabilities = dict(zip(known.values(), row, strict=True))
            if isinstance(cell, float):
                yield Prediction(cell, None, {})
            elif isinstance(cell, tuple):
                yield Prediction(tuple(known[label] for label in cell), None, probabilities)
            else:
                yield Prediction(known[cell], probabilities[known[cell]], probabilities)

    def logits(self, texts: Iterable[Text]) -> np.ndarray:
        """Return the logits (N, C) of `texts`. Raises as `predict` does."""
        return self.logits_of_pairs(self._pairs(enumerate(text_rows(texts))))

    def logits_of_pairs(self, texts: Sequence[Pair], after_batch: AfterBatch = ignore) -> np.ndarray:
        """Return the logits (N, C) of texts that are known to be of the kind that the model was trained on."""
        of: dict[str, np.ndarray] = {}
        if self.linear is not None:
            of["linear"] = self.linear.logits(texts)
        if self.encoder is not None and "encoder" in self.kept.weights:
            tokens = self.encoder.encode(texts)
            self.truncated += tokens.truncated
            of["encoder"] = self.encoder.logits(tokens, after_batch)
        else:
            after_batch(len(texts))
        return self.kept.logits(of)


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


def as_pair(text: object, row: int, what: str = "texts") -> Pair:
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
