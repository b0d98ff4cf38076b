"""Every encoder can be diagnosed, and what is said of it is true."""

import math
from typing import cast

import pytest
import torch
from cases import slow_but
from sized_encoders import SIZED

from recurcli.config import ModelConfig
from recurcli.diagnostics import diagnose, scaled_entropy
from recurcli.network import Backbone

IDS = torch.randint(1, 20, (6, 9), generator=torch.Generator().manual_seed(0))
MASK = torch.arange(9) < torch.tensor([9, 9, 7, 4, 2, 9])[:, None]


def backbone_of(name: str, *, hidden_size: int = 16, max_length: int = 16, **keys: object) -> Backbone:
    torch.manual_seed(0)
    encoder = {"name": name, "hidden_size": hidden_size, "num_layers": 2, **keys}
    return Backbone(ModelConfig(encoder=encoder, vocab_size=20, pad_id=0, max_length=max_length))


def model(name: str, **keys: object) -> Backbone:
    heads = {"num_heads": 2} if name.endswith(("transformer", "rezero")) or name == "rsa" else {}
    return backbone_of(name, **{**heads, **keys})  # type: ignore[arg-type]


WITH_ATTENTION = {
    *("starsaber", "gated-starsaber", "transformer", "rezero", "rsa", "linear-transformer"),
    *("orthogonal-transformer", "transformer-xl", "performer", "nystromformer", "synthesizer", "skyformer"),
}


@pytest.mark.parametrize("name", sorted(SIZED))
def test_every_encoder_has_a_diagnosis_of_finite_numbers(name: str) -> None:
    found = diagnose(model(name), IDS, MASK)
    assert [layer.layer for layer in found.layers] == ([] if name.startswith("truncated") else [1, 2])
    for layer in found.layers:
        for key, value in vars(layer).items():
            assert key == "stats" or math.isfinite(value), (name, key)
        if name in WITH_ATTENTION:
            assert 0 < cast(float, layer.stats["attention_entropy"]) <= math.log(9) + 1e-6
    assert len(found.gradient_norm_by_distance) == 7
    assert all(math.isfinite(norm) for norm in found.gradient_norm_by_distance)


@pytest.mark.parametrize("name", slow_but(["transject"], ["transject", "random-transject"]))
def test_an_encoder_that_takes_a_few_samples_at_a_time_is_diagnosed_on_all(name: str) -> None:
    ids = torch.randint(1, 20, (64, 48), generator=torch.Generator().manual_seed(0))
    found = diagnose(backbone_of(name, hidden_size=128, max_length=64), ids, torch.ones_like(ids, dtype=torch.bool))
    assert [layer.layer for layer in found.layers] == [1, 2]
    assert found.layers[0].activation_factor == pytest.approx(1, abs=1e-4)


def test_the_layers_of_an_encoder_that_reads_chunk_by_chunk_are_measured_on_the_whole_text() -> None:
    backbone = backbone_of("temporal-latent-bottleneck", num_heads=2, chunk_size=4, norm="post", rsa=True).eval()
    last = diagnose(backbone, IDS, MASK).layers[-1]
    _, states = backbone.encode(IDS, MASK)  # those of the last layer, since its LayerNorm is the last
    assert last.scaled_entropy == pytest.approx(scaled_entropy(states, MASK), rel=1e-5)
    assert {"gate", "rates", "attention_entropy"} <= last.stats.keys()
    one_chunk = MASK & (torch.arange(9) < 4)
    alone = diagnose(backbone, IDS[:, :4], MASK[:, :4]).layers[0].stats  # the first layer of the first chunk
    padded = diagnose(backbone, IDS, one_chunk).layers[0].stats
    for name, value in alone.items():
        assert padded[name] == pytest.approx(value, rel=1e-4), name


def test_an_identity_at_the_start_keeps_all_distances() -> None:
    for name in ("transject", "rezero"):
        for layer in diagnose(model(name), IDS, MASK).layers:
            assert layer.activation_factor == pytest.approx(1, abs=1e-5)
            assert layer.movement == pytest.approx(0, abs=1e-5)


def test_readings_are_those_of_the_weights() -> None:
    starsaber = diagnose(model("starsaber"), IDS, MASK).layers[0].stats
    assert starsaber["alpha"] == 1
    rsa = diagnose(model("rsa"), IDS, MASK).layers[0].stats
    assert rsa["gate"] == pytest.approx(0.5)
    transject = diagnose(model("transject"), IDS, MASK).layers[0].stats
    assert isinstance(transject["expert_weights"], list)
    assert sum(transject["expert_weights"]) == pytest.approx(1)


def test_attention_that_looks_at_all_alike_has_the_entropy_of_the_length() -> None:
    backbone = model("starsaber")
    with torch.no_grad():
        for parameter in backbone.encoder.parameters():
            parameter.zero_()
    expected = sum(length * math.log(length) for length in (9, 9, 7, 4, 2, 9)) / MASK.sum().item()
    assert diagnose(backbone, IDS, MASK).layers[0].stats["attention_entropy"] == pytest.approx(expected, rel=1e-5)


def test_orthogonal_attention_is_read_from_the_orthogonal_weights() -> None:
    orthogonal, plain = model("orthogonal-transformer"), model("transformer")
    state = orthogonal.state_dict()
    with torch.no_grad():
        for key in state:
            if key.endswith("query_key_value.weight"):
                state[key] *= 6  # raw parameters say nothing of the sizes of orthogonal weights
    orthogonal.load_state_dict(state)
    for number, weights in enumerate(orthogonal.encoder.orthogonal_weights()):  # type: ignore[operator]
        state.update({f"encoder.layers.{number}.{name}": weight.detach() for name, weight in weights.items()})
    plain.load_state_dict(state)
    for one, other in zip(diagnose(orthogonal, IDS, MASK).layers, diagnose(plain, IDS, MASK).layers, strict=True):
        assert one.stats["attention_entropy"] == pytest.approx(other.stats["attention_entropy"], rel=1e-5)


@pytest.mark.parametrize("name", ["rsa", "linear-transformer"])
def test_causal_attention_has_the_entropy_of_the_past_alone(name: str) -> None:
    backbone = model(name, causal=True)
    with torch.no_grad():
        for layer in backbone.encoder.layers:
            layer.attention.query_key_value.weight.zero_()  # type: ignore[operator, union-attr]
    logs = [math.log(t + 1) for length in (9, 9, 7, 4, 2, 9) for t in range(length)]
    entropy = diagnose(backbone, IDS, MASK).layers[0].stats["attention_entropy"]
    assert entropy == pytest.approx(sum(logs) / len(logs), rel=1e-4)


def test_the_tied_starsaber_is_one_layer_with_its_iterations() -> None:
    backbone = model("starsaber", num_layers=None, tied=True)
    with torch.no_grad():
        backbone.embedding.weight[IDS[4]] = 0  # then that row is at its fixed point from the start
    found = diagnose(backbone, IDS, MASK)
    x, h = backbone.encode(IDS, MASK)
    counts = backbone.encoder.iterations
    assert isinstance(counts, torch.Tensor)
    assert 1 == counts.amin() < counts.amax() < 100
    assert found.encoder_stats == {
        "iterations": pytest.approx(counts.double().mean().item()),
        "most_iterations": counts.amax().item(),
    }
    (layer,) = found.layers
    assert layer.movement == pytest.approx((h - x)[MASK].norm(dim=-1).mean().item(), rel=1e-4)


@pytest.mark.parametrize(
    ("name", "bounds", "contraction", "factor"),
    [
        ("truncated-rnn", {}, 0.95, 0.95**16 / 0.05),
        ("truncated-rnn", {"spectral_bound": 0.7, "window": 3}, 0.7, 0.343 / 0.3),
        ("truncated-lstm", {}, 0.9676, 18.22),
        ("truncated-rnn", {"window": None}, 0.95, None),
        ("truncated-rnn", {"stable": False}, None, None),
    ],
)
def test_the_truncated_models_say_what_lemma_1_bounds(
    name: str, bounds: dict[str, object], contraction: float | None, factor: float | None
) -> None:
    encoder = {"name": name, "hidden_size": 16, **bounds}
    stats = Backbone(ModelConfig(encoder=encoder, vocab_size=20, pad_id=0, max_length=16)).encoder.stats(
        torch.zeros(1, 4, 16), None
    )
    expected = {"contraction": contraction, "truncation_factor": factor}
    norm = stats.pop("recurrent_norm")
    for key in ("truncation_error", "truncation_bound"):
        stats.pop(key, None)
    assert name == "truncated-lstm" or norm <= (contraction or 1) + 1e-6  # the free one begins orthogonal
    assert stats == {key: pytest.approx(value, rel=1e-3) for key, value in expected.items() if value is not None}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_bilstm_is_diagnosed_on_cuda() -> None:
    found = diagnose(model("bilstm").cuda(), IDS.cuda(), MASK.cuda())
    assert all(math.isfinite(norm) for norm in found.gradient_norm_by_distance)


FOLLOWED = {
    "starsaber": {"alpha"},
    "rezero": {"alpha"},
    "rsa": {"attention.gate", "attention.rate"},
    "transject": {"residual_weight"},
    "random-transject": {"residual_weight"},
}


@pytest.mark.parametrize("name", sorted(SIZED))
def test_the_scalars_of_a_training_are_those_of_the_diagnosis(name: str) -> None:
    backbone = model(name)
    with torch.no_grad():
        for parameter in backbone.encoder.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    found = backbone.encoder.scalars()
    assert {key.split(".", 2)[2] for key in found} == FOLLOWED.get(name, set())
    for number, layer in enumerate(diagnose(backbone, IDS, MASK).layers):
        for key in ("alpha", "residual_weight", "gate"):
            values = [
                value
                for scalar, value in found.items()
                if scalar.startswith(f"layers.{number}.") and scalar.endswith(key)
            ]
            assert values == [layer.stats[key]] if key in layer.stats else not values
        if "rates" in layer.stats:
            rates = [abs(rate) for rate in layer.stats["rates"]]  # type: ignore[union-attr]
            assert found[f"layers.{number}.attention.rate"] == pytest.approx(sum(rates) / len(rates))
