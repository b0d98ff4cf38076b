"""The command line itself: help, usage errors, streams, and what it takes no orders from."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from running import Recur
from small_runs import copy_of
from tiny_task import tiny

from recurcli.cli.app import COMMANDS, OPTIONS, app
from recurcli.config import Preset, described
from recurcli.display.screen import Screen
from recurcli.encoders import ENCODERS
from recurcli.errors import DataError, way_out
from recurcli.log import Note
from recurcli.requests.options import Columns

CHECKOUT = Path(__file__).resolve().parents[2]
NAMES = [command.name or command.callback.__name__ for command in app.registered_commands if command.callback]


def process(arguments: list[object], **more: object) -> "subprocess.CompletedProcess[str]":
    """Run Python on `arguments` as a process of its own, with this checkout as the package."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(CHECKOUT)}
    options: dict[str, object] = {"env": environment, "text": True, "timeout": 60, "check": False, **more}
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, **options)  # type: ignore[call-overload]


@pytest.mark.parametrize("command", NAMES)
def test_every_command_explains_itself_with_an_example(command: str, recur: Recur) -> None:
    out, err = recur.ok(command, "--help")
    assert err == ""
    assert re.search(rf"Examples?:\n  .*recur {command}", out)
    for option in ("--quiet", "--debug", "--help"):
        assert option in out
    assert all(len(line) <= 110 for line in out.splitlines())


@pytest.mark.parametrize(
    ("statement", "code", "start"),
    [("import recurcli.cli", 2, "recur: error"), ("from recurcli import TextClassifier", 1, "ImportError")],
)
def test_windows_is_refused(statement: str, code: int, start: str) -> None:
    done = process(["-c", f"import sys; sys.modules['fcntl'] = None; {statement}"])
    assert done.returncode == code
    assert done.stderr.splitlines()[-1] == f"{start}: recur runs on Linux and macOS; on Windows use WSL"


def test_without_a_command_there_is_help(recur: Recur) -> None:
    out, err = recur.ok()
    assert err == ""
    assert all(command in out for command in COMMANDS) and "..." not in out.partition("Commands:")[2]
    assert recur("--help")[1] == out
    assert out.splitlines()[0] == "recur finetune FILE.csv"


def test_the_version_names_what_matters(recur: Recur) -> None:
    out, _ = recur.ok("--version")
    assert re.fullmatch(r"recur [\d.]+ \(Python [\d.]+, torch \S+, tokenizers \S+, safetensors \S+, .*\)\n", out)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["predictt"], "no such command 'predictt'. Did you mean 'predict'?; see `recur --help`"),
        (["finetune"], "task custom has no data; name a FILE (--data PATH)"),
        (["pretrain"], "missing option '--preset'; see `recur pretrain --help`"),
        (["finetune", "x.csv", "--data", "y.csv"], "x.csv and --data y.csv both name the data; leave out one"),
        (["eval", "x", "x.csv", "--data", "y.csv"], "x.csv and --data y.csv both name the data; leave out one"),
        (["eval", "x", "--report"], "option '--report' requires an argument"),
        (["--bogus"], "no such option: --bogus; see `recur --help`"),
        (["predict"], "missing argument 'RUN'; see `recur predict --help`"),
        (["predict", "x", "--formt", "tsv"], "no such option: --formt (Possible options: --fast, --format"),
        (["predict", "x", "--format", "xml"], "'xml' is not one of 'tsv', 'csv', 'jsonl', 'parquet', 'clue'"),
        (["predict", "x", "--top-k", "0"], "'--top-k'"),
        (["finetune", "x", "z"], "z"),
        (["presets", "starsaber-tnws"], "no preset 'starsaber-tnws'; did you mean 'starsaber-tnews'?"),
        (["presets", "starsaber-tnews", "--set", "x"], "is not KEY=VALUE"),
        (["presets", "\x1b[31mred[/]"], "\\x1b[31mred[/]"),
        (["finetune", "--preset", "starsaber-tnews", "--resume", "--overwrite"], "exclude each other"),
    ],
)
def test_wrong_usage_is_one_line_with_the_way_out(arguments: list[str], reason: str, recur: Recur) -> None:
    recur.refused(2, reason, *arguments)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["finetune", "zh.csv"], "recur: try: recur finetune zh.csv --text 'Review Text' --label '类别'"),
        (["eval", "a b", "--", "-x"], "recur: try: recur eval 'a b' --text 'Review Text' --label '类别' -- -x"),
        (["check", "\x1b[1m"], "recur: try: recur check '\\x1b[1m' --text 'Review Text' --label '类别'"),
    ],
)
def test_the_way_out_is_the_whole_command(arguments: list[str], line: str) -> None:
    assert way_out(arguments, DataError("x", options=("--text", "Review Text", "--label", "类别")).options) == line


@pytest.mark.parametrize(
    "arguments",
    [
        ["finetune", "--preset", "starsaber-custom", "--data", "rows.csv", "--output", "r\udcff"],
        ["export", "run", "--output", "r\udcff.zip"],
    ],
)
def test_an_output_that_no_file_could_name_is_refused_at_once(
    arguments: list[str], recur: Recur, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("rows.csv", "run"):
        (tmp_path / name).touch()
    recur.refused(2, f"--output: the name {arguments[-1]!a} is not UTF-8; choose another", *arguments)
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(
    ("option", "arguments"),
    [
        ("--data", ["finetune", "--preset", "x", "--data", "a.csv", "--data", "b.csv"]),
        ("--split", ["eval", "x", "--split", "dev", "--split", "test"]),
        ("--header/--no-header", ["check", "x", "--header", "--no-header"]),
    ],
)
def test_an_option_with_one_value_is_refused_twice(option: str, arguments: list[str], recur: Recur) -> None:
    recur.refused(2, f"{option} is given 2 times", *arguments)
    recur.ok(*arguments, "--help")


def test_flags_and_lists_may_be_repeated(recur: Recur) -> None:
    settings = ["--set", "encoder.num_layers=1", "--set", "encoder.hidden_size=16"]
    out, _ = recur.ok("presets", "starsaber-custom", *settings, "--debug", "--debug")
    assert re.findall(r"encoder\.(?:hidden_size|num_layers) +(\d+)", out) == ["16", "1"]


@pytest.mark.parametrize(("given", "stored"), [(["a"], "a"), (["a", "b"], ("a", "b")), (None, None)])
def test_repeated_columns_are_those_of_a_list_in_a_preset(given: list[str] | None, stored: object) -> None:
    assert Columns(text=given, pair=given, label=["x"]).given() == {
        **dict.fromkeys(("label_separator", "label_files", "id", "header", "delimiter", "quote", "encoding")),
        **{"text": stored, "pair": stored, "label": "x"},
    }


def test_an_unknown_device_is_wrong_usage(recur: Recur, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_text("a\n")
    for device in ("cud", "mps", "cuda:99"):
        recur.refused(2, f"device '{device}'", "predict", trained, tmp_path / "x.tsv", "--device", device)


def test_a_bug_is_exit_1_and_its_traceback_is_kept_for_debug(recur: Recur, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recurcli.preset.preset_names", None)
    code, _, err = recur("presets")
    assert code == 1
    assert re.fullmatch(r"recur: error: a bug in recur: TypeError: .*; --debug shows where\n", err)
    assert "Traceback" in recur("presets", "--debug")[2]


def test_presets_are_listed_and_shown_with_their_origins(recur: Recur, tmp_path: Path) -> None:
    out, err = recur.ok("presets")
    assert err == ""
    listed = recur.json("presets")
    assert {name for names in listed.values() for name in names} <= {*out.split()}
    assert listed["tasks"] == sorted(listed["tasks"])
    preset = tmp_path / "a[red]b.yaml"
    preset.write_text("extends: starsaber-tnews\nencoder:\n  dropout: 0.3\n")
    changed, whole = (
        recur.ok("presets", preset, "--set", "finetuning.epochs=3", *more)[0] for more in ((), ("--all",))
    )
    for out in (changed, whole):
        lines = [line.split() for line in out.splitlines()]
        assert ["encoder.dropout", "0.3", f"{preset}:3"] in lines, "a pipe's lines are as long as they need to be"
        assert ["finetuning.epochs", "3", "--set", "finetuning.epochs"] in lines
        assert out.startswith("a[red]b")
    assert "finetuning.epochs  3  --set finetuning.epochs\n    Passes over the training rows.\n" in changed
    assert "default" in whole and "encoder.alpha_init" not in changed
    found = recur.json("presets", "starsaber-tnews")
    assert found["keys"]["task"]["value"] == "tnews"
    assert "$schema" in json.loads(recur("presets", "--schema")[1])


def test_every_key_of_a_preset_has_a_sentence() -> None:
    for section in (Preset, *{entry.config for entry in ENCODERS.values()}):
        for key, sentence in described(section):
            assert re.match(r"\S.*(?<!\beq)(?<!\bal)\.$", sentence), key


def test_every_command_and_option_has_its_group_in_the_help(recur: Recur) -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert sorted(name for names in COMMANDS.values() for name in names) == sorted(commands)
    known = {option.name for each in commands.values() for option in each.params}
    assert {name for names in OPTIONS.values() for name in names} <= known
    shown = recur.ok("finetune", "--help")[0]
    groups = re.findall(r"^(\w+):\n", shown, re.MULTILINE)
    assert groups == ["Arguments", *OPTIONS, "Advanced"]
    for option in commands["finetune"].params:
        assert option.opts[-1] in shown or option.param_type_name == "argument", option.name


PATHS = [
    ("finetune {}", 3),
    *((f"finetune --{option} {{}}", 3) for option in ("data", "train")),
    *((f"finetune --train ROWS --{option} {{}}", 3) for option in ("dev", "test", "teacher")),
    ("finetune --preset starsaber-tnews --init {}", 4),
    ("pretrain --preset starsaber-custom --data {}", 3),
    ("tune --preset starsaber-custom --data {}", 3),
    ("eval {}", 4),
    ("eval RUN {}", 3),
    ("predict {} ROWS", 4),
    ("predict RUN {}", 3),
    ("export {} --output x.zip", 4),
    ("compare {}", 4),
    ("check {}", 3),
    *((f"check --train ROWS --{option} {{}}", 3) for option in ("dev", "test")),
]
"""Each path that a command reads, and the exit code for one that is something else."""


@pytest.mark.parametrize(("line", "code"), PATHS)
def test_a_path_that_does_not_exist_is_wrong_usage_and_one_of_another_kind_is_not(
    line: str, code: int, recur: Recur, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows, other = tmp_path / "rows.csv", tmp_path / "other.tsv"
    rows.write_text("text,label\n" + "".join(f"text {row},{row % 2}\n" for row in range(40)))
    other.write_bytes(b"%PDF-1.7\n")
    arguments = line.replace("RUN", str(trained)).replace("ROWS", str(rows)).split()
    recur.refused(2, "gone.tsv: there is no such file or folder", *(word.format("gone.tsv") for word in arguments))
    recur.refused(code, "other.tsv", *(word.format(other) for word in arguments))


@pytest.mark.parametrize("line", ["check ~nosuchuser/x", "check -", "finetune --train -", "eval -", "predict - ROWS"])
def test_an_unknown_home_and_standard_input_are_no_files(line: str, recur: Recur) -> None:
    recur.refused(2, ": there is no such file or folder", *line.split())


# --- what is shown and not obeyed

EVIL = "[red]x[/] \x1b[31my\x07 \u202ez [link=http://example.org]"
SHOWN = "[red]x[/] \\x1b[31my\\x07 \\u202ez [link=http:__example.org]"


def test_paths_and_texts_are_shown_and_not_obeyed(recur: Recur, trained: Path, tmp_path: Path) -> None:
    name = EVIL.replace("/", "_")
    run = copy_of(trained, tmp_path / name)
    (tmp_path / f"{name}.tsv").write_text("id\tsentence\n1\ta\tb\n")
    shown = SHOWN.replace("[/]", "[_]")
    out, _ = recur.ok("eval", run)
    assert shown in out
    out, err = recur.ok("predict", run, tmp_path / f"{name}.tsv")
    assert f"{shown}.tsv:2: has 3 fields" in err
    recur.refused(3, shown, "predict", run, tmp_path / name)
    (tmp_path / "x.tsv").write_text(f"{EVIL}\tb\nc\td\n")
    err = recur.refused(3, "\\x1b[31my\\x07 \\u202ez", "predict", run, tmp_path / "x.tsv", "--text", EVIL + "?")
    for text in (out, err):
        assert not set("\x1b\x07\u202e") & set(text.replace(EVIL, ""))


def test_notes_and_progress_are_shown_and_not_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    Screen(quiet=False).add(Note(EVIL), Note("[/]", "warning"))
    err = capsys.readouterr().err
    assert err == f"recur: {SHOWN.replace('__', '//')}\nrecur: warning: [/]\n"
    Screen(quiet=True).add(Note("x"), Note("y", "warning"))
    assert capsys.readouterr().err == "recur: warning: y\n", "a quiet command still warns"


@pytest.mark.slow
def test_a_folder_with_a_hostile_torch_is_a_folder_like_any_other(trained: Path, tmp_path: Path) -> None:
    for name in ("torch", "numpy", "typer", "rich", "yaml", "pydantic", "pathlib", "tokenizers"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong module was imported')\n")
    (tmp_path / "x.tsv").write_text("a\n")
    done = process(["-m", "recurcli", "predict", trained, "x.tsv", "--quiet"], cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("a\t")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "recur").write_text("import sys\nfrom recurcli.cli import main\nsys.exit(main())\n")
    done = process([tmp_path / "bin" / "recur", "presets", "starsaber-tnews"], cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


# --- streams


def test_results_go_to_stdout_and_the_rest_to_stderr(recur: Recur, tiny_tnews: Path, tmp_path: Path) -> None:
    options = ["--preset", "rezero-tnews", "--data", tiny_tnews, "--output", tmp_path / "x", *tiny()]
    out, err = recur.ok("finetune", *options, "--json")
    assert json.loads(out)["task"] == "tnews"
    assert all(line.startswith("recur: ") for line in err.splitlines())
    assert err
    out, err = recur.ok("finetune", *options, "--overwrite", "--quiet")
    assert err == ""
    assert str(tmp_path / "x") in out


def test_any_locale_and_closed_streams_are_lived_with() -> None:
    script = (
        f"{sys.executable} -m recurcli presets nothing-there 2>&-; echo $?\n"
        f"{sys.executable} -m recurcli presets >&-; echo $?\n"
        f"PYTHONIOENCODING=ascii {sys.executable} -m recurcli presets starsaber-tnews > /dev/null; echo $?\n"
        f"{sys.executable} -m recurcli presets > /dev/full; echo $?\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.split() == ["2", "5", "0", "5"]
    assert done.stderr.splitlines() == [
        "recur: error: standard output is closed; send it to /dev/null to do without it",
        "recur: error: standard output: cannot be written: No space left on device; make room there",
    ]


def completed(words: str, cursor: int, tmp_path: Path) -> list[str]:
    """What a real bash offers for a command line, by the completion script that recur prints for it."""
    bash, recur = shutil.which("bash"), Path(sys.executable).with_name("recur")
    if bash is None or not recur.exists():
        pytest.skip("no bash, or no recur beside Python")
    script = f"""
        PATH={shlex.quote(str(recur.parent))}:$PATH
        eval "$(_RECUR_COMPLETE=source_bash recur)"
        COMP_WORDS=({words}) COMP_CWORD={cursor}
        _recur_completion recur
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run([bash, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert not done.stderr
    return done.stdout.split()


def test_bash_completes_commands_presets_and_keys(tmp_path: Path) -> None:
    assert completed("recur fin", 1, tmp_path) == ["finetune"]
    names = completed("recur finetune --preset starsaber-tn", 3, tmp_path)
    assert {"starsaber-tnews", "starsaber-tnews-keywords"} <= set(names)
    assert all(name.startswith("starsaber-tn") for name in names)
    assert completed("recur finetune --set linear.vec", 3, tmp_path) == ["linear.vectors=", "linear.vector_scale="]
