"""The keys `data.*` and `tokenizer.*` of a preset; importable without torch."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le, MinLen

from recurcli.data.rows import QUOTE, UTF8, canonical_encoding
from recurcli.errors import UsageError, did_you_mean
from recurcli.validation import STRICT, InvalidConfig, Positive, parse_config

SPLITS = ("train", "dev", "test", "test1.0")
Name = Annotated[str, MinLen(1)]
Column = Name | int
"""A column by name, or by number from 1 where there is no header."""


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Where the rows are and which columns are read. null: the task's setting."""

    __pydantic_config__ = STRICT

    path: Name | None = None
    """A folder with the task's files, a parent of such folders, or one file; null: the Hub or the generator."""
    files: dict[str, Name] | None = None
    """The file of each split (train, dev, test), as an absolute path or as a name in the folder `path`. A split without a
    file here has the task's file. If train is named and dev is missing, the dev rows are drawn from the training rows."""
    hub: Name | None = None
    """A data set of the Hugging Face Hub, `owner/name` or `owner/name:configuration`. It is not used if `path` is set."""
    max_length: Annotated[int, Ge(3)] | Literal["auto"] = 128
    """Largest number of tokens of a row, with both texts and their separator; longer rows are truncated. auto: the length
    that covers 99 % of the training rows without those of `extra_rows`, 512 at most."""
    skip_bad_rows: bool = False
    """Skip rows that cannot be read, up to 1 % of a file, instead of ending with an error."""
    unlabelled: Literal["refuse", "drop"] = "refuse"
    """Whether rows without a label are an error or are left out. Rows with another fault stay bad rows."""
    header: bool | None = None
    """Whether the first row of a TSV or CSV file names the columns; null: the task's setting, else what the row holds."""
    delimiter: str | None = None
    """Separator of the fields of a TSV or CSV file; null: TAB or a comma."""
    quote: str = QUOTE
    """The quote around fields of a CSV file; a TSV has none."""
    encoding: str = UTF8
    """Encoding of the files by its name in Python, such as utf-8, latin-1, cp1252, gb18030 or utf-16. Parquet has none."""
    text: Column | Annotated[tuple[Column, ...], MinLen(1)] | None = None
    """Column (or JSON key) of the text, or of the first text of a pair; several columns are joined by a space."""
    pair: Column | Annotated[tuple[Column, ...], MinLen(1)] | None = None
    """Column (or JSON key) of the second text of a pair."""
    label: Column | None = None
    """Column (or JSON key) of the label."""
    extra_rows: tuple[Column, ...] = ()
    """Columns (or JSON keys), such as keywords, whose texts become additional training rows with the label of their row. A
    missing column or an empty text adds no row. Dev and test rows are not changed."""
    id: Column | None = None
    """Column (or JSON key) of the row's id; null: the task's column if the file has it, else row numbers from 0."""
    labels: Annotated[tuple[str | int, ...], MinLen(2)] | None = None
    """Labels in the order of the classes; null: those of the task, or of the training rows."""
    drop_label: str | int | None = None
    """Label of rows that are left out of train and dev, such as the - of NLI rows without a majority."""
    close_brackets: bool = True
    """Whether the generated rows of the tasks listops and listops-mini have their closing brackets."""
    dev_seed: int = 0
    """Seed of the draw of dev rows from training rows (see dev_fraction); `runtime.seed` does not change them."""
    dev_fraction: Annotated[float, Gt(0), Le(0.5)] | None = None
    """Share of the training rows of each class that become dev rows if the data has none, at most 0.5. null: 0.1."""
    train_share: Annotated[float, Gt(0), Le(1)] = 1.0
    """Share of the training rows of each class that a classifier is trained on, drawn by dev_seed after the dev rows. The rows
    of a smaller share are rows of a larger one."""

    def __post_init__(self) -> None:
        for name, mark in (("delimiter", self.delimiter), ("quote", self.quote)):
            if mark is not None and (len(mark) != 1 or mark in "\r\n"):
                raise ValueError(f"{name} must be one character and no line end, not {mark!r}")
        if self.quote in (self.delimiter or ",\t"):
            raise ValueError(f"quote must not be the delimiter, {self.quote!r}")
        canonical_encoding(self.encoding)
        for split in self.files or {}:
            if split not in SPLITS:
                raise ValueError(f"files has no split {split!r}{did_you_mean(split, SPLITS)}")
        for key in ("labels", "extra_rows"):
            names = [str(name) for name in getattr(self, key) or ()]
            if len(set(names)) < len(names):
                raise ValueError(f"{key} must be different, not {names}")

    @property
    def named_files(self) -> dict[str, Path]:
        """The absolute paths in `files`, by split."""
        return {split: Path(file) for split, file in (self.files or {}).items() if Path(file).is_absolute()}

    @property
    def files_of_folder(self) -> dict[str, str]:
        """The names in `files` that belong to the folder `path`, by split."""
        return {split: file for split, file in (self.files or {}).items() if not Path(file).is_absolute()}

    def named_file(self, split: str) -> Path | None:
        """Return the absolute path of the file of `split`, which for dev may be that of train; None: it is not named."""
        shared = split == "dev" and "dev" not in (self.files or {})
        return self.named_files.get("train" if shared else split)

    @property
    def has_own_dev_file(self) -> bool:
        """Whether `files` names a file of dev rows that is not the file of the training rows."""
        files = self.files or {}
        return "dev" in files and files["dev"] != files.get("train")


def with_options(config: DataConfig, path: Path, columns: Mapping[str, object]) -> DataConfig:
    """Return `config` for the data at `path` with the `columns` of the command line; UsageError for a bad value."""
    given = {key: value for key, value in columns.items() if value is not None}
    files = None if path.is_file() else config.files_of_folder or None
    try:
        return parse_config(DataConfig, {**asdict(config), "path": str(path), "files": files, **given})
    except InvalidConfig as fault:
        raise UsageError(f"--{fault}") from None


TokenizerKind = Literal["auto", "char", "wordpiece", "bpe", "byte", "whitespace"]


@dataclass(frozen=True, kw_only=True)
class TokenizerConfig:
    """Settings of the tokenizer."""

    __pydantic_config__ = STRICT

    kind: TokenizerKind = "char"
    """The kind of token: a character, a subword (wordpiece, bpe), a byte, or a word between whitespace. auto: wordpiece, or
    char where the script of the training texts has no spaces between words."""
    vocab_size: Annotated[int, Ge(8)] = 8000
    """Largest size of the trained vocabulary, special tokens included; byte always has 259."""
    min_frequency: Positive[int] = 2
    """Least number of times that a token of the vocabulary occurs in the training texts."""
    lowercase: bool = True
    """Convert texts to lower case; byte and whitespace tokens keep their case."""
    vocabulary: Name | None = None
    """A text file with one token a line, such as BERT's vocab.txt, or a tokenizer.json; null: the vocabulary is trained."""

    def __post_init__(self) -> None:
        if self.vocabulary is not None and self.kind not in ("auto", "char", "wordpiece", "whitespace"):
            raise ValueError(f"vocabulary is for kind char, wordpiece or whitespace, not {self.kind}")
