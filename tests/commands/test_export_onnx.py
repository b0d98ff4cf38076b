"""`recur export --format onnx`: a folder that labels texts as `recur predict` does, without torch, or no folder."""

import contextlib
import importlib.util
import io
import json
import math
import os
import random
import re
import runpy
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import pytest
import torch
from interrupts import interrupted_soon
from predicting import Recur, jsonl, tsv
from running import lines_of
from sized_encoders import SIZED
from small_runs import copy_of, weighted
from tiny_task import tiny

from recurcli.commands.export import export
from recurcli.config import ModelConfig, Truncation
from recurcli.data.splits import row_hash
from recurcli.errors import ModelError, UsageError
from recurcli.export import onnx
from recurcli.files import OpenedFile, extend_manifest
from recurcli.log import Log
from recurcli.network import Classifier
from recurcli.requests.export import ExportRequest
from recurcli.runs.run_directory import RunDirectory
from recurcli.tokens.tokenizer import Tokenizer

ONNX = ("onnx", "onnxruntime", "onnxscript")
NASTY = [
    *("鼠牛虎", "", " ", "龙" * 5000, "ｆｕｌｌ Ｗｉｄｔｈ", "e\u0301É"),
    *("İSTANBUL ß", "👩‍👩‍👧 🇩🇪", "\x07\x1b[31m", "\u202eabc\u200b", "[SEP]", "a[PAD]b [MASK] [UNK]"),
    *("NA", "null", '"', "  鼠  猴 ", "\u2028\x85\x0b\x0c龙", "\ufeff龙"),
    *("蛇\r猴", "𪚥", "1e400"),
]
ALONE = """
import runpy, sys
sys.modules.update(torch=None, recurcli=None, scipy=None)
sys.path[0] = folder = sys.argv.pop(1)
sys.argv[0] = f"{folder}/predict.py"
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Runs predict.py in an environment without torch and recur."""


def labelled(folder: Path, content: bytes, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Run predict.py in this process, in which torch and recur cannot be imported meanwhile."""
    program, err, stdout = str(folder / "predict.py"), io.StringIO(), os.dup(1)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGPIPE, signal.SIGINT)}
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryFile() as out:
        patch.setattr(sys, "argv", [program, *arguments])
        patch.setattr(sys, "path", [str(folder), *sys.path])
        for name in ("torch", "recurcli"):
            patch.setitem(sys.modules, name, None)
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        patch.setattr(sys, "stdout", io.TextIOWrapper(os.fdopen(os.dup(out.fileno()), "wb")))
        patch.setattr(sys, "stderr", err)
        os.dup2(out.fileno(), 1)
        code: Any = 0
        try:
            runpy.run_path(program, run_name="__main__")
        except SystemExit as ended:
            code = ended.code
        finally:
            sys.stdout.close()
            os.dup2(stdout, 1)
            os.close(stdout)
            for number, handler in handlers.items():
                signal.signal(number, handler)
        out.seek(0)
        return subprocess.CompletedProcess(program, code, out.read(), err.getvalue().encode())


def check_same(recur: Recur, run: Path, folder: Path, texts: Sequence[tuple[str, ...]]) -> None:
    """Compare the output of predict.py with that of `recur predict`, to which the texts come as JSON."""
    named = json.loads((run / "config.json").read_text())["source"]["columns"]
    columns = [named[name][0] for name in ("text", "pair") if named[name]]
    path = folder.parent / "texts.jsonl"
    path.write_text("".join(json.dumps(dict(zip(columns, row, strict=True))) + "\n" for row in texts))
    out, _ = recur.ok("predict", run, path, "--quiet")
    expected = jsonl(out)
    done = labelled(folder, "".join("\t".join(row) + "\n" for row in texts).encode())
    assert (done.returncode, done.stderr) == (0, b"")
    found = tsv(done.stdout.decode())
    assert [label for label, _ in found] == [line["prediction"] for line in expected]
    shares = [line["score"] for line in expected]
    assert [float(share) for _, share in found] == pytest.approx(shares, abs=1e-4)


def module_of(folder: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("exported_predict", folder / "predict.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def quick(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exports in the test take the graph of `exported`, which is of the same run."""
    content = (exported / "model.onnx").read_bytes()
    monkeypatch.setattr(onnx, "trace", lambda logits, example, max_length: content)


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        ("__version__ = '1.17.3'", "model.onnx needs onnxruntime 1.18 or later, found 1.17.3"),
        ("raise ImportError", "onnxruntime cannot be imported"),
    ],
)
def test_an_old_onnxruntime_is_told_what_it_needs(module: str, reason: str, exported: Path, tmp_path: Path) -> None:
    (tmp_path / "onnxruntime.py").write_text(module)
    command, environment = [sys.executable, str(exported / "predict.py")], {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, env=environment, input="鼠\n", capture_output=True, text=True, check=False)
    way_out = "pip install 'onnxruntime>=1.18' tokenizers numpy"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"predict.py: error: {reason}: {way_out}\n")
    assert f"    {way_out}\n" in (exported / "README.md").read_text()


def test_the_least_onnxruntime_of_a_later_format_is_the_one_that_has_read_it(exported: Path) -> None:
    graph = pytest.importorskip("onnx").load(exported / "model.onnx")
    assert onnx.least_runtime(graph.SerializeToString()) == "1.18"
    graph.ir_version = 99
    assert version("onnxruntime").startswith(onnx.least_runtime(graph.SerializeToString()))


def test_texts_have_the_labels_of_predict(recur: Recur, trained: Path, exported: Path, real_data: Path) -> None:
    lines = (real_data / "tnews" / "dev.json").read_text(encoding="utf-8").splitlines()[:1000]
    texts = [*NASTY, *(json.loads(line)["sentence"] for line in lines)]
    check_same(recur, trained, exported, [(text,) for text in texts])
    content = "鼠牛虎\n".encode()
    done = subprocess.run([sys.executable, "-c", ALONE, exported], input=content, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, labelled(exported, content).stdout, b"")


def test_a_line_ends_as_in_recur_and_the_last_one_needs_no_end(exported: Path) -> None:
    lines = labelled(exported, "龙蛇\n\n鼠\r\n猴鸡".encode()).stdout.splitlines()
    assert len(lines) == 4
    alone = [labelled(exported, text.encode()).stdout.splitlines() for text in ("\ufeff龙蛇", "\n", "鼠", "猴鸡\n")]
    assert [[line] for line in lines] == alone
    assert labelled(exported, b"").stdout == b""


def test_a_single_text_is_the_whole_line_with_its_tabs(exported: Path) -> None:
    whole, parts = (labelled(exported, text.encode()).stdout for text in ("鼠\t龙\n", "鼠\n"))
    assert whole.count(b"\n") == 1
    assert whole != parts


def test_arguments_are_refused_and_help_says_what_is_read(exported: Path) -> None:
    done = labelled(exported, b"", "--help")
    assert (done.returncode, b"python predict.py < texts.txt" in done.stdout) == (0, True)
    assert b"TABs included, where `recur predict` reads a line with TABs as columns" in done.stdout
    for argument in ("texts.txt", "--output"):
        done = labelled(exported, "鼠\n".encode(), argument)
        assert (done.returncode, done.stdout) == (2, b"")
        line = f"predict.py: error: unrecognized arguments: {argument}; see python predict.py --help\n"
        assert done.stderr.decode() == line


def test_lines_that_are_not_utf8_are_counted(exported: Path) -> None:
    done = labelled(exported, "鼠\n\n".encode() + b"caf\xe9\n" + "鼠\n".encode() + b"\xff\n")
    assert (done.returncode, done.stdout.count(b"\n")) == (0, 5)
    assert done.stderr.startswith(b"predict.py: warning: 2 of 5 lines are not UTF-8; U+FFFD stands for")
    assert labelled(exported, "鼠\n\n\ufffd".encode()).stderr == b""


def test_no_row_depends_on_the_rows_that_are_read_with_it(exported: Path) -> None:
    draw = random.Random(0)
    lines = ["".join(draw.choices("鼠牛虎龙蛇马羊", k=draw.randint(0, 60))) + "\n" for _ in range(4000)]
    assert len("".join(lines).encode()) > module_of(exported).WINDOW, "they are read in two parts"
    whole = labelled(exported, "".join(lines).encode()).stdout.splitlines()
    assert len(whole) == len(lines)
    for some in (slice(0, 3), slice(2800, 3000), slice(3999, 4000)):
        alone = labelled(exported, "".join(lines[some]).encode()).stdout.split()
        assert alone[::2] == [line.split()[0] for line in whole[some]]
        shares = [float(line.split()[1]) for line in whole[some]]
        assert [float(share) for share in alone[1::2]] == pytest.approx(shares, abs=2e-6)


@pytest.mark.parametrize("truncate", get_args(Truncation))
@pytest.mark.parametrize("max_length", [1, 2, 3, 8, 13])
def test_rows_are_cut_as_in_recur(max_length: int, truncate: Truncation, trained: Path, exported: Path) -> None:
    tokenizer = Tokenizer.load(OpenedFile(trained / "tokenizer.json"))
    module, draw = module_of(exported), random.Random(1)
    pairs = [(a, b) for a in NASTY for b in NASTY]
    pairs += [("鼠" * draw.randint(0, 9), "龙猴" * draw.randint(0, 9)) for _ in range(200)]
    encoder = object.__new__(module.Encoder)
    config = json.loads((exported / "config.json").read_text())
    encoder.config = {**config, "max_length": max_length, "truncate": truncate}
    encoder.tokenizer = tokenizer.backend
    for rows in (pairs, [(text,) for text in NASTY]):
        texts = [(row[0], row[1] if len(row) > 1 else None) for row in rows]
        tokens = tokenizer.encode(texts, max_length, truncate)
        expected = [tokens.ids[a:b].tolist() for a, b in zip(tokens.offsets, tokens.offsets[1:], strict=False)]
        assert encoder.tokenize(rows) == expected


def test_a_linear_model_needs_numpy(recur: Recur, trained: Path, tmp_path: Path, without: Callable[..., None]) -> None:
    without(*ONNX)
    source, folder = weighted(trained, tmp_path / "run", 0, 2), tmp_path / "folder"
    out, err = recur.ok("export", source, "--format", "onnx", "--output", folder, "--json")
    assert "there is no model.onnx: no encoder needs to run" in err
    names = {file["name"] for file in json.loads(out)["files"]}
    assert names == {
        "linear.npz",
        "linear_model.py",
        "features.py",
        "word_tokens.py",
        "ngram_hashes.py",
        "config.json",
        "predict.py",
        "README.md",
    }
    assert {path.name for path in folder.iterdir()} == {*names, "manifest.json"}
    check_same(recur, source, folder, [(text,) for text in NASTY])
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "pairs": True}))
    extend_manifest(folder, "config.json")
    assert labelled(folder, "鼠\t牛\n\n\t\n".encode()).stdout.count(b"\n") == 3
    first = labelled(folder, b"a\tb\n")
    assert (first.returncode, first.stdout.count(b"\n")) == (0, 1)
    for line, tabs in ((b"a\tb\nno tab\n", 0), (b"a\tb\nc\td\te\n", 2)):
        done = labelled(folder, line)
        assert (done.returncode, done.stdout) == (3, first.stdout)
        reason = f"line 2: has {tabs} TABs; one must separate the two texts of a pair"
        assert done.stderr.decode() == f"predict.py: error: {reason}\n"


def test_fast_exports_a_linear_model(recur: Recur, trained: Path, tmp_path: Path, without: Callable[..., None]) -> None:
    without(*ONNX)
    recur.ok("export", trained, "--format", "onnx", "--fast", "--output", tmp_path / "folder")
    assert "linear model of the ensemble alone (`--fast`)" in (tmp_path / "folder" / "README.md").read_text()
    assert not (tmp_path / "folder" / "model.onnx").exists()
    (tmp_path / "x.txt").write_text("鼠牛虎\n龙蛇\n猴鸡 nothing known\n")
    predicted = tsv(recur("predict", trained, tmp_path / "x.txt", "--no-header", "--fast")[1])
    done = tsv(labelled(tmp_path / "folder", (tmp_path / "x.txt").read_bytes()).stdout.decode())
    assert [label for label, _ in done] == [row[-2] for row in predicted]
    assert [float(share) for _, share in done] == pytest.approx([float(row[-1]) for row in predicted], abs=1e-4)


def test_missing_packages_are_named(recur: Recur, trained: Path, tmp_path: Path, without: Callable[..., None]) -> None:
    without(*ONNX)
    code, out, err = recur("export", trained, "--format", "onnx", "--output", tmp_path / "x")
    assert (code, out, list(tmp_path.iterdir())) == (2, "", [])
    assert err == "recur: error: --format onnx needs onnx: pip install 'recurcli[onnx]'\n"


@pytest.mark.usefixtures("quick")
def test_another_graph_is_refused(recur: Recur, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model_of = onnx.onnx_model

    def changed(model: Classifier) -> tuple[bytes, float]:
        with torch.no_grad():
            model.head.output.bias[3] += 2e-4
        return model_of(model)

    monkeypatch.setattr(onnx, "onnx_model", changed)
    recur.refused(4, "a logit differs by 2.0e-04", "export", trained, "--format", "onnx", "--output", tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("quick")
def test_only_an_earlier_export_is_replaced(
    recur: Recur, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, file = tmp_path / "x", tmp_path / "file"
    folder.mkdir()
    line = ("export", trained, "--format", "onnx", "--output")
    assert recur(*line, folder)[0] == 0, "an empty folder is one to write to"
    recur.refused(2, f"{folder}: exists already; replace it with --overwrite", *line, folder)
    (folder / "model.onnx").write_bytes(b"damaged")
    monkeypatch.chdir(folder)
    for place in (".", folder, "/"):
        recur.refused(2, "cannot be replaced", *line, place, "--overwrite")
    monkeypatch.chdir(tmp_path)
    assert (folder / "model.onnx").read_bytes() == b"damaged"
    recur.ok(*line, folder, "--overwrite")
    assert (folder / "model.onnx").stat().st_size > 1000
    (folder / "notes.txt").write_text("precious")
    file.write_text("precious")
    for output in (folder, trained, file):
        recur.refused(2, str(output), *line, output, "--overwrite")
    assert (folder / "notes.txt").read_text() == file.read_text() == "precious"


def test_a_model_card_that_is_a_link_is_not_copied(recur: Recur, trained: Path, tmp_path: Path) -> None:
    run = copy_of(trained, tmp_path / "run")
    (tmp_path / "secret").write_text("precious")
    (run / "README.md").unlink()
    (run / "README.md").symlink_to(tmp_path / "secret")
    recur.refused(4, "README.md: is a symbolic link", "export", run, "--format", "onnx", "--output", tmp_path / "x")
    assert not (tmp_path / "x").exists()


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("keep", ["true", "false"])
@pytest.mark.parametrize("preset", ["starsaber-tnews", "linear-tnews"])
def test_a_card_says_what_its_folder_holds_of_the_texts(
    preset: str, keep: str, recur: Recur, tiny_tnews: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, export, settings = tmp_path / "run", tmp_path / "export", ["--set", f"finetuning.keep_texts={keep}"]
    settings += tiny("finetuning.max_steps=1", "ensemble=linear") if preset == "starsaber-tnews" else []
    recur.ok("finetune", "--preset", preset, "--data", tiny_tnews, "--output", run, *settings)
    if preset == "starsaber-tnews":
        run = weighted(run, tmp_path / "joined", 1, 1)
        monkeypatch.setattr(onnx, "MAX_DIFFERENCE", math.inf)  # the graph is that of another run
    recur.ok("export", run, "--format", "onnx", "--output", export)
    train, dev = ([row["sentence"] for row in lines_of(tiny_tnews / f"{name}.json")] for name in ("train", "dev"))
    assert (export / "model.onnx").exists() == preset.startswith("starsaber")
    for folder in (run, export):
        [said] = re.findall("^Of the texts of the training .*", (folder / "README.md").read_text(), flags=re.MULTILINE)
        files = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
        everything = b"".join(files.values())
        named = re.findall(r"\((\S+)\)", said)
        assert {*named} <= {*files}
        tokens = files.get("tokenizer.json", b"").decode()
        assert ("tokenizer.json" in named) == all(character in tokens for character in "".join(train))
        assert any(name.startswith("linear.") for name in named)
        hashes = [row_hash(text, None).to_bytes(8, "little") for text in train]
        assert ("hashes of whole texts" in said) == any(each in everything for each in hashes)
        shown = [text for text in dev if len(text) > 4 and text not in train]
        assert ("all dev texts in clear" in said) == any(text.encode() in everything for text in shown)
        assert ("in clear" in said) == (folder == run and keep == "true")


def test_a_full_disk_and_a_closed_output_are_a_line_or_silence(exported: Path) -> None:
    script = [sys.executable, "-c", ALONE, str(exported)]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(script, input=b"a\n", stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 5
    assert done.stderr == b"predict.py: error: standard output: cannot be written: No space left on device\n"
    with subprocess.Popen(script, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.close()
        _, err = child.communicate(b"a\n")
    assert (child.returncode, err) == (-signal.SIGPIPE, b"")


def test_several_runs_and_data_are_refused(recur: Recur, trained: Path, tmp_path: Path) -> None:
    for more, reason in (([trained], "writes one run"), (["--data", tmp_path], "an ONNX export needs no rows")):
        recur.refused(2, reason, "export", trained, *more, "--format", "onnx", "--output", tmp_path / "x")


def classifier(name: str, **keys: Any) -> Classifier:
    """A model of pairs whose every parameter was moved, so that nothing is 0 or the identity."""
    torch.manual_seed(0)
    marks = {"embedding_segments": True, "embedding_matches": True, "separator_id": 2, "unknown_id": 1}
    own = ("pooling", "embedding_orthonormal")
    model_keys = {key: keys.pop(key) for key in own if key in keys}
    config = ModelConfig(
        encoder={"name": name, "hidden_size": 16, "num_layers": 2, **keys},
        vocab_size=50,
        pad_id=0,
        max_length=70,
        pair_pooling="sides",
        num_classes=3,
        **marks,  # type: ignore[arg-type]
        **model_keys,
    )
    model = Classifier(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
        model.encoder.project_()
    return model


LOOPS = (
    *("block-recurrent-transformer", "temporal-latent-bottleneck", "mingru", "gated-linear-attention"),
    *("delta-net", "mamba2", "mlstm", "slstm"),
)
OBSTACLES = {**dict.fromkeys(LOOPS, "it runs a loop over the"), "s4d": "ONNX has no complex numbers"}
"""Encoders that have no graph, and why."""
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *((name, {"window": 4} if name.startswith("truncated") else {}) for name in SIZED if name not in OBSTACLES),
    ("starsaber", {"tied": True, "num_layers": None}),
    ("starsaber", {"tied": True, "num_layers": None, "causal": True}),
    ("starsaber", {"position": "sinusoidal", "bias": True, "pooling": "max"}),
    ("starsaber", {"direct_path": False, "initial": "linear", "pooling": "first"}),
    ("starsaber", {"initial": "zero", "pooling": "last", "embedding_orthonormal": True}),
    ("gated-starsaber", {"gate": "lstm"}),
    ("gated-starsaber", {"gate": "gru"}),
    ("rsa", {"causal": True}),
    ("linear-transformer", {"causal": True}),
    ("transject", {"orthogonal_map": "householder"}),
    ("synthesizer", {"kind": "random"}),
    ("synthesizer", {"kind": "factorised"}),
    ("nystromformer", {"num_landmarks": 8, "convolution_size": 3}),
    ("skyformer", {"num_landmarks": 8}),
    ("linformer", {"max_length": 70}),
    ("transformer-xl", {"segment": 8, "memory": 12, "rsa": True}),
    ("transformer-xl", {"segment": 16, "memory": 0, "causal": True, "norm": "pre"}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "keys"), VARIANTS)
def test_every_encoder_is_exported_for_pairs_of_all_lengths(name: str, keys: dict[str, Any]) -> None:
    pytest.importorskip("onnxscript")
    assert onnx.onnx_model(classifier(name, **keys))[1] < 1e-5


@pytest.mark.parametrize("name", ["truncated-rnn", "truncated-lstm", *OBSTACLES])
def test_an_encoder_that_cannot_be_exported_is_named_with_the_reason(name: str) -> None:
    keys: dict[str, Any] = {}
    if name not in OBSTACLES:
        onnx.check_exportable(classifier(name))
        keys = {"window": None}
    reason = OBSTACLES.get(name, "with window null")
    model = classifier(name, **keys)
    with pytest.raises(UsageError, match=f"the encoder {name} cannot be exported to ONNX: {reason}.*; `recur predict`"):
        onnx.check_exportable(model)
    with pytest.raises(UsageError, match="; --fast exports the linear model beside it alone"):
        onnx.check_exportable(model, has_linear=True)


def test_an_encoder_that_torch_cannot_trace_is_a_model_error(monkeypatch: pytest.MonkeyPatch) -> None:
    model = classifier("starsaber")
    forward = model.encoder.forward
    monkeypatch.setattr(model.encoder, "forward", lambda x, mask: forward(x, mask) * float(x.sum()))
    with pytest.raises(ModelError, match="the encoder starsaber cannot be exported to ONNX: "):
        onnx.onnx_model(model)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["char", "byte", "bpe", "wordpiece"])
def test_a_model_of_pairs_labels_as_predict_does(kind: str, recur: Recur, real_data: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    source, folder = tmp_path / "run", tmp_path / "folder"
    settings = tiny(f"tokenizer.kind={kind}", "finetuning.max_steps=40", "ensemble=linear", "encoder.num_heads=2")
    line = ["--preset", "rsa-ocnli", "--data", real_data, "--output", source, "--quiet"]
    recur.ok("finetune", *line, *settings)
    run = weighted(source, tmp_path / "weighted", 1.1, 0.7)
    assert RunDirectory(run).is_finished
    recur.ok("export", run, "--format", "onnx", "--output", folder)
    rows = [json.loads(line) for line in (real_data / "ocnli" / "dev.json").read_text().splitlines()[:500]]
    nasty = [(a.replace("\t", " "), b.replace("\t", " ")) for a in NASTY for b in NASTY]
    check_same(recur, run, folder, [*nasty, *((row["sentence1"], row["sentence2"]) for row in rows)])


def test_a_signal_ends_an_onnx_export_although_torch_catches_all_errors(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxscript")
    with interrupted_soon() as ask:

        def catch_all(*arguments: object, **options: object) -> None:
            ask()
            for _ in range(200):
                with contextlib.suppress(Exception):
                    time.sleep(0.01)
            raise SystemExit  # what no library catches: the rest of the export is not needed

        monkeypatch.setattr("torch.export.export", catch_all)
        export(ExportRequest(runs=[trained], format="onnx", output=tmp_path / "folder"), Log())
    assert not list(tmp_path.iterdir())
