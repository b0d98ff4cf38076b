"""A preset is composed of layers, later ones win, and every fault names its file and line."""

import re
from pathlib import Path
from typing import Any, Literal

import pytest
from cases import slow_but

from recurcli.encoders.registry import causal_key, encoder_class
from recurcli.errors import UsageError
from recurcli.metrics import METRICS
from recurcli.preset import compose, paper_presets, preset_folder, preset_names
from recurcli.validation import MAX_BYTES, dump, read_mapping


def write(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("encoder", "task"),
    [
        pytest.param(encoder, task, marks=[] if encoder == "starsaber" or task == "custom" else pytest.mark.slow)
        for encoder in preset_names()["encoders"]
        for task in preset_names()["tasks"]
    ],
)
def test_every_encoder_composes_with_every_task(encoder: str, task: str) -> None:
    if task == "ptb" and causal_key(encoder) is None:
        with pytest.raises(UsageError, match=rf"(the encoder {encoder}|a linear model on n-grams) cannot be causal"):
            compose(f"{encoder}-{task}")
        return
    resolved = compose(f"{encoder}-{task}")
    assert resolved.preset.task == task
    assert resolved.preset.encoder["name"] == encoder


OF_PAPERS = [name for names in paper_presets().values() for name in names]
VECTORS = [name for name in OF_PAPERS if name.endswith("-vectors")]


@pytest.mark.parametrize(
    "name", slow_but([*preset_names()["presets"], OF_PAPERS[0]], [*preset_names()["presets"], *OF_PAPERS])
)
def test_every_preset_file_composes(name: str) -> None:
    assert compose(name).name == name


def test_no_two_presets_have_one_name() -> None:
    names = [path.stem for path in (*preset_folder().glob("*.yaml"), *preset_folder().glob("papers/*/*.yaml"))]
    assert sorted(names) == sorted(set(names))
    assert {*paper_presets()} & {*names, *preset_names()["presets"]} == set()


def test_later_layers_win_and_every_value_knows_where_it_comes_from(tmp_path: Path) -> None:
    parent = write(tmp_path / "parent.yaml", "extends: starsaber-tnews\nfinetuning:\n  epochs: 7\n  patience: 2\n")
    child = write(tmp_path / "child.yaml", "extends: parent.yaml\nfinetuning:\n  epochs: 8\n")
    resolved = compose(child, data="somewhere", settings=["finetuning.patience=1"])
    assert resolved.preset.finetuning.epochs == 8
    assert resolved.preset.finetuning.patience == 1
    assert resolved.preset.data.path == str(Path.cwd() / "somewhere")
    origins = {key: origin for key, _, origin in resolved.rows()}
    assert origins["finetuning.epochs"] == f"{child}:3"
    assert origins["finetuning.patience"] == "--set finetuning.patience"
    assert origins["data.path"] == "--data"
    assert origins["data.max_length"].startswith("presets/tasks/tnews.yaml:")
    assert origins["finetuning.weight_decay"] == "default"
    assert parent in {str(tmp_path / "parent.yaml")}


def test_set_changes_the_encoder_and_its_own_file_is_read() -> None:
    resolved = compose("starsaber-tnews", settings=["encoder.name=rezero", "task=afqmc"])
    assert resolved.preset.encoder["num_heads"] > 0
    assert resolved.preset.task == "afqmc"


def test_the_preset_of_a_run_repeats_it_and_is_named_by_encoder_and_task(tmp_path: Path) -> None:
    first = compose("starsaber-afqmc", settings=["finetuning.learning_rate=1e-4", "tokenizer.vocab_size=77"])
    again = compose(write(tmp_path / "preset.yaml", dump(first.preset.to_dict())))
    assert (again.preset, again.name) == (first.preset, "starsaber-afqmc")


def test_paths_in_a_file_are_meant_from_that_file(tmp_path: Path) -> None:
    text = fault("embedding: {vectors: words.txt}", "finetuning: {teacher: soft.tsv}")
    preset = compose(write(tmp_path / "x.yaml", text)).preset
    assert preset.embedding.vectors == str(tmp_path / "words.txt")
    assert preset.finetuning.teacher == str(tmp_path / "soft.tsv")


@pytest.mark.parametrize("section", ["pretraining", "finetuning"])
@pytest.mark.parametrize("name", slow_but([VECTORS[0]], VECTORS))
def test_a_preset_for_word_vectors_needs_their_file(name: str, section: Literal["pretraining", "finetuning"]) -> None:
    assert compose(name).preset.embedding.vectors == "required"
    with pytest.raises(UsageError, match=r"vectors.yaml:\d+: embedding.vectors: .* --set embedding.vectors=FILE"):
        compose(name, section=section)
    preset = compose(name, settings=["embedding.vectors=required/x.txt"], section=section).preset
    assert (preset.embedding.vectors, preset.embedding.freeze) == (str(Path.cwd() / "required/x.txt"), True)


@pytest.mark.parametrize("task", slow_but(["ptb"], ["ptb", "custom"]))
def test_one_rule_gives_the_rate_of_a_causal_training(task: str) -> None:
    """The rate in an encoder's file is for masked tokens; null is its class's rate, 1e-3 but for the truncated ones."""
    able = [name for name in preset_names()["encoders"] if causal_key(name)]
    causal = [] if task == "ptb" else ["pretraining.objective=causal"]
    rates = {name: compose(f"{name}-{task}", settings=causal).preset.pretraining.learning_rate for name in able}
    own = {name for name in able if compose(f"{name}-tnews").preset.pretraining.learning_rate is not None}
    assert {"transformer", "orthogonal-transformer", "rsa", "transformer-xl"} <= own
    assert {name: rate for name, rate in rates.items() if name in own} == dict.fromkeys(own, 1e-3)
    for name in set(able) - own:
        assert rates[name] is None and encoder_class(name).scratch_learning_rate in (1e-3, 3e-3), name
    given = compose(f"transformer-{task}", settings=[*causal, "pretraining.learning_rate=0.002"]).preset
    assert given.pretraining.learning_rate == 0.002
    assert compose("transformer-tnews").preset.pretraining.learning_rate == 1e-4


def test_exponents_are_numbers_and_no_is_a_word(tmp_path: Path) -> None:
    values, lines = read_mapping(Path(write(tmp_path / "x.yaml", "a: 1e-4\nb: no\nc: [3, 0.5, true, ~]\nd:\n  e: 2\n")))
    assert values == {"a": 1e-4, "b": "no", "c": [3, 0.5, True, None], "d": {"e": 2}}
    assert lines[("d", "e")] == 5


def test_an_encoder_has_every_key_of_its_config_and_its_file_only_what_differs() -> None:
    import dataclasses

    from recurcli.encoders import ENCODERS

    for name, entry in ENCODERS.items():
        values, _ = read_mapping(preset_folder() / "encoders" / f"{name}.yaml")
        defaults = {field.name: field.default for field in dataclasses.fields(entry.config)}
        assert set(compose(f"{name}-tnews").preset.encoder) == defaults.keys() | {"name"}, name
        assert not [key for key, value in values["encoder"].items() if defaults.get(key, "none") == value], name


def test_the_schema_knows_every_key_and_describes_it() -> None:
    from recurcli.config import json_schema

    schema = json_schema()
    assert schema["additionalProperties"] is False
    names = schema["$defs"]["FinetuningConfig"]["properties"]["metric"]["pattern"]
    assert all(re.fullmatch(names, name) for name in (*METRICS, "roc_auc", "f1:a")) and not re.fullmatch(names, "f1:")
    for name, definition in schema["$defs"].items():
        for key, facts in definition["properties"].items():
            assert facts.get("description"), f"{name}.{key} has no description"


def fault(*settings: str) -> str:
    """A preset whose second line, and those after it, are `settings`."""
    return "extends: starsaber-tnews\n" + "\n".join(settings) + "\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (fault("finetunning: {epochs: 3}"), ":2: finetunning: unknown key; did you mean 'finetuning'?"),
        (fault("finetuning:", "  epoch: 3"), ":3: finetuning.epoch: unknown key; did you mean 'fin"),
        (fault("encoder:", "  num_head: 3"), ":3: encoder.num_head: the encoder starsaber has no such key"),
        (fault("finetuning: {epochs: '3'}"), ":2: finetuning.epochs: '3' should be a valid integer"),
        (fault("finetuning: {epochs: 0}"), ":2: finetuning.epochs: 0 should be greater than 0 or"),
        (fault("finetuning: {beta1: .nan}"), ":2: finetuning.beta1: nan should be a finite number"),
        (fault("finetuning: {loss: hing}"), ":2: finetuning.loss: 'hing' should be 'hinge' or"),
        (fault("finetuning: {metric: f1}"), ":2: finetuning.metric: must be one of auto, accuracy"),
        (fault("finetuning:", "  class_weights: {a: 0}"), ":3: finetuning.class_weights.a: 0 should"),
        (fault("embedding: linear"), ":2: embedding: 'linear' should be a mapping"),
        ("task: tnews\npooling: max\npooling: mean\n", ":3: the key 'pooling' stands here and in line 2"),
        ("extends: starsaber-tnew\n", ":1: extends: no preset 'starsaber-tnew'; did you mean 'starsaber-tnews'?"),
        ("extends: x.yaml\n", "extends: goes round in a circle"),
        ("encoder: {name: starsaber}\n", "does not say its task"),
        ("task: tnewz\nencoder: {name: starsaber}\n", ":1: task: no task 'tnewz'; did you mean 'tnews'?"),
        ("- 1\n- 2\n", ":1: a preset is a mapping"),
        ("a: [1\n", "expected ',' or ']'"),
        ("1: 2\n", ":1: a key is a word"),
    ],
)
def test_a_fault_names_file_line_and_way_out(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=rf"x\.yaml.*{re.escape(message)}"):
        compose(write(tmp_path / "x.yaml", text))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("starsaber-tnew", "no preset 'starsaber-tnew'; did you mean 'starsaber-tnews'?"),
        ("starsaber", "no preset 'starsaber'; did you mean 'starsaber-custom'?"),
        ("tnews", "no preset 'tnews'; did you mean 'starsaber-tnews'?"),
        ("rsa-custm", "; did you mean 'rsa-custom'?"),
        ("zzz", "no preset 'zzz'"),
        ("../etc/passwd", "../etc/passwd: cannot be read"),
        ("missing.yaml", "missing.yaml: cannot be read"),
        ("base", "no preset 'base'"),
    ],
)
def test_a_name_that_nobody_has(name: str, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        compose(name)


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("finetuning.lr", "'finetuning.learning_rate'"),
        ("encoder.d_model", "'encoder.hidden_size'"),
        ("seed", "'runtime.seed'"),
        ("lr", "'finetuning.learning_rate' or 'pretraining.learning_rate'"),
        ("num_layers", "'encoder.num_layers'"),
        ("finetuning.num_layers", "'encoder.num_layers'"),
        ("encoder.patience", "'finetuning.patience' or 'pretraining.patience'"),
        ("max_lenght", "'data.max_length' or 'encoder.max_length'"),
        ("embedding.dropot", "'embedding.dropout'"),
    ],
)
def test_an_unknown_key_is_told_the_one_that_was_meant(key: str, meant: str) -> None:
    with pytest.raises(UsageError, match=rf"^--set {re.escape(key)}: .*; did you mean {meant}\?$"):
        compose("rezero-tnews", settings=[f"{key}=1"])


@pytest.mark.parametrize("setting", ["finetuning.epochs", "=3", ".=3", "finetuning..epochs=3"])
def test_a_setting_that_is_none(setting: str) -> None:
    with pytest.raises(UsageError, match="is not KEY=VALUE"):
        compose("starsaber-tnews", settings=[setting])


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.slow)])
def test_ten_thousand_labels_are_written_and_read_back(count: int, tmp_path: Path) -> None:
    labels = [f"label number {number:>20}" for number in range(count)]
    own = {"extends": "starsaber-custom", "data": {"labels": labels}}
    resolved = compose(write(tmp_path / "x.yaml", dump(own)))
    assert compose(write(tmp_path / "y.yaml", dump(resolved.preset.to_dict()))).preset == resolved.preset


def test_a_preset_that_could_not_be_read_back_is_refused(tmp_path: Path) -> None:
    labels = ", ".join(f"label{number:0515}" for number in range(1_000))  # two bytes beside a label; four in a block
    path = write(tmp_path / "x.yaml", f"extends: starsaber-custom\ndata: {{labels: [{labels}]}}\n")
    assert Path(path).stat().st_size < MAX_BYTES
    with pytest.raises(UsageError, match="and at most 524,288 are read"):
        compose(path)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("data.text=#1 String", "#1 String"),
        ("data.text= a: b ", "a: b"),
        ("data.text=true", "true"),
        ("data.text=2", 2),
        ("data.text=007", "007"),
        ("data.text='2'", "2"),
        ("data.text=[a, 2]", ("a", 2)),
        ("data.text=null", None),
        ("data.id=[a]", "[a]"),
        ('data.delimiter=";"', ";"),
        ("data.delimiter=|", "|"),
        ("data.files.dev=#dev.csv", "#dev.csv"),
        ("data.max_length=auto", "auto"),
        ("finetuning.epochs=3", 3),
    ],
)
def test_a_key_that_holds_a_string_takes_the_text_as_it_is(setting: str, value: object) -> None:
    section, key, *more = setting.partition("=")[0].split(".")
    found = getattr(getattr(compose("starsaber-custom", settings=[setting]).preset, section), key)
    assert (found[more[0]] if more else found) == value


def test_a_run_in_place_of_a_preset_is_told_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "runs" / "x").mkdir(parents=True)
    (tmp_path / "runs" / "x" / "preset.yaml").write_text("")
    monkeypatch.chdir(tmp_path / "runs")
    for name in (tmp_path / "runs" / "x", "../runs/x", "x"):
        with pytest.raises(UsageError, match=f"; did you mean '{name}/preset.yaml'"):
            compose(str(name))


@pytest.mark.parametrize(
    ("settings", "path", "files"),
    [
        ([], "/d", {"train": "/a", "dev": "/b", "test": "t.csv"}),
        (["data.path=/e"], "/e", {"test": "t.csv"}),
        (["data.path=/e", "data.files.dev=/c"], "/e", {"dev": "/c", "test": "t.csv"}),
        (["data.files.dev=/c"], "/d", {"train": "/a", "dev": "/c", "test": "t.csv"}),
        (["data.files.dev=/c", "data.files.train=/x"], None, {"dev": "/c", "train": "/x"}),
        (["data.files.train=x.csv"], "/d", {"train": "x.csv", "dev": "/b", "test": "t.csv"}),
        ([f"data.path={__file__}"], __file__, None),
    ],
)
def test_other_data_replace_the_files_of_earlier_layers(
    settings: list[str], path: str | None, files: dict[str, str] | None, tmp_path: Path
) -> None:
    text = "extends: starsaber-custom\ndata:\n  path: /d\n  files: {train: /a, dev: /b, test: t.csv}\n"
    options = compose(write(tmp_path / "x.yaml", text), settings=settings).preset.data
    assert (options.path, options.files) == (path, files)
    given: dict[str, Any] = {}
    for key, _, value in (setting.removeprefix("data.").partition("=") for setting in settings):
        given |= {"files": {**given.get("files", {}), key.partition(".")[2]: value}} if "." in key else {key: value}
    child = write(tmp_path / "y.yaml", dump({"extends": "x.yaml"} | ({"data": given} if given else {})))
    assert compose(child).preset.data == options, "a preset that extends another one replaces in the same way"


def test_the_option_is_the_origin_of_what_it_replaced(tmp_path: Path) -> None:
    first = write(tmp_path / "x.yaml", "extends: starsaber-custom\ndata:\n  files: {train: /a, dev: /b}\n")
    origins = {key: (value, origin) for key, value, origin in compose(first, data="/e").rows()}
    assert origins["data.files"] == (None, "--data")


@pytest.mark.parametrize("encoder", ["linformer", "synthesizer"])
def test_an_encoder_that_cannot_read_rows_of_max_length_is_refused(encoder: str) -> None:
    reason = f"^encoder.max_length 512 is below data.max_length 600: {encoder} .*set encoder.max_length to 600 or more"
    with pytest.raises(UsageError, match=f"{reason}, or data.max_length to 512 or less"):
        compose(f"{encoder}-tnews", settings=["data.max_length=600"])
    with pytest.raises(UsageError, match=r"^encoder.max_length 63 is below data.max_length 64"):
        compose(f"{encoder}-tnews", settings=["encoder.max_length=63"])
    assert compose(f"{encoder}-tnews", settings=["encoder.max_length=64"]).preset.encoder["max_length"] == 64
    assert compose(f"{encoder}-custom").preset.data.max_length == "auto"


@pytest.mark.parametrize(
    ("preset", "settings", "reason"),
    [
        ("mingru-tnews", ["encoder.causal=true"], "the rows of tnews have no labels of prefixes; those of these tasks"),
        (
            "mingru-associative-recall",
            ["encoder.causal=true"],
            "the rows of associative-recall have no labels of prefixes",
        ),
        ("mingru-parity", [], "a position must not see later ones; set encoder.causal=true"),
        ("truncated-rnn-parity", [], "a position must not see later ones; set encoder.bidirectional=false"),
        (
            "transject-parity",
            [],
            "a position must not see later ones; take a causal encoder",
        ),
        (
            "mingru-parity",
            ["encoder.causal=true", "pooling=mean"],
            "the last state must be what is scored, and pooling is",
        ),
        (
            "mingru-parity",
            ["encoder.causal=true", "finetuning.word_dropout=0.1"],
            "supervise: must be last with word_dropout",
        ),
    ],
)
def test_labels_of_prefixes_are_refused_where_there_are_none(preset: str, settings: list[str], reason: str) -> None:
    with pytest.raises(UsageError, match=re.escape(reason)):
        compose(preset, settings=["finetuning.supervise=every", *settings])
    compose("mingru-parity", settings=["finetuning.supervise=every", "encoder.causal=true"])
