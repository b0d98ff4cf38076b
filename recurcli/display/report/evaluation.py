"""The page of `recur eval --report`: a classifier's scores, confusions, calibration and mistakes, and its encoder."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from recurcli.display.diagnosis import MEASURES
from recurcli.display.report.charts import Curve, Scores, bar_chart, curve_chart, reliability_chart, score_chart
from recurcli.display.report.page import write_page
from recurcli.errors import ModelError
from recurcli.evaluation.calibration import BINS
from recurcli.evaluation.evaluated import EvaluatedRows
from recurcli.evaluation.metrics import METRICS
from recurcli.evaluation.significance import share_interval
from recurcli.runs.run_directory import RunDirectory

MOST_CLASSES = 40
"""Classes up to which the page has the whole table of confusions."""
MOST_PAIRS, ROWS_OF_PAIR = 250, 20
"""Pairs of label and prediction that are listed, and rows of each."""
PAIRS_AT_FIRST = 10
"""Pairs that are seen before the list of the others is opened."""
MOST_MISTAKES = 30
LENGTH_GROUPS = 8
LONGEST_HEAD = 12
"""Characters of a class name above which the columns of the confusion table have numbers."""

MEANINGS = {
    "activation_factor": "How a layer changes the distance of two tokens, as a mean factor. At 1 it is kept; above 1 it grows.",
    "distance_preservation": "The correlation of the tokens' distances after the layer with those of the embeddings.",
    "movement": "How far a layer moves a token's state, on average. A layer near 0 does little.",
    "entropy": "How spread out the values of a layer are, in nats.",
    "attention_entropy": "How many tokens a token looks at, as an entropy in nats: 0 for one token, log T for all T alike.",
    "alpha": "The weight of the layer's update beside its input, which is learned. The layer does nothing at 0.",
    "residual_weight": "The weight of the layer's update beside its input, which is learned. The layer does nothing at 0.",
    "expert_weights": "The mean weight of each expert. One weight near 1 means that the others are not used.",
    "gate": "The share of the recurrence encoding in the attention: 0 is plain self-attention, 1 recurrence alone.",
    "rates": "The factor by which the recurrence of each head fades with every position: 0 forgets at once, 1 never.",
    "angles": "The angle by which the recurrence of each cyclic head turns with every position.",
}
"""One sentence on each measure and statistic of a diagnosis."""


def write_report(path: Path, result: Mapping[str, Any], rows: EvaluatedRows) -> None:
    """Write the page on the `result` of `recur eval` and its `rows`."""
    run = RunDirectory(Path(result["run"]))
    trained, floors = _trained(run), result["floors"]
    scores = [_scores("model", result)]
    scores += [
        Scores(
            f"{part} alone", own["accuracy"], *share_interval(round(own["accuracy"] * result["rows"]), result["rows"])
        )
        for part, own in result.get("parts", {}).items()
    ]
    pairs, more_pairs = _pairs(rows)
    values = {
        "title": f"{run.path.resolve().name}: {result['split']} rows",
        "rows": f"{result['rows']:,}",
        "split": "labelled" if result["split"] == "file" else result["split"],
        "task": result["task"],
        "path": result["path"],
        "notes": list(_notes(result)),
        "score_plot": score_chart(scores, floors, "accuracy"),
        "metrics": _metrics(result),
        "facts": _facts(trained),
        "curves": _curves(run, trained),
        "classes": _classes(result),
        "names": rows.names,
        "numbered": max(map(len, rows.names)) > LONGEST_HEAD,
        "matrix": _matrix(result, {pair["anchor"] for pair in pairs}) if len(rows.names) <= MOST_CLASSES else None,
        "pairs": pairs,
        "pairs_at_first": PAIRS_AT_FIRST,
        "more_pairs": more_pairs,
        "ece": f"{result['calibration']['ece']:.4f}",
        "bins": BINS,
        "temperature": _temperature(result),
        "reliability_plot": reliability_chart(result["calibration"]["bins"]),
        "length_plot": _length_plot(rows),
        "truncation": _truncation(rows),
        "mistakes": [_row(rows, row) for row in rows.mistakes[:MOST_MISTAKES].tolist()],
        **_encoder(result.get("diagnosis")),
    }
    sections = [("scores", "Scores"), ("curves", "Curves"), ("classes", "Classes"), ("confusion", "Confusion")]
    sections += [("pairs", "Most confused"), ("calibration", "Calibration"), ("length", "Length")]
    sections += [("mistakes", "Mistakes"), ("encoder", "Encoder")]
    absent = {name for name, part in (("curves", "curves"), ("encoder", "layers")) if not values[part]}
    write_page(path, "evaluation.html", sections=[s for s in sections if s[0] not in absent], **values)


def _trained(run: RunDirectory) -> dict[str, Any]:
    """Return result.json of the training; {} if it is not finished or damaged."""
    try:
        return run.read_result() if run.is_finished else {}
    except (OSError, ModelError):
        return {}


def _notes(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield sentences that a reader must know to take the scores for what they are."""
    if result["split"] == "dev":
        yield "The model was selected on these rows, so its scores here are slightly too high."
    if result.get("training_rows"):
        yield f"{result['training_rows']:,} of them are training rows."
    if result.get("dev_rows"):
        yield f"{result['dev_rows']:,} of them are dev rows, on which the model was selected."
    prior = result.get("prior")
    if prior and not prior["encoder_weight"]:
        yield "The model is its linear part alone, which was the best on the dev rows."


def _scores(name: str, result: Mapping[str, Any]) -> Scores:
    return Scores(name, result["metrics"]["accuracy"], *result["intervals"]["accuracy"])


def _metrics(result: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    rows = []
    for name, metric in METRICS.items():
        limits = result["intervals"].get(name)
        rows.append(
            (metric.words, f"{result['metrics'][name]:.4f}", f"{limits[0]:.4f} – {limits[1]:.4f}" if limits else "")
        )
    rows.append(("loss of the logits (nats)", f"{result['metrics']['loss']:.4f}", ""))
    rows.append(("loss of the probabilities (nats)", f"{result['calibration']['loss']:.4f}", ""))
    for part, scores in result.get("parts", {}).items():
        rows.append((f"{part} alone: accuracy", f"{scores['accuracy']:.4f}", ""))
    for name, value in result["floors"].items():
        rows.append((f"floor: {name.replace('_', ' ')} (accuracy)", f"{value:.4f}", ""))
    return rows


def _facts(trained: Mapping[str, Any]) -> list[tuple[str, str]]:
    if not trained:
        return []
    machine = trained["machine"]
    return [
        ("preset", f"{trained['preset']}, seed {trained['seed']}"),
        ("encoder", trained["encoder"]),
        ("parameters", f"{trained['parameters']['total']:,}"),
        ("training rows", f"{trained['data']['train']['rows']:,}"),
        ("steps", f"{trained['steps']:,} (epochs: {trained['epochs']:g}), model of step {trained['best_step']:,}"),
        ("training", f"{trained['seconds']:,.1f} s on {machine['device']} in {machine['precision']}"),
    ]


def _curves(run: RunDirectory, trained: Mapping[str, Any]) -> list[str]:
    lines = run.read_metrics()
    if len(lines) < 2:
        return []
    made = [curve_chart([Curve("", *_columns(lines, "loss"))], "training loss")]
    if any("dev_metric" in line for line in lines):
        steps, values = _columns(lines, "dev_metric")
        words = METRICS[trained["metric"]].words if trained else "metric"
        of_encoder = " (encoder)" if "parts" in trained else ""
        best = dict(zip(steps, values, strict=True)).get(trained.get("best_step", -1))
        mark = None if best is None else (trained["best_step"], best)
        made.append(curve_chart([Curve("after an evaluation", steps, values)], f"dev {words}{of_encoder}", mark))
    return made


def _columns(lines: Sequence[Mapping[str, Any]], key: str) -> tuple[list[int], list[float]]:
    """Return the steps and values of the lines of metrics.jsonl that have the key."""
    own = [line for line in lines if key in line]
    return [line["step"] for line in own], [line[key] for line in own]


def _classes(result: Mapping[str, Any]) -> list[tuple[str, ...]]:
    predicted = np.sum(result["metrics"]["confusion"], axis=0)
    return [
        (name, *(f"{own[key]:.4f}" for key in ("precision", "recall", "f1")), f"{own['support']:,}", f"{count:,}")
        for (name, own), count in zip(result["metrics"]["per_class"].items(), predicted, strict=True)
    ]


def _anchor(label: int, prediction: int) -> str:
    return f"rows-{label}-{prediction}"


def _matrix(result: Mapping[str, Any], anchors: set[str]) -> list[dict[str, Any]]:
    """Return the lines of the confusion table, each with its cells."""
    metrics = result["metrics"]
    return [
        {
            "name": name,
            "cells": [
                {
                    "count": count,
                    "share": f"{0.7 * count / max(1, sum(counts)):.3f}",
                    "right": label == prediction,
                    "anchor": anchor if (anchor := _anchor(label, prediction)) in anchors else None,
                }
                for prediction, count in enumerate(counts)
            ],
        }
        for label, (name, counts) in enumerate(zip(metrics["names"], metrics["confusion"], strict=True))
    ]


def _pairs(rows: EvaluatedRows) -> tuple[list[dict[str, Any]], int]:
    """Return the most frequent pairs of label and wrong prediction, each with its first rows, and the number of others."""
    members: dict[tuple[int, int], list[int]] = {}
    for row in rows.mistakes.tolist():
        members.setdefault((int(rows.labels[row]), int(rows.predictions[row])), []).append(row)
    support = np.bincount(rows.labels, minlength=len(rows.names))
    ordered = sorted(members.items(), key=lambda item: (-len(item[1]), item[0]))
    pairs = [
        {
            "label": rows.names[label],
            "prediction": rows.names[prediction],
            "count": len(own),
            "share": len(own) / int(support[label]),
            "anchor": _anchor(label, prediction),
            "rows": [_row(rows, row) for row in own[:ROWS_OF_PAIR]],
            "more": len(own[ROWS_OF_PAIR:]),
        }
        for (label, prediction), own in ordered[:MOST_PAIRS]
    ]
    return pairs, len(ordered[MOST_PAIRS:])


def _row(rows: EvaluatedRows, row: int) -> dict[str, Any]:
    text, pair = rows.texts[row]
    label, prediction = rows.names[rows.labels[row]], rows.names[rows.predictions[row]]
    return {"text": text, "pair": pair, "label": label, "prediction": prediction, "score": f"{rows.scores[row]:.2f}"}


def _temperature(result: Mapping[str, Any]) -> str:
    if "prior" in result:
        return "The weights of encoder and linear model were fitted to the probabilities of the dev rows."
    temperature = result["calibration"]["temperature"]
    words = "too sure of itself" if temperature > 1 else "too unsure of itself" if temperature < 1 else "left as it was"
    return (
        f"The logits are divided by the temperature {temperature:.3g}, fitted on the dev rows: the model was {words}."
    )


def _length_plot(rows: EvaluatedRows) -> str:
    """Draw the accuracy of groups of rows of similar length; rows of one length are in one group."""
    right = rows.predictions == rows.labels
    limits = np.unique(np.quantile(rows.lengths, np.linspace(0, 1, LENGTH_GROUPS + 1), method="higher"))
    place = np.searchsorted(limits[1:-1], rows.lengths, side="left") if len(limits) > 2 else np.zeros_like(rows.lengths)
    names, scores = [], []
    for group in np.unique(place):
        own = right[place == group]
        lengths = rows.lengths[place == group]
        low, high = lengths.min(), lengths.max()
        names.append(f"{low}" if low == high else f"{low}–{high}")
        scores.append(Scores("", float(own.mean()), *share_interval(int(own.sum()), len(own))))
    return bar_chart(names, scores, "tokens", "accuracy")


def _truncation(rows: EvaluatedRows) -> list[tuple[str, str, str]]:
    right = rows.predictions == rows.labels
    kinds = (("truncated: the encoder does not read their end", rows.cut), ("read whole", ~rows.cut))
    return [(name, f"{own.sum():,}", f"{right[own].mean():.4f}") for name, own in kinds if own.any()]


def _encoder(diagnosis: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the table of the layers, the meaning of its columns, and the plot of the gradient norms."""
    if diagnosis is None or not diagnosis["layers"]:
        return {"layers": [], "gradient_plot": _gradient_plot(diagnosis)}
    layers = diagnosis["layers"]
    stats = list(dict.fromkeys(name for layer in layers for name in layer["stats"]))
    lines = [
        [
            f"{layer['layer']}",
            *(f"{layer[key]:.3f}" for key in MEASURES),
            *(_numbers(layer["stats"].get(name)) for name in stats),
        ]
        for layer in layers
    ]
    words = {**MEASURES, **{name: name.replace("_", " ") for name in stats}}
    return {
        "diagnosed_rows": diagnosis["rows"],
        "layer_head": ["layer", *words.values()],
        "layers": lines,
        "measures": [(words[name], MEANINGS[name]) for name in words if name in MEANINGS],
        "gradient_plot": _gradient_plot(diagnosis),
    }


def _numbers(value: float | Sequence[float] | None) -> str:
    values = value if isinstance(value, list) else [] if value is None else [value]
    return " ".join(f"{number:.3f}" for number in values)


def _gradient_plot(diagnosis: Mapping[str, Any] | None) -> str | None:
    if diagnosis is None or len(diagnosis["gradient_norm_by_distance"]) < 2:
        return None
    norms = diagnosis["gradient_norm_by_distance"]
    return curve_chart([Curve("", range(len(norms)), norms)], "gradient norm", xlabel="positions back", log=True)
