"""The file of a split is found under the names that the task, the preset or the usual habits give it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from logs import Kept
from packing import PACK

from recurcli.config import DataConfig
from recurcli.data import source
from recurcli.data.readers import read_records
from recurcli.data.source import find_source
from recurcli.data.splits import Split, load_split, notes_on_dev_rows
from recurcli.data.tasks import TASKS, has_split
from recurcli.errors import DataError
from recurcli.files import sha256_of

ENDINGS = {".tsv": "text\tlabel\n{}\ta\n", ".csv": 'text,label\n"{}",a\n', ".jsonl": '{{"text": "{}", "label": "a"}}\n'}


def put(path: Path, text: str, ending: str = ".tsv") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = ENDINGS[ending].format(text).encode()
    path.write_bytes(PACK[path.suffix](content) if path.suffix in PACK else content)
    return path


def load(path: Path, split: str, task: str = "custom", *, use_dev_split: bool = True, **told: Any) -> Split:
    return load_split(TASKS[task], split, DataConfig(path=str(path), **told), use_dev_split=use_dev_split)


def texts(split: Split) -> list[str]:
    return [example.text for example in split.examples]


@pytest.mark.parametrize("packed", ["", *PACK])
@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize(
    ("split", "stem"),
    [*(("dev", stem) for stem in ("dev", "valid", "validation", "val")), ("train", "training"), ("test", "test")],
)
def test_ones_own_files_go_by_the_usual_names(tmp_path: Path, split: str, stem: str, ending: str, packed: str) -> None:
    path = put(tmp_path / f"{stem}{ending}{packed}", "x", ending)
    put(tmp_path / "dev.tsv", "y") if split == "train" else put(tmp_path / "train.tsv", "y")
    assert (texts(load(tmp_path, split)), load(tmp_path, split).path) == (["x"], path)


def test_files_may_be_named_by_the_preset(tmp_path: Path) -> None:
    for name in ("a.tsv", "b.tsv", "train.tsv"):
        put(tmp_path / name, name)
    files = {"train": "a.tsv", "dev": "b.tsv"}
    assert [texts(load(tmp_path, split, files=files)) for split in files] == [["a.tsv"], ["b.tsv"]]
    with pytest.raises(DataError, match=r"has no test rows \(looked for"):
        load(tmp_path, "test", files=files)
    with pytest.raises(DataError, match=r"has no dev rows \(looked for c.tsv"):
        load(tmp_path, "dev", files={**files, "dev": "c.tsv"})


@pytest.mark.parametrize("place", ["rows.tsv", "folder/train.tsv", "named"])
@pytest.mark.parametrize("every", [None, 3])
def test_one_of_ten_rows_or_a_dev_fraction_is_a_dev_row_where_there_are_none(
    tmp_path: Path, place: str, every: int | None
) -> None:
    path = tmp_path / ("x.tsv" if place == "named" else place)
    path.parent.mkdir(exist_ok=True)
    path.write_text("text\tlabel\n" + "".join(f"{row}\ta\n" for row in range(30)))
    told: dict[str, Any] = {"files": {"train": "x.tsv"}} if place == "named" else {}
    fraction = None if every is None else 1 / every
    source = path if place == "rows.tsv" else path.parent
    train, dev = (texts(load(source, split, dev_fraction=fraction, **told)) for split in ("train", "dev"))
    step = every or 10
    assert [int(row) // step for row in dev] == [*range(30 // step)], "one of each block"
    assert train == [str(row) for row in range(30) if str(row) not in dev]
    assert texts(load(source, "dev", dev_fraction=fraction, dev_seed=1, **told)) != dev
    if place == "rows.tsv":
        assert len(texts(load(path, "dev", use_dev_split=False))) == 30, (
            "a file that is named for a score is scored whole"
        )


def test_at_most_max_dev_rows_are_drawn_of_each_class_its_share(tmp_path: Path) -> None:
    path = tmp_path / "x.tsv"
    path.write_text("text\tlabel\n" + "".join(f"{row}\t{'ab'[row % 4 == 0]}\n" for row in range(400)))
    train, whole = load(path, "train", max_dev_rows=20), load(path, "train")
    assert train.dev is not None and whole.dev is not None
    labels = [[example.label for example in dev.examples] for dev in (train.dev, whole.dev)]
    assert [(own.count("a"), own.count("b")) for own in labels] == [(15, 5), (30, 10)]
    assert len(load(path, "dev", max_dev_rows=20, dev_fraction=0.2).examples) == 80, "a fraction that is given holds"
    log = Kept()
    notes_on_dev_rows(train, TASKS["custom"], DataConfig(max_dev_rows=20), log)
    assert "x.tsv: 20 of 400 rows are held out" in log.notes[0]
    assert "the share 0.05 of each class (data.max_dev_rows), drawn by" in log.notes[1]


def test_the_only_row_of_a_label_is_a_training_row_and_named(tmp_path: Path) -> None:
    labels = ["a", "b"] * 20
    labels[9] = labels[19] = "c"
    labels[29] = "d"
    path = tmp_path / "x.tsv"
    path.write_text("text\tlabel\n" + "".join(f"{row}\t{label}\n" for row, label in enumerate(labels)))
    train = load(path, "train")
    assert train.dev is not None
    assert train.labels == ("a", "b", "c", "d")
    assert "d" not in train.dev.labels
    log = Kept()
    notes_on_dev_rows(train, TASKS["custom"], DataConfig(), log)
    assert [*log.notes, *log.warnings] == [
        f"x.tsv: {len(train.dev.examples)} of 40 rows are held out to choose and score the model (dev rows); --dev FILE "
        "names your own",
        "dev rows: the share 0.1 of each class (data.dev_fraction), drawn by data.dev_seed 0; equal or nearly equal texts "
        "stay together",
    ]


def test_rows_without_labels_are_divided_as_one_class(tmp_path: Path) -> None:
    path = tmp_path / "x.tsv"
    path.write_text("text\n" + "".join(f"{row}\n" for row in range(40)))
    train = load_split(TASKS["custom"], "train", DataConfig(path=str(path)), labelled=False, use_dev_split=True)
    assert train.dev is not None
    assert (len(train.examples), len(train.dev.examples)) == (36, 4)


def test_a_file_of_train_and_dev_rows_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.tsv"
    path.write_text("text\tlabel\n" + "".join(f"{row}\ta\n" for row in range(40)))
    opened: list[Any] = []

    def count(*given: Any, **told: Any) -> Any:
        opened.append(given)
        return read_records(*given, **told)

    monkeypatch.setattr(source, "read_records", count)
    train = load(path, "train")
    assert len(opened) == 1
    assert train.dev == replace(load(path, "dev"), notes=())


def test_header_and_delimiter_are_as_told(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text('a;"x; y"\nb;z\n')
    split = load(tmp_path / "x.csv", "test", header=False, delimiter=";", text=2, label=1)
    assert [(example.label, example.text) for example in split.examples] == [("a", "x; y"), ("b", "z")]
    (tmp_path / "x.tsv").write_text("text|label\nx\ty|a\n")
    assert texts(load(tmp_path / "x.tsv", "test", delimiter="|")) == ["x\ty"]


def test_splits_that_are_there_are_known(tmp_path: Path) -> None:
    put(tmp_path / "train.csv", "x", ".csv")
    put(tmp_path / "validation.jsonl.gz", "x", ".jsonl")
    config = DataConfig(path=str(tmp_path))
    assert [has_split(TASKS["custom"], split, config) for split in ("train", "dev", "test")] == [True, True, False]
    (tmp_path / "validation.jsonl.gz").unlink()
    assert not has_split(TASKS["custom"], "dev", config), "rows that would be drawn are no split"


def test_news_in_the_authors_own_files_have_no_header(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text(
        "".join(f'"3","Oil {n}","Prices, ""again"""\n"4","Chip {n}","Fast"\n' for n in range(10))
    )
    (tmp_path / "mine.csv").write_text("label,text\nSports,Goal\n1,War\n")
    with pytest.raises(DataError, match=r"mine.csv:3: label '1' is not one of agnews' 4 labels"):
        load(tmp_path / "mine.csv", "dev", "agnews", use_dev_split=False)
    train, dev = (load(tmp_path, split, "agnews") for split in ("train", "dev"))
    assert (len(train.examples), len(dev.examples)) == (18, 2)
    assert train.examples[0][1:4] == ('Oil 0 Prices, "again"', None, "Business")
    assert {example.label for example in dev.examples} == {"Business", "Sci/Tech"}


def test_reviews_may_say_positive_and_negative(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("text,label\n" + "so,positive\nno,negative\nah,1\noh,0\nup,pos\n" * 2)
    labels = [example.label for example in load(tmp_path / "train.csv", "train", "imdb", use_dev_split=False).examples]
    assert labels == ["pos", "neg", "pos", "neg", "pos"] * 2


def test_phrases_have_0_and_1_and_their_test_rows_no_label(tmp_path: Path) -> None:
    (tmp_path / "dev.tsv").write_text('sentence\tlabel\na "fine film \t1\nbad\t0\n')
    (tmp_path / "test.tsv").write_text("index\tsentence\n0\tuneven\n1\tmoving\n")
    dev, test = load(tmp_path, "dev", "sst2"), load(tmp_path, "test", "sst2")
    assert [example.label for example in dev.examples] == ["positive", "negative"]
    assert [example[:4] for example in test.examples] == [("0", "uneven", None, None), ("1", "moving", None, None)]


def test_a_tasks_own_header_that_is_missing_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "dev.tsv").write_text("a film\t1\n")
    with pytest.raises(DataError, match=r"dev\.tsv: has no column 'sentence'"):
        load(tmp_path, "dev", "sst2")


def test_bad_rows_of_a_divided_file_are_counted_once(tmp_path: Path) -> None:
    rows = [f'{{"text": "text {n}", "label": "{"ab"[n % 2]}"}}\n' for n in range(300)]
    (tmp_path / "x.jsonl").write_text("".join([*rows, '{"text": 1}\n']))
    config = DataConfig(path=str(tmp_path / "x.jsonl"), skip_bad_rows=True)
    train = load_split(TASKS["custom"], "train", config, use_dev_split=True)
    assert train.dev is not None
    assert (len(train.bad), len(train.dev.bad)) == (1, 0)


@pytest.mark.parametrize(("name", "mark"), [("x.csv", ","), ("x.csv", ";"), ("x.tsv", "\t"), ("x.txt", "|")])
def test_a_later_file_is_read_by_its_own_delimiter_or_that_of_the_training_rows(
    name: str, mark: str, tmp_path: Path
) -> None:
    before, later = tmp_path / "before.csv", tmp_path / name
    before.write_text("words;verdict\n'a;b';p\nc;n\n")
    later.write_text(f"verdict{mark}words\np{mark}a\n")
    trained = load(before, "test", delimiter=";", text="words", label="verdict", quote="'").source
    assert (trained.delimiter, trained.quote, trained.sha256) == (";", "'", sha256_of(before))
    split = load_split(TASKS["custom"], "test", DataConfig(path=str(later)), like=trained)
    assert [(example.text, example.label) for example in split.examples] == [("a", "p")]
    assert (split.source.delimiter, split.source.quote) == (mark, None if name == "x.tsv" else "'")


@pytest.mark.parametrize(
    "content",
    ['"text"\t"label"\n"good"\t"a"\n"fine"\t"b"\n', 'text\tlabel\n"""good"" film"\ta\nfine\tb\n'],
    ids=["all fields", "doubled quotes"],
)
def test_quotes_that_are_no_text_are_not_read(content: str, tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_text(content)
    source, records = find_source(tmp_path / "x.tsv", TASKS["custom"], DataConfig(), labelled=True)
    with records:
        texts = [record.fields["text"] for record in records]
    assert (source.quote, source.label, texts[1]) == ('"', ("label",), "fine")
    assert texts[0] in ("good", '"good" film')


def test_a_quote_that_is_text_stays(tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_text('text\tlabel\n"good" film\ta\n"""\tb\n"so"\ta\n')
    source, records = find_source(tmp_path / "x.tsv", TASKS["custom"], DataConfig(), labelled=True)
    with records:
        assert [record.fields["text"] for record in records] == ['"good" film', '"""', '"so"']
    assert source.quote is None


def test_a_run_without_a_header_reads_its_file_again(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("1,good film,indeed\n2,bad film,really\n1,fine film,truly\n")
    plain = DataConfig(path=str(tmp_path / "x.csv"))
    first = load_split(TASKS["custom"], "train", replace(plain, text=(2, 3), label=1, header=False))
    again = load_split(TASKS["custom"], "test", plain, labelled=True, like=first.source)
    assert again.source.columns == first.source.columns and again.cells == first.cells == ["1", "2", "1"]


def test_splits_of_a_document_that_are_not_read_are_named(tmp_path: Path) -> None:
    rows = [{"text": f"text {row}", "label": "ab"[row % 2]} for row in range(4)]
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"train": rows, "test": rows, "oos_train": rows[:2]}))
    found = load_split(TASKS["custom"], "train", DataConfig(path=str(path)))
    assert [note.text for note in found.notes] == [f"{path}: not read: 'oos_train'; {path}#oos_train names such rows"]
    assert not load_split(TASKS["custom"], "train", DataConfig(path=f"{path}#oos_train")).notes
