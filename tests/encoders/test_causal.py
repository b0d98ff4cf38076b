"""A causal encoder never sees the future, in any of its forms; one-sided StarSaber is its equation."""

from typing import Any, cast

import pytest
import torch
from cases import slow_but
from equations import built, check_same
from torch import Tensor

from recurcli import layers
from recurcli.config import ModelConfig
from recurcli.encoders.registry import ENCODERS, causal_key
from recurcli.encoders.s4d import S4D
from recurcli.encoders.starsaber import StarSaber, StarSaberLayer
from recurcli.network import LanguageModel
from recurcli.ops import attention
from recurcli.ops.attention import past_attention_, past_attention_loop

VOCABULARY, SIZE = 30, 16
CAUSAL = [name for name in sorted(ENCODERS) if causal_key(name)]
VARIANTS = [
    *((name, {}) for name in CAUSAL),
    ("starsaber", {"position": "sinusoidal"}),
    ("starsaber", {"tied": True, "num_layers": None, "tolerance": 1e-4}),
    ("truncated-lstm", {"window": None, "stable": False}),
    *(("transformer-xl", {"segment": 16, "memory": 16, "rsa": rsa}) for rsa in (False, True)),
    ("rsa", {"num_heads": 8, "rem_heads": [1, 1, 1, 1, 1, 1], "norm": "pre"}),
]


def language_model(name: str, keys: dict[str, Any], dtype: torch.dtype = torch.float32) -> LanguageModel:
    key, value = causal_key(name) or ("", None)
    encoder = {"name": name, "hidden_size": SIZE, "num_layers": 2, "dropout": 0.0, key: value, **keys}
    torch.manual_seed(0)
    model = LanguageModel(ModelConfig(encoder=encoder, vocab_size=VOCABULARY, pad_id=0, max_length=256)).to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def logits_of(model: LanguageModel, ids: Tensor, mask: Tensor) -> Tensor:
    """The logits at every position (B, T, V)."""
    logits, _ = model(ids, mask, torch.arange(ids.numel()))
    return cast(Tensor, logits.detach().view(*ids.shape, -1))


def check_causal(model: LanguageModel, length: int, *changed: int) -> None:
    """Two rows, the second of them padded: no logit before a changed token differs by one bit, and a later one does.

    S4D's may differ by rounding.
    """
    ids = torch.randint(1, VOCABULARY, (2, length), generator=torch.Generator().manual_seed(1))
    mask = torch.arange(length) < torch.tensor([[length], [length - 3]])
    before = logits_of(model, ids, mask)
    for t in changed:
        other = ids.clone()
        other[:, t] = ids[:, t] % (VOCABULARY - 1) + 1
        after = logits_of(model, other, mask)
        earlier, now = before[:, :t][mask[:, :t]], after[:, :t][mask[:, :t]]
        if isinstance(model.encoder, S4D):  # an FFT rounds all positions together
            torch.testing.assert_close(earlier, now, atol=0.05 if torch.is_autocast_enabled("cpu") else 1e-5, rtol=0)
        else:
            assert torch.equal(earlier, now), t
        assert not torch.equal(before[:, t], after[:, t]), t


BOTH = [(*variant, training) for variant in VARIANTS for training in (True, False)]


@pytest.mark.parametrize(("name", "keys", "training"), slow_but([*BOTH[::4], *BOTH[3::4]], BOTH, unpack=True))
def test_no_position_sees_its_future(name: str, keys: dict[str, Any], training: bool) -> None:
    """Training has the explicit weights of short texts; evaluation has SDPA. 150 positions are three blocks of 64."""
    model = language_model(name, keys).train(training)
    with torch.set_grad_enabled(training):
        check_causal(model, 9, 1, 4, 5, 8)
        if keys.get("window", 0) is not None:  # whose loop over positions is the same for any length
            check_causal(model, 150, 63, 64, 65, 130)


@pytest.mark.parametrize("name", CAUSAL)
def test_no_position_sees_its_future_in_bf16(name: str) -> None:
    keys = {"segment": 16, "memory": 16} if name == "transformer-xl" else {}
    with torch.autocast("cpu", dtype=torch.bfloat16):
        check_causal(language_model(name, keys).train(), 70, 3, 66)


@pytest.mark.parametrize("training", [True, False])
def test_no_position_sees_its_future_in_the_forms_for_long_texts(
    training: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "is_long", lambda *_: True)
    monkeypatch.setattr(layers, "trains_short_texts", lambda *_: False)
    for name in ("starsaber", "transformer"):
        with torch.set_grad_enabled(training):
            check_causal(language_model(name, {}).train(training), 70, 1, 33, 66)


def test_an_encoder_that_is_not_causal_fails_this_test() -> None:
    for name in ("starsaber", "transformer", "rsa", "linear-transformer"):
        with pytest.raises(AssertionError):
            check_causal(language_model(name, {"causal": False}).eval(), 9, 4)
    for name in ("truncated-rnn", "truncated-lstm"):
        with pytest.raises(AssertionError):
            check_causal(language_model(name, {"bidirectional": True}).eval(), 9, 4)


@pytest.mark.parametrize("long", [False, True])
def test_past_attention_is_its_loop_and_so_are_its_gradients(long: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "is_long", lambda *_: long)
    parts = torch.randn(3, 2, 5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2)).unbind()
    parts = tuple(part.clone().requires_grad_() for part in parts)
    fast, slow = past_attention_(None, *parts), past_attention_loop(*parts)
    check_same(fast, slow, parts)
    assert (fast[:, 0] == 0).all(), "the first position has no past"
    one = torch.ones(2, 1, 4, dtype=torch.float64)
    assert (past_attention_(None, one, one, one) == 0).all()


def one_sided(**keys: Any) -> StarSaber:
    return built("starsaber", moved=0.5, hidden_size=6, causal=True, **keys)


def test_a_one_sided_layer_attends_to_earlier_positions_by_the_past_matrices_alone() -> None:
    encoder = one_sided(num_layers=2)
    x = torch.randn(1, 5, 6, dtype=torch.float64)
    h = x[0]
    for layer in (cast(StarSaberLayer, layer) for layer in encoder.layers):
        assert layer.future is None and layer.input is not None and layer.alpha is not None
        rows = []
        for n in range(5):
            scores = [torch.exp(h[n] @ layer.relation @ h[i] / 6**0.5) for i in range(n)]
            attended = sum(
                (score / sum(scores) * (layer.past @ h[i]) for i, score in enumerate(scores)), torch.zeros(())
            )
            rows.append(h[n] + layer.alpha * torch.tanh(attended + layer.input @ x[0, n]))
        h = torch.stack(rows)
    torch.testing.assert_close(encoder(x)[0], h, atol=1e-12, rtol=0)


def test_the_one_sided_fixed_point_with_even_attention_is_a_recurrence() -> None:
    """With W = 0 each state is tanh(U mean of the states before it + V x): exact after as many iterations as positions."""
    encoder = one_sided(num_layers=None, tied=True, tolerance=0.0, max_iterations=7)
    layer = cast(StarSaberLayer, encoder.layers[0])
    with torch.no_grad():
        layer.relation.zero_()
    x = torch.randn(1, 7, 6, dtype=torch.float64)
    assert layer.input is not None
    states: list[Tensor] = []
    for n in range(7):
        mean = torch.stack(states).mean(dim=0) if states else torch.zeros(6, dtype=torch.float64)
        states.append(torch.tanh(layer.past @ mean + layer.input @ x[0, n]))
    torch.testing.assert_close(encoder(x)[0], torch.stack(states), atol=1e-12, rtol=0)


@pytest.mark.parametrize("name", CAUSAL)
def test_attention_shown_by_a_diagnosis_has_rows_that_sum_to_one_and_no_future(name: str) -> None:
    encoder = language_model(name, {}, torch.float64).eval().encoder
    layer, x = encoder.layers[0], torch.randn(1, 5, SIZE, dtype=torch.float64)
    if not hasattr(layer, "stats"):
        return
    arguments = (x, x, None) if name == "starsaber" else (x, None)
    weights = cast(Any, layer).stats(*arguments).get("attention")
    if weights is None:  # a recurrence has none
        return
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones_like(weights[..., 0]), atol=1e-6, rtol=0)
    assert (weights.triu(1) == 0).all()
