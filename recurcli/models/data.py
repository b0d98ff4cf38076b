"""The rows of a fine-tuning: `Data`, which is read once and handed on. N training rows, M dev rows, C labels."""

import contextlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recurcli.config import DataConfig, FinetuningConfig, LabelType, ModelConfig, Preset, RunConfig
from recurcli.data.known import KnownRows, log_known_rows
from recurcli.data.labels import absent_labels, label_doubts
from recurcli.data.source import check_same_kind
from recurcli.data.splits import FEWEST_DEV_ROWS, Split, draw_share, load_split, notes_on_dev_rows, with_labels_of
from recurcli.data.tasks import Task, has_split, is_local, is_one_file, splits_of, task_named
from recurcli.data.teacher import Teacher, read_teacher
from recurcli.errors import DataError, UsageError, escaped, pluralize, quoted
from recurcli.linear.out_of_fold import OUTER_FOLDS
from recurcli.log import Log, Note
from recurcli.metrics import OF_PROBABILITIES, TEST_SPLITS, ScoredSplit
from recurcli.runs.model_files import read_known_rows
from recurcli.runs.run_directory import LINEAR_FIRST_FIT, open_run
from recurcli.targets import OneLabel, Target
from recurcli.targets.target import labels_in
from recurcli.tokens.tokenizer import facts_of_split


class RowsInMemory(NamedTuple):
    """Labelled rows that are in no file."""

    train: Split
    """The training rows. Its `dev` are the dev rows if these were drawn from them."""
    dev: Split
    label_type: LabelType
    """Python's type of the labels, whose names the examples hold."""


@dataclass(frozen=True, kw_only=True)
class Data:
    """All rows of a fine-tuning, with their labels and the factors of their losses."""

    task: Task
    """The task with its labels."""
    target: Target
    """What these labels are."""
    own: Split
    """The training rows of the task's files."""
    train: Split
    """The N rows to train on: `own`, and those that extra columns and a teacher add."""
    dev: Split | None
    """The M rows that choose what is kept; None: the training rows are cross-validated."""
    tests: Mapping[ScoredSplit, Split]
    """Rows that choose nothing: what is kept is scored on them once."""
    teacher: Teacher | None
    """The soft labels of the training rows, if there are any."""
    label_weights: NDArray[np.float64]
    """(C,) the weight of each label."""
    label_type: LabelType
    """Python's type of the labels."""
    metric: str
    """The dev metric that selects the encoder's step."""

    @property
    def learner(self) -> Target:
        """The target with the losses by which models are learned and chosen."""
        return self.target.weighted(self.label_weights)

    @property
    def weights(self) -> NDArray[np.float64]:
        """(N,) the factor of each training row's loss: its own weight times that of its label."""
        return self.target.row_weights(self.label_weights, self.train.y) * self.train.examples.factors

    @property
    def choosing(self) -> Split:
        """The rows that choose what is kept: the dev rows, or all rows where these are cross-validated."""
        return self.train if self.dev is None else self.dev

    @cached_property
    def choosing_weights(self) -> NDArray[np.float64]:
        """The factor of each of the `choosing` rows where these choose or fit anything; metrics have none."""
        if self.dev is None:
            return self.weights
        return self.target.row_weights(self.label_weights, self.dev.y) * self.dev.examples.factors

    @property
    def splits(self) -> dict[str, Split]:
        """All rows by the name of their split."""
        splits = {"train": self.train} if self.dev is None else {"train": self.train, "dev": self.dev}
        return splits | {str(name): rows for name, rows in self.tests.items()}

    def facts(self, log: Log) -> dict[str, dict[str, Any]]:
        """Return the facts about the splits for result.json, where no row is truncated. Logs notes on the rows left out."""
        facts = {name: facts_of_split(name, split, log) for name, split in self.splits.items()}
        return {"dev": facts["train"], **facts}  # these are the dev rows of a cross-validation

    def run_config(self, network: ModelConfig | None) -> RunConfig:
        """Return the content of config.json of a run with this `network` of an encoder; None: without one."""
        return RunConfig(
            task=self.task.name,
            target=self.target.to_json(),
            labels=self.target.labels,
            label_type=self.label_type,
            source=asdict(self.train.source),
            network=network,
        )

    @property
    def known(self) -> KnownRows:
        """The rows that train the model, and those that select it."""
        return known_in(self.splits)


def known_in(splits: Mapping[str, Split]) -> KnownRows:
    """Return the rows of `splits` that train a model, and those that select it."""
    return KnownRows.of(splits["train"].hashes, *(rows.hashes for name, rows in splits.items() if name == "dev"))


def read_splits(preset: Preset, rows: RowsInMemory | None, log: Log) -> tuple[Task, dict[str, Split]]:
    """Read the rows of a training: those in memory, else those that the preset names.

    Returns the task with its labels, and the rows of "train" and "dev", and of "test" and "test-long" if there are any to
    score. The test rows are those that the preset names, else those of the task; there are none if they have no labels. Raises
    DataError for a fault in the file that the preset names. A note says why the task's test rows cannot be scored.
    """
    task, config = task_named(preset.task), preset.data
    if rows is not None:
        check_same_kind("dev texts", rows.dev.source.columns, rows.train.source)
        task = replace(with_labels_of(task, rows.train, config), baselines={}, hub=None)
        return task, {"train": rows.train, "dev": rows.dev}
    train = load_split(task, "train", config, use_dev_split=True)
    task, like = with_labels_of(task, train, config), train.source
    splits = {"train": train, "dev": train.dev or load_split(task, "dev", config, use_dev_split=True, like=like)}
    for split in TEST_SPLITS if preset.finetuning.score_test else ():
        named = bool(config.files_of(split))
        if not named and not (task.has_labels(split) and _has_test_rows(task, split, config)):
            continue
        try:
            test = load_split(task, split, config, like=like)
            if test.source.label:
                splits[split] = test
        except DataError as error:
            if named:
                raise
            log.add(Note(f"no {split} score: {error}", "info" if config.path is None else "warning"))
    return task, splits


def prepare(
    preset: Preset, task: Task, splits: dict[str, Split], log: Log, in_memory: RowsInMemory | None = None
) -> Data:
    """Return the data of a training from its `splits`: with the rows that extra columns and a teacher add, and all classes.

    Without an encoder few rows are cross-validated, in place of dev rows that were drawn from them. Logs notes on the rows.
    Raises UsageError for a class weight, a metric or thresholds of an unknown label.
    """
    config = preset.finetuning
    if _are_cross_validated(preset, splits):
        rows, drawn = splits["train"], splits.pop("dev")
        hashes = np.concatenate([rows.hashes, drawn.hashes])
        splits["train"] = rows.with_examples([*rows.examples, *drawn.examples], hashes, dev=None)
    own, teacher = _read_rows(preset, task, splits, log, are_files=in_memory is None)
    for name in splits:
        warn_of_unlearned_positions(name, preset.encoder, log)
    target = task.target
    assert target is not None
    splits = {name: rows.encoded(target) for name, rows in splits.items()}
    train, dev = splits["train"], splits.get("dev")
    target.check_settings(config)
    _check_defined(config, train if dev is None else dev)
    label_weights = target.weights_of_labels(config.class_weights, train.y)
    return Data(
        task=task,
        target=target,
        own=own,
        train=train,
        dev=dev,
        tests={name: splits[name] for name in TEST_SPLITS if name in splits},
        teacher=teacher,
        label_weights=label_weights,
        label_type="str" if in_memory is None else in_memory.label_type,
        metric=target.metric_of(config.metric),
    )


def _are_cross_validated(preset: Preset, splits: Mapping[str, Split]) -> bool:
    """Return whether a linear model is cross-validated, since fewer than FEWEST_DEV_ROWS would be drawn as dev rows."""
    config = preset.data
    return (
        preset.is_linear
        and splits["train"].dev is not None
        and len(splits["dev"].examples) < FEWEST_DEV_ROWS
        and config.train_share == 1
        and not config.extra_rows
        and preset.finetuning.teacher is None
        and preset.finetuning.refit is not False
    )


def _read_rows(
    preset: Preset, task: Task, splits: dict[str, Split], log: Log, *, are_files: bool
) -> tuple[Split, Teacher | None]:
    """Add to the training rows of `splits` those of extra columns and of a teacher, and log notes on all rows.

    Returns the training rows without those, and the teacher's soft labels.
    """
    train, dev, config = splits["train"], splits.get("dev", splits["train"]), preset.data
    if train is dev:
        rows = f"all {pluralize(len(train.examples), 'row')} train the model, and {OUTER_FOLDS}-fold cross-validation scores it"
        log.note(f"{rows}; with --dev FILE its rows score it")
    notes_on_dev_rows(train, task, config, log)
    _notes_on_labels(task, splits, log)
    if train.dev is None and train is not dev:
        note_on_known_rows(KnownRows.of(train.hashes), {"dev": dev}, log)
    if config.train_share < 1:
        drawn = draw_share(train, config.train_share, config.dev_seed)
        size = pluralize(len(drawn.examples), "training row", of=len(train.examples))
        log.detail(f"{size}, drawn by data.dev_seed {config.dev_seed} from each class")
        train = drawn
    own, teacher = train, None
    if config.extra_rows:
        train = _add_extra_rows(train, dev, config, log)
    if preset.finetuning.teacher is not None:
        teacher, train = _with_teacher(preset, {**splits, "train": train}, task, log, are_files=are_files)
    splits["train"] = train
    note_on_known_rows(known_in(splits), {name: splits[name] for name in TEST_SPLITS if name in splits}, log)
    for name, split in splits.items():
        if empty := sum(not f"{text}{pair or ''}".strip() for text, pair in split.texts):
            log.warn(f"{name}: {pluralize(empty, 'row', 'have')} no text; `recur check` names the lines")
    return own, teacher


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
        if preset.data.files_of(split) or _has_test_rows(task, split, preset.data):
            with contextlib.suppress(DataError):  # the note on the test score says why they cannot be read
                held_out.append(load_split(task, split, preset.data, labelled=False, like=train.source))
    teacher, longer = read_teacher(file, train, held_out, task, preset.data, log)
    if preset.is_linear and not teacher.facts["added"]:
        log.warn(f"{file}: has no effect; the linear model reads the soft labels of rows without a label")
    if (run := preset.finetuning.teacher_run) is not None:
        folder = open_run(Path(run))
        folder.note_if_unfinished(log)
        if (before := read_known_rows(folder, log)) is not None:
            note_on_known_rows(before.refitted() if LINEAR_FIRST_FIT in folder else before, splits, log, run)
    return teacher, longer


def _add_extra_rows(train: Split, dev: Split, config: DataConfig, log: Log) -> Split:
    """Return the training rows with those of `data.extra_rows`; notes their number.

    Raises UsageError if the rows are pairs.
    """
    columns = " and ".join(f"'{escaped(str(name))}'" for name in config.extra_rows)
    if train.source.columns.pair:
        raise UsageError(
            f"data.extra_rows: rows of {columns} would be single texts, but the others are pairs; --set data.extra_rows=[]"
        )
    longer = train.with_extra_rows(dev)
    added = len(longer.examples) - len(train.examples)
    reason = "each with the label of its row" if added else "since no row has a text there"
    log.add(Note(f"train: {pluralize(added, 'extra row')} from {columns}, {reason}", "detail" if added else "warning"))
    return longer


def _notes_on_labels(task: Task, splits: Mapping[str, Split], log: Log) -> None:
    """Log notes on the columns and labels of your own rows, and warnings about suspicious labels."""
    train, dev, target = splits["train"], splits.get("dev", splits["train"]), task.target
    assert target is not None
    if isinstance(target, OneLabel) and len(dev.labels) == 1:
        log.warn(
            f"{pluralize(len(dev.examples), 'dev row', 'have', of=len(dev.examples))} the label '{escaped(dev.labels[0])}': "
            "metrics on them mean little",
        )
    if target.has_labels:
        _warn_of_rare_labels(train, splits, log)
    if task_named(task.name).labels:
        return
    read = " and ".join(
        f"'{escaped(' + '.join(names))}'" for names in (train.source.columns.text, train.source.columns.pair) if names
    )
    others = "" if {*train.source.explicit} >= {"text", "label"} else "; --text, --label and --target read others"
    log.note(f"texts from {read}, {target.describe(' + '.join(train.source.label))}{others}")
    for doubt in label_doubts(target.labels) if target.has_labels else ():
        log.warn(doubt)


def _warn_of_rare_labels(train: Split, splits: Mapping[str, Split], log: Log) -> None:
    """Log warnings about labels that the rows of another split lack, and about those of a single training row."""
    rows = Counter(label for cell in train.cells for label in labels_in(cell))
    for name, split in splits.items():
        if absent := absent_labels(name, rows, split.labels, train.target, train.source.format):
            log.warn(absent)
    if single := [label for label, count in rows.items() if count == 1]:
        has = "a class has" if len(single) == 1 else f"{len(single):,} classes have"
        log.warn(f"{has} one training row ({quoted(single)}), from which a model learns little")


def _check_defined(config: FinetuningConfig, dev: Split) -> None:
    """Raise UsageError for a metric that dev rows of one label do not define."""
    labels = {*dev.examples.labels}
    if config.metric in OF_PROBABILITIES and len(labels) == 1:
        own = f"all {pluralize(len(dev.examples), 'dev row')} have the label '{escaped(labels.pop())}'"
        raise UsageError(f"finetuning.metric {config.metric} is not defined: {own}; choose other dev rows or accuracy")


def _has_test_rows(task: Task, split: str, config: DataConfig) -> bool:
    """Return whether the data may have these test rows, if the task has the `split`.

    A folder is searched for them; the Hub and the generator always may.
    """
    if split not in splits_of(task):
        return False
    if config.path is None:
        return not is_local(config, "train")
    return not is_one_file(Path(config.path)) and has_split(task, split, config)


def note_on_known_rows(known: KnownRows, splits: Mapping[str, Split], log: Log, run: str = "") -> None:
    """Log how many dev and test rows are among the `known` ones, which are those of an earlier `run` if it is given."""
    for name, rows in splits.items():
        counts = known.count(rows.hashes)
        if name != "train" and (counts["training_rows"] or (name != "dev" and counts["dev_rows"])):
            log_known_rows(log, counts, len(rows.hashes), name=name, run=run)


def warn_of_unlearned_positions(split: str, encoder: Mapping[str, Any], log: Log) -> None:
    """Warn before rows of `split` are scored that are too long for what an encoder with these keys has learned."""
    if split == "test-long" and encoder.get("max_length"):
        log.warn("no training row was so long: the encoder's learned weights of the last positions were not trained")
