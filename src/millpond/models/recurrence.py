"""Corollaries 3 and 4: from a tuple's score at one step to its score at the next.

Each step multiplies by e^(1/alpha), and with it every rounding error: after some hundred steps the scores are
noise.  So they are read afresh from a table before the errors can matter.
"""

from __future__ import annotations

from math import log

import numpy as np

from millpond.models.arrays import Floats, Ints
from millpond.models.models import Model, Past
from millpond.models.scores import ScoreTable, heeb_table

# The error that scores may have gathered when they are read afresh.
TOLERATED = 1e-10


def joining_step(scores: Floats, chances: Floats, alpha: float) -> Floats:
    """Corollary 3: H at t0 from H at t0 - 1 and the chances, as seen from t0 - 1, of a partner at t0."""
    return np.asarray(np.exp(1 / alpha) * scores - chances)


def caching_step(scores: Floats, chances: Floats, alpha: float) -> Floats:
    """Corollary 4: the same for rows of a cache that were not referenced at t0; chances are below 1."""
    return np.asarray((np.exp(1 / alpha) * scores - chances) / (1 - chances))


class Recurrence:
    """Scores of a set of values against an independent stream, carried from step to step.

    They stay within 1e-9 of the defining sum however long they are carried.
    """

    def __init__(self, model: Model, alpha: float, values: Ints, now: int, caching: bool = False) -> None:
        self._model = model
        self._alpha = alpha
        self._values = values
        self._now = now
        self._step = caching_step if caching else joining_step
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

    def advance(self) -> None:
        """Go on by a step."""
        chances = self._model.chances(self._values, 1, Past(self._now))[0]
        self._now += 1
        if self._now % self._period == 0 or (chances > 0.9).any():
            self._scores = self._table.look_up(self._values, self._now, 0)
        else:
            self._scores = self._step(self._scores, chances, self._alpha)
