"""The interface of stream models, and the models with independent steps.

A model gives the distribution of a stream's join values, one value per step.  It is immutable; all it needs
of the history is a :class:`Past`: the current step and its value.  By Corollary 5 and Theorem 5 of paper 3
the future of a value depends on even less, which :meth:`Model.place` maps to a row and a column of a table.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import ceil, floor

import numpy as np

from millpond.models.array_types import Floats, Ints
from millpond.models.noise import Noise


@dataclass(frozen=True)
class Past:
    """What a model needs to know of the history: the current step t0, and the value that arrived in it."""

    now: int
    last: int = 0


class Model(ABC):
    """A stream of integers, one per step."""

    @abstractmethod
    def chances(self, values: Ints, ahead: int, past: Past) -> Floats:
        """Pr{X_{t0+Δ} = v | history}: a row for each Δ from 1 to ``ahead``, a column for each value."""

    def first_chances(self, values: Ints, ahead: int, past: Past) -> Floats:
        """Pr{X_{t0+Δ} = v and v does not come before t0+Δ | history}, laid out as in :meth:`chances`.

        Overridden by models whose steps are not independent.
        """
        chances = self.chances(values, ahead, past)
        missed = np.cumprod(1 - chances, axis=0)
        chances[1:] *= missed[:-1]
        return chances

    @abstractmethod
    def sample(self, rng: np.random.Generator, steps: int) -> Ints:
        """Draw a stream from the model, from step 0 on."""

    @abstractmethod
    def reach(self, ahead: int) -> tuple[int, int]:
        """The lowest and highest value of the next ``ahead`` steps, relative to :meth:`origin_value`."""

    def origin_value(self, past: Past) -> int:
        """The value to which :meth:`reach` is relative."""
        return 0

    @property
    def rows(self) -> int:
        """The number of rows of this model's tables."""
        return 1

    @property
    def scale(self) -> int:
        """The number of columns between two neighbouring values."""
        return 1

    def place(self, now: Ints, last: Ints) -> tuple[Ints, Ints]:
        """The row and the origin of each past: value v is in column ``scale * v - origin``.

        Values in the same row and column have the same future, whatever their pasts.
        """
        raise TypeError(f"there is no table for {type(self).__name__}: its future does not repeat")


@dataclass(frozen=True, eq=False)
class Stationary(Model):
    """The same distribution at every step (section 5.2)."""

    noise: Noise

    def chances(self, values: Ints, ahead: int, past: Past) -> Floats:
        return np.tile(self.noise(values), (ahead, 1))

    def reach(self, ahead: int) -> tuple[int, int]:
        return self.noise.first, self.noise.last

    def place(self, now: Ints, last: Ints) -> tuple[Ints, Ints]:
        return np.zeros_like(now), np.zeros_like(now)

    def sample(self, rng: np.random.Generator, steps: int) -> Ints:
        return self.noise.sample(rng, steps)


@dataclass(frozen=True, eq=False)
class Trend(Model):
    """A line plus noise: X_t = floor(slope t + intercept) + Y_t (sections 5.3 and 5.4).

    The slope is a fraction, so that tables are exact: with slope p/q the future of a value depends only on
    q v - (p t + c), its distance from the line in units of 1/q.  The intercept is rounded down to such units,
    which changes no value.
    """

    slope: Fraction
    intercept: Fraction
    noise: Noise

    def __post_init__(self) -> None:
        units = self.slope.denominator
        object.__setattr__(self, "intercept", Fraction(floor(self.intercept * units), units))

    @classmethod
    def line(cls, slope: float | Fraction, intercept: float | Fraction, noise: Noise) -> Trend:
        """The trend whose slope is the nearest fraction with a denominator of at most 64."""
        return cls(Fraction(slope).limit_denominator(64), Fraction(intercept), noise)

    @cached_property
    def scale(self) -> int:
        return self.slope.denominator

    @cached_property
    def climb(self) -> int:
        """How much the line rises per step, in units of 1/scale."""
        return int(self.slope * self.scale)

    @cached_property
    def start(self) -> int:
        """The line at step 0, in units of 1/scale."""
        return int(self.intercept * self.scale)

    def height(self, now: Ints) -> Ints:
        """The line at each step, in units of 1/scale."""
        return self.climb * now + self.start

    def centre(self, now: Ints) -> Ints:
        """The line at each step, rounded down to an integer."""
        return self.height(now) // self.scale

    def chances(self, values: Ints, ahead: int, past: Past) -> Floats:
        steps = past.now + 1 + np.arange(ahead)
        return self.noise(values[None, :] - self.centre(steps)[:, None])

    def reach(self, ahead: int) -> tuple[int, int]:
        ends = (ceil(self.slope), ceil(self.slope * ahead), floor(self.slope), floor(self.slope * ahead))
        return self.noise.first + min(ends), self.noise.last + max(ends)

    def sample(self, rng: np.random.Generator, steps: int) -> Ints:
        return self.centre(np.arange(steps)) + self.noise.sample(rng, steps)

    def place(self, now: Ints, last: Ints) -> tuple[Ints, Ints]:
        return np.zeros_like(now), self.height(now)

    def origin_value(self, past: Past) -> int:
        return int(self.centre(np.array(past.now)))

    def leaves(self, values: Ints) -> Ints:
        """For each value, the first step from which it can no longer come."""
        if self.climb > 0:
            return -((self.start - self.scale * (values - self.noise.first + 1)) // self.climb)
        if self.climb < 0:
            return (self.start - self.scale * (values - self.noise.last)) // -self.climb + 1
        raise ValueError("the values of a level line never leave its range")
