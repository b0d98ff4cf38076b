"""Train, evaluate and ship small text classifiers whose encoders carry recurrence inside attention.

>>> import recurcli
>>> model = recurcli.load("runs/x")
>>> model.predict(["one text", ("first of a pair", "second")])
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["Prediction", "Predictor", "__version__", "load"]

if TYPE_CHECKING:
    from recurcli.evaluation.predictor import Prediction, Predictor

    load = Predictor.load


def __getattr__(name: str) -> Any:
    """Import torch only when somebody asks for what needs it (PEP 562)."""
    if name not in __all__:
        raise AttributeError(f"module 'recurcli' has no attribute '{name}'")
    from recurcli.evaluation import predictor

    return predictor.Predictor.load if name == "load" else getattr(predictor, name)
