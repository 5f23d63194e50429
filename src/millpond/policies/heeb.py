"""HEEB, the paper's heuristic (section 4.3): evicts the lowest expected benefit, read from score tables.

Alpha is given, or follows the observed lifetime of tuples (:class:`AdaptiveHeeb`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from millpond.models.array_types import Floats, Ints
from millpond.models.lifetime import Fixed, ObservedLifetime, alpha_for
from millpond.models.models import Model, Trend
from millpond.models.score_tables import ScoreTable, build_table, heeb_table, weighted_sum
from millpond.policies.policy import Candidates, Policy

# The average lifetimes for which an adaptive HEEB has a table: 20 % apart, from 1.2 to about 1,000 steps.
LIFETIMES = tuple(1.2**i for i in range(1, 39))


class TablePolicy(Policy):
    """Reads scores from one table per side: tuples of R against stream S, and tuples of S against stream R.

    With HEEB's tables no choice contradicts dominance (Theorem 4).
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


def heeb_for_joining(r: Model, s: Model, alpha: float) -> TablePolicy:
    """HEEB for joining streams R and S."""
    return TablePolicy(heeb_table(s, alpha), heeb_table(r, alpha))


def heeb_for_caching(r: Model, alpha: float) -> TablePolicy:
    """HEEB for caching the rows that stream R looks up."""
    return TablePolicy(None, heeb_table(r, alpha, caching=True))


def published_alpha(r: Model | None, s: Model | None, size: int) -> float:
    """The alpha that section 5 chooses for the models of the streams; None is a stream without a model.

    Between trends, a tuple is estimated to live while the line moves by twice the noise's deviation.
    Otherwise alpha is the size of the memory.
    """
    if isinstance(r, Trend) and isinstance(s, Trend):
        speed = (abs(r.slope) + abs(s.slope)) / 2
        lifetime = max(1.5, (r.noise.deviation + s.noise.deviation) / float(speed)) if speed else 1000.0
        return alpha_for(lifetime)
    return float(max(size, 1))


def next_step_policy(r: Model) -> TablePolicy:
    """A_o (section 5.2): evicts the row least likely to be referenced in the next step."""
    return TablePolicy(None, next_step_table(r))


def next_step_table(model: Model) -> ScoreTable:
    """The probability that the next value of the stream is the candidate's."""
    return build_table(model, weighted_sum(Fixed(1)), 1)


class AdaptiveHeeb(Policy):
    """HEEB whose alpha follows the average lifetime of the tuples it evicts (the paper's future work).

    There is a table for each of a range of lifetimes; the nearest one is used.
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
        alphas = [alpha_for(lifetime) for lifetime in lifetimes]
        self._policies = [
            heeb_for_caching(r, alpha) if s is None else heeb_for_joining(r, s, alpha) for alpha in alphas
        ]

    @property
    def observed(self) -> ObservedLifetime:
        """The average lifetime so far."""
        return self._observed

    def _nearest(self) -> TablePolicy:
        return self._policies[int(np.argmin(np.abs(self._logs - np.log(self._observed.lifetime))))]

    def observe(self, now: int, r: Ints, s: Ints) -> None:
        for policy in self._policies:
            policy.observe(now, r, s)

    def scores(self, now: int, candidates: Candidates) -> Floats:
        return self._nearest().scores(now, candidates)

    def discarded(self, now: int, gone: Candidates) -> None:
        ages = (now - gone.arrived).astype(np.float64)
        self._observed = self._observed.after_evictions(ages[ages > 0])

    def state(self) -> dict[str, Any]:
        return {"observed": asdict(self._observed), "tables": self._policies[0].state()}

    def load(self, state: dict[str, Any]) -> None:
        self._observed = ObservedLifetime(**state["observed"])
        for policy in self._policies:
            policy.load(state["tables"])
