"""Confirms witnesses by evaluating the whole query, blocks included, in DuckDB."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, product
from typing import Any

from millpond.analysis.witness.effort import evaluate_limited
from millpond.analysis.witness.model import EXHAUSTIVE, StreamRow, Witness, WitnessTemplate
from millpond.query.evaluate import Row, compile_condition
from millpond.query.model import Query, Table
from millpond.query.types import Family
from millpond.runtime.query_sql import World

# How many pairs of subsets that differ in one row, and how many other subsets, are tried of a large witness.
_FLIPS = 16
_SUBSETS = 4
# The numbers of optional rows with which a template is confirmed before a query is called unbounded.
CONFIRMED = (6, 40)
# The most rows of all probes after all subsets, for which all are tried.
_MOST_PROBE_ROWS = 40_000

Answer = Counter[tuple[Any, ...]]


def is_confirmed_whole(query: Query, witness: Witness, seed: int = 0) -> bool:
    """Confirmed by evaluating the whole query in DuckDB: each probe shows whether its row was there.

    Up to EXHAUSTIVE rows on all subsets, above on a sample.
    """
    trial = _choose_worlds(witness, seed)
    return trial.is_confirmed(evaluate_limited(query, trial.worlds))


def is_confirmed_in_large(query: Query, template: WitnessTemplate) -> bool:
    """Whether witnesses of several sizes are confirmed, the largest of which has 40 optional rows."""
    if not keeps_declarations(template):
        return False
    witnesses = [template.build(n) for n in CONFIRMED]
    if not all(respects_checks(template.tables, each) for each in witnesses):
        return False
    # The largest first: a query that is limited to some rows fails with it, and only with it.  If probes have
    # very many rows, it is the only one.
    sizes = [sum(map(len, each.probes)) << len(each.universe) for each in witnesses]
    chosen = [each for each, size in zip(witnesses[:-1], sizes, strict=False) if size <= _MOST_PROBE_ROWS]
    return all(is_confirmed_whole(query, each) for each in (witnesses[-1], *chosen))


def is_retracting_whole(query: Query, witness: Witness, seed: int = 0) -> bool:
    """Whether each probe takes back rows that show whether its row was there, however many others were.

    A bounded query may take back its last few rows; only a large witness tells the difference.
    """
    trial = Trial(witness, _choose_flips(len(witness.universe), random.Random(seed)), ())
    return trial.is_retracting(evaluate_limited(query, trial.worlds))


def _choose_worlds(witness: Witness, seed: int) -> Trial:
    n = len(witness.universe)
    if n <= EXHAUSTIVE:
        return try_all(witness)
    rng = random.Random(seed)
    flips = _choose_flips(n, rng)
    subsets = sorted({rng.getrandbits(n) for _ in range(_SUBSETS)})
    apart = list(combinations(subsets, 2))
    tried = [*flips]
    for one, other in apart:
        ends = [k for k in range(n) if (one ^ other) >> k & 1]
        tried += [(s, k) for s in (one, other) for k in (ends[-1], ends[0])]
    halves = _list_halves(n)
    # Probes of many rows are tried in fewer places.
    step = max(3, n * sum(map(len, witness.probes)) // _MOST_PROBE_ROWS)
    tried += [(s, k) for pair in halves for s in pair for k in range(0, n, min(step, n // 2))]
    return Trial(witness, tried, [*apart, *halves])


def _choose_flips(n: int, rng: random.Random) -> list[tuple[int, int]]:
    """Random subsets with and without a row, and that row: the first, the last, and some between."""
    rows = [i * (n - 1) // (_FLIPS - 1) for i in range(_FLIPS)]
    flips = [(rng.getrandbits(n) | 1 << k, k) for k in rows]
    return [*flips, *((s & ~(1 << k), k) for s, k in flips)]


def try_all(witness: Witness) -> Trial:
    """The trial of all subsets of a witness."""
    n = len(witness.universe)
    return Trial(witness, product(range(1 << n), range(n)), combinations(range(1 << n), 2))


def _list_halves(n: int) -> list[tuple[int, int]]:
    """Pairs of subsets with equal sums of low powers, which sums over their rows do not tell apart.

    They divide a power of two of rows by the parity of the bits of their numbers (Prouhet).  The other rows
    are in both, so that frames of a few rows do not tell them apart either.  There are several pairs, because
    rounding a sum of floats may tell some of them apart.
    """
    every, size = (1 << n) - 1, 1 << (n.bit_length() - 1)
    places = [(size, (n - size) // 2), (size // 2, n // 4), (size // 2, n // 2 - size // 8)]
    odd = [sum(1 << first + k for k in range(rows) if k.bit_count() % 2) for rows, first in places]
    even = [((1 << rows) - 1 << first) - part for (rows, first), part in zip(places, odd, strict=True)]
    return [(every - one, every - other) for one, other in zip(odd, even, strict=True)]


class Trial:
    """The worlds in which a witness is evaluated: subsets before and after a probe.

    ``tried`` are subsets, each with the number of a probe; the probes tell the subsets of each pair of
    ``apart`` from each other.
    """

    def __init__(
        self, witness: Witness, tried: Iterable[tuple[int, int]], apart: Iterable[tuple[int, int]]
    ) -> None:
        self.witness = witness
        self.worlds: list[World] = []
        self._apart = list(apart)
        self._before: dict[int, int] = {}
        self._after: dict[tuple[int, int], int] = {}
        for subset, k in dict.fromkeys(tried):
            rows = [*witness.setup, *(r for i, r in enumerate(witness.universe) if subset >> i & 1)]
            if subset not in self._before:
                self._before[subset] = self._add(rows)
            self._after[subset, k] = self._add([*rows, *witness.probes[k]])

    def _add(self, rows: Iterable[StreamRow]) -> int:
        world: dict[str, list[Row]] = {}
        for each in rows:
            world.setdefault(each.stream, []).append(each.row)
        self.worlds.append(world)
        return len(self.worlds) - 1

    def is_confirmed(self, answers: Sequence[Answer]) -> bool:
        """Whether each probe tells its row's presence, and all probes together tell any two subsets apart."""
        emitted = self.witness.compare == "emitted"
        responses = {}
        for subset, k in self._after:
            after = answers[self._after[subset, k]]
            shown = after - answers[self._before[subset]] if emitted else after
            responses[subset, k] = frozenset((_round(row), count) for row, count in shown.items())
        return _tells_each(responses) and _tells_apart(responses, self._apart)

    def is_retracting(self, answers: Sequence[Answer]) -> bool:
        """Whether the rows that each probe removes from the answer tell its row's presence."""
        gone = {}
        for subset, k in self._after:
            before, after = answers[self._before[subset]], answers[self._after[subset, k]]
            gone[subset, k] = frozenset((before - after).items())
        return _tells_each(gone)


def _round(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """A row without the digits of floats that depend on the order of additions."""
    return tuple(
        round(value, 9)
        if isinstance(value, float) and abs(value) < 1
        else float(f"{value:.9g}")
        if isinstance(value, float)
        else value
        for value in row
    )


Responses = Mapping[tuple[int, int], frozenset[Any]]


def _tells_each(responses: Responses) -> bool:
    """Whether the response to each probe depends on the presence of its row."""
    pairs = ((responses[s, k], responses.get((s & ~(1 << k), k))) for s, k in responses if s >> k & 1)
    return all(there != gone for there, gone in pairs)


def _tells_apart(responses: Responses, pairs: Iterable[tuple[int, int]]) -> bool:
    """Whether the subsets of each pair differ in the response to a probe that was tried after both."""
    probes: dict[int, set[int]] = {}
    for subset, k in responses:
        probes.setdefault(subset, set()).add(k)
    return all(
        any(responses[one, k] != responses[other, k] for k in probes[one] & probes[other])
        for one, other in pairs
    )


def keeps_declarations(template: WitnessTemplate) -> bool:
    """Whether no witness, however large, has more values in a column than are declared for it.

    A relation has the same rows in every witness: it does not grow with the streams.
    """
    relations = {name for name, table in template.tables.items() if not table.streaming}
    declared = [
        (table.name, column.name, column.cardinality)
        for table in template.tables.values()
        for column in table.columns
        if column.cardinality is not None
    ]
    if not declared and not relations:
        return True
    # All sizes are built by the same scheme.
    small, large = (template.build(n) for n in (CONFIRMED[0], CONFIRMED[0] + 1))
    if any(_count_rows(small, name) != _count_rows(large, name) for name in relations):
        return False
    if not declared:
        return True
    counts = _count_values(small), _count_values(large)
    return all(counts[0][name, column] == counts[1][name, column] <= most for name, column, most in declared)


def _count_rows(witness: Witness, table: str) -> int:
    return sum(each.stream == table for each in witness.setup)


def _count_values(witness: Witness) -> Counter[tuple[str, str]]:
    """The number of different values of each column of each table, besides NULL."""
    rows = [*witness.setup, *witness.universe, *(row for probe in witness.probes for row in probe)]
    found = {
        (each.stream, name, str(value) if isinstance(value, list | dict) else value)
        for each in rows
        for name, value in each.row.items()
    }
    return Counter((stream, name) for stream, name, value in found if value is not None)


def respects_checks(tables: Mapping[str, Table], witness: Witness) -> bool:
    """Whether no row breaks a CHECK or the limits of its type."""
    every = [*witness.setup, *witness.universe, *(r for probe in witness.probes for r in probe)]
    for name, table in tables.items():
        rows = [each.row for each in every if each.stream == name]
        for check in table.checks:
            passes = compile_condition(check, {name: 0})
            if any(passes([row]) is False for row in rows):
                return False
        for column in table.columns:
            low, high = column.type.low, column.type.high
            if column.type.family is not Family.NUMBER or low is None or high is None:
                continue
            values = [row[column.name] for row in rows if row[column.name] is not None]
            if values and not (low <= min(values) and max(values) <= high):
                return False
    return True
