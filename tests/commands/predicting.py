"""What tests of `recur predict` share: rows to predict, and outputs as they are read."""

import io
import json
import random
import sys
from typing import Any

import pytest
from running import Recur as Recur
from tiny_task import LABELS

CHARACTERS = "".join(LABELS.values())


def as_stdin(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


def texts(count: int, seed: int = 5, longest: int = 12) -> list[str]:
    draw = random.Random(seed)
    return ["".join(draw.choices(CHARACTERS, k=draw.randint(1, longest))) for _ in range(count)]


def tsv(out: str) -> list[list[str]]:
    return [line.split("\t") for line in out.split("\n")[:-1]]


def jsonl(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.split("\n")[:-1]]
