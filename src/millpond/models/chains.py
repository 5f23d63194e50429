"""Markov models, whose next value depends on the current one: random walk, AR(1) (section 5.5, Theorem 5)."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import ceil, floor, sqrt

import numpy as np

from millpond.models.array_types import Floats, Ints
from millpond.models.models import Model, Past
from millpond.models.noise import Noise, normal_cells

# The range of an AR(1) model around its long-run mean, in long-run deviations.
AR1_REACH = 8.0
# The largest number of values an AR(1) model may range over: its tables are square.
AR1_VALUES = 4096
# The largest error of its probabilities that counts as rounding.
EXACT = 1e-14


@dataclass(frozen=True, eq=False)
class Walk(Model):
    """A random walk: X_t = X_{t-1} + Y_t with independent steps Y_t, whose mean is the drift."""

    step: Noise
    start: int = 0

    @classmethod
    def normal(cls, deviation: float, drift: float = 0.0, start: int = 0) -> Walk:
        """A walk with rounded normal steps."""
        return cls(Noise.normal(deviation, mean=drift), start)

    def chances(self, values: Ints, ahead: int, past: Past) -> Floats:
        offsets = values - past.last
        chances = np.empty((ahead, len(values)))
        law, first = np.ones(1), 0
        for delta in range(ahead):
            law, first = np.convolve(law, self.step.weights), first + self.step.first
            index = offsets - first
            inside = (index >= 0) & (index < len(law))
            chances[delta] = np.where(inside, law[np.clip(index, 0, len(law) - 1)], 0.0)
        return chances

    def reach(self, ahead: int) -> tuple[int, int]:
        ends = (self.step.first, self.step.first * ahead, self.step.last, self.step.last * ahead)
        return min(ends), max(ends)

    def first_chances(self, values: Ints, ahead: int, past: Past) -> Floats:
        """By the renewal equation: a visit to v is the first one, or a return after an earlier first one."""
        visits = self.chances(values, ahead, past)
        returns = self.chances(np.zeros(1, np.int64), ahead, Past(0, 0))[:, 0]
        return first_visits(visits, np.tile(returns[:, None], (1, len(values))))

    def sample(self, rng: np.random.Generator, steps: int) -> Ints:
        moves = self.step.sample(rng, steps)
        moves[0] = self.start
        return np.cumsum(moves)

    def place(self, now: Ints, last: Ints) -> tuple[Ints, Ints]:
        return np.zeros_like(last), last

    def origin_value(self, past: Past) -> int:
        return past.last


@dataclass(frozen=True, eq=False)
class AutoRegressive(Model):
    """AR(1) on the integers: X_t is constant + slope X_{t-1} + a normal variable, rounded; 0 < |slope| < 1.

    Values are limited to ``low`` … ``high``; the probability of leaving that range is below 1e-14.
    """

    constant: float
    slope: float
    deviation: float
    low: int = field(init=False)
    high: int = field(init=False)

    def __post_init__(self) -> None:
        if not 0 < abs(self.slope) < 1 or self.deviation <= 0:
            raise ValueError("AR(1) needs a slope between -1 and 1, not 0, and a positive deviation")
        reach = AR1_REACH * self.long_run_deviation + 1
        low, high = floor(self.long_run_mean - reach), ceil(self.long_run_mean + reach)
        if high - low >= AR1_VALUES:
            raise ValueError(
                f"an AR(1) model over {high - low + 1} values is too wide for its table of at most "
                f"{AR1_VALUES}; divide the values by {ceil((high - low + 1) / AR1_VALUES)}"
            )
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)

    @cached_property
    def moves(self) -> Floats:
        """The transition matrix, a row for each current value.  Lazy: most fitted models are not used."""
        values = np.arange(self.low, self.high + 1)
        means = np.asarray(self.constant + self.slope * values, np.float64)
        moves = normal_cells(values[None, :], means[:, None], self.deviation)
        below = np.maximum(0, 1 - moves.sum(axis=1))
        upper = means > (self.low + self.high) / 2
        moves[:, -1] += np.where(upper, below, 0)
        moves[:, 0] += np.where(upper, 0, below)
        moves.setflags(write=False)
        return moves

    def next_chances(self, before: Ints, after: Ints) -> Floats:
        """The probability of each value in ``after`` directly after the one in ``before``."""
        inside = (after >= self.low) & (after <= self.high)
        means = np.asarray(self.constant + self.slope * np.clip(before, self.low, self.high), np.float64)
        return np.where(inside, normal_cells(after, means, self.deviation), 0.0)

    @property
    def long_run_mean(self) -> float:
        return self.constant / (1 - self.slope)

    @property
    def long_run_deviation(self) -> float:
        return self.deviation / sqrt(1 - self.slope**2)

    @property
    def rows(self) -> int:
        return self.high - self.low + 1

    @cached_property
    def factors(self) -> tuple[Floats, Floats]:
        """Two narrow matrices whose product is ``moves`` up to rounding.

        Wide noise makes the rows of ``moves`` smooth, and then its numerical rank is low.  The factors come
        from a randomized range finder (Halko, Martinsson and Tropp, 2011) with a fixed seed.  If the rank is
        not low they are the identity and ``moves``.
        """
        rng = np.random.default_rng(0)
        rank = 32
        while rank <= self.rows // 4:
            left = np.asarray(np.linalg.qr(self.moves @ rng.standard_normal((self.rows, rank)))[0])
            right = left.T @ self.moves
            if float(np.abs(self.moves - left @ right).max()) < EXACT:
                return left, right
            rank *= 2
        return np.eye(self.rows), self.moves

    def reach(self, ahead: int) -> tuple[int, int]:
        return self.low, self.high

    def state(self, values: Ints) -> Ints:
        """The row of each value."""
        return np.clip(values, self.low, self.high) - self.low

    def chances(self, values: Ints, ahead: int, past: Past) -> Floats:
        law = np.zeros(self.rows)
        law[self.state(np.array([past.last]))] = 1.0
        columns = self.state(values)
        inside = (values >= self.low) & (values <= self.high)
        chances = np.empty((ahead, len(values)))
        for delta in range(ahead):
            law = law @ self.moves
            chances[delta] = np.where(inside, law[columns], 0.0)
        return chances

    def first_chances(self, values: Ints, ahead: int, past: Past) -> Floats:
        """By the renewal equation: a visit to v is the first one, or a return after an earlier first one."""
        visits = self.chances(values, ahead, past)
        returns = np.column_stack(
            [
                self.chances(values[i : i + 1], ahead, Past(0, int(value)))[:, 0]
                for i, value in enumerate(values)
            ]
        )
        return first_visits(visits, returns)

    def sample(self, rng: np.random.Generator, steps: int) -> Ints:
        noise = rng.normal(self.constant, self.deviation, steps)
        values = np.empty(steps, np.int64)
        current = round(self.long_run_mean)
        for step in range(steps):
            values[step] = current = min(max(round(self.slope * current + noise[step]), self.low), self.high)
        return values

    def place(self, now: Ints, last: Ints) -> tuple[Ints, Ints]:
        return self.state(last), np.zeros_like(last)


def first_visits(visits: Floats, returns: Floats) -> Floats:
    """Probabilities of first visits, from those of visits and of returns from the value to itself."""
    firsts = np.zeros_like(visits)
    for delta in range(len(visits)):
        later = (firsts[:delta] * returns[:delta][::-1]).sum(axis=0)
        firsts[delta] = np.maximum(visits[delta] - later, 0.0)
    return firsts
