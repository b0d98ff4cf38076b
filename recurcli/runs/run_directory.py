"""The folder of a run: `Run` reads its files, and `RunDirectory` locks and writes them.

It is importable without torch. `runs/model_files.py` reads and writes the model and its predictions;
`training/session.py` does so for checkpoints. First come the keys of the JSON files that commands read, with the kinds of their
values; other keys are not checked.
"""

import contextlib
import hashlib
import json
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic_core import SchemaValidator, ValidationError
from pydantic_core import core_schema as cs

from recurcli.config import FORMAT_VERSION, DataConfig, check_format
from recurcli.errors import ModelError, StorageError, UsageError, escaped
from recurcli.files import (
    MANIFEST,
    CommittedFolder,
    OpenedFile,
    check_utf8,
    extend_manifest,
    is_locked,
    locked,
    naming_damage,
    read_limited,
    read_manifest,
    refuse_links,
    remove,
    storage_errors,
    sync_directory,
    to_json,
    write_atomically,
)
from recurcli.log import Log
from recurcli.metrics import TEST_SPLITS, words_of
from recurcli.targets import TARGETS, Target
from recurcli.validation import MAX_BYTES, dump, parse_config, read_mapping

PRESET, METRICS, RESULT = "preset.yaml", "metrics.jsonl", "result.json"
MODEL_CARD, CHECKPOINTS = "README.md", "checkpoints"
TRACKS = "tracks"
"""The folder of TensorBoard's events, and of the names that the run has at other trackers."""
NETWORK_FILES = ("model.safetensors", "tokenizer.json")
"""The network and its tokenizer, if the run has an encoder."""
PREDICTIONS = "predictions.dev.jsonl"
TEST_PREDICTIONS = {split: f"predictions.{split}.jsonl" for split in TEST_SPLITS}
TEXT_LOSSES = "losses.dev.json"
"""The losses of a language model on the blocks of its dev text."""
VECTORS = "vectors.safetensors"
"""The static vectors of the linear model, where it has any."""
LINEAR_MODEL = "linear.safetensors"
"""The linear model on n-grams of the training rows, if the run has one."""
LINEAR_FIRST_FIT = "linear.first-fit.safetensors"
"""The linear model on the training rows alone, which scores the dev rows, if LINEAR_MODEL was fitted again on these too."""
KEPT = "kept.json"
"""What is kept of the candidates, and with which weights (`evaluation.decision.Kept`)."""
KNOWN_ROWS = "training_rows.safetensors"
"""Hashes of the rows that the model was trained on and selected on."""
REQUIRED_FILES = ("config.json", KNOWN_ROWS)
"""The files that every model has."""
THRESHOLDS = "thresholds.json"
"""The thresholds of the labels, if they were chosen; without them the label is the most probable one."""
WRITTEN_AFTER_MODEL = (KEPT, THRESHOLDS, PREDICTIONS, *TEST_PREDICTIONS.values(), TEXT_LOSSES, LINEAR_FIRST_FIT)
"""What is written after a model, and belongs to it."""
LEFT_BEHIND = (PREDICTIONS, *TEST_PREDICTIONS.values(), LINEAR_FIRST_FIT)
"""What `recur predict` does not need, and a copy for others leaves out: the predictions have texts."""
CANDIDATE_FILES = (*NETWORK_FILES, LINEAR_MODEL, VECTORS)
"""The files of the candidates. A run has those of its own."""
_FILES = (PRESET, *REQUIRED_FILES, *CANDIDATE_FILES, *WRITTEN_AFTER_MODEL, MANIFEST, METRICS, RESULT, MODEL_CARD)
CONTENTS = (*_FILES, CHECKPOINTS, TRACKS)
"""All files that a run writes."""
LOCK, NEXT, OLD = ".lock", ".next", ".old"
"""The endings of what stands beside a run (`beside`): its lock, a new training of it, and the run that is being replaced."""
MAX_MANIFEST, MAX_METRICS = 1 << 20, 1 << 28
"""The largest manifest and metrics file that are read, in bytes."""
_HELD = {
    "tokenizer.json": "words or characters",
    **dict.fromkeys((LINEAR_MODEL, "linear.npz"), "hashes of n-grams"),
    KNOWN_ROWS: "hashes of whole texts",
    PREDICTIONS: "all dev texts in clear",
}
RunStatus = Literal["new", "unfinished", "finished"]
"""new: train from the beginning; unfinished: resume; finished: nothing to do."""
_STEP = re.compile(r"step-(\d{8,12})")
_CHECKPOINT = re.compile(rf"{_STEP.pattern}|\.{_STEP.pattern}\.\w+\.(tmp|old)")
"""A checkpoint, or what a killed process left of one (`commit_directory`)."""
PATIENCE = 1.0
"""Seconds that a reader waits for the end of a change of runs."""
_HEADER = re.compile(rb"# format_version: (\d{1,9})\n(?:# command: ([a-z]{1,20})\n)?")


def keys(schemas: Mapping[str, cs.CoreSchema]) -> cs.CoreSchema:
    """Return the schema of a mapping. A key with ? may be missing, and * stands for all other keys."""
    fields = {
        key.removesuffix("?"): cs.typed_dict_field(kind, required=key[-1] != "?") for key, kind in schemas.items()
    }
    fields.pop("*", None)
    return cs.typed_dict_schema(fields, extra_behavior="allow", extras_schema=schemas.get("*"))


_LARGEST = 10**18
"""The largest number that is read, except for a perplexity or a loss, which may be any finite number."""
FINITE = cs.float_schema(allow_inf_nan=False)
NUMBER = cs.float_schema(allow_inf_nan=False, ge=-_LARGEST, le=_LARGEST)
_WHOLE = cs.int_schema(ge=-_LARGEST, le=_LARGEST)
COUNT = cs.int_schema(ge=0, le=_LARGEST)
TEXT = cs.str_schema()
_FACT = cs.nullable_schema(cs.union_schema([TEXT, cs.bool_schema(), NUMBER]))
_SCORE = cs.nullable_schema(cs.union_schema([FINITE, cs.list_schema(), cs.dict_schema()]))
_NUMBERS = cs.dict_schema(TEXT, NUMBER)
_OF_ROWS = dict.fromkeys(("average_precision?", "roc_auc?"), cs.nullable_schema(NUMBER))
_BY_CLASS = {"per_class?": cs.dict_schema(TEXT, _NUMBERS)}
_SHARE = cs.float_schema(ge=0, le=1)
_LIMITS = cs.list_schema(NUMBER, min_length=2, max_length=2)
_PAIRED = cs.dict_schema(cs.literal_schema(["encoder", "linear"]), _LIMITS)
_CALIBRATION_KEYS = keys({"ece?": NUMBER, "temperature": NUMBER})
_OF_SPLIT = {
    "model_intervals": cs.dict_schema(cs.literal_schema(["model", "encoder", "linear"]), _LIMITS),
    "calibration": _CALIBRATION_KEYS,
    "paired?": _PAIRED,
}
"""What stands beside the metrics of a classifier on the rows of a split."""
_WEIGHT = cs.float_schema(ge=0, le=1e6)
_WEIGHTS = cs.dict_schema(cs.literal_schema(["encoder", "linear"]), _WEIGHT, min_length=1)
_KEPT = keys(
    {
        "name": cs.literal_schema(["encoder", "linear model", "ensemble"]),
        "weights": _WEIGHTS,
        "alone": _WEIGHTS,
        "temperature": cs.float_schema(ge=1e-6, le=1e6),
        "rows": COUNT,
        "calibrations?": cs.dict_schema(
            cs.literal_schema(["encoder", "linear"]),
            cs.list_schema(cs.list_schema(FINITE), min_length=2, max_length=2),
        ),
    }
)
_OF_LABELS = cs.dict_schema(TEXT, cs.float_schema(gt=0, le=1))
_THRESHOLDS_KEYS = {"metric": TEXT, "thresholds": _OF_LABELS, "cross_validated": NUMBER, "most_probable": NUMBER}
_THRESHOLDS = keys(_THRESHOLDS_KEYS)
_VECTORS = keys({"source": TEXT, "licence": TEXT, "scale": FINITE, "share": FINITE})
_LINEAR_BASELINE = keys(
    {
        "parameters": COUNT,
        "refit_rows?": COUNT,
        "vectors": cs.nullable_schema(_VECTORS),
        "dev": cs.dict_schema(TEXT, _SCORE),
    }
)
_STOPPED = keys({"metric": TEXT, "best": cs.nullable_schema(FINITE), "evaluations": COUNT, "steps": COUNT})
_QUESTION = keys({"asked": _FACT, "other": cs.any_schema()})
_TARGET = cs.int_schema(gt=0, le=_LARGEST)
_MATCHED = keys({"keys": _NUMBERS, "parameters": COUNT, "target": _TARGET, "question": _QUESTION})
_DATA = keys({"path": cs.nullable_schema(TEXT), "rows": cs.int_schema(ge=1, le=_LARGEST), "sha256": TEXT})
_RESULT_KEYS: dict[str, cs.CoreSchema] = {
    "command": cs.literal_schema(["finetune", "pretrain"]),
    "seed": _WHOLE,
    **dict.fromkeys(("preset", "task", "encoder"), TEXT),
    **dict.fromkeys(("steps", "best_step", "tokens", "tokens_per_second"), COUNT),
    **dict.fromkeys(("seconds", "cpu_seconds", "epochs"), NUMBER),
    "parameters": keys({"total": COUNT, "embedding": COUNT}),
    "data": cs.dict_schema(TEXT, _DATA),
    "machine": keys({"device": TEXT, "precision": TEXT, "*": _FACT}),
    **dict.fromkeys(("metric?", "target?"), TEXT),
    "holds": cs.list_schema(TEXT),
    "pairs?": cs.bool_schema(),
    "kept?": _KEPT,
    "thresholds?": cs.nullable_schema(_THRESHOLDS),
    "cross_validation?": keys({"folds": COUNT, "rows": COUNT}),
    "linear_baseline?": _LINEAR_BASELINE,
    "embedding_vectors?": cs.nullable_schema(keys({"source": TEXT, "licence": TEXT})),
    "early_stopping?": cs.nullable_schema(_STOPPED),
    "match_parameters?": cs.nullable_schema(_MATCHED),
    "forward_flops_per_token?": cs.nullable_schema(COUNT),
    "init?": cs.nullable_schema(TEXT),
}
_RESULT_FILE = SchemaValidator(keys(_RESULT_KEYS))
_LANGUAGE_MODEL = SchemaValidator(
    keys({"metric": TEXT, "dev": keys({"perplexity": FINITE, "loss": FINITE, "tokens": COUNT})})
)
"""The further keys of a language model that was selected by a dev metric."""
_RESUME_KEY = keys({"steps": COUNT, "train sha256?": TEXT, "dev sha256?": TEXT})
_STATE = SchemaValidator(keys({"state": keys({"step": COUNT}), "resume_key": _RESUME_KEY}))
"""state.json of a checkpoint, for a reader that does not resume from it."""
_METRICS_LINE = SchemaValidator(keys({"step": COUNT, "*": cs.nullable_schema(FINITE)}))
KEPT_FILE = SchemaValidator(_KEPT)
"""kept.json."""
_THRESHOLDS_FILE = SchemaValidator(keys({**_THRESHOLDS_KEYS, "sha256": TEXT}))
"""thresholds.json."""


def _classifier_keys(target: type[Target], *, with_parts: bool) -> cs.CoreSchema:
    """Return the further keys of a classifier; `with_parts`: its encoder and its linear model could both be kept."""
    bounds = {name: target.metrics[name].bounds for name in target.scores}
    of_metric = {name: cs.float_schema(ge=low, le=high) for name, (low, high) in bounds.items()}
    headline = of_metric[target.headline]
    scores: dict[str, cs.CoreSchema] = {**of_metric, **_OF_ROWS, **_BY_CLASS, "*": _SCORE}
    parts = keys({"encoder": keys(scores), "linear": keys(scores)})
    of_rows = {
        **_OF_SPLIT,
        "baselines": keys({target.constant_name: headline, "*": headline}),
        "unseen?": keys({"rows": COUNT, target.headline: headline}),
    }
    of_split = {**of_rows, ("parts" if with_parts else "parts?"): parts}
    tests = keys({**scores, **of_rows, "parts?": parts})
    return keys(
        {
            **{"metric": TEXT, "kept": _KEPT, "data": keys({"dev": _DATA, "*": _DATA}), **of_split},
            "dev": keys({**dict.fromkeys(target.tables, cs.list_schema()), **scores}),
            **dict.fromkeys((f"{split}?" for split in TEST_SPLITS), tests),
            **({"linear_baseline": _LINEAR_BASELINE} if with_parts else {}),
        }
    )


def check(value: Any, validator: SchemaValidator) -> None:
    """Raise ValueError with the first key of `value` that does not fit."""
    try:
        validator.validate_python(value, strict=True)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_context=False)[0]
        key = ".".join(map(str, fault["loc"])) or "its content"
        reason = "missing" if fault["type"] == "missing" else f"{fault['input']!r:.60}"
        raise ValueError(f"{key} is {reason}") from None


def read_json(file: OpenedFile, validator: SchemaValidator, limit: int = 1 << 20) -> dict[str, Any]:
    """Return the content of a JSON file of at most `limit` bytes. Raises ModelError if it is damaged or does not fit."""
    with naming_damage(file.path):
        content: dict[str, Any] = json.loads(file.read(limit))
        check(content, validator)
    return content


def _digest_of(value: Mapping[str, Any]) -> str:
    return hashlib.sha256(to_json(value).encode()).hexdigest()


Facts = Mapping[str, Any]


def as_stored(facts: Facts) -> dict[str, Any]:
    """`facts` as they come back from a JSON file: tuples are lists, keys are strings."""
    return json.loads(json.dumps(facts))


def first_difference(stored: Facts, current: Facts) -> str | None:
    """Return the name of the first fact whose values differ, and both values, as a sentence; None if all are equal.

    The task comes first and the encoder's name second, because they explain other differences. A missing value is `absent`,
    and of a sha256 twelve digits are shown.
    """
    before, now = as_stored(stored), as_stored(current)
    differing = [key for key in before | now if before.get(key, ...) != now.get(key, ...)]
    if not differing:
        return None
    key = min(differing, key=lambda key: (key != "task", key != "encoder.name", key))

    def shown(facts: Facts) -> str:
        if key not in facts:
            return "absent"
        text = "null" if facts[key] is None else repr(facts[key])
        return escaped(re.sub(r"([0-9a-f]{12})[0-9a-f]{52}", r"\1…", text), 60)

    return f"{key} was {shown(before)} and is now {shown(now)}"


def check_same(stored: Facts, current: Facts, path: Path) -> None:
    """Raise UsageError if a fact differs from that of the run at `path`."""
    if difference := first_difference(stored, current):
        way_out = "undo that, or start again with --overwrite"
        if difference.split(" ")[0] in ("finetuning.epochs", "finetuning.max_steps"):
            way_out += f"; recur finetune --init {path} starts a new run from it"
        raise UsageError(f"{path}: cannot be resumed: {difference}; {way_out}")


def parameters_in_words(result: Mapping[str, Any]) -> str:
    """Return the number of parameters that `recur predict` runs, from the content of result.json."""
    encoder, kept = result["parameters"]["total"], result.get("kept", {"name": "encoder"})["name"]
    if kept == "encoder":
        return f"{encoder:,}"
    linear = result["linear_baseline"]["parameters"]
    if kept == "linear model":
        return f"{linear:,} of the linear model"
    return f"{encoder + linear:,}: {encoder:,} of the encoder and {linear:,} of the linear model"


def training_facts(result: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield name and value of the number of parameters in result.json. With an encoder, its steps and time follow."""
    yield "parameters", parameters_in_words(result)
    if not result["steps"]:  # there is no encoder
        return
    of = f"{words_of(result.get('metric', ''))}{' of the encoder' if 'parts' in result else ''}"
    best = f"; best dev {of} at step {result['best_step']:,}" if "metric" in result else ""
    yield "steps", f"{result['steps']:,} ({result['epochs']} epochs{best})"
    yield "time", f"{result['seconds']:,.1f} s of training steps, {result['tokens_per_second']:,} tokens/s"


def beside(run: Path, ending: str) -> Path:
    """Return the path of the hidden file or folder beside `run` with this `ending`, the same for all names of one folder."""
    place = run.resolve()
    return place.parent / f".{place.name}{ending}"


def lock_of(run: Path) -> Path:
    """Return the path of the lock of `run`: beside it, or in it if nothing can be written beside it."""
    lock = beside(run, LOCK)
    return run / LOCK if run.is_dir() and not os.access(lock.parent, os.W_OK) else lock


def is_under_way(run: Path) -> bool:
    """Whether a process writes to `run` now. A lock that cannot be read is none."""
    with contextlib.suppress(OSError):  # it is another user's, or is deleted just now
        return is_locked(lock_of(run))
    return False


def is_being_replaced(run: Path) -> bool:
    """Whether `run` is missing because a new training takes its place now, or was killed while it did (`finish_change`)."""
    return not run.exists() and beside(run, OLD).is_dir()


def contents_of(folder: Path) -> list[Path]:
    """Return the paths of the files of a run, which no other output replaces, or none if `folder` is not a run."""
    runs = (folder, beside(folder, NEXT))
    return [run / name for run in runs if (run / PRESET).is_file() for name in CONTENTS]


def checkpoint_folders(folder: Path) -> list[Path]:
    """Return the checkpoint folders, sorted by step number, the newest first."""
    found: list[tuple[int, Path]] = []
    with contextlib.suppress(FileNotFoundError):  # another run takes the place of this one
        for path in folder.glob("step-*"):
            if match := _STEP.fullmatch(path.name):
                found.append((int(match[1]), path))
    return [path for _, path in sorted(found, reverse=True)]


def _is_leftover(name: str) -> bool:
    """Whether `name` is a temporary file of recur that a killed process left behind."""
    return name.endswith(".tmp") and name.startswith(tuple(f".{own}." for own in CONTENTS))


def _foreign(folder: Path) -> list[Path]:
    """Return the files and folders in `folder` that are not of a run, or nothing if it is missing."""
    entries = folder.iterdir() if folder.is_dir() else ()
    return [entry for entry in entries if entry.name not in (*CONTENTS, LOCK) and not _is_leftover(entry.name)]


def _is_run(folder: Path) -> bool:
    """Whether `folder` is a run: by its manifest, by a checkpoint, or by the comments that only recur writes into preset.yaml.

    A preset may have been copied with its comments, so no file that is not of a run may lie beside it then, and a model or a
    model card only where config.json is recur's.
    """
    with contextlib.suppress(ModelError):
        if read_manifest(folder).keys() >= set(REQUIRED_FILES):
            return True
    states = (path / "state.json" for path in checkpoint_folders(folder / CHECKPOINTS))
    if any(state.is_file() and state.with_name(MANIFEST).is_file() for state in states):
        return True
    header = _HEADER.match(read_limited(folder / PRESET, 1 << 24)[:120]) if (folder / PRESET).is_file() else None
    if not header or not header[2]:
        return False
    own = {PRESET, METRICS, CHECKPOINTS, TRACKS, LOCK}  # what may be there before a training has written a model
    with contextlib.suppress(ModelError, ValueError, KeyError, TypeError, RecursionError):
        if json.loads(read_limited(folder / "config.json", 1 << 20))["model_type"] == "recurcli":
            own = {*CONTENTS, LOCK}
    names = [entry.name for entry in folder.iterdir()]
    names += [entry.name for entry in (folder / CHECKPOINTS).glob("*") if not _CHECKPOINT.fullmatch(entry.name)]
    return all(name in own or _is_leftover(name) for name in names)


def finish_change(run: Path) -> None:
    """Undo a change of runs that was not finished, and put a finished new training in the place of `run`.

    The caller holds the lock of `run`. Files in it that are not of the run are moved to the new training first; the change
    itself is two renames, between which there is no run. A new training of a run that was deleted becomes the run. Raises
    ModelError if a file of the new training is damaged; the run then stays.
    """
    place, new, old = run.resolve(), beside(run, NEXT), beside(run, OLD)
    refuse_links(new, old)
    with storage_errors(run):
        if (old / PRESET).is_file() and not place.exists():
            old.rename(place)
        _delete(old)
        if (new / RESULT).is_file():
            CommittedFolder(new).verify((*REQUIRED_FILES, RESULT))
            for path in _foreign(place):
                path.rename(new / path.name)
            if place.exists():
                place.rename(old)
            new.rename(place)
            sync_directory(place.parent)
        elif (new / PRESET).is_file() and not place.exists():
            new.rename(place)
        _delete(old)


def _delete(folder: Path) -> None:
    """Delete the folder beside a run, first what makes it one. Raises UsageError if it has files that are not of a run."""
    if folder.is_file() or _foreign(folder):
        raise UsageError(f"{folder}: is a folder of recur, and holds other files; move them away")
    remove(folder / PRESET)
    remove(folder)


def _obstacle_to_moves(folder: Path) -> str | None:
    """Return why no file can be moved from `folder` to where it stands: it is a mount point, or that is not writable.

    Raises StorageError if nothing can be written to `folder`.
    """
    probe, moved = folder / f".{RESULT}.tmp", beside(folder, f".{RESULT}.tmp")
    with storage_errors(folder):
        probe.touch()
    try:
        probe.rename(moved)
        moved.unlink()
    except OSError as error:
        with contextlib.suppress(OSError):
            probe.unlink()
        return error.strerror
    return None


def held_in_words(files: Iterable[str]) -> str:
    """Return a sentence on what these `files` of a run, or of an export of it, hold of the texts of its training."""
    held = [f"{words} ({name})" for name, words in _HELD.items() if name in files]
    return f"Of the texts of the training this folder holds {', '.join(held) or 'nothing'}."


class RunReader:
    """Reads the files of a run, each as it is on the disk when it is read."""

    path: Path
    """The folder of the files."""

    @property
    def resumed(self) -> "Self | RunDirectory":
        """The run that --resume continues: a new training beside this one, if one was begun, else this one."""
        new = RunDirectory(beside(self.path, NEXT), replaces=self.path)
        return new if new.has(PRESET) else self

    def file(self, name: str) -> OpenedFile:
        """Return a file of the run. Raises ModelError if it is missing, or not the one that the manifest lists.

        A file that the manifest does not list is not verified.
        """
        folder = CommittedFolder(self.path) if (self.path / MANIFEST).is_file() else None
        return OpenedFile(self.path / name) if folder is None or name not in folder else folder[name]

    def has(self, name: str) -> bool:
        """Return whether there is a file `name`."""
        return (self.path / name).is_file()

    @property
    def is_finished(self) -> bool:
        """Whether the training has ended. An unfinished run may have a model too: the best one so far."""
        return self.has(RESULT)

    def read_preset(self) -> dict[str, Any]:
        """Return the values of preset.yaml. Raises ModelError if it is missing, damaged or of another format version.

        A pretrained run has a section `pretraining`. The manifest of a run that is not finished does not list the file.
        """
        content = self.file(PRESET).content[: MAX_BYTES + 1].tobytes()
        try:
            values = read_mapping(self.path / PRESET, content)[0]
        except UsageError as error:
            raise ModelError(str(error)) from None
        if self.read_command() == "pretrain" and not isinstance(values.get("pretraining"), dict):
            raise ModelError(f"{self.path / PRESET}: is damaged: has no section pretraining; train the run again")
        return values

    def read_command(self) -> str | None:
        """Return the command (pretrain or finetune) in the header of preset.yaml; None if it names none or there is no file.

        Raises ModelError for another format version.
        """
        if not (self.path / PRESET).is_file():
            return None
        header = _HEADER.match(self.file(PRESET).content[:120].tobytes())
        check_format(int(header[1]) if header else 1, self.path / PRESET)
        return header[2].decode() if header and header[2] else None

    def read_data_config(self) -> DataConfig:
        """Return the `data` section of preset.yaml. Raises ModelError if it is invalid."""
        try:
            return parse_config(DataConfig, self.read_preset().get("data") or {})
        except UsageError as error:
            raise ModelError(f"{self.path / PRESET}: data: {error}") from None

    def read_result(self) -> dict[str, Any]:
        """Return the content of result.json. Raises ModelError if it is damaged, or is not the file of the manifest."""
        file = self.file(RESULT)
        with naming_damage(file.path):
            result: dict[str, Any] = json.loads(file.read())
            check(result, _RESULT_FILE)
            if result["command"] == "finetune":
                with_parts = len(result["kept"]["alone"]) > 1
                check(result, SchemaValidator(_classifier_keys(TARGETS[result["target"]], with_parts=with_parts)))
            elif "metric" in result or "dev" in result:
                check(result, _LANGUAGE_MODEL)
        return result

    def read_thresholds(self) -> dict[str, Any] | None:
        """Return the thresholds of the labels; None: the run has none. Raises ModelError if they are damaged."""
        if not self.has(THRESHOLDS):
            return None
        file = self.file(THRESHOLDS)
        stored = read_json(file, _THRESHOLDS_FILE)
        if stored.pop("sha256") != _digest_of(stored):
            raise ModelError(f"{file.path}: is damaged (its sha256 is not that of its content)")
        return stored

    def read_metrics(self) -> list[dict[str, Any]]:
        """Return the lines of metrics.jsonl, without those that are incomplete; [] if there is no file.

        Raises ModelError for a line whose values are not numbers.
        """
        lines: list[dict[str, Any]] = []
        content = self.file(METRICS).read(MAX_METRICS) if self.has(METRICS) else b""
        for number, line in enumerate(content.split(b"\n"), 1):
            try:
                read = json.loads(line)
            except (ValueError, RecursionError):
                continue
            with naming_damage(f"{self.path / METRICS}:{number}"):
                check(read, _METRICS_LINE)
            lines.append(read)
        return lines

    def read_states(self) -> Iterator[dict[str, Any]]:
        """Yield the content of state.json of each checkpoint that has a readable one, the newest first."""
        for checkpoint in checkpoint_folders(self.path / CHECKPOINTS):
            try:
                stored = json.loads(CommittedFolder(checkpoint)["state.json"].read(limit=1 << 22))
                check(stored, _STATE)
            except (OSError, ModelError, ValueError, RecursionError):
                continue  # a resume takes the one before, too
            yield stored

    def note_if_unfinished(self, log: Log) -> None:
        """Warn if the training has not ended, or if a new training has begun that is to replace the run."""
        latest, whose, rest = self.resumed, "its training", ""
        if latest.is_finished:
            return
        if latest is not self:
            whose, rest = "a new training of it", "; this is the run before it"
        state, way_out = "is not finished", "; --resume continues it"
        if is_under_way(self.path):
            state, way_out = "is under way", ""
        step = next((path.name for path in checkpoint_folders(latest.path / CHECKPOINTS)), "none")
        log.warn(f"{self.path}: {whose} {state} (newest checkpoint: {step}){rest}{way_out}")


class Run(CommittedFolder, RunReader):
    """A run whose files are opened once: those of one training, whatever replaces them since."""

    def __init__(self, run: Path) -> None:
        super().__init__(run)
        self.listed.pop(MODEL_CARD, None)  # of a copy, whose card may be edited, as on the Hub
        for name in (METRICS, THRESHOLDS):  # which the manifest does not list
            if (self.path / name).is_file():
                self._opened[name] = OpenedFile(self.path / name)

    def __getitem__(self, name: str) -> OpenedFile:
        if name in LEFT_BEHIND and name not in self:
            way_out = "name a FILE, or the run that was copied"
            raise ModelError(f"{self}: keeps no predictions (it is a copy without texts); {way_out}")
        return super().__getitem__(name)

    def has(self, name: str) -> bool:
        """Return whether the file `name` was there when the run was opened."""
        return self.is_open(name)

    def file(self, name: str) -> OpenedFile:
        """Return a file of the run, as RunReader does."""
        return self[name] if name in self or self.has(name) else OpenedFile(self.path / name)


def open_run(run: Path, required: Iterable[str] = REQUIRED_FILES) -> Run:
    """Open and verify all files of a run that its manifest lists, which must include the `required` ones.

    They are files of one training: if another replaces the run meanwhile, they are opened again. Raises ModelError if one is
    missing or damaged, StorageError if a change of runs does not end.
    """
    until = time.monotonic() + PATIENCE
    while True:
        manifest = _manifest(run)
        try:
            if not run.is_dir():
                raise ModelError(f"{run}: is not a run directory" + ("" if run.exists() else " (it does not exist)"))
            if (run / PRESET).is_file() and not (run / MANIFEST).is_file():
                way_out = "continue its training with the same command and --resume"
                raise ModelError(f"{run}: has no complete model yet; {way_out}")
            return Run(run).verify(required, may_miss=RESULT)  # an unfinished run has no result yet
        except ModelError:
            if is_being_replaced(run):
                if time.monotonic() > until:
                    way_out = "try again, or finish the change by the command of the training and --resume"
                    raise StorageError(f"{run}: is being replaced by a new training; {way_out}") from None
                time.sleep(PATIENCE / 50)
            elif manifest == _manifest(run):
                raise


def reopen_run(run: Path, sha256: str) -> Run:
    """Open a run again whose manifest had the hash `sha256`. Raises StorageError if a new training has replaced it since."""
    opened = Run(run)
    if not opened.sha256 == Run(run).sha256 == sha256:  # asked twice, since the metrics are opened between the two
        raise StorageError(f"{run}: a new training has replaced it meanwhile; run the same command again")
    return opened


def _manifest(run: Path) -> bytes | None:
    """Return the manifest of `run`; None: it has none that can be read."""
    try:
        return read_limited(run / MANIFEST, MAX_MANIFEST)
    except (ModelError, OSError):
        return None


class RunDirectory(RunReader):
    """Locks and writes the run directory `path`, which is a new training of the run that it `replaces` if one is given."""

    def __init__(self, path: Path, replaces: Path | None = None) -> None:
        self.path = path
        self.replaces = replaces
        self.metrics = path / METRICS
        self.checkpoints = path / CHECKPOINTS

    @property
    def way_on(self) -> str:
        """How to continue a training that has stopped, for a message."""
        if self.replaces is None:
            return "continue with the same command and --resume"
        if self.has(PRESET):
            return "continue with the same command and --resume in place of --overwrite"
        return "run the same command again"

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the folder within the block. Creates a missing folder, and removes it again if it is still empty.

        What a killed process has left is completed or deleted (`finish_change`). Raises StorageError without waiting if another
        process holds the lock, or if the folder is not writable; UsageError for a folder whose name is not UTF-8.
        """
        check_utf8(self.path)
        created, lock = not self.path.exists(), lock_of(self.path)
        if os.path.lexists(self.path) and not self.path.is_dir() and not is_being_replaced(self.path):
            raise UsageError(f"{self.path}: is a file, not a folder; choose another --output")
        with storage_errors(self.path):
            lock.parent.mkdir(parents=True, exist_ok=True)
        with locked(lock, busy=f"{self.path}: another recur is at work here (it holds {lock})"):
            try:
                finish_change(self.path)
                with storage_errors(self.path):
                    self.path.mkdir(exist_ok=True)
                for entry in [*self.path.iterdir(), *beside(self.path, NEXT).glob("*")]:
                    if _is_leftover(entry.name):
                        remove(entry)
                yield
            finally:
                # Still locked, so no other process writes here. A later process creates both again.
                if created:
                    with contextlib.suppress(OSError):
                        self.path.rmdir()
                lock.unlink(missing_ok=True)

    def check_output(self, command: str, *, resume: bool, overwrite: bool) -> tuple["RunDirectory", RunStatus]:
        """Return the run that a training of `command` with these options writes, and its status.

        It is the one here if there is none yet; with `overwrite` a new one beside it; for a resume the `resumed` one.

        Raises UsageError if the folder has files but no run or is one beside a run, if it has a run and neither option is
        given, if a new run cannot take its place, or for a resume of another command's run; ModelError for a resume of a run
        in another format version.
        """
        if self.path.resolve().name.startswith(".") and self.path.resolve().suffix in (NEXT, OLD):
            raise UsageError(f"{self.path}: is the folder of a new training of another run; choose another --output")
        run = self.resumed
        entries = [entry.name for entry in self.path.iterdir()] if self.path.is_dir() else []
        if run is self and all(name == LOCK or _is_leftover(name) for name in entries):
            return self, "new"
        if run is self and not _is_run(self.path):
            raise UsageError(f"{self.path}: is not empty and is not a run directory; choose another --output")
        if overwrite or run is not self:
            self._check_replaceable()
        if overwrite:
            return RunDirectory(beside(self.path, NEXT), replaces=self.path), "new"
        if not resume:
            raise UsageError(
                f"{self.path}: already has a run; continue it with --resume, or replace it with --overwrite"
            )
        if (other := run.read_command()) not in (None, command):
            raise UsageError(f"{self.path}: is a run of recur {other}, not of {command}")
        return run, "finished" if run.is_finished else "unfinished"

    def _check_replaceable(self) -> None:
        """Raise UsageError if a new run cannot take the place of the folder by a rename."""
        place, reason = self.path.resolve(), None
        if self.path.is_symlink():
            reason = f"it is a symbolic link to {place}"
        elif place.is_dir() and place.samefile("."):
            reason = "it is the current directory"
        elif place.is_dir() and (obstacle := _obstacle_to_moves(place)):
            reason = f"nothing can be moved from it to {place.parent} ({obstacle})"
        if reason is not None:
            raise UsageError(
                f"{self.path}: cannot be replaced, since {reason}; train to another folder: --output OTHER"
            )

    def start(self) -> None:
        """Make the folder of a new training that `replaces` another run. What an earlier one has left there is deleted."""
        if self.replaces is not None:
            _delete(self.path)
            with storage_errors(self.path):
                self.checkpoints.mkdir(parents=True)
                sync_directory(self.path.parent)

    def remove_checkpoints(self) -> None:
        """Delete the folder of checkpoints."""
        remove(self.checkpoints)

    def write_preset(self, values: Mapping[str, Any], command: str) -> None:
        """Write preset.yaml, which marks the folder as a run. Comments on top give the format version and the command."""
        write_atomically(
            self.path / PRESET, f"# format_version: {FORMAT_VERSION}\n# command: {command}\n{dump(values)}"
        )

    def write_thresholds(self, thresholds: Mapping[str, Any]) -> None:
        """Write thresholds.json with the sha256 of its other keys, since no manifest lists it."""
        content = {**thresholds, "sha256": _digest_of(thresholds)}
        write_atomically(self.path / THRESHOLDS, to_json(content))

    def write_result(self, result: Mapping[str, Any], card: str) -> None:
        """Write the model card, then result.json, which marks the run as finished.

        The manifest lists it and preset.yaml before, so that no finished run has a result that cannot be verified.
        """
        write_atomically(self.path / MODEL_CARD, card)
        content = to_json(result).encode()
        extend_manifest(self.path, PRESET, coming={RESULT: content})
        write_atomically(self.path / RESULT, content)

    def cut_metrics(self, last_step: int) -> None:
        """Delete the lines of metrics.jsonl after `last_step`, which a resume writes again, and incomplete lines."""
        if not self.metrics.is_file():
            self.metrics.unlink(missing_ok=True)  # a dangling symbolic link
            return
        kept = []
        for line in self.metrics.read_bytes().split(b"\n"):
            try:
                if json.loads(line)["step"] <= last_step:
                    kept.append(line + b"\n")
            except (ValueError, KeyError, TypeError, RecursionError):
                continue
        write_atomically(self.metrics, b"".join(kept))

    def append_metrics(self, line: Mapping[str, Any]) -> None:
        """Append one line to metrics.jsonl and fsync it, so that a later checkpoint can rely on it."""
        # No link is followed, and no pipe is waited for.
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with storage_errors(self.metrics), open(os.open(self.metrics, flags, 0o666), "a", encoding="utf-8") as file:  # noqa: PTH123
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
            file.flush()
            os.fsync(file.fileno())
