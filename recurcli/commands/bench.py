"""`recur bench`: speed and peak memory of encoders beside torch's TransformerEncoder and Hugging Face's BERT.

The candidates of a setting are timed in interleaved rounds. What is timed is a training step, or a forward pass, on random
embeddings. Every row has T tokens, so there is no padding. Shapes: B rows, T positions, D hidden size.

In the mode `step`, a causal encoder reads the next token after T others, with the state that these have left.

The peers have the interface of an encoder: post-norm layers with GELU and a feed-forward network 4 times as wide, like the
encoder `transformer`. One dropout probability applies to embeddings and sublayer outputs, and another one to attention weights,
as in that encoder. They get no mask, because their fastest paths need none.

On a GPU the peak is that of torch's allocator. On a CPU, torch's profiler reports each allocation and release of a tensor,
and the peak is the largest sum of them. This peak repeats exactly. It leaves out the interpreter and the buffers of oneDNN
and BLAS. The resident size of the process would include them, and what earlier candidates have left in malloc's free lists.
"""

import dataclasses
import gc
import itertools
import math
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.profiler import profile

from recurcli.config import FinetuningConfig
from recurcli.device import Precision, autocast, choose_device, choose_precision
from recurcli.encoders.encoder import Encoder, StepState
from recurcli.encoders.registry import LINEAR, PRETRAINED, build_encoder, causal_key, encoder_config
from recurcli.errors import UsageError, did_you_mean, escaped, is_lack_of_memory, pluralize
from recurcli.layers import computed_once, sinusoidal_positions
from recurcli.log import Log, Measured
from recurcli.preset import compose, preset_names
from recurcli.preset.matching import match_parameters, parameters_of
from recurcli.requests.bench import DROPOUT, HIDDEN_SIZE, LAYERS, BenchRequest
from recurcli.requirements import unmet
from recurcli.runs.model_files import build_shapes
from recurcli.training.fit import AdamW

LEARNING_RATE, WEIGHT_DECAY = 1e-4, 0.01
MIN_SECONDS, MAX_STEPS = 0.1, 50
"""The least time of a candidate's turn, and the largest number of steps in it. A single short step would be lost in the
noise of the clock."""
HEADS = 8
"""The number of attention heads. A width that is not a multiple of 8 has fewer heads."""


@dataclass(frozen=True)
class Setting:
    """The mode, the precision and the sizes that all candidates of one comparison share."""

    mode: str
    precision: Literal["fp32", "bf16"]
    hidden_size: int | None
    """The width of all candidates. None if each one has its own (`--match-parameters`)."""
    num_layers: int
    batch_size: int
    length: int

    def to_json(self) -> dict[str, Any]:
        """Return the setting for `--json`, with the number of tokens of a step."""
        return {**vars(self), "tokens": self.tokens}

    @property
    def tokens(self) -> int:
        """The number of tokens that a step reads."""
        return self.batch_size * (1 if self.mode == "step" else self.length)


def bench(request: BenchRequest, log: Log) -> dict[str, Any]:
    """Measure each setting of the request.

    Raises UsageError before the first measurement if an encoder, a preset or the device is unknown, or if an encoder cannot
    have a width, a depth or a dropout; and at the end if every encoder was left out.
    """
    device = choose_device(request.device)
    by_step = request.words("mode") == ["step"]
    peers = peer_candidates if request.peers and not by_step else lambda request, shape: ()
    found = {shape: [*encoder_candidates(request, shape), *peers(request, shape)] for shape in shapes(request)}
    if request.peers and not by_step and (lacking := unmet("hf")):
        log.note(f"Hugging Face's BERT is no peer: it needs {lacking['transformers']}: pip install 'recurcli[hf]'")
    precisions = dict.fromkeys(choose_precision(cast(Precision, name), device) for name in request.words("precision"))
    numbers = (request.numbers("batch_size"), request.numbers("length"))
    settings = [
        (shape, Setting(mode, precision, shape.hidden_size, shape.num_layers, rows, length))
        for mode, precision, shape, rows, length in itertools.product(
            request.words("mode"), precisions, found, *numbers
        )
    ]
    results, threads, gpu = [], torch.get_num_threads(), device.type == "cuda"
    torch.set_num_threads(1)  # CPU time would also count the waiting of other threads
    try:
        for number, (shape, setting) in enumerate(settings, 1):
            log.note(f"{number} of {len(settings)}: {in_words(setting.to_json())}")
            results.append(measure(setting, found[shape], request.rounds, device))
            for out in results[-1]["left_out"]:
                log.warn(f"{out['name']}, {in_words(setting.to_json())}: left out: {out['reason']}")
            log.progress(Measured(results[-1]))
    finally:
        torch.set_num_threads(threads)
    if not any(result["candidates"] for result in results):
        reasons = "; ".join({f"{out['name']}: {out['reason']}": 0 for result in results for out in result["left_out"]})
        raise UsageError(
            f"no encoder was measured: {reasons}; name another encoder" + ", or leave --mode out" * by_step
        )
    return {
        "machine": {
            "torch": torch.__version__,
            "device": torch.cuda.get_device_name(device) if gpu else f"cpu ({torch.backends.cpu.get_cpu_capability()})",
            "cores": os.cpu_count(),
            "threads": 1,
            "load_average": round(os.getloadavg()[0], 2),
        },
        "clock": "CUDA events" if gpu else "CPU time",
        "rounds": request.rounds,
        "dropout": next(iter(found)).dropout,
        "attention_dropout": request.attention_dropout,
        "match_parameters": request.match_parameters,
        "settings": results,
    }


def in_words(setting: Mapping[str, Any]) -> str:
    """Return the mode, precision, sizes and length of a setting as text."""
    width = "" if setting["hidden_size"] is None else f" of {setting['hidden_size']}"
    layers = pluralize(setting["num_layers"], "layer") + width
    return f"{setting['mode']}, {setting['precision']}, {layers}, B {setting['batch_size']}, T {setting['length']}"


class Candidate(NamedTuple):
    """An encoder to measure, or a peer."""

    name: str
    hidden_size: int
    num_layers: int | None
    """The number of layers. None for tied StarSaber, which iterates one layer."""
    parameters: int
    build: Callable[[int], Encoder]
    """Returns the encoder with random initial weights for texts of at most the given number of tokens."""
    is_peer: bool = False
    """Whether it is an implementation of others, to which the encoders are compared."""


class Shape(NamedTuple):
    """The hidden size, the number of layers and the dropout that all candidates of a comparison share."""

    hidden_size: int | None
    num_layers: int
    dropout: float


def shapes(request: BenchRequest) -> Iterator[Shape]:
    """Yield each combination of width and depth. What no option gives is taken from the preset, or from the defaults."""
    encoder = compose(request.preset).preset.encoder if request.preset is not None else {}
    own: dict[str, Any] = {"hidden_size": HIDDEN_SIZE, "num_layers": LAYERS, "dropout": DROPOUT}
    own |= {key: encoder[key] for key in own if encoder.get(key) is not None}
    dropout = own["dropout"] if request.dropout is None else request.dropout
    widths = [None] if request.match_parameters is not None else request.numbers("hidden_size") or [own["hidden_size"]]
    for width in widths:
        for depth in request.numbers("layers") or [own["num_layers"]]:
            yield Shape(width, depth, dropout)


def encoder_candidates(request: BenchRequest, shape: Shape) -> list[Candidate]:
    """Return the encoder of the preset, under the preset's name, and the encoders that the request names.

    Returns all encoders if the request has neither a preset nor names. Raises UsageError if a name is unknown, or if an
    encoder cannot have the shape.
    """
    known = [name for name in preset_names()["encoders"] if name not in (LINEAR, PRETRAINED)]
    names = list(dict.fromkeys(request.encoders or ([] if request.preset is not None else known)))
    for name in names:
        if name not in known:
            raise UsageError(f"no encoder '{escaped(name)}'" + did_you_mean(name, known))
    made = []
    if request.preset is not None:
        own = compose(request.preset)
        if own.preset.is_linear or own.preset.encoder["name"] == PRETRAINED:
            has = "no encoder to measure" if own.preset.is_linear else "an encoder whose size is that of its folder"
            raise UsageError(f"--preset: {own.name} has {has}; name another preset")
        encoder = own.preset.encoder
        made = [_candidate(own.name, request.preset, encoder["name"], request, shape, tied=encoder.get("tied", False))]
    return made + [_candidate(name, f"{name}-custom", name, request, shape) for name in names]


def _candidate(
    name: str, preset: str, encoder: str, request: BenchRequest, shape: Shape, *, tied: bool = False
) -> Candidate:
    asked: dict[str, tuple[str, Any]] = {
        "hidden_size": ("--hidden-size", shape.hidden_size),
        "num_layers": ("--layers", None if tied else shape.num_layers),
        "dropout": ("--dropout", shape.dropout),
        "attention_dropout": ("--attention-dropout", request.attention_dropout),
        "feed_forward_dropout": ("recur bench", 0.0),  # the peers have none either
    }
    keys = {field.name for field in dataclasses.fields(encoder_config(encoder))}
    given = {f"encoder.{key}": of for key, of in asked.items() if key in keys and of[1] is not None}
    if request.words("mode") == ["step"] and (pair := causal_key(encoder)) is not None:
        given[f"encoder.{pair[0]}"] = ("--mode step", pair[1])
    resolved = compose(preset, overrides=given)
    if request.match_parameters is not None:
        resolved, _ = match_parameters(resolved, request.match_parameters)
    config = resolved.preset.encoder

    def build(length: int) -> Encoder:
        limits = {"max_length": max(config["max_length"], length)} if "max_length" in config else {}
        return build_encoder({**config, **limits})

    return Candidate(name, config["hidden_size"], config.get("num_layers"), parameters_of(resolved), build)


class TorchTransformer(Encoder):
    """`torch.nn.TransformerEncoder` on embeddings with sinusoidal positions. Inference uses torch's fast path."""

    def __init__(self, hidden_size: int, num_layers: int, dropout: float, attention_dropout: float) -> None:
        super().__init__()
        heads = math.gcd(hidden_size, HEADS)
        layer = nn.TransformerEncoderLayer(
            hidden_size, heads, 4 * hidden_size, dropout, activation="gelu", batch_first=True
        )
        layer.self_attn.dropout = attention_dropout
        layer.dropout.p = 0.0  # on the inner units of the feed-forward network, where BERT has none
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an odd number of heads has no nested tensors, which are not used here
            self.stack = nn.TransformerEncoder(layer, num_layers, enable_nested_tensor=False)
        self.layers = self.stack.layers
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        states: Tensor = self.stack(self.dropout(x + sinusoidal_positions(x)))
        return states


class Bert(Encoder):
    """Hugging Face's `BertModel` without token table and pooler. Learned positions and LayerNorm come before the layers."""

    def __init__(
        self, hidden_size: int, num_layers: int, dropout: float, attention_dropout: float, attention: str, length: int
    ) -> None:
        super().__init__()
        from transformers import BertConfig, BertModel

        config = BertConfig(
            vocab_size=1,  # the embeddings are given
            hidden_size=hidden_size,
            num_hidden_layers=num_layers,
            num_attention_heads=math.gcd(hidden_size, HEADS),
            intermediate_size=4 * hidden_size,
            max_position_embeddings=length,
            hidden_dropout_prob=dropout,
            attention_probs_dropout_prob=attention_dropout,
            attn_implementation=attention,
        )
        self.bert = BertModel(config, add_pooling_layer=False)
        self.layers = self.bert.encoder.layer

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        states: Tensor = self.bert(inputs_embeds=x).last_hidden_state
        return states


def peer_candidates(request: BenchRequest, shape: Shape) -> Iterator[Candidate]:
    """Yield the peers of a shape.

    With `--match-parameters` they are as wide as the encoder `transformer` of that many parameters.
    """
    width, depth = shape.hidden_size, shape.num_layers
    if request.match_parameters is not None:
        settings = {"encoder.num_layers": ("--layers", depth)}
        matched, _ = match_parameters(compose("transformer-custom", overrides=settings), request.match_parameters)
        width = matched.preset.encoder["hidden_size"]
    assert width is not None
    sizes = (width, depth, shape.dropout, request.attention_dropout)

    layer = build_shapes(partial(nn.TransformerEncoderLayer, width, math.gcd(width, HEADS), 4 * width))
    parameters = depth * sum(parameter.numel() for parameter in layer.parameters())  # BERT's layer is as large
    builds: dict[str, Callable[[int], Encoder]] = {"torch Transformer": lambda length: TorchTransformer(*sizes)}
    if not unmet("hf"):
        builds |= {f"BERT {attention}": partial(Bert, *sizes, attention) for attention in ("eager", "sdpa")}
    for name, build in builds.items():
        yield Candidate(name, width, depth, parameters, build, is_peer=True)


class Workload:
    """A candidate with its optimizer and its input. `recur bench` times its `step`.

    Under bf16 the encoders have fp32 weights and use autocast, as in `recur`. In inference the peers have bf16 weights
    instead, because that is faster for them. Raises UsageError if the mode is `step` and the encoder has none.
    """

    def __init__(self, candidate: Candidate, setting: Setting, device: torch.device) -> None:
        torch.manual_seed(0)
        self.candidate = candidate
        self.peak_memory = 0
        """The peak of a step in bytes."""
        self.steps_per_round = 1
        self.rounds: list[float] = []
        """The seconds of a step in each round."""
        self.training, self.by_step = setting.mode == "training", setting.mode == "step"
        self.device = device
        self.model = candidate.build(setting.length).to(device).train(self.training)
        if self.by_step and self.model.step_obstacle:
            raise UsageError(self.model.step_obstacle)
        half = setting.precision == "bf16" and not self.training and candidate.is_peer
        self.dtype = torch.bfloat16 if half else torch.float32
        self.precision = "fp32" if half else setting.precision
        self.model = self.model.to(self.dtype)
        if self.training:
            self.optimizer = AdamW(self.model.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY, fused=True)
        shape = (setting.batch_size, setting.length, candidate.hidden_size)
        self.x = torch.randn(shape, device=device, dtype=self.dtype).requires_grad_(self.training)
        self.wanted = torch.randn(shape, device=device) if self.training else None
        self.state: StepState | None = None

    def read_all(self) -> None:
        """Take every position of the input, so that `step` takes the last one after all of them."""
        with torch.inference_mode(), autocast(self.device, self.precision):
            for x in self.x.unbind(dim=1):
                _, self.state = self.model.step(x, self.state)

    def step(self) -> None:
        """Take one training step, one forward pass, or one position."""
        if self.by_step:
            with torch.inference_mode(), autocast(self.device, self.precision):
                self.model.step(self.x[:, -1], self.state)
            return
        if self.wanted is None:
            with torch.inference_mode(), autocast(self.device, self.precision):
                self.model(self.x)
            return
        with autocast(self.device, self.precision), computed_once():
            states: Tensor = self.model(self.x)
            auxiliary = self.model.auxiliary_losses(self.x)
            loss = sum(auxiliary.values(), F.mse_loss(states.float(), self.wanted))
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.model.parameters(), FinetuningConfig().max_grad_norm or 1.0).item()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.x.grad = None
        with torch.no_grad():
            self.model.project_()


class MemoryMeter:
    """Measures the memory of the tensors that calls of `peak` have made, in bytes."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.live = 0
        """The number of bytes of these tensors that exist now."""
        self._before = torch.cuda.memory_allocated(device) if device.type == "cuda" else 0

    def peak(self, run: Callable[[], object]) -> int:
        """Call `run` and return the largest number of bytes that existed at one time, with those of earlier calls."""
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
            run()
            torch.cuda.synchronize(self.device)
            self.live = torch.cuda.memory_allocated(self.device) - self._before
            return torch.cuda.max_memory_allocated(self.device) - self._before
        with profile(profile_memory=True) as trace:
            run()
        # Private to torch, whose public events have the sum of an operator alone: a rename breaks these lines.
        assert trace.kineto_results is not None
        changes = [event for event in trace.kineto_results.events() if event.name() == "[memory]"]
        most = self.live
        for change in sorted(changes, key=lambda event: event.start_ns()):
            self.live += change.nbytes()
            most = max(most, self.live)
        return most


def measure(setting: Setting, candidates: Sequence[Candidate], rounds: int, device: torch.device) -> dict[str, Any]:
    """Return the setting with the results of its candidates, as `recur bench --json` prints it.

    Times are in seconds per step, memory in bytes. `rounds` is the number of turns of each candidate. `left_out` lists the
    name and the reason of each candidate that does not fit in memory. `ratio` is that of the tokens/s to those of the best
    peer; without peers it is None.
    """
    works: list[Workload] = []
    left_out = []
    for candidate in candidates:
        try:
            works.append(_prepare(candidate, setting, device))
        except UsageError as error:
            left_out.append({"name": candidate.name, "reason": str(error)})
        except (MemoryError, RuntimeError) as error:
            if not is_lack_of_memory(error):
                raise
            left_out.append({"name": candidate.name, "reason": "the memory is full"})
    for work in works:
        seconds = max(seconds_of(work.step, 1, device), 1e-9)
        work.steps_per_round = min(MAX_STEPS, max(1, math.ceil(MIN_SECONDS / seconds)))
    for number in range(rounds):
        first = number % max(1, len(works))  # each round starts with the next one, so none is always first
        for work in works[first:] + works[:first]:
            work.rounds.append(seconds_of(work.step, work.steps_per_round, device) / work.steps_per_round)
    results = [_result(work, setting) for work in works]
    works.clear()
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    peers = [result for result in results if result["is_peer"]]
    best = max(peers, key=lambda peer: peer["tokens_per_second"], default=None)
    for result in results:
        result["ratio"] = result["tokens_per_second"] / best["tokens_per_second"] if best else None
    return {**setting.to_json(), "best_peer": best and best["name"], "candidates": results, "left_out": left_out}


def _result(work: Workload, setting: Setting) -> dict[str, Any]:
    low, middle, high = (float(value) for value in np.quantile(work.rounds, (0.25, 0.5, 0.75)))
    return {
        "name": work.candidate.name,
        "is_peer": work.candidate.is_peer,
        "hidden_size": work.candidate.hidden_size,
        "num_layers": work.candidate.num_layers,
        "parameters": work.candidate.parameters,
        "tokens_per_second": setting.tokens / middle,
        "seconds_per_step": middle,
        "interquartile_range": high - low,
        "rounds": work.rounds,
        "steps_per_round": work.steps_per_round,
        "peak_memory_bytes": work.peak_memory,
    }


def seconds_of(step: Callable[[], None], count: int, device: torch.device) -> float:
    """Return the time of `count` steps in seconds: CPU time of the process or, on a GPU, the time between two CUDA events."""
    if device.type == "cuda":
        started, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        torch.cuda.synchronize(device)
        started.record(torch.cuda.current_stream(device))
        for _ in range(count):
            step()
        ended.record(torch.cuda.current_stream(device))
        torch.cuda.synchronize(device)
        return started.elapsed_time(ended) / 1000
    begun = time.process_time()
    for _ in range(count):
        step()
    return time.process_time() - begun


def _prepare(candidate: Candidate, setting: Setting, device: torch.device) -> Workload:
    """Build the workload and run two of its steps, of which the second has the peak memory of all later ones."""
    meter = MemoryMeter(device)
    made: list[Workload] = []
    meter.peak(lambda: made.append(Workload(candidate, setting, device)))
    if made[0].by_step:
        made[0].read_all()  # not in the profile, which keeps an event for each tensor of thousands of steps
        storages = {part.data_ptr(): part.nbytes() for part in _storages(made[0].state)}
        meter.live += sum(storages.values())
    meter.peak(made[0].step)  # makes the moments of the optimizer
    made[0].peak_memory = meter.peak(made[0].step)
    return made[0]


def _storages(state: Any) -> Iterator[torch.UntypedStorage]:
    """Yield the memory of each tensor in the state of a step."""
    if isinstance(state, Tensor):
        yield state.untyped_storage()
    elif isinstance(state, Mapping):
        state = list(state.values())
    elif dataclasses.is_dataclass(state):
        state = list(vars(state).values())
    for part in state if isinstance(state, list | tuple) else ():
        yield from _storages(part)
