"""FIFO: evicts the oldest."""

from __future__ import annotations

import numpy as np

from millpond.models.array_types import Floats
from millpond.policies.policy import Candidates, Policy


class Fifo(Policy):
    """Evicts the candidate that arrived first."""

    bypasses = False

    def scores(self, now: int, candidates: Candidates) -> Floats:
        return candidates.arrived.astype(np.float64)
