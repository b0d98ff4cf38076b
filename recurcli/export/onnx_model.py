"""A classifier as an ONNX graph for batches of every size and length, checked against the model. Shapes: B, T, C labels."""

import contextlib
import logging
import warnings
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn

from recurcli.errors import ModelError, UsageError, escaped
from recurcli.model.models import Classifier

MAX_DIFFERENCE = 1e-4
"""Largest absolute difference of a logit that is accepted."""
MAX_CELLS = 1 << 23
"""Cells of the attention matrices of a check (rows x T x T): more than 8 rows of 1,024 tokens need too much memory."""


class _Logits(nn.Module):
    """The classifier as a function of the ids alone: (B, T) -> (B, C)."""

    def __init__(self, model: Classifier) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor) -> Tensor:
        logits: Tensor = self.model(input_ids, input_ids != self.model.config.pad_id)[0]
        return logits


def check_exportable(model: Classifier) -> None:
    """Raise UsageError if the encoder of `model` is known not to have an ONNX graph."""
    if reason := model.encoder.export_obstacle:
        name = escaped(model.config.encoder["name"])
        raise UsageError(f"the encoder {name} cannot be exported to ONNX: {reason}")


@torch.no_grad()
def onnx_model(model: Classifier) -> tuple[bytes, float]:
    """Return the ONNX file of `model` (on the CPU, in evaluation mode), and its largest difference of a logit.

    The graph has the input `input_ids` (B, T) int64, padded on the right with the config's pad_id, and the output `logits`
    (B, C). Raises ModelError if torch cannot trace the model, or if a logit differs by more than MAX_DIFFERENCE.
    """
    logits, batches = _Logits(model), list(check_batches(model))
    expected = [logits(ids).numpy() for ids in batches]  # also computes what every CachedMap keeps
    name = escaped(model.config.encoder["name"])
    with _silence():
        try:
            content = trace(logits, batches[0], max_length=getattr(model.encoder, "max_length", None))
        except Exception as error:  # torch raises errors of many kinds
            raise ModelError(f"the encoder {name} cannot be exported to ONNX: {escaped(error, limit=300)}") from error
        difference = _largest_difference(content, batches, expected)
    if not difference <= MAX_DIFFERENCE:
        raise ModelError(
            f"the ONNX model of the encoder {name} is not written: a logit differs by {difference:.1e} from the run's, "
            f"and {MAX_DIFFERENCE:.0e} is the most that is accepted"
        )
    return content, difference


def check_batches(model: Classifier) -> Iterator[Tensor]:
    """Yield random ids (B, T): 3 x 17, 1 x 1, 8 x max_length, padded rows of 0 to 40 tokens, and a row of padding alone.

    No row is longer than max_length. Longer rows have a separator. Rows of more than 1,024 tokens are fewer (MAX_CELLS).
    """
    config, draw = model.config, torch.Generator().manual_seed(0)
    most = config.max_length

    def rows(count: int, length: int) -> Tensor:
        ids = torch.randint(config.vocab_size - 1, (count, length), generator=draw)
        ids += ids >= config.pad_id
        if config.separator_id >= 0 and length > 2:
            ids[:, length // 3] = config.separator_id
        return ids

    yield rows(3, min(17, most))
    yield rows(1, 1)
    yield rows(max(1, min(8, MAX_CELLS // most**2)), most)
    lengths = torch.arange(0, 48, 8)[:, None]
    yield rows(len(lengths), min(40, most)).masked_fill(torch.arange(min(40, most)) >= lengths, config.pad_id)
    yield torch.full((1, min(8, most)), config.pad_id)


def trace(logits: nn.Module, example: Tensor, max_length: int | None = None) -> bytes:
    """Return the ONNX file of a module that maps `example` (B, T), or ids of any other size, to logits (B, C).

    `max_length` is the largest T; None: no limit.
    """
    shape = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length", max=max_length)}
    program = torch.export.export(logits, (example,), dynamic_shapes=(shape,), strict=False)
    exported = torch.onnx.export(
        program, dynamo=True, input_names=["input_ids"], output_names=["logits"], verbose=False
    )
    assert exported is not None, "dynamo=True returns a program"
    return exported.model_proto.SerializeToString()


def _largest_difference(content: bytes, batches: list[Tensor], expected: list[np.ndarray]) -> float:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    found = [session.run(["logits"], {"input_ids": ids.numpy()})[0] for ids in batches]
    return float(max(np.abs(one - other).max() for one, other in zip(found, expected, strict=True)))


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Drop the warnings and log lines of the exporters about their own working."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
