"""Measure what results.py writes into the documents: python presets/measure.py NAME...

Each NAME is one of MEASUREMENTS. results/NAME.json, beside this script, gets the commands, the machine, the versions and what
was measured. RECUR_DATA is the folder of the data sets. Runs stay in runs/measured, and a later measurement takes those of an
earlier one, if machine and versions are the same.
"""

import argparse
import csv
import json
import os
import platform
import runpy
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
RESULTS = Path(__file__).parent / "results"
RUNS = ROOT / "runs" / "measured"
PACKAGES = ("recurcli", "torch", "scikit-learn", "numpy", "transformers", "wordllama", "onnxruntime")
"""The packages whose versions are stored."""


class Spent(NamedTuple):
    """What a command printed, and what it took."""

    printed: str
    cpu_seconds: float
    megabytes: float
    """Peak of the resident memory, in 10^6 bytes."""


def run(command: str, *, given: Path | None = None) -> Spent:
    """Run a command line in the root of the repository with one thread, and no cache of fitted models.

    A leading `recur` or `python` is that of this interpreter. `given` is the file that the command reads from its stdin.
    """
    words = [os.path.expandvars(word) for word in shlex.split(command)]
    words[:1] = [sys.executable, "-m", "recurcli"] if words[0] == "recur" else [sys.executable]
    print(command, file=sys.stderr)
    with tempfile.TemporaryDirectory() as cache, tempfile.TemporaryFile() as out:
        more = {"OMP_NUM_THREADS": "1", "RECUR_CACHE": cache, "COLUMNS": "140", "PYTHONPATH": str(ROOT)}
        with (given or Path(os.devnull)).open("rb") as source:
            started = subprocess.Popen(words, cwd=ROOT, env={**os.environ, **more}, stdin=source, stdout=out)
            _, status, used = os.wait4(started.pid, 0)
        if status:
            sys.exit(f"exit status {os.waitstatus_to_exitcode(status)}: {command}")
        out.seek(0)
        printed = out.read().decode()
    return Spent(printed, round(used.ru_utime + used.ru_stime, 2), round(used.ru_maxrss * 1024 / 1e6, 1))


def facts(spent: Spent) -> dict[str, Any]:
    """Return CPU seconds and megabytes."""
    return {"cpu_seconds": spent.cpu_seconds, "megabytes": spent.megabytes}


def trained(name: str, command: str) -> tuple[dict[str, Any], Path]:
    """Return the result of a run in RUNS, without what is said of single classes, and its folder.

    It is trained, unless it was on this machine and with these versions, which are stored once for all runs of a measurement.
    """
    folder = RUNS / name
    path = folder.with_suffix(".took.json")
    took = json.loads(path.read_text()) if path.exists() else {}
    on = on_what()
    if took.get("on") != on:
        path.parent.mkdir(parents=True, exist_ok=True)
        spent = run(f"{command} --output {shlex.quote(str(folder))} --overwrite --quiet")
        took = {"on": on, "facts": facts(spent)}
        path.write_text(json.dumps(took))
    result = json.loads((folder / "result.json").read_text())
    return {"command": command, **took["facts"], **scores(result)}, folder


def scores(result: dict[str, Any]) -> dict[str, Any]:
    """Return of a result the score of each model on the rows that count, the test rows if there are any, and their number."""
    split, metric = "test" if "test" in result else "dev", result["metric"]
    own = result["test"] if split == "test" else result
    found = {"split": split, "rows": result["data"].get(split, {}).get("rows"), "metric": metric}
    found["training_rows"] = result["data"]["train"]["rows"]
    found["score"] = result[split][metric]
    found["baselines"] = own.get("baselines")
    found["parts"] = {name: part[metric] for name, part in (own.get("parts") or {}).items()}
    found["kept"] = (result.get("kept") or {}).get("name")
    fitted = result.get("linear_baseline") or {}
    found["linear"] = {key: fitted.get(key) for key in ("ngrams", "characters", "words", "solver", "c", "vectors")}
    return found


# The measurements. Each yields its results by name.


def examples() -> Iterator[tuple[str, Any]]:
    """The examples of README.md, with what they print."""
    file = "presets/examples/programs.jsonl"
    lines = {
        "packages": "recur finetune presets/examples/packages.csv",
        "programs": f"recur finetune {file} --label works_with",
        "sizes": f"recur finetune {file} --label size",
    }
    for name, command in lines.items():
        # The folder is the one that the command alone takes, because what is printed names it.
        spent = run(f"{command} --output runs/{name} --overwrite")
        own = scores(json.loads((ROOT / "runs" / name / "result.json").read_text()))
        yield name, {"command": command, **facts(spent), **own, "printed": spent.printed}


def head(source: str, rows: int) -> str:
    """Write the first rows of a file of the data, and return the path."""
    path = RUNS / f"{Path(source).parent.name}-{rows}.json"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with (Path(os.environ["RECUR_DATA"]) / source).open(encoding="utf-8") as lines:
            path.write_text("".join(line for line, _ in zip(lines, range(rows), strict=False)), encoding="utf-8")
    return str(path.relative_to(ROOT))


DEFAULTS = {
    "tnews": ("6,000 headlines, 15 topics (TNEWS)", "tnews/train.json", 6000, "$RECUR_DATA/tnews/dev.json", ""),
    "ocnli": (
        "10,000 pairs, inference (OCNLI)",
        "ocnli/train.50k.json",
        10_000,
        "$RECUR_DATA/ocnli/dev.json",
        " --set data.drop_label=-",
    ),
}
"""The rows of one's own: words, file, number of rows, test rows and further options."""


def default(name: str) -> tuple[dict[str, Any], Path]:
    """Train the default on rows of one of DEFAULTS."""
    words, source, rows, test, options = DEFAULTS[name]
    command = f"recur finetune --preset starsaber-custom --train {head(source, rows)} --test {test}{options}"
    result, folder = trained(f"default-{name}", command)
    return {"words": words, **result}, folder


def rows_of_ones_own(name: str) -> Callable[[], Iterator[tuple[str, Any]]]:
    """The default on the first rows of a training file, and the official dev rows as test rows."""

    def measured() -> Iterator[tuple[str, Any]]:
        yield name, default(name)[0]

    return measured


def linear() -> Iterator[tuple[str, Any]]:
    """The linear model on all training rows of a task; test rows are the official dev rows, of IMDb the test reviews."""
    for task, train in (("tnews", "train.json"), ("ocnli", "train.50k.json"), ("afqmc", "train.json"), ("imdb", "")):
        rows = (
            f"--train $RECUR_DATA/{task}/{train} --test $RECUR_DATA/{task}/dev.json" if train else "--data $RECUR_DATA"
        )
        yield task, trained(f"linear-{task}", f"recur finetune --preset linear-{task} {rows}")[0]


ORDER = ("parity", "tomita-3", "tomita-4", "tomita-5", "tomita-6", "tomita-7")


def order() -> Iterator[tuple[str, Any]]:
    """What the linear model knows of tasks of order, at the length of training and beyond."""
    for task in ORDER:
        result, folder = trained(f"linear-{task}", f"recur finetune --preset linear-{task}")
        found = json.loads((folder / "result.json").read_text())
        longer = {split: found[split]["accuracy"] for split in ("dev", "test", "test-long")}
        yield task, {**result, **longer, "majority": found["baselines"]["majority"]}


def suspects() -> Iterator[tuple[str, Any]]:
    """Labels of TNEWS, four topics, of which a share is swapped at random: how many of the suspects are swapped."""
    four = ("news_sports", "news_finance", "news_game", "news_travel")
    lines = (Path(os.environ["RECUR_DATA"]) / "tnews" / "train.json").read_text(encoding="utf-8").splitlines()
    rows = [row for row in map(json.loads, lines) if row["label_desc"] in four]
    draw = np.random.default_rng(5)
    rows = [rows[place] for place in draw.permutation(len(rows))[:8000]]
    swapped = set(draw.choice(8000, 400, replace=False).tolist())
    RUNS.mkdir(parents=True, exist_ok=True)
    with (RUNS / "swapped.csv").open("w", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "text", "label"])
        for place, row in enumerate(rows):
            others = [label for label in four if label != row["label_desc"]]
            label = draw.choice(others) if place in swapped else row["label_desc"]
            writer.writerow([place, row["sentence"], label])
    listed = RUNS / "suspects.csv"
    command = f"recur check {RUNS.relative_to(ROOT)}/swapped.csv --suspects {listed.relative_to(ROOT)} --no-lengths"
    spent = run(f"{command} --overwrite --quiet")
    found = [int(row["id"]) in swapped for row in csv.DictReader(listed.read_text(encoding="utf-8").splitlines())]
    counts = {"rows": 8000, "swapped": 400, "listed": len(found), "right": sum(found), "right of 100": sum(found[:100])}
    yield "tnews", {"command": command, **facts(spent), **counts}


BENCHES = {
    "speed-width": "recur bench starsaber gated-starsaber transject rsa linear-transformer transformer rezero --hidden-size 512"
    " --length 32 --batch-size 64 --precision fp32 --mode training --rounds 3",
    "speed-long": "recur bench starsaber rsa linear-transformer transject --hidden-size 512 --layers 2 --length 4096"
    " --batch-size 1 --precision fp32 --mode training --dropout 0 --rounds 2",
}


def bench(name: str) -> Callable[[], Iterator[tuple[str, Any]]]:
    """Return a measurement by `recur bench`."""

    def measured() -> Iterator[tuple[str, Any]]:
        yield "bench", {"command": BENCHES[name], **json.loads(run(f"{BENCHES[name]} --json --quiet").printed)}

    return measured


def headlines() -> list[str]:
    """Return 20,000 headlines: those of TNEWS's test files."""
    texts = []
    for name in ("test", "test1.0"):
        lines = (Path(os.environ["RECUR_DATA"]) / "tnews" / f"{name}.json").read_text(encoding="utf-8").splitlines()
        texts += [json.loads(line)["sentence"] for line in lines]
    return texts


def prediction() -> Iterator[tuple[str, Any]]:
    """Rows in a CPU second, without the start, of the default, its linear model, a pipeline of scikit-learn and BERT."""
    import torch
    from sklearn.pipeline import make_pipeline
    from sklearn.svm import LinearSVC
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast, pipeline

    import recurcli

    tfidf = runpy.run_path(str(Path(__file__).parent / "baselines" / "measure.py"))["tfidf"]

    torch.set_num_threads(1)
    folder, texts = default("tnews")[1], headlines()
    rows = [json.loads(line) for line in (ROOT / head("tnews/train.json", 6000)).read_text("utf-8").splitlines()]
    fitted = make_pipeline(tfidf(), LinearSVC(C=0.3))
    fitted.fit([row["sentence"] for row in rows], [row["label"] for row in rows])
    tokenizer = BertTokenizerFast(str(Path(os.environ["RECUR_DATA"]) / "bert_zh_vocab.txt"))
    sizes = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 1024}
    bert = BertForSequenceClassification(BertConfig(vocab_size=len(tokenizer), num_labels=15, **sizes)).eval()
    label = pipeline("text-classification", model=bert, tokenizer=tokenizer, device="cpu")
    short = sorted(texts[:2000], key=len)
    models: dict[str, tuple[list[str], Callable[[list[str]], Any]]] = {
        "the ensemble": (texts, recurcli.load(folder, device="cpu").predict),
        "its linear model alone (`--fast`)": (texts, recurcli.load(folder, device="cpu", fast=True).predict),
        "scikit-learn: TF-IDF of words 1–2 and characters 1–4, `LinearSVC`": (texts, fitted.predict),
        "Hugging Face's pipeline, BERT 4 × 256, batches of 64 by length": (
            short,
            lambda own: label(own, batch_size=64),
        ),
    }
    speeds: dict[str, list[float]] = {name: [] for name in models}
    for _ in range(3):
        for name, (own, predict) in models.items():
            before = time.process_time()
            predict(own)
            speeds[name].append(round(len(own) / (time.process_time() - before), 1))
    for name, found in speeds.items():
        yield name, {"rows": len(models[name][0]), "rows a CPU second": found}


def start() -> Iterator[tuple[str, Any]]:
    """CPU seconds and peak memory of whole commands, the start included: the median of three."""
    folder = default("tnews")[1].relative_to(ROOT)
    many, one = RUNS / "headlines.txt", RUNS / "headline.txt"
    texts = headlines()
    many.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    one.write_text(f"{texts[0]}\n", encoding="utf-8")
    exported = {kind: RUNS / f"exported-{kind}" for kind in ("fp32", "int8")}
    for kind, place in exported.items():
        options = " --quantize int8" if kind == "int8" else ""
        run(f"recur export {folder} --format onnx{options} --output {place} --overwrite --quiet")
    commands = {
        "`python -c 'import torch'`": ("python -c 'import torch'", None),
        "`recur predict`, one headline": (f"recur predict {folder} --quiet", one),
        "`recur predict --fast`, one headline": (f"recur predict {folder} --fast --quiet", one),
        "`recur predict`, 20,000 headlines": (f"recur predict {folder} --quiet", many),
        "`recur predict --fast`, 20,000 headlines": (f"recur predict {folder} --fast --quiet", many),
        **{
            f"predict.py of the ONNX folder, {kind}, 20,000 headlines": (f"python {place}/predict.py", many)
            for kind, place in exported.items()
        },
    }
    for name, (command, given) in commands.items():
        spent = [run(command, given=given) for _ in range(3)]
        own = {"cpu_seconds": statistics.median(each.cpu_seconds for each in spent)}
        own["megabytes"] = statistics.median(each.megabytes for each in spent)
        yield name, own
    for kind, place in exported.items():
        size = sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
        network = sum(path.stat().st_size for path in place.rglob("*.onnx*"))
        yield f"size {kind}", {"bytes": size, "bytes of the network": network}


MEASUREMENTS: dict[str, Callable[[], Iterator[tuple[str, Any]]]] = {
    "examples": examples,
    **{f"rows-{name}": rows_of_ones_own(name) for name in DEFAULTS},
    "linear": linear,
    "order": order,
    "suspects": suspects,
    **{name: bench(name) for name in BENCHES},
    "prediction": prediction,
    "start": start,
}


def machine() -> dict[str, Any]:
    """Return what is known of the processor."""
    import torch

    described = Path("/proc/cpuinfo")
    models = [line.partition(": ")[2] for line in described.read_text().splitlines() if line.startswith("model name")]
    return {
        "processor": models[0] if models else platform.processor(),
        "cores": os.cpu_count(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "threads": 1,
    }


def on_what() -> dict[str, Any]:
    """Return the machine and the versions."""
    versions = {"python": platform.python_version(), **{package: version(package) for package in PACKAGES}}
    return {"machine": machine(), "versions": versions}


def main() -> None:
    """Measure what is named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", choices=MEASUREMENTS, metavar="NAME")
    for name in parser.parse_args().names:
        measured = dict(MEASUREMENTS[name]())
        stored = {"command": f"python presets/measure.py {name}", **on_what()}
        RESULTS.mkdir(exist_ok=True)
        text = json.dumps({**stored, "results": measured}, ensure_ascii=False, indent=1)
        (RESULTS / f"{name}.json").write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
