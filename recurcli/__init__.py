"""Train small text classifiers from labelled rows, evaluate them, and ship them.

>>> import recurcli
>>> model = recurcli.load("runs/x")
>>> model.predict(["one text", ("first of a pair", "second")])
>>> classifier = recurcli.TextClassifier("starsaber-custom").fit(texts, labels)
>>> classifier.predict_proba(["one text"])
"""

import os
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from recurcli.version import SYSTEMS, __version__

__all__ = ["Prediction", "Predictor", "TextClassifier", "TextRegressor", "__version__", "build_encoder", "load"]

# OpenMP reads it when torch is loaded. By default its waiting threads spin: beside one other busy process on two cores, two
# threads then take up to twenty times as long as one. Asleep they take hardly longer.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

if TYPE_CHECKING:
    from recurcli.encoders import build_encoder
    from recurcli.estimator import TextClassifier, TextRegressor
    from recurcli.evaluation.predictor import Prediction, Predictor

    load = Predictor.load

_MODULES = {
    "Prediction": "evaluation.predictor",
    "Predictor": "evaluation.predictor",
    "TextClassifier": "estimator",
    "TextRegressor": "estimator",
    "build_encoder": "encoders",
}


def __getattr__(name: str) -> Any:
    """Import numpy, torch or scikit-learn only when somebody asks for what needs them (PEP 562).

    Raises ImportError on a system without POSIX locks.
    """
    if name in __all__ and find_spec("fcntl") is None:
        raise ImportError(SYSTEMS)
    if name == "load":
        return __getattr__("Predictor").load
    if name not in _MODULES:
        raise AttributeError(f"module 'recurcli' has no attribute '{name}'")
    return getattr(import_module(f"recurcli.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
