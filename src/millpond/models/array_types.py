"""Types of NumPy arrays, and conversions to them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


def integers(values: Any) -> Ints:
    """Convert values to a one-dimensional array of integers."""
    return np.atleast_1d(np.asarray(values, dtype=np.int64))


def freeze(values: Any) -> Floats:
    """A read-only copy, for immutable objects that hold arrays."""
    copy = np.array(values, dtype=np.float64)
    copy.setflags(write=False)
    return copy
