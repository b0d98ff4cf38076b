"""Presets: one frozen dataclass with all settings of an experiment, composed from YAML files and options."""

from recurcli.preset.compose import ResolvedPreset, compose, paper_presets, preset_folder, preset_names
from recurcli.preset.schema import Preset

__all__ = ["Preset", "ResolvedPreset", "compose", "paper_presets", "preset_folder", "preset_names"]
