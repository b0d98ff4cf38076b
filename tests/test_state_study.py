"""The study of state: its commands and sizes, what is kept of a cell, and what its tables say."""

import json
import runpy
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from running import Recur
from test_studies import GROUP, commands_of, named
from tiny_task import tiny

from recurcli.data.recurrence_tasks import recurrence_rows
from recurcli.data.tasks import task_named
from recurcli.preset import compose
from recurcli.preset.matching import encoder_parameters
from recurcli.runs.predictions import read_predictions
from recurcli.runs.run_directory import open_run

STATE = Path(__file__).resolve().parent.parent / "presets" / "papers" / "state"
TABLE = runpy.run_path(str(STATE / "table.py"))
THEORY = json.loads((STATE / "theory.json").read_text())
SIZE = 31_150


def trainings(monkeypatch: pytest.MonkeyPatch, folder: Path, **variables: str) -> list[dict[str, str]]:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    commands = commands_of(STATE / "study.sh", folder, claims=variables.get("CLAIMS"))
    assert {verb for verb, *_ in commands} <= {"finetune", "compare"}
    found = []
    for verb, *arguments in commands:
        if verb == "finetune":
            context = GROUP.commands[verb].make_context(verb, list(arguments))  # type: ignore[attr-defined]
            settings = context.params["settings"]
            preset = compose(context.params["preset"], settings=settings).preset
            run = dict(named(arguments))
            if preset.encoder["name"] != "linear" and "--match-parameters" not in run:
                assert encoder_parameters(preset.encoder) == pytest.approx(SIZE, rel=0.01), run["--output"]
                assert preset.encoder["dropout"] == 0 and preset.finetuning.warmup_ratio == 0.1
                assert preset.finetuning.supervise == ("last" if "shuffled" in run["--output"] else "every")
            found.append(run)
    return found


def test_each_encoder_of_the_tests_has_the_same_size_and_its_own_rate(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    runs = trainings(monkeypatch, tmp_path, CLAIMS="1", TASKS="a5")
    searches = [run for run in runs if "/search/" in run["--output"]]
    assert {run["--learning-rate"] for run in searches} == {"0.001", "0.003", "0.01", "0.03"}
    assert {(run["--seed"], run["--epochs"]) for run in searches} == {("1", "1")}
    repeated = [run for run in runs if run not in searches]
    assert {run["--learning-rate"] for run in repeated} == {"0.003"} and {run["--epochs"] for run in repeated} == {"3"}
    seeds: dict[str, list[str]] = {}
    for run in repeated:
        seeds.setdefault(Path(run["--output"]).parent.name, []).append(run["--seed"])
    assert [*seeds] == [*THEORY["encoders"]], "the order of the tables"
    contrasted = {name for task, *names in TABLE["CONTRASTS"] if task == "a5" for name in names}
    for name, own in seeds.items():
        assert own == ["11", "12", "13", "14", "15"][: 5 if name in contrasted else 3], name


@pytest.mark.slow
def test_controls_freeze_the_encoder_and_shuffle_the_labels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    runs = trainings(monkeypatch, tmp_path, CLAIMS="2", TASKS="parity")
    by_name = {Path(run["--output"]).parent.name: run for run in runs}
    assert {name.rpartition("-")[2] for name in by_name} == {"linear", "frozen", "shuffled"}
    assert all(run["--train"].endswith("parity.train.tsv") for name, run in by_name.items() if "shuffled" in name)


@pytest.mark.slow
def test_another_encoder_is_a_row_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    runs = trainings(monkeypatch, tmp_path, CLAIMS="1", TASKS="s3", ENCODERS="gated-linear-attention")
    assert len(runs) == 7 and all(run["--preset"] == "gated-linear-attention-s3" for run in runs)


@pytest.mark.parametrize("encoder", ["mingru", "rezero", "delta-net"])
def test_an_encoder_of_ones_own_gets_the_size_of_the_others(encoder: str) -> None:
    options = runpy.run_path(str(STATE / "cell.py"))["size"](encoder, SIZE).split()
    settings = ["encoder.num_layers=2", *options[1::2]]
    assert options[::2] == ["--set", "--set"]
    assert encoder_parameters(compose(f"{encoder}-s3", settings=settings).preset.encoder) == pytest.approx(
        SIZE, rel=0.01
    )


def test_contrasts_are_at_most_ten_of_encoders_and_tasks_that_are_trained() -> None:
    assert len(TABLE["CONTRASTS"]) <= 10
    for task, *names in TABLE["CONTRASTS"]:
        assert task in TABLE["TESTED"] and len(names) == 2 and {*names} <= {*THEORY["encoders"]}
    cited = {theorem for tasks in THEORY["encoders"].values() for _, theorem in tasks.values()}
    assert cited == {*THEORY["theorems"]}
    for tasks in (each for each in THEORY["encoders"].values() if each):
        assert [*tasks] == [*TABLE["TESTED"]]


ORDERS = {"parity": {2}, "modulo-5": {5}, "s3": {2, 3}, "a5": {2, 3, 5}}
"""The orders of the elements of each group."""
REAL = {"mlstm", "mingru", "mamba2", "mingru-signed", "mamba2-signed"}
"""Encoders whose products of matrices have real eigenvalues: those of diagonal matrices."""


def test_theory_says_cannot_exactly_where_eigenvalues_do_not_allow_it() -> None:
    for encoder, tasks in THEORY["encoders"].items():
        for task, (can, theorem) in tasks.items():
            positive = (encoder in REAL and not encoder.endswith("-signed")) or encoder == "delta-net"
            excluded = positive or (encoder in REAL and bool(ORDERS[task] & {3, 5}))
            assert (can is False) is excluded, (encoder, task)
            assert not excluded or theorem == ("G1" if positive and 2 in ORDERS[task] else "G2"), (encoder, task)


def test_what_is_kept_of_a_cell_are_its_rows_rates_and_keys(tmp_path: Path, recur: Recur) -> None:
    settings = tiny(
        "ensemble=null", "finetuning.max_steps=2", "encoder.causal=true", "finetuning.linear_baseline=false"
    )
    search = tmp_path / "search/parity/mingru/default/0.01"
    for folder in (tmp_path / "parity/mingru/11", search / "2"):
        own = ("--preset", "mingru-parity", *settings, "--seed", folder.name)
        recur.ok("finetune", *own, "--output", folder, "--quiet")
    shutil.copytree(tmp_path / "parity/mingru/11", search / "1")
    kept = runpy.run_path(str(STATE / "cell.py"))["cell"](tmp_path, "parity/mingru")
    assert kept["preset"] == "mingru-parity" and kept["keys"]["finetuning.learning_rate"] == 0.01
    assert kept["keys"]["encoder.causal"] is True and "runtime.seed" not in kept["keys"]
    run = open_run(tmp_path / "parity/mingru/11")
    for split in ("test", "test-long"):
        hits = read_predictions(run, "model", split).hits
        bits = np.frombuffer(bytes.fromhex(kept["runs"]["11"]["right"][split]), dtype=np.uint8)
        np.testing.assert_array_equal(np.unpackbits(bits, count=len(hits)), hits)
    losses = {seed: open_run(search / seed).read_result()["dev"]["loss"] for seed in ("1", "2")}
    assert kept["searched"] == {0.01: pytest.approx((losses["1"] + losses["2"]) / 2)} and losses["1"] != losses["2"]
    assert kept["state"] == kept["keys"]["encoder.hidden_size"] * kept["keys"].get("encoder.num_layers", 4)


def cell(wrong: Mapping[str, Sequence[float]], *, rate: float = 0.01) -> dict[str, Any]:
    """Return a cell of parity, with the shares of the test rows and of those of 160 symbols or more that are wrong, by seed."""
    sizes = {
        split: np.array([text.count(" ") + 1 for text, _ in recurrence_rows(task_named("parity"), split)])
        for split in ("test", "test-long")
    }
    runs = {}
    for seed, (trained, longer) in wrong.items():
        right = {split: np.ones(len(own), dtype=bool) for split, own in sizes.items()}
        right["test"][: round(trained * len(right["test"]))] = False
        long = np.flatnonzero(sizes["test-long"] >= 160)
        right["test-long"][long[: round(longer * len(long))]] = False
        bits = {split: np.packbits(own).tobytes().hex() for split, own in right.items()}
        runs[seed] = {"right": bits, "dev": [0.5, 1 - trained], "cpu_seconds": 60.0}
    return {"state": 64, "keys": {"finetuning.learning_rate": rate}, "runs": runs}


def results(folder: Path, **cells: dict[str, Any]) -> Path:
    (folder / "parity").mkdir(exist_ok=True)
    for name, own in cells.items():
        (folder / "parity" / f"{name.replace('_', '-')}.json").write_text(json.dumps(own))
    return folder


def test_a_verdict_is_of_seeds_that_solve_and_a_theorem_is_contradicted_by_long_rows_alone(tmp_path: Path) -> None:
    cells = TABLE["read"](
        results(
            tmp_path,
            rnn=cell({"11": (0, 0), "12": (0.005, 0.04), "13": (0.02, 0)}),
            mlstm=cell({"11": (0, 0.5), "12": (0.009, 0.06)}),
            mingru=cell({"11": (0, 0.01), "12": (0.5, 0.5)}),
            transformer=cell({"11": (0.5, 0), "12": (0.5, 0)}),
            my_recurrence=cell({"11": (0, 0), "12": (0, 0)}),
            sine=cell({"11": (0, 0)}),
            rnn_frozen=cell({"11": (0, 0), "12": (0, 0)}),
        )
    )
    lines = {
        line.split(" | ")[0].strip("| `"): line.split(" | ") for line in TABLE["of_task"](cells, "parity").split("\n")
    }
    assert lines["rnn"][6:9] == ["2 and 2 of 3", "solves all lengths", "can (MR)"]
    assert lines["mlstm"][6:9] == ["2 and 0 of 2", "the length of training alone", "cannot (G1)"]
    assert lines["mingru"][6:9] == ["1 and 1 of 2", "solves all lengths (contradicts the theorem)", "cannot (G1)"]
    assert lines["transformer"][6:9] == ["0 and 0 of 2", "not in this budget", "no theorem used"]
    assert lines["my-recurrence"][6:9] == ["2 and 2 of 2", "solves all lengths", "no theorem used"]
    assert not {"sine", "rnn-frozen"} & {*lines}, "one seed is shown, and a control is no row"
    assert "| `sine` | 100.0, 100.0 |" in TABLE["shown"](cells)
    assert "| `rnn`, its first weights | 100.0 |" in TABLE["controls"](cells)
    assert lines["rnn"][3:6] == ["99.2", "100.0", "98.6"]
    assert [line.split(" | ")[1:] for line in TABLE["curves"](cells).split("\n")[2:]] == [
        ["`mingru`", "11", "50.0, 100.0 |"],
        ["`mingru`", "12", "50.0, 50.0 |"],
    ]


def test_contrasts_are_corrected_over_all_that_were_written_down(tmp_path: Path) -> None:
    five = {str(seed): (0.002 * (seed - 10), 0) for seed in range(11, 16)}
    half = {seed: (0.5 + share, 0) for seed, (share, _) in five.items()}
    cells = TABLE["read"](
        results(tmp_path, slstm=cell(five), mlstm=cell(half), mingru=cell(half), mingru_signed=cell(half))
    )
    first, second = (line.split(" | ") for line in TABLE["contrasts"](cells).split("\n")[2:])
    assert first[1:4] == ["`mingru-signed` 49.4", "`mingru` 49.4", "+0.0"] and float(first[5]) == 1
    assert second[1:4] == ["`slstm` 99.4", "`mlstm` 49.4", "+50.0"]
    assert second[5:] == ["<0.001", "<0.001 |"]
    some = {seed: (0.006 + 3 * wrong, 0) for seed, (wrong, _) in five.items()}
    cells = TABLE["read"](results(tmp_path, slstm=cell(five), mlstm=cell(some)))
    p_value, p_holm = TABLE["contrasts"](cells).split("\n")[-1].strip("| ").split(" | ")[5:]
    assert 0.001 < float(p_value) < 0.05
    assert float(p_holm) == pytest.approx(10 * float(p_value), abs=0.006), "over all that were written down"


def test_the_figure_has_a_line_for_each_encoder(tmp_path: Path) -> None:
    cells = TABLE["read"](results(tmp_path, rnn=cell({"11": (0, 0)}), mlstm=cell({"11": (0.5, 0.5)})))
    TABLE["draw"](cells, tmp_path)
    assert (tmp_path / "lengths.png").stat().st_size > 10_000
    assert not (tmp_path / "recall.png").exists()
