"""The tasks of recur: facts about their files, columns and labels, one row each.

CLUE: Xu et al., COLING 2020, arXiv 2004.05986; file names and row counts are those of its submission guide.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from recurcli.errors import UsageError, did_you_mean, escaped


@dataclass(frozen=True, kw_only=True)
class Layout:
    """One set of files of a task; other settings override the task's."""

    files: Mapping[str, str]
    """Maps a split to the name of a file, or of a folder of folders named by label."""
    header: bool = True
    """TSV and CSV: whether the first row names the columns; without it they are "1", "2", …"""
    delimiter: str | None = None
    """Field separator; None: a TAB in a TSV, a comma in a CSV."""
    text: tuple[str, ...] | None = None
    label: str | None = None
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
    label: str | None = "label"
    """Column of the label; None: a column with a usual name."""
    id: str | None = "id"
    test_ids_from_zero: bool = True
    """Whether the ids in CLUE's test file are row numbers; CSL's are shuffled and begin at 1."""
    dev_fraction: float = 0.1
    """One of this many training rows of a class is a dev row if the task has no dev rows (DevSplitter; ours)."""
    dropped_label: str | None = None
    """Label of rows without a majority label, which are left out of train and dev but not of a test file."""
    hub: tuple[str, str | None] | None = None
    """(repository, configuration) on the Hugging Face Hub."""
    submissions: Mapping[str, str] = field(default_factory=dict)
    """Maps a split to the name of the file that CLUE's leaderboard takes for it, the newest test set first."""
    baselines: Mapping[str, float] = field(default_factory=dict)
    """Accuracies on dev of rules that do not learn the task."""

    @property
    def files(self) -> Mapping[str, str]:
        """Maps a split to its file name in the usual layout."""
        return self.layouts[0].files if self.layouts else {}

    def targets(self, labels: Iterable[str]) -> list[int]:
        """Return the class number of each label."""
        number = {label: index for index, label in enumerate(self.labels)}
        return [number[label] for label in labels]

    def has_labels(self, split: str) -> bool:
        """Return whether rows of `split` have labels; the test files of a leaderboard have none."""
        return split in ("train", "dev") or not self.submissions


CUSTOM = "custom"
"""The task of your own rows: labels come from the data, files and columns from the preset or usual names."""

_NLI_LABELS = ("contradiction", "entailment", "neutral")
_CLUE_FILES = {"train": "train.json", "dev": "dev.json", "test": "test.json"}
_CLUE = (Layout(files=_CLUE_FILES),)
_CLUE_TWO_TESTS = (Layout(files={**_CLUE_FILES, "test1.0": "test1.0.json"}),)
_GLUE_FILES = {"train": "train.tsv", "dev": "dev.tsv", "test": "test.tsv"}


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
                label="Target",
            ),
        ),
        rows={"train": 96_000, "dev": 2_000, "test": 2_000},
        text=("text",),
        baselines={"majority": 0.165, "first_operator": 0.3595, "root_digits": 0.4675},
    ),
    Task(
        name="tnews",
        labels=(
            *("100", "101", "102", "103", "104", "106", "107", "108"),
            *("109", "110", "112", "113", "114", "115", "116"),
        ),
        layouts=_CLUE_TWO_TESTS,
        rows={"train": 53_360, "dev": 10_000, "test": 10_000, "test1.0": 10_000},
        text=("sentence",),
        hub=("clue/clue", "tnews"),
        submissions={"test": "tnews11_predict.json", "test1.0": "tnews10_predict.json"},
    ),
    Task(
        name="afqmc",
        labels=("0", "1"),
        layouts=_CLUE,
        rows={"train": 34_334, "dev": 4_316, "test": 3_861},
        text=("sentence1",),
        pair=("sentence2",),
        hub=("clue/clue", "afqmc"),
        submissions={"test": "afqmc_predict.json"},
    ),
    Task(
        name="iflytek",
        labels=tuple(str(number) for number in range(119)),
        layouts=_CLUE,
        rows={"train": 12_133, "dev": 2_599, "test": 2_600},
        text=("sentence",),
        hub=("clue/clue", "iflytek"),
        submissions={"test": "iflytek_predict.json"},
    ),
    Task(
        name="cmnli",
        labels=_NLI_LABELS,
        layouts=_CLUE,
        rows={"train": 391_783, "dev": 12_241, "test": 13_880},
        text=("sentence1",),
        pair=("sentence2",),
        dropped_label="-",
        hub=("clue/clue", "cmnli"),
        submissions={"test": "cmnli_predict.json"},
    ),
    Task(
        name="ocnli",
        labels=_NLI_LABELS,
        layouts=(Layout(files={**_CLUE_FILES, "train": "train.50k.json"}),),
        rows={"train": 50_437, "dev": 2_950, "test": 3_000},
        text=("sentence1",),
        pair=("sentence2",),
        dropped_label="-",
        hub=("clue/clue", "ocnli"),
        submissions={"test": "ocnli_50k_predict.json"},
    ),
    Task(
        name="cluewsc",
        folder="cluewsc2020",  # folder in CLUE's archive
        labels=("false", "true"),
        layouts=_CLUE_TWO_TESTS,
        rows={"train": 1_244, "dev": 304, "test": 2_574, "test1.0": 290},
        text=("text",),
        spans="target",
        hub=("clue/clue", "cluewsc2020"),
        submissions={"test": "cluewsc11_predict.json", "test1.0": "cluewsc10_predict.json"},
    ),
    Task(
        name="csl",
        labels=("0", "1"),
        layouts=_CLUE,
        rows={"train": 20_000, "dev": 3_000, "test": 3_000},
        text=("keyword",),
        pair=("abst",),
        test_ids_from_zero=False,
        hub=("clue/clue", "csl"),
        submissions={"test": "csl_predict.json"},
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
                label="1",
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
        label=None,
        id=None,
    ),
    Task(name=CUSTOM, label=None, id=None),
)

TASKS: dict[str, Task] = {task.name: task for task in _ROWS}
"""Every task by name."""


def task_named(name: str) -> Task:
    """Return the task `name`; raises UsageError with the nearest name if it is unknown."""
    if name not in TASKS:
        raise UsageError(f"unknown task '{escaped(name)}'{did_you_mean(name, TASKS)}")
    return TASKS[name]
