"""REUSE: a caching policy that scores rows by the reuse model (:mod:`.kernels.reuse_model`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from millpond.models.array_types import Floats, Ints
from millpond.policies.kernels import reuse_model
from millpond.policies.kernels.reuse_model import ReuseState
from millpond.policies.policy import Candidates, Policy


class Reuse(Policy):
    """Scores a row by the best rate of hits per step that it can earn.

    Keeps three numbers for every key ever referenced.
    """

    def __init__(self) -> None:
        self._place: dict[int, int] = {}
        self._state = reuse_model.empty_state()

    def observe(self, now: int, r: Ints, s: Ints) -> None:
        for step, key in enumerate(r.tolist(), start=now - len(r) + 1):
            place = self._place.setdefault(key, len(self._place))
            self._state = reuse_model.reserve_keys(self._state, place + 1)
            reuse_model.record_reference(step, place, self._state)
            if (step + 1) % reuse_model.PERIOD == 0:
                reuse_model.refresh(step, np.arange(len(self._place)), self._state)

    def scores(self, now: int, candidates: Candidates) -> Floats:
        places = np.array([self._place[key] for key in candidates.value.tolist()], np.int64)
        ages = now - self._state.used[places] + 1
        bins = np.array([reuse_model.age_bin(age) for age in ages.tolist()], np.int64)
        return np.asarray(self._state.rates[self._state.group[places], bins])

    def state(self) -> dict[str, Any]:
        used, since, group, *counts = self._state
        by_key = (column[: len(self._place)] for column in (used, since, group))
        return {"keys": list(self._place), "arrays": [array.tolist() for array in (*by_key, *counts)]}

    def load(self, state: dict[str, Any]) -> None:
        self._place = {key: place for place, key in enumerate(state["keys"])}
        used, since, group, *counts = state["arrays"]
        used, since, group = (np.array(column, np.int64) for column in (used, since, group))
        events, exposure, rates = (np.array(table, np.float64) for table in counts)
        self._state = ReuseState(used, since, group, events, exposure, rates)
