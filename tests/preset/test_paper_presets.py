"""Presets of the papers' tables have the papers' values, and no default of ours reaches them unnoticed."""

from typing import Any

import pytest

from recurcli.preset import compose

ADAM = {"lr_scheduler": "constant", "warmup_ratio": 0.0, "weight_decay": 0.0, "scalar_lr_factor": 1.0}
STARSABER = {**ADAM, "loss": "hinge", "learning_rate": 1e-4, "epochs": 10, "patience": 3, "batch_size": 64}
WARMED = {**STARSABER, "warmup_ratio": 0.05}
TRANSJECT = {
    **ADAM,
    **{"loss": "cross_entropy", "learning_rate": 5e-4, "epochs": 30, "patience": 4, "batch_size": 16},
    **{"beta1": 0.9, "beta2": 0.98, "adam_epsilon": 1e-9, "max_grad_norm": 5.0},
}
LONG_RANGE = {
    **{"loss": "cross_entropy", "learning_rate": 1e-4, "max_steps": 50_000, "batch_size": 32, "lr_scheduler": "linear"},
    **{"beta1": 0.9, "beta2": 0.999, "adam_epsilon": 1e-6, "weight_decay": 0.0, "scalar_lr_factor": 1.0},
    **{"evaluate_every": 500, "patience": None, "max_grad_norm": None, "max_grad_value": 1.0},
}
WIDE = {"hidden_size": 512, "num_layers": 12}
HEADS = {"num_heads": 8, "feed_forward_size": 2048}
VECTORS = {"hidden_size": 300, "num_layers": 12}
SMALL_HEADS = {**VECTORS, "num_heads": 8, "head_size": 38, "feed_forward_size": 1200}
SIX = {"hidden_size": 512, "num_layers": 6}
TINY = {"hidden_size": 64, "num_layers": 2, "dropout": 0.1}
ATTENTION = {
    **{**TINY, "num_heads": 2, "feed_forward_size": 128, "activation": "gelu", "norm": "pre"},
    **{"feed_forward_dropout": 0.1},
}
SOFTMAX = {**ATTENTION, "attention_dropout": 0.1}
NO_NORM = {key: value for key, value in ATTENTION.items() if key != "norm"}

Rows = dict[str, tuple[dict[str, Any], dict[str, Any]]]
"""The keys of the encoder and of fine-tuning by row of a table."""
CLUE: Rows = {
    "starsaber-1-{}": ({"name": "starsaber", "hidden_size": 512, "num_layers": 24}, STARSABER),  # table 3
    "starsaber-2-{}": ({"name": "starsaber", **WIDE, "direct_path": True, "position": "directional"}, STARSABER),
    "transformer-512-{}": ({"name": "transformer", **WIDE, **HEADS, "norm": "post"}, WARMED),
    "rezero-512-{}": ({"name": "rezero", **WIDE, **HEADS, "alpha_init": 0.0}, STARSABER),
    "starsaber-{}-vectors": ({"name": "starsaber", **VECTORS}, STARSABER),
    "transformer-{}-vectors": ({"name": "transformer", **SMALL_HEADS, "norm": "post"}, WARMED),
    "rezero-{}-vectors": ({"name": "rezero", **SMALL_HEADS}, STARSABER),
    "bilstm-{}-vectors": ({"name": "bilstm", "hidden_size": 300}, {**STARSABER, "learning_rate": 1e-3}),
    "gated-starsaber-512-{}": ({"name": "gated-starsaber", **WIDE, "gate": "gru_light"}, STARSABER),  # table 5
    "starsaber-2-{}-sinusoidal": ({"position": "sinusoidal", "hidden_size": 512, "num_layers": 24}, STARSABER),  # 6
    "starsaber-2-{}-indirect": ({"direct_path": False, "hidden_size": 512, "num_layers": 16}, STARSABER),  # table 7
}
TABLE_1: Rows = {
    "transject-{}": ({"name": "transject", **SIX, "num_experts": 4}, TRANSJECT),
    "random-transject-{}": ({"name": "random-transject", **SIX, "num_experts": 4}, TRANSJECT),
    "transformer-512-{}": ({"name": "transformer", **SIX, **HEADS, "norm": "post"}, TRANSJECT),
    "rezero-512-{}": ({"name": "rezero", **SIX, **HEADS}, TRANSJECT),
    "orthogonal-transformer-512-{}": ({"name": "orthogonal-transformer", **SIX, **HEADS}, TRANSJECT),
    "linformer-512-{}": ({"name": "linformer", **SIX, **HEADS, "max_length": 512}, TRANSJECT),
    "synthesizer-512-{}": ({"name": "synthesizer", **SIX, **HEADS, "max_length": 512}, TRANSJECT),
}
TABLE_3: dict[str, dict[str, Any]] = {
    "transformer-512-ptb": {"name": "transformer", **SIX, **HEADS, "norm": "post", "causal": True},
    "rezero-512-ptb": {"name": "rezero", **SIX, **HEADS, "causal": True},
    "orthogonal-transformer-512-ptb": {
        "name": "orthogonal-transformer",
        **SIX,
        **HEADS,
        "norm": "post",
        "causal": True,
    },
}
PAPERS = {
    **{name.format(task): row for name, row in CLUE.items() for task in ("cmnli", "tnews", "afqmc")},
    **{name.format(task): row for name, row in TABLE_1.items() for task in ("imdb", "agnews")},
    "starsaber-tied-cmnli": ({"hidden_size": 512, "tied": True, "num_layers": None}, STARSABER),  # section 3.2
}
TABLE_2: dict[str, dict[str, Any]] = {
    "transject": {**TINY, "num_experts": 4},
    "random-transject": {**TINY, "num_experts": 4},
    "rezero": NO_NORM,
    "transformer": SOFTMAX,
    "orthogonal-transformer": SOFTMAX,
    "reformer": {**ATTENTION, "chunk_size": 64, "num_hashes": 2},
    "bigbird": {**ATTENTION, "block_size": 64, "num_random_blocks": 3},
    "informer": ATTENTION,
    "linformer": {**ATTENTION, "projected_length": 128},
    "synthesizer": ATTENTION,
    "nystromformer": {**ATTENTION, "num_landmarks": 128},
    "performer": {**ATTENTION, "num_features": 128},
    "skyformer": {**ATTENTION, "num_landmarks": 128},
}


@pytest.mark.parametrize("name", PAPERS)
def test_a_preset_named_after_a_paper_keeps_its_values(name: str) -> None:
    preset = compose(name).preset
    encoder, finetuning = PAPERS[name]
    assert {key: preset.encoder[key] for key in encoder} == encoder
    assert {key: getattr(preset.finetuning, key) for key in finetuning} == finetuning
    assert preset.task in name.split("-")
    assert (preset.pooling, preset.pair_pooling, preset.ensemble) == ("mean", "joint", None)
    assert (preset.embedding.dropout, preset.finetuning.word_dropout) == (0.0, 0.0)
    assert not (preset.embedding.segments or preset.embedding.matches or preset.data.extra_rows)
    assert preset.finetuning.label_smoothing == 0.0
    assert preset.data.close_brackets
    assert preset.data.max_length == {"tnews": 64, "imdb": 512, "agnews": 512}.get(preset.task, 128)
    if finetuning["loss"] == "hinge":
        rate, warmup = (1e-4, 0.05) if preset.encoder["name"] == "transformer" else (1e-3, 0.0)
        expected = {**ADAM, "learning_rate": rate, "warmup_ratio": warmup, "epochs": 10, "mlm_probability": 0.3}
        assert {key: getattr(preset.pretraining, key) for key in expected} == expected


@pytest.mark.parametrize("name", TABLE_3)
def test_the_language_models_of_transjects_table_have_its_optimizer(name: str) -> None:
    preset = compose(name).preset
    assert {key: preset.encoder[key] for key in TABLE_3[name]} == TABLE_3[name]
    pretraining = {**{key: value for key, value in TRANSJECT.items() if key != "loss"}, "objective": "causal"}
    assert {key: getattr(preset.pretraining, key) for key in pretraining} == pretraining
    assert (preset.task, preset.embedding.dropout) == ("ptb", 0.0)


@pytest.mark.parametrize(("task", "length", "warmup"), [("listops", 2000, 1000), ("charimdb", 4000, 80)])
@pytest.mark.parametrize("encoder", TABLE_2)
def test_the_rows_of_the_long_range_table_have_its_settings(encoder: str, task: str, length: int, warmup: int) -> None:
    preset = compose(f"{encoder}-{task}").preset
    expected = {"name": encoder, **TABLE_2[encoder]}
    assert (preset.task, preset.data.max_length, preset.ensemble) == (task, length, None)
    assert {key: preset.encoder[key] for key in expected} == expected
    finetuning = {**LONG_RANGE, "warmup_steps": warmup}
    assert {key: getattr(preset.finetuning, key) for key in finetuning} == finetuning
    assert not preset.data.close_brackets
    assert preset.pooling == ("max" if "transject" in encoder and task == "listops" else "mean")
    assert preset.encoder.get("sampling_factor") in (None, {"listops": 17, "charimdb": 16}[task])
    assert preset.encoder.get("max_length") in (None, length)
