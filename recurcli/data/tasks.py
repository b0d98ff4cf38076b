"""The tasks of recur, one row each – their files, columns and labels – and the file or folder that holds the rows of a split.

CLUE: Xu et al., COLING 2020, arXiv 2004.05986; file names and row counts are those of its submission guide.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from recurcli.config import DataConfig
from recurcli.data.readers import ENDINGS, FORMATS, is_fasttext, is_saved_dataset, parts_of_document
from recurcli.data.rows import COMPRESSED, file_and_part, uncompressed
from recurcli.errors import DataError, UsageError, did_you_mean, escaped
from recurcli.targets import Target


@dataclass(frozen=True, kw_only=True)
class Layout:
    """One set of files of a task; other settings override the task's."""

    files: Mapping[str, str]
    """Maps a split to the name of a file, or of a folder of folders named by label."""
    header: bool | None = None
    """TSV and CSV: whether the first row names the columns; without it they are "1", "2", …; None: see `is_header`."""
    text: tuple[str, ...] | None = None
    label: tuple[str, ...] | None = None
    label_names: Mapping[str, str] = field(default_factory=dict)
    """Maps a label in these files to the task's label."""
    unlabelled: tuple[str, ...] = ()
    """Splits whose rows have no labels."""


PLAIN = Layout(files={})
"""The layout of a file without settings."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """A classification task, or a text to pre-train on: the names of its files, columns and labels."""

    name: str
    labels: tuple[str, ...] = ()
    """Labels in the order of a model's class indexes; empty: those of the training rows."""
    target: Target | None = None
    """How its labels are encoded, learned and scored. None: it is decided after the training rows are read."""
    layouts: tuple[Layout, ...] = ()
    """Sets of files in which the task is distributed, the usual one first."""
    folder: str | None = None
    """Name of its folder in a parent of task folders; None: the task's name."""
    plain_text: bool = False
    """Whether its files are lines of text without labels, for `recur pretrain`."""
    rows: Mapping[str, int] = field(default_factory=dict)
    """Maps a split to the official number of rows in its file, without those with `dropped_label`."""
    text: tuple[str, ...] = ()
    """Columns of the text, or of the first text of a pair; empty: a column with a usual name."""
    pair: tuple[str, ...] = ()
    spans: str | None = None
    """Key of an object that names two spans of the text, which are marked in it."""
    label: tuple[str, ...] = ("label",)
    """Column of the label, or columns of 0 and 1, one for each label; (): a column with a usual name."""
    id: str | None = "id"
    language: str | None = None
    """The language of the texts by ISO 639-1, where all are in one."""
    dev_fraction: float = 0.1
    """One of this many training rows of a class is a dev row if the task has no dev rows (`drawn_rows`; ours)."""
    dropped_label: str | None = None
    """Label of rows without a majority label, which are left out of train and dev but not of a test file."""
    hub: tuple[str, str | None] | None = None
    """(repository, configuration) on the Hugging Face Hub."""
    submissions: Mapping[str, str] = field(default_factory=dict)
    """Maps a split to the name of the file that CLUE's leaderboard takes for it, the newest test set first."""
    baselines: Mapping[str, float] = field(default_factory=dict)
    """Accuracies on dev of rules that do not learn the task."""
    labels_prefixes: bool = False
    """Whether each prefix of a text has a label (`recurrence_tasks.prefix_labels`)."""

    @property
    def files(self) -> Mapping[str, str]:
        """Maps a split to its file name in the usual layout."""
        return self.layouts[0].files if self.layouts else {}

    def has_labels(self, split: str) -> bool:
        """Return whether rows of `split` have labels; the test files of a leaderboard have none."""
        return split in ("train", "dev") or not self.submissions


CUSTOM = "custom"
"""The task of your own rows: labels come from the data, files and columns from the preset or usual names."""

_NLI_LABELS = ("contradiction", "entailment", "neutral")
_CLUE_FILES = {"train": "train.json", "dev": "dev.json", "test": "test.json"}
_CLUE_TWO_TESTS = (Layout(files={**_CLUE_FILES, "test1.0": "test1.0.json"}),)


def _clue(name: str, *, folder: str | None = None, **settings: Any) -> Task:
    """Return a task of CLUE with one test set, if no other is among the settings; `folder` is its name in CLUE's archive."""
    layouts, submissions = (Layout(files=_CLUE_FILES),), {"test": f"{name}_predict.json"}
    usual = {"hub": ("clue/clue", folder or name), "layouts": layouts, "submissions": submissions, "language": "zh"}
    return Task(name=name, folder=folder, **usual | settings)


_GLUE_FILES = {"train": "train.tsv", "dev": "dev.tsv", "test": "test.tsv"}


def _recurrence(name: str, labels: tuple[str, ...], **baselines: float) -> Task:
    """Return a task of recurrence_tasks.py, which also has longer test rows than those of training."""
    return Task(
        name=name,
        labels=labels,
        layouts=(Layout(files={**_GLUE_FILES, "test-long": "test-long.tsv"}),),
        rows={"train": 20_000, "dev": 2_000, "test": 2_000, "test-long": 2_000},
        text=("text",),
        baselines=baselines,
        labels_prefixes="recall" not in name,
    )


def _halves(suffix: str) -> dict[str, str]:
    """Return the files of a task whose dev rows come from the training file."""
    return {"train": f"train{suffix}", "dev": f"train{suffix}", "test": f"test{suffix}"}


_IMDB = {  # Maas et al., ACL 2011: 25,000 reviews to train on, 25,000 to test
    "labels": ("neg", "pos"),
    "layouts": (
        Layout(files=_halves(".parquet")),
        Layout(files=_halves(""), label_names={"negative": "neg", "positive": "pos"}),  # the archive's folders
        Layout(files=_halves(".csv"), label_names={"negative": "neg", "positive": "pos", "0": "neg", "1": "pos"}),
    ),
    "folder": "imdb",
    "rows": {"train": 25_000, "test": 25_000},
    "text": ("text",),
    "hub": ("stanfordnlp/imdb", "plain_text"),
}

_VERDICTS = ("accept", "reject")

_ROWS = (
    Task(
        name="listops-mini",
        labels=tuple("0123456789"),
        layouts=(Layout(files=_GLUE_FILES),),
        rows={"train": 20_000, "dev": 2_000, "test": 2_000},
        text=("text",),
        # Rules that ignore nesting: the most frequent digit; the most frequent digit after the same first operator; the
        # first operator applied to its direct digits. tests/data/test_listops.py computes the values.
        baselines={"majority": 0.108, "first_operator": 0.238, "root_digits": 0.4325},
    ),
    Task(
        name="listops",  # Long Range Arena: Tay et al., ICLR 2021
        labels=tuple("0123456789"),
        layouts=(
            Layout(files=_GLUE_FILES),
            Layout(  # files of LRA's generator
                files={"train": "basic_train.tsv", "dev": "basic_val.tsv", "test": "basic_test.tsv"},
                text=("Source",),
                label=("Target",),
            ),
        ),
        rows={"train": 96_000, "dev": 2_000, "test": 2_000},
        text=("text",),
        baselines={"majority": 0.165, "first_operator": 0.3595, "root_digits": 0.4675},
    ),
    # Rules that read no order: the label of most rows; the label of most training rows of the same length; the value or letter
    # that is most frequent in the row. tests/data/test_recurrence_tasks.py computes the values.
    _recurrence("parity", _VERDICTS, majority=0.5, length=0.496),
    _recurrence("tomita-3", _VERDICTS, majority=0.5, length=0.5015),
    _recurrence("tomita-4", _VERDICTS, majority=0.5, length=0.504),
    _recurrence("tomita-5", _VERDICTS, majority=0.5, length=0.667),  # a string of odd length is rejected
    _recurrence("tomita-6", _VERDICTS, majority=0.5, length=0.496),
    _recurrence("tomita-7", _VERDICTS, majority=0.5, length=0.5025),
    _recurrence("dyck", _VERDICTS, majority=0.5, length=0.64),  # one of odd length is rejected
    _recurrence("flip-flop", ("0", "1"), majority=0.5085),
    _recurrence("modulo-5", tuple("01234"), majority=0.2035),
    _recurrence("s3", tuple(f"g{element}" for element in range(6)), majority=0.1705),
    _recurrence("a5", tuple(f"g{element}" for element in range(60)), majority=0.027),
    _recurrence("s5", tuple(f"g{element}" for element in range(120)), majority=0.015),
    _recurrence("recall-size", tuple(f"v{value}" for value in range(16)), majority=0.0725, most_frequent=0.1615),
    _recurrence("associative-recall", tuple(f"v{value}" for value in range(16)), majority=0.075, most_frequent=0.2455),
    _recurrence("recall-distance", tuple("abcdefgh"), majority=0.1345, most_frequent=0.2145),
    _clue(
        "tnews",
        labels=(
            *("100", "101", "102", "103", "104", "106", "107", "108"),
            *("109", "110", "112", "113", "114", "115", "116"),
        ),
        layouts=_CLUE_TWO_TESTS,
        rows={"train": 53_360, "dev": 10_000, "test": 10_000, "test1.0": 10_000},
        text=("sentence",),
        submissions={"test": "tnews11_predict.json", "test1.0": "tnews10_predict.json"},
    ),
    _clue(
        "afqmc",
        labels=("0", "1"),
        rows={"train": 34_334, "dev": 4_316, "test": 3_861},
        text=("sentence1",),
        pair=("sentence2",),
    ),
    _clue(
        "iflytek",
        labels=tuple(map(str, range(119))),
        rows={"train": 12_133, "dev": 2_599, "test": 2_600},
        text=("sentence",),
    ),
    _clue(
        "cmnli",
        labels=_NLI_LABELS,
        rows={"train": 391_783, "dev": 12_241, "test": 13_880},
        text=("sentence1",),
        pair=("sentence2",),
        dropped_label="-",
    ),
    _clue(
        "ocnli",
        labels=_NLI_LABELS,
        layouts=(Layout(files={**_CLUE_FILES, "train": "train.50k.json"}),),
        rows={"train": 50_437, "dev": 2_950, "test": 3_000},
        text=("sentence1",),
        pair=("sentence2",),
        dropped_label="-",
        submissions={"test": "ocnli_50k_predict.json"},
    ),
    _clue(
        "cluewsc",
        folder="cluewsc2020",
        labels=("false", "true"),
        layouts=_CLUE_TWO_TESTS,
        rows={"train": 1_244, "dev": 304, "test": 2_574, "test1.0": 290},
        text=("text",),
        spans="target",
        submissions={"test": "cluewsc11_predict.json", "test1.0": "cluewsc10_predict.json"},
    ),
    _clue(
        "csl",
        labels=("0", "1"),
        rows={"train": 20_000, "dev": 3_000, "test": 3_000},
        text=("keyword",),
        pair=("abst",),
    ),
    Task(name="imdb", **_IMDB),  # type: ignore[arg-type]
    Task(name="charimdb", **_IMDB),  # type: ignore[arg-type] # Long Range Arena's text task: the same reviews as bytes
    Task(
        name="agnews",  # Zhang, Zhao & LeCun, NeurIPS 2015: news in four classes
        labels=("World", "Sports", "Business", "Sci/Tech"),
        layouts=(
            Layout(files=_halves(".parquet")),
            Layout(  # the authors' files: class, title, description
                files=_halves(".csv"),
                header=False,
                text=("2", "3"),
                label=("1",),
                label_names={"1": "World", "2": "Sports", "3": "Business", "4": "Sci/Tech"},
            ),
        ),
        rows={"train": 120_000, "test": 7_600},
        text=("text",),
        hub=("fancyzhx/ag_news", "default"),
    ),
    Task(
        name="sst2",  # Socher et al., EMNLP 2013, GLUE's version (Wang et al., 2019) with hidden test labels
        labels=("negative", "positive"),
        layouts=(
            Layout(files=_GLUE_FILES, label_names={"0": "negative", "1": "positive"}, unlabelled=("test",)),
            Layout(
                files={"train": "train.parquet", "dev": "validation.parquet", "test": "test.parquet"},
                label_names={"0": "negative", "1": "positive"},
                unlabelled=("test",),
            ),
        ),
        rows={"train": 67_349, "dev": 872, "test": 1_821},
        text=("sentence",),
        id="idx",
        hub=("stanfordnlp/sst2", "default"),
    ),
    Task(
        name="ptb",  # Penn Treebank's Wall Street Journal (Marcus et al., 1993), as prepared by Mikolov et al., 2010
        plain_text=True,
        layouts=(Layout(files={"train": "ptb.train.txt", "dev": "ptb.valid.txt", "test": "ptb.test.txt"}),),
        rows={"train": 42_068, "dev": 3_370, "test": 3_761},
        label=(),
        id=None,
    ),
    Task(name=CUSTOM, label=(), id=None),
)

TASKS: dict[str, Task] = {task.name: task for task in _ROWS}


def task_named(name: str) -> Task:
    """Return the task `name`. Raises UsageError with the nearest name if it is unknown."""
    if name not in TASKS:
        raise UsageError(f"unknown task '{escaped(name)}'{did_you_mean(name, TASKS)}")
    return TASKS[name]


STEMS = {"train": ("train", "training"), "dev": ("dev", "valid", "validation", "val"), "test": ("test",)}
"""Stems of the names of task `custom`'s files by split."""
_ENDINGS = [*ENDINGS, *(f"{ending}{packed}" for packed in COMPRESSED for ending in ENDINGS if ending != ".parquet"), ""]


class Place(NamedTuple):
    """The files of a split, or its folder, and their layout."""

    paths: tuple[Path, ...]
    layout: Layout
    use_dev_split: bool = False
    """Whether it holds both train and dev rows."""


def task_with_columns(task: Task, config: DataConfig) -> Task:
    """Return `task` with the files, columns and labels that `config` sets."""
    changes: dict[str, Any] = {"dev_fraction": config.dev_fraction or task.dev_fraction}
    columns = {"text": config.text, "pair": config.pair, "label": config.label, "labels": config.labels}
    for key, value in columns.items():
        if value is not None:
            changes[key] = tuple(map(str, value)) if isinstance(value, tuple) else (str(value),)
    for key, word in (("id", config.id), ("dropped_label", config.drop_label)):
        if word is not None:
            changes[key] = str(word)
    if config.hub is not None:
        repository, _, configuration = config.hub.partition(":")
        changes["hub"] = repository, configuration or None
    layouts = task.layouts
    if files := config.files_of_folder:
        layouts = (Layout(files={**({"dev": files["train"]} if "train" in files else {}), **files}),)
    if config.text is not None:
        layouts = tuple(replace(layout, text=None) for layout in layouts)
        changes["spans"] = None
    if config.label is not None:
        layouts = tuple(replace(layout, label=None) for layout in layouts)
    return replace(task, layouts=layouts, **changes)


def splits_of(task: Task) -> tuple[str, ...]:
    """Return the splits that a task may have."""
    return tuple(dict.fromkeys([*(split for layout in task.layouts for split in layout.files), *STEMS]))


def check_split(task: Task, split: str, config: DataConfig) -> None:
    """Raise UsageError if neither `task` nor `config.files` has this split. The message names the most similar split."""
    if split not in (*splits_of(task), *(config.files or {})):
        raise UsageError(f"{task.name} has no split '{escaped(split)}'{did_you_mean(split, splits_of(task))}")


def find_place(task: Task, split: str, config: DataConfig, *, use_dev_split: bool = False) -> Place:
    """Find the `split` of a task: the file that `config.files` names, else `config.path` or a file of that folder.

    A folder of label folders counts as one file, a JSON document of splits as a folder of them. `use_dev_split` means that a
    single file holds both train and dev rows. Files may be compressed. Raises UsageError for a split that the task does not
    have, and DataError with the expected names if no file exists.
    """
    check_split(task, split, config)
    if named := config.files_of(split):
        for path in named:
            if not file_and_part(path)[0].exists():
                raise DataError(f"{path}: does not exist; it is named for the {split} rows")
        if named[0].is_dir() and not is_one_file(named[0]):
            place = _find_in_folder(task, split, named[0])
        else:
            place = Place(named, _layout_of(task, named[0]), use_dev_split=True)
        place = place._replace(layout=replace(place.layout, unlabelled=()))
    elif config.path is None:
        raise DataError(f"no {split} rows are named; add --data PATH or --{split} FILE")
    else:
        path = Path(config.path)
        try:
            if not file_and_part(path)[0].exists():
                raise DataError(f"{path}: does not exist; --data (data.path) names the folder or file of the data")
            if path.is_dir() and (config.files_of_folder or not is_one_file(path)):
                place = _find_in_folder(task, split, path)
            elif config.files_of_folder:
                raise UsageError(f"{path}: is one file; data.files names the files of a folder")
            elif parts := parts_of_document(path):
                place = _find_in_document(split, path, parts)
            else:
                place = Place((path,), _layout_of(task, path), use_dev_split)
        except OSError as error:
            raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    is_divided = place.use_dev_split and split in ("train", "dev") and not config.has_own_dev_file
    return place._replace(use_dev_split=is_divided)


def _find_in_folder(task: Task, split: str, path: Path) -> Place:
    """Find the `split` of a task in the folder `path`. Raises DataError with the names of what was looked for."""
    candidates = list(_candidates(task, split, path))
    for candidate in candidates:
        if any(file.exists() for file in candidate.paths):
            return candidate
    names = [str(file.relative_to(path)) for (file, *_), *_ in candidates if file.suffix not in COMPRESSED]
    names = names or [*(f"{split}{each.endings[0]}" for each in FORMATS.values() if each.endings), f"{split}/LABEL/*"]
    files = sorted(entry.name for entry in path.iterdir() if uncompressed(entry.name).endswith((*ENDINGS,)))
    way_out = "--data (data.path) names a folder with these files, or one file"
    if files:
        shown = ", ".join([*(escaped(name, 60) for name in files[:8]), *["…"][: len(files) > 8]])
        way_out = f"it holds {shown}; give the path of one file, or name files with --train, --dev and --test"
    looked_for = ", ".join([*names[:8], *["…"][: len(names) > 8]])
    raise DataError(f"{path}: has no {split} rows (looked for {looked_for}); {way_out}")


def _find_in_document(split: str, path: Path, parts: tuple[str, ...]) -> Place:
    """Find the `split` in a JSON document with the rows of these `parts`. Raises DataError with the names of both."""
    named = {role: part for role, stems in STEMS.items() for part in parts if part.casefold() in stems}
    both = "dev" not in named and split in ("train", "dev")
    if (part := named.get("train" if both else split)) is None:
        what = f"has no {split} rows among {', '.join(map(escaped, parts))}"
        raise DataError(f"{path}: {what}; name them, for example with --{split} {path.name}#{escaped(parts[0])}")
    return Place((path.with_name(f"{path.name}#{part}"),), PLAIN, both)


def is_local(config: DataConfig, split: str) -> bool:
    """Return whether the preset names a file or folder for `split`. Other rows come from the Hub or are generated."""
    return config.path is not None or bool(config.files_of(split))


def is_one_file(path: Path) -> bool:
    """Return whether `path` is a file, a part of one, a folder of label folders, or one of `datasets`, and not a JSON document
    of splits. Its rows are one split, or train and dev rows.
    """
    is_document = file_and_part(path)[0].is_file() and not parts_of_document(path)
    return is_document or is_label_folder(path) or is_saved_dataset(path)


def is_label_folder(path: Path) -> bool:
    """Return whether `path` holds label folders: two or more folders of files, without a file or folder of a split."""
    try:
        if not path.is_dir():
            return False
        entries = [entry for entry in os.scandir(path) if not entry.name.startswith(".")]
        folders = [list(os.scandir(entry)) for entry in entries if entry.is_dir()]
    except OSError:
        return False
    inside = [entry for entries in folders for entry in entries if not entry.name.startswith(".")]
    splits = {stem for stems in STEMS.values() for stem in stems}
    return (
        sum(map(bool, folders)) > 1
        and not any(entry.is_dir() or entry.name == "state.json" for entry in inside)  # of `datasets`
        and not any(entry.name in splits or Path(entry.name).suffix in ENDINGS for entry in entries)
        and not any(Path(entry.name).suffix in ENDINGS and entry.name.partition(".")[0] in splits for entry in inside)
    )


def has_split(task: Task, split: str, config: DataConfig) -> bool:
    """Return whether there is a file of `split`; without a path or a named file, whether it is the train split.

    Dev rows that would be drawn from the training rows do not count.
    """
    if not is_local(config, split):
        return split == "train"
    try:
        place = find_place(task_with_columns(task, config), split, config)
    except DataError:
        return False
    return split != "dev" or not place.use_dev_split


def split_named(task: Task, path: Path) -> str | None:
    """Return the split that a file holds by its name, or None if the name is not that of a split."""
    file, part = file_and_part(path)
    name = part or uncompressed(file.name)
    known = next((split for layout in task.layouts for split, file in layout.files.items() if file == name), None)
    stem = name.partition(".")[0].casefold()
    return known or next((split for split, stems in STEMS.items() if stem in stems), None)


def _layout_of(task: Task, path: Path) -> Layout:
    """Return the layout of a single file: the one with its name, else with its ending, else one for any file."""
    name = Path(uncompressed(file_and_part(path)[0].name))
    for layout in task.layouts:
        if name.name in layout.files.values():
            return layout
    label_names: dict[str, str] = {}
    for layout in task.layouts:
        if layout.header is False:
            continue
        if layout.text is None and any(Path(file).suffix == name.suffix for file in layout.files.values()):
            return layout
        label_names |= layout.label_names
    return Layout(files={}, label_names=label_names)


def _candidates(task: Task, split: str, path: Path) -> Iterator[Place]:
    """Yield the files and folders that may hold a split, the likelier first."""
    folders = dict.fromkeys([path, path / (task.folder or task.name), path / task.name])
    for folder in folders:
        for layout in task.layouts:
            if (name := layout.files.get(split)) is not None:
                both = layout.files.get("train") == layout.files.get("dev") and split in ("train", "dev")
                for ending in ("", *COMPRESSED):
                    yield Place((folder / f"{name}{ending}",), layout, both)
        if split not in task.files or task.files == TASKS[task.name].files:
            both = split == "train" and not any(_usual_files(task, folder, "dev"))
            for files in _usual_files(task, folder, split):
                yield Place(files, _layout_of(task, files[0]), both)
            if split == "dev":
                for files in _usual_files(task, folder, "train"):
                    yield Place(files, _layout_of(task, files[0]), use_dev_split=True)


def _usual_files(task: Task, folder: Path, split: str) -> Iterator[tuple[Path, ...]]:
    """Yield what exists for a split: files of task `custom`, and those of the Hub (data/train-00000-of-00002.parquet), of
    which one may be missing.
    """
    for stem in STEMS.get(split, ()):
        for ending in _ENDINGS if task.name == CUSTOM else ("",):  # a folder of `datasets`
            if (file := folder / f"{stem}{ending}").exists():
                yield (file,)
        for ending in ("", *COMPRESSED) if task.name == CUSTOM else ():  # other texts are for `recur pretrain`
            if is_fasttext(file := folder / f"{stem}.txt{ending}"):
                yield (file,)
        for place in (folder, folder / "data"):
            for name in islice(sorted(path.name for path in place.glob(f"{stem}-?????-of-?????.*")), 1):
                count, _, ending = name.partition("-of-")[2].partition(".")
                numbers = range(int(count)) if count.isdecimal() else ()
                yield tuple(place / f"{stem}-{number:05}-of-{count}.{ending}" for number in numbers)
