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
    _attention_entropy(axes[1, 1], layers)
    norms = diagnosis["gradient_norm_by_distance"]
    axes[1, 2].semilogy(range(len(norms)), norms)
    axes[1, 2].set(title="gradient norm by distance", xlabel="positions back")
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
    write_atomically(path, partial(figure.savefig, format=path.suffix.removeprefix("."), dpi=120))


def _attention_entropy(axis: Any, layers: list[dict[str, Any]]) -> None:
    """Attention entropy where there is attention, else the weights of the experts, else nothing."""
    numbers = [layer["layer"] for layer in layers]
    kinds: tuple[tuple[str, str, dict[str, Any]], ...] = (
        ("attention_entropy", "attention entropy (nats)", {}),
        ("expert_weights", "expert weights", {"ylim": (0, 1)}),
    )
    for key, title, limits in kinds:
        values = [layer["stats"].get(key) for layer in layers]
        if numbers and None not in values:
            axis.plot(numbers, values, marker="o")
            axis.set(title=title, xlabel="layer", xticks=numbers, **limits)
            return
    axis.set_axis_off()
