"""Estimates how many results a join misses because tuples were shed, with a 95 % confidence interval.

Equality joins count the keys of shed tuples (``shed_keys``), other joins weigh a sample of the shed tuples
(``shed_sample``).  Both estimates are unbiased.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

# The confidence of every interval, and the quantile of the normal distribution that belongs to it.
CONFIDENCE = 0.95
QUANTILE = 1.959964


@dataclass(frozen=True)
class MissedEstimate:
    """An estimated number of results, and the squared distances of the limits of its interval.

    Independent estimates add up: the squared distances do, as variances do (Zou and Donner: "Construction of
    confidence limits about effect measures", the MOVER method).
    """

    value: float = 0.0
    below: float = 0.0
    above: float = 0.0

    def __add__(self, other: MissedEstimate) -> MissedEstimate:
        return MissedEstimate(self.value + other.value, self.below + other.below, self.above + other.above)

    def scale(self, factor: float) -> MissedEstimate:
        return MissedEstimate(self.value * factor, self.below * factor**2, self.above * factor**2)

    @property
    def limits(self) -> tuple[float, float]:
        return find_limits(self.value, self.below, self.above)


def find_limits(value: float, below: float, above: float) -> tuple[float, float]:
    """The interval of a number that is not negative, from the squared distances of its limits."""
    return max(0.0, value - sqrt(below)), max(0.0, value + sqrt(above))


def estimate_from_moments(value: float, variance: float, step: float) -> MissedEstimate:
    """The interval of a skewed estimate: a score interval, exact to the second order for a Poisson count.

    The estimate grows in steps: each observed event adds about ``step`` to it.  With many events this is the
    usual interval, with none it still reaches up to what no event is compatible with.
    """
    centre = QUANTILE**2 * step / 2
    half = QUANTILE * sqrt(variance + (QUANTILE * step / 2) ** 2)
    return MissedEstimate(value, min(half - centre, value) ** 2, (half + centre) ** 2)


def estimate_from_expectation(mean: float, variance: float) -> MissedEstimate:
    """The interval of a random number of events whose distribution is known: skewed as a Poisson count."""
    if variance <= 0:
        return MissedEstimate(mean)
    spread, shift = QUANTILE * sqrt(variance), (QUANTILE**2 - 1) / 6
    return MissedEstimate(mean, max(0.0, spread - shift + 0.5) ** 2, (spread + shift + 0.5) ** 2)
