"""The parts of a text with the largest share in the linear model's score of its label, or in its number.

A model holds hashes of n-grams. Their spelling is that of a row, whose n-grams are enumerated as `hash_ngrams` does.
"""

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recurcli.linear.model import LinearModel
from recurcli.linear.ngram_hashes import MAX_TEXT, NgramConfig, hash_ngrams, word_spans

Row = tuple[str, str | None]
SIDES = ("first", "second", "both")
"""The texts of a pair that have an n-gram."""
MIN_SHARE = 0.25
"""The words or characters of a part have this fraction of the row's largest share, or more. Ours: on 400 headlines of TNEWS the
margin of the label is lower by 0.16 a character without the first part, and by 0.02 without a random one of its length."""
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
        characters = character_spans(lower) if config.across_words else _with_spaces(lower)
        for units, (shortest, longest) in ((characters, config.characters), (word_spans(lower), config.words)):
            for length in range(max(shortest, 1), longest + 1):
                for first in range(len(units) - length + 1):
                    spans = units[first : first + length]
                    if not config.across_words and units is characters and any(a == b for a, b in spans[1:-1]):
                        continue  # a space inside
                    found.append(Occurrence(side, spans[0][0], spans[-1][1]))
    return found


def character_spans(text: str) -> list[tuple[int, int]]:
    """Return the place of each character of a text."""
    return [(place, place + 1) for place in range(len(text))]


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
    """Return the parts of a row with the largest share in the logit of the class `label` against the best other class."""
    logits, direction = model.logits([row])[0], np.zeros(len(model.bias), np.float32)
    logits[label] = -np.inf
    direction[label], direction[logits.argmax()] = 1, -1
    return explain_direction(model, row, direction)


def explain_direction(model: LinearModel, row: Row, direction: NDArray[np.float32]) -> list[str]:
    """Return the parts of a row with the largest share in its logits (C,) times the `direction` (C,).

    The share of an n-gram, and that of a token in the mean of static vectors, is divided equally among the words that it
    touches, or among its characters where the model counts no words. Of a pair's vectors |u - v| and u * v have no share.
    Neighbours with at least MIN_SHARE of the largest share are one part [ours]. The largest share stands first. For a pair each
    part names its text, or both.
    """
    _, columns, values = model.ngrams.transform([row])
    shares = dict(zip(columns.tolist(), (values * (model.weights[columns] @ direction)).tolist(), strict=True))
    found = model.ngrams.columns_of(hash_ngrams([row], model.ngrams.config)[0]).tolist()
    times = Counter(found)
    lower = [(text or "")[:MAX_TEXT].lower() for text in row]
    units = [*map(word_spans if model.ngrams.config.words[1] else character_spans, lower)]
    starts, ends = ([[span[edge] for span in own] for own in units] for edge in (0, 1))
    unit_shares = [np.zeros(len(own)) for own in units]
    places = zip(occurrences(row, model.ngrams.config), found, strict=True)
    shared = [(place, shares[column] / times[column]) for place, column in places if column in shares]
    if model.vectors is not None and model.vector_weights is not None:
        weights = model.vector_weights @ direction
        for side, text in enumerate(row):
            found_shares = model.vectors.shares((text or "")[:MAX_TEXT], weights, side)
            shared += [(Occurrence(side, *span), share) for span, share in found_shares]
    for (side, start, end), share in shared:
        touched = slice(bisect_right(ends[side], start), bisect_left(starts[side], end))
        unit_shares[side][touched] += share / max(1, touched.stop - touched.start)
    least = MIN_SHARE * max((float(share.max()) for share in unit_shares if len(share)), default=0.0)
    if least <= 0:
        return []
    parts: dict[str, float] = defaultdict(float)
    found_at: dict[str, list[Occurrence]] = defaultdict(list)
    for side, (text, own, share) in enumerate(zip(lower, units, unit_shares, strict=True)):
        named = [
            large and not _has_punctuation(text[slice(*span)]) for span, large in zip(own, share >= least, strict=True)
        ]
        for is_named, neighbours in groupby(range(len(own)), key=named.__getitem__):
            if is_named:
                run = [*neighbours]
                place = Occurrence(side, own[run[0]][0], own[run[-1]][1])
                part = text[place.start : place.end]
                parts[part] += share[run].sum()
                found_at[part].append(place)
    best = sorted(parts, key=lambda part: -parts[part])[:MOST]
    return [_named(part, found_at[part], row) for part in best]


def _has_punctuation(text: str) -> bool:
    """Return whether `text` has a character that is not a part of a word (combining marks and joiners are one) and no emoji."""
    parts = ("So", "Mn", "Mc", "Me", "Cf")
    return any(not re.match(r"\w", character) and unicodedata.category(character) not in parts for character in text)


def _named(part: str, places: Sequence[Occurrence], row: Row) -> str:
    """Return a part of a row, which stands at `places`, as the row spells it first; of a pair, with the texts that have it."""
    side, start, end = places[0]
    text = row[side] or ""
    spelled = text[start:end] if text[start:end].lower() == part else part  # lower case may be longer
    if row[1] is None:
        return spelled
    return f"{SIDES[2 if places[-1].side != side else side]}: {spelled}"
