"""`recur check FILE --against RUN`: whether the texts of a file are like those of the training of a run."""

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from recurcli.commands.evaluate import training_rows
from recurcli.commands.trained_run import data_config, is_suspicious, task_of, unknown_of_dev
from recurcli.data.splits import load_split
from recurcli.errors import DataError, pluralize
from recurcli.evaluation.predictor import Pair, Predictor
from recurcli.export.clue import Finding
from recurcli.linear.features import characters_read
from recurcli.linear.two_sample import two_sample_test
from recurcli.log import Log
from recurcli.metrics import percent
from recurcli.requests.check import CheckRequest
from recurcli.runs.predictions import read_predictions, read_texts
from recurcli.runs.run_directory import PREDICTIONS, Run
from recurcli.targets.target import labels_in

MOST_TEXTS, MOST_CHARACTERS, FEWEST_TEXTS = 2000, 1_500_000, 20
"""The test compares at most MOST_TEXTS texts and MOST_CHARACTERS characters of each set, and needs FEWEST_TEXTS texts. Ours:
10 s on one core."""
ALARM = 0.01
"""The level of the two-sample test. Ours: at 0.05 a check of every day is wrong every third week."""
LISTED = 5
"""The number of texts that are listed as the least like those of the training."""


def check_against(run: Run, path: Path, request: CheckRequest, log: Log) -> tuple[dict[str, Any], list[Finding]]:
    """Return whether the texts of `path` differ from those of the training of `run`: numbers, and a sentence on each.

    Raises DataError for a file without rows, and for a run without texts to compare with.
    """
    predictor = Predictor.load(run)
    target, task = predictor.kept.target, task_of(run, predictor)
    log.stage(f"reading {path}")
    config = data_config(run, path, request.columns.given())
    rows = load_split(task, "dev", config, labelled=False, like=predictor.source, keep_faults=True)
    if not rows.examples:
        raise rows.faults[0]
    if rows.bad:
        log.warn(f"{pluralize(len(rows.bad), 'bad row')} skipped, the first: {rows.bad[0]}")
    known, whose = _known_texts(run, predictor, request.data, log)
    first, second = _sample(known), _sample(rows.texts)
    length = max(np.mean([*map(characters_read, texts)]) for texts in (first, second))
    count = min(len(first), len(second), int(MOST_CHARACTERS / (1 + length)))
    log.stage(f"comparing {pluralize(count, 'text')} with {whose}")
    facts: dict[str, Any] = {"run": str(run), "against": whose, "rows": len(rows.texts), "compared": count}
    facts |= {"differs": None, "accuracy": None, "p_value": None, "furthest": []}
    sentence = f"too few different texts to tell: {count}, and the test needs {FEWEST_TEXTS}"
    if count >= FEWEST_TEXTS:
        accuracy, p_value, distances = two_sample_test(first[:count], second[:count])
        furthest = np.argsort(-distances, kind="stable")[:LISTED].tolist()
        facts |= {"differs": p_value < ALARM, "accuracy": accuracy, "p_value": p_value}
        facts["furthest"] = [second[place] for place in furthest]
        share = f"a linear model tells of {percent(accuracy)} % whose they are (chance: 50 %; p {p_value:.2g})"
        sentence = f"these texts {'differ from' if facts['differs'] else 'are like'} {whose}: {share}"
    findings = [Finding("warning" if facts["differs"] else "information", sentence)]
    if predictor.linear is not None and (dev := unknown_of_dev(run)) is not None:
        now = predictor.linear.ngrams.unknown_share(second[:count])
        facts["unknown_ngrams"] = {"now": now, "dev": dev}
        what = f"{percent(now)} % of their n-grams are unknown to the model, {percent(dev)} % of those of its dev rows"
        findings.append(Finding("warning" if is_suspicious(now, dev) else "information", what))
    decided = target.decode(predictor.kept.predict(predictor.logits_of_pairs(second[:count])))
    before = read_predictions(run, "model").predictions if PREDICTIONS in run else []
    counts = [Counter(label for cell in cells for label in labels_in(cell)) for cells in (before, decided)]
    labels = [
        {"label": label, "before": counts[0][label] / max(1, len(before)), "now": counts[1][label] / len(decided)}
        for label in (target.labels if target.has_labels else ())
    ]
    facts["labels"] = sorted(labels, key=lambda own: -abs(own["now"] - own["before"]))
    return facts, findings


def _known_texts(run: Run, predictor: Predictor, data: Path | None, log: Log) -> tuple[Sequence[Pair], str]:
    """Return the training texts and a name for them; without a training file, the dev texts that the run keeps."""
    task, like = task_of(run, predictor), predictor.source
    if data is not None:
        config = data_config(run, data)
        rows = load_split(task, "train", config, use_dev_split=True, any_label=True, like=like)
        return rows.texts, "the training texts"
    with suppress(DataError):
        return training_rows(run, task, like).texts, "the training texts"
    if PREDICTIONS not in run or not (texts := read_texts(run)):
        what = "its training rows have changed or are gone, and it keeps no dev texts"
        raise DataError(f"{run}: {what}; name them with --data")
    log.note(f"the training rows have changed or are gone, so the {len(texts):,} dev rows in {run} stand for them")
    return [(row.text, row.pair) for row in texts], "the dev texts"


def _sample(texts: Iterable[Pair]) -> list[Pair]:
    """Draw at most MOST_TEXTS of the texts, without duplicates."""
    different = [*dict.fromkeys(texts)]
    return [different[place] for place in np.random.default_rng(0).permutation(len(different))[:MOST_TEXTS].tolist()]
