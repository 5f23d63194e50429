"""LFU: evicts the least frequently used.  Perfect LFU, which never forgets a count, is :mod:`.prob`."""

from __future__ import annotations

import numpy as np

from millpond.models.array_types import Floats
from millpond.policies.policy import Candidates, Policy


class Lfu(Policy):
    """Evicts the candidate used least often since it arrived."""

    bypasses = False

    def scores(self, now: int, candidates: Candidates) -> Floats:
        return candidates.uses.astype(np.float64)
