"""The export format `onnx`: a folder with an ONNX model and a script that needs neither recur nor torch.

model.onnx has the encoder and its head, linear.npz the linear model of an ensemble; predict.py joins their logits. A part of
weight 0 is left out. The graph takes batches of every size and length and is checked against the model. Shapes: B, T, C labels.
"""

import contextlib
import io
import logging
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from recurcli.encoders import PRETRAINED
from recurcli.errors import ModelError, UsageError, escaped, require_extra
from recurcli.evaluation.inference import TrainedEncoder
from recurcli.evaluation.predictor import Predictor, read_kept
from recurcli.export.format import TrainedRun
from recurcli.export.quantize import Agreement, as_half, in_half, onnx_logits, onnx_session, quantized
from recurcli.files import commit_directory, read_limited, to_json
from recurcli.linear import features, ngram_hashes
from recurcli.linear.model import LinearModel
from recurcli.log import Log
from recurcli.network import Classifier
from recurcli.process import interruptible
from recurcli.runs.model_files import config_to_dict, read_linear_model
from recurcli.runs.predictions import RowText
from recurcli.runs.run_directory import MODEL_CARD, held_in_words
from recurcli.targets import Number, OneLabel, SeveralLabels, Target
from recurcli.targets.target import Logits
from recurcli.tokens import word_tokens
from recurcli.tokens.tokenizer import CHARACTERS_PER_TOKEN

MAX_CARD = 1 << 20
SCRIPTS = Path(__file__).parent / "folder"
"""The folder with predict.py and linear_model.py, which are copied."""
BATCH_SIZE = 64
"""Texts that predict.py takes together. In int8 it is one: padding moves a sum in fp32 by 1e-7, which int8 can round to the
next level. On one core a text at a time is not slower: 32 texts of 16 tokens take 13 ms, and 19 ms in one batch (StarSaber
4 x 256)."""


def export_onnx(
    runs: Sequence[TrainedRun], output: Path, log: Log, min_agreement: float | None = None
) -> dict[str, Any]:
    """Write the folder `output` for one run; return name, size in bytes and purpose of its files.

    With `min_agreement` it is quantised, and the comparison with fp32 is returned too. Raises UsageError before any work for
    several runs, a missing package, and an encoder that cannot be exported; ModelError for a model card that is a link, for
    int8 without dev rows or with another label on too many, and as `onnx_model` does.
    """
    [run] = runs
    about, predictor = _about(run.path), run.predictor
    if (kind := predictor.kept.target.kind) not in (OneLabel.kind, SeveralLabels.kind, Number.kind):
        raise UsageError(f"{run.path}: labels of the kind {kind} are not exported; use `recur predict`")
    linear, finished = predictor.linear, run.folder.is_finished
    encoder = predictor.encoder if "encoder" in predictor.kept.weights else None
    if encoder is not None:
        require_extra("onnx", "--format onnx", "onnx", "onnxscript", "onnxruntime")
        check_exportable(encoder.model, has_linear=linear is not None)
    if not finished:
        about += "\nThe training of this model was not finished when it was exported.\n"
    if predictor.kept.name != read_kept(run.folder, predictor.config).name:
        about += "\nThis folder has the linear model of the ensemble alone (`--fast`), with its own dev scores.\n"
    dev = [] if min_agreement is None else run.dev_rows("on which int8 is compared with fp32; leave --quantize out")
    if predictor.source.columns.spans is not None:
        log.warn("predict.py does not mark the two spans of a text; give it texts that are marked")
    files: dict[str, tuple[bytes, str]] = {}
    fp32, graph, facts, runtime = None, None, {}, None
    if encoder is not None:
        fp32, difference = interruptible(partial(onnx_model, encoder.model.cpu()))
        graph, within = fp32, f"its logits are within {difference:.0e} of the run's"
        if min_agreement is not None:
            graph, within = interruptible(partial(quantized, fp32)), "in int8"
        runtime = least_runtime(graph)
        files["model.onnx"] = graph, f"encoder; {within}"
        files["tokenizer.json"] = encoder.tokenizer.to_json().encode(), "tokenizer"
    else:
        log.note("the linear model labels alone, so there is no model.onnx: no encoder needs to run")
    if linear is not None:
        half = ", in half precision" if dev else ""
        files["linear.npz"] = _npz(linear, half=bool(dev)), f"linear model on n-grams{half}"
        if (vectors := linear.vectors) is not None:
            files["vectors.npz"] = _vectors_npz(linear, half=bool(dev)), f"static vectors of {vectors.name}"
            files["vectors.tokenizer.json"] = vectors.tokenizer, "tokenizer of the static vectors"
        copied = (Path(str(module.__file__)) for module in (features, ngram_hashes, word_tokens))
        for source in (SCRIPTS / "linear_model.py", *copied):
            own = re.sub(rb"from recurcli\.\w+\.", b"from .", source.read_bytes())
            files[source.name] = own, "numpy code of the linear model"
    if min_agreement is not None:
        agreement = _compare(run, dev, encoder, fp32, graph)
        agreement.check(min_agreement)
        log.note(str(agreement))
        facts = {"quantization": {"type": "int8", **asdict(agreement)}}
        about += f"\n## int8\n\n{agreement}.\n"
    tokenizers = "tokenizers " if {"tokenizer.json", "vectors.npz"} & files.keys() else ""
    packages = (f"'onnxruntime>={runtime}' " if runtime else "") + f"{tokenizers}numpy"
    needs = {"onnxruntime": runtime, "packages": packages, "batch_size": 1 if facts else BATCH_SIZE}
    config = to_json({**_config(predictor, encoder), **needs, **facts})
    files["config.json"] = config.encode(), "labels and settings"
    script = (SCRIPTS / "predict.py").read_bytes()
    files["predict.py"] = script, "labels texts: python predict.py < texts.txt, or in Python"
    preset, held = run.folder.read_preset(), {*files}
    if preset["encoder"]["name"] == PRETRAINED or preset["tokenizer"]["kind"] == "vectors":
        held -= {"tokenizer.json"}  # its words are those of other texts
    files["README.md"] = f"{_card(predictor, about, packages)}\n{held_in_words(held)}\n".encode(), "model card"
    writers = {name: partial(Path.write_bytes, data=content) for name, (content, _) in files.items()}
    commit_directory(output, writers, replace=True)
    listed = [{"name": name, "bytes": len(content), "purpose": what} for name, (content, what) in files.items()]
    return {"files": listed, **facts}


def _compare(
    run: TrainedRun, rows: list[RowText], encoder: TrainedEncoder | None, fp32: bytes | None, int8: bytes | None
) -> Agreement:
    """Compare the run with the quantised one on its dev rows; the linear model is the one that was not fitted on them."""
    texts, kept, labels = [(row.text, row.pair) for row in rows], run.predictor.kept, run.predictor.labels
    of: tuple[dict[str, Logits], dict[str, Logits]] = {}, {}  # in fp32 and in int8
    if encoder is not None and fp32 is not None and int8 is not None:
        tokens = encoder.encode(texts)
        for logits, content in zip(of, (fp32, int8), strict=True):
            logits["encoder"] = onnx_logits(content, tokens, encoder.model.config.pad_id)
    if run.predictor.linear is not None:
        linear = read_linear_model(run.folder, len(labels), first_fit=True)
        assert linear is not None, "the run has a linear model"
        for logits, model in zip(of, (linear, in_half(linear)), strict=True):
            logits["linear"] = model.logits(texts)
    before, after = (kept.predict(kept.logits(logits)) for logits in of)
    return Agreement.of(kept.target, before, after, kept.target.encode(row.label for row in rows))


def _npz(linear: LinearModel, *, half: bool) -> bytes:
    buffer = io.BytesIO()
    idf, weights = (as_half(array) if half else array for array in (linear.ngrams.weights, linear.weights))
    np.savez(buffer, keys=linear.ngrams.keys, idf=idf, weights=weights, bias=linear.bias)
    return buffer.getvalue()


def _vectors_npz(linear: LinearModel, *, half: bool) -> bytes:
    assert linear.vectors is not None and linear.vector_weights is not None
    buffer, weights = io.BytesIO(), linear.vector_weights
    own = as_half(weights) if half else weights
    np.savez(buffer, values=linear.vectors.values, scales=linear.vectors.scales, weights=own)
    return buffer.getvalue()


def _config(predictor: Predictor, encoder: TrainedEncoder | None) -> dict[str, Any]:
    """Return config.json: that of the run, and what predict.py needs besides."""
    config, kept, linear = predictor.config, predictor.kept, predictor.linear
    parts = kept.slopes_and_offsets
    return {
        **config_to_dict(replace(config, network=None, source={})),  # the source names a local file
        **({} if encoder is None else _network(encoder)),
        "pairs": bool(predictor.source.columns.pair),
        "weights": {name: slope.tolist() for name, (slope, _) in parts.items()},
        "offsets": sum(offset for _, offset in parts.values()).tolist(),
        "least_probability": kept.target.least_probability(kept.rows),
        "thresholds": kept.threshold_values or None,
        "ngrams": linear and asdict(linear.ngrams.config),
        "vectors": linear and linear.vectors and linear.vectors.about,
    }


def _network(encoder: TrainedEncoder) -> dict[str, Any]:
    """Return the settings of the network and of its tokenizer, which predict.py reads."""
    tokenizer = encoder.tokenizer
    return {
        **asdict(encoder.model.config),
        "separator_id": tokenizer.separator_id,
        "unknown_id": tokenizer.unknown_id,
        "special_ids": [] if tokenizer.unknown_id is None else tokenizer.special_ids,  # as in Tokenizer.encode
        "template": tokenizer.template,
        "characters_per_token": CHARACTERS_PER_TOKEN,
    }


def _about(run: Path) -> str:
    """Return the model card of a run without its use. Raises ModelError for a link, which could lead to any file."""
    card = run / MODEL_CARD
    if card.is_symlink():
        raise ModelError(f"{card}: is a symbolic link, which is not followed; put the file there or delete the link")
    if not card.exists():
        return f"# {run.name}\n"
    return read_limited(card, MAX_CARD).decode(errors="replace").partition("\n## Use\n")[0]


def _card(predictor: Predictor, about: str, packages: str) -> str:
    """Return the run's model card, which begins with `about`, with the use of this folder, which needs `packages`."""
    pairs = bool(predictor.source.columns.pair)
    texts = "two texts a line, separated by a TAB" if pairs else "one text a line, TABs included"
    return (
        f"{about}\n## Use\n\n    pip install {packages}\n    python predict.py < texts.txt > labels.tsv\n\n"
        f"texts.txt has {texts} (UTF-8); labels.tsv has a line for each: {_line_of(predictor.kept.target)}.\n"
    )


def _line_of(target: Target) -> str:
    """Return in words what predict.py writes for a text."""
    if isinstance(target, SeveralLabels):
        return f"the labels, joined by `{target.separator}`, and nothing where there is no label"
    return "`label<TAB>probability`" if target.has_labels else "the number"


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


def check_exportable(model: Classifier, *, has_linear: bool = False) -> None:
    """Raise UsageError if the encoder of `model` is known not to have an ONNX graph."""
    if reason := model.encoder.export_obstacle:
        name = escaped(model.config.encoder["name"])
        way_out = "--fast exports the linear model beside it alone" if has_linear else "`recur predict` labels with it"
        raise UsageError(f"the encoder {name} cannot be exported to ONNX: {reason}; {way_out}")


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


def least_runtime(content: bytes) -> str:
    """Return the least version of onnxruntime that reads an ONNX file.

    It is 1.18 for IR 10 and opset 21, or earlier ones; for later ones the version here, which has read the file.
    """
    import onnx
    import onnxruntime

    model = onnx.load_model_from_string(content)
    opset = max(each.version for each in model.opset_import if not each.domain)
    return "1.18" if model.ir_version <= 10 and opset <= 21 else ".".join(onnxruntime.__version__.split(".")[:2])


def _largest_difference(content: bytes, batches: list[Tensor], expected: list[np.ndarray]) -> float:
    session = onnx_session(content)
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
