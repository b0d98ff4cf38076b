"""Labels texts with the exported model in this folder: python predict.py < texts.txt > labels.tsv

Reads one text a line in UTF-8 (for a model of pairs: two, separated by a TAB) and writes `label<TAB>probability` for each
line, in order. Several labels, and their probabilities, are joined by the separator of the training, and empty for no label.
Of a model of numbers the number is written.
A single text is the whole line, TABs included, where `recur predict` reads a line with TABs as columns.
Exit code 2: a missing package, or an onnxruntime that is too old. Exit code 3: a line of pairs without one TAB; the lines
before it are answered. Exit code 5: a full disk.
It needs numpy. Where there is a model.onnx it needs onnxruntime (README.md has its least version) and tokenizers, and where
there are static vectors (vectors.npz) tokenizers.
OMP_NUM_THREADS limits the threads.
"""

import argparse
import json
import math
import os
import re
import signal
import sys
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).resolve().parent
CONFIG = json.loads((FOLDER / "config.json").read_text(encoding="utf-8"))
NAMES = [*CONFIG["id2label"].values()]
LABELS = [re.sub(r"[\t\r\n]", " ", label) for label in NAMES]
BATCH_SIZE = 64
WINDOW = 1 << 18  # bytes that are read, sorted by length and labelled together; they bound the memory
Rows = list[tuple[str, ...]]


class Encoder:
    def __init__(self) -> None:
        least = CONFIG["onnxruntime"]
        try:
            import onnxruntime
            import tokenizers

            if release(found := onnxruntime.__version__) < release(least):
                raise ImportError(f"model.onnx needs onnxruntime {least} or later, found {found}")
        except ImportError as error:
            fault = str(error) or "onnxruntime cannot be imported"
            tell(f"error: {fault}: pip install 'onnxruntime>={least}' tokenizers numpy")
            sys.exit(2)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = int(os.environ.get("OMP_NUM_THREADS", "0"))
        self.session = onnxruntime.InferenceSession(FOLDER / "model.onnx", options, providers=["CPUExecutionProvider"])
        self.tokenizer = tokenizers.Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
        self.tokenizer.encode_special_tokens = True  # the name of a special token in a text is text

    def logits(self, rows: Rows) -> Any:
        tokens, logits = self.tokenize(rows), np.zeros((len(rows), len(LABELS)))
        order = sorted(range(len(rows)), key=lambda row: len(tokens[row]))
        for start in range(0, len(order), BATCH_SIZE):
            batch = order[start : start + BATCH_SIZE]
            ids = np.full((len(batch), max(1, len(tokens[batch[-1]]))), CONFIG["pad_id"])
            for place, row in enumerate(batch):
                ids[place, : len(tokens[row])] = tokens[row]
            logits[batch] = self.session.run(["logits"], {"input_ids": ids})[0]
        return logits

    def tokenize(self, rows: Rows) -> list[list[int]]:
        """At most max_length ids a row. Of two texts the longer one is cut first; the special ids around them stay."""
        before, between, after = CONFIG["template"]
        most, special = CONFIG["max_length"] - len(before) - len(after), CONFIG["special_ids"]
        pieces = [cut(text, CONFIG["max_length"] * CONFIG["characters_per_token"]) for row in rows for text in row]
        encodings = iter(self.tokenizer.encode_batch_fast(pieces, add_special_tokens=False))
        tokens = []
        for row in rows:
            first, *rest = ([CONFIG["unknown_id"] if i in special else i for i in next(encodings).ids] for _ in row)
            kept, tail = most, []
            for second in rest:
                room, kept = most - len(between), len(first)
                if len(first) + len(second) > room:
                    shorter = min(len(first), len(second), room // 2)
                    kept = shorter if len(first) <= len(second) else room - shorter
                tail = [*between, *cut(second, room - kept)]
            tokens.append([*before, *cut(first, kept), *tail, *after])
        return tokens


def joined(parts: list[tuple[Any, Any]], rows: Rows) -> Any:
    """The weighted sum of the logits of the parts."""
    return sum(weight * part.logits(rows) for weight, part in parts) + CONFIG["offsets"]


def one_label(logits: Any) -> list[str]:
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    shares = (1 - len(LABELS) * CONFIG["least_probability"]) * shares + CONFIG["least_probability"]
    best = (shares / (CONFIG["thresholds"] or 1.0)).argmax(axis=1)
    return [f"{LABELS[label]}\t{row[label]:.6f}" for label, row in zip(best, shares, strict=True)]


def several_labels(logits: Any) -> list[str]:
    shares = (1 - 2 * CONFIG["least_probability"]) * (1 + np.tanh(logits / 2)) / 2 + CONFIG["least_probability"]
    least = np.array(CONFIG["thresholds"] or [0.5] * len(LABELS))
    given, rows = shares >= least, np.arange(len(shares))
    if CONFIG["target"]["at_least_one"]:
        given[rows, (shares / np.maximum(least, 1e-12)).argmax(axis=1)] |= ~given.any(axis=1)
    mark, order = CONFIG["target"]["separator"], sorted(range(len(LABELS)), key=NAMES.__getitem__)
    found = [[label for label in order if given[row, label]] for row in rows]
    return [
        mark.join(LABELS[label] for label in own) + "\t" + mark.join(f"{shares[row, label]:.6f}" for label in own)
        for row, own in enumerate(found)
    ]


def number(logits: Any) -> list[str]:
    target = CONFIG["target"]
    found = (target["mean"] + target["std"] * logits[:, 0]).clip(target["low"], target["high"])
    decimals = max(0, 5 - math.floor(math.log10(target["std"])))
    texts = [f"{round(each, decimals) + 0.0:.{decimals}f}" for each in found.tolist()]
    return [text.rstrip("0").rstrip(".") if decimals else text for text in texts]


ANSWERS = {"one": one_label, "several": several_labels, "number": number}


def cut(text: Any, room: int) -> Any:
    """At most `room` characters or ids of a text: its first or last ones, or half of each."""
    if len(text) <= room:
        return text
    last = {"head": 0, "tail": room, "both": room // 2}[CONFIG["truncate"]]
    return text[: room - last] + text[len(text) - last :]


def release(version: str) -> list[int]:
    return [int(part) for part in version.split(".")[:2]]


def texts_of(line: bytes) -> tuple[str, ...]:
    text = line.removesuffix(b"\n").removesuffix(b"\r").decode(errors="replace")
    if not CONFIG["pairs"]:
        return (text,)
    return tuple(text.split("\t")) if text else ("", "")


def tell(message: str) -> None:
    if sys.stderr is not None:  # it may be closed
        print(f"predict.py: {message}", file=sys.stderr)


def write(content: bytes) -> None:
    """Write to standard output; a line and exit code 5 where it is full or closed."""
    if sys.stdout is None:
        tell("error: standard output is closed; send it to a file")
        sys.exit(5)
    left = memoryview(content)
    try:
        while left:
            left = left[os.write(1, left) :]
    except OSError as error:
        tell(f"error: standard output: cannot be written: {error.strerror}")
        sys.exit(5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # so that `| head` ends it silently
    parts: list[tuple[Any, Any]] = []
    if "encoder" in CONFIG["weights"]:
        parts.append((np.array(CONFIG["weights"]["encoder"]), Encoder()))
    if "linear" in CONFIG["weights"]:
        from linear_model import Linear

        try:
            parts.append((np.array(CONFIG["weights"]["linear"]), Linear(FOLDER / "linear.npz", CONFIG)))
        except ImportError as error:
            tell(f"error: {error}: pip install tokenizers numpy")
            sys.exit(2)
    done, replaced, fault = 0, 0, ""
    while lines := sys.stdin.buffer.readlines(WINDOW):
        lines[0] = lines[0] if done else lines[0].removeprefix(b"\xef\xbb\xbf")  # a byte order mark
        rows = list(takewhile(lambda texts: len(texts) == 1 + CONFIG["pairs"], map(texts_of, lines)))
        replaced += sum(line.decode(errors="ignore") != line.decode(errors="replace") for line in lines[: len(rows)])
        done += len(rows)
        if rows:
            answers = ANSWERS[CONFIG["target"]["kind"]](joined(parts, rows))
            write("".join(f"{answer}\n" for answer in answers).encode())
        if len(rows) < len(lines):
            tabs = lines[len(rows)].count(b"\t")
            fault = f"error: line {done + 1}: has {tabs} TABs; one must separate the two texts of a pair"
            break
    if replaced:
        tell(f"warning: {replaced} of {done} lines are not UTF-8; U+FFFD stands for the bytes that cannot be read")
    if fault:
        tell(fault)
        sys.exit(3)


if __name__ == "__main__":
    main()
