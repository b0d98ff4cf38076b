"""The candidate "encoder" of a fine-tuning: its tokens, network and objective, and the evaluations that choose its step.

Shapes: N rows, C classes.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch

from recurcli.config import Preset
from recurcli.data.recurrence_tasks import prefix_labels
from recurcli.data.splits import Split
from recurcli.device import SettledPrecision, choose_precision
from recurcli.distributed.group import current
from recurcli.encoders import encoder_class
from recurcli.errors import UsageError
from recurcli.evaluation.decision import Kept
from recurcli.evaluation.inference import InferenceConfig, compute_logits
from recurcli.evaluation.report import DevScore, report_of
from recurcli.files import naming_damage
from recurcli.log import Log
from recurcli.metrics import score_in
from recurcli.models.build import build_loop, build_model, resolve_tokens, settle, settle_kernel
from recurcli.models.candidate import Network
from recurcli.models.data import Data
from recurcli.network import Classifier
from recurcli.runs.network_files import NetworkFiles, TrainedFiles, load_weights
from recurcli.runs.run_directory import PRESET, first_difference
from recurcli.targets.target import Logits, Y
from recurcli.tokens.tokenizer import Tokens, encode_splits
from recurcli.training.objectives import ClassificationObjective
from recurcli.training.session import StopRequest
from recurcli.validation import flatten


class EncodedRows(NamedTuple):
    """Labelled rows and their tokens."""

    split: Split
    tokens: Tokens


class Encoder(Network):
    """The tokens, the network and the loop of a fine-tuning on `data`, from random weights or from those of `init`.

    Its evaluations score the encoder alone, so the linear model beside it does not affect its training.
    """

    def __init__(
        self,
        preset: Preset,
        data: Data,
        init: NetworkFiles | None,
        device: torch.device,
        stop: StopRequest,
        log: Log,
    ) -> None:
        self.data, self.stop, train, pairs = data, stop, data.train, bool(data.train.source.columns.pair)
        old, measured = None if init is None else init.tokenizer, data.own.texts
        tokenizer, max_length = resolve_tokens(preset, lambda: train.texts, log, tokenizer=old, measured=measured)
        self.tokens, self.split_facts = encode_splits(data.splits, tokenizer, max_length, preset.data.truncate, log)
        if (count := len(data.choosing.examples)) > (most := preset.data.max_dev_rows):
            log.detail(f"{most:,} of {count:,} dev rows choose the step (data.max_dev_rows); in the end all are scored")
        rows, pretrained = len(train.examples), init is not None
        preset = settle(preset, "finetuning", tokenizer, max_length, rows, log, pretrained=pretrained, pairs=pairs)
        config, classes = preset.finetuning, data.target.width
        self.model = build_model(Classifier, preset, tokenizer, log, pairs=pairs, num_classes=classes)
        settle_kernel(self.model, preset, device, log)
        if init is not None:
            load_pretrained(self.model, init)
            log.detail(f"starting from {init.folder}, with its tokenizer")
        prefixes = _prefix_labels(data, self.tokens["train"]) if config.supervise == "every" else None
        self.objective = ClassificationObjective(
            self.tokens["train"], train.y, data.learner, data.weights, config, tokenizer, data.teacher, prefixes
        )
        self.metric_name = data.metric
        self.inference = InferenceConfig(device, batch_size=config.micro_batch_size, ranks=current())
        self.precision = choose_precision(preset.runtime.precision, device) if device.type == "cuda" else "fp32"
        loop = build_loop(preset, "finetuning", self.model, self.objective, device, self, log)
        super().__init__(preset, "finetuning", tokenizer, loop)

    @cached_property
    def selecting(self) -> tuple[EncodedRows, np.ndarray]:
        """The dev rows that choose the step, and their numbers: all, or `data.max_dev_rows` of them.

        Of each stratum of the target they are its share, chosen by the hashes of the texts.
        """
        split, tokens, most = self.data.choosing, self.tokens["dev"], self.preset.data.max_dev_rows
        count = len(split.examples)
        if count <= most:
            return EncodedRows(split, tokens), np.arange(count)
        order = np.lexsort((split.hashes, self.data.target.strata(split.y)))
        rows = np.sort(order[np.arange(most) * count // most])
        return EncodedRows(split.take(np.isin(np.arange(count), rows)), tokens.take(rows)), rows

    def score(self) -> DevScore:
        """Evaluate the encoder on the `selecting` rows: its dev metric, and the mean of the loss that training minimizes.

        The precision is that of the training on CUDA, and fp32 on CPUs. Raises StopTraining on a signal.
        """
        encoded, rows = self.selecting
        logits, score = self._compute(encoded.tokens, self.precision), None
        if self.inference.ranks.is_main:
            loss = self.objective.mean_loss(logits, encoded.split.y, self.data.choosing_weights[rows])
            report = report_of(Kept.as_is(self.data.target), logits, encoded.split, self.metric_name)
            score = DevScore(score_in(report, self.metric_name), loss)
        return DevScore(*self.inference.ranks.broadcast(score))

    def logits(self, split: str) -> Logits:
        """Return the logits (N, C) of the rows of `split` in fp32, as all that reads the stored model computes them.

        Raises StopTraining on a signal. All ranks must call it.
        """
        return self._compute(self.tokens[split], "fp32")

    def _compute(self, tokens: Tokens, precision: SettledPrecision) -> np.ndarray:
        check_stop = self.stop.raise_if_agreed
        check_stop()
        config = self.inference._replace(precision=precision)
        return compute_logits(self.model, tokens, config, lambda done: check_stop())


def _prefix_labels(data: Data, tokens: Tokens) -> Y:
    """Return the label of the prefix that ends at each token of the training rows. Raises UsageError if rows were cut."""
    cells = [label for text, _ in data.train.texts for label in prefix_labels(data.task.name, text)]
    if len(cells) != len(tokens.ids):
        raise UsageError(
            "finetuning.supervise every needs a token a symbol: raise data.max_length, or tokenize at spaces"
        )
    return data.target.encode(cells)


def check_init(files: TrainedFiles, preset: Preset) -> None:
    """Raise UsageError if the tokenizer, embedding or encoder of the pretrained run `files` differs from the preset."""
    with naming_damage(files.folder.path / PRESET):
        before = _architecture(files.folder.read_preset())
    now = _architecture(preset.to_dict())
    if difference := first_difference(before, now):
        raise UsageError(f"--init {files.folder}: {difference} in the preset; give both the same")


def _architecture(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys in which a pretrained run and the preset must agree; dropout and `freeze` may differ.

    `embedding.scaled` has no effect on an encoder with positions, so it may differ there. So may the place of a Hugging Face
    encoder; its sizes may not.
    """
    encoder = encoder_class(values["encoder"]["name"])
    with_positions = encoder.adds_positions or encoder.concatenates_positions
    return {
        ".".join(path): value
        for path, value in flatten(values)
        if path not in (("encoder", "path"), ("encoder", "freeze"))
        and (
            (path[0] in ("tokenizer", "encoder") and not path[-1].endswith("dropout") and value is not None)
            or (path == ("embedding", "orthonormal") and value)
            or (path == ("embedding", "scaled") and not with_positions)
        )
    }


def load_pretrained(model: Classifier, init: NetworkFiles) -> None:
    """Copy embedding and encoder of a pretrained run into `model`; the head keeps its initial weights.

    The two pair vectors of the embedding may be in only one of them. If the run has none, `model` keeps
    its initial ones; if `model` has none, those of the run are ignored.
    """
    initial = model.state_dict()
    shared = {name: tensor for name, tensor in init.tensors.items() if name.startswith(("embedding.", "encoder."))}
    for name in ("embedding.second_text", "embedding.match"):
        if name in initial:
            shared.setdefault(name, initial[name])
        else:
            shared.pop(name, None)
    head = {name: tensor for name, tensor in initial.items() if name.startswith("head.")}
    load_weights(model, {**shared, **head}, init.folder / "model.safetensors")
