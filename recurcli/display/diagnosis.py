"""The tables of `recur eval --diagnose`, of which the page of `--report` has the first."""

from collections.abc import Mapping, Sequence
from typing import Any

from recurcli.display.screen import Table, by_columns, heading, show
from recurcli.errors import pluralize

MEASURES = {
    "activation_factor": "activation factor",
    "dot_product_factor": "dot-product factor",
    "distance_preservation": "distance correlation",
    "movement": "|h' − h|",
    "scaled_entropy": "scaled entropy",
}
DISTANCES = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


def layer_table(diagnosis: Mapping[str, Any]) -> Table:
    """Return the measures and the statistics of each layer, and the statistics of the whole encoder."""
    layers, whole = diagnosis["layers"], diagnosis["encoder_stats"]
    found = {str(layer["layer"]): layer["stats"] for layer in layers} | ({"all": whole} if whole else {})
    columns = {words: [_numbers(layer[key]) for layer in layers] for key, words in MEASURES.items() if layers}
    for name in dict.fromkeys(name for stats in found.values() for name in stats):
        columns[name.replace("_", " ")] = [_numbers(stats.get(name)) for stats in found.values()]
    return by_columns({"layer": list(found), **columns})


def _numbers(value: float | Sequence[float] | None) -> str:
    """Return a measure as text: one number, or one for each expert; – if it has no value."""
    values = value if isinstance(value, list) else [value]
    return "  ".join("–" if number is None else f"{number:.4f}" for number in values)


def print_diagnosis(diagnosis: Mapping[str, Any]) -> None:
    """Print the measures of the layers, and the gradient norm by distance."""
    norms = diagnosis["gradient_norm_by_distance"]
    of_embeddings = f"scaled entropy of the embeddings {diagnosis['embedding_scaled_entropy']:.4f}"
    distances = [distance for distance in DISTANCES if distance < len(norms)]
    gradients = {"positions back": list(map(str, distances))}
    gradients["gradient norm"] = [f"{norms[distance]:.3g}" for distance in distances]
    layers = layer_table(diagnosis)
    show(
        heading("diagnosis", pluralize(diagnosis["rows"], "row"), of_embeddings),
        *([layers] if layers.rows else []),
        by_columns(gradients),
    )
