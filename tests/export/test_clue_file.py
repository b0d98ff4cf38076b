"""Each reason for which a file of CLUE predictions would score 0 is named, with its line."""

import io
import json
from collections.abc import Callable

import pytest

from recurcli.data.tasks import TASKS, Layout, Task
from recurcli.export.clue import Finding, submission_bytes, validate_file

AFQMC, TNEWS, CMNLI = "afqmc_predict.json", "tnews11_predict.json", "cmnli_predict.json"
CODES = TASKS["tnews"].labels


def afqmc(change: Callable[[int], object] = lambda row: None, rows: int = 3_861) -> bytes:
    """A file as it should be; `change(row)` gives another object or line for a row, or None to leave it."""
    lines = []
    for row in range(rows):
        other = change(row)
        good = {"id": row, "label": str(row % 2)}
        lines.append(other if isinstance(other, str) else json.dumps(good if other is None else other))
    return "".join(line + "\n" for line in lines).encode()


def errors(found: list[Finding]) -> list[str]:
    return [finding.message for finding in found if finding.level == "error"]


def only_error(name: str, content: bytes) -> str:
    [message] = errors(validate_file(name, content))
    assert message.isprintable()
    return message


@pytest.mark.parametrize("task", [task for task in TASKS.values() if task.submissions], ids=lambda task: task.name)
def test_finds_nothing_in_what_is_written_here(task: Task) -> None:
    for split, name in task.submissions.items():
        rows = task.rows[split]
        content = submission_bytes([task.labels[row % len(task.labels)] for row in range(rows)])
        assert validate_file(name, content) == validate_file(name, io.BytesIO(content)) == []


def test_writes_the_lines_that_clue_reads() -> None:
    assert submission_bytes(["102", "100"]) == b'{"id": 0, "label": "102"}\n{"id": 1, "label": "100"}\n'


@pytest.mark.parametrize(
    ("name", "way_out"),
    [
        ("tnews_predict.json", "did you mean 'tnews11_predict.json'?"),
        ("afqcm_predict.json", "did you mean 'afqmc_predict.json'?"),
        ("wsc_predict.json", "did you mean 'cluewsc1"),
        ("ocnli_predict.json", "did you mean 'ocnli_50k_predict.json'?"),
        ("answers.json", "; known: afqmc_predict.json"),
    ],
)
def test_a_name_that_clue_does_not_read_gets_the_right_one(name: str, way_out: str) -> None:
    [message] = [text for text in errors(validate_file(name, afqmc())) if "CLUE reads no file" in text]
    assert message.startswith(f"{name}: ")
    assert way_out in message


def test_a_name_outside_the_table_that_clue_reads_is_not_called_wrong() -> None:
    [finding] = validate_file("c311_predict.json", b"{}")
    assert (finding.level, "not checked" in finding.message) == ("information", True)


def test_a_new_row_of_the_table_is_checked_without_new_code(monkeypatch: pytest.MonkeyPatch) -> None:
    task = Task(
        name="cluewsc",
        labels=("true", "false"),
        layouts=(Layout(files={"test": "test.json", "test1.0": "test1.0.json"}),),
        rows={"test": 2_574, "test1.0": 290},
        submissions={"test": "cluewsc11_predict.json", "test1.0": "cluewsc10_predict.json"},
    )
    monkeypatch.setitem(TASKS, "cluewsc", task)
    content = submission_bytes(["true", "false"] * 145)
    assert validate_file("cluewsc10_predict.json", content) == []
    message = only_error("cluewsc11_predict.json", content)
    assert "has 290 rows; test.json has 2,574" in message


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{'id': 6, 'label': '0'}", "write it with json.dumps, not str"),
        ('{"id": 6, "label": "0"} {"id": 7, "label": "0"}', "more than one JSON value"),
        ('{"id": 6, "label": "0"', "(it seems to be cut)"),
        ('["0"]', "holds a list, not an object"),
        ('"0"', "holds a string, not an object"),
        ('{"id": 6, "label": NaN}', "holds NaN"),
        (r'{"id": 6, "label": "\ud800"}', "holds a lone surrogate"),
        ('{"id": 6, "label": "0", "label": "1"}', "has the key 'label' twice"),
        ("[" * 100_000, "is nested too deeply"),
        ('{"id": 6, "label": ' + "9" * 5_000 + "}", "holds a number with too many digits"),
        ("\x1b[31m", r"expected one JSON object a line: \x1b[31m"),
        ("", "is blank"),
        (" \t", "is blank"),
        ('\ufeff{"id": 6, "label": "0"}', "BOM"),
        ('{"id": 6, "label": "0"}\r', "ends in CR LF"),
        ('{"id": 6}', "has no 'label'"),
        ('{"id": 6, "label": "\x1b[2J"}', "is not JSON"),
        ('{"id": 6, "label": "\\u001b[2J\u202e"}', r"label '\x1b[2J\u202e' is not one of the 2 labels of AFQMC"),
        ('{"id": 6, "label": " 1"}', "is not one of the 2 labels of AFQMC: 0, 1"),
        ('{"label": "0"}', "the id is not the row number 6"),
        ('{"id": 7, "label": "0"}', "the id is not the row number 6"),
        ('{"id": "6", "label": "0"}', "the id is not the row number 6"),
        ('{"id": true, "label": "0"}', "the id is not the row number 6"),
        ('{"id": null, "label": "0"}', "the id is not the row number 6"),
    ],
)
def test_a_line_that_would_score_0_is_named(line: str, reason: str) -> None:
    message = errors(validate_file(AFQMC, afqmc(lambda row: line if row == 6 else None)))[0]
    assert message.startswith("afqmc_predict.json line 7: ")
    assert reason in message
    assert message.isprintable()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda row: row % 32, "line 33: the id is not the row number 32"),
        (lambda row: 3_860 - row, "line 1: the id is not the row number 0"),
    ],
)
def test_ids_that_are_not_the_row_numbers(change: Callable[[int], object], reason: str) -> None:
    assert reason in only_error(AFQMC, afqmc(lambda row: {"id": change(row), "label": str(row % 2)}))


@pytest.mark.parametrize("label", [0, ["0"], {"0": 1}, None])
def test_a_label_that_is_no_string_is_counted(label: object) -> None:
    found = errors(validate_file(AFQMC, afqmc(lambda row: {"id": row, "label": label} if row in (3, 5) else None)))
    assert found[0] == "afqmc_predict.json line 4: label is not a string (and 1 more)"


def test_ids_may_begin_at_1_as_in_the_test_file_of_csl_alone() -> None:
    rows = afqmc(lambda row: {"id": row + 1, "label": str(row % 2)}, rows=3_000)
    assert validate_file("csl_predict.json", rows) == []
    assert any("line 1: the id is not the row number 0" in message for message in errors(validate_file(AFQMC, rows)))


@pytest.mark.parametrize("key", ["id", "label", "other"])
def test_values_nested_to_any_depth_are_survived(key: str) -> None:
    for depth in [*range(900, 1_000, 5), 100_000]:
        line = f'{{"id": 0, "label": "0", "{key}": {"[" * depth}{"]" * depth}}}'
        assert errors(validate_file(AFQMC, line.encode()))


def test_class_indexes_are_shown_beside_the_labels() -> None:
    message = only_error(TNEWS, submission_bytes([str(row % 15) for row in range(10_000)]))
    assert "line 1: label '0' is not one of the 15 labels of TNEWS: 100, 101, " in message
    assert message.endswith("(and 9,999 more)")


@pytest.mark.parametrize("rows", [0, 1, 3_860, 3_862, 4_316])
def test_a_wrong_count(rows: int) -> None:
    message = only_error(AFQMC, afqmc(rows=rows))
    assert f"has {rows:,} rows; test.json has 3,861, and each needs its line" in message


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (json.dumps([{"id": 0, "label": "0"}]).encode(), "line 1: holds a list, not an object"),
        (afqmc().decode().encode("utf-16"), "line 1: is not UTF-8"),
        (afqmc().replace(b'"label": "1"', b'"label": "\xb5\xe7"', 1), "line 2: is not UTF-8"),
        (afqmc().replace(b"\n", b"\r"), "line 1: holds more than one JSON value"),
    ],
)
def test_a_file_of_another_form(content: bytes, reason: str) -> None:
    assert any(reason in message for message in errors(validate_file(AFQMC, content)))


@pytest.mark.parametrize(
    ("content", "level", "reason"),
    [
        (afqmc()[:-1], "warning", "the last line has no newline at its end"),
        (submission_bytes(["0"] * 3_861), "warning", "every row has the label '0'"),
        (
            afqmc(lambda row: {"id": row, "label": str(row % 2), "label_desc": "x"}),
            "information",
            "has the key 'label_desc'",
        ),
    ],
)
def test_what_clue_takes_is_no_error(content: bytes, level: str, reason: str) -> None:
    [finding] = validate_file(AFQMC, content)
    assert (finding.level, reason in finding.message) == (level, True)


def test_errors_come_before_warnings() -> None:
    found = validate_file(AFQMC, submission_bytes(["0"] * 12)[:-1])
    assert [finding.level for finding in found] == ["error", "warning", "warning"]


def test_a_file_too_large_is_not_read_to_its_end() -> None:
    class Endless(io.RawIOBase):
        def readable(self) -> bool:
            return True

        def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
            buffer[:] = b"\n" * len(buffer)
            return len(buffer)

    with io.BufferedReader(Endless()) as endless:
        assert "is larger than 8,388,608 bytes" in errors(validate_file(AFQMC, endless))[0]
