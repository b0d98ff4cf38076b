"""The diagnosis of an encoder for the page of `recur eval --report`: a table of its layers, and its gradient norms."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from recurcli.display.diagnosis import MEASURES, layer_table
from recurcli.display.report.charts import Curve, curve_chart, histogram_chart
from recurcli.display.tables import listing
from recurcli.errors import pluralize

MEANINGS = {
    "activation_factor": "How a layer changes the distance of two tokens, as a mean factor. At 1 it is kept; above 1 it grows.",
    "dot_product_factor": "How a layer changes the size of the dot products of tokens, as a factor. At 1 it is kept.",
    "cosine_factor": "The same for the cosines of tokens, which do not depend on the lengths of states.",
    "distance_preservation": "The correlation of the tokens' distances after the layer with those of the embeddings.",
    "movement": "How far a layer moves a token's state, on average. A layer near 0 does little.",
    "entropy": "How spread out the values of a layer are in a text, in nats.",
    "scaled_entropy": "The same after a division by the values' own scale: 1.42 for normal values, less for others.",
    "attention_entropy": "How many tokens a token looks at, as an entropy in nats: 0 for one token, log T for all T alike.",
    "projected_entropy": "How many of the k projected rows a token looks at, as an entropy in nats: log k for all alike.",
    "head_entropies": "The scaled entropy of each attention head's output. Heads that differ do different work.",
    "expert_entropies": "The scaled entropy of each expert's output.",
    "alpha": "The weight of the layer's update beside its input, which is learned. The layer does nothing at 0.",
    "residual_weight": "The weight of the layer's update beside its input, which is learned. The layer does nothing at 0.",
    "expert_weights": "The mean weight of each expert. One weight near 1 means that the others are not used.",
    "gate": "The share of the recurrence encoding in the attention: 0 is plain self-attention, 1 recurrence alone.",
    "kept": "The mean share of the recurrent state that its gate keeps at each block.",
    "rates": "The factor by which the recurrence of each head fades with every position: 0 forgets at once, 1 never.",
    "iterations": "How often the layer was applied to a text until no state moved, on average.",
    "most_iterations": "How often the layer was applied to the text that took longest.",
    "contraction": "The factor by which a step brings two states together at least, by the bound on the weights.",
    "recurrent_norm": "The largest 2-norm of a trained recurrent matrix. An RNN with a norm below 1 is stable.",
    "truncation_factor": "Lemma 1 of the paper bounds what the window leaves out by this factor, in units of the inputs.",
    "angles": "The angle by which the recurrence of each cyclic head turns with every position.",
}
"""The meaning of each measure and statistic of a diagnosis."""


def encoder_values(diagnosis: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the table of the layers, the meaning of its columns, and the plot of the gradient norms."""
    if diagnosis is None:
        return {"layers": listing([]), "gradient_plot": None, "distributions": []}
    layers = layer_table(diagnosis)
    meanings = {MEASURES.get(name, name.replace("_", " ")): meaning for name, meaning in MEANINGS.items()}
    headers = [column.header for column in layers.columns]
    return {
        "diagnosed_rows": pluralize(diagnosis["rows"], "row"),
        "layers": layers,
        "measures": [(header, meanings[header]) for header in headers if header in meanings],
        "gradient_plot": _gradient_plot(diagnosis),
        "distributions": list(_distributions(diagnosis["layers"])),
    }


def _distributions(layers: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Draw how the scaled entropies, and the weights of experts, are distributed over the texts, layer by layer."""
    for key in dict.fromkeys(key for layer in layers for key in layer["distributions"]):
        rows = [
            (f"layer {layer['layer']}" + (f", expert {number}" if len(lists) > 1 else ""), known)
            for layer in layers
            if (lists := layer["distributions"].get(key))
            for number, values in enumerate(lists, 1)
            if (known := [value for value in values if value is not None])
        ]
        if rows:
            yield histogram_chart(rows, MEASURES.get(key, key.replace("_", " ")))


def _gradient_plot(diagnosis: Mapping[str, Any]) -> str | None:
    norms = diagnosis["gradient_norm_by_distance"]
    if len(norms) < 2:
        return None
    return curve_chart([Curve("", range(len(norms)), norms)], "gradient norm", xlabel="positions back", log=True)
