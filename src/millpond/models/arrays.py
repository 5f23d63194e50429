"""Names for the arrays that models and policies exchange."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


def integers(values: Any) -> Ints:
    """The values as a one-dimensional array of integers."""
    return np.atleast_1d(np.asarray(values, dtype=np.int64))


def frozen(values: Any) -> Floats:
    """A private read-only copy, so that a value that holds it cannot change."""
    copy = np.array(values, dtype=np.float64)
    copy.setflags(write=False)
    return copy
