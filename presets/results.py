"""Write the tables and numbers of the documents from what was measured: python presets/results.py

Each stands between `<!-- table: NAME -->` and `<!-- end -->`, and TABLES has the function that writes NAME: from results/ (what
measure.py has measured), baselines/results.json, and papers/results/ with papers/claims.yaml. A table of more than one line
stands in lines of its own, a number or a word within a sentence. Nothing is trained, and what is between the marks is not read.
"""

import functools
import json
import math
import re
import runpy
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

import yaml

from recurcli.metrics import PERPLEXITY
from recurcli.significance import LEVEL, share_interval

PRESETS = Path(__file__).resolve().parent
PAPERS = PRESETS / "papers"
KEPT = runpy.run_path(str(PAPERS / "kept.py"))
markdown, p_value = KEPT["markdown"], KEPT["p_value"]
DOCUMENTS = (PRESETS.parent / "README.md", PRESETS / "RESULTS.md", PAPERS / "README.md", PAPERS / "state/README.md")
MARKED = re.compile(r"(<!-- table: ([\w/-]+) -->)(.*?)(<!-- end -->)", flags=re.DOTALL)
LITTLE_POWER = 0.5
"""Ours: below this power a claim that cannot be told needs more seeds, and the table says how many."""


def main() -> None:
    """Write all documents, and say which of them have changed."""
    for document in DOCUMENTS:
        before = document.read_text(encoding="utf-8")
        after = written(before)
        if after != before:
            document.write_text(after, encoding="utf-8")
        print(f"{document.relative_to(PRESETS.parent)}: {'written' if after != before else 'as it was'}")


def written(document: str) -> str:
    """Return a document with each of its tables as its function writes it. Raises KeyError if a name is not in TABLES."""
    return MARKED.sub(lambda found: f"{found[1]}{_set_off(found, TABLES[found[2]]())}{found[4]}", document)


def _set_off(mark: re.Match[str], text: str) -> str:
    """Return what stands between two marks: with empty lines around it if the mark begins a line. "" is no table yet."""
    begins = mark.string[: mark.start()].rpartition("\n")[2] == ""
    return text if not begins else f"\n\n{text}\n\n" if text else "\n"


def percent(share: float) -> str:
    """Return a share in per cent, with one decimal."""
    return f"{100 * share:.1f}"


def figure(number: float) -> str:
    """Return a number with three significant digits and commas."""
    return f"{round(number, 2 - math.floor(math.log10(abs(number)))):,.10g}" if number else "0"


# What measure.py has measured.


@functools.cache
def measured(name: str) -> dict[str, Any]:
    """Return the stored results of a measurement."""
    return json.loads((PRESETS / "results" / f"{name}.json").read_text(encoding="utf-8"))


def is_measured(name: str) -> bool:
    """Return whether there are stored results of a measurement."""
    return (PRESETS / "results" / f"{name}.json").exists()


def on_what(name: str) -> str:
    """Return the machine and the versions of a measurement, in words."""
    stored = measured(name)
    machine, versions = stored["machine"], stored["versions"]
    processor = f"{machine['processor']} ({machine['instructions']})"
    return f"{processor}, torch {versions['torch']}, scikit-learn {versions['scikit-learn']}"


def with_interval(share: float, rows: int) -> str:
    """Return an accuracy with its 95 % interval."""
    low, high = share_interval(round(share * rows), rows)
    return f"{percent(share)} ({percent(low)}–{percent(high)})"


def card(name: str, *, way_on: bool = False) -> str:
    """Return what an example prints, as a block; without the commands that come next unless `way_on`."""
    printed = measured("examples")["results"][name]["printed"].rstrip()
    if not way_on:
        printed = printed.partition("\n\n  next")[0]
    return f"```text\n{printed}\n```"


def rows_of_ones_own() -> str:
    """Return the table of the default on rows of tasks."""
    rows = []
    for name in ("tnews", "ocnli"):
        found = measured(f"rows-{name}")["results"][name]
        numbers = [found["baselines"]["majority"], found["parts"]["linear"], found["parts"]["encoder"]]
        kept = f"{with_interval(found['score'], found['rows'])}, {found['kept']}"
        cells = [found["words"], f"{found['rows']:,}", *map(percent, numbers), kept, f"{found['cpu_seconds']:.0f}"]
        rows.append(cells)
    head = ("rows to train on", "test rows", "majority class", "linear model", "encoder", "kept model", "CPU seconds")
    return markdown(head, rows)


def own_score(name: str, part: str = "") -> str:
    """Return the accuracy of the default on one of its tasks, of the kept model or of a part."""
    found = measured(f"rows-{name}")["results"][name]
    return percent(found["parts"][part] if part else found["score"])


def linear() -> str:
    """Return the table of the linear model on whole tasks."""
    rows = []
    for name, found in measured("linear")["results"].items():
        fitted = found["linear"]
        own = [with_interval(found["score"], found["rows"]), f"{fitted['ngrams']:,}", f"{found['cpu_seconds']:.0f}"]
        majority = percent(found["baselines"]["majority"])
        rows.append([f"`linear-{name}`", f"{found['training_rows']:,}", f"{found['rows']:,}", majority, *own])
    head = ("preset", "training rows", "test rows", "majority class", "linear model", "n-grams", "CPU seconds")
    return markdown(head, rows)


def order() -> str:
    """Return the table of what a linear model knows of tasks of order."""
    splits = ("majority", "dev", "test", "test-long")
    rows = [
        [f"`{task}`", *(percent(found[split]) for split in splits)]
        for task, found in measured("order")["results"].items()
    ]
    return markdown(("task", "majority class, dev", "linear model: dev", "test", "test-long"), rows)


def suspects() -> str:
    """Return the table of labels that were swapped and found."""
    found = measured("suspects")["results"]["tnews"]
    share = found["right"] / found["listed"]
    row = [
        f"{found['rows']:,} headlines, 4 topics (TNEWS)",
        f"{found['swapped']}",
        f"{found['listed']}",
        f"{percent(found['right'] / found['swapped'])} %",
        f"{percent(share)} %",
        f"{found['right of 100']}",
        f"{found['cpu_seconds']:.0f}",
    ]
    head = ("rows", "swapped labels", "suspects", "recall", "precision", "swapped of the first 100", "CPU seconds")
    return markdown(head, [row])


def recall_of_suspects() -> str:
    """Return the share of swapped labels that are on the list, in whole per cent."""
    found = measured("suspects")["results"]["tnews"]
    return f"{100 * found['right'] / found['swapped']:.0f}"


def speed_by_length(stored: dict[str, Any], first: str, second: str) -> str:
    """Return the speed of two encoders by the length, and their ratio, of `recur bench`."""
    modes = list(dict.fromkeys(setting["mode"] for setting in stored["settings"]))
    head = ["tokens"]
    found: dict[int, list[str]] = {}
    for mode in modes:
        before = " after so many" if mode == "step" else ""
        head += [f"{mode}{before}: `{first}`", f"`{second}`", "ratio"]
    for setting in stored["settings"]:
        named = {each["name"]: each["tokens_per_second"] for each in setting["candidates"]}
        one, other = named[first], named[second]
        cells = [f"{one:,.0f}", f"{other:,.0f}", f"{one / other:.2f}"]
        found.setdefault(setting["length"], []).extend(cells)
    return markdown(head, [[f"{length:,}", *cells] for length, cells in found.items()])


def speed_beside_peers(name: str) -> str:
    """Return the speed of the encoders and peers of `recur bench`, the fastest first; "" if it was not measured."""
    if not is_measured(name):
        return ""
    (setting,) = measured(name)["results"]["bench"]["settings"]
    rows = []
    for each in sorted(setting["candidates"], key=lambda each: -each["tokens_per_second"]):
        ratio = "–" if each["ratio"] is None else f"{each['ratio']:.2f}"
        words = each["name"] if each["is_peer"] else f"`{each['name']}`"
        rows.append([words, f"{each['parameters'] / 1e6:.1f} M", f"{each['tokens_per_second']:,.0f}", ratio])
    return markdown(("encoder or peer", "parameters", "tokens a second", "ratio to the best peer"), rows)


def prediction() -> str:
    """Return the table of rows in a CPU second, the median of the rounds; "" if it was not measured."""
    if not is_measured("prediction"):
        return ""
    rows = [
        [name, f"{found['rows']:,}", figure(median(found["rows a CPU second"]))]
        for name, found in measured("prediction")["results"].items()
    ]
    return markdown(("model", "headlines", "headlines in a CPU second"), rows)


def start() -> str:
    """Return the table of whole commands, the start included."""
    found = measured("start")["results"]
    rows = [
        [name, f"{own['cpu_seconds']:.2f}", f"{own['megabytes']:.0f}"]
        for name, own in found.items()
        if "cpu_seconds" in own
    ]
    return markdown(("command", "CPU seconds", "peak memory, MB"), rows)


def exported_size(kind: str) -> str:
    """Return the size of the network of an exported folder in megabytes."""
    return f"{measured('start')['results'][f'size {kind}']['bytes of the network'] / 1e6:.1f}"


# The comparison with scikit-learn.


@functools.cache
def baselines() -> list[str]:
    """Return the two tables of baselines/results.json: of several labels, and of numbers."""
    return list(runpy.run_path(str(PRESETS / "baselines" / "measure.py"))["tables"]())


def mean_of_baselines(table: int, column: int) -> str:
    """Return a cell of the last row, the mean, of one of these tables."""
    return baselines()[table].splitlines()[-1].strip("| ").split(" | ")[column]


# The papers.


@functools.cache
def script_of_papers(name: str) -> dict[str, Any]:
    """Return the names of a script of papers/."""
    return runpy.run_path(str(PAPERS / name))


def kept_file(name: str) -> Any:
    """Return the content of a JSON file of papers/results."""
    return json.loads((PAPERS / "results" / name).read_text(encoding="utf-8"))


def printed_of_papers(name: str) -> str:
    """Return what a script of a study printed, Markdown."""
    return (PAPERS / "results" / name).read_text(encoding="utf-8").strip()


@functools.cache
def tests_of(paper: str) -> list[Any]:
    """Return the tests of a paper's kept claims, as summary.py computes them."""
    return script_of_papers("summary.py")["tests_of"](PAPERS / "results" / paper)


@functools.cache
def claims() -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Return the claims of claims.yaml, by paper: those that are `kept`, and those that are `told`."""
    return yaml.safe_load((PAPERS / "claims.yaml").read_text(encoding="utf-8"))


def kept_claims(paper: str) -> str:
    """Return the table of the claims on a paper whose runs are kept.

    Raises ValueError if one of its tables has no claim, or a claim no test.
    """
    rows, listed = [], set()
    for claim in claims()[paper]["kept"]:
        tests = [test for test in tests_of(paper) if test.table == claim["table"]]
        if not tests:
            raise ValueError(
                f"claims.yaml: {paper} has a kept claim on {claim['table']}, and results/{paper} no test of it"
            )
        listed.add(claim["table"])
        for test in tests:
            against = claim.get("against", {}).get(test.b)
            words = claim["claim"] if against is None else f"{claim['claim']}: {against}"
            rows.append([words, claim["ran"], *_said(test), _command(claim["command"])])
    if missing := {test.table for test in tests_of(paper)} - listed:
        raise ValueError(f"claims.yaml: {paper} has no claim on {', '.join(sorted(missing))}")
    head = (
        "claim",
        "what was run",
        "A and B",
        "difference",
        "p",
        "p within the margin",
        "power",
        "",
        "minutes",
        "command",
    )
    return markdown(head, rows)


def _said(test: Any) -> list[str]:
    """Return the cells of a test: scores, difference, p-values, power, verdict and minutes."""
    verdict, _, why = test.verdict.partition(": ")
    if verdict == "holds" and test.kind == "good" and test.p_differ >= LEVEL:
        verdict = "holds: not worse"
    shown = f"**{verdict}**" if verdict.startswith(("holds", "does")) else verdict
    if why:
        shown += f": {why}"
    elif verdict == "cannot be told" and (test.power or 0) < LITTLE_POWER:
        least = script_of_papers("summary.py")["MOST_SEEDS"]
        enough = f"{test.seeds} seeds would tell" if test.seeds else f"not even {least} seeds would tell"
        shown += f": {enough}"
    alike = p_value(test.p_alike) if test.kind in ("good", "alike") else "–"
    power = "–" if test.power is None else f"{test.power:.2f}"
    difference = f"{test.difference} ({test.interval})"
    minutes = f"{test.minutes:.0f}"
    return [" and ".join(test.scores), difference, p_value(test.p_differ), alike, power, shown, minutes]


def told_claims(paper: str) -> str:
    """Return the table of the claims on a paper that are to be run, or to be run again."""
    rows = [
        [claim["claim"], claim["ran"], claim["told"], str(claim["minutes"]), _command(claim["command"])]
        for claim in claims()[paper]["told"]
    ]
    return markdown(("claim, to be run", "what is run", "told", "minutes", "command"), rows)


def _command(words: str) -> str:
    """Return a command as code."""
    command, _, rest = words.partition(", ")
    code = command if command == "the same" else f"`{command}`"
    return f"{code}, {rest}" if rest else code


@functools.cache
def lengths() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the numbers of wrong rows of the study of recurrence, and the ranges of the lengths of the rows."""
    wrong = kept_file("recurrence/lengths.json")
    return wrong, script_of_papers("recurrence/lengths.py")["ranges_of"](wrong)


def recurrence() -> str:
    """Return the table of accuracies at the length of training and beyond."""
    return script_of_papers("recurrence/lengths.py")["table_of"](*lengths())


def accuracy_beyond(task: str, encoder: str) -> str:
    """Return the mean accuracy of an encoder on the longer rows of a task of the study of recurrence."""
    of = script_of_papers("recurrence/lengths.py")["accuracies_of"]
    return f"{fmean(of(*lengths(), task, encoder, 'test-long')):.1f}"


def state(name: str) -> str:
    """Return a table of the study of state; "" where no run of it is kept."""
    tables = script_of_papers("state/table.py")
    if name == "theorems":
        return tables["theorems"]()
    cells = tables["read"](PAPERS / "results/state")
    if not cells:
        return ""
    return tables["of_task"](cells, name) if name in tables["TESTED"] else tables[name](cells)


def kept_runs(folders: Sequence[str]) -> str:
    """Return the table of the kept runs in folders of papers/results: parameters, scores on test rows, CPU seconds."""
    rows = []
    for folder in folders:
        runs = [json.loads(path.read_text())["result"] for path in sorted((PAPERS / "results" / folder).glob("*.json"))]
        first = runs[0]
        of_text = first["metric"] == PERPLEXITY
        scores = [run["dev"]["perplexity"] if of_text else 100 * run["test"]["accuracy"] for run in runs]
        rows.append(
            [
                f"`{Path(folder).name}`",
                f"{first['parameters']['encoder'] / 1e3:,.0f} k",
                first["machine"]["precision"],
                f"{len(runs)}",
                f"{fmean(scores):.1f} ± {stdev(scores):.1f}",
                f"{min(scores):.1f}–{max(scores):.1f}",
                f"{fmean(run['cpu_seconds'] for run in runs):.0f}",
            ]
        )
    score = "perplexity" if of_text else "accuracy"
    head = ("encoder", "parameters", "precision", "seeds", f"test {score}", "all seeds", "CPU seconds a run")
    return markdown(head, rows)


LISTS = ("transject", "transformer", "rezero", "orthogonal-transformer")
TABLES: dict[str, Callable[[], str]] = {
    "packages-card": lambda: card("packages", way_on=True),
    "programs-card": lambda: card("programs"),
    "sizes-card": lambda: card("sizes"),
    "packages-seconds": lambda: figure(measured("examples")["results"]["packages"]["cpu_seconds"]),
    "machine-of-examples": lambda: on_what("examples"),
    "recall-of-suspects": recall_of_suspects,
    "suspects": suspects,
    "several-labels": lambda: baselines()[0],
    "numbers": lambda: baselines()[1],
    "several-labels-default": lambda: mean_of_baselines(0, 1),
    "several-labels-pipeline": lambda: mean_of_baselines(0, 2),
    "numbers-default": lambda: mean_of_baselines(1, 1),
    "numbers-pipeline": lambda: mean_of_baselines(1, 2),
    "rows-of-ones-own": rows_of_ones_own,
    "tnews-ensemble": lambda: own_score("tnews"),
    "tnews-linear": lambda: own_score("tnews", "linear"),
    "tnews-encoder": lambda: own_score("tnews", "encoder"),
    "ocnli-ensemble": lambda: own_score("ocnli"),
    "ocnli-linear": lambda: own_score("ocnli", "linear"),
    "linear": linear,
    "order": order,
    **{name: functools.partial(speed_beside_peers, name) for name in ("speed-width", "speed-long")},
    "prediction": prediction,
    "start": start,
    "size-fp32": lambda: exported_size("fp32"),
    "size-int8": lambda: exported_size("int8"),
    "nested-lists-mean": lambda: kept_runs([f"listops-mean/{encoder}" for encoder in ("rsa", "transformer")]),
    "nested-lists-max": lambda: kept_runs([f"listops-max/{encoder}" for encoder in LISTS]),
    "language-models": lambda: kept_runs([f"rsa/ptb/{encoder}" for encoder in ("rsa", "transformer")]),
    "recurrence": recurrence,
    "parity-rnn": lambda: accuracy_beyond("parity", "rnn"),
    "parity-transformer": lambda: accuracy_beyond("parity", "transformer"),
    "recall-rotary": lambda: accuracy_beyond("associative-recall", "rotary"),
    "recall-starsaber": lambda: accuracy_beyond("associative-recall", "starsaber"),
    **{f"claims-{paper}": functools.partial(kept_claims, paper) for paper, own in claims().items() if "kept" in own},
    **{f"told-{paper}": functools.partial(told_claims, paper) for paper, own in claims().items() if "told" in own},
    **{
        f"state/{name}": functools.partial(state, name)
        for name in ("parity", "modulo-5", "s3", "a5", "contrasts", "curves", "controls", "shown", "theorems")
    },
    "transject-speed": lambda: speed_by_length(kept_file("transject/4-speed.json"), "transject", "transformer"),
    "linear-transformer-speed": lambda: speed_by_length(
        kept_file("linear-transformer/1-speed.json"), "linear-transformer", "transformer"
    ),
    "linear-rnn": lambda: printed_of_papers("rsa/4-linear-rnn.md"),
    "gaussian": lambda: printed_of_papers("stable-rnn/5-gaussian.md"),
}
"""The function that writes each table and number, by the name in its mark. A study adds a line here."""


if __name__ == "__main__":
    main()
