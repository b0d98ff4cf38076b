"""Files in other encodings than UTF-8 are read as named, and a file in a wrong one says which it may be."""

import gzip
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recurcli.config import DataConfig, canonical_encoding
from recurcli.data.readers import read_records
from recurcli.data.rows import TextDecoder, encoding_of, likely_encoding, rows_of
from recurcli.data.splits import load_split
from recurcli.data.tasks import TASKS
from recurcli.errors import DataError
from recurcli.targets import Cell
from recurcli.tokens.texts import read_corpus

FRENCH = [("très déçu", "neg"), ("naïf, mais élégant", "pos"), ("ça va", "pos"), ("où ?", "neg")] * 5
CHINESE = [("今天天气很好", "新闻"), ("股市大涨", "财经")] * 10
RUSSIAN = [("хорошо", "1"), ("плохо", "0")] * 10


def written(path: Path, rows: list[tuple[str, str]], encoding: str) -> Path:
    text = "text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows)
    path.write_bytes(text.encode(encoding))
    return path


def load(path: Path, encoding: str = "utf-8") -> list[tuple[str, Cell | None]]:
    found = load_split(TASKS["custom"], "train", DataConfig(path=str(path), encoding=encoding))
    return [(example.text, example.label) for example in found.examples]


@pytest.mark.parametrize(
    ("rows", "encoding"),
    [
        *((FRENCH, name) for name in ("latin-1", "cp1252", "utf-16", "utf-16-le", "utf-32", "UTF-8", "utf-8-sig", "cp500")),
        *((CHINESE, name) for name in ("gb18030", "gbk", "big5", "utf-16-be", "hz", "utf-7")),
        *((RUSSIAN, name) for name in ("cp1251", "koi8-r", "iso2022_jp")),
    ],
)  # fmt: skip
def test_every_encoding_gives_the_same_rows(rows: list[tuple[str, str]], encoding: str, tmp_path: Path) -> None:
    if encoding == "big5":
        rows = [
            (text.replace("气", "空").replace("涨", "空"), "新" if label == "新闻" else "t") for text, label in rows
        ]
        rows = [(text.replace("闻", ""), label) for text, label in rows]
    path = written(tmp_path / "x.tsv", rows, encoding)
    assert load(path, encoding) == rows
    packed = tmp_path / "y.tsv.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert load(packed, encoding) == rows


@given(
    lines=st.lists(st.text(st.characters(exclude_characters="\n\r\0", codec="utf-8"), max_size=9), max_size=9),
    encoding=st.sampled_from(["utf-16", "utf-16-le", "utf-32-be", "gb18030", "utf-8"]),
    step=st.integers(1, 50),
)
def test_rows_are_split_after_decoding_however_the_bytes_arrive(lines: list[str], encoding: str, step: int) -> None:
    class Dripping(io.BytesIO):
        def read1(self, size: int | None = -1) -> bytes:
            return self.read(step)

    content = "".join(f"{line}\n" for line in ["\0", *lines]).encode(encoding)
    decoder = TextDecoder(encoding)
    decoder.doubt = lambda head: ""  # type: ignore[method-assign]
    found = [row.decoder.decode(row.content) for row in rows_of(Dripping(content), "x", decoder)]
    assert found == [(line, None) for line in ["\0", *lines]]


@pytest.mark.parametrize(
    ("rows", "encoding", "message"),
    [
        (
            FRENCH,
            "latin-1",
            r"x.tsv:2: is not UTF-8 at byte 3 \(0xe8\); .* cp1252 \('très', 'déçu', 'naïf'\): --encoding cp1252$",
        ),
        (
            [("it’s “fine”", "a"), ("so–so", "b")],
            "cp1252",
            r"cp1252 \('it’s', '“fine”', 'so–so'\): --encoding cp1252$",
        ),
        (
            [("plain", "a"), ("图书", "b")],
            "gb18030",
            r"x.tsv:3: .*; the file may be gb18030 \('图书'\): --encoding gb18030$",
        ),
        (CHINESE, "gb18030", "looks like GBK; name it with --encoding gb18030"),
        (RUSSIAN, "cp1251", "; name the encoding of the file with --encoding$"),
        (FRENCH, "utf-16", "is UTF-16; name it with --encoding utf-16"),
        (FRENCH, "utf-16-le", r"is UTF-16 without a byte order mark \(--encoding utf-16-le or utf-16-be\)"),
    ],
)
def test_a_file_that_is_not_utf8_names_a_likely_encoding(
    rows: list[tuple[str, str]], encoding: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=message):
        load(written(tmp_path / "x.tsv", rows, encoding))


def test_a_file_is_read_in_the_only_likely_encoding_with_a_note(tmp_path: Path) -> None:
    german = [("Die Größe ist für uns völlig in Ordnung", "a"), ("Müll, würde ich nie wieder kaufen – nie", "b")] * 5
    spam = [("You have won a £2000 prize, call now", "spam"), ("free £100 cash, å£750", "spam"), ("home?", "ham")] * 5
    russian = [("Товар пришёл вовремя, всё отлично", "a"), ("Не советую никому, деньги на ветер", "b")] * 5
    korean = [("배송이 빨라서 좋았습니다", "a"), ("고장나서 환불했어요", "b")] * 5
    forms = [
        (german, "cp1252", "cp1252 ('Größe', 'für', 'völlig')"),
        (spam, "latin-1", "cp1252 ('£2000', '£100', 'å£750')"),
    ]
    forms += [
        (russian, "cp1251", "cp1251 ('Товар', 'пришёл', 'вовремя')"),
        (korean, "euc_kr", "cp949 ('배송이', '빨라서', "),
    ]
    forms += [(CHINESE, "gb18030", "gb18030 ('今天天气很好', '新闻', '股市大涨')")]
    for rows, encoding, note in forms:
        path = written(tmp_path / "x.tsv", rows, encoding)
        found = load_split(TASKS["custom"], "train", DataConfig(path=str(path)))
        assert [(example.text, example.label) for example in found.examples] == rows
        assert f"x.tsv: not UTF-8, read as {note}" in found.notes[0].text
        assert canonical_encoding(encoding) in (found.source.encoding, "iso8859-1", "euc_kr")


def test_a_file_is_not_read_where_other_encodings_are_as_likely(tmp_path: Path) -> None:
    japanese = [("とても良い商品です", "a"), ("品質が悪くて使えません", "b")] * 5
    for rows, encoding, likely in ((japanese, "shift_jis", "cp932"), ([("图书", "a")], "gb18030", "gb18030")):
        path = written(tmp_path / "x.tsv", rows, encoding)
        with pytest.raises(DataError, match=rf"the file may be {likely} \('{rows[0][0]}'.*\): --encoding {likely}$"):
            load_split(TASKS["custom"], "train", DataConfig(path=str(path)))


def test_a_row_that_is_utf8_by_chance_does_not_hide_the_encoding(tmp_path: Path) -> None:
    path = written(tmp_path / "x.tsv", [*FRENCH, ("Ã©", "pos")], "latin-1")
    assert encoding_of(path, "utf-8")[0] == "cp1252"
    mixed = written(tmp_path / "x.tsv", FRENCH, "latin-1")
    mixed.write_bytes(mixed.read_bytes() + "".join(f"{text}\t{label}\n" for text, label in FRENCH).encode())
    with pytest.raises(DataError, match=r"20 of 40 rows cannot be used.*…$"):
        load_split(TASKS["custom"], "train", DataConfig(path=str(mixed)))


def test_damage_in_a_utf8_file_suggests_no_encoding(tmp_path: Path) -> None:
    path = written(tmp_path / "x.tsv", FRENCH, "utf-8")
    path.write_bytes(path.read_bytes() + "caf\u00e9\tpos\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"x.tsv:22: is not UTF-8 at byte 4 \(0xe9\)$"):
        load(path)
    assert likely_encoding(b"dam\xffaged") is None


@pytest.mark.parametrize(
    ("rows", "encoding", "likely", "expected"),
    [
        (FRENCH, "cp1252", "cp1252", "cp1252"),
        (FRENCH[:1], "latin-1", "latin-1", "iso8859-1"),
        (CHINESE, "gb18030", "gb18030", "gb18030"),
        (FRENCH, "utf-16", "utf-16", "utf-16"),
        *((FRENCH, "utf-8", name, "utf-8") for name in ("latin-1", "cp1252", "gb18030", "utf-16", "utf-8")),
        ([("plain", "a")], "ascii", "latin-1", "utf-8"),
        (FRENCH, "utf-16", "latin-1", "utf-8"),
    ],
)
def test_a_file_has_the_encoding_with_fewer_faults(
    rows: list[tuple[str, str]], encoding: str, likely: str, expected: str, tmp_path: Path
) -> None:
    path = written(tmp_path / "x.tsv", rows, encoding)
    assert encoding_of(path, likely)[0] == expected


@pytest.mark.parametrize("likely", ["latin-1", "cp1252", "gb18030"])
def test_one_bad_byte_does_not_turn_a_utf8_file(likely: str, tmp_path: Path) -> None:
    path = written(tmp_path / "x.tsv", FRENCH[:1], "utf-8")
    path.write_bytes(path.read_bytes() + b"caf\xe9 bar\tpos\n")
    assert encoding_of(path, likely)[0] == "utf-8"


def test_rows_that_were_cut_within_a_character_stay_utf8(tmp_path: Path) -> None:
    rows = [f"Grüße aus Köln, für Zeile {number} é".encode()[:-1] for number in range(20)]
    (tmp_path / "x.txt").write_bytes(b"\n".join(rows))
    assert encoding_of(tmp_path / "x.txt", "cp1252")[0] == "utf-8"


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("latin-1", "x.tsv: is read as latin-1, but is UTF-8: --encoding utf-8"),
        ("gb18030", "x.tsv: is read as gb18030, but is UTF-8"),
        ("utf-16", "x.tsv: is not utf-16, since it has no zero bytes"),
    ],
)
def test_a_utf8_file_is_not_read_as_something_else(named: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        load(written(tmp_path / "x.tsv", FRENCH, "utf-8"), named)


def test_bad_bytes_in_another_encoding_are_faults_of_their_rows() -> None:
    rows = "a\tb\n\u5929\tc\n"
    for encoding, place in (("gb18030", "byte 1 (0xff)"), ("utf-16-le", "character 1")):
        bad = {"gb18030": b"\xff\td\n", "utf-16-le": b"\x00\xd8\t\0d\0\n\0"}[encoding]
        stream = io.BytesIO(rows.encode(encoding) + bad + "e\tf\n".encode(encoding))
        found = list(read_records(stream, "tsv", encoding=encoding))
        assert [record.fields["2"] for record in found] == ["b", "c", "d", "f"]
        assert [record.fault is None for record in found] == [True, True, False, True]
        assert found[2].fault == f"is not {encoding} at {place}"


def test_a_corpus_has_an_encoding(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("café\n".encode("latin-1"))
    assert list(read_corpus(tmp_path, encoding="latin-1").texts()) == ["café"]
    with pytest.raises(DataError, match=r"the file may be cp1252 \('café'\): --encoding cp1252"):
        list(read_corpus(tmp_path).texts())


@pytest.mark.parametrize("name", ["latin1x", "", "base64", "rot13", "undefined", "a\0b", "ü", "idna", "unicode_escape"])
def test_what_is_no_encoding_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"encoding .* is not known; usual ones are utf-8"):
        DataConfig(encoding=name)


def test_names_of_one_encoding_are_one() -> None:
    assert canonical_encoding("UTF8") == canonical_encoding("utf-8-sig") == "utf-8"
    assert canonical_encoding("Latin-1") == canonical_encoding("ISO-8859-1")
