"""What a certificate of growth is: rows that every algorithm must tell apart.

A witness is a *fooling set*: N optional rows (the universe) and N probes such that what the query says
after probe k tells whether row k was there.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from itertools import combinations
from typing import Any

from millpond.query.evaluate import Evaluator, Row
from millpond.query.model import Query

# Universes up to this size are confirmed on all subsets, larger ones on a sample.
EXHAUSTIVE = 8
_FLIPS = 40
_SUBSETS = 8


@dataclass(frozen=True)
class StreamRow:
    stream: str
    row: Row

    def to_json(self) -> dict[str, Any]:
        return {"stream": self.stream, "row": {name: _json_value(v) for name, v in self.row.items()}}


@dataclass(frozen=True)
class Witness:
    """See the module; ``compare`` says whether probes are told apart by what they make the query emit
    ("emitted") or by the answer after them ("answer")."""

    setup: tuple[StreamRow, ...]
    universe: tuple[StreamRow, ...]
    probes: tuple[tuple[StreamRow, ...], ...]
    compare: str

    def to_json(self) -> dict[str, Any]:
        return {
            "setup": [r.to_json() for r in self.setup],
            "universe": [r.to_json() for r in self.universe],
            "probes": [[r.to_json() for r in probe] for probe in self.probes],
            "compare": self.compare,
        }


def confirms(query: Query, witness: Witness, seed: int = 0) -> bool:
    """Brute force: for every subset of the universe, each probe tells its row's presence.

    Besides, the responses to all probes together differ between any two subsets, which is what forces
    as many memory states as there are subsets.  Above EXHAUSTIVE rows, subsets are drawn at random.
    """
    n = len(witness.universe)
    trial = _Trial(query, witness)
    if n <= EXHAUSTIVE:
        flips = [(subset, k) for subset in range(1 << n) for k in range(n) if subset >> k & 1]
        subsets: Sequence[int] = range(1 << n)
    else:
        rng = random.Random(seed)
        flips = [(rng.getrandbits(n) | 1 << k, k) for k in (rng.randrange(n) for _ in range(_FLIPS))]
        subsets = sorted({rng.getrandbits(n) for _ in range(_SUBSETS)})
    if any(trial.response(subset, k) == trial.response(subset & ~(1 << k), k) for subset, k in flips):
        return False
    if n <= EXHAUSTIVE:
        return len({tuple(trial.response(subset, k) for k in range(n)) for subset in subsets}) == len(subsets)
    return all(trial.tells_apart(a, b) for a, b in combinations(subsets, 2))


class _Trial:
    """The responses of a query to the probes of a witness."""

    def __init__(self, query: Query, witness: Witness) -> None:
        self._evaluator = Evaluator(query)
        self._witness = witness
        self._before: dict[int, tuple[dict[str, list[Row]], Counter[Any]]] = {}
        self._known: dict[tuple[int, int], frozenset[Any]] = {}

    def response(self, subset: int, k: int) -> frozenset[Any]:
        """What probe k yields after the setup and the chosen rows of the universe."""
        if (subset, k) not in self._known:
            data, before = self._prefix(subset)
            after = {stream: list(rows) for stream, rows in data.items()}
            for r in self._witness.probes[k]:
                after.setdefault(r.stream, []).append(r.row)
            result = self._evaluator.answer(after)
            result.subtract(before)
            self._known[subset, k] = frozenset((row, count) for row, count in result.items() if count)
        return self._known[subset, k]

    def tells_apart(self, one: int, other: int) -> bool:
        """Some probe answers differently after the two subsets."""
        differing = (k for k in range(len(self._witness.universe)) if (one ^ other) >> k & 1)
        return any(self.response(one, k) != self.response(other, k) for k in differing)

    def _prefix(self, subset: int) -> tuple[dict[str, list[Row]], Counter[Any]]:
        if subset not in self._before:
            data: dict[str, list[Row]] = {}
            chosen = [r for k, r in enumerate(self._witness.universe) if subset >> k & 1]
            for r in (*self._witness.setup, *chosen):
                data.setdefault(r.stream, []).append(r.row)
            emitted = self._witness.compare == "emitted"
            self._before[subset] = data, self._evaluator.answer(data) if emitted else Counter()
        return self._before[subset]


def _json_value(value: Any) -> Any:
    match value:
        case datetime():
            return value.isoformat(sep=" ")
        case date():
            return value.isoformat()
        case Decimal():
            return float(value) if Decimal(str(float(value))) == value else str(value)
        case _:
            return value
