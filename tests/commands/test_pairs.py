"""Pairs of texts from a file of one's own: what the model has for them, and what single texts do not have."""

import json
import random
from pathlib import Path

import pytest
from predicting import Recur
from safetensors.torch import load_file

SMALL = ["encoder.hidden_size=16", "encoder.num_layers=1", "data.max_length=24", "tokenizer.min_frequency=1"]
SMALL += ["finetuning.encoder=always"]
WORDS = "鼠牛虎兔龙蛇马羊猴鸡狗猪"


def write_pairs(path: Path, rows: int) -> Path:
    """Do both texts share a character? Only a model that compares them can say."""
    draw, lines = random.Random(0), ["text_a\ttext_b\tlabel"]
    for number in range(rows):
        first = "".join(draw.sample(WORDS, 4))
        rest = [word for word in WORDS if word not in first]
        second = "".join(draw.sample(rest, 4))
        if number % 2:
            second = second[:2] + draw.choice(first) + second[3:]
        lines.append(f"{first}\t{second}\t{['no', 'yes'][number % 2]}")
    path.write_text("\n".join(lines) + "\n")
    return path


def settings(*more: str) -> list[str]:
    return [part for setting in (*SMALL, *more) for part in ("--set", setting)]


def test_pairs_are_compared_and_single_texts_have_nothing_for_it(recur: Recur, tmp_path: Path) -> None:
    data = write_pairs(tmp_path / "pairs.tsv", 600)
    columns = ["data.text=text_a", "data.pair=text_b", "data.label=label", "finetuning.word_dropout=0"]
    line = ["finetune", "--preset", "starsaber-custom", "--data", data, "--output", tmp_path / "pairs"]
    recur.ok(*line, *settings(*columns, "finetuning.epochs=8", "finetuning.learning_rate=0.01"))
    result = json.loads((tmp_path / "pairs" / "result.json").read_text())
    assert result["parts"]["encoder"]["accuracy"] > 0.9
    assert result["dev"]["accuracy"] >= result["parts"]["encoder"]["accuracy"]
    names = load_file(tmp_path / "pairs" / "model.safetensors")
    assert {"embedding.second_text", "embedding.match"} < names.keys()
    assert names["head.output.weight"].shape == (2, 64)
    single = ["finetune", "--preset", "starsaber-custom", "--data", data, "--output", tmp_path / "single"]
    columns = ["data.text=text_a", "data.label=label", "finetuning.max_steps=1"]
    recur.ok(*single, *settings(*columns))
    names = load_file(tmp_path / "single" / "model.safetensors")
    assert not {"embedding.second_text", "embedding.match"} & names.keys()
    assert names["head.output.weight"].shape == (2, 16)


@pytest.mark.slow
def test_pairs_start_from_a_model_of_single_texts_and_of_pairs(recur: Recur, tmp_path: Path) -> None:
    data = write_pairs(tmp_path / "pairs.tsv", 60)
    (tmp_path / "lines.txt").write_text("".join(f"{WORDS[n % 12]}{WORDS[n % 7]}\n" for n in range(100)))
    columns = ["data.text=text_a", "data.pair=text_b", "data.label=label"]
    common = settings("pretraining.max_steps=2", "finetuning.max_steps=2")
    pairs = [part for column in columns for part in ("--set", column)]
    for name, source in (("of lines", [tmp_path / "lines.txt"]), ("of pairs", [data, *pairs])):
        line = ["pretrain", "--preset", "starsaber-custom", "--output", tmp_path / name, "--data", *source]
        recur.ok(*line, *common)
        assert ("embedding.match" in load_file(tmp_path / name / "model.safetensors")) == (name == "of pairs")
        line = ["finetune", "--preset", "starsaber-custom", "--init", tmp_path / name, "--output"]
        line.append(tmp_path / f"f{name}")
        _, err = recur.ok(*line, "--data", data, *pairs, *common)
        assert "finetuning.word_dropout auto: 0.2, for pairs" in err
        line[-1] = tmp_path / f"single{name}"
        _, err = recur.ok(*line, "--data", data, *pairs[:2], *pairs[4:], *common)
        assert "finetuning.word_dropout auto: 0.5, for single texts" in err
