"""A file of a run that is damaged, forged or foreign: the command that reads it names it in one line and writes nothing.

A row of ATTACKS is a file, what is done to it, the word of the line, and the commands that must refuse it. All open a run by
the same function, so that most attacks are tried with `eval` alone.
"""

import copy
import functools
import itertools
import json
import math
import os
import pickle
import random
import re
import shutil
import struct
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from hostile_contents import EVIL, SAFETENSORS, TOKENIZERS, YAML
from running import Recur, handlers_kept
from safetensors.torch import load_file, save_file
from small_runs import AtOpen, copy_of, kept_of, options, reweighted

from recurcli.commands.comparison.collect import collect
from recurcli.commands.comparison.groups import baselines, group_runs
from recurcli.config import FORMAT_VERSION
from recurcli.display.screen import print_training
from recurcli.errors import ModelError
from recurcli.evaluation.predictor import Predictor
from recurcli.files import MANIFEST, extend_manifest, to_json, write_atomically, write_manifest
from recurcli.runs.predictions import read_predictions, read_texts
from recurcli.runs.run_directory import KNOWN_ROWS, NETWORK_FILES, REQUIRED_FILES, Run, RunDirectory, open_run

Change = Callable[[Path], object]
"""What is done to the folder of a run."""
WEIGHTS, OPTIMIZER = "model.safetensors", "checkpoints/*/optimizer.safetensors"
EVAL = ("eval",)
PRESET_READERS = ("eval", "presets", "init", "resume")
COMMANDS = ("eval", "predict", "export", "init")
CODES = {"presets": 2}
"""The exit code of a command that reads a preset, which is no run; all others end with 4."""
MAX_SECONDS = 20
"""CPU time that no attack may take."""
SIZES = {"hidden_size": 16, "num_layers": 2}
ANOTHER = f"has format version {{}}; this recur reads {FORMAT_VERSION}: train the run again"


class Attack(NamedTuple):
    file: str | None
    """What the line names, below the run; "" is the run itself, and None is nothing of it."""
    change: Change
    word: str = ""
    commands: tuple[str, ...] = EVAL


def damaged(name: str, change: Callable[[bytes], bytes]) -> Change:
    """Another content of a file that the manifest still lists as it was."""
    return lambda run: (run / name).write_bytes(change((run / name).read_bytes()))


def forged(name: str, content: str | bytes | Callable[[bytes], bytes]) -> Change:
    """Another content of a file, and a manifest that fits."""

    def change(run: Path) -> None:
        found = content((run / name).read_bytes()) if callable(content) else content
        (run / name).write_bytes(found.encode() if isinstance(found, str) else found)
        extend_manifest(run, name)

    return change


def as_it_is(name: str, content: bytes) -> Change:
    """Another content of a file."""
    return lambda run: (run / name).write_bytes(content)


def edited(name: str, change: Callable[[Any], Any]) -> Change:
    """Another value in a JSON file, and a manifest that fits."""
    return forged(name, lambda whole: json.dumps(change(json.loads(whole))).encode())


def config(word: str, **keys: object) -> Attack:
    return Attack("", edited("config.json", lambda found: {**found, **keys}), word)


def network(word: str, **keys: object) -> Attack:
    """Other keys in the network of a run."""
    change = edited("config.json", lambda found: {**found, "network": {**found["network"], **keys}})
    return Attack("", change, word)


def source(word: str, **keys: object) -> Attack:
    """Other keys in the source of the training rows."""
    return Attack("", edited("config.json", lambda found: {**found, "source": {**found["source"], **keys}}), word)


def encoder(word: str, **keys: Any) -> Attack:
    """Other keys in the encoder of a run."""

    def with_keys(found: dict[str, Any]) -> dict[str, Any]:
        own = found["network"]
        return {**found, "network": {**own, "encoder": {**own["encoder"], **keys}}}

    return Attack("", edited("config.json", with_keys), word)


def result(word: str, commands: tuple[str, ...] = ("compare",), **keys: Any) -> Attack:
    """Other keys in a result, those of its dev scores too."""
    change = edited("result.json", lambda found: {**found, **keys, "dev": {**found["dev"], **keys.get("dev", {})}})
    return Attack("result.json", change, word, commands)


def embedding(word: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Attack:
    """Another tensor as the embedding."""
    return Attack(WEIGHTS, tensors(WEIGHTS, "embedding.weight", change), f"embedding.weight has {word}")


def tensors(file: str, name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Change:
    """Another tensor in a file of a run, or of its newest checkpoint."""

    def changed(run: Path) -> None:
        path = max(run.glob(file))
        found = load_file(path)
        save_file({**found, name: change(found[name]).contiguous()}, path)
        extend_manifest(path.parent, path.name)

    return changed


class Trap:
    """Unpickled it leaves a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        return Path.touch, (self.path,)


def pickled(save: Callable[[Any, Path], object]) -> Attack:
    """A trap in the place of the weights."""

    def change(run: Path) -> None:
        save({"x": Trap(run.parent / "opened")}, run / WEIGHTS)
        extend_manifest(run, WEIGHTS)

    return Attack(WEIGHTS, change, "is not a safetensors file")


def missing(name: str) -> Attack:
    return Attack(name, lambda run: (run / name).unlink(), "is missing")


def replaced(name: str, make: Callable[[Path], object], word: str = "is not a plain file") -> Attack:
    """Something else in the place of a file."""

    def change(run: Path) -> None:
        (run / name).rename(run.parent / "elsewhere")
        make(run / name)

    return Attack(name, change, word)


def linked(name: str) -> Attack:
    return replaced(name, lambda path: path.symlink_to(path.parents[1] / "elsewhere"))


def listed(change: Callable[[list[Any]], list[Any]]) -> Change:
    """Another list of files in the manifest."""
    files = lambda whole: json.dumps({"files": change(json.loads(whole)["files"])}).encode()  # noqa: E731
    return damaged(MANIFEST, files)


def one_more(name: object) -> Change:
    """One more name in the manifest."""
    return listed(lambda files: [*files, {"name": name, "size": 1, "sha256": "0" * 64}])


def of_version(number: int, pattern: str) -> Change:
    """Files of another format version."""

    def change(run: Path) -> None:
        for path in run.glob(pattern):
            path.write_text(re.sub(rf'(format_version"?: ){FORMAT_VERSION}', rf"\g<1>{number}", path.read_text()))
            extend_manifest(path.parent, path.name)

    return change


def resumed(change: Change, word: str) -> Attack:
    """What a resume finds in a run that is not finished."""

    def changed(run: Path) -> None:
        (run / "result.json").unlink()
        change(run)

    return Attack("", changed, word, ("resume",))


def without_section(run: Path) -> None:
    """A pretrained run whose preset has no section of the pretraining."""
    folder = RunDirectory(run)
    folder.write_preset({**folder.read_preset(), "pretraining": None}, "pretrain")
    extend_manifest(run, "preset.yaml")


def preset(content: str) -> Change:
    """Another preset below the comments that make it one of a run."""
    return forged("preset.yaml", lambda whole: b"".join(whole.splitlines(keepends=True)[:2]) + content.encode())


def flip(whole: bytes) -> bytes:
    return whole[: len(whole) // 2] + bytes([whole[len(whole) // 2] ^ 1]) + whole[len(whole) // 2 + 1 :]


ODD_NAMES = (EVIL, "x" * 300, "\0", "\ud800", "..", ".", "", "a/b", "/etc/passwd", "../../x", MANIFEST, 7, None)
COVERED = ("predictions.dev.jsonl", "linear.safetensors", "kept.json")
MOMENT = "exp_avg_sq/embedding.weight"
MANIFESTS = {
    "half of JSON": b"{",
    "a list": b"[]",
    "a file without a size": b'{"files": [{"name": "config.json"}]}',
    "brackets without end": b"[" * 100_000,
}
ATTACKS: dict[str, Attack] = {
    **{
        f"a flip in {name}": Attack(name, damaged(name, flip), "is damaged", (*COMMANDS, "compare"))
        for name in (WEIGHTS, "config.json")
    },
    **{
        f"a flip in {name}": Attack(name, damaged(name, flip), "is damaged")
        for name in ("tokenizer.json", "result.json", *COVERED)
    },
    **{f"no {name}": missing(name) for name in (*REQUIRED_FILES, *NETWORK_FILES, *COVERED, "preset.yaml")},
    **{f"a link to {name}": linked(name) for name in (*REQUIRED_FILES, *NETWORK_FILES)},
    "a pipe for the weights": replaced(WEIGHTS, os.mkfifo),
    "a folder for the weights": replaced(WEIGHTS, Path.mkdir),
    "a pipe for the manifest": replaced(MANIFEST, os.mkfifo)._replace(file="", word="has no complete model yet"),
    "no manifest": Attack("", lambda run: (run / MANIFEST).unlink(), "has no complete model yet", COMMANDS),
    "a flip in the manifest": Attack("", damaged(MANIFEST, flip)),
    **{
        f"{name} for the manifest": Attack(MANIFEST, as_it_is(MANIFEST, content), "is damaged")
        for name, content in MANIFESTS.items()
    },
    "a manifest of 2 MB": Attack(MANIFEST, damaged(MANIFEST, lambda whole: whole + b" " * (2 << 20)), "is larger than"),
    "an empty manifest": Attack(MANIFEST, listed(lambda files: []), "does not list"),
    "a manifest without the hashes of rows": Attack(
        MANIFEST, listed(lambda files: [file for file in files if file["name"] != KNOWN_ROWS]), "does not list"
    ),
    **{f"{name!r:.20} in the manifest": Attack(None, one_more(name)) for name in ODD_NAMES},
    **{
        f"{name} for the weights": Attack(WEIGHTS if word[:3] != "hid" else "", forged(WEIGHTS, content), word)
        for name, (content, word) in SAFETENSORS.items()
    },
    **{
        f"{name} for the linear model": Attack("linear.safetensors", forged("linear.safetensors", content), word)
        for name, (content, word) in itertools.islice(SAFETENSORS.items(), 3)
    },
    "half of the weights": Attack(WEIGHTS, forged(WEIGHTS, lambda whole: whole[: len(whole) // 2]), "is damaged"),
    "a hundred bytes of the weights": Attack(
        WEIGHTS, forged(WEIGHTS, lambda whole: whole[:100]), "is not a safetensors file"
    ),
    "a header beyond the file": Attack(
        WEIGHTS, forged(WEIGHTS, lambda whole: struct.pack("<Q", 1 << 40) + whole[8:]), "is not a safetensors file"
    ),
    "a pickle": pickled(lambda trap, path: path.write_bytes(pickle.dumps(trap))),
    "a pickle of torch": pickled(torch.save),
    "an old pickle of torch": pickled(functools.partial(torch.save, _use_new_zipfile_serialization=False)),
    "weights in double precision": embedding("dtype torch.float64, but must have torch.float32", torch.Tensor.double),
    "weights that are integers": embedding("dtype torch.int64", torch.Tensor.long),
    "weights of eight bits": embedding("dtype torch.float8_e4m3fn", lambda x: x.to(torch.float8_e4m3fn)),
    "weights that are not finite": embedding("values that are not finite", lambda x: x * math.nan),
    "weights of another shape": embedding("the shape", torch.Tensor.flatten),
    **{
        f"{name} for the tokenizer": Attack(
            "tokenizer.json" if word[:3] != "the" else "", forged("tokenizer.json", content), word
        )
        for name, (content, word) in TOKENIZERS.items()
    },
    "a model of others": config("is not the config.json of a recur model", model_type="bert"),
    "an unknown encoder": encoder("unheard-of", name="unheard-of"),
    "another encoder": network("belongs to another architecture", encoder={**SIZES, "name": "rezero"}),
    "an unknown key": encoder("x: unknown key", x=1),
    "a size that is text": encoder("hidden_size", hidden_size="16"),
    "an encoder without a size": network("hidden_size", encoder={"name": "starsaber"}),
    "an encoder that is a list": network("encoder", encoder=[]),
    "99 layers": encoder("belongs to another architecture", num_layers=99),
    **{f"a size of 10^{n}": encoder("/config.json: ", hidden_size=10**n) for n in (6, 9, 18, 19, 400)},
    "an unknown kind of label": config("target 'rank' is unknown", target={"kind": "rank"}),
    "no source": config("is damaged: source: ", source={}),
    "a source that is a number": config("source", source=3),
    "a source without a text": source("source: columns: must name a text", columns={"text": []}),
    "a source of two delimiters": source("source: delimiter: must be one character", format="csv", delimiter=";;"),
    "a source of an unknown encoding": source("source: encoding: 'latin1x' is not known", encoding="latin1x"),
    "a label that is missing": config("is damaged", id2label={"0": "100", "2": "101"}),
    "a label twice": config("labels: must differ", id2label={"0": "a", "1": "a"}),
    "two labels of 15": config("network.num_classes must be 2, the number of labels", id2label={"0": "a", "1": "b"}),
    "a vocabulary of 10^9": network("the tokenizer does not fit the model", vocab_size=10**9),
    "no length": network("max_length", max_length=0),
    "an empty result": Attack("result.json", forged("result.json", b"{}"), "is damaged", ("compare", "resume")),
    "seconds that are a list": result("is damaged: cpu_seconds is [1]", cpu_seconds=[1]),
    "a score of somebody else": result("its macro F1 is 0.8750, but its predictions give", dev={"macro_f1": 0.875}),
    **{
        f"{name} for the preset": Attack("preset.yaml", preset(content), word, PRESET_READERS[:3])
        for name, (content, word) in YAML.items()
    },
    "laughs for each command": Attack("preset.yaml", preset(YAML["laughs"][0]), YAML["laughs"][1], PRESET_READERS),
    **{
        f"{content!r} for the preset": Attack("preset.yaml", preset(content))
        for content in ("data: [1]\n", "data: {max_length: 1}\n", "data:\n  path: 3\n")
    },
    "a preset without a section": Attack("preset.yaml", without_section, "no section pretraining", ("eval", "compare")),
    **{
        f"a model of format {n}": Attack("", of_version(n, "config.json"), ANOTHER.format(n), COMMANDS)
        for n in (FORMAT_VERSION - 1, 99)
    },
    "a finished run of format 3": Attack("", of_version(3, "preset.yaml"), ANOTHER.format(3), ("resume",)),
    "a begun run of format 6": resumed(of_version(6, "preset.yaml"), ANOTHER.format(6)),
    "checkpoints of format 3": resumed(of_version(3, "checkpoints/*/state.json"), ANOTHER.format(3)),
    "checkpoints without a state": resumed(
        lambda run: [path.write_text("{}") for path in run.glob("checkpoints/*/state.json")], "state.json: is damaged"
    ),
    "optimizer state of another shape": resumed(
        tensors(OPTIMIZER, MOMENT, lambda x: x[:1]), f"not fit the model: {MOMENT}"
    ),
    "optimizer state of another dtype": resumed(
        tensors(OPTIMIZER, MOMENT, torch.Tensor.int), f"not fit the model: {MOMENT}"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ATTACKS)
def test_every_command_that_reads_the_file_refuses_it(
    name: str, capfd: pytest.CaptureFixture[str], trained: Path, tiny_tnews: Path, tmp_path: Path
) -> None:
    file, change, word, commands = ATTACKS[name]
    copied = shutil.copytree if "resume" in commands else copy_of
    run, work = copied(trained, tmp_path / "run"), tmp_path / "work"
    work.mkdir()
    change(run)
    before = contents(run)
    lines: dict[str, list[object]] = {
        "eval": ["eval", run],
        "predict": ["predict", run, tiny_tnews / "test.json", "--output", work / "out"],
        "export": ["export", run, "--data", tiny_tnews, "--output", work / "clue.zip"],
        "compare": ["compare", run],
        "init": ["finetune", *options(tiny_tnews, work / "new"), "--init", run],
        "resume": ["finetune", "--preset", trained / "preset.yaml", "--output", run, "--resume", "--quiet"],
        "presets": ["presets", run / "preset.yaml"],
    }
    for command in commands:
        started = time.process_time()
        with handlers_kept():
            code, out, err = Recur(capfd)(*lines[command])  # capfd sees what a library prints, too
        assert time.process_time() - started < MAX_SECONDS
        errors = [line for line in err.splitlines() if not line.startswith("recur: warning: ")]
        assert (code, out, len(errors)) == (CODES.get(command, 4), "", 1), (command, err)
        if file is not None:
            assert errors[0].startswith(f"recur: error: {run / file}"), command
        assert word in errors[0], command
        assert not set("\x1b\x07\u202e\0") & set(err)
    assert not list(work.iterdir())
    assert not (tmp_path / "opened").exists()
    assert contents(run) == before or commands == ("resume",), "a resume sets damaged checkpoints aside"


def contents(run: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}


def test_what_is_no_finished_classifier_says_what_it_is(recur: Recur, pretrained: Path, tmp_path: Path) -> None:
    (tmp_path / "unfinished").mkdir()
    shutil.copy(pretrained / "preset.yaml", tmp_path / "unfinished")
    (tmp_path / "empty").mkdir()
    (tmp_path / "x.tsv").write_text("a\n")
    for run, reason in (
        (pretrained, "is a pretrained run without classes; `recur finetune --init`"),
        (tmp_path / "unfinished", "has no complete model yet"),
        (tmp_path / "empty", "is not a run of recur"),
        (tmp_path / "x.tsv", "is not a run directory"),
    ):
        for line in (
            ["eval", run],
            ["predict", run, tmp_path / "x.tsv"],
            ["export", run, "--output", tmp_path / "out.zip"],
        ):
            code, out, err = recur(*line)
            assert (code, out, err.count("\n")) == (4, "", 1), err
            assert str(run) in err and reason in err
    code, _, err = recur("eval", tmp_path / "empty", "--debug")
    assert (code, err.startswith("Traceback (most recent call last):")) == (4, True)


def test_a_run_of_another_format_is_replaced_on_request_alone(recur: Recur, trained: Path, tmp_path: Path) -> None:
    run = shutil.copytree(trained, tmp_path / "run")
    of_version(3, "preset.yaml")(run)
    code, _, err = recur("finetune", "--preset", trained / "preset.yaml", "--output", run)
    assert (code, "--overwrite" in err) == (2, True)


def logits(run: Path | Run) -> list[list[float]]:
    return Predictor.load(run, precision="fp32").logits(["鼠牛虎", "兔龙蛇马"]).tolist()


def test_a_run_that_is_replaced_while_it_is_read_is_never_mixed(trained: Path, tmp_path: Path) -> None:
    """Each part of the other run gives other logits: its weights, its linear model and the weights of the sum."""
    one, other = (
        shutil.copytree(trained, tmp_path / name, ignore=shutil.ignore_patterns("checkpoints"))
        for name in ("one", "other")
    )

    def put(run: Path) -> None:
        for path in [*run.with_name(f"{number}other").iterdir()]:
            path.replace(run / path.name)

    swap, seen = AtOpen(put), []
    tensors(WEIGHTS, "head.output.bias", lambda x: x + 0.25)(other)
    tensors("linear.safetensors", "weights", lambda x: x * 4)(other)
    forged("kept.json", to_json(reweighted(kept_of(one), 0.5, 3.0).to_json()))(other)
    whole = [logits(run) for run in (one, other)]
    for number in range(1, 40):
        swap.run, _ = (shutil.copytree(run, tmp_path / f"{number}{run.name}") for run in (one, other))
        swap.left = number
        try:
            seen.append(logits(swap.run))
        except ModelError as error:
            assert "is damaged (its size or sha256 is not what manifest.json says)" in str(error)
            continue
        assert seen[-1] in whole, f"a mixture, after {number} files were opened"
        if swap.left:
            break
    assert swap.left and seen[0] == whole[1] != whole[0] == seen[-1]


def test_what_is_read_is_what_was_opened_though_the_run_was_replaced_since(trained: Path, tmp_path: Path) -> None:
    run = shutil.copytree(trained, tmp_path / "run")
    before, opened = logits(run), open_run(run)
    for path in run.iterdir():
        if path.is_file():
            write_atomically(path, b"another run")
    assert logits(opened) == before
    with pytest.raises(ModelError, match=r"manifest\.json: is damaged"):
        Predictor.load(run)


MISSING = object()
JUNK: tuple[Any, ...] = (
    *(MISSING, None, True, -1, 0, 2.5, 10**400, 1e300, math.nan, math.inf),
    *("", "x" * 99, [], [[]], [7], {}, {"a": 1}, {"a": ["b"]}),
)


def places(value: dict[str, Any], *path: str) -> Iterator[tuple[str, ...]]:
    """The path to every key at any depth."""
    for key, inner in value.items():
        yield (*path, key)
        if isinstance(inner, dict):
            yield from places(inner, *path, key)


def forgeries(value: dict[str, Any], most: int, draw: random.Random) -> Iterator[tuple[Any, Any, dict[str, Any]]]:
    """A path and junk, and `value` with that junk at that path, for at most so many of all pairs."""
    pairs = list(itertools.product(places(value), JUNK))
    for path, junk in draw.sample(pairs, min(most, len(pairs))):
        made = copy.deepcopy(value)
        holder = functools.reduce(lambda inner, key: inner[key], path[:-1], made)
        holder[path[-1]] = junk
        if junk is MISSING:
            del holder[path[-1]]
        yield path, junk, made


def test_what_a_forged_result_holds_is_refused_or_compared(trained: Path, tmp_path: Path) -> None:
    """Each key with each wrong value: the reader refuses it, or what is printed and compared can use it."""
    run = shutil.copytree(trained, tmp_path / "run")
    unlisted(run, "result.json")
    result, draw = RunDirectory(run).read_result(), random.Random(29)
    result["test"] = {
        **result["dev"],
        **{key: result[key] for key in ("baselines", "model_intervals", "parts", "calibration")},
    }
    refused = used = 0
    for path, junk, content in forgeries(result, 250, draw):
        (run / "result.json").write_text(json.dumps(content))
        try:
            read = RunDirectory(run).read_result()
        except ModelError as error:
            assert str(error).startswith(f"{run / 'result.json'}: is damaged: "), path
            assert len(str(error)) < 400
            refused += 1
            continue
        if draw.random() > 0.2:
            continue
        used += 1
        try:
            print_training(read, run)
            groups = group_runs(collect([run], "model").runs, "accuracy")[0]
            assert [group.to_json("accuracy") for group in groups], (path, junk)
            assert len(baselines(groups, "accuracy")) > 0
        except ModelError as error:
            assert str(run) in str(error), (path, junk)
    assert refused > 50
    assert used > 5


def unlisted(run: Path, name: str) -> None:
    """The manifest lists a file no more, so that only its content is checked."""
    files = json.loads((run / MANIFEST).read_bytes())["files"]
    (run / MANIFEST).write_text(json.dumps({"files": [entry for entry in files if entry["name"] != name]}))


def test_what_forged_predictions_hold_is_refused_by_line(trained: Path, tmp_path: Path) -> None:
    """Each key with each wrong value, in the first row and in a later one."""
    rows = [json.loads(line) for line in (trained / "predictions.dev.jsonl").read_text().splitlines()[:2]]
    path = tmp_path / "predictions.dev.jsonl"
    shutil.copy(trained / "config.json", tmp_path)
    readers: dict[str, Callable[[Run], Any]] = {
        **{part: partial(read_predictions, part=part) for part in ("model", "encoder", "linear")},
        "text": read_texts,
    }
    refused = dict.fromkeys(readers, 0)
    for number in (0, 1):
        for key, junk, row in forgeries(rows[number], 60, random.Random(number)):
            path.write_text("".join(json.dumps(row if place == number else rows[place]) + "\n" for place in (0, 1)))
            write_manifest(tmp_path, [path.name, "config.json"])
            for name, read in readers.items():
                try:
                    read(Run(tmp_path))
                except ModelError as error:
                    assert str(error).startswith(str(path)), (key, junk)
                    refused[name] += 1
    assert min(refused.values()) > 3


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (None, "does not list config.json"),
        ('{"target": {"kind": "one"}, "id2label": {"0": ["neg"]}}', "config.json: .*id2label.0"),
        ('{"target": {"kind": "one"}}', "config.json: .*id2label"),
        ('{"target": {"kind": "rank"}, "id2label": {}}', "config.json: .*target 'rank' is unknown"),
    ],
)
def test_names_of_many_classes_that_cannot_be_read_are_refused(config: str | None, reason: str, tmp_path: Path) -> None:
    row = {"id": "1", "label": "a", "prediction": "a", "probabilities": {"a": 1.0}, "other_probabilities": 0.0}
    (tmp_path / "predictions.dev.jsonl").write_text(json.dumps(row) + "\n")
    if config is not None:
        (tmp_path / "config.json").write_text(config)
    write_manifest(tmp_path, [path.name for path in tmp_path.iterdir()])
    with pytest.raises(ModelError, match=reason):
        read_predictions(Run(tmp_path), "model")


def test_lines_of_metrics_that_hold_no_numbers_are_refused_and_incomplete_ones_left_out(
    trained: Path, tmp_path: Path
) -> None:
    run = RunDirectory(shutil.copytree(trained, tmp_path / "run"))
    whole = run.metrics.read_text()
    run.metrics.write_text(whole + '{"step": 99, "lo')
    assert len(run.read_metrics()) == whole.count("\n")
    for line in ('{"step": "x"}', '{"step": 1e400}', '{"step": 3, "loss": [1]}', '{"step": 3, "dev": {}}', "[1]", "{}"):
        run.metrics.write_text(f"{whole}{line}\n")
        with pytest.raises(ModelError, match=r"metrics.jsonl:\d+: is damaged: "):
            run.read_metrics()
