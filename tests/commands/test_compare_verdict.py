"""The verdict of `recur compare`: what it says of the tests, and that it says no more."""

import itertools
import re
from pathlib import Path
from typing import Any

import pytest
from running import Recur, result_of
from small_runs import reweighted
from test_compare import edited, variant

from recurcli.commands.comparison.verdict import verdict_on
from recurcli.evaluation.decision import Kept
from recurcli.metrics import percent
from recurcli.targets import OneLabel

Facts = dict[str, Any]


def compared(means: dict[str, float], shown: str = "", *, linear: float = 0.5, seeds: int = 2, p: float = 0.2) -> Facts:
    """A comparison of groups with these accuracies and the linear model l. The pairs `shown`, such as "ac bl", differ."""
    rows: list[Facts] = [{"name": name, "mean": mean, "n": seeds} for name, mean in {**means, "l": linear}.items()]
    tests = []
    for a, b in itertools.combinations(rows, 2):
        differs, difference = f"{a['name']}{b['name']}" in shown.split(), a["mean"] - b["mean"]
        tests.append(
            {
                "a": a["name"],
                "b": b["name"],
                "difference": difference,
                "identical_predictions": False,
                "interval": [difference - 0.04, difference + 0.04],
                "p_value": 0.001 if differs else p,
                "p_holm": 0.002 if differs else 0.6,
            }
        )
    return {"metric": "accuracy", "groups": rows[:-1], "baselines": rows[-1:], "tests": tests, "over": None}


TWO, THREE = {"a": 0.336, "b": 0.312}, {"a": 0.336, "b": 0.312, "c": 0.3}


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (
            compared(TWO, "al bl"),
            ["a 33.6, b 31.2: not shown to differ (+2.4, -1.6 – +6.4).", "Both are below the linear model, 50.0."],
        ),
        (
            compared(TWO, "ab al", linear=0.2),
            [
                "a 33.6, b 31.2: a is better (+2.4, -1.6 – +6.4).",
                "a is above the linear model, 20.0.",
                "b is not shown to differ from the linear model, 20.0.",
            ],
        ),
        (
            compared(TWO, p=0.04),
            [
                "a 33.6, b 31.2: not shown to differ (+2.4, -1.6 – +6.4, p 0.600 after Holm's correction).",
                "Neither is shown to differ from the linear model, 50.0.",
            ],
        ),
        (
            compared(THREE, "ac bc al bl cl"),
            [
                "a has the best accuracy of 3 groups, 33.6.",
                "c is shown to be worse, b is not.",
                "All are below the linear model, 50.0.",
            ],
        ),
        (
            compared(THREE, "ab ac"),
            [
                "a has the best accuracy of 3 groups, 33.6.",
                "All others are shown to be worse.",
                "None is shown to differ from the linear model, 50.0.",
            ],
        ),
        (
            compared({"a": 0.3}, "al", seeds=1),
            [
                "a 30.0, the l 50.0: the l is better (-20.0, -24.0 – -16.0).",
                "a has one seed; other seeds may give other scores.",
            ],
        ),
    ],
)
def test_says_which_groups_are_shown_to_differ(result: Facts, said: list[str]) -> None:
    assert verdict_on(result) == said


def test_a_smaller_perplexity_is_better() -> None:
    result = compared({"a": 20.0, "b": 22.5}, "ab") | {"metric": "perplexity", "baselines": []}
    result["tests"] = result["tests"][:1]
    assert verdict_on(result) == ["a 20.00, b 22.50: a is better (-2.50, -2.54 – -2.46)."]


def test_counts_the_names_of_many_groups() -> None:
    names = dict.fromkeys("abcdefghi", 0.3)
    said = verdict_on(compared(names, " ".join(f"a{name}" for name in "bcdefghi")[:-3]))
    assert said[1] == "b, c, d, e, f, g and 1 more are shown to be worse, i is not."


def test_ends_the_screen_and_begins_the_page(recur: Recur, trained: Path, tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    for rate, wrong in ((0.01, 0), (0.001, 12)):
        variant(trained, tmp_path / "runs" / str(rate), wrong=wrong, learning_rate=rate)
    said = recur.json("compare", tmp_path / "runs")["verdict"]
    assert said[0].startswith("learning_rate=0.01 ") and ": learning_rate=0.01 is better (+50.0, +" in said[0]
    assert said[-1] == "Each group has one seed; other seeds may give other scores."
    out, _ = recur.ok("compare", tmp_path / "runs", "--report", tmp_path / "page.html")
    assert out.endswith("\nverdict\n" + "".join(f"  {sentence}\n" for sentence in said))
    page = (tmp_path / "page.html").read_text()
    assert re.findall(r"<h1>.*?</h1>\s+<p[^>]*>(.*?)</p>", page) == said[:1]


def test_one_linear_model_in_all_runs_leaves_nothing_to_test_but_the_encoders(
    recur: Recur, trained: Path, tmp_path: Path
) -> None:
    def as_linear(line: Facts) -> None:
        shares = line["linear_probabilities"]
        line["prediction"] = max(shares, key=shares.__getitem__)

    for rate in (0.01, 0.001, 0.002):
        with edited(variant(trained, tmp_path / "runs" / str(rate), learning_rate=rate, change=as_linear)) as result:
            result["kept"] = reweighted(Kept(OneLabel(()), **result["kept"]), 0.0, 1.0).to_json()
    found = recur.json("compare", tmp_path / "runs")
    score = percent(result_of(trained)["parts"]["linear"]["accuracy"])
    assert found["verdict"][0] == f"All 3 runs kept the same linear model ({score}): nothing to test."
    assert (found["part"], found["same_linear_model"], len(found["groups"])) == ("encoder", True, 3)
    assert found["groups"][0]["mean"] == result_of(trained)["parts"]["encoder"]["accuracy"]
    out, _ = recur.ok("compare", tmp_path / "runs")
    assert out.startswith(f"{found['verdict'][0]}\n\ntnews, 24 dev rows  encoders alone  ")
    assert out.count("nothing to test") == 1
    with edited(tmp_path / "runs" / "0.01") as result:
        result["dev"]["loss"] += 0.01
    assert recur.json("compare", tmp_path / "runs")["part"] == "model", "another linear model that predicts the same"


@pytest.mark.parametrize(
    ("wrongs", "sentence"),
    [
        ((14, 6, 1), r"More labels help: \d+ → \d+ rows, \+54\.2 points \(\+\d+\.\d – \+\d+\.\d, p not corrected\)\."),
        (
            (3, 6, 2),
            r"More labels are not shown to help: \d+ → \d+ rows, \+4\.2 points \(-\d+\.\d – \+\d+\.\d, p not corrected\)\.",
        ),
        ((9, 1, 2), r"More labels help: .*, p not corrected\); the best is 30, \d+\.\d\."),
        ((1, 1, 14), r"More labels hurt: \d+ → \d+ rows, -54\.2 points \(-\d+\.\d – -\d+\.\d, p not corrected\)\."),
    ],
)
def test_says_whether_more_labels_help(
    wrongs: tuple[int, ...], sentence: str, recur: Recur, trained: Path, tmp_path: Path
) -> None:
    for share, wrong in zip((0.25, 0.5, 1.0), wrongs, strict=True):
        variant(trained, tmp_path / "runs" / str(share), wrong=wrong, share=share)
    said, _ = recur.json("compare", tmp_path / "runs", "--over", "data.train_share")["verdict"]
    assert re.fullmatch(sentence, said), said


def test_each_line_over_a_key_has_a_sentence(recur: Recur, trained: Path, tmp_path: Path) -> None:
    for rate, epochs, wrong in ((0.01, 2, 12), (0.01, 4, 0), (0.001, 2, 12), (0.001, "auto", 4)):
        variant(trained, tmp_path / "runs" / f"{rate}-{epochs}", wrong=wrong, learning_rate=rate, epochs=epochs)
    said, _ = recur.json("compare", tmp_path / "runs", "--over", "finetuning.epochs")["verdict"]
    assert said.startswith("learning_rate=0.01: finetuning.epochs 4 is better than 2: +50.0 points (+")
    assert said.endswith(", p not corrected).")


def test_the_best_value_of_a_key_is_named_where_it_is_no_end(recur: Recur, trained: Path, tmp_path: Path) -> None:
    for epochs, wrong in ((2, 12), (4, 0), (8, 10)):
        variant(trained, tmp_path / "runs" / str(epochs), wrong=wrong, epochs=epochs)
    said, *_ = recur.json("compare", tmp_path / "runs", "--over", "finetuning.epochs")["verdict"]
    assert said.startswith("finetuning.epochs 8 is not shown to differ from 2: +8.3 points (-")
    assert re.search(r"\); the best is 4, \d+\.\d\.$", said), said


def test_groups_that_share_the_best_score_are_all_named() -> None:
    said = verdict_on(compared({"a": 0.3, "b": 0.3, "c": 0.2}, "ac bc al bl cl"))
    assert said[0] == "a and b have the best accuracy of 3 groups, 30.0."
