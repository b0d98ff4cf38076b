"""One pass over a split's rows: what is counted, and that nothing is kept of the texts."""

import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from recurcli.data.config import DataConfig
from recurcli.data.sources.find import adapted
from recurcli.data.tasks import CUSTOM, TASKS
from recurcli.inspection.characters import KINDS, is_missing_word, odd_characters
from recurcli.inspection.lengths import measure_of, needs_texts
from recurcli.inspection.line_ends import line_ends_of
from recurcli.inspection.locate import is_submission, parts_of, places_of
from recurcli.inspection.overlap import numbered, overlaps, repeated_ids, repeats
from recurcli.inspection.rows import BAD_ROWS_KEPT, SplitRows, read_rows
from recurcli.tokens.config import TokenizerConfig
from recurcli.tokens.tokenizer import Tokenizer


def rows_of(path: Path, numbers: dict[str, int] | None = None, **config: object) -> SplitRows:
    """The rows of a file of one's own, read as the command reads them."""
    asked = DataConfig(path=str(path), **config)  # type: ignore[arg-type]
    task = adapted(TASKS[CUSTOM], asked)
    (part,) = parts_of(task, asked)
    rows = SplitRows(part.splits[0], path, {} if numbers is None else numbers)
    splits = {rows.split: rows}
    for _ in read_rows(part.source, task, asked, splits, labelled=None, option="--{}", measure=None):
        pass
    return rows


def tsv(path: Path, *rows: str, header: str = "text\tlabel") -> Path:
    path.write_text("".join(f"{row}\n" for row in (header, *rows)), encoding="utf-8")
    return path


def test_rows_that_cannot_be_used_are_counted_and_the_first_kept(tmp_path: Path) -> None:
    rows = rows_of(tsv(tmp_path / "x.tsv", "a\tx", *["b"] * 150, "c\t", "d\ty"))
    assert (rows.read, len(rows), rows.bad) == (153, 2, 151)
    assert len(rows.first_bad) == BAD_ROWS_KEPT
    assert rows.first_bad[0] == f"{tmp_path / 'x.tsv'}:3: has 1 field, not 2"
    assert list(rows.lines) == [2, 154]
    assert rows.label_lines == {"x": 2, "y": 154}


def test_what_is_odd_about_rows_is_noted_with_their_lines(tmp_path: Path) -> None:
    lines = ['"a\tx', '"b"\ty', " \tx", "NA\ty", "c\u202ed\tx", "e\ufffd\ty", "plain 全角　text\tx"]
    rows = rows_of(tsv(tmp_path / "x.tsv", *lines))
    assert {what: places.lines for what, places in rows.places.items()} == {
        "lone quote": [2],
        "odd quotes": [2],
        "quoted field": [3],
        "blank": [4],
        "missing word": [5],
        "bidi": [6],
        "replacement": [7],
    }


def test_csv_fields_over_lines_and_quotes_left_open_are_noted(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text('text,label\n"a\nb",x\n"c"d,y\nf,y\n', encoding="utf-8")
    rows = rows_of(path)
    assert rows.places["spans lines"].lines == [2]
    assert rows.places["quote fault"].lines == [4]
    assert (len(rows), rows.bad) == (2, 1)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_of_odd_character_is_found(kind: str) -> None:
    samples = {
        "nul": "\0",
        "control": "\x1b",
        "bidi": "\u202e",
        "replacement": "\ufffd",
        "byte order mark": "\ufeff",
        "line separator": "\u2028",
        "carriage return": "\r",
        "zero-width": "\u200b",
    }
    assert list(odd_characters(f"a{samples[kind]}b")) == [kind]


def test_ordinary_text_is_not_odd() -> None:
    for text in ("", "plain", "tab\tand\nline", "ideographic　space", "no\u00a0break", "é中🙂"):
        assert list(odd_characters(text)) == []
    assert [is_missing_word(word) for word in ("NA", " null ", "None", "nap", "")] == [True, True, True, False, False]


def test_repeats_and_conflicts_are_told_with_lines(tmp_path: Path) -> None:
    rows = rows_of(tsv(tmp_path / "x.tsv", "a\tx", "b\tx", "a\ty", "b\tx", "c\ty", "a\tx"))
    found = repeats(rows, numbered([rows])[0])
    assert (found.texts, found.rows) == (2, 3)
    assert found.first_lines == [[2, 4, 7], [3, 5]]
    assert (found.conflicting_texts, found.conflicting_rows) == (1, 3)
    assert found.first_conflicts == [{"lines": [2, 4, 7], "labels": ["x", "y"]}]


def test_pairs_are_the_same_only_when_both_texts_are(tmp_path: Path) -> None:
    header = "text\tpair\tlabel"
    rows = rows_of(tsv(tmp_path / "x.tsv", "a\tb\tx", "ab\t\tx", "a\tc\tx", "a\tb\tx", header=header))
    assert repeats(rows, numbered([rows])[0]).first_lines == [[2, 5]]


def test_overlap_counts_texts_rows_and_other_labels(tmp_path: Path) -> None:
    labels: dict[str, int] = {}
    train = rows_of(tsv(tmp_path / "train.tsv", "a\tx", "b\tx", "a\tx", "c\ty"), labels)
    dev = rows_of(tsv(tmp_path / "dev.tsv", "d\tx", "c\ty", "a\ty", "a\ty", "a\tz"), labels)
    (found,) = overlaps([train, dev], numbered([train, dev]))
    assert (found.first, found.second, found.texts, found.first_rows, found.second_rows) == ("train", "dev", 2, 3, 4)
    assert found.other_labels == 1
    assert found.first_lines == [[5, 3], [2, 4]]


def test_splits_without_rows_have_nothing_in_common(tmp_path: Path) -> None:
    empty, some = rows_of(tsv(tmp_path / "train.tsv")), rows_of(tsv(tmp_path / "dev.tsv", "a\tx"))
    (found,) = overlaps([empty, some], numbered([empty, some]))
    assert found.texts == 0
    assert repeats(empty, numbered([empty])[0]).rows == 0


def test_repeated_ids_are_found_and_missing_ones_are_not_repeated(tmp_path: Path) -> None:
    header = "id\ttext\tlabel"
    rows = rows_of(tsv(tmp_path / "x.tsv", "1\ta\tx", "\tb\ty", "1\tc\tx", "\td\tx", header=header))
    assert repeated_ids(rows) == [4]
    assert rows.places["no id"].lines == [3, 5]


TEXTS: Sequence[tuple[str, str | None]] = [
    ("  Ａｂ\t c ", None),
    ("", None),
    ("[SEP] x", "全角　y"),
    ("é\u200b😀 b", ""),
    ("\u2028\ud800 a", None),
]


@pytest.mark.parametrize("kind", ["char", "byte", "whitespace", "wordpiece", "bpe", "unigram"])
def test_lengths_are_those_of_the_tokens_a_training_would_have(kind: str) -> None:
    config = TokenizerConfig(kind=kind, min_frequency=1, vocab_size=60)  # type: ignore[arg-type]
    words = [part for row in TEXTS for part in row if part]
    measure = measure_of(config, iter(words) if needs_texts(config) else iter(()))
    tokens = Tokenizer.train(words, config).encode(TEXTS, max_length=4000)
    np.testing.assert_array_equal(measure(TEXTS), tokens.lengths)


def test_line_ends_and_marks_are_counted_across_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recurcli.inspection.line_ends.CHUNK", 1)
    path = tmp_path / "x"
    for lead in range(20):
        path.write_bytes(b"\xef\xbb\xbf" + b"a" * lead + b"\r\nb\n\n\xef\xbb\xbfc\r\nd\xef\xbb\xbf\n")
        found = line_ends_of(path)
        assert (found.lf, found.crlf, found.marks, found.first_mark, found.starts_with_mark) == (3, 2, 1, 4, True)


def test_a_path_tells_its_task(tmp_path: Path) -> None:
    (tmp_path / "tnews").mkdir()
    (tmp_path / "tnews" / "train.json").touch()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "train.50k.json").touch()
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "valid.tsv").touch()
    (tmp_path / "own" / "listops-mini_x.tsv").touch()
    named = {path: [place.task for place in places_of(path, None, "")] for path in [tmp_path, *tmp_path.glob("*")]}
    assert named == {
        tmp_path: ["tnews"],
        tmp_path / "tnews": ["tnews"],
        tmp_path / "mine": ["ocnli"],
        tmp_path / "own": ["custom"],
    }
    assert places_of(tmp_path / "tnews" / "train.json", None, "")[0].task == "tnews"
    assert places_of(tmp_path / "own" / "listops-mini_x.tsv", None, "")[0].task == "listops-mini"
    assert places_of(tmp_path / "tnews" / "train.json", "afqmc", "")[0].task == "afqmc"


def test_predictions_are_told_from_data(tmp_path: Path) -> None:
    for name, content, expected in [
        ("x.zip", "", True),
        ("afqmc_predict.json", "", True),
        ("a.json", '{"id": 0, "label": "1"}\n', True),
        ("b.json", '[{"label": "1"}, {"label": "0"}]', True),
        ("c.json", '{"id": 0, "label": "1", "sentence": "x"}\n', False),
        ("d.json", "{broken", False),
        ("e.tsv", "id\tlabel\n", False),
    ]:
        (tmp_path / name).write_text(content)
        assert is_submission(tmp_path / name) is expected, name


def test_memory_does_not_grow_with_the_texts(tmp_path: Path) -> None:
    path = tsv(tmp_path / "x.tsv", *(f"{'long text ' * 200}{row}\tx{row % 2}" for row in range(5000)))
    rows_of(tsv(tmp_path / "warm.tsv", "a\tx"))
    tracemalloc.start()
    rows = rows_of(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(rows) == 5000
    assert peak < 2 << 20, "the file has 10 MB"
