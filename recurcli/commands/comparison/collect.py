"""Finds the runs that `recur compare` was given, and reads what each has stored; without torch."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from recurcli.commands.training.request import Section, preset_facts
from recurcli.encoders.config import LINEAR
from recurcli.errors import ModelError, UsageError, escaped
from recurcli.evaluation.metrics import PERPLEXITY, classification_report, words_of
from recurcli.facts import as_stored
from recurcli.files import CommittedFolder, is_locked, read_limited
from recurcli.preset.compose import is_for_encoder
from recurcli.runs.predictions import (
    FILES,
    Part,
    Predictions,
    ScoredSplit,
    TextLosses,
    read_predictions,
    read_text_losses,
)
from recurcli.runs.run_directory import (
    LOCK,
    MAX_METRICS,
    PRESET,
    SCORES,
    TEST_PREDICTIONS,
    TEXT_LOSSES,
    RunDirectory,
    current_folder,
    open_run,
    run_of,
)

DEPTH = 3
"""Levels of folders in which runs are looked for."""
TRAIN_ROWS = "train rows"
"""The fact of a run that tells its training rows."""
ROUNDING = 1e-9
"""The largest difference between a stored metric and the one that its predictions give."""


@dataclass(frozen=True)
class ComparedRun:
    """A finished run: a classifier with its predictions of the compared rows, or a language model with its losses."""

    path: Path
    manifest: str
    """The sha256 of its manifest, which tells whether it was replaced."""
    facts: Mapping[str, Any]
    """The preset and the origin of the run by dotted keys; equal in runs that differ in their seed alone."""
    seed: int
    result: Mapping[str, Any]
    split: ScoredSplit
    """The rows that are compared."""
    rows: Predictions
    """The predictions; a language model has none."""
    scores: Mapping[str, float]
    """The metrics of the compared part, each of METRICS, computed from its predictions; of a language model the perplexity."""
    encoder_scores: Mapping[str, float] | None
    """The metrics of the encoder alone, if the run has an ensemble."""
    test_scores: Mapping[str, float] | None
    """The test metrics of the compared part beside those of the dev rows; None: no test rows were scored."""
    text: TextLosses | None = None
    """The losses of a language model on its dev text; None: the run is a classifier."""

    @property
    def stored(self) -> Mapping[str, Any]:
        """What result.json says of the compared rows: their baselines, parts and calibration."""
        return self.result if self.split == "dev" else self.result["test"]

    @property
    def group_key(self) -> str:
        """The `facts` as text: equal for runs of one group."""
        return json.dumps(self.facts, sort_keys=True)


class Collected(NamedTuple):
    """The runs and the other folders at the given paths."""

    runs: list[ComparedRun]
    unfinished: list[dict[str, Any]]
    """`run`, `step` and `steps` (None: not known yet), and whether a process is `running`."""
    left_out: list[dict[str, str]]
    """`path` and `reason` of pretrained runs and of folders that are no runs."""
    damaged: list[tuple[Path, ModelError]]
    """The runs in folders that cannot be read, with their errors."""


def collect(paths: Sequence[Path], part: Part, split: ScoredSplit = "dev") -> Collected:
    """Read the runs at `paths`, which are run directories or folders of them, with their predictions of the rows of `split`.

    Raises ModelError if one of the `paths` is a run that is damaged or was written by another version of recur. Such a run
    in a folder is left out.
    """
    runs: list[ComparedRun] = []
    unfinished, left_out = [], []
    damaged: list[tuple[Path, ModelError]] = []
    known: set[Path] = set()
    seeds: dict[tuple[str, int], Path] = {}
    for path, is_run in _find(paths):
        if path.resolve() in known:
            continue
        known.add(path.resolve())
        if not is_run:
            left_out.append({"path": str(path), "reason": "is no run and holds none"})
            continue
        try:
            # asked twice, because a new training may take its place meanwhile
            is_finished = any(RunDirectory(current_folder(path)).is_finished for _ in range(2))
            files = open_run(path) if is_finished else None
            run = RunDirectory(path if files is None else files)
            pretrained = run.read_command() == "pretrain"
            if pretrained and run.read_preset()["pretraining"].get("objective") != "causal":
                left_out.append({"path": str(path), "reason": "is pretrained on masked tokens, without a dev text"})
            elif files is None:
                unfinished.append({"run": str(path), **_progress(run)})
            else:
                if split == "test" and TEST_PREDICTIONS not in files:
                    reason = "has no predictions of test rows, which `recur finetune --test FILE` names"
                    if pretrained:
                        reason = "is a language model, which is compared on its dev text; leave out --split test"
                    left_out.append({"path": str(path), "reason": reason})
                    continue
                read = _read_language_model(files) if pretrained else _read_run(files, part, split)
                if part == "encoder" and read.result["encoder"] == LINEAR:
                    left_out.append({"path": str(path), "reason": "is a linear model without an encoder"})
                    continue
                first = seeds.setdefault((read.group_key, read.seed), path)
                if first == path:
                    runs.append(read)
                else:
                    left_out.append({"path": str(path), "reason": f"has the preset and the seed of {first}"})
        except ModelError as error:
            if path in paths:
                raise
            damaged.append((path, error))
    classifiers = [run for run in runs if run.text is None]
    for model in runs if classifiers else ():
        if model.text is not None:
            left_out.append({"path": str(model.path), "reason": "is a language model, and others are classifiers"})
    return Collected(classifiers or runs, unfinished, left_out, damaged)


def _find(paths: Sequence[Path]) -> Iterator[tuple[Path, bool]]:
    """Yield the runs at or below `paths`, and with False the folders that hold none."""
    for path in paths:
        if not path.is_dir():
            raise ModelError(f"{path}: is not a run directory" + ("" if path.exists() else " (it does not exist)"))
        children = [path] if (path / PRESET).is_file() else _folders(path)
        for child in children or [path]:
            below = _runs_below(child, DEPTH)
            yield from ((run, True) for run in below)
            if not below:
                yield child, False


def _runs_below(folder: Path, depth: int) -> list[Path]:
    if (folder / PRESET).is_file():
        return [folder]
    return [run for child in _folders(folder) if depth > 1 for run in _runs_below(child, depth - 1)]


def _folders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


def _read_run(files: CommittedFolder, part: Part, split: ScoredSplit) -> ComparedRun:
    run = RunDirectory(files)
    result, rows = run.read_result(), read_predictions(files, part, split)
    try:
        tested = result.get("test")
        scored = result if split == "dev" else result["test"]
        encoder = scored["parts"]["encoder"] if "parts" in scored else None
        stored = encoder if encoder is not None and part == "encoder" else result[split]
        if tested is not None and part == "encoder" and "parts" in tested:
            tested = tested["parts"]["encoder"]
        scores = classification_report(rows.labels, rows.predictions, rows.names).metrics
        for name in scores:
            if name in SCORES and abs(stored[name] - scores[name]) > ROUNDING:
                raise ModelError(
                    f"{run.result}: says {stored[name]:.4f} for the {words_of(name)} of the {part}, but {FILES[split]} gives "
                    f"{scores[name]:.4f}; one of them is another run's"
                )
        parameters = result["parameters"]
        numbers = result["seconds"], result["tokens_per_second"], parameters["total"], parameters["embedding"]
        facts = result["data"][split]["sha256"], result["machine"]["precision"]
        texts = result["task"], result["preset"], result["metric"], *facts
        if not all(isinstance(number, int | float) for number in numbers) or not all(isinstance(t, str) for t in texts):
            raise TypeError("a number or a text is of another type")
        beside = tested if split == "dev" else None
        own = _facts(run, result, "finetuning"), int(result["seed"]), result
        return ComparedRun(run_of(run.path), files.sha256, *own, split, rows, scores, encoder, beside)
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(f"{run.result}: is damaged: {escaped(repr(error))}") from None


def _read_language_model(files: CommittedFolder) -> ComparedRun:
    run = RunDirectory(files)
    result, text = run.read_result(), read_text_losses(files)
    try:
        perplexity = math.exp(math.fsum(text.nats) / math.fsum(text.tokens))
        if not math.isclose(result["dev"]["perplexity"], perplexity, rel_tol=ROUNDING):
            stored = result["dev"]["perplexity"]
            raise ModelError(
                f"{run.result}: says {stored:.4f} for the perplexity, but {TEXT_LOSSES} gives {perplexity:.4f}; one of them is "
                "another run's"
            )
        if not all(isinstance(result["data"]["dev"][key], int) for key in ("tokens", "unknown")):
            raise TypeError("a number is of another type")
        facts, no_rows = _facts(run, result, "pretraining"), Predictions([], [], [], [], "model")
        scores = {PERPLEXITY: perplexity}
        own = facts, int(result["seed"]), result
        return ComparedRun(run_of(run.path), files.sha256, *own, "dev", no_rows, scores, None, None, text)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ModelError(f"{run.result}: is damaged: {escaped(repr(error))}") from None


def _facts(run: RunDirectory, result: Mapping[str, Any], section: Section) -> dict[str, Any]:
    """Return the facts that all runs of a group share: the preset without its seed, precision, training rows, pretrained run.

    Keys that are null are left out. A linear model has no keys of encoders. Two pretrained runs are equal if only their seeds
    differ. A pretrained run that can no longer be read is identified by its path.
    """
    train = result["data"]["train"]
    facts = {**preset_facts(run.read_preset(), section), TRAIN_ROWS: f"{train['rows']} ({train['sha256'][:8]})"}
    if result["encoder"] == LINEAR:
        facts = {key: value for key, value in facts.items() if not is_for_encoder(tuple(key.split(".")))}
    if result.get("teacher"):
        facts["teacher"] = result["teacher"]["sha256"][:8]
    # A resume may change the precision, so it is no fact of the preset.
    facts["runtime.precision"] = result["machine"]["precision"]
    if result.get("init") is not None:
        try:
            pretrained = RunDirectory(current_folder(Path(result["init"])))
            data = pretrained.read_result()["data"]
            origin = preset_facts(pretrained.read_preset(), "pretraining")
            facts |= {"init": "pretrained", **{f"init.{key}": value for key, value in origin.items()}}
            facts |= {f"init {split}": data[split]["sha256"][:8] for split in data}
        except (ModelError, OSError, KeyError, TypeError):
            facts["init"] = result["init"]
    differing = ("runtime.seed", "init.runtime.seed", "finetuning.keep_texts")
    return as_stored({key: value for key, value in facts.items() if value is not None and key not in differing})


def _progress(run: RunDirectory) -> dict[str, Any]:
    """Return the last logged step of an unfinished run, its number of steps if a checkpoint knows it, and if it runs."""
    step, steps = 0, None
    try:
        lines = read_limited(run.metrics, MAX_METRICS).split(b"\n")[:-1]
        step = int(json.loads(lines[-1])["step"])
    except (OSError, ModelError, IndexError, ValueError, KeyError, TypeError):
        pass  # no step is logged yet
    if (stored := next(run.read_states(), None)) is not None:
        step, steps = max(step, stored["state"]["step"]), stored["resume_key"]["steps"]
    try:
        running = is_locked(run.path / LOCK)
    except OSError:
        running = False
    return {"step": step, "steps": steps, "running": running}


_WAY_OUT = "; compare runs of the same rows and labels: name them, or a folder that holds them alone"


def check_comparable(runs: Sequence[ComparedRun], metric: str | None) -> None:
    """Raise UsageError for the first run whose task, labels, rows or, without `metric`, dev metric are not the first's."""
    for run in runs[1:]:
        if difference := _difference(runs[0], run, metric):
            raise UsageError(f"{runs[0].path} and {run.path} cannot be compared: {difference}")


def _difference(first: ComparedRun, other: ComparedRun, metric: str | None) -> str | None:
    """Return in words what keeps two runs from being compared; None: nothing."""
    split = first.split
    data = [run.result["data"][split] for run in (first, other)]
    files = [each["sha256"][:12] + (f" ({each['path']})" if each.get("path") else "") for each in data]
    if data[0]["sha256"] == data[1]["sha256"]:
        files[1] = files[0]
    pairs = [
        ("their tasks are", first.result["task"], other.result["task"]),
        (f"the sha256 of their {split} rows is", *files),
        (f"the numbers of their {split} rows are", f"{len(first.rows.ids):,}", f"{len(other.rows.ids):,}"),
        ("their classes are", *(", ".join(sorted(run.rows.names)) for run in (first, other))),
    ]
    if first.text is not None and other.text is not None:
        for word, key in (("tokens", "tokens"), ("unknown tokens", "unknown")):
            counts = (f"{run.result['data']['dev'][key]:,}" for run in (first, other))
            pairs.append((f"the numbers of {word} of their dev texts are", *counts))
    for what, one, two in pairs:
        if one != two:
            return f"{what} {escaped(one)} and {escaped(two)}{_WAY_OUT}"
    rows = (list(zip(run.rows.ids, run.rows.labels, strict=True)) for run in (first, other))
    for row, (one, two) in enumerate(zip(*rows, strict=True), 1):
        if one != two:
            shown = (f"id '{escaped(row_id, 40)}' with label '{escaped(label, 40)}'" for row_id, label in (one, two))
            return f"{split} row {row:,} is {' and '.join(shown)}{_WAY_OUT}"
    if metric is None and first.result["metric"] != other.result["metric"]:
        return f"their metrics are {first.result['metric']} and {other.result['metric']}; choose one with --metric"
    return None
