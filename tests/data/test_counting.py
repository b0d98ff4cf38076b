"""Rows that are counted without being read are those of the reader, and a file with a fault or a doubt is never counted so."""

import random
from pathlib import Path

import pytest
from cases import examples

from recurcli.data import counting
from recurcli.data.columns import TextColumns
from recurcli.data.counting import sound_rows
from recurcli.data.rows import Format
from recurcli.data.source import Source, read_source

CHARACTERS = ["a", "b c", "é", "鼠", " ", "x", "\u3000"]
STRAY = ["", '"', '""', "\n", "\r", ",", "\t", "\0", "\ufeff"]


def table(draw: random.Random, mark: str, quote: str | None, width: int) -> bytes:
    """Return rows of which most are sound."""

    def cell() -> str:
        text = "".join(draw.choices(CHARACTERS, k=draw.randint(draw.random() > 0.05, 4)))
        if quote and draw.random() < 0.3:
            text = quote + text + draw.choice(["", mark, quote * 2, "\n" * 6, "\r\n"]) + quote
        return text + (draw.choice(STRAY) if draw.random() < 0.01 else "")

    rows = [mark.join(cell() for _ in range(width)) + draw.choice(["\n", "\r\n"]) for _ in range(draw.randint(1, 12))]
    return "".join(rows)[: None if draw.random() < 0.7 else -1].encode()


@pytest.mark.parametrize(("mark", "quote"), [(",", '"'), ("\t", None), ("\t", '"')])
def test_the_rows_are_those_of_the_reader(
    mark: str, quote: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw, counted = random.Random(f"{mark}{quote}"), 0
    path = tmp_path / "rows"
    for _ in range(examples(120)):
        width, every = draw.randint(1, 3), draw.randint(1, 3)
        content = table(draw, mark, quote, width)
        path.write_bytes(content)
        columns = TextColumns(text=(str(draw.randint(1, width)),))
        format: Format = "csv" if mark == "," else "tsv"
        header = draw.random() < 0.5
        source = Source(
            name="x", path=str(path), format=format, delimiter=mark, quote=quote, header=header, columns=columns
        )
        monkeypatch.setattr(counting, "BLOCK", draw.choice([16, 31, 1 << 20]))
        found = sound_rows(source, width, every, ())
        if found is None:
            continue
        counted += 1
        with read_source(source) as records:
            rows = list(records)
            assert not records.doubts
        assert not any(columns.read_for_label(row).fault for row in rows), content
        assert (found[0], [*found[1]]) == (len(rows), [*range(0, len(rows), every)]), content
        for number, place in found[1].items():
            with read_source(source, place) as records:
                assert list(records) == rows[number:], content
    assert counted > examples(30)


@pytest.mark.parametrize(
    "content",
    ["[\n{}\n]", '{"data": [{}, {}]}', '{\n"a": 1}\n{}', '{"a": 1}\n{"score": 1}', '{"a": 1}\n{"a": "\udcff"}'],
)
def test_json_that_is_not_lines_or_has_a_refused_key_is_read(content: str, tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(content.encode(errors="surrogateescape"))
    source = Source(name="x", path=str(path), format="jsonl", columns=TextColumns(text=("a",)))
    assert sound_rows(source, 1, 1, ("score",)) is None
    path.write_text('{"a": 1}\n{}\n\n{"a": 2}')
    found = sound_rows(source, 1, 1, ("score",))
    assert found is not None and found[0] == 4
    with read_source(source, found[1][3]) as records:
        assert [(row.line, row.fields) for row in records] == [(4, {"a": 2})]


def test_a_separator_line_after_a_byte_order_mark_is_no_row(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(b"\xef\xbb\xbfsep=,\na,b\nc,d\n")
    columns = TextColumns(text=("1",))
    source = Source(name="x", path=str(path), format="csv", delimiter=",", quote='"', header=False, columns=columns)
    assert sound_rows(source, 2, 1, ()) is None
