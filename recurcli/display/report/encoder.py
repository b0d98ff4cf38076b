"""The diagnosis of an encoder for the page of `recur eval --report`: a table of its layers, and its gradient norms."""

from collections.abc import Mapping, Sequence
from typing import Any

from recurcli.display.diagnosis import MEASURES
from recurcli.display.report.charts import Curve, curve_chart

MEANINGS = {
    "activation_factor": "How a layer changes the distance of two tokens, as a mean factor. At 1 it is kept; above 1 it grows.",
    "distance_preservation": "The correlation of the tokens' distances after the layer with those of the embeddings.",
    "movement": "How far a layer moves a token's state, on average. A layer near 0 does little.",
    "entropy": "How spread out the values of a layer are, in nats.",
    "attention_entropy": "How many tokens a token looks at, as an entropy in nats: 0 for one token, log T for all T alike.",
    "alpha": "The weight of the layer's update beside its input, which is learned. The layer does nothing at 0.",
    "residual_weight": "The weight of the layer's update beside its input, which is learned. The layer does nothing at 0.",
    "expert_weights": "The mean weight of each expert. One weight near 1 means that the others are not used.",
    "gate": "The share of the recurrence encoding in the attention: 0 is plain self-attention, 1 recurrence alone.",
    "rates": "The factor by which the recurrence of each head fades with every position: 0 forgets at once, 1 never.",
    "angles": "The angle by which the recurrence of each cyclic head turns with every position.",
}
"""The meaning of each measure and statistic of a diagnosis."""


def encoder_values(diagnosis: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the table of the layers, the meaning of its columns, and the plot of the gradient norms."""
    if diagnosis is None or not diagnosis["layers"]:
        return {"layers": [], "gradient_plot": _gradient_plot(diagnosis)}
    layers = diagnosis["layers"]
    stats = list(dict.fromkeys(name for layer in layers for name in layer["stats"]))
    lines = [
        [
            f"{layer['layer']}",
            *(f"{layer[key]:.3f}" for key in MEASURES),
            *(_numbers(layer["stats"].get(name)) for name in stats),
        ]
        for layer in layers
    ]
    words = {**MEASURES, **{name: name.replace("_", " ") for name in stats}}
    return {
        "diagnosed_rows": diagnosis["rows"],
        "layer_head": ["layer", *words.values()],
        "layers": lines,
        "measures": [(words[name], MEANINGS[name]) for name in words if name in MEANINGS],
        "gradient_plot": _gradient_plot(diagnosis),
    }


def _numbers(value: float | Sequence[float] | None) -> str:
    values = value if isinstance(value, list) else [] if value is None else [value]
    return " ".join(f"{number:.3f}" for number in values)


def _gradient_plot(diagnosis: Mapping[str, Any] | None) -> str | None:
    if diagnosis is None or len(diagnosis["gradient_norm_by_distance"]) < 2:
        return None
    norms = diagnosis["gradient_norm_by_distance"]
    return curve_chart([Curve("", range(len(norms)), norms)], "gradient norm", xlabel="positions back", log=True)
