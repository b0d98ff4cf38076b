"""`recur finetune`: train a classifier on labelled rows, from scratch or from a pretrained run (`--init`)."""

import contextlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recurcli.commands.training.budget import with_planned_steps
from recurcli.commands.training.report import warn_of_unlearned_positions
from recurcli.commands.training.resume import finished_run, source_of_run
from recurcli.commands.training.trainer import (
    Training,
    build_loop,
    build_model,
    enter_run,
    resolve_tokens,
    settle,
    settle_kernel,
)
from recurcli.config import DataConfig, FinetuningConfig, LabelType
from recurcli.data.columns import absent_labels, check_same_kind, label_doubts
from recurcli.data.splits import FEWEST_DEV_ROWS, Split, draw_share, load_split, notes_on_dev_rows, with_labels_of
from recurcli.data.tasks import Task, has_split, is_local, is_one_file, splits_of, task_named
from recurcli.data.teacher import Teacher, read_teacher
from recurcli.device import choose_precision
from recurcli.distributed.group import current
from recurcli.encoders import encoder_class
from recurcli.errors import DataError, UsageError, escaped, pluralize, quoted
from recurcli.evaluation.inference import InferenceConfig
from recurcli.evaluation.report import DevEvaluation, ScoredRows, score_linear_model
from recurcli.linear.fitting import fit_linear_model, refit_linear_model
from recurcli.linear.model import LinearModel
from recurcli.linear.out_of_fold import OUTER_FOLDS, out_of_fold_logits
from recurcli.linear.static_vectors import resolve_vectors, resolve_vectors_of_tokens
from recurcli.log import Log, Note
from recurcli.metrics import OF_PROBABILITIES, TEST_SPLITS, metric_named
from recurcli.model.models import Classifier
from recurcli.preset import Preset, ResolvedPreset, without_encoder
from recurcli.preset.compose import FEWEST_ROWS_OF_ENCODER, leaves_encoder_out
from recurcli.requests.training import FinetuneRequest
from recurcli.runs.model_files import (
    KnownRows,
    TrainedFiles,
    load_weights,
    log_known_rows,
    read_known_rows,
    read_model,
)
from recurcli.runs.run_directory import LINEAR_FIRST_FIT, first_difference
from recurcli.tokens.tokenizer import encode_splits
from recurcli.training.objectives import ClassificationObjective, class_weights
from recurcli.training.session import StopRequest
from recurcli.validation import flatten


class RowsInMemory(NamedTuple):
    """Labelled rows that are in no file."""

    train: Split
    """The training rows. Its `dev` are the dev rows if these were drawn from them."""
    dev: Split
    label_type: LabelType
    """Python's type of the labels, whose names the examples hold."""


def finetune(
    request: FinetuneRequest,
    log: Log,
    given: ResolvedPreset | None = None,
    rows: RowsInMemory | None = None,
    trial_fit: Callable[..., LinearModel] | None = None,
) -> dict[str, Any]:
    """Train a classifier as `request` says, and return the content of result.json.

    `given` takes the place of the preset of the request, and `rows` that of the rows which the preset names. `trial_fit`, in
    place of `fit_linear_model`, is that of a trial of `tune`: the linear model is fitted once, and an ensemble is scored on
    held-out halves of the dev rows.
    """
    given = given or request.resolved
    with enter_run(request, given) as (run, status, device):
        if status == "finished":
            return finished_run(request, log)
        _check_options(request, given)
        init = None if request.init is None else read_init(request.init, given.preset, log)
        log.stage("reading the rows")
        given, task, splits = _load_splits(given, rows, log)
        stored = None if status == "new" or not current().is_main else run.read_preset()
        given = _with_vectors(request, given, splits["train"], stored, log)
        preset = _without_encoder(given, request, splits, log)
        is_linear, is_folded = preset.is_linear, _join_few_rows(preset, splits)
        own, teacher = _read_rows(preset, task, splits, log, are_files=rows is None)
        for split in splits:
            warn_of_unlearned_positions(split, preset.encoder, log)
        train = splits["train"]
        dev = train if is_folded else splits["dev"]
        _check_metrics(preset.finetuning, task, dev)
        seen, all_known = _known(splits), True
        # A pretrained run has read no labels, and its text includes dev and test by intention (StarSaber, section 4).
        if init is not None and init.config.labels:
            before = read_known_rows(init.folder, log)
            all_known = before is not None
            if before is not None:
                seen = seen.joined(before)
                _note_on_known_rows(before, splits, log, str(init.folder))
        # Without an encoder no tokens are read, but the files of a run hold a tokenizer: one of the labels' characters.
        texts = [(label, None) for label in task.labels] if is_linear else train.texts
        old, pairs = None if init is None else init.tokenizer, bool(train.columns.pair)
        measured = None if is_linear else own.texts
        tokenizer, max_length = resolve_tokens(preset, lambda: texts, log, tokenizer=old, measured=measured)
        truncate = preset.data.truncate
        tokens, data = encode_splits(splits, tokenizer, max_length, truncate, log, are_read=not is_linear)
        if is_folded:
            tokens["dev"], data["dev"] = tokens["train"], data["train"]
        count, pretrained = len(train.examples), init is not None
        preset = settle(preset, "finetuning", tokenizer, max_length, count, log, pretrained=pretrained, pairs=pairs)
        model = build_model(
            Classifier,
            preset,
            tokenizer,
            log,
            pairs=pairs,
            labels=task.labels,
            label_type="str" if rows is None else rows.label_type,
            columns=train.columns.to_json(),
        )
        settle_kernel(model, preset, device, log)
        if init is not None:
            load_pretrained(model, init)
            log.note(f"starting from {init.folder}, with its tokenizer")
        targets = task.targets(map(str, train.examples.labels))
        by_class = class_weights(preset.finetuning, task.labels, targets)
        row_weights, dev_weights = (_row_weights(rows, by_class, task) for rows in (train, dev))
        objective = ClassificationObjective(
            tokens["train"], targets, row_weights, preset.finetuning, tokenizer, teacher
        )
        if teacher is not None:
            row_weights = row_weights * teacher.row_weights(preset.finetuning.teacher_weight)
        fit = partial(trial_fit or fit_linear_model, train.texts, targets, len(task.labels), log, preset.linear)
        ids = train.examples.ids
        log.stage("fitting the linear model")
        linear = None if request.dry_run else _fit_linear_model(preset, partial(fit, row_weights, ids), log)
        held_out = None
        if linear is not None and is_folded:
            classes, seed = np.array(targets), preset.data.dev_seed
            log.stage("cross-validating the linear model")
            held_out = out_of_fold_logits(train.texts, classes, len(task.labels), preset.linear, row_weights, seed=seed)
        dev_rows, scored, refitted = ScoredRows(dev, tokens["dev"], dev_weights), None, None if trial_fit else linear
        is_part = preset.ensemble is not None
        if linear is not None:
            metric = preset.finetuning.metric
            scored = score_linear_model(linear, dev_rows, task, metric, held_out, is_part=is_part)
        stop = StopRequest(current())
        evaluation = DevEvaluation(
            model=model,
            dev=dev_rows,
            task=task,
            config=preset.finetuning,
            mean_loss=objective.mean_loss,
            precision=choose_precision(preset.runtime.precision, device) if device.type == "cuda" else "fp32",
            max_selecting=preset.data.max_dev_rows,
            inference=InferenceConfig(device, batch_size=preset.finetuning.micro_batch_size, ranks=current()),
            check_stop=stop.raise_if_agreed,
            linear=scored,
            known=seen,
            refit=_refit_of(preset, refitted, train, dev, task, np.concatenate([row_weights, dev_weights])),
            halves_seed=preset.data.dev_seed if trial_fit and is_part else None,
            folds=OUTER_FOLDS if is_folded else None,
            tests={split: ScoredRows(splits[split], tokens[split]) for split in TEST_SPLITS if split in splits},
        )
        training = Training(
            request=request,
            resolved=given,
            preset=preset,
            run=run,
            status=status,
            loop=build_loop(preset, "finetuning", model, objective, device, evaluation),
            tokenizer=tokenizer,
            data=data,
            stop=stop,
            dev=evaluation,
            known=seen if all_known and preset.finetuning.keep_texts else None,
            teacher=None if teacher is None else teacher.facts,
            init_sha256=None if init is None else init.folder.listed["model.safetensors"][1],
        )
        if not is_linear:
            training = with_planned_steps(training, evaluation, request.budget, log)
        return training.execute(log)


def _with_vectors(
    request: FinetuneRequest, given: ResolvedPreset, train: Split, stored: Mapping[str, Any] | None, log: Log
) -> ResolvedPreset:
    """Return the preset with the sources of static vectors; a run that is resumed keeps that of its linear model.

    `stored` is the preset of that run. Rank 0 decides. Raises UsageError if its vectors are not there.
    """
    preset, ranks, config = given.preset, current(), given.preset.linear
    if preset.ensemble is None and not preset.finetuning.linear_baseline:
        config = replace(config, vectors=None)
    elif ranks.is_main:
        asked = config.vectors if stored is None else source_of_run(config.vectors, stored["linear"]["vectors"])
        config = resolve_vectors(replace(config, vectors=asked), train.texts, log)
    if not request.dry_run:
        config = replace(config, vectors=ranks.broadcast(config.vectors))
    return replace(given, preset=replace(resolve_vectors_of_tokens(preset), linear=config))


def _check_options(request: FinetuneRequest, given: ResolvedPreset) -> None:
    """Raise UsageError for a task without labels, and for options that have no effect with the preset `given`."""
    is_linear = given.preset.is_linear
    if task_named(given.preset.task).plain_text:
        raise UsageError(f"task {given.preset.task} is text without labels; `recur pretrain` trains on it")
    if request.budget and (is_linear or request.dry_run):
        without = f"the linear model of preset {given.name} takes no steps"
        what = without if is_linear else "a dry run measures none"
        raise UsageError(f"--budget: plans training steps, but {what}; leave it out")
    if request.init is not None and is_linear:
        raise UsageError(f"--init: preset {given.name} has no encoder to start from a run; leave it out")


def _without_encoder(given: ResolvedPreset, request: FinetuneRequest, splits: Mapping[str, Split], log: Log) -> Preset:
    """Return the preset without its encoder where `finetuning.encoder` leaves it out, else as it is."""
    preset, rows = given.preset, splits["train"].count_with_dev
    if request.init or request.matching or not leaves_encoder_out(preset, rows):
        return preset
    log.note(
        f"no encoder beside the linear model: {pluralize(rows, 'row')} are fewer than {FEWEST_ROWS_OF_ENCODER:,}; "
        "--set finetuning.encoder=always trains one"
    )
    if request.budget:
        log.warn("--budget has no effect: the linear model takes no steps")
    return without_encoder(preset)


def _join_few_rows(preset: Preset, splits: dict[str, Split]) -> bool:
    """Return whether a linear model is cross-validated, since fewer than FEWEST_DEV_ROWS would be drawn as dev rows.

    The training rows are then all rows, and there are no dev rows.
    """
    train, dev, config = splits["train"], splits["dev"], preset.data
    if (
        not preset.is_linear
        or train.dev is None
        or len(dev.examples) >= FEWEST_DEV_ROWS
        or config.train_share < 1
        or config.extra_rows
        or preset.finetuning.teacher is not None
        or preset.finetuning.refit is False
    ):
        return False
    rows, hashes = [*train.examples, *dev.examples], np.concatenate([train.hashes, dev.hashes])
    splits["train"] = train.with_examples(rows, hashes, dev=None)
    del splits["dev"]
    return True


def _read_rows(
    preset: Preset, task: Task, splits: dict[str, Split], log: Log, *, are_files: bool
) -> tuple[Split, Teacher | None]:
    """Add to the training rows of `splits` those of extra columns and of a teacher, and log notes on all rows.

    Returns the training rows without those, and the teacher's soft labels.
    """
    train, dev, config = splits["train"], splits.get("dev", splits["train"]), preset.data
    if train is dev:
        few = f"fewer than {FEWEST_DEV_ROWS} dev rows would be drawn"
        log.note(
            f"{OUTER_FOLDS}-fold cross-validation of all {pluralize(len(train.examples), 'row')} scores the model: {few}"
        )
    notes_on_dev_rows(train, task, config, log)
    if len(dev.examples) > config.max_dev_rows and not preset.is_linear:
        log.note(
            f"{config.max_dev_rows:,} of {len(dev.examples):,} dev rows choose the step (data.max_dev_rows); "
            "in the end all are scored"
        )
    _notes_on_labels(task, splits, log)
    if train.dev is None and train is not dev:
        _note_on_known_rows(KnownRows.of(train.hashes), {"dev": dev}, log)
    if config.train_share < 1:
        drawn = draw_share(train, config.train_share, config.dev_seed)
        size = pluralize(len(drawn.examples), "training row", of=len(train.examples))
        log.note(f"{size}, drawn by data.dev_seed {config.dev_seed} from each class")
        train = drawn
    own, teacher = train, None
    if config.extra_rows:
        train = _add_extra_rows(train, dev, config, log)
    if preset.finetuning.teacher is not None:
        teacher, train = _with_teacher(preset, {**splits, "train": train}, task, log, are_files=are_files)
    splits["train"] = train
    _note_on_known_rows(_known(splits), {name: splits[name] for name in TEST_SPLITS if name in splits}, log)
    for name, split in splits.items():
        if empty := sum(not f"{text}{pair or ''}".strip() for text, pair in split.texts):
            log.warn(f"{name}: {pluralize(empty, 'row', 'have')} no text; `recur check` names the lines")
    return own, teacher


def _load_splits(
    resolved: ResolvedPreset, rows: RowsInMemory | None, log: Log
) -> tuple[ResolvedPreset, Task, dict[str, Split]]:
    """Read the rows of a training: those in memory, else those that the preset names.

    Returns the preset with the delimiter that was recognised in all files, so that the run keeps it for other files; the task
    with its labels; and the rows of "train" and "dev", and of "test" and "test-long" if there are any to score. The test rows
    are those that the preset names, else those of the task; there are none if they have no labels. Raises DataError for a
    fault in the file that the preset names. A note says why the task's test rows cannot be scored.
    """
    preset, task, config = resolved.preset, task_named(resolved.preset.task), resolved.preset.data
    if rows is not None:
        trained = rows.train.column_schema._replace(source="texts")
        check_same_kind("dev texts", rows.dev.columns, trained)
        task = replace(with_labels_of(task, rows.train, config), baselines={}, hub=None)
        return resolved, task, {"train": rows.train, "dev": rows.dev}
    train = load_split(task, "train", config, use_dev_split=True)
    task, trained = with_labels_of(task, train, config), train.column_schema
    splits = {"train": train, "dev": train.dev or load_split(task, "dev", config, use_dev_split=True, trained=trained)}
    for split in TEST_SPLITS if preset.finetuning.score_test else ():
        named = config.named_file(split) is not None
        if not named and not (task.has_labels(split) and _has_test_rows(task, split, config)):
            continue
        try:
            test = load_split(task, split, config, trained=trained)
            if test.label is not None:
                splits[split] = test
        except DataError as error:
            if named:
                raise
            log.add(Note(f"no {split} score: {error}", "info" if config.path is None else "warning"))
    delimiters = {split.delimiter for split in splits.values()}
    if len(delimiters) == 1 and None not in delimiters:
        config = replace(config, delimiter=delimiters.pop())
        resolved = replace(resolved, preset=replace(preset, data=config))
    return resolved, task, splits


def _row_weights(rows: Split, by_class: NDArray[np.float64], task: Task) -> NDArray[np.float64]:
    """Return the factor of each row's loss (N,): its own weight times that of its class (C,)."""
    return by_class[task.targets(map(str, rows.examples.labels))] * rows.examples.weights


def _check_metrics(config: FinetuningConfig, task: Task, dev: Split) -> None:
    """Raise UsageError for a metric of a label that does not exist, or one that dev rows of one label do not define."""
    for name in filter(None, (config.metric, config.thresholds)):
        metric_named(name, task.labels)
    labels = {*dev.examples.labels}
    if config.metric in OF_PROBABILITIES and len(labels) == 1:
        own = f"all {pluralize(len(dev.examples), 'dev row')} have the label '{escaped(labels.pop())}'"
        raise UsageError(f"finetuning.metric {config.metric} is not defined: {own}; choose other dev rows or accuracy")


def _fit_linear_model(preset: Preset, fit: Callable[[], LinearModel], log: Log) -> LinearModel | None:
    """Return the linear model on the training rows; None if the preset wants none, and on ranks other than 0.

    `DevEvaluation` scores it beside the encoder and in the ensemble; the trainer writes it with the first model of the run.
    """
    if not (preset.finetuning.linear_baseline or preset.ensemble is not None) or not current().is_main:
        return None
    try:
        return fit()
    except DataError as error:
        reason = f"no linear model beside the encoder: {error}"
        if preset.is_linear:
            raise DataError(f"train: {reason}, and the preset has no encoder") from None
        (log.note if preset.ensemble is None else log.warn)(reason)
        return None


def _refit_of(
    preset: Preset, linear: LinearModel | None, train: Split, dev: Split, task: Task, row_weights: NDArray[np.float64]
) -> Callable[[], LinearModel] | None:
    """Return a function that fits the linear model again, on training and dev rows with these weights.

    Return None if the linear model is not fitted again (`finetuning.refit`), or has all rows already.
    """
    wanted, is_drawn = preset.finetuning.refit, train.dev is not None
    if (
        linear is None
        or train is dev
        or not (is_drawn and preset.data.train_share == 1 if wanted == "auto" else wanted)
    ):
        return None
    targets = task.targets(map(str, [*train.examples.labels, *dev.examples.labels]))
    return partial(refit_linear_model, linear, [*train.texts, *dev.texts], targets, row_weights)


def _with_teacher(
    preset: Preset, splits: Mapping[str, Split], task: Task, log: Log, *, are_files: bool
) -> tuple[Teacher, Split]:
    """Return the soft labels of the teacher's file, and the training rows with those that it adds.

    Test rows that are not among `splits`, by `finetuning.score_test` or since they have no labels, are left out too. Logs
    warnings on dev and test rows that the teacher's run was trained on, if `finetuning.teacher_run` names it.
    """
    train, file = splits["train"], Path(str(preset.finetuning.teacher))
    held_out = [split for name, split in splits.items() if name != "train"]
    for split in (name for name in TEST_SPLITS if are_files and name not in splits):
        if preset.data.named_file(split) or _has_test_rows(task, split, preset.data):
            with contextlib.suppress(DataError):  # the note on the test score says why they cannot be read
                held_out.append(load_split(task, split, preset.data, labelled=False, trained=train.column_schema))
    teacher, longer = read_teacher(file, train, held_out, task, preset.data, log)
    if preset.is_linear and not teacher.facts["added"]:
        log.warn(f"{file}: has no effect; the linear model reads the soft labels of rows without a label")
    if (run := preset.finetuning.teacher_run) is not None:
        folder = read_model(Path(run)).folder
        folder.note_if_unfinished(log)
        if (before := read_known_rows(folder, log)) is not None:
            _note_on_known_rows(before.refitted() if LINEAR_FIRST_FIT in folder else before, splits, log, run)
    return teacher, longer


def _known(splits: Mapping[str, Split]) -> KnownRows:
    """Return the rows that train and select the model."""
    return KnownRows.of(splits["train"].hashes, *(rows.hashes for name, rows in splits.items() if name == "dev"))


def _note_on_known_rows(known: KnownRows, splits: Mapping[str, Split], log: Log, run: str = "") -> None:
    """Log how many dev and test rows are among the `known` ones, which are those of an earlier `run` if it is given."""
    for name, rows in splits.items():
        counts = known.count(rows.hashes)
        if name != "train" and (counts["training_rows"] or (name != "dev" and counts["dev_rows"])):
            log_known_rows(log, counts, len(rows.hashes), name=name, run=run)


def _has_test_rows(task: Task, split: str, config: DataConfig) -> bool:
    """Return whether the data may have these test rows, if the task has the `split`.

    A folder is searched for them; the Hub and the generator always may.
    """
    if split not in splits_of(task):
        return False
    if config.path is None:
        return not is_local(config, "train")
    return not is_one_file(Path(config.path)) and has_split(task, split, config)


def _add_extra_rows(train: Split, dev: Split, config: DataConfig, log: Log) -> Split:
    """Return the training rows with those of `data.extra_rows`; notes their number.

    Raises UsageError if the rows are pairs.
    """
    columns = " and ".join(f"'{escaped(str(name))}'" for name in config.extra_rows)
    if train.columns.pair:
        raise UsageError(
            f"data.extra_rows: rows of {columns} would be single texts, but the others are pairs; --set data.extra_rows=[]"
        )
    longer = train.with_extra_rows(dev)
    added = len(longer.examples) - len(train.examples)
    reason = "each with the label of its row" if added else "since no row has a text there"
    log.add(Note(f"train: {pluralize(added, 'extra row')} from {columns}, {reason}", "info" if added else "warning"))
    return longer


def _notes_on_labels(task: Task, splits: Mapping[str, Split], log: Log) -> None:
    """Log notes on the columns and labels of your own rows, and warnings about suspicious labels."""
    train, dev = splits["train"], splits.get("dev", splits["train"])
    if len(dev.labels) == 1:
        log.warn(
            f"{pluralize(len(dev.examples), 'dev row', 'have', of=len(dev.examples))} the label '{escaped(dev.labels[0])}': "
            "metrics on them mean little",
        )
    rows = Counter(map(str, train.examples.labels))
    for name, split in splits.items():
        if absent := absent_labels(name, rows, split.labels, are_folders=train.format == "folders"):
            log.warn(absent)
    if single := [label for label, count in rows.items() if count == 1]:
        has = "a class has" if len(single) == 1 else f"{len(single):,} classes have"
        log.warn(f"{has} one training row ({quoted(single)}), from which a model learns little")
    if task_named(task.name).labels:
        return
    read = " and ".join(
        f"'{escaped(' + '.join(names))}'" for names in (train.columns.text, train.columns.pair) if names
    )
    log.note(f"texts from {read}, {len(task.labels)} labels from '{escaped(train.label)}': {quoted(task.labels)}")
    for doubt in label_doubts(task.labels):
        log.warn(doubt)


_NGRAMS = "embedding.ngrams"


def read_init(path: Path, preset: Preset, log: Log) -> TrainedFiles:
    """Read the pretrained run at `path`. Raises UsageError if its tokenizer, embedding or encoder differs from the preset."""
    files = read_model(path)
    before, now = (_architecture(values) for values in (files.folder.read_preset(), preset.to_dict()))
    if not any(key.startswith(_NGRAMS) for key in before):  # the table of the preset is then new
        now = {key: value for key, value in now.items() if not key.startswith(_NGRAMS)}
    if difference := first_difference(before, now):
        raise UsageError(f"--init {path}: {difference} in the preset; give both the same")
    files.folder.note_if_unfinished(log)
    return files


def _architecture(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys in which a pretrained run and the preset must agree; dropout may differ.

    `embedding.scaled` has no effect on an encoder with positions, so it may differ there. So may the place of a Hugging Face
    encoder; its sizes may not.
    """
    encoder = encoder_class(values["encoder"]["name"])
    with_positions = encoder.adds_positions or encoder.concatenates_positions
    return {
        ".".join(path): value
        for path, value in flatten(values)
        if path != ("encoder", "path")
        and (
            (path[0] in ("tokenizer", "encoder") and not path[-1].endswith("dropout") and value is not None)
            or (path == ("embedding", "orthonormal") and value)
            or (path == ("embedding", "scaled") and not with_positions)
            or (".".join(path).startswith(_NGRAMS) and path[-1] != "dropout" and value is not None)
        )
    }


def load_pretrained(model: Classifier, init: TrainedFiles) -> None:
    """Copy embedding and encoder of a pretrained run into `model`; the head keeps its initial weights.

    The two pair vectors and the n-gram table of the embedding may be in only one of them. If the run has none, `model` keeps
    its initial ones; if `model` has none, those of the run are ignored.
    """
    initial = model.state_dict()
    shared = {name: tensor for name, tensor in init.tensors.items() if name.startswith(("embedding.", "encoder."))}
    for name in ("embedding.second_text", "embedding.match", "embedding.ngrams.table"):
        if name in initial:
            shared.setdefault(name, initial[name])
        else:
            shared.pop(name, None)
    head = {name: tensor for name, tensor in initial.items() if name.startswith(("head.", "bag."))}
    load_weights(model, {**shared, **head}, init.folder.path / "model.safetensors")
