"""N-gram embeddings: the sum over the n-grams that end at a token, and row-wise Adagrad on their table."""

import copy
import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from running import Recur
from safetensors.torch import load_file
from tiny_task import tiny, write_rows

from recurcli.config import FinetuningConfig, ModelConfig, NgramBagConfig, NgramEmbeddingConfig
from recurcli.errors import UsageError
from recurcli.model.models import Classifier, NgramBag, NgramEmbedding, ngram_buckets, part_buckets
from recurcli.training.fit import build_optimizer
from recurcli.validation import parse_config

IDS = torch.tensor([[3, 7, 7, 19, 3, 7], [7, 3, 3, 7, 7, 0]])


def bucket(ngram: list[int], buckets: int) -> int:
    """The hash of an n-gram, in Python's integers; -1 stands before the first token."""
    number = len(ngram)
    for token in ngram:
        number = (number * 950706376 + token + 2) % (2**31 - 1)
    return number * 742938285 % (2**31 - 1) % buckets


@pytest.mark.parametrize("buckets", [65_536, 100_000, 262_144, 1_000_000])
def test_ngrams_spread_over_the_buckets(buckets: int) -> None:
    ids = torch.cartesian_prod(torch.arange(600), torch.arange(600))
    occupied = len(torch.unique(ngram_buckets(ids, (2,), buckets)[:, 1, 0]))
    assert occupied > 0.95 * buckets * (1 - math.exp(-len(ids) / buckets)), "fewer than a random hash would fill"


def test_the_vector_of_a_token_is_the_sum_over_the_ngrams_that_end_there() -> None:
    torch.manual_seed(0)
    module = NgramEmbedding(4, NgramEmbeddingConfig(buckets=11)).double().eval()
    torch.nn.init.normal_(module.table)
    again = module.table.detach().clone().requires_grad_()
    rows = []
    for row in IDS.tolist():
        padded = [-1, -1, *row]
        rows.append([again[bucket(padded[t + 1 : t + 3], 11)] + again[bucket(padded[t : t + 3], 11)] for t in range(6)])
    expected = torch.stack([torch.stack(row) for row in rows])
    found = module(IDS)
    torch.testing.assert_close(found, expected)
    weight = torch.randn_like(found)
    torch.autograd.backward([(found * weight).sum(), (expected * weight).sum()])
    assert module.table.grad is not None and module.table.grad.is_sparse
    torch.testing.assert_close(module.table.grad.to_dense(), again.grad)


def test_large_ids_do_not_overflow_and_no_bucket_is_out_of_range() -> None:
    ids = torch.tensor([[2**31 - 5, 0, 2**31 - 1, 2**31 - 1]])
    found = ngram_buckets(ids, (2, 4), 1000)
    assert found[0, 3].tolist() == [bucket(ids[0].tolist()[n:], 1000) for n in (2, 0)]


def build(**keys: Any) -> Classifier:
    torch.manual_seed(0)
    config = ModelConfig(
        encoder={"name": "starsaber", "hidden_size": 8, "num_layers": 2, "dropout": 0.0},
        vocab_size=20,
        pad_id=0,
        max_length=9,
        labels=("a", "b", "c"),
        **keys,
    )
    return Classifier(config).double()


def test_the_table_follows_row_wise_adagrad_and_the_other_weights_follow_adamw() -> None:
    config = FinetuningConfig(learning_rate=1e-2, ngram_learning_rate=0.05, weight_decay=0.1, scalar_lr_factor=1.0)
    model = build(embedding_ngrams=NgramEmbeddingConfig(buckets=13, dropout=0.0))
    plain = copy.deepcopy(model)
    optimizer = build_optimizer(model, config)
    others = {name: parameter for name, parameter in plain.named_parameters() if name != "embedding.ngrams.table"}
    decay = [parameter for parameter in others.values() if parameter.ndim > 1]
    rest = [parameter for parameter in others.values() if parameter.ndim <= 1]
    adamw = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}], lr=1e-2, betas=(0.9, 0.999)
    )
    for group in optimizer.param_groups:
        group["lr"] = 1e-2 * group["lr_factor"]
    table, sums = torch.zeros(13, 8).double(), torch.zeros(13).double()
    for step in range(3):
        ids = torch.randint(1, 20, (4, 5), generator=torch.Generator().manual_seed(step))
        for each in (model, plain):
            each.embedding.ngrams.table.data.copy_(table)  # type: ignore[union-attr]
            each(ids, torch.ones_like(ids, dtype=torch.bool))[0].square().sum().backward()
        gradient = plain.embedding.ngrams.table.grad.to_dense()  # type: ignore[union-attr]
        for row in range(13):
            if gradient[row].any():
                sums[row] += gradient[row].square().mean()
                table[row] -= 0.05 * gradient[row] / sums[row].sqrt()
        plain.embedding.ngrams.table.grad = None  # type: ignore[union-attr]
        optimizer.step()
        adamw.step()
        optimizer.zero_grad()
        adamw.zero_grad()
        torch.testing.assert_close(model.embedding.ngrams.table.data, table)  # type: ignore[union-attr]
    for name, parameter in model.named_parameters():
        if name in others:
            torch.testing.assert_close(parameter, others[name])


def test_a_pretrained_table_is_fine_tuned_and_another_refused(recur: Recur, tiny_tnews: Path, tmp_path: Path) -> None:
    source = ["--data", tiny_tnews, "--preset", "starsaber-tnews"]
    first, second = tmp_path / "first", tmp_path / "second"
    step = ("embedding.ngrams={buckets: 89}", "pretraining.max_steps=2", "finetuning.max_steps=2", "ensemble=null")
    recur.ok("pretrain", *source, "--output", first, *tiny(*step))
    recur.ok("finetune", *source, "--init", first, "--output", second, *tiny(*step))
    assert json.loads((second / "config.json").read_text())["embedding_ngrams"]["buckets"] == 89
    recur.ok("predict", second, tiny_tnews / "dev.json", "--quiet")
    for other in ("embedding.ngrams={buckets: 90}", "embedding.ngrams=null"):
        line = ("finetune", *source, "--init", first, "--output", tmp_path / "x", *tiny(other))
        recur.refused(2, "embedding.ngrams", *line)


@pytest.mark.parametrize(
    ("config", "keys"),
    [
        *((NgramEmbeddingConfig, {"lengths": lengths}) for lengths in ((), (1, 2), (20000,), (2, 2))),
        *((kind, keys) for kind in (NgramEmbeddingConfig, NgramBagConfig) for keys in ({"buckets": 0}, {"dropout": 1})),
        *((NgramBagConfig, keys) for keys in ({"tokens": ()}, {"tokens": (0,)}, {"characters": (3, 3)}, {"size": 0})),
    ],
)
def test_a_bad_value_is_refused(config: type, keys: dict[str, Any]) -> None:
    with pytest.raises((ValueError, UsageError), match=next(iter(keys))):
        parse_config(config, keys)


def bag_of(dropout: float = 0.0) -> NgramBag:
    torch.manual_seed(1)
    tokens = ["[PAD]", "[UNK]", "a", "the", "##ing", "walk", "extraordinarily"]
    config = NgramBagConfig(tokens=(1, 2), characters=(3, 4), buckets=31, size=5, dropout=dropout)
    bag = NgramBag(config, len(tokens), 3).double()
    bag.parts.copy_(part_buckets(tokens, (3, 4), 31))
    return bag


def test_the_parts_of_a_token_are_the_ngrams_of_its_characters() -> None:
    parts = part_buckets(["[SEP]", "a", "the", "##ing", "x" * 60], (3, 4), 97)
    spelled = {2: ["<th", "the", "he>", "<the", "the>"], 3: ["ing", "ng>", "ing>"]}
    assert (parts[:2] == -1).all()
    for row, texts in spelled.items():
        assert parts[row, : len(texts)].tolist() == [bucket([ord(c) for c in text], 97) for text in texts]
        assert (parts[row, len(texts) :] == -1).all()
    assert (parts[4] >= 0).all(), "a long token has as many as there is room for"
    assert parts[4].tolist() == [bucket([ord(c) for c in text], 97) for text in ["<xx", *["xxx"] * 39]]
    assert all((part_buckets(tokens, (3,), 97) == -1).all() for tokens in (["a", "##b"], ["[MASK]"]))
    assert (part_buckets(["word"], (), 97) == -1).all()


def test_a_bag_is_the_loop_over_its_ngrams_in_training_and_in_evaluation() -> None:
    bag = bag_of()
    rows = [[3, 5, 4], [6], [2, 1, 2, 2], []]
    ids = torch.tensor([row + [0] * (4 - len(row)) for row in rows])
    mask = torch.tensor([[place < len(row) for place in range(4)] for row in rows])
    again = bag.table.detach().clone().requires_grad_()
    expected = []
    for row in rows:
        found = [bucket([token], 31) for token in row]
        found += [bucket(row[place - 1 : place + 1], 31) for place in range(1, len(row))]
        found += [part for token in row for part in bag.parts[token].tolist() if part >= 0]
        sums = sum((again[place] for place in found), torch.zeros(5).double())
        expected.append(bag.output.weight @ sums / max(1, len(found)) ** 0.5)
    training = bag.train()(ids, mask)
    torch.testing.assert_close(training, torch.stack(expected))
    weight = torch.randn_like(training)
    torch.autograd.backward([(training * weight).sum()])
    gradient = bag.table.grad
    torch.autograd.backward([(torch.stack(expected) * weight).sum()])
    torch.testing.assert_close(gradient, again.grad)
    with torch.no_grad():
        torch.testing.assert_close(bag.eval()(ids, mask), training)


def test_a_bag_leaves_out_ngrams_in_training_alone() -> None:
    bag, ids = bag_of(dropout=0.5), torch.tensor([[3, 5, 4, 6]])
    mask = torch.ones_like(ids, dtype=torch.bool)
    assert not torch.equal(bag.train()(ids, mask), bag(ids, mask))
    assert torch.equal(bag.eval()(ids, mask), bag(ids, mask))


def test_head_and_bag_are_trained_apart_and_the_bag_reads_the_whole_text() -> None:
    model = build(embedding_bag=NgramBagConfig(buckets=31, size=5, dropout=0.0))
    ids = torch.tensor([[3, 7, 7, 19], [4, 5, 6, 7]])
    mask = torch.ones_like(ids, dtype=torch.bool)
    together = model.eval()(ids, mask)[0]
    apart = model.train()(ids, mask)[0]
    torch.testing.assert_close((apart[:2] + apart[2:]) / 2, together)
    shorter = model(ids[:, :2], mask[:, :2], (ids, mask))[0]
    torch.testing.assert_close(shorter[2:], apart[2:])
    assert not torch.allclose(shorter[:2], apart[:2])


def test_a_run_with_a_bag_predicts_and_resumes_and_pairs_have_none(recur: Recur, tmp_path: Path) -> None:
    words = ((word, other) for word in ("red", "blue", "cold") for other in ("the", "two", "fine", "walking"))
    rows = [
        {"text": text, "pair": text, "label": word} for word, other in words for text in [f"{word} {other} things,"]
    ]
    data, whole, stopped = (tmp_path / name for name in ("data.jsonl", "whole", "stopped"))
    write_rows(data, rows * 4)
    keys = tiny("embedding.bag={buckets: 500, size: 4}", "data.max_length=auto", "ensemble=null")
    line = ["finetune", "--preset", "starsaber-custom", "--data", data, *keys, "--label", "label"]
    recur.ok(*line, "--text", "text", "--output", whole, "--keep-checkpoints")
    assert json.loads((whole / "config.json").read_text())["embedding_bag"]["size"] == 4
    assert "bag.table" in load_file(whole / "model.safetensors")
    shutil.copytree(whole, stopped)
    shutil.rmtree(max((stopped / "checkpoints").iterdir()))
    (stopped / "result.json").unlink()
    recur.ok(*line, "--text", "text", "--output", stopped, "--resume")
    assert (stopped / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    recur.ok("predict", whole, data)
    pairs = ("--text", "text", "--set", "data.pair=pair", "--set", "finetuning.max_steps=1")
    recur.ok(*line, *pairs, "--output", tmp_path / "pairs")
    assert json.loads((tmp_path / "pairs" / "config.json").read_text())["embedding_bag"] is None
