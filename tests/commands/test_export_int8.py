"""`recur export --format onnx --quantize int8`: a smaller folder, whose labels depend on no neighbour, or no folder."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from predicting import Recur, texts, tsv
from safetensors.numpy import load_file, save_file
from small_runs import weighted
from test_export_onnx import VARIANTS, classifier, labelled

from recurcli.cli import run
from recurcli.errors import ModelError
from recurcli.export import onnx
from recurcli.export.quantize import Agreement, as_half, quantized
from recurcli.files import extend_manifest, read_manifest, write_manifest
from recurcli.runs.run_directory import LINEAR_FIRST_FIT, LINEAR_MODEL, PREDICTIONS
from recurcli.targets import OneLabel

LINE = ("--format", "onnx", "--quantize", "int8", "--output")


@pytest.fixture(scope="module")
def int8(trained: Path, exported: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The int8 folder of the run of `exported`, made of its graph."""
    output, graph = tmp_path_factory.mktemp("int8") / "folder", (exported / "model.onnx").read_bytes()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(onnx, "trace", lambda logits, example, max_length: graph)
        assert run(["export", str(trained), *LINE, str(output), "--quiet", "--min-agreement", "0.9"]) == 0
    return output


def run_graph(content: bytes, ids: Any) -> Any:
    import onnxruntime

    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return session.run(["logits"], {"input_ids": ids})[0]


@pytest.mark.slow
def test_a_row_has_its_label_and_score_in_every_order_and_batch(int8: Path) -> None:
    lines = [text + "\n" for text in ["", *texts(300, longest=30)]]
    orders = [lines, lines[::-1], random.Random(0).sample(lines, len(lines))]
    done = [labelled(int8, "".join(order).encode()) for order in orders]
    assert {process.returncode for process in done} == {0}
    first = {**dict(zip(lines, done[0].stdout.splitlines(), strict=True))}
    for order, process in zip(orders[1:], done[1:], strict=True):
        assert process.stdout.splitlines() == [first[line] for line in order]
    some = labelled(int8, "".join(lines[:7]).encode()).stdout.splitlines()
    assert some == [first[line] for line in lines[:7]]


def test_the_graph_itself_gives_a_row_the_same_logits_beside_any_rows(int8: Path) -> None:
    content, draw = (int8 / "model.onnx").read_bytes(), np.random.default_rng(0)
    ids = draw.integers(3, 12, (33, 9))
    together, alone = run_graph(content, ids), np.concatenate([run_graph(content, row[None]) for row in ids])
    assert np.abs(together - alone).max() < 1e-6
    assert np.abs(together).max() > 0.1


def test_folder_tells_what_int8_changed_and_is_smaller(recur: Recur, trained: Path, int8: Path, tmp_path: Path) -> None:
    facts = json.loads((int8 / "config.json").read_text())["quantization"]
    assert (facts["type"], facts["rows"]) == ("int8", 24)
    assert 0.9 <= facts["agreement"] <= 1
    assert f"agreement {100 * facts['agreement']:.2f} %" in (int8 / "README.md").read_text()
    arrays = np.load(int8 / "linear.npz")
    types = [arrays[name].dtype.name for name in ("idf", "weights", "bias")]
    assert types == ["float16", "float16", "float32"]
    (tmp_path / "x.txt").write_text("".join(f"{text}\n" for text in texts(200)))
    predicted = tsv(recur("predict", trained, tmp_path / "x.txt", "--no-header")[1])
    found = tsv(labelled(int8, (tmp_path / "x.txt").read_bytes()).stdout.decode())
    same = [label == row[-2] for (label, _), row in zip(found, predicted, strict=True)]
    assert np.mean(same) >= 0.98
    assert [float(share) for _, share in found] == pytest.approx([float(row[-1]) for row in predicted], abs=0.02)


def test_the_sum_with_the_first_fit_is_compared(recur: Recur, trained: Path, int8: Path, tmp_path: Path) -> None:
    assert json.loads((int8 / "config.json").read_text())["quantization"]["fp32"] == 1
    source = weighted(trained, tmp_path / "run", 0, 1)
    tensors = load_file(source / LINEAR_MODEL)
    wrong = {name: -part if name in ("weights", "bias") else part for name, part in tensors.items()}
    save_file(wrong, source / LINEAR_FIRST_FIT)
    extend_manifest(source, LINEAR_FIRST_FIT)
    facts = recur.json("export", source, *LINE, tmp_path / "int8")["quantization"]
    assert (facts["fp32"], facts["int8"], facts["agreement"]) == (0, 0, 1), "the second fit is right everywhere"


def test_predict_of_an_int8_folder_takes_a_text_at_a_time(int8: Path) -> None:
    assert json.loads((int8 / "config.json").read_text())["batch_size"] == 1


def test_too_few_unchanged_labels_leave_nothing(
    recur: Recur, trained: Path, int8: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    constant = np.zeros(24, np.int64)
    assert (
        Agreement.of(OneLabel(("a", "b")), constant, np.array([0] * 18 + [1] * 6), np.zeros(24, np.int64)).agreement
        == 0.75
    )
    content = (int8 / "model.onnx").read_bytes()
    monkeypatch.setattr(onnx, "trace", lambda logits, example, max_length: content)
    monkeypatch.setattr(onnx, "MAX_DIFFERENCE", 10)  # a graph of another model
    monkeypatch.setattr(onnx, "quantized", lambda content: shuffled(content))
    reason = "% on 24 dev rows, and --min-agreement asks for 98 %"
    recur.refused(4, reason, "export", trained, *LINE, tmp_path / "x")
    assert not list(tmp_path.iterdir())


def shuffled(content: bytes) -> bytes:
    """The graph with its logits negated."""
    import onnx as library

    model = library.load_from_string(content)
    for node in model.graph.node:
        node.output[:] = ["before" if name == "logits" else name for name in node.output]
    model.graph.node.append(library.helper.make_node("Neg", ["before"], ["logits"]))
    return model.SerializeToString()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--format", "onnx", "--quantize", "int4"), "'--quantize': 'int4' is not one of 'int8'"),
        (("--quantize", "int8"), "--quantize: a CLUE submission has no choice of weights; add --format onnx"),
        (("--format", "onnx", "--min-agreement", "0.9"), "--min-agreement compares int8 with fp32"),
        (("--format", "onnx", "--quantize", "int8", "--min-agreement", "98"), "'--min-agreement': Input should"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    recur: Recur, trained: Path, tmp_path: Path, options: tuple[str, ...], reason: str
) -> None:
    recur.refused(2, reason, "export", trained, *options, "--output", tmp_path / "x.zip")


def test_the_linear_model_alone_is_in_half_precision_without_packages(
    recur: Recur, trained: Path, tmp_path: Path, without: Callable[..., None]
) -> None:
    without("onnx", "onnxruntime", "onnxscript")
    source = weighted(trained, tmp_path / "run", 0, 2)
    out, err = recur.ok("export", source, *LINE, tmp_path / "int8", "--json")
    assert json.loads(out)["quantization"]["agreement"] == 1.0
    assert "24 dev rows: accuracy" in err
    recur.ok("export", source, "--format", "onnx", "--output", tmp_path / "fp32", "--quiet")
    content = "".join(f"{text}\n" for text in texts(50)).encode()
    half, full = (labelled(tmp_path / name, content).stdout.decode() for name in ("int8", "fp32"))
    assert [row[0] for row in tsv(half)] == [row[0] for row in tsv(full)]
    assert [float(row[1]) for row in tsv(half)] == pytest.approx([float(row[1]) for row in tsv(full)], abs=1e-3)
    sizes = [(tmp_path / name / "linear.npz").stat().st_size for name in ("int8", "fp32")]
    assert sizes[0] < 0.8 * sizes[1]
    (source / PREDICTIONS).unlink()  # which an unfinished run has not written
    write_manifest(source, [name for name in read_manifest(source) if name != PREDICTIONS])
    recur.refused(4, f"{source}: keeps no texts of dev rows", "export", source, *LINE, tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_largest_integers_are_multiplied_exactly() -> None:
    pytest.importorskip("onnxruntime")
    from onnx import TensorProto, helper, numpy_helper

    weight = np.ones((64, 32), np.float32)  # all weights are 64 in int8, and all activations 255
    ports = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, width])
        for name, width in (("input_ids", 64), ("logits", 32))
    ]
    node, initializer = helper.make_node("MatMul", ["input_ids", "w"], ["logits"]), numpy_helper.from_array(weight, "w")
    graph = helper.make_graph([node], "product", ports[:1], ports[1:], [initializer])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    found = run_graph(quantized(model.SerializeToString()), np.full((3, 64), 5, np.float32))
    assert found == pytest.approx(np.full((3, 32), 320))


def test_half_precision_stays_finite() -> None:
    assert as_half(np.array([1e6, -1e6], np.float32)).tolist() == [65504, -65504]


def test_agreement_below_the_least_is_refused() -> None:
    with pytest.raises(ModelError, match=r"agreement with fp32 is 97\.99 % on 60,000 dev rows, .* asks for 98 %"):
        Agreement(rows=60_000, metric="accuracy", fp32=0.9, int8=0.9, agreement=0.97996).check(0.98)
    agreement = Agreement(rows=100, metric="accuracy", fp32=0.9, int8=0.9, agreement=0.979)
    agreement.check(0.979)
    with pytest.raises(ModelError, match=r"agreement with fp32 is 97\.90 % on 100 dev rows"):
        agreement.check(0.98)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "keys"), VARIANTS)
def test_every_encoder_is_quantised(name: str, keys: dict[str, Any]) -> None:
    pytest.importorskip("onnxscript")
    model = classifier(name, **keys)
    content, _ = onnx.onnx_model(model)
    ids = next(onnx.check_batches(model)).numpy()
    small, expected = run_graph(quantized(content), ids), model(torch.from_numpy(ids), torch.from_numpy(ids) != 0)[0]
    assert np.isfinite(small).all()
    assert np.abs(small - expected.detach().numpy()).max() < 0.1 * (1 + expected.abs().max().item())
