"""What a witness is, and how it is confirmed.

A witness is a *fooling set*: N optional rows (the universe) and N probes such that the response of the query
to probe k shows whether row k was present.  So every algorithm must distinguish 2^N subsets of the rows.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from itertools import combinations, groupby
from typing import TYPE_CHECKING, Any, Protocol

from millpond.analysis.assumptions import find_all_refs
from millpond.query.evaluate import Evaluation, Row, StepLimit, TooManyStepsError
from millpond.query.model import Query, Table
from millpond.query.trees import is_aggregate

if TYPE_CHECKING:
    from millpond.runtime.derive import ResultFilter

# Universes up to this size are confirmed on all subsets, larger ones on a sample; the limit is lower if
# probes are observed step by step.
EXHAUSTIVE = 8
_EXHAUSTIVE_IN_STEPS = 6
_FLIPS = 40
_SUBSETS = 8


@dataclass(frozen=True)
class StreamRow:
    """A row of a stream."""

    stream: str
    row: Row

    def to_json(self) -> dict[str, Any]:
        return {"stream": self.stream, "row": {name: _json_value(v) for name, v in self.row.items()}}


@dataclass(frozen=True)
class Witness:
    """A fooling set.  ``compare`` is what is observed of a probe: the rows that it makes the query emit
    ("emitted"; for an aggregate, each new answer on the way) or the answer after it ("answer")."""

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


class WitnessTemplate(Protocol):
    """A scheme for witnesses of any size, of a query that reads the declared ``tables``."""

    @property
    def tables(self) -> Mapping[str, Table]: ...

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What is taken for granted if a witness of any size is to be confirmed."""

    def build(self, n: int) -> Witness:
        """The witness with ``n`` optional rows."""

    def observe_answers(self) -> WitnessTemplate:
        """The same scheme, where the whole answer after a probe is observed."""

    def rebase(self, tables: Mapping[str, Table], base: Mapping[str, Row]) -> WitnessTemplate:
        """The same scheme for a query that reads further tables, with a row of each."""


# An answer takes as long as so many steps of a join.
_STEPS_OF_ANSWER = 40


def is_confirmed(query: Query, witness: Witness, seed: int = 0, limit: StepLimit | None = None) -> bool:
    """Confirmed by brute force: for every subset of the universe, each probe shows if its row is in it.

    The responses to all probes together must also differ between any two subsets, which forces as many memory
    states as there are subsets.  Above EXHAUSTIVE rows, the subsets of one row and random ones are tried.  A
    confirmation that takes more steps than the ``limit`` fails.
    """
    try:
        return _holds(_Confirmation(query, witness, limit), len(witness.universe), seed)
    except (ValueError, TooManyStepsError):  # a derived column or the filter cannot be computed
        return False


def _holds(trial: _Confirmation, n: int, seed: int) -> bool:
    if trial.has_equal_rows():
        return False
    everything = n <= (_EXHAUSTIVE_IN_STEPS if trial.step_by_step else EXHAUSTIVE)
    if everything:
        flips = [(subset, k) for subset in range(1 << n) for k in range(n) if subset >> k & 1]
        subsets: Sequence[int] = range(1 << n)
    else:
        rng = random.Random(seed)
        flips = [(rng.getrandbits(n) | 1 << k, k) for k in (rng.randrange(n) for _ in range(_FLIPS))]
        subsets = sorted({rng.getrandbits(n) for _ in range(_SUBSETS)})
    flips.sort(key=lambda flip: min(flip[0].bit_count(), n - flip[0].bit_count()))  # likely failures first
    if any(trial.response(subset, k) == trial.response(subset & ~(1 << k), k) for subset, k in flips):
        return False
    if everything:
        return len({tuple(trial.response(subset, k) for k in range(n)) for subset in subsets}) == len(subsets)
    alone = {tuple(trial.response(1 << i, k) for k in range(n)) for i in range(n)}
    return len(alone) == n and all(trial.distinguishes(a, b) for a, b in combinations(subsets, 2))


class _Confirmation:
    """The responses of a query to the probes of a witness."""

    def __init__(self, query: Query, witness: Witness, limit: StepLimit | None = None) -> None:
        self._witness, self._limit = witness, limit
        aggregates = any(is_aggregate(select) for select in query.selects)
        self.step_by_step = aggregates and witness.compare == "emitted"
        self._times = {name: table.time for name, table in query.tables.items()}
        self._derived = _derive_rows(query, witness)
        self._used = _find_used_columns(query)
        self._shown = _find_shown(query)
        self._filter = _open_filter(query)
        self._setup = Evaluation(query, limit)
        self._setup.feed(self._by_stream(witness.setup))
        self._before: dict[int, tuple[Evaluation, Counter[Any]]] = {}
        self._known: dict[tuple[int, int], frozenset[Any]] = {}
        self._first = [witness.probes.index(probe) for probe in witness.probes]  # of equal probes

    def has_equal_rows(self) -> bool:
        """Two optional rows agree in all columns that the query uses, so that no probe tells them apart."""
        seen = [
            (r.stream, tuple(tuple(row.get(c) for c in self._used[r.stream]) for row in self._rows_of(r)))
            for r in self._witness.universe
        ]
        return len(set(seen)) < len(seen)

    def response(self, subset: int, k: int) -> frozenset[Any]:
        """The response to probe k after the setup and a subset of the universe."""
        k = self._first[k]
        if (subset, k) not in self._known:
            prefix, before = self._prefix(subset)
            evaluation = prefix.copy()
            response: list[tuple[int, tuple[Any, ...], int]] = []
            for step, rows in enumerate(self._steps(self._witness.probes[k])):
                evaluation.feed(self._by_stream(rows))
                answer = self._answer(evaluation)
                response += [(step, row, count) for row, count in (answer - before).items()]
                before = answer
            self._known[subset, k] = frozenset(response)
        return self._known[subset, k]

    def _steps(self, probe: Sequence[StreamRow]) -> list[Sequence[StreamRow]]:
        """The probe in the steps that are observed: at once, or timestamp by timestamp."""
        if not self.step_by_step:
            return [probe]
        timestamps = (r.row[time] if (time := self._times[r.stream]) else i for i, r in enumerate(probe))
        by_timestamp = groupby(zip(timestamps, probe, strict=True), key=lambda pair: pair[0])
        return [[r for _, r in pairs] for _, pairs in by_timestamp]

    def distinguishes(self, one: int, other: int) -> bool:
        """Some probe responds differently after the two subsets; probes of rows in one of them come first."""
        rows = range(len(self._witness.universe))
        in_one = sorted(rows, key=lambda k: not (one ^ other) >> k & 1)
        return any(self.response(one, k) != self.response(other, k) for k in in_one)

    def _prefix(self, subset: int) -> tuple[Evaluation, Counter[Any]]:
        """The evaluation before the probe, and the rows to subtract from the answer after it."""
        if subset not in self._before:
            evaluation = self._setup.copy()
            evaluation.feed(
                self._by_stream(r for k, r in enumerate(self._witness.universe) if subset >> k & 1)
            )
            emitted = self._witness.compare == "emitted"
            self._before[subset] = evaluation, self._answer(evaluation) if emitted else Counter()
        return self._before[subset]

    def _answer(self, evaluation: Evaluation) -> Counter[Any]:
        """The answer; of a query with a projection, the columns that it shows as they are."""
        if self._limit is not None:
            self._limit.spend(_STEPS_OF_ANSWER)
        answer = evaluation.answer()
        if self._filter is not None:
            kept = self._filter.keeps(answer)
            answer = Counter({row: n for (row, n), keep in zip(answer.items(), kept, strict=True) if keep})
        if self._shown is None:
            return answer
        shown: Counter[Any] = Counter()
        for row, count in answer.items():
            shown[tuple(row[i] for i in self._shown)] += count
        return shown

    def _by_stream(self, rows: Iterable[StreamRow]) -> dict[str, list[Row]]:
        data: dict[str, list[Row]] = {}
        for r in rows:
            data.setdefault(r.stream, []).extend(self._rows_of(r))
        return data

    def _rows_of(self, r: StreamRow) -> list[Row]:
        """The rows with derived columns that stand for a row."""
        return self._derived.get(id(r), [r.row])


def _find_used_columns(query: Query) -> dict[str, list[str]]:
    """The columns of each table that a query uses, and its time column."""
    used: dict[str, set[str]] = {
        name: {table.time} if table.time else set() for name, table in query.tables.items()
    }
    for select in query.selects:
        for ref in find_all_refs(select):
            used[select.occurrence(ref.occurrence).table.name].add(ref.column)
    return {name: sorted(columns) for name, columns in used.items()}


def _find_shown(query: Query) -> list[int] | None:
    """The positions of the result columns that a projection leaves as they are; None without a projection.

    Answers that differ in them differ, whatever the projection computes from the others.
    """
    if not query.projection:
        return None
    kept = {each.name for each in query.projection if each.sql == f"`{each.name}`"}
    windows = {i for start, name in query.windows if name in kept for i in (start, start + 1)}
    return [i for i, name in enumerate(query.columns) if name in kept or i in windows]


def _open_filter(query: Query) -> ResultFilter | None:
    if query.filter is None:
        return None
    from millpond.runtime.derive import ResultFilter  # here, as it imports DuckDB

    return ResultFilter(query)


def _derive_rows(query: Query, witness: Witness) -> dict[int, list[Row]]:
    """The rows of a witness with their derived columns, where there are any."""
    derived: dict[int, list[Row]] = {}
    every = [*witness.setup, *witness.universe, *(r for probe in witness.probes for r in probe)]
    for table in query.tables.values():
        if table.derived:
            from millpond.runtime.derive import derive_each  # here, as it imports DuckDB

            own = [r for r in every if r.stream == table.name]
            made = derive_each(table, [r.row for r in own])
            derived |= {id(r): rows for r, rows in zip(own, made, strict=True)}
    return derived


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
