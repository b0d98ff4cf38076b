"""What the README says works: its commands parse, its presets exist, its Python runs."""

import re
import shlex
from pathlib import Path

import pytest
import typer.main
import yaml
from tiny_task import rows

from recurcli.cli import app
from recurcli.preset import compose

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
COLUMNS = {"texts": "sentence", "labels": "label"}
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, flags=re.DOTALL)
COMMANDS = sorted(
    {
        re.split(r"[|>]", match)[0].strip()
        for kind, block in BLOCKS
        if kind == "sh"
        for line in block.splitlines()
        for match in re.findall(r"(?:^|[\s/])(recur .*?)(?:\s#.*)?$", line)
    }
)


def test_the_readme_shows_every_command() -> None:
    verbs = {shlex.split(command)[1] for command in COMMANDS}
    assert verbs >= {"pretrain", "finetune", "eval", "predict", "export", "presets"}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_line_of_the_readme_parses(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    verb, *arguments = shlex.split(command)[1:]
    group = typer.main.get_command(app)
    context = group.commands[verb].make_context(verb, arguments)  # type: ignore[attr-defined]
    if preset := context.params.get("preset"):
        compose(preset, settings=context.params["settings"] or [])


def test_the_yaml_of_the_readme_is_a_preset(tmp_path: Path) -> None:
    (text,) = (block for kind, block in BLOCKS if kind == "yaml")
    (tmp_path / "mine.yaml").write_text(text, encoding="utf-8")
    preset = compose(str(tmp_path / "mine.yaml")).preset
    assert preset.encoder["position"] == "sinusoidal"
    assert preset.finetuning.learning_rate == 1e-4
    assert yaml.safe_load(text)["encoder"]["num_layers"] == preset.encoder["num_layers"]


def test_the_python_of_the_readme_runs(trained: Path, tmp_path: Path) -> None:
    code, more = (block for kind, block in BLOCKS if kind == "python")
    sample = rows(60, seed=1, labelled=True)
    names: dict[str, object] = {key: [row[name] for row in sample] for key, name in COLUMNS.items()}
    exec(code.replace("runs/starsaber-tnews", str(trained)), names)
    short = more.replace("3}", '1, "encoder.hidden_size": 16, "tokenizer.kind": "char"}').replace("cv=3", "cv=2")
    exec(short.replace("runs/mine", str(tmp_path / "mine")), names)
    assert (tmp_path / "mine" / "result.json").is_file()
    predicted = names["model"].predict(["龙蛇马羊", "猴鸡狗猪"])  # type: ignore[attr-defined]
    assert [prediction.label for prediction in predicted] == ["101", "102"]
    assert all(sum(prediction.probabilities.values()) == pytest.approx(1) for prediction in predicted)


def test_the_files_that_the_readme_names_exist() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target


def test_every_encoder_is_in_the_zoo() -> None:
    from recurcli.encoders import ENCODERS

    for name in ENCODERS:
        assert re.search(rf"^\| `{name}` \|", README, flags=re.MULTILINE), name
