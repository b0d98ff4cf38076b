"""A diagnosis as a picture: four small plots over the layers, and one over distance (needs matplotlib)."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from recurcli.files import write_atomically


def draw_diagnosis(diagnosis: Mapping[str, Any], path: Path, title: str) -> None:
    """Write the plots of a `Diagnosis`, as a mapping, to `path`, in the format of its ending."""
    from matplotlib.figure import Figure

    layers = diagnosis["layers"]
    numbers = [layer["layer"] for layer in layers]
    figure = Figure(figsize=(11, 6), layout="constrained")
    figure.suptitle(title)
    axes = figure.subplots(2, 3)
    for axis, key, reference in zip(
        axes.flat,
        ("activation_factor", "distance_preservation", "movement", "scaled_entropy"),
        (1.0, 1.0, 0.0, diagnosis["embedding_scaled_entropy"]),
        strict=False,
    ):
        axis.axhline(reference, color="0.8", linewidth=1)
        axis.plot(numbers, [layer[key] for layer in layers], marker="o")
        axis.set(title=key.replace("_", " "), xlabel="layer", xticks=numbers)
    attention = [layer["stats"].get("attention_entropy") for layer in layers]
    if layers and None not in attention:
        axes[1, 1].plot(numbers, attention, marker="o")
        axes[1, 1].set(title="attention entropy (nats)", xlabel="layer", xticks=numbers)
    else:
        axes[1, 1].set_axis_off()
    norms = diagnosis["gradient_norm_by_distance"]
    axes[1, 2].semilogy(range(len(norms)), norms)
    axes[1, 2].set(title="gradient norm by distance", xlabel="positions back")
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
    write_atomically(path, partial(figure.savefig, format=path.suffix.removeprefix("."), dpi=120))
