"""The whole experiment as one frozen value, composed of the configs of the floors below."""

from recurcli.preset.compose import Origin, ResolvedPreset, compose, preset_folder, preset_names
from recurcli.preset.schema import Preset

__all__ = ["Origin", "Preset", "ResolvedPreset", "compose", "preset_folder", "preset_names"]
