"""The learning rate rises, then falls, and depends on the step alone."""

from dataclasses import replace

import pytest
from loops import tokenizer

from recurcli.config import FinetuningConfig, OptimizationConfig, Preset
from recurcli.log import Log
from recurcli.models.build import settle
from recurcli.training.fit import learning_rate


@pytest.mark.parametrize(("decay", "last"), [("linear", 0.1 / 9), ("cosine", 0.0030153689607045814), ("constant", 0.1)])
def test_warm_up_then_decay(decay: str, last: float) -> None:
    config = OptimizationConfig(learning_rate=0.1, warmup_ratio=0.1, lr_scheduler=decay)  # type: ignore[arg-type]
    rates = [learning_rate(step, 10, config, 10) for step in range(10)]
    assert rates[0] == pytest.approx(0.05)
    assert rates[1] == 0.1
    assert sorted(rates[1:], reverse=True) == rates[1:]
    assert rates[-1] == pytest.approx(last)


def test_without_warm_up_the_first_step_has_the_full_rate() -> None:
    assert learning_rate(0, 10, OptimizationConfig(learning_rate=0.1, warmup_ratio=0.0), 10) == 0.1


def test_inverse_divides_the_rate_by_the_number_of_the_epoch() -> None:
    config = OptimizationConfig(learning_rate=0.6, warmup_steps=2, lr_scheduler="inverse")
    for total in (9, 900):
        rates = [learning_rate(step, total, config, 3) for step in range(9)]
        assert rates == pytest.approx([0.2, 0.4, 0.6, 0.3, 0.3, 0.3, 0.2, 0.2, 0.2])


@pytest.mark.parametrize(
    ("rows", "word_dropout", "pairs", "epochs"),
    [
        *((10_000, 0.0, False, 3), (2_500, 0.0, False, 8), (100, 0.0, False, 20), (53_000, 0.5, False, 3)),
        *((10_000, 0.5, False, 6), (10_000, 0.2, False, 6), (10_000, 0.2, True, 3)),
    ],
)
def test_auto_epochs_follow_the_rows_and_word_dropout(rows: int, word_dropout: float, pairs: bool, epochs: int) -> None:
    config = FinetuningConfig(epochs="auto", word_dropout=word_dropout)
    preset = Preset(task="custom", encoder={"name": "starsaber"}, finetuning=config)
    assert settle(preset, "finetuning", tokenizer(), 16, rows, Log(), pairs=pairs).finetuning.epochs == epochs
    fixed = replace(preset, finetuning=replace(config, epochs=7))
    assert settle(fixed, "finetuning", tokenizer(), 16, rows, Log()).finetuning.epochs == 7
