"""RAND: evicts at random (section 6.2 of paper 3)."""

from __future__ import annotations

from typing import Any

import numpy as np

from millpond.models.array_types import Floats
from millpond.policies.policy import Candidates, Policy, outside_first


class RandomEviction(Policy):
    """Evicts tuples outside their window first, then at random."""

    bypasses = False

    def __init__(self, seed: int = 0) -> None:
        self._rng = np.random.default_rng(seed)

    def scores(self, now: int, candidates: Candidates) -> Floats:
        return outside_first(now, candidates, self._rng.random(len(candidates)))

    def state(self) -> dict[str, Any]:
        return {"rng": self._rng.bit_generator.state}

    def load(self, state: dict[str, Any]) -> None:
        self._rng.bit_generator.state = state["rng"]
