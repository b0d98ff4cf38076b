"""The learning rate rises, then falls, and depends on the step alone."""

import pytest

from recurcli.training.config import OptimizationConfig
from recurcli.training.schedule import learning_rate


@pytest.mark.parametrize(("decay", "last"), [("linear", 0.1 / 9), ("cosine", 0.0030153689607045814), ("constant", 0.1)])
def test_warm_up_then_decay(decay: str, last: float) -> None:
    config = OptimizationConfig(learning_rate=0.1, warmup_ratio=0.1, lr_scheduler=decay)  # type: ignore[arg-type]
    rates = [learning_rate(step, 10, config) for step in range(10)]
    assert rates[0] == pytest.approx(0.05)
    assert rates[1] == 0.1
    assert sorted(rates[1:], reverse=True) == rates[1:]
    assert rates[-1] == pytest.approx(last)


def test_without_warm_up_the_first_step_has_the_full_rate() -> None:
    assert learning_rate(0, 10, OptimizationConfig(learning_rate=0.1, warmup_ratio=0.0)) == 0.1
