"""`recur bench`: what its numbers are made of, whom it compares, and what it refuses."""

import itertools
import json
import signal
from collections.abc import Callable, Iterator, Mapping
from statistics import median
from typing import Any

import pytest
import torch
from running import Recur
from torch import Tensor

from recurcli.commands import bench as measuring
from recurcli.commands.bench import Candidate, Setting, bench, encoder_candidates, measure, peer_candidates
from recurcli.encoders.encoder import Encoder
from recurcli.log import Log
from recurcli.requests.bench import BenchRequest

CPU = torch.device("cpu")
SMALL: dict[str, Any] = {"hidden_size": 16, "layers": 1, "precision": "fp32", "batch_size": 2, "rounds": 3}
OPTIONS = ["--hidden-size", "16", "--layers", "1", "--batch-size", "2", "--rounds", "2", "--precision", "fp32"]


@pytest.fixture(autouse=True, scope="module")
def _short_turns() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measuring, "MIN_SECONDS", 1e-3)
        yield


def finished(request: BenchRequest) -> dict[str, Any]:
    return bench(request, Log(), lambda setting, result: None)


@pytest.fixture
def result(without: Callable[..., None]) -> dict[str, Any]:
    """Two encoders beside torch's at two lengths."""
    without("transformers")
    return finished(BenchRequest(encoders=["starsaber", "transject"], length="8,16", **SMALL))


def test_every_number_follows_from_the_rounds(result: dict[str, Any]) -> None:
    assert [(each["mode"], each["length"]) for each in result["settings"]] == [
        (mode, length) for mode in ("training", "inference") for length in (8, 16)
    ]
    for each in result["settings"]:
        assert [one["name"] for one in each["candidates"]] == ["starsaber", "transject", "torch Transformer"]
        assert (each["tokens"], each["best_peer"]) == (2 * each["length"], "torch Transformer")
        for one in each["candidates"]:
            assert len(one["rounds"]) == result["rounds"] == 3
            assert one["seconds_per_step"] == pytest.approx(median(one["rounds"]), rel=0.5)
            assert one["tokens_per_second"] * one["seconds_per_step"] == pytest.approx(each["tokens"])
            assert one["ratio"] == one["tokens_per_second"] / each["candidates"][2]["tokens_per_second"]
    training, inference = result["settings"][1], result["settings"][3]
    for one, other in zip(training["candidates"], inference["candidates"], strict=True):
        weights = 4 * one["parameters"]
        assert one["peak_memory_bytes"] > 4 * weights, "weights, gradients and both moments"
        assert weights < other["peak_memory_bytes"] < one["peak_memory_bytes"]


class Recorded(Encoder):
    """An encoder that writes its letter at each call, and makes 8,000 bytes of which half are freed at once."""

    step_obstacle = ""

    def __init__(self, letter: str, calls: list[str]) -> None:
        super().__init__()
        self.letter, self.calls = letter, calls

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        self.calls.append(self.letter)
        return torch.zeros(1000) + torch.zeros(1000)


def test_candidates_take_turns_and_peaks_are_what_lives_at_once() -> None:
    calls: list[str] = []
    made = [Candidate(letter, 16, 0, lambda letter=letter: Recorded(letter, calls)) for letter in "abc"]  # type: ignore[misc]
    found = measure(Setting("inference", "fp32", 16, 1, 2, 8), made, rounds=3, device=CPU)
    assert "".join(letter for letter, _ in itertools.groupby(calls)) == "abc" * 4  # the first to warm up
    assert {one["peak_memory_bytes"] for one in found["candidates"]} == {2 * 8 * 16 * 4 + 3 * 4000}


def test_a_step_holds_the_state_of_the_tokens_before_it(recur: Recur) -> None:
    names = ["transformer-xl", "mingru"]
    found = recur.json("bench", *names, "--mode", "step", "--length", "1,140", *OPTIONS)
    peaks = []
    for each, length in zip(found["settings"], (1, 140), strict=True):
        assert (each["length"], each["tokens"], [one["name"] for one in each["candidates"]]) == (length, 2, names)
        peaks.append([one["peak_memory_bytes"] - 2 * length * 16 * 4 for one in each["candidates"]])  # without input
    (keys, state), (more_keys, same_state) = peaks
    assert more_keys > keys and same_state == pytest.approx(state, rel=0.1)


def test_an_encoder_without_single_steps_is_refused(recur: Recur) -> None:
    recur.refused(2, "bilstm: it has no form that takes", "bench", "bilstm", "--mode", "step", *OPTIONS)


def test_json_has_settings_and_candidates(recur: Recur) -> None:
    line = ["bench", "starsaber", "--no-peers", "--mode", "inference", "--length", "8", "--json", "--device", "cpu"]
    out, err = recur.ok(*line, *OPTIONS)
    assert "inference, fp32, 1 layer of 16, B 2, T 8" in err
    found = json.loads(out)
    assert found.keys() == {"machine", "clock", "rounds", "dropout", "match_parameters", "settings"}
    assert (found["clock"], found["dropout"], found["machine"]["threads"]) == ("CPU time", 0.1, 1)
    (each,) = found["settings"]
    facts = {key: each[key] for key in ("mode", "precision", "hidden_size", "num_layers", "batch_size", "length")}
    assert facts == vars(Setting("inference", "fp32", 16, 1, 2, 8)) and each["best_peer"] is None
    (one,) = each["candidates"]
    keys = "name is_peer hidden_size parameters tokens_per_second seconds_per_step interquartile_range rounds"
    assert one.keys() == {*keys.split(), "peak_memory_bytes", "ratio"}
    before = torch.get_num_threads()
    assert recur.ok(*line, "--quiet", *OPTIONS)[1] == "" and torch.get_num_threads() == before


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[list[str]]:
    """What stdout has before each setting is measured; Ctrl-C comes before the third."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # which is ignored in a script's background
    printed: list[str] = []

    def counted(setting: Setting, *arguments: Any) -> Mapping[str, Any]:
        with capsys.disabled():
            printed.append(capsys.readouterr().out)
        if len(printed) == 3:
            signal.raise_signal(signal.SIGINT)
        return measure(setting, *arguments)

    monkeypatch.setattr("recurcli.commands.bench.measure", counted)
    yield printed
    signal.signal(signal.SIGINT, before)


def test_a_stopped_benchmark_has_shown_what_it_measured(recur: Recur, shown: list[str]) -> None:
    line = ["bench", "starsaber", "--no-peers", "--mode", "inference", "--length", "4,8,12,16", *OPTIONS]
    assert recur(*line)[0] == 130
    assert shown[0] == ""
    assert [part.count("T ") for part in shown[1:]] == [1, 1], "a setting is shown before the next one is measured"
    assert shown[1].startswith("inference  fp32, 1 layer of 16, B 2, T 4\n") and "tokens/s" in shown[1]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["starsber"], "'starsber' is unknown; did you mean 'starsaber'?"),
        (["linear"], "'linear' is unknown"),
        (["--precision", "fp16"], "--precision: no 'fp16'; did you mean 'bf16'?"),
        (["--mode", "train"], "--mode: no 'train'; did you mean 'training'?"),
        (["--mode", "step,training"], "excludes the other modes"),
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


def test_matched_candidates_have_as_many_parameters_and_own_widths() -> None:
    request = BenchRequest(encoders=["starsaber", "transformer"], layers=2, match_parameters="rsa-tnews")
    found = [*encoder_candidates(request), *peer_candidates(request)]
    assert all(one.parameters == pytest.approx(3_160_000, rel=0.03) for one in found)
    width = {one.name: one.hidden_size for one in found}
    assert width["starsaber"] > width["transformer"] == width["torch Transformer"]


@pytest.mark.slow
def test_the_peers_are_transformers_of_equal_size_and_dropout() -> None:
    pytest.importorskip("transformers")
    x = torch.randn(2, 8, 16)
    for dropout in (0.0, 0.5):
        request = BenchRequest(encoders=["transformer"], dropout=dropout, length="8", **SMALL)
        (wanted,) = encoder_candidates(request)
        for peer in peer_candidates(request):
            model = peer.build()
            layers = model.get_submodule("model.encoder" if peer.name.startswith("BERT") else "model")
            assert sum(p.numel() for p in layers.parameters()) == peer.parameters == wanted.parameters
            assert torch.allclose(model.train()(x), model.eval()(x), atol=1e-5) == (dropout == 0), peer.name
    states = []
    for peer in peer_candidates(request)[1:]:
        torch.manual_seed(1)
        states.append(peer.build().eval()(x))
    eager, sdpa = states
    assert torch.allclose(eager, sdpa, atol=1e-5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_is_timed_by_the_clock_and_has_its_own_peak() -> None:
    found = finished(BenchRequest(encoders=["starsaber"], length="8", device="cuda", **SMALL))
    assert found["clock"] == "wall time"
    for each in found["settings"]:
        for one in each["candidates"]:
            assert one["seconds_per_step"] > 0 and one["peak_memory_bytes"] > 4 * one["parameters"]
