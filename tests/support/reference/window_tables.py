"""HEEB under sliding windows: the sum of H ends when the tuple leaves its window (section 7).

The part of H after the window is the discounted score at the end of the window.  For independent steps that
is one look-up at a later step.  For Markov models there is a table for every number of remaining steps, each
computed from the previous one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from millpond.models.array_types import Floats, Ints, freeze
from millpond.models.chains import AutoRegressive, Walk
from millpond.models.lifetime import Exponential
from millpond.models.models import Model
from millpond.models.score_tables import ScoreTable, heeb_table
from millpond.policies.heeb import TablePolicy
from millpond.policies.policy import Candidates

# The most entries of all tables of a Markov model: a quarter of a gigabyte.
LARGEST = 1 << 25


@dataclass(frozen=True, eq=False)
class WindowTable:
    """Scores of tuples that leave their window after a given number of steps.

    ``layers[l]`` are the scores with l remaining steps, in columns from ``low`` on; the last one is also for
    tuples that stay longer.  There are no layers for independent steps.
    """

    whole: ScoreTable
    alpha: float
    layers: Floats | None = None
    low: int = 0

    def look_up(self, values: Ints, now: int | Ints, last: int | Ints, remaining: Ints) -> Floats:
        """The scores of the values; 0 for those with no remaining steps."""
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
    """The table of H with L^exp for windows of at most ``window`` steps."""
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
            return WindowTable(whole, alpha, freeze(layers), model.low)
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
    return WindowTable(whole, alpha, freeze(layers), low)


def _refuse_large(longest: int, entries: int) -> None:
    if (longest + 1) * entries > LARGEST:
        raise ValueError(
            f"a window of {longest} steps needs {(longest + 1) * entries:,} scores, more than {LARGEST:,}: "
            "take a shorter one, a smaller alpha, or divide the values"
        )


class WindowedHeeb(TablePolicy):
    """HEEB under a sliding window, which ends at a candidate's ``end``, at most ``window`` steps from now."""

    def __init__(self, r: Model, s: Model, alpha: float, window: int) -> None:
        super().__init__(heeb_table(s, alpha), heeb_table(r, alpha))
        self._windows = (window_table(s, alpha, window), window_table(r, alpha, window))

    def scores(self, now: int, candidates: Candidates) -> Floats:
        scores = np.empty(len(candidates))
        remaining = candidates.end - now - 1
        for side, table in enumerate(self._windows):
            own = candidates.side == side
            scores[own] = table.look_up(candidates.value[own], now, self._last[1 - side], remaining[own])
        return scores
