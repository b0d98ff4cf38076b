"""Invented rows in the formats of CLUE tasks, test files at their full length."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def cluewsc(row: int, draw: random.Random) -> Row:
    noun, text = draw.choice(["小明", "老师", "猫"]), "今天看见了树，因为他很高"
    spans = {"span1_text": noun, "span1_index": 0, "span2_text": "他", "span2_index": len(noun) + 9}
    return {"text": noun + text, "target": spans, "idx": row, "label": draw.choice(["true", "false"])}


def csl(row: int, draw: random.Random) -> Row:
    words = draw.sample(["网络", "模型", "语言", "土壤", "气候"], 3)
    return {"id": 5000 - row, "abst": "本文研究" + words[0], "keyword": words, "label": draw.choice("01")}


def iflytek(row: int, draw: random.Random) -> Row:
    label = draw.randrange(119)
    return {"label": str(label), "label_des": "类", "sentence": f"应用{label}可以" + "看书听歌" * 20}


TASKS: dict[str, tuple[Callable[[int, random.Random], Row], dict[str, int]]] = {
    "cluewsc": (cluewsc, {"test": 2574, "test1.0": 290}),
    "csl": (csl, {"test": 3000}),
    "iflytek": (iflytek, {"test": 2600}),
}


def write_task(name: str, folder: Path) -> Path:
    """A folder with 40 training rows, 12 dev rows and the whole test files of a task."""
    make, tests = TASKS[name]
    folder.mkdir(parents=True)
    for split, count in {"train": 40, "dev": 12, **tests}.items():
        draw = random.Random(f"{name} {split}")
        rows = [make(row, draw) for row in range(count)]
        if split.startswith("test"):
            rows = [{key: value for key, value in row.items() if not key.startswith("label")} for row in rows]
        lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
        (folder / f"{split}.json").write_text("".join(lines), encoding="utf-8")
    return folder
