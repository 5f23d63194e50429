"""Distributions over the integers, for the noise of a stream and the steps of a walk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt

import numpy as np
from scipy.special import ndtr

from millpond.models.array_types import Floats, Ints, freeze, integers

# A normal variable is further from its mean, in deviations, with a probability below 1e-22.
NORMAL_REACH = 10.0


@dataclass(frozen=True, eq=False)
class Noise:
    """A distribution over finitely many integers: ``weights[i]`` is the probability of ``first + i``.

    >>> Noise.uniform(-1, 1)([-2, -1, 0, 1, 2]).round(3).tolist()
    [0.0, 0.333, 0.333, 0.333, 0.0]
    """

    first: int
    weights: Floats

    def __post_init__(self) -> None:
        weights = freeze(self.weights)
        if weights.ndim != 1 or not len(weights) or (weights < 0).any() or abs(weights.sum() - 1) > 1e-9:
            raise ValueError("the weights of a distribution must not be negative and must sum to 1")
        object.__setattr__(self, "weights", weights)

    @classmethod
    def point(cls, value: int) -> Noise:
        """A single value."""
        return cls(value, np.ones(1))

    @classmethod
    def uniform(cls, low: int, high: int) -> Noise:
        """The uniform distribution on ``low`` … ``high``."""
        return cls(low, np.full(high - low + 1, 1 / (high - low + 1)))

    @classmethod
    def normal(cls, deviation: float, bound: int | None = None, mean: float = 0.0) -> Noise:
        """A normal variable rounded to integers; with ``bound``, conditioned on lying within it of zero."""
        if deviation <= 0:
            raise ValueError("a normal distribution needs a positive deviation")
        if bound is None:
            reach = NORMAL_REACH * deviation + 1
            low, high = int(np.floor(mean - reach)), int(np.ceil(mean + reach))
        else:
            low, high = -bound, bound
        weights = normal_cells(np.arange(low, high + 1), mean, deviation)
        return cls(low, weights / weights.sum())

    @classmethod
    def of(cls, chances: Mapping[int, float]) -> Noise:
        """The distribution with these probabilities."""
        low, high = min(chances), max(chances)
        weights = np.zeros(high - low + 1)
        for value, chance in chances.items():
            weights[value - low] = chance
        return cls(low, weights)

    @property
    def last(self) -> int:
        """The largest value with a weight."""
        return self.first + len(self.weights) - 1

    @property
    def mean(self) -> float:
        return float(np.arange(self.first, self.last + 1) @ self.weights)

    @property
    def deviation(self) -> float:
        values = np.arange(self.first, self.last + 1)
        return sqrt(float((values - self.mean) ** 2 @ self.weights))

    def __call__(self, values: object) -> Floats:
        """The probability of each value."""
        index = np.asarray(values, dtype=np.int64) - self.first
        inside = (index >= 0) & (index < len(self.weights))
        return np.where(inside, self.weights[np.clip(index, 0, len(self.weights) - 1)], 0.0)

    def sample(self, rng: np.random.Generator, count: int) -> Ints:
        """Independent draws."""
        return integers(self.first + rng.choice(len(self.weights), size=count, p=self.weights))


def normal_cells(values: Ints, mean: float | Floats, deviation: float) -> Floats:
    """The probability that a normal variable rounds to each value, without cancellation in the tails."""
    low = (values - 0.5 - mean) / deviation
    high = (values + 0.5 - mean) / deviation
    above = low > 0
    cells: Floats = np.where(above, ndtr(-low) - ndtr(-high), ndtr(high) - ndtr(low))
    return cells
