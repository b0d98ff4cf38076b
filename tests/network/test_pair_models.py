"""A classifier of pairs: its logits are those of a row alone, whatever stands beside it in the batch."""

import pytest
import torch

from recurcli.config import ModelConfig, PairPooling
from recurcli.network import Classifier

SEPARATOR = 3
ROWS = [[5, 6, SEPARATOR, 6, 7], [5, SEPARATOR, 5], [8, 9, 8], [SEPARATOR, 4], [4, SEPARATOR], [6, 6, SEPARATOR, 6]]


def build(pair_pooling: PairPooling, encoder: str = "starsaber") -> Classifier:
    torch.manual_seed(0)
    config = ModelConfig(
        encoder={"name": encoder, "hidden_size": 8, "num_layers": 2},
        vocab_size=20,
        pad_id=0,
        max_length=9,
        embedding_segments=True,
        embedding_matches=True,
        separator_id=SEPARATOR,
        pooling="max",
        pair_pooling=pair_pooling,
        num_classes=3,
    )
    model = Classifier(config).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def logits(model: Classifier, rows: list[list[int]], width: int) -> torch.Tensor:
    ids = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    mask = torch.tensor([[place < len(row) for place in range(width)] for row in rows])
    with torch.no_grad():
        found: torch.Tensor = model(ids, mask)[0]
    return found


@pytest.mark.parametrize("encoder", ["starsaber", "transject", "bilstm"])
@pytest.mark.parametrize("pair_pooling", ["joint", "sides"])
def test_a_pair_scores_alone_as_it_does_among_others(pair_pooling: PairPooling, encoder: str) -> None:
    model = build(pair_pooling, encoder)
    together = logits(model, ROWS, 9)
    for number, row in enumerate(ROWS):
        torch.testing.assert_close(logits(model, [row], len(row))[0], together[number])


def test_a_match_in_the_other_text_alone_changes_a_row() -> None:
    model = build("sides")
    assert model.embedding.match is not None
    before = logits(model, ROWS, 9)
    with torch.no_grad():
        model.embedding.match.mul_(-1)
    changed = (logits(model, ROWS, 9) != before).any(dim=1)
    assert changed.tolist() == [True, True, False, False, False, True]
