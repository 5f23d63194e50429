"""Scores of the tuples of one binary join, by policy: tuples with the lowest scores are shed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from millpond.engines.budgeted.partner_stream import PartnerStream
from millpond.engines.budgeted.program import LevelProgram
from millpond.models.array_types import Floats, Ints
from millpond.models.models import Model
from millpond.policies.heeb import published_alpha
from millpond.policies.registry import PolicyChoice

# Counters of each sketch, divided among the shards.
COUNTERS = 1 << 16
# The lowest alpha, in steps of the partner stream.
MIN_ALPHA = 0.05


@dataclass(frozen=True, eq=False)
class CandidateTuples:
    """The tuples of one side that may be kept, by column.

    ``value`` is the join key, ``place`` the position in a sliding window, ``came`` the time of arrival,
    ``used`` the time of the last match and ``uses`` the number of matches.
    """

    value: Ints | Floats
    place: Floats
    came: Floats
    used: Floats
    uses: Ints


class LevelScorer:
    """Scores the tuples of one level under the chosen policy."""

    def __init__(
        self,
        level: LevelProgram,
        choice: PolicyChoice,
        models: tuple[Model | None, Model | None],
        size: int,
        shards: int,
    ) -> None:
        self._level = level
        self._choice = choice
        self._size = size
        width = max(1, COUNTERS // shards)
        self.partners = tuple(PartnerStream(level, choice, model, size, width) for model in models)

    def score_tuples(
        self, side: int, tuples: CandidateTuples, rng: np.random.Generator, clock: float
    ) -> Floats:
        """The scores of the tuples of a side (0: left, 1: right); only their order matters."""
        match self._choice.name:
            case "fifo":
                return tuples.came
            case "lru":
                return tuples.used
            case "lfu":
                return tuples.uses.astype(np.float64)
            case "rand":
                return rng.random(len(tuples.came))
        low, high = self._limits_of(side)
        partner = self.partners[1 - side]
        if self._choice.name == "prob":
            return partner.match_rates(tuples.value, low, high)
        alpha = self._alpha_for(partner, clock)
        benefit = partner.expected_benefit(tuples.value, alpha, low, high)
        if self._level.windowed and high is not None:
            # Paper 3, section 7: partners that arrive after the tuple has left the window do not count.
            left = np.maximum(partner.front.steps_until(tuples.place + high), 0.0)
            benefit = benefit * -np.expm1(-left / alpha)
        return benefit

    def match_rates(self, side: int, values: Ints | Floats, places: Floats) -> Floats:
        """The share of arrivals that are expected to match each tuple of a side, from those seen so far.

        Tuples that have left the sliding window, as far as known, are expected to match a little.
        """
        low, high = self._limits_of(side)
        partner = self.partners[1 - side]
        rates = partner.match_rates(values, low, high)
        if self._level.windowed and high is not None:
            rates = np.where(partner.front.steps_until(places + high) < 0, rates / 100, rates)
        return rates

    def _limits_of(self, side: int) -> tuple[float | None, float | None]:
        """The band or window as seen from a side."""
        low, high = self._level.low, self._level.high
        return (low, high) if side == 0 else (None if high is None else -high, None if low is None else -low)

    def scores_by_model(self, side: int, values: Ints, clock: float) -> Floats | None:
        """The expected benefit of join keys of a side; None where their partners have no model."""
        partner = self.partners[1 - side]
        if not self._choice.expects or partner.model is None:
            return None
        return partner.expected_benefit(values, self._alpha_for(partner, clock), None, None)

    def _alpha_for(self, partner: PartnerStream, clock: float) -> float:
        """Alpha in steps of the partner stream, which may be faster or slower than the other side."""
        rate = partner.steps / clock if clock else 1.0
        return max(self.alpha * rate, MIN_ALPHA)

    @property
    def alpha(self) -> float:
        """The given alpha, or the one that paper 3, section 5, chooses for the models of the two streams."""
        if self._choice.alpha is not None:
            return self._choice.alpha
        left, right = (partner.model for partner in self.partners)
        return published_alpha(left, right, self._size)
