"""`recur check FILE --against RUN`, and the warning of `recur predict` on texts that a model is not for."""

import json
import random
import shutil
from pathlib import Path

import pytest
from running import Recur, result_of
from small_runs import copy_of, weighted

from recurcli.cli import run as run_command
from recurcli.files import extend_manifest

WORDS = {"fruit": "apple pear plum fig lime quince melon grape", "tree": "oak elm ash yew birch pine larch beech"}
COMMON, JAPANESE = "the a of with and for", "りんご なし もも いちじく かしわ にれ とねりこ いちい まつ"


def write_texts(path: Path, count: int, seed: int, *, label: bool = True, kinds: str = "fruit tree") -> Path:
    """Texts of words of fruit or trees, with the same words around them."""
    draw, lines = random.Random(seed), ["text,label" if label else "text"]
    for _ in range(count):
        kind = draw.choice(kinds.split())
        own, common = (WORDS[kind], COMMON) if kind in WORDS else (JAPANESE, JAPANESE)
        words = draw.choices(own.split(), k=4) + draw.choices(common.split(), k=4)
        draw.shuffle(words)
        lines.append(" ".join(words) + (f",{kind}" if label else ""))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def orchard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with train.csv, run (trained on it with dev rows of its own) and like.csv, rows of the same kind."""
    folder = tmp_path_factory.mktemp("orchard")
    train, dev = write_texts(folder / "train.csv", 300, 1), write_texts(folder / "dev.csv", 100, 2)
    write_texts(folder / "like.csv", 150, 3, label=False)
    arguments = ["--train", train, "--dev", dev, "--preset", "linear-custom", "--output", folder / "run"]
    assert run_command(["finetune", *map(str, arguments), "--quiet"]) == 0
    return folder


def test_texts_like_those_of_the_training_give_no_alarm(recur: Recur, orchard: Path) -> None:
    found = recur.json("check", orchard / "like.csv", "--against", orchard / "run")
    [report] = found["reports"]
    assert (report["kind"], report["differs"], report["against"], found["warnings"]) == (
        "drift",
        False,
        "the training texts",
        0,
    )
    assert (report["rows"], report["compared"]) == (150, 150) and report["p_value"] > 0.01
    assert report["unknown_ngrams"]["dev"] == result_of(orchard / "run")["linear_baseline"]["unknown_ngrams"]
    assert report["unknown_ngrams"]["now"] == pytest.approx(report["unknown_ngrams"]["dev"], abs=0.05)
    assert {own["label"] for own in report["labels"]} == {"fruit", "tree"}
    assert sum(own["now"] for own in report["labels"]) == pytest.approx(1)
    assert len(report["furthest"]) == 5 and report["findings"][0]["message"].startswith("these texts are like")


def test_other_texts_give_an_alarm_with_the_shift_of_the_labels(recur: Recur, orchard: Path, tmp_path: Path) -> None:
    trees = write_texts(tmp_path / "trees.csv", 120, 4, label=False, kinds="tree")
    [report] = recur.json("check", trees, "--against", orchard / "run")["reports"]
    assert report["differs"] is True and report["p_value"] < 0.01 and report["warnings"] == 1
    assert report["labels"][0]["now"] in (0, 1) and 0.3 < report["labels"][0]["before"] < 0.7
    out, _ = recur.ok("check", trees, "--against", orchard / "run")
    first = next(line for line in out.splitlines() if line.strip().startswith("warning"))
    assert "these texts differ from the training texts: a linear model tells" in first
    assert "100.0" in next(line for line in out.splitlines() if line.strip().startswith("tree"))


def test_texts_in_another_script_have_unknown_ngrams(recur: Recur, orchard: Path, tmp_path: Path) -> None:
    japanese = write_texts(tmp_path / "ja.csv", 100, 5, label=False, kinds="japanese")
    [report] = recur.json("check", japanese, "--against", orchard / "run")["reports"]
    assert report["warnings"] == 2 and report["unknown_ngrams"]["now"] > 0.9
    _, err = recur.ok("predict", orchard / "run", japanese, "--output", tmp_path / "o.csv")
    assert "ja.csv: " in err and "of the n-grams are unknown to the model" in err
    _, err = recur.ok("predict", orchard / "run", orchard / "like.csv", "--output", tmp_path / "p.csv")
    assert "unknown to the model" not in err


def test_predict_warns_of_unknown_ngrams_where_the_model_is_a_page(recur: Recur, orchard: Path, tmp_path: Path) -> None:
    page, japanese = tmp_path / "page.html", write_texts(tmp_path / "ja.csv", 100, 5, label=False, kinds="japanese")
    recur.ok("export", orchard / "run", "--format", "html", "--output", page)
    _, err = recur.ok("predict", page, japanese, "--output", tmp_path / "o.csv")
    own = result_of(orchard / "run")["linear_baseline"]["unknown_ngrams"]
    assert f"are unknown to the model, {own:.0%} of those of its dev rows; the labels may mean nothing here\n" in err
    _, err = recur.ok("predict", page, orchard / "like.csv", "--output", tmp_path / "p.csv")
    assert "unknown to the model" not in err


def test_few_texts_are_too_few_to_tell(recur: Recur, orchard: Path, tmp_path: Path) -> None:
    few = write_texts(tmp_path / "few.csv", 8, 6, label=False)
    [report] = recur.json("check", few, "--against", orchard / "run")["reports"]
    assert (report["differs"], report["p_value"], report["furthest"]) == (None, None, [])
    assert "too few different texts to tell: 8" in report["findings"][0]["message"]


def test_without_the_training_file_dev_rows_stand_for_it_or_data_names_it(
    recur: Recur, orchard: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(orchard, tmp_path / "moved")
    run = folder / "run"
    preset = (run / "preset.yaml").read_text().replace(str(orchard), str(tmp_path / "gone"))
    (run / "preset.yaml").write_text(preset)
    extend_manifest(run, "preset.yaml")
    out, err = recur.ok("check", folder / "like.csv", "--against", run, "--json")
    assert json.loads(out)["reports"][0]["against"] == "the dev texts" and "100 dev rows" in err
    found = recur.json("check", folder / "like.csv", "--against", run, "--data", folder / "train.csv")
    assert found["reports"][0]["against"] == "the training texts"


def test_a_run_without_texts_and_without_its_training_file_is_refused(recur: Recur, tmp_path: Path) -> None:
    train, dev = write_texts(tmp_path / "train.csv", 60, 1), write_texts(tmp_path / "dev.csv", 40, 2)
    files = ("--train", train, "--dev", dev, "--preset", "linear-custom", "--set", "finetuning.keep_texts=false")
    recur.ok("finetune", *files, "--output", tmp_path / "run")
    train.unlink()
    reason = "its training rows have changed or are gone, and it keeps no dev texts; name them with --data"
    recur.refused(3, reason, "check", dev, "--against", tmp_path / "run")


def test_a_changed_training_file_is_not_taken_for_it(recur: Recur, orchard: Path, tmp_path: Path) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    train, dev = write_texts(folder / "train.csv", 60, 1), write_texts(folder / "dev.csv", 40, 2)
    recur.ok("finetune", "--train", train, "--dev", dev, "--preset", "linear-custom", "--output", folder / "run")
    write_texts(train, 60, 9)
    assert recur.json("check", dev, "--against", folder / "run")["reports"][0]["against"] == "the dev texts"


def test_a_run_without_a_linear_model_tells_of_no_ngrams(
    recur: Recur, trained: Path, tiny_tnews: Path, tmp_path: Path
) -> None:
    encoder = weighted(trained, tmp_path / "encoder", 1.0, 0.0)
    [report] = recur.json("check", tiny_tnews / "dev.json", "--against", encoder)["reports"]
    assert "unknown_ngrams" not in report and report["compared"] > 0
    assert sum(own["before"] for own in report["labels"]) == pytest.approx(1)
    _, err = recur.ok("predict", encoder, tiny_tnews / "test.json", "--output", tmp_path / "o.jsonl")
    assert "n-grams" not in err


def test_bad_input_is_one_line(recur: Recur, orchard: Path, pretrained: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.csv").write_text("text\n")
    recur.refused(3, "empty.csv: has no rows", "check", tmp_path / "empty.csv", "--against", orchard / "run")
    recur.refused(2, "--against RUN", "check", orchard / "like.csv", "--data", orchard / "train.csv")
    (tmp_path / "bad.csv").write_text("a,b,c\n1,2,3\n")
    away = ("--data", tmp_path / "bad.csv")
    recur.refused(3, "bad.csv", "check", orchard / "like.csv", "--against", orchard / "run", *away)
    recur.refused(2, "name a PATH", "check", "--against", orchard / "run")
    recur.refused(4, "classes", "check", orchard / "like.csv", "--against", copy_of(pretrained, tmp_path / "lm"))
