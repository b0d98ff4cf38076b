"""`--quantize int8`: an ONNX graph with weights of 8 bits, a linear model in half precision, and what they change on dev rows.

A product with a weight matrix is one of integers: the weights have one scale a column, and each position of each row of the
batch has a scale of its own, its largest absolute value. So a row never depends on its neighbours. The weights lie in -64..64
and the activations in 1..255, whose sums of two products fit 16 bits: AVX2 without VNNI adds them exactly too. Embedding tables
have one scale a row. Shapes: N rows, C labels.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recurcli.errors import ModelError, pluralize
from recurcli.linear.model import LinearModel
from recurcli.linear.ngrams import Ngrams
from recurcli.metrics import format_score, metric_named
from recurcli.targets import Target
from recurcli.targets.target import Y
from recurcli.tokens.tokenizer import Tokens

MIN_CELLS = 256
"""Smaller weights stay in fp32: the operators around them would need more bytes than they save."""
MIN_ROW = 16
"""Weights of shorter rows stay in fp32: a scale a row would need more than a quarter of their bytes."""
PRODUCT_LEVELS, TABLE_LEVELS, HALF_MAX = 64, 127, 65504.0
SMALLEST_SCALE = 1e-30
"""In place of 0, the scale of a position without a value."""


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """What int8 changes on the dev rows: the headline `metric` of both models, and `Target.agreement`."""

    rows: int
    metric: str
    fp32: float
    int8: float
    agreement: float

    @classmethod
    def of(cls, target: Target, fp32: Y, int8: Y, y: Y) -> "Agreement":
        """Compare the predictions (N, …) of the fp32 and the int8 model, and the labels `y` (N, …)."""
        before, after = (target.score(target.headline, y, predictions) for predictions in (fp32, int8))
        agreement = target.agreement(fp32, int8)
        return cls(rows=len(y), metric=target.headline, fp32=before, int8=after, agreement=agreement)

    def check(self, least: float) -> None:
        """Raise ModelError if the agreement is below `least`."""
        if self.agreement < least:
            share = math.floor(10_000 * self.agreement) / 100  # not rounded up to what is asked for
            raise ModelError(
                f"the int8 model is not written: its agreement with fp32 is {share:.2f} % on "
                f"{pluralize(self.rows, 'dev row')}, and --min-agreement asks for {100 * least:g} %; leave --quantize out"
            )

    def __str__(self) -> str:
        """Return the scores and the agreement in words."""
        metric = metric_named(self.metric)
        fp32, int8 = (
            f"{100 * score:.2f} %" if metric.decimals is None else format_score(self.metric, score)
            for score in (self.fp32, self.int8)
        )
        scores = f"{metric.words} {fp32} in fp32 and {int8} in int8"
        return f"{pluralize(self.rows, 'dev row')}: {scores}; agreement {100 * self.agreement:.2f} %"


def as_half(values: NDArray[np.float32]) -> NDArray[np.float16]:
    """Return `values` in half precision, the largest ones cut to its range."""
    return values.clip(-HALF_MAX, HALF_MAX).astype(np.float16)


def in_half(linear: LinearModel) -> LinearModel:
    """Return the linear model with the weights of half precision."""
    ngrams = Ngrams(linear.ngrams.config, linear.ngrams.keys, as_half(linear.ngrams.weights).astype(np.float32))
    weights, of_vectors = as_half(linear.weights).astype(np.float32), linear.vector_weights
    if of_vectors is not None:
        of_vectors = as_half(of_vectors).astype(np.float32)
    return replace(linear, ngrams=ngrams, weights=weights, vector_weights=of_vectors)


def onnx_session(content: bytes) -> Any:
    """Return a session of onnxruntime for an ONNX file, on the CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def onnx_logits(content: bytes, tokens: Tokens, pad_id: int) -> NDArray[np.float64]:
    """Return the logits (N, C) of a graph, one row at a time as predict.py of an int8 export."""
    session, logits = onnx_session(content), []
    for start, end in zip(tokens.offsets, tokens.offsets[1:], strict=False):
        ids = tokens.ids[start:end] if end > start else [pad_id]
        logits.append(session.run(["logits"], {"input_ids": np.asarray(ids, np.int64)[None]})[0][0])
    return np.asarray(logits, np.float64)


def quantized(content: bytes) -> bytes:
    """Return the ONNX file `content` with weights in int8, and with integer products where a weight is a matrix.

    A weight of any other operator but a table's is stored in int8 and becomes fp32 when the file is loaded.
    """
    import onnx

    model = onnx.load_from_string(content)
    graph = _Graph(model.graph)
    graph.quantize()
    model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    return model.SerializeToString()


class _Graph:
    """A graph whose nodes are replaced; `made` are the new ones so far."""

    def __init__(self, graph: Any) -> None:
        from onnx import TensorProto, numpy_helper

        self.graph = graph
        self.weights: dict[str, NDArray[np.float32]] = {}
        for tensor in graph.initializer:
            if tensor.data_type == TensorProto.FLOAT and len(tensor.dims) > 1 and np.prod(tensor.dims) >= MIN_CELLS:
                values = numpy_helper.to_array(tensor)
                if np.isfinite(values).all():  # a mask is not
                    self.weights[tensor.name] = values
        self.made: list[Any] = []
        self.names: set[str] = set()

    def quantize(self) -> None:
        for node in self.graph.node:
            if node.op_type == "MatMul" and self._is_matrix(node.input[1]):
                self._product(node.input[0], node.input[1], node.output[0])
            elif node.op_type == "Gather" and self._is_matrix(node.input[0]) and not any(a.i for a in node.attribute):
                self._table(node.input[0], node.input[1], node.output[0])
            else:
                self.made.append(node)
        rest, self.made, outputs = self.made, [], {output.name for output in self.graph.output}
        read = {*_names_read(rest), *outputs}
        stored = [name for name in self.weights if name in read and self.weights[name].shape[-1] >= MIN_ROW]
        for name in stored:
            self._stored(name)
        del self.graph.node[:]
        self.graph.node.extend([*self.made, *rest])
        read = {*_names_read(self.graph.node), *outputs} - {*stored}
        kept = [tensor for tensor in self.graph.initializer if tensor.name in read]
        del self.graph.initializer[:]
        self.graph.initializer.extend(kept)

    def _is_matrix(self, name: str) -> bool:
        return name in self.weights and self.weights[name].ndim == 2

    def _product(self, x: str, weight: str, y: str) -> None:
        """y = x W: x is divided by the largest absolute value of its position, and the integer product is scaled back."""
        integers, scale = self._integers(weight, axis=0, levels=PRODUCT_LEVELS, suffix="columns")
        one, zero = self._constant("int8.one", np.float32(1)), self._constant("int8.zero", np.uint8(128))
        quantized, largest = f"{x}.int8", f"{x}.scale"
        if quantized not in self.names:
            self.names.add(quantized)
            last = self._constant("int8.last", np.array([-1], np.int64))
            self._node("Abs", [x], f"{x}.abs")
            self._node("ReduceMax", [f"{x}.abs", last], f"{x}.max", keepdims=1)
            self._node("Mul", [f"{x}.max", self._constant("int8.step", np.float32(1 / 127))], f"{x}.step")
            self._node("Max", [f"{x}.step", self._constant("int8.least", np.float32(SMALLEST_SCALE))], largest)
            self._node("Div", [x, largest], f"{x}.levels")
            self._node("QuantizeLinear", [f"{x}.levels", one, zero], quantized)
        inputs = [quantized, integers, one, scale, zero]
        self._node("MatMulIntegerToFloat", inputs, f"{y}.product", domain="com.microsoft")
        self._node("Mul", [f"{y}.product", largest], y)

    def _table(self, table: str, rows: str, y: str) -> None:
        """y = table[rows], each row of which has its scale."""
        integers, scale = self._integers(table, axis=1, levels=TABLE_LEVELS, suffix="rows")
        self._node("Gather", [integers, rows], f"{y}.rows", axis=0)
        self._node("Gather", [scale, rows], f"{y}.row_scales", axis=0)
        self._cast(f"{y}.rows", f"{y}.row_scales", y)

    def _stored(self, weight: str) -> None:
        """The weight itself, of integers and one scale for each row of its last axis; it is computed when a session begins."""
        integers, scale = self._integers(weight, axis=-1, levels=TABLE_LEVELS, suffix="last")
        self._cast(integers, scale, weight)

    def _cast(self, integers: str, scale: str, y: str) -> None:
        from onnx import TensorProto

        self._node("Cast", [integers], f"{y}.cast", to=TensorProto.FLOAT)
        self._node("Mul", [f"{y}.cast", scale], y)

    def _integers(self, weight: str, *, axis: int, levels: int, suffix: str) -> tuple[str, str]:
        """Return the names of the weight's integers in -levels..levels and of the scales that reduce `axis`."""
        values, names = self.weights[weight], (f"{weight}.int8.{suffix}", f"{weight}.scale.{suffix}")
        if names[0] not in self.names:
            scale = np.abs(values).max(axis=axis, keepdims=axis != 0) / np.float32(levels)
            scale = np.maximum(scale, np.float32(SMALLEST_SCALE))
            self._constant(names[0], np.rint(values / scale).clip(-levels, levels).astype(np.int8))
            self._constant(names[1], scale)
        return names

    def _constant(self, name: str, value: Any) -> str:
        from onnx import numpy_helper

        if name not in self.names:
            self.names.add(name)
            self.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def _node(self, kind: str, inputs: list[str], output: str, **attributes: Any) -> None:
        from onnx import helper

        self.made.append(helper.make_node(kind, inputs, [output], **attributes))


def _names_read(nodes: Any) -> Iterator[str]:
    """Yield the names that `nodes` read, those in the graphs of loops and branches too."""
    for node in nodes:
        yield from node.input
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _names_read(graph.node)
                yield from (output.name for output in graph.output)
