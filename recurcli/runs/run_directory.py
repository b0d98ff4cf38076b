"""The run directory: file names, the shapes of its JSON files, lock, preset.yaml, result.json and metrics.jsonl.

It is importable without torch. `runs/model_files.py` reads and writes the model and its predictions;
`training/session.py` does so for checkpoints.

A shape of a JSON file has the keys that commands read, with the kinds of their values. It is a function that says whether a
value fits, a mapping of keys to shapes, or a shape in a tuple for a value that may be null. A key with ? may be missing, and *
stands for all other keys.
"""

import contextlib
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from recurcli.data.config import DataConfig
from recurcli.encoders.config import LINEAR
from recurcli.errors import ModelError, UsageError
from recurcli.events import Note
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
    remove,
    sync_directory,
    to_json,
    write_atomically,
    writing,
)
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
    "must_match": {"steps": is_count, "train sha256?": is_text, "dev sha256?": is_text},
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
RunStatus = Literal["new", "unfinished", "finished"]
"""new: train from the beginning and replace an older run, if there is one; unfinished: resume; finished: nothing to do."""
_STEP = re.compile(r"step-(\d{8,12})")
_HEADER = re.compile(rb"# format_version: (\d{1,9})\n(?:# command: ([a-z]{1,20})\n)?")


def contents_of(folder: Path) -> list[Path]:
    """Return the paths of the files of a run, which no other output replaces, or none if `folder` is not a run."""
    return [folder / name for name in CONTENTS] if (folder / PRESET).is_file() else []


def checkpoint_folders(folder: Path) -> list[Path]:
    """Return the checkpoint folders, sorted by step number, the newest first."""
    found = [(int(match[1]), path) for path in folder.glob("step-*") if (match := _STEP.fullmatch(path.name))]
    return [path for _, path in sorted(found, reverse=True)]


def _is_leftover(name: str) -> bool:
    """Whether `name` is a temporary file of recur that a killed process left behind."""
    return name.endswith(".tmp") and name.startswith(tuple(f".{own}." for own in CONTENTS))


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
    def is_finished(self) -> bool:
        """Whether the training has ended. An unfinished run may have a model too: the best one so far."""
        return self.result.is_file()

    @property
    def has_model(self) -> bool:
        """Whether a model is complete in the folder, whether or not the training has ended."""
        return (self.path / MANIFEST).is_file()

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the folder within the block. Creates a missing folder, and removes it again if it is still empty.

        Temporary files of a killed process are deleted. Raises StorageError without waiting if another process holds the
        lock, or if the folder is not writable; UsageError for a folder whose name is not UTF-8.
        """
        check_utf8(self.path)
        created = not self.path.exists()
        try:
            with writing(self.path):
                self.path.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            raise UsageError(f"{self.path}: is a file, not a folder; choose another --output") from None
        with locked(self.path / LOCK):
            for entry in list(self.path.iterdir()):
                if _is_leftover(entry.name):
                    remove(entry)
            try:
                yield
            finally:
                # Still locked, so no other process writes here. A later process creates the folder again.
                if created and [entry.name for entry in self.path.iterdir()] == [LOCK]:
                    (self.path / LOCK).unlink()
                    with contextlib.suppress(OSError):
                        self.path.rmdir()

    def note_if_unfinished(self) -> Iterator[Note]:
        """Yield a warning if the training has not ended. With an ensemble the model is then the linear model alone."""
        if not self.is_finished:
            step = next((path.name for path in checkpoint_folders(self.checkpoints)), "none")
            has_ensemble = self.read_command() == "finetune" and self.read_preset().get("ensemble")
            missing = "; its ensemble is not joined yet" if has_ensemble else ""
            if self._opened is not None and ENSEMBLE in self._opened:
                with naming_damage(self.path / ENSEMBLE):
                    weights = json.loads(self._opened[ENSEMBLE].read(limit=1 << 16))
                    missing = "" if weights["encoder_weight"] else "; the linear model alone labels"
            state, way_out = "is not finished", "; --resume continues it"
            if is_locked(self.path / LOCK):
                state, way_out = "is under way", ""
            text = f"{self.path}: its training {state} (newest checkpoint: {step}){missing}{way_out}"
            yield Note(text, "warning")

    def check_output(self, command: str, *, resume: bool, overwrite: bool) -> RunStatus:
        """Return the status of the folder for a training run of `command` with these options.

        Raises UsageError if the folder has files but no run, if it has a run and neither option is given, or for a
        resume of another command's run; ModelError for a resume of a run in another format version.
        """
        entries = [entry.name for entry in self.path.iterdir()] if self.path.is_dir() else []
        present = [name for name in entries if name != LOCK and not _is_leftover(name)]
        if not present:
            return "new"
        if PRESET not in present:
            raise UsageError(f"{self.path}: is not empty and is not a run directory; choose another --output")
        if overwrite:
            return "new"
        fault: ModelError | UsageError | None = None
        try:
            other = self.read_command()
            if other not in (None, command):
                fault = UsageError(f"{self.path}: is a run of recur {other}, not of {command}")
        except ModelError as error:
            fault = error
        if not resume:
            way_out = "choose another --output" if fault else "continue it with --resume"
            raise UsageError(f"{self.path}: already has a run; {way_out}, or replace it with --overwrite")
        if fault:
            raise fault
        return "finished" if self.is_finished else "unfinished"

    def clear(self) -> None:
        """Delete all files of an older run except preset.yaml, so that a kill meanwhile leaves an unfinished run.

        The checkpoints are gone first, so that a resume after such a kill loads no old checkpoint.
        """
        self.remove_checkpoints()
        for name in (RESULT, MANIFEST, *CONTENTS):
            if name != PRESET or (self.path / name).is_dir():
                remove(self.path / name)

    def remove_checkpoints(self) -> None:
        """Delete the folder of checkpoints. It is renamed first, in one step; `lock` deletes what a kill leaves of it."""
        if self.checkpoints.is_dir() and not self.checkpoints.is_symlink():
            with writing(self.checkpoints):
                aside = self.path / f".{self.checkpoints.name}.{os.getpid()}.tmp"
                self.checkpoints.rename(aside)
                sync_directory(self.path)
            remove(aside)

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
        lines: list[dict[str, Any]] = []
        for number, line in enumerate(self.metrics.read_bytes().split(b"\n") if self.metrics.is_file() else (), 1):
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
