"""`fit` itself: one gradient however a batch is divided, evaluations when they are due, and resumes from a state."""

import copy
import threading
from typing import Any

import pytest
import torch
from cases import slow_but
from loops import LABELS, WINDOW_OF_ONE, training_loop, weights

from recurcli.config import FinetuningConfig, ModelConfig
from recurcli.distributed.group import Ranks
from recurcli.errors import NumericError
from recurcli.evaluation.report import DevScore
from recurcli.log import Progress
from recurcli.network import Backbone
from recurcli.training.fit import TrainingLoop, TrainingState, build_optimizer, fit
from recurcli.training.session import optimizer_tensors

WITHOUT_DROPOUT = {"name": "starsaber", "dropout": 0.0}
ENCODERS = [WITHOUT_DROPOUT, {"name": "transject", "dropout": 0.0}, WINDOW_OF_ONE]
KINDS = ["classification", "masked tokens"]
FEW_SHARES = ((7, 2, 2), (2, 1, 3))
SHARES = (*FEW_SHARES, (7, 1, 2), (7, 3, 3))
"""Rows, micro-batches and ranks: in the second a rank has no row."""


class Threads(Ranks):
    """Ranks that are threads of this process."""

    def __init__(self, rank: int, values: list[Any], barrier: threading.Barrier) -> None:
        super().__init__(rank, len(values))
        self._values, self._barrier = values, barrier

    def all_gather(self, value: Any) -> list[Any]:
        self._values[self.rank] = value
        self._barrier.wait()
        values = list(self._values)
        self._barrier.wait()
        return values

    def all_reduce_(self, tensor: Any) -> None:
        tensor.copy_(sum(self.all_gather(tensor.clone())))

    def broadcast_(self, tensors: Any) -> None:
        for tensor, first in zip(tensors, self.all_gather([tensor.clone() for tensor in tensors])[0], strict=True):
            tensor.copy_(first)


def trained(loop: TrainingLoop) -> TrainingState:
    progress_of(loop)
    return loop.state


def progress_of(loop: TrainingLoop, until: int | None = None) -> list[Progress]:
    """Train to the end, or until a step. Returns the progress of each step."""
    found: list[Progress] = []

    def after_step(progress: Progress) -> bool:
        found.append(progress)
        return progress.step == until

    fit(loop, after_step)
    return found


def trained_by_ranks(size: int, *arguments: Any, **settings: Any) -> list[tuple[TrainingLoop, TrainingState]]:
    """The loops and states of `size` ranks that train together."""
    values, barrier = [None] * size, threading.Barrier(size, timeout=60)
    loops = [training_loop(*arguments, ranks=Threads(rank, values, barrier), **settings) for rank in range(size)]
    done: dict[int, TrainingState] = {}

    def train(rank: int) -> None:
        try:
            done[rank] = trained(loops[rank])
        finally:
            if rank not in done:
                barrier.abort()

    threads = [threading.Thread(target=train, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [(loop, done[rank]) for rank, loop in enumerate(loops)]


@pytest.mark.parametrize("encoder", ENCODERS, ids=lambda encoder: encoder["name"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("rows", "count"), slow_but([(7, 2)], [(7, 2), (7, 7), (3, 2)], unpack=True))
def test_accumulation_changes_no_gradient_or_weight(encoder: dict[str, Any], kind: str, rows: int, count: int) -> None:
    # Masking draws batch by batch: only one micro-batch of all rows has the masks of the whole batch.
    settings: dict[str, Any] = {"batch_size": rows, "max_steps": 3}
    if kind == "masked tokens":
        settings["loss_on"] = "all"
        settings["mlm_probability"] = 1e-9
    whole, cut = (training_loop(kind, encoder, **settings, gradient_accumulation_steps=some) for some in (1, count))
    before = weights(whole)
    measures = [trained(loop).measures for loop in (whole, cut)]
    assert measures[0] == pytest.approx(measures[1], abs=1e-6)
    torch.testing.assert_close(weights(cut), weights(whole), atol=1e-6, rtol=1e-5)
    assert max((before[name] - tensor).abs().max() for name, tensor in weights(whole).items()) > 1e-3


@pytest.mark.parametrize("encoder", ENCODERS, ids=lambda encoder: encoder["name"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("rows", "count", "size"), slow_but(FEW_SHARES, SHARES, unpack=True))
def test_shares_of_ranks_sum_to_one_gradient(
    encoder: dict[str, Any], kind: str, rows: int, count: int, size: int
) -> None:
    settings: dict[str, Any] = {"batch_size": rows, "gradient_accumulation_steps": count, "max_steps": 3}
    alone = training_loop(kind, encoder, **settings)
    measures = trained(alone).measures
    for loop, state in trained_by_ranks(size, kind, encoder, **settings):
        torch.testing.assert_close(weights(loop), weights(alone), atol=1e-6, rtol=1e-5)
        assert state.measures == pytest.approx(measures, abs=1e-5)


def test_a_parameter_without_a_gradient_has_no_state_and_no_decay_in_any_rank() -> None:
    for size in (1, 2):
        for loop, _ in trained_by_ranks(
            size, "classification", WINDOW_OF_ONE, max_steps=2, optimizer=torch.optim.AdamW
        ):
            unused = [name for name, p in loop.model.named_parameters() if p not in loop.optimizer.state]
            assert unused
            assert all(name.endswith("recurrent") for name in unused)


@pytest.mark.parametrize(("every", "due"), [(3, [3, 6, 8]), (None, [4, 8]), (100, [8])])
def test_the_model_is_evaluated_when_it_is_due_and_after_the_last_step(every: int | None, due: list[int]) -> None:
    loop = training_loop(batch_size=2, max_steps=8, evaluate=lambda: DevScore(0.5, 1.0), evaluate_every=every)
    steps = [progress.step for progress in progress_of(loop) if progress.dev_metric is not None]
    assert steps == due


@pytest.mark.parametrize(
    ("minimize", "scores", "best", "second"),
    [
        (False, [(0.1, 1.0), (0.3, 1.0), (0.3, 1.0), (0.2, 1.0)], (0.3, 1.0), 0.3),
        (False, [(0.3, 0.9), (0.3, 0.8), (0.3, 0.85), (0.2, 0.1)], (0.3, 0.8), 0.3),  # ranked by the loss
        (True, [(900.0, 1.0), (300.0, 1.0), (400.0, 1.0), (300.0, 1.0)], (300.0, 1.0), 900.0),
    ],
)
def test_training_stops_when_patience_runs_out_and_remembers_the_best_step(
    minimize: bool, scores: list[tuple[float, float]], best: tuple[float, float], second: float
) -> None:
    rest = iter([*scores, (1.0 if minimize else 9.0, 0.0)])
    loop = training_loop(
        max_steps=50, evaluate=lambda: DevScore(*next(rest)), evaluate_every=2, patience=2, minimize=minimize
    )
    state = loop.state
    assert [p.improved for p in progress_of(loop) if p.dev_metric is not None] == [True, True, False, False]
    assert (state.step, state.best_step, state.stale_evaluations) == (8, 4, 2)
    assert (state.best_dev_metric, state.best_dev_loss) == best
    assert not minimize or state.second_dev_metric == second


def test_an_evaluation_that_a_stop_prevented_comes_first_in_the_resume() -> None:
    loop = training_loop(batch_size=len(LABELS), max_steps=2, evaluate=lambda: DevScore(0.5, 1.0), evaluate_every=1)
    loop.state = TrainingState(step=1)
    first = progress_of(loop)[0]
    assert (first.step, first.dev_metric) == (1, 0.5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("step", [1, 3, 4])
def test_a_training_resumes_from_its_state_bit_for_bit(kind: str, step: int) -> None:
    settings: dict[str, Any] = {"batch_size": 2, "max_steps": 6, "gradient_accumulation_steps": 2}
    encoder = {"name": "starsaber", "dropout": 0.3}
    whole = training_loop(kind, encoder, optimizer=torch.optim.AdamW, **settings)
    final = trained(whole)
    first = training_loop(kind, encoder, optimizer=torch.optim.AdamW, **settings)
    progress_of(first, until=step)
    second = training_loop(kind, encoder, optimizer=torch.optim.AdamW, **settings)
    second.model.load_state_dict(weights(first))
    second.optimizer.load_state_dict(copy.deepcopy(first.optimizer.state_dict()))
    second.state = state = TrainingState(**copy.deepcopy(vars(first.state)))
    torch.manual_seed(99)
    trained(second)
    assert (state.step, state.loss_sum, state.measures) == (final.step, final.loss_sum, final.measures)
    torch.testing.assert_close(weights(second), weights(whole), atol=0, rtol=0)


@pytest.mark.parametrize("where", ["loss", "gradient"])
def test_a_step_whose_numbers_are_not_finite_changes_nothing(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = training_loop(max_steps=5, optimizer=torch.optim.AdamW)
    state = loop.state
    progress_of(loop, until=2)
    before = weights(loop), copy.deepcopy(optimizer_tensors(loop.model, loop.optimizer)), copy.deepcopy(state)
    honest = loop.objective.loss

    def poisoned(*arguments: Any) -> Any:
        total, auxiliary = honest(*arguments)
        if where == "loss":
            return total * torch.nan, auxiliary
        total.register_hook(lambda gradient: gradient * torch.inf)  # type: ignore[no-untyped-call]
        return total, auxiliary

    monkeypatch.setattr(loop.objective, "loss", poisoned)
    with pytest.raises(NumericError, match="step 3: loss"):
        progress_of(loop)
    torch.testing.assert_close(weights(loop), before[0], atol=0, rtol=0)
    torch.testing.assert_close(optimizer_tensors(loop.model, loop.optimizer), before[1], atol=0, rtol=0)
    assert vars(state) | {"seconds": 0} == vars(before[2]) | {"seconds": 0}
    assert all(parameter.grad is None for parameter in loop.model.parameters())


def test_losses_that_are_read_later_count_step_by_step_and_the_first_bad_one_is_named() -> None:
    loop = training_loop(max_steps=5)
    for step, loss in enumerate((1.0, 3.0), start=1):
        numbers = {"gradient_norm": torch.tensor(0.5 * step).double(), "loss": torch.tensor(loss).double()}
        loop.unread.append((step, 0.1 * step, numbers))
    loop.read_losses()
    assert (loop.state.loss_sum, loop.state.loss_steps, loop.unread) == (4.0, 2, [])
    assert loop.state.measures == {"learning_rate": 0.2, "gradient_norm": 1.0}
    for step, loss in enumerate((1.0, torch.inf, torch.nan), start=3):
        loop.unread.append((step, 0.1, {"gradient_norm": torch.ones(()), "loss": torch.tensor(loss)}))
    with pytest.raises(NumericError, match="step 4: loss inf"):
        loop.read_losses()


def test_each_number_of_a_gradient_is_clipped_at_its_largest_value() -> None:
    """By plain gradient descent at a rate of 1 a parameter changes by its gradient, and by the weight decay of 0.1."""
    steps = []
    for value in (None, 1e-3):
        loop = training_loop(max_grad_value=value, learning_rate=1.0, max_steps=1)
        before = [parameter.detach().clone() for parameter in loop.model.parameters()]
        trained(loop)
        pairs = zip(loop.model.parameters(), before, strict=True)
        steps.append(torch.cat([(0.9 * old - new.detach()).flatten() for new, old in pairs]))
    whole, clipped = steps
    assert whole.abs().max() > 2e-3 > 1e-4 > whole.abs().min()
    torch.testing.assert_close(clipped, whole.clamp(-1e-3, 1e-3), atol=1e-12, rtol=0)


def test_the_state_matrix_of_s4d_has_no_weight_decay() -> None:
    encoder = {"name": "s4d", "hidden_size": 8, "num_layers": 1}
    model = Backbone(ModelConfig(encoder=encoder, vocab_size=9, pad_id=0, max_length=4))
    groups = build_optimizer(model, FinetuningConfig(learning_rate=0.1, weight_decay=0.5)).param_groups
    decays = {id(parameter): group["weight_decay"] for group in groups for parameter in group["params"]}
    mixer: Any = model.encoder.layers[0].attention
    without = [mixer.log_step, mixer.log_decay, mixer.frequency]
    assert [decays[id(parameter)] for parameter in without] == [0, 0, 0]
    assert decays[id(mixer.weights)] == decays[id(mixer.to_output.weight)] == 0.5
