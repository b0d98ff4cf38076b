"""`recur bench`: speed and peak memory of encoders beside torch's TransformerEncoder and Hugging Face's BERT.

torch.utils.benchmark times the candidates of a setting, in interleaved rounds. What is timed is a training step, or a forward
pass, on random embeddings. Every row has T tokens, so there is no padding. Shapes: B rows, T positions, D hidden size.

In the mode `step`, a causal encoder reads the next token after T others, with the state that these have left.

The peers are post-norm layers with GELU and a feed-forward network 4 times as wide, like the encoder `transformer`. Dropout is
that of embeddings and sublayer outputs; attention weights have none. They get no mask, because their fastest paths need none.

On a GPU the peak is that of torch's allocator. On a CPU, torch's profiler reports each allocation and release of a tensor,
and the peak is the largest sum of them. This peak repeats exactly. It leaves out the interpreter and the buffers of oneDNN
and BLAS.
"""

import importlib.util
import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.profiler import profile
from torch.utils.benchmark import Measurement, Timer
from torch.utils.benchmark.utils.common import set_torch_threads
from torch.utils.benchmark.utils.timer import timer as wall_clock

from recurcli.device import Precision, SettledPrecision, autocast, choose_device, choose_precision
from recurcli.encoders import LINEAR, PRETRAINED
from recurcli.encoders.encoder import Encoder
from recurcli.encoders.registry import build_encoder, causal_key, encoder_config
from recurcli.errors import UsageError, did_you_mean, escaped, pluralize
from recurcli.layers import computed_once
from recurcli.log import Log
from recurcli.preset import compose, preset_names
from recurcli.preset.matching import match_parameters, parameters_of
from recurcli.requests.bench import BenchRequest

MIN_SECONDS = 0.1
"""The least time of a candidate's turn. A single short step would be lost in the noise of the clock."""
HEADS = 8
"""The number of attention heads of a peer. A width that is not a multiple of 8 has fewer heads."""


@dataclass(frozen=True)
class Setting:
    """The mode, the precision and the sizes that all candidates of one comparison share."""

    mode: str
    precision: SettledPrecision
    hidden_size: int | None
    """The width of all candidates. None if each one has its own (`--match-parameters`)."""
    num_layers: int
    batch_size: int
    length: int

    def __str__(self) -> str:
        width = "" if self.hidden_size is None else f" of {self.hidden_size}"
        layers = pluralize(self.num_layers, "layer") + width
        return f"{self.mode}, {self.precision}, {layers}, B {self.batch_size}, T {self.length}"


class Candidate(NamedTuple):
    """An encoder to measure, or a peer: an implementation of others, to which the encoders are compared."""

    name: str
    hidden_size: int
    parameters: int
    build: Callable[[], Encoder]
    """Returns the encoder with random initial weights."""
    is_peer: bool = False


def bench(request: BenchRequest, log: Log, show: Callable[[Setting, Mapping[str, Any]], object]) -> dict[str, Any]:
    """Measure each setting of the request, and call `show` with it and its result.

    Raises UsageError before the first measurement if an encoder, a preset or the device is unknown, or if an encoder cannot
    have a width, a depth or a dropout; and if an encoder cannot take single steps.
    """
    device = choose_device(request.device)
    candidates = encoder_candidates(request)
    if request.peers and request.mode != "step":
        candidates += peer_candidates(request)
    precisions = dict.fromkeys(choose_precision(cast(Precision, name), device) for name in request.words("precision"))
    results = []
    with set_torch_threads(1):  # CPU time would also count the waiting of other threads
        for mode, precision, length in itertools.product(request.words("mode"), precisions, request.lengths):
            setting = Setting(mode, precision, request.width, request.layers, request.batch_size, length)
            log.note(str(setting))
            results.append(measure(setting, candidates, request.rounds, device))
            show(setting, results[-1])
    on_gpu = device.type == "cuda"
    processor = torch.cuda.get_device_name(device) if on_gpu else f"cpu ({torch.backends.cpu.get_cpu_capability()})"
    return {
        "machine": {"torch": torch.__version__, "device": processor, "threads": 1},
        "clock": "wall time" if on_gpu else "CPU time",
        "rounds": request.rounds,
        "dropout": request.dropout,
        "match_parameters": request.match_parameters,
        "settings": results,
    }


def encoder_candidates(request: BenchRequest) -> list[Candidate]:
    """Return the encoders that the request names, or all.

    Raises UsageError if a name is unknown, or if an encoder cannot have the width, the depth or the dropout.
    """
    known = [name for name in preset_names()["encoders"] if name not in (LINEAR, PRETRAINED)]
    names = dict.fromkeys(request.encoders or known)
    for name in names:
        if name not in known:
            raise UsageError(f"encoder '{escaped(name)}' is unknown{did_you_mean(name, known)}")
    return [_encoder(name, request) for name in names]


def _encoder(name: str, request: BenchRequest) -> Candidate:
    options: dict[str, tuple[str, Any]] = {
        "num_layers": ("--layers", request.layers),
        "dropout": ("--dropout", request.dropout),
        "max_length": ("--length", max(512, *request.lengths)),
    }
    if request.width is not None:
        options["hidden_size"] = ("--hidden-size", request.width)
    if request.mode == "step" and (pair := causal_key(name)) is not None:
        options[pair[0]] = ("--mode step", pair[1])
    keys = {field.name for field in fields(encoder_config(name))}
    overrides = {f"encoder.{key}": value for key, value in options.items() if key in keys}
    resolved = compose(f"{name}-custom", overrides=overrides)
    if request.match_parameters is not None:
        resolved, _ = match_parameters(resolved, request.match_parameters)
    config = resolved.preset.encoder
    return Candidate(name, config["hidden_size"], parameters_of(resolved), partial(build_encoder, config))


def peer_candidates(request: BenchRequest) -> list[Candidate]:
    """Return the peers. With `--match-parameters` they are as wide as the encoder `transformer` of that many parameters."""
    width, depth = request.width or _encoder("transformer", request).hidden_size, request.layers
    parameters = depth * (12 * width**2 + 13 * width)  # 4 + 8 matrices of a layer; its biases and LayerNorms
    builds = {"torch Transformer": partial(torch_transformer, width, depth, request.dropout)}
    if importlib.util.find_spec("transformers"):
        sizes = width, depth, request.dropout, request.lengths[-1]
        builds |= {f"BERT {attention}": partial(bert, *sizes, attention) for attention in ("eager", "sdpa")}
    return [Candidate(name, width, parameters, build, is_peer=True) for name, build in builds.items()]


class Peer(Encoder):
    """A model of others with the interface of an encoder. `read` maps embeddings (B, T, D) to its states (B, T, D)."""

    def __init__(self, model: nn.Module, read: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.model = model
        self.read = read

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.read(x)


def torch_transformer(width: int, depth: int, dropout: float) -> Peer:
    """Return `torch.nn.TransformerEncoder` without positions. Inference uses torch's fast path."""
    heads = math.gcd(width, HEADS)
    layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout, activation="gelu", batch_first=True)
    layer.self_attn.dropout = layer.dropout.p = (
        0.0  # of the weights, and of the inner units of the feed-forward network
    )
    layers = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
    return Peer(layers, nn.Sequential(nn.Dropout(dropout), layers))


def bert(width: int, depth: int, dropout: float, length: int, attention: str) -> Peer:
    """Return Hugging Face's `BertModel` without token table and pooler. Learned positions and LayerNorm precede the layers."""
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=1,  # the embeddings are given
        hidden_size=width,
        num_hidden_layers=depth,
        num_attention_heads=math.gcd(width, HEADS),
        intermediate_size=4 * width,
        max_position_embeddings=length,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=0.0,
        attn_implementation=attention,
    )
    model = BertModel(config, add_pooling_layer=False)
    return Peer(model, lambda x: model(inputs_embeds=x).last_hidden_state)


def prepared_step(candidate: Candidate, setting: Setting, device: torch.device) -> Callable[[], object]:
    """Build a candidate with its input. Return a function that takes a training step, a forward pass, or one position.

    Under bf16 the encoders have fp32 weights and use autocast, as in `recur`. In inference the peers have bf16 weights
    instead, because that is faster for them. Raises UsageError if the mode is `step` and the encoder has none.
    """
    torch.manual_seed(0)
    model = candidate.build().to(device).train(setting.mode == "training")
    x = torch.randn(setting.batch_size, setting.length, candidate.hidden_size, device=device)
    if setting.mode == "training":
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
        return partial(train_step, model, optimizer, x.requires_grad_(), torch.randn_like(x), setting.precision)
    if setting.precision == "bf16" and candidate.is_peer:
        model, x = model.bfloat16(), x.bfloat16()
    if setting.mode == "step" and model.step_obstacle:
        raise UsageError(f"{candidate.name}: {model.step_obstacle}; name causal encoders")
    state = None

    @torch.inference_mode()
    def infer(position: int = -1) -> Any:
        with autocast(device, setting.precision):
            return model.step(x[:, position], state) if setting.mode == "step" else model(x)

    for position in range(setting.length if setting.mode == "step" else 0):
        _, state = infer(position)
    return infer


def train_step(
    model: Encoder, optimizer: torch.optim.Optimizer, x: Tensor, wanted: Tensor, precision: SettledPrecision
) -> None:
    """Take one optimizer step on the mean squared error between the hidden states of `x` and `wanted`, both (B, T, D).

    Gradients are computed for the weights and for the embeddings `x`, as in a training.
    """
    with autocast(x.device, precision), computed_once():
        states: Tensor = model(x)
        loss = sum(model.auxiliary_losses(x).values(), F.mse_loss(states.float(), wanted))
    loss.backward()  # type: ignore[no-untyped-call]
    nn.utils.clip_grad_norm_(model.parameters(), 1.0).item()
    optimizer.step()
    optimizer.zero_grad()
    x.grad = None
    with torch.no_grad():
        model.project_()


def with_peak_memory(candidate: Candidate, setting: Setting, device: torch.device) -> tuple[Callable[[], object], int]:
    """Return the step of a candidate and the peak memory in bytes of its second call. The first makes the optimizer's state."""
    if device.type == "cuda":
        before = torch.cuda.memory_allocated(device)
        step = prepared_step(candidate, setting, device)
        step()
        torch.cuda.reset_peak_memory_stats(device)
        step()
        return step, torch.cuda.max_memory_allocated(device) - before
    with profile(profile_memory=True) as first:
        step = prepared_step(candidate, setting, device)
        step()
    with profile(profile_memory=True) as second:
        step()
    return step, sum(_changes(first)) + max(itertools.accumulate(_changes(second), initial=0))


def _changes(trace: Any) -> list[int]:
    """Return the bytes that were allocated (positive) or released (negative) while `trace` ran, in the order of time."""
    # Private to torch, whose public events have the sum of an operator alone: a rename breaks these lines.
    changes = [event for event in trace.kineto_results.events() if event.name() == "[memory]"]
    return [change.nbytes() for change in sorted(changes, key=lambda event: event.start_ns())]


def measure(setting: Setting, candidates: Sequence[Candidate], rounds: int, device: torch.device) -> dict[str, Any]:
    """Return the setting with the results of its candidates, as `recur bench --json` prints it.

    Times are in seconds per step, memory in bytes. `rounds` is the number of turns of each candidate. `ratio` is that of the
    tokens/s to those of the best peer; without peers it is None.
    """
    tokens = setting.batch_size * (1 if setting.mode == "step" else setting.length)
    clock = wall_clock if device.type == "cuda" else time.process_time
    works = [with_peak_memory(candidate, setting, device) for candidate in candidates]
    timers = [Timer("step()", globals={"step": step}, timer=clock) for step, _ in works]
    # In rounds, so that a slow minute of the machine is shared by all.
    rounds_of_turns = [[timer.blocked_autorange(min_run_time=MIN_SECONDS) for timer in timers] for _ in range(rounds)]
    results: list[dict[str, Any]] = []
    for candidate, (_, peak), turns in zip(candidates, works, zip(*rounds_of_turns, strict=True), strict=True):
        (times,) = Measurement.merge(turns)
        results.append(
            {
                "name": candidate.name,
                "is_peer": candidate.is_peer,
                "hidden_size": candidate.hidden_size,
                "parameters": candidate.parameters,
                "tokens_per_second": tokens / times.median,
                "seconds_per_step": times.median,
                "interquartile_range": times.iqr,
                "rounds": [turn.median for turn in turns],
                "peak_memory_bytes": peak,
            }
        )
    peers = [result for result in results if result["is_peer"]]
    best = max(peers, key=lambda peer: peer["tokens_per_second"], default=None)
    for result in results:
        result["ratio"] = result["tokens_per_second"] / best["tokens_per_second"] if best else None
    return {**vars(setting), "tokens": tokens, "best_peer": best and best["name"], "candidates": results}
