"""A prediction that was killed, stopped or damaged goes on to the same bytes, or says why it does not."""

import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cases import slow_but
from forked import Child, ForkServer
from logs import Kept, drop
from predicting import Recur, as_stdin, texts

from recurcli.commands.predict import predict
from recurcli.commands.prediction import output as prediction_output
from recurcli.commands.prediction import rows as prediction_rows
from recurcli.commands.prediction.output import PredictionProgress, journal_of, partial_of
from recurcli.log import RowsDone
from recurcli.requests.options import Inference, Precision
from recurcli.requests.predict import PredictRequest

Sources = dict[str, Path]
WINDOW = 128
DROPPED = WINDOW + 100
ROWS = WINDOW * 3 + 101
FORMS: dict[str, Callable[[int, str], str]] = {
    "tsv": lambda number, text: f"{number}\t{text}\n",
    "jsonl": lambda number, text: json.dumps({"id": number, "text": text}, ensure_ascii=False) + "\n",
}


@pytest.fixture(scope="module", autouse=True)
def small_windows_and_a_journal_after_each() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prediction_rows, "WINDOW", WINDOW)
        patch.setattr(prediction_output, "SECONDS_BETWEEN_JOURNALS", 0)
        yield


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same rows as TSV and as JSON lines, a bad one in each window."""
    folder = tmp_path_factory.mktemp("sources")
    found = {}
    for form, line in FORMS.items():
        rows = [line(number, text) for number, text in enumerate(texts(ROWS, longest=20))]
        rows[100::WINDOW] = ["\n"] * len(rows[100::WINDOW])
        found[form] = folder / f"x.{form}"
        found[form].write_text(("id\ttext\n" if form == "tsv" else "") + "".join(rows), encoding="utf-8")
    return found


@pytest.fixture(scope="module")
def whole(trained: Path, sources: Sources) -> dict[str, bytes]:
    """What runs that are left alone write, by form of the input."""
    found = {}
    for form, source in sources.items():
        output = source.with_name(f"whole-{form}")
        predict(PredictRequest(run=trained, inputs=[source], output=output), Kept())
        found[form] = output.read_bytes()
    return found


def drop_after(rows: int, request: PredictRequest) -> None:
    """Start a prediction and drop it where it stands after some rows."""
    drop(predict, request, lambda state: state.done >= rows)


def left_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize(
    ("precision", "form", "ending"),
    [
        ("fp32", "tsv", ""),
        pytest.param("bf16", "jsonl", ".csv.gz", marks=pytest.mark.slow),
        pytest.param("fp32", "jsonl", "", marks=pytest.mark.slow),
        pytest.param("bf16", "tsv", ".tsv.zst", marks=pytest.mark.slow),
    ],
)
def test_a_stop_in_any_window_resumes_byte_for_byte(
    form: str, ending: str, precision: Precision, trained: Path, sources: Sources, tmp_path: Path
) -> None:
    whole = tmp_path / f"whole{ending}"
    request = PredictRequest(
        run=trained, inputs=[sources[form]], output=whole, inference=Inference(precision=precision)
    )
    predict(request, Kept())
    for rows in (0, WINDOW - 1, WINDOW + 1, ROWS):
        output = tmp_path / f"{rows}{ending}"
        drop_after(rows, replace(request, output=output))
        predict(replace(request, output=output, resume=True), Kept())
        assert output.read_bytes() == whole.read_bytes(), f"stopped after {rows} rows"
    assert not any(name.endswith(("partial", "tmp")) for name in left_in(tmp_path))


def test_a_pipe_is_given_again_and_ids_and_notes_go_on(
    recur: Recur, trained: Path, sources: Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content, output = sources["tsv"].read_bytes(), tmp_path / "out"
    command = ["predict", trained, "--format", "clue"]
    as_stdin(monkeypatch, content)
    _, told = recur.ok(*command, "--output", tmp_path / "whole")
    as_stdin(monkeypatch, content)
    drop_after(DROPPED, PredictRequest(run=trained, output=output, format="clue"))
    as_stdin(monkeypatch, content)
    _, err = recur.ok(*command, "--output", output, "--resume")
    assert output.read_bytes() == (tmp_path / "whole").read_bytes()
    assert f"going on after row {WINDOW}\n" in err
    assert told.splitlines()[-1].replace("whole", output.name) == err.splitlines()[-1]
    assert f"{output}: {ROWS:,} rows (" in err
    notes = [line for line in told.splitlines() if "is blank (and 3 more)" in line or "cut to the" in line]
    assert len(notes) == 2
    assert all(note in err for note in notes)


def test_resume_starts_what_is_not_there_and_replaces_nothing(
    recur: Recur, trained: Path, sources: Sources, whole: dict[str, bytes], tmp_path: Path
) -> None:
    command = ["predict", trained, sources["tsv"], "--output", tmp_path / "out", "--resume", "--quiet"]
    assert recur(*command)[:2] == (0, "")
    assert (tmp_path / "out").read_bytes() == whole["tsv"]
    recur.refused(2, f"{tmp_path / 'out'}: exists already", *command)
    assert left_in(tmp_path) == {"out"}


def test_no_row_is_lost(recur: Recur, trained: Path, sources: Sources, whole: dict[str, bytes], tmp_path: Path) -> None:
    source, output = sources["tsv"], tmp_path / "out"
    drop_after(DROPPED, PredictRequest(run=trained, inputs=[source], output=output))
    kept = partial_of(output).read_bytes(), journal_of(output).read_bytes()
    recur.refused(2, f"{output}: has {WINDOW} finished rows", "predict", trained, source, "--output", output)
    assert recur("predict", tmp_path, source, "--output", output, "--overwrite")[0] == 4
    assert (partial_of(output).read_bytes(), journal_of(output).read_bytes()) == kept
    recur.ok("predict", trained, source, "--output", output, "--overwrite", "--top-k", 1)
    assert output.read_bytes() != whole["tsv"]
    assert left_in(tmp_path) == {"out"}


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--fast"], "--fast was "),
        (["--explain"], "--explain was "),
        (["--top-k", 2], "--top-k was "),
        (["--probabilities"], "--probabilities was "),
        (["--columns", "prediction"], "--columns was "),
        (["--format", "jsonl"], "--format was "),
        (["--text", "id"], "--text was "),
        (["--no-header"], "--header was "),
        (["--batch-size", 3], "--batch-size was "),
    ],
)
def test_other_options_are_refused_by_name(
    options: list[object], named: str, recur: Recur, trained: Path, sources: Sources, tmp_path: Path
) -> None:
    source, output = sources["tsv"], tmp_path / "out"
    drop_after(DROPPED, PredictRequest(run=trained, inputs=[source], output=output))
    kept = partial_of(output).read_bytes(), journal_of(output).read_bytes()
    recur.refused(2, named, "predict", trained, source, "--output", output, "--resume", "--quiet", *options)
    assert (partial_of(output).read_bytes(), journal_of(output).read_bytes()) == kept


def test_another_model_is_refused(
    recur: Recur, trained: Path, sources: Sources, tmp_path: Path, tiny_tnews: Path
) -> None:
    from tiny_task import tiny

    drop_after(DROPPED, PredictRequest(run=trained, inputs=[sources["tsv"]], output=tmp_path / "out"))
    options = ["--preset", "bilstm-tnews", "--data", tiny_tnews, "--output", tmp_path / "other", "--quiet"]
    recur.ok("finetune", *options, *tiny("finetuning.max_steps=1"))
    line = ("predict", tmp_path / "other", sources["tsv"], "--output", tmp_path / "out", "--resume")
    recur.refused(2, "cannot be resumed: the model was ", *line)


@pytest.mark.parametrize("form", slow_but(["tsv"], FORMS))
def test_another_input_may_only_go_on(form: str, recur: Recur, trained: Path, sources: Sources, tmp_path: Path) -> None:
    output, source = tmp_path / "out", tmp_path / f"x.{form}"
    content = sources[form].read_bytes()
    lines = content.splitlines(keepends=True)
    source.write_bytes(content)
    drop_after(DROPPED, PredictRequest(run=trained, inputs=[source], output=output))
    for changed in (
        content.replace("鼠".encode(), "牛".encode(), 1),
        b"".join([*lines[:2], lines[3], lines[2], *lines[4:]]),
        b"".join(lines[: WINDOW - 20]),
        b"".join([lines[0], *lines[2:]]),
    ):
        source.write_bytes(changed)
        recur.refused(3, f"in its first {WINDOW} rows", "predict", trained, source, "--output", output, "--resume")
    source.write_bytes(content.replace(b"text", b"sentence"))
    assert recur("predict", trained, source, "--output", output, "--resume")[0] in (2, 3)
    source.write_bytes(content + lines[-1])
    recur.ok("predict", trained, source, "--output", output, "--resume", "--quiet")
    recur.ok("predict", trained, source, "--output", tmp_path / "whole", "--quiet")
    assert output.read_bytes() == (tmp_path / "whole").read_bytes()


def _flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("hidden", [partial_of, journal_of])
@pytest.mark.parametrize("damage", [_flipped, Path.unlink, lambda path: os.truncate(path, 99)])
def test_what_is_damaged_is_made_anew_with_a_note(
    hidden: Any, damage: Any, recur: Recur, trained: Path, sources: Sources, whole: dict[str, bytes], tmp_path: Path
) -> None:
    output = tmp_path / "out"
    drop_after(DROPPED, PredictRequest(run=trained, inputs=[sources["tsv"]], output=output))
    damage(hidden(output))
    _, err = recur.ok("predict", trained, sources["tsv"], "--output", output, "--resume")
    assert f"warning: {output}: what is left of an earlier run is damaged; starting again" in err
    assert output.read_bytes() == whole["tsv"]
    assert left_in(tmp_path) == {"out"}


def test_an_output_that_was_to_be_replaced_is_replaced_by_the_resume(
    recur: Recur, trained: Path, sources: Sources, whole: dict[str, bytes], tmp_path: Path
) -> None:
    for rows in (0, DROPPED):
        output = tmp_path / f"{rows}"
        output.write_text("old")
        drop_after(rows, PredictRequest(run=trained, inputs=[sources["tsv"]], output=output, overwrite=True))
        assert output.read_text() == "old"
        recur.ok("predict", trained, sources["tsv"], "--output", output, "--resume", "--quiet")
        assert output.read_bytes() == whole["tsv"]
    drop_after(DROPPED, PredictRequest(run=trained, inputs=[sources["tsv"]], output=tmp_path / "new"))
    (tmp_path / "new").write_text("put there by somebody else")
    recur.refused(2, "exists already", "predict", trained, sources["tsv"], "--output", tmp_path / "new", "--resume")
    assert (tmp_path / "new").read_text() == "put there by somebody else"


def test_two_at_once_are_told_apart(recur: Recur, trained: Path, sources: Sources, tmp_path: Path) -> None:
    output = tmp_path / "out"
    tried: list[tuple[int, str, str]] = []

    def try_another(state: RowsDone) -> None:
        if state.done <= DROPPED or tried:
            return
        for option in ([], ["--resume"], ["--overwrite"]):
            tried.append(recur("predict", trained, sources["tsv"], "--output", output, *option))

    predict(PredictRequest(run=trained, inputs=[sources["tsv"]], output=output), Kept(try_another))
    assert len(tried) == 3
    for code, _, err in tried:
        assert (code, err) == (5, f"recur: error: {output}: another recur predict is writing it\n"), "it does not wait"
    assert left_in(tmp_path) == {"out"}


def test_wrong_uses_of_resume_are_refused(recur: Recur, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_text("a\n")
    os.mkfifo(tmp_path / "fifo")
    for output in ("-", "/dev/null", tmp_path / "fifo"):
        recur.refused(2, "name one with --output", "predict", trained, "--output", output, "--resume")
    recur.refused(2, "exclude each other", "predict", trained, "--output", tmp_path / "y", "--resume", "--overwrite")


def test_what_would_fail_is_gone(recur: Recur, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = b"a\n" * WINDOW + b"\xff\n"
    as_stdin(monkeypatch, content)
    recur.refused(3, f"standard input:{WINDOW + 1}: is", "predict", trained, "--output", tmp_path / "out", "--strict")
    assert recur("predict", tmp_path, "--output", tmp_path / "out")[0] == 4
    assert left_in(tmp_path) == set()


# --- in processes of their own


def start(forks: ForkServer, trained: Path, source: Path, output: Path, *more: str) -> Child:
    shims = (("keep_rows_often", {"window": WINDOW, "seconds": 0.02}),)
    return forks.start("predict", trained, source, "--output", output, *more, shims=shims)


def finish(child: Child) -> None:
    ended = child.end()
    assert ended.code == 0, ended.err


def kill(child: Child, output: Path, *, size: float, seconds: float) -> bool:
    """Kill a process some time after the unfinished output has grown to a size; whether it was still at work."""
    ended = child.wait(0)
    while not ended and (not partial_of(output).exists() or partial_of(output).stat().st_size < size):
        ended = child.wait(0.005)
    if not ended:
        time.sleep(seconds)
        child.send(signal.SIGKILL)
        ended = child.end()
    assert ended.code in (0, -signal.SIGKILL), ended.err
    return ended.code != 0


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "wanted"), [(8_000, 3), (30_000, 30)])
def test_random_kills_change_no_byte(rows: int, wanted: int, forks: ForkServer, trained: Path, tmp_path: Path) -> None:
    # An output is killed and resumed six times at most, and some kills come before any row.
    draw, source = random.Random(rows), tmp_path / "x.tsv"
    source.write_text("".join(f"{text}\n" for text in texts(rows)))
    finish(start(forks, trained, source, tmp_path / "whole"))
    whole, kills, kept = (tmp_path / "whole").read_bytes(), 0, 0
    for number in range(wanted):
        output, left = tmp_path / f"{number}", min(6, wanted - kills)
        while left and not output.exists():
            size = partial_of(output).stat().st_size if partial_of(output).exists() else 0
            more = left % 2 * draw.uniform(0.1, 0.4) * (len(whole) - size)
            child = start(forks, trained, source, output, "--resume", "--quiet")
            kills += kill(child, output, size=size + more, seconds=draw.uniform(0, 0.05))
            kept += rows_kept(output)
            left -= 1
        finish(start(forks, trained, source, output, "--resume", "--quiet"))
        assert output.read_bytes() == whole, f"after {kills} kills"
        if kills >= wanted:
            break
    assert kept, "some kills come while rows are made"
    assert not any(name.endswith(("partial", "tmp")) for name in left_in(tmp_path))
    assert kills >= wanted


def test_a_signal_keeps_what_is_done_and_says_how_to_go_on(forks: ForkServer, trained: Path, tmp_path: Path) -> None:
    source, output = tmp_path / "x.tsv", tmp_path / "out"
    source.write_text("".join(f"{text}\n" for text in texts(20_000)))
    child = start(forks, trained, source, output, "--quiet")
    deadline = time.monotonic() + 60
    while not rows_kept(output):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    child.send(signal.SIGTERM)
    ended = child.end()
    assert ended.code == 128 + signal.SIGTERM
    rows = rows_kept(output)
    assert ended.err.startswith(f"recur: stopped by SIGTERM; {rows:,} rows are done; continue with")
    assert partial_of(output).read_bytes().count(b"\n") == rows > 0


def rows_kept(output: Path) -> int:
    """The number of rows that a resume skips."""
    progress = PredictionProgress.read(journal_of(output))
    return progress.rows if progress else 0
