"""What the fault tests train, and what must be the same bit for bit however a training came to its end."""

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tiny_task import tiny

from recurcli.evaluation.decision import Kept
from recurcli.files import MANIFEST, extend_manifest, sha256_of, to_json
from recurcli.runs.model_files import write_listed
from recurcli.targets import OneLabel

COMMANDS = ("finetune", "pretrain")
Prints = dict[str, dict[str, object]]
"""Fingerprints of runs that nothing disturbed, by command."""
AWKWARD = (
    *(
        "encoder.dropout=0.2",
        "embedding.dropout=0.1",
        "finetuning.word_dropout=0.2",
        "finetuning.gradient_accumulation_steps=3",
        "pretraining.gradient_accumulation_steps=3",
    ),
    "ensemble=linear",
    *("finetuning.checkpoint_every=3", "pretraining.checkpoint_every=3", "finetuning.evaluate_every=5"),
)
"""Dropout, accumulation, an ensemble, evaluations and checkpoints that do not coincide."""


def options(data: Path, output: Path, *settings: str, encoder: str = "starsaber") -> list[str]:
    """Arguments of a training of a second on the small TNEWS."""
    source = ["--preset", f"{encoder}-tnews", "--data", str(data), "--output", str(output)]
    return [*source, "--quiet", "--keep-checkpoints", *tiny(*AWKWARD, *settings)]


def copy_of(run: Path, target: Path) -> Path:
    """Copy a run without its checkpoints, to be changed; returns the copy."""
    return shutil.copytree(run, target, ignore=shutil.ignore_patterns("checkpoints"))


def weighted(run: Path, target: Path, encoder: float, linear: float) -> Path:
    """Copy a run, which then keeps its candidates with these weights; one with the weight 0 is left out. Returns the copy."""
    copy_of(run, target)
    write_listed(target / "kept.json", to_json(reweighted(kept_of(run), encoder, linear).to_json()))
    return target


def kept_of(run: Path) -> Kept:
    """What the run keeps, by its kept.json."""
    return Kept(OneLabel(()), **json.loads((run / "kept.json").read_text()))


def reweighted(kept: Kept, encoder: float, linear: float) -> Kept:
    """Return `kept` with these weights of its candidates; one with the weight 0 is left out."""
    weights = {name: weight for name, weight in {"encoder": encoder, "linear": linear}.items() if weight}
    return replace(
        kept, name="ensemble" if len(weights) > 1 else "encoder" if encoder else "linear model", weights=weights
    )


def edit_preset(run: Path, old: str, new: str) -> None:
    """Replace a text in preset.yaml of a run, whose manifest lists the new file."""
    preset = run / "preset.yaml"
    text = preset.read_text(encoding="utf-8")
    assert old in text
    preset.write_text(text.replace(old, new), encoding="utf-8")
    if (run / MANIFEST).is_file():
        extend_manifest(run, preset.name)


def edit_source(run: Path, **changes: object) -> None:
    """Change keys of `source` in config.json of a run, whose manifest lists the new file."""
    path = run / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config["source"] |= changes
    path.write_text(json.dumps(config), encoding="utf-8")
    extend_manifest(run, path.name)


class AtOpen:
    """An audit hook that calls `act(run)` just before the `left`-th file of `run` from now on is opened."""

    def __init__(self, act: Callable[[Path], None]) -> None:
        self.act, self.run, self.left = act, Path(), 0
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and self.left and str(arguments[0]).startswith(f"{self.run}/"):
            self.left -= 1
            if not self.left:
                self.act(self.run)


def fingerprint(run: Path) -> dict[str, object]:
    """What must be the same, bit for bit: the model's files, the last checkpoint, and the lines of the metrics file."""
    last = max((run / "checkpoints").glob("step-????????"))
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [line["step"] for line in lines]
    assert len(steps) == len(set(steps)), "a step is in the metrics file twice"
    leftovers = [str(path) for path in run.rglob(".*")]
    assert not leftovers, "a kill's half-written files stay"
    predictions = run / "predictions.dev.jsonl"
    return {
        **{name: sha256_of(run / name) for name in ("model.safetensors", "config.json", "tokenizer.json")},
        "predictions": sha256_of(predictions) if predictions.exists() else None,
        "linear": [sha256_of(run / name) for name in ("linear.safetensors", "kept.json") if (run / name).exists()],
        "last": last.name,
        "checkpoint": {name: sha256_of(last / name) for name in ("model.safetensors", "optimizer.safetensors")},
        "steps": steps,
        "losses": [line["loss"] for line in lines],
    }
