"""A batch cut into the shares of several processes, computed here one after the other: the sums are the whole batch's."""

import os
import signal
from typing import Any

import numpy as np
import pytest
import torch

from recurcli.distributed.group import Ranks
from recurcli.evaluation.inference import InferenceConfig, logits_by_batch
from recurcli.model.config import ModelConfig
from recurcli.model.models import Classifier, MaskedTokenModel
from recurcli.tokens.config import TokenizerConfig
from recurcli.tokens.tokenizer import Tokenizer
from recurcli.training.config import FinetuningConfig, PretrainingConfig
from recurcli.training.objectives import ClassificationObjective, MaskedTokenObjective, Objective
from recurcli.training.signals import StopRequest

TEXTS = ["ab", "bca", "c", "abcabcabc", "ca", "", "bb"]
CPU = torch.device("cpu")


def tokenizer() -> Tokenizer:
    return Tokenizer.train(TEXTS, TokenizerConfig(kind="char", min_frequency=1))


def config(words: Tokenizer, encoder: str, labels: tuple[str, ...] = ()) -> ModelConfig:
    made = {"name": encoder, "hidden_size": 8, "num_layers": 2}
    return ModelConfig(encoder=made, vocab_size=words.vocab_size, pad_id=words.pad_id, max_length=16, labels=labels)


def classification(encoder: str) -> tuple[Objective, Classifier]:
    words = tokenizer()
    tokens = words.encode([(text, None) for text in TEXTS], 16)
    finetuning = FinetuningConfig(class_weights="balanced", loss="hinge")
    objective = ClassificationObjective(tokens, [0, 1, 1, 1, 0, 0, 1], ("x", "y"), finetuning, words.pad_id)
    return objective, Classifier(config(words, encoder, ("x", "y")))


def masked_tokens(encoder: str) -> tuple[Objective, MaskedTokenModel]:
    words = tokenizer()
    tokens = words.encode([(text, None) for text in TEXTS], 16)
    objective = MaskedTokenObjective(tokens, words, PretrainingConfig(loss_on="masked", mlm_probability=0.5))
    return objective, MaskedTokenModel(config(words, encoder))


def gradient(objective: Objective, model: Any, rows: int, count: int, size: int) -> torch.Tensor:
    """The gradient of a batch that `size` processes share in `count` parts, as `fit` sums it."""
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    model.zero_grad()
    parts = objective.micro_batches(np.arange(rows), count, torch.Generator().manual_seed(3))
    weight = sum(part.weight for part in parts)
    for share in (part.share(rank, size) for rank in range(size) for part in parts):
        if len(share.ids):
            total, auxiliary = objective.loss(model, share, CPU)
            extra = sum(auxiliary.values(), torch.zeros(()))
            (total / weight + len(share.ids) / rows * extra).backward()  # type: ignore[no-untyped-call]
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


@pytest.mark.parametrize("encoder", ["starsaber", "transject"])
@pytest.mark.parametrize("kind", [classification, masked_tokens])
@pytest.mark.parametrize(("rows", "count", "size"), [(7, 1, 2), (7, 2, 2), (7, 3, 3), (2, 1, 3)])
def test_the_gradient_does_not_depend_on_the_number_of_processes(
    encoder: str, kind: Any, rows: int, count: int, size: int
) -> None:
    torch.manual_seed(0)
    objective, model = kind(encoder)
    model.double().train()
    alone = gradient(objective, model, rows, count, 1)
    torch.testing.assert_close(gradient(objective, model, rows, count, size), alone, atol=1e-6, rtol=1e-5)
    assert alone.abs().max() > 1e-3


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_every_batch_is_scored_by_one_process_as_by_one_alone(size: int) -> None:
    words = tokenizer()
    tokens = words.encode([(text, None) for text in TEXTS], 16)
    torch.manual_seed(0)
    model = Classifier(config(words, "starsaber", ("x", "y")))
    alone = {tuple(rows): scores for rows, scores in logits_by_batch(model, tokens, InferenceConfig(CPU, "fp32", 2))}
    turns = set()
    for rank in range(size):
        computation = InferenceConfig(CPU, "fp32", 2, Ranks(rank, size))
        mine = list(logits_by_batch(model, tokens, computation))
        turns.add(len(mine))
        for rows, scores in mine:
            assert len(rows) == 0 or np.array_equal(alone.pop(tuple(rows)), scores)
    assert not alone
    assert len(turns) == 1, "all ask for a stop equally often"


class Distracted(Ranks):
    """Processes to which a signal comes while they are asked."""

    def all_gather(self, value: Any) -> list[Any]:
        answer = [value]
        if value[0] is None:
            os.kill(os.getpid(), signal.SIGTERM)
        return answer


def test_a_signal_that_comes_during_a_question_is_there_at_the_next() -> None:
    stop = StopRequest(Distracted())
    with stop.listening():
        assert not stop.agreed()
        assert stop.agreed()
        assert stop.signal == signal.SIGTERM
