"""Orthogonal matrices are made once a training step, all together, and once for good in evaluation."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from cases import slow_but
from tiny_task import tiny
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from recurcli.encoders import Encoder, build_encoder
from recurcli.layers import orthogonal_matrices
from recurcli.ops.orthogonal import orthogonal

NAMES = pytest.mark.parametrize("name", ["transject", "random-transject", "orthogonal-transformer"])
KEYS: dict[str, dict[str, Any]] = {"orthogonal-transformer": {"num_heads": 2, "feed_forward_size": 8}}
MATRICES = {"transject": 2 * 10 + 1, "random-transject": 2 * 10, "orthogonal-transformer": 2 * 6}


class Solves(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """How many matrices each call inverts."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.sizes: list[int] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.linalg_inv_ex.default:
            self.sizes.append(len(args[0]))
        return func(*args, **(kwargs or {}))


def build(name: str) -> Encoder:
    torch.manual_seed(0)
    encoder = build_encoder({"name": name, "hidden_size": 8, "num_layers": 2, **KEYS.get(name, {})})
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return encoder


@NAMES
def test_a_training_step_makes_all_matrices_in_one_call(name: str) -> None:
    encoder, x = build(name).train(), torch.randn(2, 5, 8)
    with Solves() as solves:
        encoder(x).sum().backward()
        encoder(x)
    assert solves.sizes == [MATRICES[name]] * 2


@NAMES
@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_evaluation_makes_them_once(name: str, context: Callable[[], Any]) -> None:
    encoder, x = build(name).eval(), torch.randn(2, 5, 8)
    with Solves() as solves:
        expected = encoder(x)
        with context():
            outputs = [encoder(x[:, :length]) for length in (5, 3, 5)]
    assert solves.sizes == [MATRICES[name]] * 2, "one where gradients are wanted, one for the three evaluations"
    torch.testing.assert_close(outputs[2], expected, rtol=0, atol=1e-6)


def trained_in_evaluation(encoder: Encoder, x: Tensor) -> None:
    with torch.enable_grad():
        encoder(x).square().sum().backward()
    torch.optim.AdamW(encoder.parameters(), lr=0.1, fused=True).step()


def written_to(encoder: Encoder, x: Tensor) -> None:
    for parameter in encoder.parameters():
        parameter.view(-1)[-2:] += 1


def loaded(encoder: Encoder, x: Tensor) -> None:
    encoder.load_state_dict({name: 1.5 * value for name, value in encoder.state_dict().items()})


def assigned(encoder: Encoder, x: Tensor) -> None:
    encoder.load_state_dict({name: 1.5 * value for name, value in encoder.state_dict().items()}, assign=True)


def trained_and_back(encoder: Encoder, x: Tensor) -> None:
    encoder.train()
    for parameter in encoder.parameters():
        parameter.data.view(-1)[1:2] += 1  # torch counts no such writing
    encoder.eval()


@NAMES
@pytest.mark.parametrize("change", [trained_in_evaluation, written_to, loaded, assigned, trained_and_back])
def test_a_change_of_the_weights_is_noticed(name: str, change: Callable[[Encoder, Tensor], None]) -> None:
    encoder, x = build(name).eval(), torch.randn(2, 5, 8)
    with torch.no_grad():
        before = encoder(x)
        change(encoder, x)
        after = encoder(x)
        fresh = build(name).eval()
        fresh.load_state_dict(encoder.state_dict())
        torch.testing.assert_close(after, fresh(x), rtol=0, atol=1e-6)
    assert (after - before).abs().max() > 1e-4


@NAMES
def test_a_change_of_the_type_is_noticed(name: str) -> None:
    encoder, x = build(name).eval(), torch.randn(2, 5, 8)
    with torch.no_grad():
        single = encoder(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            half = encoder(x).float()
        again = encoder(x)
        double = encoder.double()(x.double())
    assert torch.equal(single, again)
    assert 0 < (half - single).abs().max() < 0.1
    torch.testing.assert_close(double.float(), single, rtol=0, atol=1e-5)


@NAMES
def test_gradients_flow_after_inference(name: str) -> None:
    encoder, x = build(name).eval(), torch.randn(2, 5, 8, requires_grad=True)
    with torch.inference_mode():
        encoder(x)
    encoder(x).square().sum().backward()
    assert all(parameter.grad is not None for parameter in encoder.parameters())


@pytest.mark.parametrize("name", slow_but(["transject"], MATRICES))
def test_is_exported_with_its_matrices_for_every_length(name: str) -> None:
    encoder = build(name).eval()
    x, mask = torch.randn(2, 5, 8), torch.arange(5) < torch.tensor([[5], [3]])
    with torch.no_grad():
        encoder(x, mask)
        sizes = {0: torch.export.Dim("rows", max=64), 1: torch.export.Dim("length", max=512)}
        program = torch.export.export(encoder, (x, mask), dynamic_shapes={"x": sizes, "mask": sizes})
        x, mask = torch.randn(3, 20, 8), torch.arange(20) < torch.tensor([[5], [20], [13]])
        torch.testing.assert_close(program.module()(x, mask), encoder(x, mask), rtol=0, atol=1e-5)
    assert not any("linalg" in str(node.target) for node in program.graph.nodes)


@NAMES
def test_shapes_can_be_counted_without_memory(name: str) -> None:
    encoder, x = build(name).to("meta").eval(), torch.empty(2, 5, 8, device="meta")
    with torch.no_grad():
        assert encoder(x).shape == encoder(x).shape == x.shape


def test_shapes_are_kept_and_float32_is_the_least_to_compute_in() -> None:
    torch.manual_seed(0)
    raw = [torch.randn(8, 8), torch.randn(3, 8, 8), torch.randn(2, 2, 8, 8)]
    maps = orthogonal_matrices("cayley").train()
    for made, one in zip(maps(raw), raw, strict=True):
        torch.testing.assert_close(made, orthogonal(one))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for made, one in zip(maps(raw), raw, strict=True):
            assert torch.equal(made, orthogonal(one).bfloat16())


@pytest.mark.slow
def test_a_prediction_imports_no_compiler_and_no_scipy(
    recur: Callable[..., tuple[int, str, str]], tiny_tnews: Path, tmp_path: Path
) -> None:
    settings = tiny("encoder.num_experts=2", "finetuning.epochs=1", "finetuning.max_steps=1")
    run = tmp_path / "run"
    code, _, err = recur("finetune", "--preset", "transject-tnews", "--data", tiny_tnews, "--output", run, *settings)
    assert code == 0, err
    code_lines = (
        "import sys; from recurcli.cli import run; code = run(sys.argv[1:]); "
        "heavy = {'torch._dynamo', 'scipy', 'sklearn'} & set(sys.modules); sys.exit(f'imported {heavy}' if heavy else code)"
    )
    command = [sys.executable, "-c", code_lines, "predict", str(run), str(tiny_tnews / "test.json"), "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout
