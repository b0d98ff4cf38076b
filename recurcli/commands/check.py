"""`recur check`: what is wrong with data files and CLUE submissions, before a training or a leaderboard finds out."""

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from recurcli.data.config import DataConfig
from recurcli.data.sources.find import adapted
from recurcli.data.tasks import Task, task_named
from recurcli.errors import DataError, StorageError, escaped
from recurcli.events import Finished, Note, RowsDone, count_rows
from recurcli.export.clue import validate
from recurcli.findings import Finding
from recurcli.inspection.inspect import inspect, tokens_of, trained_on
from recurcli.inspection.lengths import measure_of, needs_texts, training_texts
from recurcli.inspection.locate import ROWS, Part, Place, as_told, is_submission, parts_of, places_of
from recurcli.inspection.report import Report, Tokens, errors_in
from recurcli.inspection.rows import Measure
from recurcli.preset import Preset, compose
from recurcli.tokens.config import TokenizerConfig

LARGE = 4 << 20
"""Bytes of training rows from which on making a vocabulary is worth a word."""


@dataclass(frozen=True)
class CheckRequest:
    """What the command line asks for."""

    paths: tuple[Path, ...]
    task: str | None = None
    preset: str | None = None
    columns: Mapping[str, str | bool | None] = field(default_factory=dict)
    """`text`, `pair`, `label`, `id` and `header`, where they are told."""
    lengths: bool = True


def check(request: CheckRequest) -> Iterator[Note | RowsDone | Finished]:
    """Inspect every path; yields notes, the rows read, and `{"reports": […], "errors": n, "warnings": n}` at last.

    A path that cannot be opened is an error among the findings where there are several, else a DataError or StorageError.
    """
    preset = None if request.preset is None else compose(request.preset).preset
    task = task_named(request.task).name if request.task is not None else None
    reports: list[Report] = []
    for path in request.paths:
        try:
            reports += yield from _checked(path, request, task, preset)
        except (DataError, StorageError) as error:
            if len(request.paths) == 1:
                raise
            finding = Finding("error", escaped(error, limit=4000))
            reports.append(Report(kind="unreadable", path=path, findings=[finding]))
    yield Finished(
        {
            "reports": [report.to_json() for report in reports],
            "errors": errors_in(reports),
            "warnings": sum(report.count("warning") for report in reports),
        }
    )


def _checked(
    path: Path, request: CheckRequest, task: str | None, preset: Preset | None
) -> Generator[Note | RowsDone, None, list[Report]]:
    """The reports on one path: several where it is a folder of tasks."""
    if request.columns.get("text") is None and is_submission(path):
        return [Report(kind="submission", path=path, findings=validate(path))]
    reason = "as --task says" if task is not None else "as the preset says"
    told = task or (preset.task if preset is not None else None)
    places = places_of(path, told, reason)
    if len(places) > 1:
        yield Note(f"{path}: a folder of tasks: {', '.join(place.task for place in places)}")
    reports = []
    for place in places:
        try:
            reports.append((yield from _inspected(place, request, preset)))
        except (DataError, StorageError) as error:
            if len(places) == 1:
                raise
            finding = Finding("error", escaped(error, limit=4000))
            reports.append(Report(kind="unreadable", path=place.path, findings=[finding]))
    return reports


def _inspected(place: Place, request: CheckRequest, preset: Preset | None) -> Generator[Note | RowsDone, None, Report]:
    """The report on the rows of one task."""
    task = task_named(place.task)
    preset = preset or _preset_of(task.name)
    config = as_told(preset.data, place.path, request.columns)
    parts = parts_of(task, config)
    if not parts:
        names = ", ".join(dict.fromkeys(name for layout in task.layouts for name in layout.files.values()))
        raise DataError(f"{place.path}: holds no file of {task.name}" + (f" (looked for {names})" if names else ""))
    measure, tokens, reason = None, None, None
    if request.lengths:
        measure, tokens, reason = yield from _measure(parts, task, config, preset.tokenizer)
    report = yield from count_rows(inspect(place, parts, task, config, measure=measure, tokens=tokens), None)
    if reason is None or any(split.rows.fault for split in report.splits):
        return report
    finding = Finding("warning", escaped(f"no tokens were counted: {reason}", limit=1000))
    return replace(report, findings=[*report.findings, finding])


@cache
def _preset_of(task: str) -> Preset:
    """A preset with the task's own data and tokenizer, whatever the encoder."""
    return compose(f"transformer-{task}").preset


def _measure(
    parts: list[Part], task: Task, config: DataConfig, kind: TokenizerConfig
) -> Generator[Note, None, tuple[Measure | None, Tokens | None, str | None]]:
    """What counts tokens as a training on these rows would, or else why nothing can."""
    part = trained_on(parts)
    split, path = part.splits[0], part.source.path
    if needs_texts(kind) and path.is_file() and path.stat().st_size > LARGE:
        names = "its rows" if split == ROWS else f"the {split} rows"
        yield Note(f"{path}: making a {kind.kind} vocabulary of {names}, to count tokens (--no-lengths does without)")
    texts = training_texts(part.source, adapted(task, config), config, divided=len(part.splits) > 1)
    try:
        measure = measure_of(kind, texts)
    except DataError as error:
        return None, None, str(error)
    made_from = split if needs_texts(kind) else None
    return measure, tokens_of(kind, config.max_length, trained_on=made_from), None
