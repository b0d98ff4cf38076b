"""The losses, against plain loops."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from recurcli.config import FinetuningConfig, ModelConfig, PretrainingConfig, TokenizerConfig
from recurcli.data.teacher import Teacher
from recurcli.errors import UsageError
from recurcli.network import Classifier, LanguageModel
from recurcli.ops.losses import distillation_loss, multiclass_hinge, soften
from recurcli.targets import OneLabel
from recurcli.tokens.tokenizer import Tokenizer
from recurcli.training.objectives import (
    IGNORED,
    ClassificationObjective,
    MaskedTokenObjective,
    MicroBatch,
)

TEXTS = ["ab", "bca", "c", "abcabcabc", "ca"]


WORDS = Tokenizer.train(TEXTS, TokenizerConfig(kind="char", min_frequency=1))
TOKENS = WORDS.encode([(text, None) for text in TEXTS], 16)
TARGETS, TARGET = np.array([0, 1, 1, 1, 1]), OneLabel(("x", "y"))


def classification(**config: Any) -> ClassificationObjective:
    return ClassificationObjective(TOKENS, TARGETS, TARGET, np.ones(5), FinetuningConfig(**config), WORDS)


def weights_of(classes: Any) -> NDArray[np.float64]:
    return TARGET.weights_of_labels(FinetuningConfig(class_weights=classes).class_weights, TARGETS)


def language_model() -> LanguageModel:
    encoder = {"name": "starsaber", "hidden_size": 8, "num_layers": 2}
    return LanguageModel(ModelConfig(encoder=encoder, vocab_size=WORDS.vocab_size, pad_id=WORDS.pad_id, max_length=16))


def test_each_position_learns_the_label_of_its_prefix() -> None:
    encoder = {"name": "mingru", "hidden_size": 8, "num_layers": 1, "causal": True}
    config = ModelConfig(
        encoder=encoder,
        vocab_size=WORDS.vocab_size,
        pad_id=WORDS.pad_id,
        max_length=16,
        num_classes=2,
        pooling="last",
    )
    torch.manual_seed(0)
    model = Classifier(config).eval()
    prefixes, weights = np.arange(len(TOKENS.ids)) % 3 % 2, np.array([1.0, 2, 1, 0.5, 1])
    settings = FinetuningConfig(supervise="every")
    objective = ClassificationObjective(TOKENS, TARGETS, TARGET, weights, settings, WORDS, None, prefixes)
    rows, expected = np.array([3, 1, 4]), 0.0
    for row in rows:
        start, end = TOKENS.offsets[row : row + 2]
        for place in range(start, end):  # the prefix alone, scored at its last position
            ids = torch.from_numpy(TOKENS.ids[start : place + 1]).long()[None]
            loss = -model(ids, None)[0].log_softmax(dim=-1)[0, prefixes[place]]
            expected += weights[row] / (end - start) * loss.item()
    batch = objective.micro_batch(rows, torch.Generator())
    assert objective.loss(model, batch)[0].item() == pytest.approx(expected, rel=1e-5)
    parts = [objective.loss(model, batch.share(rank, 2))[0].item() for rank in range(2)]
    assert sum(parts) == pytest.approx(expected, rel=1e-5) and batch.weight == 3.5


def test_hinge_is_the_largest_violation_of_the_margin() -> None:
    logits = torch.tensor([[3.0, 1.0, 2.5], [0.0, 5.0, 0.0], [0.0, 0.0, 0.0]], dtype=torch.float64, requires_grad=True)
    targets = torch.tensor([0, 1, 2])
    expected = []
    for row, right in zip(logits.tolist(), targets.tolist(), strict=True):
        worst = max(value for index, value in enumerate(row) if index != right)
        expected.append(max(0.0, 1 + worst - row[right]))
    losses = multiclass_hinge(logits, targets)
    assert losses.tolist() == expected == [0.5, 0.0, 1.0]
    assert torch.autograd.gradcheck(multiclass_hinge, (logits[:1], targets[:1]))


def test_a_teacher_is_learned_from_as_a_plain_loop_says() -> None:
    temperature, weight = 3.0, 0.3
    draw = np.random.default_rng(0)
    opinions = draw.dirichlet([0.5, 0.5, 0.5], 5).astype(np.float32)
    opinions[1] = np.nan  # no opinion
    opinions[2] = [0, 1, 0]
    targets, gold = np.array([0, 2, 1, 1, 2]), np.array([True, True, True, False, True])
    logits = torch.from_numpy(draw.normal(size=(5, 3)))
    expected, row_weights = 0.0, np.array([1.0, 2.0, 0.5, 3.0, 1.5])
    for row in range(5):
        student = np.exp(logits[row].numpy() / temperature)
        student /= student.sum()
        teacher = opinions[row].astype(float) ** (1 / temperature)
        divergence = sum(
            p / teacher.sum() * math.log(p / teacher.sum() / q) for p, q in zip(teacher, student, strict=True) if p > 0
        )
        cross_entropy = math.log(sum(math.exp(z) for z in logits[row].tolist())) - float(logits[row][targets[row]])
        share = 0.0 if row == 1 else weight if gold[row] else 1.0
        expected += (
            row_weights[row] * share * temperature**2 * divergence + row_weights[row] * (1 - share) * cross_entropy
        )
    config = FinetuningConfig(teacher="file", teacher_weight=weight, teacher_temperature=temperature)
    teacher = Teacher(opinions, gold, {})
    objective = ClassificationObjective(TOKENS, targets, OneLabel(("x", "y", "z")), row_weights, config, WORDS, teacher)
    batch = objective.micro_batch(np.arange(5), torch.Generator())
    assert batch.teacher is not None and batch.row_weights is not None
    summed = objective._summed(logits, batch.targets, batch.row_weights, batch.teacher)
    assert float(summed) == pytest.approx(expected, rel=1e-6)
    shares = [batch.share(rank, 2) for rank in range(2)]
    parts = [
        float(objective._summed(logits[rank::2], share.targets, share.row_weights, share.teacher))
        for rank, share in enumerate(shares)
        if share.row_weights is not None
    ]
    assert sum(parts) == pytest.approx(expected, rel=1e-6)
    probabilities = soften(torch.from_numpy(np.nan_to_num(opinions)).double(), temperature)
    free = logits.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda z: distillation_loss(z, probabilities, temperature), (free,))


def test_classes_have_equal_weights_or_those_of_their_labels() -> None:
    assert weights_of("balanced").tolist() == [5 / 2, 5 / 8]
    assert weights_of({"y": 3.0}).tolist() == [1.0, 3.0]
    with pytest.raises(UsageError, match=r"finetuning\.class_weights: unknown label 'Y'; known: x, y"):
        weights_of({"Y": 2.0})


def test_word_dropout_shortens_training_rows_by_the_generator_of_the_step() -> None:
    def batch(probability: float, seed: int) -> MicroBatch:
        generator = torch.Generator().manual_seed(seed)
        return classification(word_dropout=probability).micro_batch(np.arange(5), generator)

    def tokens(probability: float, seed: int) -> int:
        mask = batch(probability, seed).mask
        assert mask is not None
        return int(mask.sum())

    assert torch.equal(batch(0.5, 1).ids, batch(0.5, 1).ids)
    assert tokens(0.0, 1) == sum(map(len, TEXTS))
    sizes = {tokens(0.5, seed) for seed in range(10)}
    assert len(sizes) > 1
    assert max(sizes) < sum(map(len, TEXTS))


@pytest.mark.parametrize("loss_on", ["all", "masked"])
def test_masked_token_loss_is_the_mean_over_the_predicted_positions(loss_on: Any) -> None:
    objective = MaskedTokenObjective(TOKENS, WORDS, PretrainingConfig(loss_on=loss_on, mlm_probability=0.5))
    batch = objective.micro_batch(np.arange(5), torch.Generator().manual_seed(3))
    assert batch.positions is not None
    predicted = int((batch.targets != IGNORED).sum())
    assert batch.weight == predicted
    if loss_on == "all":
        assert predicted == TOKENS.lengths.sum()
    model = language_model().eval()
    total, _ = objective.loss(model, batch)
    logits, _ = model(batch.ids, batch.mask, batch.positions)
    expected = 0.0
    for row, target in zip(logits.tolist(), batch.targets.tolist(), strict=True):
        if target != IGNORED:
            expected += math.log(sum(math.exp(value) for value in row)) - row[target]
    assert total.item() == pytest.approx(expected, rel=1e-5)


def test_a_batch_with_nothing_masked_has_the_loss_zero() -> None:
    objective = MaskedTokenObjective(TOKENS, WORDS, PretrainingConfig(loss_on="masked", mlm_probability=1e-9))
    batch = objective.micro_batch(np.arange(1), torch.Generator())
    assert batch.weight == 0
    assert objective.loss(language_model(), batch)[0].item() == 0
