"""PROB and LIFE: scores by the frequency of a value in the partner stream (section 6.2 of paper 3)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from millpond.models.array_types import Floats, Ints
from millpond.policies.policy import Candidates, Policy, outside_first


class Prob(Policy):
    """PROB: evicts the value that the partner stream had least often.

    For caching it is perfect LFU: every reference ever seen counts.  Counts rank tuples as relative
    frequencies do, because both streams are equally long.
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
        return outside_first(now, candidates, self._counts(candidates))

    def state(self) -> dict[str, Any]:
        return {"seen": [sorted(counter.items()) for counter in self._seen]}

    def load(self, state: dict[str, Any]) -> None:
        r, s = (Counter({value: count for value, count in items}) for items in state["seen"])
        self._seen = (r, s)


class Life(Prob):
    """LIFE: the frequency times the number of steps for which the window still covers the tuple."""

    def scores(self, now: int, candidates: Candidates) -> Floats:
        remaining = candidates.end - now - 1
        return outside_first(now, candidates, self._counts(candidates) * remaining)
