"""The tasks that test recurrence: their automata, the promises of their rows, and what their baselines leave to learn."""

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import cache
from itertools import permutations, product

import pytest
from cases import slow_but

from recurcli.config import DataConfig
from recurcli.data.recurrence_tasks import AUTOMATA, Row, prefix_labels, recurrence_rows
from recurcli.data.splits import load_split
from recurcli.data.tasks import TASKS

LANGUAGES = {
    "parity": "(0|10*1)*",
    "tomita-3": "0*((11)+0+|1(11)*(00)+)*1*",
    "tomita-4": "(1|01|001)*(|0|00)",
    "tomita-5": "(00|11|(01|10)(00|11)*(01|10))*",
    "tomita-6": "(10|(0|11)(01)*(1|00))*",
    "tomita-7": "0*1*0*1*",
}
STRINGS = [*LANGUAGES, "dyck"]
WORDS = ["flip-flop", "modulo-5", "s3", "a5", "s5"]
RECALL = ["associative-recall", "recall-size", "recall-distance"]
DEFAULT = ["parity", "tomita-6", "dyck", "flip-flop", "s3", *RECALL]
"""Tasks of each kind; 26,000 rows of one take seconds."""
NAMES = slow_but(DEFAULT, [*STRINGS, *WORDS, *RECALL])
SIZES = {"train": 20_000, "dev": 2_000, "test": 2_000, "test-long": 2_000}


@cache
def splits_of(name: str) -> dict[str, list[Row]]:
    """The rows of a task, which are made once for all tests."""
    return {split: recurrence_rows(TASKS[name], split) for split in SIZES}


def lengths_of(rows: Sequence[Row]) -> set[int]:
    return {len(text.split(" ")) for text, _ in rows}


def edits_between(a: str, b: str) -> int:
    """The least number of symbols to leave out, insert or replace (Levenshtein)."""
    row = list(range(len(b) + 1))
    for i, left in enumerate(a, 1):
        above, row[0] = row[0], i
        for j, right in enumerate(b, 1):
            above, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, above + (left != right))
    return row[-1]


@pytest.mark.parametrize("name", LANGUAGES)
def test_the_automaton_and_the_regular_expression_agree_on_all_short_strings(name: str) -> None:
    automaton, expression = AUTOMATA[name], re.compile(LANGUAGES[name])
    accepted = Counter[int]()
    for length in range(13):
        for string in product((0, 1), repeat=length):
            is_accepted = expression.fullmatch("".join(map(str, string))) is not None
            assert automaton.accepts(string) is is_accepted
            accepted[length] += is_accepted
    assert [counts[0] for counts in automaton.counts(12, accepted=True)] == [accepted[length] for length in range(13)]
    assert automaton.counts(12, accepted=False)[12][0] == 2**12 - accepted[12]


def test_dyck_accepts_what_brackets_that_are_taken_away_in_pairs_leave_empty() -> None:
    automaton = AUTOMATA["dyck"]
    for length in range(9):
        for string in product(range(4), repeat=length):
            text = automaton.text(string).replace(" ", "")
            depths = [text[:place].count("(") + text[:place].count("[") for place in range(length + 1)]
            closed = [text[:place].count(")") + text[:place].count("]") for place in range(length + 1)]
            deepest = max(depth - shut for depth, shut in zip(depths, closed, strict=True))
            while "()" in text or "[]" in text:
                text = text.replace("()", "").replace("[]", "")
            assert automaton.accepts(string) is (not text and deepest <= 4)
    assert not automaton.accepts([0] * 5 + [1] * 5) and automaton.accepts([0] * 4 + [1] * 4)


@pytest.mark.parametrize("name", NAMES)
def test_no_text_is_in_two_splits(name: str) -> None:
    splits = splits_of(name)
    assert {split: len(rows) for split, rows in splits.items()} == SIZES == TASKS[name].rows
    train = {text for text, _ in splits["train"]}
    others = [text for split in SIZES if split != "train" for text, _ in splits[split]]
    assert len(set(others)) == len(others)
    assert train.isdisjoint(others)
    assert all({label for _, label in rows} == set(TASKS[name].labels) for rows in splits.values())


@pytest.mark.parametrize("name", slow_but(["tomita-6", "s3", "recall-distance"], [*STRINGS, *WORDS, *RECALL]))
def test_the_rows_are_always_the_same(name: str) -> None:
    splits, other = splits_of(name), "recall-distance" if name != "recall-distance" else "associative-recall"
    recurrence_rows(TASKS[other], "dev")  # so that the rows are made again
    again = load_split(TASKS[name], "test-long", DataConfig()).examples
    assert [(row.text, row.label) for row in again] == splits["test-long"]


def test_the_first_rows_are_what_they_always_were() -> None:
    assert splits_of("tomita-6")["train"][2:4] == [("0 1 0 1", "accept"), ("0 1 0 0", "reject")]
    assert splits_of("dyck")["train"][0] == ("( ( ) ) ( ) [ [ ] ]", "accept")
    assert splits_of("s3")["train"][0] == ("g1 g0 g5 g3 g4", "g3")
    assert splits_of("flip-flop")["train"][0] == ("i0 w0 i1 i1 i1", "0")
    assert splits_of("associative-recall")["train"][0] == ("k60 v15 k18 v1 k22 v14 k6 v4 k18", "v1")


@pytest.mark.parametrize("name", slow_but(["parity", "tomita-6"], LANGUAGES))
def test_strings_have_their_label_and_their_length_and_are_balanced(name: str) -> None:
    for split, rows in splits_of(name).items():
        for text, label in rows:
            assert (re.fullmatch(LANGUAGES[name], text.replace(" ", "")) is not None) is (label == "accept")
        assert Counter(label for _, label in rows) == {"accept": len(rows) / 2, "reject": len(rows) / 2}
        shortest, longest = {"train": (2, 40), "test-long": (80, 200)}.get(split, (10, 40))
        assert lengths_of(rows) == set(range(shortest, longest + 1))


def test_short_strings_are_as_frequent_in_training_as_long_ones() -> None:
    lengths = Counter(len(text.split(" ")) for text, _ in splits_of("parity")["train"])
    assert set(lengths) == set(range(2, 41))
    assert min(lengths.values()) > 20_000 / 39 / 1.3


@pytest.mark.parametrize("name", slow_but(["parity", "tomita-6", "dyck"], STRINGS))
def test_every_second_rejected_string_is_an_accepted_one_with_one_or_two_edits(name: str) -> None:
    rows = splits_of(name)["dev"]
    texts = [(a.replace(" ", ""), b.replace(" ", "")) for (a, _), (b, _) in zip(*[iter(rows)] * 2, strict=True)]
    near = [edits_between(*pair) in (1, 2) for pair in texts]
    assert sum(near) / len(near) == pytest.approx(0.5, abs=0.06)


def label_of(name: str, tokens: Sequence[str]) -> str:
    """The label of the tokens of a row by what the task says, without an automaton."""
    if name == "flip-flop":
        return next((token[1] for token in reversed(tokens) if token[0] == "w"), "0")
    if name == "modulo-5":
        return str(sum(map(int, tokens)) % 5)
    things, numbers = (3 if name == "s3" else 5), [int(token[1:]) for token in tokens]
    elements = list(permutations(range(things)))
    if name == "a5":  # its elements have no 2-cycle alone and no 4-cycle: they are even
        elements = [own for own in elements if cycles(own) in ((1, 1, 1, 1, 1), (1, 1, 3), (1, 2, 2), (5,))]
    found = list(range(things))
    for number in reversed(numbers):  # the last one is applied first
        found = [elements[number][place] for place in found]
    return f"g{elements.index(tuple(found))}"


def cycles(permutation: Sequence[int]) -> tuple[int, ...]:
    """The lengths of its cycles."""
    left, lengths = set(range(len(permutation))), []
    while left:
        start = place = left.pop()
        length = 1
        while (place := permutation[place]) != start:
            left.remove(place)
            length += 1
        lengths.append(length)
    return tuple(sorted(lengths))


@pytest.mark.parametrize("name", slow_but(["flip-flop", "s3"], WORDS))
def test_words_and_their_prefixes_have_their_labels(name: str) -> None:
    for split, rows in splits_of(name).items():
        for text, label in rows[:300]:
            tokens = text.split(" ")
            assert label == label_of(name, tokens)
            if len(tokens) < 30:
                assert prefix_labels(name, text) == [label_of(name, tokens[: end + 1]) for end in range(len(tokens))]
        shortest, longest = {"train": (2, 40), "test-long": (80, 200)}.get(split, (10, 40))
        assert lengths_of(rows) == set(range(shortest, longest + 1))


def test_prefixes_of_strings_have_their_labels() -> None:
    assert prefix_labels("parity", "1 0 1 1") == ["reject", "reject", "accept", "reject"]
    assert prefix_labels("dyck", "( [ ] ) ]") == ["reject", "reject", "reject", "accept", "reject"]
    assert {name for name, task in TASKS.items() if task.labels_prefixes} == AUTOMATA.keys()


def test_most_symbols_of_a_flip_flop_are_to_be_ignored() -> None:
    symbols = Counter(token for text, _ in splits_of("flip-flop")["train"] for token in text.split(" "))
    shares = [symbols[token] / symbols.total() for token in ("w0", "w1", "i0", "i1")]
    assert shares == pytest.approx([0.1, 0.1, 0.4, 0.4], abs=0.005)


def test_each_question_has_its_answer() -> None:
    for name, split, pairs in (
        ("associative-recall", "train", (4, 16)),
        ("associative-recall", "test-long", (32, 64)),
        ("recall-size", "train", (4, 64)),
        ("recall-size", "test-long", (128, 255)),
    ):
        rows = splits_of(name)[split]
        assert lengths_of(rows) == {2 * count + 1 for count in range(pairs[0], pairs[1] + 1)}
        for text, label in rows:
            *shown, asked = text.split(" ")
            keys, values = shown[::2], shown[1::2]
            assert len(set(keys)) == len(keys)
            assert dict(zip(keys, values, strict=True))[asked] == label
    for split, letters in (("train", (30, 50)), ("test-long", (100, 200))):
        rows = splits_of("recall-distance")[split]
        assert lengths_of(rows) <= set(range(letters[0] + 1, letters[1] + 2))
        assert {int(text.split(" ")[-1]) for text, _ in rows} == set(range(1, 31))
        assert all(text.split(" ")[-1 - int(text.split(" ")[-1])] == label for text, label in rows)


def baselines(name: str) -> dict[str, float]:
    """Accuracies on the dev rows of rules that read no order.

    majority        the label of most dev rows
    length          a string: the label of most training rows of its length
    most_frequent   a row to recall from: its most frequent value or letter, of several the last one
    """
    train, dev = splits_of(name)["train"], splits_of(name)["dev"]
    found = {"majority": max(Counter(label for _, label in dev).values()) / len(dev)}
    if name in WORDS:
        return found
    if name in STRINGS:
        by_length: dict[int, Counter[str]] = defaultdict(Counter)
        for text, label in train:
            by_length[len(text)][label] += 1
        return found | {
            "length": sum(by_length[len(text)].most_common(1)[0][0] == label for text, label in dev) / len(dev)
        }
    labels = set(TASKS[name].labels)
    shown = [[token for token in reversed(text.split(" ")) if token in labels] for text, _ in dev]
    right = [Counter(tokens).most_common(1)[0][0] == label for tokens, (_, label) in zip(shown, dev, strict=True)]
    return found | {"most_frequent": sum(right) / len(dev)}


@pytest.mark.parametrize("name", NAMES)
def test_the_baselines_are_those_that_the_task_claims(name: str) -> None:
    assert baselines(name) == TASKS[name].baselines
