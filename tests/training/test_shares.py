"""Work of several ranks: the batches of an evaluation, and a signal that comes to one of them."""

import os
import signal
from typing import Any

import numpy as np
import pytest
import torch
from loops import TEXTS, tokenizer, training_loop

from recurcli.distributed.group import Ranks
from recurcli.evaluation.inference import InferenceConfig, logits_by_batch
from recurcli.model.models import Classifier
from recurcli.training.session import StopRequest

CPU = torch.device("cpu")


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_every_batch_is_scored_by_one_process_as_by_one_alone(size: int) -> None:
    tokens = tokenizer().encode([(text, None) for text in TEXTS], 16)
    model = training_loop().model.float()
    assert isinstance(model, Classifier)
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
