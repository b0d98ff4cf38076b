"""Correlate entropy and activation factor with accuracy, and print both at each checkpoint: python entropy.py FOLDER RUN...

FOLDER has the diagnosis of each run, ENCODER-SEED.json, which `recur eval --diagnose --json` wrote. The first table correlates
accuracy with the scaled entropy after the last layer, and with the activation factor of that layer: over all runs, and within
encoders, where the mean of the encoder is taken from the values of its runs, of Spearman's from their ranks in the encoder.
All p-values are two-sided. Those over all runs take the runs as independent, which runs of one encoder are not. Those within
encoders come from exchanges of the accuracies among the runs of an encoder.

Each RUN was trained with `--keep-checkpoints`. Its table has the entropy and the activation factor of the last layer and the
accuracy on the test rows at each checkpoint. Step 0 is the untrained model.
"""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from recurcli.commands.evaluation.network import DIAGNOSED_ROWS
from recurcli.commands.trained_run import task_of
from recurcli.data.splits import load_split
from recurcli.diagnostics import diagnose
from recurcli.evaluation.predictor import Predictor
from recurcli.files import CommittedFolder
from recurcli.network import Classifier
from recurcli.runs.network_files import load_tensors
from recurcli.runs.run_directory import checkpoint_folders, open_run
from recurcli.tokens.batching import collate
from recurcli.training.fit import seed_weights

Values = NDArray[np.float64]
EXCHANGES = 9999


def main(folder: Path, *runs: Path) -> None:
    """Print both tables."""
    correlate(folder)
    for run in runs:
        follow(run)


def correlate(folder: Path) -> None:
    """Print the correlations over the runs whose diagnoses are the files of `folder`."""
    encoders, measured = [], []
    for path in sorted(folder.glob("*.json")):
        result = json.loads(path.read_text())
        last = result["diagnosis"]["layers"][-1]
        encoders.append(path.stem.rpartition("-")[0])
        measured.append([last["scaled_entropy"], last["activation_factor"], result["metrics"]["accuracy"]])
    if not measured:
        sys.exit(f"{folder}: has no diagnosis, ENCODER-SEED.json; run claim 3 of study.sh, which writes them")
    *measures, accuracy = np.array(measured).T
    members = [np.flatnonzero(np.array(encoders) == encoder) for encoder in sorted(set(encoders))]
    print("| accuracy with | n | encoders | Pearson | p | Spearman | p | Pearson within | p | Spearman within | p |")
    print("|---" * 11 + "|")
    for name, measure in zip(("entropy", "activation factor"), measures, strict=True):
        over = [test(measure, accuracy) for test in (stats.pearsonr, stats.spearmanr)]
        within_encoders = [within(measure, accuracy, members, scale) for scale in (np.asarray, stats.rankdata)]
        cells = " | ".join(f"{r:+.2f} | {p:.3f}" for r, p in (*over, *within_encoders))
        print(f"| {name} | {len(accuracy)} | {len(members)} | {cells} |")


def within(
    a: Values, b: Values, members: list[NDArray[np.intp]], scale: Callable[[Values], Values]
) -> tuple[float, float]:
    """Return the correlation of `a` and `b` within the groups of `members`, each scaled and centred, and its p-value."""

    def centred(values: Values) -> Values:
        return np.concatenate([(scaled := scale(values[own])) - scaled.mean() for own in members])

    def correlation(values: Values) -> float:
        return float(np.corrcoef(centred(a), centred(values))[0, 1])

    rng = np.random.default_rng(0)
    found, as_far = correlation(b), 1
    for _ in range(EXCHANGES):
        exchanged = b.copy()
        for own in members:
            exchanged[own] = rng.permutation(b[own])
        as_far += abs(correlation(exchanged)) >= abs(found) - 1e-12
    return found, as_far / (EXCHANGES + 1)


def follow(path: Path) -> None:
    """Print the measures of the checkpoints of a run."""
    run = open_run(path)
    predictor = Predictor.load(run)
    encoder = predictor.encoder
    assert encoder is not None, "the run has layers"
    rows = load_split(task_of(run, predictor), "test", run.read_data_config())
    tokens = encoder.encode(rows.texts)
    diagnosed = np.flatnonzero(tokens.lengths > 1)[:DIAGNOSED_ROWS]
    ids, mask = collate(tokens, rows=diagnosed, pad_id=encoder.model.config.pad_id, multiple=1)
    labels = np.array([predictor.labels.index(str(example.label)) for example in rows.examples])
    seed = run.read_preset()["runtime"]["seed"]
    print(f"\n{encoder.model.config.encoder['name']}, seed {seed}\n")
    print("| step | embedding | entropy after each layer | activation factor of the last layer | accuracy |")
    print("|---|---|---|---|---|")
    for step, model in checkpoints(path, encoder.model, seed):
        found = diagnose(model, ids, mask)
        entropies = ", ".join(f"{layer.scaled_entropy:.2f}" for layer in found.layers)
        last = found.layers[-1].activation_factor
        accuracy = 100 * (encoder.logits(tokens).argmax(axis=1) == labels).mean()
        print(f"| {step} | {found.embedding_scaled_entropy:.2f} | {entropies} | {last:.2f} | {accuracy:.1f} |")


def checkpoints(run: Path, model: Classifier, seed: int) -> Iterator[tuple[int, Classifier]]:
    """Yield the steps of the checkpoints of a run, from the untrained model on, and `model` with the weights at each."""
    seed_weights(seed)
    model.load_state_dict(Classifier(model.config).state_dict())
    yield 0, model
    for folder in reversed(checkpoint_folders(run / "checkpoints")):
        model.load_state_dict(load_tensors(CommittedFolder(folder).verify(["model.safetensors"])["model.safetensors"]))
        yield int(folder.name.rpartition("-")[2]), model


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
