"""The keys of a preset and of a model's config.json; those of the encoders stand in encoders/config.py. It imports no torch."""

import codecs
import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from annotated_types import Ge, Gt, Le, Lt, MinLen

from recurcli.encoders import LINEAR, PRETRAINED
from recurcli.errors import ModelError, UsageError, did_you_mean, escaped
from recurcli.metrics import (
    AT_LEAST,
    LABEL_METRICS,
    LABEL_SET_METRICS,
    METRICS,
    NUMBER_METRIC_NAMES,
    NUMBER_METRICS,
    OF_LABEL,
    PROBABILITY_METRICS,
    is_of_labels,
    is_selecting,
)
from recurcli.validation import (
    STRICT,
    Fraction,
    InvalidConfig,
    NonNegative,
    Positive,
    Probability,
    parse_config,
    section_of,
)

UTF8 = "utf-8"
QUOTE = '"'
DELIMITER_NAMES = {"TAB": "\t", "\\t": "\t", "SPACE": " "}
"""Names of delimiters that are hard to type."""
NO_TEXT = ("punycode", "idna", "unicode_escape", "raw_unicode_escape")
"""The encodings of Python that are not for text files. They rewrite backslashes or host names."""


def canonical_encoding(name: str) -> str:
    """Return Python's name of a text encoding. It is "utf-8" for UTF-8 with and without a BOM.

    Raises ValueError if there is no such encoding.
    """
    try:
        found = codecs.lookup(name).name.removesuffix("-sig")
        if found.replace("-", "_") not in NO_TEXT and "a\n".encode(name).decode(name) == "a\n":
            return found
    except (LookupError, ValueError):
        pass
    raise ValueError(
        f"encoding {escaped(repr(name), 60)} is not known; usual ones are utf-8, utf-16, latin-1, cp1252, gb18030, big5, "
        "shift_jis, euc-kr and koi8-r"
    )


SPLITS = ("train", "dev", "test", "test-long", "test1.0")
Name = Annotated[str, MinLen(1)]
Column = Name | int
"""A column by name, or by number from 1 where there is no header."""


LabelNames = dict[str, Name] | tuple[Name, ...]
Files = Name | Annotated[tuple[Name, ...], MinLen(1)]
"""One file, or several."""


def names_in(files: Files | None) -> tuple[Name, ...]:
    """Return the names of one file, or of several; () for None."""
    return (files,) if isinstance(files, str) else files or ()


Truncation = Literal["head", "tail", "both"]


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Where the rows are and which columns are read. null: the task's setting."""

    __pydantic_config__ = STRICT

    path: Name | None = None
    """A folder with the task's files, a parent of such folders, or one file; null: the Hub or the generator."""
    files: dict[str, Files] | None = None
    """The file of each split (train, dev, test; test-long: longer rows), as an absolute path or as a name in the
    folder `path`, or a list of files whose rows follow each other. A split without a file here has the task's file. If train is
    named and dev is missing, the dev rows are drawn from the training rows."""
    hub: Name | None = None
    """A data set of the Hugging Face Hub, `owner/name` or `owner/name:configuration`. It is not used if `path` is set."""
    max_length: Annotated[int, Ge(3)] | Literal["auto"] = 128
    """Largest number of tokens of a row, with both texts and their separator; longer rows are truncated. auto: the length
    that covers 99 % of the training rows without those of `extra_rows`, 512 at most; a vocabulary of subwords is trained on
    one half of them to measure the other."""
    truncate: Truncation = "head"
    """What is kept of a longer row: its first tokens (head), its last ones (tail), or the first and the last half of the tokens
    that fit (both). A pair keeps both texts, and the longer one is cut first."""
    skip_bad_rows: bool = False
    """Skip rows that cannot be read, up to 1 % of a file, instead of ending with an error."""
    unlabelled: Literal["refuse", "drop"] = "refuse"
    """Whether rows without a label are an error or are left out. Rows with another fault stay bad rows."""
    header: bool | None = None
    """Whether the first row of a TSV or CSV file names the columns; null: the task's setting, else what the row holds."""
    delimiter: str | None = None
    """Separator of the fields of a TSV or CSV file, or TAB or SPACE; null: TAB or a comma. A space separates the first field
    from the rest of the line, as in TREC's files."""
    quote: str | None = None
    """The quote around fields of a TSV or CSV file; null: " in a CSV, none in a TSV."""
    encoding: str | None = None
    """Encoding of the files by its name in Python, such as latin-1, gb18030 or utf-16; null: UTF-8. Parquet has none."""
    text: Column | Annotated[tuple[Column, ...], MinLen(1)] | None = None
    """Column (or JSON key) of the text, or of the first text of a pair; several columns are joined by a space."""
    pair: Column | Annotated[tuple[Column, ...], MinLen(1)] | None = None
    """Column (or JSON key) of the second text of a pair."""
    target: Literal["auto", "one", "several", "number"] = "auto"
    """What the label of a row is: one of several classes, any number of labels, or a number to predict. auto: several labels if
    the column holds lists, if several columns of 0 and 1 are named, or with a `label_separator`; numbers if more than 20 differ
    and some are not whole; else one. The labels of a task of CLUE and of other known tasks are one a row."""
    label: Column | Annotated[tuple[Column, ...], MinLen(1)] | None = None
    """Column (or JSON key) of the label; of several columns each holds 0 or 1 and is one of several labels of a row."""
    label_separator: str | None = None
    """Mark that joins several labels in one cell; null: a cell is one label."""
    at_least_one: bool = False
    """Whether a row gets its most probable label where none of several labels is probable enough."""
    extra_rows: tuple[Column, ...] = ()
    """Columns (or JSON keys), such as keywords, whose texts become additional training rows with the label of their row. A
    missing column or an empty text adds no row. Dev and test rows are not changed."""
    id: Column | None = None
    """Column (or JSON key) of the row's id; null: the task's column if the file has it, else row numbers from 0."""
    labels: Annotated[tuple[str | int, ...], MinLen(2)] | None = None
    """Labels in the order of the classes; null: those of the task, or of the training rows."""
    label_files: tuple[Name, ...] = ()
    """Files with one label a line, for rows that have no label column: one for each file of train, dev and test rows, in this
    order. Relative names are of files in the folder `path`."""
    label_by: Literal["column", "file"] = "column"
    """Whether the label of a row is in a column, or is the name of its file without its ending."""
    label_names: LabelNames | None = None
    """What the labels of the files, such as 0 and 1, are called: a mapping, or a list of the names from 0 (from 1 if no row
    has 0). The model has the names as labels."""
    drop_label: str | int | None = None
    """Label of rows that are left out of train and dev, such as the - of NLI rows without a majority."""
    close_brackets: bool = True
    """Whether the generated rows of the tasks listops and listops-mini have their closing brackets."""
    dev_seed: int = 0
    """Seed of the draw of dev rows from training rows (see dev_fraction); `runtime.seed` does not change them."""
    dev_fraction: Annotated[float, Gt(0), Le(0.5)] | None = None
    """Share of the training rows of each class that become dev rows if the data has none, at most 0.5. null: 0.1, but at most
    `max_dev_rows` rows."""
    max_dev_rows: Positive[int] = 10_000
    """Largest number of dev rows that are drawn without a `dev_fraction`, and of those of a longer dev file that choose the
    step. In the end all rows of the file are scored."""
    train_share: Annotated[float, Gt(0), Le(1)] = 1.0
    """Share of the training rows of each class that a classifier is trained on, drawn by dev_seed after the dev rows. The rows
    of a smaller share are rows of a larger one."""

    def __post_init__(self) -> None:
        for name, mark in (("delimiter", self.mark), ("quote", self.quote)):
            if mark is not None and (len(mark) != 1 or mark in "\r\n"):
                raise ValueError(f"{name} must be one character that is not a line end, not {mark!r}")
        if (quote := self.quote or QUOTE) in (self.mark or ",\t"):
            raise ValueError(f"quote must not be the delimiter, {quote!r}")
        if self.label_separator is not None and (not self.label_separator or self.label_separator.isspace()):
            raise ValueError(f"label_separator must be a mark that is not white space, not {self.label_separator!r}")
        if self.label_separator is not None and self.target in ("one", "number"):
            raise ValueError(f"label_separator must be null with target {self.target}; it joins several labels")
        if self.label is not None and (self.label_files or self.label_by == "file"):
            raise ValueError("label must be null with label_files or label_by file; the label is in no column then")
        canonical_encoding(UTF8 if self.encoding is None else self.encoding)
        for split in self.files or {}:
            if split not in SPLITS:
                raise ValueError(f"files has no split {split!r}{did_you_mean(split, SPLITS)}")
        for key in ("labels", "extra_rows"):
            names = [str(name) for name in getattr(self, key) or ()]
            if len(set(names)) < len(names):
                raise ValueError(f"{key} must be different, not {names}")

    @property
    def mark(self) -> str | None:
        """The delimiter that `delimiter` is or names. None: that of the file."""
        return DELIMITER_NAMES.get(self.delimiter or "", self.delimiter)

    @property
    def named_files(self) -> dict[str, tuple[Path, ...]]:
        """Maps a split to its files. Splits with one file whose path is relative are in `files_of_folder`."""
        own = {split: names for split, names in (self.files or {}).items() if split not in self.files_of_folder}
        return {split: tuple(Path(self.path or "", name) for name in names_in(names)) for split, names in own.items()}

    @property
    def files_of_folder(self) -> dict[str, str]:
        """The names in `files` that belong to the folder `path`, by split."""
        files = (self.files or {}).items()
        return {split: name for split, name in files if isinstance(name, str) and not Path(name).is_absolute()}

    def files_of(self, split: str) -> tuple[Path, ...]:
        """Return the paths of the files of `split`, which for dev may be those of train; (): they are not named."""
        shared = split == "dev" and "dev" not in (self.files or {})
        return self.named_files.get("train" if shared else split, ())

    def label_files_of(self, split: str) -> tuple[Path, ...]:
        """Return the paths of the label files of `split`, which for dev may be those of train; (): it has none.

        Raises UsageError unless there is one for each file of rows.
        """
        texts = {"train": self.path, **(self.files or {})}
        counts = {name: len(names_in(texts.get(name))) for name in SPLITS}
        if self.label_files and (given := len(self.label_files)) != (rows := sum(counts.values())):
            raise UsageError(f"--labels (data.label_files) names {given} files, but {rows} files hold the rows")
        shared = split == "dev" and "dev" not in texts
        before = 0 if shared else sum(counts[name] for name in SPLITS[: SPLITS.index(split)])
        own = self.label_files[before : before + counts["train" if shared else split]]
        return tuple(Path(self.path or "", name) for name in own)

    @property
    def has_own_dev_file(self) -> bool:
        """Whether `files` names a file of dev rows that is not the file of the training rows."""
        files = self.files or {}
        return "dev" in files and files["dev"] != files.get("train")


def with_options(config: DataConfig, path: Path, columns: Mapping[str, object]) -> DataConfig:
    """Return `config` with `path` and the options `columns` of the command line. Raises UsageError for a bad value."""
    given = {key: value for key, value in columns.items() if value is not None}
    files = config.files_of_folder or None if path.is_dir() else None
    try:
        return parse_config(DataConfig, {**asdict(config), "path": str(path), "files": files, **given})
    except InvalidConfig as fault:
        option = str(fault).replace("label_separator", "label-separator")
        raise UsageError(fault.reason if fault.path == ("path",) else f"--{option}") from None


TokenizerKind = Literal["auto", "char", "wordpiece", "bpe", "byte", "whitespace", "vectors"]


@dataclass(frozen=True, kw_only=True)
class TokenizerConfig:
    """Settings of the tokenizer."""

    __pydantic_config__ = STRICT

    kind: TokenizerKind = "char"
    """The kind of token: a character, a subword (wordpiece, bpe), a byte, or a word between whitespace. auto: wordpiece, or
    char where the script of the training texts has no spaces between words. vectors: the tokens of the static vectors
    `embedding.vectors`, whose tokenizer has no setting here."""
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


Range = tuple[int, int]
"""Shortest and longest n-gram."""
MAX_NGRAM = 16
"""Longest n-gram that is counted."""


SOURCE_DIGEST = re.compile(r"@[0-9a-f]{64}$")
"""The sha256 after the name of static vectors."""


@dataclass(frozen=True, kw_only=True)
class LinearConfig:
    """The linear model on n-grams. What is `auto` is chosen by cross-validation on the training rows."""

    __pydantic_config__ = STRICT

    c: Annotated[float, Ge(1e-6), Le(1e6)] | Literal["auto"] = "auto"
    """LinearSVC's C: the smaller, the stronger the regularization."""
    characters: Range | Literal["auto"] | None = "auto"
    """Shortest and longest n-gram of characters. null means none."""
    words: Range | Literal["auto"] | None = "auto"
    """Shortest and longest n-gram of words. null means none."""
    across_words: bool | Literal["auto"] = "auto"
    """Whether n-grams of characters go across words; false: they lie in one word and a space before and after it."""
    vectors: Name | None = None
    """Static vectors of tokens, whose mean is a feature beside the n-grams: wordllama (the installed package), a folder of
    Model2Vec or its name on the Hub, with @ and a sha256 or without; auto: the package, if it covers the texts; null: none."""
    vector_scale: Annotated[float, Ge(0), Le(1e3)] | Literal["auto"] = "auto"
    """Norm of the mean vector beside that of the n-grams, which is 1 for characters and 1 for words."""
    all_rows: bool = False
    """Whether all rows are fitted where they have more n-grams than are kept in memory; false: rows drawn from them."""

    def __post_init__(self) -> None:
        for name in ("characters", "words"):
            given = getattr(self, name)
            if given not in ("auto", None) and not 1 <= given[0] <= given[1] <= MAX_NGRAM:
                raise ValueError(f"{name} must be [shortest, longest] from 1 to {MAX_NGRAM}, not {list(given)}")
        if self.characters is None and self.words is None:
            raise ValueError("characters must not be null where words is null too; a linear model counts one of them")


Pooling = Literal["mean", "max", "first", "last"]
PairPooling = Literal["joint", "sides"]
Section = Literal["pretraining", "finetuning"]
"""The sections of a preset of which a training reads one."""
LabelType = Literal["str", "int", "float", "bool"]
Label = str | float
"""A label as Python is given it: a string, a number or a bool."""
FORMAT_VERSION = 10
"""Format version of preset.yaml, config.json and checkpoints."""


def check_format(version: object, path: Path) -> None:
    """Raise ModelError if `version`, the format version in the file at `path`, is not FORMAT_VERSION."""
    if version != FORMAT_VERSION:
        raise ModelError(
            f"{path}: has format version {escaped(version)}; this recur reads {FORMAT_VERSION}: "
            "train the run again, or use the recur that wrote it"
        )


REQUIRED_VECTORS = "required"
"""`embedding.vectors` of a preset that cannot be trained before a file is named."""


@dataclass(frozen=True, kw_only=True)
class EmbeddingConfig:
    """The token embedding."""

    __pydantic_config__ = STRICT

    vectors: str | None = None
    """Path of pre-trained vectors of tokens: a text file of word2vec, GloVe or fastText (.vec), or a folder of Model2Vec. Their
    size must be encoder.hidden_size, or half of it if the encoder concatenates positions; null = random initial vectors;
    required = a training must name a file. With tokenizer.kind vectors: static vectors as in linear.vectors, of that size or a
    larger one, of which the principal components are then taken."""
    freeze: bool = False
    """Do not train the rows that the file `vectors` has a vector for. The others are random and are trained."""
    orthonormal: bool = False
    """Make the columns of the embedding orthonormal, scaled by sqrt(V / 2), so that tokens stay distinct (TransJect)."""
    scaled: bool = False
    """Scale the rows to the norm sqrt(W / 2), as if the encoder added sinusoidal positions. false: only where it does, or
    concatenates them; the rows of others have a norm of about 1."""
    dropout: Probability = 0.0
    """Dropout probability on the embeddings."""
    segments: bool = False
    """Add a learned vector to the tokens of the second text of a pair (BERT; Devlin et al., 2019, section 3)."""
    matches: bool = False
    """Add a learned vector to each token of a pair that stands in the other text too (exact match; Chen et al.,
    Reading Wikipedia to Answer Open-Domain Questions, ACL 2017, section 3.2)."""

    def __post_init__(self) -> None:
        if self.freeze and self.vectors is None:
            raise ValueError("freeze needs vectors: set embedding.vectors, or freeze to false")


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Everything that is needed to rebuild a network: the embedding, the encoder and its head.

    What a preset has too is as it was settled for the training; `embedding_…` are the keys of its section `embedding`.
    """

    __pydantic_config__ = STRICT

    encoder: dict[str, Any]
    """The encoder's name and keys, as `recurcli.encoders.build_encoder` takes them."""
    vocab_size: Positive[int]
    """V, the number of rows of the embedding."""
    pad_id: NonNegative[int]
    max_length: Positive[int]
    """Maximal number of tokens per row; longer rows are truncated."""
    truncate: Truncation = "head"
    embedding_dropout: Probability = 0.0
    embedding_orthonormal: bool = False
    embedding_scaled: bool = False
    embedding_segments: bool = False
    embedding_matches: bool = False
    separator_id: int = -1
    """The token id between the texts of a pair; -1: not known."""
    unknown_id: int = -1
    """The token id of all unknown tokens; -1: there is none."""
    pooling: Pooling = "mean"
    pair_pooling: PairPooling = "joint"
    num_classes: NonNegative[int] = 0
    """C, the number of logits of the head; 0: a pretrained network, which has none."""

    def __post_init__(self) -> None:
        if not isinstance(self.encoder.get("hidden_size"), int):
            raise ValueError("encoder has no hidden_size")
        if self.pad_id >= self.vocab_size:
            raise ValueError(f"pad_id must be below vocab_size, {self.vocab_size}, not {self.pad_id}")

    @property
    def hidden_size(self) -> int:
        """D, the size of the embeddings and the hidden states."""
        return int(self.encoder["hidden_size"])


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """What is true of every model of a run; the content of config.json, where `labels` is stored as `id2label`."""

    __pydantic_config__ = STRICT

    task: str
    target: dict[str, Any] = field(default_factory=lambda: {"kind": "one"})
    """What a label is, as `recurcli.targets.Target` stores itself."""
    labels: tuple[str, ...] = ()
    """Labels in the order of the logits. It is empty for a pretrained network."""
    label_type: LabelType = "str"
    """Python's type of the labels that a fit in Python was given; `labels` are their names. Those of files are strings."""
    source: dict[str, Any] = field(default_factory=dict)
    """The `Source` of the training rows, as it stores itself. Later files are read like it. A pretrained network has none."""
    network: ModelConfig | None = None
    """The network of the encoder; None: the linear model is the whole model."""

    def __post_init__(self) -> None:
        if len(set(self.labels)) != len(self.labels):
            raise ValueError("labels must differ")
        if len(set(self.classes)) != len(self.labels):
            raise ValueError(f"labels must be of the type that label_type says, {self.label_type}")
        if self.network is not None and self.network.num_classes != len(self.labels):
            raise ValueError(f"network.num_classes must be {len(self.labels)}, the number of labels")

    @property
    def classes(self) -> tuple[Label, ...]:
        """The labels as Python gave them. Raises ValueError if a label is not the name of one of this type."""
        read: dict[str, Callable[[str], Label]] = {
            "str": str,
            "int": int,
            "float": float,
            "bool": lambda name: bool(("false", "true").index(name)),
        }
        return tuple(map(read[self.label_type], self.labels))


@dataclass(frozen=True, kw_only=True)
class OptimizationConfig:
    """Keys that pre-training and fine-tuning share: AdamW, learning-rate schedule, batches, checkpoints."""

    __pydantic_config__ = STRICT

    learning_rate: Positive[float] | None = None
    """Largest learning rate of the run; null: the encoder's rate from scratch or, with --init, after pre-training."""
    scalar_lr_factor: Positive[float] = 30.0
    """Learning rate of scalars such as alpha, as a multiple of learning_rate: per step Adam changes a parameter by about its
    learning rate. Ours."""
    epochs: Positive[int] | Literal["auto"] = 10
    """Passes over the training rows. It is ignored if max_steps is set. auto: 3 to 20, the fewer the more rows there are."""
    max_steps: Positive[int] | None = None
    """Number of optimiser steps. null: the steps of `epochs` epochs."""
    batch_size: Positive[int] = 64
    """Rows per optimiser step, summed over all micro-batches and processes."""
    gradient_accumulation_steps: Positive[int] = 1
    """Number of micro-batches per batch. More micro-batches need less memory and give the same gradient."""
    warmup_ratio: Probability = 0.05
    """Fraction of the steps in which the learning rate rises from 0 to its peak."""
    warmup_steps: NonNegative[int] | None = None
    """Number of warm-up steps, which does not depend on the number of all steps. null: warmup_ratio of all steps."""
    lr_scheduler: Literal["linear", "cosine", "constant", "inverse"] = "linear"
    """Decay of the learning rate after the warm-up: linear or cosine to 0, constant, or inverse: the rate divided by t,
    the number of the epoch from 1 (Miller & Hardt's α/t; that t counts epochs is ours)."""
    weight_decay: NonNegative[float] = 0.01
    """AdamW's weight decay. It applies to matrices only, not to vectors (biases, LayerNorm), scalars or A of `s4d`."""
    beta1: Probability = 0.9
    """Adam's decay rate of the first moment."""
    beta2: Probability = 0.999
    """Adam's decay rate of the second moment."""
    adam_epsilon: Fraction = 1e-8
    """Adam's epsilon, added to the denominator (Kingma & Ba, 2015)."""
    max_grad_norm: Positive[float] | None = 1.0
    """Norm to which larger gradients are clipped. null: no clipping."""
    max_grad_value: Positive[float] | None = None
    """Absolute value to which each larger number of the gradient is clipped, after `max_grad_norm`. null: no clipping."""
    checkpoint_every: Positive[int] | None = None
    """Optimiser steps between checkpoints. null: at the end of each epoch."""
    keep_checkpoints: Annotated[int, Ge(2)] = 2
    """Number of newest checkpoints that are kept; at least 2."""
    log_every: Positive[int] = 50
    """Optimiser steps between lines of metrics.jsonl."""
    evaluate_every: Positive[int] | None = None
    """Optimiser steps between evaluations on the dev rows, or on the dev text of pretraining.objective causal. null: at the end
    of each epoch."""
    patience: Positive[int] | None = None
    """Number of consecutive evaluations without an improvement after which training stops; null: never. An improvement is a
    better dev metric, or an equal one with a smaller dev loss: the mean of what training minimizes (`loss`, weights of classes
    and smoothing of labels included)."""

    @property
    def micro_batch_size(self) -> int:
        """Rows of the largest micro-batch. An evaluation during the training takes as many at a time."""
        return -(-self.batch_size // self.gradient_accumulation_steps)

    def __post_init__(self) -> None:
        if self.gradient_accumulation_steps > self.batch_size:
            raise ValueError(
                f"gradient_accumulation_steps must be at most batch_size ({self.batch_size}), "
                f"not {self.gradient_accumulation_steps}"
            )


@dataclass(frozen=True, kw_only=True)
class PretrainingConfig(OptimizationConfig):
    """Token prediction on text without labels."""

    objective: Literal["masked", "causal"] = "masked"
    """masked: predict masked tokens from both sides; causal: predict each token from the tokens before it. causal makes the
    encoder causal, and selects the model by its perplexity on the dev text."""
    mlm_probability: Fraction = 0.3
    """Probability that a token is masked (StarSaber, section 4: 0.3)."""
    masking: Literal["random", "bert"] = "random"
    """random: a masked token becomes a random word (StarSaber, section 4); bert: 80 % [MASK], 10 % random, 10 % unchanged."""
    loss_on: Literal["all", "masked"] = "all"
    """Positions that enter the loss: all (StarSaber, section 4), or only the masked ones (BERT)."""
    carry: bool = False
    """causal: whether an encoder goes on from window to window of a text, in training and in evaluation, without gradients from
    one to the next (truncated back-propagation through time; Mikolov et al., 2010; Dai et al., 2019, section 3.2). The training
    text is then `batch_size` contiguous streams that are read in order, and the dev text one stream."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value in (("evaluate_every", self.evaluate_every), ("patience", self.patience)):
            if value is not None and self.objective == "masked":
                raise ValueError(f"{name} must be null with objective masked, which evaluates nothing, not {value}")
        if self.carry and self.objective == "masked":
            raise ValueError("carry must be false with objective masked, whose texts are in random order")


@dataclass(frozen=True, kw_only=True)
class FinetuningConfig(OptimizationConfig):
    """Training on labelled rows."""

    loss: Literal["hinge", "cross_entropy"] = "cross_entropy"
    """hinge: the hinge loss (StarSaber, section 4) in Crammer and Singer's multi-class form (ours); cross_entropy."""
    metric: str = "auto"
    """Dev metric that selects the best model; a name in `recurcli.metrics`, such as macro_f1, or f1, precision or recall of one
    label: f1:spam. auto: accuracy, of several labels micro_f1, of numbers mae."""
    thresholds: str | None = "auto"
    """Metric of predicted labels for which thresholds of the labels are chosen on the dev rows in the end; null: the label is
    the most probable one, and several are those with a probability of 0.5. auto: micro_f1 for several labels, where it is
    higher with them by cross-validation, else null."""
    class_weights: Literal["none", "balanced"] | dict[str, Positive[float]] = "none"
    """Weight of each class in the losses that train, choose and calibrate the parts of the model. none: 1; balanced: inversely
    proportional to the number of training rows of the class; a mapping: label to weight, 1 for a label that it omits."""
    keep_texts: bool = True
    """Whether the run keeps the texts of its dev rows, in predictions.dev.jsonl, and hashes of those of its training and dev
    rows, in training_rows.safetensors. Without them nothing tells whether other rows are among them."""
    score_test: bool = True
    """Whether the chosen model is scored once, after the training, on the test rows, if these have labels, and on the longer
    test rows (test-long) of a generated task."""
    encoder: Literal["auto", "always"] = "always"
    """Whether an encoder is trained. auto: only with at least 1,000 training rows, including the dev rows that are drawn from
    them. Without `ensemble`, and with --init, --teacher or --match-parameters, auto is always."""
    linear_baseline: bool = True
    """Whether a linear model on n-grams of the training rows is fitted too; its accuracy is shown beside the encoder's. With a
    `ensemble` it is fitted in any case."""
    refit: bool | Literal["auto"] = "auto"
    """Whether a linear model that the chosen model has is fitted once more in the end, on the dev rows too. auto: only if the
    dev rows were drawn from the training rows, and `data.train_share` is 1. Scores on the dev rows are those of the first
    fit."""
    word_dropout: Probability | Literal["auto"] = 0.0
    """Probability that a token is left out of a training row, drawn anew in each step (word dropout; Iyyer et al.,
    2015, section 3.1; there whole words). auto: 0.5; for pairs, which are compared word by word, 0.2."""
    label_smoothing: Probability = 0.0
    """Label smoothing of the cross-entropy: the probability that is spread evenly over all classes."""
    supervise: Literal["last", "every"] = "last"
    """Positions with a loss. last: the label of a row is learned from its pooled state; every: each position of a row of a
    generated language or word problem has the label of the tokens so far, and the mean of their losses is that of the row.
    Scores are those of the last position in both cases."""

    teacher: str | None = None
    """File with another model's soft labels of rows, as `recur predict --probabilities` writes them; null: none. Rows without a
    label of their own become training rows."""
    teacher_run: str | None = None
    """Run that wrote the file `teacher`; null: unknown. A warning counts the dev and test rows that it was trained on."""
    teacher_weight: Annotated[float, Gt(0), Le(1)] = 0.5
    """Weight w of the teacher's loss where a row has a label too; that of the label is 1 - w. The linear model has rows without
    a label of their own with the teacher's label and the weight w."""
    teacher_temperature: Positive[float] = 1.0
    """Temperature T of the teacher's loss, T² KL(teacher || student) (Hinton et al., 2015). 1 is ours; presets/RESULTS.md has
    1, 2 and 4 beside each other."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.metric != "auto" and not is_selecting(self.metric):
            known = ", ".join(("auto", *LABEL_METRICS, *PROBABILITY_METRICS, *NUMBER_METRIC_NAMES))
            raise ValueError(f"metric must be one of {known}, not {self.metric!r}")
        if self.thresholds not in (None, "auto") and not is_of_labels(self.thresholds):
            raise ValueError(
                f"thresholds must be null, auto or one of {', '.join(LABEL_METRICS)}, not {self.thresholds!r}"
            )
        if self.label_smoothing and self.loss == "hinge":
            raise ValueError("label_smoothing must be 0 with loss hinge; use loss cross_entropy")
        if self.supervise == "every" and (self.word_dropout or self.teacher is not None):
            raise ValueError("supervise must be last with word_dropout or a teacher, which have no labels of prefixes")
        if self.teacher is not None and self.loss == "hinge":
            raise ValueError("teacher must be null with loss hinge; use loss cross_entropy")


@dataclass(frozen=True, kw_only=True)
class RuntimeConfig:
    """Random seed, device, precision and threads."""

    __pydantic_config__ = STRICT

    seed: Annotated[int, Ge(0), Lt(2**63)] = 10
    """Seed of initial weights, row order, masking and dropout (StarSaber's authors used 10)."""
    device: str = "auto"
    """auto (CUDA if it is available, else cpu), cpu, cuda or cuda:N."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Precision of the forward pass in training. bf16 is autocast with weights in fp32. auto: bf16 if the hardware
    multiplies it (AMX, AVX512-BF16, CUDA of capability 8.0), else fp32."""
    threads: Positive[int] | None = None
    """torch.set_num_threads. null: torch's default, or OMP_NUM_THREADS if it is set."""
    compile: bool = False
    """Compile the encoder with torch.compile."""
    kernel: Literal["auto", "plain", "triton"] = "plain"
    """How StarSaber's training computes its attention on CUDA. plain: by torch; triton: by a kernel, which only Triton's
    interpreter has run so far; auto: by the kernel where it agrees with torch on a small input."""
    tf32: bool = False
    """On CUDA, multiply matrices of fp32 in TF32: faster, with 10 bits of a factor in place of 23."""
    deterministic: bool = False
    """On CUDA, take torch's deterministic algorithms, so that two runs are bit-identical there too. On CPUs all runs are."""
    checkpoint_layers: bool = False
    """In training, compute the activations of a layer again in the backward pass: less memory, a third more time."""


@dataclass(frozen=True, kw_only=True)
class Preset:
    """One experiment: a task, its data, an encoder, and how it is trained."""

    __pydantic_config__ = STRICT

    task: str
    """The name of a task: its labels, text columns and file names."""
    encoder: dict[str, Any]
    """The encoder's `name`, and the keys of its Config."""
    data: DataConfig = field(default_factory=DataConfig)
    """Where the rows are, how they are read, and the maximal length."""
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    """The tokenizer."""
    embedding: EmbeddingConfig = field(default_factory=EmbeddingConfig)
    """The vectors of tokens."""
    pooling: Pooling = "mean"
    """Pooling of the hidden states of a text to one vector."""
    pair_pooling: PairPooling = "joint"
    """How the head reads a pair. joint: all hidden states pooled to one vector; sides: each text pooled to a vector, u and
    v, and [u; v; |u - v|; u * v] (Conneau et al., EMNLP 2017, section 3)."""
    ensemble: Literal["linear"] | None = None
    """linear: the logits of a linear model on n-grams of the training rows are added to those of the encoder, which is trained
    apart. null: no ensemble."""
    linear: LinearConfig = field(default_factory=LinearConfig)
    """The linear model on n-grams, a baseline and a part of the ensemble."""
    pretraining: PretrainingConfig = field(default_factory=PretrainingConfig)
    """Settings of `recur pretrain`."""
    finetuning: FinetuningConfig = field(default_factory=FinetuningConfig)
    """Settings of `recur finetune`."""
    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)
    """Seed, device, precision."""

    @property
    def is_linear(self) -> bool:
        """Whether there is no encoder: the linear model is the whole model."""
        return bool(self.encoder["name"] == LINEAR)

    @property
    def fits_linear_model(self) -> bool:
        """Whether a linear model is fitted: as the whole model, as a part of an ensemble, or as a baseline."""
        return self.finetuning.linear_baseline or self.ensemble is not None

    def to_dict(self) -> dict[str, Any]:
        """Return all keys and values, as in preset.yaml."""
        return dataclasses.asdict(self)


def check_encoder_length(encoder: Mapping[str, Any], max_length: int) -> None:
    """Raise UsageError if the key `max_length` of `encoder`, where it has one, is below `max_length` of the data."""
    most = encoder.get("max_length")
    if isinstance(most, int) and most < max_length:
        longer = "" if encoder["name"] == PRETRAINED else f"encoder.max_length to {max_length} or more, or "
        raise UsageError(
            f"encoder.max_length {most} is below data.max_length {max_length}: {escaped(encoder['name'])} cannot read longer "
            f"rows; set {longer}data.max_length to {most} or less",
        )


def preset_keys(section: Literal["pretraining", "finetuning"] | None = None) -> list[str]:
    """Return all keys of a preset as dotted paths, and those of the encoders of this package.

    `section` is the one of the two that a command reads, and those of the other are left out; None: neither is.
    """
    from recurcli.encoders import ENCODERS  # their keys, which a linear model does not need

    keys = [f"encoder.{key.name}" for encoder in ENCODERS.values() for key in dataclasses.fields(encoder.config)]
    for entry in dataclasses.fields(Preset):
        if section is not None and entry.name in {"pretraining", "finetuning"} - {section}:
            continue
        own = section_of(entry.type)
        keys += [f"{entry.name}.{key.name}" for key in dataclasses.fields(own)] if own else [entry.name]
    return list(dict.fromkeys(keys))


def type_members(path: Sequence[str]) -> tuple[Any, ...]:
    """Return the types that a key may have, a list's as tuple and a mapping's as dict; () if it is unknown or an encoder's."""
    kinds: tuple[Any, ...] = (Preset,)
    for name in path:
        found: Any = None
        for kind in kinds:
            if dataclasses.is_dataclass(kind):
                found = get_type_hints(kind).get(name)
            elif get_origin(kind) is dict:
                found = get_args(kind)[1]
        kinds = get_args(found) if get_origin(found) in (Union, UnionType) else (found,)
    return tuple(get_origin(kind) or kind for kind in kinds if kind is not None)


_FIRST_SENTENCE = re.compile(r"(?<=\.)(?<!\beq\.)(?<!\bal\.)\s")
"""The space after a full stop that is not one of "eq." or "et al."."""


def _schema(kind: type[Any]) -> dict[str, Any]:
    """Return the JSON Schema of a config. Its descriptions are read from the source, which takes a fifth of a start."""
    from pydantic import TypeAdapter

    STRICT["use_attribute_docstrings"] = True
    return TypeAdapter(kind).json_schema()


def described(kind: type[Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the dotted path of each key of a preset section, with the first sentence of its description."""
    docs: dict[str, str] = {}
    for own in filter(dataclasses.is_dataclass, reversed(kind.__mro__)):  # pydantic reads its own alone
        known = _schema(own).get("properties", {})
        docs |= {name: about["description"] for name, about in known.items() if "description" in about}
    for key in dataclasses.fields(kind):
        if (section := section_of(key.type)) is not None:
            yield from described(section, f"{prefix}{key.name}.")
        yield f"{prefix}{key.name}", _FIRST_SENTENCE.split(docs.get(key.name, ""), maxsplit=1)[0].replace("\n", " ")


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a preset file, for editors. Every key is optional; `extends` names a parent preset."""
    schema = _schema(Preset)
    schema.pop("required", None)
    schema["properties"]["extends"] = {
        "type": "string",
        "description": "The preset that this one changes: a name or path.",
    }
    # pydantic reads the descriptions of a class's own fields only, not those of the fields that it inherits.
    inherited = _schema(OptimizationConfig)["properties"]
    for kind in (PretrainingConfig, FinetuningConfig):
        properties = schema["$defs"][kind.__name__]["properties"]
        properties |= {key: inherited[key] for key in properties.keys() & inherited.keys()}
    named = "|".join(("auto", *METRICS, *LABEL_SET_METRICS, *NUMBER_METRICS, *PROBABILITY_METRICS))
    properties["metric"]["pattern"] = f"^({named}|({'|'.join((*OF_LABEL, *AT_LEAST))}):.+)$"
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
