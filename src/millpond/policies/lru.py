"""LRU and LRU-k: evict what was not used for the longest time."""

from __future__ import annotations

from typing import Any

import numpy as np

from millpond.models.array_types import Floats, Ints
from millpond.policies.policy import Candidates, Policy


class Lru(Policy):
    """Evicts the least recently used candidate."""

    bypasses = False

    def scores(self, now: int, candidates: Candidates) -> Floats:
        return candidates.used.astype(np.float64)


class LruK(Policy):
    """LRU-k, for caching: evicts the row whose k-th last reference is longest ago."""

    bypasses = False

    def __init__(self, depth: int = 2) -> None:
        self.depth = depth
        self._times: dict[int, list[int]] = {}

    def observe(self, now: int, r: Ints, s: Ints) -> None:
        for place, key in enumerate(r.tolist()):
            times = self._times.setdefault(key, [])
            times.append(now - len(r) + 1 + place)
            del times[: -self.depth]

    def scores(self, now: int, candidates: Candidates) -> Floats:
        times = [self._times[key] for key in candidates.value.tolist()]
        return np.array([t[0] if len(t) == self.depth else -1 for t in times], np.float64)

    def state(self) -> dict[str, Any]:
        return {"times": sorted(self._times.items())}

    def load(self, state: dict[str, Any]) -> None:
        self._times = {key: list(times) for key, times in state["times"]}
