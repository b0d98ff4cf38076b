"""The version of recur, which every layer may read."""

__version__ = "0.1.0"
SYSTEMS = "recur runs on Linux and macOS; on Windows use WSL"
