"""LFD (longest forward distance) with bypass: the offline optimum of caching."""

from __future__ import annotations

import numpy as np

from millpond.models.array_types import Floats, Ints
from millpond.policies.policy import Candidates, Policy


class Lfd(Policy):
    """Knows all references in advance and evicts the row whose next reference is last."""

    def __init__(self, keys: Ints) -> None:
        self._steps: dict[int, list[int]] = {}
        for step, key in enumerate(keys.tolist()):
            self._steps.setdefault(key, []).append(step)

    def scores(self, now: int, candidates: Candidates) -> Floats:
        due = []
        for key in candidates.value.tolist():
            steps = self._steps.get(key, [])
            place = int(np.searchsorted(steps, now, "right"))
            due.append(steps[place] if place < len(steps) else np.inf)
        return -np.array(due)
