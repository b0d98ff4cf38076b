"""No new default reaches a preset that is named after a paper: what its paper or our reading of it says is written out."""

import pytest

from recurcli.preset import compose

ADAM = {"lr_scheduler": "constant", "warmup_ratio": 0.0, "weight_decay": 0.0, "scalar_lr_factor": 1.0}
STARSABER = {**ADAM, "loss": "hinge", "learning_rate": 1e-4, "epochs": 10, "patience": 3, "batch_size": 64}
TRANSJECT = {
    **ADAM,
    **{"loss": "cross_entropy", "learning_rate": 5e-4, "epochs": 30, "patience": 4, "batch_size": 16},
    **{"beta1": 0.9, "beta2": 0.98, "adam_epsilon": 1e-9, "max_grad_norm": 5.0},
}
PAPERS = {
    **{f"starsaber-{size}-{task}": STARSABER for size in (1, 2) for task in ("cmnli", "tnews", "afqmc")},
    **dict.fromkeys(
        ("starsaber-2-cmnli-indirect", "starsaber-2-cmnli-sinusoidal", "starsaber-cmnli-vectors"), STARSABER
    ),
    **{f"{name}-{task}": TRANSJECT for name in ("transject", "random-transject") for task in ("imdb", "agnews")},
}


@pytest.mark.parametrize("name", PAPERS)
def test_a_preset_named_after_a_paper_keeps_its_values(name: str) -> None:
    preset = compose(name).preset
    assert {key: getattr(preset.finetuning, key) for key in PAPERS[name]} == PAPERS[name]
    assert (preset.pooling, preset.pair_pooling, preset.prior) == ("mean", "joint", None)
    assert (preset.embedding.dropout, preset.finetuning.word_dropout) == (0.0, 0.0)
    assert not (
        preset.embedding.segments or preset.embedding.matches or preset.embedding.ngrams or preset.data.extra_rows
    )
    assert preset.finetuning.label_smoothing == 0.0
    assert preset.data.max_length == (512 if PAPERS[name] is TRANSJECT else 64 if "tnews" in name else 128)
    if PAPERS[name] is STARSABER and "vectors" not in name:
        expected = {**ADAM, "learning_rate": 1e-3, "epochs": 10, "mlm_probability": 0.3, "masking": "random"}
        assert {key: getattr(preset.pretraining, key) for key in expected} == expected
