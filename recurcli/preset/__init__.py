"""Presets: one frozen dataclass with all settings of an experiment, composed from YAML files and options."""

from recurcli.preset.compose import Origin, ResolvedPreset, compose, paper_presets, preset_folder, preset_names
from recurcli.preset.schema import Preset

__all__ = ["Origin", "Preset", "ResolvedPreset", "compose", "paper_presets", "preset_folder", "preset_names"]
