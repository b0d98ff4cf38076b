"""The version of recur, which every layer may read."""

__version__ = "0.1.0"
