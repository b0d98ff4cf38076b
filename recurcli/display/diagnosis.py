"""The table of `recur eval --diagnose`."""

from collections.abc import Mapping
from typing import Any

from recurcli.display.tables import heading, show, table

MEASURES = {
    "activation_factor": "activation factor",
    "distance_preservation": "distance correlation",
    "movement": "|h' − h|",
    "entropy": "entropy",
}
DISTANCES = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


def print_diagnosis(diagnosis: Mapping[str, Any]) -> None:
    """Print one row per layer, the stats of the layers, and the gradient norm by distance."""
    layers = diagnosis["layers"]
    measured = table("layer", *MEASURES.values(), numbers=True)
    for layer in layers:
        measured.add_row(str(layer["layer"]), *(f"{layer[key]:.4f}" for key in MEASURES))
    title = heading(
        "diagnosis", f"{diagnosis['rows']} rows", f"entropy of the embeddings {diagnosis['embedding_entropy']:.4f}"
    )
    parts: list[Any] = [title, measured]
    stats = table("layer", "statistic", "value")
    for layer in layers:
        for name, value in layer["stats"].items():
            numbers = value if isinstance(value, list) else [value]
            stats.add_row(str(layer["layer"]), name.replace("_", " "), "  ".join(f"{number:.4f}" for number in numbers))
    if stats.row_count:
        parts.append(stats)
    norms = diagnosis["gradient_norm_by_distance"]
    gradient = table("positions back", "gradient norm", numbers=True)
    for distance in DISTANCES:
        if distance < len(norms):
            gradient.add_row(str(distance), f"{norms[distance]:.3g}")
    show(*parts, gradient)
