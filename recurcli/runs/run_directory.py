"""The run directory: file names, the shapes of its JSON files, lock, preset.yaml, result.json and metrics.jsonl.

It is importable without torch. `runs/model_files.py` reads and writes the model and its predictions;
`training/session.py` does so for checkpoints.

A shape of a JSON file has the keys that commands read, with the kinds of their values. It is a function that says whether a
value fits, a mapping of keys to shapes, or a shape in a tuple for a value that may be null. A key with ? may be missing, and *
stands for all other keys.
"""

import contextlib
import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

from recurcli.data.config import DataConfig
from recurcli.encoders.config import LINEAR
from recurcli.errors import ModelError, StorageError, UsageError
from recurcli.files import (
    MANIFEST,
    CommittedFolder,
    OpenedFile,
    check_utf8,
    extend_manifest,
    is_locked,
    locked,
    naming_damage,
    open_no_follow,
    read_limited,
    read_manifest,
    refuse_links,
    remove,
    sync_directory,
    to_json,
    write_atomically,
    writing,
)
from recurcli.log import Log
from recurcli.model.config import FORMAT_VERSION, check_format
from recurcli.validation import MAX_BYTES, dump, parse_config, read_mapping

LARGEST = 1e18
"""The largest number that is read, except for a perplexity or a loss, which may be any finite number."""


def is_number(value: Any) -> bool:
    """Return whether `value` is a finite number of a size that can be computed with, and no bool."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def is_count(value: Any) -> bool:
    """Return whether `value` is a whole number from 0."""
    return _is_whole(value) and value >= 0


def _is_whole(value: Any) -> bool:
    return is_number(value) and isinstance(value, int)


def is_text(value: Any) -> bool:
    """Return whether `value` is a string."""
    return isinstance(value, str)


def _is_size(value: Any) -> bool:
    return is_count(value) and value > 0


def _is_fact(value: Any) -> bool:
    return value is None or isinstance(value, str | bool) or is_number(value)


def _is_training(value: Any) -> bool:
    return value in ("finetune", "pretrain")


def _is_score(value: Any) -> bool:
    return value is None or isinstance(value, list | dict) or _is_finite(value)


def _is_shares(value: Any) -> bool:
    return isinstance(value, dict) and bool(value) and all(map(is_number, value.values()))


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(is_text, value))


def _is_numbers(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_finite, value))


def _is_anything(value: Any) -> bool:
    return True


SCORES = {
    **dict.fromkeys(("accuracy", "macro_precision", "macro_recall", "macro_f1", "mcc"), is_number),
    "*": _is_score,
}
"""The shape of the metrics of a classifier. Tables by class have other names."""
_LINEAR = {"ngrams": is_count, "refit_rows?": is_count, "dev": {"*": _is_score}}
_PARTS = {"encoder": SCORES, "linear": SCORES}
_CALIBRATION = {"ece": is_number, "temperature": is_number}
_ENSEMBLE = {
    "encoder_weight": is_number,
    "linear_weight": is_number,
    "linear_alone_weight": is_number,
    "rows": is_count,
}
_STOPPED = {"metric": is_text, "best": (_is_finite,), "evaluations": is_count, "steps": is_count}
_MATCHED = {
    "keys": {"*": is_number},
    "parameters": is_count,
    "target": _is_size,
    "question": {"asked": _is_fact, "other": _is_anything},
}
RESULT_SHAPE: Mapping[str, Any] = {
    "command": _is_training,
    "seed": _is_whole,
    **dict.fromkeys(("preset", "task", "encoder"), is_text),
    **dict.fromkeys(("steps", "best_step", "tokens", "tokens_per_second"), is_count),
    **dict.fromkeys(("seconds", "cpu_seconds", "epochs"), is_number),
    "parameters": {"total": is_count, "embedding": is_count},
    "data": {"*": {"path": (is_text,), "rows": is_count, "sha256": is_text}},
    "machine": {"device": is_text, "precision": is_text, "*": _is_fact},
    "metric?": is_text,
    "dev?": {"loss?": (_is_finite,), "perplexity?": _is_finite, "tokens?": is_count},
    "test?": {**SCORES, "baselines": {"*": is_number}, "calibration": _CALIBRATION, "parts?": _PARTS},
    "baselines?": {"*": is_number},
    "parts?": _PARTS,
    "ensemble?": _ENSEMBLE,
    "linear_baseline?": _LINEAR,
    "early_stopping?": (_STOPPED,),
    "match_parameters?": (_MATCHED,),
    "forward_flops_per_token?": (is_count,),
    "init?": (is_text,),
}
SCORED_SHAPES: Mapping[str, Any] = {
    "finetune": {
        "metric": is_text,
        "dev": {"names": _is_texts, **SCORES},
        "baselines": {"*": is_number},
        "calibration": _CALIBRATION,
    },
    "pretrain": {"metric": is_text, "dev": {"perplexity": _is_finite, "loss": _is_finite, "tokens": is_count}},
}
"""By command the further shape of a result whose model was selected by a dev metric."""
ENSEMBLE_SHAPE: Mapping[str, Any] = {"parts": _PARTS, "linear_baseline": _LINEAR}
"""The further shape of a result with an ensemble."""
WITHOUT_ENCODER: Mapping[str, Any] = {"ensemble": _ENSEMBLE, "linear_baseline": _LINEAR}
"""The further shape of a result without an encoder."""
METRICS_SHAPE: Mapping[str, Any] = {"step": is_count, "*": (_is_finite,)}
"""The shape of a line of metrics.jsonl."""
STATE_SHAPE: Mapping[str, Any] = {
    "state": {"step": is_count},
    "resume_key": {"steps": is_count, "train sha256?": is_text, "dev sha256?": is_text},
}
"""The shape of state.json of a checkpoint for a reader that does not resume from it."""
ROW_SHAPE: Mapping[str, Any] = dict.fromkeys(("id", "label", "prediction"), is_text)
TEXT_SHAPE: Mapping[str, Any] = {"label": is_text, "text": is_text, "pair?": (is_text,)}
SHARES_SHAPE: Mapping[str, Any] = {
    "probabilities": _is_shares,
    **dict.fromkeys(("encoder_probabilities?", "linear_probabilities?"), _is_shares),
}
"""With the two before: what is read of a line of predictions."""
TEXT_LOSSES_SHAPE: Mapping[str, Any] = {"nats": _is_numbers, "tokens": _is_numbers}
CLASSES_SHAPE: Mapping[str, Any] = {"id2label": {"*": is_text}}
"""The shape of config.json for a reader of its classes alone."""


def find_fault(value: Any, shape: Any, key: str = "") -> str | None:
    """Return a sentence on why the `value` of `key` does not have the `shape`, or None if it has."""
    if isinstance(shape, tuple):
        return None if value is None else find_fault(value, shape[0], key)
    if not isinstance(shape, Mapping):
        return None if shape(value) else f"{key} is {value!r:.60}"
    if not isinstance(value, dict):
        return f"{key or 'its content'} is no mapping"
    for name, inner in shape.items():
        if name[-1] not in "?*" and callable(inner) and name in value and inner(value[name]):
            continue  # most keys of many rows: no words are made for them
        bare = name.removesuffix("?")
        keys = [bare] if bare in value else []
        if name == "*":
            known = {other.removesuffix("?") for other in shape}
            keys = [other for other in value if other not in known]
        if name == bare != "*" and not keys:
            return f"{key and f'{key}.'}{bare} is missing"
        for own in keys:
            if fault := find_fault(value[own], inner, f"{key and f'{key}.'}{own}"):
                return fault
    return None


def check_shape(value: Any, shape: Any) -> None:
    """Raise ValueError with what keeps `value` from having the `shape`."""
    if fault := find_fault(value, shape):
        raise ValueError(fault)


PRESET, METRICS, RESULT = "preset.yaml", "metrics.jsonl", "result.json"
MODEL_CARD, CHECKPOINTS = "README.md", "checkpoints"
MODEL_FILES = ("config.json", "model.safetensors", "tokenizer.json")
PREDICTIONS = "predictions.dev.jsonl"
TEST_PREDICTIONS = "predictions.test.jsonl"
TEXT_LOSSES = "losses.dev.json"
"""The losses of a language model on the blocks of its dev text."""
LINEAR_MODEL = "linear.safetensors"
"""The linear model on n-grams of the training rows, if the run has one."""
LINEAR_FIRST_FIT = "linear.first-fit.safetensors"
"""The linear model on the training rows alone, which scores the dev rows, if LINEAR_MODEL was fitted again on these too."""
ENSEMBLE = "ensemble.json"
"""The weights of encoder and linear model, if their logits are joined."""
KNOWN_ROWS = "training_rows.safetensors"
"""Hashes of the rows that the model was trained on and selected on."""
CALIBRATION = "calibration.json"
"""The temperature of the probabilities. A run with an ensemble has none, because the ensemble's weights are fitted instead."""
CONTENTS = (
    PRESET,
    *MODEL_FILES,
    LINEAR_MODEL,
    LINEAR_FIRST_FIT,
    KNOWN_ROWS,
    ENSEMBLE,
    CALIBRATION,
    MANIFEST,
    METRICS,
    PREDICTIONS,
    TEST_PREDICTIONS,
    TEXT_LOSSES,
    RESULT,
    MODEL_CARD,
    CHECKPOINTS,
)
"""All files that a run writes, except its lock."""
LOCK = ".lock"
MAX_MANIFEST, MAX_METRICS = 1 << 20, 1 << 28
"""The largest manifest and metrics file that are read, in bytes."""
NEXT = ".next"
"""The folder of a new training in the folder of a run, which it replaces when it is finished (`RunDirectory.settle`)."""
_BEFORE_MODEL = {PRESET, METRICS, CHECKPOINTS, LOCK, NEXT}
"""The files that may be there before a training has written a model."""
RunStatus = Literal["new", "unfinished", "finished"]
"""new: train from the beginning; unfinished: resume; finished: nothing to do."""
_STEP = re.compile(r"step-(\d{8,12})")
_CHECKPOINT = re.compile(rf"{_STEP.pattern}|\.{_STEP.pattern}\.\w+\.(tmp|old)")
"""A checkpoint, or what a killed process left of one (`commit_directory`)."""
_HEADER = re.compile(rb"# format_version: (\d{1,9})\n(?:# command: ([a-z]{1,20})\n)?")


def contents_of(folder: Path) -> list[Path]:
    """Return the paths of the files of a run, which no other output replaces, or none if `folder` is not a run."""
    return [run / name for run in (folder, folder / NEXT) if (run / PRESET).is_file() for name in CONTENTS]


def checkpoint_folders(folder: Path) -> list[Path]:
    """Return the checkpoint folders, sorted by step number, the newest first."""
    paths: list[Path] = []
    with contextlib.suppress(FileNotFoundError):  # another run takes the place of this one
        paths += folder.glob("step-*")
    found = [(int(match[1]), path) for path in paths if (match := _STEP.fullmatch(path.name))]
    return [path for _, path in sorted(found, reverse=True)]


def _is_leftover(name: str) -> bool:
    """Whether `name` is a temporary file of recur that a killed process left behind."""
    return name.endswith(".tmp") and name.startswith(tuple(f".{own.lstrip('.')}." for own in (*CONTENTS, NEXT)))


def current_folder(run: Path) -> Path:
    """Return the folder that holds the files of `run`: NEXT in it while a finished training takes its place, else `run`."""
    return run / NEXT if (run / NEXT / RESULT).is_file() else run


def run_of(folder: Path) -> Path:
    """Return the run whose files are in `folder`, which `current_folder` returned."""
    return folder.parent if folder.name == NEXT else folder


def open_run(run: Path, required: Iterable[str] = MODEL_FILES) -> CommittedFolder:
    """Open and verify all files of a run that its manifest lists, which must include the `required` ones.

    They are files of one training: if another replaces the run meanwhile, they are opened again. Raises ModelError if one is
    missing or damaged.
    """
    if not run.is_dir():
        raise ModelError(f"{run}: is not a run directory" + ("" if run.exists() else " (it does not exist)"))
    while True:
        state = _state(run)
        try:
            if not (state[0] / MANIFEST).is_file() and (state[0] / PRESET).is_file():
                way_out = "continue its training with the same command and --resume"
                raise ModelError(f"{run}: has no complete model yet; {way_out}")
            # an unfinished run has no result yet
            folder = CommittedFolder(state[0]).verify(required, may_miss=RESULT)
            folder.open_unlisted(METRICS)
        except ModelError:
            if state == _state(run):
                raise
        else:
            if state == _state(run):
                return folder


def reopen_run(run: Path, sha256: str) -> CommittedFolder:
    """Open a run again whose manifest had the hash `sha256`. Raises StorageError if a new training has replaced it since."""
    folder = CommittedFolder(current_folder(run))
    folder.open_unlisted(METRICS)
    if {folder.sha256, hashlib.sha256(_state(run)[1] or b"").hexdigest()} != {sha256}:
        raise StorageError(f"{run}: a new training has replaced it meanwhile; run the same command again")
    return folder


def _state(run: Path) -> tuple[Path, bytes | None]:
    """Return the current folder of `run`, and its manifest; None: it has none."""
    folder = current_folder(run)
    try:
        return folder, read_limited(folder / MANIFEST, MAX_MANIFEST)
    except (ModelError, OSError):
        return folder, None


def _is_run(folder: Path) -> bool:
    """Whether `folder` is a run: by its manifest, by a checkpoint, or by the comments that only recur writes into preset.yaml.

    A preset may have been copied with its comments, so no file that is not of a run may lie beside it then, and a model or a
    model card only where config.json is recur's.
    """
    with contextlib.suppress(ModelError):
        if read_manifest(folder).keys() >= set(MODEL_FILES):
            return True
    states = (path / "state.json" for path in checkpoint_folders(folder / CHECKPOINTS))
    if any(state.is_file() and state.with_name(MANIFEST).is_file() for state in states):
        return True
    header = _HEADER.match(read_limited(folder / PRESET, 1 << 24)[:120]) if (folder / PRESET).is_file() else None
    if not header or not header[2]:
        return False
    own = _BEFORE_MODEL
    with contextlib.suppress(ModelError, ValueError, KeyError, TypeError, RecursionError):
        if json.loads(read_limited(folder / "config.json", 1 << 20))["model_type"] == "recurcli":
            own = {*CONTENTS, LOCK, NEXT}
    names = [entry.name for entry in folder.iterdir()]
    names += [entry.name for entry in (folder / CHECKPOINTS).glob("*") if not _CHECKPOINT.fullmatch(entry.name)]
    return all(name in own or _is_leftover(name) for name in names)


def _delete_folder(folder: Path) -> None:
    """Delete a folder. It is renamed first, in one step; `RunDirectory.lock` deletes what a kill leaves of it."""
    if os.path.lexists(folder):
        with writing(folder):
            aside = folder.with_name(f".{folder.name.lstrip('.')}.{os.getpid()}.tmp")
            folder.rename(aside)
            sync_directory(folder.parent)
        remove(aside)


def _link(source: Path, target: Path) -> None:
    """Make the file `target` a hard link of `source`, or a copy where the disk has no links."""
    target.unlink()
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


class RunDirectory:
    """The run directory at `run`. Of a folder that was opened, the files are read that its manifest listed then."""

    def __init__(self, run: Path | CommittedFolder) -> None:
        self._opened = None if isinstance(run, Path) else run
        self.path = path = run if isinstance(run, Path) else run.path
        self.preset = path / PRESET
        self.metrics = path / METRICS
        self.result = path / RESULT
        self.checkpoints = path / CHECKPOINTS

    @property
    def resumed(self) -> "RunDirectory":
        """The run that --resume continues: a new training in NEXT, if one was begun, else this one."""
        new = RunDirectory(self.path / NEXT)
        return new if new.preset.is_file() else self

    @property
    def way_on(self) -> str:
        """How to continue a training that has stopped, for a message."""
        if self.path.name != NEXT:
            return "continue with the same command and --resume"
        if self.preset.is_file():
            return "continue with the same command and --resume in place of --overwrite"
        return "run the same command again"

    @property
    def is_finished(self) -> bool:
        """Whether the training has ended. An unfinished run may have a model too: the best one so far."""
        return self.result.is_file() if self._opened is None else self._opened.has(RESULT)

    @property
    def has_model(self) -> bool:
        """Whether a model is complete in the folder, whether or not the training has ended."""
        return (self.path / MANIFEST).is_file()

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the folder within the block. Creates a missing folder, and removes it again if it is still empty.

        Temporary files of a killed process are deleted, and a change of runs that it began is completed (`settle`). Raises
        StorageError without waiting if another process holds the lock, or if the folder is not writable; UsageError for a
        folder whose name is not UTF-8.
        """
        check_utf8(self.path)
        created = not self.path.exists()
        if os.path.lexists(self.path) and not self.path.is_dir():
            raise UsageError(f"{self.path}: is a file, not a folder; choose another --output")
        with writing(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        with locked(self.path / LOCK):
            for entry in list(self.path.iterdir()):
                if _is_leftover(entry.name):
                    remove(entry)
            self.settle()
            try:
                yield
            finally:
                # Still locked, so no other process writes here. A later process creates the folder again.
                if created and [entry.name for entry in self.path.iterdir()] == [LOCK]:
                    (self.path / LOCK).unlink()
                    with contextlib.suppress(OSError):
                        self.path.rmdir()

    def note_if_unfinished(self, log: Log) -> None:
        """Warn if the training has not ended, or if a new training has begun that is to replace the run.

        With an ensemble the model of an unfinished run is the linear model alone.
        """
        latest, whose, rest = self.resumed, "its training", ""
        if latest.is_finished:
            return
        if latest is not self:
            whose, rest = "a new training of it", "; this is the run before it"
        if not self.is_finished:
            has_ensemble = self.read_command() == "finetune" and self.read_preset().get("ensemble")
            missing = "; its ensemble is not joined yet" if has_ensemble else ""
            if self._opened is not None and ENSEMBLE in self._opened:
                with naming_damage(self.path / ENSEMBLE):
                    weights = json.loads(self._opened[ENSEMBLE].read(limit=1 << 16))
                    missing = "" if weights["encoder_weight"] else "; the linear model alone labels"
            rest += missing
        state, way_out = "is not finished", "; --resume continues it"
        if (self.path / LOCK).is_file() and is_locked(self.path / LOCK):
            state, way_out = "is under way", ""
        step = next((path.name for path in checkpoint_folders(latest.checkpoints)), "none")
        log.warn(f"{self.path}: {whose} {state} (newest checkpoint: {step}){rest}{way_out}")

    def check_output(self, command: str, *, resume: bool, overwrite: bool) -> tuple["RunDirectory", RunStatus]:
        """Return the run that a training of `command` with these options writes, and its status.

        It is the one here if there is none yet; with `overwrite` a new one in NEXT; for a resume the `resumed` one.

        Raises UsageError if the folder has files but no run or is NEXT of one, if it has a run and neither option is given, or
        for a resume of another command's run; ModelError for a resume of a run in another format version.
        """
        if self.path.resolve().name == NEXT:
            raise UsageError(f"{self.path}: is the folder of a new training of another run; choose another --output")
        entries = [entry.name for entry in self.path.iterdir()] if self.path.is_dir() else []
        if all(name == LOCK or _is_leftover(name) for name in entries):
            return self, "new"
        if not _is_run(self.path) and not _is_run(self.path / NEXT):
            raise UsageError(f"{self.path}: is not empty and is not a run directory; choose another --output")
        run, new = self.resumed, self.path / NEXT
        refuse_links(new)
        own = {*CONTENTS, LOCK}
        if new.is_file() or any(entry.name not in own and not _is_leftover(entry.name) for entry in new.glob("*")):
            raise UsageError(f"{new}: a new training is written there, and it holds other files; move them away")
        if overwrite:
            return RunDirectory(new), "new"
        fault: ModelError | UsageError | None = None
        try:
            other = run.read_command()
            if other not in (None, command):
                fault = UsageError(f"{self.path}: is a run of recur {other}, not of {command}")
        except ModelError as error:
            fault = error
        if not resume:
            way_out = "choose another --output" if fault else "continue it with --resume"
            raise UsageError(f"{self.path}: already has a run; {way_out}, or replace it with --overwrite")
        if fault:
            raise fault
        return run, "finished" if run.is_finished else "unfinished"

    def start(self) -> None:
        """Make the folder of a new training, if it is NEXT. What an earlier one has left there is deleted, in one step."""
        if self.path.name == NEXT:
            _delete_folder(self.path)
            with writing(self.path):
                self.checkpoints.mkdir(parents=True)
                sync_directory(self.path.parent)

    def settle(self) -> None:
        """Put a finished run in NEXT in the place of the run here; foreign files stay.

        Each file becomes a link to that of NEXT. Readers take NEXT for the run (`current_folder`) from the moment when it has
        a result until it is renamed, which is when all files are here. So a kill at any time leaves one whole run, and a
        second call completes the first.
        """
        new = RunDirectory(self.path / NEXT)
        if not new.is_finished:
            return
        CommittedFolder(new.path).verify((*MODEL_FILES, RESULT))  # else the run here stays
        if new.checkpoints.is_dir():  # `start` made it; a second call may find it moved
            self.remove_checkpoints()
            with writing(self.checkpoints):
                new.checkpoints.rename(self.checkpoints)
        for source in (new.path / name for name in CONTENTS if name != CHECKPOINTS):
            target = self.path / source.name
            if target.is_dir() or not source.is_file():
                remove(target)
            if source.is_file() and not (target.exists() and target.samefile(source)):
                write_atomically(target, partial(_link, source))
        with writing(self.path):
            sync_directory(self.path)
        _delete_folder(new.path)

    def remove_checkpoints(self) -> None:
        """Delete the folder of checkpoints."""
        _delete_folder(self.checkpoints)

    def write_preset(self, values: Mapping[str, Any], command: str) -> None:
        """Write preset.yaml, which marks the folder as a run. Comments on top give the format version and the command."""
        write_atomically(self.preset, f"# format_version: {FORMAT_VERSION}\n# command: {command}\n{dump(values)}")

    def read_preset(self) -> dict[str, Any]:
        """Return the values of preset.yaml. Raises ModelError if it is missing, damaged or of another format version.

        The manifest of a run that is not finished does not list it.
        """
        content = self._listed_or_not(PRESET).content[: MAX_BYTES + 1].tobytes()
        try:
            values = read_mapping(self.preset, content)[0]
        except UsageError as error:
            raise ModelError(str(error)) from None
        self._command_in(content)
        return values

    def read_command(self) -> str | None:
        """Return the command (pretrain or finetune) in the header of preset.yaml; None if it names none or there is no file.

        Raises ModelError for another format version.
        """
        if not self.preset.is_file():
            return None
        return self._command_in(self._listed_or_not(PRESET).content[:120].tobytes())

    def _command_in(self, preset: bytes) -> str | None:
        header = _HEADER.match(preset)
        check_format(int(header[1]) if header else 1, self.preset)
        return header[2].decode() if header and header[2] else None

    def read_data_config(self) -> DataConfig:
        """Return the `data` section of preset.yaml. Raises ModelError if it is invalid."""
        try:
            return parse_config(DataConfig, self.read_preset().get("data") or {})
        except UsageError as error:
            raise ModelError(f"{self.preset}: data: {error}") from None

    def read_result(self) -> dict[str, Any]:
        """Return the content of result.json. Raises ModelError if it is damaged, or is not the file of the manifest."""
        content = self._listed_or_not(RESULT).read()
        with naming_damage(self.result):
            result = json.loads(content)
            check_shape(result, RESULT_SHAPE)
            if result["command"] == "finetune" or "metric" in result:
                check_shape(result, SCORED_SHAPES[result["command"]])
            if result["encoder"] == LINEAR:
                check_shape(result, WITHOUT_ENCODER)
            elif "ensemble" in result:
                check_shape(result, ENSEMBLE_SHAPE)
        return result

    def write_result(self, result: Mapping[str, Any], card: str) -> None:
        """Write the model card, then result.json, which marks the run as finished.

        The manifest lists it and preset.yaml before, so that no finished run has a result that cannot be verified.
        """
        write_atomically(self.path / MODEL_CARD, card)
        content = to_json(result).encode()
        extend_manifest(self.path, PRESET, coming={RESULT: content})
        write_atomically(self.result, content)

    def _listed_or_not(self, name: str) -> OpenedFile:
        """Return the file `name`. Raises ModelError if it is missing, or the manifest lists it with other facts."""
        folder = self._opened
        if folder is None and self.has_model:
            folder = CommittedFolder(self.path)
        return folder[name] if folder is not None and name in folder else OpenedFile(self.path / name)

    def read_states(self) -> Iterator[dict[str, Any]]:
        """Yield the content of state.json of each checkpoint that has a readable one, the newest first."""
        for checkpoint in checkpoint_folders(self.checkpoints):
            try:
                stored = json.loads(CommittedFolder(checkpoint)["state.json"].read(limit=1 << 22))
            except (OSError, ModelError, ValueError, RecursionError):
                continue  # a resume takes the one before, too
            if find_fault(stored, STATE_SHAPE) is None:
                yield stored

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

    def read_metrics(self) -> list[dict[str, Any]]:
        """Return the lines of metrics.jsonl, without those that are incomplete; [] if there is no file.

        Raises ModelError for a line whose values are no numbers.
        """
        if self._opened is None:
            content = read_limited(self.metrics, MAX_METRICS) if self.metrics.is_file() else b""
        else:
            content = self._opened[METRICS].read(MAX_METRICS) if self._opened.has(METRICS) else b""
        lines: list[dict[str, Any]] = []
        for number, line in enumerate(content.split(b"\n"), 1):
            try:
                read = json.loads(line)
            except (ValueError, RecursionError):
                continue
            with naming_damage(f"{self.metrics}:{number}"):
                check_shape(read, METRICS_SHAPE)
            lines.append(read)
        return lines

    def append_metrics(self, line: Mapping[str, Any]) -> None:
        """Append one line to metrics.jsonl and fsync it, so that a later checkpoint can rely on it."""
        with writing(self.metrics), open_no_follow(self.metrics) as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
            file.flush()
            os.fsync(file.fileno())
