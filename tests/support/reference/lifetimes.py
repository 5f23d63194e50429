"""Estimates of lifetimes in section 4.3 that only caching can use: L^inf and L^inv."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from millpond.models.array_types import Floats


@dataclass(frozen=True)
class Forever:
    """L^inf: every tuple is kept for ever.  For caching only; for joining the sum may diverge."""

    span: int = 10_000

    def weights(self, ahead: int) -> Floats:
        return np.ones(ahead)

    @property
    def horizon(self) -> int:
        return self.span


@dataclass(frozen=True)
class Inverse:
    """L^inv(Δ) = 1/Δ: the score of a row is its expected inverse waiting time.  For caching only."""

    span: int = 10_000

    def weights(self, ahead: int) -> Floats:
        weights: Floats = 1 / np.arange(1, ahead + 1)
        return weights

    @property
    def horizon(self) -> int:
        return self.span
