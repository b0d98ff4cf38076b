"""A compiled encoder computes as the encoder does, and one compilation serves rows of every length."""

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from cases import slow_but
from loops import training_loop
from tiny_task import tiny

from recurcli.encoders import build_encoder
from recurcli.ops import attention

pytestmark = [  # torch warns of what its own tracing does
    pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning"),
]
LENGTHS = (5, 30, 130, 9, 5)
KEYS = {"transformer-xl": {"segment": 4, "memory": 6}}  # texts of one segment have a second graph


COMPILED = (
    *("starsaber", "linear-transformer", "gated-starsaber", "transformer", "rezero", "rsa", "transject"),
    *("orthogonal-transformer", "truncated-rnn", "transformer-xl"),
    *("linformer", "performer", "nystromformer", "synthesizer", "skyformer"),
)


@pytest.mark.parametrize("name", slow_but(["starsaber"], COMPILED))
def test_lengths_need_no_compilation_of_their_own(name: str) -> None:
    from torch._dynamo.testing import CompileCounter  # seconds, which no collection of tests needs

    torch.manual_seed(0)
    encoder = build_encoder(
        {"name": name, "hidden_size": 16, "num_layers": 1, "dropout": 0.0, **KEYS.get(name, {})}
    ).train()
    compiled = copy.deepcopy(encoder)
    counter = CompileCounter()
    compiled.compile(backend=counter, dynamic=True)
    after_first = 0
    for length in LENGTHS:
        x = torch.randn(3, length, 16)
        mask = torch.arange(length) < torch.tensor([length, 3, 1])[:, None]
        outputs = []
        for each in (encoder, compiled):
            torch.manual_seed(1)
            outputs.append(each(x, mask))
            each.zero_grad()
            outputs[-1][mask].square().sum().backward()
        torch.testing.assert_close(outputs[1][mask], outputs[0][mask], rtol=0, atol=1e-5)
        for one, other in zip(encoder.parameters(), compiled.parameters(), strict=True):
            torch.testing.assert_close(other.grad, one.grad, rtol=1e-4, atol=1e-4)
        after_first = after_first or counter.frame_count
    assert counter.frame_count == after_first


def test_long_texts_are_computed_without_a_graph_and_by_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._dynamo.testing import CompileCounter

    monkeypatch.setattr("recurcli.network.LONG", 8)
    monkeypatch.setattr("recurcli.ops.attention.LONG", 8)
    blocks, plain = [0], attention.blockwise_attention

    def counted(*parts: torch.Tensor) -> torch.Tensor:
        blocks[0] += 1
        return plain(*parts)

    monkeypatch.setattr(attention, "blockwise_attention", counted)
    loop = training_loop()
    encoder = build_encoder({"name": "starsaber", "hidden_size": loop.model.config.hidden_size, "num_layers": 1})
    loop.model.float().encoder = encoder
    counter = CompileCounter()
    encoder.compile(backend=counter, dynamic=True)
    for length, graphs in ((12, 0), (5, 1)):
        ids = torch.ones(2, length, dtype=torch.long)
        with torch.no_grad():
            loop.model.encode(ids, torch.ones_like(ids, dtype=torch.bool))
        assert counter.frame_count == graphs and blocks == [1]


@pytest.mark.slow
def test_a_training_that_compiles_has_one_compilation_for_all_lengths(
    recur: Callable[..., tuple[int, str, str]], tiny_tnews: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch._dynamo.testing import CompileCounter

    counter = CompileCounter()
    compile_call = torch.nn.Module.compile

    def counted(module: torch.nn.Module, **keys: bool) -> None:
        compile_call(module, backend=counter, **keys)

    monkeypatch.setattr(torch.nn.Module, "compile", counted)
    torch._dynamo.reset()
    settings = tiny("runtime.compile=true", "finetuning.batch_size=4", "encoder.num_layers=1")
    output = tmp_path / "x"
    code, _, err = recur("finetune", "--preset", "starsaber-tnews", "--data", tiny_tnews, "--output", output, *settings)
    assert code == 0, err
    assert 1 <= counter.frame_count <= 3, "training and evaluation, and rows of one token"
