"""A join plan as a policy, to replay what OPT-offline promises."""

from __future__ import annotations

import numpy as np

from millpond.models.array_types import Floats
from millpond.policies.opt_offline import JoinPlan
from millpond.policies.policy import Candidates, Policy, S


class PlannedEviction(Policy):
    """Keeps each tuple until the step that a plan gives it."""

    def __init__(self, plan: JoinPlan) -> None:
        self._plan = plan

    def scores(self, now: int, candidates: Candidates) -> Floats:
        r, s = self._plan.r_until, self._plan.s_until
        until = np.where(candidates.side == S, s[candidates.arrived], r[candidates.arrived])
        return (now + 1 < until).astype(np.float64)
