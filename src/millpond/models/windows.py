"""HEEB under sliding windows: scores whose sum ends when the tuple leaves its window (section 7).

The part of H that is cut off is what the tuple would be worth at the end of its window, as seen from now.
Where steps are independent that is a look-up at a later step.  Where the next value depends on the current
one, a table is made for every number of remaining steps, each from the one before.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from millpond.models.arrays import Floats, Ints, frozen
from millpond.models.chains import AutoRegressive, Walk
from millpond.models.lifetime import Exponential
from millpond.models.models import Model
from millpond.models.scores import ScoreTable, heeb_table

# The most entries that the tables of a chain may have together: a quarter of a gigabyte.
LARGEST = 1 << 25


@dataclass(frozen=True, eq=False)
class WindowTable:
    """Scores of tuples that leave their window after a given number of steps.

    ``layers[l]`` are the scores with l remaining steps, in columns from ``low`` on; the last one also serves
    tuples that stay longer.  There are none where steps are independent.
    """

    whole: ScoreTable
    alpha: float
    layers: Floats | None = None
    low: int = 0

    def look_up(self, values: Ints, now: int | Ints, last: int | Ints, remaining: Ints) -> Floats:
        """The scores of the values; nothing for those that have no remaining steps."""
        left = np.clip(remaining, 0, Exponential(self.alpha).horizon)
        if self.layers is None:
            weight = np.exp(-left / self.alpha)
            later = self.whole.look_up(values, now + left, last)
            within: Floats = np.maximum(self.whole.look_up(values, now, last) - weight * later, 0.0)
            return within
        model = self.whole.model
        values, now, last = np.broadcast_arrays(values, now, last)
        row, origin = model.place(now, last)
        column = model.scale * values - origin - self.low
        inside = (column >= 0) & (column < self.layers.shape[2])
        layer = np.minimum(left, len(self.layers) - 1)
        scores = self.layers[layer, row, np.clip(column, 0, self.layers.shape[2] - 1)]
        return np.where(inside, scores, 0.0)


@lru_cache(maxsize=8)
def window_table(model: Model, alpha: float, window: int) -> WindowTable:
    """The table of H with L^exp cut off at a window in which a tuple stays for at most ``window`` steps."""
    whole = heeb_table(model, alpha)
    longest = min(window, Exponential(alpha).horizon)
    match model:
        case Walk():
            return _walk_layers(model, whole, alpha, longest)
        case AutoRegressive():
            _refuse_large(longest, model.rows * model.rows)
            decayed = Exponential(alpha).decay * model.moves
            layers = np.zeros((longest + 1, model.rows, model.rows))
            for left in range(1, longest + 1):
                layers[left] = decayed @ (layers[left - 1] + np.eye(model.rows))
            return WindowTable(whole, alpha, frozen(layers), model.low)
    return WindowTable(whole, alpha)


def _walk_layers(model: Walk, whole: ScoreTable, alpha: float, longest: int) -> WindowTable:
    """With l steps left: decay times the mean of [d' = 0] + h(d') with l - 1 left, where d' = d - a step."""
    low, high = model.reach(longest)
    low = min(0, max(low, whole.low))
    high = max(0, min(high, whole.low + whole.scores.shape[1] - 1))
    _refuse_large(longest, high - low + 1)
    decayed = Exponential(alpha).decay * model.step.weights
    layers = np.zeros((longest + 1, 1, high - low + 1))
    for left in range(1, longest + 1):
        ahead = layers[left - 1, 0].copy()
        ahead[-low] += 1.0
        spread = np.convolve(ahead, decayed)  # its first entry is distance low + step.first
        columns = np.arange(high - low + 1) - model.step.first
        inside = (columns >= 0) & (columns < len(spread))
        layers[left, 0, inside] = spread[columns[inside]]
    return WindowTable(whole, alpha, frozen(layers), low)


def _refuse_large(longest: int, entries: int) -> None:
    if (longest + 1) * entries > LARGEST:
        raise ValueError(
            f"a window of {longest} steps needs {(longest + 1) * entries:,} scores, more than {LARGEST:,}: "
            "take a shorter one, a smaller alpha, or divide the values"
        )
