"""`recur predict` from the command line: columns, forms of the output, and what a prediction depends on."""

import csv
import io
import sys
import tracemalloc
from pathlib import Path

import pytest
from predicting import Recur, as_stdin, jsonl, texts, tsv
from running import saved
from small_runs import copy_of, edit_source
from tiny_task import rows, tiny, write_rows

import recurcli
from recurcli.cli import run
from recurcli.commands.predict import predict
from recurcli.log import Log
from recurcli.requests.predict import PredictRequest


@pytest.fixture(scope="session")
def trained_pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a small AFQMC: pairs of sentences, alike or not."""
    folder = tmp_path_factory.mktemp("afqmc")
    for name, seed in (("train.json", 1), ("dev.json", 2)):
        pairs: list[dict[str, object]] = [
            {"sentence1": row["sentence"], "sentence2": row["sentence"], "label": str(number % 2)}
            for number, row in enumerate(rows(16, seed=seed, labelled=False))
        ]
        write_rows(folder / name, pairs)
    options = ["--preset", "rezero-afqmc", "--data", str(folder), "--output", str(folder / "run"), "--quiet"]
    assert run(["finetune", *options, *tiny("finetuning.max_steps=2")]) == 0
    return folder / "run"


# --- columns


@pytest.mark.parametrize(("content", "expected"), [("id\tsentence\n", "id\tsentence\tprediction\tscore\n"), ("", "")])
def test_no_rows_give_a_header_alone(content: str, expected: str, recur: Recur, trained: Path, tmp_path: Path) -> None:
    out, err = recur.ok("predict", trained, saved(tmp_path / "x.tsv", content), "--quiet")
    assert (out, err) == (expected, f"recur: warning: {tmp_path / 'x.tsv'}: the input has no rows\n")


@pytest.mark.parametrize(
    ("content", "options", "reason"),
    [
        ("id\tsentence\n1\ta\n", ["--text", "sentense"], "did you mean 'sentence'"),
        ("id\tsentence\n1\ta\n", ["--text", "3"], "has no column '3'"),
        ("id\ttrunk\tother\n1\ta\tb\n", ["--header"], "which column is the text? add --text COLUMN"),
        ("sentence\tsentence\na\tb\n", [], "has the column 'sentence' twice; give its number"),
        ("text\ttext\na\tb\n", ["--text", "text"], "has the column 'text' twice"),
        ("sentence\tx\tx\na\tb\tc\n", ["--format", "jsonl"], "has the column 'x' twice, which JSON cannot hold"),
        ("sentence\tprediction\na\tb\n", [], "has a column 'prediction', which the output adds"),
        ("sentence\treason\na\tb\n", [], "has a column 'reason'"),
        ("sentence\tlabel_1\na\tb\n", ["--top-k", "1"], "has a column 'label_1'"),
        ("sentence\tprobability_100\na\tb\n", ["--probabilities"], "has a column 'probability_100'"),
    ],
)
def test_a_column_at_fault_is_named_before_anything_is_written(
    content: str, options: list[str], reason: str, recur: Recur, trained: Path, tmp_path: Path
) -> None:
    recur.refused(3, reason, "predict", trained, saved(tmp_path / "x.tsv", content), *options, "--quiet")


@pytest.mark.parametrize("piped", [False, True])
def test_a_json_key_that_the_output_adds_is_refused_wherever_it_stands(
    piped: bool, recur: Recur, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.jsonl").write_text('{"sentence": "a"}\n' * 9 + '{"sentence": "b", "score": 1}\n')
    as_stdin(monkeypatch, (tmp_path / "x.jsonl").read_bytes())
    recur.refused(3, "has a column 'score'", "predict", trained, "-" if piped else tmp_path / "x.jsonl")


@pytest.mark.parametrize(
    ("content", "quote", "head"),
    [
        ("sentence;label\n鼠鼠;100\n", '"', "sentence;label;prediction;score"),
        ("'sentence';'label'\n'鼠; ''鼠';'100'\n", "'", "sentence;label;prediction;score"),
        ('label,sentence\n100,"鼠; 鼠"\n', '"', "label,sentence,prediction,score"),
    ],
)
def test_the_delimiter_and_the_quote_of_the_training_rows_separate_the_fields_of_a_file_like_theirs(
    content: str, quote: str, head: str, recur: Recur, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = copy_of(trained, tmp_path / "run")
    edit_source(run, format="csv", delimiter=";", quote=quote)
    out, err = recur.ok("predict", run, saved(tmp_path / "x.csv", content))
    assert (out.splitlines()[0], out.count("\n")) == (head, 2)
    assert "warning" not in err
    if ";" in head:
        as_stdin(monkeypatch, content.encode())
        piped = [line.removesuffix(";") for line in recur("predict", run)[1].splitlines()[1:]]  # without the reason
        assert piped == out.splitlines()[1:]


def test_a_piped_text_is_whole(recur: Recur, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = copy_of(trained, tmp_path / "run")
    edit_source(run, format="csv", delimiter=";", quote='"')
    as_stdin(monkeypatch, "鼠; 鼠\n".encode())
    out, _ = recur.ok("predict", run)
    assert out.split("\t")[0] == "鼠; 鼠"


def test_a_csv_in_a_pipe_is_read_as_one(recur: Recur, trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    as_stdin(monkeypatch, 'text,x\n"鼠, 鼠",1\n'.encode())
    out, _ = recur.ok("predict", trained, "--format", "jsonl")
    assert jsonl(out)[0]["text"] == "鼠, 鼠"


def test_a_model_of_one_text_refuses_pairs(recur: Recur, trained: Path, trained_pairs: Path, tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_text("sentence1\tSentence2\tx\n鼠\t虎\t\n")
    recur.refused(3, "x.tsv: holds pairs of texts", "predict", trained, tmp_path / "x.tsv")
    recur.ok("predict", trained, tmp_path / "x.tsv", "--text", "sentence1")
    (tmp_path / "x.jsonl").write_text('{"sentence1": "鼠", "sentence2": "虎"}\n')
    assert recur("predict", trained, tmp_path / "x.jsonl")[0] == 3
    assert "is not read" not in recur("predict", trained_pairs, tmp_path / "x.jsonl")[2]


def test_pairs_come_from_two_columns(recur: Recur, trained_pairs: Path, tmp_path: Path) -> None:
    found, warnings = [], []
    for number, (name, content, options) in enumerate(
        (
            ("tsv", "sentence1\tsentence2\n鼠牛\t虎兔\n", []),
            ("tsv", "sentence2\tx\tsentence1\n虎兔\t?\t鼠牛\n", []),
            ("tsv", "鼠牛\t虎兔\n", []),
            ("tsv", "a\tb\tc\n?\t鼠牛\t虎兔\n", ["--header", "--text", "b", "--pair", "3"]),
            ("jsonl", '{"sentence1": "鼠牛", "sentence2": "虎兔"}\n', ["--format", "tsv"]),
        )
    ):
        source = tmp_path / f"{number}.{name}"
        source.write_text(content)
        out, err = recur.ok("predict", trained_pairs, source, *options)
        found.append(tsv(out)[-1][-2:])
        warnings.append(err)
    assert found == [found[0]] * len(found)
    assert "taking column 1 and 2 of 2 as the texts; " in warnings[2]
    assert not any("taking" in warning for number, warning in enumerate(warnings) if number != 2)
    (tmp_path / "one.tsv").write_text("sentence1\n鼠\n")
    recur.refused(3, "one.tsv: holds single texts ('1'), but", "predict", trained_pairs, tmp_path / "one.tsv")


# --- forms of the output


def test_probabilities_and_the_best_labels_are_added(recur: Recur, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_text("鼠牛\n")
    out, _ = recur.ok("predict", trained, tmp_path / "x.tsv", "--format", "jsonl", "--probabilities", "--top-k", 2)
    (found,) = jsonl(out)
    shares = found["probabilities"]
    assert len(shares) == 15
    assert sum(shares.values()) == pytest.approx(1, abs=1e-4)
    best = sorted(shares.items(), key=lambda item: -item[1])[:2]
    assert found["top"] == [{"label": label, "score": share} for label, share in best]
    assert (found["prediction"], found["score"]) == best[0]
    (tmp_path / "h.tsv").write_text("sentence\n鼠牛\n")
    head, row = tsv(recur("predict", trained, tmp_path / "h.tsv", "--probabilities", "--top-k", 99)[1])
    assert head[:6] == ["sentence", "prediction", "score", "label_1", "score_1", "label_2"]
    assert head[-15:] == [f"probability_{label}" for label in shares]
    assert len(row) == len(head) == 3 + 2 * 15 + 15
    assert row[1:3] == row[3:5] == [best[0][0], f"{best[0][1]:.6f}"]


def test_json_goes_to_csv_and_back(recur: Recur, trained: Path, tmp_path: Path) -> None:
    lines: list[dict[str, object]] = [
        {"id": 7, "sentence": "鼠\t牛", "tags": ["a", "b"], "none": None},
        {"sentence": "龙\n蛇", "late": "x"},
    ]
    write_rows(tmp_path / "x.jsonl", lines)
    out, _ = recur.ok("predict", trained, tmp_path / "x.jsonl", "--format", "csv", "--quiet")
    head, *found = csv.reader(io.StringIO(out, newline=""))
    assert head == ["id", "sentence", "tags", "none", "late", "prediction", "score"]
    assert [row[:5] for row in found] == [["7", "鼠\t牛", '["a", "b"]', "", ""], ["", "龙\n蛇", "", "", "x"]]
    with (tmp_path / "y.csv").open("w", newline="") as file:
        csv.writer(file).writerows(row[:5] for row in [head, *found])
    out, _ = recur.ok("predict", trained, tmp_path / "y.csv", "--format", "jsonl")
    back = jsonl(out)
    assert [line["sentence"] for line in back] == ["鼠\t牛", "龙\n蛇"]
    assert list(back[0]) == ["id", "sentence", "tags", "none", "late", "prediction", "score"]


def test_a_late_key_is_not_dropped_in_silence(recur: Recur, trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    as_stdin(monkeypatch, b'{"sentence": "a"}\n' * 4096 + b'{"sentence": "b", "late": 1}\n')
    out, _ = recur.ok("predict", trained, "--format", "tsv", "--quiet")
    assert tsv(out)[-1][-1] == "has the key 'late', which the first rows lack, so it has no column"


def test_ever_new_keys_are_no_columns(recur: Recur, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text("".join(f'{{"sentence": "a", "key {n}": 1}}\n' for n in range(10_001)))
    recur.refused(3, "has more than 10,000 different keys", "predict", trained, tmp_path / "x.jsonl", "--format", "tsv")


def test_clue_rows_have_two_keys(recur: Recur, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_text("id\tsentence\n7\t鼠\nx8\t牛\n010\t虎\n")
    out, _ = recur.ok("predict", trained, tmp_path / "x.tsv", "--format", "clue")
    assert [line["id"] for line in jsonl(out)] == [0, 1, 2]
    recur.refused(2, "leave out", "predict", trained, tmp_path / "x.tsv", "--format", "clue", "--top-k", 2)


def test_strict_leaves_no_output(recur: Recur, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = b"a\n" * 5 + b"\xff\n" + b"b\n\n"
    (tmp_path / "x.tsv").write_bytes(content)
    recur.refused(3, "x.tsv:6: is not UTF-8", "predict", trained, tmp_path / "x.tsv", "--strict", "--no-header")
    as_stdin(monkeypatch, content)
    recur.refused(3, "standard input:6: ", "predict", trained, "--strict", "--no-header")


def test_faults_are_summed_up_on_stderr(recur: Recur, trained: Path, tmp_path: Path) -> None:
    _, err = recur.ok("predict", trained, saved(tmp_path / "x.tsv", b"a\n\xfe\n\xff\n"), "--quiet")
    assert f"warning: {tmp_path / 'x.tsv'}:2: is not UTF-8 at byte 1 (0xfe) (and 1 more)" in err


# --- what a prediction depends on


def test_windows_leave_no_seam(recur: Recur, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recurcli.commands.prediction.rows.WINDOW", 64)
    lines = texts(64 * 2 + 5)
    (tmp_path / "x.tsv").write_text("".join(f"{text}\n" for text in lines))
    out, _ = recur.ok("predict", trained, tmp_path / "x.tsv", "--quiet")
    found = tsv(out)
    assert [row[0] for row in found] == lines
    assert len({(text, label) for text, label, _ in found}) == len(set(lines)), "equal texts have equal labels"


class Endless(io.RawIOBase):
    """A stream of rows of 1 MB that nobody holds."""

    def __init__(self, rows: int) -> None:
        self.chunks = rows * 16

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        self.chunks -= 1
        if self.chunks < 0:
            return 0
        chunk = b"x" * (1 << 16) if self.chunks % 16 else b"x" * ((1 << 16) - 1) + b"\n"
        buffer[: len(chunk)] = chunk
        return len(chunk)


def test_memory_does_not_grow_with_the_input(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(Endless(rows=128), 1 << 16)))
    tracemalloc.start()
    predict(PredictRequest(run=trained, output=tmp_path / "out"), Log())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (tmp_path / "out").read_bytes().count(b"\n") == 128
    assert peak < 80 << 20, "128 MB went through"


def test_python_gives_the_same(recur: Recur, trained: Path, tmp_path: Path) -> None:
    lines = texts(9)
    (tmp_path / "x.tsv").write_text("".join(f"{text}\n" for text in lines))
    out, _ = recur.ok("predict", trained, tmp_path / "x.tsv", "--quiet")
    found = recurcli.load(trained).predict(lines)
    assert [(label, score) for _, label, score in tsv(out)] == [(p.label, f"{p.score:.6f}") for p in found]
