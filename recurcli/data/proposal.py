"""What the first rows of a file show about its columns where their names show nothing: which hold texts, which a label."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from recurcli.data.rows import Record, first_repeated

CLEARLY_LONGER = 2
"""How many times as long as others the texts of a column are that is the likelier text. Ours."""
LONGEST_NUMBER = 5
"""A label has at most so many digits; dates, times and most ids have more. Ours."""


def mean_lengths(rows: Sequence[Record], columns: Iterable[str]) -> dict[str, float]:
    """Return the mean number of characters of the `columns` that hold strings, the longest first.

    A string of ASCII without a space counts as one character: it is a word, a link or a number.
    """
    lengths = {}
    for column in columns:
        texts = [value for row in rows if isinstance(value := row.fields.get(column), str)]
        if texts:
            lengths[column] = sum(1 if text.isascii() and " " not in text else len(text) for text in texts) / len(texts)
    return dict(sorted(lengths.items(), key=lambda item: -item[1]))


def likely_labels(rows: Sequence[Record], names: Mapping[str, str], usual: Iterable[str]) -> list[str]:
    """Return the column of few values that is most likely a label; several columns of 0 and 1; [] if there is none.

    `names`: the name of each column. The likelier label has a name with a `usual` one in it, several values, and stands before
    others. A column of few values is not empty in half of the rows, and has each value in two rows on average.
    """
    hints, few = [word for word in usual if len(word) > 1], {}
    for column in names:
        cells = (row.fields.get(column) for row in rows)
        values = Counter(str(cell).strip() for cell in cells if isinstance(cell, str | int | float))
        del values[""]
        is_long = any(sum(map(str.isdigit, value)) > LONGEST_NUMBER for value in values)
        if 0 < len(values) * 2 <= values.total() and values.total() * 2 >= len(rows) and not is_long:
            few[column] = values.keys()

    def is_unlikely(column: str) -> tuple[bool, bool]:
        return not any(word in names[column].casefold() for word in hints), len(few[column]) < 2

    best = sorted(few, key=is_unlikely)[:1]
    zero_one = [column for column in few if few[column] <= {"0", "1"}]
    return zero_one if len(zero_one) > 1 and (best[0] in zero_one or is_unlikely(best[0])[0]) else best


def are_twins(name: str, other: str) -> bool:
    """Return whether two names differ in one character, which follows that of the `name`: question1 and question2, a and b."""
    steps = [ord(two) - ord(one) for one, two in zip(name, other, strict=False) if one != two]
    return len(name) == len(other) and steps == [1]


def is_like_others(first: Record, rows: Sequence[Record], texts: Iterable[str], labels: Sequence[str]) -> bool:
    """Return whether a row may be one of the `rows`, not their header: they have its label, or texts as short."""
    cells = first.fields
    if first.fault or first_repeated(filter(None, cells.values())):
        return True
    if labels:
        return any(row.fields.get(column) == cells[column] for row in rows for column in labels)
    lengths = mean_lengths(rows, texts)
    return any(len(cells[column]) * CLEARLY_LONGER > lengths[column] for column in texts)
