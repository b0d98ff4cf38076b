"""Finds the runs that `recur compare` was given, and reads what each has stored; without torch."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from recurcli.commands.training.resume import preset_facts
from recurcli.config import Section
from recurcli.encoders import LINEAR
from recurcli.errors import ModelError, UsageError, escaped
from recurcli.files import naming_damage
from recurcli.metrics import PERPLEXITY, ScoredSplit, words_of
from recurcli.preset.compose import is_for_encoder
from recurcli.runs.predictions import (
    FILES,
    Part,
    Predictions,
    TextLosses,
    read_current_result,
    read_predictions,
    read_text_losses,
)
from recurcli.runs.run_directory import (
    PRESET,
    RESULT,
    Run,
    RunDirectory,
    as_stored,
    is_being_replaced,
    is_under_way,
    open_run,
)
from recurcli.targets import OneLabel

DEPTH = 3
"""Levels of folders in which runs are looked for."""
ROUNDING = 1e-9
"""The largest difference between a stored metric and the one that its predictions give."""
MAX_EXPONENT = 700.0
"""The largest mean loss whose perplexity is a float."""
NO_ROWS = Predictions([], [], [], OneLabel(()), "model")


@dataclass(frozen=True, kw_only=True)
class ComparedRun:
    """A finished run: a classifier with its predictions of the compared rows, or a language model with its losses."""

    path: Path
    manifest: str
    """The sha256 of its manifest, which tells whether it was replaced."""
    facts: Mapping[str, Any]
    """The preset and the origin of the run by dotted keys; equal in runs that differ in their seed alone."""
    result: Mapping[str, Any]
    split: ScoredSplit
    rows: Predictions = NO_ROWS
    text: TextLosses | None = None
    """The losses of a language model on its dev text; None: the run is a classifier."""

    def score(self, metric: str) -> float:
        """Return a metric of the predictions of the compared part, or the perplexity of a language model."""
        if self.text is None:
            return self.rows.target.score(metric, *self.rows.encoded())
        mean = math.fsum(self.text.nats) / math.fsum(self.text.tokens)
        return math.exp(mean) if mean < MAX_EXPONENT else math.inf

    @property
    def seed(self) -> int:
        """The seed of the training."""
        return int(self.result["seed"])

    @property
    def units(self) -> int:
        """The number of compared rows, or of the tokens of the dev text of a language model."""
        return len(self.rows.ids) if self.text is None else int(self.result["data"]["dev"]["tokens"])

    @property
    def stored(self) -> Mapping[str, Any]:
        """What result.json says of the compared rows: their baselines, parts and calibration."""
        return self.result if self.split == "dev" else self.result[self.split]


class Collected(NamedTuple):
    """The runs and the other folders at the given paths."""

    runs: list[ComparedRun]
    unfinished: list[dict[str, Any]]
    """`run`, `step` and `steps` (None: not known yet), and whether a process is `running`."""
    left_out: list[dict[str, str]]
    """`path` and `reason` of runs that are not compared: damaged or pretrained ones, and folders that are not runs."""


def collect(paths: Sequence[Path], part: Part, split: ScoredSplit = "dev") -> Collected:
    """Read the runs at `paths`, which are run directories or folders of them, with their predictions of the rows of `split`.

    Raises ModelError if one of the `paths` is a run that is damaged or was written by another version of recur. Such a run
    in a folder is left out.
    """
    found = Collected([], [], [])
    seen: set[Path] = set()
    seeds: dict[tuple[str, int], Path] = {}
    for path in _find(paths):
        if path.resolve() in seen:
            continue
        seen.add(path.resolve())
        try:
            run = _read(path, part, split)
        except ModelError as error:
            if path in paths:
                raise
            run = f"cannot be read: {error}"
        if isinstance(run, ComparedRun):
            first = seeds.setdefault((json.dumps(run.facts, sort_keys=True), run.seed), path)
            if first == path:
                found.runs.append(run)
                continue
            run = f"has the preset and the seed of {first}"
        if isinstance(run, str):
            found.left_out.append({"path": str(path), "reason": run})
        else:
            found.unfinished.append(run)
    models = [run for run in found.runs if run.text is not None]
    if len(models) < len(found.runs):
        reason = "is a language model, and others are classifiers"
        found.left_out.extend({"path": str(model.path), "reason": reason} for model in models)
        found.runs[:] = [run for run in found.runs if run.text is None]
    return found


def _find(paths: Sequence[Path]) -> Iterator[Path]:
    """Yield the runs at or below `paths`, and those of `paths` that hold none."""
    for path in paths:
        if not path.is_dir():
            open_run(path)  # which says why, or waits while another run takes its place
        yield from _runs_below(path) or [path]


def _runs_below(folder: Path, depth: int = DEPTH) -> list[Path]:
    if (folder / PRESET).is_file():
        return [folder]
    children = (path for path in folder.iterdir() if depth and path.is_dir() and not path.name.startswith("."))
    return [run for child in sorted(children) for run in _runs_below(child, depth - 1)]


def _read(path: Path, part: Part, split: ScoredSplit) -> ComparedRun | dict[str, Any] | str:
    """Return the run at `path`; if it is not finished, its progress; or in words why it is not compared."""
    if not (path / PRESET).is_file():
        return "is not a run and holds none"
    files = open_run(path) if (path / RESULT).is_file() or is_being_replaced(path) else None
    run = files or RunDirectory(path)
    pretrained = run.read_command() == "pretrain"
    if pretrained and run.read_preset()["pretraining"].get("objective") != "causal":
        return "is pretrained on masked tokens, without a dev text"
    if files is None:
        stored = next(run.read_states(), None)
        step, steps = (0, None) if stored is None else (stored["state"]["step"], stored["resume_key"]["steps"])
        return {"run": str(path), "step": step, "steps": steps, "running": is_under_way(path)}
    if split != "dev" and pretrained:
        return f"is a language model, which is compared on its dev text; leave out --split {split}"
    if split != "dev" and FILES[split] not in files:
        where = "`recur finetune --test FILE` names" if split == "test" else "generated tasks such as parity have"
        return f"has no predictions of {split} rows, which {where}"
    result = read_current_result(files)
    if part == "encoder" and result["encoder"] == LINEAR:
        return "is a linear model without an encoder"
    with naming_damage(run.path / RESULT):
        facts = _facts(files, result, "pretraining" if pretrained else "finetuning")
        rows, text = NO_ROWS, None
        if pretrained:
            text = read_text_losses(files)
        else:
            rows = read_predictions(files, part, split)
        found = ComparedRun(
            path=path,
            manifest=files.sha256,
            facts=facts,
            result=result,
            split=split,
            rows=rows,
            text=text,
        )
        stored = result[split] if part == "model" or "parts" not in found.stored else found.stored["parts"]["encoder"]
        scores = {PERPLEXITY: found.score(PERPLEXITY)} if pretrained else rows.report()
        for name in (PERPLEXITY, *rows.target.metrics):
            own, score = stored.get(name), scores.get(name)
            if (
                own is not None
                and score is not None
                and not math.isclose(own, score, rel_tol=ROUNDING, abs_tol=ROUNDING)
            ):
                raise ValueError(f"its {words_of(name)} is {own:.4f}, but its predictions give {score:.4f}")
    return found


def _facts(run: Run, result: Mapping[str, Any], section: Section) -> dict[str, Any]:
    """Return the facts that all runs of a group share: the preset without its seed, precision, training rows, pretrained run.

    Keys that are null are left out. A linear model has no keys of encoders. Two pretrained runs are equal if only their seeds
    differ. A pretrained run that can no longer be read is identified by its path.
    """
    train = result["data"]["train"]
    facts = {**preset_facts(run.read_preset(), section), "train rows": f"{train['rows']} ({train['sha256'][:8]})"}
    if result["encoder"] == LINEAR:
        facts = {key: value for key, value in facts.items() if not is_for_encoder(tuple(key.split(".")))}
        facts["encoder.name"] = LINEAR  # which finetuning.encoder may have put in the place of the preset's
    if result.get("teacher"):
        facts["teacher"] = result["teacher"]["sha256"][:8]
    # A resume may change the precision, so it is not a fact of the preset.
    facts["runtime.precision"] = result["machine"]["precision"]
    if result.get("init") is not None:
        try:
            pretrained = Run(Path(result["init"]))
            data = pretrained.read_result()["data"]
            origin = preset_facts(pretrained.read_preset(), "pretraining")
            facts |= {"init": "pretrained", **{f"init.{key}": value for key, value in origin.items()}}
            facts |= {f"init {split}": data[split]["sha256"][:8] for split in data}
        except (ModelError, OSError):
            facts["init"] = result["init"]
    differing = ("runtime.seed", "init.runtime.seed", "finetuning.keep_texts")
    return as_stored({key: value for key, value in facts.items() if value is not None and key not in differing})


def check_comparable(runs: Sequence[ComparedRun], metric: str | None) -> None:
    """Raise UsageError for the first run whose task, labels, rows or, without `metric`, dev metric are not the first's."""
    for run in runs[1:]:
        if difference := _difference(runs[0], run, metric):
            way_out = "compare runs of the same rows and labels: name them, or a folder that holds them alone"
            raise UsageError(f"{runs[0].path} and {run.path} cannot be compared: {difference}; {way_out}")


def _difference(first: ComparedRun, other: ComparedRun, metric: str | None) -> str | None:
    """Return in words what keeps two runs from being compared; None: nothing."""
    both, split = (first, other), first.split
    data = [run.result["data"][split] for run in both]
    if data[0]["sha256"] != data[1]["sha256"]:
        names = (each.get("path") or run.result["task"] for each, run in zip(data, both, strict=True))
        files = (f"{each['sha256'][:12]} ({escaped(name)})" for each, name in zip(data, names, strict=True))
        return f"the sha256 of their {split} rows is {' and '.join(files)}"
    for what, values in {
        "tasks": [run.result["task"] for run in both],
        "kinds of labels": [run.rows.target.kind for run in both],
        "classes": [", ".join(sorted(run.rows.target.labels)) for run in both],
        "numbers of tokens of their dev texts": [each.get("tokens") for each in data],
        "numbers of unknown tokens of their dev texts": [each.get("unknown") for each in data],
        "metrics, of which --metric chooses one,": [metric or run.result["metric"] for run in both],
    }.items():
        if values[0] != values[1]:
            return f"their {what} are {escaped(values[0])} and {escaped(values[1])}"
    if (first.rows.ids, first.rows.labels) != (other.rows.ids, other.rows.labels):
        folded = split == "dev" and len({"cross_validation" in run.result for run in both}) == 2
        reason = "; one was cross-validated on all its rows, and --dev FILE gives both the same" if folded else ""
        return f"their {split} rows have other ids or labels{reason}"
    return None
