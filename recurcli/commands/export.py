"""`recur export`: writes trained classifiers, or their predictions, in a format of another tool."""

from collections.abc import Generator, Iterator, Sequence
from pathlib import Path

from recurcli.commands.trained_run import data_config, task_of
from recurcli.errors import UsageError, escaped
from recurcli.evaluation.predictor import Predictor
from recurcli.events import Finished, Note, RowsDone
from recurcli.export.clue_export import export_clue
from recurcli.export.format import ExportFormat, Texts, TrainedRun
from recurcli.files import require_writable
from recurcli.model.device import Precision

FORMATS: dict[str, ExportFormat] = {"clue": ExportFormat(export_clue, ".zip", "a CLUE submission is a zip")}
"""The formats of `recur export` by the value of `--format`; each is a file of `recurcli.export` and a row here."""


def export(
    runs: Sequence[Path],
    *,
    format: str,
    output: Path,
    data: Path | None = None,
    overwrite: bool = False,
    device: str = "auto",
    precision: Precision = "fp32",
    batch_size: int = 64,
) -> Iterator[Note | RowsDone | Finished]:
    """Load every run and write all of them as `format` (see FORMATS); yields notes, rows done, and the result.

    Raises UsageError for an unknown format and for an output that exists without `overwrite`.
    """
    if format not in FORMATS:
        raise UsageError(f"--format: unknown format '{escaped(format)}'; known: {', '.join(FORMATS)}")
    _check_output(output, FORMATS[format], overwrite=overwrite)
    predictors = [Predictor.load(run, device=device, precision=precision, batch_size=batch_size) for run in runs]
    loaded = [_trained_run(run, predictor, data) for run, predictor in zip(runs, predictors, strict=True)]
    files = yield from FORMATS[format].export(loaded, output)
    yield Finished({"output": str(output), "format": format, "files": files})


def _trained_run(run: Path, predictor: Predictor, data: Path | None) -> TrainedRun:
    def predict(texts: Texts, total: int, before: int) -> Generator[RowsDone, None, list[str]]:
        logits = yield from predictor.iter_logits(texts, total=total, before=before)
        return [predictor.labels[index] for index in logits.argmax(axis=1)]

    task, config = task_of(run, predictor), data_config(run, data)
    return TrainedRun(run, task, config, predictor.model, predictor.tokenizer, predict)


def _check_output(output: Path, format: ExportFormat, *, overwrite: bool) -> None:
    """Raise UsageError if `output` has the wrong suffix or cannot be written."""
    if output.suffix != format.suffix:
        raise UsageError(f"{output}: {format.title}; name it {output.name}{format.suffix}")
    require_writable(output, overwrite=overwrite)
