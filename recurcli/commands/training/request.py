"""The request of a training run, and the repetition of one that is finished; importable without torch."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from recurcli.distributed.group import current
from recurcli.errors import ModelError, UsageError
from recurcli.events import Finished, Note, Progress
from recurcli.facts import find_difference, require_same
from recurcli.files import sha256_of
from recurcli.runs.run_directory import RunDirectory
from recurcli.strict_yaml import flatten

if TYPE_CHECKING:
    from recurcli.preset import ResolvedPreset

Event = Note | Progress | Finished
Section = Literal["pretraining", "finetuning"]
COMMANDS: Mapping[Section, str] = {"pretraining": "pretrain", "finetuning": "finetune"}

FREE_KEYS = ("runtime.device", "runtime.precision", "runtime.threads", "runtime.compile", "data.path")
"""Keys that a resume may change. The data are compared by hash instead of data.path."""
FREE_ENDINGS = (".checkpoint_every", ".keep_checkpoints", ".log_every")


@dataclass(frozen=True)
class TrainingRequest:
    """The options of `recur pretrain` or `recur finetune`."""

    resolved: "ResolvedPreset"
    output: Path
    init: Path | None = None
    """The pretrained run to start from; None: random initial weights."""
    resume: bool = False
    overwrite: bool = False
    dry_run: bool = False

    def __post_init__(self) -> None:
        if self.resume and self.overwrite:
            raise UsageError("--resume and --overwrite exclude each other; leave out one")


def preset_facts(values: Mapping[str, Any], section: Section) -> dict[str, Any]:
    """Return the keys of a preset that a resume must match, as dotted paths, with their values."""
    other = "finetuning" if section == "pretraining" else "pretraining"
    values = {**values, "prior": (values.get("prior") or {}).get("kind")}  # null in place of a section is a value too
    pairs = ((".".join(path), value) for path, value in flatten(values) if path[0] != other)
    return {key: value for key, value in pairs if key not in FREE_KEYS and not key.endswith(FREE_ENDINGS)}


def repeats_finished_run(request: TrainingRequest, section: Section) -> bool:
    """Return whether `request` resumes a finished run with its own preset, so that nothing is left to train.

    It is False under torchrun, whose ranks decide together, and for a device that only torch can tell to exist.
    """
    run, device = RunDirectory(request.output), request.resolved.preset.runtime.device
    if not request.resume or request.dry_run or current().heartbeat is not None or not run.is_finished:
        return False
    if device not in ("auto", "cpu"):
        return False
    asked = request.resolved.preset.to_dict()
    try:
        same = run.read_command() == COMMANDS[section]
        return same and not find_difference(preset_facts(run.read_preset(), section), preset_facts(asked, section))
    except ModelError:
        return False  # the whole command says what is wrong


def repeat_finished_run(request: TrainingRequest) -> Iterator[Event]:
    """Yield the stored result of a finished run while its directory is locked. Raises UsageError as `finished_run` does."""
    with RunDirectory(request.output).lock():
        yield from finished_run(request)


def finished_run(request: TrainingRequest) -> Iterator[Event]:
    """Yield the stored result of a finished run. Raises UsageError if the files of its data have changed."""
    ranks, run = current(), RunDirectory(request.output)
    result = run.read_result() if ranks.is_main else {}
    if ranks.is_main:
        yield from _compare_data(run, result, request.resolved.preset.data.path)
    result = ranks.broadcast(result)
    yield Note(f"{request.output}: is already finished; nothing to do")
    yield Finished(result)


def _compare_data(run: RunDirectory, result: Mapping[str, Any], path: str | None) -> Iterator[Note]:
    """Compare the files below `path` with those of the finished run by hash; yields a warning if none can be compared.

    Raises UsageError if a file differs.
    """
    before, compared = run.read_data_config().path, False
    for split, facts in result["data"].items():
        if path is not None and before is not None and Path(facts["path"]).is_relative_to(before):
            file = Path(path) / Path(facts["path"]).relative_to(before)
            if file.is_file():
                name, compared = f"{split} sha256", True
                require_same({name: facts["sha256"]}, {name: sha256_of(file)}, run.path)
    if path != before and not compared:
        other = f"its result comes from {before or 'the Hub'}; {path or 'the Hub'} was not read"
        yield Note(f"{run.path}: {other}", "warning")
