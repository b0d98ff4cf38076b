"""Files as they come, and what is to become of them: the one table that tests of training and of prediction run over."""

import gzip
import io
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow
from pyarrow import parquet

Content = bytes | dict[str, list[Any]]
"""Bytes, or the columns of a Parquet file."""


class Case(NamedTuple):
    """A file; whether training takes it, and whether prediction does."""

    content: Content
    training: list[str] | str
    """The texts of its rows, or a part of the message with which it is refused."""
    prediction: list[str] | str
    """For each of its rows why it could not be read as it stands ("": it could), or a part of the message of a refusal."""


def write(case: Case, path: Path) -> Path:
    """The file of a case."""
    if isinstance(case.content, dict):
        parquet.write_table(pyarrow.table(case.content), path)
    else:
        path.write_bytes(gzip.compress(case.content, mtime=0) if path.suffix == ".gz" else case.content)
    return path


def packed(member: str) -> bytes:
    """A zip archive."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(member, "<Types/>")
    return buffer.getvalue()


HEAD, TWO = b"text\tlabel\n", b"good\ta\nfine\tb\n"
GOOD = ["good", "fine"]
MEGABYTE = 1_000_000
FAR_APART_IN_FRONT = ['"' * (number == 10) + f"row {number}" + '"' * (number == 60) for number in range(100)]
ROWS = [f"row {number}" for number in range(100)]
FAR_APART = [f"row {number}" + '"' * (number in (10, 60)) for number in range(100)]


def tsv(*texts: str) -> bytes:
    """A file of these texts, labelled in turn."""
    return HEAD + "".join(f"{text}\t{'ab'[number % 2]}\n" for number, text in enumerate(texts)).encode()


TSV = {
    "an empty file": Case(b"", "is empty; expected a header", []),
    "a header only": Case(HEAD, "has no rows", []),
    "only blank lines": Case(b"\n\n\r\n", "which column is the text?", ["its text is empty"] * 3),
    "a blank line in the middle": Case(HEAD + b"good\ta\n\nfine\tb\n", "x.tsv:3: is blank", ["", "is blank", ""]),
    "no line end at the end": Case((HEAD + TWO)[:-1], GOOD, ["", ""]),
    "CRLF": Case((HEAD + TWO).replace(b"\n", b"\r\n"), GOOD, ["", ""]),
    "mixed line ends": Case(HEAD.replace(b"\n", b"\r\n") + TWO, GOOD, ["", ""]),
    "a lone CR in a text": Case(tsv("go\rod", "fine"), ["go\rod", "fine"], ["", ""]),
    "CR alone as line end": Case((HEAD + TWO).replace(b"\n", b"\r"), "lines end in CR alone", "lines end in CR alone"),
    "a BOM at the start": Case(b"\xef\xbb\xbf" + HEAD + TWO, GOOD, ["", ""]),
    "a BOM in the middle": Case(tsv("good", "\ufefffine"), ["good", "\ufefffine"], ["", ""]),
    "UTF-16": Case((HEAD + TWO).decode().encode("utf-16"), "is UTF-16", "is UTF-16"),
    "UTF-16 without a BOM": Case((HEAD + TWO).decode().encode("utf-16-be"), "is UTF-16 without", "is UTF-16 without"),
    "GBK": Case(tsv("今天天气很好", "新闻").decode().encode("gbk"), ["今天天气很好", "新闻"], ["", ""]),
    "a bad byte": Case(HEAD + b"go\xffod\ta\nfine\tb\n", "x.tsv:2: is not UTF-8 at byte 3", ["is not UTF-8", ""]),
    "a lone surrogate": Case(HEAD + b"\xed\xa0\x80\ta\nfine\tb\n", "x.tsv:2: is not UTF-8 at byte 1", ["is not UTF-8", ""]),
    "NUL": Case(tsv("go\0od", "fine"), "x.tsv:2: holds a NUL at character 3", ["holds a NUL", ""]),
    "other line separators": Case(tsv("a\u2028b\x85c\x0bd\x0c", "fine"), ["a\u2028b\x85c\x0bd\x0c", "fine"], ["", ""]),
    "one stray quote": Case(tsv('"good', "fine"), ['"good', "fine"], ["", ""]),
    "two stray quotes far apart": Case(tsv(*FAR_APART), FAR_APART, [""] * 100),
    "an extra TAB": Case(HEAD + b"go\tod\ta\nfine\tb\n", "x.tsv:2: has 3 fields, not 2", ["has 3 fields, not 2", ""]),
    "a missing field": Case(HEAD + b"good\nfine\tb\n", "x.tsv:2: has 1 field, not 2", ["has 1 field, not 2", ""]),
    "another delimiter": Case(b"text,label\ngood,a\nfine,b\n", GOOD, ["", ""]),
    "another delimiter that splits no two rows alike": Case(
        b"text,label\ngood,a\nfi,ne,b\n", "--delimiter MARK if it has several columns", ["", "", ""]
    ),
    "no header": Case(TWO, "which column is the text? add --text COLUMN", ["", ""]),
    "a header's name twice": Case(b"text\tlabel\ttext\n" + b"a\tb\tc\n", "has the column 'text' twice", "'text' twice"),
    "nearly the same name twice": Case(
        b"Text\ttext\tlabel\nx\tgood\ta\ny\tfine\tb\n", GOOD, ["", ""]
    ),
    "a header in other case": Case(b" Text\tLABEL \n" + TWO, GOOD, ["", ""]),
    "words that look like missing values": Case(tsv("NA", "null", "001", "1.0"), ["NA", "null", "001", "1.0"], [""] * 4),
    "an empty and a blank text": Case(tsv("", " \u3000", "good"), ["", " \u3000", "good"], ["its text is empty"] * 2 + [""]),
    "markup and escapes": Case(tsv("[red]a[/] \x1b[31mb", "fine"), ["[red]a[/] \x1b[31mb", "fine"], ["", ""]),
    "only control characters": Case(tsv("\x01\x02", "\x1b", "good"), ["\x01\x02", "\x1b", "good"], [""] * 3),
    "labels with spaces and in other case": Case(HEAD + b"good\ta\nfine\tA\nso\t a\n", [*GOOD, "so"], [""] * 3),
    "a single class": Case(HEAD + b"good\ta\nfine\ta\n", "holds only 'a' in all 2 rows", ["", ""]),
    "an empty label": Case(HEAD + b"good\t\nfine\tb\n", "x.tsv:2: its label is empty", ["", ""]),
    "a blank label": Case(HEAD + b"good\t \nfine\tb\n", "x.tsv:2: its label is empty", ["", ""]),
    "an id twice and one missing": Case(b"id\ttext\tlabel\n7\tgood\ta\n7\tfine\tb\n\twell\tb\n", [*GOOD, "well"], [""] * 3),
    "the same text with two labels": Case(tsv("good", "good"), ["good", "good"], ["", ""]),
    "a line of 1 MB": Case(tsv("ab " * (MEGABYTE // 3), "fine"), ["ab " * (MEGABYTE // 3), "fine"], ["", ""]),
    "a character a million times": Case(tsv("a" * MEGABYTE, "fine"), ["a" * MEGABYTE, "fine"], ["", ""]),
    "special tokens typed": Case(tsv("[CLS] [SEP]", "[PAD]"), ["[CLS] [SEP]", "[PAD]"], ["", ""]),
    "a gzip file": Case(gzip.compress(HEAD + TWO, mtime=0), "is a gzip file", "is a gzip file"),
    "a Parquet file": Case(b"PAR1" + b"\0" * 20, "is a Parquet file", "is a Parquet file"),
    "an Excel workbook": Case(packed("[Content_Types].xml"), "is an Excel workbook", "is an Excel workbook"),
    "a zip archive": Case(packed("x.tsv"), "or a zip archive", "or a zip archive"),
}  # fmt: skip

CSV_HEAD = b"text,label\n"
CSV = {
    "an empty file": Case(b"", "is empty; expected a header", []),
    "a blank line in the middle": Case(CSV_HEAD + b"good,a\n\nfine,b\n", "x.csv:3: is blank", ["", "is blank", ""]),
    "commas, quotes and lines in a text": Case(
        CSV_HEAD + b'"go, ""o""\nd\t",a\nfine,b\n', ['go, "o"\nd\t', "fine"], ["", ""]
    ),
    "CRLF": Case(b'text,label\r\n"go\r\nod",a\r\nfine,b\r\n', ["go\r\nod", "fine"], ["", ""]),
    "a BOM at the start": Case(b'\xef\xbb\xbf"text","label"\ngood,a\nfine,b\n', GOOD, ["", ""]),
    "a quote inside a text": Case(CSV_HEAD + b'6" nail,a\nfine,b\n', ['6" nail', "fine"], ["", ""]),
    "a quote that is never closed": Case(CSV_HEAD + b'"good,a\nfine,b\n', "x.csv:2: has a quote", ["has a quote", ""]),
    "two stray quotes far apart": Case(
        CSV_HEAD + "".join(f"{text},{'ab'[row % 2]}\n" for row, text in enumerate(FAR_APART_IN_FRONT)).encode(),
        [*ROWS[:10], ",{}\n".join(ROWS[10:61]).format(*"ab" * 25), *ROWS[61:]],
        [""] * 50,
    ),
    "a quote that a stray one closes": Case(
        CSV_HEAD + b'"good,a\nfi",a,b\nso,b\n', "x.csv:2: has 3 fields, not 2", ["has 3", ""]
    ),
    "text after a quote": Case(CSV_HEAD + b'"go"od,a\nfine,b\n', "x.csv:2: has text after a closing", ["has text after", ""]),
    "a bad byte in the second line of a row": Case(
        CSV_HEAD + b'"go\no\xffd",a\nfine,b\n', "x.csv:2: continues in line 3, which is not UTF-8", ["continues in line 3", ""]
    ),
    "an extra comma": Case(CSV_HEAD + b"go,od,a\nfine,b\n", "x.csv:2: has 3 fields, not 2", ["has 3 fields", ""]),
    "a missing field": Case(CSV_HEAD + b"good\nfine,b\n", "x.csv:2: has 1 field, not 2", ["has 1 field", ""]),
    "another delimiter": Case(b"text;label\ngood;a\nfine;b\n", GOOD, ["", ""]),
    "another delimiter that splits no two rows alike": Case(
        b"text;label\ngood;a\nfi;ne;b\n", "--delimiter MARK if it has several columns", ["", "", ""]
    ),
}  # fmt: skip

ROW, LAST = b'{"text": "good", "label": "a"}\n', b'{"text": "fine", "label": "b"}\n'


def broken(row: bytes, reason: str) -> Case:
    """JSON lines with a bad row between two good ones."""
    return Case(ROW + row + b"\n" + LAST, f"x.jsonl:2: {reason}", ["", reason, ""])


JSON_LINES = {
    "an empty file": Case(b"", "has no rows", []),
    "only blank lines": Case(b"\n\n", "has no rows, or its first rows cannot be read", ["is blank"] * 2),
    "a bad first row": Case(b'{"text\n' + ROW + LAST, "x.jsonl:1: is not JSON", ["is not JSON", "", ""]),
    "a blank line in the middle": broken(b"", "is blank"),
    "no line end at the end": Case((ROW + LAST)[:-1], GOOD, ["", ""]),
    "CRLF": Case((ROW + LAST).replace(b"\n", b"\r\n"), GOOD, ["", ""]),
    "a BOM at the start": Case(b"\xef\xbb\xbf" + ROW + LAST, GOOD, ["", ""]),
    "a string for a row": broken(b'"text"', "holds a string, not an object"),
    "a list for a row": broken(b"[1, 2]", "has no 'text'; known: 1, 2"),
    "a duplicate key within a value": broken(b'{"text": "x", "label": "a", "b": {"c": 1, "c": 2}}', "has the key 'c' twice"),
    "an infinity": broken(b'{"text": "x", "label": "a", "n": -Infinity}', "holds -Infinity"),
    "a lone surrogate in a key": broken(rb'{"text": "x", "label": "a", "b": {"\udfff": 1}}', "holds a lone surrogate"),
    "a NUL": broken(b'{"text": "x\0", "label": "a"}', "holds a NUL"),
    "a number of 5,000 digits": broken(b'{"n": ' + b"9" * 5000 + b"}", "holds a number with too many digits"),
    "brackets without end": broken(b"[" * 100_000, "is nested too deeply"),
    "lists of lists": broken(b'{"text": "x", "label": "a", "n": ' + b"[" * 2000 + b"]" * 2000 + b"}", "is nested too deeply"),
    "a BOM in the middle": broken(b'\xef\xbb\xbf{"text": "x", "label": "a"}', "is not JSON"),
    "other line separators": Case('{"text": "a\u2028b", "label": "a"}\n'.encode() + LAST, ["a\u2028b", "fine"], ["", ""]),
    "a line end in a text": Case(b'{"text": "a\\nb\\tc", "label": "a"}\n' + LAST, ["a\nb\tc", "fine"], ["", ""]),
    "a cut last line": Case(ROW + LAST + b'{"text": "we', "x.jsonl:3: is not JSON", ["", "", "(it seems to be cut)"]),
    "a number for a text": broken(b'{"text": 7, "label": "a"}', "'text' is a number, not a string"),
    "null for a text": broken(b'{"text": null, "label": "a"}', "'text' is null, not a string"),
    "a missing key": broken(b'{"test": "x", "label": "a"}', "has no 'text'; did you mean 'test'"),
    "a duplicate key": broken(b'{"text": "x", "label": "a", "text": "y"}', "has the key 'text' twice"),
    "NaN": broken(b'{"text": "x", "label": "a", "n": NaN}', "holds NaN"),
    "a lone surrogate": broken(b'{"text": "\\ud800", "label": "a"}', "holds a lone surrogate"),
    "an escaped NUL": broken(b'{"text": "\\u0000", "label": "a"}', "holds an escaped NUL"),
    "a bad byte": broken(b'{"text": "x\xff", "label": "a"}', "is not UTF-8 at byte 12"),
    "a list of strings": Case(b'{"text": ["go", "od"], "label": "a"}\n' + LAST, ["go od", "fine"], ["", ""]),
    "numbers and booleans as labels": Case(b'{"text": "good", "label": 1}\n{"text": "fine", "label": true}\n', GOOD, ["", ""]),
    "null as label": Case(ROW + b'{"text": "x", "label": null}\n', "x.jsonl:2: its label is null, not a string", ["", ""]),
    "an array": Case(b"[" + ROW.strip() + b",\n" + LAST + b"]", GOOD, ["", ""]),
    "a bad row of an array": Case(
        b"[" + ROW.strip() + b', {"text": "x\xff"}, 7,' + LAST + b"]",
        "x.jsonl:2: is not UTF-8 at byte 12",
        ["", "is not UTF-8 at byte 12", "holds a number, not an object", ""],
    ),
    "a cut array": Case(b"[" + ROW + b",{", "row 2 is not JSON", "row 2 is not JSON"),
    "an array without end": Case(b"[" + ROW + b",", "is not closed after row 1", "is not closed after row 1"),
    "two arrays": Case(b"[" + ROW + b"]\n[" + ROW + b"]", "holds more after its JSON array", "holds more after its JSON array"),
    "objects over several lines": Case((ROW + LAST).replace(b"{", b"{\n"), "jq -c . writes each in a line", "jq -c . writes"),
    "a cut object over several lines": Case(b'{\n"text": "good"\n', "(it seems to be cut)", "(it seems to be cut)"),
    "lists": Case(b'["good", "a"]\n["fine", "b"]\n', "which column is the text?", "text"),
    "a gzip file": Case(gzip.compress(ROW, mtime=0), "is a gzip file", "is a gzip file"),
}  # fmt: skip

LABELS = ["a", "b"]
PARQUET = {
    "no rows": Case({"text": pyarrow.array([], "string"), "label": pyarrow.array([], "string")}, "has no rows", []),
    "strings": Case({"text": ["go\nod\t", "fine"], "label": LABELS}, ["go\nod\t", "fine"], ["", ""]),
    "numbers as labels": Case({"text": GOOD, "label": [0, 1]}, GOOD, ["", ""]),
    "booleans as labels": Case({"text": GOOD, "label": [True, False]}, GOOD, ["", ""]),
    "fractions as labels": Case({"text": GOOD, "label": [0.5, 1.0]}, GOOD, ["", ""]),
    "a null": Case({"text": ["good", None], "label": LABELS}, "x.parquet:2: 'text' is null", ["", "'text' is null"]),
    "lists of strings": Case({"text": [["go", "od"], ["fine"]], "label": LABELS}, ["go od", "fine"], ["", ""]),
    "objects": Case({"text": [{"a": "b"}] * 2, "label": LABELS}, "'text' is an object", ["'text' is an object"] * 2),
    "bytes": Case({"text": [b"good", b"fine"], "label": LABELS}, "x.parquet:1: 'text' is a bytes", ["'text' is a bytes"] * 2),
    "a column of dates": Case(
        {"text": GOOD, "label": LABELS, "when": pyarrow.array([0, 1], pyarrow.timestamp("s"))}, GOOD, ["", ""]
    ),
    "no numbers": Case({"text": GOOD, "label": LABELS, "x": [float("nan"), 1.0]}, GOOD, ["cannot be written as JSON", ""]),
    "no text": Case({"x": GOOD, "z": GOOD}, "column is the text? add --text COLUMN; the columns are: x, z", "text"),
    "TSV": Case(HEAD + TWO, "is not a Parquet file, or is damaged", "is not a Parquet file, or is damaged"),
    "an empty file": Case(b"", "is not a Parquet file, or is damaged", "is not a Parquet file, or is damaged"),
}  # fmt: skip

CASES = {
    (name, case): made
    for name, table in {"x.tsv": TSV, "x.csv": CSV, "x.jsonl": JSON_LINES, "x.parquet": PARQUET}.items()
    for case, made in table.items()
}
"""(file name, what is the matter with it) to the case."""
