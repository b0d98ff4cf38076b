"""`recur check`: reports errors in data files and CLUE submissions before training or upload.

An error stops a training, loses rows, or scores 0. A warning distorts a result. Information does neither.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import combinations, islice
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recurcli.config import DataConfig, Preset, names_in, with_options
from recurcli.data.labels import absent_labels, check_labels, label_doubts
from recurcli.data.source import UNKNOWN
from recurcli.data.splits import (
    FEWEST_DEV_ROWS,
    Examples,
    Split,
    dev_share,
    draw_dev_rows,
    load_split,
    no_dev_rows_in_words,
    separates_words,
    text_key,
)
from recurcli.data.tasks import (
    CUSTOM,
    TASKS,
    Place,
    Task,
    find_place,
    is_one_file,
    split_named,
    splits_of,
    task_named,
    task_with_columns,
)
from recurcli.errors import DataError, StorageError, UsageError, escaped, pluralize, quoted
from recurcli.export.clue import Finding, Level, is_submission, sort_by_severity, validate
from recurcli.log import Log
from recurcli.preset.compose import compose, trains_encoder
from recurcli.requests.check import CheckRequest
from recurcli.requests.options import named_files
from recurcli.runs.hub import local_run
from recurcli.runs.run_directory import open_run
from recurcli.targets import Cell, OneLabel, SeveralLabels
from recurcli.targets.one_label import ordered_labels
from recurcli.targets.target import labels_in
from recurcli.tokens.tokenizer import Tokenizer, choose_unseen_max_length, resolved_tokenizer, single_texts

UNNAMED = "rows"
"""The split of a single file whose name names no split."""
LISTED = 5
"""Texts, and lines of each, that are listed; all are counted."""
MAX_MEASURED = 100_000
"""Most rows of a split whose tokens are counted."""
MANY_CUT = 0.5
"""The share of rows above which it is a warning that they are cut. Ours."""
MAX_COMPARED, MAX_SHINGLED = 50_000, 10_000
"""Most texts of a split that are compared for near-duplicates, and the characters of each that count."""
NEAR, PERMUTATIONS, SEED = 0.8, 128, 42
"""The Jaccard similarity of near-duplicates' shingles (ours), and the numbers and the seed of a MinHash."""
BAD_ROWS_LISTED = 100
"""Bad rows whose reasons `--json` lists; all are counted."""
_INVISIBLE = re.compile(  # but U+200C and U+200D, which Persian, Indic scripts and emoji need
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff\ufffd]"
)
_ISSUES = {
    "blank": "with an empty text",
    "invisible": "with control, bidi, zero-width or U+FFFD characters",
    "quoted": "with quotes around a whole text, which are part of it in TSV; a file written as CSV needs the ending .csv",
}
_QUOTED = re.compile('".*"', re.DOTALL)
_TEXT = "equal or nearly equal text"


def check(request: CheckRequest, log: Log) -> dict[str, Any]:
    """Check each path. Return `{"reports": […], "errors": n, "warnings": n}`, and facts of the files that were written.

    Raises UsageError without a path and files. Raises DataError or StorageError if a single path cannot be read. With several
    paths, the report of that path says so.
    """
    paths, columns = request.paths or [], request.columns.given()
    files = named_files(None, train=request.train, dev=request.dev, test=request.test)
    if not paths and not files:
        raise UsageError("name a PATH, or files that belong together with --train, --dev and --test")
    settings = None if request.preset is None else compose(request.preset).preset
    task = request.task or (None if settings is None else settings.task)
    if task is not None:
        task_named(task)
    writes = request.out_of_fold is not None or request.suspects is not None
    if writes:
        from recurcli.commands.label_check import check_outputs, write_label_check

        check_outputs(request, [*paths, *(Path(name) for names in files.values() for name in names_in(names))])
    run = None if request.against is None else open_run(local_run(request.against, log))
    if run is None and request.data is not None:
        raise UsageError("--data names the training rows of --against RUN; add it, or name files with --train")
    together = [Path(names_in(names)[0]) for names in files.values()][:1]
    result: dict[str, Any] = {"reports": [], "errors": 0, "warnings": 0}
    checked: list[tuple[Task, DataConfig]] = []
    for number, path in enumerate([*together, *paths]):
        facts: dict[str, Any] = {}
        log.stage(f"reading {path}")
        try:
            if run is not None:
                from recurcli.commands.drift import check_against

                kind, (facts, findings) = "drift", check_against(run, path, request, log)
            elif number >= len(together) and request.columns.text is None and is_submission(path):
                kind, findings = "submission", validate(path)
            else:
                name = task or _task_of(path)
                used = settings or compose(f"transformer-{name}").preset  # its encoder is not used
                config = with_options(used.data, path, columns)
                if number < len(together):
                    config = replace(config, path=None, files=files)
                checked.append((task_with_columns(task_named(name), config), config))
                splits, findings = read_splits(*checked[-1], log)
                roles = {*files, *(split_named(TASKS[CUSTOM], other) for other in paths if other != path)}
                counted = None if request.no_lengths else used
                facts, more = inspect(*checked[-1], splits, counted, without_dev=roles <= {"test"})
                findings += more
                kind = "data"
        except (DataError, StorageError) as error:
            if len(together) + len(paths) == 1:
                raise
            kind, findings = "unreadable", [Finding("error", escaped(error, limit=4000))]
        levels = Counter(finding.level for finding in findings)
        result["errors"] += levels["error"]
        result["warnings"] += levels["warning"]
        report = {
            "kind": kind,
            "path": str(path),
            **facts,
            "findings": [finding._asdict() for finding in sort_by_severity(findings)],
            "errors": levels["error"],
            "warnings": levels["warning"],
        }
        result["reports"].append(report)
    if writes:
        if len(checked) != 1:
            raise UsageError(
                f"--out-of-fold and --suspects are for one data set, not {len(checked)}; name one file or folder"
            )
        check_outputs(
            request, [Path(split["path"]) for report in result["reports"] for split in report.get("splits", [])]
        )
        result |= write_label_check(request, *checked[0], log)
    return result


def _task_of(path: Path) -> str:
    """Return the task that the folder `path`, or the folder of the file `path`, is named after, else `custom`."""
    try:
        folder = path if path.is_dir() else path.absolute().parent
        names = {folder.name.casefold(), folder.resolve().name.casefold()}
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    return next((task.name for task in TASKS.values() if names & {task.name, task.folder}), CUSTOM)


def find_files(task: Task, config: DataConfig) -> dict[str, Place]:
    """Map the name of each split to its file, train first. A file of both train and dev rows is listed as "train" alone.

    They are the files that `config.files` names, else those in the folder `config.path`, or that file alone. Raises DataError
    if there is none, or if a named file does not exist.
    """
    if config.named_files:
        return {split: find_place(task, split, config) for split in splits_of(task) if split in config.named_files}
    path = Path(str(config.path))
    if is_one_file(path):
        return {split_named(task, path) or UNNAMED: find_place(task, "train", config)}
    found: dict[str, Place] = {}
    for split in splits_of(task):
        with suppress(DataError):
            place = find_place(task, split, config)
            if all(place.paths != other.paths for other in found.values()):
                found[split] = place
    return found or {"train": find_place(task, "train", config)}


@dataclass
class CheckedSplit:
    """One split of a data set, and what is counted in its rows."""

    name: str
    rows: Split
    path: Path
    is_drawn: bool = False
    alone: Split | None = None
    """The training rows, with their `dev` rows, of a training on this file alone. None: it is not a file of training rows."""
    labels: Counter[str] = field(init=False, default_factory=Counter)
    """The number of rows of each label. Numbers are not counted."""
    by_text: dict[int, list[int]] = field(init=False, default_factory=dict)
    """The row indices of each text, by the `row_hash` of the text. Texts with one hash count as equal."""
    issues: dict[str, list[int]] = field(init=False)
    """The lines of the rows with an issue, by its name in _ISSUES."""

    def __post_init__(self) -> None:
        """Count the labels, the texts and the issues of the rows."""
        blank, quoted, invisible = [], [], []
        rows, digests, has_labels = self.rows.examples, self.rows.hashes.tolist(), not self.are_numbers
        columns = zip(digests, rows.texts, rows.labels, rows.lines, strict=True)
        for number, (digest, row, label, line) in enumerate(columns):
            self.by_text.setdefault(digest, []).append(number)
            texts = [text for text in row if text is not None]
            if not all(map(str.strip, texts)):
                blank.append(line)
            named = labels_in(label) if has_labels and label is not None else ()
            if any(map(has_invisible, [*texts, *named])):
                invisible.append(line)
            if self.rows.source.format == "tsv" and any(map(_QUOTED.fullmatch, texts)):
                quoted.append(line)
            self.labels.update(named)
        self.issues = {"blank": blank, "quoted": quoted, "invisible": invisible}

    @property
    def are_numbers(self) -> bool:
        """Whether the labels are numbers."""
        return self.rows.target is not None and not self.rows.target.has_labels

    def text_of(self, cell: Cell) -> str:
        """Return the label of a row in messages."""
        return "no label" if cell == () else str(cell) if self.rows.target is None else self.rows.target.text_of(cell)


def has_invisible(text: str) -> bool:
    """Return whether the text has control, bidi, zero-width or U+FFFD characters."""
    return (not text.isprintable() or "\ufffd" in text) and _INVISIBLE.search(text) is not None


def read_splits(task: Task, config: DataConfig, log: Log) -> tuple[list[CheckedSplit], list[Finding]]:
    """Read every file, and return a finding for each that cannot be read. Later files must be like the first.

    Bad rows that a training may skip are faults, too, since they would be lost. Raises DataError if no file can be read.
    """
    if task.plain_text:
        raise DataError(
            f"{config.path}: task {task.name} is plain text without labels; for labelled rows add --task custom"
        )
    config = replace(config, skip_bad_rows=False)
    splits: list[CheckedSplit] = []
    findings: list[Finding] = []
    errors: list[DataError] = []
    read = 0
    for name, place in find_files(task, config).items():
        trains = name in ("train", UNNAMED)
        load = partial(
            load_split,
            task,
            "train" if trains else name,
            config,
            like=splits[0].rows.source if splits else UNKNOWN,
            keep_faults=True,
            any_label=task.target is not None,
            after_rows=partial(log.rows, before=read),
        )
        try:
            try:
                rows = load()
            except DataError:
                if trains or name == "dev" or config.named_files:
                    raise
                rows = load(labelled=False)  # test rows need no labels
        except DataError as error:
            errors.append(error)
            findings.append(Finding("error", escaped(error, limit=2000)))
            continue
        read += rows.read
        if not splits and isinstance(rows.target, OneLabel):  # later files have labels of the same kind
            config = replace(config, target="one")
        elif not splits:
            task = replace(task, target=rows.target)
        alone = None
        if trains and not config.named_files and config.path == str(place.paths[0]):
            alone = draw_dev_rows(rows, dev_share(task, config, len(rows.examples)), config.dev_seed)[0]
        splits.append(CheckedSplit(name, rows, Path(rows.source.name), alone=alone))
        if place.use_dev_split:
            dev = rows.dev or replace(rows, examples=Examples(), read=0, faults=[], notes=())
            splits.append(CheckedSplit("dev", dev, Path(rows.source.name), is_drawn=True))
    if not splits:
        raise errors[0]
    return splits, findings


def inspect(
    task: Task,
    config: DataConfig,
    splits: Sequence[CheckedSplit],
    preset: Preset | None,
    *,
    without_dev: bool = False,
) -> tuple[dict[str, Any], list[Finding]]:
    """Return the counts of a data set as `--json` prints them, and the findings about its rows.

    `preset` None counts no tokens. `without_dev`: whether no other file that was named can hold the dev rows of a training,
    so that a single file must.
    """
    findings: list[Finding] = []
    tokens, lengths = None, [np.empty(0, np.int64)] * len(splits)
    if preset is not None and splits[0].rows.examples:
        try:
            tokens, lengths = count_tokens(splits, config, preset)
        except DataError as error:
            findings.append(Finding("warning", escaped(f"no tokens were counted: {error}", limit=1000)))
    reports, near = [], [NearTexts(split) for split in splits]
    for split, texts, counted in zip(splits, near, lengths, strict=True):
        report = _facts(split, None if tokens is None else summarize_lengths(counted, tokens["max_length"]))
        reports.append({**report, "near_duplicates": texts.near_duplicates()})
        findings += _split_findings(split, reports[-1], task, config, without_dev=without_dev)
    overlaps = shared_texts(splits)
    for overlap, (one, two) in zip(overlaps, combinations(near, 2), strict=True):
        overlap["near_duplicates"] = one.near_duplicates(two)
    findings += _findings_between(splits, overlaps, task)
    return {"task": task.name, "tokens": tokens, "splits": reports, "overlaps": overlaps}, findings


def count_tokens(
    splits: Sequence[CheckedSplit], config: DataConfig, preset: Preset
) -> tuple[dict[str, Any], list[NDArray[np.int64]]]:
    """Return the description of the tokenizer for the report, and the lengths in tokens of the rows of each split.

    They are those that a training has, of every row, or of MAX_MEASURED rows at equal distances. The first split has the
    training rows. The largest length is None where these train no encoder, so that no row is cut. Raises DataError if its texts
    give no vocabulary.
    """
    rows = splits[0].alone or splits[0].rows
    texts = [*single_texts(rows.with_extra_rows(rows.dev).texts)]
    tokenizer, trained = resolved_tokenizer(preset.tokenizer, texts), None
    if tokenizer.kind == "vectors":
        from recurcli.linear.static_vectors import tokenizer_of_vectors  # imports torch

        trained = tokenizer_of_vectors(preset)
    elif tokenizer.kind in ("char", "byte", "whitespace"):  # lengths do not depend on the vocabulary
        tokenizer, texts = replace(tokenizer, min_frequency=1, vocabulary=None), ["a"]
    trained = trained or Tokenizer.train(texts, tokenizer)
    measured = [split.rows.texts[:: -(-len(split.rows.examples) // MAX_MEASURED) or 1] for split in splits]
    lengths = [*map(trained.lengths, measured)]
    max_length: int | str | None = config.max_length
    trains = splits[0].name in ("train", UNNAMED)
    if not trains_encoder(preset, splits[0].rows.count_with_dev if trains else None):
        max_length = None
    elif max_length == "auto":
        max_length = choose_unseen_max_length(lengths[0], measured[0], tokenizer)
    return {"kind": tokenizer.kind, "max_length": max_length}, lengths


def summarize_lengths(lengths: NDArray[np.int64], max_length: int | None) -> dict[str, Any] | None:
    """Return minimum, quantiles, mean and maximum in tokens, and how many rows `max_length` cuts, or None without rows."""
    if not len(lengths):
        return None
    median, p95, p99 = np.percentile(lengths, (50, 95, 99)).round(2).tolist()
    return {
        "minimum": int(lengths.min()),
        "median": median,
        "mean": round(float(lengths.mean()), 2),
        "p95": p95,
        "p99": p99,
        "maximum": int(lengths.max()),
        "rows": len(lengths),
        "cut": 0 if max_length is None else int((lengths > max_length).sum()),
    }


def summarize_numbers(numbers: NDArray[np.float64]) -> dict[str, float]:
    """Return range, median and mean of numbers (N,)."""
    found = numbers.min(), np.median(numbers), numbers.mean(), numbers.max()
    return dict(zip(("minimum", "median", "mean", "maximum"), map(float, found), strict=True))


def _facts(split: CheckedSplit, lengths: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the counts of one split; labels with the most rows come first."""
    rows, labels = split.rows, dict(sorted(sorted(split.labels.items()), key=itemgetter(1), reverse=True))
    dev = () if split.alone is None or split.alone.dev is None else split.alone.dev.examples
    columns = {key: names for key, names in asdict(rows.source.columns).items() if names}
    is_several, cells = isinstance(rows.target, SeveralLabels), rows.cells
    return {
        "split": split.name,
        "path": str(split.path),
        "format": rows.source.format,
        "columns": {**columns, "label": rows.source.label, "id": rows.source.id},
        "read": rows.read,
        "rows": len(rows.examples),
        "dropped": rows.dropped,
        "unlabelled": rows.unlabelled,
        "dev_rows": None if split.alone is None else len(dev),
        "bad": len(rows.bad),
        "bad_rows": rows.bad[:BAD_ROWS_LISTED],
        "target": None if rows.target is None else rows.target.kind,
        "labels": labels,
        "majority": max(labels.values()) / sum(labels.values()) if labels and not is_several else None,
        "label_sets": {"without_labels": cells.count(()), "different": len({*cells})} if is_several else None,
        "numbers": summarize_numbers(np.array(cells, float)) if split.are_numbers and cells else None,
        "repeated": repeated_texts(split),
        "lengths": lengths,
        "issues": {
            issue: {"rows": len(lines), "first_lines": [*map(rows.place_of, lines[:LISTED])]}
            for issue, lines in split.issues.items()
            if lines
        },
    }


def repeated_texts(split: CheckedSplit) -> dict[str, Any]:
    """Return the repeated texts of a split, and those with more than one label, as counts and first lines."""
    lines, conflicts, count = [], [], 0
    for rows in split.by_text.values():
        if len(rows) > 1:
            count += len(rows) - 1  # beyond the first
            lines.append([split.rows.place_of(split.rows.examples.lines[row]) for row in rows[:LISTED]])
            if len(labels := _labels_of(split, rows)) > 1:
                conflicts.append({"lines": lines[-1], "labels": [*labels]})
    return {
        "texts": len(lines),
        "rows": count,
        "first_lines": lines[:LISTED],
        "conflicting_texts": len(conflicts),
        "first_conflicts": conflicts[:LISTED],
    }


def shared_texts(splits: Sequence[CheckedSplit]) -> list[dict[str, Any]]:
    """Return the texts that each two splits share, as counts and first lines."""
    overlaps = []
    for one, two in combinations(splits, 2):
        shared = [(one.by_text[digest], rows) for digest, rows in two.by_text.items() if digest in one.by_text]
        differing = sum(_labels_of(one, first).keys() != _labels_of(two, second).keys() for first, second in shared)
        pairs = ((one.rows.examples.lines[first[0]], two.rows.examples.lines[second[0]]) for first, second in shared)
        overlap = {
            "first": one.name,
            "second": two.name,
            "texts": len(shared),
            "first_rows": sum(len(first) for first, _ in shared),
            "second_rows": sum(len(second) for _, second in shared),
            "other_labels": differing if one.rows.cells and two.rows.cells else 0,  # texts whose labels differ
            "first_lines": [[one.rows.place_of(a), two.rows.place_of(b)] for a, b in islice(pairs, LISTED)],
        }
        overlaps.append(overlap)
    return overlaps


class NearTexts:
    """The different texts of a split by the MinHash of their character shingles (Broder, On the Resemblance and Containment of
    Documents, 1997). A shingle has 5 characters, or 3 where no spaces separate words [ours]."""

    def __init__(self, split: CheckedSplit) -> None:
        from rensa import RMinHash, RMinHashDeduplicator

        self.split, places = split, np.random.default_rng(SEED).permutation(len(split.by_text))[:MAX_COMPARED]
        texts = [*split.by_text.items()]
        chosen = (texts[place] for place in np.sort(places))
        self.rows = {digest: split.rows.examples[rows[0]] for digest, rows in chosen}
        words = [text_key(f"{row.text} {row.pair or ''}")[:MAX_SHINGLED] for row in self.rows.values()]
        size = 5 if separates_words(words) else 3
        shingles = ([text[at : at + size] for at in range(max(1, len(text) - size + 1))] for text in words)
        self.sketches = RMinHash.from_token_sets(shingles, PERMUTATIONS, SEED)
        self.index = RMinHashDeduplicator(NEAR, PERMUTATIONS, use_lsh=True, seed=SEED)
        """The texts that are not near-duplicates of one before them."""
        self.index.add_pairs(zip(map(str, self.rows), self.sketches, strict=True))

    def near_duplicates(self, other: "NearTexts | None" = None) -> dict[str, Any]:
        """Return how many texts of `other`, or of this split, are near-duplicates of another one in the index, and none of the
        equal texts of `shared_texts`; their share of those that were `compared`; and the lines of the first pairs."""
        second, lines = other or self, []
        for digest, found in zip(second.rows, self.index.get_duplicate_sets(second.sketches), strict=True):
            if found and (str(digest) not in found if other is None else digest not in self.split.by_text):
                first, own = min(self.rows[int(key)].line for key in found), second.rows[digest].line
                lines.append([self.split.rows.place_of(first), second.split.rows.place_of(own)])
        share = len(lines) / max(1, len(second.rows))
        return {"texts": len(lines), "compared": len(second.rows), "share": share, "first_lines": lines[:LISTED]}


def _near_finding(name: str, found: Mapping[str, Any], of: str) -> Iterator[Finding]:
    """Yield the finding on the near-duplicates of the split `name`, if it has any."""
    if found["texts"]:
        near, compared = pluralize(found["texts"], "near-duplicate"), pluralize(found["compared"], "different text")
        where = "lines {} and {}".format(*found["first_lines"][0])
        yield Finding("warning", f"{name}: {near} of {of} ({found['share']:.1%} of {compared}); the first: {where}")


def _labels_of(split: CheckedSplit, rows: Sequence[int]) -> dict[Cell, None]:
    """Return the different labels of the rows with these indices, in their order."""
    labels = map(split.rows.examples.labels.__getitem__, rows)
    return dict.fromkeys(label for label in labels if label is not None)


def _split_findings(
    split: CheckedSplit, facts: Mapping[str, Any], task: Task, config: DataConfig, *, without_dev: bool
) -> Iterator[Finding]:
    """Yield the findings about one split. `facts` are the counts of the split that the report shows."""
    rows, count, repeated, file = split.rows, len(split.rows.examples), facts["repeated"], escaped(split.path.name)
    for fault in rows.faults:
        yield Finding("error", escaped(fault, limit=2000))
    for note in rows.notes:
        yield Finding("warning" if note.level == "warning" else "information", escaped(note.text, limit=2000))
    if not count:
        if split.is_drawn:
            rule = "data.dev_fraction of each label's rows become dev rows, never the first one; add rows or a dev file"
            yield Finding("error", f"{file}: no row is a dev row; {rule}")
        return
    if conflicts := repeated["first_conflicts"]:
        labels = "; ".join(escaped(split.text_of(label), 40) for label in conflicts[0]["labels"])
        texts, what = pluralize(repeated["conflicting_texts"], _TEXT), "numbers" if split.are_numbers else "labels"
        where = f"{_lines(conflicts[0]['lines'])} with the {what} {labels}"
        yield Finding("warning", f"{file}: {texts} with different {what}; the first: {where}")
    if repeated["texts"]:
        texts, others = pluralize(repeated["texts"], _TEXT), pluralize(repeated["rows"], "row")
        where = _lines(repeated["first_lines"][0])
        yield Finding("warning", f"{file}: {texts} in several rows ({others} beyond the first); the first: {where}")
    yield from _near_finding(file, facts["near_duplicates"], "earlier texts")
    if (compared := facts["near_duplicates"]["compared"]) < (different := len(split.by_text)):
        drawn = f"{compared:,} different texts, drawn from {different:,} by a fixed seed"
        yield Finding("information", f"{file}: near-duplicates are counted among {drawn}")
    for issue, found in facts["issues"].items():
        where = _lines(found["first_lines"]) + (", …" if found["rows"] > LISTED else "")
        yield Finding("warning", f"{file}: {pluralize(found['rows'], 'row')} {_ISSUES[issue]}: {where}")
    if facts["lengths"] is not None and (cut := facts["lengths"]["cut"]):
        measured = facts["lengths"]["rows"]
        which = pluralize(cut, "row") + ("" if measured == count else f" of {measured:,} that were measured")
        level: Level = "warning" if cut > MANY_CUT * measured else "information"
        yield Finding(level, f"{file}: {which} ({cut / measured:.1%}) longer than data.max_length are cut")
    names = ordered_labels(split.labels)
    are_classes = bool(names) and isinstance(rows.target, OneLabel)
    if are_classes and not task.labels and split.name in ("train", UNNAMED):
        try:
            check_labels(names, count, f"the label column '{escaped(' + '.join(rows.source.label))}'")
        except DataError as error:
            yield Finding("error", f"{file}: {error}")
    elif are_classes and len(names) == 1 < count:
        yield Finding("warning", f"{file}: every row has the label '{escaped(names[0])}'")
    for doubt in label_doubts(names):
        yield Finding("warning", f"{file}: {doubt}")
    if split.alone is not None and rows.cells and split.alone.dev is None:
        level = "error" if without_dev else "information"
        yield Finding(
            level, f"{file}: training on this file alone stops: {no_dev_rows_in_words(rows, task.dev_fraction)}"
        )
    elif split.alone is not None and split.alone.dev is not None:
        parts = f"{pluralize(len(split.alone.examples), 'training row')} and {pluralize(facts['dev_rows'], 'dev row')}"
        divides = f"training on this file alone divides it into {parts} (data.dev_seed {config.dev_seed})"
        few = "; a model without an encoder is cross-validated on all" if facts["dev_rows"] < FEWEST_DEV_ROWS else ""
        absent = ordered_labels({*names} - {*split.alone.dev.labels})
        no_dev = f", none of the label{'s' * (len(absent) > 1)} {quoted(absent)}" if absent else ""
        yield Finding("information", f"{file}: {divides}{no_dev}{few}")


def _findings_between(
    splits: Sequence[CheckedSplit], overlaps: Sequence[Mapping[str, Any]], task: Task
) -> Iterator[Finding]:
    """Yield the findings that concern several splits."""
    known = splits[0].labels if splits[0].name == "train" else Counter[str]()
    for split in splits:
        if known and split.name in ("dev", "test") and (unknown := sorted(split.labels.keys() - known.keys())):
            what = f"{escaped(split.path.name)}: {split.name} has labels that no train row has: {quoted(unknown)}"
            yield Finding("warning" if task.labels else "error", what)
        train = splits[0].rows
        absent = absent_labels(split.name, known, split.labels, train.target, train.source.format)
        if split.labels and absent:
            yield Finding("warning", f"{escaped(split.path.name)}: {absent}")
    for overlap in overlaps:
        if overlap["texts"]:
            one, two = overlap["first"], overlap["second"]
            rows = f"{pluralize(overlap['first_rows'], 'row')} of {one}, {pluralize(overlap['second_rows'], 'row')} of {two}"
            others = f"; {overlap['other_labels']:,} with other labels" if overlap["other_labels"] else ""
            where = "lines {} and {}".format(*overlap["first_lines"][0])
            what = f"{one} and {two} share {pluralize(overlap['texts'], _TEXT)}"
            yield Finding("warning", f"{what} ({rows}{others}); the first: {where}")
        yield from _near_finding(overlap["second"], overlap["near_duplicates"], f"texts of {overlap['first']}")


def _lines(lines: Sequence[int | str]) -> str:
    return f"line{'' if len(lines) == 1 else 's'} {', '.join(map(str, lines))}"
