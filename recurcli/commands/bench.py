"""`recur bench`: speed and peak memory of encoders beside torch's TransformerEncoder and Hugging Face's BERT."""

import itertools
import os
from collections.abc import Iterator, Mapping
from typing import Any, Literal, cast

import torch

from recurcli.commands.benchmark.candidates import (
    Candidate,
    Shape,
    encoder_candidates,
    peer_candidates,
    shapes,
)
from recurcli.commands.benchmark.measure import Setting, measure, one_thread
from recurcli.device import Precision, choose_device, choose_precision
from recurcli.errors import pluralize
from recurcli.log import Log, Measured
from recurcli.requests.bench import BenchRequest
from recurcli.requirements import unmet


def bench(request: BenchRequest, log: Log) -> dict[str, Any]:
    """Measure each setting of the request.

    Raises UsageError before the first measurement if an encoder, a preset or the device is unknown, or if an encoder cannot
    have a width, a depth or a dropout.
    """
    device = choose_device(request.device)
    found: dict[Shape, list[Candidate]] = {}
    for shape in shapes(request):
        found[shape] = encoder_candidates(request, shape)
        found[shape] += peer_candidates(request, shape) if request.peers else []
    if request.peers and (lacking := unmet("hf")):
        log.note(f"Hugging Face's BERT is no peer: it needs {lacking['transformers']}: pip install 'recurcli[hf]'")
    settings = list(_settings(request, found, device))
    results: list[dict[str, Any]] = []
    with one_thread():
        for number, (shape, setting) in enumerate(settings, 1):
            log.note(f"{number} of {len(settings)}: {in_words(setting.to_json())}")
            results.append(measure(setting, found[shape], request.rounds, device))
            for out in results[-1]["left_out"]:
                log.warn(f"{out['name']}, {in_words(setting.to_json())}: left out: {out['reason']}")
            log.progress(Measured(results[-1]))
    return {
        "machine": _machine(device),
        "clock": "CUDA events" if device.type == "cuda" else "CPU time",
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


def _settings(
    request: BenchRequest, found: Mapping[Shape, list[Candidate]], device: torch.device
) -> Iterator[tuple[Shape, Setting]]:
    precisions = dict.fromkeys(choose_precision(cast(Precision, name), device) for name in request.words("precision"))
    for mode, precision, shape, rows, length in itertools.product(
        request.words("mode"), precisions, found, request.numbers("batch_size"), request.numbers("length")
    ):
        kind = cast(Literal["training", "inference"], mode)
        yield shape, Setting(kind, precision, shape.hidden_size, shape.num_layers, rows, length)


def _machine(device: torch.device) -> dict[str, Any]:
    """Return the facts about the machine on which the times depend."""
    gpu = device.type == "cuda"
    return {
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name(device) if gpu else f"cpu ({torch.backends.cpu.get_cpu_capability()})",
        "cores": os.cpu_count(),
        "threads": 1,
        "load_average": round(os.getloadavg()[0], 2),
    }
