"""`recur eval`: the scores of a trained classifier on labelled rows, or the perplexity of a language model on a text."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

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
from recurcli.data.columns import ColumnSchema, unread_in_words
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
from recurcli.files import CommittedFolder, OutputKind, finite, write_atomically
from recurcli.log import Log
from recurcli.model.device import Precision, choose_device
from recurcli.model.models import Backbone
from recurcli.runs.model_files import (
    build_trained_language_model,
    is_refitted,
    read_known_rows,
    read_linear_model,
    read_model,
)
from recurcli.runs.run_directory import RunDirectory, open_run
from recurcli.tokens.batching import collate
from recurcli.tokens.texts import TextSplit, load_texts, windows_of_splits
from recurcli.tokens.tokenizer import Tokens

ERRORS = OutputKind("a file of mistakes", (".tsv",))
ERROR_COLUMNS = ("id", "label", "prediction", "score", "label_probability", "text")
DIAGNOSED_ROWS = 64
"""Number of rows in a diagnosis, which measures all pairs of their tokens."""


@dataclass(frozen=True, kw_only=True)
class EvaluationRequest:
    """The options of `recur eval`."""

    run: Path
    split: str | None = None
    """None: all rows of `data` if it is a file or holds label folders, else the dev rows."""
    data: Path | None = None
    columns: Mapping[str, object] = field(default_factory=dict)
    """Keys of DataConfig for the rows of `data`: `text`, `pair`, `label`, `id`, `header`, `delimiter`, `quote` and `encoding`.
    A key that is None has its value of the training."""
    device: str = "auto"
    precision: Precision = "fp32"
    batch_size: int = 64
    diagnosed: bool = False
    """Whether the layers are diagnosed."""
    plots: Path | None = None
    """The file of the plots of the diagnosis."""
    errors: Path | None = None
    """The file of the rows that are predicted wrongly."""
    report: Callable[[Mapping[str, Any], EvaluatedRows, CommittedFolder], None] | None = None
    """Called with the result, the rows and the run."""

    def __post_init__(self) -> None:
        given = [key for key, value in self.columns.items() if value is not None]
        if given and self.data is None:
            raise UsageError(f"--{given[0]} belongs to the rows of --data; add --data PATH")
        if self.plots is not None and not self.diagnosed:
            raise UsageError("--plots draws a diagnosis; add --diagnose")


def evaluate(request: EvaluationRequest, log: Log) -> dict[str, Any]:
    """Score the model of a run on labelled rows.

    A language model is scored on a text. Raises DataError if the rows have no labels.
    """
    ranks = current()
    run = open_run(request.run)
    if is_language_model(run):
        return evaluate_language_model(request, run, log)
        return
    if request.errors is not None and request.data is None and not _keeps_texts(run):
        raise UsageError(
            f"{run}: keeps no texts (finetuning.keep_texts); --errors writes those of rows that --data names"
        )
    predictor = Predictor.load(
        run, device=request.device, precision=request.precision, batch_size=request.batch_size, ranks=ranks
    )
    if not ranks.is_main:
        predictor.worker_loop()
        return {}
    RunDirectory(run).note_if_unfinished(log)
    task = task_of(run, predictor)
    scored = scored_split(run, request.split, request.data, request.columns)
    same_file = request.data is None or any(request.columns.get(key) is not None for key in ("text", "pair", "label"))
    rows = load_rows(run, task, scored, training_rows(run, predictor)._replace(same_file=same_file))
    _notes_on_rows(rows, task, log)
    own_dev = scored.name == "dev" and _divides_as_training(run, task, scored)
    overlap = {}
    if scored.name != "train":
        overlap = training_overlap(run, rows, request.data, log, own_dev=own_dev)
    has_encoder = not predictor.model.config.is_linear
    diagnosed = request.diagnosed and has_encoder
    if request.diagnosed and not has_encoder and request.report is None:  # a report has a diagnosis where it can
        raise UsageError(f"{run}: is a linear model, which has no layers to diagnose; leave --diagnose out")
    tokens = predictor.encode(rows.texts)
    if request.plots is not None and not len(_diagnosed_rows(tokens)):
        raise DataError("no row has two tokens, so --plots has nothing to draw")
    encoder_logits = predictor.encoder_logits(tokens, partial(log.rows, total=len(tokens))) if has_encoder else None
    predictor.stop_workers()
    metrics, facts, evaluated = _evaluated(
        predictor, run, task, scored.name, rows, tokens, encoder_logits, own_dev=own_dev
    )
    if predictor.truncated:
        log.note(f"{pluralize(predictor.truncated, 'row', 'were')} cut to the {predictor.cut_to} tokens")
    if diagnosed:
        facts["diagnosis"] = _diagnose(predictor.model, predictor.config.device, log, tokens)
    if request.plots is not None:
        from recurcli.diagnostics.plots import draw_diagnosis

        title = f"{request.run.name}: {predictor.model.config.encoder['name']}"
        draw_diagnosis(facts["diagnosis"], request.plots, title=title)
    if request.errors is not None:
        written = pluralize(write_errors(request.errors, evaluated), "row")
        log.note(f"{request.errors}: {written} predicted wrongly")
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
    if request.report is not None:
        request.report(result, evaluated, run)
    return result


def _notes_on_rows(rows: Split, task: Task, log: Log) -> None:
    """Log notes on the columns that are not read, and on the rows that are left out."""
    if unread := unread_in_words(rows.columns.text, rows.unread):
        log.note(f"{rows.path or task.name}: {unread}")
    log.add(*rows.notes)
    for doubt in () if task_named(task.name).labels else label_doubts(rows.labels):
        log.warn(f"{rows.path or task.name}: {doubt}")
    if rows.bad:
        log.warn(f"{pluralize(len(rows.bad), 'bad row')} skipped, the first: {rows.bad[0]}")
    if rows.dropped:
        log.note(f"{pluralize(rows.dropped, 'row')} without a majority label ('-') dropped")


def _evaluated(
    predictor: Predictor,
    run: CommittedFolder,
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
        lengths=tokens.lengths,
        cut=tokens.cut,
        linear=linear,
        linear_labels=ensemble is not None and ensemble.linear_weight > 0,
    )
    return scores.to_json(), facts, evaluated


def load_rows(run: CommittedFolder, task: Task, scored: ScoredSplit, trained: ColumnSchema | None = None) -> Split:
    """Return the labelled rows to score.

    Raises DataError if the rows have no labels or cannot be read, if they are pairs and the rows `trained` single texts, or
    the other way round, and for rows of the run if they are not those of the training.
    """
    split, config = scored.name, scored.config
    if not task.has_labels(split) and split != "file" and not scored.is_named:
        raise DataError(f"the {split} rows of {task.name} carry no labels; `recur export` predicts them for CLUE")
    scored.check("rows")
    if split == "file":
        return load_split(task, "dev", config, trained=trained)
    rows = load_split(task, split, config, use_dev_split=_divides_as_training(run, task, scored), trained=trained)
    if rows.label is None:
        raise DataError(f"the {split} rows of {task.name} carry no labels; `recur predict` labels them")
    if scored.is_own:
        check_rows_of_training(run, split, rows)
    return rows


def _divides_as_training(run: CommittedFolder, task: Task, scored: ScoredSplit) -> bool:
    """Return whether the dev rows are drawn from the file, as in the training of the run."""
    return scored.is_own or (scored.is_lone_file and is_training_file(run, task, Path(str(scored.config.path))))


def training_overlap(
    run: CommittedFolder, rows: Split, data: Path | None, log: Log, *, own_dev: bool = False
) -> dict[str, int | None]:
    """Return the numbers of `rows` with the text of a training row and of a dev row of the run.

    The dev rows are training rows if the linear model was fitted again on them; as `own_dev` rows they are not. A number is
    None if it is unknown. On rows of the run's own, for which `data` is None, there is a note only if training rows are among
    them.
    """
    known = read_known_rows(run) if data is None else known_rows_of(run, log)
    if known is None:
        return {"training_rows": None, "dev_rows": len(rows.examples) if own_dev else None}
    if is_refitted(run) and not own_dev:
        known = known.refitted()
    counts, note = known.among(rows.hashes)
    if data is not None or counts["training_rows"]:
        log.add(note)
    return counts


def _diagnose(
    model: Backbone, device: torch.device, log: Log, tokens: Tokens, targets: Tokens | None = None
) -> dict[str, Any] | None:
    """Return the diagnosis of the layers on the first DIAGNOSED_ROWS rows of at least two tokens; None if there are none.

    `targets` are the next tokens of the rows of a language model. A measure that these rows do not define is None. Yields a
    note on either.
    """
    from recurcli.diagnostics.diagnose import diagnose  # scipy and all encoders: only where they are asked for

    rows = _diagnosed_rows(tokens)
    if not len(rows):
        log.warn("no row has two tokens, so the layers are not diagnosed")
        return None
    ids, mask = (part.to(device) for part in collate(tokens, rows, pad_id=model.config.pad_id, multiple=1))
    following = None
    if targets is not None:
        following = collate(targets, rows, pad_id=model.config.pad_id, multiple=1)[0].to(device)
    found = finite(asdict(diagnose(model, ids, mask, following)))
    most, limit = found["encoder_stats"].get("most_iterations"), model.config.encoder.get("max_iterations")
    if most is not None and most == limit:
        log.warn(f"encoder.max_iterations {limit} ended the iteration of some rows before its fixed point")
    if undefined := sorted({key for layer in found["layers"] for key, value in layer.items() if value is None}):
        words = ", ".join(key.replace("_", " ") for key in undefined if not key.endswith("_std"))
        log.warn(f"the diagnosis has no value for {words}: the texts have too few pairs of different tokens")
    return found


def _diagnosed_rows(tokens: Tokens) -> np.ndarray:
    return np.flatnonzero(tokens.lengths > 1)[:DIAGNOSED_ROWS]


def write_errors(path: Path, rows: EvaluatedRows) -> int:
    """Write the wrongly predicted rows to `path`, the most confident one first; return their number.

    The columns are ERROR_COLUMNS, and `pair` if a row has a second text. TABs and line ends in a text are written as \\t, \\n
    and \\r.
    """
    pairs = any(pair is not None for _, pair in rows.texts)
    write_atomically(path, "".join(_lines(rows, pairs)))
    return len(rows.mistakes)


def _lines(rows: EvaluatedRows, pairs: bool) -> Iterator[str]:
    escapes = escapes_of("\t")
    yield "\t".join((*ERROR_COLUMNS, *(["pair"] if pairs else []))) + "\n"
    for row in rows.mistakes:
        text, pair = rows.texts[row]
        fields = [
            rows.ids[row],
            rows.names[rows.labels[row]],
            rows.names[rows.predictions[row]],
            f"{rows.scores[row]:.6f}",
            f"{rows.probabilities[row, rows.labels[row]]:.6f}",
            text,
            *([pair or ""] if pairs else []),
        ]
        yield "\t".join(field.translate(escapes) for field in fields) + "\n"


def _keeps_texts(run: CommittedFolder) -> bool:
    section = RunDirectory(run).read_preset().get("finetuning")
    return not isinstance(section, dict) or bool(section.get("keep_texts", True))


def is_language_model(run: CommittedFolder) -> bool:
    """Return whether `run` is a pretrained run with the causal objective. Return False if its preset cannot be read."""
    directory = RunDirectory(run)
    try:
        if directory.read_command() != "pretrain":
            return False
        section = directory.read_preset().get("pretraining")
    except ModelError:  # what loads the model names its file
        return False
    return isinstance(section, dict) and section.get("objective") == "causal"


def evaluate_language_model(request: EvaluationRequest, run: CommittedFolder, log: Log) -> dict[str, Any]:
    """Compute the perplexity of the model of a run.

    Every token counts once, in windows of the length of the training; the state is carried over them if it was carried there.
    Raises UsageError for what is asked of a classifier.
    """
    ranks = current()
    if request.errors is not None or request.report is not None:
        raise UsageError(f"{request.run}: is a language model; --errors and --report are for classifiers")
    config = InferenceConfig(choose_device(request.device, ranks), request.precision, request.batch_size, ranks)
    ranks.connect(config.device)
    files = read_model(run)
    model = build_trained_language_model(files, config.device)
    RunDirectory(run).note_if_unfinished(log)
    try:
        task = task_named(files.config.task)
    except UsageError as error:
        raise ModelError(f"{run.path / 'config.json'}: {error}") from None
    scored = scored_split(run, request.split, request.data, request.columns)
    name, text = scored.name, _load_text(run, task, scored)
    overlap = {} if name == "train" else (_overlap_of_lines(run, text, request.data, log))
    windows, facts = windows_of_splits({name: text}, files.tokenizer, files.config.max_length, log)
    carry = bool(RunDirectory(run).read_preset()["pretraining"].get("carry"))
    progress = partial(log.rows, total=len(windows[name].targets), unit="window")
    score = score_text(model, windows[name], config, progress, carry=carry)
    found: dict[str, Any] = {}
    if request.diagnosed and ranks.is_main:
        found["diagnosis"] = _diagnose(model, config.device, log, *windows[name])
        if carry:
            log.note("the diagnosis is of windows alone: each begins without a carried state")
        if request.plots is not None and found["diagnosis"] is not None:
            from recurcli.diagnostics.plots import draw_diagnosis

            title = f"{request.run.name}: {files.config.encoder['name']}"
            draw_diagnosis(found["diagnosis"], request.plots, title=title)
    result: dict[str, Any] = {
        "run": str(request.run),
        "task": task.name,
        "split": name,
        **facts[name],
        "carry": carry,
        **found,
        **overlap,
        "windows": len(windows[name].targets),
        "perplexity": score.perplexity,
        "metrics": {"perplexity": score.perplexity, "loss": score.loss},
    }
    return result if ranks.is_main else {}


def _load_text(run: CommittedFolder, task: Task, scored: ScoredSplit) -> TextSplit:
    """Return the text to score. Raises DataError if it cannot be read, and for text of the run if it is not that of the
    training.
    """
    split, config = scored.name, scored.config
    scored.check("text")
    use_dev_split = split not in ("file", "test") and (
        scored.is_own or _is_training_text(run, task, Path(str(config.path)))
    )
    text = load_texts(task, "train" if split == "file" else split, config, use_dev_split=use_dev_split)
    if scored.is_own:
        check_rows_of_training(run, split, text)
    return text


def _overlap_of_lines(run: CommittedFolder, text: TextSplit, data: Path | None, log: Log) -> Mapping[str, int | None]:
    """Return the numbers of lines of `text` that are training lines and dev lines of the run.

    On text of the run's own, for which `data` is None, there is a note only if it is a warning.
    """
    if (known := read_known_rows(run)) is None:
        return {"training_rows": None, "dev_rows": None}
    counts, note = known.among(hashes_of(text.lines), lines=True)
    if data is not None or note.level == "warning":
        log.add(note)
    return counts


def _is_training_text(run: CommittedFolder, task: Task, data: Path) -> bool:
    """Return whether `data` is the folder that the run was trained on, or its training file."""
    path = RunDirectory(run).read_data_config().path
    if data.is_dir() and path is not None and Path(path).is_dir():
        return data.samefile(path)
    return is_training_file(run, task, data)
