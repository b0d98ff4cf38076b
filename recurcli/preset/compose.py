"""Finds a preset by name and resolves it. Later layers override earlier ones, and the origin of every value is recorded:

the encoder's Config < base.yaml < tasks/<task>.yaml < encoders/<encoder>.yaml < the `extends:` chain < the file's own keys <
--data < --set.
Mappings merge, lists and scalars replace. A layer that names other data replaces the files of the earlier ones.
"""

import dataclasses
import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import entry_points
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple

from recurcli.config import REQUIRED_VECTORS, Preset, check_encoder_length, preset_keys, type_members
from recurcli.data.tasks import TASKS
from recurcli.encoders import LINEAR, PRETRAINED
from recurcli.encoders.folder import folder_of, read_folder
from recurcli.encoders.registry import ENCODERS, causal_key, encoder_config
from recurcli.errors import UsageError, did_you_mean, escaped, require_extra
from recurcli.validation import (
    InvalidConfig,
    KeyPath,
    dump,
    flatten,
    nearest_key,
    parse_config,
    parse_value,
    read_mapping,
)


def preset_folder() -> Path:
    """Return the folder of recur's presets: inside an installed package, or next to the package in a checkout."""
    package = Path(__file__).resolve().parent.parent
    inside = package / "presets"
    return inside if inside.is_dir() else package.parent / "presets"


def preset_names() -> dict[str, list[str]]:
    """Return the names of the encoders, the tasks, and the presets with a file of their own that are not a paper's."""
    return {
        "encoders": sorted({*ENCODERS, LINEAR, *_foreign_encoders()}),
        "tasks": sorted(TASKS),
        "presets": sorted(path.stem for path in preset_folder().glob("*.yaml") if path.stem != "base"),
    }


def paper_presets() -> dict[str, list[str]]:
    """Return the names of the presets in papers/, by the folder of their paper."""
    found: dict[str, list[str]] = {}
    for path in sorted(preset_folder().glob("papers/*/*.yaml")):
        found.setdefault(path.parent.name, []).append(path.stem)
    return found


def preset_file(name: str) -> Path | None:
    """Return the file of the preset `name`, which may be one of a paper, or None if it has no file of its own."""
    folder = preset_folder()
    files = {path.stem: path for path in (*folder.glob("papers/*/*.yaml"), *folder.glob("*.yaml"))}
    return files.get(name) if name != "base" else None


@functools.cache
def _foreign_encoders() -> frozenset[str]:
    """Return the names of encoders of other installed packages, without importing them."""
    return frozenset(entry_points(group="recurcli.encoders").names)


CAUSAL_LEARNING_RATE = 1e-3
"""Ours, in batches of 512 tokens of the Penn Treebank: ten times the Transformer's rate for masked tokens."""
_PATHS: tuple[KeyPath, ...] = (
    ("data", "path"),
    ("tokenizer", "vocabulary"),
    ("embedding", "vectors"),
    ("linear", "vectors"),
    ("encoder", "path"),
    ("finetuning", "teacher"),
    ("finetuning", "teacher_run"),
)


class Layer(NamedTuple):
    """The values that one file or option sets, and the origin of each key: the file and line, or the option."""

    values: dict[str, Any]
    origins: dict[KeyPath, str]


def merge(layers: Sequence[Layer]) -> Layer:
    """Return `layers` as one, in which later values override earlier ones."""
    merged = Layer({}, {})
    for layer in layers:
        _forget_replaced_data(merged, layer)
        _merge_into(merged.values, layer.values)
        merged.origins.update(layer.origins)
    return merged


def _merge_into(target: dict[str, Any], values: Mapping[str, Any]) -> None:
    for key, value in values.items():
        if isinstance(value, dict):
            below = target.get(key)
            target[key] = below if isinstance(below, dict) else {}
            _merge_into(target[key], value)
        else:
            target[key] = value


def _forget_replaced_data(merged: Layer, layer: Layer) -> None:
    """Remove from `merged` the data that `layer` replaces, so that no dev or test rows of other data are left.

    A file of training rows replaces `data.path` and all of `data.files`. A `data.path` replaces the files with absolute
    paths. If it is one file, it also replaces the names of files in a folder.
    """
    data, earlier = layer.values.get("data"), merged.values.get("data")
    if not isinstance(data, dict) or not isinstance(earlier, dict):
        return
    files, path, before = data.get("files"), data.get("path"), earlier.get("files")
    kept: dict[str, dict[str, Any] | None]
    if isinstance(files, dict) and _absolute(files.get("train")):
        origin, kept = layer.origins["data", "files", "train"], {"path": None, "files": None}
    elif isinstance(path, str) and isinstance(before, dict):
        in_folder = {split: file for split, file in before.items() if not (Path(path).is_file() or _absolute(file))}
        origin, kept = layer.origins["data", "path"], {"files": in_folder or None}
    else:
        return
    for key, value in kept.items():
        if earlier.get(key) not in (None, value):
            earlier[key] = value
            merged.origins["data", key] = origin


def _absolute(file: object) -> bool:
    return isinstance(file, list | tuple) or (isinstance(file, str) and Path(file).is_absolute())


@dataclass(frozen=True)
class ResolvedPreset:
    """A preset, its name, and the origin of each key that is not a default."""

    name: str
    preset: Preset
    origins: Mapping[KeyPath, str]

    def rows(self) -> Iterator[tuple[str, Any, str]]:
        """Yield each key as a dotted path, its value, and its origin (`default` if no file or option sets it)."""
        for path, value in flatten(self.preset.to_dict()):
            yield ".".join(path), value, self.origins.get(path, "default")

    def located(self, fault: InvalidConfig, section: str) -> UsageError:
        """Return a `fault` in `section` as a UsageError with the file and line, or the option, that set its key."""
        return _located((section, *fault.path), fault.reason, self.origins)


def compose(
    name: str,
    *,
    data: Path | str | None = None,
    settings: Sequence[str] = (),
    overrides: Mapping[str, tuple[str, Any]] | None = None,
    section: Literal["pretraining", "finetuning"] | None = None,
) -> ResolvedPreset:
    """Resolve `--preset name`, then apply `--data`, `--set` and `overrides`. Raises UsageError with the place of a fault.

    `overrides` maps a dotted key to the option that sets it and its value. `section` is the one that the command reads, so no
    key of the other one is suggested for a wrong key. None means that keys of both are suggested, and that word vectors which a
    training requires may be missing.
    """
    options = Layer({}, {})  # one layer, so none of them replaces the data that another one names
    if data is not None:
        _set(options, "--data", ("data", "path"), str(data))
    for setting in settings:
        _set(options, *_parse_setting(setting))
    for dotted, (source, value) in (overrides or {}).items():
        _set(options, source, tuple(dotted.split(".")), value)
    own = _chain(name)
    task, encoder = _choices([*own, options], name)
    folder = preset_folder()
    keys = {field.name: field.default for field in dataclasses.fields(encoder_config(encoder))}
    defaults = {key: default for key, default in keys.items() if default is not dataclasses.MISSING}
    layers = [Layer({"encoder": {"name": encoder, **defaults}}, {}), _file_layer(folder / "base.yaml")]
    for path in (folder / "tasks" / f"{task}.yaml", folder / "encoders" / f"{encoder}.yaml"):
        if path.is_file():
            layers.append(_file_layer(path))
    merged, origins = merge([*layers, *own, options])
    _make_causal(merged, origins, encoder)
    if encoder == PRETRAINED:
        _use_folder(merged, origins, section)
    try:
        preset = parse_config(Preset, merged, partial(preset_keys, section))
    except InvalidConfig as fault:
        raise _located(fault.path, fault.reason, origins) from None
    if encoder == LINEAR:
        _check_linear(preset, origins, name, section)
    for key in preset.encoder.keys() - keys.keys() - {"name"}:
        elsewhere = [path for path in preset_keys(section) if not path.startswith("encoder.")]
        reason = f"the encoder {encoder} has no such key" + nearest_key(key, keys, elsewhere, ("encoder",))
        raise _located(("encoder", key), reason, origins)
    if section is not None and preset.embedding.vectors == REQUIRED_VECTORS:
        reason = "this preset is for pre-trained word vectors; name their file with --set embedding.vectors=FILE"
        raise _located(("embedding", "vectors"), reason, origins)
    _check_vectors(preset, origins)
    if preset.finetuning.supervise == "every":
        _check_supervised(preset, origins, encoder, task)
    if preset.data.max_length != "auto":  # else the training checks it, when it knows the lengths of the rows
        check_encoder_length(preset.encoder, preset.data.max_length)
    dump(preset.to_dict())  # refuses a preset that a run could not store
    stem = Path(name).stem if is_file_name(name) else name  # a run's file is preset.yaml
    return ResolvedPreset(f"{encoder}-{task}" if stem == "preset" else stem, preset, origins)


FEWEST_ROWS_OF_ENCODER = 1000
"""Training rows, drawn dev rows included, below which `finetuning.encoder: auto` trains no encoder. Ours: presets/RESULTS.md
has what encoders of fewer rows bring."""


def trains_encoder(preset: Preset, rows: int | None) -> bool:
    """Return whether an encoder is trained: the preset has one, and `finetuning.encoder` takes it for so many training `rows`.

    None: there are others.
    """
    config = preset.finetuning
    is_asked = config.encoder == "always" or config.teacher is not None or preset.ensemble is None
    return not preset.is_linear and (is_asked or rows is None or rows >= FEWEST_ROWS_OF_ENCODER)


def _check_vectors(preset: Preset, origins: Mapping[KeyPath, str]) -> None:
    """Raise UsageError if the tokens are to be those of static vectors and there are none, or the other way round."""
    source, reason = preset.embedding.vectors, ""
    if preset.tokenizer.kind != "vectors":
        if source not in (None, REQUIRED_VECTORS) and not Path(source).is_absolute():
            reason = f"{escaped(source)} is neither a file nor a folder; a name needs --set tokenizer.kind=vectors"
    elif source is None:
        raise _located(("tokenizer", "kind"), "vectors needs static vectors: set embedding.vectors", origins)
    elif Path(source).is_file():
        reason = f"{escaped(source)} is a text file, which has no tokenizer for tokenizer.kind vectors"
    if reason:
        raise _located(("embedding", "vectors"), reason, origins)


_OF_LINEAR = (
    *("metric", "thresholds", "class_weights", "score_test", "refit", "linear_baseline", "keep_texts"),
    *("teacher", "teacher_run", "teacher_weight"),
)
"""The keys of `finetuning` that have an effect without an encoder."""


def is_for_encoder(path: KeyPath) -> bool:
    """Return whether a key of a preset has no effect without an encoder."""
    if path[0] == "finetuning":
        return path[1:2] != () and path[1] not in _OF_LINEAR
    sections = ("pretraining", "tokenizer", "embedding", "pooling", "pair_pooling")
    return (
        path[0] in sections or path == ("data", "max_length") or (path[0] == "encoder" and path != ("encoder", "name"))
    )


def _check_linear(preset: Preset, origins: Mapping[KeyPath, str], name: str, section: str | None) -> None:
    """Raise UsageError if a preset without an encoder is to be pre-trained, or is given a key of an encoder's training.

    What a file sets besides has no effect.
    """
    linear = f"{escaped(name)} is a linear model without an encoder"
    if section == "pretraining":
        raise UsageError(f"--preset: {escaped(name)} has no encoder to pretrain; `recur finetune` trains it")
    for path, origin in origins.items():
        if origin.startswith(("--", "settings")) and is_for_encoder(path):
            raise _located(path, f"{linear}, so this key has no effect; leave it out", origins)
    if preset.ensemble != "linear":
        raise _located(("ensemble",), f"must be linear: {linear}", origins)


def _check_supervised(preset: Preset, origins: Mapping[KeyPath, str], encoder: str, task: str) -> None:
    """Raise UsageError if not each position can learn the label of the tokens so far, as `finetuning.supervise` asks."""
    pair = causal_key(encoder)
    if not TASKS[task].labels_prefixes:
        able = ", ".join(name for name, each in TASKS.items() if each.labels_prefixes)
        reason = f"the rows of {escaped(task)} have no labels of prefixes; those of these tasks have: {able}"
    elif pair is None or preset.encoder[pair[0]] is not pair[1]:
        way = "take a causal encoder" if pair is None else f"set encoder.{pair[0]}={str(pair[1]).lower()}"
        reason = f"a position must not see later ones; {way}"
    elif preset.pooling != "last":
        reason = f"the last state must be what is scored, and pooling is {preset.pooling}; set pooling=last"
    else:
        return
    raise _located(("finetuning", "supervise"), f"every: {reason}", origins)


def _make_causal(merged: dict[str, Any], origins: dict[KeyPath, str], encoder: str) -> None:
    """Set the encoder's key `causal` or `bidirectional` and the learning rate for the causal objective of pre-training.

    The key is set for fine-tuning too, so that `--init` fits. A rate in the encoder's file is for masked tokens, so
    CAUSAL_LEARNING_RATE replaces it. Raises UsageError for an encoder that cannot be causal, and if the key was given another
    value.
    """
    section, objective = merged.get("pretraining"), ("pretraining", "objective")
    if not isinstance(section, dict) or section.get("objective") != "causal":
        return
    found = causal_key(encoder)
    if found is None:
        able = ", ".join(name for name in sorted(ENCODERS) if causal_key(name))
        what = "a linear model on n-grams" if encoder == LINEAR else f"the encoder {encoder}"
        raise _located(objective, f"{what} cannot be causal; these encoders can: {able}", origins)
    key, value = found
    if ("encoder", key) in origins and merged["encoder"].get(key) is not value:
        given = str(merged["encoder"].get(key)).lower()
        reason = f"is {given}, but pretraining.objective causal needs {str(value).lower()}; leave one of them out"
        raise _located(("encoder", key), reason, origins)
    merged["encoder"][key] = value
    cause, rate = "pretraining.objective causal", ("pretraining", "learning_rate")
    origins.setdefault(("encoder", key), cause)
    if rate in origins and origins[rate].startswith(f"presets/encoders/{encoder}.yaml:"):
        section["learning_rate"], origins[rate] = CAUSAL_LEARNING_RATE, cause


_OF_FOLDER = ("hidden_size", "num_layers", "max_length")
_WITHOUT_EFFECT = re.compile(r"tokenizer(\..*)?|embedding\.(vectors|freeze|orthonormal|scaled)")


def _use_folder(merged: dict[str, Any], origins: dict[KeyPath, str], section: str | None) -> None:
    """Set the keys of the encoder that the folder `encoder.path` gives; second texts are marked if its encoder knows two.

    Raises UsageError if a training names no folder, for other sizes, and for a key that the folder leaves no effect.
    ModelError: the folder is none of an encoder.
    """
    values, path = merged["encoder"], merged["encoder"].get("path")
    for key, origin in origins.items():
        if origin.startswith("--set") and _WITHOUT_EFFECT.fullmatch(".".join(key)):
            raise _located(key, "the folder's tokens and vectors are used, so this key has no effect", origins)
    if path is None:
        if section is not None:
            raise UsageError(
                "encoder.path names no model; add --set encoder.path=FOLDER, in Hugging Face's layout, or a name on its Hub"
            )
        return
    if section is not None:
        require_extra("hf", "the encoder pretrained", "transformers")
    folder = folder_of(str(path), download=section is not None)
    found = read_folder(folder)
    for size in _OF_FOLDER:
        if values.get(size) not in (None, found[size]):
            reason = f"is {escaped(values[size])}, but {path} has {found[size]}; leave it out"
            raise _located(("encoder", size), reason, origins)
    values.update(found)
    segments = ("embedding", "segments")
    if found["architecture"].get("type_vocab_size", 0) < 2 and not origins.get(segments, "").startswith("--set"):
        merged["embedding"]["segments"] = False
        origins[segments] = "encoder.path"


def is_file_name(name: str) -> bool:
    """Return whether `--preset name` names a file, and not one of recur's presets."""
    return "/" in name or name.endswith((".yaml", ".yml"))


def _chain(name: str, seen: tuple[str, ...] = ()) -> list[Layer]:
    """Return the layers of `name`: those of the presets that it extends, then its own keys."""
    with suppress(OSError):  # a name may be too long for a path
        if (Path(name).expanduser() / "preset.yaml").is_file():
            raise UsageError(f"{escaped(name)}: is a run, not a preset; did you mean '{escaped(name)}/preset.yaml'?")
    path = Path(name).expanduser() if is_file_name(name) else preset_file(name)
    if path is None:
        return [_split_name(name)]
    layer = _file_layer(path)
    parent = layer.values.pop("extends", None)
    if parent is None:
        return [layer]
    at = layer.origins.pop(("extends",))
    if not isinstance(parent, str):
        raise UsageError(f"{at}: extends: one preset's name or path, not {escaped(repr(parent), 40)}")
    if str(path) in seen or len(seen) > 16:
        raise UsageError(f"{at}: extends: goes round in a circle: {' > '.join([*seen, str(path)])}")
    if is_file_name(parent):
        parent = str(path.parent / Path(parent).expanduser())
    try:
        return [*_chain(parent, (*seen, str(path))), layer]
    except UsageError as error:
        raise UsageError(f"{at}: extends: {error}" if parent not in seen else str(error)) from None


def _split_name(name: str) -> Layer:
    """`<encoder>-<task>`. Raises UsageError with the nearest preset for another name."""
    names = preset_names()
    pairs = {f"{encoder}-{task}": (encoder, task) for encoder in names["encoders"] for task in names["tasks"]}
    if name in pairs:
        origin, (encoder, task) = f"preset {name}", pairs[name]
        return Layer({"task": task, "encoder": {"name": encoder}}, {("task",): origin, ("encoder", "name"): origin})
    whole = next((pair for pair in (f"{name}-custom", f"starsaber-{name}") if pair in pairs), None)
    hint = did_you_mean(name, [*names["presets"], *chain(*paper_presets().values()), *pairs])
    meant = f"; did you mean '{whole}'?" if whole else hint or "; `recur presets` lists them"
    raise UsageError(f"no preset '{escaped(name)}'{meant}")


def _choices(layers: Sequence[Layer], name: str) -> tuple[str, str]:
    """Return the task and the encoder of the merged layers. Raises UsageError if one is missing or unknown."""
    merged, origins = merge(layers)
    values, names = dict(flatten(merged)), preset_names()
    for path, kind in ((("task",), "task"), (("encoder", "name"), "encoder")):
        value, known = values.get(path), names[f"{kind}s"]
        if value is None:
            raise UsageError(f"preset {escaped(name)}: does not say its {'.'.join(path)}; known: {', '.join(known)}")
        if value not in known:
            raise _located(path, f"no {kind} '{escaped(value)}'" + did_you_mean(str(value), known), origins)
    return values[("task",)], values["encoder", "name"]


def _file_layer(path: Path) -> Layer:
    values, lines = read_mapping(path)
    folder = preset_folder()
    shown = f"presets/{path.relative_to(folder)}" if path.is_relative_to(folder) else str(path)
    _make_absolute(values, path.parent)
    return Layer(values, {key: f"{shown}:{line}" for key, line in lines.items()})


def _parse_setting(setting: str) -> tuple[str, KeyPath, Any]:
    """Return the origin, the key and the value of `--set KEY=VALUE`.

    The value is one in YAML, or the text as it is for a key that holds a string. Such a key is a string still in quotes, a list
    or a number if it may hold one, and null if it may be null.
    """
    key, equals, text = setting.partition("=")
    origin, path, given = f"--set {key.strip()}", tuple(key.strip().split(".")), text.strip()
    if not equals or not all(path):
        raise UsageError(f"--set {escaped(setting)}: is not KEY=VALUE, such as finetuning.epochs=3")
    members = type_members(path)
    is_list = given.startswith("[") and tuple in members
    if str not in members or is_list or (given[:1] in ("'", '"') and given[:1] == given[-1:]):
        return origin, path, parse_value(text, f"--set {escaped(setting)}")
    if given in ("", "~", "null", "Null", "NULL") and type(None) in members:
        return origin, path, None
    is_number = int in members and re.fullmatch(r"0|[1-9][0-9]{0,17}", given)
    return origin, path, int(given) if is_number else given


def _set(layer: Layer, source: str, path: KeyPath, value: Any) -> None:
    """Set the key `path` of `layer`, which the option `source` gives; a file's path is relative to the current folder."""
    layer.origins[path] = source
    for part in reversed(path):
        value = {part: value}
    _make_absolute(value, Path.cwd())
    _merge_into(layer.values, value)
    layer.origins.update(dict.fromkeys(dict(flatten(value)), source))


_SUFFIX = re.compile(r"\.[a-z]+$")
"""The end of a file's name; a model on the Hub may end in .5M."""


def _make_absolute(values: dict[str, Any], folder: Path) -> None:
    """Make the paths in `values` absolute, relative to `folder`: that of the file, or the current one for options."""
    for section, key in _PATHS:
        holder = values.get(section)
        if isinstance(holder, dict) and isinstance(holder.get(key), str):
            if key == "vectors" and re.split("==|@", holder[key])[0] in (REQUIRED_VECTORS, "auto", "wordllama"):
                continue  # no file
            is_name = holder[key][:1] not in "./~" and not (folder / holder[key]).exists()
            if is_name and (section == "encoder" or (key == "vectors" and not _SUFFIX.search(holder[key]))):
                continue  # a package, or a name on the Hub
            holder[key] = str((folder / Path(holder[key]).expanduser()).absolute())


def _located(path: KeyPath, reason: str, origins: Mapping[KeyPath, str]) -> UsageError:
    """Return the error for an invalid key. It names the file and line of the key, or of the innermost section that has them."""
    fault = InvalidConfig(path, reason)
    for length in range(len(path), 0, -1):
        if origin := origins.get(path[:length]):
            return UsageError(f"{origin}: {reason if origin == '--set ' + '.'.join(path) else fault}")
    return fault
