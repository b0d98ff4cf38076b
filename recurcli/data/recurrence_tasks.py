"""Generated tasks that show what recurrence is for: languages of finite automata, and recall.

    parity              is the number of 1s even?
    tomita-3 to -7      is the string in this language of Tomita (1982)? See AUTOMATA
    associative-recall  which value stood after this key, the last token? (Arora et al., 2023, with one question a text)
    recall-distance     which letter stood k before the number k at the end?

The rows of the split test-long are two to five times as long as the longest of training. One space separates tokens. The
numbers of rows, their lengths, and the keys, values and letters are ours.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import islice
from typing import NamedTuple

from recurcli.data.tasks import Task, task_named

SEED = 0
NUM_KEYS = 64
VALUES = task_named("associative-recall").labels
LETTERS = task_named("recall-distance").labels
MAX_DISTANCE = 30

Draw = Callable[[], float]
"""Returns a number from 0 to 1, below 1: `random.Random.random`, whose values stay the same between versions of Python."""
Range = tuple[int, int]
"""The least and the greatest size of a row, both included."""
Row = tuple[str, str]
"""A text and its label."""


class Automaton(NamedTuple):
    """A deterministic finite automaton that reads 0s and 1s and starts in state 0."""

    moves: Sequence[tuple[int, int]]
    """The state that follows each state, after 0 and after 1."""
    accepting: frozenset[int]

    def accepts(self, string: Iterable[int]) -> bool:
        """Return whether `string` leads to an accepting state."""
        state = 0
        for symbol in string:
            state = self.moves[state][symbol]
        return state in self.accepting

    def counts(self, longest: int, *, accepted: bool) -> list[list[int]]:
        """Return [length][state]: how many strings of the length are accepted (or else rejected) from that state on."""
        counts = [[int((state in self.accepting) == accepted) for state in range(len(self.moves))]]
        for _ in range(longest):
            counts.append([counts[-1][after_0] + counts[-1][after_1] for after_0, after_1 in self.moves])
        return counts


AUTOMATA = {
    "parity": Automaton([(0, 1), (1, 0)], frozenset({0})),
    # A run of 1s of odd length is followed by a run of 0s of even length ("after" read as "right after"; both readings
    # are in use). States: neither of these, odd run of 1s, odd and even run of 0s after it, lost.
    "tomita-3": Automaton([(0, 1), (2, 0), (3, 4), (2, 1), (4, 4)], frozenset({0, 1, 3})),
    # No three 0s in a row. States: the number of 0s at the end.
    "tomita-4": Automaton([(1, 0), (2, 0), (3, 0), (3, 3)], frozenset({0, 1, 2})),
    # Even numbers of 0s and of 1s. States: whether that of 0s is odd, plus 2 if that of 1s is.
    "tomita-5": Automaton([(1, 2), (0, 3), (3, 0), (2, 1)], frozenset({0})),
    # The numbers of 0s and of 1s differ by a multiple of 3. States: the difference modulo 3.
    "tomita-6": Automaton([(1, 2), (2, 0), (0, 1)], frozenset({0})),
    # 0s, 1s, 0s and 1s, each perhaps none. States: in which run, or lost.
    "tomita-7": Automaton([(0, 1), (2, 1), (2, 3), (4, 3), (4, 4)], frozenset({0, 1, 2, 3})),
}


def _strings(automaton: Automaton, lengths: Range, draw: Draw) -> Iterator[list[Row]]:
    """Yield pairs of an accepted and a rejected string without end.

    Each accepted string of a length has the same probability. Every second rejected string is the accepted one with one or
    two edits; the others have the same length, and each the same probability.
    """
    accepted_counts, rejected_counts = (automaton.counts(lengths[1], accepted=accepted) for accepted in (True, False))
    is_near = False
    while True:
        length = _between(lengths, draw)
        accepted = _string(automaton, accepted_counts, length, draw)
        if not accepted:
            continue
        rejected = _edited(accepted, draw) if is_near else _string(automaton, rejected_counts, length, draw)
        if lengths[0] <= len(rejected) <= lengths[1] and not automaton.accepts(rejected):
            yield [(" ".join(map(str, accepted)), "accept"), (" ".join(map(str, rejected)), "reject")]
            is_near = not is_near


def _string(automaton: Automaton, counts: Sequence[Sequence[int]], length: int, draw: Draw) -> list[int]:
    """Draw one of the strings of `length` that `counts` counts. It is empty if there are none."""
    state, string = 0, list[int]()
    if not counts[length][state]:
        return string
    for left in reversed(range(length)):
        after_1 = automaton.moves[state][1]
        string.append(int(draw() * counts[left + 1][state] < counts[left][after_1]))
        state = automaton.moves[state][string[-1]]
    return string


def _edited(string: Sequence[int], draw: Draw) -> list[int]:
    """Return `string` with one or two edits: a symbol is left out, replaced by the other one, or one is inserted after it."""
    edited = list(string)
    for _ in range(_between((1, 2), draw)):
        place = int(draw() * len(edited))
        symbol = edited[place]
        edited[place : place + 1] = ([], [1 - symbol], [symbol, _between((0, 1), draw)])[_between((0, 2), draw)]
    return edited


def _recalls(pairs: Range, draw: Draw) -> Iterator[list[Row]]:
    """Yield rows of key-value pairs with different keys. The last token repeats a key; the label is the value of that key."""
    while True:
        keys = sorted(range(NUM_KEYS), key=lambda _: draw())[: _between(pairs, draw)]
        values = [VALUES[int(draw() * len(VALUES))] for _ in keys]
        asked = int(draw() * len(keys))
        shown = [f"k{key} {value}" for key, value in zip(keys, values, strict=True)]
        yield [(" ".join([*shown, f"k{keys[asked]}"]), values[asked])]


def _distances(lengths: Range, draw: Draw) -> Iterator[list[Row]]:
    """Yield rows of letters and a number k; the label is the k-th letter from the end."""
    while True:
        letters = [LETTERS[int(draw() * len(LETTERS))] for _ in range(_between(lengths, draw))]
        distance = _between((1, MAX_DISTANCE), draw)
        yield [(" ".join([*letters, str(distance)]), letters[-distance])]


def _between(ends: Range, draw: Draw) -> int:
    """Draw a whole number."""
    least, greatest = ends
    return least + int(draw() * (greatest - least + 1))


def _sizes(train: Range, longer: Range, *, fewest_to_share: int = 0) -> dict[str, Range]:
    """Return the sizes of the rows of each split, in the order in which they are drawn. Smaller rows than `fewest_to_share` are
    in training alone.
    """
    shared = max(train[0], fewest_to_share), train[1]
    return {"dev": shared, "test": shared, "test-long": longer, "train": train}


# Of strings of at most nine symbols there are too few to share out.
_MAKERS: dict[str, tuple[Callable[[Range, Draw], Iterator[list[Row]]], dict[str, Range]]] = {
    **{
        name: (partial(_strings, automaton), _sizes((2, 40), (80, 200), fewest_to_share=10))
        for name, automaton in AUTOMATA.items()
    },
    "associative-recall": (_recalls, _sizes((4, 16), (32, 64))),
    "recall-distance": (_distances, _sizes((MAX_DISTANCE, 50), (100, 200))),
}


def recurrence_rows(task: Task, split: str) -> list[Row]:
    """Return the rows of a split of a task of this file, always the same ones. No text is in two splits.

    Short strings, which there are few of, are repeated in the train split. A length of which few strings are accepted or
    rejected is rarer than others there, because a pair that fails is drawn again with a new length.
    """
    return _splits(task.name)[split]


@lru_cache(maxsize=1)
def _splits(name: str) -> dict[str, list[Row]]:
    make, sizes = _MAKERS[name]
    draw, taken = random.Random(SEED).random, set[str]()

    def new(split: str, size: Range) -> Iterator[Row]:
        for group in make(size, draw):
            texts = {text for text, _ in group}
            if taken.isdisjoint(texts):
                if split != "train":
                    taken.update(texts)
                yield from group

    return {split: list(islice(new(split, size), task_named(name).rows[split])) for split, size in sizes.items()}
