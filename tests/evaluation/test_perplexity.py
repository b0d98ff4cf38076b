"""Perplexity is exp of the mean cross-entropy of all tokens, each predicted once from those before it in its window."""

import math

import numpy as np
import pytest
import torch

from recurcli.config import ModelConfig, TokenizerConfig
from recurcli.errors import NumericError
from recurcli.evaluation import inference
from recurcli.evaluation.inference import InferenceConfig, TextScore, score_text
from recurcli.network import LanguageModel
from recurcli.tokens.texts import Windows, cut_windows, encode_stream
from recurcli.tokens.tokenizer import Tokenizer, Tokens
from recurcli.training.objectives import NextTokenObjective

TEXTS = ["the cat sat on the mat", "", "a <unk> dog sat", "the end of N cats"]
CPU = torch.device("cpu")


WORDS = Tokenizer.train(TEXTS, TokenizerConfig(kind="whitespace", min_frequency=1))
STREAM = encode_stream([(text, None) for text in TEXTS], WORDS)
WINDOWS = cut_windows(STREAM, WORDS.separator_id, 4)


def language_model(dtype: torch.dtype = torch.float64) -> LanguageModel:
    torch.manual_seed(0)
    keys = {"name": "rsa", "hidden_size": 8, "num_heads": 2, "num_layers": 2, "causal": True}
    model = LanguageModel(ModelConfig(encoder=keys, vocab_size=WORDS.vocab_size, pad_id=WORDS.pad_id, max_length=4)).to(
        dtype
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def test_a_stream_has_an_eos_after_each_line_blank_ones_included() -> None:
    spelled = [WORDS.tokens[i] if i != WORDS.separator_id else "<eos>" for i in STREAM]
    assert spelled == [word for text in TEXTS for word in [*text.split(), "<eos>"]]
    pair = encode_stream([("a dog", "the cat")], WORDS)
    assert pair.tolist() == encode_stream([("a dog", None), ("the cat", None)], WORDS).tolist()


@pytest.mark.parametrize("length", [1, 4, 5, 100])
def test_windows_predict_every_token_once_from_the_one_before(length: int) -> None:
    stream = np.arange(5, 22, dtype=np.int32)
    inputs, targets = cut_windows(stream, 2, length)
    assert targets.ids.tolist() == stream.tolist()
    assert inputs.ids.tolist() == [2, *stream[:-1].tolist()]
    assert targets.lengths.tolist() == [min(length, 17 - start) for start in range(0, 17, length)]
    assert inputs.lengths.tolist() == targets.lengths.tolist()


@pytest.mark.parametrize("batch_size", [1, 2, 64])
def test_is_that_of_a_plain_loop_over_tokens(batch_size: int) -> None:
    model = language_model().eval()
    nats, stream = 0.0, STREAM.tolist()
    for n, target in enumerate(stream):
        ids = torch.tensor([[WORDS.separator_id, *stream][n // 4 * 4 : n + 1]])  # the window's tokens up to this one
        state = model.encode(ids, torch.ones_like(ids, dtype=torch.bool))[1][0, -1]
        rows = zip(model.embedding.weight, model.token_bias, strict=True)
        logits = [float((state @ row + bias).detach()) for row, bias in rows]
        nats += math.log(sum(math.exp(logit) for logit in logits)) - logits[target]
    score = score_text(model.train(), WINDOWS, InferenceConfig(CPU, "fp32", batch_size))
    assert (score.tokens, model.training) == (len(stream), True)
    assert score.nats == pytest.approx(nats, rel=1e-12)
    assert score.perplexity == pytest.approx(math.exp(nats / len(stream)), rel=1e-12)


@pytest.mark.parametrize(
    ("tokens", "size"), [(100, 256), (600, 256), (256_000, 256), (256_001, 257), (3_000_000, 3_000)]
)
def test_a_text_has_a_thousand_blocks_at_most_and_all_its_tokens_are_in_them(tokens: int, size: int) -> None:
    score = TextScore(np.zeros(0), tokens)
    assert (score.block_tokens[0], sum(score.block_tokens)) == (min(size, tokens), tokens)
    assert len(score.block_tokens) <= 1_000 and set(score.block_tokens[:-1]) <= {size}


def test_the_losses_of_blocks_do_not_depend_on_windows_or_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inference, "TOKENS_OF_BLOCK", 3)
    model = language_model()
    blocks = [score_text(model, WINDOWS, InferenceConfig(CPU, "fp32", size)).block_nats for size in (1, 3, 64)]
    alone = []  # a window at a time, a token at a time
    for row in range(len(WINDOWS.targets)):
        some = Windows(*(part.take(np.array([row])) for part in WINDOWS))
        for place in range(len(some.targets.ids)):
            rest = [
                score_text(model, Windows(*(cut(part, end) for part in some)), InferenceConfig(CPU, "fp32")).nats
                for end in (place, place + 1)
                if end
            ]
            alone.append(rest[-1] - (rest[0] if place else 0.0))
    expected = [sum(alone[start : start + 3]) for start in range(0, len(STREAM), 3)]
    for found in blocks:
        np.testing.assert_allclose(found, expected, atol=1e-9)


def cut(tokens: Tokens, length: int) -> Tokens:
    """The first tokens of one row."""
    return Tokens(tokens.ids[:length], np.array([0, length]))


def test_the_loss_of_training_is_the_cross_entropy_of_the_evaluation() -> None:
    model = language_model(torch.float32).eval()
    objective = NextTokenObjective(WINDOWS, WORDS)
    wanted = score_text(model, WINDOWS, InferenceConfig(CPU, "fp32"))
    for count in (1, 3):
        parts_of_rows = np.array_split(np.arange(len(WINDOWS.targets)), count)
        batches = [objective.micro_batch(rows, torch.Generator()) for rows in parts_of_rows]
        shares = [batch.share(rank, 2) for batch in batches for rank in (0, 1)]
        assert sum(batch.weight for batch in batches) == wanted.tokens == objective.lengths.sum()
        for parts in (batches, shares):
            total = sum(float(objective.loss(model, part)[0].detach()) for part in parts if len(part.ids))
            assert total == pytest.approx(wanted.nats, rel=1e-5)


def test_an_infinite_perplexity_is_an_error_with_the_loss() -> None:
    with pytest.raises(NumericError, match="800 nats"):
        _ = TextScore(np.array([8000.0]), 10).perplexity
    model = language_model()
    with torch.no_grad():
        model.token_bias[0] = math.nan
    with pytest.raises(NumericError, match="not finite"):
        score_text(model, WINDOWS, InferenceConfig(CPU, "fp32"))
