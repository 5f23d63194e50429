"""Arrays that grow with the number of keys."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from millpond.models.array_types import Bools, Floats, Ints

Array = TypeVar("Array", Ints, Bools, Floats)


def extend(values: Array, count: int, fill: int) -> Array:
    """The values with at least ``count`` entries in the last dimension; at least doubled if extended."""
    missing = count - values.shape[-1]
    if missing <= 0:
        return values
    room = (*values.shape[:-1], max(missing, values.shape[-1]))
    return np.concatenate([values, np.full(room, fill, values.dtype)], axis=-1)
