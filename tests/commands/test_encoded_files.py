"""`--encoding` from training to predictions: the run keeps it for its own data, and for files that are not UTF-8."""

from pathlib import Path
from typing import Any

import pytest
from predicting import Recur, as_stdin
from tiny_task import rows, tiny

from recurcli.cli import run as run_command
from recurcli.commands.training.resume import preset_facts
from recurcli.evaluation.predictor import Predictor

SETTINGS = tiny("tokenizer.kind=char", "finetuning.linear_baseline=false", "ensemble=null", "finetuning.epochs=1")


@pytest.fixture(scope="module")
def encoded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a.csv and ft.txt of the same 60 rows in GB 18030, and the run of each."""
    folder = tmp_path_factory.mktemp("encoded")
    made = rows(60, seed=0, labelled=True)
    table = "".join(f"{row['sentence']},{row['label']}\n" for row in made)
    (folder / "a.csv").write_bytes(f"text,label\n{table}".encode("gb18030"))
    lines = "".join(f"__label__{row['label']} {row['sentence']}\n" for row in made)
    (folder / "ft.txt").write_bytes(lines.encode("gb18030"))
    for name in ("a.csv", "ft.txt"):
        where = ["--data", str(folder / name), "--output", str(folder / f"{name}-run"), "--quiet"]
        line = ["finetune", "--preset", "starsaber-custom", "--encoding", "gb18030", *where, *SETTINGS]
        assert run_command(line) == 0
    return folder


def test_a_run_keeps_the_encoding_of_its_data(recur: Recur, encoded: Path) -> None:
    scores = []
    for name in ("a.csv", "ft.txt"):
        for options in ([], ["--data", encoded / name, "--split", "dev"]):
            scores.append(recur.json("eval", encoded / f"{name}-run", *options)["metrics"])
    assert scores == scores[:1] * 4, "fastText's lines are the rows of the table"
    utf8 = encoded / "utf8.csv"
    utf8.write_text((encoded / "a.csv").read_text(encoding="gb18030"), encoding="utf-8")
    forced = ("eval", encoded / "a.csv-run", "--data", utf8, "--encoding", "gb18030")
    recur.refused(3, "utf8.csv: is read as gb18030, but is UTF-8", *forced)
    for name, is_its in (("a.csv", True), ("utf8.csv", False)):
        _, err = recur.ok("eval", encoded / "a.csv-run", "--data", encoded / name)
        assert (f"{name}: read as gb18030, the encoding of the training rows" in err) == is_its


def test_predict_reads_a_file_in_the_encoding_of_the_run(recur: Recur, encoded: Path) -> None:
    run, source, utf8 = encoded / "a.csv-run", encoded / "a.csv", encoded / "also.csv"
    text = source.read_text(encoding="gb18030")
    utf8.write_text(text, encoding="utf-8")
    out, err = recur.ok("predict", run, source)
    assert f"{source}: read as gb18030, the encoding of the training rows" in err
    assert [line.split(",")[0] for line in out.splitlines()] == [line.split(",")[0] for line in text.splitlines()]
    both, err = recur.ok("predict", run, utf8, source)
    assert both == out + "".join(out.splitlines(keepends=True)[1:]), "each file has its own encoding"
    assert f"{source}: read as gb18030" in err and "also.csv" not in err.split("read as")[1]
    assert "read as" not in recur.ok("predict", run, utf8)[1]


def test_predict_reads_a_pipe_as_utf8(recur: Recur, encoded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    as_stdin(monkeypatch, (encoded / "a.csv").read_bytes())
    recur.refused(3, "is not UTF-8", "predict", encoded / "a.csv-run", "--strict", "--quiet")


def test_an_encoding_that_is_named_decides(recur: Recur, encoded: Path) -> None:
    run, source = encoded / "a.csv-run", encoded / "a.csv"
    out, err = recur.ok("predict", run, source, "--encoding", "gb18030", "--quiet")
    assert err == ""
    fasttext = recur("predict", run, encoded / "ft.txt", "--encoding", "gb18030", "--format", "csv", "--quiet")[1]
    assert [line.split(",")[2:] for line in fasttext.splitlines()] == [line.split(",")[2:] for line in out.splitlines()]
    one = encoded / "one.csv"
    one.write_bytes("text\n鼠牛\n".encode("gb18030"))
    err = recur.ok("predict", run, one, "--encoding", "utf-8")[1]
    assert "one.csv:2: is not UTF-8 at byte 1 (0xca)" in err and "the file may be gb18030" in err
    strict = ("--encoding", "utf-8", "--strict", "--quiet")
    recur.refused(3, "the file may be gb18030", "predict", run, one, *strict)


def test_an_encoding_by_another_name_is_the_same_run() -> None:
    first, again, other = (
        preset_facts({"encoder": {"name": "starsaber"}, "data": {"encoding": name}}, "finetuning")
        for name in ("latin-1", "ISO-8859-1", "gb18030")
    )
    assert first == again != other


def test_a_resume_needs_the_same_encoding(recur: Recur, encoded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, output = encoded / "a.csv-run", encoded / "out.csv"
    big = encoded / "big.csv"
    big.write_bytes("text\n".encode("utf-16") + "鼠牛虎\n".encode("utf-16-le") * 9)
    line = ["predict", run, big, "--output", output, "--quiet", "--encoding"]

    logits_of_pairs, calls = Predictor.logits_of_pairs, iter((1,))

    def once(self: Predictor, *arguments: Any, **options: Any) -> object:
        if not next(calls, 0):
            raise KeyboardInterrupt
        return logits_of_pairs(self, *arguments, **options)

    monkeypatch.setattr("recurcli.commands.prediction.rows.WINDOW", 4)
    with monkeypatch.context() as patch:
        patch.setattr(Predictor, "logits_of_pairs", once)
        assert recur(*line, "utf-16")[0] == 130
    recur.refused(2, "--encoding was 'utf-16' and is now 'utf-16-le'", *line, "utf-16-le", "--resume")
    recur.ok(*line, "UTF16", "--resume")
    resumed = output.read_bytes()
    recur.ok(*line, "utf-16", "--overwrite")
    assert output.read_bytes() == resumed
    assert resumed.decode().count("\n") == 10


def test_an_unknown_encoding_is_a_usage_error(recur: Recur, encoded: Path) -> None:
    run, rows = encoded / "a.csv-run", encoded / "a.csv"
    training = ("finetune", "--preset", "starsaber-custom", "--data", rows)
    for line in (training, ("predict", run), ("eval", run, "--data", rows), ("check", rows)):
        recur.refused(2, "'latin1x' is not known", *line, "--encoding", "latin1x")
