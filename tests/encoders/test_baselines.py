"""The baselines equal torch's own modules with the same weights, and their parts do what they say."""

from typing import Any, cast

import pytest
import torch
from equations import batch, built
from torch import nn

from recurcli.encoders import build_encoder
from recurcli.encoders.bilstm import BiLSTM
from recurcli.encoders.encoder import BlockLayer
from recurcli.encoders.rezero import ReZero, ReZeroLayer
from recurcli.encoders.transformer import Transformer
from recurcli.layers import sinusoidal_positions

SIZE = 12


def build(name: str, **keys: Any) -> Any:
    return built(name, moved=0.3, hidden_size=SIZE, num_layers=2, **keys)


def torch_layer(layer: BlockLayer, activation: str, norm: str = "post") -> nn.TransformerEncoderLayer:
    """Torch's encoder layer with the weights of ours."""
    theirs = nn.TransformerEncoderLayer(
        SIZE, 3, 4 * SIZE, 0.1, activation, batch_first=True, norm_first=norm == "pre"
    ).double()
    attention, feed_forward = layer.attention, layer.feed_forward
    theirs.load_state_dict(
        {
            "self_attn.in_proj_weight": attention.query_key_value.weight,
            "self_attn.in_proj_bias": attention.query_key_value.bias,
            "self_attn.out_proj.weight": attention.output.weight,
            "self_attn.out_proj.bias": attention.output.bias,
            "linear1.weight": feed_forward.inner.weight,
            "linear1.bias": feed_forward.inner.bias,
            "linear2.weight": feed_forward.outer.weight,
            "linear2.bias": feed_forward.outer.bias,
            "norm1.weight": layer.attention_norm.weight,
            "norm1.bias": layer.attention_norm.bias,
            "norm2.weight": layer.feed_forward_norm.weight,
            "norm2.bias": layer.feed_forward_norm.bias,
        }
    )
    return theirs.eval()


@pytest.mark.parametrize(("activation", "norm"), [("gelu", "post"), ("relu", "post"), ("gelu", "pre")])
def test_the_transformer_is_torchs_encoder_after_sine_positions(activation: str, norm: str) -> None:
    encoder = cast(Transformer, build("transformer", num_heads=3, activation=activation, norm=norm))
    x, mask = batch([7, 4, 1], SIZE, 1.0)
    h = x + sinusoidal_positions(x)
    for layer in encoder.layers:
        h = torch_layer(cast(BlockLayer, layer), activation, norm)(h, src_key_padding_mask=~mask)
    h = encoder.final_norm(h)
    torch.testing.assert_close(encoder(x, mask)[mask], h[mask], atol=1e-12, rtol=0)
    assert isinstance(encoder.final_norm, nn.LayerNorm) == (norm == "pre")


def test_sine_positions_are_the_papers() -> None:
    for size in (8, 7):
        table = sinusoidal_positions(torch.zeros(1, 30, size, dtype=torch.float64))
        for t in (0, 1, 29):
            for k in range(size):
                angle = torch.tensor(t / 10_000 ** (2 * (k // 2) / size), dtype=torch.float64)
                torch.testing.assert_close(table[t, k], angle.cos() if k % 2 else angle.sin(), atol=1e-12, rtol=0)


def test_rezero_starts_as_the_identity_of_its_input_with_positions() -> None:
    encoder = build_encoder({"name": "rezero", "hidden_size": SIZE, "num_layers": 3, "num_heads": 3}).double().eval()
    x, mask = batch([7, 4, 1], SIZE, 1.0)
    assert torch.equal(encoder(x, mask), x + sinusoidal_positions(x))


def test_a_rezero_layer_weighs_both_sublayers_by_one_alpha() -> None:
    layer = cast(ReZeroLayer, cast(ReZero, build("rezero", num_heads=3)).layers[0])
    x = batch([7, 4, 1], SIZE, 1.0)[0]
    middle = x + layer.alpha * layer.attention(x, None)
    torch.testing.assert_close(layer(x, None), middle + layer.alpha * layer.feed_forward(middle), atol=1e-12, rtol=0)


@pytest.mark.parametrize("name", ["transformer", "rezero"])
def test_heads_and_the_feed_forward_network_may_have_any_size(name: str) -> None:
    encoder = build(name, num_heads=5, head_size=3, feed_forward_size=7)
    x, mask = batch([7, 4, 1], SIZE, 1.0)
    assert encoder(x, mask).shape == x.shape
    assert encoder.layers[0].attention.query_key_value.weight.shape == (3 * 15, SIZE)
    assert encoder.layers[0].feed_forward.inner.weight.shape == (7, SIZE)


def test_the_bilstm_is_torchs_and_reads_each_row_alone() -> None:
    encoder, (x, mask) = cast(BiLSTM, build("bilstm")), batch([7, 4, 1], SIZE, 1.0)
    theirs = nn.LSTM(SIZE, SIZE // 2, num_layers=2, batch_first=True, bidirectional=True).double()
    theirs.load_state_dict(
        {
            key.replace("_l0", f"_l{index}"): value
            for index, layer in enumerate(encoder.layers)
            for key, value in layer.state_dict().items()
        }
    )
    output = encoder(x, mask)
    for row, length in enumerate((7, 4, 1)):
        expected = theirs(x[row : row + 1, :length])[0]
        torch.testing.assert_close(output[row : row + 1, :length], expected, atol=1e-12, rtol=0)
    assert (output[~mask] == 0).all()
