"""The studies of the papers: their commands parse, their presets and keys fit, and each is started with the same rules."""

import itertools
import json
import os
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import typer.main
from cases import slow_but
from running import Recur
from tiny_task import LABELS, tiny

from recurcli.cli import app
from recurcli.preset import compose
from recurcli.significance import POWER, power_of

PAPERS = Path(__file__).resolve().parent.parent / "presets" / "papers"
STUDIES = sorted({*PAPERS.glob("*/study.sh")} - {PAPERS / "state/study.sh"})  # test_state_study.py has that one
SHORT = [study for study in STUDIES if study.parent.name in ("linear-transformer", "rsa")]
TRAININGS = ("finetune", "pretrain")
LONG_SCRIPTS = ("gaussian", "linear_rnn", "entropy", "state/table")
GROUP = typer.main.get_command(app)
BEST = {"finetuning.learning_rate": 0.003, "pretraining.learning_rate": 0.003, "finetuning.scalar_lr_factor": 3}
ANSWER = {"metric": "accuracy", "tests": [], "groups": [{"name": "x", "values": BEST, "runs": ["RUNS/11"]}]}
RECORDER = f"""#!/bin/sh
printf '%s\\n' "$*" >> "$RECORD"
answer() {{ echo '{json.dumps(ANSWER)}' | sed "s|RUNS|$runs|"; }}
command=$1 runs=$2
answer
while [ $# -gt 1 ]; do
    if [ "$command $1" = "compare --output" ]; then answer > "$2"; fi
    shift
done
"""


def commands_of(study: Path, folder: Path, *options: str, claims: str | None = None) -> list[list[str]]:
    """Run a study with a `recur` that writes down its arguments, and return these. It writes into `folder` alone.

    Scripts that compute for half a minute, or from the models of runs, are left out.
    """
    record, program = folder / "record", folder / "recur"
    program.write_text(RECORDER)
    program.chmod(0o755)
    record.write_text("")
    more = {
        "PATH": f"{folder}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "RECORD": str(record),
        "RECUR_DATA": "data",
        "STUDY_OUTPUT": str(folder / "studies"),
        **({} if claims is None else {"CLAIMS": claims}),
    }
    python = folder / "python3"  # beside `recur`, as in a virtual environment
    python.unlink(missing_ok=True)
    long = " | ".join(f"*/{name}.py" for name in LONG_SCRIPTS)
    best = " ".join(f"*.{key.partition('.')[2]}) exec echo {value} ;;" for key, value in BEST.items())
    rate = '[ "$2" != --rate ] || echo 0.003; exit'
    python.write_text(
        f"#!/bin/sh\ncase $1 in {long}) exit ;; */state/cell.py) {rate} ;; -c) case $3 in {best} esac ;; esac\n"
        f'exec {shlex.quote(sys.executable)} "$@"\n'
    )
    python.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if name != "CLAIMS"}
    done = subprocess.run([study, *options], env={**kept, **more}, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [shlex.split(line) for line in record.read_text().splitlines()]


@pytest.mark.parametrize("study", slow_but(SHORT, STUDIES), ids=lambda path: path.parent.name)
def test_the_commands_of_a_study_parse_and_follow_the_rules(study: Path, tmp_path: Path) -> None:
    commands = commands_of(study, tmp_path)
    trainings = [dict(named(arguments)) for verb, *arguments in commands if verb in TRAININGS]
    composed = set()
    for verb, *arguments in commands:
        context = GROUP.commands[verb].make_context(verb, list(arguments))  # type: ignore[attr-defined]
        if verb in TRAININGS:
            composed.add((context.params["preset"], *context.params["settings"]))
    for preset, *settings in composed:
        compose(preset, settings=settings)
    assert all(run["--precision"] == "fp32" for run in trainings)
    trainings = [run for run in trainings if not is_linear(run)]
    searches = [run for run in trainings if "/search/" in run["--output"]]
    assert all(run["--seed"] in ("1", "2") and "--test" not in run for run in searches)
    seeded = [run for run in trainings if run not in searches and not run["--output"].endswith("/own-text")]
    assert all(run["--seed"] in ("11", "12", "13", "14", "15") for run in seeded)
    rates = {run["--learning-rate"] for run in searches}
    given = {"0.003", "0.01"} if study.parent.name == "transject" else {"0.0003", "0.001", "0.003"}
    assert not rates or rates == {*given, "0.001", "0.003", "0.01"}, (
        "those around the best, which is an end of the given ones"
    )
    assert all(run["--learning-rate"] == "0.003" for run in seeded)
    for verb, *arguments in commands:
        if verb != "finetune" or is_linear(dict(named(arguments))):
            continue
        run, settings = dict(named(arguments)), [value for name, value in named(arguments) if name == "--set"]
        assert "ensemble=null" in settings
        assert "encoder.hidden_size=128" in settings or run.get("--match-parameters") == "100k"
        assert ("encoder.hidden_size=72" in settings) is ("narrow" in run["--output"])
        has_own_test_rows = any(generated in run["--output"] for generated in ("/listops-", "/recurrence/"))
        assert has_own_test_rows or ("--test" in run) is (run not in searches)
    listed = [*(tmp_path / "studies").rglob("*.rates")]
    assert bool(listed) is bool(searches)
    for path in listed:  # what was tried by the search of the runs beside it
        tried = {rate.partition(":")[0] for rate in path.read_text().split()}
        assert "0.003" in tried <= rates and any(
            Path(run["--output"]).parent == path.with_name(path.stem) for run in seeded
        )
    outputs = {run["--output"]: run for run in trainings}
    assert all(outputs[run["--output"]] == run for run in trainings)  # no run replaces another


@pytest.mark.parametrize("study", slow_but(SHORT, STUDIES), ids=lambda path: path.parent.name)
def test_a_dry_run_reaches_every_training_and_nothing_else(study: Path, tmp_path: Path) -> None:
    commands = commands_of(study, tmp_path, "--dry-run")
    assert {arguments[0] for arguments in commands} <= set(TRAININGS)
    assert commands
    assert all("--dry-run" in arguments for arguments in commands)


@pytest.mark.parametrize("claim", ["1", "7"])
def test_a_run_that_fails_stops_the_study(claim: str, tmp_path: Path) -> None:
    program = tmp_path / "recur"
    program.write_text(
        f"#!/bin/sh\necho '{json.dumps(ANSWER)}'\necho \"$*\" >> {tmp_path}/record\n"
        'case "$*" in */listops-max/transject/11*) exit 1 ;; esac\n'
    )
    program.chmod(0o755)
    (tmp_path / "python3").symlink_to(sys.executable)
    more = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "RECUR_DATA": "data", "STUDY_OUTPUT": "runs", "CLAIMS": claim}
    done = subprocess.run(
        [PAPERS / "transject/study.sh"], env={**os.environ, **more}, cwd=tmp_path, capture_output=True
    )
    assert done.returncode == 1
    assert "/transject/11" in (tmp_path / "record").read_text().splitlines()[-1]


def test_the_summary_corrects_over_all_tests_of_a_paper(tmp_path: Path) -> None:
    for name, p_values in (("1-a", [0.01]), ("2-b", [0.02, 0.5])):
        known = {"n": 5, "mean": 0.5, "std": 0.01, "cpu_seconds": 60.0, "scores": [0.49, 0.51]}
        groups = [{"name": each, "runs": [f"runs/{each}/11"], **known} for each in "xyz"]
        test = {"a": "x", "b": "y", "difference": 0.0123, "identical_predictions": False, "interval": [0.001, 0.02]}
        test["errors"] = [[0.004**2, 1000]]
        tests = [{**test, "b": other, "p_value": p_value} for other, p_value in zip("yz", p_values, strict=False)]
        if name == "2-b":
            tests[1] |= {"a": "z", "b": "x"}
        tests += [{**test, "b": "linear model", "p_value": 0.001}, {**test, "a": "y", "b": "z", "p_value": 0.001}]
        table = {"metric": "accuracy", "groups": groups, "baselines": [], "tests": tests}
        (tmp_path / f"{name}.json").write_text(json.dumps(table))
        (tmp_path / f"{name}.claim").write_text("better 0.5 runs/x\n")
    (tmp_path / "3-speed.json").write_text("")
    script = [sys.executable, str(PAPERS / "summary.py"), str(tmp_path)]
    lines = subprocess.run(script, capture_output=True, text=True, check=True).stdout.splitlines()
    assert (
        lines[2]
        == "| 1-a | x | y | 50.0 ± 1.0, 50.0 ± 1.0 | +1.2 | +0.1 to +2.0 | 0.010 | 0.030 | 1.00 | 0.70 | better: holds | 15 |"
    )
    assert lines[4].startswith("| 2-b | x | z | 50.0 ± 1.0, 50.0 ± 1.0 | -1.2 | -2.0 to -0.1 | 0.50 ")
    assert [line.split(" | ")[7] for line in lines[2:]] == ["0.030", "0.040", "0.50"]
    equal = {"difference": 0.0, "identical_predictions": True, "interval": None, "p_value": 1.0}
    tests[:] = [{**test, **equal} for test in tests]
    (tmp_path / "2-b.json").write_text(json.dumps({**table, "tests": tests}))
    lines = subprocess.run(script, capture_output=True, text=True, check=True).stdout.splitlines()
    assert " | +0.0 | identical predictions | 1.00 | 1.00 | " in lines[3]


def test_accuracies_at_the_length_of_training_and_beyond_stand_in_one_table(
    tmp_path: Path, recur: Recur, capsys: pytest.CaptureFixture[str]
) -> None:
    lengths = runpy.run_path(str(PAPERS / "recurrence/lengths.py"))["main"]
    run = tmp_path / "study/parity/linear/11"
    few = ("--set", "data.train_share=0.1", "--set", "linear.c=1")
    recur.ok("finetune", "--preset", "linear-parity", *few, "--output", run, "--quiet")
    capsys.readouterr()
    lengths(run.parents[2])
    shown = capsys.readouterr().out.splitlines()
    result = json.loads((run / "result.json").read_text())
    scores = [f"{100 * result[split]['accuracy']:.1f}" for split in ("test", "test-long")]
    assert shown == [
        "|  | parity, training length | parity, longer |",
        "|---|---|---|",
        f"| `linear` | {' | '.join(scores)} |",
    ]
    kept = tmp_path / "kept" / "lengths.json"
    kept.parent.mkdir()
    wrong = json.loads((run.parents[2] / "lengths.json").read_text())
    wrong["parity"]["rnn"] = {"test": [[0, 0, 0, 0], [3, 17, 0, 20]], "test-long": []}
    kept.write_text(json.dumps(wrong))
    lengths(kept.parent)
    assert capsys.readouterr().out.splitlines() == [*shown, "| `rnn` | 99.0 ± 1.4 | – |"]
    assert (kept.parent / "lengths.png").stat().st_size > 1000


def table_of(script: str, steps: int, capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    """Run a script of a paper with few steps, and return the cells of the rows that it prints."""
    runpy.run_path(str(PAPERS / script))["main"](steps)
    rows = [line.split(" | ") for line in capsys.readouterr().out.replace("\\|", "").splitlines()]
    return [[cell.strip("| ") for cell in row] for row in rows]


def test_a_window_moves_a_stable_model_within_the_bounds_and_an_unstable_one_far(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = table_of("stable-rnn/gaussian.py", 20, capsys)
    states = [row for row in rows if len(row) == 6 and row[0] in ("stable", "unstable")]
    assert len(states) == 12
    for model, _, state, state_bound, gradient, gradient_bound in states:
        if model == "stable":
            assert float(state) <= float(state_bound) and float(gradient) <= float(gradient_bound)
        else:
            assert float(state) > 1 and (state_bound, gradient_bound) == ("–", "–")
    trained = {(row[0], row[1], row[2]): row[3:] for row in rows if len(row) == 8 and row[0] in ("stable", "unstable")}
    for rate in ("α / t", "constant"):
        gaps = [float(trained["stable", rate, k][2]) for k in ("1", "2", "4", "8", "16", "32")]
        assert gaps == sorted(gaps, reverse=True) and gaps[-1] < 1e-6 < 1e-1 < gaps[0]
        assert float(trained["stable", rate, "32"][-1]) < 1e-6
        assert float(trained["unstable", rate, "32"][2]) > 1 and float(trained["unstable", rate, "32"][-1]) > 0.1
    assert all(float(cells[2]) < float(cells[3]) for (_, rate, _), cells in trained.items() if cells[3] != "–")


def test_a_linear_rnn_is_all_its_recurrence_matrices_and_fewer_are_less(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [row for row in table_of("rsa/linear_rnn.py", 10, capsys) if len(row) == 5 and " of " in row[2]]
    assert {row[0] for row in rows} == {"drawn", "series", "delay"}
    for name, _, matrices, error, fitted in rows:
        used, _, all_of_them = matrices.partition(" of ")
        exact = used == all_of_them
        assert (float(error) < 1e-10) is exact, (name, matrices)
        assert float(fitted) <= max(float(error), 1e-10)


def test_measures_and_accuracy_correlate_over_runs_and_within_encoders(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for encoder, seed in itertools.product(("high", "low"), range(11, 16)):
        # The entropy falls with the accuracy within each encoder, and the encoder of the higher entropy is the better one.
        better = encoder == "high"
        entropy = 100 * better - (seed - 11) ** 3
        measures = {"scaled_entropy": entropy, "activation_factor": 1 + (seed == 13)}
        accuracy = 0.3 * (1 + better) + 0.01 * (seed - 11)
        result = {"diagnosis": {"layers": [{}, measures]}, "metrics": {"accuracy": accuracy}}
        (tmp_path / f"{encoder}-{seed}.json").write_text(json.dumps(result))
    main = runpy.run_path(str(PAPERS / "transject/entropy.py"))["main"]
    main.__globals__["EXCHANGES"] = 1999
    main(tmp_path)
    rows = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    (name, runs, encoders, *cells_of_entropy), (_, _, _, *factor) = rows
    assert (name, runs, encoders) == ("entropy", "10", "2")
    over, p_over, _, _, inside, p_inside, inside_ranks, p_ranks = (float(cell) for cell in cells_of_entropy)
    assert over > 0.8 and p_over < 0.01
    assert inside < -0.9 and inside_ranks == -1 and max(p_inside, p_ranks) < 0.002
    assert abs(float(factor[4])) < 0.01 and float(factor[5]) == 1


def test_the_checkpoints_of_a_run_are_diagnosed_from_the_untrained_model_to_the_one_that_is_kept(
    tiny_tnews: Path, tmp_path: Path, recur: Recur, capsys: pytest.CaptureFixture[str]
) -> None:
    run, rate = tmp_path / "run", "finetuning.learning_rate=0.1"
    settings = tiny("ensemble=null", "finetuning.max_steps=2", "finetuning.checkpoint_every=1", rate)
    rows = ["--data", tiny_tnews, "--test", tiny_tnews / "dev.json"]
    recur.ok("finetune", "--preset", "rezero-tnews", *rows, *settings, "--output", run, "--keep-checkpoints", "--quiet")
    result = recur.json("eval", run, "--split", "test", "--diagnose")
    runpy.run_path(str(PAPERS / "transject/entropy.py"))["follow"](run)
    lines = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    untrained, first, last = lines[1:]
    assert [line[0] for line in (untrained, first, last)] == ["0", "1", "2"]
    layers = result["diagnosis"]["layers"]
    assert last[2:] == [
        ", ".join(f"{layer['scaled_entropy']:.2f}" for layer in layers),
        f"{layers[-1]['activation_factor']:.2f}",
        f"{100 * result['metrics']['accuracy']:.1f}",
    ]
    assert untrained[3] == "1.00", "ReZero's layers do nothing at first"
    assert untrained[1:] != first[1:] != last[1:]


@pytest.mark.parametrize(
    ("claim", "better_by", "p_differ", "p_alike", "said"),
    [
        ("better", 0.01, 0.01, 0.9, "holds"),
        ("better", -0.01, 0.01, 0.9, "does not hold"),
        ("better", 0.001, 0.9, 0.01, "does not hold"),
        ("better", 0.001, 0.9, 0.2, "cannot be told"),
        ("good", 0.01, 0.01, 0.9, "holds"),
        ("good", -0.001, 0.9, 0.01, "holds"),
        ("good", -0.01, 0.01, 0.9, "does not hold"),
        ("good", -0.001, 0.9, 0.2, "cannot be told"),
        ("alike", 0.01, 0.01, 0.9, "does not hold"),
        ("alike", 0.001, 0.9, 0.01, "holds"),
        ("alike", 0.001, 0.9, 0.2, "cannot be told"),
    ],
)
def test_a_claim_holds_where_it_is_shown_and_does_not_where_its_opposite_is(
    claim: str, better_by: float, p_differ: float, p_alike: float, said: str
) -> None:
    verdict_on = runpy.run_path(str(PAPERS / "summary.py"))["verdict_on"]
    assert verdict_on(claim, better_by, p_differ, p_alike) == said


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        ([0.6, 0.51], [0.7, 0.8], ""),
        ([0.6, 0.5], [0.7, 0.8], "cannot be told: a does not train with this recipe"),
        ([0.6, 0.5], [0.4, 0.8], "cannot be told: a and b do not train with this recipe"),
    ],
)
def test_an_encoder_no_better_than_the_majority_class_tells_nothing(a: list[float], b: list[float], said: str) -> None:
    untrained = runpy.run_path(str(PAPERS / "summary.py"))["untrained"]
    groups, baselines = {"a": {"scores": a}, "b": {"scores": b}}, [{"name": "majority class", "mean": 0.5}]
    assert untrained(groups, {"a": "a", "b": "b"}, baselines) == said
    assert untrained(groups, {"a": "a", "b": "b"}, []) == "", "a language model has no majority class"


def finished_study(folder: Path, tnews: Path, recur: Recur) -> Path:
    """A study with a table of classifiers and one of language models, of two encoders and two seeds each."""
    study = folder / "studies" / "tiny"
    treebank = folder / "ptb"
    treebank.mkdir()
    for split, count in (("train", 60), ("valid", 300)):
        lines = (" ".join(f"w{(line * step) % 10}" for step in range(8)) for line in range(count))
        (treebank / f"ptb.{split}.txt").write_text("".join(f"{line}\n" for line in lines))
    rows: list[object] = ["finetune", "--data", tnews, "--test", tnews / "dev.json"]
    rows += tiny("ensemble=null", "finetuning.epochs=8")
    text: list[object] = ["pretrain", "--data", treebank]
    text += tiny("tokenizer.kind=whitespace", "pretraining.max_steps=3", "pretraining.learning_rate=1e-5")
    for name, task, split, command in (("1-rows", "tnews", "test", rows), ("2-text", "ptb", "dev", text)):
        for encoder, seed in itertools.product(("rezero", "transformer"), (11, 12)):
            run = study / task / encoder / str(seed)
            recur.ok(*command, "--preset", f"{encoder}-{task}", "--seed", seed, "--output", run, "--quiet")
        (study / task / "rezero.rates").write_text("0.0003 0.001:3\n")
        table = ["--output", study / f"{name}.json", "--split", split, "--quiet"]
        recur.ok("compare", study / task / "rezero", study / task / "transformer", *table)
        (study / f"{name}.claim").write_text(f"good 1 {study / task / 'transformer'}\n")
    return study


def test_what_is_kept_of_a_study_gives_its_summary_again_without_paths_texts_and_labels(
    tiny_tnews: Path, tmp_path: Path, recur: Recur, capsys: pytest.CaptureFixture[str]
) -> None:
    study, results = finished_study(tmp_path, tiny_tnews, recur), tmp_path / "results"
    more, fewer = ({"parity": {"rnn": {"test": [[7]] * n, "test-long": [[8]] * n}}} for n in (2, 1))
    (results / "tiny").mkdir(parents=True)
    (results / "tiny/lengths.json").write_text(json.dumps(more))
    (study / "lengths.json").write_text(json.dumps(fewer))
    (study / "4-speed.md").write_text("| tokens |\n")
    shown_by_eval = {"run": str(study), "metrics": {"accuracy": 0.5, "names": LABELS}, "diagnosis": {"layers": []}}
    (study / "3-diagnosis/x").mkdir(parents=True)
    (study / "3-diagnosis/x/11.json").write_text(json.dumps(shown_by_eval))
    runpy.run_path(str(PAPERS / "keep.py"))["main"](study, results)
    shown = []
    for folder in (study, results / "tiny"):
        capsys.readouterr()
        runpy.run_path(str(PAPERS / "summary.py"))["main"](folder)
        shown.append(capsys.readouterr().out.splitlines())
    assert shown[0] == shown[1]
    assert [" to " in line for line in shown[0]] == [False, False, True, True]
    assert json.loads((results / "tiny/lengths.json").read_text()) == more
    run = json.loads((results / "tiny/tnews/rezero/11.json").read_text())
    assert run["keys"]["finetuning.epochs"] == 8 and "data.path" not in run["keys"]
    assert (results / "tiny/4-speed.md").read_text() == "| tokens |\n"
    diagnosed = json.loads((results / "tiny/3-diagnosis/x/11.json").read_text())
    assert diagnosed == {"metrics": {"accuracy": 0.5}, "diagnosis": {"layers": []}}
    assert run["rates"] == ["0.0003", "0.001:3"] and run["result"]["seed"] == 11 and run["result"]["versions"]
    assert json.loads((results / "tiny/tnews/transformer/11.json").read_text())["rates"] is None
    files = sorted(path for path in results.rglob("*") if path.is_file())
    assert [len(list(results.glob(kind))) for kind in ("rows/*.txt", "tiny/[pt]*/*/*.json", "tiny/*.claim")] == [
        2,
        8,
        2,
    ]
    for path in files:
        text = path.read_text()
        assert text.isascii(), "the texts are Chinese"
        assert str(tmp_path) not in text
        if path.suffix == ".json":
            assert strings_in(json.loads(text)).isdisjoint(LABELS)


def test_right_rows_are_kept_as_bits_and_keys_without_paths_and_seed() -> None:
    kept = runpy.run_path(str(PAPERS / "kept.py"))
    right = np.random.default_rng(1).random((3, 21)) < 0.5
    np.testing.assert_array_equal(kept["unpacked"]([kept["packed"](run) for run in right], 21), right)
    assert kept["unpacked"]([], 21).shape == (0, 21)
    alone, together = kept["resampled"](right[:1]), kept["resampled"](right)
    np.testing.assert_array_equal(together.scores, right.mean(axis=1))
    np.testing.assert_array_equal(together.resampled[:1], alone.resampled)  # the same rows, whatever runs are beside it
    settings = ["finetuning.epochs=8", "runtime.seed=12", "data.path=/home/rows"]
    values = json.loads(json.dumps(compose("starsaber-tnews", settings=settings).preset.to_dict()))
    assert kept["own_keys"](values, "starsaber-tnews") == {"finetuning.epochs": 8}
    assert [kept["p_value"](p) for p in (0.0004, 0.0123, 0.0995, 1)] == ["<0.001", "0.012", "0.10", "1.00"]


def test_the_command_of_a_kept_run_has_no_paths_and_no_output() -> None:
    words = [
        "/venv/bin/recur",
        "finetune",
        "--train",
        "/data/tnews/train.json",
        "--set",
        "data.files.dev=/data/ptb.txt",
    ]
    kept = runpy.run_path(str(PAPERS / "keep.py"))["_command"]([*words, "--output", "runs/studies/x/11", "--resume"])
    assert kept == "recur finetune --train train.json --set data.files.dev=ptb.txt --resume"


def test_the_seeds_that_would_tell_are_the_fewest_with_enough_power() -> None:
    seeds_needed = runpy.run_path(str(PAPERS / "summary.py"))["seeds_needed"]
    errors = [(0.002**2, 1999), (0.006**2 / 5, 4), (0.006**2 / 5, 4)]
    assert power_of(0.01, errors) < POWER
    count = seeds_needed(0.01, errors, 5)
    found = [power_of(0.01, [errors[0], *[(0.006**2 / seeds, seeds - 1)] * 2]) for seeds in (count - 1, count)]
    assert found[0] < POWER <= found[1]
    assert seeds_needed(0.001, errors, 5) is None, "the rows are too few, whatever the seeds"
    assert seeds_needed(0.01, errors, 1) is None


def test_a_run_that_was_trained_again_is_not_kept(tiny_tnews: Path, tmp_path: Path, recur: Recur) -> None:
    run = tmp_path / "studies/tiny/rows/11"
    settings = tiny("ensemble=null", "finetuning.max_steps=1")
    recur.ok("finetune", "--preset", "rezero-tnews", "--data", tiny_tnews, *settings, "--output", run, "--quiet")
    groups = [{"name": "x", "runs": [str(run)], "manifests": ["0" * 64]}]
    table = {"metric": "accuracy", "split": "dev", "part": "model", "groups": groups}
    (tmp_path / "studies/tiny/1.json").write_text(json.dumps(table))
    (tmp_path / "studies/tiny/1.claim").write_text(f"good 1 {run.parent}\n")
    script = [sys.executable, str(PAPERS / "keep.py"), str(tmp_path / "studies/tiny"), str(tmp_path / "results")]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    reason = "was trained again after its table was made; run the study again, which makes the table"
    assert (done.returncode, done.stderr) == (1, f"{run}: {reason}\n")


def test_the_documented_command_prints_the_accuracies_that_are_kept(tmp_path: Path) -> None:
    readme = (PAPERS / "README.md").read_text(encoding="utf-8").splitlines()
    [command] = [line for line in readme if line.startswith("python presets/papers/recurrence/lengths.py ")]
    interpreter, script, folder = shlex.split(command)
    (tmp_path / script).parent.mkdir(parents=True)
    for each in (script, "presets/papers/kept.py"):
        shutil.copy(PAPERS.parent.parent / each, tmp_path / each)
    shutil.copytree(PAPERS.parent.parent / folder, tmp_path / folder)
    done = subprocess.run([sys.executable, script, folder], cwd=tmp_path, capture_output=True, text=True, check=True)
    head, _, *rows = done.stdout.splitlines()
    assert interpreter == "python" and head in readme and len(rows) == 11
    assert set(rows) <= set(readme)
    kept = "recurrence/lengths.json"
    assert (tmp_path / folder / "lengths.json").read_bytes() == (PAPERS / "results" / kept).read_bytes()


def test_the_kept_results_are_small_and_hold_no_paths_and_nothing_beside_their_tables() -> None:
    results = PAPERS / "results"
    files = {path for path in results.rglob("*") if path.is_file() and path.name != "lengths.png"}
    assert sum(path.stat().st_size for path in files) <= 2_000_000
    printed = {path for kind in ("*/*.json", "*/*.md", "*/*diagnosis/**/*.json") for path in results.glob(kind)}
    named = {path for path in printed if not path.with_suffix(".claim").exists()}
    assert results / "recurrence/lengths.json" in named
    cells = runpy.run_path(str(PAPERS / "state/table.py"))["read"](results / "state")
    assert cells
    named |= {results / "state" / task / f"{encoder}.json" for task, encoder in cells}
    assert not any(
        each.startswith("/")
        for path in named
        if path.suffix == ".json"
        for each in strings_in(json.loads(path.read_text()))
    )
    assert not any("/" in each for cell in cells.values() for each in strings_in(cell.facts))
    for claim in results.glob("*/*.claim"):
        table = json.loads(claim.with_suffix(".json").read_text())
        runs = [results / f"{run}.json" for group in table["groups"] for run in group["runs"]]
        named |= {claim, claim.with_suffix(".json"), *runs}
        for run in runs:
            kept = json.loads(run.read_text())
            named.add(results / "rows" / f"{kept['result']['data'][table['split']]['sha256']}.txt")
            assert not any("/" in each for each in strings_in(kept))
    assert files == named


def strings_in(value: object) -> set[str]:
    """The keys and the strings in what a JSON file holds."""
    if isinstance(value, dict):
        return set(value) | strings_in([*value.values()])
    if isinstance(value, list):
        return set().union(*map(strings_in, value))
    return {value} if isinstance(value, str) else set()


def is_linear(run: dict[str, str]) -> bool:
    """Return whether these options train a linear model. It has no learning rate, and no seed changes it."""
    return run["--output"].endswith("/linear/11")


def named(arguments: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the options of a command with their last values."""
    for name, value in zip(arguments, [*arguments[1:], ""], strict=True):
        if name.startswith("--"):
            yield name, value
