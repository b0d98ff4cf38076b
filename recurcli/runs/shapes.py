"""The shapes of the JSON files of a run: the keys that commands read, with the kinds of their values.

A shape is a function that says whether a value fits, a mapping of keys to shapes, or a shape in a tuple for a value that may be
null. A key with ? may be missing, and * stands for all other keys.
"""

import sys
from collections.abc import Mapping
from typing import Any

LARGEST = 1e18
"""The largest number that is read, except for a perplexity or a loss, which may be any finite number."""


def is_number(value: Any) -> bool:
    """Return whether `value` is a finite number of a size that can be computed with, and no bool."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def is_count(value: Any) -> bool:
    """Return whether `value` is a whole number from 0."""
    return _is_whole(value) and value >= 0


def _is_whole(value: Any) -> bool:
    return is_number(value) and isinstance(value, int)


def is_text(value: Any) -> bool:
    """Return whether `value` is a string."""
    return isinstance(value, str)


def _is_size(value: Any) -> bool:
    return is_count(value) and value > 0


def _is_fact(value: Any) -> bool:
    return value is None or isinstance(value, str | bool) or is_number(value)


def _is_training(value: Any) -> bool:
    return value in ("finetune", "pretrain")


def _is_score(value: Any) -> bool:
    return value is None or isinstance(value, list | dict) or _is_finite(value)


def _is_shares(value: Any) -> bool:
    return isinstance(value, dict) and bool(value) and all(map(is_number, value.values()))


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(is_text, value))


def _is_anything(value: Any) -> bool:
    return True


SCORES = {
    **dict.fromkeys(("accuracy", "macro_precision", "macro_recall", "macro_f1", "mcc"), is_number),
    "*": _is_score,
}
"""The shape of the metrics of a classifier. Tables by class have other names."""
_LINEAR = {"ngrams": is_count, "dev?": {"*": _is_score}}
_PARTS = {"encoder": SCORES, "linear": SCORES}
_ENSEMBLE = {"encoder_weight": is_number, "linear_weight": is_number, "rows": is_count}
_STOPPED = {"metric": is_text, "best": (_is_finite,), "evaluations": is_count, "steps": is_count}
_MATCHED = {
    "keys": {"*": is_number},
    "parameters": is_count,
    "target": _is_size,
    "question": {"asked": _is_fact, "other": _is_anything},
}
RESULT_SHAPE: Mapping[str, Any] = {
    "command": _is_training,
    "seed": _is_whole,
    **dict.fromkeys(("preset", "task", "encoder"), is_text),
    **dict.fromkeys(("steps", "best_step", "tokens", "tokens_per_second"), is_count),
    **dict.fromkeys(("seconds", "epochs"), is_number),
    "cpu_seconds?": (is_number,),
    "parameters": {"total": is_count, "embedding": is_count},
    "data": {"*": {"path": (is_text,), "rows": is_count, "sha256": is_text}},
    "machine": {"device": is_text, "precision": is_text, "*": _is_fact},
    "metric?": is_text,
    "dev?": {"loss?": (_is_finite,), "perplexity?": _is_finite, "tokens?": is_count},
    "test?": {**SCORES, "baselines": {"*": is_number}, "parts?": _PARTS},
    "baselines?": {"*": is_number},
    "parts?": _PARTS,
    "ensemble?": _ENSEMBLE,
    "linear_baseline?": _LINEAR,
    "calibration?": {"ece": is_number, "temperature?": is_number},
    "early_stopping?": (_STOPPED,),
    "match_parameters?": (_MATCHED,),
    "forward_flops_per_token?": (is_count,),
    "init?": (is_text,),
}
SCORED_SHAPES: Mapping[str, Any] = {
    "finetune": {"metric": is_text, "dev": {"names": _is_texts, **SCORES}, "baselines": {"*": is_number}},
    "pretrain": {"metric": is_text, "dev": {"perplexity": _is_finite, "loss": _is_finite, "tokens": is_count}},
}
"""By command the further shape of a result whose model was selected by a dev metric."""
ENSEMBLE_SHAPE: Mapping[str, Any] = {"parts": _PARTS, "linear_baseline": _LINEAR}
"""The further shape of a result with an ensemble."""
METRICS_SHAPE: Mapping[str, Any] = {"step": is_count, "*": (_is_finite,)}
"""The shape of a line of metrics.jsonl."""
STATE_SHAPE: Mapping[str, Any] = {
    "state": {"step": is_count},
    "must_match": {"steps": is_count, "train sha256?": is_text, "dev sha256?": is_text},
}
"""The shape of state.json of a checkpoint for a reader that does not resume from it."""
DEV_ROW_SHAPE: Mapping[str, Any] = dict.fromkeys(("id", "label", "prediction"), is_text)
DEV_TEXT_SHAPE: Mapping[str, Any] = {"label": is_text, "text": is_text, "pair?": (is_text,)}
DEV_SHARES_SHAPE: Mapping[str, Any] = {
    "probabilities": _is_shares,
    **dict.fromkeys(("encoder_probabilities?", "linear_probabilities?"), _is_shares),
}
"""With the two before: what is read of a line of predictions.dev.jsonl."""
CLASSES_SHAPE: Mapping[str, Any] = {"id2label": {"*": is_text}}
"""The shape of config.json for a reader of its classes alone."""


def find_fault(value: Any, shape: Any, key: str = "") -> str | None:
    """Return in words what keeps `value`, that of `key`, from having the `shape`; None: nothing does."""
    if isinstance(shape, tuple):
        return None if value is None else find_fault(value, shape[0], key)
    if not isinstance(shape, Mapping):
        return None if shape(value) else f"{key} is {value!r:.60}"
    if not isinstance(value, dict):
        return f"{key or 'its content'} is no mapping"
    for name, inner in shape.items():
        if name[-1] not in "?*" and callable(inner) and name in value and inner(value[name]):
            continue  # most keys of many rows: no words are made for them
        bare = name.removesuffix("?")
        keys = [bare] if bare in value else []
        if name == "*":
            known = {other.removesuffix("?") for other in shape}
            keys = [other for other in value if other not in known]
        if name == bare != "*" and not keys:
            return f"{key and f'{key}.'}{bare} is missing"
        for own in keys:
            if fault := find_fault(value[own], inner, f"{key and f'{key}.'}{own}"):
                return fault
    return None
