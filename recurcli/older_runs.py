"""Keys of presets and results that older versions of recur wrote, under their names of today."""

from typing import Any

KeyPath = tuple[str, ...]
_RENAMED: dict[KeyPath, KeyPath] = {
    ("prior",): ("ensemble",),
    ("finetuning", "linear_floor"): ("finetuning", "linear_baseline"),
    ("data", "dev_every"): ("data", "dev_fraction"),
}
_RENAMED_RESULTS = {"floors": "baselines", "prior": "ensemble", "linear_floor": "linear_baseline"}


def rename_preset_keys(values: dict[str, Any]) -> dict[KeyPath, KeyPath]:
    """Rename the older keys of a preset in `values`, and return the new path of each one that was there.

    A key that stands beside its new name is left as it is, so that the check of the preset refuses it.
    """
    renamed: dict[KeyPath, KeyPath] = {}
    for old, new in _RENAMED.items():
        holder = values if len(old) == 1 else values.get(old[0])
        if not isinstance(holder, dict) or old[-1] not in holder or new[-1] in holder:
            continue
        value = holder[old[-1]]
        if old == ("prior",) and isinstance(value, dict):
            value = value.get("kind", "linear")
        elif old[-1] == "dev_every" and isinstance(value, int) and value > 0:
            value = 1 / value
        del holder[old[-1]]
        holder[new[-1]] = value
        renamed[old] = new
    return renamed


def rename_result_keys(result: Any) -> Any:
    """Return the content of result.json with the older keys renamed, those of its test scores too.

    What is no mapping is returned as it is.
    """
    if not isinstance(result, dict):
        return result
    renamed = {_RENAMED_RESULTS.get(key, key): value for key, value in result.items()}
    if isinstance(test := renamed.get("test"), dict):
        renamed["test"] = {_RENAMED_RESULTS.get(key, key): value for key, value in test.items()}
    return renamed
