"""`recur tune`: the search, the preset that it writes, interrupted studies, and the ranges that are refused."""

import itertools
import json
import math
import shlex
import shutil
import signal
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from class_numbers import choose, numbered, probabilities
from forked import ForkServer
from running import Recur, lines_of, result_of
from tiny_task import TINY, rows, write_rows

from recurcli.commands.tune import (
    Range,
    TrialLog,
    best_of,
    command_of,
    facts_of,
    metric_of,
    open_study,
    parse_range,
    ranges_of,
    run_again,
    storage_errors,
    trials_of,
)
from recurcli.data.splits import RowHashes
from recurcli.display import screen
from recurcli.errors import StorageError
from recurcli.linear import fitting
from recurcli.linear.model import LinearModel
from recurcli.linear.out_of_fold import draw_folds
from recurcli.log import Log, Progress, TrialProgress
from recurcli.requests.tune import TuneRequest
from recurcli.runs.run_directory import RunDirectory
from recurcli.targets.one_label import mixed_share
from recurcli.validation import read_mapping

optuna = pytest.importorskip("optuna")
RATE, LAYERS = "finetuning.learning_rate", "encoder.num_layers"
RANGES = (f"{RATE}=1e-4..1e-2:log", f"{LAYERS}=1..3", "pooling=max|mean")
SETTINGS = [setting for setting in TINY if setting.partition("=")[0] not in (RATE, LAYERS)]


def options(data: Path, output: Path, *more: object, ranges: tuple[str, ...] = RANGES) -> list[object]:
    """Arguments of a study whose trials take a fraction of a second."""
    given = [("--set", setting) for setting in SETTINGS] + [("--range", each) for each in ranges]
    flat = [part for pair in given for part in pair]
    return ["tune", "--preset", "starsaber-tnews", "--data", data, "--output", output, *flat, *more]


TRIALS = 3


class Study(NamedTuple):
    """The folder of a study, its result, and its lines on stderr."""

    folder: Path
    result: Any
    err: str


def empty_study(folder: Path, *settings: str) -> Any:
    """A study without a trial, of accuracy with the setting ensemble=null and else of the log loss."""
    request = TuneRequest(preset="starsaber-tnews", output=folder, settings=[*settings])
    return open_study(request, metric_of(request), {})


@pytest.fixture(scope="module")
def study(forks: ForkServer, tiny_tnews: Path, tmp_path_factory: pytest.TempPathFactory) -> Study:
    """A study of three trials that nothing disturbed. They are judged by the log loss of their ensembles."""
    folder = tmp_path_factory.mktemp("study") / "tuned"
    ended = forks.run(*options(tiny_tnews, folder, "--trials", TRIALS, "--json"))
    assert ended.code == 0, ended.err
    return Study(folder, json.loads(ended.out), ended.err)


@pytest.mark.slow
def test_files_and_seed_are_named_as_in_finetune(recur: Recur, tiny_tnews: Path, tmp_path: Path) -> None:
    train, dev = tmp_path / "a: b #1.json", tmp_path / "dev.json"
    write_rows(train, rows(40, seed=5, labelled=True))
    write_rows(dev, rows(12, seed=6, labelled=True))
    line = options(tiny_tnews, tmp_path / "x", "--trials", 1)
    place = line.index("--data")
    line[place : place + 2] = ["--train", train, "--dev", dev, "--seed", 7]
    assert recur.json(*line)["seed"] == 7
    best = read_mapping(tmp_path / "x" / "best.yaml")[0]
    assert best["data"]["files"] == {"train": str(train), "dev": str(dev)}
    assert best["runtime"]["seed"] == 7
    recur.refused(2, "--seed and --set runtime.seed", *line, "--resume", "--set", "runtime.seed=8")
    recur.refused(2, "both name the training rows", *line, "--resume", "--data", train)


def test_the_first_trial_is_the_preset_itself(recur: Recur, study: Study, tiny_tnews: Path, tmp_path: Path) -> None:
    result = study.result
    settings = [part for setting in [*SETTINGS, "ensemble=null"] for part in ("--set", setting)]
    line = ("--preset", "starsaber-tnews", "--data", tiny_tnews, "--output", tmp_path / "run", *settings)
    preset = recur.json("finetune", *line)
    more = ("--trials", 1, "--set", "ensemble=null")
    alone = recur.json(*options(tiny_tnews, tmp_path / "alone", *more))
    assert alone["trials"][0]["dev_metric"] == preset["dev"]["accuracy"] == alone["preset_dev_metric"]
    assert alone["linear_dev_metric"] == preset["baselines"]["linear"] == preset["linear_baseline"]["dev"]["accuracy"]
    assert (alone["metric"], alone["score"]) == ("accuracy", "dev accuracy of the encoder alone, without ensemble")
    values = RunDirectory(tmp_path / "run").read_preset()
    shown = {RATE: preset["settled"][RATE], LAYERS: values["encoder"]["num_layers"], "pooling": values["pooling"]}
    assert result["trials"][0]["settings"] == shown
    assert isinstance(shown[RATE], float)
    assert alone["trials"][0]["settings"] == shown
    assert "dev accuracy of the linear model: " in study.err
    out, _ = recur.ok(*options(tiny_tnews, study.folder, "--trials", TRIALS, "--resume"))
    best, linear = result["best"], result["linear_dev_metric"]
    scores = f"best trial ({best['trial']}) {best['dev_metric']:.4f}, linear model {linear:.4f}"
    assert f"dev log loss: preset {result['preset_dev_metric']:.4f}, {scores}" in " ".join(out.split())
    assert (result["metric"], result["score"]) == (
        "log_loss",
        "log loss of the ensemble on held-out halves of the dev rows",
    )
    assert f"It is the {result['score']}." in out


def test_an_ensemble_is_scored_on_rows_that_did_not_fit_its_weights(
    recur: Recur, tiny_tnews: Path, tmp_path: Path
) -> None:
    more = ("--trials", 1, "--keep-runs", "--set", "finetuning.class_weights={'100': 5}", "--set", "data.dev_seed=3")
    found, run = recur.json(*options(tiny_tnews, tmp_path, *more)), tmp_path / "trials" / "001"
    lines = lines_of(run / "predictions.dev.jsonl")
    names = [*lines[0]["probabilities"]]
    targets, mixed = np.array([names.index(line["label"]) for line in lines]), mixed_share(len(lines), len(names))
    shares = [[[*line[f"{part}_probabilities"].values()] for line in lines] for part in ("encoder", "linear")]
    encoder, linear = np.log((np.array(shares) - mixed / len(names)) / (1 - mixed))
    weights = np.where(targets == names.index("100"), 5.0, 1.0)
    halves = draw_folds(
        RowHashes.of((line["text"], None) for line in lines).group_ids, targets, numbered(len(names)), seed=3, folds=2
    )
    assert sorted(np.bincount(halves)) == [12, 12]
    losses, alone = np.empty(len(lines)), np.empty(len(lines))
    for half in (0, 1):
        own, other = halves == half, halves != half
        kept = choose({"encoder": encoder[other], "linear": linear[other]}, targets[other], weights[other])
        for holder, each in ((losses, kept), (alone, kept.only_linear)):
            joined = each.logits({"encoder": encoder[own], "linear": linear[own]})
            holder[own] = -np.log(probabilities(joined, rows=12)[np.arange(12), targets[own]])
    assert math.isclose(found["preset_dev_metric"], weights @ losses / weights.sum(), rel_tol=1e-6)
    assert math.isclose(found["linear_dev_metric"], weights @ alone / weights.sum(), rel_tol=1e-6)
    assert "refit_rows" not in result_of(run)["linear_baseline"]


@pytest.mark.slow
def test_trials_share_a_linear_model_where_no_cache_can_be_written(
    recur: Recur, tiny_tnews: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fits: list[float] = []

    def counted(*given: Any, **more: Any) -> LinearModel:
        fits.append(given[3].c)
        return fit_model(*given, **more)

    fit_model, blocked = fitting.fit_model, tmp_path / "file"
    blocked.touch()
    monkeypatch.setattr(fitting, "fit_model", counted)
    monkeypatch.setenv("RECUR_CACHE", str(blocked / "cache"))
    more = ("--trials", 5, "--set", "finetuning.max_steps=1")
    found = recur.json(*options(tiny_tnews, tmp_path / "x", *more, ranges=("linear.c=1|2",)))
    values = [trial["settings"]["linear.c"] for trial in found["trials"]]
    assert fits[1:] == [value for before, value in pairwise(values) if value != before]
    assert 1 < len(fits) < len(values)


def test_a_linear_model_is_tuned(recur: Recur, tiny_tnews: Path, tmp_path: Path) -> None:
    ranges = [f"--range=linear.{each}" for each in ("words=null|[1,1]", "characters=null|[1,2]", "c=0.1..10:log")]
    line = ["tune", "--preset", "linear-tnews", "--data", tiny_tnews, "--set", "data.extra_rows=[]", *ranges]
    line += ["--output", tmp_path]
    recur.ok(*line, "--trials", 3)
    out, err = recur.ok(*line, "--trials", 8, "--resume", "--json")
    found = json.loads(out)
    assert (found["complete"] + found["refused"], found["linear_dev_metric"]) == (8, None)
    assert found["score"] == "log loss of the linear model on held-out rows"
    assert found["trials"][0]["settings"] == dict.fromkeys(found["ranges"], "auto")
    (refused, *_) = (trial for trial in found["trials"] if trial["state"] == "refused")
    assert [refused["settings"][f"linear.{key}"] for key in ("words", "characters")] == [None, None]
    assert "refused: --range: linear.characters: must not be null where words is null too" in err
    assert found["best"]["dev_metric"] == min(each["dev_metric"] for each in found["trials"] if "reason" not in each)
    best = read_mapping(tmp_path / "best.yaml")[0]["linear"]
    assert {f"linear.{key}": value for key, value in best.items()} == found["best"]["settings"]
    alone = ("tune", "--preset", "starsaber-tnews", "--set", "ensemble=null", "--range", "linear.c=1..2")
    recur.refused(2, "--range linear.c: is not searched: it has no effect", *alone)


def test_a_metric_that_is_set_scores_the_held_out_rows(recur: Recur, tiny_tnews: Path, tmp_path: Path) -> None:
    line = ["tune", "--preset", "linear-tnews", "--data", tiny_tnews, "--output", tmp_path, "--trials", 2]
    found = recur.json(*line, "--set", "finetuning.metric=accuracy", "--set", "linear.words=null")
    assert found["ranges"]["linear.characters"] == "[1, 2]|[1, 3]|[2, 5]|[1, 5]"  # a model counts some n-grams
    assert (found["metric"], found["best"]["dev_metric"]) == ("accuracy", max(t["dev_metric"] for t in found["trials"]))
    reason = "finetuning.metric was 'accuracy' and is now 'auto'"
    recur.refused(2, reason, *line, "--resume", "--set", "linear.words=null")


def test_the_command_for_the_best_preset_runs_as_it_is_printed(recur: Recur, study: Study) -> None:
    command = shlex.split(study.result["command"])
    assert command[:3] == ["recur", "finetune", "--preset"]
    recur.ok(*command[1:], "--dry-run")
    train, dev = Path("/a b/train.csv"), Path("/dev.csv")
    named = command_of(TuneRequest(preset="starsaber-custom", output=Path("x y"), train=[train], dev=[dev]))
    assert named == "recur finetune --preset 'x y/best.yaml' --train '/a b/train.csv' --dev /dev.csv"


def test_each_trial_lies_in_the_ranges_and_has_a_line(study: Study) -> None:
    result = study.result
    assert [trial["trial"] for trial in result["trials"]] == list(range(1, TRIALS + 1))
    assert (result["complete"], result["pruned"], result["diverged"]) == (TRIALS, 0, 0)  # no median of five yet
    for trial in result["trials"][1:]:
        settings = trial["settings"]
        assert list(settings) == [RATE, LAYERS, "pooling"]
        assert 1e-4 <= settings[RATE] <= 1e-2
        assert settings[LAYERS] in (1, 2, 3)
        assert settings["pooling"] in ("max", "mean")
        line = f"trial {trial['trial']} of {TRIALS}: learning_rate={settings[RATE]} num_layers={settings[LAYERS]}"
        assert line in study.err
    assert len({json.dumps(trial["settings"]) for trial in result["trials"]}) > 1
    scores = {trial["trial"]: trial["dev_metric"] for trial in result["trials"]}
    assert result["best"]["dev_metric"] == min(scores.values()) == scores[result["best"]["trial"]]
    assert sorted(path.name for path in study.folder.iterdir()) == ["best.yaml", "study.db"]


def test_the_best_preset_trains_to_its_score(recur: Recur, study: Study, tiny_tnews: Path, tmp_path: Path) -> None:
    best, path = study.result["best"], study.folder / "best.yaml"
    text, values = path.read_text(), read_mapping(path)[0]
    assert f"log loss {best['dev_metric']:.4f} in trial {best['trial']} of" in text
    assert values["extends"] == "starsaber-tnews"
    assert values["encoder"] == {"hidden_size": 16, "num_layers": best["settings"][LAYERS]}
    assert values["finetuning"][RATE.partition(".")[2]] == best["settings"][RATE]
    line = ("--preset", path, "--data", tiny_tnews, "--output", tmp_path / "again", "--trials", 1)
    assert recur.json("tune", *line)["preset_dev_metric"] == best["dev_metric"]


@pytest.mark.slow
def test_stopped_studies_go_on(forks: ForkServer, recur: Recur, study: Study, tiny_tnews: Path, tmp_path: Path) -> None:
    arguments = options(tiny_tnews, tmp_path / "x", "--trials", TRIALS)
    child = forks.start(*arguments)
    child.said("trial 1 of")
    child.send(signal.SIGKILL)
    assert child.end().code == -signal.SIGKILL
    recur.refused(2, "already has a study; continue it with --resume", *arguments)
    child = forks.start(*arguments, "--resume")
    child.said("trial 2 of")
    child.send(signal.SIGTERM)
    ended = child.end()
    assert ended.code == 143
    assert ended.err.splitlines()[-1].startswith("recur: stopped by SIGTERM")
    assert ended.err.endswith("2 of 3 trials are kept; continue with the same command and --resume\n")
    out, err = recur.ok(*arguments, "--resume", "--json")
    assert err.count("; dev log loss") == 1
    assert json.loads(out)["trials"] == study.result["trials"]
    assert not (tmp_path / "x" / "trials").exists()


@pytest.mark.slow
def test_workers_share_a_study(forks: ForkServer, tiny_tnews: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'shared.db'}"
    folders = [tmp_path / name for name in ("a", "b", "c")]
    workers = [
        forks.start(*options(tiny_tnews, folder, "--trials", 5, "--storage", url, "--json")) for folder in folders
    ]
    ended = [worker.end() for worker in workers]
    assert [each.code for each in ended] == [0, 0, 0], [each.err for each in ended]
    trials, *others = (json.loads(each.out)["trials"] for each in ended)
    assert others == [trials, trials]
    assert [trial["trial"] for trial in trials] == [1, 2, 3, 4, 5]
    assert [trial["settings"] for trial in trials].count(trials[0]["settings"]) == 1
    lines = [line for each in ended for line in each.err.splitlines() if "; dev log loss" in line]
    assert sorted(line[: len("recur: trial N of 5")] for line in lines) == [
        f"recur: trial {n} of 5" for n in range(1, 6)
    ]
    late = forks.run(*options(tiny_tnews, tmp_path / "d", "--trials", 5, "--storage", url, "--json"))
    assert (late.code, json.loads(late.out)["trials"]) == (0, trials)
    assert "; dev log loss" not in late.err, "nothing is left to train"
    assert len({(folder / "best.yaml").read_text() for folder in [*folders, tmp_path / "d"]}) == 1


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_worker_runs_the_preset_of_one_that_ended_in_it(
    number: signal.Signals,
    forks: ForkServer,
    recur: Recur,
    tiny_tnews: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("recurcli.commands.tune.HEARTBEAT", 1)
    shared = ("--storage", f"sqlite:///{tmp_path / 'shared.db'}", "--trials", 2)
    child = forks.start(*options(tiny_tnews, tmp_path / "a", *shared))
    child.said("linear model: ")
    child.send(number)
    assert child.end().code in (-signal.SIGKILL, 128 + signal.SIGTERM)
    out, err = recur.ok(*options(tiny_tnews, tmp_path / "b", *shared, "--json"))
    result = json.loads(out)
    assert [trial["trial"] for trial in result["trials"]] == [1, 2]
    assert result["preset_dev_metric"] == result["trials"][0]["dev_metric"]
    assert result["linear_dev_metric"] is not None
    assert err.count("dev accuracy of the linear model") == 1, "notes are those of the preset"


def test_a_worker_with_wrong_rows_leaves_the_preset_to_another_one(
    recur: Recur, tiny_tnews: Path, tmp_path: Path
) -> None:
    shared, empty = ("--storage", f"sqlite:///{tmp_path / 'shared.db'}", "--trials", 1), tmp_path / "empty"
    empty.mkdir()
    recur.refused(3, "", *options(empty, tmp_path / "a", *shared))
    result = recur.json(*options(tiny_tnews, tmp_path / "b", *shared))
    assert [trial["trial"] for trial in result["trials"]] == [1]
    assert result["preset_dev_metric"] is not None


def test_a_shared_study_replaces_nothing_of_another_one(
    recur: Recur, study: Study, tiny_tnews: Path, tmp_path: Path
) -> None:
    shutil.copytree(study.folder, tmp_path / "own")
    shared = ("--storage", f"sqlite:///{tmp_path / 'shared.db'}", "--trials", 1)
    recur.refused(2, "own: has files that are not of this study", *options(tiny_tnews, tmp_path / "own", *shared))
    line = options(tiny_tnews, tmp_path / "a", *shared)
    recur.ok(*line)
    best = (tmp_path / "a" / "best.yaml").read_text(encoding="utf-8")
    recur.ok(*line)
    other = ("--set", "linear.c=2")
    recur.refused(2, "best.yaml: is of another study and would be replaced; choose another --output", *line, *other)
    assert (tmp_path / "a" / "best.yaml").read_text(encoding="utf-8") == best


@pytest.mark.parametrize(
    ("url", "code", "reason"),
    [
        ("sqlite://", 2, "--storage sqlite://: is in memory"),
        ("sqlite:///:memory:", 2, "--storage sqlite:///:memory:: is in memory"),
        ("nonsense:secret@host", 2, "--storage: is not the address of a database"),
        ("postgresql://me:secret/x", 2, "--storage: is not the address of a database"),
        ("nodb://me:secret@host/x", 2, "dialects:nodb"),
        ("nodb://host:1/x?user=me&password=secret", 2, "dialects:nodb"),
        ("sqlite:////nowhere/x.db", 5, "--storage sqlite:////nowhere/x.db: cannot be read or written: unable to open"),
    ],
)
def test_a_database_that_cannot_be_opened_is_named(
    url: str, code: int, reason: str, recur: Recur, tiny_tnews: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recurcli.commands.tune.ATTEMPTS", 1)
    assert "secret" not in recur.refused(code, reason, *options(tiny_tnews, tmp_path / "x", "--storage", url))
    assert not (tmp_path / "x").exists()


def test_a_shared_study_is_not_overwritten(recur: Recur, tiny_tnews: Path, tmp_path: Path) -> None:
    shared = ("--storage", f"sqlite:///{tmp_path / 'shared.db'}", "--overwrite")
    recur.refused(2, "--overwrite", *options(tiny_tnews, tmp_path / "x", *shared))


def test_trials_are_compared_at_equal_shares_of_their_steps(tmp_path: Path) -> None:
    study = empty_study(tmp_path, "ensemble=null")

    def trial(*metrics: tuple[int, float], of: int) -> list[bool]:
        """Report metrics at steps; returns whether the trial should be pruned after each of them."""
        evaluations, should = TrialLog(Log(), 9, 2, study.ask(), None), []
        for step, metric in metrics:
            evaluations.report(step, of, metric)
            should.append(evaluations.should_prune())
        return should

    for number in range(5):  # two epochs each: 0.6 after the first one, 0.7 when the learning rate has decayed
        trial((10, 0.6), (20, 0.7), of=20)
        study.tell(number, 0.7)
    # Twenty epochs: the others had 0.7 at their second evaluation, but 0.6 after half of it.
    assert trial((10, 0.3), (20, 0.4), (90, 0.5), (100, 0.61), (120, 0.61), of=200) == [False] * 5
    assert trial((50, 0.3), (110, 0.5), of=200) == [False, True]
    assert trial((110, 0.5), of=200) == [False]  # at its second evaluation at the earliest


def test_the_smallest_log_loss_is_the_best_and_the_worst_encoder_is_pruned(tmp_path: Path) -> None:
    study = empty_study(tmp_path)
    for number, accuracy in enumerate((0.5, 0.5, 0.5, 0.5, 0.5, 0.4, 0.6)):
        evaluations = TrialLog(Log(), 9, 2, study.ask(), 1.5)
        for step in (1, 2):
            evaluations.report(step, 4, accuracy)
        assert evaluations.should_prune() == (accuracy == 0.4)
        study.tell(number, 1.5)
    results = [{"state": "complete", "dev_metric": loss} for loss in (0.5, 0.25, 0.75)]
    assert (study.direction.name, best_of(results, "log_loss")) == ("MINIMIZE", results[1])


def test_a_trial_that_a_kill_left_running_does_not_count(tmp_path: Path) -> None:
    empty_study(tmp_path).ask()
    assert [trial.state.name for trial in empty_study(tmp_path).trials] == ["FAIL"]


def test_a_trial_that_is_run_again_keeps_its_place(tmp_path: Path) -> None:
    study = empty_study(tmp_path)
    trial, other = study.ask(), study.ask()
    for _ in range(2):
        study.tell(trial, state=optuna.trial.TrialState.FAIL)
        run_again(study, trial)
        trial = study.ask()
        assert [each.number for each in trials_of(study)] == [trial.number, other.number]


def test_any_name_of_a_folder_is_taken(tmp_path: Path) -> None:
    folder = tmp_path / "50%3F? #{x}&é"
    folder.mkdir()
    empty_study(folder).ask()
    assert (folder / "study.db").stat().st_size
    assert len(empty_study(folder).trials) == 1


def test_a_database_that_fails_within_optunas_loop_is_named(tmp_path: Path) -> None:
    path = tmp_path / "study.db"

    def objective(_: object) -> float:
        path.unlink()  # storing the value fails
        return 0.5

    study, reason = empty_study(tmp_path), r"study.db: cannot be read or written: .*; continue with --resume"
    with pytest.raises(StorageError, match=reason), storage_errors(str(path)):
        study.optimize(objective, n_trials=1)


@pytest.mark.slow
def test_a_trial_below_the_median_is_pruned(recur: Recur, tiny_tnews: Path, tmp_path: Path) -> None:
    settings = [*SETTINGS, "finetuning.evaluate_every=2"]
    request = TuneRequest(
        preset="starsaber-tnews", data=tiny_tnews, output=tmp_path, settings=settings, ranges=[*RANGES]
    )
    earlier = open_study(request, metric := metric_of(request), facts_of(request, metric, ranges_of(request)))
    for number in range(1, 6):
        trial = earlier.ask()
        chosen = {each.key: each.suggest(trial) for each in ranges_of(request)}
        evaluations = TrialLog(Log(), 6, number, trial, None)
        for evaluation in range(1, 9):
            evaluations.report(2 * evaluation, 16, 2.0)  # better than any accuracy
        result = {"trial": number, "settings": chosen, "state": "complete", "dev_metric": 0.5}
        trial.set_user_attr("result", result)
        earlier.tell(trial, 0.5)
    more = ("--trials", 6, "--resume", "--set", "finetuning.evaluate_every=2", "--json")
    out, err = recur.ok(*options(tiny_tnews, tmp_path, *more))
    assert "; pruned; best dev log loss 0.5000 (trial 1)" in err
    found = json.loads(out)
    assert (found["complete"], found["pruned"], found["best"]["trial"]) == (5, 1, 1)
    assert found["trials"][5]["state"] == "pruned"


def test_a_log_has_lines_of_a_study(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screen, "SECONDS_BEFORE_LINE", 1e-9)
    log = screen.Screen(quiet=False)
    for trial, number in itertools.product(range(1, 10), range(1, 41)):
        step = Progress(step=number, total_steps=40, epoch=0.5, loss=1.25, measures={}, tokens=1, seconds=1.0)
        log.progress(TrialProgress(trial, 9, step, None if trial == 1 else 0.5))
    first, *others = capsys.readouterr().err.splitlines()
    assert first == "recur: trial 2/9  step 20/40  loss 1.2500  best dev accuracy 50.0"
    assert len(others) == 5 and others[-1].startswith("recur: trial 9/9  step 40/40  loss")


@pytest.mark.slow
def test_a_resume_of_another_study_is_refused(recur: Recur, study: Study, tiny_tnews: Path, tmp_path: Path) -> None:
    line = options(tiny_tnews, study.folder, "--resume")
    out, err = recur.ok(*line, "--trials", TRIALS, "--json")
    assert (json.loads(out)["best"], err) == (study.result["best"], "")
    recur.refused(2, "runtime.seed was 10 and is now 11", *line, "--set", "runtime.seed=11")
    fewer = options(tiny_tnews, study.folder, "--resume", ranges=RANGES[1:])
    recur.refused(2, "--range finetuning.learning_rate was '0.0001..0.01:log' and is now absent", *fewer)
    write_rows(tmp_path / "train.json", rows(60, seed=5, labelled=True))
    write_rows(tmp_path / "dev.json", rows(24, seed=2, labelled=True))
    recur.refused(2, "train sha256 was", *options(tmp_path, study.folder, "--resume", "--trials", 5))


def test_trials_that_diverge_are_counted_and_kept_runs_stay(recur: Recur, tiny_tnews: Path, tmp_path: Path) -> None:
    more = ("--trials", 2, "--keep-runs", "--set", f"{RATE}=1e18")
    arguments = options(tiny_tnews, tmp_path / "x", *more, ranges=(f"{LAYERS}=1..3",))
    err = recur.refused(6, "none of the 2 trials ended with a finite dev metric; trial 2: step", *arguments)
    assert "; diverged: step" in err
    assert sorted(path.name for path in (tmp_path / "x" / "trials").iterdir()) == ["001", "002"]
    recur.refused(2, "--set has this key too", *arguments, "--overwrite", "--set", f"{LAYERS}=1")


def test_a_study_without_a_trial_leaves_nothing(recur: Recur, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    recur.refused(3, "", *options(empty, tmp_path / "x"))
    assert not (tmp_path / "x").exists()
    (tmp_path / "other").write_text("")
    recur.refused(2, "has files that are not of this study", *options(empty, tmp_path))


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_a_study_that_lost_trials_does_not_start_over(
    share: float, recur: Recur, study: Study, tiny_tnews: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(study.folder, tmp_path / "x")
    content = (folder / "study.db").read_bytes()
    (folder / "study.db").write_bytes(content[: int(share * len(content))] or b"not a database" * 100)
    before = (folder / "best.yaml").read_bytes()
    line = options(tiny_tnews, folder, "--trials", TRIALS, "--resume")
    recur.refused(5, f"{folder}/study.db: cannot be read or written", *line)
    assert (folder / "best.yaml").read_bytes() == before


def test_a_resume_writes_a_missing_best_preset(recur: Recur, study: Study, tiny_tnews: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(study.folder, tmp_path / "x")
    (folder / "best.yaml").unlink()
    assert recur.ok(*options(tiny_tnews, folder, "--trials", TRIALS, "--resume"))[1] == ""
    assert (folder / "best.yaml").read_bytes() == (study.folder / "best.yaml").read_bytes()


@pytest.mark.parametrize("name", ["study.db", "study.db-journal", "trials"])
def test_no_link_in_the_folder_is_followed(name: str, recur: Recur, tiny_tnews: Path, tmp_path: Path) -> None:
    folder, target = tmp_path / "x", tmp_path / "target"
    folder.mkdir()
    target.mkdir() if name == "trials" else target.write_bytes(b"")
    (folder / "study.db").touch()
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(target)
    line = options(tiny_tnews, folder, "--trials", 1, "--resume", "--keep-runs")
    err = recur.refused(5, f"{folder / name}: cannot be written: ", *line)
    assert "it is a symbolic link, which is not followed" in err
    assert not list(target.iterdir()) if name == "trials" else target.read_bytes() == b""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("lr=1..2", "lr: unknown key; did you mean 'finetuning.learning_rate'"),
        (f"{RATE}=3e-3..1e-4", "is not KEY=LOW..HIGH"),
        (f"{RATE}=0..1:log", "with LOW above 0"),
        (f"{RATE}=1e-4..1e-3:lg", "is not KEY=LOW..HIGH"),
        (f"{RATE}=-1..1", "learning_rate: -1 should"),
        (f"{RATE}=a..b", "is not KEY=LOW..HIGH"),
        (f"{RATE}=", "is not KEY=LOW..HIGH"),
        ("finetuning.patience=1.5..3", "1.5 should be a valid integer"),
        ("pooling=max", "two values or more"),
        ("pooling=max|max", "two values or more"),
        ("pooling=max|medium", "pooling: 'medium' should be 'mean', 'max', 'first' or 'last'"),
        ("encoder=a|b", "does not say its encoder.name"),
        ("encoder.hidden_size=16..32", "--set has this key too"),
        ("runtime.seed=1..3", "is not searched"),
        ("finetuning.metric=accuracy|macro_f1", "is not searched"),
        ("finetuning.class_weights=none|balanced", "is not searched"),
        ("linear.words=null|[2,1]", "linear.words: must be [shortest, longest]"),
        ("linear.words=null|{a: 1}", "linear.words: "),
    ],
)
def test_a_wrong_range_is_refused_in_one_line(recur: Recur, tmp_path: Path, text: str, reason: str) -> None:
    err = recur.refused(2, reason, *options(tmp_path, tmp_path / "x", ranges=(text,)))
    assert err.startswith(f"recur: error: --range {text.partition('=')[0]}")
    assert not (tmp_path / "x").exists()


def test_a_range_is_read_as_it_is_written() -> None:
    assert parse_range("a.b=1e-4..3e-3:log") == Range("a.b", (1e-4, 3e-3), "log")
    assert parse_range("a=1..20") == Range("a", (1, 20), "linear")
    assert parse_range(" a = x | 2 ") == Range("a", ("x", 2), "choices")


def test_no_optuna_is_an_error(recur: Recur, tiny_tnews: Path, tmp_path: Path, without: Callable[..., None]) -> None:
    without("optuna")
    way_out = "recur tune needs optuna: pip install 'recurcli[tune]'"
    recur.refused(2, way_out, *options(tiny_tnews, tmp_path / "x"))


@pytest.mark.parametrize(("option", "value"), [("--encoding", "latin1x"), ("--seed", -1)])
def test_bad_values_name_the_option(option: str, value: object, recur: Recur, tiny_tnews: Path, tmp_path: Path) -> None:
    err = recur.refused(2, f"recur: error: {option}: ", *options(tiny_tnews, tmp_path / "x", option, value))
    assert "--set" not in err
