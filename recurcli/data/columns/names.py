"""Looks up columns of a file by name, by number, or by usual names of texts, labels and ids."""

from collections.abc import Collection, Iterable, Sequence

from recurcli.errors import DataError, did_you_mean, escaped

TEXT_NAMES = (
    *("text", "sentence", "sentence1", "premise", "question1", "text1", "text_a", "review", "content", "query"),
    *("title", "question", "comment", "message", "tweet", "headline", "body"),
)
"""Usual names of the column of a text, the likelier first."""
PAIR_NAMES = {
    "text": "pair",
    "sentence": "pair",
    "sentence1": "sentence2",
    "premise": "hypothesis",
    "question1": "question2",
    "text1": "text2",
    "text_a": "text_b",
}
"""Usual name of the first text's column to that of the second text's."""
LABEL_NAMES = ("label", "labels", "class", "category", "target", "sentiment", "intent", "topic", "stars", "rating", "y")
ID_NAMES = ("id", "idx", "index", "guid", "uid")


class ColumnNames:
    """The columns of a file, looked up by name, number or usual name; `keys`: their keys in the records.

    Messages begin with `source`, those about a missing column with `header`. `hint`: what is wrong with the columns, and the
    way out; it replaces other advice.
    """

    def __init__(
        self,
        source: str,
        names: Sequence[str],
        keys: Sequence[str] | None = None,
        *,
        header: str | None = None,
        numbered: bool = True,
    ) -> None:
        self.source, self.header, self.hint = source, header or source, ""
        self.names, self.keys, self.numbered = tuple(names), tuple(names if keys is None else keys), numbered

    def find(self, word: str, way_out: str = "") -> str:
        """Return the key of the column with the name `word`, else with that number from 1.

        Raises DataError, which ends with `way_out`, if there is none.
        """
        if word in self.names:
            return self._only(word)
        if self.numbered and is_number(word) and 0 < int(word[:9]) <= len(self.keys):
            return self.keys[int(word[:9]) - 1]
        hint = self.hint or escaped(did_you_mean(word, self.names), 400) + way_out
        raise DataError(f"{self.header}: has no column '{escaped(word)}'{hint}")

    def find_usual(self, usual: Iterable[str], taken: Collection[str] = ()) -> str | None:
        """Return the key of the first of the `usual` names that is a column, in any case; None if none is."""
        spellings = {folded(name): name for name in reversed(self.names)}
        for name in usual:
            spelled = name if name in self.names else spellings.get(folded(name))
            if spelled is not None and (key := self._only(spelled)) not in taken:
                return key
        return None

    def find_all(self, wanted: Sequence[str], taken: Collection[str] = ()) -> tuple[str, ...]:
        """Return the keys of all `wanted` names; () if one is not a column or is `taken`."""
        keys = tuple(self._only(name) for name in wanted if name in self.names)
        return keys if len(keys) == len(wanted) and not set(keys) & set(taken) else ()

    def ask(self, what: str, answer: str) -> DataError:
        """Return an error that asks which column is the `what`."""
        shown = ", ".join(escaped(name, 40) for name in self.names[:20])
        question = self.hint.removeprefix("; ") or f"which column is the {what}? {answer}"
        return DataError(f"{self.source}: {question}; the columns are: {shown}")

    def _only(self, name: str) -> str:
        if self.names.count(name) > 1:
            raise DataError(f"{self.source}: has the column '{escaped(name)}' twice; give its number")
        return self.keys[self.names.index(name)]


def is_usual(name: object) -> bool:
    """Return whether `name` is a usual name of a text column."""
    return isinstance(name, str) and folded(name) in {*TEXT_NAMES, *PAIR_NAMES.values()}


def seconds_of(first: str) -> list[str]:
    """Return the usual name of the second text for a first text named `first`; [] if unknown."""
    return [PAIR_NAMES[folded(first)]] if folded(first) in PAIR_NAMES else []


def folded(name: str) -> str:
    """Return `name` in one case and without surrounding spaces."""
    return name.strip().casefold()


def is_number(word: str) -> bool:
    """Return whether `word` consists of ASCII digits."""
    return word.isascii() and word.isdigit()
