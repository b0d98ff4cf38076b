"""`recur eval` of a causal language model: its perplexity on a text."""

from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import Any

from recurcli.commands.evaluation.load import is_training_file
from recurcli.commands.trained_run import check_rows_of_training, data_config
from recurcli.data.sources import is_one_file
from recurcli.data.tasks import Task, task_named
from recurcli.distributed.group import current
from recurcli.errors import DataError, ModelError, UsageError
from recurcli.evaluation.inference import InferenceConfig
from recurcli.evaluation.perplexity import iter_score
from recurcli.events import Finished, Note, RowsDone
from recurcli.model.device import Precision, choose_device
from recurcli.runs.model_files import build_trained_language_model, read_model
from recurcli.runs.run_directory import RunDirectory
from recurcli.runs.training_overlap import read_known_rows
from recurcli.tokens.splits import TextSplit, load_texts, windows_of_splits


def is_language_model(run: Path) -> bool:
    """Return whether `run` is a pretrained run with the causal objective; False if its preset cannot be read."""
    directory = RunDirectory(run)
    try:
        if directory.read_command() != "pretrain":
            return False
        section = directory.read_preset().get("pretraining")
    except ModelError:  # what loads the model names its file
        return False
    return isinstance(section, dict) and section.get("objective") == "causal"


def evaluate_language_model(
    run: Path,
    *,
    split: str | None,
    data: Path | None,
    columns: Mapping[str, object],
    device: str,
    precision: Precision,
    batch_size: int,
) -> Iterator[Note | RowsDone | Finished]:
    """Compute the perplexity of the model in `run`; yields notes, the number of windows done, and the result.

    The arguments are those of `recur eval`. Every token counts once, in windows of the length of the training.
    """
    config = InferenceConfig(choose_device(device, current()), precision, batch_size, current())
    current().connect(config.device)
    files = read_model(run)
    model = build_trained_language_model(files, config.device)
    yield from RunDirectory(run).note_if_unfinished()
    try:
        task = task_named(files.config.task)
    except UsageError as error:
        raise ModelError(f"{run / 'config.json'}: {error}") from None
    name = split or ("file" if data is not None and is_one_file(data) else "dev")
    text = _load(run, task, name, data, columns)
    trained_on = {} if name == "train" else (yield from _count_known_lines(run, text, data))
    windows, facts = yield from windows_of_splits({name: text}, files.tokenizer, files.config.max_length)
    score = yield from iter_score(model, windows[name], config)
    result: dict[str, Any] = {
        "run": str(run),
        "task": task.name,
        "split": name,
        **facts[name],
        **trained_on,
        "windows": len(windows[name].targets),
        "perplexity": score.perplexity,
        "metrics": {"perplexity": score.perplexity, "loss": score.loss},
    }
    if current().is_main:
        yield Finished(result)


def _load(run: Path, task: Task, split: str, data: Path | None, columns: Mapping[str, object]) -> TextSplit:
    """Return the text to score. The split "file" means all of the file `data`.

    Raises DataError if it cannot be read, and without `data` if it is not that of the training.
    """
    config = data_config(run, data, columns)
    alone = config.path is not None and is_one_file(Path(config.path))
    if data is None and alone and split == "test" and config.named_file(split) is None:
        raise DataError(f"{config.path}: holds train and dev text; name the test text with --data")
    use_dev_split = split not in ("file", "test") and (data is None or _is_training_text(run, task, data))
    text = load_texts(task, "train" if split == "file" else split, config, use_dev_split=use_dev_split)
    if data is None:
        check_rows_of_training(run, split, text)
    return text


def _count_known_lines(
    run: Path, text: TextSplit, data: Path | None
) -> Generator[Note, None, Mapping[str, int | None]]:
    """Return the numbers of lines of `text` that are training lines and dev lines of the run; yields a note on them.

    On text of the run's own, for which `data` is None, there is a note only if it is a warning.
    """
    if (known := read_known_rows(run)) is None:
        return {}  # a run of an older recur
    counts, note = known.among(text.lines, lines=True)
    if data is not None or note.level == "warning":
        yield note
    return counts


def _is_training_text(run: Path, task: Task, data: Path) -> bool:
    """Return whether `data` is the folder that the run was trained on, or its training file."""
    path = RunDirectory(run).read_data_config().path
    if data.is_dir() and path is not None and Path(path).is_dir():
        return data.samefile(path)
    return is_training_file(run, task, data)
