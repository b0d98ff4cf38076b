"""What a training reports of its result: notes, the model card, and the facts that the page shows too."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from recurcli.data.tasks import TASKS
from recurcli.encoders import LINEAR
from recurcli.errors import escaped, pluralize
from recurcli.evaluation.result_block import result_block, result_rows
from recurcli.log import Log
from recurcli.metrics import PERPLEXITY, TEST_SPLITS, format_score, metric_named, words_of
from recurcli.runs.run_directory import PREDICTIONS, held_in_words, training_facts
from recurcli.targets import TARGETS
from recurcli.validation import dump


def notes_on_result(result: Mapping[str, Any], log: Log) -> None:
    """Log notes on what a classifier keeps, on a missed baseline, and on a single predicted class."""
    if result["command"] == "pretrain":
        return
    if "parts" in result:
        log.detail(kept_in_words(result["kept"]))
    of, scores = ("encoder's ", result["parts"]["encoder"]) if "parts" in result else ("", result["dev"])
    target = TARGETS[result["target"]]
    headline, is_lower = target.headline, metric_named(target.headline).minimize
    own = {"linear": "the linear model", target.constant_name: f"the {target.constant_words}"}
    better = [
        f"{own.get(name, name.replace('_', ' '))} ({format_score(headline, score)})"
        for name, score in result["baselines"].items()
        if (scores[headline] > score if is_lower else scores[headline] < score)
    ]
    if better:
        words, score = words_of(headline), format_score(headline, scores[headline])
        tell = log.detail if "parts" in result else log.note
        tell(f"the {of}{words}, {score}, is {'above' if is_lower else 'below'} that of {' and '.join(better)}")
    log.add(*target.notes(result["dev"]))
    warn_of_thresholds(result.get("thresholds"), "leave finetuning.thresholds out", log)


def warn_of_thresholds(chosen: Mapping[str, Any] | None, way_out: str, log: Log) -> None:
    """Warn if the `chosen` thresholds are no better than the most probable labels, by cross-validation."""
    if chosen and chosen["cross_validated"] <= chosen["most_probable"]:
        log.warn(f"thresholds do not raise the dev {words_of(chosen['metric'])} by cross-validation; {way_out}")


def kept_in_words(kept: Mapping[str, Any]) -> str:
    """Return which model is kept beside another one, by the content of kept.json."""
    name, rows = kept["name"], pluralize(kept["rows"], "dev row")
    if name == "ensemble":
        encoder, linear = kept["weights"]["encoder"], kept["weights"]["linear"]
        return f"the ensemble is kept: logits = {encoder:.3g} encoder + {linear:.3g} linear model, fitted on {rows}"
    other = "linear model" if name == "encoder" else "encoder"
    return f"the {name} is kept: {rows} give the {other} no weight beside it"


def model_card(result: Mapping[str, Any]) -> str:
    """Return the README.md of a run with the content `result` of result.json: Markdown with Hugging Face's front matter."""
    pretrained, causal = result["command"] == "pretrain", result.get("metric") == PERPLEXITY
    pipeline, use = "text-classification", "recur predict THIS_FOLDER texts.tsv"
    if not pretrained:
        kind = TARGETS[result["target"]].model_words
    else:
        kind, pipeline = ("causal language model", "text-generation") if causal else ("masked-token model", "fill-mask")
        use = f"recur finetune --preset PRESET --init THIS_FOLDER{' --set pretraining.objective=causal' if causal else ''}"
    held, selected = held_in_words(result["holds"]), pretrained and "dev" in result
    if PREDICTIONS in result["holds"]:
        held += " `--set finetuning.keep_texts=false` trains a model without whole texts and their hashes."
    block = None if pretrained else result_block(Path("THIS_FOLDER"), result)
    name = LINEAR if _kept_name(result) == "linear model" else result["encoder"]
    about: dict[str, Any] = {"library_name": "recurcli", "pipeline_tag": pipeline, "tags": [name, result["task"]]}
    lines = [
        "---",
        *dump({**about, **({} if pretrained else _scores(result))}).splitlines(),
        "---",
        "",
        f"# {escaped(result['preset'])}",
        "",
        f"A {kind} with {_model_in_words(result)}, made by `recur {result['command']}` "
        f"(recurcli {result['versions']['recurcli']}) on the task `{result['task']}`, seed {result['seed']}.",
        "",
        *([] if block is None else [*_markdown(block.columns, block.rows), *(f"{note}\n" for note in block.notes)]),
        *(["The dev text selected the model, so its dev score is slightly too high.", ""] if selected else []),
        *_markdown(["", ""], [*model_facts(result), *result_rows(result)]),
        "## Use",
        "",
        f"    {use}",
        *([] if pretrained and not causal else ["    recur eval THIS_FOLDER"]),
        "",
        held,
    ]
    return "\n".join(lines) + "\n"


def _scores(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the language and the scores of a classifier as keys of the Hub's metadata (huggingface_hub.ModelCardData)."""
    task, names, results = TASKS[result["task"]], TARGETS[result["target"]].scores, []
    for split in (split for split in ("dev", *TEST_SPLITS) if split in result):
        rows = {"type": (task.hub or (task.name,))[0], "name": task.name, "split": split}
        scores = [{"type": name, "value": result[split][name], "name": words_of(name)} for name in names]
        results.append({"task": {"type": "text-classification"}, "dataset": rows, "metrics": scores})
    language = {} if task.language is None else {"language": task.language}
    return {**language, "metrics": [*names], "model-index": [{"name": result["preset"], "results": results}]}


def _kept_name(result: Mapping[str, Any]) -> str:
    """Return what the run keeps of its candidates. A pretrained run keeps its encoder."""
    return str(result.get("kept", {"name": "encoder"})["name"])


def _model_in_words(result: Mapping[str, Any]) -> str:
    """Return what the kept model is, and the encoder that was trained beside it if it is not kept."""
    encoder = f"the encoder `{result['encoder']}`"
    not_kept = "" if result["encoder"] == LINEAR else f", in place of {encoder} that was trained too"
    words = {
        "encoder": encoder,
        "ensemble": f"{encoder} and a linear model (an ensemble)",
        "linear model": f"a linear model on n-grams{not_kept}",
    }
    return words[_kept_name(result)]


def _markdown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table, and an empty one."""
    for line in (columns, ["---"] * len(columns), *rows):
        yield f"| {' | '.join(line)} |"
    yield ""


def model_facts(result: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield name and value of the facts on a model and its data that the model card and the HTML page show."""
    yield "model", _model_in_words(result)
    yield from training_facts(result)
    if vectors := result.get("linear_baseline", {}).get("vectors"):
        has_labels = TARGETS[result["target"]].has_labels
        what = "distance between the two best labels" if has_labels else "predicted number"
        of = f"{vectors['share']:.0%} of the {what} in the linear model, on dev rows"
        yield "static vectors", f"{escaped(vectors['source'])}, licence {escaped(vectors['licence'])}: {of}"
    if embedding := result.get("embedding_vectors"):
        yield "vectors of the embedding", f"{escaped(embedding['source'])}, licence {escaped(embedding['licence'])}"
    exact = "; a repeated training gives the same bits" if result["machine"]["device"] == "cpu" else ""
    yield "machine", f"{result['machine']['device']}, {result['machine']['precision']}{exact}"
    for split, facts in result["data"].items():
        yield f"{split} rows", f"{facts['rows']:,} (sha256 `{facts['sha256'][:16]}…`)"
