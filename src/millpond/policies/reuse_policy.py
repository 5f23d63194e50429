"""REUSE as a policy: the reuse model at work in any store, with a state that can be saved."""

from __future__ import annotations

from typing import Any

import numpy as np

from millpond.models.arrays import Floats, Ints
from millpond.policies.kernels import reuse
from millpond.policies.policy import Candidates, Policy


class Reuse(Policy):
    """For caching: a row is worth the best rate of hits a step that it can earn.

    Keeps four numbers for every key ever referenced.
    """

    def __init__(self) -> None:
        self._place: dict[int, int] = {}
        self._used = np.empty(0, np.int64)
        self._since = np.empty(0, np.int64)
        self._group = np.empty(0, np.int64)
        self._events = np.zeros((reuse.CLASSES, reuse.BINS))
        self._exposure = np.zeros((reuse.CLASSES, reuse.BINS))
        self._rates = reuse.starting_rates()

    def observe(self, now: int, r: Ints, s: Ints) -> None:
        for step, key in enumerate(r.tolist(), start=now - len(r) + 1):
            self._refer(step, key)
            if (step + 1) % reuse.PERIOD == 0:
                known = np.arange(len(self._place))
                reuse.catch_up(step, known, len(known), self._used, self._since, self._group, self._exposure)
                reuse.best_rates(self._events, self._exposure, self._rates)
                self._events *= reuse.FADING
                self._exposure *= reuse.FADING

    def _refer(self, now: int, key: int) -> None:
        place = self._place.get(key)
        if place is None:
            place = self._place[key] = len(self._place)
            if place >= len(self._used):
                more = np.zeros(max(64, len(self._used)), np.int64)
                self._used = np.concatenate([self._used, more])
                self._since = np.concatenate([self._since, more])
                self._group = np.concatenate([self._group, more])
        else:
            used, group = int(self._used[place]), int(self._group[place])
            reuse.expose(self._exposure[group], int(self._since[place]) - used, now - used)
            self._events[group, reuse.age_bin(now - used)] += 1
            self._group[place] = reuse.reuse_class(now - used)
        self._used[place] = now
        self._since[place] = now

    def scores(self, now: int, candidates: Candidates) -> Floats:
        places = np.array([self._place[key] for key in candidates.value.tolist()], np.int64)
        bins = np.array([reuse.age_bin(age) for age in (now - self._used[places] + 1).tolist()], np.int64)
        return np.asarray(self._rates[self._group[places], bins])

    def state(self) -> dict[str, Any]:
        count = len(self._place)
        return {
            "keys": list(self._place),
            "used": self._used[:count].tolist(),
            "since": self._since[:count].tolist(),
            "group": self._group[:count].tolist(),
            "events": self._events.tolist(),
            "exposure": self._exposure.tolist(),
            "rates": self._rates.tolist(),
        }

    def load(self, state: dict[str, Any]) -> None:
        self._place = {key: place for place, key in enumerate(state["keys"])}
        self._used, self._since, self._group = (
            np.array(state[name], np.int64) for name in ("used", "since", "group")
        )
        self._events, self._exposure, self._rates = (
            np.array(state[name], np.float64) for name in ("events", "exposure", "rates")
        )
