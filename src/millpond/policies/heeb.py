"""HEEB, the paper's heuristic (section 4.3), by table; alpha is given, or follows the observed lifetime."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from millpond.models.arrays import Floats, Ints
from millpond.models.lifetime import Fixed, ObservedLifetime, alpha_for
from millpond.models.models import Model, Trend
from millpond.models.scores import ScoreTable, heeb_table, valued_table, weighted
from millpond.models.windows import window_table
from millpond.policies.policy import Candidates, Policy, R

# Average lifetimes for which an adaptive HEEB has a table: a fifth apart, from 1.2 to about 1,100 steps.
LIFETIMES = tuple(1.2**i for i in range(1, 39))


class Tabled(Policy):
    """Scores from a table for each side: tuples of R against stream S, and tuples of S against stream R.

    HEEB makes no worse choice than dominance would (Theorem 4); any other table of benefits serves as well.
    """

    def __init__(self, of_r: ScoreTable | None, of_s: ScoreTable) -> None:
        self._tables = (of_r, of_s)
        self._last = [0, 0]

    def observe(self, now: int, r: Ints, s: Ints) -> None:
        for side, values in enumerate((r, s)):
            if len(values):
                self._last[side] = int(values[-1])

    def scores(self, now: int, candidates: Candidates) -> Floats:
        scores = np.empty(len(candidates))
        for side, table in enumerate(self._tables):
            own = candidates.side == side
            if table is not None:
                scores[own] = table.look_up(candidates.value[own], now, self._last[1 - side])
        return scores

    def state(self) -> dict[str, Any]:
        return {"last": list(self._last)}

    def load(self, state: dict[str, Any]) -> None:
        self._last = list(state["last"])


def joining(r: Model, s: Model, alpha: float) -> Tabled:
    """HEEB for joining streams R and S."""
    return Tabled(heeb_table(s, alpha), heeb_table(r, alpha))


def caching(r: Model, alpha: float) -> Tabled:
    """HEEB for caching what stream R refers to."""
    return Tabled(None, heeb_table(r, alpha, caching=True))


def published_alpha(r: Model | None, s: Model | None, size: int) -> float:
    """Alpha as section 5 chooses it for the kinds of the streams; None is a stream without a model.

    Between trends a tuple is estimated to live while the line moves by twice the noise's deviation;
    otherwise alpha is the size of the cache.
    """
    if isinstance(r, Trend) and isinstance(s, Trend):
        speed = (abs(r.slope) + abs(s.slope)) / 2
        lifetime = max(1.5, (r.noise.deviation + s.noise.deviation) / float(speed)) if speed else 1000.0
        return alpha_for(lifetime)
    return float(max(size, 1))


def next_step(r: Model) -> Tabled:
    """A_o (section 5.2): the row least likely to be referenced in the next step goes."""
    return Tabled(None, next_step_table(r))


def next_step_table(model: Model) -> ScoreTable:
    """The chance that the next value of the stream is the candidate's."""
    return valued_table(model, weighted(Fixed(1)), 1)


class Windowed(Tabled):
    """HEEB under a sliding window: nothing counts after a tuple has left it (section 7).

    The window is what the candidates' ``end`` says, at most ``window`` steps from now.
    """

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


class Adaptive(Policy):
    """HEEB whose alpha follows the average lifetime of the tuples it discards (the paper's future work).

    One table for each of a range of lifetimes is made in advance; the nearest one rules.
    """

    def __init__(
        self,
        r: Model,
        s: Model | None,
        start: ObservedLifetime,
        lifetimes: Sequence[float] = LIFETIMES,
    ) -> None:
        self._observed = start
        self._logs = np.log(lifetimes)
        self._policies = [
            caching(r, alpha_for(life)) if s is None else joining(r, s, alpha_for(life)) for life in lifetimes
        ]

    @property
    def observed(self) -> ObservedLifetime:
        """The average lifetime so far."""
        return self._observed

    def _current(self) -> Tabled:
        return self._policies[int(np.argmin(np.abs(self._logs - np.log(self._observed.lifetime))))]

    def observe(self, now: int, r: Ints, s: Ints) -> None:
        for policy in self._policies:
            policy.observe(now, r, s)

    def scores(self, now: int, candidates: Candidates) -> Floats:
        return self._current().scores(now, candidates)

    def discarded(self, now: int, gone: Candidates) -> None:
        ages = (now - gone.arrived).astype(np.float64)
        self._observed = self._observed.discarded(ages[ages > 0])

    def state(self) -> dict[str, Any]:
        return {"observed": asdict(self._observed), "tables": self._policies[R].state()}

    def load(self, state: dict[str, Any]) -> None:
        self._observed = ObservedLifetime(**state["observed"])
        for policy in self._policies:
            policy.load(state["tables"])
