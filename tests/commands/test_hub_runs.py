"""Runs on the Hugging Face Hub: what `export --push` hands to its client, and what `hf://` reads from the client's cache."""

import functools
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import create_autospec

import pytest
import yaml
from predicting import Recur, jsonl
from running import lines_of, saved
from small_runs import copy_of
from tiny_task import write_rows

import recurcli
from recurcli.files import read_manifest, remove, sha256_of
from recurcli.log import Log
from recurcli.runs.hub import local_run
from recurcli.runs.run_directory import CONTENTS

hub = pytest.importorskip("huggingface_hub")
COMMIT, OTHER = "a" * 40, "b" * 40
TEXTS = [{"sentence": text} for text in ("鼠牛虎", "", "龙蛇", "猴鸡")]
WITH_TEXTS = ("predictions.dev.jsonl", "linear.first-fit.safetensors")


@functools.cache
def stand_ins() -> tuple[Any, Any]:
    """A stand-in for HfApi and one for its constructor. Reading its hundreds of signatures takes a second."""
    api = create_autospec(hub.HfApi, instance=True)
    return api, create_autospec(hub.HfApi, return_value=api)


class Pushed:
    """What a stand-in for HfApi was asked for. Its calls are checked against the signatures of the real one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, private: bool = True) -> None:
        self.api, constructor = stand_ins()
        constructor.reset_mock()
        self.api.reset_mock(side_effect=True)
        self.api.repo_info.side_effect = lambda *_, **__: create_autospec(hub.ModelInfo, instance=True, private=private)
        self.api.upload_folder.side_effect = self.upload
        self.files: dict[str, bytes] = {}
        monkeypatch.setattr(hub, "HfApi", constructor)

    def upload(self, *, repo_id: str, folder_path: Path, **_: Any) -> Any:
        self.files = {path.name: path.read_bytes() for path in folder_path.iterdir()}
        return create_autospec(hub.CommitInfo, instance=True, oid=COMMIT)


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache of the Hub's client, which makes no connection."""
    folder = tmp_path / "cache"
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(folder))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return folder


def cached(
    cache: Path, files: dict[str, bytes], name: str = "me/mine", commit: str = COMMIT, ref: str = "main"
) -> Path:
    """Put files into the cache as the Hub's client does: a snapshot of links to blobs, and a ref. Returns the snapshot."""
    repository = cache / f"models--{name.replace('/', '--')}"
    for folder in ("blobs", "refs", f"snapshots/{commit}"):
        (repository / folder).mkdir(parents=True, exist_ok=True)
    for file, content in files.items():
        blob = repository / "blobs" / f"{abs(hash(content)):x}"
        blob.write_bytes(content)
        (repository / "snapshots" / commit / file).symlink_to(Path("..") / ".." / "blobs" / blob.name)
    (repository / "refs" / ref).write_text(commit)
    return repository / "snapshots" / commit


@pytest.fixture
def pushed(recur: Recur, trained: Path, monkeypatch: pytest.MonkeyPatch) -> Pushed:
    """The run after `--push me/mine`."""
    made = Pushed(monkeypatch)
    recur.ok("export", trained, "--push", "me/mine", "--quiet")
    return made


def test_a_push_is_private_and_lists_what_goes_before_it_goes(
    recur: Recur, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, listed = Pushed(monkeypatch), list[str]()
    monkeypatch.setattr("recurcli.display.screen.Screen.note", lambda self, text: listed.append(text))
    made.api.create_repo.side_effect = lambda *_, **__: listed.append("created")
    result = recur.json("export", trained, "--push", "me/mine")
    assert listed[listed.index("created") + 1] == "hf://me/mine: is private; its owner chooses who may read it"
    made.api.create_repo.assert_called_once_with("me/mine", private=True, exist_ok=True)
    assert result["output"] == f"hf://me/mine@{COMMIT}"
    [files, texts] = listed[listed.index("created") - 2 : listed.index("created")]
    assert files.startswith("hf://me/mine: uploading, in place of what is there: README.md (")
    assert all(f"{name} ({len(content):,} bytes)" in files for name, content in made.files.items())
    assert texts.startswith("Of the texts of the training this folder holds words or characters (tokenizer.json), ")
    assert "hashes of whole texts (training_rows.safetensors)" in texts
    assert any("predictions.dev.jsonl" in line and "left out; predictions have the texts of" in line for line in listed)


def test_no_text_of_a_row_is_pushed(trained: Path, tiny_tnews: Path, pushed: Pushed) -> None:
    everything = b"".join(pushed.files.values())
    rows = [row for name in ("train", "dev") for row in lines_of(tiny_tnews / f"{name}.json")]
    assert not [row for row in rows if len(row["sentence"]) > 4 and row["sentence"].encode() in everything]
    assert {*pushed.files} < {*CONTENTS} and not {*pushed.files} & {*WITH_TEXTS}
    assert "in clear" not in pushed.files["README.md"].decode()
    assert "all dev texts in clear" in (trained / "README.md").read_text(encoding="utf-8"), (
        "that of the run says what it has"
    )
    assert {name.rpartition(".")[2] for name in pushed.files} <= {"safetensors", "json", "yaml", "md"}


def test_a_public_repository_needs_public(recur: Recur, trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Pushed(monkeypatch, private=False)
    recur.refused(
        2, "hf://me/mine: is public already, and nothing was uploaded", "export", trained, "--push", "me/mine"
    )
    assert not made.api.upload_folder.called
    err = recur.ok("export", trained, "--push", "me/mine", "--public", "--quiet")[1]
    assert made.api.create_repo.call_args.kwargs["private"] is False
    assert "recur: warning: Of the texts of the training this folder holds " in err
    err = recur.ok("export", trained, "--push", "me/mine", "--public")[1]
    assert "recur: hf://me/mine: everybody may read it\n" in err
    made.api.repo_info.side_effect = lambda *_, **__: create_autospec(hub.ModelInfo, instance=True, private=True)
    err = recur.ok("export", trained, "--push", "me/mine", "--public")[1]
    assert "recur: hf://me/mine: is private; its owner chooses who may read it\n" in err, "it stays as it was"


def test_the_repository_then_has_what_was_listed_alone(
    recur: Recur, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, there = hub.HfApi(), [".gitattributes", "predict.py", "older/model.onnx"]
    monkeypatch.setattr(real, "list_repo_files", lambda **_: there)
    made = Pushed(monkeypatch)
    recur.ok("export", trained, "--push", "me/mine")
    patterns = made.api.upload_folder.call_args.kwargs["delete_patterns"]
    deleted = real._prepare_folder_deletions("me/mine", None, None, "", patterns)
    assert [each.path_in_repo for each in deleted] == ["predict.py", "older/model.onnx"]


def test_the_card_has_the_metadata_that_the_hub_reads(
    recur: Recur, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Pushed(monkeypatch)
    recur.ok("export", trained, "--push", "me/mine", "--license", "cc-by-4.0")
    content = made.files["README.md"].decode()
    data = hub.ModelCard(content).data
    assert (data.license, data.language, data.library_name, data.pipeline_tag) == (
        "cc-by-4.0",
        "zh",
        "recurcli",
        "text-classification",
    )
    result = json.loads((trained / "result.json").read_text(encoding="utf-8"))
    found = {each.metric_type: each.metric_value for each in data.eval_results if each.dataset_split == "dev"}
    assert found["accuracy"] == result["dev"]["accuracy"] and {*found} == {*data.metrics}
    assert {each.dataset_type for each in data.eval_results} == {"clue/clue"}
    own = yaml.safe_load((trained / "README.md").read_text(encoding="utf-8").split("---\n")[1])
    assert "license" not in own and own["metrics"] == data.metrics


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ((), "--output is missing; or name a repository with --push"),
        (("--output", "x", "--public"), "--push, which --public and --license are for"),
        (("--push", "mine"), "--push mine: is not OWNER/NAME"),
        (("--push", "me/mine@v1"), "--push me/mine@v1: is not OWNER/NAME"),
        (("--push", "me/mine", "--license", "MIT: no"), "--license MIT: no: is not one of the Hub's names"),
        (("--push", "me/mine", "--format", "html"), "--push: a page is not pushed; add --format run or --format onnx"),
        (("--push", "me/mine", "--fast"), "--fast: a copy of a run has all of its model; add --format onnx"),
        (("--push", "me/mine", "--quantize", "int8"), "--quantize: a copy of a run has no choice of weights"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    options: tuple[str, ...], reason: str, recur: Recur, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Pushed(monkeypatch)
    recur.refused(2, reason, "export", trained, *options)
    assert not made.api.method_calls


def test_a_refusal_of_the_hub_is_one_line_with_the_way_out(
    recur: Recur, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = OSError("401 Client Error: Unauthorized\nmore")
    Pushed(monkeypatch).api.create_repo.side_effect = error
    line = ("export", trained, "--push", "me/mine")
    recur.refused(5, "hf://me/mine: cannot be pushed (HF_HUB_OFFLINE is set)", *line)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    recur.refused(5, "hf://me/mine: cannot be pushed (401 Client Error: Unauthorized\\nmore)", *line)
    vars(error)["response"] = SimpleNamespace(status_code=401)
    recur.refused(5, "Unauthorized\\nmore; `hf auth login` gives a token)", *line)


def test_an_unfinished_run_is_not_pushed(recur: Recur, trained: Path, tmp_path: Path) -> None:
    run = copy_of(trained, tmp_path / "run")
    (run / "result.json").unlink()
    recur.refused(2, f"{run}: its training is not finished", "export", run, "--push", "me/mine")


def test_an_export_is_pushed_as_it_is_written(
    recur: Recur, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Pushed(monkeypatch)
    options = ("--format", "onnx", "--fast", "--output", tmp_path / "x", "--license", "mit")
    recur.ok("export", trained, "--push", "me/mine", *options)
    assert made.files == {path.name: path.read_bytes() for path in (tmp_path / "x").iterdir()}
    assert made.files["README.md"].startswith(b"---\nlicense: mit\n") and "predict.py" in made.files
    assert read_manifest(tmp_path / "x")["README.md"][1] == sha256_of(tmp_path / "x" / "README.md")


def test_a_copy_of_a_run_labels_as_the_run_and_replaces_a_copy_alone(
    recur: Recur, trained: Path, tmp_path: Path
) -> None:
    write_rows(tmp_path / "texts.jsonl", TEXTS)
    recur.ok("export", trained, "--format", "run", "--output", tmp_path / "copy")
    wanted, found = (recur.ok("predict", run, tmp_path / "texts.jsonl")[0] for run in (trained, tmp_path / "copy"))
    assert found == wanted
    before = {path.name: path.read_bytes() for path in (tmp_path / "copy").iterdir()}

    def refused(reason: str, run: Path, place: Path, *options: str) -> None:
        recur.refused(2, f"{place}: {reason}", "export", run, "--format", "run", "--output", place, *options)

    refused("exists already; replace it with --overwrite", trained, tmp_path / "copy")
    refused("is the run itself", tmp_path / "copy", tmp_path / "copy", "--overwrite")
    training = copy_of(trained, tmp_path / "training")
    for name in ("metrics.jsonl", "README.md", "tracks"):
        refused("is not empty and is not an earlier export", trained, training, "--overwrite")
        remove(training / name)
    refused("is not empty and is not an earlier export", trained, training, "--overwrite")
    recur.ok("export", trained, "--format", "run", "--output", tmp_path / "copy", "--overwrite")
    err = recur.ok("export", tmp_path / "copy", "--format", "run", "--output", tmp_path / "second")[1]
    assert "left out" not in err
    for place in ("copy", "second"):
        assert {path.name: path.read_bytes() for path in (tmp_path / place).iterdir()} == before
    assert {*read_manifest(tmp_path / "copy"), "manifest.json"} == {*before}
    (tmp_path / "copy" / "README.md").write_text("edited, as on the Hub", encoding="utf-8")
    assert recur.ok("predict", tmp_path / "copy", tmp_path / "texts.jsonl")[0] == wanted


def test_a_copy_says_that_it_keeps_no_predictions(recur: Recur, tmp_path: Path) -> None:
    lines = [f"{'good' if row % 2 else 'bad'} row {row},{row % 2}" for row in range(60)]
    reviews = saved(tmp_path / "reviews.csv", "\n".join(["text,label", *lines]))
    run, copy = tmp_path / "run", tmp_path / "copy"
    settings = ("--preset", "linear-custom", "--set", "linear.vectors=null")
    recur.ok("finetune", reviews, *settings, "--output", run, "--quiet")
    recur.ok("export", run, "--format", "run", "--output", copy, "--quiet")
    reason = f"{copy}: keeps no predictions (it is a copy without texts); name a FILE, or the run that was copied"
    recur.refused(4, reason, "eval", copy)
    recur.refused(4, reason, "compare", copy, run)
    recur.refused(4, f"{copy}: keeps no texts", "export", copy, "--format", "html", "--output", tmp_path / "x.html")
    assert recur.json("eval", copy, reviews)["rows"] == recur.json("eval", run, reviews)["rows"]
    reason = f"{copy}: is a copy of a run, where --save writes nothing"
    recur.refused(2, reason, "eval", copy, "--fit-thresholds", "macro_f1", "--save")


def test_a_copy_tells_no_folder_of_this_machine(recur: Recur, trained: Path, tiny_tnews: Path, tmp_path: Path) -> None:
    recur.ok("export", trained, "--format", "run", "--output", tmp_path / "copy", "--quiet")
    files = {path.name: path.read_bytes() for path in (tmp_path / "copy").iterdir()}
    assert str(tiny_tnews).encode() in (trained / "preset.yaml").read_bytes()
    assert not [name for name, content in files.items() if str(tiny_tnews.parent).encode() in content]
    own, copied = (json.loads((run / "result.json").read_text()) for run in (trained, tmp_path / "copy"))
    assert copied["data"]["dev"]["path"] == Path(own["data"]["dev"]["path"]).name and not copied["command_line"]
    assert copied["dev"] == own["dev"] and recur.json("eval", tmp_path / "copy", tiny_tnews / "dev.json")


def test_a_run_is_read_from_the_cache_and_its_commit_is_said(
    recur: Recur, trained: Path, pushed: Pushed, cache: Path, tmp_path: Path
) -> None:
    cached(cache, pushed.files)
    cached(cache, pushed.files, commit=OTHER, ref="v1")
    write_rows(tmp_path / "texts.jsonl", TEXTS)
    wanted = recur.ok("predict", trained, tmp_path / "texts.jsonl")[0]
    for name, commit in (("me/mine", COMMIT), ("me/mine@v1", OTHER), (f"me/mine@{OTHER}", OTHER)):
        out, err = recur.ok("predict", f"hf://{name}", tmp_path / "texts.jsonl")
        assert out == wanted
        assert f"recur: hf://{name}: is the commit {commit}; hf://me/mine@{commit} always is\n" in err
    loaded = recurcli.load("hf://me/mine@v1").predict([row["sentence"] for row in TEXTS])
    assert [each.label for each in loaded] == [row["prediction"] for row in jsonl(wanted)]


def test_eval_reads_it_too_and_writes_nothing_into_the_cache(
    recur: Recur, trained: Path, tiny_tnews: Path, pushed: Pushed, cache: Path
) -> None:
    cached(cache, pushed.files)
    own, found = (recur.json("eval", run, tiny_tnews / "dev.json") for run in (trained, "hf://me/mine"))
    assert found["metrics"] == own["metrics"]
    line = ("eval", "hf://me/mine", "--fit-thresholds", "macro_f1", "--save")
    recur.refused(2, "is a copy of a run, where --save writes nothing; leave it out", *line)


def test_hf_is_read_where_the_help_names_it_and_refused_elsewhere(
    recur: Recur, tiny_tnews: Path, pushed: Pushed, cache: Path, tmp_path: Path
) -> None:
    cached(cache, pushed.files)
    note = f"recur: hf://me/mine: is the commit {COMMIT}; "
    assert note in recur.ok("export", "hf://me/mine", "--format", "run", "--output", tmp_path / "copy")[1]
    assert note in recur("check", tiny_tnews / "dev.json", "--against", "hf://me/mine")[2]
    reason = "hf://me/mine: there is no such file or folder; predict, eval, export and check --against read the Hub"
    recur.refused(2, reason, "compare", "hf://me/mine", tmp_path / "copy")
    recur.refused(2, reason, "finetune", tiny_tnews, "--init", "hf://me/mine")
    for name in ("predict", "eval", "export"):
        assert "hf://OWNER/NAME@REVISION" in "".join(recur.ok(name, "--help")[0].split())


def test_a_name_without_a_run_is_one_line(recur: Recur, pushed: Pushed, cache: Path, tmp_path: Path) -> None:
    write_rows(tmp_path / "texts.jsonl", TEXTS)

    def refused(code: int, reason: str, name: str) -> None:
        recur.refused(code, reason, "predict", name, tmp_path / "texts.jsonl")

    cached(cache, {"model.safetensors": b"x"}, "me/model")
    cached(cache, {"manifest.json": b'{"files": [{"name": "predict.py", "size": 1, "sha256": ""}]}'}, "me/export")
    cached(cache, {name: pushed.files[name] for name in ("manifest.json", "config.json")}, "me/part")
    for name in ("me/none", "me/model", "me/export@v9"):
        refused(
            2,
            f"hf://{name}: its manifest.json is not in the cache, and cannot be fetched (HF_HUB_OFFLINE is set)",
            f"hf://{name}",
        )
    refused(2, " is not in the cache, and cannot be fetched (HF_HUB_OFFLINE is set)", "hf://me/part")
    refused(4, "hf://me/export: is not a run of recur: its manifest.json lists predict.py", "hf://me/export")
    for name in ("hf://mine", "hf://me/../x", "hf://me/mine/more", "hf://me/mine@"):
        refused(2, f"{name}: is not hf://OWNER/NAME or hf://OWNER/NAME@REVISION", name)
    damaged = {**pushed.files, "kept.json": b"{}"}
    refused(4, f"{cached(cache, damaged, 'me/damaged') / 'kept.json'}: is damaged", "hf://me/damaged")


def test_only_files_that_the_manifest_lists_are_asked_for(
    pushed: Pushed, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, asked = (
        cached(cache, {**pushed.files, "model.bin": b"pickle", "code.py": b""}),
        list[tuple[str, str | None]](),
    )
    fetch = create_autospec(hub.hf_hub_download)

    def record(name: str, file: str, *, revision: str | None, **_: Any) -> str:
        asked.append((file, revision))
        return str(folder / file)

    fetch.side_effect = record
    monkeypatch.setattr(hub, "hf_hub_download", fetch)
    assert local_run(Path("hf://me/mine@v1"), Log()) == folder
    assert asked == [("manifest.json", "v1"), *((name, COMMIT) for name in read_manifest(folder))]


def test_a_link_to_anything_but_a_blob_of_the_cache_is_refused(
    recur: Recur, pushed: Pushed, cache: Path, tmp_path: Path
) -> None:
    folder = cached(cache, pushed.files)
    (tmp_path / "elsewhere").write_bytes(pushed.files["kept.json"])
    (folder / "kept.json").unlink()
    (folder / "kept.json").symlink_to(tmp_path / "elsewhere")
    write_rows(tmp_path / "texts.jsonl", TEXTS)
    recur.refused(
        4, "kept.json: is not a plain file of its folder", "predict", "hf://me/mine", tmp_path / "texts.jsonl"
    )


def test_thresholds_of_a_run_go_with_it(
    recur: Recur, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, made = copy_of(trained, tmp_path / "run"), Pushed(monkeypatch)
    recur.ok("eval", run, "--fit-thresholds", "macro_f1", "--save")
    recur.ok("export", run, "--push", "me/mine")
    assert made.files["thresholds.json"] == (run / "thresholds.json").read_bytes()
    listed = [each["name"] for each in json.loads(made.files["manifest.json"])["files"]]
    assert {*listed} == {*made.files} - {"manifest.json"}


def test_a_card_of_several_labels_or_numbers_has_their_scores(recur: Recur, tmp_path: Path) -> None:
    rows = [{"text": f"w{row % 7} w{row % 3}", "number": row % 7 + 0.5 * (row % 3)} for row in range(120)]
    write_rows(tmp_path / "rows.jsonl", rows)
    settings = ("--set", "linear.vectors=null", "--quiet")
    line = ("finetune", "--preset", "linear-custom", "--data", tmp_path / "rows.jsonl", "--label", "number", *settings)
    recur.ok(*line, "--target", "number", "--output", tmp_path / "run")
    data = hub.ModelCard((tmp_path / "run" / "README.md").read_text(encoding="utf-8")).data
    assert data.language is None and "mae" in data.metrics
    assert {each.dataset_name for each in data.eval_results} == {"custom"}
