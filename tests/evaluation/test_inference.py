"""Inference over many rows computes each orthogonal map once and restores the model's train or eval mode."""

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from recurcli.config import ModelConfig, TokenizerConfig
from recurcli.evaluation.inference import InferenceConfig, compute_logits
from recurcli.layers import CachedMap
from recurcli.network import Classifier
from recurcli.tokens.tokenizer import Tokenizer, Tokens

TEXTS = ["ab", "bca", "c", "abcabcabc", "ca", "", "bb"]
CONFIG = InferenceConfig(torch.device("cpu"), "fp32", batch_size=2)


def built(encoder: str) -> tuple[Classifier, Tokens]:
    """A classifier of two labels in training mode, and the tokens of TEXTS."""
    words = Tokenizer.train(TEXTS, TokenizerConfig(kind="char", min_frequency=1))
    torch.manual_seed(0)
    config = ModelConfig(
        encoder={"name": encoder, "hidden_size": 8, "num_layers": 2},
        vocab_size=words.vocab_size,
        pad_id=words.pad_id,
        max_length=16,
        num_classes=2,
    )
    return Classifier(config).train(), words.encode([(text, None) for text in TEXTS], 16)


@pytest.mark.parametrize("encoder", ["orthogonal-transformer", "transject"])
def test_an_orthogonal_map_is_computed_once_for_all_batches(encoder: str) -> None:
    model, tokens = built(encoder)
    calls: Counter[CachedMap] = Counter()

    def count(module: CachedMap, function: Callable[[Sequence[Tensor]], list[Tensor]]) -> None:
        def counted(parameters: Sequence[Tensor]) -> list[Tensor]:
            calls[module] += 1
            return function(parameters)

        module.function = counted

    maps = [module for module in model.modules() if isinstance(module, CachedMap)]
    for module in maps:
        count(module, module.function)
    compute_logits(model, tokens, CONFIG)
    assert len(TEXTS) > CONFIG.batch_size
    assert calls == dict.fromkeys(maps, 1) != {}


@pytest.mark.parametrize("training", [True, False])
def test_the_mode_of_the_model_is_restored_after_the_end_a_stop_and_an_error(training: bool) -> None:
    model, tokens = built("starsaber")
    model.train(training)
    compute_logits(model, tokens, CONFIG)
    assert model.training == training

    def stop_after_a_batch(done: int) -> None:
        assert not model.training
        raise LookupError

    try:
        compute_logits(model, tokens, CONFIG, stop_after_a_batch)
    except LookupError:
        assert model.training == training, "while the exception, and with it the frame, is still held"


def test_rows_are_counted_and_the_logits_are_those_of_one_call() -> None:
    model, tokens = built("starsaber")
    done: list[int] = []
    logits = compute_logits(model, tokens, CONFIG, done.append)
    assert done == [2, 4, 6, 7]
    assert np.array_equal(logits, compute_logits(model, tokens, CONFIG))
