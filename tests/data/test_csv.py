"""CSV: RFC 4180's quotes are read, and a stray quote costs its line alone; see dirty_files.py for more cases."""

import csv
import io
import sys
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import pytest
from cases import slow_but
from hypothesis import given
from hypothesis import strategies as st

from recurcli.data.readers import COST_OF_LINE, MAX_QUOTED, needs_quotes, read_records
from recurcli.data.rows import Record

Read = tuple[list[list[str]], list[str | None]]


def records(data: bytes | str, *, header: bool = False, delimiter: str | None = None, quote: str = '"') -> list[Record]:
    stream = io.BytesIO(data.encode() if isinstance(data, str) else data)
    found = read_records(stream, "csv", name="x.csv", delimiter=delimiter, quote=quote)
    if header:
        found.take_header()
    return list(found)


def values(data: bytes | str, **more: str) -> list[list[str]]:
    """The fields of rows that are all as they should be."""
    found = records(data, **more)  # type: ignore[arg-type]
    assert [record.fault for record in found] == [None] * len(found)
    return [list(record.fields.values()) for record in found]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("a,b\nc,d\n", [["a", "b"], ["c", "d"]]),
        ('a,b\n"c","d"\n', [["a", "b"], ["c", "d"]]),
        ('a,b\n"say ""so""",""""\n', [["a", "b"], ['say "so"', '"']]),
        ('a,b\n"","x"\n', [["a", "b"], ["", "x"]]),
        ('a,b\r\nc,d\n"e",f\r\n', [["a", "b"], ["c", "d"], ["e", "f"]]),
        ('a,b\n"c",d', [["a", "b"], ["c", "d"]]),
        ('a,b\n6" nails,5\'\nsay "so",no\n', [["a", "b"], ['6" nails', "5'"], ['say "so"', "no"]]),
        ('a,b\n "c",d\n', [["a", "b"], [' "c"', "d"]]),
        ("a,b\n,\n", [["a", "b"], ["", ""]]),
        ("a,b\nc\u2028d\x0be\rf,g\n", [["a", "b"], ["c\u2028d\x0be\rf", "g"]]),
        ('"a\nb",c\nd,e\n', [["a\nb", "c"], ["d", "e"]]),
        ("", []),
    ],
)
def test_fields_are_what_rfc_4180_says(data: str, expected: list[list[str]]) -> None:
    assert values(data) == expected


def test_another_quote_may_be_named() -> None:
    body = """a;b\n'it''s; "so"\nhere';"c"\nd'e;'f'\n"""
    assert values(body, delimiter=";", quote="'") == [["a", "b"], ['it\'s; "so"\nhere', '"c"'], ["d'e", "f"]]


@pytest.mark.parametrize(
    ("quote", "expected"), [(None, [["'a", ""], ["b'", "c"]]), ("'", [["a\nb", "c"]]), ('"', [["'a", ""], ["b'", "c"]])]
)
def test_a_tsv_has_quotes_only_if_one_is_named(quote: str | None, expected: list[list[str]]) -> None:
    with read_records(io.BytesIO(b"x\ty\n'a\nb'\tc\n"), "tsv", quote=quote) as found:
        found.take_header()
        assert [[*record.fields.values()] for record in found] == expected


@pytest.mark.parametrize("delimiter", [";", "|", "\t", ":"])
def test_another_delimiter_may_be_named(delimiter: str) -> None:
    assert values(f'a{delimiter}b,\n"c{delimiter}"{delimiter}d\n', delimiter=delimiter) == [
        ["a", "b,"],
        [f"c{delimiter}", "d"],
    ]


@pytest.mark.parametrize(
    ("body", "faults"),
    [
        ('x,1\nz,"3', [None, "has a quote at character 3 that is never closed"]),
        ('x,1\n"y"\n', [None, "has 1 field, not 2"]),
        ("x,1\ny\xff,2\n".encode("latin-1"), [None, "is not UTF-8 at byte 2 (0xff)"]),
        (b'x,1\n"y\xff, y",2\n', [None, "is not UTF-8 at byte 3 (0xff)"]),
        (b"x,1\ny\0,2\n", [None, "holds a NUL at character 2"]),
        ('x,1\n"y,2\nz,3\nz"z,4\n', [None, "has text after a closing quote: '\"z,4'", None, None]),
        ('x,1\n"y,2\n"z",3\n', [None, "has text after a closing quote: '\"z\",3'", None]),
        ('x,1\n"y,2\nz"\nw,4\n', [None, "has 1 field, not 2", None]),
        ('x,1\n"y\nz",2,3\nw,4\n', [None, "has 3 fields, not 2", None]),
        ('x,1\n"y,2\nz,3\n",4\nw,6\n', [None, None, None]),
        (
            'x,1\n"y,2\nz,3\nw,"\nv,6\n',
            [
                None,
                "has a quote that is closed 2 lines later, and the number of its fields is then 1, not 2",
                None,
                "has a quote at character 3 that is never closed",
                None,
            ],
        ),
    ],
)
def test_a_bad_row_is_a_fault_of_its_own_line_alone(body: str | bytes, faults: list[str | None]) -> None:
    data = b"a,b\n" + (body.encode() if isinstance(body, str) else body)
    found = records(data, header=True)
    good = [record for record in found if record.fault is None]
    assert [record.fault for record in found][: len(faults)] == faults
    assert all(record.fields["b"].isdigit() for record in good)


def test_a_file_of_excel_may_tell_its_delimiter(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes('sep=;\r\ntext;label\r\n"größer;\r\nals";a, b\r\n'.encode())
    with read_records(tmp_path / "x.csv") as found:
        found.take_header()
        assert [(row.line, row.fields) for row in found] == [(3, {"text": "größer;\r\nals", "label": "a, b"})]


def test_a_tsv_has_quotes_where_its_rows_fit_only_with_them(tmp_path: Path) -> None:
    for text, expected in {
        '"a\tb"\tx\nc\ty\n': True,
        '"a"\tx\n': False,
        'a"\t"\nb\t"c" d\n': False,
        "a\tb\nc\n": False,
    }.items():
        (tmp_path / "x.tsv").write_text(text)
        assert needs_quotes(tmp_path / "x.tsv", "utf-8", None) == expected, text


def test_a_space_separates_a_label_from_the_rest_of_the_line() -> None:
    found = read_records(io.BytesIO(b'NUM:date When , "or" where ?\nDESC:def What\n'), "tsv", delimiter=" ")
    assert [[*row.fields.values()] for row in found] == [["NUM:date", 'When , "or" where ?'], ["DESC:def", "What"]]


def test_what_could_be_read_of_a_bad_row_is_shown() -> None:
    found = records('a,b\n"x" y,1\n"z,2', header=True)
    assert [list(record.fields.values()) for record in found] == [['"x" y', "1"], ['"z', "2"]]


def test_a_bad_byte_in_a_later_line_of_a_row_is_a_fault_of_the_whole_row() -> None:
    found = records(b'a,b\n"x\ny\xff\nz",1\n"p\xfe\nq",2\nr,3\n', header=True)
    assert [(record.line, record.fault) for record in found] == [
        (2, "continues in line 3, which is not UTF-8 at byte 2 (0xff)"),
        (5, "is not UTF-8 at byte 3 (0xfe)"),
        (7, None),
    ]
    assert found[0].fields == {"a": "x\ny\ufffd\nz", "b": "1"}


def test_a_record_knows_its_first_line() -> None:
    assert [record.line for record in records('"a\nb"\n"c\n\nd"\ne\n')] == [1, 3, 6]


@pytest.mark.slow
def test_a_quote_is_sought_in_a_bounded_number_of_lines() -> None:
    lines = MAX_QUOTED // COST_OF_LINE + 2
    found = records('a,b\n"' + "\n" * lines + 'closed",1\nc,2\n')
    assert (len(found), found[1].fault) == (lines + 3, "has a quote at character 1 that is never closed")


SIX = "\n".join(f"line {number}, of six" for number in range(6))


@pytest.mark.parametrize(
    ("data", "rows", "doubt"),
    [
        (f'text,label\n"{SIX}",a\nc,b\n', [[SIX, "a"], ["c", "b"]], ""),
        (f'label,text\na,"{SIX}"\nb,c\n', [["a", SIX], ["b", "c"]], ""),
        (
            'text,label\n"a,1\nb,2\nc,3\nd,4\ne,5\nf",6\n' + 'g,7\n"h,8\n' + "i,9\n" * 7 + 'j",1\n',
            [["a,1\nb,2\nc,3\nd,4\ne,5\nf", "6"], ["g", "7"], ["h,8\n" + "i,9\n" * 7 + "j", "1"]],
            "x.csv:2: lines in quotes are read as one row, though each looks like a row (2 cases); "
            'a quote that is text must be doubled ("")',
        ),
    ],
)
def test_what_a_strict_reader_reads_as_one_row_is_one_row_and_a_doubt_is_a_warning(
    data: str, rows: list[list[str]], doubt: str
) -> None:
    assert list(csv.reader(io.StringIO(data), strict=True))[1:] == rows
    found = read_records(io.BytesIO(data.encode()), "csv", name="x.csv")
    found.take_header()
    assert [(list(record.fields.values()), record.fault) for record in found] == [(row, None) for row in rows]
    assert found.doubt == doubt


OPEN = ['"never closed,1', 'x","', 'a,"b', '"a ""b', '"""', 'a,""', '"a"b,1', ',"""', '"a","b', 'a,"""b']


@pytest.mark.parametrize("line", slow_but(OPEN[:4], OPEN), ids=repr)
def test_the_work_grows_with_the_lines_wherever_they_open_quotes(line: str) -> None:
    plain = "\n".join(["a b,1"] * 500)
    for block, count in ((f"{line}\n", 1000), (f"{line}\n{plain}\n", 3)):
        once, twice = (lines_executed("a,b\n" + block * number) for number in (count, 2 * count))
        assert twice < 2.5 * once


def lines_executed(text: str) -> int:
    """The lines of Python that reading `text` takes."""
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        records(text)
    finally:
        sys.settrace(before)
    return count


text = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8) | st.text("\"',\n ab\r", max_size=8)
many_lines = st.lists(st.text('a,"', max_size=3), min_size=5, max_size=12).map("\n".join)
"""Texts of lines that look like rows."""
field = text | many_lines


@given(
    table=st.integers(1, 4).flatmap(
        lambda width: st.lists(st.lists(text | many_lines, min_size=width, max_size=width), max_size=8)
    ),
    delimiter=st.sampled_from(",;\t"),
    end=st.sampled_from(["\n", "\r\n"]),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    quote=st.sampled_from("\"'"),
)
def test_what_python_writes_is_read_back(
    table: list[list[str]], delimiter: str, end: str, quoting: Literal[0, 1], quote: str
) -> None:
    buffer = io.StringIO(newline="")
    form: dict[str, Any] = {"delimiter": delimiter, "quotechar": quote}
    csv.writer(buffer, lineterminator=end, quoting=quoting, **form).writerows([["é"] * 9, *table])
    body = buffer.getvalue().partition(end)[2]
    if body.startswith("\ufeff") or strictly_read(body, **form) != table:
        return  # a byte order mark, or a carriage return that Python left without quotes
    assert values(body, delimiter=delimiter, quote=quote) == table


def strictly_read(text: str, delimiter: str, quotechar: str = '"') -> list[list[str]] | None:
    """What Python's own reader makes of a CSV; None if it refuses it."""
    try:
        return list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, quotechar=quotechar, strict=True))
    except csv.Error:
        return None


ragged = st.lists(st.lists(st.text("a\n,", min_size=1, max_size=4), min_size=1, max_size=4), min_size=1, max_size=8)


@given(ragged)
def test_rows_of_other_widths_are_one_record_each_unless_their_lines_are_rows(table: list[list[str]]) -> None:
    buffer = io.StringIO(newline="")
    csv.writer(buffer, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows([["a", "b"], *table])
    found = records(buffer.getvalue(), header=True)
    for row in table:
        written = io.StringIO(newline="")
        csv.writer(written, lineterminator="\n", quoting=csv.QUOTE_ALL).writerow(row)
        lines = written.getvalue().splitlines()
        if len(row) != 2 and len(lines) > 1 and {line.count(",") for line in lines} == {1}:
            return  # each line has two fields: stray quotes around whole rows look the same
        if len(row) > 2 and any("\n" in value for value in row[2:]):
            return  # a field beyond the header's takes no more lines
    assert [record.fault is None for record in found] == [len(row) == 2 for row in table]


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters='"\n\0'), max_size=12), max_size=12))
def test_without_quotes_every_line_is_a_record(lines: list[str]) -> None:
    assert len(records("é,b\n" + "".join(f"{line}\n" for line in lines))) == len(lines) + 1


@given(st.lists(st.text('",\nab', max_size=12), max_size=12))
def test_whatever_the_quotes_no_line_is_lost(lines: list[str]) -> None:
    data = "é,b\n" + "".join(f"{line}\n" for line in lines)
    found = records(data)
    ends = [record.line for record in found[1:]] + [data.count("\n") + 1]
    spanned = [end - record.line for record, end in zip(found, ends, strict=True)]
    breaks = ["".join(record.fields.values()).count("\n") for record in found]
    for record, lines_of, inside in zip(found, spanned, breaks, strict=True):
        assert lines_of == inside + 1 or record.fault is not None
