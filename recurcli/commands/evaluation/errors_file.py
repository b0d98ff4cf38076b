"""The file of `recur eval --errors`: the rows that are predicted wrongly, as TSV, the most confident mistake first."""

from collections.abc import Iterator
from pathlib import Path

from recurcli.data.formats.separated import escapes_of
from recurcli.evaluation.evaluated import EvaluatedRows
from recurcli.files import OutputKind, write_atomically

ERRORS = OutputKind("a file of mistakes", (".tsv",))
COLUMNS = ("id", "label", "prediction", "score", "label_probability", "text")


def write_errors(path: Path, rows: EvaluatedRows) -> int:
    """Write the wrongly predicted rows to `path`, the most confident one first; return their number.

    The columns are COLUMNS, and `pair` if a row has a second text. TABs and line ends in a text are written as \\t, \\n and
    \\r.
    """
    pairs = any(pair is not None for _, pair in rows.texts)
    write_atomically(path, "".join(_lines(rows, pairs)))
    return len(rows.mistakes)


def _lines(rows: EvaluatedRows, pairs: bool) -> Iterator[str]:
    escapes = escapes_of("\t")
    yield "\t".join((*COLUMNS, *(["pair"] if pairs else []))) + "\n"
    for row in rows.mistakes:
        text, pair = rows.texts[row]
        fields = [
            rows.ids[row],
            rows.names[rows.labels[row]],
            rows.names[rows.predictions[row]],
            f"{rows.scores[row]:.6f}",
            f"{rows.probabilities[row, rows.labels[row]]:.6f}",
            text,
            *([pair or ""] if pairs else []),
        ]
        yield "\t".join(field.translate(escapes) for field in fields) + "\n"
