"""The export format `onnx`: a folder with an ONNX model and a script that needs neither recur nor torch.

model.onnx has the encoder and its head, linear.npz the linear model of an ensemble; predict.py joins their logits. A part of
weight 0 is left out.
"""

import io
from collections.abc import Callable, Generator, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from recurcli.errors import ModelError, UsageError
from recurcli.events import Note
from recurcli.export.format import TrainedRun
from recurcli.export.onnx_model import check_exportable, onnx_model
from recurcli.files import commit_directory, read_limited, to_json
from recurcli.interruptible import interruptible
from recurcli.linear.model import MAX_TEXT, LinearModel
from recurcli.model.saved import config_to_dict
from recurcli.runs.run_directory import MODEL_CARD, RunDirectory
from recurcli.tokens.tokenizer import CHARACTERS_PER_TOKEN

PACKAGES = ("onnx", "onnxscript", "onnxruntime")
MAX_CARD = 1 << 20
SCRIPTS = Path(__file__).parent / "folder"
"""The folder with predict.py and linear_model.py, which are copied."""


def export_onnx(runs: Sequence[TrainedRun], output: Path) -> Generator[Note, None, list[dict[str, Any]]]:
    """Write the folder `output` for one run; return name, size in bytes and purpose of its files.

    Raises UsageError before any work for several runs, a missing package, and an encoder that cannot be exported;
    ModelError for a model card that is a link, and as `onnx_model` does.
    """
    if len(runs) != 1:
        raise UsageError("--format onnx writes one run; give one RUN and call it again for the others")
    [run] = runs
    about = _about(run.path)
    weights = (
        (1 / run.temperature, 0.0)
        if run.ensemble is None
        else (run.ensemble.encoder_weight, run.ensemble.linear_weight)
    )
    if weights[0]:
        _check_packages()
        check_exportable(run.model)
    yield from RunDirectory(run.path).note_if_unfinished()
    if "spans" in run.model.config.columns:
        yield Note("predict.py does not mark the two spans of a text; give it texts that are marked", "warning")
    files: dict[str, tuple[bytes, str]] = {}
    if weights[0]:
        content, difference = interruptible(partial(onnx_model, run.model.cpu()))
        files["model.onnx"] = content, f"encoder; its logits are within {difference:.0e} of the run's"
        files["tokenizer.json"] = run.tokenizer.to_json().encode(), "tokenizer"
    else:
        yield Note(
            "the linear model alone was the best on the dev rows, so there is no model.onnx: no encoder needs to run"
        )
    if run.ensemble is not None and weights[1]:
        files["linear.npz"] = _npz(run.ensemble.linear), "linear model on n-grams"
        files["linear_model.py"] = (SCRIPTS / "linear_model.py").read_bytes(), "numpy code of the linear model"
    files["config.json"] = to_json(_config(run, weights)).encode(), "labels and settings"
    files["predict.py"] = (SCRIPTS / "predict.py").read_bytes(), "labels texts: python predict.py < texts.txt"
    files["README.md"] = _card(run, about, encoder=bool(weights[0])).encode(), "model card"
    writers: dict[str, Callable[[Path], object]] = {
        name: partial(Path.write_bytes, data=content) for name, (content, _) in files.items()
    }
    commit_directory(output, writers, replace=True)
    return [{"name": name, "bytes": len(content), "purpose": what} for name, (content, what) in files.items()]


def _check_packages() -> None:
    if missing := [name for name in PACKAGES if find_spec(name) is None]:
        raise UsageError(f"--format onnx needs {' and '.join(missing)}: pip install 'recurcli[onnx]'")


def _npz(linear: LinearModel) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, keys=linear.ngrams.keys, idf=linear.ngrams.weights, weights=linear.weights, bias=linear.bias)
    return buffer.getvalue()


def _config(run: TrainedRun, weights: tuple[float, float]) -> dict[str, Any]:
    """Return config.json: that of the run, and what predict.py needs besides."""
    tokenizer, config = run.tokenizer, run.model.config
    ngrams = None if run.ensemble is None else run.ensemble.linear.ngrams.config
    replaced = [tokenizer.pad_id, tokenizer.separator_id, tokenizer.mask_id]  # as in Tokenizer.encode
    return {
        **config_to_dict(config),
        "pairs": bool(config.columns.get("pair")),
        "encoder_weight": weights[0],
        "linear_weight": weights[1],
        "separator_id": tokenizer.separator_id,
        "unknown_id": tokenizer.unknown_id,
        "special_ids": [] if tokenizer.unknown_id is None else replaced,
        "characters_per_token": CHARACTERS_PER_TOKEN,
        "longest_text": MAX_TEXT,
        "ngrams": None if ngrams is None else [ngrams.characters, ngrams.words],
        "second_text": None if ngrams is None else ngrams.second_text,
    }


def _about(run: Path) -> str:
    """Return the model card of a run without its use; raises ModelError for a link, which could lead to any file."""
    card = run / MODEL_CARD
    if card.is_symlink():
        raise ModelError(f"{card}: is a symbolic link, which is not followed; put the file there or delete the link")
    if not card.exists():
        return f"# {run.name}\n"
    return read_limited(card, MAX_CARD).decode(errors="replace").partition("\n## Use\n")[0]


def _card(run: TrainedRun, about: str, *, encoder: bool) -> str:
    """Return the run's model card, which begins with `about`, with the use of this folder."""
    packages = "onnxruntime tokenizers numpy" if encoder else "numpy"
    texts = "two texts a line, separated by a TAB" if run.model.config.columns.get("pair") else "one text a line"
    return (
        f"{about}\n## Use\n\n    pip install {packages}\n    python predict.py < texts.txt > labels.tsv\n\n"
        f"texts.txt has {texts} (UTF-8); labels.tsv has `label<TAB>probability` for each, in order.\n"
    )
