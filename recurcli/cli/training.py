"""What `recur pretrain` and `recur finetune` share: build a request, run it and print its result."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recurcli.commands.training.run import Event
    from recurcli.commands.training.setup import TrainingRequest


def as_settings(section: str, device: str | None, precision: str | None, batch_size: int | None) -> list[str]:
    """Return the options --device, --precision and --batch-size as KEY=VALUE settings of the preset."""
    values = {"runtime.device": device, "runtime.precision": precision, f"{section}.batch_size": batch_size}
    return [f"{key}={value}" for key, value in values.items() if value is not None]


def training_request(
    preset: str,
    *,
    data: Path | None,
    settings: list[str],
    output: Path | None,
    suffix: str = "",
    init: Path | None = None,
    resume: bool,
    overwrite: bool,
    dry_run: bool,
) -> "TrainingRequest":
    """Resolve the preset; the default output is runs/ and its name with `suffix`. Raises UsageError for bad options."""
    from recurcli.preset import compose

    resolved = compose(preset, data=None if data is None else str(data), settings=settings)
    from recurcli.commands.training.setup import TrainingRequest

    return TrainingRequest(
        resolved=resolved,
        output=output or Path("runs") / f"{resolved.name}{suffix}",
        init=init,
        resume=resume,
        overwrite=overwrite,
        dry_run=dry_run,
    )


def train(
    command: "Callable[[TrainingRequest], Iterator[Event]]", request: "TrainingRequest", *, json: bool, quiet: bool
) -> None:
    """Run a training, show its progress, and print its result."""
    from recurcli.display import progress, tables

    result = progress.follow(command(request), quiet=quiet, metric=request.resolved.preset.finetuning.metric)
    if json:
        tables.print_json(result)
    elif request.dry_run:
        tables.print_plan(result)
    else:
        tables.print_training(result, request.output)
