"""The page of `recur eval --report`: a classifier's scores, confusions, calibration and mistakes, and its encoder."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from recurcli.display.evaluation import metric_table
from recurcli.display.report.charts import Curve, Scores, curve_chart, reliability_chart, score_chart
from recurcli.display.report.confusions import confusion_values, row_values
from recurcli.display.report.encoder import encoder_values
from recurcli.display.report.page import write_page
from recurcli.display.tables import Table, listing, number_columns, text_columns
from recurcli.errors import ModelError, pluralize
from recurcli.evaluation.metrics import words_of
from recurcli.evaluation.report import BINS, EvaluatedRows
from recurcli.evaluation.significance import share_interval
from recurcli.facts import parameters_in_words
from recurcli.files import CommittedFolder
from recurcli.linear.explain import class_ngrams
from recurcli.runs.run_directory import RunDirectory

MAX_MISTAKES = 30
LENGTH_GROUPS = 8


def write_report(path: Path, result: Mapping[str, Any], rows: EvaluatedRows, folder: CommittedFolder) -> None:
    """Write the page on the `result` of `recur eval` for the run in `folder`, and its `rows`."""
    run = RunDirectory(folder)
    trained, baselines = _trained(run), result["baselines"]
    scores = [Scores("model", result["metrics"]["accuracy"], *result["intervals"]["accuracy"])]
    for part, own in result.get("parts", {}).items():
        interval = share_interval(round(own["accuracy"] * result["rows"]), result["rows"])
        scores.append(Scores(f"{part} alone", own["accuracy"], *interval))
    write_page(
        path,
        "evaluation.html",
        title=f"{Path(result['run']).resolve().name}: {result['split']} rows",
        rows=pluralize(result["rows"], f"{'labelled' if result['split'] == 'file' else result['split']} row"),
        task=result["task"],
        path=result["path"],
        notes=list(_notes(result)),
        score_plot=score_chart(scores, baselines, "accuracy"),
        metrics=metric_table(result),
        facts=_facts(trained),
        curves=_curves(run, trained),
        **confusion_values(result, rows),
        ngrams=_ngrams(rows),
        ece=f"{result['calibration']['ece']:.4f}",
        bins=BINS,
        temperature=_temperature(result),
        reliability_plot=reliability_chart(result["calibration"]["bins"]),
        length_plot="" if _is_linear(result) else _length_plot(rows),
        truncation=_truncation(rows),
        mistakes=[row_values(rows, row) for row in rows.mistakes[:MAX_MISTAKES].tolist()],
        **encoder_values(result.get("diagnosis")),
    )


def _trained(run: RunDirectory) -> dict[str, Any]:
    """Return the content of the training's result.json, or {} if the training is not finished, or the file is damaged."""
    try:
        return run.read_result() if run.is_finished else {}
    except (OSError, ModelError):
        return {}


def _is_linear(result: Mapping[str, Any]) -> bool:
    """Return whether the model has no encoder."""
    return "ensemble" in result and "parts" not in result


def _notes(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield sentences on what a reader must know to interpret the scores."""
    known = result.get("dev_rows")
    ensemble, is_linear = result.get("ensemble"), _is_linear(result)
    if result["split"] == "dev" and known == result["rows"]:
        if is_linear:
            yield "These rows scaled the probabilities. They selected nothing, and these scores are of a fit without them."
        else:
            yield "The model was selected on these rows, so its scores here are slightly too high."
    elif known:
        yield f"{pluralize(known, 'dev row', 'are')} among them" + (
            "." if is_linear else ", on which the model was selected."
        )
    if "training_rows" in result and result["training_rows"] is None:
        yield "How many training rows are among them is unknown, since the run keeps no hashes of its rows."
    elif result.get("training_rows"):
        yield f"{pluralize(result['training_rows'], 'training row', 'are')} among them."
    if ensemble and "parts" in result and not ensemble["encoder_weight"]:
        yield "The model is its linear part alone, which was kept by the dev rows."


def _ngrams(rows: EvaluatedRows) -> Table:
    """Return the n-grams of each class to the linear model, where it is the model or a part of it."""
    found = [] if rows.linear is None or not rows.linear_labels else class_ngrams(rows.linear, rows.texts)
    lines = [(name, ", ".join(ngrams)) for name, ngrams in zip(rows.names, found, strict=False) if ngrams]
    return Table(text_columns("label", "n-grams"), lines)


def _facts(trained: Mapping[str, Any]) -> Table:
    if not trained:
        return listing([])
    machine, part = trained["machine"], "encoder" if trained.get("ensemble") else "model"
    rows = {
        "preset": f"{trained['preset']}, seed {trained['seed']}",
        "encoder": trained["encoder"],
        "parameters": parameters_in_words(trained),
        "training rows": _training_rows(trained),
        "steps": f"{trained['steps']:,} (epochs: {trained['epochs']:g}), {part} of step {trained['best_step']:,}",
        "training": f"{trained['seconds']:,.1f} s on {machine['device']} in {machine['precision']}",
    }
    if not trained["steps"]:  # there is no encoder
        rows = {key: rows[key] for key in ("preset", "parameters", "training rows")}
    return listing(rows.items())


def _training_rows(trained: Mapping[str, Any]) -> str:
    again = trained.get("linear_baseline", {}).get("refit_rows")
    more = f"; for predictions the linear model was fitted on {again:,}, the dev rows too" if again else ""
    return f"{trained['data']['train']['rows']:,}{more}"


def _curves(run: RunDirectory, trained: Mapping[str, Any]) -> list[str]:
    lines = run.read_metrics()
    if len(lines) < 2:
        return []
    made = [curve_chart([Curve("", *_columns(lines, "loss"))], "training loss")]
    if any("dev_metric" in line for line in lines):
        steps, values = _columns(lines, "dev_metric")
        words = words_of(trained["metric"]) if trained else "metric"
        of_encoder = " (encoder)" if "parts" in trained else ""
        best = dict(zip(steps, values, strict=True)).get(trained.get("best_step", -1))
        mark = None if best is None else (trained["best_step"], best, _name_of_best(trained.get("ensemble")))
        made.append(curve_chart([Curve("after an evaluation", steps, values)], f"dev {words}{of_encoder}", mark))
    return [*made, *_scalar_curves(lines)]


def _scalar_curves(lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Draw each kind of number that the encoder's layers have in metrics.jsonl (`Encoder.scalars`), a line for each layer."""
    names = [name for name in lines[0] if name.startswith("encoder.layers.")]
    for kind in dict.fromkeys(name.rpartition(".")[2] for name in names):
        own = [name for name in names if name.endswith(f".{kind}")]
        curves = [
            Curve(f"layer {int(name.split('.')[2]) + 1}", *_columns(lines, name), colour)
            for colour, name in enumerate(own)
        ]
        yield curve_chart(curves, kind.replace("_", " "))


def _name_of_best(ensemble: Mapping[str, Any] | None) -> str:
    if not ensemble:
        return "the kept model"
    return "the model's encoder" if ensemble["encoder_weight"] else "the best encoder; the model is the linear one"


def _columns(lines: Sequence[Mapping[str, Any]], key: str) -> tuple[list[int], list[float]]:
    """Return the steps and values of the lines of metrics.jsonl that have the key."""
    own = [line for line in lines if key in line]
    return [line["step"] for line in own], [line[key] for line in own]


def _temperature(result: Mapping[str, Any]) -> str:
    if ensemble := result.get("ensemble"):
        parts = [name for name in ("encoder", "linear model") if ensemble[f"{name.split()[0]}_weight"]]
        if len(parts) == 2:
            return "The weights of encoder and linear model scale the probabilities. They were fitted on the dev rows."
        return f"The weight of the {parts[0]} scales the probabilities. It was fitted on the dev rows."
    temperature = result["calibration"]["temperature"]
    words = "too sure of itself" if temperature > 1 else "too unsure of itself" if temperature < 1 else "left as it was"
    return (
        f"The logits are divided by the temperature {temperature:.3g}, fitted on the dev rows: the model was {words}."
    )


def _length_plot(rows: EvaluatedRows) -> str:
    """Draw the accuracy of groups of rows of similar length. Rows of the same length are in one group."""
    right = rows.predictions == rows.labels
    limits = np.unique(np.quantile(rows.lengths, np.linspace(0, 1, LENGTH_GROUPS + 1), method="higher"))
    place = np.searchsorted(limits[1:-1], rows.lengths, side="left") if len(limits) > 2 else np.zeros_like(rows.lengths)
    scores = []
    for group in np.unique(place):
        own, lengths = right[place == group], rows.lengths[place == group]
        low, high = lengths.min(), lengths.max()
        name = pluralize(int(low), "token") if low == high else f"{low}–{high} tokens"
        scores.append(Scores(name, float(own.mean()), *share_interval(int(own.sum()), len(own))))
    return score_chart(scores, {}, "accuracy by length")


def _truncation(rows: EvaluatedRows) -> Table:
    right = rows.predictions == rows.labels
    kinds = (("truncated: the encoder does not read their end", rows.cut), ("read whole", ~rows.cut))
    lines = [(name, f"{own.sum():,}", f"{right[own].mean():.4f}") for name, own in kinds if own.any()]
    return Table([*text_columns("rows"), *number_columns("number", "accuracy")], lines)
