"""Queries with batches written by hand, and the answer expected after each batch."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from millpond.analysis.decide import decide
from millpond.analysis.verdict import BOUNDED
from millpond.engines.exact.chunks import ChunkPolicy
from millpond.frontend.parse import parse
from tests.support.local import Local
from tests.support.oracle import answer_one, normalise

# A stream and the values of its columns in order.
Line = tuple[Any, ...]
Answer = Counter[tuple[Any, ...]]
# The streams of paper 1's Table I.
TABLE_I = "CREATE STREAMING TABLE S (A INT, B INT, C INT); CREATE STREAMING TABLE T (D INT, E INT);"
# Divides synopses into chunks, however small they are.
SMALL_CHUNKS = ChunkPolicy(min_entries=0, values_per_chunk=2)


@dataclass(frozen=True)
class Scenario:
    """Batches, and the expected answer after each of them; without ``expected``, DuckDB gives the answers."""

    title: str
    sql: str
    batches: Sequence[Sequence[Line]]
    expected: Sequence[Sequence[Line] | Mapping[Line, int]] | None = None


class Recorded(Local):
    """Also records the rows that the last batch emitted."""

    last: list[Mapping[str, Any]]

    def _emit(self, row: Mapping[str, Any]) -> None:
        self.last.append(row)
        super()._emit(row)


class Run:
    """A bounded query that is fed by hand."""

    def __init__(
        self, sql: str, chunk_policy: ChunkPolicy | None = None, types: Sequence[str] | None = None
    ) -> None:
        [query] = parse(sql)
        verdict = decide(query)
        assert verdict.outcome == BOUNDED and verdict.plan is not None, verdict.explain()
        self.sql, self.query, self.bound = sql, query, verdict.state.entries
        self.executor = Recorded(verdict.plan, chunk_policy, types)
        self.program = self.executor.compiled.program
        self._seen: dict[str, list[dict[str, Any]]] = {name: [] for name in query.tables}

    def add(self, *lines: Line, tasks: int = 1) -> list[Mapping[str, Any]]:
        """Process a batch; returns the rows that the operator emitted."""
        batch = []
        for stream, *values in lines:
            columns = [column.name for column in self.query.tables[stream].columns]
            row = dict(zip(columns, values, strict=True))
            self._seen[stream].append(row)
            batch.append((stream, row))
        self.executor.last = []
        self.executor.add(batch, tasks)
        return self.executor.last

    def answer(self) -> Answer:
        """The rows emitted so far, without retracted ones; of each group the latest."""
        return Counter({plain(row): n for row, n in self.executor.answer().items()})

    def truth(self) -> Answer:
        """DuckDB's answer on all rows so far."""
        catalog = {name: [(c.name, c.type.name) for c in t.columns] for name, t in self.query.tables.items()}
        return answer_one(self.sql, catalog, self._seen)


def plain(row: Sequence[Any]) -> tuple[Any, ...]:
    """The row with numbers in one form, NaN equal to itself."""
    return tuple(
        str(value) if isinstance(value, float) and not math.isfinite(value) else normalise([value])[0]
        for value in row
    )


def bag(rows: Sequence[Line] | Mapping[Line, int]) -> Answer:
    """A bag of rows, from rows or from rows with their multiplicities."""
    counted = rows if isinstance(rows, Mapping) else Counter(rows)
    return Counter({plain(row): n for row, n in counted.items()})


def assert_answers(scenario: Scenario) -> None:
    """After every batch the answer is the expected one, or DuckDB's.

    Synopses are kept whole and in chunks, and rows are read by one task and by two.
    """
    for chunk_policy, tasks in ((None, 1), (None, 2), (SMALL_CHUNKS, 1)):
        run = Run(scenario.sql, chunk_policy)
        for i, batch in enumerate(scenario.batches):
            run.add(*batch, tasks=tasks)
            truth = run.truth() if scenario.expected is None else bag(scenario.expected[i])
            assert run.answer() == truth, f"after batch {i}"
            assert run.bound is not None and run.executor.entries <= run.bound
