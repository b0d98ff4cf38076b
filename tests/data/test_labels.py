"""Labels of one's own rows: strings in a fixed order, and what are no classes is refused."""

from pathlib import Path

import pytest

from recurcli.config import DataConfig
from recurcli.data.labels import label_doubts
from recurcli.data.splits import Split, load_split, with_labels_of
from recurcli.data.tasks import TASKS, Task
from recurcli.errors import DataError
from recurcli.targets.one_label import ordered_labels

CUSTOM = TASKS["custom"]


def train(tmp_path: Path, found: list[str], **told: object) -> tuple[Task, Split, DataConfig]:
    (tmp_path / "dev.tsv").touch()  # without dev rows every tenth training row would be one
    path = tmp_path / "train.tsv"
    path.write_text("text\tlabel\n" + "".join(f"text {row}\t{label}\n" for row, label in enumerate(found)))
    config = DataConfig(path=str(tmp_path), **told)  # type: ignore[arg-type]
    split = load_split(CUSTOM, "train", config)
    return with_labels_of(CUSTOM, split, config), split, config


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["10", "9", "1"], ("1", "9", "10")),
        (["1", "01"], ("01", "1")),
        (["10", "9", "a"], ("10", "9", "a")),
        (["-1", "1", "0"], ("-1", "0", "1")),
        (["1.5", "10"], ("1.5", "10")),
        (["b", "B", " b"], (" b", "B", "b")),
        (["二", "一", "²"], ("²", "一", "二")),
        (["1" * 5000, "2"], ("1" * 5000, "2")),
    ],
)
def test_numbers_stand_by_value_and_the_rest_as_text(labels: list[str], expected: tuple[str, ...]) -> None:
    assert ordered_labels(labels) == ordered_labels(reversed(labels)) == expected


def test_labels_are_those_of_the_training_rows(tmp_path: Path) -> None:
    task, split, _ = train(tmp_path, ["pos", "neg", " Neg ", "pos"])
    assert task.labels == (" Neg ", "neg", "pos")
    assert [doubt.partition(" differ")[0] for doubt in label_doubts(task.labels)] == ["the labels ' Neg ' and 'neg'"]
    assert [example.label for example in split.examples] == ["pos", "neg", " Neg ", "pos"]


@pytest.mark.parametrize(
    "labels",
    [("caf\u00e9", "cafe\u0301"), ("pos", "p\u043es"), ("\uff21", "A", "a"), ("весна", "Весна")],
)
def test_labels_that_differ_only_in_how_they_are_written_look_alike(labels: tuple[str, ...]) -> None:
    (doubt,) = label_doubts([*labels, "другой"])
    assert doubt.startswith(f"the labels {' and '.join(map(repr, labels))} differ only")


@pytest.mark.parametrize(
    ("labels", "found"),
    [
        (["red;blue", "red", "blue", "blue;green"], "'red;blue' looks like several labels a row, joined by ';'"),
        (["pos", "neg", "pos|neg"], "'pos|neg' looks like several labels a row, joined by '|'"),
        (["C;C++", "Java", "C", "C++"], "'C;C++' looks like several"),
        (["news|sport", "news|politics", "sport"], None),
        (["Clothing, Shoes & Jewelry", "Movies, TV", "Movies", "Books"], None),
        (["a;a", "a"], None),
        (["1", "1.5", "4.75"], "'1.5' looks like regression"),
        (["1,5", "4,75"], "'1,5' looks like regression"),
        (["1", "2", "3.0"], None),
        (["1.5", "unknown"], None),
        (["nan", "inf", "1" * 5000], None),
    ],
)
def test_several_labels_in_one_and_numbers_with_fractions_are_told_from_classes(
    labels: list[str], found: str | None
) -> None:
    doubts = list(label_doubts(labels))
    assert len(doubts) == (found is not None)
    assert found is None or found in doubts[0]


def test_a_given_order_of_labels_is_kept_and_others_are_refused(tmp_path: Path) -> None:
    task, *_ = train(tmp_path, ["pos", "neg"], labels=("pos", "neg", "none"))
    assert task.labels == ("pos", "neg", "none")
    with pytest.raises(
        DataError, match=r"train.tsv:3: label 'ngt' is not one of custom's 2 labels; did you mean 'neg'"
    ):
        train(tmp_path, ["pos", "ngt"], labels=("pos", "neg"))


def test_a_single_label_is_counted_in_the_whole_file(tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_text("text\tlabel\n" + "".join(f"text {row}\ta\n" for row in range(50)))
    config = DataConfig(path=str(tmp_path / "x.tsv"))
    split = load_split(CUSTOM, "train", config, use_dev_split=True)
    assert split.dev is not None
    with pytest.raises(DataError, match="holds only 'a' in all 50 rows"):
        with_labels_of(CUSTOM, split, config)


def test_a_dropped_label_leaves_its_rows_out(tmp_path: Path) -> None:
    task, split, _ = train(tmp_path, ["a", "?", "b", "?"], drop_label="?")
    assert (task.labels, split.dropped) == (("a", "b"), 2)
    assert [example.id for example in split.examples] == ["0", "2"]


def test_a_label_unseen_in_training_is_named_with_its_line(tmp_path: Path) -> None:
    task, _, config = train(tmp_path, ["good", "bad"])
    (tmp_path / "dev.tsv").write_text("text\tlabel\na\tgood\nb\tgod\n")
    with pytest.raises(DataError, match=r"dev.tsv:3: label 'god' is not one of custom's 2 labels; did you mean 'good'"):
        load_split(task, "dev", config)


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        (["a"] * 5, "label column 'label' holds only 'a' in all 5 rows; a classifier needs two labels or more"),
        ([f"x{n}" for n in range(101)], "holds 101 different values in 101 rows, which cannot be classes"),
        ([f"x{n // 2}" for n in range(20_002)], "holds 10,001 different values in 20,002 rows"),
    ],
)
def test_values_that_are_no_classes_are_refused(tmp_path: Path, labels: list[str], reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        train(tmp_path, labels)


def test_a_few_rows_may_each_have_a_class(tmp_path: Path) -> None:
    assert len(train(tmp_path, [f"x{n}" for n in range(100)])[0].labels) == 100


def test_a_label_that_is_only_a_mark_is_no_doubt() -> None:
    assert not [*label_doubts([",", "NN", "|", "VB"])]
