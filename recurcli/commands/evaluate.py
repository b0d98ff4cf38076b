"""`recur eval`: the scores of a trained classifier on labelled rows, or the perplexity of a language model on a text."""

from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from recurcli.commands.evaluation.errors_file import write_errors
from recurcli.commands.evaluation.load import count_known_rows, load_rows
from recurcli.commands.evaluation.perplexity import evaluate_language_model, is_language_model
from recurcli.commands.trained_run import task_of, training_rows
from recurcli.data.columns import unread_in_words
from recurcli.data.sources import is_one_file
from recurcli.distributed.group import current
from recurcli.errors import DataError, UsageError, pluralize
from recurcli.evaluation.evaluated import EvaluatedRows
from recurcli.evaluation.inference import probabilities
from recurcli.evaluation.metrics import METRICS
from recurcli.evaluation.predictor import Predictor
from recurcli.evaluation.report import report_with_parts
from recurcli.evaluation.significance import intervals
from recurcli.events import Finished, Note, RowsDone
from recurcli.files import finite
from recurcli.model.device import Precision
from recurcli.runs.model_files import read_linear_model
from recurcli.runs.run_directory import RunDirectory
from recurcli.tokens.batching import collate
from recurcli.tokens.tokenizer import Tokens

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
    errors: Path | None = None,
    report: Callable[[Mapping[str, Any], EvaluatedRows], None] | None = None,
) -> Iterator[Note | RowsDone | Finished]:
    """Score the model in `run` on labelled rows; yields notes, the number of rows done, and the metrics.

    `split` None means all rows of `data` if it is a file or holds label folders, else the dev rows. `columns` has the keys
    `text`, `pair`, `label`, `id`, `header`, `delimiter` and `encoding` of DataConfig for the rows of `data`; a value None means
    that of the training. `diagnosed` adds a diagnosis of the layers, and `plots` is the file of its plots. `errors` is the
    file of the rows that are predicted wrongly. `report` is called with the result and the rows. Raises DataError if the rows
    have no labels.
    """
    given = [key for key, value in (columns or {}).items() if value is not None]
    if given and data is None:
        raise UsageError(f"--{given[0]} belongs to the rows of --data; add --data PATH")
    if plots is not None and not diagnosed:
        raise UsageError("--plots draws a diagnosis; add --diagnose")
    if is_language_model(run):
        if diagnosed or plots is not None or errors is not None or report is not None:
            raise UsageError(
                f"{run}: is a language model; --diagnose, --plots, --errors and --report are for classifiers"
            )
        yield from evaluate_language_model(
            run,
            split=split,
            data=data,
            columns=columns or {},
            device=device,
            precision=precision,
            batch_size=batch_size,
        )
        return
    ranks = current()
    predictor = Predictor.load(run, device=device, precision=precision, batch_size=batch_size, ranks=ranks)
    if not ranks.is_main:
        predictor.serve()
        return
    yield from RunDirectory(run).note_if_unfinished()
    task, ensemble = task_of(run, predictor), predictor.ensemble
    name = split or ("file" if data is not None and is_one_file(data) else "dev")
    rows = load_rows(run, task, name, data, columns, training_rows(run, predictor))
    if unread := unread_in_words(rows.columns.text, rows.unread):
        yield Note(f"{rows.path or task.name}: {unread}")
    labels = [str(example.label) for example in rows.examples]
    yield from rows.notes
    if rows.bad:
        yield Note(f"{pluralize(len(rows.bad), 'bad row')} skipped, the first: {rows.bad[0]}", "warning")
    if rows.dropped:
        yield Note(f"{pluralize(rows.dropped, 'row')} without a majority label ('-') dropped")
    trained_on: dict[str, int | None] = {}
    if name != "train":
        trained_on = yield from count_known_rows(run, task, rows, data)
    texts = rows.texts
    tokens = predictor.encode(texts)
    if plots is not None and not len(_diagnosed_rows(tokens)):
        raise DataError("no row has two tokens, so --plots has nothing to draw")
    encoder_logits = yield from predictor.iter_token_logits(tokens, total=len(texts))
    predictor.dismiss()
    linear = ensemble.linear if ensemble else read_linear_model(run, len(predictor.labels))
    linear_logits = None if linear is None else linear.logits(texts)
    known = task.baselines if name == "dev" else {}
    scores, facts, logits = report_with_parts(
        encoder_logits, linear_logits, ensemble, labels, task, known, predictor.temperature
    )
    if predictor.truncated:
        yield Note(f"{pluralize(predictor.truncated, 'row', 'were')} cut to the {predictor.cut_to} tokens")
    diagnosis: dict[str, Any] = {}
    if diagnosed:
        diagnosis["diagnosis"] = yield from _diagnose(predictor, tokens)
    if plots is not None:
        from recurcli.diagnostics.plots import draw_diagnosis

        draw_diagnosis(diagnosis["diagnosis"], plots, title=f"{run.name}: {predictor.model.config.encoder['name']}")
    evaluated = EvaluatedRows(
        ids=[example.id for example in rows.examples],
        texts=texts,
        names=task.labels,
        labels=np.array(task.targets(labels)),
        probabilities=probabilities(logits, predictor.temperature),
        lengths=tokens.lengths,
        cut=tokens.cut,
    )
    if errors is not None:
        yield Note(f"{errors}: {pluralize(write_errors(errors, evaluated), 'row')} predicted wrongly")
    result = {
        "run": str(run),
        "task": task.name,
        "split": name,
        "rows": len(labels),
        **trained_on,
        "truncated": predictor.truncated,
        "dropped": rows.dropped,
        "unlabelled": rows.unlabelled,
        "path": None if rows.path is None else str(rows.path),
        "sha256": rows.sha256,
        "metrics": scores.to_json(),
        "intervals": intervals(METRICS, evaluated.labels, evaluated.predictions),
        **facts,
        **diagnosis,
    }
    if report is not None:
        report(result, evaluated)
    yield Finished(result)


def _diagnose(predictor: Predictor, tokens: Tokens) -> Generator[Note, None, dict[str, Any] | None]:
    """Return the diagnosis of the layers on the first DIAGNOSED_ROWS rows of at least two tokens; None if there are none.

    A measure that these rows do not define is None. Yields a note on either.
    """
    from recurcli.diagnostics.diagnose import diagnose  # scipy and all encoders: only where they are asked for

    rows = _diagnosed_rows(tokens)
    if not len(rows):
        yield Note("no row has two tokens, so the layers are not diagnosed", "warning")
        return None
    model = predictor.model
    ids, mask = collate(tokens, rows, pad_id=model.config.pad_id, multiple=1)
    found = finite(asdict(diagnose(model, ids.to(predictor.config.device), mask.to(predictor.config.device))))
    if undefined := sorted({key for layer in found["layers"] for key, value in layer.items() if value is None}):
        words = ", ".join(key.replace("_", " ") for key in undefined if not key.endswith("_std"))
        yield Note(
            f"the diagnosis has no value for {words}: the texts have too few pairs of different tokens", "warning"
        )
    return found


def _diagnosed_rows(tokens: Tokens) -> np.ndarray:
    return np.flatnonzero(tokens.lengths > 1)[:DIAGNOSED_ROWS]
