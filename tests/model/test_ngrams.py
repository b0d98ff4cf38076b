"""N-gram embeddings: the sum over the n-grams that end at a token, and row-wise Adagrad on their table."""

import copy
import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tiny_task import tiny

from recurcli.model.config import ModelConfig, NgramEmbeddingConfig
from recurcli.model.models import Classifier, NgramEmbedding, ngram_buckets
from recurcli.training.config import FinetuningConfig
from recurcli.training.fit import build_optimizer

Recur = Callable[..., tuple[int, str, str]]
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
    module = NgramEmbedding(4, (2, 3), 11, dropout=0.5).double().eval()
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


def build(**keys: object) -> Classifier:
    torch.manual_seed(0)
    model = Classifier(
        ModelConfig(
            encoder={"name": "starsaber", "hidden_size": 8, "num_layers": 2, "dropout": 0.0},
            vocab_size=20,
            pad_id=0,
            max_length=9,
            embedding_ngrams=NgramEmbeddingConfig(buckets=13, dropout=0.0),
            labels=("a", "b", "c"),
        )
    )
    assert model.embedding.ngrams is not None
    return model.double()


def test_a_row_scores_alone_as_it_does_among_others() -> None:
    model = build().eval()
    torch.nn.init.normal_(model.embedding.ngrams.table)  # type: ignore[union-attr]
    rows = [[3, 7, 7, 19], [5], [6, 6, 6, 6, 6, 6]]
    ids = torch.tensor([row + [0] * (8 - len(row)) for row in rows])
    mask = torch.tensor([[place < len(row) for place in range(8)] for row in rows])
    with torch.no_grad():
        together = model(ids, mask)[0]
        for row, logits in zip(rows, together, strict=True):
            alone = model(torch.tensor([row]), torch.ones(1, len(row), dtype=torch.bool))[0][0]
            torch.testing.assert_close(alone, logits)


def test_the_table_follows_row_wise_adagrad_and_the_other_weights_follow_adamw() -> None:
    config = FinetuningConfig(learning_rate=1e-2, ngram_learning_rate=0.05, weight_decay=0.1, scalar_lr_factor=1.0)
    model = build()
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


def test_a_pretrained_table_is_fine_tuned_and_another_one_is_refused(
    recur: Recur, tiny_tnews: Path, tmp_path: Path
) -> None:
    ngrams = "embedding.ngrams={buckets: 89}"
    given = ["--data", tiny_tnews, "--quiet", "--preset", "starsaber-tnews"]
    first, second = tmp_path / "first", tmp_path / "second"
    assert recur("pretrain", *given, "--output", first, *tiny(ngrams))[0] == 0
    code, _, err = recur("finetune", *given, "--init", first, "--output", second, *tiny(ngrams, "ensemble=null"))
    assert code == 0, err
    assert json.loads((second / "config.json").read_text())["embedding_ngrams"]["buckets"] == 89
    assert recur("predict", second, tiny_tnews / "dev.json", "--quiet")[0] == 0
    plain = tmp_path / "plain"
    assert recur("pretrain", *given, "--output", plain, *tiny())[0] == 0
    code, _, err = recur(
        "finetune", *given, "--init", plain, "--output", tmp_path / "new", *tiny(ngrams, "ensemble=null")
    )
    assert code == 0, f"the table is new: {err}"
    for other in ("embedding.ngrams={buckets: 90}", "embedding.ngrams=null"):
        code, _, err = recur("finetune", *given, "--init", first, "--output", tmp_path / "x", *tiny(other))
        assert code == 2
        assert "its embedding.ngrams" in err


@pytest.mark.parametrize(
    ("ngrams", "reason"),
    [
        ("{lengths: []}", "lengths must be different numbers from 2 to 16, not []"),
        ("{lengths: [1, 2]}", "lengths must be different numbers from 2 to 16, not [1, 2]"),
        ("{lengths: [20000]}", "lengths must be different numbers from 2 to 16, not [20000]"),
        ("{lengths: [2, 2]}", "lengths must be different numbers from 2 to 16, not [2, 2]"),
        ("{buckets: 0}", "buckets must lie in [1, 2^31), not 0"),
        ("{dropout: 1}", "dropout must lie in [0, 1), not 1.0"),
        ("{size: 1}", "size: unknown key; known: buckets, dropout, lengths"),
    ],
)
def test_a_bad_value_is_refused(ngrams: str, reason: str, recur: Recur, tiny_tnews: Path, tmp_path: Path) -> None:
    given = ["--preset", "starsaber-tnews", "--data", tiny_tnews, "--output", tmp_path / "x"]
    code, _, err = recur("finetune", *given, "--set", f"embedding.ngrams={ngrams}")
    assert code == 2
    assert reason.split(maxsplit=1)[1] in err
    assert f"embedding.ngrams.{reason.split()[0].rstrip(':')}: " in err
    assert len(err.splitlines()) == 1
