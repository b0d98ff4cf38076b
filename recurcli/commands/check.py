"""`recur check`: reports errors in data files and CLUE submissions before training or upload."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from recurcli.data.config import with_options
from recurcli.data.tasks import task_named
from recurcli.errors import DataError, StorageError, UsageError, escaped
from recurcli.events import Finished, Note, RowsDone
from recurcli.export.clue import is_submission, validate
from recurcli.findings import Finding, sort_by_severity
from recurcli.inspection.inspect import inspect
from recurcli.inspection.locate import find_datasets
from recurcli.preset import Preset, compose


def check(
    paths: Sequence[Path],
    *,
    task: str | None = None,
    preset: str | None = None,
    columns: Mapping[str, str | bool | None] | None = None,
    files: Mapping[str, str] | None = None,
    lengths: bool = True,
) -> Iterator[Note | RowsDone | Finished]:
    """Check each path; yields notes, the number of rows read, and finally `{"reports": […], "errors": n, "warnings": n}`.

    `files` maps splits (train, dev, test) to the absolute paths of files that are compared with each other. `columns` has the
    options `text`, `pair`, `label`, `id`, `header`, `delimiter` and `encoding`; None means that an option was not given.
    Raises UsageError without a path and files. Raises DataError or StorageError if a single path cannot be read. With several
    paths, the report of that path says so.
    """
    if not paths and not files:
        raise UsageError("name a PATH, or files that belong together with --train, --dev and --test")
    columns, reason = columns or {}, "from --task"
    settings = None if preset is None else compose(preset).preset
    if task is not None:
        task = task_named(task).name
    elif settings is not None:
        task, reason = settings.task, "from the preset"
    reports: list[dict[str, Any]] = []
    named = [Path(file) for file in (files or {}).values()][:1]
    for number, path in enumerate([*named, *paths]):
        try:
            together = files if number < len(named) else None
            if not together and columns.get("text") is None and is_submission(path):
                reports.append(_report("submission", path, validate(path)))
                continue
            datasets = find_datasets(path, task, reason)
            if len(datasets) > 1:
                yield Note(f"{path}: a folder of tasks: {', '.join(dataset.task for dataset in datasets)}")
            for dataset in datasets:
                used = settings or _preset_of(dataset.task)
                config = with_options(used.data, dataset.path, columns)
                if together:
                    config = replace(config, path=None, files={**together})
                facts, findings = yield from inspect(dataset, config, used.tokenizer if lengths else None)
                reports.append(_report("data", dataset.path, findings, facts))
        except (DataError, StorageError) as error:
            if len(named) + len(paths) == 1:
                raise
            reports.append(_report("unreadable", path, [Finding("error", escaped(error, limit=4000))]))
    counts = {level: sum(report[level] for report in reports) for level in ("errors", "warnings")}
    yield Finished({"reports": reports, **counts})


def _report(kind: str, path: Path, findings: list[Finding], facts: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the report on one path as `--json` prints it, errors before warnings."""
    levels = [finding.level for finding in findings]
    return {
        "kind": kind,
        "path": str(path),
        **(facts or {}),
        "findings": [finding._asdict() for finding in sort_by_severity(findings)],
        "errors": levels.count("error"),
        "warnings": levels.count("warning"),
    }


@cache
def _preset_of(task: str) -> Preset:
    """Return a preset with the data and tokenizer of the task; its encoder is not used."""
    return compose(f"transformer-{task}").preset
