"""Finds out whether spaces separate the words of a language."""

import re
from collections.abc import Iterable
from itertools import islice

SAMPLE = 1000
"""Number of texts that are read."""
_WITHOUT_SPACES = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
"""Letters of Thai, Lao, Burmese, Khmer, Japanese and Chinese."""


def separates_words(texts: Iterable[str]) -> bool:
    """Return whether fewer than half of the letters of the first SAMPLE texts are of scripts without spaces."""
    letters = foreign = 0
    for text in islice(texts, SAMPLE):
        letters += sum(map(str.isalpha, text))
        foreign += len(_WITHOUT_SPACES.findall(text))
    return foreign * 2 < max(letters, 1)
