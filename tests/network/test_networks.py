"""A training step makes the orthonormal table and the orthogonal matrices once, with the gradients of making them twice."""

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from recurcli.config import ModelConfig
from recurcli.encoders import build_encoder
from recurcli.layers import CachedMap, computed_once
from recurcli.network import LanguageModel

IDS = torch.randint(1, 30, (3, 7), generator=torch.Generator().manual_seed(0))
MASK = torch.arange(7) < torch.tensor([7, 4, 2])[:, None]


class Factorisations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """How often a Cholesky factor (the table's) and matrices' inverses (Cayley's) are computed."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.cholesky = self.inverses = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.cholesky += func is torch.ops.aten.linalg_cholesky_ex.default
        self.inverses += func is torch.ops.aten.linalg_inv_ex.default
        return func(*args, **(kwargs or {}))


def build() -> LanguageModel:
    torch.manual_seed(0)
    encoder = {"name": "transject", "hidden_size": 8, "num_layers": 2, "dropout": 0.0, "auxiliary_weight": 0.7}
    model = LanguageModel(
        ModelConfig(encoder=encoder, vocab_size=30, pad_id=0, max_length=9, embedding_orthonormal=True)
    ).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model.train()


def loss_of(model: LanguageModel) -> torch.Tensor:
    logits, losses = model(IDS, MASK, torch.tensor([0, 3, 8]))
    return logits.sin().sum() + sum(losses.values())


def test_a_step_makes_the_table_and_the_matrices_once() -> None:
    model = build()
    with Factorisations() as count:
        loss_of(model).backward()  # type: ignore[no-untyped-call]
    assert (count.cholesky, count.inverses) == (1, 1)


def test_gradients_are_those_of_computing_each_twice() -> None:
    shared, double = build(), build()
    loss_of(shared).backward()  # type: ignore[no-untyped-call]
    x, states = double.encode(IDS, MASK)  # outside of the block every use computes anew
    chosen = states.flatten(0, 1)[torch.tensor([0, 3, 8])]
    weight = double.embedding.output_weight()
    logits = chosen[:, : weight.shape[1]] @ weight.T + double.token_bias
    loss = logits.sin().sum() + sum(double.encoder.auxiliary_losses(x, MASK).values())
    loss.backward()  # type: ignore[no-untyped-call]
    for (name, one), other in zip(shared.named_parameters(), double.parameters(), strict=True):
        assert one.grad is not None and other.grad is not None, name
        torch.testing.assert_close(one.grad, other.grad, rtol=0, atol=1e-12)


def test_nothing_is_stale_after_an_optimiser_step() -> None:
    model = build()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        loss_of(model).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    fresh = build()
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(loss_of(model), loss_of(fresh))


def test_a_block_holds_a_value_to_its_end_alone() -> None:
    calls = []
    held = CachedMap(lambda parameters: calls.append(1) or [2 * parameters[0]])  # type: ignore[func-returns-value]
    parameter = [torch.ones(2, requires_grad=True)]
    with computed_once():
        assert held(parameter)[0] is held(parameter)[0]
        assert held.held() is not None
    assert held.held() is None
    held(parameter)
    assert len(calls) == 2


@pytest.mark.parametrize("name", ["transformer", "rezero", "orthogonal-transformer", "rsa", "linear-transformer"])
def test_dropout_acts_on_embeddings_and_sublayers_alone_by_default(name: str) -> None:
    layer: Any = build_encoder(
        {"name": name, "hidden_size": 8, "num_layers": 1, "num_heads": 2, "dropout": 0.3}
    ).layers[0]
    assert (layer.dropout.p, layer.feed_forward.dropout.p) == (0.3, 0.0)
    assert getattr(layer.attention, "dropout", 0.0) == 0.0


@pytest.mark.parametrize("key", ["attention_dropout", "feed_forward_dropout"])
@pytest.mark.parametrize("name", ["transformer", "rezero", "orthogonal-transformer", "transformer-xl"])
def test_inner_dropouts_are_keys_of_their_own(name: str, key: str) -> None:
    torch.manual_seed(0)
    keys = {"name": name, "hidden_size": 8, "num_layers": 1, "num_heads": 2, "dropout": 0.0, key: 0.5}
    encoder = build_encoder(keys | ({"alpha_init": 1.0} if name == "rezero" else {})).train()
    x = torch.randn(2, 5, 8)
    assert not torch.equal(encoder(x), encoder(x))
    encoder.eval()
    assert torch.equal(encoder(x), encoder(x))
