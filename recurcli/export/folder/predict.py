"""Labels texts with the exported model in this folder: python predict.py < texts.txt > labels.tsv

Reads one text a line in UTF-8 (for a model of pairs: two, separated by a TAB) and writes for each line, in order, the
prediction and, of one label, its score, as `recur predict` does, but no reason beside an empty text: the reasons, with
--threshold, are those of a score below it. Several labels are joined by the separator of the
training, and empty for no label. Of a model of numbers the number is written.
A single text is the whole line, TABs included, where `recur predict` reads a line with TABs as columns.
In Python Classifier(folder).predict(texts) returns labels and probabilities; several threads may call it at once.
Exit code 2: a wrong option, a missing package, or an onnxruntime that is too old. Exit code 3: a line of pairs without one TAB;
the lines before it are answered. Exit code 4: a missing or damaged file in this folder. Exit code 5: a full disk.
It needs numpy. Where there is a model.onnx it needs onnxruntime (README.md has its least version) and tokenizers, and where
there are static vectors (vectors.npz) tokenizers.
OMP_NUM_THREADS limits the threads.
"""

import argparse
import hashlib
import json
import math
import os
import re
import signal
import sys
from collections.abc import Iterable
from heapq import nlargest
from importlib import import_module
from itertools import islice, takewhile
from operator import itemgetter
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, NoReturn

import numpy as np

FOLDER = Path(__file__).resolve().parent
WINDOW = 1 << 18  # bytes that are read, sorted by length and labelled together; they bound the memory
Rows = list[tuple[str, ...]]


class Prediction(NamedTuple):
    """The label of a text, its probability, and the probabilities of the labels.

    Several labels are a tuple, without a score. A number has neither score nor probabilities.
    """

    label: Any
    score: float | None
    probabilities: dict[str, float]


class Classifier:
    """The model of an exported folder. Several threads may use it at once."""

    def __init__(self, folder: str | Path = FOLDER) -> None:
        """Load the model. Raises ValueError for a missing or damaged file, ImportError for a missing package."""
        folder = Path(folder)
        check_files(folder)
        self.config: dict[str, Any] = json.loads((folder / "config.json").read_bytes())
        if "weights" not in self.config:
            raise ValueError(f"{folder}: is no exported folder; of a run `recur export RUN --output FOLDER` writes one")
        self.labels = [*self.config["id2label"].values()]
        self.target, weights = self.config["target"], self.config["weights"]
        self.parts: list[tuple[Any, Any]] = []
        linear = own_module(folder, "linear_model") if "linear" in weights else None
        try:
            if "encoder" in weights:
                self.parts.append((np.array(weights["encoder"]), Encoder(folder, self.config)))
            if linear is not None:
                self.parts.append((np.array(weights["linear"]), linear.Linear(folder / "linear.npz", self.config)))
        except ImportError as error:
            fault = str(error) or "onnxruntime cannot be imported"
            raise ImportError(f"{fault}: pip install {self.config['packages']}") from None

    def predict(self, texts: Iterable[Any], top_k: Any = None, threshold: float | None = None) -> list[Prediction]:
        """Return a prediction for each text or pair of texts, in order.

        `top_k`: the probabilities of so many labels, the most probable first. `threshold`: None in place of a label that is
        less probable; of several labels all that are as probable. Numbers have neither. Raises ValueError as `rows` does.
        """
        rows = self.rows(texts)
        logits = sum(weight * part.logits(rows) for weight, part in self.parts) + self.config["offsets"]
        if self.target["kind"] == "number":
            numbers = self.target["mean"] + self.target["std"] * logits[:, 0]
            numbers = numbers.clip(self.target["low"], self.target["high"]).tolist()
            decimals = max(0, 5 - math.floor(math.log10(self.target["std"])))  # as `recur predict` has them
            return [Prediction(round(each, decimals) + 0.0, None, {}) for each in numbers]
        labels, shares = self.one(logits) if self.target["kind"] == "one" else self.several(logits, threshold)
        predictions = []
        for label, row in zip(labels, shares.tolist(), strict=True):
            named = dict(zip(self.labels, row, strict=True))
            score = named.get(label)  # that of one label
            is_unsure = score is not None and threshold is not None and score < threshold
            best = named if top_k is None else dict(nlargest(top_k, named.items(), key=itemgetter(1)))
            predictions.append(Prediction(None if is_unsure else label, score, best))
        return predictions

    def rows(self, texts: Iterable[Any]) -> Rows:
        """Return texts or pairs as rows. Raises ValueError, which names the place, for what is none."""
        if isinstance(texts, str | dict):
            raise ValueError(f"texts is a {type(texts).__name__}; give a list of texts")
        pairs = self.config["pairs"]
        rows = [tuple(text) if pairs and isinstance(text, list | tuple) else (text,) for text in texts]
        for place, row in enumerate(rows):
            if len(row) != 1 + pairs or not all(isinstance(part, str) for part in row):
                raise ValueError(f"texts[{place}] is not a {'pair of strings' if pairs else 'string'}")
        return rows

    def one(self, logits: Any) -> tuple[list[str], Any]:
        """Return the label of each row of logits (N, C), and the probabilities (N, C)."""
        shares = np.exp(logits - logits.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        least = self.config["least_probability"]
        shares = (1 - len(self.labels) * least) * shares + least
        return [self.labels[best] for best in (shares / (self.config["thresholds"] or 1.0)).argmax(axis=1)], shares

    def several(self, logits: Any, threshold: float | None) -> tuple[list[tuple[str, ...]], Any]:
        """Return the labels whose probabilities reach their thresholds, or `threshold`, and the probabilities (N, C)."""
        bound = self.config["least_probability"]
        shares = (1 - 2 * bound) * (1 + np.tanh(logits / 2)) / 2 + bound
        least = np.array(self.config["thresholds"] or 0.5) if threshold is None else threshold
        given = shares >= least
        if self.target["at_least_one"]:
            given[range(len(given)), (shares / np.maximum(least, 1e-12)).argmax(axis=1)] |= ~given.any(axis=1)
        return [tuple(sorted(self.labels[label] for label in np.flatnonzero(row))) for row in given], shares

    def text_of(self, label: Any) -> str:
        """Return the label, labels or number as the program writes them."""
        if isinstance(label, float):
            return np.format_float_positional(label, trim="-")
        return cell(self.target["separator"].join(label) if isinstance(label, tuple) else label or "")


class Encoder:
    """The encoder of this folder, which onnxruntime runs."""

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        import onnxruntime
        import tokenizers

        self.config, least = config, config["onnxruntime"]
        if release(found := onnxruntime.__version__) < release(least):
            raise ImportError(f"model.onnx needs onnxruntime {least} or later, found {found}")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = int(os.environ.get("OMP_NUM_THREADS", "0"))
        self.session = onnxruntime.InferenceSession(folder / "model.onnx", options, providers=["CPUExecutionProvider"])
        self.tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.encode_special_tokens = True  # the name of a special token in a text is text

    def logits(self, rows: Rows) -> Any:
        """Return the logits (N, C) of texts or pairs."""
        tokens, size = self.tokenize(rows), self.config["batch_size"]
        logits = np.zeros((len(rows), len(self.config["id2label"])))
        order = sorted(range(len(rows)), key=lambda row: len(tokens[row]))
        for start in range(0, len(order), size):
            batch = order[start : start + size]
            ids = np.full((len(batch), max(1, len(tokens[batch[-1]]))), self.config["pad_id"])
            for place, row in enumerate(batch):
                ids[place, : len(tokens[row])] = tokens[row]
            logits[batch] = self.session.run(["logits"], {"input_ids": ids})[0]
        return logits

    def tokenize(self, rows: Rows) -> list[list[int]]:
        """Return at most max_length ids a row. Of two texts the longer one is cut first; the special ids around them stay."""
        config, (before, between, after) = self.config, self.config["template"]
        most, special = config["max_length"] - len(before) - len(after), config["special_ids"]
        limit = config["max_length"] * config["characters_per_token"]
        pieces = [self.cut(text, limit).encode(errors="replace").decode() for row in rows for text in row]
        encodings = iter(self.tokenizer.encode_batch_fast(pieces, add_special_tokens=False))
        tokens = []
        for row in rows:
            first, *rest = ([config["unknown_id"] if i in special else i for i in next(encodings).ids] for _ in row)
            kept, tail = most, []
            for second in rest:
                room, kept = most - len(between), len(first)
                if len(first) + len(second) > room:
                    shorter = min(len(first), len(second), room // 2)
                    kept = shorter if len(first) <= len(second) else room - shorter
                tail = [*between, *self.cut(second, room - kept)]
            tokens.append([*before, *self.cut(first, kept), *tail, *after])
        return tokens

    def cut(self, text: Any, room: int) -> Any:
        """Return at most `room` characters or ids of a text: its first or last ones, or half of each."""
        if len(text) <= room:
            return text
        last = {"head": 0, "tail": room, "both": room // 2}[self.config["truncate"]]
        return text[: room - last] + text[len(text) - last :]


def check_files(folder: Path) -> None:
    """Check the sha256 of each file in manifest.json, except README.md. Raises ValueError for a mismatch."""
    name = "manifest.json"
    try:
        for file in json.loads((folder / name).read_bytes())["files"]:
            name = file["name"]
            if name != "README.md" and hashlib.sha256((folder / name).read_bytes()).hexdigest() != file["sha256"]:
                raise ValueError
    except (OSError, ValueError, LookupError, TypeError):
        raise ValueError(f"{folder / name}: is missing or damaged; export the run again") from None


def own_module(folder: Path, name: str) -> Any:
    """Return a module of the folder, imported under a name of its own: no other `features` takes the place of this one."""
    package = ModuleType(f"exported_{hashlib.sha256((folder / 'manifest.json').read_bytes()).hexdigest()}")
    package.__path__ = [str(folder)]
    sys.modules[package.__name__] = package
    return import_module(f"{package.__name__}.{name}")


def release(version: str) -> list[int]:
    """Return the first two numbers of a version."""
    return [int(part) for part in version.split(".")[:2]]


def cell(text: str) -> str:
    """Return a text with spaces in place of TABs and line ends, which a TSV cannot hold."""
    return re.sub(r"[\t\r\n]", " ", text)


def tell(message: object) -> None:
    """Write a line to stderr."""
    if sys.stderr is not None:  # it may be closed
        print(f"predict.py: {message}", file=sys.stderr)


def stop(code: int, fault: object) -> NoReturn:
    """Tell the fault and exit with `code`."""
    tell(f"error: {fault}")
    sys.exit(code)


def write(rows: list[list[str]]) -> None:
    """Write lines to standard output; a line on stderr and exit code 5 where it is full or closed."""
    if sys.stdout is None:
        stop(5, "standard output is closed; send it to a file")
    left = memoryview("".join("\t".join(row) + "\n" for row in rows).encode())
    try:
        while left:
            left = left[os.write(1, left) :]
    except OSError as error:
        stop(5, f"standard output: cannot be written: {error.strerror}")


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        stop(2, f"{message}; see python predict.py --help")


def main() -> None:
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--probabilities", action="store_true", help="add the probability of each label, and a header")
    parser.add_argument("--threshold", type=float, help="no label below it; of several labels, all from it")
    parser.add_argument("--unbuffered", action="store_true", help="answer each line at once; default on a terminal")
    options = parser.parse_args()
    threshold = options.threshold
    if threshold is not None and not 0 <= threshold <= 1:
        parser.error(f"--threshold {threshold:g}: is not from 0 to 1")
    if sys.stdin is None:
        stop(3, "standard input is closed; python predict.py < texts.txt")
    for name in {"SIGPIPE", "SIGINT"} & {*dir(signal)}:  # so that `| head` and Ctrl-C end it silently
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    try:
        classifier = Classifier()
    except (ImportError, ValueError) as error:
        stop(2 if isinstance(error, ImportError) else 4, error)
    kind, pairs = classifier.target["kind"], classifier.config["pairs"]
    if kind == "number" and (options.probabilities or threshold is not None):
        parser.error("it predicts numbers, which have no probabilities; leave out --probabilities and --threshold")
    has_score, has_reason = kind == "one", kind == "one" and threshold is not None
    if options.probabilities:
        names = [f"probability_{cell(label)}" for label in classifier.labels]
        write([["prediction", *["score"][:has_score], *names, *["reason"][:has_reason]]])
    done, replaced, stdin, at_once = 0, 0, sys.stdin.buffer, options.unbuffered or sys.stdin.isatty()
    while lines := [*islice(stdin, 1)] if at_once else stdin.readlines(WINDOW):
        lines[0] = lines[0] if done else lines[0].removeprefix(b"\xef\xbb\xbf")  # a byte order mark
        texts = [line.removesuffix(b"\n").removesuffix(b"\r").decode(errors="replace") for line in lines]
        rows: list[Any] = [tuple(text.split("\t")) if text else ("", "") for text in texts] if pairs else texts
        rows = list(takewhile(lambda row: not pairs or len(row) == 2, rows))
        replaced += sum(line.decode(errors="ignore") != line.decode(errors="replace") for line in lines[: len(rows)])
        done += len(rows)
        answers = []
        for label, score, probabilities in classifier.predict(rows, threshold=threshold):
            shares = [score, *probabilities.values()][not has_score : None if options.probabilities else 1]
            unsure = f"the score is below {threshold:g}" if label is None else ""
            answers.append([classifier.text_of(label), *(f"{share:.6f}" for share in shares), *[unsure][:has_reason]])
        write(answers)
        if len(rows) < len(lines):
            break
    if replaced:
        tell(f"warning: {replaced} of {done} lines are not UTF-8; U+FFFD stands for the bytes that cannot be read")
    if lines:
        tabs = lines[len(rows)].count(b"\t")
        stop(3, f"line {done + 1}: has {tabs} TABs; one must separate the two texts of a pair")


if __name__ == "__main__":
    main()
