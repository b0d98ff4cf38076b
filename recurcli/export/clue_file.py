"""Checks one file of CLUE predictions for faults that would make it score 0.

CLUE's submission guide (CLUEbenchmark/CLUE, update of 2021-09-04): a file is named `<task><version>_predict.json`, each
line is one JSON object, and the scorer reads only `label`, line by line, in the order of the task's test file. Names,
counts and labels are those of `recurcli.data.tasks.TASKS`.
"""

import codecs
import io
import json
import re
from typing import Any, BinaryIO, NamedTuple

from recurcli.data.formats.json_lines import BadJson, json_object
from recurcli.data.tasks import TASKS, Task
from recurcli.errors import did_you_mean, escaped
from recurcli.findings import Finding, Findings

MAX_BYTES = 8 << 20
"""The longest test file makes 0.6 MB of predictions (ours: leaves room for keys that CLUE does not read)."""

OTHER_NAMES = (
    "c311_predict.json",
    "c310_predict.json",
    "chid11_predict.json",
    "chid10_predict.json",
    "cmrc2018_predict.json",
)
"""Names that CLUE reads; without a row in TASKS their contents are not checked."""

ALIASES = {"wsc": "cluewsc"}
"""Former name of a task in file names (`wsc_predict.json`) to its present name."""


class Row(NamedTuple):
    """A line that is not blank; `fields` is None if it is not one JSON object."""

    line: int
    fields: dict[str, Any] | None


class Target(NamedTuple):
    """The test rows that a file of predictions answers line by line."""

    task: Task
    split: str

    @property
    def name(self) -> str:
        """Name of the file of predictions."""
        return self.task.submissions[self.split]

    @property
    def test_file(self) -> str:
        """Name of the task's file with the rows."""
        return self.task.files[self.split]

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.task.rows[self.split]


def targets() -> dict[str, Target]:
    """Return every file name that can be checked, with its task."""
    return {name: Target(task, split) for task in TASKS.values() for split, name in task.submissions.items()}


def validate_file(name: str, content: BinaryIO | bytes) -> list[Finding]:
    """Return the faults of the file `name`, errors first; [] if it has none.

    Reads at most MAX_BYTES of `content`; no content raises an error.
    """
    found = Findings(escaped(name))
    known = targets()
    if name in OTHER_NAMES and name not in known:
        found.add("information", "unchecked", "CLUE reads this name, but recur does not know its test set; not checked")
        return found.ordered()
    data = content if isinstance(content, bytes) else content.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        found.add("error", "size", f"is larger than {MAX_BYTES:,} bytes; predictions need a few dozen bytes a row")
        return found.ordered()
    rows = _read_rows(data, found)
    if name in known:
        _check_count(known[name], len(rows), found)
        task: Task | None = known[name].task
    else:
        found.add("error", "name", name_fault(name, rows=len(rows)))
        task = next((known[other].task for other in _names_of_same_task(name) if other in known), None)
    _check_labels(task, rows, found)
    _check_ids(rows, found, counted=task is None or task.test_ids_from_zero)
    return found.ordered()


def _read_rows(data: bytes, found: Findings) -> list[Row]:
    """Return the rows of a file, none if it is UTF-16 or one array; adds faults to `found`."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        found.add("error", "utf-16", "is UTF-16; save it as UTF-8 without a byte-order mark")
        return []
    if data.startswith(codecs.BOM_UTF8):
        found.add("error", "mark", "begins with a byte-order mark; save it as UTF-8 without one", line=1)
        data = data.removeprefix(codecs.BOM_UTF8)
    if data.lstrip()[:1] == b"[":
        found.add("error", "array", "is one JSON array; write each of its objects on a separate line, without commas")
        return []
    if data and not data.endswith(b"\n"):
        found.add("warning", "end", "the last line has no newline at its end")
    rows = []
    for line, content in enumerate(io.BytesIO(data), start=1):
        if content.endswith(b"\r\n"):
            what = "ends in CR LF; CLUE's files end their lines in LF (dos2unix mends it)"
            found.add("error", "crlf", what, line=line)
        if not content.strip():
            found.add("error", "blank", "is blank; remove it, as CLUE pairs lines by their order", line=line)
            continue
        fields = None
        try:
            fields = json_object(content.decode().strip())
        except UnicodeDecodeError:
            found.add("error", "form", "is not UTF-8; save the file as UTF-8", line=line)
        except BadJson as fault:
            shown = escaped(content.decode().strip(), limit=60)
            found.add("error", "form", f"{fault}; expected one JSON object a line: {shown}", line=line)
        rows.append(Row(line, fields))
    return rows


def name_fault(name: str, *, rows: int | None = None) -> str:
    """Return why CLUE would not read the file `name`, and the right name, by its number of `rows` if that is known."""
    known, near = targets(), _names_of_same_task(name)
    fault = f"CLUE reads no file named '{escaped(name)}': it would score 0"
    if not near:
        return fault + did_you_mean(name.lower(), {*known, *OTHER_NAMES})
    fitting = [other for other in near if other in known and known[other].rows == rows]
    if len(fitting) == 1:
        source = known[fitting[0]].test_file
        return f"{fault}; its {rows:,} rows are those of {source}, so name it {fitting[0]}"
    choices = [f"{other} (predictions for {known[other].test_file})" if other in known else other for other in near]
    reason = "a name must say which version of the test set it is for; " if len(near) > 1 else ""
    return f"{fault}; {reason}name it {' or '.join(choices)}"


def _names_of_same_task(name: str) -> list[str]:
    """Return the names that CLUE reads for the task of `name`: tnews11, tnews10 for `tnews_predict.json`."""
    return [other for other in dict.fromkeys([*targets(), *OTHER_NAMES]) if _task_of(other) == _task_of(name)]


def _task_of(name: str) -> str:
    start = re.match("[a-z]*", name.lower())
    word = start.group() if start else ""
    return ALIASES.get(word, word)


def _check_count(target: Target, rows: int, found: Findings) -> None:
    if rows == target.rows:
        return
    fault = f"has {rows:,} rows; {target.test_file} has {target.rows:,}, and each needs its line"
    for other in targets().values():
        if other.task is target.task and rows == other.rows:
            fault += f"; {rows:,} rows are those of {other.test_file}, whose predictions are named {other.name}"
    if rows == target.task.rows.get("dev"):
        fault += f"; {rows:,} rows are those of the dev set: predict {target.test_file}"
    found.add("error", "count", fault)


def _check_labels(task: Task | None, rows: list[Row], found: Findings) -> None:
    """Check that each `label` is a string and one of the task's; `task` None: unknown."""
    written = set()
    as_indexes = task is not None and _look_like_indexes(task, rows)
    for line, fields in rows:
        if fields is None:
            continue
        if others := fields.keys() - {"id", "label"}:
            what = f"has the key '{escaped(min(others))}'; CLUE reads label alone"
            found.add("information", "keys", what, line=line)
        if "label" not in fields:
            found.add("error", "no label", "has no 'label', the one key that CLUE reads", line=line)
            continue
        label = fields["label"]
        text = _text_of(label)
        written.add(text)
        if not isinstance(label, str):
            way_out = f'; write "{escaped(text)}"' if isinstance(label, int | float) else ""
            found.add("error", "label type", f"label {escaped(text)} is not a string{way_out}", line=line)
        if task is None or text in task.labels:
            continue
        if as_indexes:
            what = f"these look like class indexes 0–{len(task.labels) - 1}; {task.name.upper()} wants {_wanted(task)}"
            found.add("error", "indexes", f"label '{escaped(text)}': {what}", line=line)
        else:
            near = text.strip().lower()
            known = " ".join(task.labels) if len(task.labels) <= 20 else _wanted(task)
            hint = f"; did you mean '{near}'?" if near in task.labels else f": {known}"
            what = f"label '{escaped(text)}' is not one of the {len(task.labels)} labels of {task.name.upper()}{hint}"
            found.add("error", "label", what, line=line)
    if len(rows) > 1 and len(written) == 1:
        found.add("warning", "one class", f"every row has the label '{escaped(written.pop())}'; is the model trained?")


def _text_of(value: object) -> str:
    """Return a string unchanged and other values as JSON, lists and objects without their contents (they may be deep)."""
    if isinstance(value, list | dict):
        return "[…]" if isinstance(value, list) else "{…}"
    return value if isinstance(value, str) else json.dumps(value)


def _look_like_indexes(task: Task, rows: list[Row]) -> bool:
    """Return whether all labels are numbers below the number of classes and not the task's labels."""
    texts = {_text_of(fields["label"]) for _, fields in rows if fields and "label" in fields}
    indexes = {str(index) for index in range(len(task.labels))}
    return bool(texts) and texts <= indexes and not texts <= set(task.labels)


def _wanted(task: Task) -> str:
    """Return the labels of a task in a few words."""
    if len(task.labels) > 3 and all(label.isdecimal() for label in task.labels):
        numbers = sorted(task.labels, key=int)
        return f"{numbers[0]}–{numbers[-1]}"
    return ", ".join(task.labels)


def _check_ids(rows: list[Row], found: Findings, *, counted: bool) -> None:
    """Check that the ids are 0 … n-1; a line that is not an object matches any id.

    `counted` False: the ids of the test file are allowed too, because CLUE reads only `label`.
    """
    ids: list[int] = []
    for line, fields in rows:
        number = len(ids) if fields is None else fields.get("id")
        if fields is not None and "id" not in fields:
            found.add("error", "no id", f"has no 'id'; its row number is {len(ids)}", line=line)
            return
        if not isinstance(number, int) or isinstance(number, bool):
            shown = f'"{number}"' if isinstance(number, str) else _text_of(number)
            what = f"id {escaped(shown, limit=40)} is not a number; the row number is {len(ids)}"
            found.add("error", "id type", what, line=line)
            return
        ids.append(number)
    wrong = next((row for row, number in enumerate(ids) if number != row), None)
    if wrong is None:
        return
    if all(number == 0 or number == before + 1 for before, number in zip([-1, *ids], ids, strict=False)):
        what = f"id is 0 again: ids seem to be numbered per batch; number all rows from 0 to {len(ids) - 1:,}"
    elif not counted and sorted(ids) == list(range(1, len(ids) + 1)):
        what = f"ids are those of the test file (the first is {ids[0]}): valid if the lines are in its order"
        found.add("warning", "own ids", what, line=rows[0].line)
        return
    elif all(number == row + ids[0] for row, number in enumerate(ids)):
        what = f"ids begin at {escaped(ids[0], limit=40)}; they begin at 0"
    elif sorted(ids) == list(range(len(ids))):
        what = f"id is {ids[wrong]}: the ids are complete but out of order; sort the lines, CLUE pairs them by order"
    else:
        what = f"id is {escaped(ids[wrong], limit=40)}, the row number is {wrong}"
    found.add("error", "ids", what, line=rows[wrong].line)
