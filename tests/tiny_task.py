"""A small TNEWS of our own: real format, a few rows, an easy rule, trained in a second."""

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

LABELS = {"100": "鼠牛虎兔", "101": "龙蛇马羊", "102": "猴鸡狗猪"}
TINY = [
    "encoder.hidden_size=16",
    "encoder.num_layers=2",
    "tokenizer.min_frequency=1",
    "data.max_length=16",
    "data.extra_rows=[]",
    "finetuning.batch_size=8",
    "finetuning.epochs=2",
    "finetuning.learning_rate=1e-2",
    "finetuning.log_every=2",
    "finetuning.encoder=always",
    "pretraining.batch_size=8",
    "pretraining.epochs=2",
    "pretraining.log_every=2",
    "runtime.precision=fp32",
]


def rows(count: int, seed: int, labelled: bool) -> list[dict[str, object]]:
    """Texts whose class is the group that most of their characters come from."""
    draw = random.Random(seed)
    made: list[dict[str, object]] = []
    for number in range(count):
        label = draw.choice(list(LABELS))
        text = "".join(draw.choice(LABELS[label]) for _ in range(draw.randint(3, 12))) + draw.choice("鼠龙猴")
        row: dict[str, object] = {"id": number, "sentence": text, "keywords": ""}
        made.append({**row, "label": label, "label_desc": "news"} if labelled else row)
    return made


def write_rows(path: Path, lines: Sequence[Mapping[str, object]]) -> None:
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")


def tiny(*more: str) -> list[str]:
    """`--set` options for a training of a second."""
    return [part for setting in [*TINY, *more] for part in ("--set", setting)]
