"""What a resume must match, and the repetition of a training whose run is finished; importable without torch."""

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from recurcli.config import SOURCE_DIGEST, UTF8, Preset, Section, canonical_encoding, names_in
from recurcli.data.tasks import find_place, task_named, task_with_columns
from recurcli.distributed.group import current
from recurcli.errors import DataError, ModelError, UsageError
from recurcli.files import sha256_of, sha256_of_all
from recurcli.log import Log
from recurcli.requests.training import TrainingRequest
from recurcli.runs.predictions import read_current_result
from recurcli.runs.run_directory import CONTENTS, NEXT, Run, RunDirectory, beside, check_same, first_difference
from recurcli.validation import flatten

FREE_KEYS = ("runtime.", "data.path", "data.files")
"""Beginnings of keys that a resume may change, but for the seed. The data are compared by hash instead of their paths."""
FREE_ENDINGS = (".checkpoint_every", ".keep_checkpoints", ".log_every", ".teacher", ".teacher_run")
"""Endings of keys that a resume may change. The teacher's file is compared by hash."""


def preset_facts(values: Mapping[str, Any], section: Section) -> dict[str, Any]:
    """Return the keys of a preset that a resume must match, as dotted paths, with their values."""
    facts, other = {}, "finetuning" if section == "pretraining" else "pretraining"
    for path, value in flatten(values):
        key = ".".join(path)
        is_free = path[0] == other or key.startswith(FREE_KEYS) or key.endswith(FREE_ENDINGS)
        if key == "runtime.seed" or not is_free:
            facts[key] = value
    with contextlib.suppress(KeyError, ValueError):  # one encoding has several names
        facts["data.encoding"] = canonical_encoding(facts["data.encoding"] or UTF8)
    return facts


def source_of_run(asked: str | None, before: str | None) -> str | None:
    """Return the source of static vectors of a resumed run: its own if it may be the one that is `asked` for, else that one."""
    is_its = asked == "auto" or (asked and before and before.startswith((f"{asked}@", f"{asked}==")))
    return before if is_its else asked


def facts_before_and_now(
    run: RunDirectory, values: Mapping[str, Any], section: Section
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the facts of the preset of `run` and of the preset `values`, which a resume compares.

    The static vectors that `auto` came to are those of the run.
    """
    before, now = preset_facts(run.read_preset(), section), preset_facts(values, section)
    for key in ("linear.vectors", "embedding.vectors"):
        now[key] = source_of_run(now[key], before[key])
    return before, now


def check_inputs(output: Path, preset: Preset, init: Path | None = None, contents: Sequence[str] = CONTENTS) -> None:
    """Raise UsageError if a training to the folder `output`, of which it replaces the `contents`, would replace what it reads:
    what `preset` names, or the pretrained run `init`."""
    data, finetuning = preset.data, preset.finetuning
    named = (Path(data.path or "", name) for files in (data.files or {}).values() for name in names_in(files))
    static = [source and SOURCE_DIGEST.sub("", source) for source in (preset.linear.vectors, preset.embedding.vectors)]
    files = (data.path, *named, finetuning.teacher, preset.tokenizer.vocabulary, *static)
    runs, own = (init, finetuning.teacher_run, preset.encoder.get("path")), output.resolve()
    written = [*(own / name for name in contents), beside(output, NEXT)]
    for path in (path for path in (*files, *runs) if path is not None and Path(path).exists()):
        place = Path(path).resolve()
        replaced = any(place.is_relative_to(path) for path in written)
        if path in runs:
            replaced |= place == own or any(own.is_relative_to(place / name) for name in contents)
        if replaced:
            raise UsageError(f"{output}: the training reads {path}, which it would replace; choose another --output")


def repeated_result(request: TrainingRequest, log: Log) -> dict[str, Any] | None:
    """Return the stored result if `request` resumes a finished run with its own preset, so that nothing is left to train.

    Else return None, and under torchrun, whose ranks decide together, and for a device that only torch can tell to exist.
    """
    run, preset = RunDirectory(request.folder), request.resolved.preset
    if not request.resume or request.dry_run or current().world_size > 1 or not run.resumed.is_finished:
        return None
    try:
        if run.resumed.read_command() != request.command or preset.runtime.device not in ("auto", "cpu"):
            return None
        if first_difference(*facts_before_and_now(run.resumed, preset.to_dict(), request.section)):
            return None
    except ModelError:
        return None  # the whole command says what is wrong
    with run.lock():
        return finished_run(request, log)


def finished_run(request: TrainingRequest, log: Log) -> dict[str, Any]:
    """Return the stored result of a finished run. Raises UsageError if the files of its data have changed."""
    ranks, run = current(), RunDirectory(request.folder)
    result = read_current_result(Run(run.path)) if ranks.is_main else {}
    if ranks.is_main:
        _compare_data(run, result, request.resolved.preset, log)
        teacher, before = request.resolved.preset.finetuning.teacher, result.get("teacher") or {}
        if result["command"] == "finetune" and (teacher is None or Path(teacher).exists()):
            now = None if teacher is None else sha256_of(Path(teacher))
            check_same({"teacher sha256": before.get("sha256")}, {"teacher sha256": now}, run.path)
        if result.get("checkpoints_kept") is False:
            run.remove_checkpoints()  # which a kill at the end of the run left
    result = ranks.broadcast(result)
    log.note(f"{request.folder}: is already finished; nothing to do")
    return result


def _compare_data(run: RunDirectory, result: Mapping[str, Any], preset: Preset, log: Log) -> None:
    """Compare the files that `preset` names with those of the finished run by hash; warn if none can be compared.

    Raises UsageError if a file differs, or if the run has no rows of its split.
    """
    config, before, compared = preset.data, run.read_data_config(), False
    task = task_with_columns(task_named(preset.task), config)
    for split in dict.fromkeys([*result["data"], *config.named_files]):
        facts, files = result["data"].get(split), list[Path]()
        with contextlib.suppress(DataError):
            place = find_place(task, "train" if split == "text" else split, config)
            files += [*place.paths, *config.label_files_of(split)]
        if files and all(file.is_file() for file in files):
            name, compared = f"{split} sha256", True
            check_same({} if facts is None else {name: facts["sha256"]}, {name: sha256_of_all(files)}, run.path)
    if (config.path, config.files) != (before.path, before.files) and not compared:
        log.warn(f"{run.path}: its result comes from {before.path or 'other files'}; the data named now were not read")
