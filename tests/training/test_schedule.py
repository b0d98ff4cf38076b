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
    ("encoder", "rows", "word_dropout", "pairs", "epochs", "rate"),
    [
        *(("bilstm", 10_000, 0.0, False, 3, 1e-3), ("bilstm", 2_500, 0.0, False, 8, 1e-3)),
        *(("bilstm", 100, 0.0, False, 20, 1e-3), ("bilstm", 53_000, 0.5, False, 3, 1e-3)),
        *(("bilstm", 10_000, 0.5, False, 6, 1e-3), ("bilstm", 10_000, 0.2, True, 3, 1e-3)),
        *(("starsaber", 2_500, 0.0, False, 8, 1e-3), ("starsaber", 2_500, 0.2, True, 8, 1e-3)),
        *(("starsaber", 2_500, 0.5, False, 6, 4e-3), ("starsaber", 4_000, 0.2, False, 4, 4e-3)),
    ],
)
def test_auto_epochs_follow_the_rows_word_dropout_and_the_rate_that_it_allows(
    encoder: str, rows: int, word_dropout: float, pairs: bool, epochs: int, rate: float
) -> None:
    config = FinetuningConfig(epochs="auto", word_dropout=word_dropout)
    preset = Preset(task="custom", encoder={"name": encoder}, finetuning=config)
    found = settle(preset, "finetuning", tokenizer(), 16, rows, Log(), pairs=pairs).finetuning
    assert found.epochs == epochs and found.learning_rate == pytest.approx(rate)
    fixed = replace(preset, finetuning=replace(config, epochs=7))
    assert settle(fixed, "finetuning", tokenizer(), 16, rows, Log()).finetuning.epochs == 7


@pytest.mark.parametrize(("given", "pretrained", "rate"), [(None, True, 1e-4), (0.001, False, 0.001)])
def test_another_rate_than_that_from_fresh_weights_has_the_passes_of_its_own(
    given: float | None, pretrained: bool, rate: float
) -> None:
    config = FinetuningConfig(epochs="auto", word_dropout=0.5, learning_rate=given)
    preset = Preset(task="custom", encoder={"name": "starsaber"}, finetuning=config)
    found = settle(preset, "finetuning", tokenizer(), 16, 10_000, Log(), pretrained=pretrained).finetuning
    assert (found.epochs, found.learning_rate) == (6, rate)
