"""Corollaries 3 and 4: from a tuple's score at one step to its score at the next.

Each step multiplies the scores by e^(1/alpha), and so every rounding error: after some hundred steps the
scores are noise.  So they are read from a table again before the errors matter.
"""

from __future__ import annotations

from math import log

import numpy as np

from millpond.models.array_types import Floats, Ints
from millpond.models.models import Model, Past
from millpond.models.score_tables import ScoreTable, heeb_table
from millpond.policies.kernels.compiled import compiled

# The largest error before scores are read from the table again.
TOLERATED = 1e-10


@compiled
def joining_step(scores: Floats, chances: Floats, alpha: float) -> Floats:
    """Corollary 3: H at t0 from H at t0 - 1 and the probability, given t0 - 1, of a partner at t0."""
    following: Floats = np.exp(1 / alpha) * scores - chances
    return following


@compiled
def caching_step(scores: Floats, chances: Floats, alpha: float) -> Floats:
    """Corollary 4: the same for cached rows that were not referenced at t0; probabilities are below 1."""
    following: Floats = (np.exp(1 / alpha) * scores - chances) / (1 - chances)
    return following


@compiled
def _carry(scores: Floats, chances: Floats, alpha: float, caching: bool) -> Floats:
    """The scores after a step for each row of ``chances``."""
    for step in range(len(chances)):
        if caching:
            scores = caching_step(scores, chances[step], alpha)
        else:
            scores = joining_step(scores, chances[step], alpha)
    return scores


class Recurrence:
    """Scores of a set of values against an independent stream, carried from step to step.

    They stay within 1e-9 of the defining sum after any number of steps.
    """

    def __init__(self, model: Model, alpha: float, values: Ints, now: int, caching: bool = False) -> None:
        self._model = model
        self._alpha = alpha
        self._values = values
        self._now = now
        self._caching = caching
        self._table: ScoreTable = heeb_table(model, alpha, caching)
        # A rounding error of 1e-16 grows by e^(1/alpha) a step, for caching also by 1/(1 - p).
        highest = float(model.chances(values, 1, Past(now)).max()) if caching else 0.0
        growth = 1 / alpha - log(1 - min(highest, 0.9))
        self._period = max(1, int(log(TOLERATED / 1e-15) / growth))
        self._scores = self._table.look_up(values, now, 0)

    @property
    def scores(self) -> Floats:
        """H of each value at the current step."""
        return self._scores

    def advance(self, steps: int = 1) -> None:
        """Advance by a number of steps; every ``_period`` steps the scores are read from the table."""
        stop = self._now + steps
        while self._now < stop:
            block = min(stop - self._now, self._period - self._now % self._period)
            chances = self._model.chances(self._values, block, Past(self._now))
            self._now += block
            if self._now % self._period == 0 or (chances > 0.9).any():
                self._scores = self._table.look_up(self._values, self._now, 0)
            else:
                self._scores = _carry(self._scores, chances, self._alpha, self._caching)
