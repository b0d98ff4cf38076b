"""The keys of a run's JSON files that commands read, with the kinds of their values. Other keys are not checked."""

import json
from collections.abc import Mapping
from typing import Any

from pydantic_core import SchemaValidator, ValidationError
from pydantic_core import core_schema as cs

from recurcli.encoders.config import LINEAR
from recurcli.files import OpenedFile, naming_damage


def keys(schemas: Mapping[str, cs.CoreSchema]) -> cs.CoreSchema:
    """Return the schema of a mapping. A key with ? may be missing, and * stands for all other keys."""
    fields = {
        key.removesuffix("?"): cs.typed_dict_field(schema, required=key[-1] != "?")
        for key, schema in schemas.items()
        if key != "*"
    }
    return cs.typed_dict_schema(fields, extra_behavior="allow", extras_schema=schemas.get("*"))


LARGEST = 10**18
"""The largest number that is read, except for a perplexity or a loss, which may be any finite number."""
FINITE = cs.float_schema(allow_inf_nan=False)
NUMBER = cs.float_schema(allow_inf_nan=False, ge=-LARGEST, le=LARGEST)
WHOLE = cs.int_schema(ge=-LARGEST, le=LARGEST)
COUNT = cs.int_schema(ge=0, le=LARGEST)
TEXT = cs.str_schema()
FACT = cs.nullable_schema(cs.union_schema([TEXT, cs.bool_schema(), NUMBER]))
SCORE = cs.nullable_schema(cs.union_schema([FINITE, cs.list_schema(), cs.dict_schema()]))
NUMBERS = cs.dict_schema(TEXT, NUMBER)
SHARES = cs.dict_schema(TEXT, NUMBER, min_length=1)
LOSSES = cs.list_schema(FINITE, min_length=1)
SCORE_NAMES = ("accuracy", "macro_precision", "macro_recall", "macro_f1", "mcc")
SCORES: dict[str, cs.CoreSchema] = {**dict.fromkeys(SCORE_NAMES, NUMBER), "*": SCORE}
"""The metrics of a classifier. Tables by class have other names."""
PARTS = keys({"encoder": keys(SCORES), "linear": keys(SCORES)})
CALIBRATION = keys({"ece": NUMBER, "temperature": NUMBER})
WEIGHT = cs.float_schema(ge=0, le=1e6)
WEIGHTS = {"encoder_weight": WEIGHT, "linear_weight": WEIGHT, "linear_alone_weight": WEIGHT, "rows": COUNT}
LINEAR_BASELINE = keys({"ngrams": COUNT, "refit_rows?": COUNT, "dev": cs.dict_schema(TEXT, SCORE)})
STOPPED = keys({"metric": TEXT, "best": cs.nullable_schema(FINITE), "evaluations": COUNT, "steps": COUNT})
QUESTION = keys({"asked": FACT, "other": cs.any_schema()})
MATCHED = keys({"keys": NUMBERS, "parameters": COUNT, "target": cs.int_schema(gt=0, le=LARGEST), "question": QUESTION})
RESULT = {
    "command": cs.literal_schema(["finetune", "pretrain"]),
    "seed": WHOLE,
    **dict.fromkeys(("preset", "task", "encoder"), TEXT),
    **dict.fromkeys(("steps", "best_step", "tokens", "tokens_per_second"), COUNT),
    **dict.fromkeys(("seconds", "cpu_seconds", "epochs"), NUMBER),
    "parameters": keys({"total": COUNT, "embedding": COUNT}),
    "data": cs.dict_schema(TEXT, keys({"path": cs.nullable_schema(TEXT), "rows": COUNT, "sha256": TEXT})),
    "machine": keys({"device": TEXT, "precision": TEXT, "*": FACT}),
    "metric?": TEXT,
    "test?": keys({**SCORES, "baselines": NUMBERS, "calibration": CALIBRATION, "parts?": PARTS}),
    "baselines?": NUMBERS,
    "parts?": PARTS,
    "ensemble?": keys(WEIGHTS),
    "linear_baseline?": LINEAR_BASELINE,
    "early_stopping?": cs.nullable_schema(STOPPED),
    "match_parameters?": cs.nullable_schema(MATCHED),
    "forward_flops_per_token?": cs.nullable_schema(COUNT),
    "init?": cs.nullable_schema(TEXT),
}
CLASSIFIER = {
    "metric": TEXT,
    "dev": keys({"names": cs.list_schema(TEXT), **SCORES}),
    "baselines": NUMBERS,
    "calibration": CALIBRATION,
}
LANGUAGE_MODEL = {"metric": TEXT, "dev": keys({"perplexity": FINITE, "loss": FINITE, "tokens": COUNT})}
"""The further keys of a language model that was selected by a dev metric."""
WITH_ENSEMBLE = {"parts": PARTS, "linear_baseline": LINEAR_BASELINE}
WITHOUT_ENCODER = {"ensemble": keys(WEIGHTS), "linear_baseline": LINEAR_BASELINE}
FACTS = keys({"steps": COUNT, "train sha256?": TEXT, "dev sha256?": TEXT})
STATE = SchemaValidator(keys({"state": keys({"step": COUNT}), "resume_key": FACTS}))
"""state.json of a checkpoint, for a reader that does not resume from it."""
METRICS_LINE = SchemaValidator(keys({"step": COUNT, "*": cs.nullable_schema(FINITE)}))
TEXT_LOSSES = SchemaValidator(keys({"nats": LOSSES, "tokens": LOSSES}))
CLASSES = SchemaValidator(keys({"id2label": cs.dict_schema(TEXT, TEXT)}))
"""config.json, for a reader of its classes alone."""
ENSEMBLE_FILE = SchemaValidator(keys({"kind": cs.literal_schema(["linear"]), **WEIGHTS}))
"""ensemble.json."""
TEMPERATURE = SchemaValidator(keys({"temperature": cs.float_schema(ge=1e-6, le=1e6)}))
"""calibration.json."""
ROW_TEXT = SchemaValidator(keys({"label": TEXT, "text": TEXT, "pair?": cs.nullable_schema(TEXT)}))
"""A line of predictions, for a reader of its text."""


def row_validator(*probabilities: str) -> SchemaValidator:
    """Return the validator of a line of predictions that has the keys `probabilities`."""
    return SchemaValidator(
        keys({**dict.fromkeys(("id", "label", "prediction"), TEXT), **dict.fromkeys(probabilities, SHARES)})
    )


def check(value: Any, validator: SchemaValidator) -> None:
    """Raise ValueError with the first key of `value` that does not fit."""
    try:
        validator.validate_python(value, strict=True)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_context=False)[0]
        key = ".".join(map(str, fault["loc"])) or "its content"
        reason = "missing" if fault["type"] == "missing" else f"{fault['input']!r:.60}"
        raise ValueError(f"{key} is {reason}") from None


def read_json(file: OpenedFile, validator: SchemaValidator, limit: int = 1 << 20) -> dict[str, Any]:
    """Return the content of a JSON file of at most `limit` bytes. Raises ModelError if it is damaged or does not fit."""
    with naming_damage(file.path):
        content: dict[str, Any] = json.loads(file.read(limit))
        check(content, validator)
    return content


def check_result(result: Any) -> None:
    """Raise ValueError with the first key of the content of result.json that does not fit."""
    check(result, SchemaValidator(keys(RESULT)))
    more: dict[str, cs.CoreSchema] = {}
    if result["command"] == "finetune":
        more |= CLASSIFIER
    elif "metric" in result or "dev" in result:
        more |= LANGUAGE_MODEL
    if result["encoder"] == LINEAR:
        more |= WITHOUT_ENCODER
    elif "ensemble" in result:
        more |= WITH_ENSEMBLE
    check(result, SchemaValidator(keys(more)))
