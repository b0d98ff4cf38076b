"""The candidates of a training, as the trainer sees them: what a run stores and tells of each, and how its loop is run."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from hashlib import sha256
from typing import Any

from torch import Tensor

from recurcli.config import Preset, Section
from recurcli.encoders import PRETRAINED, Encoder
from recurcli.encoders.folder import folder_of, weight_files
from recurcli.errors import pluralize
from recurcli.files import sha256_of
from recurcli.linear.static_vectors import vectors_of_tokens
from recurcli.log import Log
from recurcli.metrics import PERPLEXITY, format_score, words_of
from recurcli.network import forward_flops_per_token
from recurcli.runs.model_files import Files
from recurcli.runs.network_files import count_parameters, save_tensors
from recurcli.tokens.tokenizer import Tokenizer
from recurcli.training.fit import TrainingLoop
from recurcli.training.session import Session, checkpoint_bytes
from recurcli.training.trackers import Add


class Candidate:
    """A model that a run may keep. Defaults are empty."""

    holds: tuple[str, ...] = ()
    """Its files that hold parts of the texts of the training."""

    def facts(self) -> dict[str, Any]:
        """Return what a resume must match besides the preset and the data."""
        return {}

    def plan(self) -> dict[str, Any]:
        """Return what the plan of a dry run has of it alone."""
        return {}

    def result(self) -> dict[str, Any]:
        """Return what result.json has of it alone."""
        return {}

    def files(self) -> Files:
        """Return its files as they are now, which the first model of a run brings."""
        return {}

    def restore(self, begin: Callable[..., Session], publish: Callable[[Files], None], log: Log) -> None:
        """Go on from the newest checkpoint. `begin` makes a Session of the run; `publish` writes the files of a model."""

    def train(self, track: Add, log: Log) -> None:
        """Take the steps that are left; `track` receives each line of metrics.jsonl with its step."""

    def finish(self) -> Files:
        """Take the best weights, free what the training needed, and return the files that changed. All ranks must call it."""
        return {}

    def notes(self, result: Mapping[str, Any], log: Log) -> None:
        """Log notes on its training, by the content of result.json."""


class Network(Candidate):
    """A network that is trained: its tokenizer, and its loop by a settled `preset`."""

    metric_name: str = PERPLEXITY
    """The metric of the evaluations that choose its step."""

    def __init__(self, preset: Preset, section: Section, tokenizer: Tokenizer, loop: TrainingLoop) -> None:
        self.preset, self.section, self.tokenizer, self.loop = preset, section, tokenizer, loop
        self._static = vectors_of_tokens(preset)
        is_own = self._static is None and preset.encoder["name"] != PRETRAINED
        self.holds = ("tokenizer.json",) if is_own else ()

    def facts(self) -> dict[str, Any]:
        """Return what `auto` and null came to, and the hashes of what it begins with."""
        facts = {
            "vocabulary sha256": sha256(self.tokenizer.to_json().encode()).hexdigest(),
            "max_length": self.loop.model.config.max_length,
            "steps": self.loop.total_steps,
            "learning_rate": self.loop.config.learning_rate,
            "word_dropout": self.preset.finetuning.word_dropout if self.section == "finetuning" else None,
        }
        if self.preset.encoder["name"] == PRETRAINED:
            files = weight_files(folder_of(self.preset.encoder["path"]))
            facts["encoder.path sha256"] = [sha256_of(file) for file in files]
        if self.loop.objective.carry is not None:
            facts["world size"] = self.loop.ranks.world_size
        return facts

    def plan(self) -> dict[str, Any]:
        """Return the sizes of the model, of its rows and of a checkpoint, and the steps."""
        return {
            **self._sizes(),
            "vocabulary": self.tokenizer.vocab_size,
            "mean_length": round(self._mean_length, 1),
            "steps_per_epoch": self.loop.steps_per_epoch,
            "steps": self.loop.total_steps,
            "checkpoint_bytes": checkpoint_bytes(self.loop),
        }

    def result(self) -> dict[str, Any]:
        """Return the sizes of the model, and what its loop took."""
        loop, state, stopped = self.loop, self.loop.state, None
        if loop.evaluate is not None and state.step < loop.total_steps:
            stopped = {
                "metric": self.metric_name,
                "best": state.best_dev_metric,
                "evaluations": state.stale_evaluations,
                "steps": loop.total_steps,
            }
        return {
            **self._sizes(),
            "embedding_vectors": self._static and self._static.about,
            "steps": state.step,
            "best_step": state.best_step or state.step,
            "early_stopping": stopped,
            "epochs": round(state.step / loop.steps_per_epoch, 2),
            "seconds": round(state.seconds, 2),
            "cpu_seconds": round(state.cpu_seconds, 2),
            "tokens": state.tokens,
            "tokens_per_second": round(state.tokens / max(state.seconds, 1e-9)),
            "export_obstacle": loop.model.encoder.export_obstacle,
        }

    @property
    def _mean_length(self) -> float:
        return float(self.loop.objective.lengths.mean())

    def _sizes(self) -> dict[str, Any]:
        """Return the number of parameters, and the forward FLOPs per token of a row of the mean length of the training rows.

        None: torch cannot count those of another package's encoder; a training must not fail for that.
        """
        model = self.loop.model
        try:
            flops = round(forward_flops_per_token(model.config, max(1, math.ceil(self._mean_length))))
        except Exception:
            flops = None
        return {"parameters": count_parameters(model), "forward_flops_per_token": flops}

    def files(self) -> Files:
        """Return the tokenizer and the weights."""
        return {"tokenizer.json": self.tokenizer.to_json(), **_weights(self.loop.model.state_dict())}

    def restore(self, begin: Callable[..., Session], publish: Callable[[Files], None], log: Log) -> None:
        """Go on from the newest checkpoint; the best weights are published at each evaluation that improves them."""
        self.session = begin(loop=self.loop, publish=lambda tensors: publish(_weights(tensors)))
        self.session.restore(log)

    def train(self, track: Add, log: Log) -> None:
        """Take the steps that are left. Raises Interrupted after a signal, which leaves a checkpoint."""
        self.session.track = track
        self.session.train(log)

    def finish(self) -> Files:
        """Take the best weights, which are published, or the last ones where nothing is evaluated, and return their file."""
        model, best = self.loop.model, self.session.best
        if best is not None:
            model.load_state_dict(best)
        self.session.best = None
        self.loop.optimizer.state.clear()  # the linear model that is fitted again needs the memory
        self.loop.ranks.broadcast_(list(model.state_dict().values()))
        return _weights(model.state_dict()) if best is None else {}

    def notes(self, result: Mapping[str, Any], log: Log) -> None:
        """Log notes on early stopping, on a best model in the last step, and on layers at their cap."""
        loop, state, section = self.loop, self.loop.state, self.section
        note_on_capped_layers(loop.model.encoder, section, log)
        whose = "encoder" if "parts" in result else "model"
        if stopped := result["early_stopping"]:
            metric, change = stopped["metric"], "fall" if loop.minimize else "rise"
            since = f"in {pluralize(stopped['evaluations'], 'evaluation')} since step {result['best_step']:,}"
            patience = f"{section}.patience {loop.config.patience}"
            log.note(
                f"stopped early at step {state.step:,} of {stopped['steps']:,}: the {whose}'s dev {words_of(metric)} did not "
                f"{change} {since}, where it was {format_score(metric, stopped['best'])} ({patience})"
            )
        elif state.best_step == state.step and state.second_dev_metric not in (None, state.best_dev_metric):
            key = "max_steps" if loop.config.max_steps else "epochs"
            log.note(f"the last {whose} is the best: more {section}.{key} may give a better one")


def _weights(tensors: Mapping[str, Tensor]) -> Files:
    return {"model.safetensors": partial(save_tensors, tensors)}


def note_on_capped_layers(encoder: Encoder, section: str, log: Log) -> None:
    """Log a note on layers whose scalar weight is at its cap."""
    if numbers := encoder.capped_layers():
        where = f"{'layer' if len(numbers) == 1 else 'layers'} {', '.join(map(str, numbers))}"
        log.note(
            f"encoder.{where}: the weight of the update is at its cap, where it has hardly a gradient; a smaller "
            f"{section}.scalar_lr_factor may give a better model"
        )
