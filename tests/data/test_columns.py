"""Text, second text and label are found by their names, joined, and marked."""

import json
import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from sources import found, like, texts_of

from recurcli.config import DataConfig
from recurcli.data.columns import (
    BadRow,
    TextColumns,
    marked,
)
from recurcli.data.rows import Record, Records
from recurcli.data.source import LABEL_NAMES, PAIR_NAMES, TEXT_NAMES, ColumnNames, Source
from recurcli.data.splits import load_split
from recurcli.data.tasks import TASKS
from recurcli.errors import DataError, ModelError

CUSTOM = TASKS["custom"]


def decided(header: str, **told: Any) -> Source:
    return found(f"{header}\n", labelled=True, **told)[0]


@pytest.mark.parametrize("name", [*TEXT_NAMES, "Text", " REVIEW "])
def test_a_text_has_one_of_the_usual_names(name: str) -> None:
    assert decided(f"label\t{name}\tother").columns.text == (name,)


@pytest.mark.parametrize("name", [*LABEL_NAMES, "Label", " Sentiment"])
def test_a_label_has_one_of_the_usual_names(name: str) -> None:
    assert decided(f"{name}\ttext\tother").label == (name,)


@pytest.mark.parametrize(("first", "second"), PAIR_NAMES.items())
def test_a_second_text_beside_the_first_makes_a_pair(first: str, second: str) -> None:
    assert decided(f"{second}\t{first}\tlabel").columns == TextColumns((first,), (second,))
    assert decided(f"{first}\tlabel").columns.pair == ()


def test_the_exact_name_wins_over_one_in_other_case() -> None:
    source = decided("Text\ttext\tLABEL\tlabel")
    assert (source.columns.text, source.label) == (("text",), ("label",))


def test_columns_are_told_by_name_or_number_and_several_are_joined() -> None:
    source = decided("a\tb\tc\td", text=("c", 1), pair="d", label=2)
    assert (source.columns, source.label, source.id) == (TextColumns(("c", "a"), ("d",)), ("b",), None)


def test_a_text_column_that_is_not_read_is_known_unless_the_text_is_told() -> None:
    def unread(header: str, **told: Any) -> list[str]:
        notes = found(f"{header}\n", labelled=True, **told)[1].notes
        return [note.text for note in notes if "not read" in note.text]

    words = "x.tsv: the text is 'title'; 'body' is not read (--text may be repeated)"
    assert unread("title\tbody\tlabel\tlength") == [words]
    long = "x.tsv: the text is 'title'; 'story' is not read (--text may be repeated)"
    assert unread("title\tstory\tlabel\na\tone long story of a kettle\tb") == [long]
    assert unread("title\tbody\tlabel", text="title") == unread("title\tbody\tlabel", label="body") == []


@pytest.mark.parametrize(
    ("header", "told", "message"),
    [
        ("James\tM", {}, "x.tsv: which column is the text? add --text COLUMN, a name in line 1 or a number"),
        ("a;b", {"delimiter": ","}, "or --delimiter MARK if it has several columns; line 1 is: a;b"),
        ("text\tb", {}, "x.tsv:1: 'text' seems to name a column, but no cell names the label"),
        ("text\tb", {"text": "text"}, "x.tsv: which column is the label? add --label COLUMN; the columns are: text, b"),
        ("a\tb", {"text": "c"}, "x.tsv: has no column 'c'; known: a, b; --text COLUMN names another"),
        ("sentense\ta", {"text": "sentence"}, "x.tsv: has no column 'sentence'; did you mean 'sentense'"),
        ("Sentence\ta", {"text": "sentence"}, "did you mean 'Sentence'"),
        ("sentence \ta", {"text": "sentence"}, "did you mean 'sentence '"),
        ("\x1b[31m\tb", {"text": "sentence"}, "; known: \\x1b[31m, b"),
        ("a\tb", {"text": 3}, "x.tsv: has no column '3'; known: 1, 2"),
        ("a\tb", {"text": 0}, "x.tsv: has no column '0'"),
        ("text\tlabel", {"id": "key"}, "x.tsv: has no column 'key'"),
    ],
)
def test_a_column_that_is_not_found_is_asked_for(header: str, told: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=re.escape(message)):
        decided(header, **told)


def test_a_column_goes_by_name_or_by_number() -> None:
    columns = ColumnNames("x.tsv", ("id", "3", "text"), ("1", "2", "3"))
    assert [columns.find(word, "text") for word in ("text", "1", "3")] == ["3", "1", "2"]


SINGLE = TextColumns(("text",))
TITLE = TextColumns(("title",))
PAIR = TextColumns(("sentence1",), ("sentence2",))
SINGLES_BESIDE_PAIRS = "holds pairs of texts ('sentence1' and 'sentence2'), but runs/x has single texts; "


def unread_in(records: Records) -> tuple[str, ...]:
    """The columns that the notes say are not read."""
    notes = [note.text.partition(";")[2] for note in records.notes if "not read" in note.text]
    return tuple(name for note in notes for name in re.findall(r"'(\w+)'", note))


def found_by_eval_and_predict(header: str, trained: TextColumns, text: str | None = None) -> list[object]:
    """The names of the columns, or the message, of rows without labels and of an input of `recur predict`."""
    answers: list[object] = []
    before = like(trained.text, *trained.pair)
    for is_input in (False, True):
        try:
            content = f"{header}\n{header.replace('e', 'i')}\n"
            source, records, _ = found(content, like=before, is_input=is_input, text=text)
            answers.append((texts_of(source, records), unread_in(records)))
        except DataError as error:
            answers.append(str(error))
    return answers


@pytest.mark.parametrize(
    ("header", "trained", "text", "answer"),
    [
        ("text\tlabel", SINGLE, None, (SINGLE, ())),
        ("review\ty", SINGLE, None, (TextColumns(("review",)), ())),
        ("text\ttitle\tbody\tlabel", TITLE, None, (TITLE, ("text", "body"))),
        ("sentence1\tsentence2\tlabel", PAIR, None, (PAIR, ())),
        ("premise\thypothesis\tx", PAIR, None, (TextColumns(("premise",), ("hypothesis",)), ())),
        ("sentence1\tsentence2\tlabel", SINGLE, None, f"x.tsv: {SINGLES_BESIDE_PAIRS}"),
        ("sentence1\tsentence2\tlabel", TextColumns(("sentence1",)), None, f"x.tsv: {SINGLES_BESIDE_PAIRS}"),
        ("sentence1\tsentence2\tlabel", SINGLE, "sentence1", (TextColumns(("sentence1",)), ())),
        ("text\tlabel", PAIR, None, "x.tsv:1: 'text' seems to name a column, but no cell names the second text"),
    ],
)
def test_eval_and_predict_find_the_columns_of_the_training_or_refuse_the_same_rows(
    header: str, trained: TextColumns, text: str | None, answer: object
) -> None:
    for each in found_by_eval_and_predict(header, trained, text):
        assert each == answer or (isinstance(answer, str) and str(each).startswith(answer)), each


def test_a_run_whose_settings_name_one_column_reads_it_beside_a_second_text() -> None:
    trained = like("sentence1", explicit=("text",))
    source, records, _ = found("sentence1\tsentence2\na\tb\n", like=trained, is_input=True)
    assert source.columns == TextColumns(("1",))
    assert [note.text for note in records.notes[1:]] == [
        "x.tsv: the text is 'sentence1'; 'sentence2' is not read (--text may be repeated)"
    ]


def test_dev_rows_are_of_the_kind_of_the_training_rows(tmp_path: Path) -> None:
    files = {"train": "text,label\na,1\n", "dev": "sentence1,sentence2,label\na,b,1\n"}
    paths = {split: tmp_path / f"{split}.csv" for split in files}
    for split, content in files.items():
        paths[split].write_text(content)
    for one, other in (("train", "dev"), ("dev", "train")):
        trained = load_split(CUSTOM, "train", DataConfig(path=str(paths[one]))).source
        with pytest.raises(DataError, match=rf"{other}\.csv: holds .*, but .*{one}\.csv has .*; give rows of one kind"):
            load_split(CUSTOM, "dev", DataConfig(path=str(paths[other]), header=True), like=trained)


def test_predict_and_training_find_the_same_columns_by_their_usual_names() -> None:
    for header in ("Text\tsentence\tpair\tlabel", "body\tReview\tid", "Premise\tHypothesis\ty", "text2\ttext1\tx"):
        trained = decided(f"{header}\tlabels").columns
        before = like("gone", *(("no",) if trained.pair else ()))
        source, records, _ = found(f"{header}\na\tb\tc\td\n", like=before, is_input=True)
        assert texts_of(source, records) == trained


def test_a_later_file_has_the_label_and_the_id_of_the_training_rows_before_usual_ones() -> None:
    trained = decided("words\tverdict\tkey", text="words", label="verdict", id="key")
    assert (trained.label, trained.id, trained.explicit) == (("verdict",), "key", ("text", "label"))
    source = found("id\tlabel\tverdict\twords\tkey\na\tb\tc\td\te\n", labelled=True, like=trained)[0]
    assert (source.columns.text, source.label, source.id) == (("words",), ("verdict",), "key")
    with pytest.raises(DataError, match="has no column 'verdict'"):
        found("id\tlabel\twords\na\tb\tc\n", labelled=True, like=trained)
    source = found("id\tlabel\twords\na\tb\tc\n", labelled=True, like=replace(trained, explicit=()))[0]
    assert (source.label, source.id) == (("label",), "id")


def test_a_source_is_stored_and_read_again() -> None:
    source = decided("a\tb\tc\td", text=("c", 1), pair="d", label=2)
    stored = json.loads(json.dumps(asdict(source)))
    assert Source.from_json(stored, Path("config.json")) == source
    for bad in (
        {},
        {**stored, "delimiter": None},
        {**stored, "quote": "\t"},
        {**stored, "encoding": "x"},
        {**stored, "n": 1},
    ):
        with pytest.raises(ModelError, match=r"^config\.json: is damaged: source: "):
            Source.from_json(bad, Path("config.json"))


def test_lists_of_strings_and_several_columns_are_joined_by_spaces() -> None:
    row = {"title": "a", "keyword": ["b", "c"], "body": ""}
    assert TextColumns(("title", "keyword"), ("body",)).read(Record(1, row)) == ("a b c", "", None)
    for bad in (["b", 1], None, 3, {"a": "b"}):
        text, pair, fault = TextColumns(("keyword",), ("title",)).read(Record(1, {"keyword": bad, "title": "a"}))
        assert (text, pair) == ("", "a")
        assert str(fault).startswith("'keyword' is ")


def target(first: str, at: object, second: str, there: object) -> dict[str, object]:
    return {"span1_text": first, "span1_index": at, "span2_text": second, "span2_index": there}


@pytest.mark.parametrize(
    ("text", "spans", "expected"),
    [
        ("小明看见她", target("小明", 0, "她", 4), "_小明_看见[她]"),
        ("她看见小明", target("小明", 3, "她", 0), "[她]看见_小明_"),
        ("小明看见她", target("小明", 3, "她", 1), "_小明_看见[她]"),
        ("小明看见她", target("小明", -1, "她", 99), "_小明_看见[她]"),
        ("aa", target("a", 0, "a", 1), "_a_[a]"),
        ("aa", target("a", 1, "a", 0), "[a]_a_"),
    ],
)
def test_both_spans_are_marked_where_they_stand(text: str, spans: object, expected: str) -> None:
    assert marked(text, spans) == expected


@pytest.mark.parametrize(
    ("spans", "reason"),
    [
        (target("小明", 0, "他", 4), "'他' is not at character 4, as span2_index says"),
        (target("明", 9, "她", 4), "'明' is not at character 9, as span1_index says"),
        (target("小明", 0, "明看", 1), "its two spans overlap"),
        (target("小明", "0", "她", 4), "names no span1_text and span1_index"),
        (target("小明", 0, "她", True), "names no span2_text and span2_index"),
        ({"span1_text": "小明", "span1_index": 0}, "names no span2_text and span2_index"),
        ("小明", "names no span1_text and span1_index"),
    ],
)
def test_spans_that_cannot_be_marked_are_a_bad_row(spans: object, reason: str) -> None:
    with pytest.raises(BadRow, match=reason):
        marked("小明看见她和明", spans)
