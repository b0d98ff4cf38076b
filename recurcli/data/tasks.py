"""The tasks: a row each, facts only.

CLUE: Xu et al., COLING 2020, arXiv 2004.05986; file names and row counts are those of its submission guide.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from recurcli.errors import UsageError, did_you_mean, visible


class Submission(NamedTuple):
    """A file that CLUE's leaderboard takes: its name, the test file it answers line by line, and their rows."""

    name: str
    test_file: str
    rows: int


@dataclass(frozen=True, kw_only=True)
class Task:
    """A classification task: what its files, columns and labels are called."""

    name: str
    labels: tuple[str, ...]
    """In the order of the class indexes inside a model; outside of it a label is always its string."""
    files: Mapping[str, str]
    """Split to file name. A split of its own for every test file that is submitted."""
    rows: Mapping[str, int] = field(default_factory=dict)
    """Split to its official number of rows, those with `dropped_label` not counted."""
    text: str
    pair: str | None = None
    label: str = "label"
    id: str = "id"
    dev_every: int | None = None
    """Where a task comes without dev rows: every n-th row of the training file is one, and is not trained on (ours)."""
    dropped_label: str | None = None
    """Marks rows without a majority label: left out of train and dev, never of a test file."""
    hub: tuple[str, str] | None = None
    """(repository, configuration) on the Hugging Face Hub."""
    submissions: tuple[Submission, ...] = ()
    floors: Mapping[str, float] = field(default_factory=dict)
    """Accuracies on dev that need no learning of the task; a score below them says little."""

    def has_labels(self, split: str) -> bool:
        """Whether rows of `split` carry labels: the test files of a leaderboard do not."""
        return split in ("train", "dev") or not self.submissions


_NLI_LABELS = ("contradiction", "entailment", "neutral")

_ROWS = (
    Task(
        name="listops-mini",
        labels=tuple("0123456789"),
        files={"train": "train.tsv", "dev": "dev.tsv", "test": "test.tsv"},
        rows={"train": 20_000, "dev": 2_000, "test": 2_000},
        text="text",
        floors={"majority": 0.108, "first_operator": 0.238, "root_digits": 0.4325},
    ),
    Task(
        name="tnews",
        labels=(
            "100",
            "101",
            "102",
            "103",
            "104",
            "106",
            "107",
            "108",
            "109",
            "110",
            "112",
            "113",
            "114",
            "115",
            "116",
        ),
        files={"train": "train.json", "dev": "dev.json", "test": "test.json", "test1.0": "test1.0.json"},
        rows={"train": 53_360, "dev": 10_000, "test": 10_000, "test1.0": 10_000},
        text="sentence",
        hub=("clue/clue", "tnews"),
        submissions=(
            Submission("tnews11_predict.json", "test.json", 10_000),
            Submission("tnews10_predict.json", "test1.0.json", 10_000),
        ),
    ),
    Task(
        name="afqmc",
        labels=("0", "1"),
        files={"train": "train.json", "dev": "dev.json", "test": "test.json"},
        rows={"train": 34_334, "dev": 4_316, "test": 3_861},
        text="sentence1",
        pair="sentence2",
        hub=("clue/clue", "afqmc"),
        submissions=(Submission("afqmc_predict.json", "test.json", 3_861),),
    ),
    Task(
        name="cmnli",
        labels=_NLI_LABELS,
        files={"train": "train.json", "dev": "dev.json", "test": "test.json"},
        rows={"train": 391_783, "dev": 12_241, "test": 13_880},
        text="sentence1",
        pair="sentence2",
        dropped_label="-",
        hub=("clue/clue", "cmnli"),
        submissions=(Submission("cmnli_predict.json", "test.json", 13_880),),
    ),
    Task(
        name="ocnli",
        labels=_NLI_LABELS,
        files={"train": "train.50k.json", "dev": "dev.json", "test": "test.json"},
        rows={"train": 50_437, "dev": 2_950, "test": 3_000},
        text="sentence1",
        pair="sentence2",
        dropped_label="-",
        hub=("clue/clue", "ocnli"),
        submissions=(Submission("ocnli_50k_predict.json", "test.json", 3_000),),
    ),
    Task(
        name="imdb",  # Maas et al., ACL 2011: 25,000 reviews to train on, 25,000 to test
        labels=("neg", "pos"),
        files={"train": "train.parquet", "dev": "train.parquet", "test": "test.parquet"},
        rows={"train": 22_500, "dev": 2_500, "test": 25_000},
        text="text",
        dev_every=10,
        hub=("stanfordnlp/imdb", "plain_text"),
    ),
    Task(
        name="agnews",  # Zhang, Zhao & LeCun, NeurIPS 2015: news in four classes
        labels=("World", "Sports", "Business", "Sci/Tech"),
        files={"train": "train.parquet", "dev": "train.parquet", "test": "test.parquet"},
        rows={"train": 108_000, "dev": 12_000, "test": 7_600},
        text="text",
        dev_every=10,
        hub=("fancyzhx/ag_news", "default"),
    ),
)

TASKS: dict[str, Task] = {task.name: task for task in _ROWS}
"""Every task by name."""


def task_named(name: str) -> Task:
    """The row of TASKS called `name`; UsageError with the nearest name if there is none."""
    if name not in TASKS:
        raise UsageError(f"there is no task '{visible(name)}'{did_you_mean(name, TASKS)}")
    return TASKS[name]
