"""`--match-parameters`: encoders of equal size."""

from pathlib import Path

import pytest
from running import Recur, result_of
from tiny_task import tiny

from recurcli.encoders import build_encoder
from recurcli.preset import compose
from recurcli.validation import read_mapping

WIDTH = "encoder.hidden_size=16"


def options(data: Path, output: Path, *more: str, encoder: str = "starsaber") -> list[str]:
    """A training whose width --set does not fix."""
    settings = tiny("finetuning.epochs=1", "finetuning.linear_baseline=false", "ensemble=null")
    place = settings.index(WIDTH)
    del settings[place - 1 : place + 1]
    return ["--preset", f"{encoder}-tnews", "--data", str(data), "--output", str(output), *settings, *more]


def test_both_counts_are_reported_and_the_size_is_kept(recur: Recur, tiny_tnews: Path, tmp_path: Path) -> None:
    line = ("finetune", *options(tiny_tnews, tmp_path / "run", "--match-parameters", "9k"))
    planned, err = recur.ok(*line, "--dry-run")
    recur.ok(*line)
    encoder = read_mapping(tmp_path / "run" / "preset.yaml")[0]["encoder"]
    count = sum(parameter.numel() for parameter in build_encoder(encoder).parameters())
    assert f"parameters, encoder {count:,} " in " ".join(planned.split())
    assert f"encoder.hidden_size {encoder['hidden_size']}, with {count:,} encoder parameters, " in err
    result = result_of(tmp_path / "run")
    assert result["parameters"]["encoder"] == result["match_parameters"]["parameters"] == count


@pytest.mark.slow
def test_a_finished_run_is_repeated_with_the_same_size(recur: Recur, tiny_tnews: Path, tmp_path: Path) -> None:
    line = ["finetune", *options(tiny_tnews, tmp_path / "run", "--match-parameters", "rsa-tnews")]
    line += ["--set", "encoder.num_layers=24"]
    recur.ok(*line)
    assert "already finished" in recur.ok(*line, "--resume")[1]
    other = [part.replace("rsa-tnews", "1M") for part in line]
    recur.refused(2, "encoder.hidden_size was", *other, "--resume")


@pytest.mark.slow
def test_the_other_preset_counts_with_its_own_task(recur: Recur, tiny_tnews: Path, tmp_path: Path) -> None:
    line = options(tiny_tnews, tmp_path / "run", "--match-parameters", "transject-imdb", "--dry-run")
    wanted = build_encoder(compose("transject-imdb").preset.encoder)
    target = recur.json("finetune", *line)["match_parameters"]["target"]
    assert target == sum(p.numel() for p in wanted.parameters())
    assert not (tmp_path / "run").exists()


def test_what_set_gives_stays(recur: Recur, tiny_tnews: Path, tmp_path: Path) -> None:
    line = options(tiny_tnews, tmp_path / "run", "--match-parameters", "9k", "--dry-run", "--set", WIDTH)
    place = line.index("encoder.num_layers=2")
    del line[place - 1 : place + 1]
    plan = recur.json("pretrain", *line)
    assert plan["values"]["encoder"]["hidden_size"] == 16
    assert plan["match_parameters"]["keys"] == {"num_layers": plan["values"]["encoder"]["num_layers"]}


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ("12", "so 12 cannot be reached"),
        ("0", "must be at least 1"),
        ("3X", "is not a number such as 3M or 800k; no preset '3X'"),
        ("starsabre-tnews", "did you mean 'starsaber-tnews'"),
    ],
)
def test_a_wrong_number_is_refused(recur: Recur, tiny_tnews: Path, tmp_path: Path, asked: str, reason: str) -> None:
    line = options(tiny_tnews, tmp_path / "run", "--match-parameters", asked)
    assert f"--match-parameters {asked}: " in recur.refused(2, reason, "finetune", *line)
    assert not (tmp_path / "run").exists()
