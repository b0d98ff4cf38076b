"""A score of the default model depends on the other rows of its batch by rounding alone: lengths 1 to 512, sizes and orders."""

import math
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.special import softmax
from tiny_task import rows, write_rows
from torch.utils._python_dispatch import TorchDispatchMode

from recurcli import Predictor
from recurcli.cli import run
from recurcli.device import Precision, multiplies_bf16

LOGITS, PROBABILITIES = 1e-5, 0.005
LENGTHS = [*range(1, 13), *range(17, 512, 99), 512, 512]
Scores = NDArray[np.float64]
aten = torch.ops.aten


class OtherOrder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Computes a product of bf16 as hardware does: summed in fp32 in an order of its own, here a random one, then rounded."""

    def __init__(self, seed: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.generator = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if args[0].dtype != torch.bfloat16 if args and isinstance(args[0], torch.Tensor) else True:
            return func(*args, **kwargs)
        if func is aten.linear.default:
            return self.product(args[0], args[1].mT, *args[2:])
        if func is aten.bmm.default:
            return self.product(*args)
        if func in (aten.baddbmm.default, aten.baddbmm_.default):
            total, left, right = args
            made = self.product(left, right, total, kwargs.get("alpha", 1))
            return total.copy_(made) if func is aten.baddbmm_.default else made
        return func(*args, **kwargs)

    def product(self, left: Any, right: Any, total: Any = None, alpha: float = 1) -> Any:
        order = torch.randperm(left.shape[-1], generator=self.generator)
        summed = alpha * (left.float()[..., order] @ right.float()[..., order, :])
        return (summed if total is None else summed + total.float()).bfloat16()


@pytest.fixture(scope="module")
def default(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The preset starsaber-custom: the encoder and the linear model. Only the sizes are smaller."""
    folder = tmp_path_factory.mktemp("default")
    write_rows(folder / "rows.jsonl", rows(300, seed=1, labelled=True))
    sizes = ("encoder.hidden_size=32", "encoder.num_layers=2")
    settings = (
        "data.max_length=512",
        "tokenizer.kind=char",
        "finetuning.max_steps=30",
        "finetuning.encoder=always",
        "runtime.precision=fp32",
    )
    options = [part for setting in (*sizes, *settings) for part in ("--set", setting)]
    source = ["--preset", "starsaber-custom", "--train", str(folder / "rows.jsonl"), "--text", "sentence"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("recurcli.linear.ensemble.STANDARD_ERRORS", -math.inf)
        assert run(["finetune", *source, "--label", "label", "--output", str(folder / "run"), "--quiet", *options]) == 0
    return folder / "run"


def groups(count: int) -> Iterator[tuple[int, list[list[int]]]]:
    """Yield batch sizes, and ways in which so many rows may come: alone, all at once in order, or shuffled in random parts."""
    yield 1, [[row] for row in range(count)]
    for seed, batch_size in enumerate((2, 7, 64, 512)):
        draw, order = random.Random(seed), list(range(count))
        if seed % 2:
            yield batch_size, [order]
        draw.shuffle(order)
        parts = []
        while order:
            size = draw.choice((2, 3, 8, 40))
            parts.append(order[:size])
            order = order[size:]
        yield batch_size, parts


def logits_of(
    run: Path, precision: Precision, batch_size: int, parts: Sequence[Sequence[int]], lengths: Sequence[int] = LENGTHS
) -> Scores:
    """Return the logits (2, N, C) of the whole model, and of its encoder alone, for texts of these lengths."""
    predictor = Predictor.load(run, device="cpu", precision=precision, batch_size=batch_size)
    linear, part = predictor.linear, predictor.encoder
    assert linear is not None and part is not None and predictor.kept.name == "ensemble"
    draw, characters = random.Random(5), "鼠牛虎兔龙蛇马羊猴鸡狗猪"
    texts = ["".join(draw.choices(characters, k=length)) for length in lengths]
    found = np.zeros((2, len(lengths), len(predictor.labels)))
    for numbers in parts:
        own = [(texts[row], None) for row in numbers]
        encoder = part.logits(part.encode(own))
        whole = predictor.kept.logits({"encoder": encoder, "linear": linear.logits(own)})
        found[:, list(numbers)] = whole, encoder
    assert not predictor.truncated
    return found


def check(found: Sequence[Scores], bound: float) -> None:
    """Check that no score (2, N, C) differs by more than `bound` from the first, and no label whose two best do."""
    first, *others = found
    assert len(others) == 6
    best = np.sort(first, axis=2)
    clear = best[..., -1] - best[..., -2] > bound
    for other in others:
        assert np.abs(other - first).max() <= bound
        assert not (clear & (first.argmax(axis=2) != other.argmax(axis=2))).any()


def test_in_fp32_no_logit_moves_by_more_than_1e_5(default: Path) -> None:
    check([logits_of(default, "fp32", *way) for way in groups(len(LENGTHS))], LOGITS)


def test_in_bf16_no_probability_moves_by_more_than_0_005(default: Path) -> None:
    lengths = LENGTHS if multiplies_bf16(torch.device("cpu")) else LENGTHS[::8]  # which are slow there
    found = [logits_of(default, "bf16", *way, lengths) for way in groups(len(lengths))]
    check([softmax(logits, axis=2) for logits in found], PROBABILITIES)


@pytest.mark.slow
def test_in_bf16_the_order_of_a_sum_moves_no_probability_by_more_than_0_005(default: Path) -> None:
    found = []
    for seed, way in enumerate(groups(len(LENGTHS))):
        with OtherOrder(seed):
            found.append(logits_of(default, "bf16", *way))
    check([softmax(logits, axis=2) for logits in found], PROBABILITIES)
    assert np.abs(found[1] - found[0]).max() > 0, "another order rounds differently"


def test_bf16_rounds_no_logit(default: Path) -> None:
    _, encoder = torch.from_numpy(logits_of(default, "bf16", 64, [range(8)], LENGTHS[:8]))
    assert not torch.equal(encoder, encoder.bfloat16().double())
