"""Which parts of a text spoke most for a label: the n-grams of the linear model, spelled from the text itself.

A model holds hashes of n-grams. Their spelling is that of the row, whose n-grams are enumerated as `hash_ngrams` does.
"""

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from typing import NamedTuple

import numpy as np

from recurcli.linear.model import LinearModel
from recurcli.linear.ngrams import MAX_TEXT, WORD, NgramConfig, hash_ngrams

Row = tuple[str, str | None]
MOST = 5
"""Parts of a text in an explanation."""


class Occurrence(NamedTuple):
    """An n-gram at its place in the text."""

    side: int
    """0: the first text; 1: the second."""
    start: int
    end: int
    """Its characters, without spaces around them, are text[start:end]."""


def occurrences(row: Row, config: NgramConfig) -> list[Occurrence]:
    """Return the n-grams of a row in the order of the hashes that `hash_ngrams` returns for it."""
    found = []
    for side, text in enumerate(row):
        lower = (text or "")[:MAX_TEXT].lower()
        characters = [(place, place + 1) for place in range(len(lower))]
        if not config.across_words:
            characters = _with_spaces(lower)
        words = [word.span() for word in WORD.finditer(lower)]
        kinds = ((characters, config.characters, 1 if config.across_words else 2), (words, config.words, 1))
        for units, (shortest, longest), least in kinds:
            for length in range(max(shortest, least), longest + 1):
                for first in range(len(units) - length + 1):
                    spans = units[first : first + length]
                    if not config.across_words and units is characters and any(a == b for a, b in spans[1:-1]):
                        continue  # a space inside
                    found.append(Occurrence(side, spans[0][0], spans[-1][1]))
    return found


def _with_spaces(text: str) -> list[tuple[int, int]]:
    """Return the place of each character of the words of `text`, and an empty place for a space before and after each word."""
    places: list[tuple[int, int]] = []
    end, word = 0, False
    for place, character in enumerate(text):
        if character.isspace():
            word = False
            continue
        if not word:
            places.append((place, place))
        places.append((place, place + 1))
        end, word = place + 1, True
    return [*places, (end, end)] if places else []


def explain(model: LinearModel, row: Row, label: int) -> list[str]:
    """Return the parts of a row that spoke most for the class `label` against the best other class, the strongest first.

    Where the model counts words, they are words, each with its share of all n-grams that touch it; else n-grams that do not
    overlap. For a pair each part names its text, or both.
    """
    _, columns, values = model.ngrams.transform([row])
    logits = model.bias + values @ model.weights[columns]
    logits[label] = -np.inf
    weights = model.weights[columns, label] - model.weights[columns, int(logits.argmax())]
    strengths = dict(zip(columns.tolist(), (values * weights).tolist(), strict=True))
    found = model.ngrams.columns_of(hash_ngrams([row], model.ngrams.config)[0]).tolist()
    times = Counter(found)
    placed = [
        (strengths[column] / times[column], place)
        for column, place in zip(found, occurrences(row, model.ngrams.config), strict=True)
        if column in strengths
    ]
    texts = [(text or "")[:MAX_TEXT] for text in row]
    lower = [text.lower() for text in texts]
    texts = [text if len(text) == len(low) else low for text, low in zip(texts, lower, strict=True)]
    credit: dict[tuple[int, str], float] = defaultdict(float)
    if model.ngrams.config.words[1]:
        words = [list(WORD.finditer(text)) for text in lower]
        known = [{word.group() for word in found} for found in words]
        starts = [[word.start() for word in found] for found in words]
        ends = [[word.end() for word in found] for found in words]
        for strength, (side, start, end) in placed:
            touched = words[side][bisect_right(ends[side], start) : bisect_left(starts[side], end)]
            for word in touched:
                both = word.group() in known[1 - side]
                credit[2 if both else side, texts[side][slice(*word.span())]] += strength / len(touched)
    else:
        taken = [bytearray(len(text)) for text in lower]
        for strength, place in sorted(placed, reverse=True):
            part = slice(place.start, place.end)
            if not any(taken[place.side][part]):
                taken[place.side][part] = bytes([1]) * (place.end - place.start)
                both = lower[place.side][part] in lower[1 - place.side]
                credit[2 if both else place.side, texts[place.side][part]] += strength
    best = sorted((part for part in credit.items() if part[1] > 0 and part[0][1].strip()), key=lambda part: -part[1])
    named = [(("first", "second", "both")[side], text.strip()) for (side, text), _ in best[:MOST]]
    return [text if row[1] is None else f"{side}: {text}" for side, text in named]
