"""Each reason for which a file of CLUE predictions would score 0 is named, with its line and the way out."""

import io
import json
from collections.abc import Callable, Sequence

import pytest

from recurcli.data.tasks import TASKS, Layout, Task
from recurcli.export.clue import submission_bytes, validate_file
from recurcli.findings import Finding

AFQMC, TNEWS, CMNLI = "afqmc_predict.json", "tnews11_predict.json", "cmnli_predict.json"
CODES = TASKS["tnews"].labels


def afqmc_lines(change: Callable[[int], object] | None = None, rows: int = 3_861) -> list[str]:
    """Lines as they should be; `change(row)` gives another object for a row, or None to leave it."""
    lines = []
    for row in range(rows):
        other = change(row) if change else None
        lines.append(json.dumps({"id": row, "label": str(row % 2)} if other is None else other))
    return lines


def joined(lines: Sequence[str], end: str = "\n") -> bytes:
    return "".join(line + end for line in lines).encode()


def errors(found: list[Finding]) -> list[str]:
    return [finding.message for finding in found if finding.level == "error"]


def only_error(name: str, content: bytes) -> str:
    messages = errors(validate_file(name, content))
    assert len(messages) == 1, messages
    return messages[0]


@pytest.mark.parametrize("task", [task for task in TASKS.values() if task.submissions], ids=lambda task: task.name)
def test_finds_nothing_in_what_is_written_here(task: Task) -> None:
    for split, name in task.submissions.items():
        rows = task.rows[split]
        content = submission_bytes([task.labels[row % len(task.labels)] for row in range(rows)])
        assert validate_file(name, content) == []
        assert validate_file(name, io.BytesIO(content)) == []


def test_writes_the_lines_that_clue_reads() -> None:
    assert submission_bytes(["102", "100"]) == b'{"id": 0, "label": "102"}\n{"id": 1, "label": "100"}\n'


@pytest.mark.parametrize(
    ("name", "way_out"),
    [
        ("tnews_predict.json", "tnews11_predict.json (predictions for test.json) or tnews10_predict.json"),
        ("wsc_predict.json", "which version of the test set it is for; name it cluewsc11_predict.json (predictions"),
        (
            "cluewsc2020_predict.json",
            "name it cluewsc11_predict.json (predictions for test.json) or cluewsc10_predict.json",
        ),
        ("ocnli_predict.json", "name it ocnli_50k_predict.json"),
        ("CMNLI.json", "name it cmnli_predict.json"),
        ("afqcm_predict.json", "did you mean 'afqmc_predict.json'?"),
    ],
)
def test_a_name_that_clue_does_not_read_gets_the_right_one(name: str, way_out: str) -> None:
    [message] = [text for text in errors(validate_file(name, joined(afqmc_lines()))) if "CLUE reads no file" in text]
    assert message.startswith(f"{name}: CLUE reads no file named '{name}': it would score 0")
    assert way_out in message


def test_an_unknown_name_is_resolved_by_its_rows() -> None:
    message = errors(validate_file("afqmc-final.json", joined(afqmc_lines())))[0]
    assert "its 3,861 rows are those of test.json, so name it afqmc_predict.json" in message


def test_a_name_outside_the_table_that_clue_reads_is_not_called_wrong() -> None:
    [finding] = validate_file("c311_predict.json", b"{}")
    assert finding.level == "information"
    assert "not checked" in finding.message


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
    assert "290 rows are those of test1.0.json, whose predictions are named cluewsc10_predict.json" in message
    message = only_error("wsc_predict.json", content)
    assert "its 290 rows are those of test1.0.json, so name it cluewsc10_predict.json" in message
    found = errors(validate_file("cluewsc10_predict.json", content.replace(b'"true"', b"true")))
    assert found == ['cluewsc10_predict.json line 1: label true is not a string; write "true" (and 144 more)']


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
    ],
)
def test_a_line_that_is_not_one_json_object(line: str, reason: str) -> None:
    lines = afqmc_lines()
    lines[6] = line
    message = only_error(AFQMC, joined(lines))
    assert message.startswith("afqmc_predict.json line 7: ")
    assert reason in message
    assert "\x1b" not in message


def test_a_json_array_instead_of_lines() -> None:
    content = json.dumps([{"id": 0, "label": "0"}]).encode()
    assert "is one JSON array; write each of its objects on a separate line" in errors(validate_file(AFQMC, content))[0]


def test_a_line_that_is_not_utf_8() -> None:
    content = joined(afqmc_lines()).replace(b'"label": "1"', b'"label": "\xb5\xe7"', 1)
    assert only_error(AFQMC, content) == "afqmc_predict.json line 2: is not UTF-8; save the file as UTF-8"


def test_a_label_that_is_missing() -> None:
    message = only_error(AFQMC, joined(afqmc_lines(lambda row: {"id": row} if row in (2, 4, 5) else None)))
    assert message == "afqmc_predict.json line 3: has no 'label', the one key that CLUE reads (and 2 more)"


def test_a_label_that_is_no_string() -> None:
    message = only_error(AFQMC, joined(afqmc_lines(lambda row: {"id": row, "label": row % 2})))
    assert message == 'afqmc_predict.json line 1: label 0 is not a string; write "0" (and 3,860 more)'


@pytest.mark.parametrize(("label", "shown"), [(["0"], "[…]"), ({"0": 1}, "{…}"), (None, "null")])
def test_a_label_that_is_no_text_at_all(label: object, shown: str) -> None:
    found = errors(
        validate_file(AFQMC, joined(afqmc_lines(lambda row: {"id": row, "label": label} if row == 3 else None)))
    )
    assert found[0] == f"afqmc_predict.json line 4: label {shown} is not a string"


@pytest.mark.parametrize("key", ["id", "label", "other"])
def test_values_nested_to_any_depth_are_survived(key: str) -> None:
    for depth in [*range(900, 1_000, 5), 100_000]:
        line = f'{{"id": 0, "label": "0", "{key}": {"[" * depth}{"]" * depth}}}'
        assert errors(validate_file(AFQMC, line.encode()))


def test_a_label_that_the_task_does_not_have() -> None:
    labels = [CODES[row % 15] for row in range(10_000)]
    labels[6] = "105"
    message = only_error(TNEWS, submission_bytes(labels))
    assert message.startswith(
        "tnews11_predict.json line 7: label '105' is not one of the 15 labels of TNEWS: 100 101 102"
    )


@pytest.mark.parametrize("label", ["Neutral", " neutral", "neutral\n"])
def test_a_label_of_other_case_or_with_spaces(label: str) -> None:
    labels = [*(["neutral", "entailment"] * 6_940)[1:], label]
    message = only_error(CMNLI, submission_bytes(labels))
    assert message.startswith("cmnli_predict.json line 13880: label '")
    assert message.endswith("is not one of the 3 labels of CMNLI; did you mean 'neutral'?")


def test_class_indexes_are_recognised() -> None:
    message = only_error(TNEWS, submission_bytes([str(row % 15) for row in range(10_000)]))
    assert "these look like class indexes 0–14; TNEWS wants 100–116" in message
    assert message.endswith("(and 9,999 more)")
    message = only_error(CMNLI, submission_bytes([str(row % 3) for row in range(13_880)]))
    assert "class indexes 0–2; CMNLI wants contradiction, entailment, neutral" in message


def test_class_indexes_written_as_numbers_are_recognised() -> None:
    content = joined([json.dumps({"id": row, "label": row % 15}) for row in range(10_000)])
    not_a_string, indexes = errors(validate_file(TNEWS, content))
    assert "is not a string" in not_a_string
    assert "these look like class indexes 0–14" in indexes


def test_a_label_with_a_terminal_escape_is_shown_and_not_obeyed() -> None:
    labels = [*(["0", "1"] * 1_930), "\x1b[2J\u202e"]
    message = only_error(AFQMC, submission_bytes(labels))
    assert r"label '\x1b[2J\u202e'" in message


@pytest.mark.parametrize("rows", [0, 1, 3_860, 3_862])
def test_a_wrong_count(rows: int) -> None:
    message = only_error(AFQMC, joined(afqmc_lines(rows=rows)))
    assert message == f"afqmc_predict.json: has {rows:,} rows; test.json has 3,861, and each needs its line"


def test_the_rows_of_the_dev_set_are_recognised() -> None:
    assert "4,316 rows are those of the dev set" in only_error(AFQMC, joined(afqmc_lines(rows=4_316)))


@pytest.mark.parametrize("blank", ["", "  ", "\t"])
def test_blank_lines(blank: str) -> None:
    lines = afqmc_lines()
    message = only_error(AFQMC, joined([*lines[:6], blank, *lines[6:], blank]))
    assert message.startswith("afqmc_predict.json line 7: is blank")
    assert message.endswith("(and 1 more)")


def test_a_byte_order_mark() -> None:
    message = only_error(AFQMC, b"\xef\xbb\xbf" + joined(afqmc_lines()))
    assert message == "afqmc_predict.json line 1: begins with a byte-order mark; save it as UTF-8 without one"


def test_utf_16() -> None:
    found = errors(validate_file(AFQMC, "\n".join(afqmc_lines()).encode("utf-16")))
    assert found[0] == "afqmc_predict.json: is UTF-16; save it as UTF-8 without a byte-order mark"


def test_lines_that_end_in_cr_lf() -> None:
    message = only_error(AFQMC, joined(afqmc_lines(), end="\r\n"))
    assert message.startswith("afqmc_predict.json line 1: ends in CR LF")
    assert message.endswith("(and 3,860 more)")


def test_lines_that_end_in_cr_alone() -> None:
    found = errors(validate_file(AFQMC, joined(afqmc_lines(), end="\r")))
    assert "line 1: holds more than one JSON value" in found[0]


def test_a_last_line_without_its_end_is_a_warning() -> None:
    [finding] = validate_file(AFQMC, joined(afqmc_lines())[:-1])
    assert finding == ("warning", "afqmc_predict.json: the last line has no newline at its end")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            lambda row: row % 32,
            "line 33: id is 0 again: ids seem to be numbered per batch; number all rows from 0 to 3,860",
        ),
        (lambda row: 0, "line 2: id is 0 again: ids seem to be numbered per batch"),
        (lambda row: row + 1, "line 1: ids begin at 1; they begin at 0"),
        (lambda row: 3_860 - row, "line 1: id is 3860: the ids are complete but out of order; sort the lines"),
        (lambda row: 7 if row == 9 else row, "line 10: id is 7, the row number is 9"),
        (lambda row: str(row), 'line 1: id "0" is not a number; the row number is 0'),
        (lambda row: bool(row) if row < 2 else row, "line 1: id false is not a number"),
        (lambda row: None if row == 3 else row, "line 4: id null is not a number; the row number is 3"),
    ],
)
def test_ids_that_are_not_the_row_numbers(change: Callable[[int], object], reason: str) -> None:
    lines = afqmc_lines(lambda row: {"id": change(row), "label": str(row % 2)})
    assert reason in only_error(AFQMC, joined(lines))


def test_an_id_that_is_missing() -> None:
    lines = afqmc_lines(lambda row: {"label": "0"} if row == 8 else None)
    assert only_error(AFQMC, joined(lines)) == "afqmc_predict.json line 9: has no 'id'; its row number is 8"


def test_a_single_class_is_a_warning() -> None:
    [finding] = validate_file(AFQMC, submission_bytes(["0"] * 3_861))
    assert finding.level == "warning"
    assert "every row has the label '0'" in finding.message


def test_other_keys_are_only_mentioned() -> None:
    lines = afqmc_lines(lambda row: {"id": row, "label": str(row % 2), "label_desc": "x"})
    [finding] = validate_file(AFQMC, joined(lines))
    assert finding.level == "information"
    assert "'label_desc'" in finding.message


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
