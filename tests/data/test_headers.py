"""Row 1 of a TSV or CSV is taken as column names by one rule, so that no row is lost in silence."""

import csv
import io
import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise, permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from logs import Kept
from pyarrow import Table, parquet
from sources import found, like

from recurcli.commands.check import inspect, read_splits
from recurcli.config import DataConfig
from recurcli.data.source import LABEL_NAMES, ROWS_FOR_HEADER, TEXT_NAMES, UNKNOWN, Source, find_source
from recurcli.data.splits import load_split
from recurcli.data.tasks import TASKS, task_with_columns
from recurcli.errors import DataError
from recurcli.export.clue import Finding

CUSTOM = TASKS["custom"]
AS_NAMES = "line 1 is taken as column names; --no-header reads it as a row"
AS_ROW = "line 1 is taken as a row; --header reads it as column names"
ON_TEXT, ON_QUESTION, ON_PAIRS, ON_NUMBER, ON_TWO = (
    like(),
    like("question"),
    like("sentence1", "sentence2"),
    like("1"),
    like(("phrase", "context")),
)
Found = tuple[list[list[str]], str]
"""The rows that are left, and the note on line 1."""


def as_input(content: str, trained: Source = ON_TEXT, **told: object) -> Found:
    """Read an input of `recur predict`."""
    return left_of(content, like=trained, is_input=True, **told)


def as_training_rows(content: str, labelled: bool = True, trained: Source = UNKNOWN, **told: object) -> Found:
    """Read labelled rows as training, `check` and `eval` do."""
    return left_of(content, like=trained, labelled=labelled, **told)


def left_of(content: str, **told: Any) -> Found:
    _, records, rows = found(content, **told)
    notes = [note.text.removeprefix("x.tsv: ") for note in records.notes if "line 1" in note.text]
    return [[*row.fields.values()] for row in rows], "".join(notes)


@pytest.mark.parametrize(
    ("content", "trained", "told"),
    [
        ("y\tI like it\nn\tbad food\n", ON_TEXT, {"text": "2"}),
        ("topic\tclass\nid\tlabel\n", ON_TEXT, {}),
        ("question\nWho is he ?\n", ON_TEXT, {}),
        ("label\nid\n", ON_TEXT, {}),
        ("sentence1\nb\n", like(), {}),
        ("1\tgood\n2\tbad\n", ON_NUMBER, {}),
        ("phrase\n", ON_TWO, {}),
        ("foo\tbar\na\tb\n", ON_TEXT, {}),
    ],
)
def test_a_row_is_not_swallowed_as_a_header(content: str, trained: Source, told: dict[str, str]) -> None:
    assert as_input(content, trained, **told) == ([line.split("\t") for line in content.splitlines()], AS_ROW)


@pytest.mark.parametrize(
    ("header", "trained"),
    [
        *[(name, ON_TEXT) for name in ("text", "sentence", " Text")],
        *[("question", ON_QUESTION), ("question\tid", ON_TEXT), ("x\tQuestion", ON_QUESTION)],
        *[("phrase\tx\tcontext", ON_TWO), ("sentence1\tsentence2", ON_PAIRS), ("premise\thypothesis", ON_PAIRS)],
    ],
)
def test_an_input_has_a_header_by_the_names_of_the_training_or_by_usual_ones(header: str, trained: Source) -> None:
    row = ["a"] * len(header.split("\t"))
    assert as_input("\t".join(row).join([f"{header}\n", "\n"]), trained) == ([row], AS_NAMES)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("text\tb\n", "'text' seems to name a column, but no cell names the label"),
        ("y\tI like it\nn\tbad food\n", "'y' seems to name a column, but no cell names the text"),
        ("text\tlabel\na\tb\nc\tlabel\n", "'label' seems to name a column, but line 3 has it, too"),
        ("text\tlabel\0\n", "holds a NUL at character 11"),
    ],
)
def test_training_rows_whose_first_may_be_a_header_are_refused_with_the_ways_out(content: str, message: str) -> None:
    with pytest.raises(DataError, match=rf"^x.tsv:1: {message}; add --header or --no-header$"):
        as_training_rows(content)
    with pytest.raises(DataError, match=r"add --header or --no-header$"):
        as_training_rows("text\tlabel\na\tb\nc\tlabel\n", text="1", label=2)
    assert len(as_training_rows(content, text="1", label=2, header=False)[0]) == content.count("\n")


def test_an_input_whose_first_row_may_be_a_header_is_refused() -> None:
    for content, trained, why in (
        ("a\ttext\nb\ttext\n", ON_TEXT, "'text' seems to name a column, but line 2 has it, too"),
        ("phrase\tb\n", ON_TWO, "'phrase' seems to name a column, but no cell names 'context'"),
    ):
        with pytest.raises(DataError, match=rf"^x.tsv:1: {why}; add --header or --no-header$"):
            as_input(content, trained)
        assert [len(as_input(content, trained, header=option, text="1")[0]) for option in (True, False)] == [
            content.count("\n") - 1,
            content.count("\n"),
        ]


def test_a_name_that_stands_again_after_a_thousand_rows_is_a_name() -> None:
    for rows, repeats in ((ROWS_FOR_HEADER - 2, True), (ROWS_FOR_HEADER - 1, False)):
        content = "text\tlabel\n" + "a\tb\n" * rows + "a\tlabel\n"
        if repeats:
            with pytest.raises(DataError, match=f"line {rows + 2} has it, too"):
                as_training_rows(content)
        else:
            found, note = as_training_rows(content)
            assert (len(found), note) == (rows + 1, AS_NAMES)


def test_columns_told_by_name_must_be_in_line_1_and_numbers_change_nothing() -> None:
    assert as_training_rows("a\tb\nc\td\n", text="a", label="2") == ([["c", "d"]], "")
    assert as_training_rows("a\tb\nc\td\n", text="1", label=2) == ([["a", "b"], ["c", "d"]], AS_ROW)
    assert as_training_rows("text\tlabel\nc\td\n", text="1", label=2) == ([["c", "d"]], AS_NAMES)
    with pytest.raises(DataError, match=r"^x.tsv: has no column 'test'; did you mean 'text'\?; --label COLUMN"):
        as_training_rows("text\tb\nc\td\n", label="test")
    with pytest.raises(DataError, match=r"has no column 'c'; known: b, text; --text COLUMN names another$"):
        as_input("text\tb\nc\td\n", text="c")
    with pytest.raises(DataError, match=r"has no column 'c'; known: 1, 2; --text COLUMN names another$"):
        as_input("text\tb\nc\td\n", text="c", header=False)


def test_the_only_column_of_rows_without_labels_is_their_text(tmp_path: Path) -> None:
    assert as_training_rows("question\nWho is he ?\n", False) == ([["question"], ["Who is he ?"]], AS_ROW)
    with pytest.raises(DataError, match="which column is the text"):
        as_training_rows("question\nWho is he ?\n")


def test_a_file_without_a_header_may_hold_a_cell_twice(tmp_path: Path) -> None:
    path = tmp_path / "x.tsv"
    path.write_text("OTHER\tit is\tOTHER\ngood\tso so\tb\n")
    split = load_split(CUSTOM, "train", DataConfig(path=str(path), text="2", label="1"))
    assert [(row.text, row.label) for row in split.examples] == [("it is", "OTHER"), ("so so", "good")]
    assert [note.text for note in split.notes if note.level != "warning"] == [f"{path}: {AS_ROW}"]
    for told in ({"header": True}, {"text": "it is"}):
        with pytest.raises(
            DataError, match=r"has the column 'OTHER' twice; rename one, or add --no-header if line 1 is"
        ):
            load_split(CUSTOM, "train", DataConfig(path=str(path), label="1", **told))


def test_dev_rows_have_a_header_by_the_names_of_the_training_rows() -> None:
    trained = like("phrase")
    assert as_training_rows("label\tphrase\na\tb\n", trained=trained) == ([["a", "b"]], AS_NAMES)
    with pytest.raises(DataError, match="'label' seems to name a column, but no cell names the text"):
        as_training_rows("label\tphrase\na\tb\n")


CELLS = ("y", "topic", "class", "question", "text", "label", "Sentence", "sentence1", "sentence2", "review", "id", "1")
TABLES = st.integers(1, 3).flatmap(
    lambda width: st.lists(st.lists(st.sampled_from(CELLS), min_size=width, max_size=width), min_size=1, max_size=4)
)


def is_header_in_full(table: list[list[str]], trained: Source, *, labelled: bool) -> bool:
    """Whether row 1 has every name that makes it a header, in other words than those of the code."""
    first = [cell.casefold() for cell in table[0]]
    own = [name for name in trained.columns.names if name != "1"]
    if len(first) == 1:
        return first[0] in ("text", "sentence") or first == own
    label = [LABEL_NAMES] if labelled else []
    pair = [("sentence2", "pair", "hypothesis")] if trained.columns.pair else []
    once = [all(row[place] != table[0][place] for row in table[1:]) for place in range(len(first))]
    return any(
        all(first[place] in names and once[place] for place, names in zip(places, wanted, strict=False))
        for wanted in ([[(name,) for name in own] + label] if own else []) + [[TEXT_NAMES, *pair, *label]]
        if len(wanted) <= len(first)
        for places in permutations(range(len(first)), len(wanted))
    )


@given(
    table=TABLES, trained=st.sampled_from([UNKNOWN, ON_TEXT, ON_QUESTION, ON_PAIRS, ON_NUMBER]), labelled=st.booleans()
)
def test_no_row_is_lost_but_a_header_in_full_which_a_note_names(
    table: list[list[str]], trained: Source, labelled: bool
) -> None:
    content = "".join("\t".join(row) + "\n" for row in table)
    pairs = {"pair": "2"} if trained is ON_PAIRS else {}
    if len(table[0]) < 1 + len(pairs) + labelled:
        return  # a column is read for one thing
    try:
        if trained is not UNKNOWN and not labelled:
            rows, note = as_input(content, trained, text="1", **pairs)
        else:
            label = {"label": str(len(table[0]))} if labelled else {}
            rows, note = as_training_rows(content, labelled, trained, text="1", **label, **pairs)
    except DataError as error:
        assert len(table[0]) > 1
        assert re.search("add --header or --no-header", str(error)) or "column '" in str(error), "a name twice"
        return
    if rows == table:
        assert note == AS_ROW
    else:
        assert (rows, note) == (table[1:], AS_NAMES)
        assert is_header_in_full(table, trained, labelled=labelled)


def test_a_part_of_the_columns_that_the_training_joins_is_not_its_text() -> None:
    joined = like(("title", "body"))
    assert as_input("title\tbody\na\tb\n", joined)[0] == [["a", "b"]]
    message = "^x.tsv: has no column 'body', and the text in training is title [+] body; --text COLUMN names another$"
    with pytest.raises(DataError, match=message):
        as_input("title\tbodytext\na\tb\n", joined)
    for content in ("title\tbodytext\na\tb\n", "text\tid\na\tb\n"):
        with pytest.raises(DataError, match=message.replace("body'", "(body|title)'")):
            as_input(content, joined, header=True)
        with pytest.raises(DataError, match=r"has no column '(body|title)'"):
            as_training_rows(content, False, joined, header=True)
    row = io.BytesIO(b'{"title": "a", "b": "c"}\n')
    with pytest.raises(DataError, match=message):
        find_source(row, CUSTOM, DataConfig(), like=joined, is_input=True, name="x.tsv", format="jsonl")


def test_rows_without_a_header_are_joined_as_in_training_or_their_columns_are_asked_for() -> None:
    joined = like(("title", "body"))
    source, records, _ = found("a\tb\n", like=joined, is_input=True)
    assert source.columns.text == ("1", "2")
    warnings = [note.text for note in records.notes if note.level == "warning"]
    assert warnings == ["x.tsv: taking column 1 and 2 of 2 as the text; --text and --pair name others"]
    with pytest.raises(DataError, match=r"^x.tsv: which column is the text"):
        as_input("a\tb\tc\n", joined)
    assert as_input("a\n", joined)[0] == [["a"]]


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"text": ("text", "text")}, "'text' is taken as the text twice"),
        ({"text": ("text", 1)}, "'text' is taken as the text twice"),
        ({"text": ("text", "label")}, "'label' is taken as the text and the label"),
        ({"text": ("1", "2"), "label": 2}, "'label' is taken as the text and the label"),
    ],
)
def test_a_column_is_read_for_one_thing(told: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=f"^x.tsv: the column {message}; --text COLUMN"):
        as_training_rows("text\tlabel\na\tb\n", **told)  # type: ignore[arg-type]
    with pytest.raises(DataError, match=r"^x.tsv: the column 'text' is taken as the text twice; --text COLUMN"):
        as_input("text\tlabel\na\tb\n", text=("text", "1"))


def test_a_label_of_line_1_that_stands_in_no_other_row_is_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("समीक्षा,लेबल\n" + "".join(f"अच्छा {n},{n % 2}\n" for n in range(9)))
    with pytest.raises(DataError, match=r"add --text 'समीक्षा' --label 'लेबल'; line 1 is: समीक्षा, लेबल$"):
        load_split(CUSTOM, "train", DataConfig(path=str(path)))
    doubt = "line 1 may be a header: its label 'लेबल' stands in no other row; --label 'लेबल' takes it as names"
    told = DataConfig(path=str(path), text="1", label=2)
    warnings = [note.text for note in load_split(CUSTOM, "train", told).notes if note.level == "warning"]
    assert warnings == [f"{path}: {doubt}"]
    findings = [found.message for found in inspected(told)[1] if found.level == "warning"]
    assert findings == [f"{path}: {doubt}"]
    for header in (True, False):
        assert not any(
            "may be" in note.text for note in load_split(CUSTOM, "train", replace(told, header=header)).notes
        )


def inspected(config: DataConfig) -> tuple[dict[str, Any], list[Finding]]:
    """The report and the findings of `recur check`."""
    task = task_with_columns(CUSTOM, config)
    splits, findings = read_splits(task, config, Kept())
    facts, more = inspect(task, config, splits, None)
    return facts, [*findings, *more]


THINGS = ("kettle", "lamp", "desk", "chair", "shelf", "rug", "mirror", "clock", "stool", "vase", "sofa")
WORDS = ("loud and wobbly, sent it back", "good value for the price", "arrived scratched, very sad", "works well")
LINK = "https://example.org/the/long/address/of/a/page/that/nobody/reads/"


def cell_of(kind: str, row: int) -> str:
    """The cell of a row in a column of this kind: a text (T, t, s: long, middle, short), an id, one of few values, …"""
    text = f"the {THINGS[row % 11]} number {row} {WORDS[row % 4]}"
    return {
        **{
            "T": f"{text}, and I would not buy it again in that shop",
            "t": text,
            "s": f"note {row}",
            "zh": f"很好的水壶{row}",
        },
        **{"id": str(row), "word": f"u{row}", "link": f"{LINK}{row}", "time": f"2015-02-{row % 9 + 1:02} 11:35:52"},
        **{"01": str(row % 2), "10": str(row // 2 % 2), "0": "0", "5": str(row % 5 + 1), "abc": "abc"[row % 3], "": ""},
        **{"yn": ("No", "Yes")[row % 2], "0.": f"0.{row * 7919 % 997}"},
    }[kind]


PUBLIC = {
    "Kaggle: SMS spam": ("v1:01, v2:t, :, :, :", "v2 > v1", "--text v2 --label v1"),
    "Kaggle: spam": ("Category:01, Message:t", "Message > Category", ""),
    "UCI: sentences": ("Sentence:t, Label:01", "Sentence > Label", ""),
    "Kaggle: airlines": (
        "tweet_id:id, airline_sentiment:abc, airline_sentiment_confidence:0., negativereason:5, airline:abc, name:word, "
        "retweet_count:0, text:t, tweet_created:time",
        "text > airline_sentiment",
        "--text text --label airline_sentiment",
    ),
    "CFPB: complaints": (
        "Date received:time, Product:abc, Sub-product:5, Consumer complaint narrative:T, Timely response?:yn, Complaint ID:id",
        "Consumer complaint narrative > Product",
        "--text 'Consumer complaint narrative' --label Product",
    ),
    "CFPB: two columns": (
        "Consumer complaint narrative:T, Product:abc",
        "Consumer complaint narrative > Product",
        "--text 'Consumer complaint narrative' --label Product",
    ),
    "Kaggle: clothes": (
        ":id, Clothing ID:id, Age:5, Title:s, Review Text:T, Rating:5, Recommended IND:01, Positive Feedback Count:0",
        "Review Text > Rating",
        "",
    ),
    "Kaggle: toxic comments": (
        "id:word, comment_text:t, toxic:01, severe_toxic:0, obscene:10, threat:0, insult:01, identity_hate:0",
        "comment_text > toxic severe_toxic obscene threat insult identity_hate",
        "--text comment_text "
        "--label toxic --label severe_toxic --label obscene --label threat --label insult --label identity_hate",
    ),
    "Kaggle: hateful tweets": ("id:id, label:01, tweet:t", "tweet > label", ""),
    "Kaggle: offensive tweets": (
        ":id, count:5, hate_speech:0, offensive_language:5, neither:0, class:abc, tweet:t",
        "tweet > class",
        "",
    ),
    "intents": ("utterance:t, intent:abc", "utterance > intent", ""),
    "banking77": ("text:t, category:abc", "text > category", ""),
    "QQP": (
        "id:id, qid1:id, qid2:id, question1:t, question2:t, is_duplicate:01",
        "question1 | question2 > is_duplicate",
        "",
    ),
    "MNLI": ("premise:t, hypothesis:t, gold_label:abc", "premise | hypothesis > gold_label", ""),
    "RTE": ("index:id, sentence1:t, sentence2:t, label:yn", "sentence1 | sentence2 > label", ""),
    "MRPC": (
        "Quality:01, #1 ID:id, #2 ID:id, #1 String:t, #2 String:t",
        "#1 String | #2 String > Quality",
        "--text '#1 String' --pair '#2 String' --label Quality",
    ),
    "SICK": (
        "pair_ID:id, sentence_A:t, sentence_B:t, entailment_judgment:abc",
        "sentence_A | sentence_B > entailment_judgment",
        "--text sentence_A --pair sentence_B --label entailment_judgment",
    ),
    "Amazon: fine food": (
        "Id:id, ProductId:word, UserId:word, ProfileName:word, HelpfulnessNumerator:5, Score:5, Time:time, Summary:s, Text:T",
        "Text > Score",
        "",
    ),
    "Amazon: reviews": (
        "marketplace:abc, customer_id:id, star_rating:5, helpful_votes:0, review_headline:s, review_body:T, review_date:time",
        "review_body > star_rating",
        "",
    ),
    "Amazon: reviewText": (
        "reviewerID:word, asin:word, reviewText:T, overall:5, summary:s",
        "reviewText > overall",
        "--text reviewText --label overall",
    ),
    "Kaggle: sarcasm": (
        "article_link:link, headline:t, is_sarcastic:01",
        "headline > is_sarcastic",
        "--text headline --label is_sarcastic",
    ),
    "AG News": (
        "Class Index:5, Title:s, Description:t",
        "Description > Class Index",
        "--text Description --label 'Class Index'",
    ),
    "DBpedia": ("label:abc, title:s, content:T", "content > label", ""),
    "IMDb": ("review:T, sentiment:yn", "review > sentiment", ""),
    "Kaggle: movie phrases": (
        "PhraseId:id, SentenceId:id, Phrase:t, Sentiment:5",
        "Phrase > Sentiment",
        "--text Phrase --label Sentiment",
    ),
    "Kaggle: SentimentText": (
        "ItemID:id, Sentiment:01, SentimentText:t",
        "SentimentText > Sentiment",
        "--text SentimentText --label Sentiment",
    ),
    "Kaggle: disasters": ("id:id, keyword:word, location:word, text:t, target:01", "text > target", ""),
    "Kaggle: tweet extraction": ("textID:word, text:t, selected_text:s, sentiment:abc", "text > sentiment", ""),
    "TREC": (
        "text:t, coarse_label:abc, fine_label:5",
        "text > coarse_label",
        "--text text --label coarse_label",
    ),
    "restaurants": ("Review:t, Liked:01", "Review > Liked", "--text Review --label Liked"),
    "HF: sms": ("sms:t, label:01", "sms > label", "--text sms --label label"),
    "BoolQ": ("question:t, title:s, answer:yn, passage:T", "passage > answer", "--text passage --label answer"),
    "Chinese reviews": ("内容:zh, 类别:abc", "内容 > 类别", "--text 内容 --label 类别"),
    "ChnSentiCorp": ("label:01, review:zh", "review > label", ""),
    "weibo": ("label:01, 微博 内容:zh", "微博 内容 > label", "--text '微博 内容' --label label"),
}
"""Headers of well-known files with the kind of each column, the columns as they should be read, and the options needed."""
NAMELESS = {
    "Sentiment140": ("0, id, time, word, link, t", "6 > 1", "--text 6 --label 1 --no-header"),
    "Yelp": ("5, T", "2 > 1", "--text 2 --label 1 --no-header"),
    "AG News": ("5, s, t", "3 > 1", "--text 3 --label 1 --no-header"),
    "LCQMC": ("zh, zh, 01", "1 | 2 > 3", "--text 1 --pair 2 --label 3 --no-header"),
}


def settings_of(options: Sequence[str]) -> dict[str, Any]:
    """The keys of DataConfig that these options set."""
    told: dict[str, Any] = {"header": "--header" in options or None}
    if "--no-header" in options:
        told["header"] = False
    for option, word in pairwise(options):
        if option in ("--text", "--pair", "--label"):
            told[option[2:]] = (*told.get(option[2:], ()), word)
        if option == "--delimiter":
            told["delimiter"] = word
    return told


def write_table(path: Path, names: Sequence[str], rows: Sequence[Sequence[str]], *, with_names: bool = True) -> Path:
    """Write the rows as CSV, TSV, JSON lines or Parquet, as the name says."""
    if path.suffix in (".csv", ".tsv"):
        with path.open("w", newline="", encoding="utf-8") as file:
            mark = "," if path.suffix == ".csv" else "\t"
            csv.writer(file, delimiter=mark).writerows([names, *rows] if with_names else rows)
        return path
    records = [{name: cell for name, cell in zip(names, row, strict=True) if name} for row in rows]
    if path.suffix == ".jsonl":
        path.write_text("".join(f"{json.dumps(record)}\n" for record in records), encoding="utf-8")
    else:
        parquet.write_table(Table.from_pylist(records), path)
    return path


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".jsonl", ".parquet"])
@pytest.mark.parametrize("title", [*PUBLIC, *(f"{title} without names" for title in NAMELESS)])
def test_a_public_file_is_read_or_answered_once_with_what_reads_it(title: str, ending: str, tmp_path: Path) -> None:
    nameless = title.endswith(" without names")
    columns, wanted, answer = NAMELESS[title.removesuffix(" without names")] if nameless else PUBLIC[title]
    if nameless and ending not in (".csv", ".tsv"):
        return
    names, kinds = zip(*(each.rpartition(":")[::2] for each in columns.split(", ")), strict=True)
    rows = [[cell_of(kind, row).replace(",", "" if ending == ".tsv" else ",") for kind in kinds] for row in range(40)]
    path = write_table(tmp_path / f"x{ending}", names, rows, with_names=not nameless)
    options: tuple[str, ...] = ()
    try:
        split = load_split(CUSTOM, "train", DataConfig(path=str(path)))
    except DataError as error:
        options = error.options
        assert shlex.join(options).replace("'", "") == answer.replace("'", "")
        assert f"add {shlex.join(options)}" in str(error)
        split = load_split(CUSTOM, "train", DataConfig(path=str(path), **settings_of(options)))
    source = split.source
    read = " | ".join(filter(None, map(" ".join, (source.columns.text, source.columns.pair))))
    assert (f"{read} > {' '.join(source.label)}", len(split.examples)) == (wanted, 40)
    assert bool(options) == bool(answer)


def test_a_label_before_the_first_space_is_proposed_where_it_stands_in_many_rows(tmp_path: Path) -> None:
    path = tmp_path / "trec.txt"
    path.write_text(
        "".join(f"{('NUM:count', 'DESC:manner')[row % 2]} How many{' ,' * (row % 3)} {row} ?\n" for row in range(40))
    )
    with pytest.raises(DataError, match="add --delimiter SPACE --text 2 --label 1 --no-header") as error:
        load_split(CUSTOM, "train", DataConfig(path=str(path)))
    split = load_split(CUSTOM, "train", DataConfig(path=str(path), **settings_of(error.value.options)))
    assert split.labels == ("DESC:manner", "NUM:count") and split.texts[1] == ("How many , 1 ?", None)
    path.write_text("".join(f"word{row} is the first of line {row}\n" for row in range(40)))
    with pytest.raises(DataError, match="which column is the text") as error:
        load_split(CUSTOM, "train", DataConfig(path=str(path)))
    assert error.value.options == ()
