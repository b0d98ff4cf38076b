"""The table of tasks, one row each.

CLUE: Xu et al., COLING 2020, arXiv 2004.05986; file names and row counts are those of its submission guide.
"""

from recurcli.data.tasks.task import Layout, Task
from recurcli.errors import UsageError, did_you_mean, escaped

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
        floors={"majority": 0.108, "first_operator": 0.238, "root_digits": 0.4325},
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
        floors={"majority": 0.165, "first_operator": 0.3595, "root_digits": 0.4675},
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
    Task(name=CUSTOM, label=None, id=None),
)

TASKS: dict[str, Task] = {task.name: task for task in _ROWS}
"""Every task by name."""


def task_named(name: str) -> Task:
    """Return the task `name`; raises UsageError with the nearest name if it is unknown."""
    if name not in TASKS:
        raise UsageError(f"unknown task '{escaped(name)}'{did_you_mean(name, TASKS)}")
    return TASKS[name]
