"""`recur predict`: one row out for each row in, in order, whatever a row holds."""

import gzip
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from predicting import Recur, as_stdin, jsonl, tsv
from tiny_task import LABELS

from recurcli.cli import run

CASES: dict[str, tuple[bytes, list[tuple[str, str]]]] = {
    "an empty file": (b"", []),
    "only blank lines": (b"\n\n\r\n", [("", "")] * 3),
    "a blank line in the middle": (b"a\n\nb\n", [("a", ""), ("", ""), ("b", "")]),
    "no line end at the end": (b"a\nb", [("a", ""), ("b", "")]),
    "CRLF": (b"a\r\nb\r\n", [("a", ""), ("b", "")]),
    "mixed line ends": (b"a\r\nb\nc\r\n", [("a", ""), ("b", ""), ("c", "")]),
    "a lone CR in a text": (b"a\rb\nc\n", [("a\rb", ""), ("c", "")]),
    "a BOM at the start": (b"\xef\xbb\xbfa\nb\n", [("a", ""), ("b", "")]),
    "a BOM in the middle": (b"a\n\xef\xbb\xbfb\n", [("a", ""), ("\ufeffb", "")]),
    "a bad byte": (b"a\n\xffb\n", [("a", ""), ("\ufffdb", "is not UTF-8 at byte 1 (0xff)")]),
    "NUL": (b"a\nb\0c\n", [("a", ""), ("b\0c", "holds a NUL at character 2")]),
    "other line separators": ("a\u2028b\x85c\x0bd\x0ce\n".encode(), [("a\u2028b\x85c\x0bd\x0ce", "")]),
    "one stray quote": (b'a"b\nc\n', [('a"b', ""), ("c", "")]),
    "two stray quotes far apart": (b'"a\nb\nc"\n', [('"a', ""), ("b", ""), ('c"', "")]),
    "an extra TAB": (b"a\nb\tc\n", [("a", ""), ("b", "has 2 fields, not 1")]),
    "another delimiter": (b"a,b\nc,d\n", [("a,b", ""), ("c,d", "")]),
    "words that look like missing values": (b"NA\nnull\nNone\n001\n", [(w, "") for w in ("NA", "null", "None", "001")]),
    "blank texts": (b" \n\xe3\x80\x80\n", [(" ", ""), ("\u3000", "")]),
    "control characters only": (b"\x01\x02\x7f\n\x1b\n", [("\x01\x02\x7f", ""), ("\x1b", "")]),
    "special tokens typed": (b"[CLS] [SEP]\n[PAD]\n", [("[CLS] [SEP]", ""), ("[PAD]", "")]),
    "markup and escapes": (b"[red]a[/]\n\x1b[31mb\n", [("[red]a[/]", ""), ("\x1b[31mb", "")]),
    "a line of 1 MB": (b"ab" * 500_000 + b"\nc\n", [("ab" * 500_000, ""), ("c", "")]),
    "one character a million times": (b"a" * 1_000_000 + b"\n", [("a" * 1_000_000, "")]),
    "the same text twice": (b"a\na\n", [("a", ""), ("a", "")]),
}


@pytest.mark.parametrize("name", CASES)
def test_every_row_of_a_tsv_comes_out_in_its_place(name: str, recur: Recur, trained: Path, tmp_path: Path) -> None:
    content, expected = CASES[name]
    (tmp_path / "x.tsv").write_bytes(content)
    code, _, err = recur("predict", trained, tmp_path / "x.tsv", "--no-header", "--output", tmp_path / "out")
    assert code == 0, err
    found = tsv((tmp_path / "out").read_bytes().decode())
    assert [row[0] for row in found] == [text for text, _ in expected]
    with_reason = any(reason for _, reason in expected)
    assert [row[3:] for row in found] == [[reason] if with_reason else [] for _, reason in expected]
    assert all(row[1] in LABELS.keys() | {"103"} or row[1].isdigit() for row in found)
    assert all(0 < float(row[2]) <= 1 for row in found)


@pytest.mark.parametrize("name", CASES)
def test_a_pipe_gives_the_rows_of_a_file(
    name: str, recur: Recur, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content, expected = CASES[name]
    as_stdin(monkeypatch, content)
    code, _, err = recur("predict", trained, "--no-header", "--output", tmp_path / "out", "--format", "tsv")
    assert code == 0, err
    found = tsv((tmp_path / "out").read_bytes().decode())
    assert [(row[0], row[3]) for row in found] == expected


def test_rows_with_too_few_or_too_many_fields_keep_their_place(recur: Recur, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_text("id\tsentence\n1\t鼠\n\n2\n3\t牛\t虎\n4\t\n5\t兔\n")
    code, out, err = recur("predict", trained, tmp_path / "x.tsv")
    assert code == 0, err
    head, *found = tsv(out)
    assert head == ["id", "sentence", "prediction", "score", "reason"]
    assert [(row[0], row[1], row[4]) for row in found] == [
        ("1", "鼠", ""),
        ("", "", "is blank"),
        ("2", "", "has 1 field, not 2"),
        ("3", "牛", "has 3 fields, not 2"),
        ("4", "", ""),
        ("5", "兔", ""),
    ]


ANY = ""
"""A row that may be read or not: it depends on how deep Python's stack is already."""
JSON_CASES: dict[str, tuple[bytes, list[str | None]]] = {
    "an empty file": (b"", []),
    "a cut last line": (b'{"sentence": "a"}\n{"sentence": "b', [None, "it seems to be cut"]),
    "a blank line": (b'{"sentence": "a"}\n\n', [None, "is blank"]),
    "wrong types": (
        b'{"sentence": "a"}\n{"sentence": 7}\n{"sentence": null}\n{"sentence": ["a"]}\n[1]\n"a"\n',
        [None, "is a number", "is null", "is a list", "holds a list", "holds a string"],
    ),
    "a missing key": (b'{"sentence": "a"}\n{"text": "b"}\n', [None, "has no 'sentence'"]),
    "a duplicate key": (b'{"sentence": "a"}\n{"sentence": "b", "sentence": "c"}\n', [None, "twice"]),
    "NaN": (b'{"sentence": "a"}\n{"sentence": "b", "x": NaN}\n', [None, "NaN"]),
    "a number beyond all numbers": (b'{"sentence": "a", "x": 1e999}\n', ["cannot be written as JSON"]),
    "a lone surrogate": (b'{"sentence": "a"}\n{"sentence": "\\ud800"}\n', [None, "surrogate"]),
    "an escaped NUL": (b'{"sentence": "a"}\n{"sentence": "\\u0000"}\n', [None, "NUL"]),
    "a bad byte": (b'{"sentence": "a"}\n{"sentence": "\xff"}\n', [None, "is not UTF-8"]),
    "deep nesting": (b'{"sentence": "a"}\n' + b"[" * 100_000 + b"\n", [None, "nested"]),
    **{
        f"nesting of {depth}": (b'{"sentence": "a", "x": ' + b"[" * depth + b"]" * depth + b"}\n", [reason])
        for depth, reason in ((400, None), (900, ANY), (2000, "nested"))
    },
    "a first row that is broken": (b'{"sentence": \n{"sentence": "b"}\n', ["is not JSON", None]),
    "line ends in a text": (b'{"sentence": "a\\nb\\tc\\r"}\n', [None]),
}


@pytest.mark.parametrize("format", ["jsonl", "tsv", "clue"])
@pytest.mark.parametrize("name", JSON_CASES)
def test_every_row_of_json_lines_comes_out_in_its_place(
    name: str, format: str, recur: Recur, trained: Path, tmp_path: Path
) -> None:
    content, expected = JSON_CASES[name]
    (tmp_path / "x.jsonl").write_bytes(content)
    code, out, err = recur("predict", trained, tmp_path / "x.jsonl", "--format", format)
    assert code == 0, err
    if format == "jsonl":
        found = jsonl(out)
        for line, reason in zip(found, expected, strict=True):
            assert reason == ANY or bool(line.get("reason")) == bool(reason)
            assert (reason or "") in str(line.get("reason", ""))
            assert str(line["prediction"]).isdigit()
    else:
        head = 1 if format == "tsv" and expected else 0
        assert len(out.split("\n")) - 1 - head == len(expected) or (not expected and out == "prediction\tscore\n")


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("x.tsv", b"a\rb\rc\r", "CR alone"),
        ("x.tsv", "文本\n".encode("utf-16"), "UTF-16"),
        ("x.tsv", ("很好的新闻\n" * 3).encode("gbk"), "GBK"),
        ("x.tsv", gzip.compress(b"a\n"), "gzip"),
        ("x.tsv", b"PAR1" + b"\0" * 20, "Parquet"),
        ("x.tsv", b"PK\x03\x04[Content_Types].xml xl/", "Excel"),
        ("x.tsv.gz", gzip.compress(b"a\n" * 9999)[:-9], "compressed file"),
        ("x.tsv.gz", b"a\n", "compressed file"),
        ("x.json", b'[{"sentence": "a"}]', "array"),
        ("x.csv", b"a,b\n", ".csv files are not read"),
    ],
)
def test_a_file_that_is_something_else_is_refused_by_name(
    name: str, content: bytes, reason: str, recur: Recur, trained: Path, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    code, out, err = recur("predict", trained, tmp_path / name, "--output", tmp_path / "out")
    assert code == 3
    assert out == ""
    assert err.startswith(f"recur: error: {tmp_path / name}: ")
    assert reason in err
    assert err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_what_cannot_be_opened_is_named(recur: Recur, trained: Path, tmp_path: Path) -> None:
    for path, reason in ((tmp_path, "is a folder"), (tmp_path / "none.tsv", "does not exist"), ("/dev/null", "device")):
        code, _, err = recur("predict", trained, path)
        assert code == 3
        assert reason in err


line = st.binary(max_size=12).map(lambda row: row.replace(b"\n", b""))


@settings(max_examples=60, deadline=None)
@given(lines=st.lists(line, max_size=8))
def test_no_bytes_lose_or_add_a_row(lines: list[bytes], trained: Path) -> None:
    content = b"".join(row + b"\n" for row in lines)
    with tempfile.TemporaryDirectory() as folder:
        source, output = Path(folder) / "x.tsv", Path(folder) / "out.jsonl"
        source.write_bytes(content)
        code = run(["predict", str(trained), str(source), "--no-header", "--quiet", "--output", str(output)])
        if code == 0:
            assert output.read_bytes().count(b"\n") == len(lines)
        else:
            assert code == 3, "the whole file is refused, as UTF-16 or something else"
