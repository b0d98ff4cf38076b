"""`recur eval`: the scores of a trained classifier on labelled rows."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from recurcli.commands.training.setup import stored_preset
from recurcli.data.config import DataConfig
from recurcli.data.examples import load_split
from recurcli.data.sources.find import adapted
from recurcli.data.tasks import Task, task_named
from recurcli.distributed.group import current
from recurcli.errors import DataError, ModelError, UsageError
from recurcli.evaluation.inference import cross_entropy
from recurcli.evaluation.metrics import classification_report
from recurcli.evaluation.predictor import Predictor
from recurcli.events import Finished, Note, RowsDone
from recurcli.model.device import Precision
from recurcli.tokens.batching import collate
from recurcli.validation import parse_config

DIAGNOSED_ROWS = 64
"""How many rows a diagnosis looks at: pairs of tokens are many."""


def data_config(run: Path, data: Path | None) -> DataConfig:
    """How the run read its data, with another place for them if `data` says so.

    Raises ModelError if the run's preset cannot be read, DataError if its data are gone.
    """
    config = _stored_config(run)
    if data is not None:
        path = data.expanduser().absolute()
        return replace(config, path=str(path), files=None if path.is_file() else config.files)
    if config.path is not None and not Path(config.path).exists():
        raise DataError(f"{config.path}: the data of {run} are gone from there; say where they are with --data")
    return config


def _stored_config(run: Path) -> DataConfig:
    try:
        return parse_config(DataConfig, stored_preset(run).get("data") or {})
    except UsageError as error:
        raise ModelError(f"{run / 'preset.yaml'}: data: {error}") from None


def task_of(run: Path, predictor: Predictor) -> Task:
    """The task that the model was trained on; ModelError if this recur does not know it, or knows other labels."""
    try:
        task = task_named(predictor.model.config.task)
    except UsageError as error:
        raise ModelError(f"{run / 'config.json'}: {error}") from None
    labels = adapted(task, _stored_config(run)).labels
    if labels and labels != predictor.labels:
        raise ModelError(f"{run / 'config.json'}: its labels are not those of {task.name}")
    return replace(task, labels=predictor.labels)


def evaluate(
    run: Path,
    *,
    split: str = "dev",
    data: Path | None = None,
    device: str = "auto",
    precision: Precision = "fp32",
    batch_size: int = 64,
    diagnosed: bool = False,
    plots: Path | None = None,
) -> Iterator[Note | RowsDone | Finished]:
    """Score the model in `run` on a split: yields notes, the rows done, and the report at last, perhaps `diagnosed`.

    Raises DataError if the split's rows carry no labels.
    """
    if plots is not None:
        _check_plots(plots, diagnosed)
    ranks = current()
    predictor = Predictor.load(run, device=device, precision=precision, batch_size=batch_size, ranks=ranks)
    if not ranks.is_main:
        predictor.serve()
        return
    task = task_of(run, predictor)
    if not task.has_labels(split):
        raise DataError(f"the {split} rows of {task.name} carry no labels; `recur export` predicts them for CLUE")
    config = data_config(run, data)
    if data is None and split not in ("train", "dev") and config.path is not None and Path(config.path).is_file():
        raise DataError(f"{config.path}: is one file of train and dev rows; name the {split} rows with --data")
    rows = load_split(task, split, config, divided=data is None or _trained_on(run, data))
    if rows.label is None:
        raise DataError(f"the {split} rows of {task.name} carry no labels; `recur predict` labels them")
    labels = [str(example.label) for example in rows.examples]
    if rows.bad:
        yield Note(f"{len(rows.bad):,} bad rows skipped, the first: {rows.bad[0]}", "warning")
    if rows.dropped:
        yield Note(f"{rows.dropped:,} rows without a majority label ('-') dropped")
    texts = [(example.text, example.pair) for example in rows.examples]
    scores = yield from predictor.iter_logits(texts, total=len(texts))
    predictor.dismiss()
    if predictor.truncated:
        yield Note(f"{predictor.truncated:,} rows were cut to the model's {predictor.model.config.max_length} tokens")
    targets = np.array([task.labels.index(label) for label in labels])
    predictions = [task.labels[index] for index in scores.argmax(axis=1)]
    report = classification_report(labels, predictions, task.labels, loss=cross_entropy(scores, targets))
    found = {"diagnosis": _diagnosis(predictor, texts)} if diagnosed else {}
    if plots is not None:
        from recurcli.diagnostics.plots import draw_diagnosis

        draw_diagnosis(found["diagnosis"], plots, title=f"{run.name}: {predictor.model.config.encoder['name']}")
    yield Finished(
        {
            "run": str(run),
            "task": task.name,
            "split": split,
            "rows": len(labels),
            "truncated": predictor.truncated,
            "dropped": rows.dropped,
            "path": None if rows.path is None else str(rows.path),
            "sha256": rows.sha256,
            "report": report.to_json(),
            **({"floors": dict(task.floors)} if task.floors and split == "dev" else {}),
            **found,
        }
    )


def _trained_on(run: Path, data: Path) -> bool:
    """Whether `data` is the very file that the run was trained on, whose rows are train and dev."""
    stored = _stored_config(run).path
    return stored is not None and Path(stored).is_file() and data.is_file() and data.samefile(stored)


def _check_plots(path: Path, diagnosed: bool) -> None:
    """Refuse what could not be drawn, before anything is computed."""
    if not diagnosed:
        raise UsageError("--plots draws a diagnosis; add --diagnose")
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise UsageError(f"{path}: a plot ends in .png, .svg or .pdf")
    if not path.parent.is_dir():
        raise UsageError(f"{path.parent}: no such folder; make it first")
    if find_spec("matplotlib") is None:
        raise UsageError("--plots needs matplotlib: pip install 'recurcli[report]'")


def _diagnosis(predictor: Predictor, texts: Sequence[tuple[str, str | None]]) -> dict[str, Any]:
    """What the layers of the model do, on the first DIAGNOSED_ROWS of the texts that have a pair of tokens."""
    from recurcli.diagnostics.diagnose import diagnose  # scipy and all encoders: only where they are asked for

    model = predictor.model
    tokens = predictor.tokenizer.encode(texts[: 4 * DIAGNOSED_ROWS], model.config.max_length)
    rows = np.flatnonzero(tokens.lengths > 1)[:DIAGNOSED_ROWS]
    if not len(rows):
        raise DataError("no row has two tokens; there is nothing to diagnose")
    ids, mask = collate(tokens, rows, pad_id=model.config.pad_id)
    return diagnose(model, ids.to(predictor.config.device), mask.to(predictor.config.device)).to_json()
