"""`recur bench`: what its numbers are made of, whom it compares, and what it refuses or leaves out."""

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest
import torch
from logs import Kept
from running import Recur

from recurcli.commands import bench as measuring
from recurcli.commands.bench import (
    Candidate,
    MemoryMeter,
    Setting,
    Shape,
    Workload,
    bench,
    encoder_candidates,
    measure,
    peer_candidates,
    shapes,
)
from recurcli.encoders.encoder import Encoder
from recurcli.requests.bench import BenchRequest

CPU = torch.device("cpu")


SMALL: dict[str, Any] = {"hidden_size": "16", "layers": "1", "precision": "fp32", "batch_size": "2", "rounds": 3}


OPTIONS = ["--hidden-size", "16", "--layers", "1", "--batch-size", "2", "--rounds", "2", "--precision", "fp32"]


@pytest.fixture(autouse=True, scope="module")
def _short_turns() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measuring, "MIN_SECONDS", 1e-3)
        yield


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    """Two encoders beside torch's at two lengths."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measuring, "unmet", lambda extra: {"transformers": "transformers"})
        return finished(BenchRequest(encoders=["starsaber", "transject"], length="8,16", **SMALL))


def finished(request: BenchRequest) -> dict[str, Any]:
    return bench(request, Kept())


def candidate(name: str, **more: Any) -> Candidate:
    request = BenchRequest(encoders=[name], **{**SMALL, **more})
    return encoder_candidates(request, next(iter(shapes(request))))[0]


def setting(mode: Any = "training", rows: int = 2, length: int = 8) -> Setting:
    return Setting(mode, "fp32", 16, 1, rows, length)


def test_tokens_a_second_times_the_median_time_are_the_tokens_of_a_step(result: dict[str, Any]) -> None:
    assert [(each["mode"], each["length"]) for each in result["settings"]] == [
        (mode, length) for mode in ("training", "inference") for length in (8, 16)
    ]
    for each in result["settings"]:
        assert each["tokens"] == 2 * each["length"]
        for one in each["candidates"]:
            assert len(one["rounds"]) == result["rounds"] == 3
            assert one["seconds_per_step"] == median(one["rounds"]) > 0
            assert one["tokens_per_second"] * one["seconds_per_step"] == pytest.approx(each["tokens"])
            low, high = np.quantile(one["rounds"], (0.25, 0.75))
            assert one["interquartile_range"] == pytest.approx(high - low)


def test_a_ratio_is_that_of_tokens_a_second_to_the_best_peer(result: dict[str, Any]) -> None:
    for each in result["settings"]:
        assert [one["name"] for one in each["candidates"]] == ["starsaber", "transject", "torch Transformer"]
        speed = {one["name"]: one["tokens_per_second"] for one in each["candidates"]}
        assert each["best_peer"] == "torch Transformer"
        for one in each["candidates"]:
            assert one["ratio"] == speed[one["name"]] / speed["torch Transformer"]


def test_candidates_take_turns_and_each_round_starts_with_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[str] = []

    def record(step: Any, count: int, device: torch.device) -> float:
        turns.append(type(step.__self__.model).__name__)
        return 1.0

    monkeypatch.setattr(measuring, "seconds_of", record)
    names = ("starsaber", "rezero", "bilstm")
    measuring.measure(setting("inference"), [candidate(name) for name in names], rounds=3, device=CPU)
    a, b, c = "StarSaber", "ReZero", "BiLSTM"
    assert turns[3:] == [a, b, c, b, c, a, c, a, b]  # the first three are a step each, to count those of a turn


def test_the_meter_counts_what_lives_at_one_time() -> None:
    meter, kept = MemoryMeter(CPU), []

    def work() -> None:
        kept.append(torch.zeros(1000))
        for _ in range(3):
            torch.zeros(2000)

    assert meter.peak(work) == 3000 * 4
    assert meter.live == 1000 * 4
    assert meter.peak(lambda: torch.zeros(10)) == 1010 * 4


def test_training_holds_weights_gradients_and_both_moments(result: dict[str, Any]) -> None:
    training, inference = result["settings"][1], result["settings"][3]
    for one, other in zip(training["candidates"], inference["candidates"], strict=True):
        weights = 4 * one["parameters"]
        assert one["peak_memory_bytes"] > 4 * weights
        assert weights < other["peak_memory_bytes"] < one["peak_memory_bytes"]


def test_what_does_not_fit_is_left_out_with_a_note(recur: Recur, monkeypatch: pytest.MonkeyPatch) -> None:
    def step(work: Workload) -> None:
        if type(work.model).__name__ == "Transformer":
            raise MemoryError

    monkeypatch.setattr(Workload, "step", step)
    line = ["bench", "starsaber", "transformer", "--no-peers", "--mode", "training", "--length", "8", *OPTIONS]
    out, err = recur.ok(*line)
    assert "warning: transformer, training, fp32, 1 layer of 16, B 2, T 8: left out: the memory is full" in err
    assert "starsaber" in out and "transformer" not in out.partition("B 2")[2].partition("Dropout")[0]


def test_steps_are_those_of_causal_encoders_and_another_says_why_it_is_left_out(recur: Recur) -> None:
    names = ["transformer-xl", "block-recurrent-transformer"]
    out, err = recur.ok("bench", *names, "starsaber", "--mode", "step", "--length", "1,140", *OPTIONS, "--json")
    assert "starsaber, step, fp32, 1 layer of 16, B 2, T 1: left out: it has no form that takes one position" in err
    for each, length in zip(json.loads(out)["settings"], (1, 140), strict=True):
        assert (each["length"], each["tokens"], [one["name"] for one in each["candidates"]]) == (length, 2, names)
        assert [one["name"] for one in each["left_out"]] == ["starsaber"]


def test_steps_of_encoders_that_have_none_are_refused_with_the_reason(recur: Recur) -> None:
    line = ("bench", "bilstm", "starsaber", "--mode", "step", *OPTIONS)
    recur.refused(
        2, "no encoder was measured: bilstm: it has no form that takes one position at a time; starsaber: ", *line
    )
    out, _ = recur.ok("bench", "mingru", "--mode", "step", "--length", 4, *OPTIONS)
    assert "CPU time, medians of" in out and "Dropout" not in out and "optimizer" not in out


def test_an_encoder_without_steps_is_built_once() -> None:
    whole, lengths = candidate("starsaber"), list[int]()

    def build(length: int) -> Encoder:
        lengths.append(length)
        return whole.build(length)

    assert measure(setting("step"), [whole._replace(build=build)], rounds=1, device=CPU)["candidates"] == []
    assert lengths == [8]


def test_a_failure_that_is_no_lack_of_memory_is_not_hidden() -> None:
    broken = candidate("starsaber")._replace(hidden_size=24)
    with pytest.raises(RuntimeError):
        measuring.measure(setting(), [broken], rounds=1, device=CPU)


def test_json_has_settings_and_candidates(recur: Recur) -> None:
    line = ["bench", "starsaber", "--no-peers", "--mode", "inference", "--length", "8", "--json", "--device", "cpu"]
    out, err = recur.ok(*line, *OPTIONS)
    assert "1 of 1: inference, fp32, 1 layer of 16, B 2, T 8" in err
    found = json.loads(out)
    keys = "machine clock rounds dropout attention_dropout match_parameters settings"
    assert found.keys() == {*keys.split()}
    assert (found["clock"], found["dropout"], found["machine"]["threads"]) == ("CPU time", 0.1, 1)
    (each,) = found["settings"]
    facts = {key: each[key] for key in ("mode", "precision", "hidden_size", "num_layers", "batch_size", "length")}
    assert facts == vars(setting("inference"))
    assert (each["best_peer"], each["left_out"]) == (None, [])
    (one,) = each["candidates"]
    keys = "name is_peer hidden_size num_layers parameters tokens_per_second seconds_per_step interquartile_range"
    assert one.keys() == {*keys.split(), "rounds", "steps_per_round", "peak_memory_bytes", "ratio"}
    before = torch.get_num_threads()
    assert recur.ok(*line, "--quiet")[1] == "" and torch.get_num_threads() == before


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[list[str]]:
    """What stdout has before each setting is measured; Ctrl-C comes before the third."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # which is ignored in a script's background
    printed: list[str] = []

    def counted(setting: Setting, *arguments: Any) -> dict[str, Any]:
        with capsys.disabled():
            printed.append(capsys.readouterr().out)
        if len(printed) == 3:
            signal.raise_signal(signal.SIGINT)
        return measure(setting, *arguments)

    monkeypatch.setattr("recurcli.commands.bench.measure", counted)
    yield printed
    signal.signal(signal.SIGINT, before)


def test_a_stopped_benchmark_has_shown_each_setting_that_it_measured(recur: Recur, shown: list[str]) -> None:
    line = ["bench", "starsaber", "--no-peers", "--mode", "inference", "--length", "4,8,12,16", *OPTIONS]
    code, _, err = recur(*line)
    assert (code, err.endswith("recur: stopped by SIGINT\n")) == (130, True)
    assert shown[0] == ""
    assert [part.count("T ") for part in shown[1:]] == [1, 1], "a setting is shown before the next one is measured"
    assert shown[1].startswith("inference  fp32, 1 layer of 16, B 2, T 4\n") and "tokens/s" in shown[1]


def test_a_missing_peer_is_named(without: Callable[..., None]) -> None:
    without("transformers")
    log = Kept()
    request = {**SMALL, "rounds": 1, "mode": "inference", "length": "8"}
    bench(BenchRequest(encoders=["starsaber"], **request), log)
    assert "Hugging Face's BERT is no peer: it needs transformers ≥ 4.50, found none" in log.notes[0]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["starsber"], "no encoder 'starsber'; did you mean 'starsaber'?"),
        (["--precision", "fp16"], "--precision: no 'fp16'; did you mean 'bf16'?"),
        (["--mode", "train"], "--mode: no 'train'; did you mean 'training'?"),
        (["--length", "32,0"], "--length: '0' is not a whole number from 1 to"),
        (["rsa", "--hidden-size", "20"], "--hidden-size: encoder.hidden_size: 20 is not a multiple of num_heads 8"),
        (["--dropout", "1"], "'--dropout'"),
        (["--match-parameters", "3M", "--hidden-size", "64"], "excludes --hidden-size"),
        (["--match-parameters", "10", "rsa"], "so 10 cannot be reached"),
        (["--rounds", "0"], "greater than or equal to 1"),
    ],
)
def test_wrong_arguments_are_refused_in_one_line(recur: Recur, arguments: list[str], reason: str) -> None:
    recur.refused(2, reason, "bench", *arguments)


def test_matched_candidates_have_as_many_parameters_and_their_own_width() -> None:
    request = BenchRequest(encoders=["starsaber", "transformer"], layers="2", match_parameters="rsa-tnews")
    (shape,) = shapes(request)
    assert (shape.hidden_size, shape.num_layers) == (None, 2)
    found = [*encoder_candidates(request, shape), *peer_candidates(request, shape)]
    assert all(one.parameters == pytest.approx(3_160_000, rel=0.03) for one in found)
    width = {one.name: one.hidden_size for one in found}
    assert width["starsaber"] > width["transformer"] == width["torch Transformer"]


def test_a_preset_brings_its_settings_and_its_size(tmp_path: Path) -> None:
    preset = tmp_path / "mine.yaml"
    text = "extends: starsaber-custom\nencoder: {hidden_size: 24, num_layers: 3, position: sinusoidal, dropout: 0.3}\n"
    preset.write_text(text)
    request = BenchRequest(encoders=["starsaber"], preset=str(preset))
    (shape,) = shapes(request)
    assert shape == Shape(24, 3, 0.3)
    mine, plain = encoder_candidates(request, shape)
    assert (mine.name, mine.num_layers, plain.hidden_size, plain.num_layers) == ("mine", 3, 24, 3)
    assert mine.parameters < plain.parameters  # sinusoidal positions need fewer matrices
    assert [one.name for one in encoder_candidates(BenchRequest(preset=str(preset)), shape)] == ["mine"]
    (wider,) = shapes(BenchRequest(preset=str(preset), hidden_size="32", dropout=0.0))
    assert wider == Shape(32, 3, 0.0)


@pytest.mark.slow
def test_the_peers_are_transformers_of_equal_size_and_dropout() -> None:
    pytest.importorskip("transformers")
    wanted = candidate("transformer")
    x = torch.randn(2, 8, 16)
    for dropout, attention_dropout in ((0.0, 0.0), (0.0, 0.5), (0.5, 0.0)):
        request = BenchRequest(encoders=["transformer"], dropout=dropout, attention_dropout=attention_dropout, **SMALL)
        (shape,) = shapes(request)
        for peer in peer_candidates(request, shape):
            model = peer.build(8)
            assert sum(p.numel() for p in model.layers.parameters()) == peer.parameters == wanted.parameters
            same = torch.allclose(model.train()(x), model.eval()(x), atol=1e-5)
            assert same == (dropout == attention_dropout == 0), peer.name
    eager, sdpa = (peer for peer in peer_candidates(request, shape) if peer.name.startswith("BERT"))
    models = []
    for peer in (eager, sdpa):
        torch.manual_seed(1)
        models.append(peer.build(8).eval())
    assert torch.allclose(models[0](x), models[1](x), atol=1e-5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_is_timed_by_events_and_has_its_own_peak() -> None:
    found = finished(BenchRequest(encoders=["starsaber"], length="8", device="cuda", **SMALL))
    assert found["clock"] == "CUDA events"
    for each in found["settings"]:
        for one in each["candidates"]:
            assert one["seconds_per_step"] > 0 and one["peak_memory_bytes"] > 4 * one["parameters"]
