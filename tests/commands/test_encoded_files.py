"""`--encoding` from training to predictions: the run keeps it for its own data, an input of `predict` is UTF-8 unless named."""

import json
from pathlib import Path

import pytest
from predicting import Recur
from tiny_task import rows, tiny

from recurcli.commands.training.resume import preset_facts

SETTINGS = tiny("tokenizer.kind=char", "finetuning.linear_baseline=false", "ensemble=null", "finetuning.epochs=1")


@pytest.fixture(scope="module")
def encoded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a.csv and ft.txt of the same 60 rows in GB 18030, and the run of each."""
    from recurcli.cli import run

    folder = tmp_path_factory.mktemp("encoded")
    made = rows(60, seed=0, labelled=True)
    table = "".join(f"{row['sentence']},{row['label']}\n" for row in made)
    (folder / "a.csv").write_bytes(f"text,label\n{table}".encode("gb18030"))
    lines = "".join(f"__label__{row['label']} {row['sentence']}\n" for row in made)
    (folder / "ft.txt").write_bytes(lines.encode("gb18030"))
    for name in ("a.csv", "ft.txt"):
        where = ["--data", str(folder / name), "--output", str(folder / f"{name}-run"), "--quiet"]
        assert run(["finetune", "--preset", "starsaber-custom", "--encoding", "gb18030", *where, *SETTINGS]) == 0
    return folder


def test_a_run_keeps_the_encoding_of_its_data(recur: Recur, encoded: Path) -> None:
    scores = []
    for name in ("a.csv", "ft.txt"):
        for options in ([], ["--data", encoded / name, "--split", "dev"]):
            code, out, err = recur("eval", encoded / f"{name}-run", *options, "--json")
            assert code == 0, err
            scores.append(json.loads(out)["metrics"])
    assert scores == scores[:1] * 4, "fastText's lines are the rows of the table"
    utf8 = encoded / "utf8.csv"
    utf8.write_text((encoded / "a.csv").read_text(encoding="gb18030"), encoding="utf-8")
    code, _, err = recur("eval", encoded / "a.csv-run", "--data", utf8)
    assert (code, "utf8.csv: is read as gb18030, but is UTF-8: --encoding utf-8" in err) == (3, True)
    assert recur("eval", encoded / "a.csv-run", "--data", utf8, "--encoding", "utf-8")[0] == 0


def test_an_input_of_predict_is_utf8_unless_named(recur: Recur, encoded: Path) -> None:
    run, source = encoded / "a.csv-run", encoded / "a.csv"
    code, out, err = recur("predict", run, source, "--encoding", "gb18030", "--quiet")
    assert (code, err) == (0, "")
    assert [line.split(",")[0] for line in out.splitlines()] == [
        line.split(",")[0] for line in source.read_text(encoding="gb18030").splitlines()
    ]
    fasttext = recur("predict", run, encoded / "ft.txt", "--encoding", "gb18030", "--format", "csv", "--quiet")[1]
    assert [line.split(",")[2:] for line in fasttext.splitlines()] == [line.split(",")[2:] for line in out.splitlines()]
    one = encoded / "one.csv"
    one.write_bytes("text\n鼠牛\n".encode("gb18030"))
    code, out, err = recur("predict", run, one)
    assert "one.csv:2: is not UTF-8 at byte 1 (0xca); labelled from the readable part; the file may be gb18030" in err
    code, out, err = recur("predict", run, one, "--strict", "--quiet")
    assert (code, out, "; the file may be gb18030: --encoding gb18030\n" in err) == (3, "", True), err


def test_an_encoding_by_another_name_is_the_same_run() -> None:
    first, again, other = (
        preset_facts({"encoder": {"name": "starsaber"}, "data": {"encoding": name}}, "finetuning")
        for name in ("latin-1", "ISO-8859-1", "gb18030")
    )
    assert first == again != other


def test_a_resume_needs_the_same_encoding(recur: Recur, encoded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, output = encoded / "a.csv-run", encoded / "out.csv"
    big = encoded / "big.csv"
    big.write_bytes("text\n".encode("utf-16") + "鼠牛虎\n".encode("utf-16-le") * 6000)
    line = ["predict", run, big, "--output", output, "--quiet", "--encoding"]

    def stopped(self: object, *arguments: object, **options: object) -> object:
        raise KeyboardInterrupt

    from recurcli.evaluation.inference import Predictor

    logits_of_pairs, calls = Predictor.logits_of_pairs, []

    def once(self: Predictor, *arguments: object, **options: object) -> object:
        calls.append(1)
        return (logits_of_pairs if len(calls) == 1 else stopped)(self, *arguments, **options)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(Predictor, "logits_of_pairs", once)
        assert recur(*line, "utf-16")[0] == 130
    code, _, err = recur(*line, "utf-16-le", "--resume")
    assert (code, "--encoding was 'utf-16' and is now 'utf-16-le'" in err) == (2, True), err
    assert recur(*line, "UTF16", "--resume")[0] == 0
    resumed = output.read_bytes()
    assert recur(*line, "utf-16", "--overwrite")[0] == 0
    assert output.read_bytes() == resumed
    assert resumed.decode().count("\n") == 6001


@pytest.mark.parametrize(
    "line",
    [["finetune", "--preset", "starsaber-custom", "--data", "x"], ["predict", "x"], ["eval", "x"], ["check", "x"]],
)
def test_an_unknown_encoding_is_a_usage_error(line: list[str], recur: Recur, tmp_path: Path, encoded: Path) -> None:
    (tmp_path / "x").write_text("text\tlabel\n")
    line = [str(tmp_path / part) if part == "x" and line[0] in ("check",) else part for part in line]
    if line[0] in ("eval", "predict"):
        line = [line[0], str(encoded / "a.csv-run"), *(["--data", str(tmp_path / "x")] if line[0] == "eval" else [])]
    code, out, err = recur(*line, "--encoding", "latin1x")
    assert (code, out, "'latin1x' is not known; usual ones are utf-8" in err) == (2, "", True), err
