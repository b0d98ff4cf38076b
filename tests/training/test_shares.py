"""Work of several ranks: the batches of an evaluation, and a signal that comes to one of them."""

import os
import signal
from typing import Any

import numpy as np
import pytest
import torch
from loops import TEXTS, tokenizer, training_loop
from torch import Tensor

from recurcli.distributed.group import Ranks
from recurcli.evaluation.inference import InferenceConfig, compute_logits
from recurcli.network import Classifier
from recurcli.training.session import StopRequest

CPU = torch.device("cpu")


class Apart(Ranks):
    """Processes whose logits are not put together."""

    def sum_disjoint(self, values: Any) -> Any:
        return values


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_every_batch_is_scored_by_one_process_as_by_one_alone(size: int) -> None:
    tokens = tokenizer().encode([(text, None) for text in TEXTS], 16)
    model = training_loop().model.float()
    assert isinstance(model, Classifier)
    alone = compute_logits(model, tokens, InferenceConfig(CPU, "fp32", 2))
    parts, turns = [], set()
    for rank in range(size):
        done: list[int] = []
        parts.append(compute_logits(model, tokens, InferenceConfig(CPU, "fp32", 2, Apart(rank, size)), done.append))
        turns.add(len(done))
    assert np.array_equal(np.sum(parts, axis=0), alone)
    assert (np.sum([part.any(axis=1) for part in parts], axis=0) == 1).all()
    assert len(turns) == 1, "all ask for a stop equally often"


class Distracted(Ranks):
    """Processes to which a signal comes while they are asked."""

    def all_gather_(self, tensor: Tensor) -> list[Tensor]:
        if not tensor:
            os.kill(os.getpid(), signal.SIGTERM)
        return [tensor]


def test_a_signal_that_comes_during_a_question_is_there_at_the_next() -> None:
    stop = StopRequest(Distracted())
    with stop.listening():
        assert not stop.agreed()
        assert stop.agreed()
        assert stop.signal == signal.SIGTERM
