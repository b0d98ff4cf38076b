"""Tokens become vectors: plain or column-orthonormal, whole or beside their position."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from running import Recur
from tiny_task import tiny
from torch import Tensor

from recurcli.config import FinetuningConfig, ModelConfig
from recurcli.encoders import Encoder
from recurcli.network import Backbone, Classifier, LanguageModel, TokenEmbedding
from recurcli.runs.network_files import build_trained, read_model
from recurcli.training.fit import build_optimizer


class Concatenating(Encoder):
    """An encoder to whose embeddings positions are concatenated."""

    concatenates_positions = True


def build(
    vocabulary: int = 50, size: int = 16, *, concatenate: bool = False, separator: int = -1, **keys: Any
) -> TokenEmbedding:
    torch.manual_seed(0)
    keys = {f"embedding_{key}": value for key, value in keys.items()} | {"separator_id": separator}
    config = ModelConfig(encoder={"hidden_size": size}, vocab_size=vocabulary, pad_id=0, max_length=9, **keys)
    return TokenEmbedding(config, Concatenating() if concatenate else Encoder()).double().eval()


IDS = torch.tensor([[3, 7, 7, 0], [49, 3, 1, 2]])


@pytest.mark.parametrize("concatenate", [False, True])
def test_tokens_of_the_second_text_and_tokens_of_both_texts_are_marked(concatenate: bool) -> None:
    separator = 5
    ids = torch.tensor([[3, 7, 7, 5, 7, 9, 3], [3, 7, 3, 0, 0, 0, 0], [3, 5, 7, 0, 0, 0, 0]])
    plain = build(concatenate=concatenate)
    marked = build(concatenate=concatenate, separator=separator, segments=True, matches=True)
    marked.load_state_dict(plain.state_dict(), strict=False)
    assert torch.equal(marked(ids), plain(ids)), "the vectors are zero at first"
    assert marked.second_text is not None
    assert marked.match is not None
    with torch.no_grad():
        marked.second_text.normal_()
        marked.match.normal_()
    added = marked(ids) - plain(ids)
    for row in range(3):
        line = ids[row].tolist()
        end = line.index(separator) if separator in line else len(line)
        for place, token in enumerate(line):
            expected = torch.zeros(16, dtype=torch.float64)
            if place >= end:
                expected += marked.second_text
            if token != separator and token in (line[:end] if place >= end else line[end:]):
                expected += marked.match
            torch.testing.assert_close(added[row, place], expected)


@pytest.mark.parametrize("orthonormal", [False, True])
@pytest.mark.parametrize("size", [16, 9])
def test_positions_are_the_other_half_in_vaswanis_sines_and_cosines(size: int, orthonormal: bool) -> None:
    embedding = build(size=size, concatenate=True, orthonormal=orthonormal)
    half = size // 2
    x = embedding(IDS)
    assert x.shape == (2, 4, size)
    assert torch.equal(x[..., :half], embedding.table()[IDS])
    columns = size - half
    for t in range(4):
        for column in range(columns):
            angle = t / 10_000 ** (2 * (column // 2) / columns)
            expected = math.sin(angle) if column % 2 == 0 else math.cos(angle)
            assert x[0, t, half + column].item() == pytest.approx(expected, abs=1e-6)
    assert torch.equal(x[0, :, half:], x[1, :, half:])


def test_scaled_rows_have_the_norm_of_a_position_and_the_output_weights_are_as_before() -> None:
    plain, scaled = build(size=64), build(size=64, scaled=True)
    assert torch.equal(plain(IDS), plain.table()[IDS])
    assert torch.equal(scaled.weight, plain.weight)
    torch.testing.assert_close(scaled(IDS), plain(IDS) * 32**0.5)
    assert scaled.table().square().sum(dim=-1).mean().item() == pytest.approx(32, rel=0.05)
    assert torch.equal(scaled.output_weight(), plain.output_weight())


@pytest.mark.parametrize(("name", "adds"), [("starsaber", False), ("transformer", True)])
def test_an_encoder_that_adds_positions_has_scaled_rows_anyway(name: str, adds: bool) -> None:
    encoder = {"name": name, "hidden_size": 16, "num_layers": 1}
    for scaled in (False, True):
        model = Backbone(ModelConfig(encoder=encoder, vocab_size=9, pad_id=0, max_length=4, embedding_scaled=scaled))
        assert model.embedding.scale == pytest.approx(8**0.5 if scaled or adds else 1.0)


def test_orthonormal_columns_are_scaled_to_the_norm_of_a_position() -> None:
    embedding = build(vocabulary=50, size=16, concatenate=True, orthonormal=True)
    table = embedding.table()
    torch.testing.assert_close(table.T @ table, 50 / 2 * torch.eye(8, dtype=torch.float64), rtol=0, atol=1e-9)
    positions = embedding(IDS)[..., 8:].square().sum(dim=-1)
    torch.testing.assert_close(positions, torch.full((2, 4), 4.0, dtype=torch.float64))
    assert table.square().sum(dim=-1).mean().item() == pytest.approx(4)
    assert embedding.output_weight().square().sum(dim=-1).mean().item() == pytest.approx(1)
    small = build(vocabulary=5, size=16, concatenate=True, orthonormal=True).table()
    torch.testing.assert_close(small @ small.T, 4 * torch.eye(5, dtype=torch.float64), rtol=0, atol=1e-9)


def test_stays_orthonormal_in_float32_while_it_is_trained() -> None:
    embedding = build(orthonormal=True).float().train()
    before = embedding.table().detach().clone()
    optimizer = torch.optim.Adam(embedding.parameters(), lr=0.05)
    for _ in range(50):
        optimizer.zero_grad()
        embedding(IDS).sin().sum().backward()
        optimizer.step()
    table = embedding.table() / (50 / 2) ** 0.5
    assert (table.T @ table - torch.eye(16)).abs().max() < 1e-5
    assert (embedding.table() - before).abs().max() > 0.1
    with torch.no_grad():
        kept = embedding.eval().table()
        assert embedding.table() is kept, "made once in evaluation"
        assert torch.allclose(kept, embedding.table())


def vectors(vocabulary: int, width: int) -> tuple[Tensor, Tensor]:
    known = torch.arange(vocabulary) % 3 == 0
    return torch.randn(vocabulary, width, generator=torch.Generator().manual_seed(1)), known


@pytest.mark.parametrize("concatenate", [False, True])
def test_vectors_are_taken_over_where_they_are_known(concatenate: bool) -> None:
    embedding = build(concatenate=concatenate)
    before = embedding.weight.detach().clone()
    given, known = vectors(50, embedding.weight.shape[1])
    embedding.use_vectors(given, known)
    assert torch.equal(embedding.weight[~known], before[~known])
    directions = torch.cosine_similarity(embedding.weight[known], given[known].double())
    torch.testing.assert_close(directions, torch.ones_like(directions))
    assert embedding.weight[known].norm(dim=1).mean().item() == pytest.approx(before.norm(dim=1).mean().item())


def test_an_orthonormal_table_starts_from_the_vectors() -> None:
    embedding = build(orthonormal=True)
    given, known = vectors(50, 16)
    embedding.use_vectors(given, known | True)
    table = embedding.table()
    torch.testing.assert_close(table.T @ table, 25 * torch.eye(16, dtype=torch.float64), rtol=0, atol=1e-9)
    residual = torch.linalg.lstsq(given.double(), table).solution
    torch.testing.assert_close(given.double() @ residual, table, rtol=0, atol=1e-9)


def test_a_masked_token_is_scored_with_the_first_columns_of_its_state() -> None:
    torch.manual_seed(0)
    encoder = {"name": "random-transject", "hidden_size": 8, "num_layers": 1}
    model = LanguageModel(
        ModelConfig(encoder=encoder, vocab_size=50, pad_id=0, max_length=9, embedding_orthonormal=True)
    ).eval()
    with torch.no_grad():
        scores, _ = model(IDS, IDS != 0, torch.tensor([0, 5]))
        _, states = model.encode(IDS, IDS != 0)
    chosen = torch.stack([states[0, 0, :4], states[1, 1, :4]])
    torch.testing.assert_close(scores, chosen @ model.embedding.table().T / 2**0.5)


def test_frozen_vectors_stay_to_the_last_bit_and_the_other_rows_are_trained() -> None:
    config = ModelConfig(
        encoder={"name": "starsaber", "hidden_size": 8, "num_layers": 1}, vocab_size=9, pad_id=0, max_length=4
    )
    model = Backbone(config)
    known = torch.arange(9) < 4
    model.embedding.use_vectors(torch.randn(9, 8), known, freeze=True)
    before = model.embedding.weight.detach().clone()
    optimizer = build_optimizer(model, FinetuningConfig(learning_rate=0.1, weight_decay=0.5))
    ids = torch.arange(1, 9).view(2, 4)
    for _ in range(3):
        model.encode(ids, torch.ones_like(ids, dtype=torch.bool))[1].square().sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
    after = model.embedding.weight.detach()
    assert torch.equal(after[known], before[known])
    assert ((after - before)[~known].abs().amax(dim=1) > 0.01).all()


def options(data: Path, output: Path, vectors: Path) -> list[object]:
    settings = ("encoder.num_experts=2", "finetuning.epochs=1", f"embedding.vectors={vectors}", "embedding.freeze=true")
    return ["--preset", "transject-tnews", "--data", data, "--output", output, *tiny(*settings)]


def test_a_run_keeps_its_orthonormal_table_and_what_was_frozen(recur: Recur, tiny_tnews: Path, tmp_path: Path) -> None:
    words = tmp_path / "words.txt"
    words.write_text("2 8\n" + "".join(f"{word} {' '.join(['0.25'] * 8)}\n" for word in "鼠龙"), encoding="utf-8")
    _, err = recur.ok("finetune", *options(tiny_tnews, tmp_path / "x", words), "--verbose")
    assert "vectors for 2 of" in err
    files = read_model(tmp_path / "x").of_encoder()
    assert json.loads((tmp_path / "x" / "config.json").read_text())["network"]["embedding_orthonormal"] is True
    frozen = files.tensors["embedding.weight"][[files.tokenizer.tokens.index(word) for word in "鼠龙"]]
    assert frozen.shape == (2, 8)
    assert frozen.std(dim=1).max() < 1e-6
    table = build_trained(Classifier, files, torch.device("cpu")).embedding.table()
    short = table if len(table) >= 8 else table.T
    products = short.T @ short
    assert (products - products[0, 0] * torch.eye(len(products))).abs().max() < 1e-3


def test_vectors_of_the_whole_width_beside_positions_are_refused(
    recur: Recur, tiny_tnews: Path, tmp_path: Path
) -> None:
    words = tmp_path / "words.txt"
    words.write_text("鼠 " + " ".join(["0.25"] * 16), encoding="utf-8")
    reason = "has vectors of size 16; the model needs size 8, half of encoder.hidden_size"
    recur.refused(2, reason, "finetune", *options(tiny_tnews, tmp_path / "x", words))
