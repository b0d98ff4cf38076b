"""A training and a perplexity that carry a state are those of plain loops, in which each stream is read from its beginning."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from cases import slow_but
from loops import STREAMS, TEXTS, WINDOW, training_loop, weights
from test_fit import trained_by_ranks
from torch import Tensor

from recurcli.evaluation.inference import InferenceConfig, score_text
from recurcli.log import Progress
from recurcli.network import LanguageModel
from recurcli.tokens.texts import Windows, cut_windows, encode_stream
from recurcli.tokens.tokenizer import Tokenizer
from recurcli.training.fit import TrainingLoop, TrainingState, fit, take_step

LSTM = {"name": "truncated-lstm", "window": None, "bidirectional": False, "stable": False, "num_layers": 1}
ENCODERS: dict[str, dict[str, Any]] = {
    "lstm": LSTM,
    "window": {**LSTM, "name": "truncated-rnn", "window": 4},
    "memory": {"name": "transformer-xl", "num_heads": 2, "causal": True, "segment": 2, "memory": 4},
    "blocks": {"name": "block-recurrent-transformer", "num_heads": 2, "causal": True, "window": 2, "num_states": 3},
    "chunks": {"name": "temporal-latent-bottleneck", "num_heads": 2, "causal": True, "chunk_size": 2, "num_states": 3},
}
INFERENCE = InferenceConfig(torch.device("cpu"), "fp32", batch_size=2)
ALL = pytest.mark.parametrize("name", ENCODERS)


def stream_of(words: Tokenizer) -> list[int]:
    """The ids of TEXTS end to end."""
    return encode_stream([(text, None) for text in TEXTS], words).tolist()


def streams_of(text: list[int]) -> list[list[int]]:
    """STREAMS contiguous parts of a text."""
    size = len(text) // STREAMS
    return [text[number * size : (number + 1) * size] for number in range(STREAMS)]


def nats_of(model: LanguageModel, before: list[int], targets: list[int]) -> Tensor:
    """The cross-entropies (N,) of the last N tokens that follow the tokens `before`, all of which are read at once."""
    ids = torch.tensor([before])
    _, states = model.encode(ids, torch.ones_like(ids, dtype=torch.bool))
    logits = model.token_logits(states[0, -len(targets) :], model.embedding.output_weight())
    return F.cross_entropy(logits, torch.tensor(targets), reduction="none")


def losses_of(loop: TrainingLoop, **options: Any) -> list[float]:
    """The loss of each step."""
    loop.state = TrainingState(**options)
    losses: list[float] = []

    def after_step(progress: Progress) -> bool:
        losses.append(loop.state.loss_sum - sum(losses))
        return False

    fit(loop, after_step)
    return losses


def test_streams_are_contiguous_parts_of_the_text() -> None:
    text = np.arange(1, 24, dtype=np.int32)  # 23 tokens: three streams of seven
    windows = cut_windows(text, 99, 3, 3)
    found = [
        (inputs.tolist(), targets.tolist()) for inputs, targets in zip(rows(windows, 0), rows(windows, 1), strict=True)
    ]
    expected = []
    for first in (0, 3, 6):
        for stream in range(3):
            targets = [1 + 7 * stream + place for place in range(first, min(first + 3, 7))]
            expected.append(([99 if token == 1 else token - 1 for token in targets], targets))
    assert found == expected


def rows(windows: Windows, part: int) -> list[np.ndarray]:
    return np.split(windows[part].ids, windows[part].offsets[1:-1])


@ALL
@pytest.mark.parametrize("count", [1, 2])
def test_each_loss_is_that_of_a_stream_read_from_its_beginning(name: str, count: int) -> None:
    """Two passes with next to no learning: the second begins without what the first left."""
    settings: dict[str, Any] = {"gradient_accumulation_steps": count, "learning_rate": 1e-12, "epochs": 2}
    loop = training_loop("streams", ENCODERS[name], **settings)
    losses = losses_of(loop)
    assert isinstance(loop.model, LanguageModel)
    loop.model.eval()
    text = stream_of(loop.objective.tokenizer)  # type: ignore[attr-defined]
    eos, expected = text[-1], []
    streams = streams_of(text)
    before = [[eos, *text][: len(text)][len(stream) * number :] for number, stream in enumerate(streams)]
    for first in range(0, len(streams[0]), WINDOW):
        nats = [
            nats_of(loop.model, inputs[: first + len(targets)], targets)
            for stream, inputs in zip(streams, before, strict=True)
            if (targets := stream[first : first + WINDOW])
        ]
        expected.append(torch.cat(nats).mean().item())
    assert losses == pytest.approx(2 * expected, abs=1e-6)


@ALL
def test_a_step_learns_from_its_window_and_takes_what_is_carried_as_it_is(name: str) -> None:
    loop = training_loop("streams", ENCODERS[name], max_steps=2, gradient_accumulation_steps=2)
    model, batches = loop.model, loop.batches(0)
    assert isinstance(model, LanguageModel)
    text = stream_of(loop.objective.tokenizer)  # type: ignore[attr-defined]
    inputs, targets = streams_of([text[-1], *text][: len(text)]), streams_of(text)
    first, second = (torch.tensor([row[start : start + WINDOW] for row in inputs]) for start in (0, WINDOW))
    _, after = model.encoder.carry(model.embedding(first))
    carried = {key: part.clone() for key, part in after.items()}  # some are views of weights
    take_step(loop, next(batches))
    states, _ = model.encoder.carry(model.embedding(second), carried)
    logits = model.token_logits(states.flatten(0, 1), model.embedding.output_weight())
    right = torch.tensor([row[WINDOW : 2 * WINDOW] for row in targets]).flatten()
    named = dict(model.named_parameters())
    gradients = torch.autograd.grad(F.cross_entropy(logits, right), list(named.values()), allow_unused=True)
    before = weights(loop)
    take_step(loop, next(batches))
    for (key, parameter), gradient in zip(named.items(), gradients, strict=True):
        decay = 0.1 * before[key] if gradient is not None else 0.0
        step = 0.0 if gradient is None else gradient
        torch.testing.assert_close(parameter, before[key] - 0.1 * (step + decay), atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("name", "size"),
    slow_but(
        [("lstm", 4), ("memory", 2), ("blocks", 4), ("chunks", 2)],
        itertools.product(["lstm", "memory", "blocks", "chunks"], [2, 4]),
        unpack=True,
    ),
)
def test_several_ranks_carry_what_one_does(name: str, size: int) -> None:
    """Of four ranks one has no stream."""
    alone = training_loop("streams", ENCODERS[name], epochs=2)
    losses = losses_of(alone)
    for loop, state in trained_by_ranks(size, "streams", ENCODERS[name], epochs=2):
        torch.testing.assert_close(weights(loop), weights(alone), atol=1e-6, rtol=0)
        assert state.loss_sum == pytest.approx(sum(losses), abs=1e-6)


@ALL
def test_a_carried_perplexity_is_that_of_the_whole_text_at_once(name: str) -> None:
    model = training_loop("streams", ENCODERS[name]).model
    assert isinstance(model, LanguageModel)
    text = stream_of(training_loop("streams").objective.tokenizer)  # type: ignore[attr-defined]
    windows = cut_windows(np.array(text, np.int32), text[-1], 2 * WINDOW)
    nats = score_text(model, windows, INFERENCE, carry=True).nats
    whole = nats_of(model.eval(), [text[-1], *text[:-1]], text).sum().item()
    assert nats == pytest.approx(whole, abs=1e-6)
    alone = score_text(model, windows, INFERENCE, carry=False).nats
    assert abs(alone - whole) > 1e-3
