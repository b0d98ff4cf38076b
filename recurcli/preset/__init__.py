"""Presets: one frozen dataclass with all settings of an experiment, composed from YAML files and options."""

from recurcli.config import Preset
from recurcli.preset.compose import ResolvedPreset, compose, paper_presets, preset_folder, preset_names

__all__ = ["Preset", "ResolvedPreset", "compose", "paper_presets", "preset_folder", "preset_names"]
