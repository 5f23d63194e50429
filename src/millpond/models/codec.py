"""Models as JSON values and back, so that state can hold them."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from millpond.models.chains import AutoRegressive, Walk
from millpond.models.models import Model, Offline, Scripted, Stationary, Trend
from millpond.models.noise import Noise


def to_json(model: Model) -> dict[str, Any]:
    """What :func:`from_json` makes the same model from."""
    match model:
        case Offline():
            return {"kind": "offline", "values": model.values.tolist()}
        case Scripted():
            return {"kind": "scripted", "steps": [_noise(noise) for noise in model.steps]}
        case Stationary():
            return {"kind": "stationary", "noise": _noise(model.noise)}
        case Trend():
            line = {"slope": str(model.slope), "intercept": str(model.intercept)}
            return {"kind": "trend", **line, "noise": _noise(model.noise)}
        case Walk():
            return {"kind": "walk", "step": _noise(model.step), "start": model.start}
        case AutoRegressive():
            parameters = {"constant": model.constant, "slope": model.slope, "deviation": model.deviation}
            return {"kind": "ar1", **parameters}
    raise TypeError(f"{type(model).__name__} cannot be written as JSON")


def from_json(value: dict[str, Any]) -> Model:
    """The model that :func:`to_json` described."""
    match value["kind"]:
        case "offline":
            return Offline(np.array(value["values"], np.int64))
        case "scripted":
            return Scripted(tuple(_from_noise(noise) for noise in value["steps"]))
        case "stationary":
            return Stationary(_from_noise(value["noise"]))
        case "trend":
            slope, intercept = Fraction(value["slope"]), Fraction(value["intercept"])
            return Trend(slope, intercept, _from_noise(value["noise"]))
        case "walk":
            return Walk(_from_noise(value["step"]), value["start"])
        case "ar1":
            return AutoRegressive(value["constant"], value["slope"], value["deviation"])
    raise ValueError(f"no model is called {value['kind']!r}")


def _noise(noise: Noise) -> dict[str, Any]:
    return {"first": noise.first, "weights": noise.weights.tolist()}


def _from_noise(value: dict[str, Any]) -> Noise:
    return Noise(value["first"], np.array(value["weights"]))
