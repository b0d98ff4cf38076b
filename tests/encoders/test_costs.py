"""What the encoders of long texts hold and compute: as much for each piece of a text, however many there are."""

from typing import Any

import pytest
import torch
from allocations import Allocations, elements_made
from equations import built
from torch import Tensor

XL = {"num_heads": 2, "segment": 4, "memory": 4}
LINEAR: dict[str, dict[str, Any]] = {
    "linear-transformer": {},
    "causal linear-transformer": {"causal": True},
    "linformer": {"max_length": 512},
    **{name: {} for name in ("performer", "nystromformer", "skyformer", "transject", "random-transject", "rsa")},
    "causal rsa": {"causal": True},
    "reformer": {"chunk_size": 8, "max_buckets": 16},
    "bigbird": {"block_size": 4, "num_random_blocks": 1},
    "informer": {"sampling_factor": 4},
    "transformer-xl": XL,
    "transformer-xl with rsa": {**XL, "rsa": True},
    "block-recurrent-transformer": {"window": 4, "num_states": 3},
    "temporal-latent-bottleneck": {"chunk_size": 4, "num_states": 3},
}


@pytest.mark.parametrize("name", LINEAR)
def test_a_text_twice_as_long_makes_twice_the_elements(name: str) -> None:
    heads = {} if "transject" in name else {"num_heads": 2}
    keys = {"hidden_size": 8, "num_layers": 2, **heads, **LINEAR[name]}
    encoder = built(name.removeprefix("causal ").removesuffix(" with rsa"), **keys)

    def compute(length: int) -> Tensor:
        return encoder(torch.randn(1, length, 8, dtype=torch.float64, requires_grad=True))

    length = 32 if "latent" in name or "block" in name else 256
    assert elements_made(compute, 2 * length) < 2.2 * elements_made(compute, length)


@pytest.mark.parametrize("name", [name for name in LINEAR if "xl" in name or "block" in name or "latent" in name])
def test_inference_holds_no_more_for_more_pieces(name: str) -> None:
    keys = {"hidden_size": 8, "num_layers": 3, "num_heads": 2, **LINEAR[name]}
    encoder = built(name.removesuffix(" with rsa"), **keys)

    def held(pieces: int) -> int:
        x, mask = torch.randn(2, 4 * pieces, 8, dtype=torch.float64), torch.ones(2, 4 * pieces, dtype=torch.bool)
        mask[1, 1:] = False
        with torch.no_grad(), Allocations() as allocations:
            states = encoder(x, mask)
        return allocations.peak_bytes - states.nbytes

    assert held(4) == held(16)
