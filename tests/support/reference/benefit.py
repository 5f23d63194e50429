"""The expected cumulative benefit (ECB) of keeping a tuple, dominance and H (sections 4.1 to 4.3, and 7).

Every function takes the model of the *partner* stream: the one whose future tuples the kept ones join.
An ECB is a matrix with a row for each Δ from 1 and a column for each candidate.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np

from millpond.models.array_types import Bools, Floats, Ints
from millpond.models.lifetime import Lifetime
from millpond.models.models import Model, Past
from millpond.models.noise import Noise

# Differences below this count as rounding in a dominance test.
ROUNDING = 1e-12

# Single-step benefits: Model.chances for joining, Model.first_chances for caching.
Steps = Callable[[Model, Ints, int, Past], Floats]


def joining_steps(model: Model, values: Ints, ahead: int, past: Past) -> Floats:
    """The expected results of each future step: the probability of a partner."""
    return model.chances(values, ahead, past)


def caching_steps(model: Model, values: Ints, ahead: int, past: Past) -> Floats:
    """The expected hits of each future step, by the reduction to joining: those of the first use."""
    return model.first_chances(values, ahead, past)


def joining_ecb(model: Model, values: Ints, ahead: int, past: Past) -> Floats:
    """Lemma 1: B(Δ) is the sum of the probabilities of a partner at t0+1 … t0+Δ."""
    return np.cumsum(joining_steps(model, values, ahead, past), axis=0)


def caching_ecb(model: Model, values: Ints, ahead: int, past: Past) -> Floats:
    """Corollary 1: B(Δ) is the probability of any reference during t0+1 … t0+Δ."""
    return np.cumsum(caching_steps(model, values, ahead, past), axis=0)


def limit_to_window(ecb: Floats, remaining: Ints) -> Floats:
    """Section 7: the ECB under a sliding window that each tuple leaves after ``remaining`` steps."""
    ahead = len(ecb)
    padded = np.vstack([np.zeros(ecb.shape[1]), ecb])
    reached = np.minimum(np.arange(1, ahead + 1)[:, None], np.maximum(remaining, 0)[None, :])
    return np.take_along_axis(padded, reached, axis=0)


def dominates(better: Floats, worse: Floats) -> bool:
    """Section 4.2: one ECB is at least the other for every Δ, so it is not evicted first (Theorem 3)."""
    return bool((better >= worse - ROUNDING).all())


def strongly_dominates(better: Floats, worse: Floats) -> bool:
    """The inequality is strict for every Δ."""
    return bool((better > worse + ROUNDING).all())


def dominance(ecb: Floats) -> Bools:
    """``[i, j]``: whether candidate i dominates candidate j."""
    return np.asarray((ecb[:, :, None] >= ecb[:, None, :] - ROUNDING).all(axis=0))


def dominated_subset(ecb: Floats, discards: int) -> Ints:
    """Corollary 2: the largest set of at most ``discards`` candidates that some optimal algorithm evicts.

    Every candidate outside the set dominates every candidate in it.  Such sets are nested: only the
    candidates that the most others dominate can form one, so they are tried in that order.
    """
    over = dominance(ecb)
    count = ecb.shape[1]
    order = np.argsort(over.sum(axis=1) - over.sum(axis=0), kind="stable")
    for size in range(min(discards, count), 0, -1):
        inside, outside = order[:size], order[size:]
        if over[np.ix_(outside, inside)].all():
            return np.sort(inside)
    return np.empty(0, np.int64)


def estimated_benefit(
    model: Model,
    lifetime: Lifetime,
    values: Ints,
    past: Past,
    steps: Steps = joining_steps,
    remaining: Ints | None = None,
) -> Floats:
    """H, the score of HEEB, by its definition in section 4.3: the sum of benefits times L.

    With ``remaining``, L is zero once a tuple has left the sliding window (section 7).
    """
    ahead = lifetime.horizon if remaining is None else min(lifetime.horizon, max(1, int(remaining.max())))
    each = steps(model, values, ahead, past)
    weights = lifetime.weights(ahead)
    if remaining is None:
        return weights @ each
    inside = np.arange(1, ahead + 1)[:, None] <= remaining[None, :]
    scores: Floats = (weights[:, None] * inside * each).sum(axis=0)
    return scores


# --- closed forms ----------------------------------------------------------------------------------


def uniform_trend_ecb(value: int, ahead: Ints, now: int, bound: int) -> Floats:
    """Appendix O in one formula: the joining ECB when the partner is t plus uniform noise on -bound … bound.

    The partner's window covers the value during the steps from value - bound to value + bound.  Categories
    R1 and S1 are values it has left behind, R2 and S2 those it covers from the next step on, S3 those ahead.
    """
    first = max(value - bound, now + 1)
    covered = np.minimum(now + ahead, value + bound) - first + 1
    benefit: Floats = np.maximum(covered, 0) / (2 * bound + 1)
    return benefit


def uniform_trend_caching_ecb(value: int, ahead: Ints, now: int, bound: int) -> Floats:
    """Section 5.3, caching: a reference while the window of a trend of slope 1 covers the value."""
    covered = uniform_trend_ecb(value, ahead, now, bound) * (2 * bound + 1)
    benefit: Floats = 1 - (1 - 1 / (2 * bound + 1)) ** covered
    return benefit


def stationary_ecb(noise: Noise, values: Ints, ahead: Ints) -> Floats:
    """Section 5.2, joining: p(v) Δ."""
    return noise(values)[None, :] * ahead[:, None]


def stationary_caching_ecb(noise: Noise, values: Ints, ahead: Ints) -> Floats:
    """Section 5.2, caching: 1 - (1 - p(v))^Δ."""
    benefit: Floats = 1 - (1 - noise(values)[None, :]) ** ahead[:, None]
    return benefit


def same_future(slope: Fraction, value: int, now: int, later: int) -> int:
    """Corollary 5: the value that has at step ``later`` the ECB that ``value`` has at step ``now``."""
    shift = slope * (later - now)
    if shift.denominator != 1:
        raise ValueError("the trend is at the same fraction of a step only if it has risen by an integer")
    return value + int(shift)
