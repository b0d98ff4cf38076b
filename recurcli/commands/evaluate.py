"""`recur eval`: the scores of a trained classifier on labelled rows, or the perplexity of a language model on a text."""

import contextlib
import json
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recurcli.commands.prediction.rows import as_text
from recurcli.commands.trained_run import data_config, task_of
from recurcli.commands.training.report import model_card, warn_of_thresholds
from recurcli.config import DataConfig
from recurcli.data.known import Hashes, log_known_rows
from recurcli.data.labels import joint_doubt
from recurcli.data.readers import escapes_of
from recurcli.data.rows import file_and_part
from recurcli.data.source import Source
from recurcli.data.splits import OF_FILE, Split, load_split
from recurcli.data.tasks import Task, check_split, find_place, is_local, is_one_file, task_with_columns
from recurcli.errors import DataError, UsageError, did_you_mean, escaped, html_table, pluralize
from recurcli.evaluation.decision import Kept
from recurcli.evaluation.groups import group_scores
from recurcli.evaluation.predictor import Predictor
from recurcli.evaluation.report import EvaluatedRows, report_with_parts
from recurcli.files import REPORT, OutputKind, check_writable, naming_damage, sha256_of, sha256_of_all, write_atomically
from recurcli.linear.model import Logits
from recurcli.log import Log
from recurcli.metrics import MAX_IN_FULL
from recurcli.requests.evaluate import EvaluateRequest
from recurcli.runs.hub import local_run
from recurcli.runs.model_files import read_known_rows, read_linear_model
from recurcli.runs.predictions import read_current_result
from recurcli.runs.run_directory import (
    LINEAR_FIRST_FIT,
    MODEL_CARD,
    PREDICTIONS,
    THRESHOLDS,
    Run,
    RunDirectory,
    contents_of,
    open_run,
    reopen_run,
)
from recurcli.targets import OneLabel, Target
from recurcli.targets.target import cell_from_json, labels_in
from recurcli.tokens.texts import TextSplit

ERRORS = OutputKind("a file of mistakes", (".tsv",))
BY_LENGTH, BY_FILE = "text-length", "file"
"""What --by takes beside the columns of the rows, which come first."""
MOST_NAMED = 8
"""Unknown labels that a warning names, with their rows."""


class Evaluation(NamedTuple):
    """The result of `recur eval`."""

    result: dict[str, Any]
    run: Run
    rows: EvaluatedRows | None = None
    """The rows with their predictions. None for a language model."""

    def _repr_html_(self) -> str:
        """Return the metrics for a notebook."""
        numbers = self.result["metrics"].items()
        return html_table((name, f"{value:.4g}") for name, value in numbers if isinstance(value, float))


def evaluate(request: EvaluateRequest, log: Log) -> Evaluation:
    """Score the model of a run on labelled rows, a language model on a text.

    Raises UsageError for an output that cannot be written, DataError if the rows have no labels.
    """
    read = [*contents_of(request.run), *([] if request.data is None else [request.data])]
    for option, kind in (("errors", ERRORS), ("report", REPORT)):
        if (path := getattr(request, option)) is not None:
            check_writable(path, kind, overwrite=request.overwrite, option=f"--{option}", inputs=read)
    asked, request = request.run, replace(request, run=local_run(request.run, log))
    log.stage(f"reading {request.run}")
    run = open_run(request.run)
    if request.save and (request.run != asked or PREDICTIONS not in run):
        raise UsageError(f"{run}: is a copy of a run, where --save writes nothing; leave it out")
    if run.read_command() == "pretrain" and run.read_preset()["pretraining"].get("objective") == "causal":
        from recurcli.commands.evaluation.network import evaluate_language_model  # torch

        return Evaluation(evaluate_language_model(request, run, log), run)
    predictor = Predictor.load(run, **asdict(request.inference), every_part=True)
    run.note_if_unfinished(log)
    encoder = predictor.encoder
    if encoder is None and request.diagnose:
        raise UsageError(f"{run}: is a linear model, which has no layers to diagnose; leave --diagnose out")

    if not predictor.kept.target.has_labels and (request.drop_unknown or request.fit_thresholds is not None):
        given = "--drop-unknown" if request.drop_unknown else "--fit-thresholds"
        raise UsageError(f"{run}: predicts numbers; {given} is for labels, leave it out")
    if request.fit_thresholds is not None:
        predictor.kept.target.check_metric("--fit-thresholds", request.fit_thresholds)
    task = task_of(run, predictor)
    is_dev = request.data is None and request.split in (None, "dev")
    if is_dev and run.is_finished and "cross_validation" in run.read_result():
        return _cross_validated(request, run, predictor, task, log)
    split, rows, own_dev, overlap, trained_on = read_rows(request, run, task, predictor.source, log)
    log.stage("scoring the rows")
    of = dict[str, Logits]()
    if encoder is not None:
        from recurcli.commands.evaluation.network import diagnosis  # torch
        from recurcli.models.data import warn_of_unlearned_positions

        tokens = encoder.encode(rows.texts)
        predictor.truncated = tokens.truncated
        of["encoder"] = encoder.logits(tokens, partial(log.rows, total=len(tokens)))
        predictor.note_on_cuts(len(tokens), log)
        warn_of_unlearned_positions(split, run.read_preset()["encoder"], log)

    linear, kept = predictor.linear, predictor.kept
    if linear is None or (own_dev and LINEAR_FIRST_FIT in run):  # the first fit has not seen the dev rows
        linear = read_linear_model(run, len(predictor.labels), first_fit=own_dev)
    if linear is not None:
        of["linear"] = linear.logits(rows.texts)
    preset = run.read_preset()
    baselines = task.baselines if split == "dev" else {}
    if request.fit_thresholds is not None:
        kept = kept.with_thresholds(kept.probabilities(kept.logits(of)), rows.y, request.fit_thresholds)
    metric = kept.target.metric_of(preset.get("finetuning", {}).get("metric", "auto"))
    metrics, facts, logits = report_with_parts(kept, of, rows, baselines, metric, trained_on)
    shares = kept.probabilities(logits)
    evaluated = EvaluatedRows(
        ids=None if isinstance(rows.examples.ids, array) else rows.examples.ids,
        lines=[*map(rows.place_of, rows.examples.lines)],
        texts=rows.texts,
        target=kept.target,
        labels=rows.cells,
        y=rows.y,
        probabilities=shares,
        predictions=kept.decide(shares),
    )
    if encoder is not None:
        facts |= diagnosis(request, encoder.model, encoder.inference.device, log, tokens)
    about_rows = {
        "split": split,
        "rows": len(rows.examples),
        **overlap,
        "truncated": predictor.truncated,
        "dropped": rows.dropped,
        "unlabelled": rows.unlabelled,
        "path": None if rows.path is None else str(rows.path),
        "sha256": rows.sha256,
    }
    facts = {"metric": metric, "metrics": metrics, "kept": kept.to_json(), **facts}
    return _finish(request, run, evaluated, kept, about_rows, facts, [rows], log)


def _cross_validated(request: EvaluateRequest, run: Run, predictor: Predictor, task: Task, log: Log) -> Evaluation:
    """Return the scores of a cross-validated run, from its stored out-of-fold predictions."""
    kept = predictor.kept
    trained, names, target = read_current_result(run), task.labels, kept.target
    rows, shares = _stored_predictions(run, PREDICTIONS, names)
    labels = [cell_from_json(row["label"]) for row in rows]
    texts = [(row.get("text", ""), row.get("pair")) for row in rows]
    ids, lines = [row["id"] for row in rows], [row.get("line", 0) for row in rows]
    y, metrics, facts = target.encode(labels), trained["dev"], trained["data"]["train"]
    stored = target.encode(cell_from_json(row["prediction"]) for row in rows)
    if "text" not in rows[0] and (request.errors or request.report):
        raise UsageError(
            f"{run}: keeps no texts (finetuning.keep_texts), which --errors and --report show; leave them out"
        )
    if request.fit_thresholds is not None:
        _check_kept_in_full(run, names)
        kept = kept.with_thresholds(shares, y, request.fit_thresholds)
        metrics |= target.report(y, kept.decide(shares), shares, loss=metrics["loss"])
        trained["model_intervals"]["model"] = [*target.interval(y, kept.decide(shares))]
    log.note(f"these are the scores of the training: {trained['cross_validation']['folds']}-fold cross-validation")
    own_ids = None if {*ids} == {*map(str, range(len(ids)))} else ids  # the numbers of the rows are not ids
    predictions = stored if len(names) > MAX_IN_FULL else kept.decide(shares)
    evaluated = EvaluatedRows(own_ids, lines, texts, target, labels, y, shares, predictions)
    about_rows = {"split": "dev", "training_rows": len(rows), "dev_rows": 0, **facts}
    scores = {
        key: trained[key]
        for key in ("metric", "cross_validation", "baselines", "model_intervals", "kept", "calibration")
    }
    splits: list[Split] = []
    if request.by is not None:
        split = training_rows(run, task, predictor.source, keep_records=True)
        splits = [split] if split.dev is None else [split, split.dev]
    return _finish(request, run, evaluated, kept, about_rows, {**scores, "metrics": metrics}, splits, log)


def _stored_predictions(run: Run, name: str, names: Sequence[str]) -> tuple[list[dict[str, Any]], NDArray[np.float64]]:
    """Return the rows of the predictions file `name`, and the probabilities (N, C) of the labels `names`; of numbers these.

    Of more than MAX_IN_FULL labels those that a row does not keep are 0. Raises ModelError if the file is damaged.
    """
    missing = dict.fromkeys(names, 0.0) if len(names) > MAX_IN_FULL else {}
    with naming_damage(run[name].path):
        rows = [json.loads(line) for line in run[name].read().splitlines()]
        shares = [[(missing | row["probabilities"])[label] for label in names] for row in rows]
    return rows, np.array(shares)


def _check_kept_in_full(run: Run, names: Sequence[str]) -> None:
    """Raise UsageError if the run keeps the largest probabilities of a row alone, since the labels `names` are many."""
    if len(names) > MAX_IN_FULL:
        raise UsageError(f"{run}: keeps few probabilities of {len(names)} labels; train with finetuning.thresholds")


def _finish(
    request: EvaluateRequest,
    run: Run,
    rows: EvaluatedRows,
    kept: Kept,
    about_rows: Mapping[str, Any],
    scores: Mapping[str, Any],
    splits: Sequence[Split],
    log: Log,
) -> Evaluation:
    """Write what `request` asks for, and return the result. `splits` have the rows that --by groups."""
    if request.fit_thresholds is not None:
        warn_of_thresholds(kept.thresholds, "leave --save out", log)
    if request.save:
        _save(run, kept)
        log.note(f"{request.run}: labels by the thresholds of {THRESHOLDS} from now on")
    if request.errors is not None:
        _write_errors(request.errors, rows)
        what = "predicted wrongly" if rows.target.has_labels else "by their errors, the largest first"
        log.note(f"{request.errors}: {pluralize(len(rows.mistakes), 'row')} {what}")
    log.add(*rows.target.notes_on_rows(scores["metrics"]))
    result = {
        "run": str(request.run),
        "task": run.read_preset()["task"],
        "target": rows.target.kind,
        **about_rows,
        **scores,
        "intervals": rows.target.intervals(rows.y, rows.predictions),
        "thresholds": kept.thresholds,
    }
    if request.by is not None:
        values = {place: value for split in splits for place, value in values_by(request.by, split).items()}
        result |= {"by": request.by, "groups": group_scores(rows, [values[place] for place in rows.lines])}
    return Evaluation(result, run, rows)


def _save(run: Run, kept: Kept) -> None:
    """Keep the thresholds in `run`, and write the model card with the scores that they give.

    Raises UsageError for a run that is not finished, or that does not keep the probabilities of all classes;
    StorageError if a new training has replaced it.
    """
    if not run.is_finished:
        raise UsageError(f"{run}: its training is not finished; --save needs the result of it")
    _check_kept_in_full(run, kept.target.labels)
    assert kept.thresholds is not None
    directory = RunDirectory(run.path)
    with directory.lock():
        reopen_run(run.path, run.sha256)
        directory.write_thresholds(kept.thresholds)
        write_atomically(run.path / MODEL_CARD, model_card(read_current_result(Run(run.path))))


def _write_errors(path: Path, rows: EvaluatedRows) -> None:
    """Write the wrongly predicted rows to `path`, the largest error first, with the number of their first line.

    There is a column `id` if rows have ids, and `pair` if they are pairs. TABs and line ends in a text are written as \\t, \\n
    and \\r.
    """
    more = rows.mistake(0)
    columns = ["line", "id", "label", "prediction", *more, "text", "pair"]
    if rows.ids is None:
        columns.remove("id")
    if all(pair is None for _, pair in rows.texts):
        columns.remove("pair")
    escapes, lines = escapes_of("\t"), ["\t".join(columns)]
    for row in rows.mistakes.tolist():
        text, pair = rows.texts[row]
        fields = {
            "line": str(rows.lines[row]),
            "id": "" if rows.ids is None else rows.ids[row],
            "label": rows.target.text_of(rows.labels[row]),
            "prediction": rows.target.text_of(rows.predicted[row]),
            **rows.mistake(row),
            "text": text,
            "pair": pair or "",
        }
        lines.append("\t".join(fields[column].translate(escapes) for column in columns))
    write_atomically(path, "".join(f"{line}\n" for line in lines))


def read_rows(
    request: EvaluateRequest, run: Run, task: Task, like: Source, log: Log
) -> tuple[str, Split, bool, dict[str, int | None], NDArray[np.bool_] | None]:
    """Return the split to score, its rows, whether they are the run's own dev rows, and `training_overlap` of them.

    Rows that the training has not read may have labels that it had not. Raises DataError for rows without labels, for rows of
    which none has a label of the training, and for rows of the run's own that changed since the training.
    """
    target, is_own = task.target, request.data is None
    assert target is not None
    split, config = scored_split(request, run, task, "rows")
    if split != "file" and not (is_own and config.files_of(split)) and not task.has_labels(split):
        raise DataError(f"the {split} rows of {task.name} carry no labels; `recur export` predicts them for CLUE")
    divided = is_own or (
        split != "file" and is_one_file(Path(str(config.path))) and is_training_data(run, task, config)
    )
    own_dev, is_file = split == "dev" and divided, split == "file"
    sha256 = trained_sha256(run, split) if is_own else None
    source, is_divided = ("dev", False) if is_file else (split, divided)
    load = partial(load_split, task, source, config, keep_records=request.by is not None)
    rows = load(use_dev_split=is_divided, like=like, any_label=sha256 is None)
    if not rows.source.label:
        raise DataError(f"the {split} rows of {task.name} carry no labels; `recur predict` labels them")
    check_rows_of_training(run, split, rows, sha256)
    log.add(*rows.notes)
    if rows.bad:
        log.warn(f"{pluralize(len(rows.bad), 'bad row')} skipped, the first: {rows.bad[0]}")
    if rows.dropped:
        log.note(f"{pluralize(rows.dropped, 'row')} without a majority label ('-') dropped")
    rows = _with_unknown_labels(rows.encoded(target), target, log, drop=request.drop_unknown)
    return split, rows, own_dev, *training_overlap(run, split, rows.hashes, log, is_own=is_own, own_dev=own_dev)


def training_rows(run: Run, task: Task, like: Source, *, keep_records: bool = False) -> Split:
    """Read the training rows of a run again. Raises DataError if they are gone, or have changed."""
    config = data_config(run, None)
    rows = load_split(task, "train", config, use_dev_split=True, like=like, any_label=True, keep_records=keep_records)
    check_rows_of_training(run, "train", rows, trained_sha256(run, "train"))
    return rows


def values_by(by: str, split: Split) -> dict[int | str, Any]:
    """Return the value by which each row is grouped, by its place in the file. Raises DataError for an unknown column."""
    lines, fields = split.examples.lines, {record.line: record.fields for record in split.records}
    column = [as_text(fields[line].get(by)) for line in lines]
    values: dict[str, list[Any]] = {BY_LENGTH: [len(text) + len(pair or "") for text, pair in split.texts]}
    values |= {BY_FILE: [split.files[line // OF_FILE] for line in lines]} if split.files else {}
    values |= dict.fromkeys((key for own in fields.values() for key in own), column)
    if by not in values:
        near = did_you_mean(by, values)
        raise DataError(f"{split.path or 'the rows'}: --by: there is no column '{escaped(by)}'{near}")
    return dict(zip(map(split.place_of, lines), values[by], strict=True))


def _with_unknown_labels(rows: Split, target: Target, log: Log, *, drop: bool) -> Split:
    """Return the rows, without those of labels not seen in training if they are to be dropped; a warning counts these.

    Raises DataError if there are no others.
    """
    known = target.is_known(rows.y)
    if known.all():
        return rows
    others = (label for cell in rows.take(~known).cells for label in labels_in(cell))
    counts = Counter(label for label in others if target.unknown_in(label) is not None).most_common()
    named = ", ".join(f"'{escaped(label)}' {count:,}" for label, count in counts[:MOST_NAMED])
    named += ", …" if len(counts) > MOST_NAMED else ""
    is_one = isinstance(target, OneLabel)
    if not known.any():
        near = did_you_mean(counts[0][0], target.labels)
        what = "no row has a label of the training" if is_one else "every row has a label not seen in training"
        raise DataError(f"{rows.path or 'the Hub'}: {what} ({named}){near}")
    unknown = int((~known).sum())
    what = f"{pluralize(unknown, 'row', 'have', of=len(known))} a label not seen in training ({named})"
    if drop:
        log.warn(f"{what}, left out by --drop-unknown")
        return rows.take(known, dropped=rows.dropped + unknown)
    scored = "such a row is a mistake, but in no loss, calibration, ROC AUC or average precision"
    if not is_one:
        scored = "such a label counts as missed, and its row is in no loss, calibration or average precision"
    joint = joint_doubt([*target.labels, *(label for label, _ in counts)])
    log.warn(f"{what}; {scored}; --drop-unknown leaves it out{f'; {joint}' if joint else ''}")
    return rows


def scored_split(request: EvaluateRequest, run: Run, task: Task, unit: str) -> tuple[str, DataConfig]:
    """Return the split to score, and where its rows or lines (the `unit`) are; "file" is all of the file that --data names.

    Raises UsageError for a split that the task does not have, DataError if the run's own file holds another split.
    """
    check_split(task, request.split or "dev", run.read_data_config())
    split = request.split or ("file" if request.data is not None and is_one_file(request.data) else "dev")
    config = data_config(run, request.data, request.columns.given())
    is_lone_file = request.data is None and config.path is not None and is_one_file(Path(config.path))
    if is_lone_file and split not in ("train", "dev") and not config.files_of(split):
        raise DataError(f"{config.path}: holds train and dev {unit}; name the {split} {unit} with --data")
    return split, config


def is_training_data(run: Run, task: Task, scored: DataConfig) -> bool:
    """Return whether `scored` names the data of the run's training.

    That is the same folder; or, where the dev rows were drawn from the training file, that file or a copy of it.
    """
    config, data = run.read_data_config(), Path(str(scored.path))
    if data.is_dir() and config.path is not None and Path(config.path).is_dir():
        return data.samefile(config.path)
    with contextlib.suppress(DataError):
        if is_local(config, "train"):
            place = find_place(task_with_columns(task, config), "train", config, use_dev_split=True)
            (file, part), *others = map(file_and_part, (data, *place.paths))
            files = [other for other, _ in others]
            same = file.is_file() and files[0].is_file() and sha256_of(file) == sha256_of_all(files)
            is_one = len(files) == 1 and file.samefile(files[0])
            return place.use_dev_split and part == others[0][1] and (same or is_one)
    return False


def trained_sha256(run: Run, split: str) -> str | None:
    """Return the hash of the rows of `split` that the training of `run` read; None: it read none, or that is not known.

    It is that of result.json, or of the newest checkpoint of a run that is not finished.
    """
    if run.is_finished:
        return run.read_result()["data"].get(split, {}).get("sha256")
    return next((state["resume_key"].get(f"{split} sha256") for state in run.read_states()), None)


def check_rows_of_training(run: Run, split: str, rows: Split | TextSplit, sha256: str | None) -> None:
    """Raise DataError if the `rows`, read from the place that the run names for `split`, have another hash than `sha256`."""
    if sha256 not in (None, rows.sha256):
        raise DataError(
            f"{rows.path or 'the Hub'}: changed since the training: its sha256 is not that of the {split} rows of {run}; "
            f"--data {rows.path or 'FILE'} scores it as it is and counts the rows that were trained on"
        )


def training_overlap(
    run: Run, split: str, hashes: Hashes, log: Log, *, is_own: bool, own_dev: bool = False, lines: bool = False
) -> tuple[dict[str, int | None], NDArray[np.bool_] | None]:
    """Return how many of the rows or `lines` of text with these hashes are training rows and dev rows; of the train split {}.
    And return whether each is a training row (N,), or None if that is unknown, and of the train split.

    The dev rows are training rows if the linear model was fitted again on them; as `own_dev` rows they are not. A number is
    None if it is unknown. On rows of the run's own (`is_own`) there is a note only if it is a warning.
    """
    if split == "train":
        return {}, None
    known = read_known_rows(run, None if is_own else log)
    if known is None:
        return {"training_rows": None, "dev_rows": len(hashes) if own_dev else None}, None
    if LINEAR_FIRST_FIT in run and not own_dev:
        known = known.refitted()
    counts = known.count(hashes)
    log_known_rows(log, counts, len(hashes), lines=lines, warnings_only=is_own)
    return {**counts}, known.trains(hashes)
