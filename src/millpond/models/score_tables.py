"""Score tables: the score of a candidate is one look-up, at any step.

Corollaries 3 and 4 compute scores from step to step; they multiply by e^(1/alpha) each time, and rounding
errors grow without bound.  Applied backwards in time they divide.  So they are applied once, to build a table
over the positions that :meth:`Model.place` distinguishes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, log

import numpy as np
from scipy.linalg import solve_banded

from millpond.models.array_types import Floats, Ints, freeze
from millpond.models.chains import AutoRegressive, Walk
from millpond.models.lifetime import Exponential, Lifetime
from millpond.models.models import Model, Past, Stationary, Trend

# The table of a walk ends where scores have fallen by this factor; beyond, they fall exponentially.
WALK_FALL = 1e-30
WALK_REACH = 20_000
# How many benefits of an AR(1) model are in memory at a time.
SURFACE_ENTRIES = 4_000_000


@dataclass(frozen=True)
class TableEdge:
    """The continuation of a table beyond one end: ``step`` columns further the score is ``factor`` times."""

    step: int = 1
    factor: float = 0.0


ZERO_EDGE = TableEdge(1, 0.0)
LEVEL_EDGE = TableEdge(1, 1.0)


@dataclass(frozen=True, eq=False)
class ScoreTable:
    """Scores of candidates against one partner stream; column j is position ``low + j``."""

    model: Model
    low: int
    scores: Floats
    below: TableEdge = ZERO_EDGE
    above: TableEdge = ZERO_EDGE

    def __post_init__(self) -> None:
        object.__setattr__(self, "scores", freeze(np.atleast_2d(self.scores)))

    def look_up(self, values: Ints, now: int | Ints, last: int | Ints) -> Floats:
        """The scores of the values, given the current steps and the partner's last values."""
        values, now, last = np.broadcast_arrays(values, now, last)
        row, origin = self.model.place(now, last)
        column = self.model.scale * values - origin - self.low
        width = self.scores.shape[1]
        over = np.maximum(0, -(-(column - width + 1) // self.above.step))
        under = np.maximum(0, -(column // self.below.step)) * (column < 0)
        column = column - over * self.above.step + under * self.below.step
        found = self.scores[row, np.clip(column, 0, width - 1)]
        factor = np.where(over > 0, float(self.above.factor), 1.0) ** over
        factor *= np.where(under > 0, float(self.below.factor), 1.0) ** under
        result: Floats = found * factor
        return result


@lru_cache(maxsize=32)
def heeb_table(model: Model, alpha: float, caching: bool = False) -> ScoreTable:
    """HEEB's table: H with L^exp, for a partner stream that follows the model."""
    decay = Exponential(alpha).decay
    match model:
        case Stationary() | Trend(slope=0):  # a level line: positions are values
            chances = model.noise.weights
            scores = chances * decay / (1 - decay * (1 - chances) if caching else 1 - decay)
            return ScoreTable(model, model.noise.first, scores)
        case Trend():
            return _trend_table(model, decay, caching)
        case Walk():
            return _walk_table(model, decay, caching)
        case AutoRegressive():
            # The sum of the powers of decay * moves, computed on its factors.
            left, right = model.factors
            narrow = np.eye(len(right)) - decay * (right @ left)
            visits = left @ np.linalg.solve(narrow, decay * right)
            if caching:
                visits /= 1 + np.diag(visits)[None, :]
            return ScoreTable(model, model.low, freeze(visits))
    raise TypeError(f"there is no table for {type(model).__name__}: its future does not repeat")


def _trend_table(model: Trend, decay: float, caching: bool) -> ScoreTable:
    """Corollaries 3 to 5, applied from the values that the line has passed to those ahead of it.

    The position of v is u = scale v - height; a step later it is u' = u - climb.  Hence
    h(u) = decay (p(u') + h(u')), and for caching h(u) = decay (p(u') + (1 - p(u')) h(u')).
    """
    climb, scale = model.climb, model.scale
    reach = abs(climb)
    low = scale * (model.noise.first - 1) - reach
    high = scale * (model.noise.last + 1) + reach
    places = np.arange(low, high + 1)
    chances = model.noise(-(-places // scale))
    scores = np.zeros(len(places))
    # A block of `reach` positions depends only on the previous block.
    starts = range(reach, len(places), reach)
    for start in starts:
        stop = min(start + reach, len(places))
        if climb > 0:
            now, later = slice(start, stop), slice(start - reach, stop - reach)
        else:
            now = slice(len(places) - stop, len(places) - start)
            later = slice(len(places) - stop + reach, len(places) - start + reach)
        stay = 1 - chances[later] if caching else 1.0
        scores[now] = decay * (chances[later] + stay * scores[later])
    ahead = TableEdge(reach, decay)
    return ScoreTable(model, low, scores, *((ZERO_EDGE, ahead) if climb > 0 else (ahead, ZERO_EDGE)))


@lru_cache(maxsize=256)  # small, and slow to build
def _walk_table(model: Walk, decay: float, caching: bool) -> ScoreTable:
    """Theorem 5 (2): g = decay (step * delta + step * g), a banded system over the distances v - x.

    Beyond the reach of a step g falls exponentially; the table ends in the middle of that range.
    """
    step = model.step
    lower, upper = max(0, -step.first), max(0, step.last)  # the steps' reach to either side
    spread = max(step.deviation, abs(step.mean), 0.5)
    fall = min(1.0, float(np.sqrt(2 * (1 - decay)) / spread), (1 - decay) / max(abs(step.mean), 1e-9))
    reach = min(WALK_REACH, 4 * (lower + upper) + ceil(-log(WALK_FALL) / fall))
    size = 2 * reach + 1
    bands = np.zeros((lower + upper + 1, size))
    for offset, weight in zip(range(step.first, step.last + 1), step.weights, strict=True):
        # Equation d reads g(d - offset), so its coefficient lies `offset` below the diagonal.
        bands[lower + offset, :] -= decay * weight
    bands[lower, :] += 1.0
    distances = np.arange(-reach, reach + 1)
    visits = solve_banded((upper, lower), bands, decay * step(distances))
    if np.array_equal(step(-distances), step(distances)):
        visits = (visits + visits[::-1]) / 2  # equal distances must tie exactly
    if caching:
        visits = visits / (1 + visits[reach])
    cut = reach // 2
    kept = np.maximum(visits[cut : size - cut], 0.0)
    below = TableEdge(1, float(kept[0] / kept[1]) if kept[1] > 0 else 0.0)
    above = TableEdge(1, float(kept[-1] / kept[-2]) if kept[-2] > 0 else 0.0)
    return ScoreTable(model, -reach + cut, kept, below, above)


# --- other scores ----------------------------------------------------------------------------------

# Computes scores from the benefits of the next steps (a row for each step, a column for each candidate).
Valuation = Callable[[Floats], Floats]


def weighted_sum(lifetime: Lifetime) -> Valuation:
    """H for any L: the sum of the single-step benefits times L."""
    return lambda steps: np.asarray(lifetime.weights(len(steps)) @ steps)


def best_rate(steps: Floats) -> Floats:
    """The highest average benefit per step that a tuple can earn if it is evicted at the best time."""
    average: Floats = np.cumsum(steps, axis=0) / np.arange(1, len(steps) + 1)[:, None]
    return np.asarray(average.max(axis=0))


def surplus(price: float) -> Valuation:
    """The benefit of a tuple less the price of its place in memory, if it is evicted at the best time.

    It is kept for at least one step, so the surplus of a tuple that never earns the price is negative.
    """
    return lambda steps: np.asarray(np.cumsum(steps - price, axis=0).max(axis=0))


def build_table(
    model: Model, valuation: Valuation, ahead: int, caching: bool = False, furthest: int = 10_000
) -> ScoreTable:
    """The table of any valuation of the next ``ahead`` single-step benefits.

    It covers the values that can come within ``ahead`` steps, up to ``furthest`` from the current value or
    the line, and is level beyond.
    """
    return build_tables(model, [valuation], ahead, caching, furthest)[0]


def build_tables(
    model: Model, valuations: Sequence[Valuation], ahead: int, caching: bool = False, furthest: int = 10_000
) -> list[ScoreTable]:
    """The tables of several valuations; the benefits are computed once."""
    if isinstance(model, AutoRegressive):
        return _build_surfaces(model, valuations, ahead, caching)
    low, high = model.reach(ahead)
    low, high = max(low - 1, -furthest), min(high + 1, furthest)
    benefits = model.first_chances if caching else model.chances
    scores = np.empty((len(valuations), (high - low + 1) * model.scale))
    for phase in range(model.scale):
        past = _past_with_height(model, phase)
        _, origin = model.place(np.array([past.now]), np.array([past.last]))
        values = np.arange(low, high + 1) + int(origin[0]) // model.scale
        places = model.scale * values - int(origin[0]) - (model.scale * low - (model.scale - 1))
        steps = benefits(values, ahead, past)
        for row, valuation in zip(scores, valuations, strict=True):
            row[places] = valuation(steps)
    first = model.scale * low - (model.scale - 1)
    return [ScoreTable(model, first, row, LEVEL_EDGE, LEVEL_EDGE) for row in scores]


def _build_surfaces(
    model: AutoRegressive, valuations: Sequence[Valuation], ahead: int, caching: bool
) -> list[ScoreTable]:
    """A surface for each valuation, some rows at a time; one column on either side is for values outside."""
    width = model.rows + 2
    scores = np.empty((len(valuations), model.rows, width))
    values = np.arange(model.low - 1, model.high + 2)
    together = max(1, SURFACE_ENTRIES // (ahead * width))
    for start in range(0, model.rows, together):
        rows = np.arange(start, min(start + together, model.rows))
        if caching:
            pasts = [Past(0, model.low + int(row)) for row in rows]
            steps = np.stack([model.first_chances(values, ahead, past) for past in pasts], axis=1)
        else:
            steps = np.zeros((ahead, len(rows), width))
            steps[:, :, 1:-1] = _chances_from(model, rows, ahead)
        flat = steps.reshape(ahead, -1)
        for table, valuation in zip(scores, valuations, strict=True):
            table[rows] = valuation(flat).reshape(len(rows), width)
    return [ScoreTable(model, model.low - 1, table, LEVEL_EDGE, LEVEL_EDGE) for table in scores]


def _chances_from(model: AutoRegressive, rows: Ints, ahead: int) -> Floats:
    """The probability of every value in range at each of the next steps, from each of the rows."""
    left, right = model.factors
    core = right @ left
    chances = np.empty((ahead, len(rows), model.rows))
    state = left[rows]
    for step in range(ahead):
        np.matmul(state, right, out=chances[step])
        state = state @ core
    return chances


def _past_with_height(model: Model, phase: int) -> Past:
    """A past in which the model's line is ``phase`` units above an integer."""
    for now in range(model.scale):
        _, origin = model.place(np.array([now]), np.array([0]))
        if int(origin[0]) % model.scale == phase:
            return Past(now, 0)
    raise ValueError("the line is never at that fraction of an integer")
