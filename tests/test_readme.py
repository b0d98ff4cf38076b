"""What the documents say works: their commands parse, their presets, paths and links exist, their Python runs."""

import ast
import functools
import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path

import pytest
import typer.main
import yaml
from tiny_task import rows, tiny, write_rows

from recurcli.cli import app
from recurcli.config import DataConfig
from recurcli.data.splits import load_split
from recurcli.data.tasks import task_named
from recurcli.errors import Interrupted, RecurError
from recurcli.metrics import metric_named
from recurcli.preset import compose
from recurcli.runs.run_directory import CONTENTS, LOCK, NEXT, OLD

Recur = Callable[..., tuple[int, str, str]]
ROOT = Path(__file__).resolve().parent.parent
GROUP = typer.main.get_command(app)
READMES = {
    name: (ROOT / name).read_text(encoding="utf-8")
    for name in (
        "README.md",
        ".github/CONTRIBUTING.md",
        *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").iterdir()),
        "presets/README.md",
        "presets/RESULTS.md",
        "presets/examples/README.md",
        "presets/papers/README.md",
        "recurcli/README.md",
        "recurcli/commands/README.md",
        "recurcli/encoders/README.md",
        "tests/README.md",
    )
}
README, TEXTS = READMES["README.md"], "\n".join(READMES.values())
EXAMPLE = ROOT / "presets" / "examples" / "packages.csv"
COLUMNS = {"texts": "sentence", "labels": "label"}
BLOCKS = re.findall(r"(?<!-->\n)```(\w+)\n(.*?)```", TEXTS, flags=re.DOTALL)
"""The code of the READMEs, without the tutorials and the set-up, which are run as they stand."""
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
    assert {verb for verb in GROUP.commands if f"`recur {verb}" not in README} == set()  # type: ignore[attr-defined]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_line_of_a_readme_parses(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    verb, *arguments = shlex.split(command)[1:]
    context = GROUP.commands[verb].make_context(verb, arguments)  # type: ignore[attr-defined]
    if preset := context.params.get("preset"):
        compose(preset, settings=context.params["settings"] or [])


def tutorial(name: str) -> list[str]:
    """The command lines of a tutorial, in the order of the documents, without comments."""
    blocks = re.findall(rf"<!-- tutorial: {name} -->\n```sh\n(.*?)```", TEXTS, flags=re.DOTALL)
    return [re.sub(r"\s+#.*", "", line) for block in blocks for line in block.splitlines()]


def run_tutorial(name: str, recur: Recur, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each line of a tutorial in `folder`, with models of a second; a loop over seeds is unrolled."""
    monkeypatch.chdir(folder)
    for line in tutorial(name):
        loop = re.fullmatch(r"for (\w+) in (.*); do (.*); done", line)
        lines = [loop[3].replace(f"${loop[1]}", value) for value in loop[2].split()] if loop else [line]
        for one in lines:
            verb, *arguments = shlex.split(one.replace("$RECUR_DATA", str(folder)))
            if verb == "python":
                subprocess.run(one.replace("python", sys.executable, 1), shell=True, check=True)
                continue
            code, _, err = recur(*arguments, *(tiny(*QUICK) if arguments[0] in ("finetune", "tune") else []))
            assert code == 0, f"{one}: {err}"


QUICK = ("finetuning.epochs=1", "tokenizer.kind=char")


@pytest.mark.slow
def test_the_tutorial_from_a_csv(recur: Recur, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(ROOT / "presets" / "examples", tmp_path / "presets" / "examples")
    texts = (tmp_path / "presets" / "examples" / "packages-new.txt").read_text(encoding="utf-8").splitlines()
    run_tutorial("csv", recur, tmp_path, monkeypatch)
    labelled = (tmp_path / "labelled.tsv").read_text(encoding="utf-8").splitlines()
    assert [line.split("\t")[0] for line in labelled] == texts
    labels = [line.split("\t") for line in (tmp_path / "labels.tsv").read_text(encoding="utf-8").splitlines()]
    assert len(labels) == len(texts)
    sections = {line.rpartition(",")[2] for line in EXAMPLE.read_text(encoding="utf-8").splitlines()[1:]}
    assert all(label in sections and 0.2 < float(share) <= 1 for label, share in labels)
    assert (tmp_path / "zoo.html").is_file() and "bilstm" in (tmp_path / "zoo.md").read_text(encoding="utf-8")


PROGRAMS = [json.loads(line) for line in EXAMPLE.with_name("programs.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.mark.slow
def test_the_examples_of_several_labels_and_of_numbers(
    recur: Recur, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "presets" / "examples").mkdir(parents=True)
    write_rows(tmp_path / "presets" / "examples" / "programs.jsonl", PROGRAMS[::6])
    run_tutorial("programs", recur, tmp_path, monkeypatch)
    configs = [tmp_path / "runs" / run / "config.json" for run in ("programs", "sizes")]
    assert [json.loads(path.read_text())["target"]["kind"] for path in configs] == ["several", "number"]


@pytest.mark.slow
def test_the_tutorial_from_the_scores_of_a_large_model(
    recur: Recur, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, start in (("scored", 0), ("gold", 1), ("corpus", 2)):
        scores = [{"text": row["text"], "score": round(row["size"])} for row in PROGRAMS[start::6]]
        write_rows(tmp_path / f"{name}.jsonl", scores)
    run_tutorial("scores", recur, tmp_path, monkeypatch)
    parts = [(tmp_path / f"part-{shard}.jsonl").read_text(encoding="utf-8").splitlines() for shard in (1, 2)]
    predicted = [json.loads(line) for part in parts for line in part]
    assert [row["text"] for row in predicted] == [row["text"] for row in PROGRAMS[2::6]]
    kept = (tmp_path / "kept.jsonl").read_text(encoding="utf-8").splitlines()
    assert 0 < len(kept) < len(predicted) and all(json.loads(line)["prediction"] >= 2.6 for line in kept)


@pytest.mark.slow
def test_the_tutorial_from_clue_to_a_zip(recur: Recur, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tnews").mkdir()
    for name, count in (("train", 60), ("dev", 24), ("test", 10_000), ("test1.0", 10_000)):
        made = rows(count, seed=count, labelled=name in ("train", "dev"))
        write_rows(tmp_path / "tnews" / f"{name}.json", made)
    run_tutorial("clue", recur, tmp_path, monkeypatch)
    assert (tmp_path / "tnews.zip").is_file() and (tmp_path / "tnews.html").is_file()


def test_the_yaml_of_the_readme_is_a_preset(tmp_path: Path) -> None:
    (text,) = (block for kind, block in BLOCKS if kind == "yaml")
    (tmp_path / "mine.yaml").write_text(text, encoding="utf-8")
    preset = compose(str(tmp_path / "mine.yaml")).preset
    assert preset.encoder["position"] == "sinusoidal"
    assert preset.finetuning.learning_rate == 1e-4
    assert yaml.safe_load(text)["encoder"]["num_layers"] == preset.encoder["num_layers"]


def test_the_python_of_the_readme_runs(trained: Path, tmp_path: Path) -> None:
    code, more, *_ = re.findall(r"```python\n(.*?)```", READMES["docs/serving.md"], flags=re.DOTALL)
    sample = rows(60, seed=1, labelled=True)
    names: dict[str, object] = {key: [row[name] for row in sample] for key, name in COLUMNS.items()}
    exec(code.replace("runs/starsaber-tnews", str(trained)), names)
    short = more.replace("3}", '1, "encoder.hidden_size": 16, "tokenizer.kind": "char"}').replace("cv=3", "cv=2")
    exec(short.replace("runs/mine", str(tmp_path / "mine")), names)
    assert (tmp_path / "mine" / "result.json").is_file()
    predicted = names["model"].predict(["龙蛇马羊", "猴鸡狗猪"])  # type: ignore[attr-defined]
    assert [prediction.label for prediction in predicted] == ["101", "102"]
    assert all(sum(prediction.probabilities.values()) == pytest.approx(1) for prediction in predicted)


def anchors(text: str) -> set[str]:
    """The anchors of the headings of a document."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_files_and_headings_that_a_document_links_to_exist() -> None:
    for name, text in READMES.items():
        for target, anchor in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", re.sub(r"```.*?```", "", text, flags=re.DOTALL)):
            path = (ROOT / name).parent / target if target else ROOT / name
            assert path.exists(), (name, target)
            assert not anchor or anchor in anchors(path.read_text(encoding="utf-8")), (name, target, anchor)


@pytest.mark.parametrize(
    ("file", "label"), [("packages.csv", "label"), ("programs.jsonl", "works_with"), ("programs.jsonl", "size")]
)
def test_the_results_in_the_readme_are_of_the_rows_that_are_drawn_today(file: str, label: str) -> None:
    """The dev rows, and the best constant prediction of them, are known without a training."""
    train = load_split(
        task_named("custom"), "train", DataConfig(path=str(EXAMPLE.with_name(file)), label=label), use_dev_split=True
    )
    assert train.dev is not None and train.target is not None
    target, y = train.target, train.target.encode(train.dev.cells)
    constant, decimals = target.score(target.headline, y, target.constant(y)), metric_named(target.headline).decimals
    shown = f"{100 * constant:.1f}" if decimals is None else f"{constant:.{decimals}f}"
    [block] = [
        block for kind, block in BLOCKS if kind == "text" and f" {target.constant_words} " in block and block in README
    ]
    assert f" {len(y)} dev rows " in block
    assert re.search(rf"{target.constant_words} +{shown}\n", block)


def test_no_measured_accuracy_stands_in_the_package() -> None:
    assert [text for text in texts_of_the_program() if re.search(r"\d\d\.\d %", text)] == []


NO_HOW_TO = {"docs/guarantees.md", "docs/models.md"}


@pytest.mark.parametrize("name", sorted({name for name in READMES if name.startswith("docs/")} - NO_HOW_TO))
def test_a_how_to_has_300_words_at_most(name: str) -> None:
    assert len(re.sub(r"```.*?```", "", READMES[name], flags=re.DOTALL).split()) <= 300


def test_the_first_model_needs_300_words_and_three_commands() -> None:
    before = README.split("\n## The example\n")[0]
    assert len(before.split()) <= 300 and len(re.findall(r"^recur ", before, flags=re.MULTILINE)) == 3


def test_the_readme_links_to_every_how_to() -> None:
    assert {name for name in READMES if name.startswith("docs/") and f"({name})" not in README} == set()


@pytest.mark.parametrize("name", READMES)
def test_no_line_of_prose_is_wider_than_120_characters(name: str) -> None:
    prose = re.sub(r"```.*?```", "", READMES[name], flags=re.DOTALL).splitlines()
    shown = [re.sub(r"(?<=\])\([^)]*\)|<!--.*?-->", "", line) for line in prose if not line.startswith(("|", "    "))]
    assert [line for line in shown if len(line) > 120] == []


def section(heading: str) -> str:
    """The text below a heading of the reference of the commands."""
    return READMES["recurcli/commands/README.md"].split(f"\n## {heading}\n")[1].split("\n## ")[0]


def test_the_reference_has_4500_words_at_most() -> None:
    assert len(READMES["recurcli/commands/README.md"].split()) <= 4500


def test_the_reference_lists_every_option_with_its_commands() -> None:
    listed: dict[str, set[str]] = {}
    for options, verbs in re.findall(r"^\| (`-[^|]*) \| ([^|]*) \|", section("Options"), flags=re.MULTILINE):
        for option in re.findall(r"`(-[\w-]+)", options):
            listed[option] = set(GROUP.commands) if verbs == "all" else set(verbs.split(", "))  # type: ignore[attr-defined]
    known: dict[str, set[str]] = {"--help": set(GROUP.commands), "-h": set(GROUP.commands)}  # type: ignore[attr-defined]
    for verb, command in GROUP.commands.items():  # type: ignore[attr-defined]
        for parameter in command.params:
            for option in (*parameter.opts, *parameter.secondary_opts):
                if option.startswith("-"):
                    known.setdefault(option, set()).add(verb)
    assert listed == known


def test_the_reference_lists_the_files_of_a_run() -> None:
    first_cells = " ".join(re.findall(r"^\| (`[^|]*) \|", section("The files of a run"), flags=re.MULTILINE))
    assert sorted(re.findall(r"`([^`]+)`", first_cells)) == sorted(
        [*CONTENTS, *(f".RUN{ending}" for ending in (LOCK, NEXT, OLD))]
    )


def keys_of(command: str) -> set[str]:
    """The keys of the JSON of `command`, as its row of the reference lists them."""
    [cell] = re.findall(rf"^\| `{command} --json` \| (.*) \|$", section("JSON"), flags=re.MULTILINE)
    return set(re.findall(r"`([^`]+)`", cell))


def test_the_reference_lists_the_keys_of_the_json(recur: Recur, trained: Path) -> None:
    assert keys_of("recur eval") == json.loads(recur("eval", trained, "--json")[1]).keys()
    assert keys_of("recur compare") == json.loads(recur("compare", trained, "--json")[1]).keys()
    assert keys_of("recur check") >= json.loads(recur("check", EXAMPLE, "--json")[1]).keys()
    result = json.loads((trained / "result.json").read_text(encoding="utf-8"))
    assert keys_of("recur finetune") - {"test", "test-long", "cross_validation"} <= result.keys()


def test_the_reference_lists_the_exit_codes() -> None:
    cells = re.findall(r"^\| ([\d, ]+) \|", section("Exit codes"), flags=re.MULTILINE)
    codes = map(int, re.findall(r"\d+", " ".join(cells)))
    signals = (128 + number for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM))
    errors = {kind.exit_code for kind in RecurError.__subclasses__() if kind is not Interrupted}
    assert set(codes) == {0, RecurError.exit_code, *errors, *signals}


EXAMPLES = {"runs", "held", "data", "train", "LABEL"}
"""The folders of a user's own in the READMEs; all other paths are the repository's, or those of the README's folder."""


def test_the_paths_that_the_readmes_name_exist() -> None:
    prose = re.sub(r"```.*?```", "", TEXTS, flags=re.DOTALL)
    code = re.findall(r"`([^`]+)`", prose) + re.findall(r"```sh\n(.*?)```", TEXTS, flags=re.DOTALL)
    words = {word for span in code for word in re.findall(r"(?<![\S/$])[\w.-]+/[\w./-]*+(?![$<*])", span)}
    roots = {path.name for path in ROOT.iterdir()} - {".venv", *EXAMPLES}
    ours = {word for word in words if word.partition("/")[0] in roots}
    assert {"presets/examples/packages.csv", "tests/data"} <= ours
    assert not [word for word in ours if not (ROOT / word).exists()]
    spans = set(re.findall(r"`([\w.-]+/[\w./-]*)`", prose))
    beside = {span for span in spans if any(((ROOT / name).parent / span).exists() for name in READMES)}
    assert {span.partition("/")[0] for span in spans - ours - beside} <= EXAMPLES


@functools.cache
def texts_of_the_program() -> list[str]:
    """All strings of the package, with X for what is filled in: its notes, messages, cards, tables and help."""
    found = []
    for path in sorted((ROOT / "recurcli").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = (part.value if isinstance(part, ast.Constant) else "X" for part in node.values)
                found.append("".join(map(str, parts)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return found


def commands_in(texts: list[str]) -> set[str]:
    """The commands in `texts` that name an option, each up to the mark that ends it."""
    found = {part for text in texts for part in re.findall(r"\brecur ([a-z]+[^`;\n]*?)(?=`|;|\n|$|\brecur )", text)}
    return {part for part in found if re.search(r"\s--[a-z]", part)}


def texts_of_the_readmes() -> list[str]:
    """The code in the prose of the READMEs."""
    return re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", TEXTS, flags=re.DOTALL))


@pytest.mark.parametrize(("texts_of", "least"), [(texts_of_the_program, 15), (texts_of_the_readmes, 10)])
def test_commands_that_are_named_have_the_options_named(texts_of: Callable[[], list[str]], least: int) -> None:
    commands = commands_in(texts_of())
    assert len(commands) >= least
    for command in commands:
        verb = command.split()[0]
        known = GROUP.commands.get(verb)  # type: ignore[attr-defined]
        assert known is not None, command
        options = {option for param in known.params for option in (*param.opts, *param.secondary_opts)}
        assert set(re.findall(r"(?<=\s)--[a-z][a-z-]*", command)) <= options | {"--help"}, command


@pytest.mark.parametrize("verb", sorted(GROUP.commands))  # type: ignore[attr-defined]
def test_the_examples_of_the_help_parse(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECUR_DATA", "data")
    command = GROUP.commands[verb]  # type: ignore[attr-defined]
    lines = [shlex.split(line) for line in command.epilog.splitlines() if "recur " in line]
    assert lines
    for words in lines:
        arguments = words[words.index("recur") + 2 :]
        context = command.make_context(verb, list(takewhile(lambda word: word not in "|>", arguments)))
        if isinstance(preset := context.params.get("preset"), str):
            compose(preset, settings=context.params.get("settings") or [])


def test_every_encoder_is_in_the_zoo() -> None:
    from recurcli.encoders import ENCODERS

    for name in ENCODERS:
        assert re.search(rf"^\| `{name}` \|", READMES["recurcli/encoders/README.md"], flags=re.MULTILINE), name
