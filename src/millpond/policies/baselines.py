"""Policies that know no model: RAND, PROB, LIFE (section 6.2), FIFO, LRU, LFU, LRU-k; and offline ones."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from millpond.models.arrays import Floats, Ints
from millpond.policies.policy import Candidates, Policy, S

_OUTSIDE = -1.0


def _outside_first(now: int, candidates: Candidates, scores: Floats) -> Floats:
    """The scores, but the lowest for tuples whose window will have passed at the next step."""
    return np.where(now + 1 >= candidates.end, _OUTSIDE, scores)


class Random(Policy):
    """RAND: whoever chance picks, after those outside their window."""

    bypasses = False

    def __init__(self, seed: int = 0) -> None:
        self._rng = np.random.default_rng(seed)

    def scores(self, now: int, candidates: Candidates) -> Floats:
        return _outside_first(now, candidates, self._rng.random(len(candidates)))

    def state(self) -> dict[str, Any]:
        return {"rng": self._rng.bit_generator.state}

    def load(self, state: dict[str, Any]) -> None:
        self._rng.bit_generator.state = state["rng"]


class Prob(Policy):
    """PROB: the share of the partner's past that had the tuple's value.

    For caching it is perfect LFU: every reference ever seen counts.  Counts are scores as good as shares,
    because both streams are equally long.
    """

    bypasses = False

    def __init__(self) -> None:
        self._seen: tuple[Counter[int], Counter[int]] = (Counter(), Counter())

    def observe(self, now: int, r: Ints, s: Ints) -> None:
        self._seen[0].update(r.tolist())
        self._seen[1].update(s.tolist())

    def _counts(self, candidates: Candidates) -> Floats:
        partners = (1 - candidates.side).tolist()
        values = candidates.value.tolist()
        counts = [self._seen[side][value] for side, value in zip(partners, values, strict=True)]
        return np.array(counts, np.float64)

    def scores(self, now: int, candidates: Candidates) -> Floats:
        return _outside_first(now, candidates, self._counts(candidates))

    def state(self) -> dict[str, Any]:
        return {"seen": [sorted(counter.items()) for counter in self._seen]}

    def load(self, state: dict[str, Any]) -> None:
        r, s = (Counter({value: count for value, count in items}) for items in state["seen"])
        self._seen = (r, s)


class Life(Prob):
    """LIFE: PROB's share times the steps that the window still covers the tuple."""

    def scores(self, now: int, candidates: Candidates) -> Floats:
        remaining = candidates.end - now - 1
        return _outside_first(now, candidates, self._counts(candidates) * remaining)


class Fifo(Policy):
    """The longest kept goes."""

    bypasses = False

    def scores(self, now: int, candidates: Candidates) -> Floats:
        return candidates.arrived.astype(np.float64)


class Lru(Policy):
    """The one whose last use is longest ago goes."""

    bypasses = False

    def scores(self, now: int, candidates: Candidates) -> Floats:
        return candidates.used.astype(np.float64)


class Lfu(Policy):
    """The one used least since it was taken in goes."""

    bypasses = False

    def scores(self, now: int, candidates: Candidates) -> Floats:
        return candidates.uses.astype(np.float64)


class LruK(Policy):
    """LRU-k, for caching: the one whose k-th last reference is longest ago goes."""

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


class NextUse(Policy):
    """LFD with bypass, the offline optimum of caching: the row referenced last from now on goes."""

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


class Planned(Policy):
    """Keeps each tuple until its step in a plan made in advance, such as OPT-offline's."""

    def __init__(self, r_until: Ints, s_until: Ints) -> None:
        self._until = (r_until, s_until)

    def scores(self, now: int, candidates: Candidates) -> Floats:
        r, s = self._until
        until = np.where(candidates.side == S, s[candidates.arrived], r[candidates.arrived])
        return (now + 1 < until).astype(np.float64)
