"""`recur eval`: the scores of a trained classifier on labelled rows."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from recurcli.commands.trained_run import data_config, task_of
from recurcli.data.columns import option, setting
from recurcli.data.examples import Split, count_known_rows, load_split
from recurcli.data.sources import adapted, find_source, is_local
from recurcli.data.tasks import Task
from recurcli.distributed.group import current
from recurcli.errors import DataError, ModelError, UsageError
from recurcli.evaluation.parts import report_with_parts
from recurcli.evaluation.predictor import Predictor
from recurcli.events import Finished, Note, RowsDone
from recurcli.files import sha256_of
from recurcli.model.device import Precision
from recurcli.runs.model_files import read_linear_model
from recurcli.runs.run_directory import RunDirectory
from recurcli.tokens.batching import collate

DIAGNOSED_ROWS = 64
"""Number of rows in a diagnosis, which measures all pairs of their tokens."""


def evaluate(
    run: Path,
    *,
    split: str | None = None,
    data: Path | None = None,
    columns: Mapping[str, object] | None = None,
    device: str = "auto",
    precision: Precision = "fp32",
    batch_size: int = 64,
    diagnosed: bool = False,
    plots: Path | None = None,
) -> Iterator[Note | RowsDone | Finished]:
    """Score the model in `run` on labelled rows; yields notes, the number of rows done, and the metrics.

    `split` None: all rows of `data` if it is a file, else the dev rows. `columns`: the keys `text`, `pair`,
    `label`, `header`, `delimiter` and `encoding` of DataConfig for the rows of `data`; None as a value: that of the training.
    `diagnosed` adds a diagnosis of the layers; `plots` draws it into a file. Raises DataError if the rows have no labels.
    """
    given = [key for key, value in (columns or {}).items() if value is not None]
    if given and data is None:
        raise UsageError(f"--{given[0]} belongs to the rows of --data; add --data PATH")
    if plots is not None:
        _check_plots(plots, diagnosed)
    ranks = current()
    predictor = Predictor.load(run, device=device, precision=precision, batch_size=batch_size, ranks=ranks)
    if not ranks.is_main:
        predictor.serve()
        return
    yield from RunDirectory(run).note_if_unfinished()
    task, prior = task_of(run, predictor), predictor.prior
    name = split or ("file" if data is not None and data.is_file() else "dev")
    rows = _load_rows(run, task, name, data, columns)
    labels = [str(example.label) for example in rows.examples]
    if rows.bad:
        yield Note(f"{len(rows.bad):,} bad rows skipped, the first: {rows.bad[0]}", "warning")
    if rows.dropped:
        yield Note(f"{rows.dropped:,} rows without a majority label ('-') dropped")
    trained_on: dict[str, int | None] = {}
    if data is not None and data.is_file() and name != "train":
        trained_on = yield from _count_known_rows(run, task, rows)
    texts = rows.texts
    logits = yield from predictor.iter_encoder_logits(texts, total=len(texts))
    predictor.dismiss()
    linear = prior.linear if prior else read_linear_model(run, len(predictor.labels))
    linear_logits = None if linear is None else linear.logits(texts)
    known = task.floors if name == "dev" else {}
    report, facts = report_with_parts(logits, linear_logits, prior, labels, task, known)
    if predictor.truncated:
        yield Note(f"{predictor.truncated:,} rows were cut to the {predictor.cut_to} tokens")
    diagnosis = {"diagnosis": _diagnosis(predictor, texts)} if diagnosed else {}
    if plots is not None:
        from recurcli.diagnostics.plots import draw_diagnosis

        draw_diagnosis(diagnosis["diagnosis"], plots, title=f"{run.name}: {predictor.model.config.encoder['name']}")
    yield Finished(
        {
            "run": str(run),
            "task": task.name,
            "split": name,
            "rows": len(labels),
            **trained_on,
            "truncated": predictor.truncated,
            "dropped": rows.dropped,
            "path": None if rows.path is None else str(rows.path),
            "sha256": rows.sha256,
            "metrics": report.to_json(),
            **facts,
            **diagnosis,
        }
    )


def _load_rows(
    run: Path, task: Task, split: str, data: Path | None, columns: Mapping[str, object] | None = None
) -> Split:
    """Return the labelled rows to score; the split "file" means all rows of the file `data`."""
    config = data_config(run, data, columns)
    way_out = setting if data is None else option
    alone = config.path is not None and Path(config.path).is_file()
    named = data is None and config.named_file(split) is not None
    if not task.has_labels(split) and split != "file" and not named:
        raise DataError(f"the {split} rows of {task.name} carry no labels; `recur export` predicts them for CLUE")
    if data is None and alone and split not in ("train", "dev") and not named:
        raise DataError(f"{config.path}: is one file of train and dev rows; name the {split} rows with --data")
    if split == "file":
        return load_split(task, "dev", config, way_out=way_out)
    divided = data is None or (alone and _is_training_file(run, task, data))
    rows = load_split(task, split, config, divided=divided, way_out=way_out)
    if rows.label is None:
        raise DataError(f"the {split} rows of {task.name} carry no labels; `recur predict` labels them")
    return rows


def _is_training_file(run: Path, task: Task, data: Path) -> bool:
    """Whether `data` is the file from which the run drew train and dev rows, or a copy of it."""
    config = RunDirectory(run).read_data_config()
    try:
        if not is_local(config, "train"):
            return False
        source = find_source(adapted(task, config), "train", config, divided=True)
    except DataError:
        return False
    if not source.divided or not source.path.is_file():
        return False
    same_size = data.stat().st_size == source.path.stat().st_size
    return data.samefile(source.path) or (same_size and sha256_of(data) == sha256_of(source.path))


def _count_known_rows(run: Path, task: Task, rows: Split) -> Generator[Note, None, dict[str, int | None]]:
    """Count the `rows` whose texts are also texts of training rows, or of dev rows, of the run. Yields a note on the counts.

    None: these rows cannot be read again. They are read from the path in the run's preset, never from the Hub.
    """
    unknown = "the number of training rows among these rows is unknown"
    counts: dict[str, int | None] = {"training_rows": None, "dev_rows": None}
    config = RunDirectory(run).read_data_config()
    if not is_local(config, "train") and (config.hub is not None or task.hub is not None):
        yield Note(f"{unknown}: the run was trained on rows of the Hub", "warning")
        return counts
    try:
        config = data_config(run, None)
        train = load_split(task, "train", config, divided=True)
        dev = train.dev or load_split(task, "dev", config, divided=True)
    except (DataError, UsageError) as error:  # a classifier fitted in Python names no data
        yield Note(f"{unknown}: {error}", "warning")
        return counts
    for split, known in (("train", train), ("dev", dev)):
        try:
            stored = RunDirectory(run).read_result()["data"][split]["sha256"]
        except (OSError, ModelError, KeyError, TypeError):
            stored = known.sha256  # an unfinished run has no result
        if stored != known.sha256:
            yield Note(f"{unknown}: {known.path} has changed since the training", "warning")
            return counts
    for key, known in (("training_rows", train), ("dev_rows", dev)):
        counts[key] = count_known_rows(rows, known.with_extra_rows())
    chosen = f", {counts['dev_rows']:,} dev rows, on which the model was selected" if counts["dev_rows"] else ""
    text = f"{counts['training_rows']:,} of {len(rows.examples):,} rows are training rows{chosen}"
    yield Note(text, "warning" if counts["training_rows"] else "info")
    return counts


def _check_plots(path: Path, diagnosed: bool) -> None:
    """Raise UsageError if the plots could not be drawn, before anything is computed."""
    if not diagnosed:
        raise UsageError("--plots draws a diagnosis; add --diagnose")
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise UsageError(f"{path}: a plot ends in .png, .svg or .pdf")
    if not path.parent.is_dir():
        raise UsageError(f"{path.parent}: no such folder; make it first")
    if find_spec("matplotlib") is None:
        raise UsageError("--plots needs matplotlib: pip install 'recurcli[report]'")


def _diagnosis(predictor: Predictor, texts: Sequence[tuple[str, str | None]]) -> dict[str, Any]:
    """Return the diagnosis of the layers on the first DIAGNOSED_ROWS texts with at least two tokens."""
    from recurcli.diagnostics.diagnose import diagnose  # scipy and all encoders: only where they are asked for

    model = predictor.model
    tokens = predictor.tokenizer.encode(texts[: 4 * DIAGNOSED_ROWS], model.config.max_length)
    rows = np.flatnonzero(tokens.lengths > 1)[:DIAGNOSED_ROWS]
    if not len(rows):
        raise DataError("no row has two tokens; there is nothing to diagnose")
    ids, mask = collate(tokens, rows, pad_id=model.config.pad_id)
    return asdict(diagnose(model, ids.to(predictor.config.device), mask.to(predictor.config.device)))
