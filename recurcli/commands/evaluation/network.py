"""What `recur eval` measures of a network: the perplexity of a language model, and the diagnosis of the layers."""

from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
import torch

from recurcli.commands.evaluate import (
    check_rows_of_training,
    is_training_data,
    scored_split,
    trained_sha256,
    training_overlap,
)
from recurcli.commands.trained_run import known_task
from recurcli.data.splits import hashes_of
from recurcli.device import choose_device
from recurcli.diagnostics import diagnose
from recurcli.errors import UsageError
from recurcli.evaluation.inference import InferenceConfig, score_text
from recurcli.files import finite
from recurcli.log import Log
from recurcli.models.candidate import note_on_capped_layers
from recurcli.network import Backbone, LanguageModel
from recurcli.requests.evaluate import EvaluateRequest
from recurcli.runs.network_files import build_trained, read_model
from recurcli.runs.run_directory import Run
from recurcli.tokens.batching import collate
from recurcli.tokens.texts import load_texts, windows_of_splits
from recurcli.tokens.tokenizer import Tokens

DIAGNOSED_ROWS = 64
"""Number of rows in a diagnosis, which measures all pairs of their tokens."""


def diagnosis(
    request: EvaluateRequest,
    model: Backbone,
    device: torch.device,
    log: Log,
    tokens: Tokens,
    targets: Tokens | None = None,
) -> dict[str, Any]:
    """Return the diagnosis of the layers by its key in the result, or {} if it is not asked for.

    It is of the first DIAGNOSED_ROWS rows of at least two tokens, and None if there are none. `targets` are the next tokens of
    the rows of a language model. A measure that these rows do not define is None.
    """
    if not request.diagnose and request.report is None:
        return {}
    rows = np.flatnonzero(tokens.lengths > 1)[:DIAGNOSED_ROWS]
    if not len(rows):
        log.warn("no row has two tokens, so the layers are not diagnosed")
        return {"diagnosis": None}
    pad = partial(collate, rows=rows, pad_id=model.config.pad_id, multiple=1)
    ids, mask = pad(tokens)
    following = None if targets is None else pad(targets)[0].to(device)
    note_on_capped_layers(model.encoder, "finetuning" if targets is None else "pretraining", log)
    return {"diagnosis": finite(asdict(diagnose(model, ids.to(device), mask.to(device), following)))}


def evaluate_language_model(request: EvaluateRequest, run: Run, log: Log) -> dict[str, Any]:
    """Return the perplexity of a run's language model on a text, as `recur eval` reports it.

    Each token counts once. The windows are as long as in training, and the state is carried between them if it was in training.
    Raises UsageError for an option that only classifiers have.
    """
    if request.fit_thresholds is not None:
        raise UsageError(f"{request.run}: is a language model without labels; leave --fit-thresholds out")
    if request.errors is not None or request.report is not None or request.by is not None:
        raise UsageError(f"{request.run}: is a language model; --errors, --report and --by are for classifiers")
    inference = request.inference
    device = choose_device(inference.device)
    files = read_model(run)
    network = files.of_encoder()
    model = build_trained(LanguageModel, network, device)
    run.note_if_unfinished(log)
    task = known_task(run, files.config.task)
    split, config = scored_split(request, run, task, "text")
    divided = request.data is None or is_training_data(run, task, config)
    text = load_texts(
        task, "train" if split == "file" else split, config, use_dev_split=divided and split in ("train", "dev")
    )
    if request.data is None:
        check_rows_of_training(run, split, text, trained_sha256(run, split))
    overlap, _ = training_overlap(run, split, hashes_of(text.lines), log, is_own=request.data is None, lines=True)

    windows, facts = windows_of_splits({split: text}, network.tokenizer, network.config.max_length, log)
    count = len(windows[split].targets)
    carry = bool(run.read_preset()["pretraining"].get("carry"))
    settings = InferenceConfig(device, inference.precision, inference.batch_size)
    score = score_text(model, windows[split], settings, partial(log.rows, total=count, unit="window"), carry=carry)
    found = diagnosis(request, model, device, log, *windows[split])
    return {
        "run": str(request.run),
        "task": task.name,
        "split": split,
        **facts[split],
        "carry": carry,
        **found,
        **overlap,
        "windows": count,
        "perplexity": score.perplexity,
        "metrics": {"perplexity": score.perplexity, "loss": score.loss},
    }
