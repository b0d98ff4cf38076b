"""What a program or a notebook sees: the logger "recurcli", and tables of HTML."""

import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from running import Recur

import recurcli
from recurcli.commands.evaluate import evaluate
from recurcli.evaluation.predictor import Prediction
from recurcli.log import Log, Note
from recurcli.requests.evaluate import EvaluateRequest


class Kept(logging.Handler):
    """Keeps records."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def logged() -> Iterator[list[logging.LogRecord]]:
    """The records that a program gets which listens to all of the logger."""
    handler, logger = Kept(), logging.getLogger("recurcli")
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield handler.records
    logger.setLevel(logging.NOTSET)
    logger.removeHandler(handler)


EVIL = "<script>alert(1)</script>"


def test_the_logger_gets_notes_warnings_and_details_by_their_level(logged: list[logging.LogRecord]) -> None:
    Log().add(Note("done 100%"), Note("odd", "warning"), Note("chosen", "detail"))
    found = [(record.name, record.levelno, record.getMessage()) for record in logged]
    assert found == [
        ("recurcli", logging.INFO, "done 100%"),
        ("recurcli", logging.WARNING, "odd"),
        ("recurcli", logging.DEBUG, "chosen"),
    ]


def test_the_logger_gets_what_fit_tells(logged: list[logging.LogRecord]) -> None:
    texts, labels = [f"{word} {number}" for number in range(40) for word in ("good", "bad")], ["a", "b"] * 40
    recurcli.TextClassifier("linear-custom").fit(texts, labels)
    told = [record.getMessage() for record in logged if record.levelno == logging.DEBUG]
    assert any(text.startswith("linear model: ") for text in told)


def test_the_command_line_hands_nothing_to_the_logger(
    recur: Recur, trained: Path, logged: list[logging.LogRecord]
) -> None:
    recur.ok("eval", trained, "--split", "train")
    assert not logged


def test_without_a_handler_nothing_is_printed() -> None:
    code = "from recurcli.log import Log; Log().warn('odd')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


def test_a_model_and_its_results_are_tables_in_a_notebook(trained: Path) -> None:
    model = recurcli.load(trained)
    assert f"<td>{trained}</td>" in model._repr_html_() and "<th>labels</th><td>&#x27;100&#x27;," in model._repr_html_()
    [found] = model.predict(["鼠牛虎兔"])
    assert found._repr_html_().startswith(f"<table><tr><th>label</th><td>{found.label}</td></tr>")
    assert f"<td>{found.score:.3f}</td>" in found._repr_html_()
    result = evaluate(EvaluateRequest(run=trained), Log())
    accuracy = f"{result.result['metrics']['accuracy']:.4g}"
    assert f"<th>accuracy</th><td>{accuracy}</td>" in result._repr_html_()


def test_labels_of_a_stranger_are_escaped() -> None:
    table = Prediction(EVIL, 0.5, {EVIL: 0.5, "b": 0.25})._repr_html_()
    assert "<script" not in table and table.count("&lt;script&gt;") == 2
    assert table.index("script") < table.index("<th>b</th>")
