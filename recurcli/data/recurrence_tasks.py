"""Generated tasks that show what recurrence is for: what a finite automaton knows, and recall.

    parity              is the number of 1s even?
    tomita-3 to -7      is the string in this language of Tomita (1982)? See AUTOMATA
    dyck                are the brackets of two kinds balanced, and at most four deep?
    flip-flop           which bit was written last, before many that are to be ignored? (Liu et al., 2023)
    modulo-5            what is the sum of the digits 0 to 4, modulo 5?
    s3, a5, s5          what is the product of these permutations of 3 or 5 things? (even ones in a5)
    associative-recall  which value stood after this key, the last token? (Arora et al., 2023, with one question a text)
    recall-size         the same with 4 to 64 pairs
    recall-distance     which letter stood k before the number k at the end?

The rows of the split test-long are two to five times as long as the longest of training. One space separates tokens. The
numbers of rows, their lengths, and the keys, values and letters are ours.
"""

import random
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import accumulate, islice, permutations
from typing import NamedTuple

from recurcli.data.tasks import Task, task_named

SEED = 0
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
    """A deterministic finite automaton that starts in state 0."""

    moves: Sequence[Sequence[int]]
    """The state that follows each state, after each symbol."""
    labels: Sequence[str]
    """The label of a string that leads to each state."""
    symbols: Sequence[str] = "01"

    def states(self, string: Iterable[int]) -> Iterator[int]:
        """Yield the state after each symbol of `string`, whose symbols are numbers."""
        state = 0
        for symbol in string:
            yield (state := self.moves[state][symbol])

    def accepts(self, string: Iterable[int]) -> bool:
        """Return whether the label of `string` is "accept"."""
        return self.labels[[0, *self.states(string)][-1]] == "accept"

    def counts(self, longest: int, *, accepted: bool) -> list[list[int]]:
        """Return [length][state]: how many strings of the length are accepted (or else rejected) from that state on."""
        counts = [[int((label == "accept") == accepted) for label in self.labels]]
        for _ in range(longest):
            counts.append([sum(counts[-1][state] for state in after) for after in self.moves])
        return counts

    def text(self, string: Iterable[int]) -> str:
        """Return the symbols of `string` with spaces between them."""
        return " ".join(self.symbols[symbol] for symbol in string)


def _language(moves: Sequence[Sequence[int]], accepting: set[int], symbols: Sequence[str] = "01") -> Automaton:
    """Return an automaton that accepts a string if it leads to one of the states `accepting`."""
    return Automaton(moves, ["accept" if state in accepting else "reject" for state in range(len(moves))], symbols)


def _balanced_brackets(deepest: int) -> Automaton:
    """Return the automaton whose states are what is open, and one where all is lost."""
    opened = [""]
    for stack in opened:  # it grows
        opened += [stack + bracket for bracket in "([" if len(stack) < deepest]
    state_of, lost = {stack: state for state, stack in enumerate(opened)}, len(opened)
    moves = []
    for stack in opened:
        closed = [state_of[stack[:-1]] if stack[-1:] == bracket else lost for bracket in "(["]
        inner = [state_of.get(stack + bracket, lost) for bracket in "(["]
        moves.append([inner[0], closed[0], inner[1], closed[1]])
    return _language([*moves, [lost] * 4], {0}, "()[]")


def group_automaton(elements: Sequence[tuple[int, ...]], names: Sequence[str]) -> Automaton:
    """Return the automaton that multiplies permutations, named by `names`; the first one of `elements` is the identity.

    The product of p and q maps i to p[q[i]].
    """
    number = {element: place for place, element in enumerate(elements)}
    moves = [[number[tuple(before[place] for place in own)] for own in elements] for before in elements]
    return Automaton(moves, names, names)


def _is_even(permutation: tuple[int, ...]) -> bool:
    """Return whether the number of pairs that stand in the wrong order is even."""
    return sum(a > b for place, b in enumerate(permutation) for a in permutation[:place]) % 2 == 0


def _named(count: int) -> tuple[str, ...]:
    return tuple(f"g{number}" for number in range(count))


AUTOMATA = {
    "parity": _language([(0, 1), (1, 0)], {0}),
    # A run of 1s of odd length is followed by a run of 0s of even length ("after" read as "right after"; both readings
    # are in use). States: neither of these, odd run of 1s, odd and even run of 0s after it, lost.
    "tomita-3": _language([(0, 1), (2, 0), (3, 4), (2, 1), (4, 4)], {0, 1, 3}),
    # No three 0s in a row. States: the number of 0s at the end.
    "tomita-4": _language([(1, 0), (2, 0), (3, 0), (3, 3)], {0, 1, 2}),
    # Even numbers of 0s and of 1s. States: whether that of 0s is odd, plus 2 if that of 1s is.
    "tomita-5": _language([(1, 2), (0, 3), (3, 0), (2, 1)], {0}),
    # The numbers of 0s and of 1s differ by a multiple of 3. States: the difference modulo 3.
    "tomita-6": _language([(1, 2), (2, 0), (0, 1)], {0}),
    # 0s, 1s, 0s and 1s, each perhaps none. States: in which run, or lost.
    "tomita-7": _language([(0, 1), (2, 1), (2, 3), (4, 3), (4, 4)], {0, 1, 2, 3}),
    "dyck": _balanced_brackets(4),
    # States: the last bit that was written, at first 0.
    "flip-flop": Automaton([(0, 1, 0, 0), (0, 1, 1, 1)], "01", ("w0", "w1", "i0", "i1")),
    "modulo-5": group_automaton([tuple((i + k) % 5 for i in range(5)) for k in range(5)], "01234"),
    "s3": group_automaton([*permutations(range(3))], _named(6)),
    "a5": group_automaton([*filter(_is_even, permutations(range(5)))], _named(60)),
    "s5": group_automaton([*permutations(range(5))], _named(120)),
}
SHARES = {"flip-flop": (0.1, 0.1, 0.4, 0.4)}
"""The shares of the symbols in strings that are drawn at random. Ours: writes are rare, as in the paper. Else all are equal."""


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
        rejected = (
            _edited(accepted, len(automaton.symbols), draw)
            if is_near
            else _string(automaton, rejected_counts, length, draw)
        )
        if lengths[0] <= len(rejected) <= lengths[1] and not automaton.accepts(rejected):
            yield [(automaton.text(accepted), "accept"), (automaton.text(rejected), "reject")]
            is_near = not is_near


def _string(automaton: Automaton, counts: Sequence[Sequence[int]], length: int, draw: Draw) -> list[int]:
    """Draw one of the strings of `length` that `counts` counts. It is empty if there are none."""
    state, string = 0, list[int]()
    if not counts[length][state]:
        return string
    for left in reversed(range(length)):
        symbol, rest = len(automaton.symbols) - 1, draw() * counts[left + 1][state]
        while symbol and rest >= (own := counts[left][automaton.moves[state][symbol]]):
            symbol, rest = symbol - 1, rest - own
        string.append(symbol)
        state = automaton.moves[state][symbol]
    return string


def _edited(string: Sequence[int], count: int, draw: Draw) -> list[int]:
    """Return `string` with one or two edits: a symbol is left out, replaced by another one, or one is inserted after it.

    There are `count` symbols.
    """
    edited = list(string)
    for _ in range(_between((1, 2), draw)):
        place = int(draw() * len(edited))
        symbol, new = edited[place], _between((0, count - 1), draw)
        other = new if new != symbol else (symbol + 1) % count
        edited[place : place + 1] = ([], [other], [symbol, new])[_between((0, 2), draw)]
    return edited


def _words(automaton: Automaton, shares: Sequence[float] | None, lengths: Range, draw: Draw) -> Iterator[list[Row]]:
    """Yield rows of symbols that are drawn one by one, with the label of the state after them. None: all are as frequent."""
    symbols = range(len(automaton.symbols))
    ends = [*accumulate(shares or [1 / len(symbols)] * len(symbols))]
    while True:
        string = [min(bisect_right(ends, draw()), symbols[-1]) for _ in range(_between(lengths, draw))]
        yield [(automaton.text(string), automaton.labels[[*automaton.states(string)][-1]])]


def prefix_labels(name: str, text: str) -> list[str]:
    """Return the label of each prefix of a text of the task `name`, of one symbol or more."""
    automaton = AUTOMATA[name]
    number = {symbol: place for place, symbol in enumerate(automaton.symbols)}
    return [automaton.labels[state] for state in automaton.states(number[symbol] for symbol in text.split(" "))]


def _recalls(count: int, pairs: Range, draw: Draw) -> Iterator[list[Row]]:
    """Yield rows of pairs of a key, each another one of `count`, and a value.

    The last token repeats a key; the label is the value of that key.
    """
    while True:
        keys = sorted(range(count), key=lambda _: draw())[: _between(pairs, draw)]
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
        name: (
            partial(_strings, automaton)
            if "accept" in automaton.labels
            else partial(_words, automaton, SHARES.get(name)),
            _sizes((2, 40), (80, 200), fewest_to_share=10),
        )
        for name, automaton in AUTOMATA.items()
    },
    "associative-recall": (partial(_recalls, 64), _sizes((4, 16), (32, 64))),
    "recall-size": (partial(_recalls, 256), _sizes((4, 64), (128, 255))),
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
