"""The table of `recur eval --diagnose`."""

from collections.abc import Mapping
from typing import Any

from recurcli.display.tables import heading, show, table
from recurcli.errors import pluralize

MEASURES = {
    "activation_factor": "activation factor",
    "dot_product_factor": "dot-product factor",
    "distance_preservation": "distance correlation",
    "movement": "|h' − h|",
    "entropy": "entropy",
    "scaled_entropy": "scaled entropy",
}
DISTANCES = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


def measured(layer: Mapping[str, Any], key: str, digits: int) -> str:
    """Return a measure of MEASURES as text, with its standard deviation over texts where it has one; – if it has no value."""
    if layer[key] is None:
        return "–"
    std = layer.get(f"{key}_std")
    return f"{layer[key]:.{digits}f}" + ("" if std is None else f" ± {std:.{digits}f}")


def print_diagnosis(diagnosis: Mapping[str, Any]) -> None:
    """Print one row per layer, the stats of the layers, and the gradient norm by distance."""
    layers = diagnosis["layers"]
    measures = table("layer", *MEASURES.values(), numbers=True)
    for layer in layers:
        measures.add_row(str(layer["layer"]), *(measured(layer, key, 4) for key in MEASURES))
    title = heading(
        "diagnosis",
        pluralize(diagnosis["rows"], "row"),
        f"entropy of the embeddings {diagnosis['embedding_entropy']:.4f}, scaled {diagnosis['embedding_scaled_entropy']:.4f}",
    )
    parts: list[Any] = [title, measures] if layers else [title]
    stats = table("layer", "statistic", "value")
    for place, found in (
        *((str(layer["layer"]), layer["stats"]) for layer in layers),
        ("all", diagnosis["encoder_stats"]),
    ):
        for name, value in found.items():
            numbers = value if isinstance(value, list) else [value]
            stats.add_row(
                place,
                name.replace("_", " "),
                "  ".join("–" if number is None else f"{number:.4f}" for number in numbers),
            )
    if stats.row_count:
        parts.append(stats)
    norms = diagnosis["gradient_norm_by_distance"]
    gradient = table("positions back", "gradient norm", numbers=True)
    for distance in DISTANCES:
        if distance < len(norms):
            gradient.add_row(str(distance), f"{norms[distance]:.3g}")
    show(*parts, gradient)
