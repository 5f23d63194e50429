"""Estimates of how long a tuple is kept: the functions L of section 4.3."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, exp, inf, log, log1p
from typing import Protocol

import numpy as np

from millpond.models.array_types import Floats

# Terms of a sum that together weigh less than this are left out.
NEGLIGIBLE = 1e-13
# The longest horizon a sum over the future may have.
LONGEST = 100_000


class Lifetime(Protocol):
    """L(Δ): the estimated probability that a tuple is still kept Δ steps from now.

    It lies between 0 and 1 and never rises: properties 1 and 2 of section 4.3.
    """

    def weights(self, ahead: int) -> Floats:
        """L(1) to L(ahead)."""

    @property
    def horizon(self) -> int:
        """The number of steps after which the weights are negligible, or the most that are summed."""


@dataclass(frozen=True)
class Fixed:
    """Every tuple is kept for ``span`` steps."""

    span: int

    def weights(self, ahead: int) -> Floats:
        return (np.arange(1, ahead + 1) <= self.span).astype(np.float64)

    @property
    def horizon(self) -> int:
        return self.span


@dataclass(frozen=True)
class Exponential:
    """L^exp(Δ) = e^(-Δ/alpha), the paper's choice."""

    alpha: float

    def __post_init__(self) -> None:
        if not self.alpha > 0:
            raise ValueError("alpha must be positive")

    @property
    def decay(self) -> float:
        """e^(-1/alpha), the probability of being kept for another step."""
        return exp(-1 / self.alpha)

    def weights(self, ahead: int) -> Floats:
        weights: Floats = np.exp(-np.arange(1, ahead + 1) / self.alpha)
        return weights

    @property
    def horizon(self) -> int:
        tail = -log(-np.expm1(-1 / self.alpha))  # of the geometric series beyond the horizon
        return min(LONGEST, max(1, ceil(self.alpha * (tail - log(NEGLIGIBLE)))))


def alpha_for(lifetime: float) -> float:
    """The alpha under which L^exp predicts the given average lifetime 1/(1 - e^(-1/alpha)) (section 4.3).

    >>> round(1 / (1 - exp(-1 / alpha_for(12.5))), 9)
    12.5
    """
    if lifetime <= 1:
        raise ValueError("an average lifetime must be more than one step")
    return inf if lifetime == inf else -1 / log1p(-1 / lifetime)


@dataclass(frozen=True)
class ObservedLifetime:
    """The moving average of the lifetimes of evicted tuples; ``memory`` is in evictions."""

    lifetime: float
    memory: float = 1000.0

    def after_evictions(self, ages: Floats) -> ObservedLifetime:
        """The average after tuples of these ages (in steps, at least one) were evicted together."""
        if not len(ages):
            return self
        keep = (1 - 1 / self.memory) ** len(ages)
        return ObservedLifetime(keep * self.lifetime + (1 - keep) * float(np.mean(ages)), self.memory)

    @property
    def alpha(self) -> float:
        return alpha_for(max(self.lifetime, 1.0 + 1e-6))
