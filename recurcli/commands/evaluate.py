"""`recur eval`: the scores of a trained classifier on labelled rows, or the perplexity of a language model on a text."""

from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from recurcli.commands.trained_run import (
    ScoredSplit,
    check_rows_of_training,
    is_training_file,
    known_rows_of,
    scored_split,
    task_of,
    training_rows,
)
from recurcli.data.columns import ColumnSchema
from recurcli.data.readers import escapes_of
from recurcli.data.splits import Split, hashes_of, load_split
from recurcli.data.tasks import Task, task_named
from recurcli.data.values import label_doubts
from recurcli.distributed.group import current
from recurcli.errors import DataError, ModelError, UsageError, pluralize
from recurcli.evaluation.inference import InferenceConfig, Predictor, probabilities, score_text
from recurcli.evaluation.metrics import METRICS
from recurcli.evaluation.report import EvaluatedRows, report_with_parts
from recurcli.evaluation.significance import intervals
from recurcli.files import PLOT, OutputKind, check_writable, finite, write_atomically
from recurcli.log import Log
from recurcli.model.device import choose_device
from recurcli.model.models import Backbone
from recurcli.requests.evaluate import EvaluateRequest
from recurcli.runs.model_files import (
    LINES_REPEAT,
    Hashes,
    build_trained_language_model,
    is_refitted,
    log_known_rows,
    read_known_rows,
    read_linear_model,
    read_model,
)
from recurcli.runs.run_directory import Run, contents_of, open_run
from recurcli.tokens.batching import collate
from recurcli.tokens.texts import TextSplit, load_texts, windows_of_splits
from recurcli.tokens.tokenizer import Tokens

ERRORS = OutputKind("a file of mistakes", (".tsv",))
REPORT = OutputKind("a report", (".html",), ("matplotlib", "jinja2"))
DIAGNOSED_ROWS = 64
"""Number of rows in a diagnosis, which measures all pairs of their tokens."""


class Evaluation(NamedTuple):
    """The result of `recur eval`, which is empty on all ranks but the first."""

    result: dict[str, Any]
    run: Run
    rows: EvaluatedRows | None = None
    """The rows with their predictions. None for a language model."""


def evaluate(request: EvaluateRequest, log: Log) -> Evaluation:
    """Score the model of a run on labelled rows, a language model on a text.

    Raises UsageError for an output that cannot be written, DataError if the rows have no labels.
    """
    read = [*contents_of(request.run), *([] if request.data is None else [request.data])]
    for option, kind in (("plots", PLOT), ("errors", ERRORS), ("report", REPORT)):
        if (path := getattr(request, option)) is not None:
            check_writable(path, kind, overwrite=request.overwrite, option=f"--{option}", inputs=read)
    run = open_run(request.run)
    if _is_language_model(run):
        return _evaluate_language_model(request, run, log)
    return _evaluate_classifier(request, run, log)


def _is_language_model(run: Run) -> bool:
    """Return whether `run` is a pretrained run with the causal objective. Return False if its preset cannot be read."""
    try:
        if run.read_command() != "pretrain":
            return False
        section = run.read_preset().get("pretraining")
    except ModelError:  # what loads the model names its file
        return False
    return isinstance(section, dict) and section.get("objective") == "causal"


def _evaluate_classifier(request: EvaluateRequest, run: Run, log: Log) -> Evaluation:
    if request.errors is not None and request.data is None and not _keeps_texts(run):
        raise UsageError(
            f"{run}: keeps no texts (finetuning.keep_texts); --errors writes those of rows that --data names"
        )
    ranks = current()
    predictor = Predictor.load(run, **asdict(request.inference), ranks=ranks)
    if not ranks.is_main:
        predictor.worker_loop()
        return Evaluation({}, run)
    run.note_if_unfinished(log)
    has_encoder = not predictor.model.config.is_linear
    if not has_encoder and (request.diagnose or request.plots is not None):
        raise UsageError(f"{run}: is a linear model, which has no layers to diagnose; leave --diagnose out")

    task, columns = task_of(run, predictor), request.columns.given()
    scored = scored_split(run, request.split, request.data, columns)
    schema = training_rows(run, predictor)
    divided = scored.is_own or (scored.is_lone_file and is_training_file(run, task, Path(str(scored.config.path))))
    own_dev = scored.name == "dev" and divided
    rows = _read_rows(run, task, scored, schema, use_dev_split=divided)
    _note_rows(rows, task, log)
    overlap: dict[str, int | None] = {}
    if scored.name != "train":
        overlap = _training_overlap(run, rows.hashes, log, is_own=request.data is None, own_dev=own_dev)

    tokens = predictor.encode(rows.texts)
    encoder_logits = predictor.encoder_logits(tokens, partial(log.rows, total=len(tokens))) if has_encoder else None
    predictor.stop_workers()
    if predictor.truncated:
        log.note(f"{pluralize(predictor.truncated, 'row', 'were')} cut to the {predictor.cut_to} tokens")
    metrics, facts, evaluated = _scores(
        predictor, run, task, scored.name, rows, tokens, encoder_logits, own_dev=own_dev
    )
    if has_encoder:
        facts |= _diagnosis(request, predictor.model, predictor.config.device, log, tokens)
    if request.errors is not None:
        _write_errors(request.errors, evaluated)
        log.note(f"{request.errors}: {pluralize(len(evaluated.mistakes), 'row')} predicted wrongly")
    result = {
        "run": str(request.run),
        "task": task.name,
        "split": scored.name,
        "rows": len(tokens),
        **overlap,
        "truncated": predictor.truncated,
        "dropped": rows.dropped,
        "unlabelled": rows.unlabelled,
        "path": None if rows.path is None else str(rows.path),
        "sha256": rows.sha256,
        "metrics": metrics,
        "intervals": intervals(METRICS, evaluated.labels, evaluated.predictions),
        **facts,
    }
    return Evaluation(result, run, evaluated)


def _keeps_texts(run: Run) -> bool:
    section = run.read_preset().get("finetuning")
    return not isinstance(section, dict) or bool(section.get("keep_texts", True))


def _read_rows(run: Run, task: Task, scored: ScoredSplit, schema: ColumnSchema, *, use_dev_split: bool) -> Split:
    """Return the labelled rows to score.

    Raises DataError if the rows have no labels or cannot be read, if they are pairs and those of the `schema` single texts, or
    the other way round, and for rows of the run if they are not those of the training.
    """
    split, is_file = scored.name, scored.name == "file"
    if not is_file and not scored.is_named and not task.has_labels(split):
        raise DataError(f"the {split} rows of {task.name} carry no labels; `recur export` predicts them for CLUE")
    scored.check("rows")
    use_dev_split = use_dev_split and not is_file
    rows = load_split(task, "dev" if is_file else split, scored.config, use_dev_split=use_dev_split, trained=schema)
    if rows.label is None:
        raise DataError(f"the {split} rows of {task.name} carry no labels; `recur predict` labels them")
    if scored.is_own:
        check_rows_of_training(run, split, rows)
    return rows


def _note_rows(rows: Split, task: Task, log: Log) -> None:
    """Log notes on the columns that are not read, and on the rows that are left out."""
    where = rows.path or task.name
    log.add(*rows.notes)
    for doubt in () if task_named(task.name).labels else label_doubts(rows.labels):
        log.warn(f"{where}: {doubt}")
    if rows.bad:
        log.warn(f"{pluralize(len(rows.bad), 'bad row')} skipped, the first: {rows.bad[0]}")
    if rows.dropped:
        log.note(f"{pluralize(rows.dropped, 'row')} without a majority label ('-') dropped")


def _training_overlap(
    run: Run, hashes: Hashes, log: Log, *, is_own: bool, own_dev: bool = False, lines: bool = False
) -> dict[str, int | None]:
    """Return how many of the rows or `lines` of text with these hashes are training rows and dev rows of the run.

    The dev rows are training rows if the linear model was fitted again on them; as `own_dev` rows they are not. A number is
    None if it is unknown. On rows of the run's own (`is_own`) there is a note only if it is a warning.
    """
    known = read_known_rows(run) if is_own else known_rows_of(run, log)
    if known is None:
        return {"training_rows": None, "dev_rows": len(hashes) if own_dev else None}
    if is_refitted(run) and not own_dev:
        known = known.refitted()
    counts = known.count(hashes)
    if not is_own or counts["training_rows"] > (LINES_REPEAT * len(hashes) if lines else 0):
        log_known_rows(log, counts, len(hashes), lines=lines)
    return {**counts}


def _scores(
    predictor: Predictor,
    run: Run,
    task: Task,
    split: str,
    rows: Split,
    tokens: Tokens,
    encoder_logits: np.ndarray | None,
    *,
    own_dev: bool,
) -> tuple[dict[str, Any], dict[str, Any], EvaluatedRows]:
    """Return the metrics of the model for the JSON, facts on its parts and calibration, and the rows with their predictions.

    The run's own dev rows are scored with the first fit of the linear model, which was not fitted on them.
    """
    ensemble, labels = predictor.ensemble, [str(example.label) for example in rows.examples]
    linear = None if ensemble is None else ensemble.linear
    if linear is None or (own_dev and is_refitted(run)):
        linear = read_linear_model(run, len(predictor.labels), first_fit=own_dev)
    if ensemble is not None and linear is not None:
        ensemble = replace(ensemble, linear=linear)
    linear_logits = None if linear is None else linear.logits(rows.texts)
    known = task.baselines if split == "dev" else {}
    scores, facts, logits = report_with_parts(
        encoder_logits, linear_logits, ensemble, labels, task, known, predictor.temperature
    )
    evaluated = EvaluatedRows(
        ids=[example.id for example in rows.examples],
        texts=rows.texts,
        names=task.labels,
        labels=np.array(task.targets(labels)),
        probabilities=probabilities(logits, predictor.temperature),
        linear=linear,
        linear_labels=ensemble is not None and ensemble.linear_weight > 0,
    )
    return scores.to_json(), facts, evaluated


def _diagnosis(
    request: EvaluateRequest,
    model: Backbone,
    device: torch.device,
    log: Log,
    tokens: Tokens,
    targets: Tokens | None = None,
) -> dict[str, Any]:
    """Return the diagnosis of the layers by its key in the result, or {} if it is not asked for; draw it for --plots.

    It is of the first DIAGNOSED_ROWS rows of at least two tokens, and None if there are none. `targets` are the next tokens of
    the rows of a language model. A measure that these rows do not define is None. Raises DataError for --plots of no rows.
    """
    if not request.diagnose and request.report is None:
        return {}
    from recurcli.diagnostics.diagnose import diagnose  # scipy and all encoders: only where they are asked for

    rows = np.flatnonzero(tokens.lengths > 1)[:DIAGNOSED_ROWS]
    if not len(rows):
        if request.plots is not None:
            raise DataError("no row has two tokens, so --plots has nothing to draw")
        log.warn("no row has two tokens, so the layers are not diagnosed")
        return {"diagnosis": None}
    ids, mask = (part.to(device) for part in collate(tokens, rows, pad_id=model.config.pad_id, multiple=1))
    following = None
    if targets is not None:
        following = collate(targets, rows, pad_id=model.config.pad_id, multiple=1)[0].to(device)
    found = finite(asdict(diagnose(model, ids, mask, following)))
    most, limit = found["encoder_stats"].get("most_iterations"), model.config.encoder.get("max_iterations")
    if most is not None and most == limit:
        log.warn(f"encoder.max_iterations {limit} ended the iteration of some rows before its fixed point")
    if undefined := sorted({key for layer in found["layers"] for key, value in layer.items() if value is None}):
        words = ", ".join(key.replace("_", " ") for key in undefined)
        log.warn(f"the diagnosis has no value for {words}: the texts have too few pairs of different tokens")
    if request.plots is not None:
        from recurcli.diagnostics.plots import draw_diagnosis

        draw_diagnosis(found, request.plots, title=f"{request.run.name}: {model.config.encoder['name']}")
    return {"diagnosis": found}


def _write_errors(path: Path, rows: EvaluatedRows) -> None:
    """Write the wrongly predicted rows to `path`, the most confident one first, with a column `pair` if they are pairs.

    TABs and line ends in a text are written as \\t, \\n and \\r.
    """
    columns = ["id", "label", "prediction", "score", "label_probability", "text"]
    if has_pairs := any(pair is not None for _, pair in rows.texts):
        columns.append("pair")
    lines = [columns]
    for row in rows.mistakes:
        text, pair = rows.texts[row]
        scores = (rows.scores[row], rows.probabilities[row, rows.labels[row]])
        label, prediction = rows.names[rows.labels[row]], rows.names[rows.predictions[row]]
        texts = [text, pair or ""] if has_pairs else [text]
        lines.append([rows.ids[row], label, prediction, *(f"{score:.6f}" for score in scores), *texts])
    escapes = escapes_of("\t")
    write_atomically(path, "".join("\t".join(field.translate(escapes) for field in line) + "\n" for line in lines))


def _evaluate_language_model(request: EvaluateRequest, run: Run, log: Log) -> Evaluation:
    """Compute the perplexity of the model of a run.

    Every token counts once, in windows of the length of the training; the state is carried over them if it was carried there.
    Raises UsageError for what is asked of a classifier.
    """
    if request.errors is not None or request.report is not None:
        raise UsageError(f"{request.run}: is a language model; --errors and --report are for classifiers")
    inference, ranks = request.inference, current()
    config = InferenceConfig(choose_device(inference.device, ranks), inference.precision, inference.batch_size, ranks)
    ranks.connect(config.device)
    files = read_model(run)
    model = build_trained_language_model(files, config.device)
    run.note_if_unfinished(log)
    try:
        task = task_named(files.config.task)
    except UsageError as error:
        raise ModelError(f"{run.path / 'config.json'}: {error}") from None

    scored = scored_split(run, request.split, request.data, request.columns.given())
    split, text = scored.name, _read_text(run, task, scored)
    overlap: dict[str, int | None] = {}
    if split != "train":
        overlap = _training_overlap(run, hashes_of(text.lines), log, is_own=request.data is None, lines=True)

    windows, facts = windows_of_splits({split: text}, files.tokenizer, files.config.max_length, log)
    count = len(windows[split].targets)
    carry = bool(run.read_preset()["pretraining"].get("carry"))
    score = score_text(model, windows[split], config, partial(log.rows, total=count, unit="window"), carry=carry)
    if not ranks.is_main:
        return Evaluation({}, run)
    diagnosis = _diagnosis(request, model, config.device, log, *windows[split])
    if diagnosis and carry:
        log.note("the diagnosis is of windows alone: each begins without a carried state")
    result = {
        "run": str(request.run),
        "task": task.name,
        "split": split,
        **facts[split],
        "carry": carry,
        **diagnosis,
        **overlap,
        "windows": count,
        "perplexity": score.perplexity,
        "metrics": {"perplexity": score.perplexity, "loss": score.loss},
    }
    return Evaluation(result, run)


def _read_text(run: Run, task: Task, scored: ScoredSplit) -> TextSplit:
    """Return the text to score.

    Raises DataError if it cannot be read, and for text of the run if it is not that of the training.
    """
    split, config = scored.name, scored.config
    scored.check("text")
    use_dev_split = split in ("train", "dev") and (
        scored.is_own or _is_training_text(run, task, Path(str(config.path)))
    )
    text = load_texts(task, "train" if split == "file" else split, config, use_dev_split=use_dev_split)
    if scored.is_own:
        check_rows_of_training(run, split, text)
    return text


def _is_training_text(run: Run, task: Task, data: Path) -> bool:
    """Return whether `data` is the folder that the run was trained on, or its training file."""
    path = run.read_data_config().path
    if data.is_dir() and path is not None and Path(path).is_dir():
        return data.samefile(path)
    return is_training_file(run, task, data)
